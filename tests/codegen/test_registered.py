"""Tables of what a schema registry holds, a real one: Avro, Protobuf and JSON Schema, and what they make use of."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from kdsl import AvroConfluent, Cluster, DebeziumAvroConfluent, JsonSchemaConfluent, ProtobufConfluent
from kdsl.cluster import Registry
from kdsl.codegen import CodegenError, TableDraft, to_python
from kdsl.declare.definition import TableDef
from kdsl.registry import RegisteredSchema, RegistryClient, SchemaReference, registry_client
from kdsl.resolve import problems
from kdsl.schemas.registry import draft_registered_schema, registry_draft
from kdsl.schemas.topic import infer_side
from kdsl.testing import LocalRegistry
from kdsl.types import model as t
from tests.codegen.tables import definitions, module

TOPICS = (f"registered-{number}" for number in itertools.count())
STREET = t.Row((t.Field("street", t.STRING.as_nullable(False)),))
IMAGE = {
    "type": "record",
    "name": "Value",
    "fields": [{"name": "id", "type": "long", "doc": "Its number."}, {"name": "note", "type": ["null", "string"]}],
}
ENVELOPE = {
    "type": "record",
    "name": "Envelope",
    "namespace": "shop.orders",
    "fields": [
        {"name": "before", "type": ["null", IMAGE], "default": None},
        {"name": "after", "type": ["null", "Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "db", "type": "string"}]}},
        {"name": "op", "type": "string"},
    ],
}
COLUMNS = {"id": t.BigInt(nullable=False), "note": t.STRING}


@pytest.fixture
def registry(kdsl_registry: LocalRegistry) -> Registry:
    return Registry(kdsl_registry.url)


@pytest.fixture
def client(registry: Registry) -> RegistryClient:
    return registry_client(registry)


def avro(*fields: tuple[str, Any], **more: Any) -> str:
    return json.dumps({"type": "record", "fields": [{"name": n, "type": k} for n, k in fields], **more})


def load_definition(draft: TableDraft, tmp_path: Path) -> TableDef:
    (tables,) = definitions(module(to_python(draft), tmp_path))
    return tables


def test_types_of_other_schemas_are_taken_in(registry: Registry, client: RegistryClient, tmp_path: Path) -> None:
    """A name without a namespace is of the one in which it is used."""
    topic = next(TOPICS)
    address = avro(("street", "string"), name="shop.Address")
    client.register(f"{topic}-address", RegisteredSchema(address))
    orders = avro(("home", "Address"), ("work", ["null", "shop.Address"]), name="shop.Order")
    references = (SchemaReference("shop.Address", f"{topic}-address", 1),)
    client.register(f"{topic}-value", RegisteredSchema(orders, references=references))

    draft = registry_draft(f"{topic}-value", registry)

    assert [c.type for c in draft.table.columns] == [STREET.as_nullable(False), STREET]
    assert draft.table.value_format == AvroConfluent()
    assert load_definition(draft, tmp_path) == draft.table


def test_messages_of_protobuf_are_read_by_their_ids(registry: Registry, client: RegistryClient, tmp_path: Path) -> None:
    topic = next(TOPICS)
    parts = 'syntax = "proto3"; package p; message Pair { int32 x = 1; }'
    text = f'''syntax = "proto3";
package p;
import "{topic}/parts.proto";
// An order.
message Order {{
  int64 id = 1;  // Its number.
  Pair pair = 2;
}}
message Other {{ string a = 1; }}
'''
    client.register(f"{topic}-parts", RegisteredSchema(parts, "PROTOBUF"))
    references = (SchemaReference(f"{topic}/parts.proto", f"{topic}-parts", 1),)
    number = client.register(f"{topic}-value", RegisteredSchema(text, "PROTOBUF", references))

    draft = registry_draft(f"{topic}-value", registry, message="Order")

    assert draft.notes == ()
    assert draft.table.value_format == ProtobufConfluent(message_class_name="p.Order")
    assert (draft.table.comment, draft.table.columns[0].comment) == ("An order.", "Its number.")
    assert [(c.name, c.type) for c in draft.table.columns] == [
        ("id", t.BigInt(nullable=False)),
        ("pair", t.row(x=t.Int(nullable=False)).as_nullable()),
    ]
    result = load_definition(draft, tmp_path)
    assert (result, problems(result, "read")) == (draft.table, [])
    with pytest.raises(CodegenError, match="name one of them with --message"):
        registry_draft(f"{topic}-value", registry)

    frame = b"\0" + number.to_bytes(4, "big")
    messages = [frame + b"\2\2" + b"\x0a\x01x", frame + b"\0" + b"\x08\x05", frame + b"\0" + b"\x08\x06"]
    of_topic = infer_side(messages, Cluster("localhost:1", registry=registry), None, "value")
    assert of_topic.format == draft.table.value_format
    assert of_topic.columns == draft.table.columns
    assert of_topic.notes == ("there are also the messages p.Other; the table is that of p.Order",)
    with pytest.raises(CodegenError, match="are of the format 'protobuf-confluent', and not 'avro-confluent'"):
        infer_side(messages, Cluster("localhost:1", registry=registry), "avro-confluent", "value")


def test_json_is_read_with_the_format_of_framed_messages(registry: Registry, client: RegistryClient) -> None:
    topic = next(TOPICS)
    schema = RegisteredSchema('{"type": "object", "properties": {"a": {"type": "integer"}}}', "JSON")
    number = client.register(f"{topic}-value", schema)

    draft = registry_draft(f"{topic}-value", registry)
    messages = [b"\0" + number.to_bytes(4, "big") + b'{"a": 1}']
    of_topic = infer_side(messages, Cluster("localhost:1", registry=registry), "json-schema-confluent", "value")

    assert draft.table.value_format == JsonSchemaConfluent()
    assert (of_topic.format, of_topic.columns) == (draft.table.value_format, draft.table.columns)


def test_json_takes_in_what_it_refers_to(registry: Registry, client: RegistryClient) -> None:
    topic = next(TOPICS)
    inner = {
        "type": "object",
        "properties": {"to": {"$ref": "#/$defs/street"}},
        "$defs": {"street": {"type": "string"}},
    }
    client.register(f"{topic}-place", RegisteredSchema(json.dumps(inner), "JSON"))
    outer = {
        "type": "object",
        "properties": {"at": {"$ref": "place.json"}, "from": {"$ref": "place.json#/$defs/street"}},
    }
    references = (SchemaReference("place.json", f"{topic}-place", 1),)
    client.register(f"{topic}-value", RegisteredSchema(json.dumps(outer), "JSON", references))

    columns = registry_draft(f"{topic}-value", registry).table.columns

    assert {c.name: c.type for c in columns} == {"at": t.Row((t.Field("to", t.STRING),)), "from": t.STRING}


@pytest.mark.parametrize(("text", "message"), [("[1", "is not JSON"), ("true", "is not a JSON object")])
def test_invalid_json_schemas_are_reported(text: str, message: str, client: RegistryClient) -> None:
    with pytest.raises(CodegenError, match=message):
        draft_registered_schema(client, RegisteredSchema(text, "JSON"), "http://r", topic="x")


def test_schemas_that_are_nested_too_deeply_are_reported(client: RegistryClient) -> None:
    text = '{"type":"array","items":' * 900 + '"int"' + "}" * 900

    with pytest.raises(CodegenError, match="nested more than 100 levels deep"):
        draft_registered_schema(client, RegisteredSchema(text), "http://r", topic="x")


def test_envelopes_are_tables_of_the_rows_inside_them(
    registry: Registry, client: RegistryClient, tmp_path: Path
) -> None:
    topic = next(TOPICS)
    number = client.register(f"{topic}-value", RegisteredSchema(json.dumps(ENVELOPE)))

    draft = registry_draft(f"{topic}-value", registry)

    assert (draft.table.name, draft.notes) == (topic, ())
    assert draft.table.value_format == DebeziumAvroConfluent()
    assert {c.name: c.type for c in draft.table.columns} == COLUMNS
    assert draft.table.columns[0].comment == "Its number."
    result = load_definition(draft, tmp_path)
    assert (result, problems(result, "read")) == (draft.table, [])

    message = b"\0" + number.to_bytes(4, "big") + b"\0\2\2\0\2x\2c"
    of_topic = infer_side([message], Cluster("localhost:1", registry=registry), None, "value")
    assert (of_topic.format, of_topic.columns) == (draft.table.value_format, draft.table.columns)
