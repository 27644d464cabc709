"""Avro schemas from tables, tables from Avro schemas, and what is not a schema."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.cluster import Registry
from kdsl.registry import RegisteredSchema, registry_client
from kdsl.types import model as t
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.model import schema_type
from kdsl_formats._avro.schema import AvroTypeError, avro_schema, avro_type_problems, parse_schema, row_of
from kdsl_formats.avro_confluent import AvroConfluent
from tests.formats import avro_bodies
from tests.formats.contract import SUPPRESSED
from tests.formats.test_avro_decoder import record, row_not_null
from tests.strategies import examples

SHARED = Path(__file__).parents[3] / "shared" / "anchors" / "data" / "avro"


@given(st.data())
@settings(deadline=None, max_examples=examples(80), suppress_health_check=SUPPRESSED)
def test_a_derived_schema_is_avros_and_means_the_table_again(data: st.DataObject) -> None:
    kind = row_not_null(data.draw(avro_bodies.row_types()))
    schema = avro_schema(kind)
    again = row_of(schema)

    fastavro.parse_schema(schema)
    assert parse_schema(json.dumps(schema)) == schema
    assert avro_schema(again) == schema
    AvroDecoder(schema, kind, schema)


def test_the_type_of_a_schema_is_the_references() -> None:
    schema = record(
        ("a", "int"),
        ("b", ["null", "string"], None),
        ("c", {"type": "array", "items": ["null", "long"]}),
        ("d", {"type": "map", "values": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 3}}),
        ("day", {"type": "int", "logicalType": "date"}),
        ("clock", {"type": "int", "logicalType": "time-millis"}),
        ("fine_clock", {"type": "long", "logicalType": "time-micros"}),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}),
        ("fine_at", {"type": "long", "logicalType": "timestamp-micros"}),
        ("local", {"type": "long", "logicalType": "local-timestamp-millis"}),
        ("odd", {"type": "int", "logicalType": "timestamp-millis"}),
        ("nothing", "null"),
        ("one", ["double"]),
    )
    fields = [
        *("`a` INT NOT NULL", "`b` STRING", "`c` ARRAY<BIGINT> NOT NULL"),
        *(
            "`d` MAP<STRING NOT NULL, DECIMAL(9, 3) NOT NULL> NOT NULL",
            "`day` DATE NOT NULL",
            "`clock` TIME(3) NOT NULL",
        ),
        *("`fine_clock` TIME(6) NOT NULL", "`at` TIMESTAMP(3) NOT NULL", "`fine_at` TIMESTAMP(6) NOT NULL"),
        *("`local` BIGINT NOT NULL", "`odd` INT NOT NULL", "`nothing` STRING", "`one` DOUBLE NOT NULL"),
    ]
    assert [str(f) for f in row_of(schema).fields] == fields
    modern = {f.name: str(f.type) for f in row_of(schema, legacy_timestamps=False).fields}
    assert (modern["at"], modern["fine_at"], modern["local"]) == (
        "TIMESTAMP_LTZ(3) NOT NULL",
        "TIMESTAMP_LTZ(6) NOT NULL",
        "TIMESTAMP(3) NOT NULL",
    )


def test_the_doc_of_an_avro_field_is_the_comment() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "doc": "How many."}]}

    assert row_of(schema).fields[0].comment == "How many."


def test_a_nullable_record_is_a_nullable_row() -> None:
    assert row_of(["null", record(("a", "int"))]) == t.Row((t.Field("a", t.Int(nullable=False)),))
    assert avro_schema(t.row(a=t.Int()))[0] == "null"


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("int", "a table needs a schema of records, but this one is a schema of INT NOT NULL"),
        (["int", "string"], "a table needs a schema of records"),
        ([{"type": "record", "name": "R", "fields": []}, "string"], "a table needs a schema of records"),
        (record(("next", ["null", "Node"]), name="Node"), "next: the record 'Node' contains itself"),
        (
            record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 40})),
            "d: a DECIMAL has at most 38 digits",
        ),
    ],
    ids=str,
)
def test_a_schema_that_is_not_a_table_is_reported(schema: Any, message: str) -> None:
    with pytest.raises(AvroTypeError, match="^" + message.replace("(", r"\(")):
        row_of(schema)


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("{", "an Avro schema must be JSON, and this is not"),
        ("[" * 100_000, "an Avro schema must be JSON, and this is not"),
        (f'{{"size":{"1" * 5000}}}', "an integer in it has more than 4,300 digits"),
        ("5", "a schema must be a name, an object or a list, not 5"),
        ('{"fields":[]}', "a schema in a JSON object needs the member 'type', but this one has 'fields'"),
        ('{"type":"record","fields":[]}', "a schema of type 'record' needs the member 'name'"),
        ('{"type":"record","name":"R"}', 'a record needs a list of "fields"'),
        ('{"type":"record","name":"R","fields":[1]}', "a field must be an object with a name and a type, not 1"),
        ('{"type":"record","name":"R-1","fields":[]}', "'R-1' is not an Avro name"),
        ('{"type":"record","name":"R","fields":[{"name":"1a","type":"int"}]}', "1a: '1a' is not an Avro name"),
        ('{"type":"record","name":"R","fields":[{"name":"a","type":"itn"}]}', "a: there is no type 'itn'; there are"),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
            "a record has the field 'a' twice",
        ),
        ('["int","int"]', "a union contains 'int' twice"),
        ('["int",["null"]]', "a union cannot contain a union"),
        ('{"type":"array"}', "a schema of type 'array' needs the member 'items'"),
        ('{"type":"enum","name":"E","symbols":"A"}', "'symbols' must be a list of strings, not 'A'"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "the enum 'E' has a symbol twice"),
        (
            '{"type":"enum","name":"E","symbols":["A"],"default":"B"}',
            "the default 'B' of the enum 'E' is not one of its",
        ),
        ('{"type":"fixed","name":"F","size":"2"}', "the fixed 'F' needs a size, a number from 0, and has '2'"),
    ],
    ids=lambda v: v[:40],
)
def test_an_invalid_schema_is_reported_with_its_location(schema: str, message: str) -> None:
    with pytest.raises(AvroTypeError) as e:
        parse_schema(schema)
    assert str(e.value).startswith(message)


def test_a_registered_schema_with_a_huge_number_is_a_misfit() -> None:
    fields = f'[{{"name":"a","type":"int","default":{"1" * 5000}}}]'
    schema = RegisteredSchema(f'{{"type":"record","name":"R","fields":{fields}}}')
    client = registry_client(Registry("http://localhost:1"))
    misfit = AvroConfluent().schema_misfit(t.row(a=t.Int()), schema, client, "read")
    assert misfit == "an integer in it has more than 4,300 digits"


def test_names_are_found_in_their_namespace() -> None:
    schema = record(
        ("a", {"type": "enum", "name": "E", "symbols": ["X"]}),
        ("b", "E"),
        ("c", "com.shop.E"),
        ("d", {"type": "fixed", "name": "other.F", "size": 1}),
        ("e", "other.F"),
        name="com.shop.R",
    )
    result = schema_type(schema)

    assert [f.type.name for f in result.fields] == ["com.shop.E"] * 3 + ["other.F"] * 2


def test_nested_rows_that_would_share_a_name_are_reported() -> None:
    inner = t.row(x=t.Int())
    row = t.row(a=t.row(b=inner), a_b=t.row(y=t.Int()))
    (problem,) = avro_type_problems(row, True)

    assert problem.message == "the rows 'a.b' and 'a_b' would both be the Avro record 'record_a_b'"
    schema = avro_schema(row_not_null(t.row(a=t.row(b=inner), a_b=inner)))
    assert schema["fields"][1]["type"] == ["null", "record_a_b"]
    fastavro.parse_schema(schema)


def test_a_schema_may_contain_comments() -> None:
    text = (
        '/** A record. */ {"type":"record", // here\n "name":"R","fields":[{"name":"a","type":"int","doc":"//\\"/*"}]}'
    )

    assert row_of(parse_schema(text)).fields[0].comment == '//"/*'


@pytest.mark.skipif(not (SHARED / "user.avsc").is_file(), reason="Apache's user.avsc is not part of this project")
def test_a_large_schema_of_others_becomes_a_table() -> None:
    schema = parse_schema((SHARED / "user.avsc").read_text(encoding="utf-8"))
    row = row_of(record(("any", schema)))
    members = row.fields[0].type
    assert isinstance(members, t.Row)
    users = next(f.type for f in members.fields if isinstance(f.type, t.Row) and "favorite_color" in f.type.names)

    assert isinstance(users, t.Row)
    kinds = {f.name: str(f.type) for f in users.fields}
    assert kinds["favorite_color"] == "STRING"
    assert kinds["type_enum"] == "STRING NOT NULL"
    assert kinds["type_decimal_fixed"] == "DECIMAL(4, 2) NOT NULL"
    assert kinds["type_nested"].startswith("ROW<`num` INT NOT NULL, `street` STRING NOT NULL")


@pytest.mark.skipif(
    not (SHARED / "testdata.avro").is_file(), reason="Apache's testdata.avro is not part of this project"
)
def test_the_records_of_a_file_of_others_are_read() -> None:
    with (SHARED / "testdata.avro").open("rb") as file:
        container = fastavro.reader(file)
        schema: Any = container.writer_schema
        records = list(container)
    messages = []
    for one in records:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), one)
        messages.append(out.getvalue())
    decoded = AvroDecoder(schema, row_of(schema), schema).decode(pa.array(messages, pa.binary()))

    assert len(records) > 10
    assert decoded.rows.to_pylist() == records
