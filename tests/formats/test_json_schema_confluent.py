"""The format ``json-schema-confluent``, against a real registry."""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.cluster import Registry
from kdsl.errors import KdslError
from kdsl.formats import ALONE, Decoder, Encoder, Use
from kdsl.registry import IncompatibleSchemaError, RegistryClient, UnknownSubjectError, registry_client
from kdsl.registry.model import RegisteredSchema, SchemaReference
from kdsl.schemas.json_schema import json_schema_draft
from kdsl.testing import LocalRegistry
from kdsl.testing.contracts.formats import option_keys
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats.json import Json
from kdsl_formats.json_schema_confluent import JsonSchemaConfluent
from kdsl_formats.json_schema_confluent.schema import derive_schema
from tests.formats import test_json_contract as plain
from tests.formats.contract import SUPPRESSED, FormatContract, check_round_trip
from tests.formats.test_avro_confluent_contract import options

BODIES = plain.TestJson()
TOPICS = (f"json-schema-{number}" for number in itertools.count())
SCHEMA = '{"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}'
ORDER = t.row(id=t.BigInt(nullable=False))


@pytest.fixture
def registry(kdsl_registry: LocalRegistry) -> Registry:
    return Registry(kdsl_registry.url)


@pytest.fixture
def client(registry: Registry) -> RegistryClient:
    return registry_client(registry)


def use(registry: Registry, topic: str | None = None) -> Use:
    return Use(topics=(topic or next(TOPICS),), registry=registry)


def rows(row: t.Row, *values: Any) -> pa.StructArray:
    return pa.array(values, arrow_type(row))


class TestJsonSchemaConfluent(FormatContract):
    format = JsonSchemaConfluent()
    lenient = JsonSchemaConfluent(ignore_parse_errors=True)
    row = BODIES.row
    url, frame = "", b""

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def registry_url(cls, kdsl_registry: LocalRegistry) -> None:
        cls.url = kdsl_registry.url
        client = registry_client(Registry(cls.url))
        schema = cls.format.sink_schema(cls.row, client)[1]
        cls.frame = b"\0" + client.register(next(TOPICS), schema).to_bytes(4, "big")

    def use(self, use: Use = ALONE) -> Use:
        return Use(use.side, use.metadata, (next(TOPICS),), Registry(self.url))

    def decoder(self, row: t.Row | None = None, use: Use = ALONE) -> Decoder:
        return self.format.decoder(row or self.row, self.use(use))

    def encoder(self, row: t.Row | None = None) -> Encoder:
        return self.format.encoder(row or self.row, self.use())

    def message(self, number: int) -> tuple[bytes, dict[str, Any]]:
        body, values = BODIES.message(number)
        return self.frame + re.sub(rb"(\d\d-\d\d) (\d\d:)", rb"\1T\2", body), values

    def bad_messages(self) -> list[bytes]:
        frame, good = self.frame, self.message(7)[0]
        broken = [frame + body for body in BODIES.bad_messages() if b"2024-03-01T" not in body]
        broken.append(frame + BODIES.message(7)[0])  # its timestamp has the form SQL
        return [b"\0", b"\1" + good[1:], good[5:], frame, frame + frame, *broken]

    def row_types(self) -> st.SearchStrategy[t.Row]:
        return BODIES.row_types()

    def values(self, row: t.Row) -> st.SearchStrategy[Any]:
        return BODIES.values(row)

    @given(st.data())
    @settings(deadline=None, max_examples=25, suppress_health_check=SUPPRESSED)  # each registers a schema
    def test_rows_of_any_type_read_back(self, data: st.DataObject) -> None:
        check_round_trip(self, data)

    def test_the_variants_have_no_problems_and_set_every_option(self) -> None:
        shared = {
            name: value for name, value in options().items() if name not in ("record", "legacy_timestamps", "defaults")
        }
        variants = [
            JsonSchemaConfluent(**{**shared, "schema": SCHEMA}, timestamp_format="SQL", ignore_parse_errors=True),
            JsonSchemaConfluent(map_null_key_mode="LITERAL", map_null_key_literal="n", decimal_as_plain_number=True),
            JsonSchemaConfluent(ignore_null_fields=True, decimal_handling_mode="precise"),
            JsonSchemaConfluent(time_precision_mode="connect", binary_handling_mode="hex", schema_id_location="header"),
        ]
        spelled = {re.sub(r"^properties\..*", "properties.*", key) for v in variants for key in v.to_strings()}

        assert [list(v.problems()) for v in variants] == [[]] * len(variants)
        assert spelled == option_keys(JsonSchemaConfluent)


def without_frames(encoded: Any) -> list[bytes | None]:
    return [None if message is None else message[5:] for message in encoded.messages.to_pylist()]


@given(st.data())
@settings(deadline=None, max_examples=40, suppress_health_check=SUPPRESSED)
def test_the_objects_are_those_of_the_format_json(kdsl_registry: LocalRegistry, data: st.DataObject) -> None:
    row = data.draw(BODIES.row_types())
    values = rows(row, *data.draw(st.lists(BODIES.values(row), min_size=1, max_size=60)))
    of_json = Json(timestamp_format="ISO-8601").encoder(row).encode(values)
    encoded = JsonSchemaConfluent().encoder(row, use(Registry(kdsl_registry.url))).encode(values)

    assert without_frames(encoded) == of_json.messages.to_pylist()
    assert [b.index for b in encoded.bad] == [b.index for b in of_json.bad]


def _through_json_schema(kind: t.DataType) -> t.DataType:
    """The column type that a generated table has for a type: JSON Schema does not tell some types apart."""
    of = kind.nullable
    match kind:
        case t.Row(fields=fields) if fields:
            return t.Row(tuple(t.Field(f.name, _through_json_schema(f.type), f.comment) for f in fields), nullable=of)
        case t.Array(element=element):
            return t.Array(_through_json_schema(element), nullable=of)
        case t.Map(value=value):
            return t.Map(t.STRING.as_nullable(False), _through_json_schema(value), nullable=of)
        case t.Multiset():
            return t.Map(t.STRING.as_nullable(False), t.Int(nullable=False), nullable=of)
        case t.Char() | t.VarChar() | t.Time() | t.Timestamp():
            return t.STRING.as_nullable(of)
        case t.Binary() | t.VarBinary():
            return t.BYTES.as_nullable(of)
        case t.TimestampLtz():
            return t.TimestampLtz(6, nullable=of)
        case t.Row():
            return t.Map(t.STRING.as_nullable(False), t.STRING, nullable=of)
        case _:
            return kind


@given(st.data())
@settings(deadline=None, max_examples=100, suppress_health_check=SUPPRESSED)
def test_the_derived_schema_means_the_columns_of_the_table(data: st.DataObject) -> None:
    row = data.draw(BODIES.row_types())
    schema = derive_schema(row, JsonSchemaConfluent().writing_rules(), "Record")
    table = json_schema_draft(json.loads(json.dumps(schema)), topic="t").table

    assert [(c.name, c.type) for c in table.columns] == [(f.name, _through_json_schema(f.type)) for f in row.fields]


def test_a_schema_has_the_types_of_kafka_connect() -> None:
    row = t.row(
        id=t.BigInt(nullable=False), small=t.TinyInt(), amount=t.Decimal(10, 2), day=t.Date(), at=t.TimestampLtz(3)
    )

    assert derive_schema(row, JsonSchemaConfluent().writing_rules(), "Record") == {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Record",
        "type": "object",
        "properties": {
            "id": {"type": "integer", "connect.type": "int64", "connect.index": 0},
            "small": {
                "oneOf": [{"type": "null"}, {"type": "integer", "connect.type": "int8"}],
                "connect.index": 1,
            },
            "amount": {
                "oneOf": [
                    {"type": "null"},
                    {
                        "type": "number",
                        "connect.type": "bytes",
                        "title": "org.apache.kafka.connect.data.Decimal",
                        "connect.version": 1,
                        "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
                    },
                ],
                "connect.index": 2,
            },
            "day": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date"}], "connect.index": 3},
            "at": {"oneOf": [{"type": "null"}, {"type": "string", "format": "date-time"}], "connect.index": 4},
        },
        "required": ["id"],
        "additionalProperties": False,
    }


def test_the_schema_is_registered_under_the_topic_once_and_found_later(
    registry: Registry, client: RegistryClient
) -> None:
    topic = next(TOPICS)
    encoded = JsonSchemaConfluent().encoder(ORDER, use(registry, topic)).encode(rows(ORDER, {"id": 1}, {"id": 2}))
    latest = client.latest(f"{topic}-value")
    again = JsonSchemaConfluent(auto_register=False).encoder(ORDER, use(registry, topic))

    assert latest.schema.kind == "JSON"
    assert encoded.messages[1].as_py() == b"\0" + latest.id.to_bytes(4, "big") + b'{"id":2}'
    assert again.encode(rows(ORDER, {"id": 3})).messages[0].as_py()[:5] == encoded.messages[0].as_py()[:5]
    with pytest.raises(UnknownSubjectError):
        JsonSchemaConfluent(auto_register=False).encoder(ORDER, use(registry)).encode(rows(ORDER, {"id": 1}))


def test_a_nullable_column_more_is_compatible_and_one_of_another_type_is_not(registry: Registry) -> None:
    topic = next(TOPICS)
    wider = t.row(id=t.BigInt(nullable=False), note=t.STRING)
    other = t.row(id=t.STRING.as_nullable(False))
    JsonSchemaConfluent().encoder(ORDER, use(registry, topic)).encode(rows(ORDER, {"id": 1}))

    written = JsonSchemaConfluent().encoder(wider, use(registry, topic)).encode(rows(wider, {"id": 1, "note": "a"}))

    assert without_frames(written) == [b'{"id":1,"note":"a"}']
    with pytest.raises(IncompatibleSchemaError):
        JsonSchemaConfluent().encoder(other, use(registry, topic)).encode(rows(other, {"id": "x"}))


def test_the_user_s_schema_is_registered_under_its_title(registry: Registry, client: RegistryClient) -> None:
    chosen = JsonSchemaConfluent(schema=SCHEMA, subject_name_strategy="topic-record")
    topic = next(TOPICS)
    chosen.encoder(ORDER, use(registry, topic)).encode(rows(ORDER, {"id": 1}))

    assert list(chosen.check(ORDER, "write")) == []
    assert json.loads(client.latest(f"{topic}-Order").schema.text) == json.loads(SCHEMA)


def test_a_schema_that_does_not_allow_the_rows_is_a_problem() -> None:
    def problems_of(schema: str, row: t.Row, direction: Any = "write", **more: Any) -> list[str]:
        return [p.message for p in JsonSchemaConfluent(schema=schema, **more).check(row, direction)]

    start = "the format 'json-schema-confluent' has a 'schema' that "
    assert problems_of("{", ORDER) == [
        f"{start}cannot be used: it is not JSON: Expecting property name enclosed in double quotes: line 1 column 2 "
        "(char 1)"
    ]
    assert problems_of("[1]", ORDER) == [f"{start}cannot be used: it is not an object, and does not describe rows"]
    assert problems_of('{"type": "array"}', ORDER) == [
        f"{start}does not match the table: it describes array, and rows are objects"
    ]
    assert problems_of(SCHEMA, t.row(id=t.STRING, more=t.Int())) == [
        f"{start}does not match the table: 'id' is number in it, and STRING is written as string"
    ]
    assert problems_of(SCHEMA, t.row(id=t.BigInt())) == [
        f"{start}does not match the table: 'id' is never null in it, and may be NULL in the table"
    ]
    assert problems_of(SCHEMA, t.row(more=t.Int())) == [
        f"{start}does not match the table: it requires a member 'id', which the table does not have"
    ]
    assert problems_of(SCHEMA, t.row(id=t.Boolean()), "read") == [
        f"{start}does not match the table: 'id' is number in it, which BOOLEAN cannot be read from"
    ]
    assert problems_of(SCHEMA, t.row(id=t.Int(), more=t.Int()), "read") == []
    nested = '{"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/b"}}}, "$defs": '
    nested += '{"b": {"type": "object", "properties": {"c": {"type": ["string", "null"]}}}}}'
    assert problems_of(nested, t.row(a=t.Array(t.row(c=t.Boolean())).as_nullable(False))) == [
        f"{start}does not match the table: 'a[]' is never null in it, and may be NULL in the table; 'a[].c' is null or "
        "string in it, and BOOLEAN is written as boolean"
    ]
    (record,) = problems_of('{"type": "object"}', t.row(), subject_name_strategy="record")
    assert record.endswith("its 'schema' has no title")


def test_the_latest_schema_of_the_subject_is_written_where_it_allows_the_rows(
    registry: Registry, client: RegistryClient
) -> None:
    topic = next(TOPICS)
    number = client.register(f"{topic}-value", RegisteredSchema(SCHEMA, "JSON"))
    chosen = JsonSchemaConfluent(use_latest_version=True)
    encoded = chosen.encoder(ORDER, use(registry, topic)).encode(rows(ORDER, {"id": 1}))

    assert encoded.messages[0].as_py() == b"\0" + number.to_bytes(4, "big") + b'{"id":1}'
    text = t.row(id=t.STRING.as_nullable(False))
    with pytest.raises(KdslError, match="cannot hold the rows of the table: 'id' is number in it"):
        chosen.encoder(text, use(registry, topic)).encode(rows(text, {"id": "x"}))


def test_a_registered_schema_is_compared_with_those_it_references(registry: Registry, client: RegistryClient) -> None:
    topic = next(TOPICS)
    client.register(
        f"{topic}-place", RegisteredSchema('{"type": "object", "properties": {"x": {"type": "null"}}}', "JSON")
    )
    outer = '{"type": "object", "properties": {"at": {"$ref": "place.json"}}}'
    references = (SchemaReference("place.json", f"{topic}-place", 1),)
    client.register(f"{topic}-value", RegisteredSchema(outer, "JSON", references))
    schema = client.latest(f"{topic}-value").schema
    chosen = JsonSchemaConfluent()

    def misfit(row: t.Row, direction: Any) -> str:
        return chosen.schema_misfit(row, schema, client, direction)

    assert misfit(t.row(at=t.row(x=t.Int())), "read") == ""
    assert misfit(t.row(at=t.Int()), "read") == "'at' is object in it, which INT cannot be read from"
    assert "'at.x' is null in it, and INT is written as number" in misfit(t.row(at=t.row(x=t.Int())), "write")
    avro = RegisteredSchema('"string"')
    assert chosen.schema_misfit(ORDER, avro, client, "read") == "it is a schema of the type AVRO, and not a JSON Schema"


def test_the_id_of_the_schema_is_metadata(registry: Registry) -> None:
    wanted = Use(metadata=("schema-id",), registry=registry)
    messages = pa.array([b'\0\0\0\0\7{"id":1}', None, b'\0\0\0\1\0[{"id":2},{"id":3}]'], pa.binary())

    decoded = JsonSchemaConfluent().decoder(ORDER, wanted).decode(messages)

    assert [row["id"] for row in decoded.rows.to_pylist()] == [1, 2, 3]
    assert decoded.metadata["schema-id"].to_pylist() == [7, 256, 256]
