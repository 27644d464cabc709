"""Writes a DataFrame to the topics of a table, or encodes it without a broker.

This is the last stage of a write: it combines the plan, the DataFrame and the cluster. Everything that can be checked
is checked before the first record is sent: columns, settings, topics, brokers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.cluster import Cluster, Registry
from kdsl.errors import KdslError, WriteError
from kdsl.plan.changes import AllowedChanges
from kdsl.plan.model import OutputMode, Transactions, WritePlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.run.checkpoint.checkpoint import MANIFEST, Checkpoint
from kdsl.run.checkpoint.manifest import Manifest
from kdsl.run.checkpoint.state_rows import warn_of_changed_rows
from kdsl.run.dataframes.match_columns import match_columns
from kdsl.run.dataframes.output_mode import choose_output_mode as mode_of
from kdsl.run.dataframes.parallelism import repartition_for_tasks
from kdsl.run.dead_letters.report import REFUSALS, refusals
from kdsl.run.exactly_once.batch import write_batch
from kdsl.run.exactly_once.stream import NO_ADAPTIVE_PLAN, abort_open_transactions, start_stream
from kdsl.run.key_order import count_tasks_of_pieces, read_whole_partitions
from kdsl.run.listeners.listener import listen, observe
from kdsl.run.listeners.start import start_query
from kdsl.run.metrics import accumulated
from kdsl.run.metrics.observer import METRICS, note_write
from kdsl.run.metrics.sink_reports import OPTION, Spool, log_violations
from kdsl.run.mixed_times import MIXED_TIMES, warn_of_mixed_times
from kdsl.run.records.encode import RecordEncoder, names_topics
from kdsl.run.records.partitioner import check_partitioner
from kdsl.run.records.registry import without_literal_secrets
from kdsl.run.records.spark_records import RECORD_TYPES
from kdsl.run.records.valid_rows import keep_valid_rows
from kdsl.run.repeated_events import warn_of_repeated_events
from kdsl.run.session import change_settings, check_features, check_runtime, has_settings
from kdsl.run.upsert.write import convert_to_upserts
from kdsl.spark_internals.arrow import map_in_arrow
from kdsl.spark_internals.errors import find_own_reason, full_text
from kdsl.spark_internals.session import is_connect
from kdsl.spark_versions import STREAM_WRITER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_INSTANT = pa.timestamp("us", tz="UTC")
_LIMITS = {
    "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),  # no limit, which also avoids a check per row
    "spark.sql.execution.arrow.maxRecordsPerBatch": "2000",
}
_log = logging.getLogger(__name__)


Prepare = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""Makes the rows that a task writes from the batches of its input."""


def write(
    df: DataFrame, plan: WritePlan, cluster: Cluster, *, write_id: str | None = None, adopt: bool = False
) -> None:
    """Append the rows of a DataFrame to the topics, at least once, or exactly once.

    The changes of a message key that were read from one partition of a topic stay in their order: if several tasks read
    that partition, the rows are sorted into tasks by their key (`kdsl.run.key_order`).

    When it returns, Kafka has acknowledged every record. When it fails, some records may be in the topics. It may be
    called from ``foreachBatch``, which writes an interrupted batch again.

    A plan with ``delivery="none"`` sends records in the same way, but records that Kafka refuses, or has not
    acknowledged ten seconds after the last row, are only logged.

    An exactly-once write has a transaction for each of its tasks: the rows of a task become visible together, exactly
    once, however often the task is retried. With one task (``sink_parallelism=1``, or a write id) that is the whole
    write.

    This registers kdsl's data source in the session, and creates a temporary folder that is deleted when the process
    ends; with the transport jvm it changes the session as `kdsl.run.jvm.write.append` does instead. Brokers create
    missing topics if the cluster's settings allow it. Rows that are left out or violate rules are logged. An
    exactly-once write has the effects of `write_batch`, too.

    Args:
        df: A batch DataFrame; columns go by name (`kdsl.run.dataframes.match_columns.match_columns`).
        plan: The write plan.
        cluster: The cluster.
        write_id: The name of an exactly-once write that may be repeated: a write that is done is skipped, however long
            ago it was done. Needed within ``foreachBatch``, where each write of the function has its own.
        adopt: Take over an exactly-once prefix of another query, or one whose tokens are lost; a write that is recorded
            as done is then skipped without a check of its rows.
    """
    check_runtime(df.sparkSession, plan.table)
    check_features(df.sparkSession, plan)
    if df.isStreaming:
        raise KdslError(f"{plan.table}: the DataFrame is a stream, but write takes a batch; use write_stream")
    if write_id is not None and plan.transactions is None:
        raise KdslError(
            f"{plan.table}: write_id={write_id!r} names an exactly-once write, but the table has the delivery "
            f"guarantee {plan.delivery!r}, with which a repeated write is written again; declare "
            "delivery='exactly-once' ('sink.delivery-guarantee'), or remove write_id"
        )
    warn_of_mixed_times(df, plan.table)
    from kdsl.run.jvm.write import append
    from kdsl.run.librdkafka.datasource import register

    rows, sent = match_columns(df, plan)
    jvm = plan.transport == "jvm"
    if not jvm:
        check_before_write(plan, cluster)
        register(df.sparkSession)
    with _errors_of_tasks(), _batches_by_rows(df.sparkSession):
        pieces = count_tasks_of_pieces(rows, sent)
        if plan.transactions is not None and not jvm:
            rows = repartition_for_tasks(rows, sent, pieces=pieces) if pieces else rows
            write_batch(rows, sent, cluster, write_id=write_id, adopt=adopt)
            return
        rows = repartition_for_tasks(rows, sent, pieces=pieces)
        if jvm:
            append(rows, sent, cluster)
        else:
            _append(rows, sent, cluster)


def write_prepared(df: DataFrame, plan: WritePlan, cluster: Cluster, prepare: Prepare) -> None:
    """Append the rows that a function makes of a DataFrame's batches, in the tasks that write them; at least once.

    That saves passing the rows to Spark and back. It writes as `write` does, over librdkafka: it registers kdsl's data
    source in the session, and brokers create missing topics if the cluster's settings allow it.

    Args:
        df: A batch DataFrame of any columns.
        plan: The write plan.
        cluster: The cluster.
        prepare: Makes rows with the columns of the plan from the batches of a task. It can be pickled, and has no
            secrets.
    """
    from kdsl.run.librdkafka.datasource import register
    from kdsl.run.librdkafka.options import PREPARE
    from kdsl.run.task_functions import write_function

    check_runtime(df.sparkSession, plan.table)
    check_features(df.sparkSession, plan)
    check_before_write(plan, cluster)
    register(df.sparkSession)
    with _errors_of_tasks():
        _append(df, plan, cluster, {PREPARE: write_function(prepare)})


def _append(rows: DataFrame, plan: WritePlan, cluster: Cluster, more: Mapping[str, str] | None = None) -> None:
    """Append rows over librdkafka, without transactions, with further options of the sink.

    Rows that were left out or violate rules are logged, and the folder `refusals` is created. The errors of tasks are
    Spark's.
    """
    from kdsl.run.librdkafka.datasource import FORMAT
    from kdsl.run.librdkafka.options import write_options

    batch_options = {**write_options(plan, cluster), REFUSALS: str(refusals()), **(more or {})}
    with log_violations(plan) as reporting:
        rows.write.format(FORMAT).mode("append").options(**batch_options, **reporting).save()


@contextmanager
def _errors_of_tasks() -> Iterator[None]:
    """Raise an error of kdsl in a task of the body as a WriteError with its message; other errors pass unchanged."""
    from pyspark.errors import PythonException

    try:
        yield
    except PythonException as e:
        reason = find_own_reason(full_text(e))
        if reason is None:
            raise
        raise WriteError(reason) from (e.__cause__ or e)


def write_stream(
    df: DataFrame,
    plan: WritePlan,
    cluster: Cluster,
    *,
    checkpoint: str,
    trigger: Mapping[str, Any] | None = None,
    name: str | None = None,
    output_mode: OutputMode | None = None,
    adopt: bool = False,
    allow: AllowedChanges = False,
) -> StreamingQuery:
    """Start a query that appends the rows of a stream to the topics, at least once or exactly once.

    The changes of a message key that are read from one partition stay in their order, because a partition is then read
    by one task (`kdsl.run.key_order.read_whole_partitions`).

    A batch ends when Kafka has acknowledged all of its records. An interrupted batch is written again completely; an
    exactly-once query skips the parts of it that are committed, and stages its batches if its output mode is
    ``update``; it has the effects of `start_stream`, too. The plan is stored in the checkpoint, and so are the ids of
    the topics that the query reads with the transport ``jvm``. If the last run was exactly-once and this one is not,
    transactions that it left open are aborted.

    The session changes as by `write`, and its listener is registered. Reports are kept in temporary folders, which are
    deleted when the process ends. Warnings are logged if the plan differs from that of the last run, or if the query
    aggregates change data whose events may be repeated.

    Args:
        df: A streaming DataFrame; columns go by name (`kdsl.run.dataframes.match_columns.match_columns`).
        plan: The write plan.
        cluster: The cluster.
        checkpoint: The folder of the query's checkpoint.
        trigger: The arguments of Spark's ``trigger``; None for one batch after the other.
        name: The query's name.
        output_mode: ``append``; for upserts also ``update``, which is the default if the query aggregates.
        adopt: Take over an exactly-once prefix of another query, or one whose tokens are lost.
        allow: What may differ from the plan that wrote the checkpoint: ``topic``, ``key``, ``format``,
            ``prefix``, or True for all.
    """
    check_runtime(df.sparkSession, plan.table)
    check_features(df.sparkSession, plan, streaming=True)
    if not df.isStreaming:
        raise KdslError(f"{plan.table}: the DataFrame is not a stream, but write_stream takes one; use write")
    mode = mode_of(df, plan, output_mode)
    warn_of_repeated_events(df, plan.table)
    if plan.latency != "realtime" and "realTime" in (trigger or {}):
        raise KdslError(
            f"{plan.table}: the trigger realTime and latency={plan.latency!r} contradict each other; declare "
            "latency='realtime' and transport='jvm' for what is written and for what is read, or use another trigger"
        )
    from kdsl.run.checkpoint.topic_ids import check_topic_ids
    from kdsl.run.librdkafka.datasource import FORMAT, register
    from kdsl.run.librdkafka.options import write_options

    rows, sent = match_columns(df, plan)
    rows = read_whole_partitions(rows, sent)
    jvm = plan.transport == "jvm"
    if not jvm:
        check_before_write(plan, cluster)
        register(df.sparkSession)
    # A stream's sink in Python takes no updates, and on Spark 4.0 no Arrow batches; but its batches take both.
    in_batches = mode == "update" or not STREAM_WRITER.is_in(df.sparkSession.version)
    if plan.transactions is not None and in_batches:
        staged = Transactions(plan.transactions.prefix, staged=True)
        plan, sent = attrs.evolve(plan, transactions=staged), attrs.evolve(sent, transactions=staged)
    opened = Checkpoint.open(df.sparkSession, checkpoint)
    if lines := opened.check(plan, allow):
        _log.warning("%s continues with another plan than before:\n%s", plan.table, "\n".join(lines))
    check_topic_ids(df, opened)
    warn_of_changed_rows(rows, opened, plan.table)
    spool = Spool()
    reporting = {OPTION: str(spool.path), REFUSALS: str(refusals())}
    observe(METRICS)
    observe(MIXED_TIMES)
    listen(df.sparkSession)
    if plan.transactions is not None:
        with _batches_by_rows(df.sparkSession, NO_ADAPTIVE_PLAN):
            query = start_stream(
                rows,
                plan,
                sent,
                cluster,
                opened,
                trigger=trigger,
                name=name,
                adopt=adopt,
                reporting=reporting,
                mode=mode,
            )
        note_write(query, plan, spool)
        return query
    manifest = opened.manifest
    if manifest is None and (done := opened.last_batches()[0]) >= 0:
        _log.warning(
            "%s: the checkpoint has batch %d, but not %s, which says what the query wrote before: kdsl cannot check "
            "whether the table has changed since; if the query has always been one of kdsl's, restore the file",
            plan.table, done, opened.folder.path(MANIFEST),
        )  # fmt: skip
    if manifest is not None:
        abort_open_transactions(manifest, plan, cluster, opened)
    if manifest is None or manifest.routing is not None or manifest.plan != plan_text(plan):
        opened.store(attrs.evolve(manifest or Manifest(), plan=plan_text(plan), routing=None))
    with _batches_by_rows(df.sparkSession):  # a query keeps the settings that it started with
        if jvm:
            from kdsl.run.jvm.write import start

            query = start(
                repartition_for_tasks(rows, sent),
                sent,
                cluster,
                checkpoint=checkpoint,
                trigger=trigger,
                name=name,
                mode=mode,
            )
        else:
            writer = repartition_for_tasks(rows, sent).writeStream.outputMode(mode)
            stream_options = {**write_options(sent, cluster), **reporting}
            if not in_batches:
                writer = writer.format(FORMAT).options(**stream_options)
            else:
                writer = writer.foreachBatch(partial(_append_batch, stream_options))
            query = start_query(writer, checkpoint, trigger, name)
    note_write(query, plan, None if jvm else spool)
    return query


def _append_batch(options: dict[str, str], rows: DataFrame, _: int) -> None:
    """Register kdsl's data source in the session of a batch, and append the batch, in ``foreachBatch``."""
    from kdsl.run.librdkafka.datasource import FORMAT, register

    register(rows.sparkSession)
    rows.write.format(FORMAT).mode("append").options(**options).save()


def encode(df: DataFrame, plan: WritePlan, *, registry: Registry | None = None) -> DataFrame:
    """Encode the rows of a DataFrame as raw Kafka records, without a broker.

    In a classic session this creates the accumulator for the reports of tasks.

    Args:
        df: Any DataFrame; columns go by name (`kdsl.run.dataframes.match_columns.match_columns`).
        plan: What is written.
        registry: The schema registry, where a format needs one; its secrets are references.

    Returns:
        The columns ``key``, ``value``, ``topic`` and, where the plan writes them, ``partition``, ``headers`` and
        ``timestamp``: what Spark's own Kafka sink takes (which ignores ``timestamp``). A row that cannot be encoded
        fails the job.
    """
    check_runtime(df.sparkSession, plan.table)
    rows, plan = match_columns(df, plan)
    sent = without_literal_secrets(plan, registry)
    names = dict.fromkeys(["key", "value", "topic", *RecordEncoder(plan).schema.names])
    schema = ", ".join(f"`{name}` {RECORD_TYPES[name]}" for name in names)
    accumulator = None if is_connect(df.sparkSession) else accumulated.ACCUMULATORS.id_of(df.sparkSession)
    return map_in_arrow(rows, partial(_encode_batches, plan_text(plan), sent, accumulator), schema)


def _encode_batches(
    text: str, registry: Registry | None, accumulator: int | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task's valid rows; at the end report the rows that are left out or violate rules.

    Changes become upserts and tombstones first if the plan writes upserts.

    Args:
        text: The write plan, as text.
        registry: The schema registry; None if no format needs one.
        accumulator: The id of the accumulator for the report; without one, the task itself logs it.
        batches: The rows.
    """
    plan = read_plan_text(text, WritePlan)
    encoder = RecordEncoder(plan, registry)
    rows = 0
    violations: Counter[str] = Counter()
    for batch in convert_to_upserts(keep_valid_rows(batches, plan, violations), plan):
        records = encoder.encode(batch, rows)
        rows += batch.num_rows
        arrays = dict(zip(records.schema.names, records.columns, strict=True))
        if not names_topics(plan.topics):
            arrays["topic"] = pa.repeat(plan.topics.names[0], batch.num_rows)
        if "timestamp" in arrays:
            arrays["timestamp"] = pc.multiply(arrays["timestamp"], 1000).view(_INSTANT)
        names = [name for name in RECORD_TYPES if name in arrays]
        yield pa.RecordBatch.from_arrays([arrays[name] for name in names], names)
    accumulated.report_dropped(accumulator, plan.table, violations)


@contextmanager
def _batches_by_rows(spark: SparkSession, more: Mapping[str, str] | None = None) -> Iterator[None]:
    """Let Spark limit Arrow batches by rows only, in a session that sets neither limit; and set what is required.

    A session that does not allow the limits to be set writes with its own, more slowly.

    By default Spark computes the size of a batch in bytes after each row, which takes half of the time that the JVM
    spends on a write. A fifth of the default number of rows limits a batch instead (the sink combines small ones). All
    settings get their previous values at the end.
    """
    limits = {} if has_settings(spark, _LIMITS) else _LIMITS
    with change_settings(spark, limits, more, purpose="an exactly-once write"):
        yield


def check_before_write(plan: WritePlan, cluster: Cluster) -> None:
    """Check partitioner, settings, brokers and topics before a write.

    Brokers create missing topics if the cluster's settings allow it. Topics of a pattern, which rows name, are not
    checked.
    """
    from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
    from kdsl.run.librdkafka.topic_creation import find_topics

    check_partitioner(plan)
    cluster.producer()
    admin = LibrdkafkaAdmin(cluster, plan.table)
    if plan.topics.pattern is None:
        find_topics(plan, cluster, admin)
    else:
        admin.names()  # an answer, at least; the rows name the topics
