"""The metrics, each declared once: its name, kind, unit and meaning belong to the attribute with its value.

The names are those of Flink's Kafka connector
(https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/datastream/kafka/#monitoring). The snapshot of a
query, the Prometheus metrics and the page docs/metrics.md are derived from these declarations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, TypeVar

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.errors import listing
from kdsl.notebooks import make_html, table_html
from kdsl.run.records.drops import VALUES, Reason

_KEY = "kdsl.metric"
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|-")


class Kind(StrEnum):
    """What a metric's value does over time."""

    COUNTER = "counter"
    GAUGE = "gauge"


@attrs.frozen
class Alert:
    """When somebody should look at a metric: `kdsl.monitoring` makes Prometheus' rules from it.

    Attributes:
        summary: What has happened, after the names of query and table.
        above: The value that is too much; of a counter its increase within ten minutes.
        lasting: For how long it must be so, as Prometheus writes durations; empty for at once.
        severity: ``critical`` if rows may be lost or the query does not work, else ``warning``.
        only: Labels that select the values that count, as Prometheus writes them.
    """

    summary: str
    above: float = 0
    lasting: str = ""
    severity: str = "warning"
    only: str = ""


@attrs.frozen
class Metric:
    """What a metric is.

    Attributes:
        name: Its name, as Flink's connector spells it.
        kind: A counter only grows while a query runs; a gauge is a present value.
        unit: What its value counts.
        doc: What it means.
        field: The attribute of the snapshot that holds it.
        labels: The labels that distinguish the values of one snapshot: topic and partition, the reason, the rule, the
            operator or the routing; empty if there is one value.
        alert: When somebody should look at it; None if its value alone says nothing.
    """

    name: str
    kind: Kind
    unit: str
    doc: str
    field: str = ""
    labels: tuple[str, ...] = ()
    alert: Alert | None = None


_BY_PARTITION = ("topic", "partition")
_TAKEN = Alert("another query uses the same consumer group or transactional ids", severity="critical")


def _metric(metric: Metric, default: Any) -> Any:
    """Declare an attribute with the metric in its metadata; one with labels is a dict, empty by default."""
    metadata = {_KEY: metric}
    if metric.labels:
        return attrs.field(factory=dict, metadata=metadata)
    return attrs.field(default=default, metadata=metadata)


def _counter(
    name: str, unit: str, doc: str, default: Any = 0, *, labels: tuple[str, ...] = (), alert: Alert | None = None
) -> Any:
    """Declare an attribute with a counter as its metric; one with labels is a dict, empty by default."""
    return _metric(Metric(name, Kind.COUNTER, unit, doc, labels=labels, alert=alert), default)


def _gauge(
    name: str, unit: str, doc: str, default: Any = None, *, labels: tuple[str, ...] = (), alert: Alert | None = None
) -> Any:
    """Declare an attribute with a gauge as its metric; one with labels is a dict, empty by default."""
    return _metric(Metric(name, Kind.GAUGE, unit, doc, labels=labels, alert=alert), default)


@attrs.frozen
class SourceMetrics:
    """What a query has read from one table since it was started; None means not known (yet).

    Attributes:
        table: The table's name.
        read: The id of the read, as in the offsets of the checkpoint.
        lost_lease: Who has acquired the consumer group that this query held (``check_group``), and what that means;
            None if nobody has.
        client: librdkafka's metrics of each consumer, by client id, under the names of Java's client.
    """

    table: str
    read: str = ""
    num_records_in: int = _counter(
        "numRecordsIn", "records", "Records that were read, including those that the header filter leaves out."
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
    num_records_dropped: Mapping[str, int] = _counter(
        "numRecordsDropped",
        "records",
        "Other records, and single values, that were left out without an error. "
        + "; ".join(f"`{reason}`: {'values' if reason in VALUES else 'records'} {reason.doc}" for reason in Reason)
        + ".",
        labels=("reason",),
        alert=Alert("records that cannot be read were left out", only='reason=~"parse-error|dead-letter"'),
    )
    num_rule_violations: Mapping[str, int] = _counter(
        "numRuleViolations",
        "rows",
        "Rows that violate a row rule, by rule: they were kept, left out, or left out as dead letters, as it says.",
        labels=("rule",),
    )
    pending_records: int | None = _gauge(
        "pendingRecords",
        "records",
        "The lag in records: records that could be read when the last batch was planned and are not part of it. With "
        "`read_committed` they end at the last stable offset.",
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
        "furthest behind; otherwise 0.",
        alert=Alert("the query is {{ $value | humanizeDuration }} behind", 300, "10m"),
    )
    uncommitted_records: int | None = _gauge(
        "uncommittedRecords",
        "records",
        "With `read_committed`, the offsets from the last stable offset to the high watermark, or to the end of a "
        "bounded read, which open transactions hold back; otherwise 0.",
        alert=Alert("an open transaction of a producer holds back {{ $value }} records", 0, "15m"),
    )
    current_fetch_event_time_lag: int | None = _gauge(
        "currentFetchEventTimeLag", "ms", "Time from the timestamp of the last record to its fetch."
    )
    current_emit_event_time_lag: int | None = _gauge(
        "currentEmitEventTimeLag", "ms", "Time from the timestamp of the last record to when Spark got its row."
    )
    watermark_lag: float | None = _gauge("watermarkLag", "ms", "How far the query's watermark is behind the clock.")
    source_idle_time: float | None = _gauge(
        "sourceIdleTime", "ms", "Time since the end of the last batch with records; before the first, since the start."
    )
    commits_succeeded: int = _counter(
        "commitsSucceeded", "commits", "Commits of offsets to the group that succeeded, of this table in this process."
    )
    commits_failed: int = _counter(
        "commitsFailed",
        "commits",
        "Commits that failed; the next one includes their offsets, and the query is not affected.",
        alert=Alert("offsets were not committed to the consumer group"),
    )
    num_keys_in_state: int | None = _gauge(
        "numKeysInState",
        "keys",
        "Keys in the state of an upsert table. Partitions that have not changed since the query was started are not "
        "included.",
    )
    state_bytes: int | None = _gauge("stateBytes", "bytes", "Bytes of the rows of these keys in the state.")
    state_routing: Mapping[str, int] = _gauge(
        "stateRouting",
        "states",
        "1 for the way in which the last batch finds the last row of each key of an upsert table: `by key`, or "
        "`by partition` with the partitioner, as in `by partition (murmur2)`. Not known with the transport `jvm`, "
        "which finds them by key.",
        labels=("routing",),
    )
    records_lost: int = _counter(
        "recordsLost",
        "records",
        "Offsets that were deleted before they were read and were skipped, and read records that a log has lost, since "
        "the checkpoint began (S6, S27). With the "
        "transport `jvm`, it is an upper bound, since the start of the process.",
        alert=Alert("{{ $value }} records were deleted before they were read", severity="critical"),
    )
    leases_lost: int = _gauge(
        "leasesLost",
        "leases",
        "1 if another query has acquired the consumer group that this query held (`check_group`); `.lost_lease` says "
        "which one.",
        0,
        alert=_TAKEN,
    )
    current_offsets: Mapping[TopicPartition, int] = _gauge(
        "currentOffsets", "offset", "The offset of the next record to read.", labels=_BY_PARTITION
    )
    committed_offsets: Mapping[TopicPartition, int] = _gauge(
        "committedOffsets", "offset", "The offset that was last committed to the group.", labels=_BY_PARTITION
    )
    partition_lags: Mapping[TopicPartition, int] = _gauge(
        "records-lag", "records", "pendingRecords of each partition.", labels=_BY_PARTITION
    )
    high_watermark_lags: Mapping[TopicPartition, int] = _gauge(
        "highWatermarkLag",
        "records",
        "From currentOffsets to the high watermark of each partition, records of open transactions included.",
        labels=_BY_PARTITION,
    )
    lost_lease: str | None = None
    client: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)


@attrs.frozen
class SinkMetrics:
    """What a query has written to one table since it was started; None means not known.

    Attributes:
        table: The table's name.
        lost_lease: Who has acquired the prefix of transactional ids that this query held, and what that means; None if
            nobody has.
        client: librdkafka's metrics of each producer, by client id, under the names of Java's client.
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
        "Time from sending a task's last record to the acknowledgement of all; the longest one of the last batch.",
        alert=Alert("the brokers take {{ $value }} ms to acknowledge records", 30_000, "10m"),
    )
    num_rows_dropped: int = _counter(
        "numRowsDropped",
        "rows",
        "Rows with NULL in a NOT NULL column that `sink.not-null-enforcer` left out.",
        alert=Alert("rows with NULL in a NOT NULL column were left out"),
    )
    num_rule_violations: Mapping[str, int] = _counter(
        "numRuleViolations",
        "rows",
        "Rows that violate a row rule, by rule: they were written or left out, as the rule says.",
        labels=("rule",),
    )
    records_lost: int = _counter(
        "recordsOutLost",
        "records",
        "Records that were not acknowledged, in a write without delivery guarantee.",
        alert=Alert("{{ $value }} records were not acknowledged, and are lost", severity="critical"),
    )
    leases_lost: int = _gauge(
        "leasesLost",
        "leases",
        "1 if another query has acquired the prefix of transactional ids that this exactly-once query held; "
        "`.lost_lease` says which one. The brokers fence this query when the other one writes: nothing is doubled.",
        0,
        alert=_TAKEN,
    )
    lost_lease: str | None = None
    client: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)


_T = TypeVar("_T", SourceMetrics, SinkMetrics)


@attrs.frozen
class QueryMetrics:
    """The metrics of a streaming query at one moment.

    Attributes:
        query: The query's id, which stays with its checkpoint.
        run: The id of this run.
        name: The query's name, or None.
        batch: The last batch that ended; None before the first.
        sources: What it reads, by table.
        sinks: What it writes.
    """

    query: str
    run: str
    name: str | None = None
    batch: int | None = None
    sources: tuple[SourceMetrics, ...] = ()
    sinks: tuple[SinkMetrics, ...] = ()
    num_late_records_dropped: Mapping[str, int] = _counter(
        "numLateRecordsDropped",
        "rows",
        "Rows that a stateful operator (a window, a join of streams, a deduplication) dropped because they were behind "
        "the watermark: Spark's numRowsDroppedByWatermark. An aggregation counts rows after it has combined those of "
        "each task by group. Each batch that drops rows logs a warning.",
        labels=("operator",),
        alert=Alert("rows behind the watermark were left out"),
    )
    running: int = _gauge(
        "running",
        "queries",
        "1 while the query runs; 0 for an hour after its end, when its other metrics are no longer in Prometheus.",
        1,
    )
    failed: Mapping[str, int] = _gauge(
        "failed",
        "queries",
        "1 for an hour if the query has ended with an error. The label is the first line of its message, if the "
        "metrics are served to this machine only; a message may contain values of rows.",
        labels=("error",),
        alert=Alert("the query has failed: {{ $labels.error }}", severity="critical"),
    )
    uptime: float | None = _gauge("uptime", "ms", "How long the query has been running since it was last started.")
    batch_duration: int | None = _gauge(
        "batchDuration",
        "ms",
        "How long the last batch took, with its planning and its commit: Spark's triggerExecution.",
    )
    num_rows_in_state: Mapping[str, int] = _gauge(
        "numRowsInState",
        "rows",
        "Rows in the state of a stateful operator: Spark's numRowsTotal. Keys of an upsert table do not count; "
        "numKeysInState counts them.",
        labels=("operator",),
    )
    state_memory: Mapping[str, int] = _gauge(
        "stateMemory",
        "bytes",
        "Memory that the state of a stateful operator uses: Spark's memoryUsedBytes.",
        labels=("operator",),
    )

    def _repr_html_(self) -> str:
        """The metrics as notebooks show them: those of `list_values`."""
        names = ("table", "metric", "value", "unit")
        batch = "before the first batch" if self.batch is None else f"batch {self.batch}"
        title = f"{self.name or self.query}: metrics, {batch}"
        return make_html(table_html(title, names, list_values(self), numbers=("value",)))

    @property
    def source(self) -> SourceMetrics:
        """The only source.

        Raises:
            ValueError: There is none, or there are several.
        """
        return _only(self.sources, "source", self)

    @property
    def sink(self) -> SinkMetrics:
        """The only sink.

        Raises:
            ValueError: There is none, or there are several.
        """
        return _only(self.sinks, "sink", self)


def _only(tables: tuple[_T, ...], what: str, query: QueryMetrics) -> _T:
    """Return the only source or sink of a query."""
    if len(tables) == 1:
        return tables[0]
    name = query.name or query.query
    if tables:
        names = listing(table.table for table in tables)
        raise ValueError(f"the query {name!r} has {len(tables)} {what}s, of {names}; use .{what}s")
    if query.batch is None and what == "source":
        raise ValueError(
            f"the query {name!r} has finished no batch yet, so its sources are not known; "
            "wait for its first batch, or use .sources, which is empty until then"
        )
    raise ValueError(f"the query {name!r} has no {what} that is a table of kdsl; .{what}s is ()")


def prometheus_name(name: str, kind: Kind = Kind.GAUGE) -> str:
    """Return the name of a metric in Prometheus: the counter ``numRecordsIn`` is ``kdsl_num_records_in_total``."""
    snake = f"kdsl_{_WORD.sub('_', name).lower()}"
    return snake if kind is Kind.GAUGE or snake.endswith("_total") else f"{snake}_total"


def metrics_of(snapshot: type[SourceMetrics | SinkMetrics | QueryMetrics]) -> Iterator[Metric]:
    """Yield the metrics that a snapshot itself holds, in their order."""
    for field in attrs.fields(snapshot):
        if _KEY in field.metadata:
            yield attrs.evolve(field.metadata[_KEY], field=field.name)


def list_values(query: QueryMetrics) -> Iterator[tuple[str, str, str, str]]:
    """Yield table, name, value and unit of each metric that is known, as strings; the table of the query's is empty.

    Offsets, and reasons and operators that count 0, are left out.
    """
    snapshots: list[tuple[str, QueryMetrics | SourceMetrics | SinkMetrics]] = [("", query)]
    snapshots += [(source.table, source) for source in query.sources]
    snapshots += [(sink.table, sink) for sink in query.sinks]
    for table, snapshot in snapshots:
        for metric in metrics_of(type(snapshot)):
            value = getattr(snapshot, metric.field)
            if isinstance(value, Mapping):
                # Those of topic partitions are offsets and lags, whose sums are metrics, too.
                counts = value.items() if len(metric.labels) == 1 else ()
                yield from ((table, f"{metric.name} ({key})", f"{n:,}", metric.unit) for key, n in counts if n)
            elif value is not None:
                number = f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
                yield table, metric.name, number, metric.unit
