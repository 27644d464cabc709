"""The source of the builder: ``KafkaSource.builder()…build()``, or ``KafkaSource(…)`` with keywords (seeds 002, 003).

It makes a `TableDef` of itself, which the resolver judges, and completes the plan with what no table can say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeGuard

import attrs

from kdsl.builders.batches import Mapped
from kdsl.builders.calls import BuiltDef, Said, caller
from kdsl.builders.connected import Connected
from kdsl.builders.offsets import CustomOffsets, OffsetsInitializer
from kdsl.builders.records import KafkaRecordDeserializationSchema
from kdsl.builders.schemas import KafkaDeserializer, MessageSchema, kafka_schema
from kdsl.builders.settings import given_properties, hashable, joined, of_kind, several
from kdsl.client.connector import Reset, connector_settings
from kdsl.client.properties import Properties, Value
from kdsl.cluster import Cluster
from kdsl.declare.connector import KafkaOptions, Latency, Transport
from kdsl.declare.definition import WatermarkDef
from kdsl.durations import parse_duration
from kdsl.errors import Problem, listing
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan
from kdsl.plan.show import show
from kdsl.resolve import resolve
from kdsl.types import model as t
from kdsl_formats.raw import Raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kdsl.builders.fluent import KafkaSourceBuilder

__all__ = ["Initializer", "KafkaSource"]

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
_PLACES = {
    "topic": "topics",
    "topic-pattern": "topic_pattern",
    "scan.startup.mode": "starting_offsets",
    "scan.startup.timestamp-millis": "starting_offsets",
    "properties.group.id": "group_id",
    "properties.client.id.prefix": "client_id_prefix",
    "value.format": "deserializer",
    "scan.parallelism": "parallelism",
    "scan.max-records-per-trigger": "max_records_per_trigger",
    "scan.header-filter": "header_filter",
    "scan.check.duplicated.group.id": "check_group",
    "transport": "transport",
    "latency": "latency",
}
_RESET = "auto.offset.reset"
_BYTES = t.Row((t.Field("value", t.BYTES),), nullable=False)
Initializer = OffsetsInitializer | CustomOffsets


@attrs.frozen(init=False)
class KafkaSource(Connected):
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

    It is a frozen value; the fluent form and the form with keywords give equal ones.

    Attributes:
        name: What messages call it.
        bootstrap_servers: The brokers to begin with; None where a cluster says it.
        cluster: Where the topics live, instead of ``bootstrap_servers``.
        topics: The topics.
        topic_pattern: A regular expression that the whole name of a topic must match.
        partitions: The partitions, as topic and number.
        group_id: The consumer group.
        starting_offsets: Where a read starts that has no checkpoint.
        bounded: Where a batch or a stream ends.
        unbounded: Where a stream ends by itself; a batch as well.
        deserializer: What makes rows of records.
        watermark: The column of event time, and how late a row may be.
        properties: Settings of the Kafka client under Java's names.
        parallelism: How many tasks a read is cut into at most.
        max_records_per_trigger: The most records of a micro-batch.
        header_filter: Keeps the records whose headers match.
        check_group: Whether a stream is refused while somebody else uses the group.
        transport: The client that reads.
        latency: Micro-batches, or real-time mode.
    """

    name: str
    bootstrap_servers: str | None
    cluster: Cluster | None
    topics: tuple[str, ...]
    topic_pattern: str | None
    partitions: tuple[tuple[str, int], ...]
    group_id: str | None
    starting_offsets: OffsetsInitializer
    bounded: OffsetsInitializer | None
    unbounded: OffsetsInitializer | None
    deserializer: KafkaRecordDeserializationSchema | None
    watermark: tuple[str, str] | None
    properties: Properties
    parallelism: int | None
    max_records_per_trigger: int | None
    header_filter: str | None
    check_group: bool
    transport: Transport
    latency: Latency
    _said: Said = attrs.field(eq=False, repr=False)

    direction = "read"
    settings_of = _PLACES

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
        transport: Transport = "librdkafka",
        latency: Latency = "micro-batch",
        name: str = "KafkaSource",
        _said: Said | None = None,
    ) -> None:
        """Describe a source.

        Args:
            bootstrap_servers: The brokers to begin with, ``host:port``, or several. Either this or ``cluster``.
            cluster: Where the topics live, with security and secrets.
            topics: A topic, or several.
            topic_pattern: Instead, a regular expression that the whole name of a topic must match.
            partitions: Instead, partitions: ``{("topic-a", 0), ("topic-b", 5)}``.
            group_id: The consumer group; by default there is none.
            starting_offsets: Where a read starts that has no checkpoint; by default at the earliest records.
            bounded: Where the source ends, in batch and in stream.
            unbounded: Where a stream ends by itself.
            deserializer: What makes rows of records. Either this or ``value_only_deserializer``.
            value_only_deserializer: The schema of the value, or the name of one of Kafka's deserializers.
            watermark: The column of event time and how late a row may be: ``("timestamp", "5 seconds")``.
            properties: Settings of the Kafka client under Java's names.
            client_id_prefix: How the client ids begin.
            parallelism: How many tasks a read is cut into at most; by default twice the cores.
            max_records_per_trigger: The most records of a micro-batch, over all partitions.
            header_filter: Keeps the records whose headers match: ``"depart:toy|depart:book&!env:test"``.
            check_group: Refuse to start a stream while somebody else uses the group.
            transport: The client that reads: ``librdkafka`` or ``jvm``, Spark's own connector.
            latency: ``micro-batch``, or ``realtime``: with ``jvm``, and with values that need no Python.
            name: What messages call it.

        Raises:
            ResolveError: Something is missing, wrong or contradicts something else; everything is told.
        """
        said = _said or Said(where=caller())
        found: list[Problem] = []
        if value_only_deserializer is not None:
            if deserializer is not None:
                both = f"{said.name('deserializer')} and {said.name('value_only_deserializer')}"
                message = f"{both} both say how records become rows"
                found.append(said.problem("deserializer", "deserializer-twice", message, "keep one of them"))
            if isinstance(value_only_deserializer, str):
                place = said.places.get("value_only_deserializer", said.where)
                value_only_deserializer = kafka_schema(value_only_deserializer, "Deserializer", place)
            deserializer = KafkaRecordDeserializationSchema.value_only(value_only_deserializer)
        deserializer = of_kind(deserializer, KafkaRecordDeserializationSchema, "deserializer", said, found)
        given = given_properties(properties, {"group.id": group_id, "client.id.prefix": client_id_prefix}, said, found)
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue]
            name=name,
            bootstrap_servers=joined(bootstrap_servers),
            cluster=of_kind(cluster, Cluster, "cluster", said, found),
            topics=tuple(map(hashable, several(topics))),
            topic_pattern=topic_pattern,
            partitions=tuple(sorted(dict.fromkeys(map(hashable, several(partitions))), key=repr)),
            group_id=group_id,
            starting_offsets=_initializer(starting_offsets) or OffsetsInitializer.earliest(),
            bounded=_initializer(bounded),
            unbounded=_initializer(unbounded),
            deserializer=deserializer,
            watermark=watermark,
            properties=given,
            parallelism=parallelism,
            max_records_per_trigger=max_records_per_trigger,
            header_filter=header_filter,
            check_group=check_group,
            transport=transport,
            latency=latency,
            said=said,
        )
        self._judge(found)

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """A fluent builder of a source."""
        from kdsl.builders.fluent import KafkaSourceBuilder

        return KafkaSourceBuilder()

    def read(self, spark: SparkSession) -> DataFrame:
        """Read once, to where the source ends, or else to the ends that the partitions have now.

        Args:
            spark: The session, classic or Connect.

        Raises:
            KdslError: The brokers cannot be reached, a topic is missing, or an offset does not exist.
        """
        from kdsl.run.read import read

        return self._rows(read(spark, self.plan(), self._cluster()))

    def read_stream(self, spark: SparkSession) -> DataFrame:
        """Read a stream. Offsets of a checkpoint come before the starting offsets; a custom initializer is not asked.

        Args:
            spark: The session, classic or Connect.
        """
        from kdsl.run.read import read_stream

        return self._rows(read_stream(spark, self.plan(), self._cluster()))

    def explain(self) -> str:
        """What a read does, as text; made without Java and without a broker."""
        lines = [show(self.plan())]
        deserializer = self.deserializer
        if deserializer is not None and deserializer.function is not None:
            columns = ", ".join(f"{f.name} {f.type}" for f in deserializer.row.fields)
            lines.append(f"  {'rows':<10}by {deserializer.describe()}: {columns}")
            if self.watermark is not None:
                lines.append(f"  {'watermark':<10}{self.watermark[0]}, at most {self.watermark[1]} late")
        return "\n".join(lines)

    def plan(self) -> ReadPlan:
        """What a read does, as a frozen value."""
        made = read_plan(resolve(self._definition(), "read"))
        end = self.bounded or self.unbounded
        changes: dict[str, Any] = {
            "topics": attrs.evolve(made.topics, partitions=self.partitions),
            "start": self.starting_offsets.start(self._reset()),
            "group_id": self._connector().group_id,
            "properties": self.properties,
        }
        if end is not None:
            changes |= {"stop": end.stop(), "discovery": None}
        return attrs.evolve(made, **changes)

    def _rows(self, df: DataFrame) -> DataFrame:
        from kdsl.types.spark import spark_schema

        made = self.deserializer
        assert made is not None
        if made.function is None:
            return df
        df = df.mapInArrow(Mapped(made.function, made.describe(), made.row, optional=False), spark_schema(made.row))
        return df if self.watermark is None or not df.isStreaming else df.withWatermark(*self.watermark)

    def _connector(self) -> Any:
        return connector_settings(self._merged().revealed())

    def _reset(self) -> Reset | None:
        reset: Reset | None = self._connector().auto_offset_reset
        return reset

    def _definition(self) -> BuiltDef:
        said, start = self._said, self.starting_offsets
        timed = start.mode == "timestamp"
        chosen = [place for place in self.partitions if _is_place(place)]
        topics = self.topics or tuple(dict.fromkeys(topic for topic, _ in chosen))
        if any(not isinstance(topic, str) for topic in topics):
            topics = ("topic",)  # `_topic_problems` tells them
        options = KafkaOptions(
            topic=topics,
            topic_pattern=self.topic_pattern,
            startup="timestamp" if timed else "earliest-offset",  # the plan says the rest
            startup_timestamp=start.millis if timed else None,
            scan_parallelism=self.parallelism,
            max_records_per_trigger=self.max_records_per_trigger,
            header_filter=self.header_filter,
            check_group=self.check_group,
            transport=self.transport,
            latency=self.latency,
        )
        made = self.deserializer or KafkaRecordDeserializationSchema(MessageSchema(Raw(), _BYTES))
        on_value = made.function is None
        settings = {**_SETTINGS, **({} if self.topics or not self.partitions else {"topic": "partitions"})}
        return BuiltDef(
            name=self.name,
            columns=made.columns(),
            options=options,
            value_format=made.value.format if made.value is not None else None,
            watermarks=(WatermarkDef(*self.watermark, said.places.get("watermark", said.where)),)
            if _is_watermark(self.watermark) and on_value
            else (),
            properties=self._merged(),
            where=said.where,
            places=self._places(),
            said=said,
            settings=settings,
        )

    def _own_problems(self) -> Iterator[Problem]:
        """What only a source of the builder can have wrong."""
        said = self._said
        yield from self._topic_problems()
        if self.deserializer is None:
            both = f"{said.name('deserializer')} or {said.name('value_only_deserializer')}"
            message = "nothing says how records become rows"
            fix = f"add {both}, as {said.with_value('value_only_deserializer', 'StringDeserializer')}"
            yield said.problem("deserializer", "deserializer-missing", message, fix)
        else:
            yield from (p.at(said.places.get("deserializer", said.where)) for p in self.deserializer.problems)
            yield from self._watermark_problems(self.deserializer)
            yield from self._latency_problems("deserializer", python=self.deserializer.function is not None)
        ends = {name: getattr(self, name) for name in ("bounded", "unbounded") if getattr(self, name) is not None}
        for setting, offsets in {"starting_offsets": self.starting_offsets, **ends}.items():
            yield from (p.at(said.places.get(setting, said.where)) for p in offsets.problems)
            yield from self._offset_problems(setting, offsets)
        if len(ends) == 2:
            message = f"{said.name('bounded')} and {said.name('unbounded')} both say where the source ends"
            yield said.problem("unbounded", "bounded-twice", message, "keep one of them")
        for setting, offsets in ends.items():
            if offsets.mode == "earliest":
                message = f"{said.name(setting)} is the earliest offset, before which there is no record"
                yield said.problem(setting, "bounded-earliest", message, "end at the latest, a time, or given offsets")
        yield from self._reset_problems()

    def _topic_problems(self) -> Iterator[Problem]:
        said = self._said
        ways = [s for s in ("topics", "topic_pattern", "partitions") if getattr(self, s)]
        if "partitions" in ways and len(ways) > 1:
            names = listing(map(said.name, ways)).replace("'", "")
            message = f"{names} are all set, but only one can say what is read"
            yield said.problem("partitions", "partitions-and-topics", message, "keep one of them")
        given: tuple[object, ...] = self.topics
        strange = [topic for topic in given if not isinstance(topic, str)]
        if strange:
            told = " and ".join(map(repr, strange))
            message = f"{said.name('topics')} has {told}, and the name of a topic is a text"
            yield said.problem("topics", "topics", message, f"write {said.with_value('topics', 'topic-a')}")
        wrong = [place for place in self.partitions if not _is_place(place)]
        if wrong:
            message = f"{said.name('partitions')} has {wrong[0]!r}, which is no partition of a topic"
            yield said.problem("partitions", "partitions", message, "write {('topic-a', 0)}: topics and numbers from 0")

    def _offset_problems(self, setting: str, offsets: OffsetsInitializer) -> Iterator[Problem]:
        said = self._said
        topics = set(self.topics) | {place[0] for place in self.partitions if _is_place(place)}
        strange = sorted({topic for topic, _, _ in offsets.given} - topics)
        if strange and topics and self.topic_pattern is None:
            message = (
                f"{said.name(setting)} gives offsets for {listing(strange)}, and the source reads {listing(topics)}"
            )
            yield said.problem(setting, "offsets-topic", message, "give offsets of topics that are read")
        if offsets.mode == "group-offsets" and self._connector().group_id is None:
            message = f"{said.name(setting)} are those that the consumer group has committed, but there is no group"
            yield said.problem(setting, "group-missing", message, f"add {said.with_value('group_id', 'my-group')}")
        if setting != "starting_offsets" and offsets.mode == "timestamp" and (offsets.millis or 0) < 0:
            message = f"{said.name(setting)} is {offsets.millis} ms after 1970, which is no time of a Kafka record"
            yield said.problem(setting, "bounded-timestamp", message, "give a time from 1970 on")

    def _reset_problems(self) -> Iterator[Problem]:
        said, own, named = self._said, self.starting_offsets.reset, self.properties.get(_RESET)
        if named is not None and own is not None and own != named:
            shown = said.with_value("starting_offsets", own).replace(repr(own), f"… reset={own!r}")
            message = f"{shown} and the property {_RESET!r} = {named!r} contradict each other"
            yield said.problem(f"properties.{_RESET}", "reset-twice", message, "remove the property")

    def _watermark_problems(self, deserializer: KafkaRecordDeserializationSchema) -> Iterator[Problem]:
        said = self._said
        if self.watermark is not None and not _is_watermark(self.watermark):
            message = f"{said.name('watermark')} is {self.watermark!r}, which is no column with a delay"
            yield said.problem("watermark", "watermark", message, "write ('timestamp', '5 seconds')")
            return
        if self.watermark is None or deserializer.function is None:
            return
        column, delay = self.watermark
        if column not in deserializer.row.names:
            message = (
                f"{said.name('watermark')} names {column!r}, and the columns are {listing(deserializer.row.names)}"
            )
            yield said.problem("watermark", "watermark-column", message, "name one of these")
        try:
            parse_duration(delay)
        except ValueError as e:
            message = f"{said.name('watermark')} has the delay {delay!r}: {e}"
            yield said.problem("watermark", "watermark-delay", message, "write '5 seconds'")


def _is_watermark(given: object) -> TypeGuard[tuple[str, str]]:
    return isinstance(given, tuple) and len(given) == 2 and all(isinstance(part, str) for part in given)


def _is_place(given: object) -> bool:
    match given:
        case (str(), int() as number):
            return number >= 0
        case _:
            return False


def _initializer(given: Initializer | None) -> OffsetsInitializer | None:
    if given is None or isinstance(given, OffsetsInitializer):
        return given
    return OffsetsInitializer.custom(given)
