"""Schemas of a few kilobytes that describe more than memory holds are refused, and what they describe is made once."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kdsl.types import model as t
from kdsl.types.limits import MAX_DEPTH, MAX_TYPES
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.model import AvroTypeError, schema_type
from kdsl_formats._avro.reference_decoder import MOST_EMPTY, BodyError, ReferenceDecoder
from kdsl_formats._avro.resolution import _Resolver, resolve
from kdsl_formats._avro.skipping import SkipperFactory
from kdsl_formats.protobuf.layout import MOST_MESSAGES, layout_of
from kdsl_formats.protobuf.schema import row_of
from kdsl_formats.protobuf.sources import SchemaError, compile_text, schema_of

ROW = t.row(id=t.BigInt(nullable=False))
TABLE = {"type": "record", "name": "Rec", "fields": [{"name": "id", "type": "long"}]}


def doubling(levels: int, leaf: Any = "int") -> Any:
    """Records of two members each, both of the record before: two to the power of the levels in all."""
    result = leaf
    for i in range(levels):
        fields = [{"name": "a", "type": result}, {"name": "b", "type": f"R{i - 1}" if i else leaf}]
        result = {"type": "record", "name": f"R{i}", "fields": fields}
    return result


def holding(*types: Any) -> Any:
    """The table's record with further fields."""
    more = [{"name": f"z{i}", "type": kind} for i, kind in enumerate(types)]
    return {**TABLE, "fields": [*TABLE["fields"], *more]}


class TestAvro:
    @pytest.mark.parametrize("levels", [17, 90])
    @pytest.mark.parametrize("leaf", ["int", "null", ["null", "string"]], ids=str)
    def test_too_many_types_are_refused_with_the_limit(self, levels: int, leaf: Any) -> None:
        with pytest.raises(AvroTypeError, match=f"more than {MAX_TYPES:,} types"):
            AvroDecoder(holding(doubling(levels // (1 + isinstance(leaf, list)) + 8, leaf)), ROW, TABLE)

    def test_types_that_are_used_again_are_counted_again(self) -> None:
        assert schema_type(doubling(3)).members == 15
        assert schema_type(["null", {"type": "array", "items": doubling(3)}]).members == 18

    @pytest.mark.parametrize("wrap", ["array", "type", "record", "names"])
    def test_types_that_are_nested_too_deeply_are_refused_with_the_limit(self, wrap: str) -> None:
        result: Any = "int"
        for i in range(MAX_DEPTH * 20):
            match wrap:
                case "array":
                    result = {"type": "array", "items": result}
                case "type":
                    result = {"type": result}
                case "record":
                    result = {"type": "record", "name": f"R{i}", "fields": [{"name": "a", "type": result}]}
        if wrap == "names":
            chain = [
                {"type": "record", "name": f"R{i}", "fields": [{"name": "a", "type": f"R{i - 1}" if i else "int"}]}
                for i in range(MAX_DEPTH * 20)
            ]
            result = {
                "type": "record",
                "name": "T",
                "fields": [{"name": f"f{i}", "type": k} for i, k in enumerate(chain)],
            }

        with pytest.raises(AvroTypeError, match=f"nested more than {MAX_DEPTH} levels deep"):
            schema_type(result)

    def test_a_recursive_record_counts_once_within_itself(self) -> None:
        node = {"type": "record", "name": "N", "fields": [{"name": n, "type": ["null", "N"]} for n in "ab"]}

        assert schema_type(node).members == 7
        assert not schema_type(node).empty

    def test_what_skips_is_made_once_for_each_type(self) -> None:
        skipper = SkipperFactory(whole=True)
        kind = schema_type(doubling(14))

        assert kind.members > 30_000
        assert skipper.skipper(kind) is not None
        assert len(skipper.skippers) == 14 + 2  # records, and the two members of the innermost one

    def test_recursive_types_are_not_skipped_by_columns_wherever_they_occur_first(self) -> None:
        node = {"type": "record", "name": "N", "fields": [{"name": "n", "type": ["null", "N"]}]}
        around = {"type": "record", "name": "A", "fields": [{"name": "n", "type": node}, {"name": "i", "type": "int"}]}
        kind = schema_type(around)

        assert SkipperFactory(whole=True).skipper(kind) is None
        assert SkipperFactory(whole=True).skipper(kind.fields[0].type) is None

    def test_compatibility_is_computed_once_for_each_pair_of_types(self) -> None:
        resolving = _Resolver(exact_units=True)

        assert resolving._fits(schema_type(doubling(14)), schema_type(doubling(14, "long")), None, "")
        assert resolving.pairs == 14 + 2

    def test_a_pair_that_relied_on_one_that_does_not_fit_is_judged_again(self) -> None:
        def pair(kind: str) -> Any:
            inner = {"type": "record", "name": "Q", "fields": [{"name": "p", "type": ["null", "P"]}]}
            return {
                "type": "record",
                "name": "P",
                "fields": [{"name": "q", "type": inner}, {"name": "x", "type": kind}, {"name": "again", "type": "Q"}],
            }

        written, wanted = schema_type(pair("string")), schema_type(pair("int"))
        resolving = _Resolver(exact_units=True)

        assert not resolving._fits(written, wanted, None, "")
        assert not resolving._fits(written.fields[0].type, wanted.fields[0].type, None, "")

    def test_too_many_pairs_of_types_are_refused_with_the_limit(self) -> None:
        others = [
            {"type": "record", "name": f"R{i}", "fields": [{"name": "f", "type": ["null", "First"]}]} for i in range(60)
        ]
        first = {"type": "record", "name": "First", "fields": [{"name": "f", "type": ["null", *others]}]}
        wanted: Any = "int"
        column: t.DataType = t.Int(nullable=False)
        for i in range(7):  # which may be any of 60 records at every second level
            wanted = {"type": "record", "name": f"W{i}", "fields": [{"name": "f", "type": wanted}]}
            column = t.row(f=column).as_nullable(False)

        with pytest.raises(AvroTypeError, match=f"more than {MAX_TYPES:,} pairs of types"):
            resolve(schema_type(first), schema_type(wanted), column, exact_units=True)

    @pytest.mark.parametrize("items", ["null", doubling(3, "null"), {"type": "fixed", "name": "F", "size": 0}], ids=str)
    @pytest.mark.parametrize("blocks", [1, 2])
    def test_items_of_no_bytes_are_counted_before_they_are_read(self, items: Any, blocks: int) -> None:
        kind = schema_type(items)
        most = MOST_EMPTY // kind.members
        step = resolve(
            schema_type(holding({"type": "array", "items": items})), schema_type(TABLE), ROW, exact_units=True
        )
        reference = ReferenceDecoder(step)

        assert kind.empty
        assert reference.value(long(1) + long(most) + b"\0") == {"id": 1}
        for count in (most + 1, 1 << 62):
            with pytest.raises(BodyError, match=f"more than {MOST_EMPTY:,} items of no bytes"):
                reference.value(long(1) + (long(1) * (blocks - 1)) + long(count) + b"\0")
        assert reference._empty.count > MOST_EMPTY

    def test_only_a_decoder_reports_such_records(self) -> None:
        decoder = AvroDecoder(holding({"type": "array", "items": "null"}), ROW, TABLE)
        good, bad = long(7) + b"\0", long(7) + long(1 << 62) + b"\0"
        decoded = decoder.decode(pa.array([good, bad, good] * 30, pa.binary()))

        assert len(decoded.rows) == 60
        assert [one.index for one in decoded.bad] == list(range(1, 90, 3))


def long(number: int) -> bytes:
    number, results = number << 1, b""
    while number > 127:
        number, results = number >> 7, results + bytes([number & 127 | 128])
    return results + bytes([number])


class TestProtobuf:
    def message(self, text: str, syntax: str = "proto3") -> Any:
        return schema_of("Top", compile_text(f'syntax = "{syntax}";\n{text}'))

    def test_too_many_fields_are_refused_with_the_limit(self) -> None:
        inner = "\n".join(f"message M{i} {{ M{i - 1} a = 1; M{i - 1} b = 2; }}" for i in range(1, 30))

        with pytest.raises(SchemaError, match=f"the message Top has more than {MAX_TYPES:,} fields"):
            row_of(self.message(f"message M0 {{ int32 x = 1; }}\n{inner}\nmessage Top {{ M29 a = 1; }}").message)

    def test_mutually_recursive_messages_are_refused_with_the_limit(self) -> None:
        names = ["Top", *(f"M{i}" for i in range(1, 12))]
        text = "\n".join(
            f"message {name} {{ {' '.join(f'{other} f{i} = {i + 1};' for i, other in enumerate(names))} }}"
            for name in names
        )

        with pytest.raises(SchemaError, match=f"more than {MAX_TYPES:,} fields"):
            row_of(self.message(text).message)

    def test_messages_that_are_nested_too_deeply_are_refused_with_the_limit(self) -> None:
        inner = "\n".join(f"message M{i} {{ M{i - 1} a = 1; }}" for i in range(1, MAX_DEPTH + 2))

        with pytest.raises(SchemaError, match=f"nested more than {MAX_DEPTH} levels deep"):
            row_of(self.message(f"message M0 {{}}\n{inner}\nmessage Top {{ M{MAX_DEPTH + 1} a = 1; }}").message)

    def test_required_messages_are_bounded_although_no_column_shows_them(self) -> None:
        inner = "\n".join(f"message M{i} {{ required M{i - 1} a = 1; required M{i - 1} b = 2; }}" for i in range(1, 30))
        top = "message Top { required int64 id = 1; required M29 a = 2; }"
        schema = self.message(f"message M0 {{ required int32 x = 1; }}\n{inner}\n{top}", "proto2")

        with pytest.raises(SchemaError, match=f"of Top are more than {MOST_MESSAGES:,}"):
            layout_of(schema, ROW)

    def test_a_message_that_requires_itself_is_refused(self) -> None:
        schema = self.message("message Top { required int64 id = 1; required Top a = 2; }", "proto2")

        with pytest.raises(SchemaError, match=f"nested more than {MAX_DEPTH} levels deep"):
            layout_of(schema, ROW)
