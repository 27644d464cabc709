"""Write a DataFrame to the topics of a table, or encode it without a broker.

The last stage of a write: the plan, the DataFrame and the cluster come together here. Everything that can be wrong
before the first record is told before it: columns, settings, topics, brokers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PythonException
from pyspark.sql import types as s

from kdsl.cluster import Cluster, Registry
from kdsl.errors import KdslError
from kdsl.plan.model import Transactions, WritePlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.run.checkpoint.kept import Allowed, Folder, Kept, check_change, folder_of, load, store
from kdsl.run.checkpoint.offset_log import check_offsets
from kdsl.run.exactly_once.batch import write_batch
from kdsl.run.exactly_once.stream import NO_ADAPTIVE_PLAN, leave, start_stream, started
from kdsl.run.frames.fit import fitted
from kdsl.run.frames.output_mode import output_mode as mode_of
from kdsl.run.frames.parallelism import in_tasks
from kdsl.run.metrics.observer import METRICS, writes
from kdsl.run.metrics.sink_reports import OPTION, Spool
from kdsl.run.queries.listener import listen, observe
from kdsl.run.records.encode import RecordEncoder, names_topics
from kdsl.run.records.partitioner import check_partitioner
from kdsl.run.records.registry import portable
from kdsl.run.upsert.write import upserted

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
_log = logging.getLogger(__name__)
_TOLD = re.compile(  # the end of a task's traceback, with or without what Spark puts behind it
    r"^kdsl\.[\w.]+Error: (.*?)(?:\s+SQLSTATE: \w+.*|\n\s+at .*)?\Z", re.MULTILINE | re.DOTALL
)


class WriteError(KdslError):
    """A task of a batch write failed; what it raised is told here, the rest of the story in the cause."""


def write(
    df: DataFrame, plan: WritePlan, cluster: Cluster, *, write_id: str | None = None, adopt: bool = False
) -> None:
    """Append the rows of a DataFrame to the topics, at least once, or exactly once.

    When it returns, Kafka has acknowledged every record. Where it fails, some records may be in the topics. It may be
    called from ``foreachBatch``, which then writes a batch again that was cut off.

    A plan that promises nothing (``delivery="none"``) sends alike, but what Kafka refuses, or has not acknowledged ten
    seconds after the last row, only stands in the log.

    An exactly-once write has a transaction for each of its tasks: a part is visible whole or not at all, once, however
    often its task is tried. With one task (``sink_parallelism=1``, or a write id) that is the whole write.

    Args:
        df: A batch DataFrame; columns go by name (`kdsl.run.frames.fit.fitted`).
        plan: What is written.
        cluster: Where.
        write_id: Names an exactly-once write that may be made again: one that is done is not done twice. Needed within
            ``foreachBatch``, where each write of the function has its own.
        adopt: Take over an exactly-once prefix of somebody else, or one whose tokens are lost.

    Raises:
        ResolveError: The DataFrame or the client settings do not fit; all problems are told.
        KdslError: The DataFrame is a stream, no broker answers, or a topic does not exist.
        ExactlyOnceError: Exactly-once cannot be kept.
        WriteError: A task failed; the message is the task's, as of a RecordError.
    """
    if df.isStreaming:
        raise KdslError(f"{plan.table}: the DataFrame is a stream, and write takes a batch; use write_stream")
    if write_id is not None and plan.transactions is None:
        raise KdslError(
            f"{plan.table}: write_id={write_id!r} names an exactly-once write, and the table promises {plan.delivery}, "
            "so that a write that is made again is written again; declare delivery='exactly-once' "
            "('sink.delivery-guarantee'), or leave write_id out"
        )
    from kdsl.run.jvm.write import append
    from kdsl.run.librdkafka.datasource import FORMAT, options, register

    rows, sent = fitted(df, plan)
    jvm = plan.transport == "jvm"
    if not jvm:
        _look_first(plan, cluster)
        register(df.sparkSession)
    try:
        with _batches_by_rows(df.sparkSession):
            if jvm:
                append(in_tasks(rows, sent), sent, cluster)
            elif plan.transactions is not None:
                write_batch(rows, sent, cluster, write_id=write_id, adopt=adopt)
            else:
                given = options(sent, cluster)
                in_tasks(rows, sent).write.format(FORMAT).mode("append").options(**given).save()
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
    output_mode: str | None = None,
    adopt: bool = False,
    allow: Allowed = False,
) -> StreamingQuery:
    """Start a query that appends the rows of a stream to the topics, at least once, or exactly once.

    A batch ends when Kafka has acknowledged all of its records. A batch that is cut off is written again, whole; an
    exactly-once query leaves out the parts of it that are committed.

    Args:
        df: A streaming DataFrame; columns go by name (`kdsl.run.frames.fit.fitted`).
        plan: What is written.
        cluster: Where.
        checkpoint: The folder of the query's progress.
        trigger: The arguments of Spark's ``trigger``; None is one batch after the other.
        name: The query's name.
        output_mode: ``append``; for upserts also ``update``, which is theirs where the query aggregates.
        adopt: Take over an exactly-once prefix of somebody else, or one whose tokens are lost.
        allow: What may differ from the plan that has written the checkpoint: ``topic``, ``key``, ``format``,
            ``prefix``, or True for all.

    Raises:
        ResolveError: The DataFrame or the client settings do not fit; all problems are told.
        KdslError: The DataFrame is no stream, no broker answers, a topic does not exist, or the output mode is another.
        CheckpointError: The checkpoint was written by another plan, or what is kept in it cannot be read or written.
        ExactlyOnceError: Exactly-once cannot be kept.
    """
    if not df.isStreaming:
        raise KdslError(f"{plan.table}: the DataFrame is no stream, and write_stream takes one; use write")
    mode = mode_of(df, plan, output_mode)
    if plan.latency != "realtime" and "realTime" in (trigger or {}):
        raise KdslError(
            f"{plan.table}: the trigger realTime and latency={plan.latency!r} contradict each other; declare "
            "latency='realtime' and transport='jvm' for what is written and for what is read, or give another trigger"
        )
    from kdsl.run.checkpoint.topic_ids import keep_topic_ids
    from kdsl.run.librdkafka.datasource import FORMAT, options, register

    rows, sent = fitted(df, plan)
    jvm = plan.transport == "jvm"
    if not jvm:
        _look_first(plan, cluster)
        register(df.sparkSession)
    folder = folder_of(df.sparkSession, checkpoint)
    check_offsets(folder, plan.table)
    kept = _checked_plan(folder, plan, allow)
    keep_topic_ids(df, checkpoint)
    spool = Spool()
    telling = {OPTION: str(spool.path)}
    observe(METRICS)
    listen(df.sparkSession)
    if plan.transactions is not None:
        if mode == "update":  # a stream's sink in Python takes no updates, but its batches take them
            staged = Transactions(plan.transactions.prefix, staged=True)
            plan, sent = attrs.evolve(plan, transactions=staged), attrs.evolve(sent, transactions=staged)
        with _batches_by_rows(df.sparkSession, NO_ADAPTIVE_PLAN):
            query = start_stream(
                rows,
                plan,
                sent,
                cluster,
                folder,
                kept,
                trigger=trigger,
                name=name,
                adopt=adopt,
                telling=telling,
                mode=mode,
            )
        writes(query, plan, spool)
        return query
    if kept is not None:
        leave(kept, plan, cluster)
    if kept is None or kept.distribution is not None or kept.plan != plan_text(plan):
        store(folder, attrs.evolve(kept or Kept(), plan=plan_text(plan), distribution=None))
    with _batches_by_rows(df.sparkSession):  # a query goes on with the settings that it started with
        if jvm:
            from kdsl.run.jvm.write import start

            query = start(
                in_tasks(rows, sent), sent, cluster, checkpoint=checkpoint, trigger=trigger, name=name, mode=mode
            )
        else:
            writer = in_tasks(rows, sent).writeStream.outputMode(mode)
            given = {**options(sent, cluster), **telling}
            if mode == "append":
                writer = writer.format(FORMAT).options(**given)
            else:
                writer = writer.foreachBatch(partial(_append_batch, given))
            query = started(writer, checkpoint, trigger, name)
    writes(query, plan, None if jvm else spool)
    return query


def _append_batch(options: dict[str, str], rows: DataFrame, _: int) -> None:
    """Append a batch: a stream's sink in Python takes no updates, but its batches take them."""
    from kdsl.run.librdkafka.datasource import FORMAT, register

    register(rows.sparkSession)
    rows.write.format(FORMAT).mode("append").options(**options).save()


def _checked_plan(folder: Folder, plan: WritePlan, allow: Allowed) -> Kept | None:
    kept = load(folder)
    lines = [] if kept is None else check_change(kept, plan, folder.place, allow)
    if lines:
        _log.warning("%s goes on with another plan than before:\n%s", plan.table, "\n".join(lines))
    return kept


def encode(df: DataFrame, plan: WritePlan, *, registry: Registry | None = None) -> DataFrame:
    """The rows of a DataFrame as raw Kafka records, without a broker.

    Args:
        df: Any DataFrame; columns go by name (`kdsl.run.frames.fit.fitted`).
        plan: What is written.
        registry: The schema registry, where a format needs one; its secrets are references.

    Returns:
        The columns ``key``, ``value``, ``topic`` and, where the plan writes them, ``headers`` and ``timestamp``: what
        Spark's own Kafka sink takes (which ignores ``timestamp``).

    Raises:
        ResolveError: The DataFrame does not fit, a format needs a registry and there is none, or a secret was written
            out; all problems are told.
    """
    rows, plan = fitted(df, plan)
    sent = portable(plan, registry)
    names = dict.fromkeys(["key", "value", "topic", *RecordEncoder(plan).schema.names])
    schema = s.StructType([s.StructField(name, _SPARK[name]) for name in names])
    return rows.mapInArrow(partial(_encoded, plan_text(plan), sent), schema)


def _encoded(text: str, registry: Registry | None, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    plan = read_plan_text(text, WritePlan)
    encoder = RecordEncoder(plan, registry)
    rows = 0
    for batch in upserted(batches, plan):
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
def _batches_by_rows(spark: SparkSession, more: Mapping[str, str] | None = None) -> Iterator[None]:
    """Let Spark cut Arrow batches by rows alone, in a session that says nothing of either limit; and more settings.

    By default Spark asks each batch for its bytes after each row, which takes half of the time that the JVM spends on a
    write. A fifth of the default number of rows bounds a batch instead (the sink puts small ones together).
    """
    said = spark.conf.getAll
    ours = {**({} if any(name in said for name in _LIMITS) else _LIMITS), **(more or {})}
    before = {name: said[name] for name in ours if name in said}
    for name, value in ours.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in ours:
            if name in before:
                spark.conf.set(name, before[name])
            else:
                spark.conf.unset(name)


def _look_first(plan: WritePlan, cluster: Cluster) -> None:
    """See that settings hold, that functions are there, brokers answer and topics exist, or come to.

    Raises:
        ResolveError: The client settings have errors.
        KdslError: No broker answers, or a topic does not exist.
    """
    from kdsl.run.cluster import errors
    from kdsl.run.cluster.brokers import Brokers
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
