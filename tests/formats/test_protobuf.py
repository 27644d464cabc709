"""The format ``protobuf``: the reference's recorded answers, where messages come from, and plan-time rules."""

from __future__ import annotations

import base64
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass

import kdsl
from kdsl.errors import Problem
from kdsl.formats import Direction, Use
from kdsl.plan.model import ReadPlan
from kdsl.plan.show import show
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats.protobuf import Protobuf, sources
from kdsl_formats.protobuf.decoder import ProtobufDecoder
from kdsl_formats.protobuf.encoder import ProtobufEncoder
from kdsl_formats.protobuf.layout import layout_of
from kdsl_formats.protobuf.naming import message_names
from kdsl_formats.protobuf.sources import SchemaError, compile_files, schema_of
from tests.formats.conformance import ERROR, Case, answer, arrow_value, cases, from_arrow, python_rows

DATA = Path(__file__).parent / "data" / "protobuf"
RECORDED = Path(__file__).parents[3] / "shared" / "anchors" / "data" / "protobuf"
JAVA = "org.apache.flink.formats.protobuf.testproto."
EQUAL = {
    "SimpleTestMulti": "Simple",
    "Pb3Test": "Plain",
    "MapTest": "Maps",
    "MapTestTruncated": "OldMaps",
    "OneofTest": "Choice",
    "RepeatedTest": "Numbers",
    "RepeatedMessageTest": "Pairs",
    "MultipleLevelMessageTest": "Levels",
    "TimestampTestMulti": "Moment",
    "BigPbClass$BigPbMessage": "Many",
    "TestSameOuterClassNameOuterClass$TestSameOuterClassName": "Lamp",
}
CASES = cases("protobuf")


@cache
def own() -> str:
    """The messages of the tests, as the option ``descriptor-set``."""
    files = compile_files(sorted(DATA.glob("*.proto")), [DATA])
    return base64.b64encode(files.SerializeToString(deterministic=True)).decode()


@cache
def descriptor_set() -> str:
    """The messages with which the answers were recorded."""
    files = compile_files(sorted(RECORDED.glob("*.proto")), [RECORDED])
    return base64.b64encode(files.SerializeToString(deterministic=True)).decode()


def make_format(name: str, **options: Any) -> Protobuf:
    return Protobuf(message_class_name=name, descriptor_set=own(), **options)


def problems(format_: Protobuf, row: t.Row, direction: Direction = "read") -> list[Problem]:
    return [*format_.problems(), *format_.check(row, direction)]


def with_own_messages(case: Case) -> Case:
    name = case.options["message-class-name"].removeprefix(JAVA)
    named = {"message-class-name": EQUAL.get(name, name), "descriptor-set": own()}
    return attrs.evolve(case, options={**case.options, **named})


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_answer_is_the_references(case: Case) -> None:
    assert answer(with_own_messages(case)) == case.answer


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_whole_columns_return_the_same_result(case: Case) -> None:
    case = with_own_messages(case)
    format_ = case.table_format()
    assert isinstance(format_, Protobuf)
    if problems(format_, case.row, "read" if case.kind == "decode" else "write"):
        assert case.answer == ERROR
        return
    layout = layout_of(format_.schema(), case.row)
    if case.kind == "decode":
        decoder = ProtobufDecoder(layout, case.row, format_.reading_rules(), min_batch=1)
        decoded = decoder.decode(pa.array([case.input] * 3, pa.binary()))
        if case.answer == ERROR:
            assert [bad.index for bad in decoded.bad] == [0, 1, 2]
        else:
            assert [from_arrow(value, case.row) for value in python_rows(decoded.rows)] == case.answer * 3
    else:
        rows = pa.array([arrow_value(case.values, case.row)] * 3, arrow_type(case.row))
        encoder = ProtobufEncoder(layout, format_.writing_rules(), min_batch=1)
        assert encoder.encode(rows).messages.to_pylist() == [case.answer] * 3


@pytest.mark.skipif(not RECORDED.is_dir(), reason="the messages with which the answers were recorded are not here")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_the_answer_is_the_references_with_its_own_messages_by_their_names_in_java(case: Case) -> None:
    case = attrs.evolve(case, options={**case.options, "descriptor-set": descriptor_set()})

    assert answer(case) == case.answer


class TestWhereTheMessageComesFrom:
    def test_names(self) -> None:
        expected = make_format("kdsl.test.Order").schema()

        assert expected.name == "kdsl.test.Order"
        assert make_format("Order").schema() == expected
        assert make_format("com.example.three.ThreeProtos$Order").schema() == expected
        assert make_format("com.example.three.Order").schema() == expected
        assert make_format("com.example.three.ThreeProtos$Order$Customer").schema().name == "kdsl.test.Order.Customer"
        assert make_format("com.example.two.Simple").schema().name == "kdsl.test.Simple"

    def test_the_outer_class_of_java_is_named_after_the_file(self) -> None:
        files = compile_files([DATA / "two.proto"])
        files.file[0].ClearField("options")
        assert schema_of("kdsl.test.Two$Simple", files).name == "kdsl.test.Simple"
        files.file[0].name = "some/simple_pair.proto"
        assert schema_of("kdsl.test.SimplePair$Simple", files).name == "kdsl.test.Simple"
        files.file[0].name = "pair.proto"
        assert schema_of("kdsl.test.PairOuterClass$Simple", files).name == "kdsl.test.Simple"

    def test_a_proto_file_its_source_and_its_descriptors_are_equivalent(self, tmp_path: Path) -> None:
        descriptors = tmp_path / "shop.desc"
        descriptors.write_bytes(compile_files([DATA / "three.proto"]).SerializeToString())
        text = (DATA / "three.proto").read_text()
        by_file = Protobuf(message_class_name="kdsl.test.Order", proto_file=str(DATA / "three.proto"))
        by_set = Protobuf(message_class_name="kdsl.test.Order", descriptor_file=str(descriptors))
        by_text = Protobuf(message_class_name="kdsl.test.Order", proto_text=text)

        assert by_file.schema() == by_set.schema() == make_format("kdsl.test.Order").schema()
        assert row_names(by_text) == row_names(by_file)

    def test_a_class_is_taken_with_its_descriptors(self) -> None:
        kind = GetMessageClass(make_format("kdsl.test.Order").schema().message)
        by_class = Protobuf(message_class_name=kind)

        assert (by_class.message_class_name, list(by_class.problems())) == ("kdsl.test.Order", [])
        assert row_names(by_class) == row_names(make_format("kdsl.test.Order"))

    @pytest.mark.parametrize("name", ["shop_pb2:Order.Customer", "shop_pb2.Order.Customer", "kdsl.shop.Order.Customer"])
    def test_a_generated_class_is_found_by_its_name(self, name: str, tmp_path: Path) -> None:
        text = (DATA / "three.proto").read_text().replace("package kdsl.test;", "package kdsl.shop;")
        (tmp_path / "shop.proto").write_text(text)
        generate = ["-m", "grpc_tools.protoc", f"-I{tmp_path}", f"--python_out={tmp_path}", "shop.proto"]
        subprocess.run([sys.executable, *generate], check=True)
        code = (
            "import sys; from kdsl import Protobuf; "
            f"import shop_pb2; print(Protobuf(message_class_name={name!r}).schema().name)"
        )
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

        assert done.stdout.strip() == "kdsl.shop.Order.Customer"

    def test_imports_are_searched_in_the_folders(self, tmp_path: Path) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "part.proto").write_text('syntax = "proto3"; package p; message Part { int32 x = 1; }')
        main = tmp_path / "whole.proto"
        main.write_text('syntax = "proto3"; package p; import "part.proto"; message Whole { Part part = 1; }')
        alone = Protobuf(message_class_name="p.Whole", proto_file=str(main))
        with pytest.raises(SchemaError, match=r"part\.proto.*proto-path"):
            alone.schema()

        protobuf = Protobuf(message_class_name="p.Whole", proto_file=str(main), proto_path=(str(tmp_path / "lib"),))
        assert problems(protobuf, t.row(part=t.row(x=t.Int()))) == []

    def test_googles_own_files_may_be_missing_from_a_set_and_others_may_not(self) -> None:
        files = compile_files([DATA / "three.proto"])
        results = [file for file in files.file if not file.name.startswith("google/")]
        del files.file[:]
        files.file.extend(results)
        assert schema_of("Order", files).message.fields_by_name["extra"].message_type is not None

        files.file[0].dependency.append("other.proto")
        with pytest.raises(SchemaError, match=r"lacks 'other\.proto'.*--include_imports"):
            schema_of("Order", files)

    def test_mistakes_are_reported(self, tmp_path: Path) -> None:
        broken = tmp_path / "broken.proto"
        broken.write_text('syntax = "proto3"; message M { int32 = 1; }')
        wrong: tuple[tuple[dict[str, Any], str], ...] = (
            ({"descriptor_set": own(), "proto_text": "x"}, "'descriptor-set' and 'proto-text' name a source"),
            ({}, "no class 'Ordre' that Python can import"),
            ({"descriptor_set": own()}, "no message 'Ordre' (did you mean 'kdsl.test.Order'?)"),
            ({"descriptor_set": "?"}, "is not base64"),
            ({"descriptor_set": base64.b64encode(b"no descriptors").decode()}, "is not a descriptor set"),
            ({"descriptor_file": str(tmp_path / "no.desc")}, "cannot be read: No such file"),
            ({"proto_file": str(broken)}, "Expected field name"),
            ({"proto_text": broken.read_text()}, "Expected field name"),
        )
        for options, expected in wrong:
            (problem,) = problems(Protobuf(message_class_name="Ordre", **options), t.row(id=t.BigInt()))

            assert problem.code == "protobuf-message"
            assert expected in f"{problem.message}; {problem.fix}"
        with pytest.raises(SchemaError, match="several messages have the name 'Pair'"):
            schema_of("Pair", read(own()))
        with pytest.raises(SchemaError, match="cannot be imported: No module named 'nowhere'"):
            Protobuf(message_class_name="nowhere:Order").schema()
        with pytest.raises(SchemaError, match="is not a class of Protobuf messages"):
            Protobuf(message_class_name="pathlib:Path").schema()

    def test_without_a_compiler_the_way_out_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sources, "find_spec", lambda name: None)
        monkeypatch.setenv("PATH", "")
        with pytest.raises(SchemaError, match=r"install kdsl-kafka\[protobuf\]"):
            Protobuf(message_class_name="M", proto_text='syntax = "proto3"; message M {}').schema()


def read(text: str) -> Any:
    return sources.read_set_text(text)


def row_names(format_: Protobuf) -> list[str]:
    return [field.name for field in format_.schema().message.fields]


class TestColumns:
    @pytest.mark.parametrize(
        ("name", "kind", "fix"),
        [
            ("id", "INT", "declare BIGINT"),
            ("size", "TINYINT", "declare INT or BIGINT"),
            ("weight", "DECIMAL(19, 0)", "declare BIGINT or DECIMAL(20, 0)"),
            ("note", "BYTES", "declare STRING"),
            ("place", "SMALLINT", "declare STRING or INT or BIGINT"),
            ("tags", "STRING", "declare ARRAY<element>"),
            ("tags", "ARRAY<INT>", "declare STRING"),
            ("counts", "ARRAY<BIGINT>", "declare MAP<key, value>"),
            ("counts", "MAP<INT, BIGINT>", "declare STRING"),
            ("placed_at", "TIMESTAMP(3)", "declare TIMESTAMP_LTZ(6) or ROW<…> of its fields or BYTES"),
            ("nickname", "INT", "declare STRING or ROW<…> of its fields or BYTES"),
            ("customer", "STRING", "declare ROW<…> of its fields or BYTES"),
            ("customer", "MULTISET<STRING>", "declare ROW<…> of its fields or BYTES"),
            ("data", "STRING", "declare BYTES"),
            ("amount", "FLOAT", "declare DOUBLE"),
        ],
    )
    def test_a_type_that_does_not_fit_is_reported(self, name: str, kind: str, fix: str) -> None:
        (problem,) = problems(make_format("Order"), t.Row((t.Field(name, kdsl_type(kind)),)))

        assert (problem.code, problem.fix) == ("protobuf-type", fix)
        assert problem.where.column is not None
        assert problem.where.column.split(".")[0] == name

    def test_members_of_rows_are_checked_with_their_paths(self) -> None:
        row = t.row(customer=t.row(nme=t.STRING, age=t.BigInt()), missing=t.Int())
        actual = problems(make_format("Order"), row)

        assert [(p.code, p.where.column) for p in actual] == [
            ("protobuf-field", "customer.nme"),
            ("protobuf-type", "customer.age"),
            ("protobuf-field", "missing"),
        ]
        assert "(did you mean 'name'?)" in actual[0].message

    def test_required_fields_need_columns_to_be_written(self) -> None:
        row = t.row(b=t.STRING, c=t.row(y=t.Int()))

        assert problems(make_format("Needy"), row) == []
        assert [(p.code, p.where.column) for p in problems(make_format("Needy"), row, "write")] == [
            ("protobuf-required", "c"),
            ("protobuf-required", None),
        ]

    def test_a_group_is_not_shown_as_bytes(self) -> None:
        assert problems(make_format("Grouped"), t.row(item=t.Array(t.row(name=t.STRING)))) == []
        assert [p.code for p in problems(make_format("Grouped"), t.row(item=t.Array(t.BYTES)))] == ["protobuf-type"]


def kdsl_type(text: str) -> t.DataType:
    from kdsl.types.parse import parse_type

    return parse_type(text)


def rows(format_: Protobuf, row: t.Row, *messages: bytes | None, use: Use | None = None) -> Any:
    """What messages are, together by columns and one by one; a bad one is its reason."""
    layout = layout_of(format_.schema(), row)
    rules = format_.reading_rules(use or Use())
    results = []
    for limit in (1, len(messages) + 1):
        decoded = ProtobufDecoder(layout, row, rules, min_batch=limit).decode(pa.array(messages, pa.binary()))
        decoded.rows.validate(full=True)
        owners = range(len(messages)) if decoded.messages is None else decoded.messages.to_pylist()
        values: list[Any] = [None] * len(messages)
        for owner, value in zip(owners, python_rows(decoded.rows), strict=True):
            values[owner] = value
        for bad in decoded.bad:
            values[bad.index] = bad.reason
        results.append(values)
    assert results[0] == results[1]
    return results[0]


def encode(format_: Protobuf, row: t.Row, *values: Any) -> list[Any]:
    """The messages of rows, together by columns and one by one; a row that cannot be written is its reason."""
    layout = layout_of(format_.schema(), row)
    array = pa.array(values, arrow_type(row))
    results = []
    for min_batch in (1, len(values) + 1):
        encoded = ProtobufEncoder(layout, format_.writing_rules(), min_batch=min_batch).encode(array)
        messages: list[Any] = encoded.messages.to_pylist()
        for bad in encoded.bad:
            messages[bad.index] = bad.reason
        results.append(messages)
    assert results[0] == results[1]
    return results[0]


class TestReading:
    def test_presence_of_proto3(self) -> None:
        row = t.row(id=t.BigInt(), note=t.STRING, customer=t.row(name=t.STRING, age=t.Int()), tags=t.Array(t.STRING))
        nothing, zeros = b"", b"\x12\x00\x4a\x02\x10\x00"

        assert rows(make_format("Order"), row, nothing, zeros) == [
            {"id": 0, "note": None, "customer": None, "tags": None},
            {"id": 0, "note": "", "customer": {"name": "", "age": 0}, "tags": None},
        ]
        assert rows(make_format("Order", read_default_values=True), row, nothing) == [
            {"id": 0, "note": "", "customer": {"name": "", "age": 0}, "tags": []}
        ]

    def test_defaults_of_proto2(self) -> None:
        row = t.row(a=t.Int(), b=t.BigInt(), f=t.STRING, h=t.STRING, i=t.Int())

        assert rows(make_format("Simple"), row, b"") == [dict.fromkeys("abfhi")]
        assert rows(make_format("Simple", read_default_values=True), row, b"") == [
            {"a": 10, "b": 100, "f": "f", "h": "UNIVERSAL", "i": 0}
        ]

    def test_unknown_enum_numbers(self) -> None:
        assert rows(make_format("Simple"), t.row(h=t.STRING), b"\x40\x63", b"\x40\x02") == [
            {"h": None},
            {"h": "IMAGES"},
        ]
        assert rows(make_format("Order"), t.row(place=t.STRING), b"\x18\x63", b"\x18\x02") == [
            {"place": "UNRECOGNIZED"},
            {"place": "IMAGES"},
        ]
        bad, good = rows(make_format("Order"), t.row(place=t.Int()), b"\x18\x63", b"\x18\x02")
        assert ("unknown enum value 99" in bad, good) == (True, {"place": 2})

    def test_the_last_of_a_oneof_wins_whether_a_column_shows_it_or_not(self) -> None:
        card, invoice = b"\x52\x01x", b"\x58\x07"

        both = t.row(invoice=t.BigInt(), card=t.STRING)
        assert rows(make_format("Order"), both, card + invoice, invoice + card) == [
            {"invoice": 7, "card": None},
            {"invoice": None, "card": "x"},
        ]
        assert rows(make_format("Order"), t.row(card=t.STRING), card + invoice, invoice + card, card) == [
            {"card": None},
            {"card": "x"},
            {"card": "x"},
        ]

    def test_well_known_types(self) -> None:
        at = b"\x32\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # one second before 1970
        row = t.row(placed_at=t.TimestampLtz(3), nickname=t.STRING, extra=t.STRING)
        message = at + b"\x3a\x00" + b"\x42\x0c\x0a\x0a\x0a\x01k\x12\x05\x1a\x03\xc3\xa9v"

        assert rows(make_format("Order"), row, message, b"") == [
            {"placed_at": -1_000_000, "nickname": "", "extra": '{"k":"év"}'},
            {"placed_at": None, "nickname": None, "extra": None},
        ]
        flinks = t.row(placed_at=t.row(seconds=t.BigInt(), nanos=t.Int()), nickname=t.row(value=t.STRING))
        assert rows(make_format("Order"), flinks, message) == [
            {"placed_at": {"seconds": -1, "nanos": 0}, "nickname": {"value": ""}}
        ]

    def test_unsigned_numbers(self) -> None:
        message = b"\x60\xff\xff\xff\xff\x0f\x68\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        wide = t.row(size=t.BigInt(), weight=t.Decimal(20, 0))

        assert rows(make_format("Order"), t.row(size=t.Int(), weight=t.BigInt()), message) == [
            {"size": -1, "weight": -1}
        ]
        (result,) = rows(make_format("Order"), wide, message)
        assert (result["size"], int(result["weight"])) == ((1 << 32) - 1, (1 << 64) - 1)

    def test_a_message_inside_as_its_bytes(self) -> None:
        inside = b"\x0a\x01n\x1a\x03\x0a\x01p"
        message = b"\x4a" + bytes([len(inside)]) + inside
        row = t.row(customer=t.row(parent=t.BYTES, name=t.STRING))

        assert rows(make_format("Order"), t.row(customer=t.BYTES), message) == [{"customer": inside}]
        assert rows(make_format("Order"), row, message) == [{"customer": {"parent": b"\x0a\x01p", "name": "n"}}]

    def test_invalid_utf8_in_proto2(self) -> None:
        assert rows(make_format("Simple"), t.row(f=t.STRING), b"\x32\x03a\xffb") == [{"f": "a\ufffdb"}]

    def test_groups(self) -> None:
        row = t.row(a=t.Int(), item=t.Array(t.row(name=t.STRING)))
        message = b"\x08\x01\x13\x1a\x01x\x14\x13\x14"

        assert rows(make_format("Grouped"), row, message) == [{"a": 1, "item": [{"name": "x"}, {"name": None}]}]
        assert encode(make_format("Grouped"), row, rows(make_format("Grouped"), row, message)[0]) == [message]

    def test_fields_without_a_column_are_skipped(self) -> None:
        cut_inside = b"\x4a\x01\x0a"  # customer, cut off; the message around it is whole

        assert rows(make_format("Order"), t.row(id=t.BigInt()), b"\x08\x05" + cut_inside) == [{"id": 5}]
        assert (
            "it is not such a message"
            in rows(make_format("Order"), t.row(customer=t.row(name=t.STRING)), cut_inside)[0]
        )

    def test_a_null_key_returns_no_row_and_a_null_value_is_an_error(self) -> None:
        row = t.row(id=t.BigInt())

        assert rows(make_format("Order"), row, None, b"\x08\x05", use=Use(side="key")) == [None, {"id": 5}]
        assert rows(make_format("Order"), row, None) == ["it is null, which is not a Protobuf message"]
        assert rows(make_format("Order", ignore_parse_errors=True), row, None, b"\x08") == [None, None]

    @pytest.mark.parametrize(
        "message",
        [
            b"\x08",
            b"\x08\x80",
            b"\x08" + b"\xff" * 11,
            b"\x12\x05ab",
            b"\x12\x01\xff",
            b"\x12\xff\xff\xff\xff\x0f",
            b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"\x71\x00\x00",
            b"\x00\x01",
            b"\x0e\x01",
            b"\x0f\x01",
            b"\x0b\x08\x01",
            b"\x0c",
            b"\x22\x01\xc3",
            b"\x2a\x02\x0a\x05",
            b"\x2a\x03\x0a\x01\xff",
            b"\x32\x02\x08",
            b"\x32\x02\x10\xff",
            b"\x32\x07\x10\x80\x94\xeb\xdc\x03\x01",
            b"\x32\x06\x10\x80\x94\xeb\xdc\x03",
            b"\x4a\x03\x0a\x05a",
            b"\x52\x02\xc0\x80",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
            b"not a message at all",
        ],
    )
    def test_a_bad_message_is_reported_and_does_not_affect_others(self, message: bytes) -> None:
        row = t.row(
            id=t.BigInt(),
            note=t.STRING,
            tags=t.Array(t.STRING),
            counts=t.Map(t.VarChar(nullable=False), t.BigInt()),
            placed_at=t.TimestampLtz(6),
            customer=t.row(name=t.STRING),
            card=t.STRING,
            amount=t.Double(),
        )
        good = b"\x08\x05\x12\x01n\x22\x01t"
        first, bad, last = rows(make_format("Order"), row, good, message, good)

        assert isinstance(bad, str)
        assert first == last
        assert (first["id"], first["note"], first["tags"]) == (5, "n", ["t"])

    def test_missing_required_fields_are_errors_and_named(self) -> None:
        row = t.row(a=t.Int(), c=t.row(x=t.Int()))
        whole, top, inside = b"\x08\x01\x1a\x02\x08\x02", b"\x12\x01x", b"\x08\x01\x1a\x00"
        result = rows(make_format("Needy"), row, whole, top, inside)

        assert result[0] == {"a": 1, "c": {"x": 2}}
        assert result[1:] == ["required fields are missing: a", "required fields are missing: c.x"]
        assert rows(make_format("Needy"), t.row(b=t.STRING), top) == ["required fields are missing: a"]


class TestWriting:
    def test_null_is_not_set_and_zero_of_proto3_is_left_out(self) -> None:
        row = t.row(id=t.BigInt(), note=t.STRING, paid=t.Boolean(), customer=t.row(name=t.STRING, age=t.Int()))

        assert encode(
            make_format("Order"),
            row,
            {"id": None, "note": None, "paid": None, "customer": None},
            {"id": 0, "note": "", "paid": False, "customer": {"name": "", "age": 0}},
        ) == [b"", b"\x12\x00\x4a\x02\x10\x00"]

    def test_null_inside_arrays_and_maps_is_replaced(self) -> None:
        row = t.row(tags=t.Array(t.STRING), counts=t.Map(t.VarChar(nullable=False), t.BigInt()))
        value = {"tags": ["a", None], "counts": [("k", None)]}

        assert encode(make_format("Order"), row, value) == [b"\x22\x01a\x22\x00\x2a\x05\x0a\x01k\x10\x00"]
        assert encode(make_format("Order", write_null_string_literal="-"), row, value) == [
            b"\x22\x01a\x22\x01-\x2a\x05\x0a\x01k\x10\x00"
        ]

    def test_the_later_column_of_a_oneof_wins(self) -> None:
        value = {"card": "x", "invoice": 7}

        assert encode(make_format("Order"), t.row(card=t.STRING, invoice=t.BigInt()), value) == [b"\x58\x07"]
        assert encode(make_format("Order"), t.row(invoice=t.BigInt(), card=t.STRING), value) == [b"\x52\x01x"]

    def test_unknown_enum_names(self) -> None:
        row = t.row(h=t.STRING, i=t.Int())
        unknown, known = {"h": "NOWHERE", "i": 99}, {"h": "WEB", "i": 2}

        assert encode(make_format("Simple"), row, unknown, known) == [b"\x40\x00\x48\x00", b"\x40\x01\x48\x02"]
        bad, good = encode(make_format("Simple", write_unknown_enum="FAIL"), row, unknown, known)
        assert (bad, good) == ("h: the enum has no value 'NOWHERE'", b"\x40\x01\x48\x02")

    def test_numbers_that_are_out_of_range(self) -> None:
        row = t.row(size=t.BigInt(), weight=t.Decimal(21, 0))
        encoded = encode(
            make_format("Order"),
            row,
            {"size": 1 << 32, "weight": None},
            {"size": None, "weight": -1},
            {"size": 5, "weight": 6},
        )

        assert encoded[2] == b"\x60\x05\x68\x06"
        assert all("out of the range of an unsigned number" in reason for reason in encoded[:2])

    def test_well_known_types_read_back(self) -> None:
        row = t.row(placed_at=t.TimestampLtz(6), nickname=t.STRING, extra=t.STRING)
        value = {"placed_at": -1, "nickname": "", "extra": '{"a":[1.0,null,"é"]}'}
        (message,) = encode(make_format("Order"), row, value)

        assert rows(make_format("Order"), row, message) == [value]
        (reason,) = encode(make_format("Order"), row, {**value, "extra": "{"})
        assert "is not JSON" in reason

    def test_required_fields_that_are_null_fail_the_row(self) -> None:
        row = t.row(a=t.Int(), c=t.row(x=t.Int()))
        encoded = encode(
            make_format("Needy"), row, {"a": None, "c": None}, {"a": 1, "c": {"x": None}}, {"a": 1, "c": None}
        )

        assert encoded[2] == b"\x08\x01"
        assert all("missing required field" in reason for reason in encoded[:2])


class TestPlans:
    def test_the_descriptors_travel_in_the_plan(self, tmp_path: Path) -> None:
        path = tmp_path / "three.proto"
        path.write_text((DATA / "three.proto").read_text())

        class Orders(kdsl.KafkaTable, topic="orders", value=Protobuf(message_class_name="Order", proto_file=str(path))):
            id: kdsl.Col[int]
            note: kdsl.Col[str | None]

        text = plan_text(kdsl.Table(Orders.definition()).read_plan())
        path.unlink()
        plan = read_plan_text(text, ReadPlan)
        assert plan.value is not None
        decoded = plan.value.format.decoder(plan.value.row).decode(pa.array([b"\x08\x05"], pa.binary()))

        assert decoded.rows.to_pylist() == [{"id": 5, "note": None}]
        assert str(tmp_path) not in text
        assert "message-class-name = 'kdsl.test.Order'" in show(plan)
        assert "descriptor-set = 'sha256:" in show(plan)
        assert max(map(len, show(plan).splitlines())) < 120


def test_every_message_of_a_set_is_named() -> None:
    names = [name for file in compile_files([DATA / "two.proto"]).file[-1:] for name in message_names(file)]

    assert names[:3] == ["kdsl.test.Pair", "kdsl.test.Simple", "kdsl.test.Maps"]
    assert "kdsl.test.Levels.Middle" in names


class TestPresenceInProto3:
    """What Flink 2.2 (flink-protobuf 2.2.0) answered to the same messages and rows."""

    PROTO = """
        syntax = "proto3";
        message Q {
          int32 plain = 1; optional int32 opt = 2; oneof k { int32 a = 3; string b = 4; } optional E e = 5;
          optional string s = 6; Sub sub = 7; int32 id = 8;
        }
        message Sub { optional int32 x = 1; int32 y = 2; }
        enum E { Z = 0; O = 1; }
    """
    ROW = "ROW<id INT, plain INT, opt INT, a INT, b STRING, e STRING, s STRING, sub ROW<x INT, y INT>>"
    MESSAGES = (
        bytes.fromhex("4001"),
        bytes.fromhex("10001800280032003a0208004002"),
        bytes.fromhex("100522017828013201743a0208004003"),
        bytes.fromhex("22004004"),
    )

    def make_format(self, **options: Any) -> tuple[Protobuf, t.Row]:
        kind = kdsl_type(self.ROW)
        assert isinstance(kind, t.Row)
        return Protobuf(message_class_name="Q", proto_text=self.PROTO, **options), kind

    def test_with_default_values_absent_fields_equal_the_reference(self) -> None:
        chosen, row = self.make_format(read_default_values=True)

        results = [tuple(one.values()) for one in rows(chosen, row, *self.MESSAGES)]

        zero = {"x": 0, "y": 0}
        assert results == [
            (1, 0, 0, 0, "", "Z", "", zero),
            (2, 0, 0, 0, "", "Z", "", zero),
            (3, 0, 5, 0, "x", "O", "t", zero),
            (4, 0, 0, 0, "", "Z", "", zero),
        ]

    def test_without_them_what_is_absent_is_null_where_the_reference_has_zeros(self) -> None:
        chosen, row = self.make_format()

        results = [tuple(one.values()) for one in rows(chosen, row, *self.MESSAGES)]

        assert results[0] == (1, 0, None, None, None, None, None, None)  # Flink: (1, 0, 0, 0, "", "Z", "", NULL)
        assert results[3] == (4, 0, None, None, "", None, None, None)

    def test_what_is_written_is_what_the_reference_writes(self) -> None:
        chosen, row = self.make_format()
        values = [
            (1, 0, 0, 0, None, "Z", "", {"x": 0, "y": 0}),
            (2, None, None, None, "", None, None, None),
            (3, 1, 1, 1, "b", "O", "s", {"x": None, "y": 1}),
        ]

        encoded = encode(chosen, row, *(dict(zip(row.names, one, strict=True)) for one in values))

        assert [one.hex() for one in encoded] == [
            "10001800280032003a0208004001",
            "22004002",
            "0801100122016228013201733a0210014003",
        ]
