"""The reference page of the metrics, generated from their declarations."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.run.metrics.model import QueryMetrics, SinkMetrics, SourceMetrics, metrics_of, prometheus_name
from kdsl.run.metrics.source_reports import SWITCH
from kdsl.run.metrics.statistics import CONSUMER, INTERVAL, PRODUCER

_ABOUT = f"""\
A streaming query counts what it reads from Kafka and writes to it. The names are those of Flink's Kafka connector. The
metrics are available in five places:

- **In Python**: `kdsl.metrics(query)` is a frozen `QueryMetrics`: `.source` is the `SourceMetrics` of a query with one
  source, `.sources` and `.sinks` (`SinkMetrics`) are all. It works on classic sessions and on Spark Connect.
- **For Prometheus**: `kdsl.serve_metrics(port=9404)` serves the metrics of all running queries of the process as text
  at `http://127.0.0.1:9404/metrics`, until the `MetricsServer` is closed. Of a query that has ended, it says for an
  hour that it has, or why it failed. Labels: `query` (its name, else its id), `table`, and `topic` and `partition`,
  `reason`, `rule`, `operator`, `routing` or `client_id`.
- **In Spark's progress**: `query.lastProgress.observedMetrics` has an entry `kdsl.…` for each source. Its column
  `metrics` contains numRecordsIn, numBytesIn, numRecordsFiltered, numRecordsDropped… (one number for each reason) and
  both event time lags of that batch. The offsets of each source contain `latestOffset` (and `high`,
  if open transactions delay records). Spark's `sink.numOutputRows` is the number of rows that a sink wrote.
- **On the command line**: `kdsl run --metrics-port 9404` serves the metrics of a script for Prometheus, and
  `kdsl run --report` prints them when a query ends. `kdsl lag` asks the brokers how far a group or a checkpoint lags
  behind.
- **On a page**: `kdsl watch` shows the running queries of one or more jobs with plots ([watch.md](watch.md)).

`kdsl monitor grafana --out kdsl.json` writes a dashboard with every metric below, to import into Grafana; it has the
queries and tables as variables. `kdsl monitor alerts --out kdsl-alerts.yaml` writes alert rules for `rule_files` of
Prometheus: records that were lost or left out, lag, open transactions, commits that fail, a second query with the same
group, a query that has failed, and a query whose metrics are gone. Change their limits in the file.

`kdsl --log-format json run …` (or `KDSL_LOG_FORMAT=json`) writes each line of the log as a JSON object: `time`,
`level`, `logger`, `message`, and of a problem its `code` and where it is. A job's own logging does the same with
`kdsl.json_logs.JsonFormatter`.

Counters start from zero when the query starts in its process, also after a restart; offsets and recordsLost continue
from the checkpoint. Gauges of offsets and lag are those of the last batch. A batch that ran twice (because a task
failed, or because `foreachBatch` used its rows twice) counts once, while Spark's numInputRows counts every run. Jobs
that `foreachBatch` runs in its own threads belong to the batch if the threads are `pyspark.InheritableThread`s; for
jobs in other threads, records are counted as rows and bytes are unknown. A task that Spark stops early (`limit` within
`foreachBatch`) reports nothing.

The rows of an upsert table are kept by partition or by shard (`changelog_state`). A batch reports the keys and bytes of
the partitions that it changed, or of all shards; the snapshot has the last report of each, so after a restart it is
complete once every partition has changed. When rows are taken over by key, the sizes of partitions are forgotten. Bytes
include rows that were replaced and have not been merged yet. Spark has no state operator for them.

Records that a read drops without an error (`ignore-parse-errors`, messages without a value) are counted by reason, and
each batch that dropped records logs one line to the logger `kdsl.read`: a warning if records could not be read,
otherwise an info message. A batch read (`read`) has no progress; it logs the line when its tasks have ended. On Spark
Connect each task of a batch read, and of any read with the transport `jvm`, logs its own line on the machine where it
runs.

Late rows are dropped by Spark's stateful operators and not by the read ([late rows](watermarks.md#late-rows)).

Bytes are those of keys and values, without headers and before compression. With the transport `jvm`, bytes and event
time lags are unknown, and on Spark Connect its records are rows as Spark counts them. A remote Spark Connect server
does not report the bytes that a sink wrote, and records are then Spark's count of rows. No metric or label contains a
setting, so none contains a secret. The label `error` of a query that has failed contains the first line of the
message, which may contain values of rows; it is served on loopback addresses only.

What it costs: each task sends its numbers once, in a Spark accumulator. They are added to Spark's progress when the
session's listener receives the batch, or when `kdsl.metrics(query)` is called. Spark Connect has no accumulators: there
the numbers travel in a string column that is null except in one row out of thousands, and Spark's `observe` collects
them, which takes about a tenth of the time of a stream of JSON. A task that read records but produced no rows gives
Spark one extra row there, which is removed again after the source; numInputRows counts it. So does each shard of an
upsert table, after its changes, for the size of its state. Setting the session setting `{SWITCH}` to `false`
turns all of this off: records are then counted as rows, and bytes are unknown."""


def metrics_page() -> str:
    """The page docs/metrics.md, in Markdown."""
    parts = [
        "<!-- Generated by `make docs` from the declarations of the metrics; do not edit. -->",
        "# Metrics",
        _ABOUT,
        "## Queries",
        "\n".join(_table(QueryMetrics)),
        "## Sources",
        "\n".join(_table(SourceMetrics)),
        "## Sinks",
        "\n".join(_table(SinkMetrics)),
        "## Kafka's clients",
        f"librdkafka reports statistics for each client every {INTERVAL // 1000} seconds (the client property "
        "`statistics.interval.ms`). They appear under the names of Java's client, by client id: in `.client` of a "
        "snapshot, and in Prometheus with the prefix `kdsl_consumer_` or `kdsl_producer_`. Setting the client "
        "properties `register.consumer.metrics` and `register.producer.metrics` to `false` turns them off. A client id "
        "consists of `client.id.prefix` (else `client.id`, else `kdsl-` and the table), the kind of client, the "
        "machine, the process and a number, so no two clients share one. A client lives as long as Spark keeps its "
        "Python worker, unless no task uses it for ten minutes; a client that has reported nothing for ten minutes is "
        "left out. Between tasks a worker does not read the statistics of its clients: if tasks are shorter than the "
        "interval, the numbers are those of the last ten seconds before a task began. With the transport `jvm` the "
        "clients are Spark's, and their metrics are in JMX on each executor (`kafka.consumer`, `kafka.producer`), not "
        "here. A client that makes no progress is replaced by a new one with the same id, whose totals start at 0.",
        "\n".join(["| consumer | meaning |", "| --- | --- |", *(f"| `{n}` | {r.doc} |" for n, r in CONSUMER.items())]),
        "\n".join(["| producer | meaning |", "| --- | --- |", *(f"| `{n}` | {r.doc} |" for n, r in PRODUCER.items())]),
    ]
    return "\n\n".join(parts) + "\n"


def _table(snapshot: type[QueryMetrics | SourceMetrics | SinkMetrics]) -> Iterator[str]:
    yield "| metric, in Python, in Prometheus | kind and unit | meaning |"
    yield "| --- | --- | --- |"
    for metric in metrics_of(snapshot):
        doc = f"{metric.doc} By {' and '.join(metric.labels)}." if metric.labels else metric.doc
        names = (metric.name, metric.field, prometheus_name(metric.name, metric.kind))
        yield f"| {'<br>'.join(f'`{name}`' for name in names)} | {metric.kind}, {metric.unit} | {doc} |"
