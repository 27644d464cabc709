"""Every Avro type of the page against every column type: the exact value, or a refusal whose advice works."""

from __future__ import annotations

import io
import itertools
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from docs.generate.avro_types import COLUMNS, TYPES
from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl.types.arrow import plain_values
from kdsl.types.parse import parse_type
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.readings import reading_of
from kdsl_formats._avro.schema import avro_schema
from kdsl_formats._registry.avro import find_misfits
from kdsl_formats.avro.schemas import schema_type
from kdsl_formats.debezium_avro_confluent.envelope import envelope, extract_rows
from tests.strategies import examples

WHOLE = ("TINYINT", "INT", "BIGINT", "FLOAT", "DOUBLE")
LONG = WHOLE[2:]
TIMES, STAMPS, INSTANTS = (
    ("TIME(3)", "TIME(6)"),
    ("TIMESTAMP(3)", "TIMESTAMP(6)"),
    ("TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)"),
)


def each(names: tuple[str, ...], value: Any) -> dict[str, Any]:
    """The same value for several columns; 100 is 100.0 where it is a float."""
    return dict.fromkeys(names, value)


NUMBER = 100
MICROS = NUMBER * 1000
"""100 milliseconds in microseconds."""
ISO = "1970-01-01T00:00:00.1Z"
CELLS: dict[str, tuple[Any, dict[str, Any]]] = {
    "boolean": (True, {"BOOLEAN": True}),
    "int": (NUMBER, {**each(WHOLE, 100), "DATE": 100, **each(TIMES, NUMBER * 1_000_000)}),
    "long": (NUMBER, {**each(LONG, 100), "TIMESTAMP(3)": MICROS, "TIMESTAMP_LTZ(3)": MICROS}),
    "float": (0.5, each(("FLOAT", "DOUBLE"), 0.5)),
    "double": (0.125, {"DOUBLE": 0.125, "DECIMAL(20, 2)": Decimal("0.13")}),
    "string": ("12.5", {"STRING": "12.5", "BYTES": b"12.5", "DECIMAL(20, 2)": Decimal("12.50")}),
    "string (uuid)": ("12.5", {"STRING": "12.5", "BYTES": b"12.5", "DECIMAL(20, 2)": Decimal("12.50")}),
    "bytes": (b"\x30", {"STRING": "0", "BYTES": b"\x30", "DECIMAL(20, 2)": Decimal("0.48")}),
    "fixed": (b"ab", {"BYTES": b"ab"}),
    "fixed (duration)": (b"\1\0\0\0" * 3, {"BYTES": b"\1\0\0\0" * 3}),
    "enum": ("PAID", {"STRING": "PAID"}),
    "bytes (decimal)": (b"\x03\xb6", {"DECIMAL(20, 2)": Decimal("9.50"), "BYTES": b"\x03\xb6"}),
    "fixed (decimal)": (b"\0\0\0\x03\xb6", {"DECIMAL(20, 2)": Decimal("9.50"), "BYTES": b"\0\0\0\x03\xb6"}),
    "bytes (Connect's Decimal)": (b"\x03\xb6", {"DECIMAL(20, 2)": Decimal("9.50"), "BYTES": b"\x03\xb6"}),
    **{
        name: (NUMBER, {**each(WHOLE, 100), "DATE": 100})
        for name in ("int (date)", "int (io.debezium.time.Date)", "int (Connect's Date)")
    },
    **{
        name: (NUMBER, {**each(WHOLE, 100), **each(TIMES, 100_000_000)})
        for name in ("int (time-millis)", "int (io.debezium.time.Time)", "int (Connect's Time)")
    },
    **{
        name: (100_000, {**each(LONG, 100_000), **each(TIMES, 100_000_000)})
        for name in ("long (time-micros)", "long (io.debezium.time.MicroTime)")
    },
    "long (io.debezium.time.NanoTime)": (100_000_000, {**each(LONG, 100_000_000), **each(TIMES, 100_000_000)}),
    **{
        f"long (timestamp-{unit})": (n, {**each(LONG, n), **each((*STAMPS, *INSTANTS), MICROS)})
        for unit, n in (("millis", 100), ("micros", MICROS), ("nanos", MICROS * 1000))
    },
    **{
        f"long (local-timestamp-{unit})": (n, {**each(LONG, n), **each(STAMPS, MICROS)})
        for unit, n in (("millis", 100), ("micros", MICROS), ("nanos", MICROS * 1000))
    },
    **{
        name: (n, {**each(LONG, n), **each((*STAMPS, *INSTANTS), MICROS)})
        for name, n in (
            ("long (io.debezium.time.Timestamp)", 100),
            ("long (io.debezium.time.MicroTimestamp)", MICROS),
            ("long (io.debezium.time.NanoTimestamp)", MICROS * 1000),
            ("long (Connect's Timestamp)", 100),
        )
    },
    "int (io.debezium.time.Year)": (NUMBER, each(WHOLE, 100)),
    "long (io.debezium.time.MicroDuration)": (NUMBER, each(LONG, 100)),
    "string (io.debezium.time.IsoDate)": (
        "1970-04-11Z", {"DATE": 100, "STRING": "1970-04-11Z", "BYTES": b"1970-04-11Z"}
    ),
    **{
        f"string (io.debezium.time.{name})": (
            "00:00:00.1Z", {"STRING": "00:00:00.1Z", "BYTES": b"00:00:00.1Z", **each(TIMES, 100_000_000)}
        )
        for name in ("IsoTime", "ZonedTime")
    },
    "string (io.debezium.time.IsoTimestamp)": (
        ISO, {"STRING": ISO, "BYTES": ISO.encode(), **each((*STAMPS, *INSTANTS), MICROS)}
    ),
    "string (io.debezium.time.ZonedTimestamp)": (
        ISO, {"STRING": ISO, "BYTES": ISO.encode(), **each(INSTANTS, MICROS)}
    ),
}  # fmt: skip
"""For each type of the page a value as it is on the wire, and what the columns have that can be read; no others can."""
ADVICE = re.compile("declare the column as (.*)$")


def not_null(row: t.Row) -> t.Row:
    result = row.as_nullable(False)
    assert isinstance(result, t.Row)
    return result


def record(*fields: tuple[str, Any], name: str = "Value") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": kind} for n, kind in fields]}


def without_logical(schema: Any) -> Any:
    """A schema whose values are written as they are on the wire."""
    if isinstance(schema, dict):
        return {k: without_logical(v) for k, v in schema.items() if k != "logicalType"}
    return [without_logical(v) for v in schema] if isinstance(schema, list) else schema


def body(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(without_logical(schema)), value)
    return out.getvalue()


def decode(schema: Any, row: t.Row, bodies: list[bytes], reader: Any = None) -> Decoded:
    """What both decoders return, which must be the same."""
    reader = reader or avro_schema(row, for_reading=True)
    array = pa.array(bodies, pa.binary())
    one, many = (AvroDecoder(schema, row, reader, min_batch=n).decode(array) for n in (len(bodies) + 1, 1))
    assert (one.bad, plain_values(one.rows)) == (many.bad, plain_values(many.rows))
    return many


def read(schema: Any, kind: t.DataType, value: Any) -> tuple[list[Any], list[str]]:
    """The values of a column, and the reasons of bad records, of two messages."""
    row = not_null(t.row(x=kind))
    decoded = decode(record(("x", schema)), row, [body(record(("x", schema)), {"x": value})] * 2)
    return [v["x"] for v in plain_values(decoded.rows)], [bad.reason for bad in decoded.bad]


def test_the_page_has_a_value_of_each_type() -> None:
    assert CELLS.keys() == TYPES.keys()


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", TYPES)
def test_a_cell_is_exact_or_refused_with_advice_that_works(name: str, column: str) -> None:
    schema, (value, wanted) = TYPES[name], CELLS[name]
    for wire, nullable in itertools.product((schema, ["null", schema], [schema, "null"]), (True, False)):
        kind = parse_type(column).as_nullable(nullable)
        rows, reasons = read(wire, kind, value)
        if column in wanted:
            assert (rows, reasons) == ([wanted[column]] * 2, [])
            assert reading_of(schema_type(schema), kind).how
            continue
        assert rows == []
        assert reasons[0].startswith("field 'x': the writer's schema has ")
        assert f" here, which {kind.spelling} cannot hold; declare the column as " in reasons[0]
        assert reasons[0] == f"field 'x': {reading_of(schema_type(schema), kind).refusal}"
        advice = ADVICE.search(reasons[0])
        assert advice is not None
        rows, reasons = read(wire, parse_type(advice[1]), value)
        assert (rows, reasons) == ([next(values_like(wanted, advice[1]))] * 2, [])


def values_like(wanted: dict[str, Any], declared: str) -> Iterator[Any]:
    """The values of the columns that are like a declared type, whatever its length, precision or scale."""
    like = {"VARBINARY": "BYTES", "DECIMAL": "DECIMAL(20, 2)"}
    family = declared.split("(")[0]
    yield from (v for k, v in wanted.items() if k.split("(")[0] == family or k == like.get(family))


@pytest.mark.parametrize("name", TYPES)
def test_cells_are_the_same_inside_arrays_maps_rows_and_images(name: str) -> None:
    schema, (value, wanted) = TYPES[name], CELLS[name]
    for column in COLUMNS:
        kind = parse_type(column)
        nested: list[tuple[Any, t.DataType, Any, Callable[[Any], Any], str]] = [
            ({"type": "array", "items": schema}, t.Array(kind), [value], lambda v: [v], "x[0]"),
            ({"type": "map", "values": schema}, t.Map(t.STRING, kind), {"k": value}, lambda v: [("k", v)], "x['k']"),
            (record(("y", schema), name="Inner"), t.row(y=kind), {"y": value}, lambda v: {"y": v}, "x.y"),
        ]
        for wire, of, held, wrap, path in nested:
            rows, reasons = read(wire, of, held)
            if column in wanted:
                assert (rows, reasons) == ([wrap(wanted[column])] * 2, [])
            else:
                assert rows == []
                assert path in reasons[0]
                assert f"which {kind.spelling} cannot hold; declare the column as" in reasons[0]
        row = not_null(t.row(x=kind))
        image = record(("x", schema))
        change = record(("before", ["null", image]), ("after", ["null", "Value"]), ("op", "string"), name="Envelope")
        message = body(change, {"before": None, "after": {"x": value}, "op": "c"})
        result = extract_rows(decode(change, envelope(row), [message] * 2), row)
        if column in wanted:
            assert plain_values(result.rows) == [{"x": wanted[column]}] * 2
        else:
            assert len(result.rows) == 0
            assert result.bad[0].reason.startswith("field 'after.x': the writer's schema has ")


@pytest.mark.parametrize("name", TYPES)
def test_doctor_and_check_answer_as_the_decoder(name: str) -> None:
    schema, (_, wanted) = record(("x", TYPES[name])), CELLS[name]
    for column in COLUMNS:
        row = not_null(t.row(x=parse_type(column)))
        misfits = list(find_misfits(schema, row, avro_schema(row, for_reading=True)))
        assert bool(misfits) == (column not in wanted)
        assert all(m.startswith("x: the writer's schema has ") for m in misfits)


NAMES = st.lists(st.sampled_from(sorted(TYPES)), min_size=2, max_size=4, unique=True)


@given(NAMES, st.sampled_from(COLUMNS), st.booleans(), st.data())
@settings(deadline=None, max_examples=examples(150))
def test_a_union_of_several_types_refuses_the_values_that_a_column_cannot_hold(
    names: list[str], column: str, null: bool, data: st.DataObject
) -> None:
    kinds = [schema_type(TYPES[name]) for name in names]
    if len({kind.type_name for kind in kinds}) < len(kinds):
        return
    union = ["null"] * null + [TYPES[name] for name in names]
    schema = record(("x", union))
    values = [data.draw(st.sampled_from(names)) for _ in range(4)]
    bodies = [union_body(union.index(TYPES[name]), TYPES[name], CELLS[name][0]) for name in values]
    decoded = decode(schema, not_null(t.row(x=parse_type(column))), bodies)
    readable = [name for name in values if column in CELLS[name][1]]
    assert [v["x"] for v in plain_values(decoded.rows)] == [CELLS[name][1][column] for name in readable]
    assert len(decoded.bad) == len(values) - len(readable)
    for bad in decoded.bad:
        advice = ADVICE.search(bad.reason)
        assert advice is not None
        members = parse_type(advice[1])
        assert isinstance(members, t.Row)
        again = decode(schema, not_null(t.row(x=members)), bodies)
        assert again.bad == ()
        for name, value in zip(values, plain_values(again.rows), strict=True):
            used = {k: v for k, v in value["x"].items() if v is not None}
            assert list(used) == [f"member{names.index(name)}"]
            assert next(iter(used.values())) in list(CELLS[name][1].values())


def union_body(index: int, schema: Any, value: Any) -> bytes:
    """The body of a record of one field, a union, with a value of the branch with this index."""
    return bytes([index * 2]) + body(schema, value)


def test_a_record_that_does_not_fit_names_each_field() -> None:
    schema = record(("a", "string"), ("b", {"type": "int", "logicalType": "date"}))
    row = not_null(t.row(r=t.row(a=t.Int(), b=t.Timestamp(3))))
    decoded = decode(record(("r", schema), name="Outer"), row, [b"\x02x\x02"])
    assert [bad.reason for bad in decoded.bad] == [
        "field 'r.a': the writer's schema has string here, which INT cannot hold; declare the column as STRING; "
        "field 'b': the writer's schema has int (date) here, which TIMESTAMP(3) cannot hold; declare the column as DATE"
    ]
