"""Read plans by hand, and reading without Spark, for the tests of the reading half."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.declare.metadata import METADATA
from kdsl.formats import format_class
from kdsl.plan.model import MetadataColumn, ReadPlan
from kdsl.resolve.model import Part, Start, StartMode, Topics
from kdsl.run.admin.cluster_admin import ClusterAdmin
from kdsl.run.librdkafka.consumers import PooledConsumer, borrow_consumer, choose_size, discard, return_consumer
from kdsl.run.librdkafka.fetch import Fetcher
from kdsl.run.librdkafka.options import write_options
from kdsl.run.librdkafka.read_task import PARALLELISM, Task
from kdsl.run.librdkafka.source import BatchReader
from kdsl.run.librdkafka.stream import Limits, Stream
from kdsl.run.offsets.stored import Offsets, Range
from kdsl.run.records.decode import RecordDecoder
from kdsl.types import model as t
from kdsl.types.parse import parse_type

TEXT = {"text": "STRING"}


def row(columns: Mapping[str, str]) -> t.Row:
    """A row type from names and SQL types."""
    return t.Row(tuple(t.Field(name, parse_type(kind)) for name, kind in columns.items()), nullable=False)


def part(format_name: str, columns: Mapping[str, str], names: Iterable[str] | None = None, **options: Any) -> Part:
    """A key or value of all given columns, under other names on the wire where they are given."""
    wire = row(columns)
    if names is not None:
        wire = t.Row(tuple(t.Field(n, f.type) for n, f in zip(names, wire.fields, strict=True)), nullable=False)
    return Part(format_class(format_name)(**options), wire, tuple(columns))


def read_plan(
    *topics: str,
    value: Part | None = None,
    key: Part | None = None,
    metadata: Mapping[str, str] | None = None,
    types: Mapping[str, str] | None = None,
    pattern: str | None = None,
    start: Start | StartMode = "earliest",
    columns: Iterable[str] | None = None,
    **rest: Any,
) -> ReadPlan:
    """A plan over the columns of a key, a value and metadata.

    Args:
        topics: The topics.
        value: The message value; without it, and without key and metadata, the raw format as the text column ``text``.
        key: The message key.
        metadata: Metadata keys by column.
        types: The types of metadata columns that are not the metadata's own.
        pattern: The pattern, instead of topics.
        start: The start, or its mode.
        columns: The order of the columns, where it is another one.
        rest: Other attributes of the plan.
    """
    if value is None and key is None and not metadata:
        value = part("raw", TEXT)
    shown = {
        column: parse_type(types[column]) if types and column in types else METADATA[name].type
        for column, name in (metadata or {}).items()
    }
    results: dict[str, t.DataType] = dict(shown)
    for one in (key, value):
        if one is not None:
            results |= {column: f.type for column, f in zip(one.columns, one.row.fields, strict=True)}
    result = t.Row(tuple(t.Field(name, results[name]) for name in (columns or sorted(results))), nullable=False)
    return ReadPlan(
        table="Orders",
        topics=Topics(pattern=pattern) if pattern else Topics(topics or ("orders",)),
        columns=result,
        output=result,
        start=start if isinstance(start, Start) else Start(start),
        group_id=rest.pop("group_id", "orders-group"),
        key=key,
        value=value,
        metadata=tuple(MetadataColumn(column, key, shown[column]) for column, key in (metadata or {}).items()),
        **rest,
    )


def fetch(
    plan: ReadPlan, cluster: Cluster, ranges: Iterable[Range], *, patience: float = 120.0
) -> list[dict[str, Any]]:
    """The rows of some ranges, read as a task reads them."""
    decoder = RecordDecoder(plan)
    wanted = list(ranges)
    if not wanted:
        return []
    consumer = borrow_consumer(
        cluster, str(cluster.settings()), choose_size(max(map(len, wanted))), {"group.id": "tests"}
    )
    try:
        raws = list(Fetcher(consumer, plan.table, decoder.needs, patience).read(wanted))
    except BaseException:
        discard(consumer)
        raise
    return_consumer(consumer)
    return [values for raw in raws for values in decoder.decode(raw).to_pylist()]


def batch(plan: ReadPlan, cluster: Cluster, *, parallelism: int = 4) -> list[dict[str, Any]]:
    """The rows of a bounded read, which Spark would do."""
    return [row for _, rows in batch_tasks(plan, cluster, parallelism=parallelism) for row in rows]


def batch_tasks(
    plan: ReadPlan, cluster: Cluster, *, parallelism: int = 4
) -> list[tuple[tuple[Range, ...], list[dict[str, Any]]]]:
    """The ranges and the rows of each task of a bounded read."""
    settings = {**write_options(plan, cluster), PARALLELISM: str(parallelism)}
    reader = BatchReader(tuple(settings.items()))
    tasks = [task for task in reader.partitions() if isinstance(task, Task)]
    return [(task.ranges, [r for item in _arrow(reader.read(task)) for r in item.to_pylist()]) for task in tasks]


def _arrow(batches: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    yield from batches


def fetch_raw(consumer: PooledConsumer, needs: Iterable[str], ranges: Iterable[Range]) -> pa.Table:
    """The raw records of some ranges."""
    return pa.Table.from_batches(Fetcher(consumer, "Orders", set(needs), 120.0).read(list(ranges)))


class Query:
    """A stream as Spark drives it, with its checkpoint in memory.

    Args:
        plan: What it reads.
        cluster: Where.
        admin: The admin client; None means librdkafka's.
    """

    def __init__(self, plan: ReadPlan, cluster: Cluster, admin: ClusterAdmin | None = None) -> None:
        self.plan, self.cluster, self._admin = plan, cluster, admin
        self.log: list[dict[str, Any]] = []
        self._stream = Stream(plan, cluster, admin=admin)

    def restart(self, plan: ReadPlan | None = None) -> None:
        """End the process that plans, and begin another one with what the checkpoint holds."""
        self.plan = plan or self.plan
        self._stream = Stream(self.plan, self.cluster, admin=self._admin)

    def plan_batch(self, limits: Limits | None = None) -> tuple[Range, ...] | None:
        """Plan the next micro-batch and write its end to the log; None where there is nothing to do."""
        start = self._start()
        end = self._stream.next(start, limits or Limits())
        if self.log and end.to_json() == self.log[-1]:
            return None
        self.log.append(end.to_json())
        return self._stream.ranges(start, end)

    def replay(self) -> tuple[Range, ...]:
        """Plan the last batch of the log again."""
        end = Offsets.from_json(self.log[-1])
        start = Offsets.from_json(self.log[-2]) if len(self.log) > 1 else self._stream.initial()
        return self._stream.ranges(start, end)

    def batch(self, limits: Limits | None = None) -> list[dict[str, Any]] | None:
        """The rows of the next micro-batch."""
        ranges = self.plan_batch(limits)
        return None if ranges is None else fetch(self.plan, self.cluster, ranges)

    @property
    def stream(self) -> Stream:
        """What plans."""
        return self._stream

    @property
    def offsets(self) -> Offsets:
        """The end of the last batch."""
        return Offsets.from_json(self.log[-1])

    def _start(self) -> Offsets:
        return Offsets.from_json(self.log[-1]) if self.log else self._stream.initial()


def sort_strings(rows: Iterable[Mapping[str, Any]] | None) -> list[str]:
    """The column ``text``, sorted."""
    return sorted(values["text"] for values in rows or ())
