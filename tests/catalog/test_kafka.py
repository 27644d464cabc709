"""The catalog in Python: on a real Kafka, a real registry and Spark."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

import kdsl
from kdsl import (
    Cluster,
    InferenceError,
    JsonSchemaConfluent,
    KafkaCatalog,
    ResolveError,
    TopicMissingError,
    infer_columns,
)
from kdsl.catalog.kafka import define_table
from kdsl.catalog.options import OF_CLUSTER, CatalogKeywords, CatalogOptions
from kdsl.catalog.stored import FILE, Inference, StoredSchema
from kdsl.catalog.topic_schema import SideSchema, TopicSchema
from kdsl.codegen import to_ddl
from kdsl.errors import CheckpointError
from kdsl.registry import RegisteredSchema, registry_client
from kdsl.table import Table
from kdsl.testing import LocalKafka, LocalRegistry, Record
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types import model as t
from kdsl.types.spark import TIME_TYPE_SETTING
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.json import Json
from kdsl_formats.protobuf import ProtobufConfluent
from kdsl_formats.raw import Raw
from tests.formats.test_observe_cases import SHAPES

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POSITION = [
    ("partition", t.Int(nullable=False)),
    ("offset", t.BigInt(nullable=False)),
    ("timestamp", t.TimestampLtz(3, nullable=False)),
]


def columns(table: Table) -> list[tuple[str, t.DataType]]:
    return [(c.name, c.type) for c in table.definition.columns]


@pytest.fixture
def shop(kdsl_kafka: LocalKafka) -> KafkaCatalog:
    return KafkaCatalog("shop", Cluster(kdsl_kafka.bootstrap_servers), format="json", sample=100)


def test_nothing_is_read_until_a_table_is_asked_for() -> None:
    catalog = KafkaCatalog("shop", Cluster("localhost:1"), format="json", sample=100)

    assert (catalog.name, catalog.options.sample) == ("shop", 100)


def test_a_table_has_its_position_and_the_columns_of_key_and_value(
    shop: KafkaCatalog, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession
) -> None:
    topic = kdsl_topic(partitions=3)
    kdsl_kafka.produce(
        topic,
        Record('{"id": 1, "name": "Ann", "at": "2024-05-01 12:30:00"}', key='{"id": 1}', partition=0),
        Record('{"id": 2, "name": null, "paid": 2.5}', key='{"id": 2}', partition=2),
    )

    assert topic in shop.tables()
    table = shop.table(topic)
    assert columns(table) == [
        *POSITION,
        ("key_id", t.BigInt()),
        ("value_id", t.BigInt()),
        ("value_name", t.STRING),
        ("value_at", t.Timestamp(0)),
        ("value_paid", t.Double()),
    ]
    assert table.definition.primary_key == ("partition", "offset")
    assert table.definition.options.value_fields == "EXCEPT_KEY"
    rows = table.read(spark).select("partition", "offset", "key_id", "value_id", "value_name", "value_paid").collect()
    assert sorted(map(tuple, rows)) == [(0, 0, 1, 1, "Ann", None), (2, 0, 2, 2, None, 2.5)]
    explained = table.explain()
    assert "from the newest 2 records of 2 partitions:" in explained
    assert "key_id BIGINT, value_id BIGINT, value_name STRING, value_at TIMESTAMP(0), value_paid DOUBLE" in explained
    assert table.schema().fieldNames() == [name for name, _ in columns(table)]


def test_the_newest_records_of_every_partition_are_looked_at(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic(partitions=4)
    old = [Record('{"old": 1}', partition=p) for p in range(4)]
    both = ["1", '"x"', "2.5", "true"]
    new = [Record(f'{{"both": {both[p]}, "p{p}": {i}}}', partition=p) for p in range(4) for i in range(5)]
    kdsl_kafka.produce(topic, *old, *new)
    catalog = KafkaCatalog("c", Cluster(kdsl_kafka.bootstrap_servers), format="json", sample=5, value_prefix="")

    table = catalog.table(topic)

    assert {name for name, _ in columns(table)[3:]} == {"both", "p0", "p1", "p2", "p3"}
    assert dict(columns(table))["both"] == t.STRING
    assert table.definition.inferred is not None
    assert table.definition.inferred.source == "the newest 20 records of 4 partitions"


def test_a_table_stays_as_it_was_inferred_until_it_is_refreshed(
    shop: KafkaCatalog, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"a": 1}')
    before = columns(shop.table(topic))
    kdsl_kafka.produce(topic, '{"a": "x", "b": true}')

    assert columns(shop.table(topic)) == before == [*POSITION, ("value_a", t.BigInt())]
    assert columns(shop.refresh(topic))[3:] == [("value_a", t.STRING), ("value_b", t.Boolean())]
    assert columns(shop.table(topic))[3:] == [("value_a", t.STRING), ("value_b", t.Boolean())]


def test_a_key_that_is_not_json_is_bytes(
    shop: KafkaCatalog, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, Record('{"a": 1}', key=b"\xff\x00"), Record('{"a": 2}', key='{"id": 1}'), '{"a": 3}')

    table = shop.table(topic)

    assert columns(table)[3:] == [("key_col", t.BYTES), ("value_a", t.BigInt())]
    assert table.definition.key_format == Raw()
    assert table.definition.inferred is not None
    assert table.definition.inferred.notes == ("1 of 2 keys are not json, so that one column has the bytes of the key",)
    rows = [tuple(row) for row in table.read(spark).orderBy("offset").select("key_col", "value_a").collect()]
    assert rows == [(b"\xff\x00", 1), (b'{"id": 1}', 2), (None, 3)]
    named = KafkaCatalog("c", shop.cluster, format="json", key_column="raw")
    assert columns(named.table(topic))[3] == ("key_raw", t.BYTES)


def test_a_compacted_topic_is_an_upsert_table(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession
) -> None:
    topic = kdsl_topic(config={"cleanup.policy": "compact"})
    kdsl_kafka.produce(
        topic,
        Record('{"n": 1}', key='{"id": 7}'),
        Record('{"n": 2}', key='{"id": 7}'),
        Record('{"n": 5}', key='{"id": 8}'),
        Record('{"n": 6}', key='{"id": 9}'),
        Record(None, key='{"id": 9}'),
    )
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    table = KafkaCatalog("c", cluster, format="json").table(topic)

    assert table.definition.upserts is not None
    assert table.definition.primary_key == ("key_id",)
    current = table.snapshot(spark).orderBy("key_id").select("key_id", "value_n", "offset").collect()
    assert [tuple(row) for row in current] == [(7, 2, 1), (8, 5, 2)]
    inserts = KafkaCatalog("c", cluster, format="json", compacted_as_upsert=False).table(topic)
    assert inserts.definition.upserts is None
    assert inserts.definition.primary_key == ("partition", "offset")


def test_a_topic_that_is_not_compacted_is_not_an_upsert_table(
    shop: KafkaCatalog, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, Record('{"n": 1}', key='{"id": 7}'))

    assert shop.table(topic).definition.upserts is None


def test_nested_columns_and_strings(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"a": {"b": 1, "c": {"d": [1, 2]}}, "e": 1.50}')
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    flat = KafkaCatalog("c", cluster, format="json", flatten=True, value_prefix="").table(topic)
    strings = KafkaCatalog("c", cluster, format="json", primitive_as_string=True, value_prefix="").table(topic)

    assert columns(flat)[3:] == [("a.b", t.BigInt()), ("a.c.d", t.STRING), ("e", t.Double())]
    assert tuple(flat.read(spark).select("`a.b`", "`a.c.d`", "e").collect()[0]) == (1, "[1,2]", 1.5)
    assert columns(strings)[3:] == [("a", t.STRING), ("e", t.STRING)]
    assert tuple(strings.read(spark).select("a", "e").collect()[0]) == ('{"b":1,"c":{"d":[1,2]}}', "1.50")


@pytest.fixture
def spark_with_time(spark: SparkSession) -> Iterator[SparkSession]:
    spark.conf.set(TIME_TYPE_SETTING, "true")
    yield spark
    spark.conf.unset(TIME_TYPE_SETTING)


def test_a_topic_of_twenty_shapes_reads_as_the_same_table_declared_by_hand(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark_with_time: SparkSession
) -> None:
    topic = kdsl_topic(partitions=2)
    documents = [{"id": i, **values, "nothing": None} for i, (_, values) in enumerate(SHAPES * 5)]
    kdsl_kafka.produce(topic, *(Record(json.dumps(d), partition=i % 2) for i, d in enumerate(documents)))
    by_hand = ["id BIGINT", *(f"{name} {kind}" for kind, values in SHAPES for name in values)]
    declared = kdsl.sql(
        f"CREATE TABLE t (`partition` INT METADATA, `offset` BIGINT METADATA, {', '.join(by_hand)}) "
        f"WITH ('connector' = 'kafka', 'topic' = '{topic}', 'scan.startup.mode' = 'earliest-offset', "
        "'value.format' = 'json')"
    )
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    inferred = KafkaCatalog("c", cluster, format="json", value_prefix="").table(topic)

    names = [f.name for f in declared.schema()]
    assert sorted(name for name, _ in columns(inferred)) == sorted([*names, "timestamp"])
    types = {name: kind.as_nullable() for name, kind in columns(inferred)}
    assert {c.name: c.type.as_nullable() for c in declared.definition.columns}.items() <= types.items()
    rows = inferred.read(spark_with_time).select(names).orderBy("id").collect()
    assert rows == declared.read(spark_with_time, cluster).orderBy("id").collect()
    assert len(rows) == 100


def test_change_data_is_a_changelog(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession) -> None:
    topic = kdsl_topic()
    source = '"source": {"db": "shop", "table": "orders"}'
    kdsl_kafka.produce(topic, f'{{"before": null, "after": {{"id": 1, "n": "x"}}, {source}, "op": "c"}}')
    catalog = KafkaCatalog("c", Cluster(kdsl_kafka.bootstrap_servers), format="debezium-json")

    table = catalog.table(topic)

    assert [tuple(row) for row in table.read(spark).select("_row_kind", "value_id").collect()] == [("+I", 1)]


def test_what_keeps_columns_from_being_inferred_is_reported(
    shop: KafkaCatalog, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic
) -> None:
    empty, words, changes, missing = kdsl_topic(), kdsl_topic(), kdsl_topic(), f"{kdsl_topic()}x"
    kdsl_kafka.produce(words, "no json")
    change = '{"data": [{"id": "1"}], "type": "INSERT", "database": "d", "table": "t"}'
    kdsl_kafka.produce(changes, change, change, '{"before": null}')
    debezium = KafkaCatalog("c", shop.cluster, format="debezium-json")

    with pytest.raises(InferenceError, match="there is no record that shows a column yet"):
        shop.table(empty)
    with pytest.raises(InferenceError, match="1 of 1 message cannot be read as json, the first because"):
        shop.table(words)
    with pytest.raises(InferenceError, match=r"3 of 3 messages .*; they look like canal-json; name their format"):
        debezium.table(changes)
    with pytest.raises(TopicMissingError, match=rf"has no table '{missing}' \(did you mean '{missing[:-1]}'\?\)"):
        shop.table(missing)


def test_a_column_with_the_name_of_another_is_refused(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"offset": 1, "a": 2}')
    catalog = KafkaCatalog("c", Cluster(kdsl_kafka.bootstrap_servers), format="json", value_prefix="")

    with pytest.raises(ResolveError) as caught:
        catalog.table(topic)
    assert [p.code for p in caught.value.problems] == ["catalog-column"]


def test_options_are_checked_together() -> None:
    with pytest.raises(ResolveError) as caught:
        KafkaCatalog("c", Cluster("a:1"), sample=0, sampel=3, key_prefix="k", value_prefix="k_")  # type: ignore[call-arg]

    assert sorted(p.code for p in caught.value.problems) == ["catalog-prefix", "option-unknown", "option-value"]
    assert "did you mean 'sample'" in str(caught.value.problems)


def test_the_arguments_are_the_options() -> None:
    assert set(CatalogKeywords.__annotations__) == {a.name for a in attrs.fields(CatalogOptions)} - set(OF_CLUSTER)
    with pytest.raises(ResolveError, match="the catalog 'c'") as caught:
        KafkaCatalog("c", Cluster("a:1"), registry="http://r")  # type: ignore[call-arg]
    assert [p.fix for p in caught.value.problems] == ["set it in the Cluster"]


# -- a schema registry


@pytest.fixture
def cluster(kdsl_kafka: LocalKafka, kdsl_registry: LocalRegistry) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers, registry=kdsl_registry.url)


def test_tables_of_subjects_have_the_columns_of_their_schemas(
    cluster: Cluster, kdsl_topic: MakeTopic, spark: SparkSession
) -> None:
    assert cluster.registry is not None
    proto = 'syntax = "proto3"; package p; message Order { int64 id = 1; string note = 2; }'
    tables = {
        "avro": AvroConfluent(),
        "json": JsonSchemaConfluent(),
        "proto": ProtobufConfluent(message_class_name="p.Order", proto_text=proto),
    }
    catalog = KafkaCatalog("shop", cluster)
    for kind, chosen in tables.items():
        topic = kdsl_topic(kind)
        definition = kdsl.sql(
            f"CREATE TABLE w (id BIGINT NOT NULL, note STRING NOT NULL) WITH ('connector' = 'kafka', 'topic' = "
            f"'{topic}', 'value.format' = 'raw')"
        ).definition
        table = Table(attrs.evolve(definition, value_format=chosen))
        table.write(spark.createDataFrame([(1, "a"), (2, "b")], "id BIGINT NOT NULL, note STRING NOT NULL"), cluster)

        read = catalog.table(topic)

        assert [name for name, _ in columns(read)] == ["partition", "offset", "timestamp", "value_id", "value_note"]
        assert columns(read)[3][1].as_nullable() == t.BigInt()
        assert read.definition.value_format is not None
        assert read.definition.value_format.identifier == chosen.identifier
        assert read.definition.inferred is not None
        assert read.definition.inferred.source == f"the subject {topic}-value (version 1)"
        assert sorted(map(tuple, read.read(spark).select("value_id", "value_note").collect())) == [(1, "a"), (2, "b")]


def test_keys_have_their_own_subject_or_are_looked_at(
    cluster: Cluster, kdsl_topic: MakeTopic, kdsl_kafka: LocalKafka
) -> None:
    assert cluster.registry is not None
    client = registry_client(cluster.registry)
    schema = RegisteredSchema('{"type": "object", "properties": {"a": {"type": "integer"}}}', "JSON")
    registered, text, plain = kdsl_topic(), kdsl_topic(), kdsl_topic()
    for topic in (registered, text, plain):
        number = client.register(f"{topic}-value", schema)
        message = b"\0" + number.to_bytes(4, "big") + b'{"a": 1}'
        kdsl_kafka.produce(topic, Record(message, key='{"k": 1}'))
    client.register(
        f"{registered}-key",
        RegisteredSchema('{"type": "record", "name": "K", "fields": [{"name": "id", "type": "int"}]}'),
    )
    client.register(f"{text}-key", RegisteredSchema('"string"'))
    catalog = KafkaCatalog("shop", cluster)

    assert columns(catalog.table(registered))[3] == ("key_id", t.Int(nullable=False))
    assert columns(catalog.table(text))[3] == ("key_key", t.VarChar(nullable=False))
    assert columns(catalog.table(plain))[3] == ("key_k", t.BigInt())
    inferred = catalog.table(registered).definition.inferred
    assert inferred is not None
    assert inferred.source == f"the subject {registered}-key (version 1), the subject {registered}-value (version 1)"


def test_a_table_that_is_refreshed_has_the_columns_of_the_latest_schemas(
    cluster: Cluster, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic()
    assert cluster.registry is not None
    client, catalog = registry_client(cluster.registry), KafkaCatalog("shop", cluster)

    def register(*names: str) -> None:
        fields = [{"name": name, "type": ["null", "long"], "default": None} for name in names]
        text = json.dumps({"type": "record", "name": "Order", "fields": fields})
        client.register(f"{topic}-value", RegisteredSchema(text))

    register("a")
    before = columns(catalog.table(topic))
    register("a", "b")

    assert columns(catalog.table(topic)) == before == [*POSITION, ("value_a", t.BigInt())]
    assert columns(catalog.refresh(topic)) == [*before, ("value_b", t.BigInt())]


def test_topics_without_a_subject_are_json(cluster: Cluster, kdsl_topic: MakeTopic, kdsl_kafka: LocalKafka) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"a": 1}')

    assert columns(KafkaCatalog("shop", cluster).table(topic))[3:] == [("value_a", t.BigInt())]
    with pytest.raises(InferenceError, match=f"has no subject '{topic}-value', which the table needs"):
        KafkaCatalog("shop", cluster, format="avro-confluent").table(topic)
    without = Cluster(cluster.bootstrap_servers)
    with pytest.raises(InferenceError, match="its cluster has no schema registry"):
        KafkaCatalog("shop", without, format="avro-confluent").table(topic)


# -- with a checkpoint


def test_a_restart_has_the_columns_of_the_checkpoint(
    shop: KafkaCatalog, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kdsl_topic()
    checkpoint, sink = str(tmp_path / "checkpoint"), str(tmp_path / "rows")
    kdsl_kafka.produce(topic, '{"a": 1}')

    def run(catalog: KafkaCatalog) -> None:
        table = catalog.table(topic, checkpoint=checkpoint, spark=spark)
        writer = table.read_stream(spark).writeStream.format("json").option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start(sink).awaitTermination()

    run(shop)
    kdsl_kafka.produce(topic, '{"a": 2, "b": "new"}')
    again = KafkaCatalog("shop", shop.cluster, format="json")
    run(again)

    assert columns(again.table(topic, checkpoint=checkpoint, spark=spark)) == [*POSITION, ("value_a", t.BigInt())]
    assert sorted(row["value_a"] for row in spark.read.json(sink).collect()) == [1, 2]
    adopted = again.table(topic, checkpoint=checkpoint, spark=spark, adopt=True)
    assert columns(adopted)[3:] == [("value_a", t.BigInt()), ("value_b", t.STRING)]
    assert columns(again.table(topic, checkpoint=checkpoint, spark=spark)) == columns(adopted)


def test_a_declared_table_that_leaves_columns_out(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path
) -> None:
    topic, checkpoint, cluster = kdsl_topic(partitions=2), str(tmp_path), Cluster(kdsl_kafka.bootstrap_servers)
    kdsl_kafka.produce(topic, Record('{"a": 1, "id": 5}', partition=1))
    declaration = (
        "CREATE TABLE t (id INT, `offset` BIGINT METADATA VIRTUAL) WITH ('connector' = 'kafka', 'topic' = "
        f"'{topic}', 'scan.startup.mode' = 'earliest-offset', 'format' = '{{}}')"
    )
    declared = kdsl.sql(declaration.format("json"))

    table = infer_columns(declared, cluster, checkpoint=checkpoint, spark=spark)

    expected = [("id", t.Int()), ("offset", t.BigInt()), ("a", t.BigInt())]
    assert columns(table) == expected
    assert [tuple(row) for row in table.read(spark, cluster).collect()] == [(5, 0, 1)]
    kdsl_kafka.produce(topic, Record('{"a": "x", "b": true, "id": 6}', partition=0))
    assert columns(infer_columns(declared, cluster, checkpoint=checkpoint, spark=spark)) == expected
    wider = [*expected[:2], ("a", t.STRING), ("b", t.Boolean())]
    assert sorted(columns(infer_columns(declared, cluster)), key=str) == sorted(wider, key=str)
    adopted = infer_columns(declared, cluster, checkpoint=checkpoint, spark=spark, adopt=True)
    assert columns(infer_columns(declared, cluster, checkpoint=checkpoint, spark=spark)) == columns(adopted)
    assert ("b", t.Boolean()) in columns(adopted)
    with pytest.raises(TypeError, match="needs spark="):
        infer_columns(declared, cluster, checkpoint=checkpoint)
    with pytest.raises(InferenceError, match=r"t: columns cannot be inferred from .*; declare the columns"):
        infer_columns(kdsl.sql(declaration.format("csv")), cluster)


def test_a_checkpoint_of_other_options_is_refused(
    shop: KafkaCatalog, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, '{"a": {"b": 1}}')
    shop.table(topic, checkpoint=str(tmp_path), spark=spark)
    flat = KafkaCatalog("shop", shop.cluster, format="json", flatten=True)

    with pytest.raises(CheckpointError, match="inferred for another declaration") as caught:
        flat.table(topic, checkpoint=str(tmp_path), spark=spark)
    assert "+ infer-schema.flatten-nested-columns.enable = true" in str(caught.value)
    with pytest.raises(TypeError, match="needs spark="):
        shop.table(topic, checkpoint=str(tmp_path))


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 1, "tables": {"t": {}}}'])
def test_a_broken_file_of_a_checkpoint_is_refused(
    text: str, shop: KafkaCatalog, spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text(text)

    with pytest.raises(CheckpointError, match="cannot be read"):
        shop.table("t", checkpoint=str(tmp_path), spark=spark)


def test_a_newer_file_of_a_checkpoint_is_refused(shop: KafkaCatalog, spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    (tmp_path / FILE).write_text('{"version": 2, "tables": {}}')

    with pytest.raises(CheckpointError, match="has version 2, and this kdsl reads version 1"):
        shop.table("t", checkpoint=str(tmp_path), spark=spark)


def test_what_is_stored_reads_back() -> None:
    side = SideSchema(
        Json(timestamp_format="ISO-8601"), (t.Field("a b", t.Decimal(10, 2), "x"), t.Field("c.d", t.TimestampLtz(3)))
    )
    schema = TopicSchema(side, SideSchema(Raw(), (t.Field("col", t.BYTES),)), upserts=True, source="s", notes=("n",))
    stored = StoredSchema({"format": "json"}, schema)

    assert StoredSchema.from_document(json.loads(json.dumps(stored.document()))) == stored


def test_a_table_is_like_any_other() -> None:
    schema = TopicSchema(SideSchema(Json(), (t.Field("a", t.BigInt()),)), source="the newest 1 record of 1 partition")
    definition = define_table("orders", schema, CatalogOptions())
    table = Table(definition)

    assert pickle.loads(pickle.dumps(definition)) == definition
    assert "`value_a` BIGINT" in to_ddl(definition) or "value_a BIGINT" in to_ddl(definition)
    assert table.explain("write").splitlines()[1].split() == ["input", "value_a", "BIGINT"]


def test_a_table_is_inferred_once(monkeypatch: pytest.MonkeyPatch) -> None:
    inference, calls = Inference(), []
    schema = TopicSchema(SideSchema(Json(), ()))

    def infer() -> TopicSchema:
        calls.append(1)
        return schema

    declared: dict[str, Any] = {"format": "json"}
    assert [inference.schema("t", declared, infer) for _ in range(3)] == [schema] * 3
    assert len(calls) == 1
