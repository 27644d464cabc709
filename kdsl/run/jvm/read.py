"""Read plans over Spark's own Kafka connector: the raw records of a plan's topics as a DataFrame.

Where a read starts and ends is computed as for the other transport (`kdsl.run.offsets.subscription`), and passed to
Spark as options. `kdsl.run.read.decode` decodes the records with the same decoder.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, cast

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.errors import KdslError, OffsetError
from kdsl.plan.model import HeaderCondition, ReadPlan
from kdsl.run.admin.cluster_admin import Topic
from kdsl.run.admin.java_admin import JavaAdmin, open_admin
from kdsl.run.java_clients.jars import attach_connector, check_login_classes
from kdsl.run.java_clients.options import anchor_pattern, hide_secrets, kafka_options
from kdsl.run.java_clients.system_properties import set_system_properties
from kdsl.run.listeners.reads import READ_OPTION
from kdsl.run.listeners.spark_source import guard
from kdsl.run.listeners.watch import watch
from kdsl.run.metrics.on_rows import filter_and_observe
from kdsl.run.offsets.subscription import Subscription
from kdsl.run.records.decode import RecordDecoder

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamReader

FORMAT = "kafka"
SPLIT = "minPartitions"
"""The option with the fewest tasks of a read, for which Spark reads partitions in pieces."""
_BATCH_ENDS = ("unbounded", "latest")


def records(
    spark: SparkSession,
    plan: ReadPlan,
    cluster: Cluster,
    *,
    streaming: bool,
    cores: int = 1,
    name: str = "",
    source: str | None = None,
    whole: bool = False,
    more: Mapping[str, str] | None = None,
) -> tuple[DataFrame, dict[str, str]]:
    """Read the raw records of a plan's topics: the columns of Spark's Kafka source, after the header filter.

    This asks the brokers, on the driver, calls offsets initializers, and attaches the connector, hides secrets and sets
    system properties in the session. Skipped gaps, and decisions that were not declared, are logged. A stream is also
    watched and checked from now on (`kdsl.run.listeners`). A bounded stream returns no record from its stopping offsets
    on. A declared parallelism limits the number of partitions of the DataFrame.

    Args:
        spark: The session, classic or Connect.
        plan: What is read.
        cluster: The cluster.
        streaming: Whether a stream is read.
        cores: How many tasks the session runs at a time.
        name: The observation that counts the records that the header filter drops; empty for none.
        source: The name of a stream's source in checkpoints; None for none.
        whole: Whether each partition is read by one task, also if that leaves fewer tasks than declared.
        more: Further options, by which the sources of a query are distinguished.

    Returns:
        The records, and the id of each topic as it was planned.
    """
    attach_connector(spark, everywhere=plan.latency == "realtime", streams=streaming)
    check_login_classes(spark, cluster, plan.table)
    options = _options(plan, cluster, streaming=streaming)
    if plan.parallelism is not None and not whole:
        options[SPLIT] = str(plan.parallelism)
    hide_secrets(spark, options)
    set_system_properties(spark, cluster, plan.table)
    admin = open_admin(spark, cluster, plan.table)
    subscription = Subscription(plan, cluster, admin)
    planned = _plan_stream(subscription, plan, cores) if streaming else _plan_batch(subscription, plan)
    ids = {name: topic.id for name, topic in planned.topics.items()}
    if streaming:
        read = watch(spark, plan, cluster, admin if isinstance(admin, JavaAdmin) else None, planned.stop)
        guard(read, admin, ids, passes_gaps=subscription.reset != "none")
        planned.options[READ_OPTION] = read.id
    reader = (spark.readStream if streaming else spark.read).format(FORMAT)
    if source is not None:
        reader = cast("DataStreamReader", reader).name(source)
    df = reader.options(**options, **planned.options, **(more or {})).load()
    if planned.stop:
        df = df.where(before(planned.stop))
    if plan.headers:
        condition = matching(plan.headers)
        df = filter_and_observe(df, name, condition) if name else df.where(condition)
    # Spark cuts partitions to have more tasks, and has no bound; putting them together needs no shuffle.
    return (df if plan.parallelism is None else df.coalesce(plan.parallelism)), ids


@attrs.frozen
class _Planned:
    """The options of a read, the stopping offsets that Spark cannot take as options, and the topics as they are now."""

    options: dict[str, str]
    stop: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    topics: Mapping[str, Topic] = attrs.field(factory=dict)


def _options(plan: ReadPlan, cluster: Cluster, *, streaming: bool) -> dict[str, str]:
    """Build the options of Spark's source that do not depend on offsets; they contain resolved secrets.

    Key files at an address are fetched to this machine (`kafka_options`).
    """
    settings = cluster.kdsl_settings
    options = kafka_options(cluster, "consumer", plan.table)
    reset = plan.start.reset if plan.start.reset != "none" else settings.auto_offset_reset or "none"
    # A batch begins at records that exist when it is planned. Spark would not count those that are deleted afterwards.
    options["failOnDataLoss"] = "true" if reset == "none" or not streaming else "false"
    if settings.group_id is not None:
        options["kafka.group.id"] = settings.group_id
    else:
        options["groupIdPrefix"] = f"kdsl-{plan.table}"
    if "headers" in RecordDecoder(plan).needs or plan.headers or plan.dead_letters is not None:
        options["includeHeaders"] = "true"
    if plan.max_records is not None:
        options["maxOffsetsPerTrigger"] = str(plan.max_records)
    return options


def _subscribe_option(plan: ReadPlan) -> dict[str, str]:
    """Return the option of Spark's source for the plan's pattern or topics, whatever partitions the plan names."""
    if plan.topics.pattern is not None:
        return {"subscribePattern": anchor_pattern(plan.topics.pattern)}
    return {"subscribe": ",".join(plan.topics.names)}


def _assign_option(partitions: Iterable[TopicPartition]) -> dict[str, str]:
    """Return the option of Spark's source that assigns partitions."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return {"assign": json.dumps(by_topic, separators=(",", ":"))}


def _offsets_json(offsets: Mapping[TopicPartition, int]) -> str:
    """Return offsets as the JSON that Spark's source reads."""
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        nested.setdefault(topic, {})[str(partition)] = offset
    return json.dumps(nested, separators=(",", ":"))


def _plan_batch(subscription: Subscription, plan: ReadPlan) -> _Planned:
    """Plan the options of Spark's source for a batch; the brokers are asked.

    It uses Spark's own modes where possible, which determine the end when an action runs, or else offsets for both
    ends.
    """
    topics = subscription.topics()
    partitions = subscription.partitions(topics)
    to_the_end = plan.stop.mode in _BATCH_ENDS
    if plan.start.mode == "earliest" and to_the_end:
        chosen = _assign_option(partitions) if plan.topics.partitions else _subscribe_option(plan)
        return _Planned({**chosen, "startingOffsets": "earliest", "endingOffsets": "latest"}, topics=topics)
    begin, stop = subscription.span(topics, batch=True)
    # Both ends must name the same partitions, and Spark refuses a start after the end.
    ends = {partition: max(end, begin.offsets[partition]) for partition, end in stop.items()}
    if not ends:
        return _Planned(
            {**_subscribe_option(plan), "startingOffsets": "earliest", "endingOffsets": "latest"}, topics=topics
        )
    ending = "latest" if to_the_end else _offsets_json(ends)
    options = {**_assign_option(partitions), "startingOffsets": _offsets_json(begin.offsets), "endingOffsets": ending}
    return _Planned(options, topics=topics)


def _plan_stream(subscription: Subscription, plan: ReadPlan, cores: int) -> _Planned:
    """Plan the options of Spark's source for a stream; the brokers are asked for topics, partitions and offsets.

    A start that cannot be computed is not an error here (`_start_option`). Offsets initializers are called, and notes
    are logged (`Subscription.span`, `Subscription.stop`).
    """
    topics = subscription.topics()
    partitions = subscription.partitions(topics)
    if plan.latency == "realtime" and len(partitions) > cores:
        raise KdslError(
            f"{plan.table}: real-time mode reads {len(partitions)} partitions at the same time, by a task each, but "
            f"the session has {cores} cores; give it more, or declare latency='micro-batch'"
        )
    stop = subscription.stop(partitions) if plan.stop.mode != "unbounded" else {}
    fixed = bool(plan.topics.partitions or stop or plan.discovery is None)
    options = _assign_option(partitions) if fixed and partitions else _subscribe_option(plan)
    match plan.start.mode:
        case "earliest" | "latest":
            options["startingOffsets"] = plan.start.mode
        case "timestamp":
            options["startingTimestamp"] = str(plan.start.timestamp)
            options["startingOffsetsByTimestampStrategy"] = "latest"
        case _:
            options["startingOffsets"] = _start_option(subscription, topics)
    return _Planned(options, stop, topics)


def _start_option(subscription: Subscription, topics: Mapping[str, Topic]) -> str:
    """Return the start as JSON of offsets; if it cannot be computed, JSON with the error in place of a topic.

    Then Spark raises that error, but only if the query has no checkpoint. Without partitions, return ``earliest``.
    Effects are those of `Subscription.begin`.

    Whether there is a checkpoint is known when the query starts; with one, the start does not matter. Without one,
    Spark reads these offsets, and refuses, and quotes, offsets that do not match the topic's partitions.
    """
    try:
        begin = subscription.begin(topics)
    except OffsetError as e:
        return json.dumps({f"{e} ": {"0": 0}})
    return _offsets_json(begin.offsets) if begin.offsets else "earliest"


def before(
    stop: Mapping[TopicPartition, int],
    topic: Column | None = None,
    partition: Column | None = None,
    offset: Column | None = None,
) -> Column:
    """Build the condition that a record is before its partition's stopping offset; False in partitions without one.

    Args:
        stop: The stopping offsets.
        topic: The column with the record's topic; by default ``topic``.
        partition: The column with its partition; by default ``partition``.
        offset: The column with its offset; by default ``offset``.
    """
    from pyspark.sql import functions as sf

    topic = sf.col("topic") if topic is None else topic
    partition = sf.col("partition") if partition is None else partition
    offset = sf.col("offset") if offset is None else offset
    topics: dict[str, dict[int, int]] = {}
    for (name, number), end in stop.items():
        topics.setdefault(name, {})[number] = end
    condition = sf.lit(False)
    for name, ends in sorted(topics.items()):
        by_number = sf.array(*(sf.lit(ends.get(p, 0)).cast("bigint") for p in range(max(ends) + 1)))
        limit = sf.coalesce(sf.get(by_number, partition), sf.lit(0).cast("bigint"))
        condition = condition | ((topic == name) & (offset < limit))
    return condition


def matching(conditions: Iterable[HeaderCondition]) -> Column:
    """Build the condition that a record's headers match a filter of at least one condition, from left to right."""
    from pyspark.sql import functions as sf

    result: Column | None = None
    for condition in conditions:
        here = sf.coalesce(sf.exists("headers", _has(condition)), sf.lit(False))
        here = ~here if condition.negated else here
        result = here if result is None else (result | here) if condition.joined == "|" else (result & here)
    assert result is not None
    return result


def _has(condition: HeaderCondition) -> Callable[[Column], Column]:
    """Return a function from a header to the condition that it has the name and the value."""
    from pyspark.sql import functions as sf

    name, value = sf.lit(condition.name), sf.lit(condition.value).cast("binary")
    return lambda header: (header["key"] == name) & header["value"].eqNullSafe(value)
