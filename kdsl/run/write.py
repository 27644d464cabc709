"""Write a DataFrame to the topics of a table, or encode it without a broker.

The last stage of a write: the plan, the DataFrame and the cluster come together here. Everything that can be wrong
before the first record is told before it: columns, settings, topics, brokers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PythonException
from pyspark.sql import types as s

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import WritePlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.run.encode import RecordEncoder, names_topics
from kdsl.run.fit import fitted
from kdsl.run.parallelism import in_tasks
from kdsl.run.partitioner import check_partitioner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_INSTANT = pa.timestamp("us", tz="UTC")
_HEADERS = s.ArrayType(s.StructType([s.StructField("key", s.StringType()), s.StructField("value", s.BinaryType())]))
_SPARK: Mapping[str, s.DataType] = {
    "key": s.BinaryType(),
    "value": s.BinaryType(),
    "topic": s.StringType(),
    "partition": s.IntegerType(),
    "headers": _HEADERS,
    "timestamp": s.TimestampType(),
}
_LIMITS = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),  # no limit, and no question
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
}
_OUTPUT_MODES = {
    "update": "emits a row again whenever it changes, and each time it would be one more record",
    "complete": "replaces the whole result with each batch, and a topic cannot be replaced",
}
_TOLD = re.compile(  # the end of a task's traceback, with or without what Spark puts behind it
    r"^kdsl\.[\w.]+Error: (.*?)(?:\s+SQLSTATE: \w+.*|\n\s+at .*)?\Z", re.MULTILINE | re.DOTALL
)


class WriteError(KdslError):
    """A task of a batch write failed; what it raised is told here, the rest of the story in the cause."""


def write(df: DataFrame, plan: WritePlan, cluster: Cluster) -> None:
    """Append the rows of a DataFrame to the topics, at least once.

    When it returns, Kafka has acknowledged every record. Where it fails, some records may be in the topics. It may be
    called from ``foreachBatch``, which then writes a batch again that was cut off.

    A plan that promises nothing (``delivery="none"``) sends alike, but what Kafka refuses, or has not acknowledged ten
    seconds after the last row, only stands in the log.

    Args:
        df: A batch DataFrame; columns go by name (`kdsl.run.fit.fitted`).
        plan: What is written.
        cluster: Where.

    Raises:
        ResolveError: The DataFrame or the client settings do not fit; all problems are told.
        KdslError: The DataFrame is a stream, no broker answers, or a topic does not exist.
        WriteError: A task failed; the message is the task's, as of a RecordError.
    """
    if df.isStreaming:
        raise KdslError(f"{plan.table}: the DataFrame is a stream, and write takes a batch; use write_stream")
    from kdsl.run.jvm.write import append
    from kdsl.run.librdkafka.datasource import FORMAT, options, register

    rows, plan = fitted(df, plan)
    jvm = plan.transport == "jvm"
    if not jvm:
        _look_first(plan, cluster)
        register(df.sparkSession)
    try:
        with _batches_by_rows(df.sparkSession):
            if jvm:
                append(in_tasks(rows, plan), plan, cluster)
                return
            in_tasks(rows, plan).write.format(FORMAT).mode("append").options(**options(plan, cluster)).save()
    except PythonException as e:
        told = _TOLD.search(str(e))
        if told is None:
            raise
        raise WriteError(told[1].strip()) from e


def write_stream(
    df: DataFrame,
    plan: WritePlan,
    cluster: Cluster,
    *,
    checkpoint: str,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    output_mode: str = "append",
) -> StreamingQuery:
    """Start a query that appends the rows of a stream to the topics, at least once.

    A batch ends when Kafka has acknowledged all of its records. A batch that is cut off is written again, whole.

    Args:
        df: A streaming DataFrame; columns go by name (`kdsl.run.fit.fitted`).
        plan: What is written.
        cluster: Where.
        checkpoint: The folder of the query's progress.
        trigger: The arguments of Spark's ``trigger``; None is one batch after the other.
        name: The query's name.
        output_mode: ``append``; the others are refused with the reason.

    Raises:
        ResolveError: The DataFrame or the client settings do not fit; all problems are told.
        KdslError: The DataFrame is no stream, no broker answers, a topic does not exist, or the output mode is another.
    """
    if not df.isStreaming:
        raise KdslError(f"{plan.table}: the DataFrame is no stream, and write_stream takes one; use write")
    if output_mode != "append":
        reason = _OUTPUT_MODES.get(output_mode, "is none of Spark's")
        raise KdslError(
            f"{plan.table}: the output mode {output_mode!r} {reason}; use 'append', which emits a row when it is final "
            "(an aggregation needs a watermark for that)"
        )
    from kdsl.run.librdkafka.datasource import FORMAT, options, register

    rows, plan = fitted(df, plan)
    if plan.transport == "jvm":
        from kdsl.run.jvm.write import start

        with _batches_by_rows(df.sparkSession):
            return start(in_tasks(rows, plan), plan, cluster, checkpoint=checkpoint, trigger=trigger, name=name)
    _look_first(plan, cluster)
    register(df.sparkSession)
    writer = in_tasks(rows, plan).writeStream.format(FORMAT).outputMode("append").options(**options(plan, cluster))
    writer = writer.option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if trigger:
        writer = writer.trigger(**trigger)
    with _batches_by_rows(df.sparkSession):  # a query goes on with the settings that it started with
        return writer.start()


def encode(df: DataFrame, plan: WritePlan) -> DataFrame:
    """The rows of a DataFrame as raw Kafka records, without a broker.

    Args:
        df: Any DataFrame; columns go by name (`kdsl.run.fit.fitted`).
        plan: What is written.

    Returns:
        The columns ``key``, ``value``, ``topic`` and, where the plan writes them, ``headers`` and ``timestamp``: what
        Spark's own Kafka sink takes (which ignores ``timestamp``).

    Raises:
        ResolveError: The DataFrame does not fit; all problems are told.
    """
    rows, plan = fitted(df, plan)
    names = dict.fromkeys(["key", "value", "topic", *RecordEncoder(plan).schema.names])
    schema = s.StructType([s.StructField(name, _SPARK[name]) for name in names])
    return rows.mapInArrow(partial(_encoded, plan_text(plan)), schema)


def _encoded(text: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    plan = read_plan_text(text, WritePlan)
    encoder = RecordEncoder(plan)
    rows = 0
    for batch in batches:
        records = encoder.encode(batch, rows)
        rows += batch.num_rows
        arrays = dict(zip(records.schema.names, records.columns, strict=True))
        if not names_topics(plan.topics):
            arrays["topic"] = pa.repeat(plan.topics.names[0], batch.num_rows)
        if "timestamp" in arrays:
            arrays["timestamp"] = pc.multiply(arrays["timestamp"], 1000).view(_INSTANT)
        names = [name for name in _SPARK if name in arrays]
        yield pa.RecordBatch.from_arrays([arrays[name] for name in names], names)


@contextmanager
def _batches_by_rows(spark: SparkSession) -> Iterator[None]:
    """Let Spark cut Arrow batches by rows alone, in a session that says nothing of either limit.

    By default Spark asks each batch for its bytes after each row, which takes half of the time that the JVM spends on a
    write. A fifth of the default number of rows bounds a batch instead (the sink puts small ones together).
    """
    said = spark.conf.getAll
    ours = {} if any(name in said for name in _LIMITS) else _LIMITS
    for name, value in ours.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in ours:
            spark.conf.unset(name)


def _look_first(plan: WritePlan, cluster: Cluster) -> None:
    """See that settings hold, that functions are there, brokers answer and topics exist, or come to.

    Raises:
        ResolveError: The client settings have errors.
        KdslError: No broker answers, or a topic does not exist.
    """
    from kdsl.run.librdkafka import errors
    from kdsl.run.librdkafka.brokers import Brokers
    from kdsl.run.librdkafka.producer import Producer

    check_partitioner(plan)
    settings = cluster.producer()
    brokers = Brokers(cluster, plan.table)
    missing = set(plan.topics.names) - set(brokers.topics(plan.topics.names))
    if plan.topics.pattern is not None:
        brokers.names()  # an answer, at least; the rows name the topics
    if missing and cluster.connector().auto_create_topics:
        producer = Producer(settings)
        try:
            missing = {topic for topic in missing if producer.look_up(topic, 10)}
        finally:
            producer.close()
    if missing:
        raise errors.missing_topics(plan.table, missing, brokers.names())
