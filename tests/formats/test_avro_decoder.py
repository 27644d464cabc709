"""Avro bodies to rows: resolution as Java has it, bodies that are damaged, and columns that equal the judge."""

from __future__ import annotations

import io
import struct
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.schema import AvroTypeError, avro_schema, row_of
from tests.formats import avro_bodies
from tests.formats.avro_bodies import ORDER, bodies
from tests.formats.conformance import python_rows
from tests.formats.contract import SUPPRESSED
from tests.formats.test_avro_contract import encode_string, long
from tests.strategies import examples


def record(*fields: tuple[Any, ...], name: str = "R", **more: Any) -> dict[str, Any]:
    """A schema of a record from names, types and, where there are three, defaults."""
    results = [{"name": f[0], "type": f[1], **({"default": f[2]} if len(f) > 2 else {})} for f in fields]
    return {"type": "record", "name": name, "fields": results, **more}


def row(**fields: t.DataType) -> t.Row:
    result = t.row(**fields).as_nullable(False)
    assert isinstance(result, t.Row)
    return result


def both(writer: Any, kind: t.Row, reader: Any, messages: list[bytes | None], **rules: Any) -> Decoded:
    """What both ways to read give, which must be the same."""
    array = pa.array(messages, pa.binary())
    one, many = (
        AvroDecoder(writer, kind, reader, min_batch=min_batch, **rules).decode(array)
        for min_batch in (len(messages) + 1, 1)
    )
    assert same(one) == same(many)
    many.rows.validate(full=True)
    assert many.rows.type == arrow_type(kind)
    return many


def same(decoded: Decoded) -> tuple[Any, ...]:
    messages = range(len(decoded.rows)) if decoded.messages is None else decoded.messages.to_pylist()
    return [repr(v) for v in python_rows(decoded.rows)], list(messages), decoded.bad


def values(writer: Any, kind: t.Row, reader: Any, *messages: bytes, **rules: Any) -> list[Any]:
    """The values of the only column of messages that are all good."""
    decoded = both(writer, kind, reader, list(messages), **rules)
    assert decoded.bad == ()
    return [next(iter(v.values())) for v in python_rows(decoded.rows)]


def reason(writer: Any, kind: t.Row, reader: Any, message: bytes, **rules: Any) -> str:
    """Why a message cannot be read; another one, if it is good, must be read all the same."""
    decoded = both(writer, kind, reader, [message, message], **rules)
    assert [b.index for b in decoded.bad] == [0, 1]
    return decoded.bad[0].reason


# -- the lane equals the judge


@given(st.data())
@settings(deadline=None, max_examples=examples(100), suppress_health_check=SUPPRESSED)
def test_columns_equal_the_judge_whatever_the_bytes(data: st.DataObject) -> None:
    kind = data.draw(avro_bodies.row_types(legacy=False))
    schema = avro_schema(row_not_null(kind), legacy_timestamps=False)
    rows = data.draw(st.lists(avro_bodies.values(kind), min_size=1, max_size=4))
    exact = data.draw(st.booleans())
    messages: list[bytes | None] = [
        data.draw(avro_bodies.broken(body)) for body in bodies(kind, rows, schema) for _ in range(2)
    ]
    messages.insert(data.draw(st.integers(0, len(messages))), data.draw(st.none() | st.binary(max_size=12)))

    both(schema, row_not_null(kind), schema, messages, exact_units=exact)


@given(st.data())
@settings(deadline=None, max_examples=examples(60), suppress_health_check=SUPPRESSED)
def test_columns_equal_the_judge_for_some_of_the_fields(data: st.DataObject) -> None:
    kind = data.draw(avro_bodies.row_types())
    rows = data.draw(st.lists(avro_bodies.values(kind), min_size=1, max_size=3))
    wanted = tuple(data.draw(st.permutations(kind.fields))[: data.draw(st.integers(0, 2))])
    part = t.Row((*wanted, t.Field("more_", t.Int())), nullable=False)
    writer = avro_schema(row_not_null(kind))
    messages: list[bytes | None] = [data.draw(avro_bodies.broken(body)) for body in bodies(kind, rows)]

    both(writer, part, avro_schema(part), [*bodies(kind, rows), *messages])


@given(st.lists(avro_bodies.values(ORDER), min_size=1, max_size=20))
@settings(deadline=None, max_examples=40, suppress_health_check=SUPPRESSED)
def test_what_another_writer_writes_is_read(rows: list[Any]) -> None:
    kind = row_not_null(ORDER)
    schema = avro_schema(kind)
    wire = fastavro.parse_schema(without_logical_types(schema))
    messages = []
    for value in rows:
        amount, at = value["amount"], value["at"]
        number = None if amount is None else int(amount.scaleb(2))
        data = None if number is None else number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, wire, value | {"amount": data, "at": None if at is None else at // 1000})
        messages.append(out.getvalue())

    decoded = both(schema, kind, schema, [*messages])
    assert [repr(v) for v in python_rows(decoded.rows)] == [
        repr(v) for v in python_rows(pa.array(rows, arrow_type(ORDER)))
    ]


def without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {k: without_logical_types(v) for k, v in schema.items() if k != "logicalType"}
    return [without_logical_types(v) for v in schema] if isinstance(schema, list) else schema


def row_not_null(kind: t.Row) -> t.Row:
    result = kind.as_nullable(False)
    assert isinstance(result, t.Row)
    return result


FIXED_THREE = {"type": "fixed", "name": "F", "size": 3}
BRANCHES: dict[str, tuple[Any, list[bytes]]] = {
    "null": ("null", [b""]),
    "int": ("int", [long(7), long(-(2**31)), long(2**31)]),
    "long": ("long", [long(300), long(2**62 + 1)]),
    "float": ("float", [struct.pack("<f", 0.5)]),
    "double": ("double", [struct.pack("<d", -2.5)]),
    "string": ("string", [encode_string("é"), encode_string("")]),
    "bytes": ("bytes", [encode_string("abc"), b"\x04\xff\xfe"]),
    "boolean": ("boolean", [b"\1"]),
    "F": (FIXED_THREE, [b"abc", b"ab"]),
    "array": ({"type": "array", "items": ["null", "int"]}, [b"\x04\x02\x0c\x02\x02\0", b"\x04\0\x02\x02\0", b"\0"]),
}
UNIONS = st.lists(st.sampled_from(sorted(BRANCHES)), min_size=1, max_size=5, unique=True)
KINDS = [
    kind.as_nullable(nullable)
    for kind in (t.Int(), t.BigInt(), t.Double(), t.STRING, t.BYTES, t.Array(t.Int()), t.Array(t.Int(nullable=False)))
    for nullable in (True, False)
]


@given(UNIONS, st.sampled_from(KINDS), st.booleans(), st.data())
@settings(deadline=None, max_examples=examples(150), suppress_health_check=SUPPRESSED)
def test_unions_of_all_types_equal_the_judge(
    names: list[str], kind: t.DataType, inside: bool, data: st.DataObject
) -> None:
    union = [BRANCHES[name][0] for name in names]
    writer, table = record(("f", union), ("last", "int")), row(f=kind, last=t.Int(nullable=False))
    reader = avro_schema(table)
    if inside:
        writer, table = record(("f", {"type": "array", "items": union})), row(f=t.Array(kind))
        reader = avro_schema(table)
    elif data.draw(st.booleans()):
        reader = record(("f", [BRANCHES[name][0] for name in data.draw(UNIONS)]), ("last", "int"))
        table = row_of(reader)
    messages = []
    for _ in range(data.draw(st.integers(1, 5))):
        result = b""
        for _ in range(data.draw(st.integers(1, 3)) if inside else 1):
            index = data.draw(st.integers(0, len(names) - 1))
            result += (b"\x02" if inside else b"") + long(index) + data.draw(st.sampled_from(BRANCHES[names[index]][1]))
        messages.append(data.draw(avro_bodies.broken(result + (b"\0" if inside else long(5)))))

    both(writer, table, reader, [*messages])


def decode_and_record(
    reader: AvroDecoder, messages: list[bytes], monkeypatch: pytest.MonkeyPatch
) -> tuple[Decoded, list[bytes]]:
    """What is read, and the messages that the judge was asked about."""
    judge, bodies = reader.reference.value, list[bytes]()

    def value(body: bytes) -> Any:
        bodies.append(body)
        return judge(body)

    monkeypatch.setattr(reader.reference, "value", value)
    return reader.decode(pa.array(messages, pa.binary())), bodies


@pytest.mark.parametrize(
    ("wire", "kind", "good", "null"),
    [
        (["null", "int"], t.Int(nullable=False), b"\x02" + long(9), b"\0"),
        (["string", "null"], t.VarChar(nullable=False), b"\0" + encode_string("ab"), b"\x02"),
        (["int", "string"], t.BigInt(), b"\0" + long(9), b"\x02" + encode_string("ab")),
        (["null", "int", "string"], t.BigInt(), b"\x02" + long(9), b"\x04" + encode_string("ab")),
        ({"type": "array", "items": ["null", "int"]}, t.Array(t.Int(nullable=False)), b"\x02\x02\x02\0", b"\x02\0\0"),
    ],
    ids=str,
)
def test_only_the_messages_that_meet_a_mismatch_go_to_the_judge(
    wire: Any, kind: t.DataType, good: bytes, null: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = row(f=kind)
    messages = [null if i in (3, 77) else good for i in range(100)]
    decoded, bodies = decode_and_record(
        AvroDecoder(record(("f", wire)), table, avro_schema(table)), messages, monkeypatch
    )

    assert bodies == [null, null]
    assert [b.index for b in decoded.bad] == [3, 77]
    assert len(decoded.rows) == 98


@pytest.mark.parametrize(
    ("wire", "table", "messages", "expected"),
    [
        (["null", "string", "long"], None, [b"\0", b"\x02" + encode_string("a"), b"\x04\x06"], [
            None, {"member0": "a", "member1": None}, {"member0": None, "member1": 3}]),
        (["int", "null", "long"], t.BigInt(), [b"\0\x02", b"\x02", b"\x04\x06"], [1, None, 3]),
        ("null", t.STRING, [b""] * 3, [None] * 3),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 4}, t.Decimal(6, 2),
         [b"\x06\x01\xe2\x3f", b"\x08\x7f\xff\xff\xff", b"\x04\xff\xce"], [Decimal("12.35"), None, Decimal("-0.01")]),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 0}, t.Decimal(6, 2),
         [b"\x02\x0c", b"\x06\x01\xe2\x3f", b"\x02\xff"], [Decimal("12.00"), None, Decimal("-1.00")]),
    ],
    ids=str,
)  # fmt: skip
def test_unions_nulls_and_decimals_of_other_scales_are_read_by_columns(
    wire: Any, table: t.DataType | None, messages: list[bytes], expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = record(("f", wire))
    kind = row_of(writer) if table is None else row(f=table)
    reader = writer if table is None else avro_schema(kind)
    decoded, bodies = decode_and_record(AvroDecoder(writer, kind, reader), messages * 20, monkeypatch)

    assert bodies == []
    assert decoded.rows.field("f").to_pylist() == expected * 20


MANY = [{"type": "fixed", "name": f"F{i}", "size": 1} for i in range(70)]


@pytest.mark.parametrize("wanted", [False, True])
def test_a_union_may_have_more_types_than_fit_in_one_byte(wanted: bool) -> None:
    writer = record(("f", [*MANY, "int"]), ("last", "int"))
    table = row(last=t.Int(nullable=False), **({"f": t.Int()} if wanted else {}))
    numbers = (70,) if wanted else (1, 63, 64, 69)
    messages: list[bytes | None] = [long(number) + b"\0" + long(8) for number in numbers]
    decoded = both(writer, table, avro_schema(table), messages)

    assert decoded.bad == ()
    assert decoded.rows.to_pylist() == [{"last": 8} | ({"f": 0} if wanted else {}) for _ in numbers]


@given(st.integers(1, 38), st.data())
@settings(deadline=None, max_examples=examples(80), suppress_health_check=SUPPRESSED)
def test_decimals_of_any_scale_equal_the_judge(precision: int, data: st.DataObject) -> None:
    table = row(d=t.Decimal(precision, data.draw(st.integers(0, precision))))
    scale = data.draw(st.integers(0, 38))
    logical = {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": scale}
    numbers = st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**40), 10**40) | st.integers(-5000, 5000)
    messages = [
        long(size := n.bit_length() // 8 + 1) + n.to_bytes(size, "big", signed=True)
        for n in data.draw(st.lists(numbers, min_size=1, max_size=8))
    ]

    both(record(("d", logical)), table, avro_schema(table), [*messages])


def test_a_large_batch_with_a_few_bad_messages_returns_all_others() -> None:
    kind = row(id=t.BigInt(nullable=False), tags=t.Array(t.STRING, nullable=False))
    schema = avro_schema(kind)
    messages: list[bytes | None] = [*bodies(kind, [{"id": i, "tags": ["x"] * (i % 5)} for i in range(3000)])]
    for index in (0, 17, 1500, 2999):
        messages[index] = b"\xff" * 12
    messages[5] = None
    decoded = AvroDecoder(schema, kind, schema).decode(pa.array(messages, pa.binary()))

    assert [b.index for b in decoded.bad] == [0, 17, 1500, 2999]
    assert decoded.messages is not None
    assert decoded.messages.to_pylist() == [i for i in range(3000) if i not in (0, 5, 17, 1500, 2999)]
    assert decoded.rows.field("id").to_pylist() == decoded.messages.to_pylist()


# -- resolution


@pytest.mark.parametrize(
    ("wire", "data", "kind", "expected"),
    [
        ("int", long(7), t.BigInt(nullable=False), 7),
        ("int", long(-7), t.Float(nullable=False), -7.0),
        ("int", long(7), t.Double(), 7.0),
        ("long", long(2**62 + 1), t.Double(nullable=False), float(2**62)),
        ("long", long(2**53 + 1), t.Float(), float(2**53)),
        ("float", struct.pack("<f", 0.1), t.Double(nullable=False), struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        ("string", encode_string("é"), t.BYTES, "é".encode()),
        ("bytes", encode_string("é"), t.STRING, "é"),
        (["null", "string"], b"\x02" + encode_string("é"), t.STRING, "é"),
        (["string", "null"], b"\x02", t.STRING, None),
        (["string"], b"\0" + encode_string("é"), t.STRING, "é"),
        (["int", "long", "null"], b"\x02" + long(9), t.BigInt(), 9),
        (["int", "long", "null"], b"\x04", t.BigInt(), None),
        ({"type": "array", "items": "int"}, b"\x04\x02\x04\0", t.Array(t.BigInt()), [1, 2]),
        ({"type": "array", "items": "int"}, b"\x03\x04\x02\x04\0", t.Array(t.Int()), [1, 2]),
        ({"type": "array", "items": "int"}, b"\x02\x02\x02\x04\0", t.Array(t.Int()), [1, 2]),
        ({"type": "map", "values": "int"}, b"\x02\x02k\x02\0", t.Map(t.STRING, t.BigInt()), [("k", 1)]),
        ({"type": "map", "values": "int"}, b"\x04\x02k\x02\x02k\x04\0", t.Map(t.STRING, t.Int()), [("k", 2)]),
    ],
    ids=str,
)
def test_a_value_is_resolved_to_the_table(wire: Any, data: bytes, kind: t.DataType, expected: Any) -> None:
    table = row(f=kind)

    assert values(record(("f", wire)), table, avro_schema(table), data, data + b"more") == [expected] * 2


@pytest.mark.parametrize(
    ("wire", "data", "kind", "message"),
    [
        (
            "long",
            long(1),
            t.STRING,
            "field 'f': the writer's schema has long here, which STRING cannot hold; declare the column as BIGINT",
        ),
        ("long", long(1), t.VarChar(nullable=False), "field 'f': the writer's schema has long here, which STRING"),
        ("long", long(1), t.Int(nullable=False), "field 'f': the writer's schema has long here, which INT cannot"),
        (
            ["null", "long"],
            b"\0",
            t.BigInt(nullable=False),
            "field 'f': it is null, but the column is NOT NULL; declare it without NOT NULL, as BIGINT",
        ),
        (["null", "long"], b"\x04", t.BigInt(), "field 'f': a union of 2 types has no type number 2"),
        (["null", "long"], b"\x01", t.BigInt(), "field 'f': a union of 2 types has no type number -1"),
        (
            {"type": "enum", "name": "C", "symbols": ["A"]},
            b"\0",
            t.Int(),
            "field 'f': the writer's schema has the enum C here, which INT cannot hold; declare the column as STRING",
        ),
        ("int", long(2**31), t.Int(nullable=False), "field 'f': the number has more than 32 bits"),
        ("int", b"\x80\x80\x80\x80\x80\0", t.Int(nullable=False), "field 'f': the number has more than 5 bytes"),
        ("long", b"\xff" * 9 + b"\x7f", t.BigInt(nullable=False), "field 'f': the number has more than 64 bits"),
        ("long", b"\x80" * 11, t.BigInt(nullable=False), "field 'f': the number has more than 10 bytes"),
        ("long", b"\x80", t.BigInt(nullable=False), "field 'f': the message ends inside a number"),
        ("int", long(200), t.TinyInt(nullable=False), "field 'f': 200 is out of the range of TINYINT"),
        ("int", long(-40_000), t.SmallInt(nullable=False), "field 'f': -40000 is out of the range of SMALLINT"),
        ("boolean", b"", t.Boolean(nullable=False), "field 'f': the message ends inside a boolean"),
        ("float", b"\0\0\0", t.Float(nullable=False), "field 'f': the message ends inside a float"),
        ("double", b"\0" * 7, t.Double(nullable=False), "field 'f': the message ends inside a double"),
        ("string", b"\x01", t.VarChar(nullable=False), "field 'f': a length is negative: -1"),
        ("string", b"\x0aab", t.VarChar(nullable=False), "field 'f': the message ends 3 bytes before the end of a"),
        ("bytes", long(2**40), t.VarBinary(nullable=False), "field 'f': the message ends"),
        ({"type": "array", "items": "int"}, b"\xfe\xff\xff\xff\x0f\x02", t.Array(t.Int()), "field 'f[1]': the message"),
        ({"type": "array", "items": "null"}, long(2**40) + b"\0", t.Array(t.Int()), "more than 65,536 items of no"),
        (
            {"type": "map", "values": "int"},
            b"\x02\x02k",
            t.Map(t.STRING, t.Int()),
            "field \"f['k']\": the message ends",
        ),
    ],
    ids=str,
)
def test_a_value_that_does_not_fit_is_an_error_with_its_location(
    wire: Any, data: bytes, kind: t.DataType, message: str
) -> None:
    table = row(f=kind)

    assert message in reason(record(("f", wire)), table, avro_schema(table), data)


def test_fields_are_found_by_name() -> None:
    writer = record(
        ("gone", {"type": "map", "values": {"type": "array", "items": ["null", "string", "double"]}}),
        ("name", "string"),
        ("deep", record(("x", {"type": "fixed", "name": "F", "size": 3}), ("y", "float"), name="D")),
        ("id", "int"),
    )
    table = row(id=t.BigInt(nullable=False), extra=t.STRING, name=t.STRING)
    data = b"\x02\x02k\x06\0\x02\x02x\x04" + b"\0" * 8 + b"\0\0" + encode_string("bob") + b"abc" + b"\0" * 4 + long(7)
    decoded = both(writer, table, avro_schema(table), [data, data[:-1], data])

    assert decoded.rows.to_pylist() == [{"id": 7, "extra": None, "name": "bob"}] * 2
    assert [b.reason for b in decoded.bad] == ["field 'id': the message ends inside a number"]


def test_a_field_that_is_missing_needs_a_default() -> None:
    table = row(id=t.Int(nullable=False), extra=t.Int(nullable=False))

    assert reason(record(("id", "int")), table, avro_schema(table), b"\x02") == (
        "field 'extra': the record R of the writer's schema does not have it, but the column is NOT NULL; declare it "
        "without NOT NULL, as INT, or give it a default, in the option 'defaults' or in "
        "Python by col(default=…)"
    )


def test_defaults_and_aliases_of_the_tables_schema_count() -> None:
    reader = record(
        ("id", "int"),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "\u0004\u00d2"),
        ("tags", {"type": "array", "items": "string"}, ["a"]),
        ("who", ["null", "string"], None),
        ("pair", record(("x", "int", 1), ("y", "string", "y"), name="P"), {"y": "z"}),
        ("at", {"type": "long", "logicalType": "timestamp-millis"}, 5),
        ("counts", {"type": "map", "values": "int"}, {"k": 1}),
    )
    reader["fields"][0]["aliases"] = ["old_id"]
    table = row_of(reader)
    (value,) = python_rows(both(record(("old_id", "int")), table, reader, [b"\x0e"]).rows)

    assert value == {
        "id": 7,
        "price": Decimal("12.34"),
        "tags": ["a"],
        "who": None,
        "pair": {"x": 1, "y": "z"},
        "at": 5000,
        "counts": [("k", 1)],
    }


def test_records_of_other_names_are_resolved_by_their_fields() -> None:
    table = row(p=t.row(x=t.Int(), y=t.STRING))
    writer = record(("p", record(("y", "string"), ("x", "int"), name="com.example.Other")))

    assert values(writer, table, avro_schema(table), encode_string("a") + b"\x02") == [{"x": 1, "y": "a"}]


def test_enums_fixed_values_and_uuids_have_columns() -> None:
    schema = record(
        ("e", ["null", {"type": "enum", "name": "E", "symbols": ["RED", "BLUE"]}]),
        ("f", {"type": "fixed", "name": "F", "size": 2}),
        ("d", {"type": "fixed", "name": "D", "size": 3, "logicalType": "decimal", "precision": 6, "scale": 2}),
        ("u", {"type": "string", "logicalType": "uuid"}),
    )
    table = row_of(schema)
    assert str(table) == (
        "ROW<`e` STRING, `f` VARBINARY(2) NOT NULL, `d` DECIMAL(6, 2) NOT NULL, `u` STRING NOT NULL> NOT NULL"
    )
    data = b"\x02\x02" + b"ab" + b"\xff\xff\x9c" + encode_string("x")
    wrong = b"\x02\x04" + b"ab" + b"\xff\xff\x9c" + encode_string("x")
    decoded = both(schema, table, schema, [data, b"\0" + data[2:], wrong])

    assert decoded.rows.to_pylist() == [
        {"e": "BLUE", "f": b"ab", "d": Decimal("-1.00"), "u": "x"},
        {"e": None, "f": b"ab", "d": Decimal("-1.00"), "u": "x"},
    ]
    assert [b.reason for b in decoded.bad] == ["field 'e': the enum E has no symbol number 2"]


def test_a_symbol_that_the_table_does_not_know_becomes_its_default_or_is_an_error() -> None:
    def schema(symbols: list[str], **more: Any) -> Any:
        return record(("e", {"type": "enum", "name": "E", "symbols": symbols, **more}))

    table, writer = row(e=t.VarChar(nullable=False)), schema(["A", "B", "C"])

    assert values(writer, table, schema(["A", "C"], default="A"), b"\0", b"\x02", b"\x04") == ["A", "A", "C"]
    assert "does not have the symbol number 1 of the enum E" in reason(writer, table, schema(["A", "C"]), b"\x02")


def test_a_union_of_several_types_is_a_row_of_members() -> None:
    schema = record(("u", ["null", "string", "long", record(("x", "int"), name="N")]))
    table = row_of(schema)

    assert str(table.fields[0].type) == "ROW<`member0` STRING, `member1` BIGINT, `member2` ROW<`x` INT NOT NULL>>"
    empty = {"member0": None, "member1": None, "member2": None}
    assert values(schema, table, schema, b"\0", b"\x02" + encode_string("a"), b"\x04\x06", b"\x06\x06") == [
        None,
        empty | {"member0": "a"},
        empty | {"member1": 3},
        empty | {"member2": {"x": 3}},
    ]


def test_the_null_of_a_top_level_union_returns_no_row() -> None:
    schema = ["null", record(("x", "int"))]
    decoded = both(schema, row(x=t.Int(nullable=False)), schema, [b"\0", b"\x02\x02", None, b"\x04", b"\x02\x04"])

    assert decoded.rows.to_pylist() == [{"x": 1}, {"x": 2}]
    assert decoded.messages is not None
    assert (decoded.messages.to_pylist(), [b.index for b in decoded.bad]) == ([1, 4], [3])


def test_a_recursive_schema_is_skipped() -> None:
    writer = record(("next", ["null", "Node"]), ("x", "int"), name="Node")
    table = row(x=t.Int(nullable=False))
    deep = b"\x02" * 100_000

    assert values(writer, table, avro_schema(table), b"\0\x06", b"\x02\0\x02\x06") == [3, 3]
    assert reason(writer, table, avro_schema(table), deep) == "the value is nested too deeply"


@pytest.mark.parametrize(
    ("logical", "number", "micros"),
    [
        ("timestamp-millis", 1_577_882_096_789, 1_577_882_096_789_000),
        ("timestamp-micros", 1_577_882_096_789_123, 1_577_882_096_789_123),
        ("local-timestamp-micros", -1, -1),
        ("timestamp-nanos", -1, -1),
        ("timestamp-nanos", 1_577_882_096_789_123_999, 1_577_882_096_789_123),
    ],
)
def test_a_timestamp_has_the_writers_unit_unless_all_are_milliseconds(logical: str, number: int, micros: int) -> None:
    table = row(at=t.Timestamp(3))
    writer = record(("at", {"type": "long", "logicalType": logical}))

    assert values(writer, table, avro_schema(table), long(number)) == [micros]
    if number < 2**50:
        assert values(writer, table, avro_schema(table), long(number), exact_units=False) == [number * 1000]


def test_a_decimal_has_the_writers_scale_unless_the_tables_counts() -> None:
    table = row(d=t.Decimal(6, 2))
    writer = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 4}))
    data = [b"\x06\x01\xe2\x3f", b"\x08\x7f\xff\xff\xff", b"\x04\xff\xce"]

    assert values(writer, table, avro_schema(table), *data) == [Decimal("12.35"), None, Decimal("-0.01")]
    assert values(writer, table, avro_schema(table), *data, exact_units=False) == [
        Decimal("1234.55"),
        None,
        Decimal("-0.50"),
    ]


# -- bodies that are damaged, or odd


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\x06\x7f\xff\xff", None),
        (b"\x02\x7f", Decimal("1.27")),
        (b"\x0c\xff\xff\xff\xff\xff\x80", Decimal("-1.28")),
        (b"\x22" + b"\0" * 16 + b"\x7f", Decimal("1.27")),
        (b"\x20" + b"\x7f" * 16, None),
        (b"\xa0\x9c\x01" + b"\x7f" * 10_000, None),
    ],
    ids=lambda v: repr(v)[:20],
)
def test_decimals_may_be_long_and_are_null_when_they_have_too_many_digits(data: bytes, expected: Any) -> None:
    table = row(d=t.Decimal(5, 2, nullable=False))

    assert values(avro_schema(table), table, avro_schema(table), data) == [expected]
    assert "not a number" in reason(avro_schema(table), table, avro_schema(table), b"\0")


def test_invalid_utf8_is_read_as_java_reads_it() -> None:
    table = row(s=t.VarChar(nullable=False))
    data = [b"\x04\xff\xfe", b"\x06\xed\xa0\x80", b"\x02a", b"\x02\xc3"]

    assert values(avro_schema(table), table, avro_schema(table), *data) == ["\ufffd\ufffd", "\ufffd", "a", "\ufffd"]


def test_unusual_numbers_are_read() -> None:
    table = row(d=t.Double(nullable=False), b=t.Boolean(nullable=False), i=t.BigInt(nullable=False))
    schema = avro_schema(table)
    actual = both(schema, table, schema, [struct.pack("<d", float("nan")) + b"\x02\x80\x80\0"]).rows.to_pylist()

    assert repr(actual) == "[{'d': nan, 'b': False, 'i': 0}]"  # Java, too, takes only 1 for true


@pytest.mark.parametrize("number", [86_400_000, -1])
def test_a_time_beyond_the_day_is_an_error(number: int) -> None:
    table = row(c=t.Time(3, nullable=False))

    assert "out of the range of TIME(3)" in reason(avro_schema(table), table, avro_schema(table), long(number))


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), 9_223_372_036_854_776])
def test_a_timestamp_beyond_microseconds_is_an_error(number: int) -> None:
    table = row(at=t.Timestamp(3, nullable=False))

    assert "out of the range of TIMESTAMP(3)" in reason(avro_schema(table), table, avro_schema(table), long(number))


@pytest.mark.parametrize("number", [9_223_372_036_854_775, -9_223_372_036_854_775])
def test_the_farthest_timestamps_are_read(number: int) -> None:
    table = row(at=t.Timestamp(3, nullable=False))

    assert values(avro_schema(table), table, avro_schema(table), long(number)) == [number * 1000]


def test_ten_megabytes_are_read() -> None:
    table = row(s=t.STRING, tags=t.Array(t.STRING))
    value = {"s": "x" * 10_000_000, "tags": ["y"] * 50_000}
    (body,) = bodies(table, [value])

    assert both(avro_schema(table), table, avro_schema(table), [body]).rows.to_pylist() == [value]


def test_a_false_count_does_not_allocate_memory() -> None:
    table = row(a=t.Array(t.Array(t.Int(nullable=False), nullable=False), nullable=False))
    schema = avro_schema(table)
    body = long(2**30) + (long(2**30) + b"\x02" * 5) * 1000

    assert "the message ends" in reason(schema, table, schema, body)


def test_a_column_missing_from_the_tables_schema_is_reported_at_once() -> None:
    schema = record(("a", "int"))

    with pytest.raises(AvroTypeError, match="has no field 'b' for the column"):
        AvroDecoder(schema, row(b=t.Int()), schema)
    with pytest.raises(AvroTypeError, match="a: the schema has int here, which STRING cannot hold"):
        AvroDecoder(schema, row(a=t.STRING), schema)
