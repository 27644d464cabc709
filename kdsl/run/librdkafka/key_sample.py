"""Samples the keys of a topic before the first batch of a read, to choose the routing of its keys."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from time import monotonic

import numpy as np
import pyarrow as pa

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.errors import OffsetError, pluralize
from kdsl.plan.model import ReadPlan, RoutingChoice
from kdsl.run.librdkafka.fetch import FetchCount, Fetcher
from kdsl.run.librdkafka.range_reader import open_fetcher
from kdsl.run.offsets.stored import Range
from kdsl.run.offsets.subscription import Subscription
from kdsl.run.records.header_filter import filter_records
from kdsl.run.records.metadata import RAW
from kdsl.run.records.registry import registry_of
from kdsl.run.upsert.key_routing import KeySample, choose_routing, explain_by_key

RECORDS_EACH = 200
"""How many of the newest records of each partition are looked at; besides the oldest ones of a read from there."""
FIRST_OFFSETS = 16
"""How many offsets are read at each end of a partition at first; then twice as many each time."""
SECONDS, BYTES, RECORDS = 10.0, 32 << 20, 20_000
"""When these are exceeded, no more records are looked at: seconds, bytes of keys and values, and records in all."""

log = logging.getLogger("kdsl.read")


def sample_choice(plan: ReadPlan, cluster: Cluster) -> RoutingChoice:
    """Choose the routing of a read: by its plan if that decides, or else by a sample of the keys of its topic.

    A topic that is missing or cannot be read is a KafkaReadError, a registry that does not answer a RegistryError.

    Args:
        plan: What is read; its rows are kept by key.
        cluster: The cluster of the topic.
    """
    reason = explain_by_key(plan)
    if reason is not None:
        return RoutingChoice("key", reason)
    return choose_routing(plan, sample_keys(plan, cluster), registry_of(cluster, plan))


def sample_keys(plan: ReadPlan, cluster: Cluster) -> KeySample:
    """Read the keys of the newest records of each partition of a table's topic, and of the oldest ones.

    The oldest ones are left out if the read does not begin with them: it may begin where it does because earlier
    records were distributed over other partitions. Records that the header filter drops do not count. Of a topic with
    one partition, nothing is read.

    Args:
        plan: What is read; it has one topic.
        cluster: The cluster of the topic.
    """
    subscription = Subscription(plan, cluster)
    topics = subscription.topics()
    (topic,) = topics.values()
    if topic.partitions == 1:
        return KeySample(pa.array([], pa.binary()), np.zeros(0, dtype=np.int64), 1)
    every = subscription.partitions(topics)
    first, ends = subscription.admin.earliest(every), subscription.ends(every)
    needs = {"key"} | ({"headers"} if plan.headers else set())
    with open_fetcher(plan, cluster, needs, name=f"kdsl-{plan.table}") as fetcher:
        records = _read_ends(fetcher, plan, first, ends)
    keys, numbers = (records.column(name).cast(RAW[name]).combine_chunks() for name in ("key", "partition"))
    return KeySample(keys, numbers.to_numpy().astype(np.int64), topic.partitions)


def _read_ends(
    fetcher: Fetcher, plan: ReadPlan, first: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> pa.Table:
    """Read records at the ends of partitions, until there are enough of each, or too many in all.

    A window of offsets may have no records: aborted transactions, or those that compaction removed. So each window of a
    partition is twice as large as the one after it.

    Args:
        fetcher: Reads the records.
        plan: What is read.
        first: Where the records of each partition begin.
        ends: Where they end.
    """
    fetcher.count, deadline = FetchCount(), monotonic() + SECONDS
    ranges = []
    begins = dict(ends)
    if plan.start.mode == "earliest":
        heads = {p: min(at + FIRST_OFFSETS, ends[p]) for p, at in first.items() if p in ends}
        ranges = [Range(*p, first[p], end) for p, end in heads.items() if end > first[p]]
        first = heads
    counts = dict.fromkeys(ends, 0)
    batches: list[pa.RecordBatch] = []
    width = FIRST_OFFSETS
    while True:
        wanted = [p for p, count in counts.items() if count < RECORDS_EACH and begins[p] > first[p]]
        tails = [Range(*p, max(first[p], begins[p] - width), begins[p]) for p in wanted]
        if not (ranges or tails):
            break
        try:
            for raw in fetcher.read([*ranges, *tails]):
                batch = filter_records(raw, plan.headers)
                batches.append(batch)
                for number, count in zip(
                    *np.unique(batch.column("partition").to_numpy(), return_counts=True), strict=True
                ):
                    counts[plan.topics.names[0], int(number)] += int(count)
        except OffsetError:  # retention has deleted records meanwhile; the read itself says so where it matters
            break
        if monotonic() > deadline or fetcher.count.bytes > BYTES or fetcher.count.records > RECORDS:
            log.debug("%s: the sample of keys ends after %s", plan.table, pluralize(fetcher.count.records, "record"))
            break
        begins.update({(r.topic, r.partition): r.start for r in tails})
        ranges, width = [], width * 2
    return pa.Table.from_batches(batches, schema=fetcher.schema)
