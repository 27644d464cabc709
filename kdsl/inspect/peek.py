"""The last records of a table, decoded in this process: no Spark, no JVM."""

from __future__ import annotations

import heapq

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.cluster import Cluster
from kdsl.offsets import TopicPartition
from kdsl.plan.model import ReadPlan
from kdsl.run.cluster.offsets import Range
from kdsl.run.cluster.subscription import Subscription
from kdsl.run.librdkafka.consumers import SIZES, KeptConsumer
from kdsl.run.librdkafka.fetch import Fetcher
from kdsl.run.records.decode import Placed, RecordDecoder
from kdsl.run.records.header_filter import matched
from kdsl.run.records.registry import registry_of


def last_records(plan: ReadPlan, cluster: Cluster, n: int, *, zone: str = "UTC") -> pa.Table:
    """The rows of the last records of a table's topics, oldest first.

    Last by the record's timestamp, over all partitions; of one partition always the last ones. Offsets without a record
    (transaction markers, compaction) do not count, nor do records that the table's header filter leaves out. The plan's
    start is not looked at; computed columns, which are Spark's, do not come.

    Args:
        plan: What is read.
        cluster: Where it lives.
        n: How many records.
        zone: The time zone in which the record's timestamp is shown as a wall-clock time, a date or a text.

    Returns:
        A table of the plan's columns. A record may give no row, or several.

    Raises:
        KafkaReadError: The brokers cannot be reached, or a topic does not exist.
        RecordError: A record cannot be read.
    """
    return pa.Table.from_batches([_last(plan, cluster, n, zone).rows])


def last_changes(plan: ReadPlan, cluster: Cluster, n: int, *, zone: str = "UTC") -> pa.Table:
    """The changes that the last records of a table's topics make, oldest first.

    Of a table by key they are the changes between these records: its first row of a key is new (``+I``), and a delete
    of a key that has no row among them shows nothing, whatever stood before. Rows of other tables are what they say.

    Args:
        plan: What is read.
        cluster: Where it lives.
        n: How many records.
        zone: As for `last_records`.

    Returns:
        A table of the plan's columns; the row kind is the first where the table's rows are changes.

    Raises:
        KafkaReadError: The brokers cannot be reached, or a topic does not exist.
        RecordError: A record cannot be read.
    """
    placed = _last(plan, cluster, n, zone)
    if plan.upserts is None:
        return pa.Table.from_batches([placed.rows])
    from kdsl.run.upsert.changes import Upserts, changes
    from kdsl.run.upsert.state import changed_rows

    kinds, *columns = placed.rows.columns
    rows = pa.RecordBatch.from_arrays(columns, schema=placed.rows.schema.remove(0))
    deletes = pc.equal(kinds, "-D").to_numpy(zero_copy_only=False)
    times = placed.of("timestamp").to_numpy()
    in_this_order = np.zeros(len(times), dtype=np.int64)
    found = changes(None, Upserts(rows, deletes, times, in_this_order), plan.upserts.keys)
    return pa.Table.from_batches([changed_rows(found.rows, found.kinds)])


def _last(plan: ReadPlan, cluster: Cluster, n: int, zone: str) -> Placed:
    subscription = Subscription(plan, cluster)
    places = subscription.places(subscription.topics())
    first, ends = subscription.brokers.earliest(places), subscription.ends(places)
    decoder = RecordDecoder(plan, zone, registry_of(cluster, plan))
    name = f"kdsl-{plan.table}"
    consumer = KeptConsumer(
        cluster.consumer({"client.id": name, "group.id": plan.group_id or name, **SIZES[0].settings}),
        cluster.bootstrap_servers,
    )
    patience = cluster.connector().api_timeout_ms / 1000
    fetcher = Fetcher(consumer, plan.table, decoder.needs | {"timestamp"}, patience)
    try:
        tails = _tails(fetcher, plan, first, ends, n)
    finally:
        consumer.close()
    newest = heapq.nlargest(
        n, ((record["timestamp"], i, j) for i, tail in enumerate(tails) for j, record in enumerate(tail))
    )
    chosen = [tails[i][j] for _, i, j in sorted(newest)]
    return decoder.place(pa.RecordBatch.from_pylist(chosen, schema=fetcher.schema))


def _tails(
    fetcher: Fetcher, plan: ReadPlan, first: dict[TopicPartition, int], ends: dict[TopicPartition, int], n: int
) -> list[list[dict[str, object]]]:
    """At least the last n records of each partition, or all there are."""
    tails: dict[TopicPartition, list[dict[str, object]]] = {place: [] for place in ends}
    begins = dict(ends)
    width = n
    while wanted := [place for place, tail in tails.items() if len(tail) < n and begins[place] > first[place]]:
        ranges = [Range(*place, max(first[place], begins[place] - width), begins[place]) for place in wanted]
        found: dict[TopicPartition, list[dict[str, object]]] = {place: [] for place in wanted}
        for batch in fetcher.read(ranges):
            for record in matched(batch, plan.headers).to_pylist():
                found[record["topic"], record["partition"]].append(record)
        for r in ranges:
            place = (r.topic, r.partition)
            tails[place] = found[place] + tails[place]
            begins[place] = r.start
        width *= 2
    return [tail[-n:] for tail in tails.values()]
