"""What schemas give: golden modules, names, docs, defaults, enums; and schemas that no table can hold."""

from __future__ import annotations

import importlib
import json
from dataclasses import is_dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

from kdsl import Protobuf, ResolveError
from kdsl.codegen import CodegenError, TableDraft, to_python
from kdsl.declare.definition import MISSING, TableDef
from kdsl.resolve import problems
from kdsl.schemas.avro import avro_draft
from kdsl.schemas.ddl import ddl_drafts
from kdsl.schemas.json_schema import json_schema_draft
from kdsl.schemas.protobuf import protobuf_draft
from kdsl.types import model as t
from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent
from tests.codegen.tables import definitions, module

DATA = Path(__file__).parent / "data"


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def load_definition(draft: TableDraft, tmp_path: Path) -> TableDef:
    (tables,) = definitions(module(to_python(draft), tmp_path))
    return tables


def without_classes(table: TableDef) -> TableDef:
    """A table whose defaults are plain: those of records are of the generated classes."""
    return attrs.evolve(table, columns=tuple(attrs.evolve(c, default=MISSING) for c in table.columns))


class TestAvro:
    def draft(self) -> TableDraft:
        return avro_draft(json.loads((DATA / "orders.avsc").read_text(encoding="utf-8")), topic="orders")

    def test_the_module_declares_the_table_of_the_schema(self, tmp_path: Path) -> None:
        draft = self.draft()

        result = load_definition(draft, tmp_path)

        assert without_classes(result) == without_classes(draft.table)
        assert [c.default for c in result.columns] == [c.default for c in draft.table.columns]
        assert problems(result, "read") == []

    def test_a_schema_that_columns_cannot_reproduce_is_read_by_the_registry_format(self) -> None:
        plain = avro_draft(record({"name": "a", "type": ["null", "int"]}))
        other = avro_draft(record({"name": "a", "type": ["int", "null"]}))

        assert plain.notes == ()
        assert plain.table.value_format is not None
        assert plain.table.value_format.identifier == "avro"
        assert other.table.value_format is not None
        assert other.table.value_format.identifier == "avro-confluent"
        assert "a is a union with other types, or with another order" in other.notes[0]

    @pytest.mark.parametrize(
        ("kind", "default", "value"),
        [
            ("string", "x", "x"),
            (["null", "string"], None, None),
            (["string", "null"], "x", "x"),
            ("double", 1, 1.0),
            ("boolean", True, True),
            ("bytes", "\u00ff", b"\xff"),
            ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0004\u00d2", Decimal("12.34")),
            ({"type": "int", "logicalType": "date"}, 1, date(1970, 1, 2)),
            ({"type": "int", "logicalType": "time-millis"}, 1000, time(0, 0, 1)),
            ({"type": "long", "logicalType": "timestamp-millis"}, 1000, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
            ({"type": "long", "logicalType": "local-timestamp-millis"}, 1000, datetime(1970, 1, 1, 0, 0, 1)),
            ({"type": "map", "values": "int"}, {"a": 1}, {"a": 1}),
            ({"type": "array", "items": ["null", "float"]}, [None], [None]),
        ],
    )
    def test_defaults(self, kind: Any, default: Any, value: Any, tmp_path: Path) -> None:
        draft = avro_draft(record({"name": "a", "type": kind, "default": default}))
        if kind == ["string", "null"] or (isinstance(kind, dict) and "timestamp" in str(kind.get("logicalType"))):
            draft = attrs.evolve(draft, table=attrs.evolve(draft.table, value_format=None))

        assert load_definition(draft, tmp_path).columns[0].default == value

    def test_defaults_of_records_and_enums_are_of_their_classes(self, tmp_path: Path) -> None:
        enum = {"type": "enum", "name": "E", "symbols": ["A", "mro"]}
        inner = record({"name": "_x", "type": enum}, {"name": "y", "type": "int", "default": 3})
        draft = avro_draft({**record({"name": "a", "type": {**inner, "name": "I"}, "default": {"_x": "mro"}})})

        actual = module(to_python(draft), tmp_path)

        assert actual.R.definition().columns[0].default == actual.I(x=actual.E.mro_, y=3)

    def test_members_of_nested_records_keep_their_defaults(self, tmp_path: Path) -> None:
        color = {"type": "enum", "name": "Color", "symbols": ["RED", "BLUE"]}
        texts = {"type": "array", "items": "string"}
        numbers = {"type": "map", "values": "int"}
        deep = record({"name": "z", "type": "long", "default": 5}, name="Deep")
        inner = record(
            {"name": "n", "type": ["null", "string"], "default": None},
            {"name": "color", "type": color, "default": "BLUE"},
            {"name": "class", "type": texts, "default": ["a"]},
            {"name": "m", "type": numbers, "default": {}},
            {"name": "deep", "type": deep, "default": {"z": 6}},
            {"name": "must", "type": "int"},
            name="Inner",
        )
        outcome = module(to_python(avro_draft(record({"name": "r", "type": inner}))), tmp_path)

        actual = outcome.Inner(must=1)

        assert (actual.n, actual.color, actual.class_, actual.m) == (None, outcome.Color.BLUE, ["a"], {})
        assert (actual.deep, outcome.Deep()) == (outcome.Deep(z=6), outcome.Deep(z=5))

    def test_equal_records_with_different_defaults_are_separate_classes(self, tmp_path: Path) -> None:
        one, other = (record({"name": "x", "type": "int", "default": n}, name="In", namespace=f"n{n}") for n in (1, 2))
        actual = module(
            to_python(avro_draft(record({"name": "a", "type": one}, {"name": "b", "type": other}))), tmp_path
        )

        kinds: list[Any] = [kind for kind in vars(actual).values() if is_dataclass(kind)]
        assert {kind().x for kind in kinds} == {1, 2}

    @pytest.mark.parametrize(
        ("kind", "default"),
        [("int", "text"), ("boolean", 1), ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"), ("bytes", 5)],
    )
    def test_a_default_of_another_type_is_reported_and_left_out(self, kind: Any, default: Any, tmp_path: Path) -> None:
        inner = record({"name": "x", "type": kind, "default": default}, name="Inner")
        draft = avro_draft(record({"name": "r", "type": inner}, {"name": "y", "type": "int", "default": "text"}))

        assert any(note.startswith(f"r.x: the default {default!r} was omitted") for note in draft.notes)
        assert any(note.startswith("y: the default 'text' was omitted") for note in draft.notes)
        assert load_definition(draft, tmp_path).problems == ()

    def test_a_default_that_does_not_fit_its_type_is_reported(self) -> None:
        draft = avro_draft(record({"name": "a", "type": {"type": "int", "logicalType": "date"}, "default": "x"}))

        assert draft.table.columns[0].default is MISSING
        assert "a: the default 'x' was omitted" in draft.notes

    def test_a_record_default_without_a_member_is_reported(self) -> None:
        inner = record({"name": "x", "type": "int"}, {"name": "y", "type": "int", "default": 3})
        draft = avro_draft(record({"name": "a", "type": {**inner, "name": "I"}, "default": {"y": 1}}))

        assert draft.table.columns[0].default is MISSING
        assert "a: the default {'y': 1} was omitted" in draft.notes

    def test_a_default_of_a_choice_is_the_row_of_its_members(self, tmp_path: Path) -> None:
        draft = avro_draft(record({"name": "a", "type": ["int", "string"], "default": 5}))

        actual = module(to_python(draft), tmp_path)

        assert actual.R.definition().columns[0].default == actual.AChoice(member0=5, member1=None)

    def test_a_recursive_record_is_reported(self) -> None:
        schema = record({"name": "next", "type": ["null", "R"]})

        with pytest.raises(CodegenError, match="contains itself"):
            avro_draft(schema)

    @pytest.mark.parametrize("schema", ["string", {"type": "array", "items": "int"}, {"type": "nothing"}, 5])
    def test_a_schema_that_is_not_a_record_is_reported(self, schema: Any) -> None:
        with pytest.raises(CodegenError, match="cannot be converted to a table"):
            avro_draft(schema)

    def test_empty_records(self, tmp_path: Path) -> None:
        empty = {"type": "record", "name": "Empty", "fields": []}
        draft = avro_draft(record({"name": "a", "type": empty}, {"name": "b", "type": ["null", "Empty"]}))

        result = load_definition(draft, tmp_path)

        assert [c.type for c in result.columns] == [t.Row((), nullable=False), t.Row(())]
        assert load_definition(avro_draft(empty), tmp_path).columns == ()

    def test_five_hundred_columns(self, tmp_path: Path) -> None:
        draft = avro_draft(record(*({"name": f"c{i}", "type": "long", "doc": f"Column {i}."} for i in range(500))))

        assert load_definition(draft, tmp_path) == draft.table

    def test_deep_nesting(self, tmp_path: Path) -> None:
        schema: Any = "int"
        for i in range(30):
            schema = {"type": "record", "name": f"R{i}", "fields": [{"name": "inner", "type": schema}]}
        draft = avro_draft(schema)

        assert without_classes(load_definition(draft, tmp_path)) == draft.table

    def test_excessive_nesting_is_reported(self) -> None:
        schema: Any = "int"
        for _ in range(900):
            schema = {"type": "array", "items": schema}

        with pytest.raises(CodegenError, match="nested more than 100 levels deep"):
            avro_draft(record({"name": "a", "type": schema}))

    @pytest.mark.parametrize(("levels", "limit"), [(14, "10,000 columns and members"), (60, "100,000 types")])
    def test_more_members_than_can_be_written_are_refused_with_the_limit(self, levels: int, limit: str) -> None:
        schema: Any = "int"
        for i in range(levels):
            fields = [{"name": "a", "type": schema}, {"name": "b", "type": f"R{i - 1}" if i else "int"}]
            schema = {"type": "record", "name": f"R{i}", "fields": fields}

        with pytest.raises(CodegenError, match=f"more than {limit}"):
            avro_draft(schema)

    def test_the_same_record_twice_is_one_class_and_equal_names_are_kept_apart(self, tmp_path: Path) -> None:
        a = {"type": "record", "name": "x.Address", "fields": [{"name": "a", "type": "int"}]}
        b = {"type": "record", "name": "y.Address", "fields": [{"name": "b", "type": "int"}]}
        draft = avro_draft(
            record({"name": "a", "type": a}, {"name": "c", "type": "x.Address"}, {"name": "b", "type": b})
        )

        source = to_python(draft)

        assert source.count("@dataclass(") == 2
        assert "    a: Col[Address]\n    c: Col[Address]\n    b: Col[RAddress]\n" in source
        assert load_definition(draft, tmp_path) == draft.table


class TestProtobuf:
    def test_the_module_declares_the_table_of_the_message(self, tmp_path: Path) -> None:
        draft = protobuf_draft(str(DATA / "shop.proto"), topic="orders")

        result = load_definition(draft, tmp_path)

        assert result == draft.table
        assert result.comment == "An order."
        assert "It is paid." in to_python(draft)
        assert draft.notes == ("'card' and 'transfer' are a oneof (payment): at most one of them has a value",)

    def test_a_file_with_several_messages_wants_a_name(self, tmp_path: Path) -> None:
        file = tmp_path / "several.proto"
        file.write_text('syntax = "proto3"; package p; message A { int32 a = 1; } message B { int32 b = 1; }')

        with pytest.raises(CodegenError, match="name one of them with --message"):
            protobuf_draft(str(file))
        with pytest.raises(CodegenError, match=r"there is no message 'C'.*p\.A.*p\.B"):
            protobuf_draft(str(file), message="C")
        assert [protobuf_draft(str(file), message=name).table.name for name in ("B", "p.B")] == ["B", "B"]

    def test_a_file_without_a_message_is_reported(self, tmp_path: Path) -> None:
        file = tmp_path / "none.proto"
        file.write_text('syntax = "proto3"; enum E { A = 0; }')

        with pytest.raises(CodegenError, match="the file declares no message"):
            protobuf_draft(str(file))

    def test_a_module_finds_its_file_from_every_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "protos {1}").mkdir()
        (tmp_path / "protos {1}" / "a.proto").write_text('syntax = "proto3"; message A { int32 a = 1; }')
        (tmp_path / "tables").mkdir()
        monkeypatch.chdir(tmp_path)
        draft = protobuf_draft("protos {1}/a.proto", folders=("protos {1}",), beside="tables")
        source = to_python(draft)
        monkeypatch.chdir("/")

        (tables,) = definitions(module(source, tmp_path / "tables"))

        assert str(tmp_path) not in source
        assert problems(tables, "read") == []
        assert isinstance(tables.value_format, Protobuf)
        assert tables.value_format.schema().name == "A"


class TestJsonSchema:
    def test_the_module_declares_the_table_of_the_schema(self, tmp_path: Path) -> None:
        draft = json_schema_draft(json.loads((DATA / "orders.schema.json").read_text(encoding="utf-8")))

        assert load_definition(draft, tmp_path) == draft.table
        assert problems(draft.table, "read") == []

    def test_columns_that_are_called_like_the_marks_of_elements_and_values_have_classes(self, tmp_path: Path) -> None:
        inner = {name: {"type": "object", "properties": {f"in {name}": {"type": "integer"}}} for name in ("[]", "{}")}
        lists = {"type": "array", "items": {"type": "object", "properties": inner}}
        draft = json_schema_draft({"type": "object", "properties": {**inner, "l": lists}}, topic="t")

        assert load_definition(draft, tmp_path) == draft.table

    @pytest.mark.parametrize("levels", [14, 40, 90])
    def test_more_members_than_can_be_written_are_refused_with_the_limit(self, levels: int) -> None:
        defs: dict[str, Any] = {"d0": {"type": "integer"}}
        for i in range(1, levels):
            below = {"$ref": f"#/$defs/d{i - 1}"}
            defs[f"d{i}"] = {"type": "object", "properties": {"a": below, "b": below}}

        with pytest.raises(CodegenError, match="more than 10,000 columns and members"):
            json_schema_draft({"type": "object", "properties": {"x": below}, "$defs": defs})

    def test_members_that_are_nested_too_deeply_are_refused_with_the_limit(self) -> None:
        results: Any = {"type": "integer"}
        for _ in range(120):
            results = {"type": "array", "items": results}

        with pytest.raises(CodegenError, match="nested more than 100 levels deep"):
            json_schema_draft({"type": "object", "properties": {"x": results}})

    def test_an_object_inside_itself_is_json(self) -> None:
        node = {"type": "object", "properties": {"next": {"$ref": "#/definitions/n"}}}
        draft = json_schema_draft({**node, "definitions": {"n": node}})

        assert [c.type for c in draft.table.columns] == [t.Row((t.Field("next", t.STRING),))]
        assert "next.next: the schema contains itself" in draft.notes[0]

    def test_missing_imports_are_reported(self) -> None:
        with pytest.raises(CodegenError, match="references must be to the same file, or in a registry"):
            json_schema_draft({"type": "object", "properties": {"a": {"$ref": "other.json"}}})
        with pytest.raises(CodegenError, match="of an object"):
            json_schema_draft({"type": "string"})

    @pytest.mark.parametrize(
        ("names", "topic"),
        [
            ({"title": "https://x.org/orders/"}, "orders"),
            ({"$id": "https://x.org/orders//"}, "orders"),
            ({"title": "/", "$id": "https://x.org/orders"}, "orders"),
            ({"title": "/"}, "records"),
        ],
    )
    def test_names_that_end_in_a_slash(self, names: dict[str, str], topic: str) -> None:
        table = json_schema_draft({"type": "object", "properties": {"a": {"type": "string"}}, **names}).table

        assert (table.name, table.options.topic) == (topic, (topic,))

    def test_null_among_the_values_of_an_enumeration_without_a_type_makes_it_nullable(self) -> None:
        members = {"a": {"enum": ["x", None]}, "b": {"enum": ["x"]}}
        draft = json_schema_draft({"type": "object", "properties": members, "required": ["a", "b"]})

        assert [column.type.nullable for column in draft.table.columns] == [True, False]

    def test_members_of_nested_objects_keep_their_defaults(self, tmp_path: Path) -> None:
        inner = {
            "type": "object",
            "properties": {
                "n": {"type": "integer", "default": 3},
                "e": {"type": "string", "enum": ["A", "B"], "default": "B"},
                "l": {"type": "array", "items": {"type": "string"}, "default": ["x"]},
            },
        }
        draft = json_schema_draft({"type": "object", "properties": {"o": inner}})

        result = module(to_python(draft), tmp_path).O()

        assert (result.n, result.e, result.l) == (3, "B", ["x"])

    @pytest.mark.parametrize(
        "member",
        [
            {"type": "integer", "default": "text"},
            {"type": "integer", "default": True},
            {"type": "string", "enum": ["A"], "default": "B"},
            {"type": "string", "format": "date", "default": "2020-01-01"},
        ],
    )
    def test_a_default_of_another_type_is_reported_and_left_out(self, member: Any, tmp_path: Path) -> None:
        draft = json_schema_draft({"type": "object", "properties": {"a": member}})

        assert draft.notes == (f"a: the default {member['default']!r} was omitted",)
        assert load_definition(draft, tmp_path).problems == ()

    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "object", "title": 5, "description": ["x"], "properties": {"a": {"description": 1}}},
            {"type": "object", "required": 5, "properties": {"a": {"type": 5}}},
            {"type": "object", "properties": {"a": {"type": "string", "enum": 5, "connect.index": "x"}, "b": True}},
            {"type": "object", "properties": {"a": {"oneOf": 5, "anyOf": [True]}, "b": {"connect.index": 1}}},
        ],
    )
    def test_invalid_attributes_beside_the_types_are_ignored(self, schema: Any, tmp_path: Path) -> None:
        assert next(c.name for c in load_definition(json_schema_draft(schema), tmp_path).columns) == "a"

    def test_a_schema_of_another_one_alone_is_that_one(self) -> None:
        members = {"a": {"allOf": [{"$ref": "#/$defs/N"}], "default": 1}}
        draft = json_schema_draft({"type": "object", "properties": members, "$defs": {"N": {"type": "integer"}}})

        assert [(c.type, c.default) for c in draft.table.columns] == [(t.BigInt(), 1)]


class TestDdl:
    def test_the_module_declares_the_tables_of_the_script(self, tmp_path: Path) -> None:
        drafts = ddl_drafts(str(DATA / "tables.sql"))

        tables = definitions(module(to_python(drafts), tmp_path))

        assert tables == [d.table for d in drafts]
        assert [d.problems for d in tables] == [(), ()]

    def test_mistakes_are_reported_with_their_locations(self, tmp_path: Path) -> None:
        (tmp_path / "x.sql").write_text("CREATE TABLE t (a INTT) WITH ('connector' = 'kafka')", encoding="utf-8")

        with pytest.raises(ResolveError) as caught:
            to_python(ddl_drafts(str(tmp_path / "x.sql")))
        assert [(p.where.line, p.where.position) for p in caught.value.problems] == [(1, 19)]

    def test_a_missing_table(self) -> None:
        with pytest.raises(CodegenError, match="declares no table 'nope'; it declares "):
            ddl_drafts(str(DATA / "tables.sql"), names=("nope",))


def test_generated_modules_can_be_imported_unchanged() -> None:
    golden = importlib.import_module("tests.codegen.golden.tables_sql")

    assert golden.UserBehavior.definition().name == "user_behavior"


def test_connects_names_in_avro_determine_the_types() -> None:
    def connect_type(kind: str, name: str) -> dict[str, Any]:
        return {"type": kind, "connect.version": 1, "connect.name": name}

    variable = {
        "type": "record",
        "name": "VariableScaleDecimal",
        "namespace": "io.debezium.data",
        "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
        "connect.name": "io.debezium.data.VariableScaleDecimal",
    }
    decimal = {**connect_type("bytes", "org.apache.kafka.connect.data.Decimal"), "logicalType": "decimal"}
    fields = [
        ("id", "long"),
        ("amount", {**decimal, "scale": 2, "precision": 64}),
        ("price", ["null", variable]),
        ("day", connect_type("int", "io.debezium.time.Date")),
        ("at", ["null", connect_type("long", "io.debezium.time.MicroTimestamp")]),
        ("seen", ["null", connect_type("string", "io.debezium.time.ZonedTimestamp")]),
    ]
    image = {"type": "record", "name": "Value", "fields": [{"name": n, "type": k} for n, k in fields]}
    envelope = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "before", "type": ["null", image]},
            {"name": "after", "type": ["null", "Value"]},
            {"name": "op", "type": "string"},
        ],
    }
    draft = avro_draft(envelope, topic="orders", name="orders", chosen=DebeziumAvroConfluent(url="http://localhost"))

    assert {c.name: str(c.type) for c in draft.table.columns} == {
        "id": "BIGINT NOT NULL",
        "amount": "DECIMAL(38, 2) NOT NULL",
        "price": "DECIMAL(38, 18)",
        "day": "DATE NOT NULL",
        "at": "TIMESTAMP(6)",
        "seen": "TIMESTAMP_LTZ(6)",
    }
    assert draft.notes == ("price: each value has its own scale, and is rounded to that of DECIMAL(38, 18)",)
