"""Write plans over Spark's own Kafka connector: rows become records by the same encoder, and Spark's sink sends them.

What kdsl decides stands in the records' columns: topic, headers, and the partition where the plan has a partitioner.
Java's producer spreads records by the key as kdsl's other transport does, and waits for every acknowledgement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import types as s

from kdsl.cluster import Cluster, Registry
from kdsl.plan.model import WritePlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.run.cluster import errors
from kdsl.run.cluster.brokers import Brokers
from kdsl.run.jvm.admin import JavaBrokers, brokers_of
from kdsl.run.jvm.catalyst import encoded
from kdsl.run.jvm.jars import attach
from kdsl.run.jvm.realtime import check_query, trigger_of
from kdsl.run.jvm.settings import hide_secrets, kafka_options
from kdsl.run.jvm.system import set_system_properties
from kdsl.run.records.encode import RecordEncoder, names_topics
from kdsl.run.records.partitioner import PartitionChooser, check_partitioner
from kdsl.run.records.registry import portable, registry_of
from kdsl.run.upsert.write import upserted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FORMAT = "kafka"
_HEADERS = s.ArrayType(s.StructType([s.StructField("key", s.StringType()), s.StructField("value", s.BinaryType())]))
_COLUMNS: Mapping[str, s.DataType] = {
    "key": s.BinaryType(),
    "value": s.BinaryType(),
    "topic": s.StringType(),
    "partition": s.IntegerType(),
    "headers": _HEADERS,
}


def append(rows: DataFrame, plan: WritePlan, cluster: Cluster) -> None:
    """Append the rows of a batch to the topics.

    Args:
        rows: The plan's columns, as `kdsl.run.frames.fit.fitted` gives them.
        plan: What is written.
        cluster: Where.

    Raises:
        ResolveError: The client settings have errors.
        KdslError: The connector cannot be had, no broker answers, or a topic does not exist.
    """
    spark = rows.sparkSession
    options = _ready(spark, plan, cluster, streams=False)
    records = _records(rows, plan, _counts(spark, plan, cluster), registry_of(cluster, plan))
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
    """Start a query that appends the rows of a stream to the topics.

    Args:
        rows: The plan's columns, as `kdsl.run.frames.fit.fitted` gives them.
        plan: What is written.
        cluster: Where.
        checkpoint: The folder of the query's progress.
        trigger: The arguments of Spark's ``trigger``.
        name: The query's name.
        mode: Spark's output mode.

    Raises:
        ResolveError: The client settings have errors.
        KdslError: The connector cannot be had, no broker answers, a topic does not exist, or real-time mode cannot run
            the query.
    """
    spark = rows.sparkSession
    realtime = plan.latency == "realtime"
    if realtime:
        check_query(rows, plan.table)
        trigger = trigger_of(trigger, plan.table)
    options = _ready(spark, plan, cluster, streams=True)
    records = _records(rows, plan, _counts(spark, plan, cluster), registry_of(cluster, plan))
    writer = records.writeStream.format(FORMAT).options(**options).option("checkpointLocation", checkpoint)
    # Real-time mode knows no other output mode; without aggregations, which it does not run, they are the same.
    writer = writer.outputMode("update" if realtime else mode)
    if name is not None:
        writer = writer.queryName(name)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start()


def _ready(spark: SparkSession, plan: WritePlan, cluster: Cluster, *, streams: bool) -> dict[str, str]:
    """The sink's options, when the connector is there."""
    attach(spark, everywhere=plan.latency == "realtime", streams=streams)
    hide_secrets(spark)
    set_system_properties(spark, cluster, plan.table)
    check_partitioner(plan)
    return kafka_options(cluster, "producer", plan.table)


def _counts(spark: SparkSession, plan: WritePlan, cluster: Cluster) -> dict[str, int]:
    """How many partitions each topic has, having seen that brokers answer and topics exist."""
    brokers = brokers_of(spark, cluster, plan.table)
    names = plan.topics.names
    if plan.topics.pattern is not None:
        names = tuple(brokers.names())
    found = brokers.topics(names)
    missing = set(names) - found.keys() if plan.topics.pattern is None else set()
    if missing and cluster.connector().auto_create_topics:
        missing = _created(missing, brokers, cluster)
        found = brokers.topics(names)
    if missing:
        raise errors.missing_topics(plan.table, missing, brokers.names())
    return {name: topic.partitions for name, topic in found.items()}


def _created(missing: set[str], brokers: Brokers | JavaBrokers, cluster: Cluster) -> set[str]:
    """The topics that are still missing after brokers that make topics by themselves were asked for them."""
    from kdsl.run.librdkafka.producer import Producer

    if isinstance(brokers, JavaBrokers):
        return missing
    producer = Producer(cluster.producer())
    try:
        return {topic for topic in missing if producer.look_up(topic, 10)}
    finally:
        producer.close()


def _records(rows: DataFrame, plan: WritePlan, counts: Mapping[str, int], registry: Registry | None) -> DataFrame:
    if plan.latency == "realtime":
        return encoded(rows, plan)
    names = _names(plan)
    schema = s.StructType([s.StructField(name, _COLUMNS[name]) for name in names])
    run = partial(_encoded, plan_text(plan), json.dumps(counts), portable(plan, registry))
    return rows.mapInArrow(run, schema)


def _names(plan: WritePlan) -> list[str]:
    spread = ["partition"] if PartitionChooser(plan, 0).needed else []
    headers = ["headers"] if "headers" in RecordEncoder(plan).schema.names else []
    return ["key", "value", "topic", *spread, *headers]


def _encoded(
    text: str, counted: str, registry: Registry | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What ``mapInArrow`` runs in each task."""
    from pyspark import TaskContext

    plan = read_plan_text(text, WritePlan)
    counts: dict[str, int] = json.loads(counted)
    context = TaskContext.get()
    encoder = RecordEncoder(plan, registry)
    chooser = PartitionChooser(plan, context.partitionId() if context else 0)
    names = _names(plan)
    rows = 0
    for batch in upserted(batches, plan):
        records = encoder.encode(batch, rows)
        arrays = dict(zip(records.schema.names, records.columns, strict=True))
        if not names_topics(plan.topics):
            arrays["topic"] = pa.repeat(plan.topics.names[0], batch.num_rows)
        if chooser.needed:
            arrays["partition"] = _partitions(plan, chooser, counts, arrays["topic"], records, batch, rows)
        rows += batch.num_rows
        yield pa.RecordBatch.from_arrays([arrays[name] for name in names], names)


def _partitions(
    plan: WritePlan,
    chooser: PartitionChooser,
    counts: Mapping[str, int],
    topics: pa.Array,
    records: pa.RecordBatch,
    batch: pa.RecordBatch,
    first_row: int,
) -> pa.Array:
    chosen = np.full(batch.num_rows, -1, dtype=np.int32)
    codes = topics.dictionary_encode()
    of = codes.indices.to_numpy(zero_copy_only=False)
    for code, topic in enumerate(codes.dictionary.to_pylist()):
        if topic not in counts:
            raise errors.missing_topics(plan.table, [topic], counts)
        places = np.flatnonzero(of == code)
        some = pa.array(places)
        chosen[places] = chooser.choose(topic, counts[topic], records.take(some), batch.take(some), places + first_row)
    return pa.array(chosen, mask=chosen < 0)
