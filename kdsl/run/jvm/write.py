"""Write plans over Spark's own Kafka connector: the same encoder turns rows into records, and Spark's sink sends them.

What kdsl decides is in the columns of the records: topic, headers, and the partition if the plan has a partitioner.
Java's producer distributes records by key as kdsl's other transport does, and waits for every acknowledgement.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from kdsl.cluster import Cluster, Registry
from kdsl.plan.model import WritePlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.run.admin import errors
from kdsl.run.admin.java_admin import JavaAdmin, open_admin
from kdsl.run.java_clients.jars import attach_connector, check_login_classes
from kdsl.run.java_clients.options import hide_secrets, kafka_options
from kdsl.run.java_clients.system_properties import set_system_properties
from kdsl.run.jvm.catalyst import encode_columns
from kdsl.run.jvm.realtime import check_query, trigger_of
from kdsl.run.librdkafka.topic_creation import find_topics
from kdsl.run.listeners.start import start_query
from kdsl.run.metrics import accumulated
from kdsl.run.records.encode import RecordEncoder, names_topics
from kdsl.run.records.partitioner import PartitionChooser, check_partitioner
from kdsl.run.records.registry import registry_of, without_literal_secrets
from kdsl.run.records.spark_records import RECORD_TYPES
from kdsl.run.records.valid_rows import keep_valid_rows
from kdsl.run.upsert.write import convert_to_upserts
from kdsl.spark_internals.arrow import map_in_arrow
from kdsl.spark_internals.session import is_connect
from kdsl.spark_internals.workers import current_task

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT = "kafka"


def append(rows: DataFrame, plan: WritePlan, cluster: Cluster) -> None:
    """Append the rows of a batch to the topics, by a Spark job that ends when Kafka has acknowledged all records.

    It attaches the connector to the session, hides secrets there, and sets system properties; a classic session gets
    the accumulator for the reports of tasks. Brokers create missing topics if their settings and the cluster's allow
    it.
    """
    spark = rows.sparkSession
    options = _prepare(spark, plan, cluster, streams=False)
    records = _encode_rows(rows, plan, _count_partitions(spark, plan, cluster), registry_of(cluster, plan))
    records.write.format(FORMAT).mode("append").options(**options).save()


def start(
    rows: DataFrame,
    plan: WritePlan,
    cluster: Cluster,
    *,
    checkpoint: str,
    trigger: Mapping[str, Any] | None,
    name: str | None,
    mode: str = "append",
) -> StreamingQuery:
    """Start a query that appends the rows of a stream to the topics; the session and the topics change as by `append`.

    Args:
        rows: The plan's columns, as `kdsl.run.dataframes.match_columns.match_columns` returns them.
        plan: The write plan.
        cluster: The cluster.
        checkpoint: The folder of the query's progress.
        trigger: The arguments of Spark's ``trigger``; None for one batch after the other, or real-time mode's default.
        name: The query's name.
        mode: Spark's output mode; real-time mode ignores it.
    """
    spark = rows.sparkSession
    realtime = plan.latency == "realtime"
    if realtime:
        check_query(rows, plan.table)
        trigger = trigger_of(trigger, plan.table)
    options = _prepare(spark, plan, cluster, streams=True)
    records = _encode_rows(rows, plan, _count_partitions(spark, plan, cluster), registry_of(cluster, plan))
    writer = records.writeStream.format(FORMAT).options(**options)
    # Real-time mode has no other output mode; without aggregations, which it cannot run, they are the same.
    return start_query(writer.outputMode("update" if realtime else mode), checkpoint, trigger, name)


def _prepare(spark: SparkSession, plan: WritePlan, cluster: Cluster, *, streams: bool) -> dict[str, str]:
    """Attach the connector, hide secrets in the session, set the system properties, and return the sink's options."""
    attach_connector(spark, everywhere=plan.latency == "realtime", streams=streams)
    check_login_classes(spark, cluster, plan.table)
    options = kafka_options(cluster, "producer", plan.table)
    hide_secrets(spark, options)
    set_system_properties(spark, cluster, plan.table)
    check_partitioner(plan)
    return options


def _count_partitions(spark: SparkSession, plan: WritePlan, cluster: Cluster) -> dict[str, int]:
    """Check that brokers answer and topics exist, and count the partitions of each topic.

    For a pattern these are all topics that this user may see, and none of them is checked. Brokers create missing
    topics if the cluster's settings allow it, but not with Java's admin client.
    """
    admin = open_admin(spark, cluster, plan.table)
    if plan.topics.pattern is None:
        topics = find_topics(plan, cluster, admin, creates=not isinstance(admin, JavaAdmin))
    else:
        topics = admin.topics(admin.names())
    return {name: topic.partitions for name, topic in topics.items()}


def _encode_rows(rows: DataFrame, plan: WritePlan, counts: Mapping[str, int], registry: Registry | None) -> DataFrame:
    """Encode rows as records: with Spark's expressions in real-time mode, else in tasks that report what they write."""
    if plan.latency == "realtime":
        return encode_columns(rows, plan)
    names = _record_columns(plan)
    schema = ", ".join(f"`{name}` {RECORD_TYPES[name]}" for name in names)
    spark = rows.sparkSession
    accumulator = None if is_connect(spark) else accumulated.ACCUMULATORS.id_of(spark)
    report = partial(accumulated.report_written, accumulator, plan.table, of_query=rows.isStreaming)
    sent = without_literal_secrets(plan, registry)
    run = partial(_encode_batches, plan_text(plan), json.dumps(counts), sent, report)
    return map_in_arrow(rows, run, schema)


def _record_columns(plan: WritePlan) -> list[str]:
    """Return the names of the record's columns: key, value, topic, then partition and headers if the plan has them."""
    spread = ["partition"] if PartitionChooser(plan, 0).needed else []
    headers = ["headers"] if "headers" in RecordEncoder(plan).schema.names else []
    return ["key", "value", "topic", *spread, *headers]


def _encode_batches(
    text: str,
    counted: str,
    registry: Registry | None,
    report: Callable[[int, Mapping[str, int]], None],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a task's valid rows, and report at the end, unless it fails, how many rows it has written.

    It gets the plan as text and the partitions of each topic as JSON, because Spark pickles it into every task.
    """
    plan = read_plan_text(text, WritePlan)
    counts: dict[str, int] = json.loads(counted)
    context = current_task()
    encoder = RecordEncoder(plan, registry)
    chooser = PartitionChooser(plan, context.partitionId() if context else 0)
    names = _record_columns(plan)
    rows = 0
    violations: Counter[str] = Counter()
    for batch in convert_to_upserts(keep_valid_rows(batches, plan, violations), plan):
        records = encoder.encode(batch, rows)
        arrays = dict(zip(records.schema.names, records.columns, strict=True))
        if not names_topics(plan.topics):
            arrays["topic"] = pa.repeat(plan.topics.names[0], batch.num_rows)
        if chooser.needed:
            arrays["partition"] = _choose_partitions(plan, chooser, counts, arrays["topic"], records, batch, rows)
        rows += batch.num_rows
        yield pa.RecordBatch.from_arrays([arrays[name] for name in names], names)
    report(rows, violations)


def _choose_partitions(
    plan: WritePlan,
    chooser: PartitionChooser,
    counts: Mapping[str, int],
    topics: pa.Array,
    records: pa.RecordBatch,
    batch: pa.RecordBatch,
    first_row: int,
) -> pa.Array:
    """Choose the partitions of records, topic by topic; null where Kafka's client chooses."""
    chosen = np.full(batch.num_rows, -1, dtype=np.int32)
    codes = topics.dictionary_encode()
    of = codes.indices.to_numpy(zero_copy_only=False)
    for code, topic in enumerate(codes.dictionary.to_pylist()):
        if topic not in counts:
            raise errors.missing_topics(plan.table, [topic], counts)
        indices = np.flatnonzero(of == code)
        some = pa.array(indices)
        chosen[indices] = chooser.choose(
            topic, counts[topic], records.take(some), batch.take(some), indices + first_row
        )
    return pa.array(chosen, mask=chosen < 0)
