"""Batches of the tables of sources other than Kafka: they are judged, noted and written as those of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import attrs

from kdsl.formats import TableId
from kdsl.ingest.decision import Decision, Seen, TableWork, decide_batch, decide_with_cache
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.run.batch import BatchRunner, OpenBatch, Run, open_decision
from kdsl.ingest.run.sources.reader import SourceBatch, SourceTable, StreamReader
from kdsl.ingest.run.tasks import Rejected
from kdsl.ingest.schema_changes import Refusal, UpstreamTable
from kdsl.ingest.state import IngestState
from kdsl.types.widening import PrimaryKeyError, TableSchema, join_schemas

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class TableBatchRunner(BatchRunner):
    """Runs batches whose rows a reader divides by table; see `BatchRunner`.

    Args:
        run: The run.
        reader: Divides the batches.
    """

    def __init__(self, run: Run, reader: StreamReader) -> None:
        super().__init__(run)
        self._reader = reader

    @contextmanager
    def _open(self, records: DataFrame, number: int, state: IngestState, rejected: Rejected) -> Iterator[OpenBatch]:
        """Read the rows of the batch's tables; see `BatchRunner._open`.

        Nothing can be rejected: ``rejected`` is ignored.
        """
        del rejected
        spark = records.sparkSession
        batch = self._reader.read_batch(records, state.progress)
        read = partial(self._schema, spark)
        decision = decide_with_cache(
            self._live,
            lambda: decide_tables(self._plan, state, number, batch, read, creates_again=self._accepts_tables),
        )
        yield self._judge(open_decision(spark, self._plan, decision), row_reader(batch))


def decide_tables(
    plan: IngestPlan,
    state: IngestState,
    number: int,
    batch: SourceBatch,
    read_schema: Callable[[TableId, TableSchema | None], TableSchema | None],
    *,
    creates_again: bool = False,
) -> Decision:
    """Decide what a batch of tables changes, whose columns the source knows; see `decide_batch`.

    Refusals of the source, and those of tables whose primary key changed, come first. The note also has the source's
    progress, and no numbers of records.

    Args:
        plan: The plan of the ingestion.
        state: What is known before the batch.
        number: The number of the batch.
        batch: The tables.
        read_schema: Reads the schema that a sink table has; see `decide_batch`.
        creates_again: As for `decide_batch`.
    """
    known, refusals = dict(state.upstream), [one for table in batch.tables for one in table.refusals]
    for one in batch.tables:
        try:
            schema = join_schemas(known[one.table].schema if one.table in known else None, one.schema)
        except PrimaryKeyError as e:
            refusals.append(Refusal(one.table, None, str(e), "start with a new checkpoint", code="message-key"))
            continue
        assert schema is not None
        known[one.table] = UpstreamTable(schema)
    seen = Seen(dict.fromkeys((one.table for one in batch.tables), 1))
    decision = decide_batch(
        plan, attrs.evolve(state, upstream=known), number, seen, read_schema, creates_again=creates_again
    )
    counts = dict(decision.note.counts)
    for one in batch.tables:
        for reason, count in one.counts.items():
            counts[reason] = counts.get(reason, 0) + count
    changed = {table: one for table, one in known.items() if state.upstream.get(table) != one}
    progress = {name: value for name, value in batch.progress.items() if state.progress.get(name) != value}
    note = attrs.evolve(decision.note, upstream=changed, counts=counts, records={}, progress=progress)
    return attrs.evolve(decision, note=note, refusals=(*refusals, *decision.refusals))


def row_reader(batch: SourceBatch) -> Callable[[TableWork], DataFrame]:
    """A function that reads the rows of an upstream table of a batch, with the columns that are known of it."""
    tables: dict[TableId, SourceTable] = {one.table: one for one in batch.tables}
    return lambda work: tables[work.plan.table].rows(work.upstream.schema)
