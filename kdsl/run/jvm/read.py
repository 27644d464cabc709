"""Read plans over Spark's own Kafka connector: the raw records of a plan's topics as a DataFrame.

Where a read starts and ends is worked out as on the other transport (`kdsl.run.cluster.subscription`), and told to
Spark in its own terms. Rows are made of the records by `kdsl.run.read.decode`, the same decoder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.offsets import TopicPartition
from kdsl.plan.model import HeaderCondition, ReadPlan
from kdsl.run.cluster.brokers import Topic
from kdsl.run.cluster.errors import OffsetError
from kdsl.run.cluster.subscription import Subscription
from kdsl.run.jvm.admin import JavaBrokers, JavaGroup, brokers_of
from kdsl.run.jvm.jars import attach
from kdsl.run.jvm.settings import hide_secrets, java_pattern, kafka_options
from kdsl.run.jvm.system import set_system_properties
from kdsl.run.queries.reads import READ_OPTION
from kdsl.run.queries.watch import watch
from kdsl.run.records.decode import RecordDecoder

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMAT = "kafka"
_BATCH_ENDS = ("unbounded", "latest")


def records(spark: SparkSession, plan: ReadPlan, cluster: Cluster, *, streaming: bool, cores: int = 1) -> DataFrame:
    """The raw records of a plan's topics: the columns of Spark's Kafka source, after the header filter.

    The brokers are asked here, on the driver. A bounded stream gives no record behind its stopping offsets.

    Args:
        spark: The session, classic or Connect.
        plan: What is read.
        cluster: Where it lives.
        streaming: Whether a stream is read.
        cores: How many tasks the session runs at a time.

    Raises:
        ConnectorMissingError: The connector's jars cannot be had.
        ResolveError: The client settings have errors.
        KafkaReadError: No broker answers, a topic is missing, or a batch has no offset to start or to end at.
    """
    attach(spark, everywhere=plan.latency == "realtime", streams=streaming)
    hide_secrets(spark)
    set_system_properties(spark, cluster, plan.table)
    brokers = brokers_of(spark, cluster, plan.table)
    subscription = Subscription(plan, cluster, brokers)
    planned = _stream(subscription, plan, cores) if streaming else _batch(subscription, plan)
    if streaming:
        group = JavaGroup(brokers) if isinstance(brokers, JavaBrokers) else None
        read = watch(spark, plan, cluster, group, planned.stop)
        planned.options[READ_OPTION] = read.id
    reader = spark.readStream if streaming else spark.read
    df = reader.format(FORMAT).options(**_options(plan, cluster), **planned.options).load()
    if planned.stop:
        df = df.where(before(planned.stop))
    if plan.headers:
        df = df.where(matching(plan.headers))
    # Spark cuts partitions to have more tasks, and has no bound; putting them together needs no shuffle.
    return df if plan.parallelism is None else df.coalesce(plan.parallelism)


class _Planned:
    """Options that say what is read, and the stopping offsets that Spark is not told of."""

    def __init__(self, options: Mapping[str, str], stop: Mapping[TopicPartition, int] | None = None) -> None:
        self.options, self.stop = dict(options), dict(stop or {})


def _options(plan: ReadPlan, cluster: Cluster) -> dict[str, str]:
    """The options that batches and streams share."""
    given = cluster.connector()
    options = kafka_options(cluster, "consumer", plan.table)
    reset = plan.start.reset if plan.start.reset != "none" else given.auto_offset_reset or "none"
    options["failOnDataLoss"] = "true" if reset == "none" else "false"
    if given.group_id is not None:
        options["kafka.group.id"] = given.group_id
    else:
        options["groupIdPrefix"] = f"kdsl-{plan.table}"
    if "headers" in RecordDecoder(plan).needs or plan.headers:
        options["includeHeaders"] = "true"
    if plan.max_records is not None:
        options["maxOffsetsPerTrigger"] = str(plan.max_records)
    if plan.parallelism is not None:
        options["minPartitions"] = str(plan.parallelism)
    return options


def _topics(plan: ReadPlan) -> dict[str, str]:
    if plan.topics.pattern is not None:
        return {"subscribePattern": java_pattern(plan.topics.pattern)}
    return {"subscribe": ",".join(plan.topics.names)}


def _assigned(places: Iterable[TopicPartition]) -> dict[str, str]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        by_topic.setdefault(topic, []).append(partition)
    return {"assign": json.dumps(by_topic, separators=(",", ":"))}


def _offsets(offsets: Mapping[TopicPartition, int]) -> str:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(nested, separators=(",", ":"))


def _batch(subscription: Subscription, plan: ReadPlan) -> _Planned:
    """Natively where Spark can, so that the end is taken when an action runs; else both ends as offsets."""
    topics = subscription.topics()
    places = subscription.places(topics)
    to_the_end = plan.stop.mode in _BATCH_ENDS
    if plan.start.mode == "earliest" and to_the_end:
        chosen = _assigned(places) if plan.topics.partitions else _topics(plan)
        return _Planned({**chosen, "startingOffsets": "earliest", "endingOffsets": "latest"})
    begin, stop = subscription.span(topics, batch=True)
    # Both ends must name the same partitions, and a start behind the end is an error to Spark.
    ends = {place: max(end, begin.offsets[place]) for place, end in stop.items()}
    if not ends:
        return _Planned({**_topics(plan), "startingOffsets": "earliest", "endingOffsets": "latest"})
    ending = "latest" if to_the_end else _offsets(ends)
    return _Planned({**_assigned(places), "startingOffsets": _offsets(begin.offsets), "endingOffsets": ending})


def _stream(subscription: Subscription, plan: ReadPlan, cores: int) -> _Planned:
    topics = subscription.topics()
    places = subscription.places(topics)
    if plan.latency == "realtime" and len(places) > cores:
        raise KdslError(
            f"{plan.table}: in real-time mode {len(places)} partitions are read all the time, by a task each, and the "
            f"session has {cores} cores; give it more, or write latency='micro-batch'"
        )
    stop = subscription.stop(places) if plan.stop.mode != "unbounded" else {}
    fixed = bool(plan.topics.partitions or stop or plan.discovery is None)
    options = _assigned(places) if fixed and places else _topics(plan)
    match plan.start.mode:
        case "earliest" | "latest":
            options["startingOffsets"] = plan.start.mode
        case "timestamp":
            options["startingTimestamp"] = str(plan.start.timestamp)
            options["startingOffsetsByTimestampStrategy"] = "latest"
        case _:
            options["startingOffsets"] = _given_start(subscription, topics)
    return _Planned(options, stop)


def _given_start(subscription: Subscription, topics: Mapping[str, Topic]) -> str:
    """The start as offsets; an error is told by Spark, and only where there is no checkpoint.

    Whether there is one shows when the query starts, and then the start does not matter. Spark looks at these offsets
    if there is none: it refuses, and quotes, offsets that are not those of the topic's partitions.
    """
    try:
        begin = subscription.begin(topics)
    except OffsetError as e:
        return json.dumps({f"{e} ": {"0": 0}})
    return _offsets(begin.offsets) if begin.offsets else "earliest"


def before(stop: Mapping[TopicPartition, int]) -> Column:
    """Whether a record stands before the stopping offset of its partition; partitions without one are not read."""
    from pyspark.sql import functions as sf

    topics: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in stop.items():
        topics.setdefault(topic, {})[partition] = offset
    found = sf.lit(False)
    for topic, ends in sorted(topics.items()):
        by_number = sf.array(*(sf.lit(ends.get(p, 0)).cast("bigint") for p in range(max(ends) + 1)))
        end = sf.coalesce(sf.get(by_number, sf.col("partition")), sf.lit(0).cast("bigint"))
        found = found | ((sf.col("topic") == topic) & (sf.col("offset") < end))
    return found


def matching(conditions: Iterable[HeaderCondition]) -> Column:
    """Whether a record's headers match a filter, worked out from left to right."""
    from pyspark.sql import functions as sf

    found: Column | None = None
    for condition in conditions:
        here = sf.coalesce(sf.exists("headers", _has(condition)), sf.lit(False))
        here = ~here if condition.negated else here
        found = here if found is None else (found | here) if condition.joined == "|" else (found & here)
    assert found is not None
    return found


def _has(condition: HeaderCondition) -> Callable[[Column], Column]:
    from pyspark.sql import functions as sf

    name, value = sf.lit(condition.name), sf.lit(condition.value).cast("binary")
    return lambda header: (header["key"] == name) & header["value"].eqNullSafe(value)
