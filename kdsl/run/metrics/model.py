"""The metrics, each declared once: its name, kind, unit and meaning stand at the attribute that holds its value.

The names are those of Flink's Kafka connector (seed 003, and 000 where it has more). The snapshot of a query, the
Prometheus text and the page docs/metrics.md come from these declarations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any

import attrs

from kdsl.offsets import TopicPartition

_KEY = "kdsl.metric"


class Kind(StrEnum):
    """What a metric's value does over time."""

    COUNTER = "counter"
    GAUGE = "gauge"


@attrs.frozen
class Metric:
    """What a metric is.

    Attributes:
        name: Its name, as Flink's connector spells it.
        kind: A counter only grows while a query runs; a gauge is how things are.
        unit: What its value counts.
        doc: What it means.
        field: The attribute of the snapshot that holds it.
        by_partition: Whether there is a value for each topic and partition.
    """

    name: str
    kind: Kind
    unit: str
    doc: str
    field: str = ""
    by_partition: bool = False


def _metric(kind: Kind, name: str, unit: str, doc: str, default: Any, *, by_partition: bool = False) -> Any:
    told = {_KEY: Metric(name, kind, unit, doc, by_partition=by_partition)}
    if by_partition:
        return attrs.field(factory=dict, metadata=told)
    return attrs.field(default=default, metadata=told)


def _counter(name: str, unit: str, doc: str, default: Any = 0, *, by_partition: bool = False) -> Any:
    return _metric(Kind.COUNTER, name, unit, doc, default, by_partition=by_partition)


def _gauge(name: str, unit: str, doc: str, default: Any = None, *, by_partition: bool = False) -> Any:
    return _metric(Kind.GAUGE, name, unit, doc, default, by_partition=by_partition)


@attrs.frozen
class SourceMetrics:
    """What a query has read from one table since it was started; None is not known (yet).

    Attributes:
        table: The table's name.
        read: The id of the read, as in the offsets of the checkpoint.
        lost_lease: Who has taken the consumer group that this query holds (``check_group``), and what that means; None
            where nobody has.
        client: What librdkafka tells of each consumer, by client id, under the names of Java's client.
    """

    table: str
    read: str = ""
    num_records_in: int = _counter(
        "numRecordsIn", "records", "Records that were read, those that the header filter leaves out among them."
    )
    num_records_in_per_second: float = _gauge(
        "numRecordsInPerSecond", "records/s", "Records of the last batch over the time since the one before began.", 0.0
    )
    num_bytes_in: int | None = _counter(
        "numBytesIn", "bytes", "Bytes of the keys and values of these records, uncompressed.", None
    )
    num_bytes_in_per_second: float | None = _gauge(
        "numBytesInPerSecond", "bytes/s", "Bytes of the last batch over the time since the one before began."
    )
    num_records_filtered: int = _counter("numRecordsFiltered", "records", "Records that the header filter left out.")
    pending_records: int | None = _gauge(
        "pendingRecords",
        "records",
        "The lag in records: what could be read when the last batch was planned and is not part of it. Under "
        "`read_committed` it goes up to the last stable offset.",
    )
    pending_bytes: int | None = _gauge(
        "pendingBytes",
        "bytes",
        "The lag in bytes: an estimate, pendingRecords times the mean size of the records read so far.",
    )
    pending_seconds: float | None = _gauge(
        "pendingSeconds",
        "s",
        "The lag in seconds: while records are pending, the age of the last record that was read, by the task that is "
        "furthest behind; else 0.",
    )
    uncommitted_records: int | None = _gauge(
        "uncommittedRecords",
        "records",
        "Under `read_committed` the offsets from the last stable offset to the high watermark, which open transactions "
        "hold back; else 0.",
    )
    current_fetch_event_time_lag: int | None = _gauge(
        "currentFetchEventTimeLag", "ms", "From the timestamp of the last record read to when it was fetched."
    )
    current_emit_event_time_lag: int | None = _gauge(
        "currentEmitEventTimeLag", "ms", "From the timestamp of the last record read to when Spark was given its row."
    )
    watermark_lag: float | None = _gauge("watermarkLag", "ms", "How far the query's watermark is behind the clock.")
    source_idle_time: float | None = _gauge(
        "sourceIdleTime", "ms", "Since the end of the last batch that had records; before the first, since the start."
    )
    commits_succeeded: int = _counter(
        "commitsSucceeded", "commits", "Commits of offsets to the group that succeeded, of this table in this process."
    )
    commits_failed: int = _counter(
        "commitsFailed", "commits", "Those that failed; the next one makes good, the query is not harmed."
    )
    num_keys_in_state: int | None = _gauge(
        "numKeysInState",
        "keys",
        "Keys that are there, of an upsert table whose last rows are kept. Buckets that no record has touched since "
        "the query was started are not known, and not in it.",
    )
    state_bytes: int | None = _gauge(
        "stateBytes", "bytes", "Bytes of the rows that are kept of these keys, as they stand in Spark's state."
    )
    records_lost: int = _counter(
        "recordsLost",
        "records",
        "Offsets that were deleted before they were read and passed over, since the checkpoint began (S6).",
    )
    leases_lost: int = _gauge(
        "leasesLost",
        "leases",
        "1 where the consumer group, which this query held (`check_group`), has been taken by another one since; "
        "`.lost_lease` says by whom.",
        0,
    )
    current_offsets: Mapping[TopicPartition, int] = _gauge(
        "currentOffsets", "offset", "The offset of the next record to read.", by_partition=True
    )
    committed_offsets: Mapping[TopicPartition, int] = _gauge(
        "committedOffsets", "offset", "The offset that was last committed to the group.", by_partition=True
    )
    partition_lags: Mapping[TopicPartition, int] = _gauge(
        "records-lag", "records", "pendingRecords of each partition.", by_partition=True
    )
    high_watermark_lags: Mapping[TopicPartition, int] = _gauge(
        "highWatermarkLag",
        "records",
        "From currentOffsets to the high watermark of each partition, records of open transactions included.",
        by_partition=True,
    )
    lost_lease: str | None = None
    client: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)


@attrs.frozen
class SinkMetrics:
    """What a query has written to one table since it was started; None is not known.

    Attributes:
        table: The table's name.
        lost_lease: Who has taken the transactional id prefix that this query holds, and what that means; None where
            nobody has.
        client: What librdkafka tells of each producer, by client id, under the names of Java's client.
    """

    table: str
    num_records_out: int = _counter("numRecordsOut", "records", "Records that Kafka has acknowledged.")
    num_records_out_per_second: float = _gauge(
        "numRecordsOutPerSecond",
        "records/s",
        "Records of the last batch over the time since the one before began.",
        0.0,
    )
    num_bytes_out: int | None = _counter(
        "numBytesOut", "bytes", "Bytes of the keys and values that were sent, uncompressed.", None
    )
    num_bytes_out_per_second: float | None = _gauge(
        "numBytesOutPerSecond", "bytes/s", "Bytes of the last batch over the time since the one before began."
    )
    current_send_time: float | None = _gauge(
        "currentSendTime",
        "ms",
        "From handing over a task's last record to the acknowledgement of all of them, in the last batch; the longest.",
    )
    records_lost: int = _counter(
        "recordsOutLost", "records", "Records that were not acknowledged, where the delivery promises nothing."
    )
    leases_lost: int = _gauge(
        "leasesLost",
        "leases",
        "1 where the prefix of transactional ids, which an exactly-once query held, has been taken by another one "
        "since; `.lost_lease` says by whom. The brokers fence this query when that one writes: nothing is doubled.",
        0,
    )
    lost_lease: str | None = None
    client: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)


@attrs.frozen
class QueryMetrics:
    """The metrics of a streaming query at one moment.

    Attributes:
        query: The query's id, which stays with its checkpoint.
        run: The id of this run.
        name: The query's name, or None.
        batch: The last batch that ended; None before the first.
        sources: What it reads, a table each.
        sinks: What it writes.
    """

    query: str
    run: str
    name: str | None = None
    batch: int | None = None
    sources: tuple[SourceMetrics, ...] = ()
    sinks: tuple[SinkMetrics, ...] = ()

    @property
    def source(self) -> SourceMetrics:
        """The one source.

        Raises:
            ValueError: There is none, or there are several.
        """
        (only,) = self.sources
        return only

    @property
    def sink(self) -> SinkMetrics:
        """The one sink.

        Raises:
            ValueError: There is none, or there are several.
        """
        (only,) = self.sinks
        return only


def metrics_of(snapshot: type[SourceMetrics | SinkMetrics]) -> Iterator[Metric]:
    """The metrics that a snapshot holds, in their order."""
    for field in attrs.fields(snapshot):
        if _KEY in field.metadata:
            yield attrs.evolve(field.metadata[_KEY], field=field.name)
