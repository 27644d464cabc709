"""Writes the tables of a batch to Kafka: in one transaction if it is exactly-once."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING

import attrs

from kdsl.changelog.target import Batch
from kdsl.client_settings.properties import Properties
from kdsl.cluster import Cluster
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.diagnostics.clients import open_admin
from kdsl.errors import KafkaReadError, KdslError, pluralize
from kdsl.formats import TableId
from kdsl.ingest.ends import KafkaTopics
from kdsl.ingest.messages import PlainTable, encode_packets, encode_rows
from kdsl.ingest.run.sinks.writer import SinkTable, SinkWriter
from kdsl.ingest.schema_changes import Refusal, SchemaChange
from kdsl.plan.build import write_plan
from kdsl.plan.model import MetadataColumn, WritePlan
from kdsl.resolve import resolve
from kdsl.run.admin.cluster_admin import ClusterAdmin
from kdsl.run.session import get_zone
from kdsl.run.write import Prepare, write, write_prepared
from kdsl.spark_internals.arrow import map_in_arrow
from kdsl.spark_internals.workers import current_query_id
from kdsl.types import model as t
from kdsl.types.widening import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)
_WRITE_ID = "ingest"
_MESSAGES = "key binary, value binary"
_RECORDS = f"{_MESSAGES}, topic string, headers array<struct<key: string, value: binary>>, partition int"
_HEADERS = t.Array(t.Row((t.Field("key", t.STRING), t.Field("value", t.BYTES))))


class TopicCreationError(KdslError):
    """The topic of a new table cannot be created."""


def plan_write(sink: KafkaTopics) -> WritePlan:
    """The plan of the write of messages, which name their topic, and their partition or NULL, if the key chooses it.

    Raises:
        ResolveError: The prefix of an exactly-once sink is too long, or has blanks around it or invisible characters.
    """
    chosen = sink.valid()
    columns = [
        ColumnDef("key", t.BYTES, "metadata", metadata_key="__raw_key__"),
        ColumnDef("value", t.BYTES, "metadata", metadata_key="__raw_value__"),
        ColumnDef("topic", t.VarChar(nullable=False), "metadata", metadata_key="topic"),
        ColumnDef("headers", _HEADERS, "metadata", metadata_key="header-list"),
    ]
    options = KafkaOptions(
        topic_pattern=".+", delivery=chosen.delivery, transactional_id_prefix=chosen.transactional_id_prefix
    )
    plan = write_plan(resolve(TableDef(sink.name or "sink", tuple(columns), options=options), "write"))
    partition = t.Field("partition", t.Int())
    return attrs.evolve(
        plan,
        columns=attrs.evolve(plan.columns, fields=(*plan.columns.fields, partition)),
        metadata=(*plan.metadata, MetadataColumn("partition", "partition", partition.type)),
    )


class KafkaWriter(SinkWriter):
    """Writes the tables of a batch to Kafka.

    Args:
        sink: The sink.
        cluster: Its cluster, with its secrets.
        name: The name of the ingestion, if several share a query.

    Raises:
        ResolveError: As for `plan_write`.
    """

    pairs_updates = True

    def __init__(self, sink: KafkaTopics, cluster: Cluster, name: str = "") -> None:
        self._sink, self._cluster = sink.split()[0].valid(), cluster
        self._write_id = f"{_WRITE_ID}/{name}" if name else _WRITE_ID
        self._plan = plan_write(self._sink)
        self._have_no_id: set[str] = set()

    def read_schema(self, spark: SparkSession, table: TableId, known: TableSchema | None) -> TableSchema | None:
        """What is known of a table: topics have no columns."""
        del spark, table
        return known

    def identify(self, spark: SparkSession, tables: Sequence[TableId]) -> dict[TableId, str]:
        """The ids of tables' topics; see `SinkWriter.identify`. Topics of brokers before 2.8 have none.

        Raises:
            KafkaReadError: The brokers refuse, or do not answer.
            ResolveError: The client settings have errors, or a reference to a secret cannot be resolved.
        """
        del spark
        names = {table: self._sink.topic_of(table) for table in tables}
        asked = sorted({*names.values()} - self._have_no_id)
        topics = self._open_admin().topics(asked) if asked else {}
        self._have_no_id.update(name for name, topic in topics.items() if not topic.id)
        ids = {name: topic.id for name, topic in topics.items() if topic.id}
        return {table: ids[name] for table, name in names.items() if name in ids}

    def refuse(self, spark: SparkSession, changes: Mapping[TableId, Sequence[SchemaChange]]) -> list[Refusal]:
        """Refuse new tables whose topic does not exist, if ``allow.auto.create.topics`` is false.

        Otherwise no broker is asked, and `write` creates the topics.

        Raises:
            KafkaReadError: The brokers refuse, or do not answer.
            ResolveError: The client settings have errors, or a reference to a secret cannot be resolved.
        """
        del spark
        new = {table: changes[table][0] for table in changes if changes[table][0].tag == "create.table"}
        if not new or self._cluster.kdsl_settings.auto_create_topics:
            return []
        topics = {table: self._sink.topic_of(table) for table in new}
        existing = self._open_admin().topics(list(topics.values()), known=True)
        fix = "create it, as kdsl apply does; or allow it"
        return [
            Refusal(table, None, f"its topic {topic!r} does not exist, and allow.auto.create.topics is false",
                    fix, new[table].record_id, code="missing-topic")
            for table, topic in topics.items() if topic not in existing
        ]  # fmt: skip

    def _open_admin(self) -> ClusterAdmin:
        """Open an admin client of the cluster."""
        return open_admin(self._cluster, self._plan.table)

    def _create_topics(self, tables: Sequence[SinkTable]) -> None:
        """Create the topics of tables that are new, as the sink's options say, or else with the brokers' defaults.

        Those that exist stay as they are. Topics of tables that earlier batches wrote are not created again.
        """
        if not self._cluster.kdsl_settings.auto_create_topics:
            return
        new = [table.table for table in tables if any(one.tag == "create.table" for one in table.evolution.changes)]
        topics = list(dict.fromkeys(map(self._sink.topic_of, new)))
        admin = self._open_admin() if topics else None
        existing = admin.topics(topics) if admin is not None else {}
        configs = {name: str(value) for name, value in Properties(self._sink.topic_configs).reveal().items()}
        for topic in (topic for topic in topics if topic not in existing):
            assert admin is not None
            partitions, replicas = self._sink.topic_partitions, self._sink.topic_replication_factor
            try:
                admin.create_topic(topic, partitions, replicas, configs)
            except KafkaReadError as e:
                if topic not in admin.topics([topic]):  # another writer may have created it
                    raise TopicCreationError(
                        f"the topic {topic!r} does not exist, and cannot be created: {e}; create it, as kdsl apply "
                        "does, or let this user create topics"
                    ) from e
                continue
            count = pluralize(partitions, "partition") if partitions else "the default number of partitions"
            sizes = [count, *(f"{k}={v}" for k, v in configs.items())]
            _log.info("created the topic %s with %s", topic, ", ".join(sizes))
        if admin is not None and len(existing) < len(topics):
            admin.topics(topics, known=True)  # other brokers learn of a new topic later

    def write(self, tables: Sequence[SinkTable], batch: Batch) -> None:
        """Write the messages of all tables; see `SinkWriter.write`.

        With exactly-once, they are one write, and a batch is written once. Topics of new tables are created.

        Raises:
            TopicCreationError: A topic cannot be created.
            KdslError: No broker answers, or a topic does not exist; an ExactlyOnceError if exactly-once cannot be kept,
                or a WriteError if a row cannot be encoded or sent.
        """
        if not tables:
            return
        self._create_topics(tables)
        messages = [self._messages(table) for table in tables if table.plain is None]
        plain = [table for table in tables if table.plain is not None]
        if plain:
            packets, encode = self._encode_plain(plain)
            if self._plan.transactions is None and self._plan.transport == "librdkafka":
                write_prepared(packets, self._plan, self._cluster, encode)
            else:
                messages.append(packets.mapInArrow(encode, _RECORDS))
        if not messages:
            return
        while len(messages) > 1:  # by halves: Spark analyzes each union with everything in it
            pairs = zip_longest(messages[::2], messages[1::2])
            messages = [a if b is None else a.unionAll(b) for a, b in pairs]
        write_id = None
        if self._plan.transactions is not None:  # within a query the write finds the batch by itself
            context = messages[0].sparkSession.sparkContext
            write_id = self._write_id if current_query_id(context) else f"{self._write_id}-{batch.writer}"
        write(messages[0], self._plan, self._cluster, write_id=write_id)

    def _encode_plain(self, tables: Sequence[SinkTable]) -> tuple[DataFrame, Prepare]:
        """The packets of tables whose rows are written as they are read, and what makes all their messages in one pass.

        There must be at least one table, and all have the same packets.
        """
        entries: dict[str, list[PlainTable]] = {}
        packets: DataFrame | None = None
        for table in tables:
            rows = table.plain
            assert rows is not None
            packets = rows.packets
            names = {column.name for work in table.tables for column in work.plan.transformed.columns}
            schema = TableSchema(tuple(f for f in table.schema.columns if f.name in names), table.schema.primary_key)
            topic = self._sink.topic_of(table.table)
            one = PlainTable(rows.plan, table.table, schema, topic, tuple(self._headers(table)), rows.reporter)
            entries.setdefault(rows.table, []).append(one)
        assert packets is not None
        zone = get_zone(packets.sparkSession)
        partition = 0 if self._sink.partition_strategy == "all-to-zero" else None
        encode = partial(encode_packets, self._sink, entries, partition, zone)
        return packets.select("table", "records"), encode

    def _messages(self, table: SinkTable) -> DataFrame:
        """The messages of a table, all of one topic, with partition and headers.

        The partition is NULL if the key chooses it, and so are headers without any.
        """
        from pyspark.sql import functions as F

        sink = self._sink
        encode = partial(encode_rows, sink, table.table, table.written)
        partition = F.lit(0) if sink.partition_strategy == "all-to-zero" else F.lit(None)
        headers = [
            F.struct(F.lit(k).alias("key"), F.lit(v).cast("binary").alias("value")) for k, v in self._headers(table)
        ]
        empty = F.lit(None).cast("array<struct<key: string, value: binary>>")
        return map_in_arrow(table.changes(), encode, _MESSAGES).select(
            "key",
            "value",
            F.lit(sink.topic_of(table.table)).alias("topic"),
            (F.array(*headers) if headers else empty).alias("headers"),
            partition.cast("int").alias("partition"),
        )  # fmt: skip

    def _headers(self, table: SinkTable) -> list[tuple[str, str]]:
        """The headers of a table's messages: those of the sink, and the names of the table's id if the sink says so.

        Names that the id lacks are empty.
        """
        headers = list(self._sink.headers())
        if self._sink.table_id_headers:
            namespace, schema, name = ("", "", *table.table)[-3:]
            headers += [("namespace", namespace), ("schemaName", schema), ("tableName", name)]
        return headers
