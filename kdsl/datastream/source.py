"""The source: ``KafkaSource.builder()…build()``, or ``KafkaSource(…)`` with keywords.

It describes itself as a `TableDef`, which the resolver checks, and adds to the plan what no table can express.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeGuard

import attrs

from kdsl.client_settings.kdsl_settings import Reset, kdsl_settings
from kdsl.client_settings.properties import Value
from kdsl.cluster import Cluster
from kdsl.datastream.batches import BatchMapper
from kdsl.datastream.calls import BuilderCalls, BuilderTableDef, CallSites, caller_location
from kdsl.datastream.endpoint import Endpoint
from kdsl.datastream.event_time import RECORD_TIME, mark_record_time
from kdsl.datastream.offsets import CustomOffsets, OffsetsInitializer, is_topic_partition
from kdsl.datastream.records import KafkaRecordDeserializationSchema
from kdsl.datastream.schemas import KafkaDeserializer, MessageSchema, kafka_schema
from kdsl.datastream.settings import as_hashable, as_tuple, check_kind, client_properties, join_servers
from kdsl.declare.connector import KafkaOptions, Latency, Transport
from kdsl.declare.definition import WatermarkDef
from kdsl.durations import parse_duration
from kdsl.errors import Problem, listing
from kdsl.formats import format_class
from kdsl.notebooks import PlanText
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan
from kdsl.plan.show import show
from kdsl.resolve import resolve
from kdsl.types import model as t

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Initializer", "KafkaSource", "KafkaSourceBuilder"]

_SETTINGS = {
    "topic": "topics",
    "topic_pattern": "topic_pattern",
    "startup": "starting_offsets",
    "startup_timestamp": "starting_offsets",
    "startup_offsets": "starting_offsets",
    "scan_parallelism": "parallelism",
    "max_records_per_trigger": "max_records_per_trigger",
    "header_filter": "header_filter",
    "check_group": "check_group",
    "transport": "transport",
    "latency": "latency",
}
_RESET = "auto.offset.reset"
_BYTES = t.Row((t.Field("value", t.BYTES),), nullable=False)
Initializer = OffsetsInitializer | CustomOffsets


@attrs.frozen(init=False)
class KafkaSource(Endpoint):
    """A source of Kafka records, as Flink's DataStream API builds one.

    ```python
    source = (
        KafkaSource.builder()
        .set_bootstrap_servers("localhost:9092")
        .set_topics("input-topic")
        .set_group_id("my-group")
        .set_starting_offsets(OffsetsInitializer.earliest())
        .set_value_only_deserializer(SimpleStringSchema())
        .build()
    )
    lines = source.read_stream(spark)
    ```

    It is a frozen value; the fluent form and the form with keywords make equal values.

    Attributes:
        name: The source's name in messages.
        bootstrap_servers: The brokers to connect to first; None if ``cluster`` names them.
        cluster: The cluster of the topics, instead of ``bootstrap_servers``.
        topics: The topics.
        topic_pattern: A regular expression that the whole name of a topic must match.
        partitions: The partitions, as topic and number.
        group_id: The consumer group.
        starting_offsets: Where a read without a checkpoint starts.
        bounded: Where a batch or a stream ends.
        unbounded: Where a stream ends by itself; a batch as well.
        deserializer: What turns records into rows.
        watermark: The column of event time, and how late a row may be.
        properties: Properties of the Kafka client under Java's names.
        parallelism: The greatest number of tasks of a read.
        max_records_per_trigger: The greatest number of records of a micro-batch.
        header_filter: Only records whose headers match are read.
        check_group: Whether a stream fails to start while another application uses the consumer group.
        transport: The client that reads.
        latency: Micro-batches, or real-time mode.
    """

    topics: tuple[str, ...]
    topic_pattern: str | None
    partitions: tuple[tuple[str, int], ...]
    group_id: str | None
    starting_offsets: OffsetsInitializer
    bounded: OffsetsInitializer | None
    unbounded: OffsetsInitializer | None
    deserializer: KafkaRecordDeserializationSchema | None
    watermark: tuple[str, str] | None
    max_records_per_trigger: int | None
    header_filter: str | None
    check_group: bool

    direction = "read"
    schema_setting = "deserializer"

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        cluster: Cluster | None = None,
        topics: str | Sequence[str] = (),
        topic_pattern: str | None = None,
        partitions: Iterable[tuple[str, int]] = (),
        group_id: str | None = None,
        starting_offsets: Initializer | None = None,
        bounded: Initializer | None = None,
        unbounded: Initializer | None = None,
        deserializer: KafkaRecordDeserializationSchema | None = None,
        value_only_deserializer: MessageSchema | KafkaDeserializer | None = None,
        watermark: tuple[str, str] | None = None,
        properties: Mapping[str, Value] | None = None,
        client_id_prefix: str | None = None,
        parallelism: int | None = None,
        max_records_per_trigger: int | None = None,
        header_filter: str | None = None,
        check_group: bool = False,
        transport: Transport | None = None,
        latency: Latency = "micro-batch",
        name: str = "KafkaSource",
        _call_sites: CallSites | None = None,
    ) -> None:
        """Describe a source, and check it; warnings are logged.

        Args:
            bootstrap_servers: The brokers to connect to first, ``host:port`` or a list. Either this or ``cluster``.
            cluster: The cluster of the topics, with security and secrets.
            topics: A topic, or several.
            topic_pattern: Instead, a regular expression that the whole name of a topic must match.
            partitions: Instead, partitions: ``{("topic-a", 0), ("topic-b", 5)}``.
            group_id: The consumer group; by default there is none.
            starting_offsets: Where a read without a checkpoint starts; by default at the earliest records.
            bounded: Where the source ends, in batch and in stream.
            unbounded: Where a stream ends by itself.
            deserializer: What turns records into rows. Either this or ``value_only_deserializer``.
            value_only_deserializer: The schema of the value, or the name of one of Kafka's deserializers.
            watermark: The column of event time and how late a row may be: ``("timestamp", "5 seconds")``. Where the
                schema of the value has no column ``timestamp``, that is the timestamp of the record.
            properties: Properties of the Kafka client under Java's names.
            client_id_prefix: The prefix of the client ids.
            parallelism: The greatest number of tasks of a read; by default twice the number of cores.
            max_records_per_trigger: The greatest number of records of a micro-batch, over all partitions.
            header_filter: Only records whose headers match are read: ``"depart:toy|depart:book&!env:test"``.
            check_group: Whether a stream fails to start while another application uses the consumer group.
            transport: The client that reads: ``librdkafka``, or ``jvm`` for Spark's own connector. None means
                librdkafka, or jvm for a login with Kerberos.
            latency: ``micro-batch``, or ``realtime``, which needs ``jvm`` and values that are decoded without Python.
            name: The source's name in messages.

        Raises:
            ResolveError: A setting is missing, wrong or contradicts another; all problems are reported at once.
        """
        sites = _call_sites or CallSites(where=caller_location())
        problems: list[Problem] = []
        if value_only_deserializer is not None:
            if deserializer is not None:
                both = f"{sites.name('deserializer')} and {sites.name('value_only_deserializer')}"
                message = f"{both} both define how records become rows"
                problems.append(sites.problem("deserializer", "deserializer-twice", message, "keep one of them"))
            if isinstance(value_only_deserializer, str):
                where = sites.location("value_only_deserializer")
                value_only_deserializer = kafka_schema(value_only_deserializer, "Deserializer", where)
            deserializer = KafkaRecordDeserializationSchema.value_only(value_only_deserializer)
        deserializer = check_kind(deserializer, KafkaRecordDeserializationSchema, "deserializer", sites, problems)
        if deserializer is not None and _is_watermark(watermark):
            deserializer = deserializer.with_event_time(watermark[0])
        named = {"group.id": group_id, "client.id.prefix": client_id_prefix}
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue]
            name=name,
            bootstrap_servers=join_servers(bootstrap_servers),
            cluster=check_kind(cluster, Cluster, "cluster", sites, problems),
            topics=tuple(map(as_hashable, as_tuple(topics))),
            topic_pattern=topic_pattern,
            partitions=tuple(sorted(dict.fromkeys(map(as_hashable, as_tuple(partitions))), key=repr)),
            group_id=group_id,
            starting_offsets=_initializer(starting_offsets) or OffsetsInitializer.earliest(),
            bounded=_initializer(bounded),
            unbounded=_initializer(unbounded),
            deserializer=deserializer,
            watermark=watermark,
            properties=client_properties(properties, named, sites, problems),
            parallelism=parallelism,
            max_records_per_trigger=max_records_per_trigger,
            header_filter=header_filter,
            check_group=check_group,
            transport=transport,
            latency=latency,
            call_sites=sites,
        )
        self._check(problems)

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Create a fluent builder of a source."""
        return KafkaSourceBuilder()

    def read(self, spark: SparkSession) -> DataFrame:
        """Read once, up to the end of the source if it has one, or else up to the present ends of the partitions.

        The session gets kdsl's data source, or with the transport ``jvm`` Spark's Kafka connector; a classic one also
        gets accumulators for the reports of tasks. That a batch does not commit offsets is logged once if the client
        property ``enable.auto.commit`` is true.

        Args:
            spark: The session, classic or Connect.

        Raises:
            KdslError: kdsl does not support the session, or as for `plan`. At the latest when Spark plans the read: the
                brokers refuse or cannot be reached, a topic is missing, or an offset does not exist. A record that
                cannot be read, or a function that fails, fails the Spark job.
        """
        from kdsl.run.read import read

        return self._rows(read(spark, self.plan(), self._cluster()))

    def read_stream(self, spark: SparkSession) -> DataFrame:
        """Read a stream.

        A query that restarts from a checkpoint continues at its offsets: the starting offsets do not matter then, and a
        custom initializer is not called. The session changes as by `read`, and gets a listener that commits offsets and
        reports metrics. Limits of a batch that this version of Spark ignores are logged.

        Args:
            spark: The session, classic or Connect.

        Raises:
            KdslError: kdsl does not support the session, its Spark is too old for the end of the source, or as for
                `plan`; with the transport ``jvm`` also if the connector cannot be attached, or another application uses
                a consumer group that is checked. What is wrong with the topics fails the query.
        """
        from kdsl.run.read import read_stream

        return self._rows(read_stream(spark, self.plan(), self._cluster()))

    def explain(self) -> str:
        """Describe what a read does. Needs neither Java nor a broker.

        Raises:
            KdslError: What a format refers to, such as a file with a schema, can no longer be read.
        """
        lines = [show(self.plan())]
        deserializer = self.deserializer
        if deserializer is not None and deserializer.function is not None:
            columns = ", ".join(f"{f.name} {f.type}" for f in deserializer.row.fields)
            lines.append(f"  {'rows':<10}by {deserializer.describe()}: {columns}")
            if self.watermark is not None:
                lines.append(f"  {'watermark':<10}{self.watermark[0]}, at most {self.watermark[1]} late")
        return PlanText("\n".join(lines))

    def plan(self) -> ReadPlan:
        """What a read does, as a frozen value.

        Raises:
            KdslError: What a format refers to, such as a file with a schema, can no longer be read. The settings were
                checked when the source was made.
        """
        plan = read_plan(resolve(self._definition(), "read"))
        end = self.bounded or self.unbounded
        changes: dict[str, Any] = {
            "topics": attrs.evolve(plan.topics, partitions=self.partitions),
            "start": self.starting_offsets.start(self._reset()),
            "group_id": self._connector().group_id,
            "properties": self.properties,
        }
        if end is not None:
            changes["stop"] = end.stop()
        if self.bounded is not None:  # as in Flink, where a source with set_unbounded still discovers partitions
            changes["discovery"] = None
        return attrs.evolve(plan, **changes)

    def _rows(self, df: DataFrame) -> DataFrame:
        """Return the rows of a DataFrame that the plan reads; no record is read yet.

        With a function of the deserializer, it is applied to the raw records, and a stream gets the watermark.
        Otherwise the plan has decoded them; a column with the record's timestamp is marked as such.
        """
        from kdsl.types.spark import spark_schema

        deserializer = self.deserializer
        assert deserializer is not None
        if deserializer.function is None:
            columns = [name for name, key in deserializer.metadata if key == "timestamp"]
            return mark_record_time(df, columns[0]) if columns else df
        row = deserializer.row
        mapper = BatchMapper(deserializer.function, deserializer.describe(), row, optional=False)
        df = df.mapInArrow(mapper, spark_schema(row))
        return df if self.watermark is None or not df.isStreaming else df.withWatermark(*self.watermark)

    def _connector(self) -> Any:
        """Return the settings of kdsl (`KdslSettings`) among the client properties, such as the consumer group."""
        return kdsl_settings(self._all_properties().reveal())

    def _reset(self) -> Reset | None:
        """Return what the property ``auto.offset.reset`` says; None if it is not set, or wrong."""
        reset: Reset | None = self._connector().auto_offset_reset
        return reset

    def _definition(self) -> BuilderTableDef:
        """Build the definition of the table that the source reads, for the resolver.

        It lacks what only the plan can express: single partitions, ends, and starts other than a timestamp. Wrong
        topics and a missing or wrong deserializer are replaced by valid ones; `_own_problems` reports them.
        """
        sites, start = self._call_sites, self.starting_offsets
        timed = start.mode == "timestamp"
        partitions = [partition for partition in self.partitions if is_topic_partition(partition)]
        topics = self.topics or tuple(dict.fromkeys(topic for topic, _ in partitions))
        if any(not isinstance(topic, str) for topic in topics) or (self.partitions and not topics):
            topics = ("topic",)  # `_topic_problems` reports them
        options = KafkaOptions(
            topic=topics,
            topic_pattern=self.topic_pattern,
            startup="timestamp" if timed else "earliest-offset",  # the plan has the other modes
            startup_timestamp=start.millis if timed else None,
            scan_parallelism=self.parallelism,
            max_records_per_trigger=self.max_records_per_trigger,
            header_filter=self.header_filter,
            check_group=self.check_group,
            transport=self.transport,
            latency=self.latency,
        )
        deserializer = self.deserializer
        if deserializer is None or (deserializer.problems and not deserializer.columns()):
            deserializer = KafkaRecordDeserializationSchema(MessageSchema(format_class("raw")(), _BYTES))
        decodes_value = deserializer.function is None
        settings = {**_SETTINGS, **({} if self.topics or not self.partitions else {"topic": "partitions"})}
        return BuilderTableDef(
            name=self.name,
            columns=deserializer.columns(),
            options=options,
            value_format=deserializer.value.format if deserializer.value is not None else None,
            watermarks=(WatermarkDef(*self.watermark, sites.location("watermark")),)
            if _is_watermark(self.watermark) and decodes_value
            else (),
            properties=self._all_properties(),
            where=sites.where,
            option_locations=self._option_locations(_SETTINGS),
            call_sites=sites,
            settings=settings,
        )

    def _own_problems(self) -> Iterator[Problem]:
        """Yield the problems that the table definition cannot show, such as two ends or a missing deserializer."""
        sites = self._call_sites
        yield from self._topic_problems()
        if self.deserializer is None:
            both = f"{sites.name('deserializer')} or {sites.name('value_only_deserializer')}"
            message = "nothing defines how records become rows"
            fix = f"add {both}, as {sites.with_value('value_only_deserializer', 'StringDeserializer')}"
            yield sites.problem("deserializer", "deserializer-missing", message, fix)
        else:
            yield from (p.at(sites.location("deserializer")) for p in self.deserializer.problems)
            yield from self._watermark_problems(self.deserializer)
            yield from self._latency_problems("deserializer", python=self.deserializer.function is not None)
        ends = {name: getattr(self, name) for name in ("bounded", "unbounded") if getattr(self, name) is not None}
        for setting, offsets in {"starting_offsets": self.starting_offsets, **ends}.items():
            yield from (p.at(sites.location(setting)) for p in offsets.problems)
            yield from self._offset_problems(setting, offsets)
        if len(ends) == 2:
            message = f"{sites.name('bounded')} and {sites.name('unbounded')} both define where the source ends"
            yield sites.problem("unbounded", "bounded-twice", message, "keep one of them")
        for setting, offsets in ends.items():
            if offsets.mode == "earliest":
                message = f"{sites.name(setting)} is the earliest offset, before which there is no record"
                yield sites.problem(
                    setting, "bounded-earliest", message, "end at the latest offset, a time, or specific offsets"
                )
        yield from self._reset_problems()

    def _topic_problems(self) -> Iterator[Problem]:
        """Report partitions beside topics or a pattern, and topics and partitions of a wrong type."""
        sites = self._call_sites
        settings = [s for s in ("topics", "topic_pattern", "partitions") if getattr(self, s)]
        if "partitions" in settings and len(settings) > 1:
            names = listing(map(sites.name, settings)).replace("'", "")
            message = f"{names} are all set, but only one can choose what is read"
            yield sites.problem("partitions", "partitions-and-topics", message, "keep one of them")
        topics: tuple[object, ...] = self.topics
        not_strings = [topic for topic in topics if not isinstance(topic, str)]
        if not_strings:
            message = f"{sites.name('topics')} has {listing(not_strings)}, but the name of a topic is a string"
            names = "'topic-a', 'topic-b'"
            fix = f"write set_topics({names})" if sites.fluent else f"write topics=[{names}]"
            yield sites.problem("topics", "topics", message, fix)
        wrong = [partition for partition in self.partitions if not is_topic_partition(partition)]
        if wrong:
            message = f"{sites.name('partitions')} has {wrong[0]!r}, which is not a topic partition"
            fix = "write {('topic-a', 0)}: topics and numbers from 0"
            yield sites.problem("partitions", "partitions", message, fix)

    def _offset_problems(self, setting: str, offsets: OffsetsInitializer) -> Iterator[Problem]:
        """Report offsets of topics that are not read, committed offsets without a group, and an end before 1970.

        Which topics a pattern matches is not known here.
        """
        sites = self._call_sites
        topics = set(self.topics) | {partition[0] for partition in self.partitions if is_topic_partition(partition)}
        unread = sorted({topic for topic, _, _ in offsets.specific} - topics)
        if unread and topics and self.topic_pattern is None:
            message = f"{sites.name(setting)} has offsets for {listing(unread)}, but the source reads {listing(topics)}"
            yield sites.problem(setting, "offsets-topic", message, "use offsets of the topics that are read")
        if offsets.mode == "group-offsets" and self._connector().group_id is None:
            message = f"{sites.name(setting)} are the committed offsets of the consumer group, but no group is set"
            yield sites.problem(setting, "group-missing", message, f"add {sites.with_value('group_id', 'my-group')}")
        if setting != "starting_offsets" and offsets.mode == "timestamp" and (offsets.millis or 0) < 0:
            message = f"{sites.name(setting)} is {offsets.millis} ms, but no Kafka record is older than 1970"
            yield sites.problem(setting, "bounded-timestamp", message, "use a time from 1970-01-01 UTC on")

    def _reset_problems(self) -> Iterator[Problem]:
        """Report a property ``auto.offset.reset`` that contradicts the starting offsets."""
        sites, own, named = self._call_sites, self.starting_offsets.reset, self.properties.get(_RESET)
        if named is not None and own is not None and own != named:
            setting = sites.with_value("starting_offsets", own).replace(repr(own), f"… reset={own!r}")
            message = f"{setting} and the property {_RESET!r} = {named!r} contradict each other"
            yield sites.problem(f"properties.{_RESET}", "reset-twice", message, "remove the property")

    def _watermark_problems(self, deserializer: KafkaRecordDeserializationSchema) -> Iterator[Problem]:
        """Report a watermark of a wrong form, and with a function as deserializer one with a wrong column or delay.

        Without a function the resolver checks column and delay.
        """
        sites = self._call_sites
        if self.watermark is not None and not _is_watermark(self.watermark):
            message = f"{sites.name('watermark')} is {self.watermark!r}, but must be a column and a delay"
            yield sites.problem("watermark", "watermark", message, "write ('timestamp', '5 seconds')")
            return
        if self.watermark is None or deserializer.function is None:
            return
        column, delay = self.watermark
        if column not in deserializer.row.names:
            message = (
                f"{sites.name('watermark')} names {column!r}, but the columns are {listing(deserializer.row.names)}"
            )
            fix = "name one of these"
            if column == RECORD_TIME and any(isinstance(f.type, t.TimestampLtz) for f in deserializer.row.fields):
                fix = "name the TIMESTAMP_LTZ column among these"
            elif column == RECORD_TIME:
                fix = "declare the column '`timestamp` TIMESTAMP_LTZ(3)', and let the function copy it from the record"
            yield sites.problem("watermark", "watermark-column", message, fix)
        try:
            parse_duration(delay)
        except ValueError as e:
            message = f"{sites.name('watermark')} has the delay {delay!r}: {e}"
            yield sites.problem("watermark", "watermark-delay", message, "write '5 seconds'")


class KafkaSourceBuilder(BuilderCalls):
    """Describes a source call by call. `build` checks all calls together.

    Only one of ``set_topics``, ``set_topic_pattern`` and ``set_partitions`` may be called. A setting that is made
    twice is an error; of a property, the last value counts.
    """

    def set_topics(self, *topics: str | Sequence[str]) -> Self:
        """Set the topics: ``set_topics("a", "b")``, or a list of them, as in Java's builder."""
        (only,) = topics if len(topics) == 1 else (None,)
        return self._set("topics", tuple(only) if isinstance(only, list | tuple) else topics)

    def set_topic_pattern(self, topic_pattern: str) -> Self:
        """Set a regular expression that the whole name of a topic must match."""
        return self._set("topic_pattern", topic_pattern)

    def set_partitions(self, partitions: Iterable[tuple[str, int]]) -> Self:
        """Set the topic partitions to read: ``{("topic-a", 0), ("topic-b", 5)}``."""
        return self._set("partitions", tuple(partitions))

    def set_group_id(self, group_id: str) -> Self:
        """Set the consumer group."""
        return self._set("group_id", group_id)

    def set_starting_offsets(self, starting_offsets: Initializer) -> Self:
        """Set where a read without a checkpoint starts; by default at the earliest records."""
        return self._set("starting_offsets", starting_offsets)

    def set_bounded(self, stopping_offsets: Initializer) -> Self:
        """Set where the source ends, in batch and in stream. The source then does not discover new partitions."""
        return self._set("bounded", stopping_offsets)

    def set_unbounded(self, stopping_offsets: Initializer) -> Self:
        """Set where a stream ends by itself, and a batch as well. New partitions are still discovered."""
        return self._set("unbounded", stopping_offsets)

    def set_deserializer(self, deserializer: KafkaRecordDeserializationSchema) -> Self:
        """Set what turns records into rows."""
        return self._set("deserializer", deserializer)

    def set_value_only_deserializer(self, deserializer: MessageSchema | KafkaDeserializer) -> Self:
        """Set the schema of the value, or the name of one of Kafka's own deserializers."""
        return self._set("value_only_deserializer", deserializer)

    def set_watermark(self, column: str, delay: str) -> Self:
        """Set the column of event time, and how late a row may be, such as ``"5 seconds"``.

        ``timestamp`` is the timestamp of the record, unless the schema of the value has a column with this name.
        """
        return self._set("watermark", (column, delay))

    def set_client_id_prefix(self, client_id_prefix: str) -> Self:
        """Set the prefix of the client ids."""
        return self._set("client_id_prefix", client_id_prefix)

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the greatest number of tasks of a read; by default twice the number of cores."""
        return self._set("parallelism", parallelism)

    def set_max_records_per_trigger(self, records: int) -> Self:
        """Set the greatest number of records of a micro-batch, over all partitions."""
        return self._set("max_records_per_trigger", records)

    def set_header_filter(self, header_filter: str) -> Self:
        """Read only the records whose headers match: ``"depart:toy|depart:book&!env:test"``."""
        return self._set("header_filter", header_filter)

    def set_check_group(self, check_group: bool) -> Self:
        """Set whether a stream fails to start while another application uses the consumer group."""
        return self._set("check_group", check_group)

    def build(self) -> KafkaSource:
        """Build the source.

        Raises:
            ResolveError: Something is missing, wrong or contradicts something else; all problems are
                reported at once, each with the location of its call.
        """
        return KafkaSource(**self._settings, properties=self._properties, _call_sites=self._call_sites())


def _is_watermark(value: object) -> TypeGuard[tuple[str, str]]:
    """Whether a value is a tuple of two strings; column and delay are not checked."""
    return isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)


def _initializer(value: Initializer | None) -> OffsetsInitializer | None:
    """Wrap a function in a custom initializer; return an initializer or None unchanged.

    For anything else the custom initializer has a problem.
    """
    if value is None or isinstance(value, OffsetsInitializer):
        return value
    return OffsetsInitializer.custom(value)
