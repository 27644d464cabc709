"""The JSON encoder writes by columns what its reference writes row by row, and the decoder reads it back."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, plain_values
from kdsl_formats.json.decoder import JsonDecoder
from kdsl_formats.json.encoder import JsonEncoder
from kdsl_formats.json.reference_decoder import ReadingRules
from kdsl_formats.json.reference_encoder import ReferenceEncoder, WritingRules
from tests.formats.json_documents import NAMES
from tests.formats.test_json_decoder import comparable

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
RULES = st.builds(
    WritingRules,
    standard=st.sampled_from(["SQL", "ISO-8601"]),
    plain_decimals=st.booleans(),
    ignore_null_fields=st.booleans(),
)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text('ab"\\\n\t\x01é\U0001f600/', max_size=8)
MICROS = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2 * 10**9).map(lambda s: s * 10**6 + 120_000)
SIMPLE: list[t.DataType] = [
    *(t.Boolean(), t.TinyInt(), t.SmallInt(), t.Int(), t.BigInt(), t.Float(), t.Double(), t.STRING, t.BYTES),
    *(t.Decimal(10, 2), t.Decimal(38, 10), t.Decimal(5, 5), t.Decimal(38, 0)),
    *(t.Date(), t.Time(3), t.Timestamp(3), t.TimestampLtz(3)),
]


def rows(inner: st.SearchStrategy[t.DataType], fewest: int) -> st.SearchStrategy[t.Row]:
    fields = st.lists(st.tuples(st.sampled_from(NAMES), inner), unique_by=lambda f: f[0], min_size=fewest, max_size=3)
    return fields.map(lambda value: t.Row(tuple(t.Field(name, kind) for name, kind in value)))


KINDS = st.recursive(
    st.sampled_from(SIMPLE),
    lambda inner: st.one_of(
        inner.map(t.Array),
        inner.map(lambda v: t.Map(t.STRING, v)),
        st.just(t.Multiset(t.STRING)),
        rows(inner, 0),
    ),
    max_leaves=4,
)


def values(kind: t.DataType, *, null: bool = True) -> st.SearchStrategy[Any]:
    """Values of a type as Arrow takes them."""
    result = _values(kind)
    return st.none() | result | result if null else result


def _values(kind: t.DataType) -> st.SearchStrategy[Any]:
    match kind:
        case t.Boolean():
            return st.booleans()
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            bits = {t.TinyInt: 8, t.SmallInt: 16, t.Int: 32, t.BigInt: 64}[type(kind)]
            return st.integers(-(1 << bits - 1), (1 << bits - 1) - 1) | st.integers(-9, 9)
        case t.Float():
            return st.floats(width=32) | st.floats(-(2**23), 2**23, width=32)
        case t.Double():
            return st.floats() | st.floats(-1e8, 1e8)
        case t.Decimal(precision=precision, scale=scale):
            unscaled = st.integers(-(10**precision) + 1, 10**precision - 1) | st.integers(-99, 99)
            return unscaled.map(lambda n: Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)))
        case t.Char() | t.VarChar():
            return TEXTS
        case t.Binary() | t.VarBinary():
            return st.binary(max_size=5)
        case t.Date():
            return st.integers(-(2**31), 2**31 - 1).map(lambda d: d // 13) | st.integers(0, 20_000)
        case t.Time():
            return st.integers(0, 86_399_999).map(lambda ms: ms * 10**6)
        case t.Timestamp() | t.TimestampLtz():
            return MICROS
        case t.Array(element=element):
            return st.lists(values(element), max_size=3)
        case t.Map(value=value):
            return st.lists(st.tuples(TEXTS, values(value)), max_size=3, unique_by=lambda e: e[0])
        case t.Multiset():
            return st.lists(st.tuples(TEXTS, st.integers(-3, 9)), max_size=3, unique_by=lambda e: e[0])
        case t.Row(fields=fields):
            return st.tuples(*(values(f.type) for f in fields)).map(
                lambda actual: {f.name: v for f, v in zip(fields, actual, strict=True)}
            )
    raise AssertionError(kind)


@st.composite
def tables(draw: st.DrawFn) -> tuple[t.Row, pa.StructArray]:
    """A row type and rows, sometimes a slice of more rows."""
    row = draw(rows(KINDS, 0))
    result = draw(st.lists(values(row, null=False), max_size=6))
    array = pa.array(result, arrow_type(row))
    start = draw(st.integers(0, len(result)))
    return row, array.slice(start) if draw(st.booleans()) else array


@unhurried
@given(tables(), RULES)
def test_writing_by_columns_equals_writing_row_by_row(table: tuple[t.Row, pa.StructArray], rules: WritingRules) -> None:
    row, array = table
    reference = ReferenceEncoder(row, rules)
    expected = [None if values is None else reference.message(values) for values in plain_values(array)]
    encoded = JsonEncoder(row, rules, min_batch=0).encode(array)
    encoded.messages.validate(full=True)
    assert (encoded.messages.type, encoded.messages.to_pylist(), encoded.bad) == (pa.binary(), expected, ())


@unhurried
@given(tables(), RULES, st.booleans())
def test_what_is_written_is_read_back(
    table: tuple[t.Row, pa.StructArray], rules: WritingRules, streaming: bool
) -> None:
    row, array = table
    messages = JsonEncoder(row, rules, min_batch=0).encode(array).messages
    for min_batch in (1, 1000):
        decoded = JsonDecoder(row, ReadingRules(standard=rules.standard), min_batch=min_batch).decode(messages)
        assert (decoded.bad, comparable(decoded.rows)) == ((), comparable(array))


@pytest.mark.parametrize("min_batch", [0, 1000])
def test_a_null_row_has_a_null_message(min_batch: int) -> None:
    row = t.row(a=t.Int())
    array = pa.array([{"a": 1}, None, {"a": None}], arrow_type(row))

    encoded = JsonEncoder(row, WritingRules(), min_batch=min_batch).encode(array)

    assert (encoded.messages.to_pylist(), encoded.bad) == ([b'{"a":1}', None, b'{"a":null}'], ())


def test_a_repeated_map_key_keeps_its_position_and_takes_the_later_value() -> None:
    row = t.row(m=t.Map(t.STRING, t.Int()))
    rows = pa.array([{"m": [("a", 1), ("b", 2), ("a", 3)]}, {"m": [("a", 1)]}] * 40, arrow_type(row))
    messages = JsonEncoder(row, WritingRules()).encode(rows).messages.to_pylist()
    assert messages == [b'{"m":{"a":3,"b":2}}', b'{"m":{"a":1}}'] * 40


@pytest.mark.parametrize("count", [0, 1, 200])
def test_rows_without_columns_are_empty_objects(count: int) -> None:
    rows = pa.array([{}] * count, pa.struct([]))
    assert JsonEncoder(t.Row(()), WritingRules()).encode(rows).messages.to_pylist() == [b"{}"] * count
