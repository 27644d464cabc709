"""Rows to Avro bodies: columns that equal the judge, another reader, and rows that a schema cannot hold."""

from __future__ import annotations

import io
import struct
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.formats import Encoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.encoder import AvroEncoder
from kdsl_formats._avro.hash_map import java_hash, java_order, java_orders
from kdsl_formats._avro.schema import AvroTypeError, avro_schema, row_of
from tests import strategies
from tests.formats import avro_bodies
from tests.formats.avro_bodies import ORDER
from tests.formats.contract import SUPPRESSED
from tests.formats.test_avro_contract import encode_string, long
from tests.formats.test_avro_decoder import both as read, record, row, row_not_null
from tests.strategies import examples


def both(schema: Any, kind: t.Row, rows: pa.StructArray, **rules: Any) -> Encoded:
    """What both ways to write give, which must be the same."""
    one, many = (
        AvroEncoder(schema, kind, min_batch=min_batch, **rules).encode(rows) for min_batch in (len(rows) + 1, 0)
    )
    assert (one.messages, one.bad) == (many.messages, many.bad)
    many.messages.validate(full=True)
    assert many.messages.type == pa.binary()
    return many


def body(schema: Any, kind: t.Row, value: dict[str, Any], **rules: Any) -> bytes:
    encoded = both(schema, kind, pa.array([value] * 2, arrow_type(kind)), **rules)
    assert encoded.bad == ()
    result: bytes = encoded.messages[1].as_py()
    return result


def reasons(schema: Any, kind: t.Row, value: dict[str, Any]) -> list[str]:
    encoded = both(schema, kind, pa.array([value], arrow_type(kind)))
    assert encoded.messages.to_pylist() == [None]
    return [b.reason for b in encoded.bad]


@given(st.data())
@settings(deadline=None, max_examples=examples(80), suppress_health_check=SUPPRESSED)
def test_columns_equal_the_judge(data: st.DataObject) -> None:
    kind = data.draw(avro_bodies.row_types(legacy=False))
    rows = data.draw(st.lists(strategies.values(kind.as_nullable(False)), max_size=5))
    schema = avro_schema(row_not_null(kind), legacy_timestamps=False)
    array = pa.array(rows, arrow_type(kind))

    both(schema, row_not_null(kind), array, exact_units=data.draw(st.booleans()))
    if len(rows) > 2:
        both(schema, row_not_null(kind), array[1:-1])


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-300, 300), min_size=1))
@settings(deadline=None, max_examples=examples(60), suppress_health_check=SUPPRESSED)
def test_numbers_of_every_length_read_back(numbers: list[int]) -> None:
    kind = row(a=t.BigInt(nullable=False), b=t.BigInt())
    rows = pa.array([{"a": n, "b": n} for n in numbers], arrow_type(kind))
    encoded = both(avro_schema(kind), kind, rows)

    assert encoded.messages.to_pylist() == [long(n) + b"\x02" + long(n) for n in numbers]
    assert read(avro_schema(kind), kind, avro_schema(kind), encoded.messages.to_pylist()).rows == rows


ENUM = {"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}
FIXED_TWO = {"type": "fixed", "name": "F", "size": 2}
NANOS = {"type": "long", "logicalType": "timestamp-nanos"}


def decimal_schema(size: int, scale: int) -> dict[str, Any]:
    return {"type": "fixed", "name": "D", "size": size, "logicalType": "decimal", "precision": 38, "scale": scale}


def bytes_decimal(scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}


ODD: dict[str, tuple[Any, t.DataType, list[Any], list[Any]]] = {
    "enum": (ENUM, t.VarChar(nullable=False), ["RED", "BLUE"], ["GREEN", None]),
    "fixed": (FIXED_TWO, t.VarBinary(nullable=False), [b"ab", b"\0\xff"], [b"a", b"", None]),
    "nanos": (NANOS, t.TimestampLtz(6, nullable=False), [0, -1, 1_577_882_096_789_123], [2**62, -(2**62), None]),
    "scale up": (bytes_decimal(5), t.Decimal(9, 2, nullable=False), [Decimal("-1.23"), Decimal("9999999.99")], [None]),
    "scale down": (
        bytes_decimal(1),
        t.Decimal(9, 2, nullable=False),
        [Decimal("-1.20"), Decimal(7)],
        [Decimal("0.01")],
    ),
    "two": (
        decimal_schema(2, 2),
        t.Decimal(9, 2, nullable=False),
        [Decimal("-327.68"), Decimal(1)],
        [Decimal("327.68")],
    ),
    "twelve": (
        decimal_schema(12, 0),
        t.Decimal(38, 0, nullable=False),
        [Decimal(-(2**95)), Decimal(3)],
        [Decimal(2**95)],
    ),
    "twenty": (decimal_schema(20, 1), t.Decimal(38, 1, nullable=False), [Decimal(-(10**36)), Decimal("0.1")], [None]),
    "nothing": ("null", t.STRING, [None], ["a"]),
    "choice": (
        ["string", "null", FIXED_TWO],
        t.row(member0=t.STRING, member1=t.BYTES),
        [{"member0": "a", "member1": None}, {"member0": None, "member1": b"xy"}, None],
        [{"member0": "a", "member1": b"xy"}, {"member0": None, "member1": b"xyz"}],
    ),
    "choice without null": (
        ["string", "long"],
        t.row(member0=t.STRING, member1=t.BigInt()),
        [{"member0": "", "member1": None}, {"member0": None, "member1": 2**62}],
        [{"member0": None, "member1": None}, {"member0": "a", "member1": 1}],
    ),
    "map": (
        {"type": "map", "values": ["null", "int"]},
        t.Map(t.VarChar(nullable=False), t.Int(), nullable=False),
        [[("a", 1), ("b", None)], []],
        [[("a", 1), ("a", 2)], None],
    ),
}


@pytest.mark.parametrize("case", ODD)
def test_only_unusual_rows_go_to_the_reference(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wire, kind, good, odd = ODD[case]
    schema, table = record(("before", "int"), ("f", wire)), row(before=t.Int(nullable=False), f=kind)
    rows = [{"before": i, "f": good[i % len(good)]} for i in range(100)]
    for i, value in enumerate(odd):
        rows[20 * i + 7]["f"] = value
    array = pa.array(rows, arrow_type(table))
    whole = both(schema, table, array)
    writer, judged = AvroEncoder(schema, table), list[Any]()
    judge = writer.reference.body

    def body(value: Any) -> bytes:
        judged.append(value["before"])
        return judge(value)

    monkeypatch.setattr(writer.reference, "body", body)
    encoded = writer.encode(array)

    assert (encoded.messages, encoded.bad) == (whole.messages, whole.bad)
    assert judged == [20 * i + 7 for i in range(len(odd))]


@given(st.sampled_from(sorted(ODD)), st.sampled_from(["", "array", "map"]), st.data())
@settings(deadline=None, max_examples=examples(100), suppress_health_check=SUPPRESSED)
def test_unusual_columns_equal_the_reference(case: str, around: str, data: st.DataObject) -> None:
    wire, kind, good, odd = ODD[case]
    value: st.SearchStrategy[Any] = st.sampled_from([*good, *good, *good, *odd])
    if around == "array":
        wire, kind, value = {"type": "array", "items": wire}, t.Array(kind), st.lists(value, max_size=4)
    if around == "map":
        wire, kind = {"type": "map", "values": wire}, t.Map(t.VarChar(nullable=False), kind)
        value = st.lists(st.tuples(st.sampled_from("abc"), value), max_size=4)
    if data.draw(st.booleans()) and case != "nothing" and not isinstance(wire, list):
        wire, kind, value = [wire, "null"], kind.as_nullable(True), value | st.none()
    schema, table = record(("f", wire), ("last", "string")), row(f=kind, last=t.VarChar(nullable=False))
    rows = data.draw(st.lists(st.fixed_dictionaries({"f": value, "last": strategies.TEXTS}), min_size=1, max_size=8))
    array = pa.array(rows, arrow_type(table))

    both(schema, table, array, exact_units=data.draw(st.booleans()))
    both(schema, table, array[1:])


@given(st.integers(1, 38), st.integers(0, 38), st.none() | st.integers(1, 20), st.data())
@settings(deadline=None, max_examples=examples(100), suppress_health_check=SUPPRESSED)
def test_decimals_of_any_scale_and_size_equal_the_judge(
    precision: int, scale: int, size: int | None, data: st.DataObject
) -> None:
    table = row(d=t.Decimal(precision, data.draw(st.integers(0, precision))))
    wire = bytes_decimal(scale) if size is None else decimal_schema(size, scale)
    rows = data.draw(st.lists(strategies.values(table), min_size=1, max_size=6))

    both(record(("d", ["null", wire])), table, pa.array(rows, arrow_type(table)))


@given(st.integers(1, 38), st.data())
@settings(deadline=None, max_examples=examples(80), suppress_health_check=SUPPRESSED)
def test_decimals_of_every_length_read_back(precision: int, data: st.DataObject) -> None:
    kind = row(d=t.Decimal(precision, 1 if precision > 1 else 0, nullable=False))
    rows = pa.array(data.draw(st.lists(avro_bodies.values(kind), min_size=1)), arrow_type(kind))
    encoded = both(avro_schema(kind), kind, rows)

    assert read(avro_schema(kind), kind, avro_schema(kind), encoded.messages.to_pylist()).rows == rows


@given(st.lists(avro_bodies.values(ORDER), min_size=1, max_size=20))
@settings(deadline=None, max_examples=30, suppress_health_check=SUPPRESSED)
def test_another_reader_reads_what_is_written(rows: list[Any]) -> None:
    kind = row_not_null(ORDER)
    schema = avro_schema(kind)
    wire = fastavro.parse_schema(schema)
    encoded = both(schema, kind, pa.array(rows, arrow_type(kind)))
    results = [fastavro.schemaless_reader(io.BytesIO(message), wire, None) for message in encoded.messages.to_pylist()]

    for value, other in zip(rows, results, strict=True):
        assert isinstance(other, dict)
        at = other.pop("at")
        assert other == {k: v for k, v in value.items() if k != "at"}
        assert (None if at is None else round(at.timestamp() * 1000)) == (value["at"] and value["at"] // 1000)


def test_long_strings_and_many_items_are_written() -> None:
    kind = row(s=t.STRING, b=t.BYTES, tags=t.Array(t.STRING), n=t.Int())
    values = [
        {"s": "é" * size, "b": bytes(size), "tags": ["x" * (size % 40)] * (size % 300), "n": size}
        for size in [0, 1, 7, 8, 9, 15, 16, 17, 63, 64, 255, 256, 257, 5000, 1_000_000]
    ]
    encoded = both(avro_schema(kind), kind, pa.array(values, arrow_type(kind)))

    assert read(avro_schema(kind), kind, avro_schema(kind), encoded.messages.to_pylist()).rows.to_pylist() == values


def test_times_are_cut_to_the_schemas_unit() -> None:
    kind = row(at=t.Timestamp(6, nullable=False), c=t.Time(3, nullable=False))
    schema = record(
        ("at", {"type": "long", "logicalType": "local-timestamp-micros"}),
        ("c", {"type": "int", "logicalType": "time-millis"}),
    )
    value = {"at": -1, "c": 1_999_999}

    assert body(schema, kind, value) == long(-1) + long(1)
    assert body(schema, kind, value, exact_units=False) == long(-1) + long(1)
    assert body(schema, kind, {"at": 1999, "c": 0}, exact_units=False) == long(1) + long(0)


def test_null_where_the_schema_has_none_is_an_error_of_that_row() -> None:
    kind = row(a=t.row(x=t.Int(nullable=False)).as_nullable(False), tags=t.Array(t.Int(nullable=False)))
    rows = pa.array(
        [{"a": {"x": 1}, "tags": None}, {"a": None, "tags": None}, {"a": {"x": None}, "tags": [1]}],
        arrow_type(kind),
    )
    encoded = both(avro_schema(kind), kind, rows)

    assert encoded.messages.to_pylist() == [b"\x02\0", None, None]
    assert [(b.index, b.reason) for b in encoded.bad] == [
        (1, "field 'a': the value is NULL, but the schema has no null"),
        (2, "field 'a.x': the value is NULL, but the schema has no null"),
    ]


def test_enums_and_fixed_values_are_written() -> None:
    schema = record(
        ("e", [{"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}, "null"]),
        ("f", {"type": "fixed", "name": "F", "size": 2}),
        ("d", {"type": "fixed", "name": "D", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 2}),
    )
    kind = row_of(schema)

    assert body(schema, kind, {"e": "BLUE", "f": b"ab", "d": Decimal("-1.00")}) == b"\0\x02ab\xff\xff\x9c"
    assert body(schema, kind, {"e": None, "f": b"ab", "d": Decimal(0)}) == b"\x02ab\0\0\0"
    assert reasons(schema, kind, {"e": "GREEN", "f": b"ab", "d": Decimal(0)}) == [
        "field 'e': 'GREEN' is not a symbol of the enum E"
    ]
    assert reasons(schema, kind, {"e": None, "f": b"abc", "d": Decimal(0)}) == [
        "field 'f': F has 2 bytes, and the value has 3"
    ]


def test_a_row_of_members_is_a_union() -> None:
    schema = record(("u", ["null", "string", "long"]))
    kind = row_of(schema)

    assert body(schema, kind, {"u": {"member0": "a", "member1": None}}) == b"\x02" + encode_string("a")
    assert body(schema, kind, {"u": {"member0": None, "member1": 3}}) == b"\x04\x06"
    assert body(schema, kind, {"u": None}) == b"\0"
    assert reasons(schema, kind, {"u": {"member0": "a", "member1": 3}}) == [
        "field 'u': a union takes one value, but member0 and member1 are not NULL"
    ]


def test_a_union_at_the_top_is_written() -> None:
    schema = ["null", record(("x", "double"))]
    kind = row(x=t.Double(nullable=False))

    assert body(schema, kind, {"x": float("nan")}) == b"\x02" + struct.pack("<d", float("nan"))


def test_a_key_that_comes_twice_is_written_once() -> None:
    kind = row(m=t.Map(t.VarChar(nullable=False), t.Int(nullable=False), nullable=False))

    assert body(avro_schema(kind), kind, {"m": [("a", 1), ("b", 2), ("a", 3)]}) == b"\x04\x02a\x06\x02b\x04\0"


def test_a_schema_that_cannot_represent_the_table_is_reported_at_once() -> None:
    with pytest.raises(AvroTypeError, match="a: the schema has string here, which cannot hold INT"):
        AvroEncoder(record(("a", "string")), row(a=t.Int()))
    with pytest.raises(AvroTypeError, match="no field for 'b'; remove these columns"):
        AvroEncoder(record(("a", "int")), row(a=t.Int(), b=t.Int()))
    with pytest.raises(AvroTypeError, match="b: the schema 'R' has this field, and the table has no such column"):
        AvroEncoder(record(("a", "int"), ("b", "int")), row(a=t.Int()))


@pytest.mark.parametrize(
    ("keys", "order"),
    [
        (["b", "a"], ["a", "b"]),
        (["k", "n"], ["n", "k"]),
        (["one", "two", "three", "four", "five"], ["two", "three", "five", "four", "one"]),
    ],
)
def test_the_entries_of_maps_have_the_order_of_javas_hash_map(keys: list[str], order: list[str]) -> None:
    assert [keys[i] for i in java_order(keys)] == order


def test_the_hash_of_a_string_is_javas() -> None:
    assert [java_hash(key) for key in ("", "a", "Aa", "BB")] == [0, 97, 2112, 2112]
    assert java_hash("\U0001f600") == (0xD83D * 31 + 0xDE00) ^ ((0xD83D * 31 + 0xDE00) >> 16)


@given(st.lists(st.lists(strategies.TEXTS | st.sampled_from(["a", "Aa", "BB", "x" * 300]), max_size=9, unique=True)))
@settings(deadline=None, max_examples=examples(80))
def test_the_order_of_many_maps_is_that_of_each(maps: list[list[str]]) -> None:
    keys = pa.array([key for one in maps for key in one], pa.string())
    order, again = java_orders(keys, np.array([len(one) for one in maps], dtype=np.int64))

    assert not again.any()
    assert keys.take(pa.array(order)).to_pylist() == [one[i] for one in maps for i in java_order(one)]


def test_maps_with_a_key_twice_are_found() -> None:
    keys = pa.array(["a", "b", "a", "a"])

    assert java_orders(keys, np.array([3, 1]))[1].tolist() == [True, False]
    assert java_orders(keys, np.array([2, 1, 1]))[1].tolist() == [False] * 3
