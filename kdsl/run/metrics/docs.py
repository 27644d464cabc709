"""The reference page of the metrics, made of their declarations."""

from __future__ import annotations

from collections.abc import Iterator

from kdsl.run.metrics.model import SinkMetrics, SourceMetrics, metrics_of
from kdsl.run.metrics.prometheus import prometheus_name
from kdsl.run.metrics.source_reports import SWITCH
from kdsl.run.metrics.statistics import CONSUMER, INTERVAL, PRODUCER

_ABOUT = f"""\
A streaming query counts what it reads from and writes to Kafka. The names are those of Flink's Kafka connector. There
are four ways to the numbers:

- **In Python**: `kdsl.metrics(query)` is a frozen snapshot with typed fields: `kdsl.metrics(query).source` for a query
  with one source, `.sources` and `.sinks` for all. It works on classic sessions and on Spark Connect.
- **For Prometheus**: `kdsl.serve_metrics(port=9404)` serves the metrics of all running queries of the process as text
  at `http://127.0.0.1:9404/metrics`. Labels: `query` (its name, else its id), `table`, and `topic` and `partition`, or
  `client_id`.
- **In Spark's own progress**: `query.lastProgress.observedMetrics` has an entry `kdsl.…` for each source, whose column
  `metrics` holds numRecordsIn, numBytesIn, numRecordsFiltered and both event time lags of that batch; an upsert table
  has another one, whose column `state` holds numKeysInState and stateBytes of the buckets that the batch has touched;
  the offsets of each source have `latestOffset` (and `high`, where open transactions hold records back); what a sink
  wrote is Spark's `sink.numOutputRows`.
- **On the command line**: `kdsl lag` asks the brokers how far a group or a checkpoint is behind.

Counters count from the start of the query in its process, so a restart begins anew; offsets and recordsLost go on with
the checkpoint. Gauges of offsets and lag are those of the last batch. A batch that ran twice (a task failed, or
`foreachBatch` used its rows twice) counts once, while Spark's numInputRows counts it as often as it ran. Jobs that
`foreachBatch` runs in threads of its own belong to the batch where these are `pyspark.InheritableThread`s; of others
records are rows, and bytes are not known. A task whose rows Spark stops taking before their end (`limit` within
`foreachBatch`) tells nothing.

The state of an upsert table is kept in buckets (`changelog_buckets`), and a batch tells the sizes of those that it has
touched. The snapshot has the last size of each, so that after a restart it is whole when each bucket was touched once.
What Spark's state store takes in memory and on disk stands in `query.lastProgress.stateOperators`, whose rows are
buckets.

Bytes are those of keys and values, without headers and before compression. Under the transport `jvm` records are rows
as Spark counts them, and bytes and event time lags are not known. A remote Spark Connect server cannot tell the bytes
that a sink wrote; the records are Spark's count of rows then. No metric and no label holds a setting, so none holds a
secret.

What it costs: the numbers of a task travel with one of Spark's accumulators, once per task, and are added to Spark's
progress when the session's listener hears of the batch, or `kdsl.metrics(query)` is asked. Spark Connect has no
accumulators: there they travel in a text column, null but for one row in thousands, which Spark's `observe` gathers,
and that costs about a tenth of the time of a stream of JSON. A task that read records and made no row of any gives
Spark one row there that is taken out again behind the source; numInputRows counts it. The session setting `{SWITCH}`
turns all of it off with `false`: then records are rows, and bytes are not known."""


def reference() -> str:
    """The page, in Markdown."""
    parts = [
        "<!-- Made by python -m kdsl.docs from the declarations of the metrics; do not edit. -->",
        "# Metrics",
        _ABOUT,
        "## Sources",
        "\n".join(_table(SourceMetrics)),
        "## Sinks",
        "\n".join(_table(SinkMetrics)),
        "## Kafka's clients",
        f"What librdkafka tells of each client every {INTERVAL // 1000} seconds (the client property "
        "`statistics.interval.ms`), under the names of Java's client, by client id: `.client` of a snapshot, and in "
        "Prometheus with `kdsl_consumer_` or `kdsl_producer_` before the name. The client properties "
        "`register.consumer.metrics` and `register.producer.metrics` turn it off with `false`. A client id is "
        "`client.id.prefix` (else `kdsl-` and the table), the kind of client, the machine, the process and a number: "
        "no two clients share one. Clients live as long as Spark keeps a Python worker, unless nobody asks for them "
        "for ten minutes; one that is silent for so long is left out. A client that makes no progress is replaced by "
        "one of the same id, whose totals begin at 0.",
        "\n".join(["| consumer | meaning |", "| --- | --- |", *(f"| `{n}` | {r.doc} |" for n, r in CONSUMER.items())]),
        "\n".join(["| producer | meaning |", "| --- | --- |", *(f"| `{n}` | {r.doc} |" for n, r in PRODUCER.items())]),
    ]
    return "\n\n".join(parts) + "\n"


def _table(snapshot: type[SourceMetrics | SinkMetrics]) -> Iterator[str]:
    yield "| metric | attribute | kind | unit | meaning | in Prometheus |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for metric in metrics_of(snapshot):
        doc = f"{metric.doc} By topic and partition." if metric.by_partition else metric.doc
        name = prometheus_name(metric.name, metric.kind)
        yield f"| `{metric.name}` | `{metric.field}` | {metric.kind} | {metric.unit} | {doc} | `{name}` |"
