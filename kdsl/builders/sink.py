"""The sink of the builder: ``KafkaSink.builder()…build()``, or ``KafkaSink(…)`` with keywords (seeds 002 and 003).

It makes a `TableDef` of itself, which the resolver judges; what is worked out for each row (topic, headers, timestamp)
becomes columns of the DataFrame, which the plan writes as metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

import attrs

from kdsl.builders.calls import BuiltDef, Said, caller
from kdsl.builders.connected import Connected
from kdsl.builders.outgoing import PARTITION, by_function, metadata_columns, record_fields, with_chosen
from kdsl.builders.schemas import MessageSchema
from kdsl.builders.serializers import KafkaRecordSerializationSchema
from kdsl.builders.settings import given_properties, joined, of_kind
from kdsl.client.properties import Properties, Value
from kdsl.cluster import Cluster
from kdsl.declare.connector import ExactlyOnce, KafkaOptions, Latency, Transport
from kdsl.declare.definition import ColumnDef
from kdsl.errors import Problem
from kdsl.formats import ROW_KIND
from kdsl.plan.build import write_plan
from kdsl.plan.model import MetadataColumn, Part, WritePlan
from kdsl.plan.show import show
from kdsl.resolve import resolve
from kdsl.types import model as t
from kdsl.types.sql import quoted
from kdsl_formats.raw import Raw

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from kdsl.builders.fluent import KafkaSinkBuilder
    from kdsl.run.checkpoint.kept import Allowed
    from kdsl.table import OutputMode

__all__ = ["DeliveryGuarantee", "Guarantee", "KafkaSink"]

ANY_TOPIC = "[A-Za-z0-9._-]+"
_SETTINGS = {
    "topic": "set_topic",
    "topic_pattern": "set_topic_selector",
    "partitioner": "set_partitioner",
    "delivery": "delivery_guarantee",
    "transactional_id_prefix": "transactional_id_prefix",
    "exactly_once": "exactly_once_mode",
    "sink_parallelism": "parallelism",
    "transport": "transport",
    "latency": "latency",
}
_PLACES = {
    "topic": "record_serializer",
    "key.format": "record_serializer",
    "value.format": "record_serializer",
    "sink.partitioner": "record_serializer",
    "sink.delivery-guarantee": "delivery_guarantee",
    "sink.transactional-id-prefix": "transactional_id_prefix",
    "sink.exactly-once.mode": "exactly_once_mode",
    "sink.parallelism": "parallelism",
    "transport": "transport",
    "latency": "latency",
}


class DeliveryGuarantee(StrEnum):
    """What a sink promises."""

    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


Guarantee = DeliveryGuarantee | Literal["none", "at-least-once", "exactly-once"]


@attrs.frozen(init=False)
class KafkaSink(Connected):
    """A sink of Kafka records, as Flink's DataStream API builds one.

    ```python
    sink = (
        KafkaSink.builder()
        .set_bootstrap_servers("localhost:9092")
        .set_record_serializer(
            KafkaRecordSerializationSchema.builder()
            .set_topic("output-topic")
            .set_value_serialization_schema(SimpleStringSchema())
            .build()
        )
        .set_delivery_guarantee(DeliveryGuarantee.AT_LEAST_ONCE)
        .build()
    )
    sink.write(lines)
    ```

    It is a frozen value; the fluent form and the form with keywords give equal ones.

    Attributes:
        name: What messages call it.
        bootstrap_servers: The brokers to begin with; None where a cluster says it.
        cluster: Where the topics live, instead of ``bootstrap_servers``.
        record_serializer: How rows become records.
        delivery_guarantee: What it promises.
        transactional_id_prefix: How the names of the transactions of an exactly-once sink begin.
        exactly_once_mode: ``direct``, or ``staged`` for rows that are not the same when a batch is worked out again.
        parallelism: How many tasks write.
        properties: Settings of the Kafka client under Java's names.
        transport: The client that writes.
        latency: Micro-batches, or real-time mode.
    """

    name: str
    bootstrap_servers: str | None
    cluster: Cluster | None
    record_serializer: KafkaRecordSerializationSchema | None
    delivery_guarantee: str
    transactional_id_prefix: str | None
    exactly_once_mode: str
    parallelism: int | None
    properties: Properties
    transport: Transport
    latency: Latency
    _said: Said = attrs.field(eq=False, repr=False)

    direction = "write"
    settings_of = _PLACES

    def __init__(
        self,
        *,
        bootstrap_servers: str | Sequence[str] | None = None,
        cluster: Cluster | None = None,
        record_serializer: KafkaRecordSerializationSchema | None = None,
        delivery_guarantee: Guarantee = DeliveryGuarantee.AT_LEAST_ONCE,
        transactional_id_prefix: str | None = None,
        exactly_once_mode: ExactlyOnce = "direct",
        parallelism: int | None = None,
        properties: Mapping[str, Value] | None = None,
        transport: Transport = "librdkafka",
        latency: Latency = "micro-batch",
        name: str = "KafkaSink",
        _said: Said | None = None,
    ) -> None:
        """Describe a sink.

        Args:
            bootstrap_servers: The brokers to begin with, ``host:port``, or several. Either this or ``cluster``.
            cluster: Where the topics live, with security and secrets.
            record_serializer: How rows become records.
            delivery_guarantee: What it promises.
            transactional_id_prefix: How the names of the transactions of an exactly-once sink begin.
            exactly_once_mode: ``direct``, or ``staged`` for rows that differ when a batch is worked out again.
            parallelism: How many tasks write; by default as many as the DataFrame has partitions.
            properties: Settings of the Kafka client under Java's names.
            transport: The client that writes: ``librdkafka`` or ``jvm``, Spark's own connector.
            latency: ``micro-batch``, or ``realtime``: with ``jvm``, and with values that need no Python.
            name: What messages call it.

        Raises:
            ResolveError: Something is missing, wrong or contradicts something else; everything is told.
        """
        said = _said or Said(where=caller())
        found: list[Problem] = []
        given = given_properties(properties, {}, said, found)
        promised = of_kind(delivery_guarantee, str, "delivery_guarantee", said, found)  # None is not said, not "none"
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue]
            name=name,
            bootstrap_servers=joined(bootstrap_servers),
            cluster=of_kind(cluster, Cluster, "cluster", said, found),
            record_serializer=of_kind(
                record_serializer, KafkaRecordSerializationSchema, "record_serializer", said, found
            ),
            delivery_guarantee=str(promised or DeliveryGuarantee.AT_LEAST_ONCE),
            transactional_id_prefix=transactional_id_prefix,
            exactly_once_mode=exactly_once_mode,
            parallelism=parallelism,
            properties=given,
            transport=transport,
            latency=latency,
            said=said,
        )
        self._judge(found)

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """A fluent builder of a sink."""
        from kdsl.builders.fluent import KafkaSinkBuilder

        return KafkaSinkBuilder()

    def write(self, df: DataFrame, *, write_id: str | None = None, adopt: bool = False) -> None:
        """Append the rows of a DataFrame; what is not part of a key or value, nor needed for the rest, is left out.

        Args:
            df: A batch DataFrame with the columns of the key's and the value's schema.
            write_id: Names an exactly-once write that may be made again; needed within ``foreachBatch``.
            adopt: Take over an exactly-once prefix of somebody else.

        Raises:
            ResolveError: Columns are missing or of other types; all are told.
            KdslError: No broker answers, a topic does not exist, or a record cannot be written.
        """
        from kdsl.run.write import write

        plan = self.plan()
        write(self._prepared(df, plan), plan, self._cluster(), write_id=write_id, adopt=adopt)

    def write_stream(
        self,
        df: DataFrame,
        *,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        output_mode: OutputMode = "append",
        adopt: bool = False,
        allow: Allowed = False,
    ) -> StreamingQuery:
        """Start a query that appends the rows of a stream.

        Args:
            df: A streaming DataFrame with the columns of the key's and the value's schema.
            checkpoint: The folder of the query's progress.
            trigger: Arguments of Spark's ``trigger``: ``{"availableNow": True}``, ``{"processingTime": "10 seconds"}``.
            name: The query's name.
            output_mode: Spark's output mode.
            adopt: Take over an exactly-once prefix of somebody else.
            allow: What may differ from the plan that has written the checkpoint: ``topic``, ``key``, ``format``,
                ``prefix``, or True for all.

        Raises:
            ResolveError: Columns are missing or of other types; all are told.
            KdslError: As for `write`.
        """
        from kdsl.run.write import write_stream

        plan = self.plan()
        return write_stream(
            self._prepared(df, plan),
            plan,
            self._cluster(),
            checkpoint=checkpoint,
            trigger=trigger,
            name=name,
            output_mode=output_mode,
            adopt=adopt,
            allow=allow,
        )

    def explain(self) -> str:
        """What a write does, as text; made without Java and without a broker."""
        serializer = self.record_serializer
        lines = [] if serializer is None else serializer.describe()
        return "\n".join(
            [show(self.plan()), *(f"  {'records' if not i else '':<10}{text}" for i, text in enumerate(lines))]
        )

    def plan(self) -> WritePlan:
        """What a write does, as a frozen value."""
        made = write_plan(resolve(self._definition(), "write"))
        serializer = self.record_serializer
        assert serializer is not None
        if serializer.function is not None:
            partition = t.Field(PARTITION, t.Int())
            return attrs.evolve(
                made,
                columns=attrs.evolve(made.columns, fields=(*made.columns.fields, partition)),
                metadata=(*made.metadata, MetadataColumn(partition.name, "partition", partition.type)),
                properties=self.properties,
            )
        assert serializer.value is not None
        fields = serializer.value.fields("value")
        value = Part(serializer.value.format.portable(), t.Row(fields, nullable=False), tuple(f.name for f in fields))
        return attrs.evolve(made, value=value, properties=self.properties)

    def _prepared(self, df: DataFrame, plan: WritePlan) -> DataFrame:
        """The DataFrame with the columns that a plan writes."""
        made = self.record_serializer
        assert made is not None
        if made.function is not None:
            return by_function(df, made.function, record_fields(made))
        df = with_chosen(df, made.chosen())
        wanted = {ROW_KIND, *(name.lower() for name in plan.columns.names)}  # that of a changelog is refused, not lost
        return df.select(*(quoted(name) for name in df.columns if name.lower() in wanted))

    def _own_problems(self) -> Iterator[Problem]:
        """What only a sink of the builder can have wrong."""
        said, serializer = self._said, self.record_serializer
        if serializer is None:
            message = "nothing says how rows become records"
            fix = f"add {said.name('record_serializer')} with a KafkaRecordSerializationSchema"
            yield said.problem("record_serializer", "serializer-missing", message, fix)
            return
        yield from (p.at(said.places.get("record_serializer", said.where)) for p in serializer.problems)
        yield from self._latency_problems("record_serializer", python=serializer.function is not None)
        key, value = ({f.name: f.type for f in serializer.fields(side)} for side in ("key", "value"))
        for name in (name for name in key if name in value and key[name] != value[name]):
            message = f"the column {name!r} is {key[name]} in the key and {value[name]} in the value"
            yield Problem("serializer-types", message, "give it one type").at(serializer.where)

    def _definition(self) -> BuiltDef:
        said, made = self._said, self.record_serializer or _NOTHING
        key, value = made.fields("key"), made.fields("value")
        keys = {f.name for f in key}
        shared = keys & {f.name for f in value}
        several = len(made.topics) > 1
        pattern = "|".join(map(re.escape, made.topics)) or ANY_TOPIC
        options: dict[str, Any] = {
            "topic": (made.topic,) if made.topic is not None else made.topics if several else (),
            "topic_pattern": None if made.topic is not None or several else pattern,
            "value_fields": "EXCEPT_KEY" if key and not shared else "ALL",
            "partitioner": made.partitioner,
            "sink_parallelism": self.parallelism,
            "delivery": self.delivery_guarantee,
            "transactional_id_prefix": self.transactional_id_prefix,
            "exactly_once": self.exactly_once_mode,
            "transport": self.transport,
            "latency": self.latency,
        }
        return BuiltDef(
            name=self.name,
            columns=(
                *(ColumnDef(f.name, f.type, key=True) for f in key),
                *(ColumnDef(f.name, f.type) for f in value if f.name not in keys),
                *metadata_columns(made),
            ),
            options=KafkaOptions(**options),
            key_format=made.key.format if made.key is not None else None,
            value_format=made.value.format if made.value is not None else None,
            properties=self._merged(),
            where=said.where,
            places=self._places(),
            said=said,
            settings=_SETTINGS,
        )


_NOTHING = KafkaRecordSerializationSchema(
    topic="topic", value=MessageSchema(Raw(), t.Row((t.Field("value", t.BYTES),), nullable=False))
)
