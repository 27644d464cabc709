"""The last records of a table or a topic, in this process; without Spark where librdkafka can log in to the cluster."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import RecordReader, record_reader, subscribe
from kdsl.errors import KafkaReadError, RecordError, pluralize
from kdsl.plan.model import ReadPlan, Topics
from kdsl.retry import Deadline
from kdsl.run.offsets.stored import Range
from kdsl.run.records.decode import RecordDecoder, RowsOfRecords
from kdsl.run.records.drops import Reason, key_of_rule
from kdsl.run.records.header_filter import filter_records
from kdsl.run.records.registry import registry_of
from kdsl.run.records.rejections import Rejection
from kdsl.types import model as t


@attrs.frozen(eq=False)
class LastRows:
    """The rows of the last records of a table's topics.

    Attributes:
        rows: The rows, oldest first by the records' timestamps. A record may have no row, or several.
        errors: Why records cannot be read, in the order of the records; also those that would become dead letters.
        dropped: How many other records, rows and values were left out, by reason (`kdsl.run.records.drops`).
    """

    rows: pa.Table
    errors: tuple[RecordError, ...] = ()
    dropped: Mapping[str, int] = attrs.field(factory=dict)


def last_rows(plan: ReadPlan, cluster: Cluster, n: int, *, zone: str = "UTC", changes: bool = False) -> LastRows:
    """Read the rows of the last records of a table's topics, or the changes that these records make.

    Args:
        plan: The read.
        cluster: The cluster of the topics.
        n: The number of records, over all partitions.
        zone: The time zone in which the record's timestamp is shown as a wall-clock time, a date or a string.
        changes: Whether records of an upsert table become changes: computed from these records alone, so the first row
            of a key is an insert, and a delete without an earlier row among them makes no change.

    Returns:
        Rows with the plan's columns, where the row kind is the first if they are changes; and the records that cannot
        be read.
    """
    placed, last = _last(plan, cluster, n, zone)
    rows = placed.rows
    if changes and plan.upserts is not None:
        from kdsl.run.upsert.changes import KeyedRows, compute_changes
        from kdsl.run.upsert.state import add_row_kinds

        kinds, *columns = rows.columns
        rows = pa.RecordBatch.from_arrays(columns, schema=rows.schema.remove(0))
        deletes = pc.equal(kinds, "-D").to_numpy(zero_copy_only=False)
        times = placed.of("timestamp").to_numpy()
        in_this_order = np.zeros(len(times), dtype=np.int64)
        changed = compute_changes(KeyedRows(rows, deletes, times, in_this_order), plan.upserts.keys)
        rows = add_row_kinds(changed.rows, changed.kinds)
    return attrs.evolve(last, rows=pa.Table.from_batches([rows]))


def last_records(plan: ReadPlan, cluster: Cluster, n: int, *, zone: str = "UTC") -> pa.Table:
    """Read the rows of the last records of a table's topics, and require that all can be read; see `last_rows`."""
    last = last_rows(plan, cluster, n, zone=zone)
    if last.errors:
        last.errors[0].more = len(last.errors) - 1
        raise last.errors[0]
    return last.rows


def last_raw_records(topic: str, cluster: Cluster, n: int, *, of_each_partition: bool = False) -> pa.RecordBatch:
    """Read the last `n` records of a topic, over all its partitions, oldest first by their timestamps, undecoded.

    With `of_each_partition`, the last `n` records of each partition.

    Returns:
        The fields topic, partition, offset, timestamp, key, value and headers of `kdsl.run.records.metadata.RAW`.
    """
    empty = t.Row((), nullable=False)
    plan = ReadPlan(topic, Topics((topic,)), empty, empty)
    return _read_last(plan, cluster, n, {"key", "value", "headers"}, of_each_partition=of_each_partition)


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
        timeout: How long it may take, in seconds; after that it fails with a KafkaReadError.
    """
    subscription = subscribe(plan, cluster)
    partitions = subscription.partitions(subscription.topics())
    first, ends = subscription.admin.earliest(partitions), subscription.ends(partitions)
    needs = {"key", "value"} | ({"headers"} if plan.headers else set())
    with record_reader(cluster, plan, needs, name=f"kdsl-{plan.table}") as reader:
        tails, schema = _read_tails(reader, plan, first, ends, n, Deadline(timeout)), reader.schema
    records = pa.Table.from_pylist([record for tail in tails for record in tail], schema=schema)
    return NewestRecords(records, sum(bool(tail) for tail in tails))


def _last(plan: ReadPlan, cluster: Cluster, n: int, zone: str) -> tuple[RowsOfRecords, LastRows]:
    """Read the last `n` records, and decode those that can be read; also return the others, as errors.

    Rules that reject rows, or stop a read, make them such errors, too.
    """
    strict = [attrs.evolve(rule, on_fail="dead_letter") if rule.on_fail == "fail" else rule for rule in plan.rules]
    decoder = RecordDecoder(attrs.evolve(plan, rules=tuple(strict)), zone, registry_of(cluster, plan))
    records = _read_last(plan, cluster, n, decoder.needs | ({"headers"} if plan.headers else set()))
    rejected: list[tuple[pa.RecordBatch, Rejection]] = []
    with decoder.rejecting(lambda records, rejections: rejected.extend((records, one) for one in rejections)):
        placed = decoder.decode_with_records(records)
    shown = {Reason.DEAD_LETTER, *(key_of_rule("dead_letter", rule.name) for rule in plan.rules)}
    dropped = {reason: count for reason, count in decoder.dropped.items() if reason not in shown}
    errors = tuple(_explain(plan, decoder, batch, one) for batch, one in rejected)
    return placed, LastRows(pa.table({}), errors, dropped)


def _explain(plan: ReadPlan, decoder: RecordDecoder, records: pa.RecordBatch, rejection: Rejection) -> RecordError:
    """Return why a single record cannot be read, with what to do about it."""
    alone = records.slice(rejection.index, 1)
    try:
        decoder.decode(alone)
    except RecordError as e:
        return e
    place = {name: alone.column(name)[0].as_py() for name in ("topic", "partition", "offset")}
    return RecordError("read", plan.table, rejection.reason, **place)


def _read_last(
    plan: ReadPlan, cluster: Cluster, n: int, needs: Collection[str], *, of_each_partition: bool = False
) -> pa.RecordBatch:
    """Read the ends of all partitions; return the `n` records with the latest timestamps, undecoded, oldest first."""
    subscription = subscribe(plan, cluster)
    partitions = subscription.partitions(subscription.topics())
    first, ends = subscription.admin.earliest(partitions), subscription.ends(partitions)
    with record_reader(cluster, plan, {*needs, "timestamp"}, name=f"kdsl-{plan.table}") as reader:
        tails, schema = _read_tails(reader, plan, first, ends, n), reader.schema
    count = n * len(tails) if of_each_partition else n
    newest = heapq.nlargest(
        count, ((record["timestamp"], i, j) for i, tail in enumerate(tails) for j, record in enumerate(tail))
    )
    chosen = [tails[i][j] for _, i, j in sorted(newest)]
    return pa.RecordBatch.from_pylist(chosen, schema=schema)


def _read_tails(
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
                    f"{plan.table}: the last {pluralize(n, 'record')} of each of {pluralize(len(ends), 'partition')} "
                    "were not read within "
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
