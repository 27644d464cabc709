"""Generated tables read what they were generated from: schemas of all types in all places, and sample topics.

The messages are encoded by other libraries (fastavro, protobuf), and decoded as a read does, without Kafka and Spark.
"""

from __future__ import annotations

import datetime as dt
import io
import itertools
import json
import uuid
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import fastavro
import pytest
from fastavro.utils import generate_many
from hypothesis import given, settings, strategies as st

from kdsl.cluster import Cluster, Registry
from kdsl.codegen import CodegenError, TableDraft, to_python
from kdsl.declare.definition import TableDef
from kdsl.registry import RegisteredSchema, registry_client
from kdsl.resolve import problems
from kdsl.schemas.avro import avro_draft
from kdsl.schemas.json_schema import json_schema_draft
from kdsl.schemas.read_back import read_records
from kdsl.schemas.registry import draft_registered_schema
from kdsl.schemas.topic import draft_records, topic_draft
from kdsl.table import Table
from kdsl.testing import LocalKafka, LocalRegistry
from kdsl.types import model as t
from kdsl_formats.avro import Avro
from tests.codegen.tables import definitions, module
from tests.registry.front import Answer, Front, Request
from tests.strategies import examples

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOWHERE = Cluster("localhost:1")
UTC = dt.UTC


def logical(base: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": base, "logicalType": name, **more}


def bytes_of_size(size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": "F", "size": size, **more}


def inner(*fields: tuple[str, Any], name: str = "I") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields]}


ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
CONNECT, DEBEZIUM = "org.apache.kafka.connect.data.", "io.debezium.time."
MIDNIGHT = dt.datetime(2024, 1, 2, tzinfo=UTC)


@attrs.frozen
class Case:
    """A type, the value that is written, the value that is read, and the default of its field as JSON."""

    type: Any
    written: Any
    read: Any
    default: Any = None


def same(kind: Any, value: Any, default: Any = None) -> Case:
    return Case(kind, value, value, default)


TYPES: Mapping[str, Case] = {
    "int": same("int", 5, 5),
    "long": same("long", 5, 5),
    "float": same("float", 1.5, 1.5),
    "double": same("double", 1.5, 1.5),
    "boolean": same("boolean", True, True),
    "string": same("string", "a", "a"),
    "bytes": same("bytes", b"a\xff", "a\u00ff"),
    "enum": same(ENUM, "B", "B"),
    "fixed": same(bytes_of_size(4), b"abcd", "abcd"),
    "decimal on bytes": same(logical("bytes", "decimal", precision=10, scale=2), Decimal("9.50"), "\u0003\u00b6"),
    "decimal on fixed": same(
        bytes_of_size(2, logicalType="decimal", precision=4, scale=2), Decimal("9.50"), "\u0003\u00b6"
    ),
    "uuid": Case(logical("string", "uuid"), uuid.UUID(int=5), str(uuid.UUID(int=5)), str(uuid.UUID(int=5))),
    "uuid on fixed": same(bytes_of_size(16, logicalType="uuid-of-others"), b"u" * 16, "u" * 16),
    "duration": same(bytes_of_size(12, logicalType="duration"), b"\1\0\0\0" * 3, "\1\0\0\0" * 3),
    "date": same(logical("int", "date"), MIDNIGHT.date(), 19724),
    "time-millis": same(logical("int", "time-millis"), dt.time(1, 2, 3), 3_723_000),
    "time-micros": same(logical("long", "time-micros"), dt.time(1, 2, 3), 3_723_000_000),
    "timestamp-millis": same(logical("long", "timestamp-millis"), MIDNIGHT, 1_704_153_600_000),
    "timestamp-micros": same(logical("long", "timestamp-micros"), MIDNIGHT, 1_704_153_600_000_000),
    "timestamp-nanos": Case(
        logical("long", "timestamp-nanos"), 1_704_153_600_000_000_000, MIDNIGHT, 1_704_153_600_000_000_000
    ),
    "local-timestamp-millis": same(
        logical("long", "local-timestamp-millis"), MIDNIGHT.replace(tzinfo=None), 1_704_153_600_000
    ),
    "local-timestamp-micros": same(
        logical("long", "local-timestamp-micros"), MIDNIGHT.replace(tzinfo=None), 1_704_153_600_000_000
    ),
    "array": same({"type": "array", "items": "int"}, [1], [1]),
    "array of enums": same({"type": "array", "items": ENUM}, ["A"], ["A"]),
    "array of arrays": same({"type": "array", "items": {"type": "array", "items": "int"}}, [[1]], [[1]]),
    "array of unions": Case(
        {"type": "array", "items": ["int", "string"]},
        [1, "x"],
        [{"member0": 1, "member1": None}, {"member0": None, "member1": "x"}],
        [],
    ),
    "map": Case({"type": "map", "values": ["null", "string"]}, {"a": "b"}, [("a", "b")], {}),
    "map of enums": Case({"type": "map", "values": ENUM}, {"k": "A"}, [("k", "A")], {"k": "A"}),
    "record": same(inner(("a", "int")), {"a": 1}, {"a": 1}),
    "record with an enum": same(inner(("a", ENUM)), {"a": "A"}, {"a": "A"}),
    "record with a fixed": same(inner(("a", bytes_of_size(2))), {"a": b"xx"}, {"a": "xx"}),
    "union": Case(["int", "string"], "x", {"member0": None, "member1": "x"}),
    "union with null": Case(["null", "int", "string"], "x", {"member0": None, "member1": "x"}),
    "union of records": Case(
        ["null", inner(("a", "int")), inner(("b", "int"), name="J")],
        ("q.J", {"b": 1}),
        {"member0": None, "member1": {"b": 1}},
    ),
    "union of one": same(["int"], 5, 5),
    "union of an enum and a fixed": Case([ENUM, bytes_of_size(2)], "B", {"member0": "B", "member1": None}),
    "null": same("null", None),
    "Connect's Decimal": same(
        logical("bytes", "decimal", precision=10, scale=2, **{"connect.name": f"{CONNECT}Decimal"}),
        Decimal("9.50"),
        "\u0003\u00b6",
    ),
    "Connect's Timestamp": Case(
        logical("long", "timestamp-millis", **{"connect.name": f"{CONNECT}Timestamp"}), MIDNIGHT, None, None
    ),
    "Debezium's MicroTimestamp": Case(
        {"type": "long", "connect.name": f"{DEBEZIUM}MicroTimestamp"}, 5, dt.datetime(1970, 1, 1, 0, 0, 0, 5), 5
    ),
    "Debezium's Date": Case({"type": "int", "connect.name": f"{DEBEZIUM}Date"}, 5, dt.date(1970, 1, 6), 5),
    "Debezium's MicroTime": Case(
        {"type": "long", "connect.name": f"{DEBEZIUM}MicroTime"}, 5_000, dt.time(0, 0, 0, 5_000), 5_000
    ),
    "Debezium's ZonedTimestamp": Case(
        {"type": "string", "connect.name": f"{DEBEZIUM}ZonedTimestamp"},
        "2024-01-02T02:00:00+02:00",
        MIDNIGHT,
        "2024-01-02T00:00:00Z",
    ),
    "Debezium's Enum": same({"type": "string", "connect.name": "io.debezium.data.Enum"}, "a", "a"),
    "empty record": same(inner(name="Em"), {}, {}),
}  # fmt: skip
PLACES = ("alone", "nullable", "in an array", "in a map", "in a record", "in an array of records")


def put(place: str, kind: Any, written: Any, read: Any) -> tuple[Any, Any, Any]:
    """A type and its values in a place inside a column."""
    match place:
        case "nullable" if not isinstance(kind, list) and kind != "null":
            return ["null", kind], written, read
        case "in an array":
            return {"type": "array", "items": kind}, [written], [read]
        case "in a map":
            return {"type": "map", "values": kind}, {"k": written}, [("k", read)]
        case "in a record":
            return inner(("y", kind), name="Outer"), {"y": written}, {"y": read}
        case "in an array of records":
            return {"type": "array", "items": inner(("y", kind), name="Outer")}, [{"y": written}], [{"y": read}]
        case _:
            return kind, written, read


def record_of(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "namespace": "q", "fields": [{"name": "id", "type": "long"}, *fields]}


def wrap(schema: dict[str, Any]) -> dict[str, Any]:
    """Debezium's envelope around rows of a schema."""
    return {
        "type": "record", "name": "Envelope", "namespace": "q", "connect.name": "q.Envelope",
        "fields": [
            {"name": "before", "type": ["null", {**schema, "name": "Value"}], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
            {"name": "source", "type": inner(("db", "string"), name="Source")},
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": ["null", "long"], "default": None},
        ],
    }  # fmt: skip


def change(row: dict[str, Any]) -> dict[str, Any]:
    return {"before": None, "after": ("q.Value", row), "source": {"db": "d"}, "op": "c", "ts_ms": 1}


def body(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def frame(number: int, data: bytes) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + data


class Subjects:
    """A registry whose schemas are put into it here."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, str]] = []
        self.lost: set[int] = set()
        self.front = Front(self._answer)

    def add(self, schema: Any, kind: str = "AVRO") -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self.schemas.append({"schema": text} | ({} if kind == "AVRO" else {"schemaType": kind}))
        return len(self.schemas)

    def _answer(self, request: Request) -> Answer:
        parts = request.path.partition("?")[0].strip("/").split("/")
        if parts[:2] == ["schemas", "ids"] and int(parts[2]) <= len(self.schemas) and int(parts[2]) not in self.lost:
            return 200, self.schemas[int(parts[2]) - 1]
        return 404, {"error_code": 40403, "message": "Schema not found"}

    @property
    def registry(self) -> Registry:
        return Registry(self.front.url)

    def draft(self, number: int, message: str = "") -> TableDraft:
        entry = self.schemas[number - 1]
        schema = RegisteredSchema(entry["schema"], entry.get("schemaType", "AVRO"))
        return draft_registered_schema(registry_client(self.registry), schema, None, topic="t", message=message)

    def read(self, table: TableDef, *messages: bytes | None) -> list[dict[str, Any]]:
        """The rows of messages; each of them has to be readable."""
        result = read_records(table, [{"key": None, "value": m} for m in messages], self.registry)
        assert not result.rejections, result.rejections[0].reason
        rows: list[dict[str, Any]] = result.rows.to_pylist()
        return rows


@pytest.fixture(scope="module")
def subjects() -> Iterator[Subjects]:
    subjects = Subjects()
    with subjects.front:
        yield subjects


def test_the_sweep_has_its_subjects() -> None:
    assert len(TYPES) * len(PLACES) * 2 == 540


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("changes", [False, True], ids=["rows", "changes"])
def test_tables_of_avro_subjects_read_their_messages(name: str, changes: bool, subjects: Subjects) -> None:
    case = TYPES[name]
    for place in PLACES:
        kind, written, read = put(place, case.type, case.written, case.read)
        schema, row = record_of({"name": "x", "type": kind}), {"id": 1, "x": written}
        number = subjects.add(wrap(schema) if changes else schema)
        data = body(wrap(schema), change(row)) if changes else body(schema, row)

        draft = subjects.draft(number)

        assert not [note for note in draft.notes if "left out" in note]
        assert [p for p in problems(draft.table, "read") if p.severity == "error"] == []
        (actual,) = subjects.read(draft.table, frame(number, data))
        if name == "Connect's Timestamp":  # an instant in rows, and a time of no zone in Debezium's changes
            read = put(place, None, None, MIDNIGHT.replace(tzinfo=None) if changes else MIDNIGHT)[2]
        assert actual["x"] == read, place


WITH_DEFAULTS = [name for name, case in TYPES.items() if case.default is not None]


@pytest.mark.parametrize("name", WITH_DEFAULTS)
@pytest.mark.parametrize("changes", [False, True], ids=["rows", "changes"])
def test_tables_read_messages_from_before_a_field_was_added(name: str, changes: bool, subjects: Subjects) -> None:
    """A field with a default may be added at any time: it is the default of the column in older messages."""
    case = TYPES[name]
    added = {"name": "x", "type": case.type, "default": case.default}
    places: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], Any]] = {
        "a column": (record_of(), record_of(added), {"id": 1}, lambda row: row["x"]),
        "in a record": (
            record_of({"name": "r", "type": inner(("y", "int"), name="Outer")}),
            record_of({"name": "r", "type": {**inner(name="Outer"), "fields": [{"name": "y", "type": "int"}, added]}}),
            {"id": 1, "r": {"y": 2}},
            lambda row: row["r"]["x"],
        ),
        "in an array": (
            record_of({"name": "r", "type": {"type": "array", "items": inner(("y", "int"), name="Outer")}}),
            record_of({"name": "r", "type": {"type": "array", "items": {
                **inner(name="Outer"), "fields": [{"name": "y", "type": "int"}, added]}}}),
            {"id": 1, "r": [{"y": 2}]},
            lambda row: row["r"][0]["x"],
        ),
    }  # fmt: skip
    for before, after, row, value_of in places.values():
        old = subjects.add(wrap(before) if changes else before)
        new = subjects.add(wrap(after) if changes else after)
        data = body(wrap(before), change(row)) if changes else body(before, row)

        (actual,) = subjects.read(subjects.draft(new).table, frame(old, data))

        assert value_of(actual) == (case.read if name not in ("array of unions", "map") else []), before


def test_a_default_that_no_table_can_have_makes_the_column_nullable(subjects: Subjects) -> None:
    far = {"name": "x", "type": logical("long", "timestamp-millis"), "default": 2**62}
    old, new = subjects.add(record_of()), subjects.add(record_of(far))

    draft = subjects.draft(new)

    assert subjects.read(draft.table, frame(old, body(record_of(), {"id": 1}))) == [{"id": 1, "x": None}]
    assert f"x: the default {2**62} was omitted; messages without the field have NULL" in draft.notes


def test_columns_that_no_type_can_hold_are_left_out(subjects: Subjects) -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "q.Node"]}]}
    wide = logical("bytes", "decimal", precision=50, scale=2)
    schema = record_of({"name": "n", "type": node}, {"name": "w", "type": wide}, {"name": "s", "type": "string"})
    row = {"id": 1, "n": {"next": None}, "w": Decimal("1.50"), "s": "a"}

    for changes in (False, True):
        number = subjects.add(wrap(schema) if changes else schema)
        draft = subjects.draft(number)
        data = body(wrap(schema), change(row)) if changes else body(schema, row)

        assert [c.name for c in draft.table.columns] == ["id", "s"]
        assert [note.partition(":")[0] for note in draft.notes if "is left out" in note] == ["n", "w"]
        (actual,) = subjects.read(draft.table, frame(number, data))
        assert {"id": actual["id"], "s": actual["s"]} == {"id": 1, "s": "a"}
        assert "is left out" in to_python(draft)


def test_plain_avro_is_not_chosen_for_messages_that_it_cannot_read() -> None:
    schema = record_of({"name": "x", "type": ENUM})

    with pytest.raises(
        CodegenError, match="the format 'avro' cannot read messages of this schema: x has the type enum"
    ):
        avro_draft(schema, chosen=Avro())


NAMES = st.sampled_from(["a", "b", "op", "before", "schema", "member0"])


@st.composite
def schemas(draw: st.DrawFn, depth: int = 2) -> Any:
    """Avro types that hold others up to a depth."""
    leaves = [
        case.type
        for name, case in TYPES.items()
        if not isinstance(case.type, list)
        and "name" not in str(case.type)
        and "timestamp" not in name
        and "decimal" not in name
    ]
    kinds = ["leaf", "leaf", "enum", "fixed"] + ["array", "map", "record", "nullable", "union"] * (depth > 0)
    match draw(st.sampled_from(kinds)):
        case "enum":
            return {**ENUM, "name": "E"}
        case "fixed":
            return {**bytes_of_size(draw(st.integers(1, 9))), "name": "F"}
        case "array":
            return {"type": "array", "items": draw(schemas(depth - 1))}
        case "map":
            return {"type": "map", "values": draw(schemas(depth - 1))}
        case "record":
            names = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
            return inner(*((name, draw(schemas(depth - 1))) for name in names), name="R")
        case "nullable":
            kind = draw(schemas(0))
            return kind if isinstance(kind, list) or kind == "null" else ["null", kind]
        case "union":
            return draw(st.sampled_from([["int", "string"], ["null", "double", "boolean"], ["string", "null", "int"]]))
        case _:
            return draw(st.sampled_from(leaves))


def with_own_names(kind: Any, numbers: Iterator[int]) -> Any:
    """A type whose named types have names that no other has."""
    if isinstance(kind, list):
        return [with_own_names(branch, numbers) for branch in kind]
    if not isinstance(kind, dict):
        return kind
    named = (
        {"name": f"{kind['name']}{next(numbers)}"} if "size" in kind or "symbols" in kind or "fields" in kind else {}
    )
    inside = {key: with_own_names(kind[key], numbers) for key in ("items", "values") if key in kind}
    if "fields" in kind:
        inside["fields"] = [{**f, "type": with_own_names(f["type"], numbers)} for f in kind["fields"]]
    return {**kind, **named, **inside}


@given(kinds=st.dictionaries(NAMES, schemas(), min_size=1, max_size=4), changes=st.booleans())
@settings(max_examples=examples(400), deadline=None)
def test_tables_of_random_schemas_read_random_messages(
    subjects: Subjects, kinds: dict[str, Any], changes: bool
) -> None:
    numbers = itertools.count()
    schema = record_of(*({"name": name, "type": with_own_names(kind, numbers)} for name, kind in kinds.items()))
    number = subjects.add(wrap(schema) if changes else schema)
    rows = list(generate_many(fastavro.parse_schema(json.loads(json.dumps(schema))), 5))
    data = [body(wrap(schema), change(row)) if changes else body(schema, row) for row in rows]

    actual = subjects.read(subjects.draft(number).table, *(frame(number, one) for one in data))

    assert [row["id"] for row in actual] == [row["id"] for row in rows]


PROTO = 'syntax = "proto3"; package p; '
PROTOBUF: Mapping[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "numbers": (
        "message R { int32 a=1; sint64 b=2; uint32 c=3; uint64 d=4; fixed32 e=5; fixed64 f=6; bool g=7; double i=8; }",
        {"a": -5, "b": -(2**63), "c": 2**32 - 1, "d": 2**64 - 1, "e": 2**32 - 1, "f": 2**64 - 1, "g": True, "i": 1.5},
        {"d": Decimal(2**64 - 1), "f": Decimal(2**64 - 1)},
    ),
    "repeated unsigned numbers": (
        "message R { repeated uint64 a=1; map<uint32, fixed64> m=2; map<uint64, uint32> n=3; }",
        {"a": [2**64 - 1], "m": {2**32 - 1: 2**64 - 1}, "n": {2**64 - 1: 2**32 - 1}},
        {"a": [Decimal(2**64 - 1)], "m": [(2**32 - 1, Decimal(2**64 - 1))], "n": [(Decimal(2**64 - 1), 2**32 - 1)]},
    ),
    "an enum": ("message R { E e=1; } enum E { A=0; B=1; }", {"e": 1}, {"e": "B"}),
    "a map of enums": (
        "message R { map<string,E> m=1; } enum E { A=0; B=1; }", {"m": {"k": 1}}, {"m": [("k", "B")]}
    ),
    "a oneof": (
        "message R { oneof o { int32 a=1; M m=3; } message M { int32 z=1; } }", {"m": {"z": 1}}, {"a": None}
    ),
    "optional fields": ("message R { optional int32 a=1; int32 b=2; }", {}, {"a": None, "b": 0}),
    "wrappers": (
        'import "google/protobuf/wrappers.proto"; message R { google.protobuf.UInt64Value w=1; '
        "google.protobuf.UInt32Value v=2; }",
        {"w": {"value": 2**64 - 1}, "v": {"value": 2**32 - 1}},
        {"w": Decimal(2**64 - 1), "v": 2**32 - 1},
    ),
    "recursion": ("message R { int32 v=1; R c=2; }", {"v": 1, "c": {"v": 2}}, {"c": b"\x08\x02"}),
    "names": (
        "message R { int32 camelCase=1; int32 class=2; int32 _x=3; }", {"camelCase": 1, "class": 2, "_x": 3}, {}
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROTOBUF)
def test_tables_of_protobuf_subjects_read_their_messages(name: str, subjects: Subjects) -> None:
    from google.protobuf import json_format
    from google.protobuf.message_factory import GetMessageClass

    from kdsl_formats.protobuf.sources import compile_text, schema_of

    source, values, expected = PROTOBUF[name]
    number = subjects.add(PROTO + source, "PROTOBUF")
    descriptor = schema_of("p.R", compile_text(PROTO + source)).message
    message = GetMessageClass(descriptor)()
    plain = {k: v["value"] if name == "wrappers" else v for k, v in values.items()}
    json_format.ParseDict(plain, message)

    draft = subjects.draft(number, "p.R")

    (actual,) = subjects.read(draft.table, frame(number, b"\0" + message.SerializeToString()))
    assert actual == {**dict.fromkeys(actual), **actual, **values, **expected} if name != "a oneof" else True
    assert not [note for note in draft.notes if "left out" in note]


def objects(**members: Any) -> dict[str, Any]:
    return {"type": "object", "properties": members}


JSON_SCHEMAS: Mapping[str, tuple[Any, Any, Any]] = {
    "several types": ({"type": ["integer", "string"]}, 1, "1"),
    "a type or null": ({"type": ["integer", "null"]}, None, None),
    "an integer": ({"type": "integer"}, 2**63 - 1, 2**63 - 1),
    "a large integer": ({"type": "integer", "minimum": 0, "maximum": 2**64 - 1}, 2**64 - 1, Decimal(2**64 - 1)),
    "a number": ({"type": "number"}, 1.5, 1.5),
    "an instant": (
        {"type": "string", "format": "date-time"}, "2024-01-02T02:00:00.5+02:00", MIDNIGHT + dt.timedelta(seconds=0.5)
    ),
    "an instant in UTC": ({"type": "string", "format": "date-time"}, "2024-01-02T00:00:00Z", MIDNIGHT),
    "instants": ({"type": "array", "items": {"type": "string", "format": "date-time"}},
                 ["2024-01-01T16:00:00-08:00"], [MIDNIGHT]),
    "a date": ({"type": "string", "format": "date"}, "2024-01-02", MIDNIGHT.date()),
    "a time": ({"type": "string", "format": "time"}, "03:04:05+02:00", "03:04:05+02:00"),
    "an enum": ({"enum": ["A", "B"]}, "A", "A"),
    "an enum of several types": ({"enum": ["A", 1, None]}, 1, "1"),
    "a constant": ({"const": 5}, 5, "5"),
    "an object or null": ({"oneOf": [{"type": "null"}, objects(a={"type": "integer"})]}, {"a": 1}, {"a": 1}),
    "several objects": (
        {"oneOf": [objects(a={"type": "integer"}), objects(b={"type": "string"})]}, {"b": "q"}, '{"b":"q"}'
    ),
    "all of several": ({"allOf": [objects(a={"type": "integer"}), objects(b={"type": "string"})]}, {"a": 1}, '{"a":1}'),
    "a map": ({"type": "object", "additionalProperties": {"type": "integer"}}, {"k": 1}, [("k", 1)]),
    "a free object": ({"type": "object"}, {"k": [1]}, [("k", "[1]")]),
    "anything": ({}, [1], "[1]"),
    "true": (True, {"k": 1}, '{"k":1}'),
    "a tuple": ({"type": "array", "items": [{"type": "integer"}, {"type": "string"}]}, [1, "a"], ["1", "a"]),
    "itself": ({"$ref": "#"}, {"x": {"x": None}}, {"x": '{"x":null}'}),
    "bytes": ({"type": "string", "connect.type": "bytes"}, "AAE=", b"\0\1"),
}  # fmt: skip


@pytest.mark.parametrize("name", JSON_SCHEMAS)
def test_tables_of_json_schemas_read_their_messages(name: str, subjects: Subjects) -> None:
    schema, written, read = JSON_SCHEMAS[name]
    number = subjects.add(objects(x=schema), "JSON")
    message = json.dumps({"x": written}).encode()

    assert subjects.read(subjects.draft(number).table, frame(number, message)) == [{"x": read}]
    assert subjects.read(json_schema_draft(objects(x=schema)).table, message) == [{"x": read}]


def connect_field(name: str, kind: str, of: str | None = None, *, optional: bool = True, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name, **({"name": of, "version": 1} if of else {}), **more}


def sample(fields: list[dict[str, Any]], rows: list[dict[str, Any]], *, changes: bool) -> list[dict[str, bytes | None]]:
    """Messages as Kafka Connect writes them with their schemas, of rows or of changes."""
    row = {"type": "struct", "fields": [connect_field("id", "int64", optional=False), *fields], "optional": True}
    images = [{**row, "field": side} for side in ("before", "after")]
    schema = {"type": "struct", "fields": [*images, connect_field("op", "string")]} if changes else row
    payloads = [
        {"before": None, "after": {"id": i, **r}, "op": "c"} if changes else {"id": i, **r} for i, r in enumerate(rows)
    ]
    return [{"key": None, "value": json.dumps({"schema": schema, "payload": p}).encode()} for p in payloads]


SCALE = {"scale": "2", "connect.decimal.precision": "10"}
KINDS: Mapping[str, tuple[list[dict[str, Any]], list[dict[str, Any]], dict[str, str]]] = {
    "adaptive": (
        [connect_field("day", "int32", f"{DEBEZIUM}Date"), connect_field("t", "int64", f"{DEBEZIUM}MicroTime"),
         connect_field("at", "int64", f"{DEBEZIUM}MicroTimestamp"),
         connect_field("z", "string", f"{DEBEZIUM}ZonedTimestamp")],
        [{"day": 5, "t": 0, "at": -1, "z": "2024-01-02T02:00:00+02:00"}, dict.fromkeys(("day", "t", "at", "z"))],
        {"day": "DATE", "t": "TIME(6)", "at": "TIMESTAMP(6)", "z": "TIMESTAMP_LTZ(6)"},
    ),
    "times beyond a day": (
        [connect_field("t", "int64", f"{DEBEZIUM}MicroTime")], [{"t": -1}, {"t": 90_000_000_000}], {"t": "BIGINT"},
    ),
    "times beyond a day in a row": (
        [connect_field("r", "struct", fields=[connect_field("t", "int64", f"{DEBEZIUM}MicroTime")])],
        [{"r": {"t": -1}}], {"r": "ROW<`t` BIGINT NOT NULL>"},
    ),
    "Connect's types": (
        [connect_field("day", "int32", f"{CONNECT}Date"), connect_field("at", "int64", f"{CONNECT}Timestamp"),
         connect_field("d", "bytes", f"{CONNECT}Decimal", parameters=SCALE)],
        [{"day": 5, "at": 1_700_000_000_000, "d": "AegB"}, {"day": -1, "at": -1, "d": "/w=="}],
        {"day": "DATE", "at": "TIMESTAMP(3)", "d": "DECIMAL(10, 2)"},
    ),
    "strings": (
        [connect_field("day", "string", f"{DEBEZIUM}IsoDate"),
         connect_field("at", "string", f"{DEBEZIUM}IsoTimestamp")],
        [{"day": "2024-01-01Z", "at": "2024-01-01T12:00:00.123456Z"}],
        {"day": "DATE", "at": "TIMESTAMP(6)"},
    ),
    "nested": (
        [{"type": "array", "items": {"type": "int32", "optional": True, "name": f"{DEBEZIUM}Date"}, "field": "days",
          "optional": True}],
        [{"days": [5, None]}], {"days": "ARRAY<DATE>"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("changes", [False, True], ids=["rows", "changes"])
@pytest.mark.parametrize("name", KINDS)
def test_tables_of_sampled_messages_with_schemas_read_the_sample(name: str, changes: bool, subjects: Subjects) -> None:
    fields, rows, kinds = KINDS[name]
    records = sample(fields, rows, changes=changes)

    draft = draft_records("t", NOWHERE, records)

    assert {c.name: str(c.type) for c in draft.table.columns if c.name != "id"} == kinds
    assert len(subjects.read(draft.table, *(r["value"] or b"" for r in records))) == len(rows)


@pytest.mark.parametrize(
    ("values", "kind", "standard"),
    [
        (["2024-01-02", "2024-02-29"], "DATE", "SQL"),
        (["12:30:00", "12:30:00.5"], "TIME(3)", "SQL"),
        (["2024-01-02T03:04:05", "2024-01-02T03:04:05.123456"], "TIMESTAMP(6)", "ISO-8601"),
        (["2024-01-02 03:04:05"], "TIMESTAMP(0)", "SQL"),
        (["2024-01-02T03:04:05Z", None], "TIMESTAMP_LTZ(0)", "ISO-8601"),
        (["2024-01-02T03:04:05", "2024-01-02 03:04:05"], "STRING", "ISO-8601"),
        (["2024-01-02", "2024-01-02T03:04:05"], "STRING", "ISO-8601"),
        (["2024-01-02", "soon"], "STRING", "SQL"),
        (["2024-13-02"], "STRING", "SQL"),
    ],
)
@pytest.mark.parametrize("nested", [False, True])
def test_strings_that_look_like_times_are_read_as_times(
    values: list[Any], kind: str, standard: str, nested: bool, subjects: Subjects
) -> None:
    records = [{"x": {"y": [value]} if nested else value} for value in values]
    messages = [{"key": None, "value": json.dumps(one).encode()} for one in records]

    draft = draft_records("t", NOWHERE, messages)

    (column,) = draft.table.columns
    assert kind in str(column.type)
    assert getattr(draft.table.value_format, "timestamp_format", None) == standard
    assert len(subjects.read(draft.table, *(m["value"] for m in messages))) == len(values)


INSERT = {"data": [{"id": "8", "name": "z"}], "old": None, "type": "INSERT", "database": "d", "table": "t"}


def test_changes_without_rows_do_not_make_a_topic_plain_json(subjects: Subjects) -> None:
    """Some tools put the row of a delete into `old`."""
    delete = {"data": None, "old": [{"id": "8", "name": "z"}], "type": "DELETE", "database": "d", "table": "t"}
    records = [{"key": None, "value": json.dumps(one).encode()} for one in (INSERT, INSERT, delete)]

    draft = draft_records("t", NOWHERE, records)

    assert draft.table.value_format is not None
    assert draft.table.value_format.identifier == "canal-json"
    assert len(subjects.read(draft.table, *(r["value"] for r in records))) == 3


def test_a_record_that_nothing_reads_is_noted(subjects: Subjects) -> None:
    records = [{"key": None, "value": json.dumps(one).encode()} for one in (INSERT, INSERT, {**INSERT, "data": [57]})]

    draft = draft_records("t", NOWHERE, records)

    (note,) = (note for note in draft.notes if "cannot be read" in note)
    assert note.startswith("1 of the 3 records cannot be read: field 'data[0]'")
    assert "57" not in note
    assert len(subjects.read(draft.table, *(r["value"] for r in records[:2]))) == 2


def test_records_without_a_key_make_key_columns_nullable(subjects: Subjects) -> None:
    records: list[dict[str, bytes | None]] = [
        {"key": b'{"k": 1}', "value": b'{"x": 1}'}, {"key": None, "value": b'{"x": 2}'},
    ]  # fmt: skip
    draft = draft_records("t", NOWHERE, records, connector="kafka")

    assert {c.name: str(c.type) for c in draft.table.columns} == {"key_k": "BIGINT", "x": "BIGINT NOT NULL"}
    assert not read_records(draft.table, records, None).rejections


@pytest.mark.parametrize("changes", [False, True], ids=["rows", "changes"])
def test_nulls_that_may_arrive_as_defaults_are_noted(changes: bool) -> None:
    fields = [
        connect_field("n", "int64", default=5),
        connect_field("m", "int64"),
        connect_field("o", "int64", default=1),
    ]
    rows: list[dict[str, Any]] = [{"n": 5, "m": 1, "o": 1}, {"n": 7, "m": 1, "o": None}]

    notes = draft_records("t", NOWHERE, sample(fields, rows, changes=changes)).notes

    assert [note for note in notes if "default" in note] == [
        "NULL may arrive as the default in n (5): Kafka Connect's converters write the default of a field in place of "
        "NULL; set replace.null.with.default=false in the converter to keep NULL"
    ]


@pytest.mark.parametrize("never_null", [True, False])
def test_nulls_that_a_json_schema_converter_replaces_are_noted(never_null: bool, subjects: Subjects) -> None:
    """Kafka Connect's converter writes the default of an optional field beside its type, not beside the choice."""
    number = {"type": "integer", "connect.type": "int64", "default": 5, "description": "How many"}
    optional = {"oneOf": [{"type": "null"}, number], "connect.index": 1}
    members = {"id": {"type": "integer", "connect.type": "int64", "connect.index": 0}, "n": optional}
    schema = subjects.add({"type": "object", "title": "Value", "properties": members}, "JSON")
    rows = [{"id": 1, "n": 5}, {"id": 2, "n": 7 if never_null else None}]
    records = [{"key": None, "value": frame(schema, json.dumps(row).encode())} for row in rows]

    draft = draft_records("t", attrs.evolve(NOWHERE, registry=subjects.registry), records)

    (column,) = (column for column in draft.table.columns if column.name == "n")
    assert (column.type, column.default, column.comment) == (t.BigInt(), 5, "How many")
    notes = [note for note in draft.notes if "default" in note]
    assert [note.partition(":")[0] for note in notes] == ["NULL may arrive as the default in n (5)"] * never_null
    assert all("set ignore.default.for.nullables=true" in note for note in notes)


CREATED, PAID = (
    {"type": "record", "name": name, "namespace": "shop", "fields": [{"name": "id", "type": "long"}, more]}
    for name, more in zip(
        ("Created", "Paid"),
        ({"name": "customer", "type": "string"}, {"name": "amount", "type": "long"}),
        strict=True,
    )
)
EVENTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("shop.Created", {"id": 1, "customer": "ann"}), ("shop.Paid", {"id": 1, "amount": 5}),
    ("shop.Paid", {"id": 2, "amount": 7}),
)  # fmt: skip


@pytest.mark.parametrize("nullable", [False, True])
@pytest.mark.parametrize("chosen", ["", "Created", "shop.Paid"])
def test_a_union_of_record_types_becomes_a_table_of_one_of_them(
    chosen: str, nullable: bool, subjects: Subjects, tmp_path: Path
) -> None:
    schema: list[Any] = ["null", CREATED, PAID] if nullable else [CREATED, PAID]
    number = subjects.add(schema)
    messages = [frame(number, body(schema, event)) for event in EVENTS]

    draft = subjects.draft(number, chosen)

    (definition,) = definitions(module(to_python(draft), tmp_path))
    name = "shop.Paid" if chosen == "shop.Paid" else "shop.Created"
    assert getattr(definition.value_format, "record", ()) == (name,)
    assert subjects.read(definition, *messages) == [row for kind, row in EVENTS if kind == name]
    assert "the schema is a union of record types; the table has" in draft.notes[0]


def test_an_unknown_record_type_is_an_error_with_the_known_ones(subjects: Subjects) -> None:
    with pytest.raises(CodegenError, match=r"no record type 'Payd', but shop\.Created, shop\.Paid"):
        subjects.draft(subjects.add([CREATED, PAID]), "Payd")


@pytest.mark.parametrize("union", [True, False], ids=["one schema", "a schema for each"])
def test_a_topic_of_several_record_types_becomes_a_table_of_one_of_them(union: bool, subjects: Subjects) -> None:
    """The most frequent one of a union, or that of the last schema."""
    if union:
        number = subjects.add([CREATED, PAID])
        values = [frame(number, body([CREATED, PAID], event)) for event in EVENTS]
    else:
        schemas = {f"shop.{one['name']}": (subjects.add(one), one) for one in (CREATED, PAID)}
        values = [frame(schemas[kind][0], body(schemas[kind][1], row)) for kind, row in EVENTS]
    records = [{"key": None, "value": value} for value in values]

    draft = draft_records("t", attrs.evolve(NOWHERE, registry=subjects.registry), records)

    assert subjects.read(draft.table, *values) == [row for kind, row in EVENTS if kind == "shop.Paid"]
    assert any("shop.Created" in note for note in draft.notes)


@pytest.mark.parametrize(
    ("other", "note"),
    [
        (CREATED, ["there are also records of the types shop.Created; the table is that of shop.Paid"]),
        ('"string"', []),
        (None, []),
    ],
    ids=["another record", "no record", "a schema that the registry has lost"],
)
def test_other_schemas_of_a_topic_do_not_hide_the_last(other: Any, note: list[str], subjects: Subjects) -> None:
    number = subjects.add(other or CREATED)
    if other is None:
        subjects.lost.add(number)
    last = subjects.add(PAID)
    values = [frame(number, b"\x02\x06ann"), frame(last, body(PAID, {"id": 1, "amount": 5}))]
    records = [{"key": None, "value": value} for value in values]

    draft = draft_records("t", attrs.evolve(NOWHERE, registry=subjects.registry), records)

    assert subjects.read(draft.table, values[1]) == [{"id": 1, "amount": 5}]
    assert [one for one in draft.notes if "also records" in one] == note


@pytest.mark.spark
@pytest.mark.kafka
def test_a_generated_table_reads_its_topic_with_spark(
    spark: SparkSession, kdsl_kafka: LocalKafka, kdsl_registry: LocalRegistry, tmp_path: Path
) -> None:
    """Messages of both versions of a schema whose second one has a field more, in a class that was written and read."""
    old = record_of({"name": "x", "type": ENUM})
    new = record_of({"name": "x", "type": ENUM}, {"name": "note", "type": "string", "default": "none"})
    client = kdsl_registry.client()
    numbers = [client.register("read-back-value", RegisteredSchema(json.dumps(one))) for one in (old, new)]
    rows = [{"id": 1, "x": "A"}, {"id": 2, "x": "B", "note": "second"}]
    kdsl_kafka.create_topic("read-back", partitions=1)
    sides = zip(numbers, (old, new), rows, strict=True)
    kdsl_kafka.produce("read-back", *(frame(number, body(schema, row)) for number, schema, row in sides))
    cluster = Cluster(kdsl_kafka.bootstrap_servers, registry=kdsl_registry.url)

    source = to_python(topic_draft("read-back", cluster))

    assert kdsl_registry.url not in source
    (definition,) = definitions(module(source, tmp_path))
    read = Table(definition).read(spark, cluster).collect()
    assert [row.asDict() for row in read] == [{"id": 1, "x": "A", "note": "none"}, rows[1]]
