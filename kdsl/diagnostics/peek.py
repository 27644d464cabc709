"""The last records of a table, decoded in this process; without Spark where librdkafka can log in to the cluster."""

from __future__ import annotations

import heapq

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import RecordReader, record_reader, subscribe
from kdsl.errors import KafkaReadError
from kdsl.plan.model import ReadPlan
from kdsl.retry import Deadline
from kdsl.run.offsets.stored import Range
from kdsl.run.records.decode import RecordDecoder, RowsOfRecords
from kdsl.run.records.header_filter import filter_records
from kdsl.run.records.registry import registry_of


def last_records(plan: ReadPlan, cluster: Cluster, n: int, *, zone: str = "UTC") -> pa.Table:
    """Read the rows of the last records of a table's topics, oldest first, by the records' timestamps.

    Args:
        plan: The read.
        cluster: The cluster of the topics.
        n: The number of records, over all partitions.
        zone: The time zone in which the record's timestamp is shown as a wall-clock time, a date or a string.

    Returns:
        A table of the plan's columns. A record may have no row, or several.

    Raises:
        KafkaReadError: The brokers refuse or cannot be reached, or a topic does not exist.
        RecordError: A record cannot be read, also if the table declares dead letters.
        ResolveError: The client settings have errors.
        KdslError: A schema registry does not answer or refuses; or as for `open_admin`.
    """
    return pa.Table.from_batches([_last(plan, cluster, n, zone).rows])


def last_changes(plan: ReadPlan, cluster: Cluster, n: int, *, zone: str = "UTC") -> pa.Table:
    """Read the changes that the last records of a table's topics make, oldest first.

    Of an upsert table they are computed from these records alone: the first row of a key is an insert, and a delete
    without an earlier row among them makes no change.

    Args:
        plan: The read.
        cluster: The cluster of the topics.
        n: The number of records.
        zone: As for `last_records`.

    Returns:
        A table of the plan's columns; the row kind is the first where the table's rows are changes.

    Raises:
        KafkaReadError: The brokers refuse or cannot be reached, or a topic does not exist.
        RecordError: A record cannot be read, also if the table declares dead letters.
        ResolveError: The client settings have errors.
        KdslError: A schema registry does not answer or refuses; or as for `open_admin`.
    """
    placed = _last(plan, cluster, n, zone)
    if plan.upserts is None:
        return pa.Table.from_batches([placed.rows])
    from kdsl.run.upsert.changes import KeyedRows, compute_changes
    from kdsl.run.upsert.state import add_row_kinds

    kinds, *columns = placed.rows.columns
    rows = pa.RecordBatch.from_arrays(columns, schema=placed.rows.schema.remove(0))
    deletes = pc.equal(kinds, "-D").to_numpy(zero_copy_only=False)
    times = placed.of("timestamp").to_numpy()
    in_this_order = np.zeros(len(times), dtype=np.int64)
    changes = compute_changes(None, KeyedRows(rows, deletes, times, in_this_order), plan.upserts.keys)
    return pa.Table.from_batches([add_row_kinds(changes.rows, changes.kinds)])


@attrs.frozen(eq=False)
class NewestRecords:
    """The newest records of each partition of some topics.

    Attributes:
        records: The key and the value of each record (bytes or null) with its topic, partition and offset; the oldest
            of each partition first.
        partitions: The number of partitions that have records.
    """

    records: pa.Table
    partitions: int


def newest_records(plan: ReadPlan, cluster: Cluster, n: int, *, timeout: float) -> NewestRecords:
    """The newest records of each partition of a table's topics, undecoded.

    If only Java's client can log in, it runs in the active Spark session, or in one that is started.

    Args:
        plan: Whose topics are read. Records that the header filter drops do not count.
        cluster: Where they are.
        n: How many records of each partition.
        timeout: How long it may take, in seconds.

    Raises:
        KafkaReadError: The brokers refuse or cannot be reached, a topic does not exist, or it takes longer.
        ResolveError: The client settings have errors.
        KdslError: Java's client is needed and cannot be opened (`JavaAdmin`). Errors of its Spark jobs are passed on.
    """
    subscription = subscribe(plan, cluster)
    partitions = subscription.partitions(subscription.topics())
    first, ends = subscription.admin.earliest(partitions), subscription.ends(partitions)
    needs = {"key", "value"} | ({"headers"} if plan.headers else set())
    with record_reader(cluster, plan, needs, name=f"kdsl-{plan.table}") as reader:
        tails, schema = _tails(reader, plan, first, ends, n, Deadline(timeout)), reader.schema
    records = pa.Table.from_pylist([record for tail in tails for record in tail], schema=schema)
    return NewestRecords(records, sum(bool(tail) for tail in tails))


def _last(plan: ReadPlan, cluster: Cluster, n: int, zone: str) -> RowsOfRecords:
    """Read the ends of all partitions, and decode the `n` records with the latest timestamps, oldest first.

    Errors are those of `last_records`.
    """
    subscription = subscribe(plan, cluster)
    partitions = subscription.partitions(subscription.topics())
    first, ends = subscription.admin.earliest(partitions), subscription.ends(partitions)
    decoder = RecordDecoder(plan, zone, registry_of(cluster, plan))
    needs = decoder.needs | {"timestamp"} | ({"headers"} if plan.headers else set())
    with record_reader(cluster, plan, needs, name=f"kdsl-{plan.table}") as reader:
        tails, schema = _tails(reader, plan, first, ends, n), reader.schema
    newest = heapq.nlargest(
        n, ((record["timestamp"], i, j) for i, tail in enumerate(tails) for j, record in enumerate(tail))
    )
    chosen = [tails[i][j] for _, i, j in sorted(newest)]
    return decoder.decode_with_records(pa.RecordBatch.from_pylist(chosen, schema=schema))


def _tails(
    reader: RecordReader,
    plan: ReadPlan,
    first: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    n: int,
    deadline: Deadline | None = None,
) -> list[list[dict[str, object]]]:
    """Read the last n raw records of each partition, or all there are, oldest first; each is a dict of its fields.

    Records that the header filter drops do not count, so each read goes further back than the one before. ``first`` and
    ``ends`` are the offsets at which the records of each partition begin and end. KafkaReadError if the deadline has
    passed.
    """
    tails: dict[TopicPartition, list[dict[str, object]]] = {partition: [] for partition in ends}
    begins = dict(ends)
    width = n
    while wanted := [p for p, tail in tails.items() if len(tail) < n and begins[p] > first[p]]:
        ranges = [Range(*p, max(first[p], begins[p] - width), begins[p]) for p in wanted]
        records: dict[TopicPartition, list[dict[str, object]]] = {partition: [] for partition in wanted}
        for batch in reader.read(ranges):
            if deadline is not None and deadline.has_passed:
                raise KafkaReadError(
                    f"{plan.table}: the last {n} records of each of {len(ends)} partitions were not read within "
                    f"{deadline.timeout:g} s; look at fewer records, or allow more time"
                )
            for record in filter_records(batch, plan.headers).to_pylist():
                records[record["topic"], record["partition"]].append(record)
        for r in ranges:
            partition = (r.topic, r.partition)
            tails[partition] = records[partition] + tails[partition]
            begins[partition] = r.start
        width *= 2
    return [tail[-n:] for tail in tails.values()]
