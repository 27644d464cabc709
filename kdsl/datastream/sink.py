"""The sink: ``KafkaSink.builder()…build()``, or ``KafkaSink(…)`` with keywords.

It describes itself as a `TableDef`, which the resolver checks. What is computed for each row (topic, headers,
timestamp) becomes columns of the DataFrame, which the plan writes as metadata.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Self

import attrs

from kdsl.client_settings.properties import Value
from kdsl.cluster import Cluster
from kdsl.datastream.calls import BuilderCalls, BuilderTableDef, CallSites, caller_location
from kdsl.datastream.endpoint import Endpoint
from kdsl.datastream.event_time import find_event_time
from kdsl.datastream.outgoing import PARTITION, add_row_expressions, metadata_columns, record_fields, serialize_rows
from kdsl.datastream.schemas import MessageSchema
from kdsl.datastream.serializers import KafkaRecordSerializationSchema, RowExpression
from kdsl.datastream.settings import check_kind, client_properties, join_servers
from kdsl.declare.connector import ExactlyOnce, KafkaOptions, Latency, Transport
from kdsl.declare.definition import ColumnDef
from kdsl.errors import Problem
from kdsl.formats import ROW_KIND, format_class
from kdsl.notebooks import PlanText
from kdsl.plan.build import write_plan
from kdsl.plan.model import MetadataColumn, Part, WritePlan
from kdsl.plan.show import show
from kdsl.resolve import resolve
from kdsl.types import model as t
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

    from kdsl.plan.changes import AllowedChanges
    from kdsl.plan.model import OutputMode

__all__ = ["DeliveryGuarantee", "Guarantee", "KafkaSink", "KafkaSinkBuilder"]

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


class DeliveryGuarantee(StrEnum):
    """What a sink guarantees when a task, query or broker fails."""

    NONE = "none"
    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


Guarantee = DeliveryGuarantee | Literal["none", "at-least-once", "exactly-once"]


@attrs.frozen(init=False)
class KafkaSink(Endpoint):
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

    It is a frozen value; the fluent form and the form with keywords make equal values.

    Attributes:
        name: The sink's name in messages.
        bootstrap_servers: The brokers to connect to first; None if ``cluster`` names them.
        cluster: The cluster of the topics, instead of ``bootstrap_servers``.
        record_serializer: What turns rows into records.
        delivery_guarantee: What the sink guarantees when something fails.
        transactional_id_prefix: The prefix of the transactional ids of an exactly-once sink.
        exactly_once_mode: ``direct``, or ``staged`` for rows that are not the same when a batch is computed again.
        parallelism: The number of tasks that write.
        properties: Properties of the Kafka client under Java's names.
        transport: The client that writes.
        latency: Micro-batches, or real-time mode.
    """

    record_serializer: KafkaRecordSerializationSchema | None
    delivery_guarantee: str
    transactional_id_prefix: str | None
    exactly_once_mode: str

    direction = "write"
    schema_setting = "record_serializer"

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
        transport: Transport | None = None,
        latency: Latency = "micro-batch",
        name: str = "KafkaSink",
        _call_sites: CallSites | None = None,
    ) -> None:
        """Describe a sink, and check it; warnings are logged.

        Args:
            bootstrap_servers: The brokers to connect to first, ``host:port`` or a list. Either this or ``cluster``.
            cluster: The cluster of the topics, with security and secrets.
            record_serializer: What turns rows into records.
            delivery_guarantee: What the sink guarantees when something fails.
            transactional_id_prefix: The prefix of the transactional ids of an exactly-once sink.
            exactly_once_mode: ``direct``, or ``staged`` for rows that differ when a batch is computed again.
            parallelism: The number of tasks that write; by default the number of partitions of the DataFrame.
            properties: Properties of the Kafka client under Java's names.
            transport: The client that writes: ``librdkafka``, or ``jvm`` for Spark's own connector. None means
                librdkafka, or jvm for a login with Kerberos.
            latency: ``micro-batch``, or ``realtime``, which needs ``jvm`` and values that are encoded without Python.
            name: The sink's name in messages.

        Raises:
            ResolveError: A setting is missing, wrong or contradicts another; all problems are reported at once.
        """
        sites = _call_sites or CallSites(where=caller_location())
        problems: list[Problem] = []
        # None means the default, not the guarantee "none"
        guarantee = check_kind(delivery_guarantee, str, "delivery_guarantee", sites, problems)
        self.__attrs_init__(  # pyright: ignore[reportAttributeAccessIssue]
            name=name,
            bootstrap_servers=join_servers(bootstrap_servers),
            cluster=check_kind(cluster, Cluster, "cluster", sites, problems),
            record_serializer=check_kind(
                record_serializer, KafkaRecordSerializationSchema, "record_serializer", sites, problems
            ),
            delivery_guarantee=str(guarantee or DeliveryGuarantee.AT_LEAST_ONCE),
            transactional_id_prefix=transactional_id_prefix,
            exactly_once_mode=exactly_once_mode,
            parallelism=parallelism,
            properties=client_properties(properties, {}, sites, problems),
            transport=transport,
            latency=latency,
            call_sites=sites,
        )
        self._check(problems)

    @staticmethod
    def builder() -> KafkaSinkBuilder:
        """Create a fluent builder of a sink."""
        return KafkaSinkBuilder()

    def write(self, df: DataFrame, *, write_id: str | None = None, adopt: bool = False) -> None:
        """Append the rows of a DataFrame. Columns that the sink does not use are ignored.

        Without a timestamp in the serializer the event time of a row becomes the timestamp of its record (not with the
        transport ``jvm``). Of several columns of event time none is used, which is logged, as are rows that are left
        out. A missing topic is created if the brokers and the client property ``allow.auto.create.topics`` (true by
        default) allow it. The session gets kdsl's data source, and the process a temporary folder until it ends; with
        the transport ``jvm`` the session gets Spark's Kafka connector instead.

        Args:
            df: A batch DataFrame with the columns of the key's and the value's schema.
            write_id: Identifies an exactly-once write that may be repeated; required within ``foreachBatch``.
            adopt: Take over an exactly-once prefix that another job has used, and take a write that is recorded under
                ``write_id`` as done without a check of its rows.

        Raises:
            ResolveError: Columns are missing or have other types, or an expression does not fit the DataFrame; all
                problems are reported at once.
            KdslError: As for `plan`; or the DataFrame is a stream or a changelog, ``write_id`` is given without
                exactly-once, kdsl does not support the session, the partitioner cannot be imported, the brokers refuse
                or cannot be reached, or a topic does not exist and is not created.
            ExactlyOnceError: The write cannot be exactly once.
            WriteError: A task failed with an error of kdsl, for example because a record cannot be written. Other
                failures of tasks are raised as Spark's exceptions.
        """
        from kdsl.run.write import write

        rows, plan = self._prepare(df)
        write(rows, plan, self._cluster(), write_id=write_id, adopt=adopt)

    def write_stream(
        self,
        df: DataFrame,
        *,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        output_mode: OutputMode = "append",
        adopt: bool = False,
        allow: AllowedChanges = False,
    ) -> StreamingQuery:
        """Start a query that appends the rows of a stream, with timestamps as in `write`.

        The plan of the write is stored in the checkpoint; a change of it since the last run is logged. Topics are
        created as by `write`. The session changes as by `write`, and gets a listener that reports metrics; the process
        gets temporary folders until it ends.

        Args:
            df: A streaming DataFrame with the columns of the key's and the value's schema.
            checkpoint: The checkpoint folder of the query.
            trigger: Arguments of Spark's ``trigger``: ``{"availableNow": True}``, ``{"processingTime": "10 seconds"}``.
            name: The query's name.
            output_mode: Spark's output mode.
            adopt: Take over an exactly-once prefix that another job has used.
            allow: What may differ from the plan that wrote the checkpoint: ``topic``, ``key``, ``format``, ``prefix``,
                or True for all.

        Raises:
            ResolveError: As for `write`.
            KdslError: The DataFrame is not a stream, the sink does not accept the output mode or the trigger; or as for
                `write`.
            CheckpointError: The checkpoint was written by another plan, or cannot be read or written.
            ExactlyOnceError: The write cannot be exactly once.
        """
        from kdsl.run.write import write_stream

        rows, plan = self._prepare(df)
        return write_stream(
            rows,
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
        """Describe what a write does; errors as for `plan`. Needs neither Java nor a broker."""
        serializer = self.record_serializer
        lines = [] if serializer is None else serializer.describe()
        return PlanText(
            "\n".join(
                [show(self.plan()), *(f"  {'records' if not i else '':<10}{line}" for i, line in enumerate(lines))]
            )
        )

    def plan(self) -> WritePlan:
        """What a write does, as a frozen value; a DataFrame with event time adds the timestamp of each record.

        Raises:
            KdslError: What a format refers to, such as a file with a schema, can no longer be read. The settings were
                checked when the sink was made.
        """
        assert self.record_serializer is not None
        return self._plan(self.record_serializer)

    def _plan(self, serializer: KafkaRecordSerializationSchema) -> WritePlan:
        """Plan the write of a serializer's records.

        If the serializer has a function for whole records, their partition is written from a hidden column. Otherwise
        the value has the columns of the serializer's schema, in its order.
        """
        plan = write_plan(resolve(self._table(serializer), "write"))
        if serializer.function is not None:
            partition = t.Field(PARTITION, t.Int())
            return attrs.evolve(
                plan,
                columns=attrs.evolve(plan.columns, fields=(*plan.columns.fields, partition)),
                metadata=(*plan.metadata, MetadataColumn(partition.name, "partition", partition.type)),
                properties=self.properties,
            )
        assert serializer.value is not None
        fields = serializer.value.fields("value")
        value = Part(serializer.value.format.portable(), t.Row(fields, nullable=False), tuple(f.name for f in fields))
        return attrs.evolve(plan, value=value, properties=self.properties)

    def _prepare(self, df: DataFrame) -> tuple[DataFrame, WritePlan]:
        """Return a DataFrame with exactly the columns that are written, and the plan of their write.

        A function for whole records replaces the rows. Otherwise a hidden column is added for each expression, also for
        the event time (see `_with_event_time`), and columns that the sink does not use are dropped, except a row kind.
        """
        serializer = self.record_serializer
        assert serializer is not None
        if serializer.function is not None:
            return serialize_rows(df, serializer.function, record_fields(serializer)), self._plan(serializer)
        serializer = self._with_event_time(serializer, df)
        plan = self._plan(serializer)
        df = add_row_expressions(df, serializer.row_expressions(), self.name)
        # a row kind is kept: the write then refuses a changelog, instead of losing what its rows mean
        selected = {ROW_KIND, *(name.lower() for name in plan.columns.names)}
        return df.select(*(quote_name(name) for name in df.columns if name.lower() in selected)), plan

    def _with_event_time(
        self, serializer: KafkaRecordSerializationSchema, df: DataFrame
    ) -> KafkaRecordSerializationSchema:
        """Return the serializer, with the DataFrame's column of event time as the timestamp if it sets none.

        Unchanged if there is no such column or several, which is logged, or with the transport ``jvm``, which cannot
        write timestamps.
        """
        if serializer.timestamp is not None or self.plan().transport == "jvm":  # which cannot write timestamps
            return serializer
        column = find_event_time(df, self.name)
        return serializer if column is None else attrs.evolve(serializer, timestamp=RowExpression(quote_name(column)))

    def _own_problems(self) -> Iterator[Problem]:
        """Yield the problems of a sink that its table definition cannot show.

        They are a missing serializer and its problems, Python functions in real-time mode, and columns that have
        different types in key and value.
        """
        sites, serializer = self._call_sites, self.record_serializer
        if serializer is None:
            message = "nothing defines how rows become records"
            fix = f"add {sites.name('record_serializer')} with a KafkaRecordSerializationSchema"
            yield sites.problem("record_serializer", "serializer-missing", message, fix)
            return
        yield from (p.at(sites.location("record_serializer")) for p in serializer.problems)
        yield from self._latency_problems("record_serializer", python=serializer.runs_python())
        key, value = ({f.name: f.type for f in serializer.fields(side)} for side in ("key", "value"))
        for name in (name for name in key if name in value and key[name] != value[name]):
            message = f"the column {name!r} is {key[name]} in the key and {value[name]} in the value"
            fix = f"declare {name!r} with the same type in both schemas"
            yield Problem("serializer-types", message, fix).at(serializer.where)

    def _definition(self) -> BuilderTableDef:
        """Build the definition of the table that the sink writes; a placeholder replaces a missing serializer."""
        return self._table(self.record_serializer or _PLACEHOLDER)

    def _table(self, serializer: KafkaRecordSerializationSchema) -> BuilderTableDef:
        """Build the table that the sink writes with a serializer; it does not have the serializer's problems."""
        sites = self._call_sites
        key, value = serializer.fields("key"), serializer.fields("value")
        keys = {f.name for f in key}
        shared = keys & {f.name for f in value}
        several = len(serializer.topics) > 1
        pattern = "|".join(map(re.escape, serializer.topics)) or ANY_TOPIC
        options: dict[str, Any] = {
            "topic": (serializer.topic,) if serializer.topic is not None else serializer.topics if several else (),
            "topic_pattern": None if serializer.topic is not None or several else pattern,
            "value_fields": "EXCEPT_KEY" if key and not shared else "ALL",
            "partitioner": serializer.partitioner,
            "sink_parallelism": self.parallelism,
            "delivery": self.delivery_guarantee,
            "transactional_id_prefix": self.transactional_id_prefix,
            "exactly_once": self.exactly_once_mode,
            "transport": self.transport,
            "latency": self.latency,
        }
        return BuilderTableDef(
            name=self.name,
            columns=(
                *(ColumnDef(f.name, f.type, key=True) for f in key),
                *(ColumnDef(f.name, f.type) for f in value if f.name not in keys),
                *metadata_columns(serializer),
            ),
            options=KafkaOptions(**options),
            key_format=serializer.key.format if serializer.key is not None else None,
            value_format=serializer.value.format if serializer.value is not None else None,
            properties=self._all_properties(),
            where=sites.where,
            option_locations=self._option_locations(_SETTINGS),
            call_sites=sites,
            settings=_SETTINGS,
        )


class KafkaSinkBuilder(BuilderCalls):
    """Describes a sink call by call. `build` checks all calls together.

    A setting that is made twice is an error; of a property, the last value counts.
    """

    def set_record_serializer(self, record_serializer: KafkaRecordSerializationSchema) -> Self:
        """Set what turns rows into records."""
        return self._set("record_serializer", record_serializer)

    def set_delivery_guarantee(self, delivery_guarantee: Guarantee) -> Self:
        """Set the delivery guarantee; by default at-least-once."""
        return self._set("delivery_guarantee", delivery_guarantee)

    def set_transactional_id_prefix(self, transactional_id_prefix: str) -> Self:
        """Set the prefix of an exactly-once sink's transactional ids; no other job on the cluster may use it."""
        return self._set("transactional_id_prefix", transactional_id_prefix)

    def set_exactly_once_mode(self, exactly_once_mode: ExactlyOnce) -> Self:
        """Set ``direct``, or ``staged`` for rows that are not the same when a batch is computed again."""
        return self._set("exactly_once_mode", exactly_once_mode)

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the number of tasks that write."""
        return self._set("parallelism", parallelism)

    def set_kafka_producer_config(self, properties: Mapping[str, Value]) -> Self:
        """Set several properties: the same as `set_properties`, under the name of Flink's builder."""
        return self.set_properties(properties)

    def build(self) -> KafkaSink:
        """Build the sink.

        Raises:
            ResolveError: Something is missing, wrong or contradicts something else; all problems are
                reported at once, each with the location of its call.
        """
        return KafkaSink(**self._settings, properties=self._properties, _call_sites=self._call_sites())


_PLACEHOLDER = KafkaRecordSerializationSchema(
    topic="topic", value=MessageSchema(format_class("raw")(), t.Row((t.Field("value", t.BYTES),), nullable=False))
)
"""Replaces a missing serializer, so that the other settings can be checked."""
