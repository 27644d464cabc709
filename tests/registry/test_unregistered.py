"""Schemas that are not registered under a subject: the error names the difference, and options that work."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kdsl.cluster import Registry
from kdsl.errors import KdslError
from kdsl.formats import Use
from kdsl.registry import UnknownSubjectError
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._registry.differences import avro_parts, describe_differences
from kdsl_formats.avro_confluent import AvroConfluent
from kdsl_formats.json_schema_confluent import JsonSchemaConfluent
from kdsl_formats.protobuf import ProtobufConfluent
from kdsl_formats.registry import RegistryFormat
from tests.registry.front import Front, Request

ROW = t.row(id=t.BigInt(), note=t.STRING)
FIELDS = [
    {"name": "id", "type": ["null", "long"], "default": None},
    {"name": "note", "type": ["null", "string"], "default": None},
]


def record(name: str, fields: list[dict[str, Any]], **more: Any) -> str:
    return json.dumps({"type": "record", "name": name, "fields": fields, **more})


class OneSchema:
    """Answers of a registry with one schema under any subject; it finds it by its text, or in its normal form."""

    def __init__(self, text: str, kind: str = "AVRO", normal: str = "") -> None:
        self.version = {"subject": "s", "version": 3, "id": 7, "schema": text, "schemaType": kind}
        self.normal = normal or text

    def __call__(self, request: Request) -> tuple[int, Any]:
        if request.method == "GET":
            return 200, self.version
        text = request.document["schema"]
        same = text == self.version["schema"] or ("normalize=true" in request.path and text == self.normal)
        return (200, self.version) if same else (404, {"error_code": 40403, "message": "Schema not found"})


def write(chosen: RegistryFormat, front: Front, row: t.Row = ROW) -> list[Any]:
    rows = pa.array([dict.fromkeys(row.names)], arrow_type(row))
    use = Use(topics=("orders",), registry=Registry(front.url, {"max.retries": 0}))
    messages: list[Any] = chosen.encoder(row, use).encode(rows).messages.to_pylist()
    return messages


def reason(chosen: RegistryFormat, front: Front, row: t.Row = ROW) -> str:
    with pytest.raises(UnknownSubjectError) as error:
        write(chosen, front, row)
    return str(error.value)


def test_the_difference_and_the_options_are_named() -> None:
    registered = record("Order", [{**FIELDS[0], "doc": "key"}, FIELDS[1]], namespace="shop")
    with Front(OneSchema(registered)) as front:
        message = reason(AvroConfluent(auto_register=False), front)

        assert "does not have this schema under the subject 'orders-value'" in message
        assert "'auto-register' is false; the latest schema (version 3, id 7) differs: " in message
        assert "the record is shop.Order in it, and org.apache.flink.avro.generated.record in the table's" in message
        assert 'the field \'id\' is ["null","long"] with default null, doc "key" in it, and' in message
        assert "'note'" not in message.partition("; set")[0]
        assert (
            "set 'use-latest-version' to 'true', and rows are written with it; or set 'schema' to its text" in message
        )
        for chosen in (
            AvroConfluent(auto_register=False, use_latest_version=True),
            AvroConfluent(auto_register=False, schema=json.dumps(json.loads(registered), separators=(",", ":"))),
        ):
            if chosen.schema is not None:
                front_of_text = OneSchema(chosen.schema)
                with Front(front_of_text) as other:
                    assert write(chosen, other) == [b"\0\0\0\0\7\0\0"]
            else:
                assert write(chosen, front) == [b"\0\0\0\0\7\0\0"]


def test_normalize_is_advised_where_it_finds_the_schema() -> None:
    own = record("x", FIELDS)
    chosen = AvroConfluent(auto_register=False, schema=own)
    text = json.dumps(json.loads(own), separators=(",", ":"))
    with Front(OneSchema(record("x", FIELDS, aliases=[]), normal=text)) as front:
        assert "only the form of version 3 differs: set 'normalize' to 'true'" in reason(chosen, front)
        fixed = AvroConfluent(auto_register=False, schema=own, normalize=True)
        assert write(fixed, front) == [b"\0\0\0\0\7\0\0"]


def test_options_that_would_not_work_are_not_advised() -> None:
    with Front(OneSchema(record("Order", [{"name": "id", "type": "long"}]))) as front:
        message = reason(AvroConfluent(auto_register=False), front)

        assert "it does not have the field 'note'" in message
        assert "the table's rows cannot be written with it: " in message
        assert "use-latest-version" not in message
        with pytest.raises(KdslError, match="cannot hold the rows of the table"):
            write(AvroConfluent(auto_register=False, use_latest_version=True), front)


def test_a_subject_that_does_not_exist_is_said() -> None:
    with Front(lambda _: (404, {"error_code": 40401, "message": "Subject not found"})) as front:
        message = reason(AvroConfluent(auto_register=False), front)

    assert "the registry has no such subject; register the schema there, or set 'auto-register' to 'true'" in message


@pytest.fixture
def json_front() -> Iterator[Front]:
    schema = {"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}, "note": {"type": "string"}}}
    with Front(OneSchema(json.dumps(schema), "JSON")) as front:
        yield front


def test_differences_of_json_schemas_are_named(json_front: Front) -> None:
    message = reason(JsonSchemaConfluent(auto_register=False), json_front)

    assert 'the title is "Order" in it, and "Record" in the table\'s schema' in message
    assert 'the member \'id\' is {"type": "integer"} in it' in message


def test_differences_of_protobuf_schemas_are_named() -> None:
    own = 'syntax = "proto3"; package p; message O { optional int64 id = 1; optional string note = 2; }'
    registered = 'syntax = "proto3"; package shop; message O { optional int64 id = 1; optional string note = 4; }'
    chosen = ProtobufConfluent(message_class_name="O", proto_text=own, auto_register=False)
    with Front(OneSchema(registered, "PROTOBUF")) as front:
        message = reason(chosen, front)

    assert "the package is shop in it, and p in the table's schema" in message
    assert "the field O.note is optional string = 4 in it, and optional string = 2 in the table's schema" in message


def test_fields_of_records_inside_are_compared() -> None:
    def nest_record(kind: str, namespace: str) -> Any:
        inner = {"type": "record", "name": "In", "namespace": namespace, "fields": [{"name": "x", "type": kind}]}
        return {
            "type": "record",
            "name": "a.Out",
            "fields": [{"name": "list", "type": {"type": "array", "items": inner}}],
        }

    assert describe_differences(avro_parts(nest_record("int", "a")), avro_parts(nest_record("long", "a"))) == (
        'the field \'list[].x\' is "int" in it, and "long" in the table\'s schema'
    )
    assert "the record of the field 'list[]' is b.In in it, and a.In" in describe_differences(
        avro_parts(nest_record("int", "b")), avro_parts(nest_record("int", "a"))
    )
    assert describe_differences(avro_parts(nest_record("int", "a")), avro_parts(nest_record("int", "a"))) == ""
