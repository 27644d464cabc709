"""Reads raw records of topics that need no table, up to their present ends."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import record_reader, subscribe
from kdsl.plan.model import ReadPlan, Topics
from kdsl.run.offsets.stored import Range
from kdsl.types import model as t


def read_topic(cluster: Cluster, topic: str, needs: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Yield the records of a topic up to its present end, as raw record batches.

    Args:
        cluster: The cluster.
        topic: The topic.
        needs: The fields of the batches (`kdsl.run.records.metadata.RAW`), besides topic, partition and offset.
    """
    subscription = subscribe(plan_raw_read(topic), cluster)
    partitions = subscription.partitions(subscription.topics())
    begin, ends = subscription.admin.earliest(partitions), subscription.ends(partitions)
    yield from read_ranges(cluster, topic, [Range(*p, begin[p], ends[p]) for p in partitions], needs)


def read_ranges(
    cluster: Cluster, topic: str, ranges: Sequence[Range], needs: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of offset ranges of a topic, those of a partition in their order; empty ranges are skipped.

    Args:
        cluster: The cluster.
        topic: The topic.
        ranges: The ranges, one for each partition.
        needs: The fields, as for `read_topic`.
    """
    wanted = [one for one in ranges if one.end > one.start]
    if wanted:
        with record_reader(cluster, plan_raw_read(topic), {*needs}, name="kdsl-dlq", large=True) as reader:
            yield from reader.read(wanted)


def plan_raw_read(topic: str) -> ReadPlan:
    """Plan a read of a topic's records without columns."""
    empty = t.Row((), nullable=False)
    return ReadPlan(topic, Topics((topic,)), empty, empty)
