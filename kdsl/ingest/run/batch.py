"""Runs the batches of an ingestion: divide the records by table, decide, note, change sink tables, write."""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import attrs

from kdsl.changelog.target import Batch, explain_replaced_table
from kdsl.errors import KdslError, pluralize
from kdsl.formats import TableId
from kdsl.ingest.decision import Decision, forgive_errors
from kdsl.ingest.definition import Pipeline
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.ids import format_id
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.restart import write_declaration
from kdsl.ingest.run.collectors import Collector
from kdsl.ingest.run.progress import INGEST_LOGS, LOST, IngestLog
from kdsl.ingest.run.rows import (
    RowReader,
    build_sink_tables,
    count_losses,
    refuse_losses,
    refuse_rows,
)
from kdsl.ingest.run.sinks.writer import SinkTable, SinkWriter
from kdsl.ingest.run.tasks import (
    Rejected,
)
from kdsl.ingest.run.unstorable import choose_search
from kdsl.ingest.run.value_counts import VALUE_COUNTS, ValueReporter, sum_up
from kdsl.ingest.run.value_errors import explain_value_error
from kdsl.ingest.schema_changes import Refusal
from kdsl.ingest.state import IngestState, Note, StateFiles
from kdsl.resolve.columns import find_case_clashes
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.driver import CurrentDriver
from kdsl.run.letter_case import tell_columns_apart
from kdsl.run.records.drops import log_drops
from kdsl.run.session import require_setting, try_setting
from kdsl.types import model as t
from kdsl.types.spark import TIME_TYPE_SETTING
from kdsl.types.widening import TableSchema

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from contextlib import AbstractContextManager

    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)


class IngestError(KdslError):
    """A batch of an ingestion is refused; nothing of it was written."""


@attrs.frozen(eq=False)
class OpenBatch:
    """A batch that is judged, and not written yet.

    Attributes:
        decision: What it does.
        read: Reads the rows of its upstream tables.
        tables: The sink tables that get rows.
        refusals: Why it fails; if there is one, nothing is written.
        partitions: The topic partitions that the records of each table are in.
        packets: The packets of records of Kafka; None for other sources.
        dirty: How many records cannot be read.
        reporter: Counts values that change while records are decoded; None for other sources than Kafka.
    """

    decision: Decision
    read: RowReader
    tables: Sequence[SinkTable] = ()
    refusals: Sequence[Refusal] = ()
    partitions: Mapping[TableId, frozenset[str]] = attrs.field(factory=dict)
    packets: DataFrame | None = None
    dirty: int = 0
    reporter: ValueReporter | None = None


@attrs.frozen(eq=False)
class Run:
    """One run of an ingestion in a query.

    Attributes:
        plan: The plan.
        writer: Writes to the sink.
        files: The state of the ingestion.
        checkpoint: The checkpoint of the query.
        driver: The use of the checkpoint by this run.
        log: What the log says of the run.
        accepts_tables: Whether sink tables that are gone, or others than those of earlier batches, are accepted when
            the run first uses them.
        collect: Collects records that cannot be read; None if they are only counted.
        forgive: Whether those of earlier runs do not count towards the limit any more.
    """

    plan: IngestPlan
    writer: SinkWriter
    files: StateFiles
    checkpoint: Checkpoint
    driver: CurrentDriver
    log: IngestLog
    accepts_tables: bool = False
    collect: Collector | None = None
    forgive: bool = False


class BatchRunner(ABC):
    """Runs the batches of one run of a query. Each kind of source has a subclass, which divides batches by table."""

    def __init__(self, run: Run) -> None:
        """Keep the run; nothing is read or locked before the first batch."""
        self._plan, self._writer, self._files, self._log = run.plan, run.writer, run.files, run.log
        self._checkpoint, self._driver, self._accepts_tables = run.checkpoint, run.driver, run.accepts_tables
        self._collect, self._forgive = run.collect, run.forgive
        self._declared = write_declaration(run.plan)
        self._identities: dict[TableId, str] | None = None
        self._written: Mapping[TableId, int] = {}
        self._accepted: dict[TableId, bool] = {}
        self._replaced: list[Refusal] = []
        self._query: str | None = None
        self._state: IngestState | None = None
        self._live: dict[TableId, TableSchema | None] = {}
        self._partitions: dict[TableId, frozenset[str]] = {}
        self._ignored: set[tuple[TableId, str]] = set()

    def __call__(self, records: DataFrame, number: int) -> None:
        """Run a batch; see `_run`.

        Before the first one, `configure_session` changes the session, and this driver takes the checkpoint over.

        Args:
            records: What the query read.
            number: The number of the batch.
        """
        if self._state is None:
            configure_session(records.sparkSession, self._plan.pipeline)
            self._driver.take_over()
        state = self._files.load(number) if self._state is None else self._state
        if self._state is None:
            self._log.begin(state)
            INGEST_LOGS.follow(self._query_id(), self._log)
        if self._identities is None:
            self._identities = dict(state.identities)
        judged, forgiven = forgive_errors(state) if self._forgive else (state, {})
        rejected: Rejected | None = {}
        while rejected is not None:
            rejected = self._run(records, number, state, judged, forgiven, rejected)

    def _run(
        self,
        records: DataFrame,
        number: int,
        state: IngestState,
        judged: IngestState,
        forgiven: Mapping[str, int],
        rejected: Rejected,
    ) -> Rejected | None:
        """Run a batch without some records: keep its note with the checkpoint, collect bad records, write the sinks.

        It returns None if the batch is written. Otherwise it returns the rejected records, and those that have NULL in
        a primary key, or no time that orders changes, which only shows when rows are read: the batch is run again
        without them. It is judged by the state ``judged``, without the counts ``forgiven``.
        """
        plan, spark = self._plan, records.sparkSession
        self._written = state.written
        with self._open(records, number, judged, rejected) as batch:
            decision = batch.decision
            refusals = [*batch.refusals, *self._replaced, *self._refuse_changes(spark, decision)]
            if refusals:
                raise refusal_error(f"batch {number}", refusals, plan)
            try:
                losses = count_losses(plan, batch.read, decision)
            except Exception as e:
                if more := self._find_unwritable(batch, e):
                    return join_rejected(rejected, more)
                raise
            if lossy := refuse_losses(plan, decision, losses):
                raise refusal_error(f"batch {number}", lossy, plan)
            note = self._note(with_losses(decision, losses), state)
            written = dict.fromkeys(decision.sinks, number)
            note = attrs.evolve(note, counts={**note.counts, **forgiven}, written=written)
            self._driver.require()
            self._state, self._forgive = self._files.write(note, state), False
            self._warn_of_partitions(batch.partitions, decision)
            _warn_of_dropped_columns(state, decision)
            self._warn_of_ignored_columns(decision)
            identity = self._batch(number)
            if self._collect is not None and batch.packets is not None and batch.dirty:
                self._collect(batch.packets, identity)
            for change in decision.note.changes:
                _log.info("batch %d: %s", number, change)
            try:
                self._writer.write(batch.tables, identity.of_part(self._files.name) if self._files.name else identity)
            except Exception as e:
                self._driver.require(e)
                more = self._find_unwritable(batch, e)
                if not more:
                    reason = explain_value_error(self._plan, decision, e)
                    if reason is not None:
                        raise IngestError(reason) from e
                    raise
                for table in decision.sinks:  # some of them may be changed
                    self._live.pop(table, None)
                return join_rejected(rejected, more)
            self._live |= {table: evolution.schema for table, evolution in decision.sinks.items()}
            self._accepted |= dict.fromkeys(decision.sinks, False)
            note = self._identify_tables(spark, decision, note, state)
            if batch.reporter is not None:
                note = self._count_values(batch.reporter, note, state)
            self._log.add(note, [work.plan.table for work in decision.tables])
        return None

    def _identify_tables(self, spark: SparkSession, decision: Decision, note: Note, before: IngestState) -> Note:
        """Add the identities of sink tables that are new, or changed by this batch, to its note, and keep that."""
        assert self._identities is not None
        changed = [table for table, of in decision.sinks.items() if table not in self._identities or of.changes]
        identities = self._writer.identify(spark, changed) if changed else {}
        new = {table: id_ for table, id_ in identities.items() if id_ != self._identities.get(table)}
        if not new:
            return note
        self._identities |= new
        note = attrs.evolve(note, identities={**note.identities, **new})
        self._driver.require()
        self._state = self._files.write(note, before)
        return note

    def _find_unwritable(self, batch: OpenBatch, error: Exception) -> Rejected:
        """The records of Kafka for which a job failed; none for other sources, other reasons, or if the search fails.

        The log then has the error of the search.
        """
        search = choose_search(error)
        if batch.packets is None or search is None:
            return {}
        try:
            return search(self._plan, batch.packets, batch.decision, keyed=not self._writer.needs_rows_before)
        except Exception:  # noqa: BLE001  # the error of the job is the one that counts
            _log.exception("the records of the batch could not be searched for those that cannot be written")
            return {}

    @abstractmethod
    def _open(
        self, records: DataFrame, number: int, state: IngestState, rejected: Rejected
    ) -> AbstractContextManager[OpenBatch]:
        """Divide a batch by table, and decide what it does; at its end what it keeps in memory is dropped."""

    def _judge(
        self,
        decision: Decision,
        read: RowReader,
        partitions: Mapping[TableId, frozenset[str]] | None = None,
        packets: DataFrame | None = None,
        dirty: int = 0,
        reporter: ValueReporter | None = None,
        *,
        is_small: bool = False,
    ) -> OpenBatch:
        """Build the sink tables of a batch, and refuse those whose rows Spark cannot compute.

        The arguments are those of `OpenBatch`; ``is_small`` is whether one task can read the packets in little time.
        """
        pairs = self._writer.pairs_updates
        takes_packets = pairs or (is_small and self._writer.finds_last_rows)
        tables = list(
            build_sink_tables(
                self._plan,
                read,
                decision,
                with_filtered=pairs,
                needs_kinds=self._writer.needs_rows_before,
                packets=packets if takes_packets else None,
                reporter=reporter,
                in_one_task=is_small,
                identities=self._identities,
                written=self._written,
                accepted=[table for table, accepted in self._accepted.items() if accepted],
            )
        )
        refusals = [*decision.refusals, *refuse_rows(tables)]
        return OpenBatch(decision, read, tables, refusals, partitions or {}, packets, dirty, reporter)

    def _note(self, decision: Decision, state: IngestState) -> Note:
        """What is noted of a batch; if the declaration has changed since it was noted last, also the declaration."""
        is_noted = state.declared == self._declared
        return decision.note if is_noted else attrs.evolve(decision.note, declared=self._declared)

    def _count_values(self, reporter: ValueReporter, note: Note, before: IngestState) -> Note:
        """Add the values that changed while the records of a batch were decoded to its note, keep that, and return it.

        The log names the columns. The reporter is closed.
        """
        tables = VALUE_COUNTS.close(reporter)
        for table, counts in tables.items():
            log_drops(table, counts)
        if tables:
            note = attrs.evolve(note, counts={**note.counts, **sum_up(tables)})
            self._driver.require()
            self._state = self._files.write(note, before)
        return note

    def _schema(self, spark: SparkSession, table: TableId, known: TableSchema | None) -> TableSchema | None:
        """The schema that a sink table has, None if there is no table.

        The sink is asked once in a run, and before a table is changed or a batch is refused (`decide_with_cache`).
        """
        if table not in self._live:
            self._live[table] = self._writer.read_schema(spark, table, known)
            self._check_table(spark, table, exists=self._live[table] is not None, known=known is not None)
        return self._live[table]

    def _check_table(self, spark: SparkSession, table: TableId, *, exists: bool, known: bool) -> None:
        """Refuse the batch if a sink table is another one than that of earlier batches; or accept that, with a warning.

        A table that is gone is refused here if its schema is not known any more, otherwise by `decide_batch`.
        """
        assert self._identities is not None
        if self._accepts_tables:
            self._accepted.setdefault(table, True)
        before = self._identities.get(table)
        if before is None:
            return
        now = self._writer.identify(spark, [table]).get(table) if exists or not known else None
        if before == now or (exists and now is None):  # None: the sink cannot tell
            return
        reason = explain_replaced_table(before, now)
        if self._accepts_tables:
            _log.warning("%s %s; it is accepted", format_id(table), reason)
            del self._identities[table]
        elif exists or not known:
            fix = "restore that table, or start with a new checkpoint, which reads from the start"
            self._replaced.append(
                Refusal(
                    table,
                    None,
                    f"the sink table {reason}",
                    f"{fix}; or accept it without these rows: start once with --allow sink (allow=['sink'])",
                    sql_fix=fix,
                    code="replaced-table",
                )
            )

    def _warn_of_partitions(self, partitions: Mapping[TableId, frozenset[str]], decision: Decision) -> None:
        """Warn, once for each table with a primary key, that changes of a key may be in several partitions.

        Their order is then not known. Nothing is said if the format's ``distributed-tables`` is set. The partitions of
        all batches of the run count.
        """
        source = self._plan.source
        if not isinstance(source, KafkaFeed):
            return
        keyed = [work.plan.table for work in decision.tables if work.plan.transformed.primary_key]
        for table in () if source.valid().distributed_tables else keyed:
            before = self._partitions.get(table, frozenset())
            after = self._partitions[table] = before | partitions.get(table, frozenset())
            if len(after) > 1 >= len(before):
                _log.warning(
                    "the records of %s are in several partitions (%s); if those of one key are, the last change of the "
                    "key is not known: set %s.distributed-tables: true, which orders them by their time in the source",
                    format_id(table), " and ".join(sorted(after)[:2]), source.value.identifier,
                )  # fmt: skip

    def _warn_of_ignored_columns(self, decision: Decision) -> None:
        """Warn, once for each column, that messages have it and that its table keeps its first schema."""
        for table, columns in decision.ignored.items():
            for name, record_id in columns.items():
                if (table, name) not in self._ignored:
                    self._ignored.add((table, name))
                    _log.warning(
                        "%s: the messages have a column %r (shown by the record at %s), which is not read, because "
                        "schema.inference.strategy is static", format_id(table), name, record_id,
                    )  # fmt: skip

    def _refuse_changes(self, spark: SparkSession, decision: Decision) -> list[Refusal]:
        """Ask the sink which changes it cannot make to its tables; without changes, it is not asked."""
        changes = {table: evolution.changes for table, evolution in decision.sinks.items() if evolution.changes}
        return self._writer.refuse(spark, changes) if changes else []

    def _batch(self, number: int) -> Batch:
        """The identity of a batch, by which sinks recognize one that is repeated."""
        query = self._query_id()
        return Batch(query, number, f"{query}/{self._checkpoint.batch_digest(number)}")

    def _query_id(self) -> str:
        """The id of the query; the checkpoint is read for it once."""
        if self._query is None:
            metadata = self._checkpoint.folder.read("metadata")
            self._query = "" if metadata is None else str(json.loads(metadata)["id"])
        return self._query


def join_rejected(one: Rejected, other: Rejected) -> Rejected:
    """The records of both, with their reasons; of a record in both, that of ``other``."""
    return {record_id: {**one.get(record_id, {}), **other.get(record_id, {})} for record_id in {**one, **other}}


def configure_session(spark: SparkSession, pipeline: Pipeline) -> None:
    """Turn on Spark's type TIME, if that is allowed, and set the pipeline's time zone, if any, in a query's session.

    That is not the session of the caller.
    """
    try_setting(spark, TIME_TYPE_SETTING, "true")  # without it, Spark refuses columns of TIME, if there are some
    if pipeline.time_zone is not None:
        require_setting(spark, "spark.sql.session.timeZone", pipeline.time_zone, "the time zone of the ingestion")


def open_decision(spark: SparkSession, plan: IngestPlan, decision: Decision) -> Decision:
    """Prepare a query's session for the columns of a batch, whose names may differ only in letter case.

    Returns:
        The decision.
    """
    feed = plan.source
    schemas = [sink.schema.columns for sink in decision.sinks.values()]
    for work in decision.tables:
        listed = feed.metadata_columns(work.plan.table) if isinstance(feed, KafkaFeed) else ()
        schemas.append((*work.upstream.schema.columns, *(t.Field(c.name, c.type) for c in listed)))
    tell_columns_apart(spark, needed=any(next(find_case_clashes(columns), None) is not None for columns in schemas))
    return decision


def refusal_error(what: str, refusals: Sequence[Refusal], plan: IngestPlan) -> IngestError:
    """The error of a batch that is refused."""
    lines = "\n".join(f"  {refusal.describe(in_sql=plan.in_sql)}" for refusal in refusals)
    return IngestError(f"{what} is refused, and nothing of it was written:\n{lines}")


def _warn_of_dropped_columns(state: IngestState, decision: Decision) -> None:
    """Warn of columns that somebody else has dropped from a sink table, and that are added again."""
    for change in (change for change in decision.note.changes if change.tag == "add.column"):
        known = state.sinks.get(change.table)
        if known is not None and change.columns[0].name in {f.name for f in known.columns}:
            _log.warning(
                "%s: the sink table has lost the column %r, which is added again; it is NULL in the rows of earlier "
                "batches", format_id(change.table), change.columns[0].name,
            )  # fmt: skip


def with_losses(decision: Decision, losses: dict[tuple[TableId, str], int]) -> Decision:
    """The decision with the number of lost values in its note; a warning in the log names each column."""
    for (table, column), count in losses.items():
        lost = pluralize(count, "value is", "values are")
        _log.warning("%s, column %r: %s lost: the sink table does not hold such values", format_id(table), column, lost)
    if not losses:
        return decision
    counts = {**decision.note.counts, LOST: sum(losses.values())}
    return attrs.evolve(decision, note=attrs.evolve(decision.note, counts=counts))
