"""The fluent form of sources and sinks: each call is kept with its place, and judged when all of them are there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

from kdsl.builders.calls import Said, caller
from kdsl.builders.records import KafkaRecordDeserializationSchema
from kdsl.builders.schemas import KafkaDeserializer, MessageSchema
from kdsl.builders.serializers import KafkaRecordSerializationSchema
from kdsl.builders.sink import Guarantee, KafkaSink
from kdsl.builders.source import Initializer, KafkaSource
from kdsl.client.properties import Value
from kdsl.cluster import Cluster
from kdsl.declare.connector import ExactlyOnce, Latency, Transport
from kdsl.errors import Where

if TYPE_CHECKING:
    from kdsl.secrets import Secret

__all__ = ["KafkaSinkBuilder", "KafkaSourceBuilder"]


class _Calls:
    """What the builders of sources and of sinks share."""

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}
        self._properties: dict[str, Value] = {}
        self._places: dict[str, Where] = {}
        self._twice: list[str] = []

    def _set(self, setting: str, value: Any) -> Self:
        if setting in self._given:
            self._twice.append(setting)
        self._given[setting] = value
        self._places[setting] = caller()
        return self

    def _said(self) -> Said:
        twice = tuple(dict.fromkeys(self._twice))
        return Said(fluent=True, where=caller(), places=dict(self._places), twice=twice)

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """The brokers to begin with: ``host:port``, several with commas between them."""
        return self._set("bootstrap_servers", bootstrap_servers)

    def set_cluster(self, cluster: Cluster) -> Self:
        """Where the topics live, instead of bootstrap servers: with security and secrets."""
        return self._set("cluster", cluster)

    def set_property(self, key: str, value: str | int | float | bool | Secret) -> Self:
        """A setting of the Kafka client, or of the source, under Java's name."""
        self._properties[key] = value
        self._places[f"properties.{key}"] = caller()
        return self

    def set_properties(self, properties: Mapping[str, Value]) -> Self:
        """Several settings; they come on top of those that are set already."""
        self._properties.update(properties)
        self._places.update(dict.fromkeys((f"properties.{key}" for key in properties), caller()))
        return self

    def set_latency(self, latency: Latency) -> Self:
        """Micro-batches, or real-time mode: ``realtime``, with the transport ``jvm``."""
        return self._set("latency", latency)

    def set_transport(self, transport: Transport) -> Self:
        """The client that reads or writes: ``librdkafka``, or ``jvm``, which is Spark's own connector."""
        return self._set("transport", transport)

    def set_name(self, name: str) -> Self:
        """What messages call it."""
        return self._set("name", name)


class KafkaSourceBuilder(_Calls):
    """Describes a source call by call. Calls are judged by `build`, all of them together.

    ``set_topics``, ``set_topic_pattern`` and ``set_partitions`` exclude each other; what is called twice is refused,
    except for properties, the last of which counts.
    """

    def set_topics(self, *topics: str) -> Self:
        """The topics."""
        return self._set("topics", topics)

    def set_topic_pattern(self, topic_pattern: str) -> Self:
        """A regular expression that the whole name of a topic must match."""
        return self._set("topic_pattern", topic_pattern)

    def set_partitions(self, partitions: Iterable[tuple[str, int]]) -> Self:
        """The partitions: ``{("topic-a", 0), ("topic-b", 5)}``."""
        return self._set("partitions", tuple(partitions))

    def set_group_id(self, group_id: str) -> Self:
        """The consumer group."""
        return self._set("group_id", group_id)

    def set_starting_offsets(self, starting_offsets: Initializer) -> Self:
        """Where a read starts that has no checkpoint; by default at the earliest records."""
        return self._set("starting_offsets", starting_offsets)

    def set_bounded(self, stopping_offsets: Initializer) -> Self:
        """Where the source ends, in batch and in stream. Then nothing looks for new partitions."""
        return self._set("bounded", stopping_offsets)

    def set_unbounded(self, stopping_offsets: Initializer) -> Self:
        """Where a stream ends by itself."""
        return self._set("unbounded", stopping_offsets)

    def set_deserializer(self, deserializer: KafkaRecordDeserializationSchema) -> Self:
        """What makes rows of records."""
        return self._set("deserializer", deserializer)

    def set_value_only_deserializer(self, deserializer: MessageSchema | KafkaDeserializer) -> Self:
        """The schema of the value, or the name of one of Kafka's own deserializers."""
        return self._set("value_only_deserializer", deserializer)

    def set_watermark(self, column: str, delay: str) -> Self:
        """The column of event time, and how late a row may be, as ``"5 seconds"``."""
        return self._set("watermark", (column, delay))

    def set_client_id_prefix(self, client_id_prefix: str) -> Self:
        """How the client ids begin."""
        return self._set("client_id_prefix", client_id_prefix)

    def set_parallelism(self, parallelism: int) -> Self:
        """How many tasks a read is cut into at most; by default twice the cores."""
        return self._set("parallelism", parallelism)

    def set_max_records_per_trigger(self, records: int) -> Self:
        """The most records of a micro-batch, over all partitions."""
        return self._set("max_records_per_trigger", records)

    def set_header_filter(self, header_filter: str) -> Self:
        """Keeps the records whose headers match: ``"depart:toy|depart:book&!env:test"``."""
        return self._set("header_filter", header_filter)

    def set_check_group(self, check_group: bool) -> Self:
        """Whether a stream is refused while somebody else uses the group."""
        return self._set("check_group", check_group)

    def build(self) -> KafkaSource:
        """The source.

        Raises:
            ResolveError: Something is missing, wrong or contradicts something else; everything is told, each with the
                place of its call.
        """
        return KafkaSource(**self._given, properties=self._properties, _said=self._said())


class KafkaSinkBuilder(_Calls):
    """Describes a sink call by call. Calls are judged by `build`, all of them together.

    What is called twice is refused, except for properties, the last of which counts.
    """

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> Self:
        """How rows become records."""
        return self._set("record_serializer", record_serializer)

    def set_delivery_guarantee(self, delivery_guarantee: Guarantee) -> Self:
        """What the sink promises; by default at-least-once."""
        return self._set("delivery_guarantee", delivery_guarantee)

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> Self:
        """How the names of an exactly-once sink's transactions begin; no other job on the cluster may use it."""
        return self._set("transactional_id_prefix", transactional_id_prefix)

    def set_exactly_once_mode(self, exactly_once_mode: ExactlyOnce) -> Self:
        """``direct``, or ``staged`` for rows that are not the same when a batch is worked out again."""
        return self._set("exactly_once_mode", exactly_once_mode)

    def set_parallelism(self, parallelism: int) -> Self:
        """How many tasks write."""
        return self._set("parallelism", parallelism)

    def set_kafka_producer_config(self, properties: Mapping[str, Value]) -> Self:
        """The same as `set_properties`, under the name that Flink's builder has for it."""
        return self.set_properties(properties)

    def build(self) -> KafkaSink:
        """The sink.

        Raises:
            ResolveError: Something is missing, wrong or contradicts something else; everything is told, each with the
                place of its call.
        """
        return KafkaSink(**self._given, properties=self._properties, _said=self._said())
