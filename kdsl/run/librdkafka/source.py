"""The reading half of the data source ``kdsl``: what Spark calls, in the driver's planning processes and in tasks.

Readers are pickled into every task, so that they hold the options' text and nothing else of weight; what is made of the
text is made once in each process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan
from kdsl.run.cluster.group import hold_group
from kdsl.run.cluster.lease import Lease
from kdsl.run.cluster.offsets import LOST_LEASE, Offsets, Range, nested
from kdsl.run.cluster.subscription import Subscription
from kdsl.run.librdkafka.assignment import in_order, tasks
from kdsl.run.librdkafka.consumers import KeptConsumer, discard, lend, size_for
from kdsl.run.librdkafka.datasource import CLUSTER, LITERALS, PLAN, read_options
from kdsl.run.librdkafka.fetch import Count, Fetcher
from kdsl.run.librdkafka.stream import Limits, Stream
from kdsl.run.metrics.accumulated import OPTION as ACCUMULATOR, tell
from kdsl.run.metrics.on_rows import COLUMN, OnRows, with_column
from kdsl.run.metrics.source_reports import OPTION as METRICS, Reporter
from kdsl.run.metrics.statistics import INTERVAL, client_id
from kdsl.run.records.decode import RecordDecoder, check_batches
from kdsl.run.records.registry import registry_of
from kdsl.run.upsert.maker import maker_of, source_row
from kdsl.types.arrow import arrow_schema
from kdsl.types.spark import spark_schema

PARALLELISM = "parallelism"
ZONE = "zone"
_KEPT_OPTIONS = (PLAN, CLUSTER, LITERALS, PARALLELISM, ZONE, METRICS, ACCUMULATOR)
_NO_LIMIT = 2**63 - 1


class Task(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        super().__init__([(r.topic, r.partition, r.start, r.end) for r in ranges])

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The ranges, each with its start and end."""
        return tuple(Range(*values) for values in self.value)


def source_schema(options: Mapping[str, str]) -> StructType:
    """The columns that a read of these options gives."""
    schema = spark_schema(source_row(_parsed(_text(options))[0]))
    return schema.add(COLUMN, "string") if _on_rows(options) else schema


def batch_reader(options: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader of a bounded read."""
    del schema
    return BatchReader(_text(options))


def stream_reader(options: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """The reader of a stream."""
    del schema
    return StreamReader(_text(options))


OptionText = tuple[tuple[str, str], ...]


def _text(options: Mapping[str, str]) -> OptionText:
    return tuple((name, options[name]) for name in _KEPT_OPTIONS if name in options)


@lru_cache(maxsize=16)
def _parsed(options: OptionText) -> tuple[ReadPlan, Cluster]:
    return read_options(dict(options), ReadPlan)


@lru_cache(maxsize=16)
def _decoder(options: OptionText) -> RecordDecoder:
    plan, cluster = _parsed(options)
    return RecordDecoder(plan, dict(options).get(ZONE, "UTC"), registry_of(cluster, plan))


def _read(options: OptionText, task: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a task, in a worker."""
    if not isinstance(task, Task):  # Spark makes one of its own where a batch has none
        return
    plan, cluster = _parsed(options)
    decoder = _decoder(options)
    connector = cluster.connector()
    size = size_for(max(map(len, task.ranges)))
    names = {
        "client.id": client_id(connector.client_id_prefix or f"kdsl-{plan.table}", f"consumer-{size.name}"),
        "group.id": plan.group_id or f"kdsl-{plan.table}",
    }
    told = METRICS in dict(options)
    of_client = told and connector.register_consumer_metrics
    if of_client:
        names["statistics.interval.ms"] = str(INTERVAL)
    consumer = lend(cluster, str(options), size, names)
    fetcher = Fetcher(consumer, plan.table, decoder.needs, connector.api_timeout_ms / 1000)
    batches = fetcher.read(task.ranges)
    try:
        if told:
            yield from _reported(batches, task, options, fetcher, consumer if of_client else None)
        else:
            maker = maker_of(decoder, plan)
            yield from (rows for raw in batches for rows in maker.make(raw))
            yield from maker.rest()
    except GeneratorExit:  # Spark needs no more rows
        consumer.rest()
        raise
    except BaseException:
        discard(consumer)
        raise
    consumer.rest()


def _reported(
    batches: Iterator[pa.RecordBatch], task: Task, options: OptionText, fetcher: Fetcher, consumer: KeptConsumer | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a task, of which it reports."""
    plan, decoder, given = _parsed(options)[0], _decoder(options), dict(options)
    reporter = Reporter("; ".join(map(str, task.ranges)))
    fetcher.count = count = Count()
    maker = maker_of(decoder, plan)
    rows = OnRows(reporter, source_row(plan)) if _on_rows(given) else None
    for raw in batches:
        before = decoder.filtered
        made = list(maker.make(raw))
        reporter.read(*count.take(), filtered=decoder.filtered - before)
        if consumer is not None:
            reporter.client(consumer.client_id, consumer.take_statistics())
        yield from made if rows is None else map(rows.on, made)
    yield from maker.rest() if rows is None else map(rows.on, maker.rest())
    if rows is not None:
        yield from rows.rest()
    elif reporter.new:
        tell(int(given[ACCUMULATOR]), given[METRICS], reporter.report())


def _on_rows(options: Mapping[str, str]) -> bool:
    """Whether the rows carry the reports of tasks."""
    return METRICS in options and ACCUMULATOR not in options


def _row_schema(options: OptionText) -> pa.Schema:
    schema = arrow_schema(source_row(_parsed(options)[0]))
    return with_column(schema) if _on_rows(dict(options)) else schema


def _plan_tasks(options: OptionText, ranges: Sequence[Range]) -> list[InputPartition]:
    plan, _ = _parsed(options)
    most = plan.parallelism or int(dict(options)[PARALLELISM])
    pack = in_order if plan.changelog and plan.upserts is None else tasks
    return [Task(task) for task in pack(ranges, most)]


class BatchReader(DataSourceReader):
    """Reads from the plan's start to its end, or else to the ends that the partitions have when the read is planned."""

    def __init__(self, options: OptionText) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks; the brokers are asked once."""
        subscription = Subscription(*_parsed(self._options))
        begin, stop = subscription.span(subscription.topics(), batch=True)
        ranges = [Range(*place, begin.offsets[place], end) for place, end in stop.items()]
        return _plan_tasks(self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return iter(check_batches(_read(self._options, partition), _row_schema(self._options)))


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads micro-batches. Spark calls all but `read` in one process for each query, which lives as long."""

    def __init__(self, options: OptionText) -> None:
        self._options = options
        self._made: Stream | None = None
        self._lease: Lease | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_made": None, "_lease": None}

    @property
    def _stream(self) -> Stream:
        if self._made is None:
            plan, cluster = _parsed(self._options)
            if plan.check_group:
                self._lease = hold_group(plan, cluster)
            self._made = Stream(plan, cluster)
        return self._made

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the query starts that has no checkpoint."""
        return self._stream.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that the table declares; a limit for each partition alone is a limit too high to matter."""
        plan, _ = _parsed(self._options)
        if plan.max_records is None and plan.max_records_per_partition is None:
            return ReadAllAvailable()
        return ReadMaxRows(_NO_LIMIT if plan.max_records is None else plan.max_records)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Where the next micro-batch ends."""
        return self._stream.next(Offsets.from_json(start), self._limits(limit)).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """How far the topics could be read, whatever the limits, when the last batch was planned."""
        latest = self._stream.latest
        if latest is None:
            return None
        held = self._stream.held() if METRICS in dict(self._options) else {}
        told: dict[str, Any] = {"high": nested(held)} if held else {}
        if self._lease is not None and self._lease.lost_to is not None:
            told[LOST_LEASE] = str(self._lease.lost_to)
        return {**latest.to_json(), **told}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to what is there now, in as many batches as the limits need."""
        self._stream.hold_ends()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a micro-batch."""
        ranges = self._stream.ranges(Offsets.from_json(start), Offsets.from_json(end))
        return _plan_tasks(self._options, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of a task."""
        return iter(check_batches(_read(self._options, partition), _row_schema(self._options)))

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has done with everything before ``end``; offsets of a consumer group are not committed from here.

        It comes when the batch after next begins, and never for the last batch of an ``availableNow`` run.
        """

    def stop(self) -> None:
        """The query ends."""
        self._made = None
        if self._lease is not None:
            self._lease.release()
            self._lease = None

    def _limits(self, limit: ReadLimit) -> Limits:
        plan, _ = _parsed(self._options)
        match limit:
            case ReadAllAvailable():
                return Limits()
            case ReadMaxRows(max_rows=rows):
                return Limits(None if rows == _NO_LIMIT else rows, plan.max_records_per_partition)
            case ReadMinRows(min_rows=rows):
                return Limits(least=rows)
            case _:
                raise KdslError(f"{plan.table}: a Kafka table has no limit like {limit}; limit it by records")
