"""Runs the batches of an ingestion from Kafka: their raw records are divided by table, and kept or read again."""

from __future__ import annotations

import pickle
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs

from kdsl.formats import TableId
from kdsl.ingest.decision import Decision, Seen, TableWork, decide_batch, decide_with_cache
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.ids import parse_id
from kdsl.ingest.run.batch import BatchRunner, OpenBatch, Run, join_rejected, open_decision
from kdsl.ingest.run.rows import (
    RawRead,
    find_shared,
    read_again,
    read_packets,
)
from kdsl.ingest.run.tasks import (
    KnownTables,
    RecordDivider,
    Rejected,
    Tables,
    read_notes,
    split_task,
)
from kdsl.ingest.run.unstorable import find_null_characters
from kdsl.ingest.run.value_counts import VALUE_COUNTS
from kdsl.ingest.schema_changes import TableDelta
from kdsl.ingest.state import IngestState
from kdsl.run.records.packets import DIVIDER, PACKET_COLUMNS
from kdsl.run.session import get_zone, try_setting
from kdsl.run.task_functions import write_function
from kdsl.types.spark import spark_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import DataFrame, SparkSession


LARGE = 200_000
"""From how many records of one table on the next batch is read again, instead of kept."""
SMALL, SMALL_BYTES = 50_000, 64 << 20
"""Up to how many records and bytes of a batch one task finds the last changes of each table."""
MAX_PICKLED, MAX_DIVIDER = 200_000, 16_384
"""The most bytes of what is known of tables without a broadcast; and of what Spark passes to each task, compressed."""


class KafkaBatchRunner(BatchRunner):
    """Runs batches of raw records of Kafka; see `BatchRunner`.

    The tasks of the source divide the records by table, if what they need for it is small; otherwise those of a second
    step do. The packets are then kept until the batch is written. If the sink needs whole rows, packets have rows
    instead of records where these show nothing new; should a type become wider in the same batch, it is divided again.
    A large batch with records of one table only is read from Kafka again instead, with the columns of that table: that
    takes less time than to pass its records to Spark and back.

    Args:
        run: The run.
        raw: How the records are read; None if other ingestions read them, too, or Spark's own source does.
    """

    def __init__(self, run: Run, raw: RawRead | None) -> None:
        """Keep the arguments; nothing is read or locked before the first batch."""
        super().__init__(run)
        self._raw = raw
        self._known: tuple[Tables, KnownTables] | None = None
        self._decoded: tuple[Tables, bool] | None = None
        self._expects_one_table: bool | None = None

    @contextmanager
    def _open(self, records: DataFrame, number: int, state: IngestState, rejected: Rejected) -> Iterator[OpenBatch]:
        """Divide the records by table; see `BatchRunner._open`.

        Records with characters that the sink cannot store are rejected.
        """
        plan, spark = self._plan, records.sparkSession
        keyed = not self._writer.needs_rows_before
        reporter = VALUE_COUNTS.open(spark)

        def decide(seen: Seen) -> Decision:
            read = partial(self._schema, spark)
            decision = decide_with_cache(
                self._live, lambda: decide_batch(plan, state, number, seen, read, creates_again=self._accepts_tables)
            )
            return open_decision(spark, plan, decision)

        try:
            if self._may_read_again(state, rejected):
                seen = _collect_seen(self._divide(records, state, rejected, keyed=keyed, keep=False))
                if self._raw is not None and seen.is_one_table:
                    packets = self._divide(records, state, rejected, keyed=keyed)  # only computed where they are needed
                    read = partial(read_again, plan, self._raw, seen.ranges, spark, keyed=keyed, reporter=reporter)
                    yield self._judge(decide(seen.seen), read, seen.seen.partitions, packets, 0, reporter)
                    self._expects_one_table = seen.is_large
                    return
            decode = self._decodes(state)
            while True:
                packets = self._divide(records, state, rejected, keyed=keyed, decode=decode).persist()
                try:
                    seen = _collect_seen(packets)
                    decision = decide(seen.seen)
                    if not all(_reads_rows(state, work) for work in decision.tables if work.plan.table in seen.decoded):
                        decode = False
                        continue
                    shared = find_shared(decision)
                    read = partial(read_packets, plan, packets, keyed=keyed, shared=shared, reporter=reporter)
                    batch = self._judge(
                        decision,
                        read,
                        seen.seen.partitions,
                        packets,
                        seen.seen.dirty,
                        reporter,
                        is_small=seen.is_small,
                    )
                    unstorable: Rejected = {}
                    if seen.seen.has_null_characters and not batch.refusals:
                        unstorable = find_null_characters(plan, packets, decision, keyed=keyed)
                    if not unstorable:
                        yield batch
                        self._expects_one_table = seen.is_one_table and seen.is_large
                        return
                    rejected = join_rejected(rejected, unstorable)
                finally:
                    packets.unpersist()
        finally:
            VALUE_COUNTS.close(reporter)

    def _may_read_again(self, state: IngestState, rejected: Rejected) -> bool:
        """Whether a batch is probably a large one of one table: the one before was; or the first has one known table.

        False with rejected records, without ``raw``, and for a sink that encodes the packets of all tables in one
        pass, and so needs no rows.
        """
        if self._raw is None or rejected or self._writer.pairs_updates:
            return False
        return len(state.upstream) == 1 if self._expects_one_table is None else self._expects_one_table

    def _decodes(self, state: IngestState) -> bool:
        """Whether the tasks that divide records decode them, too: the sink needs all rows of each table that is known.

        Then what passes through Spark is smaller, and is read from the memory in which it was divided.
        """
        if not self._writer.needs_rows_before:
            return False
        if self._decoded is None or self._decoded[0] != state.upstream:
            plans = (self._plan.table(table, one.schema)[0] for table, one in state.upstream.items())
            self._decoded = state.upstream, all(plan is not None for plan in plans)
        return self._decoded[1]

    def _divide(
        self,
        records: DataFrame,
        state: IngestState,
        rejected: Rejected,
        *,
        keyed: bool,
        keep: bool = True,
        decode: bool = False,
    ) -> DataFrame:
        """The packets of a batch, which are not computed yet; the pipeline and the sink say what tasks look for.

        With ``decode``, packets of known tables have rows instead of records where that is possible. If the tasks of
        the source divide records, the session says how until this is called again.
        """
        plan, spark = self._plan, records.sparkSession
        assert isinstance(plan.source, KafkaFeed)
        known = self._send(spark, state)
        divide = RecordDivider(
            pickle.dumps(plan.source),
            plan.pipeline.max_columns,
            known,
            collect=self._collect is not None,
            keyed=keyed,
            look_for_null=not plan.policy.rules.stores_null_character,
            rejected=rejected,
            keep=keep,
            zone=get_zone(spark) if decode else None,
        )
        if self._raw is not None:
            text = write_function(divide) if isinstance(known.data, bytes) else ""
            if 0 < len(text) <= MAX_DIVIDER and try_setting(spark, DIVIDER, text):
                return records
            try_setting(spark, DIVIDER, None)
        return records.mapInArrow(split_task(divide), spark_schema(PACKET_COLUMNS))

    def _send(self, spark: SparkSession, state: IngestState) -> KnownTables:
        """What is known of tables, for tasks: as it is if it is small, otherwise by a broadcast.

        It is sent again if it has changed; what was sent before is dropped then.
        """
        if self._known is None or self._known[0] != state.upstream:
            if self._known is not None and not isinstance(self._known[1].data, bytes):
                self._known[1].data.unpersist()
            data = pickle.dumps(dict(state.upstream))
            self._known = state.upstream, KnownTables.send(spark, data, by_broadcast=len(data) > MAX_PICKLED)
        return self._known[1]


@attrs.frozen
class _Collected:
    """What the tasks of a batch counted and observed.

    Attributes:
        seen: What a decision needs.
        ranges: The first and the last offset of the records of tables, by topic partition.
        size: The bytes of their packets.
        decoded: The tables that have packets of rows.
    """

    seen: Seen
    ranges: Mapping[tuple[str, int], tuple[int, int]]
    size: int
    decoded: frozenset[TableId] = frozenset()

    @property
    def is_one_table(self) -> bool:
        """Whether all records can be read and are of one table, and none needs a closer look."""
        seen = self.seen
        return len(seen.rows) == 1 and not (seen.dirty or seen.without_rows or seen.has_null_characters)

    @property
    def is_large(self) -> bool:
        """Whether it takes less time to read the records again than to keep them."""
        return sum(self.seen.rows.values()) >= LARGE

    @property
    def is_small(self) -> bool:
        """Whether one task can read the packets of all tables in little time."""
        return sum(self.seen.rows.values()) <= SMALL and self.size <= SMALL_BYTES


def _collect_seen(packets: DataFrame) -> _Collected:
    """Collect what the tasks counted and observed; the packets are computed for it."""
    rows: dict[TableId, int] = {}
    deltas: list[TableDelta] = []
    reasons: list[str] = []
    dirty = without_rows = 0
    hint: str | None = None
    partitions: dict[TableId, frozenset[str]] = {}
    ranges: dict[tuple[str, int], tuple[int, int]] = {}
    has_null = False
    size = 0
    decoded: set[TableId] = set()
    for row in packets.select("table", "notes", "has_null").collect():
        notes = read_notes(row["notes"])
        size += notes.size
        has_null |= row["has_null"]
        dirty += notes.dirty
        without_rows += notes.without_rows
        hint = hint or notes.hint
        reasons += notes.reasons
        if row["table"] is None:
            continue
        table = parse_id(row["table"])
        rows[table] = rows.get(table, 0) + notes.rows
        if notes.is_decoded:
            decoded.add(table)
        partitions[table] = partitions.get(table, frozenset()) | {f"{one[0]}-{one[1]}" for one in notes.ranges}
        for topic, partition, first, last in notes.ranges:
            known = ranges.get((topic, partition), (first, last))
            ranges[topic, partition] = min(known[0], first), max(known[1], last)
        if notes.delta is not None:
            deltas.append(notes.delta)
    seen = Seen(rows, tuple(deltas), dirty, tuple(reasons), hint, partitions, has_null, without_rows)
    return _Collected(seen, ranges, size, frozenset(decoded))


def _reads_rows(state: IngestState, work: TableWork) -> bool:
    """Whether rows that were decoded with the known columns of a table are those of its columns now.

    They are if columns were only added, which the records of these rows do not have.
    """
    known = state.upstream[work.plan.table]
    types = {f.name: f.type for f in work.upstream.schema.columns}
    return known.key == work.upstream.key and all(types.get(f.name) == f.type for f in known.schema.columns)
