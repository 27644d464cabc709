"""Messages that are one Avro value without fields, as keys often are: read into, and written from, the only column."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from docs.generate.avro_types import COLUMNS, TYPES
from kdsl.codegen import to_python
from kdsl.formats import Use
from kdsl.schemas.avro import avro_draft
from kdsl.schemas.model import CodegenError
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, plain_values
from kdsl.types.parse import parse_type
from kdsl_formats._avro.decoder import AvroDecoder
from kdsl_formats._avro.encoder import AvroEncoder
from kdsl_formats._avro.schema import avro_schema
from kdsl_formats._registry.avro import find_misfits
from kdsl_formats.avro_confluent import AvroConfluent
from tests.formats.test_avro_types import CELLS, body
from tests.registry.front import Front, serve_schemas
from tests.strategies import examples


def row_of(**fields: t.DataType) -> t.Row:
    row = t.row(**fields).as_nullable(False)
    assert isinstance(row, t.Row)
    return row


def frame(data: bytes) -> bytes:
    return b"\0\0\0\0\1" + data


@pytest.mark.parametrize("name", TYPES)
def test_each_type_is_read_by_the_same_table_as_a_field(name: str) -> None:
    schema, (value, wanted) = TYPES[name], CELLS[name]
    messages = pa.array([body(schema, value)] * 40, pa.binary())
    for column in COLUMNS:
        row = row_of(id=parse_type(column))
        reader = avro_schema(row, for_reading=True)
        one, many = (AvroDecoder(schema, row, reader, min_batch=n).decode(messages) for n in (100, 1))
        assert (one.bad, plain_values(one.rows)) == (many.bad, plain_values(many.rows))
        if column in wanted:
            assert plain_values(many.rows) == [{"id": wanted[column]}] * 40
        else:
            assert many.bad[0].reason.startswith("field 'id': the writer's schema has ")
        assert bool(list(find_misfits(schema, row, reader))) == (column not in wanted)


VALUES = {
    "string": (t.VarChar(nullable=False), st.text(max_size=5)),
    "long": (t.BigInt(nullable=False), st.integers(-(1 << 63), (1 << 63) - 1)),
    "int": (t.Int(nullable=False), st.integers(-(1 << 31), (1 << 31) - 1)),
    "bytes": (t.VarBinary(nullable=False), st.binary(max_size=5)),
    "double": (t.Double(nullable=False), st.floats(allow_nan=False)),
    '["null","string"]': (t.STRING, st.none() | st.text(max_size=5)),
    '{"type":"array","items":"int"}': (
        t.Array(t.Int(nullable=False), nullable=False), st.lists(st.integers(-9, 9), max_size=3)
    ),
}  # fmt: skip


@given(st.sampled_from(sorted(VALUES)), st.data())
@settings(deadline=None, max_examples=examples(60))
def test_single_values_are_written_as_others_read_them(name: str, data: st.DataObject) -> None:
    kind, strategy = VALUES[name]
    values = data.draw(st.lists(strategy, min_size=1, max_size=20))
    text = name if name[0] in "[{" else json.dumps(name)
    chosen, row = AvroConfluent(schema=text), row_of(id=kind)
    assert [*chosen.check(row, "write"), *chosen.check(row, "read")] == []
    schema: Any = chosen.table_schema(row, "write")
    rows = pa.array([{"id": v} for v in values], arrow_type(row))
    encoded = AvroEncoder(schema, row).encode(rows)
    assert encoded.bad == ()
    parsed = fastavro.parse_schema(schema)
    assert [fastavro.schemaless_reader(io.BytesIO(m), parsed, None) for m in encoded.messages.to_pylist()] == values
    for reader in (schema, avro_schema(row, for_reading=True)):
        decoded = AvroDecoder(schema, row, reader).decode(encoded.messages)
        assert plain_values(decoded.rows) == plain_values(rows)


def test_a_key_in_a_frame_is_read_and_a_table_of_several_columns_says_why_not() -> None:
    with Front(serve_schemas({1: '"long"'})) as front:
        chosen, messages = AvroConfluent(url=front.url), pa.array([frame(b"\x0e"), None], pa.binary())
        use = Use(side="key")
        read = chosen.decoder(row_of(id=t.BigInt()), use).decode(messages)
        assert (plain_values(read.rows), read.bad) == ([{"id": 7}], ())
        assert len(chosen.decoder(row_of(), use).decode(messages).rows) == 1
        (bad,) = chosen.decoder(row_of(id=t.BigInt(), name=t.STRING), use).decode(messages).bad
    assert bad.reason == (
        "the writer's schema is long, a value without fields, but the table has the columns id, name; declare one "
        "column, as BIGINT"
    )


def test_a_schema_without_a_record_needs_a_table_of_one_column() -> None:
    (problem,) = AvroConfluent(schema='"string"').check(row_of(a=t.STRING, b=t.STRING), "write")
    assert "a table needs a schema of records" in problem.message
    assert problem.fix == "write an Avro record, or for a table of one column the schema of its values"
    (problem,) = AvroConfluent(schema='"string"').check(row_of(a=t.Int()), "write")
    assert "'a' is STRING NOT NULL in it, but INT in the table" in problem.message


@pytest.mark.parametrize("name", TYPES)
def test_generated_columns_read_and_write_single_values(name: str) -> None:
    schema, (value, _) = TYPES[name], CELLS[name]
    draft = avro_draft(schema, topic="orders", chosen=AvroConfluent(legacy_timestamps=False), column="key")
    (column,) = draft.table.columns
    assert column.name == "key"
    row = row_of(key=column.type)
    message = body(schema, value)
    decoded = AvroDecoder(schema, row, avro_schema(row, for_reading=True)).decode(pa.array([message], pa.binary()))
    assert decoded.bad == ()
    chosen = draft.table.value_format
    assert isinstance(chosen, AvroConfluent)
    assert list(chosen.check(row, "read")) == []
    if chosen.schema is None:
        assert "(io.debezium" in name or "Connect's Decimal" in name
    else:
        assert "schema=" in to_python(draft)
        assert list(chosen.check(row, "write")) == []
        assert AvroEncoder(schema, row).encode(decoded.rows).messages.to_pylist() == [message]
    with pytest.raises(CodegenError, match="cannot be converted to a table"):
        avro_draft(schema, topic="orders", chosen=AvroConfluent())
