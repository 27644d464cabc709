"""Looks at the newest records of the source before the first batch."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
import pyarrow as pa

from kdsl.diagnostics.peek import newest_records
from kdsl.errors import KdslError
from kdsl.formats import TableId
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.learn import Learned, learn
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.records import RecordSplitter, initial_tables
from kdsl.ingest.run.raw import raw_table
from kdsl.ingest.schema_changes import TableDelta, UpstreamTable

TIMEOUT = 60.0
"""How long it may take, in seconds."""


def sample_tables(plan: IngestPlan, feed: KafkaFeed) -> Learned:
    """The tables that are known before the first batch: the initial schemas, joined with what newest records show.

    If the source does not prefetch, no broker is asked.

    Args:
        plan: The plan of the ingestion.
        feed: The source, with the secrets of its cluster.
    """
    known = initial_tables(feed.initial_tables)
    if not feed.prefetch:
        return Learned(known)
    deltas = prefetch_deltas(feed, plan.pipeline.max_columns, known)
    learned = learn(known, deltas, max_tables=plan.pipeline.max_tables, has_own_key=plan.has_own_key)
    if learned.refusals:
        raise KdslError("the newest records are refused: " + "; ".join(map(str, learned.refusals)))
    return learned


def prefetch_deltas(
    feed: KafkaFeed, max_columns: int, known: Mapping[TableId, UpstreamTable]
) -> tuple[TableDelta, ...]:
    """What the newest records of each partition show. Records that cannot be read show nothing here.

    Args:
        feed: The source, with the secrets of its cluster.
        max_columns: The largest number of columns of a table.
        known: The tables that are known.
    """
    newest = newest_records(raw_table(feed).read_plan(), feed.cluster, feed.prefetch, timeout=TIMEOUT)
    continuous = attrs.evolve(feed, inference="continuous")  # type: ignore[misc]  # rows are not read, only observed
    splitter = RecordSplitter(continuous, max_columns=max_columns)
    deltas: list[TableDelta] = []
    columns = {name: newest.records.column(name) for name in ("topic", "partition", "offset", "key", "value")}
    columns |= {side: columns[side].cast(pa.binary()) for side in ("key", "value")}
    for batch in pa.table(columns).combine_chunks().to_batches():
        deltas += (packet.delta for packet in splitter.split(batch, known).packets if packet.delta is not None)
    return tuple(deltas)
