"""Confluent's own serializers and deserializers at the other end, with a real registry and a real Kafka."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kdsl import AvroConfluent, Cluster, Col, JsonSchemaConfluent, KafkaTable, Key, Virtual, virtual
from kdsl.cluster import Registry
from kdsl.diagnostics.peek import last_records
from kdsl.formats import Format
from kdsl.run.records.encode import RecordEncoder
from kdsl.schemas.topic import topic_draft
from kdsl.table import Table
from kdsl.testing import LocalRegistry, Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl_formats.protobuf import ProtobufConfluent
from kdsl_formats.protobuf.sources import compile_text, schema_of
from tests.registry.front import Answer, Answers, Front, Request, add_guids, forward

for _package in ("authlib", "cachetools"):  # of confluent-kafka[schemaregistry]
    pytest.importorskip(_package)

from confluent_kafka.schema_registry import (  # noqa: E402
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer  # noqa: E402
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer  # noqa: E402
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer  # noqa: E402
from confluent_kafka.serialization import MessageField, SerializationContext  # noqa: E402
from google.protobuf.message_factory import GetMessageClass  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
    }
)
JSON = json.dumps(
    {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "note": {"oneOf": [{"type": "null"}, {"type": "string"}]}},
        "required": ["id"],
        "additionalProperties": False,
    }
)
PROTO = """
syntax = "proto3";
package shop;
message First { string a = 1; }
message Order { int64 id = 1; optional string note = 2; }
"""
ROWS: list[dict[str, Any]] = [
    {"id": 1, "note": "one two"},
    {"id": 1 << 40, "note": None},  # Confluent's Avro deserializer refuses bodies of fewer than six bytes
    {"id": 3, "note": "three"},
    {"id": 4 << 40, "note": None},
]
Connect = Callable[[str], SchemaRegistryClient]
KINDS = ("avro", "json", "protobuf")


def to_header_by_id(payload: bytes, ctx: SerializationContext, schema_id: Any) -> bytes:
    """Writes the header as a registry without GUIDs allows it, by Confluent's own `SchemaId`."""
    assert isinstance(ctx.headers, list)
    ctx.headers.append((f"__{ctx.field}_schema_id", schema_id.id_to_bytes()))
    return payload


def serialize_protobuf(answers: Answers) -> Answers:
    """Answers with ``format=serialized``, which Confluent's registry has, and by which its clients take descriptors."""

    def serialize(request: Request) -> Answer:
        status, document = answers(request)
        if status != 200 or "format=serialized" not in request.path:
            return status, document
        fields = json.loads(document) if isinstance(document, bytes) else document
        file = compile_text(fields["schema"]).file[-1]
        return status, {**fields, "schema": base64.b64encode(file.SerializeToString()).decode()}

    return serialize


@pytest.fixture
def registry(kdsl_registry: LocalRegistry) -> Iterator[Front]:
    """The real registry with what Confluent's has besides: GUIDs, and descriptors on request."""
    with Front(add_guids(serialize_protobuf(forward(kdsl_registry.url)))) as front:
        yield front


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens Confluent's clients, and closes them."""
    with ExitStack() as clients:
        yield lambda url: clients.enter_context(SchemaRegistryClient({"url": url}))


@pytest.fixture
def registry_without_guids(kdsl_registry: LocalRegistry) -> Iterator[Front]:
    with Front(serialize_protobuf(forward(kdsl_registry.url))) as front:
        yield front


def message_class() -> Any:
    return GetMessageClass(schema_of("shop.Order", compile_text(PROTO)).message)


def serializer(kind: str, client: SchemaRegistryClient, place: Any) -> Any:
    options = {"schema.id.serializer": place}
    match kind:
        case "avro":
            return AvroSerializer(client, AVRO, conf=options)
        case "json":
            return JSONSerializer(JSON, client, conf=options)
        case _:
            order = message_class()
            to_protobuf = ProtobufSerializer(order, client, options)
            return lambda row, ctx: to_protobuf(order(**row), ctx)


def format_of(kind: str, **options: Any) -> Format:
    match kind:
        case "avro":
            return AvroConfluent(**options)
        case "json":
            return JsonSchemaConfluent(**options)
        case _:
            return ProtobufConfluent(**options)


def declare(topic: str, value: Format) -> Table:
    class Orders(
        KafkaTable, topic=topic, value=value, key=AvroConfluent(), value_fields="EXCEPT_KEY", startup="earliest"
    ):
        key: Key[str | None]
        id: Col[int]
        note: Col[str | None]
        schema_id: Virtual[int | None] = virtual("value.schema-id")

    return Table(Orders.definition())


def declare_in_header(topic: str, kind: str) -> Table:
    in_header: Any = {"schema_id_location": "header"}
    more = {"message_class_name": "shop.Order", "proto_text": PROTO} if kind == "protobuf" else {}

    class Orders(
        KafkaTable,
        topic=topic,
        value=format_of(kind, **in_header, **more),
        key=AvroConfluent(**in_header),
        value_fields="EXCEPT_KEY",
        startup="earliest",
    ):
        key: Key[str | None]
        id: Col[int]
        note: Col[str | None]

    return Table(Orders.definition())


def deserializer(kind: str, client: SchemaRegistryClient) -> Callable[[Any, SerializationContext], Any]:
    """Confluent's deserializer of a kind of schemas, with dicts as its results."""
    read: Any = {
        "avro": lambda: AvroDeserializer(client),
        "json": lambda: JSONDeserializer(None, schema_registry_client=client),
        "protobuf": lambda: ProtobufDeserializer(message_class(), {"use.deprecated.format": False}, client),
    }[kind]()

    def read_protobuf(message: Any, context: SerializationContext) -> dict[str, Any]:
        order = read(message, context)
        return {"id": order.id, "note": order.note if order.HasField("note") else None}

    return read_protobuf if kind == "protobuf" else lambda message, context: read(message, context)


@pytest.mark.parametrize("kind", KINDS)
def test_messages_of_confluent_s_serializers_are_read(
    kind: str, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, registry: Front, connect: Connect
) -> None:
    """By prefix, by header with GUID and with id, for key and value, in one topic."""
    topic, client = kdsl_topic(f"confluent-{kind}", partitions=1), connect(registry.url)
    places = (prefix_schema_id_serializer, header_schema_id_serializer, to_header_by_id, prefix_schema_id_serializer)
    records = []
    for row, place in zip(ROWS, places, strict=True):
        headers: Any = [("trace", b"1")]
        value = serializer(kind, client, place)(row, SerializationContext(topic, MessageField.VALUE, headers))
        of_key = SerializationContext(topic, MessageField.KEY, headers)
        key = AvroSerializer(client, '"string"', conf={"schema.id.serializer": place})(f"k{row['id']}", of_key)
        assert (len(headers) == 1) == (place is prefix_schema_id_serializer)
        records.append(Record(value, key=key, headers=headers))
    kdsl_kafka.produce(topic, *records, Record(None, key=records[0].key))
    cluster = Cluster(kdsl_kafka.bootstrap_servers, registry=registry.url)

    rows = last_records(declare(topic, format_of(kind)).read_plan(), cluster, 9).to_pylist()

    (number,) = {row.pop("schema_id") for row in rows}
    assert rows == [{"key": f"k{row['id']}", **row} for row in ROWS]
    assert client.get_schema(number).schema_type == ("PROTOBUF" if kind == "protobuf" else kind.upper())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("guids", [True, False])
def test_a_table_of_a_topic_with_headers_is_generated(
    kind: str, guids: bool, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, registry: Front, connect: Connect
) -> None:
    topic, client = kdsl_topic(f"headers-{kind}", partitions=1), connect(registry.url)
    write = serializer(kind, client, header_schema_id_serializer if guids else to_header_by_id)
    for row in ROWS:
        headers: Any = []
        value = write(row, SerializationContext(topic, MessageField.VALUE, headers))
        kdsl_kafka.produce(topic, Record(value, headers=headers))
    cluster = Cluster(kdsl_kafka.bootstrap_servers, registry=registry.url)

    table = topic_draft(topic, cluster).table

    assert isinstance(table.value_format, type(format_of(kind)))
    assert table.value_format.choose_frame_header("value") == "__value_schema_id"
    assert last_records(Table(table).read_plan(), cluster, 9).to_pylist() == ROWS
    without = topic_draft(topic, Cluster(kdsl_kafka.bootstrap_servers))
    assert "name its registry with --registry" in without.notes[-1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("location", ["prefix", "header"])
@pytest.mark.parametrize("guids", [True, False])
def test_confluent_s_deserializers_read_what_is_written(
    kind: str, location: str, guids: bool, registry: Front, registry_without_guids: Front, connect: Connect
) -> None:
    url = (registry if guids else registry_without_guids).url
    topic, client = f"written-{kind}-{location}-{guids}", connect(url)
    more = {"message_class_name": "shop.Order", "proto_text": PROTO} if kind == "protobuf" else {}

    class Orders(KafkaTable, topic=topic, value=format_of(kind, schema_id_location=location, **more)):
        id: Col[int]
        note: Col[str | None]

    encoder = RecordEncoder(Table(Orders.definition()).write_plan(), Registry(url))
    records = encoder.encode(pa.RecordBatch.from_pylist(ROWS)).to_pylist()

    read = deserializer(kind, client)
    results = []
    for record in records:
        headers = [(one["key"], one["value"]) for one in record.get("headers") or ()]
        assert [name for name, _ in headers] == (["__value_schema_id"] if location == "header" else [])
        assert all(value[0] == guids for _, value in headers)
        results.append(read(record["value"], SerializationContext(topic, MessageField.VALUE, headers)))
    assert results == ROWS


@pytest.mark.spark
def test_spark_writes_and_reads_messages_whose_headers_name_their_schemas(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    registry: Front,
    connect: Connect,
    tmp_path: Path,
) -> None:
    """A batch writes the first topic, and streams copy each topic into the next one, which has another format."""
    client, cluster = connect(registry.url), Cluster(kdsl_kafka.bootstrap_servers, registry=registry.url)
    tables = [declare_in_header(kdsl_topic(f"spark-{kind}", partitions=1), kind) for kind in KINDS]
    rows = [{"key": f"order {row['id']}", **row} for row in sorted(ROWS, key=lambda row: row["id"])]
    tables[0].write(spark.createDataFrame(rows, "key STRING, id BIGINT, note STRING"), cluster)
    for i, (source, sink) in enumerate(pairwise(tables)):
        stream = source.read_stream(spark, cluster)
        query = sink.write_stream(stream, cluster, checkpoint=str(tmp_path / str(i)), trigger={"availableNow": True})
        assert query.awaitTermination(300)

    for kind, table in zip(KINDS, tables, strict=True):
        (topic,) = table.definition.options.topic
        read, read_key = deserializer(kind, client), AvroDeserializer(client)
        by_confluent = []
        for message in kdsl_kafka.read(topic):
            headers: Any = message.headers()
            assert sorted(name for name, _ in headers) == ["__key_schema_id", "__value_schema_id"]
            key = read_key(message.key(), SerializationContext(topic, MessageField.KEY, headers))
            value = read(message.value(), SerializationContext(topic, MessageField.VALUE, headers))
            by_confluent.append({**key, **value})
        assert sorted(by_confluent, key=lambda row: row["id"]) == rows
        assert sorted((row.asDict() for row in table.read(spark, cluster).collect()), key=lambda row: row["id"]) == rows
