"""Row types, values and bodies for the tests of Avro."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.encoder import AvroEncoder
from kdsl_formats._avro.hash_map import java_order
from kdsl_formats._avro.schema import avro_schema, avro_type_problems
from tests import strategies

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,4}|é[a-z]?", fullmatch=True)
KEYS = st.builds(t.VarChar, nullable=st.just(False)) | st.builds(t.Char, st.integers(1, 9), nullable=st.just(False))

ORDER = t.row(
    id=t.BigInt(),
    name=t.STRING,
    amount=t.Decimal(10, 2),
    quantity=t.Int(),
    at=t.Timestamp(3),
    paid=t.Boolean(),
)


def row_types(*, legacy: bool = True) -> st.SearchStrategy[t.Row]:
    """Rows whose columns Avro can hold."""
    rows = strategies.row_types(_types(legacy=legacy), names=NAMES, min_size=1)
    return rows.filter(lambda row: not any(avro_type_problems(row, legacy)))


def _types(*, legacy: bool) -> st.SearchStrategy[t.DataType]:
    def nest(inner: st.SearchStrategy[t.DataType]) -> st.SearchStrategy[t.DataType]:
        return st.one_of(
            st.builds(t.Array, inner, nullable=st.booleans()),
            st.builds(t.Map, KEYS, inner, nullable=st.booleans()),
            st.builds(t.Multiset, KEYS, nullable=st.booleans()),
            st.builds(lambda row, null: row.as_nullable(null), strategies.row_types(inner, names=NAMES), st.booleans()),
        )

    times = st.builds(t.Time, st.integers(0, 3), nullable=st.booleans()) | st.builds(
        t.Timestamp, st.integers(0, 3), nullable=st.booleans()
    )
    fine = st.builds(t.Timestamp, st.integers(0, 6), nullable=st.booleans()) | st.builds(
        t.TimestampLtz, st.integers(0, 6), nullable=st.booleans()
    )
    plain = strategies.scalar_types().filter(lambda k: not isinstance(k, t.Time | t.Timestamp | t.TimestampLtz))
    return st.recursive(st.one_of(plain, times) if legacy else st.one_of(plain, times, fine), nest, max_leaves=6)


def values(row: t.Row) -> st.SearchStrategy[Any]:
    """Rows of a type, with times to milliseconds, and the entries of maps in the order in which they are written."""
    return strategies.values(row.as_nullable(False), _strategy_for)


def _strategy_for(kind: t.DataType) -> st.SearchStrategy[Any] | None:
    match kind:
        case t.Map(value=value):
            return _entries(strategies.values(value, _strategy_for))
        case t.Multiset():
            return _entries(st.integers(1, 2**31 - 1))
        case t.Time():
            return st.integers(0, 86_399_999).map(lambda v: v * 1_000_000)
        case t.Timestamp() | t.TimestampLtz():
            return st.integers(-62_135_596_800_000, 253_402_300_799_999).map(lambda v: v * 1000)
    return None


def _entries(member: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.lists(st.tuples(strategies.TEXTS, member), max_size=3, unique_by=lambda pair: pair[0])
    return pairs.map(lambda value: [value[i] for i in java_order([key for key, _ in value])])


def bodies(row: t.Row, rows: list[Any], schema: Any = None) -> list[bytes]:
    """The bodies of rows, written one by one."""
    present = row.as_nullable(False)
    assert isinstance(present, t.Row)
    writer = AvroEncoder(avro_schema(present) if schema is None else schema, present, min_batch=len(rows) + 1)
    encoded = writer.encode(pa.array(rows, arrow_type(row)))
    assert encoded.bad == ()
    actual: list[bytes] = encoded.messages.to_pylist()
    return actual


@st.composite
def broken(draw: st.DrawFn, body: bytes) -> bytes:
    """A body that was damaged on its way, or not."""
    match draw(st.integers(0, 5)):
        case 0:
            return body[: draw(st.integers(0, len(body)))]
        case 1:
            return body + draw(st.binary(max_size=4))
        case 2 if body:
            index = draw(st.integers(0, len(body) - 1))
            return body[:index] + draw(st.binary(min_size=1, max_size=2)) + body[index + 1 :]
        case 3 if body:
            index = draw(st.integers(0, len(body) - 1))
            return body[:index] + draw(st.sampled_from([b"\xff", b"\x80", b"\0", b"\x01", b"\xfe" * 9])) + body[index:]
    return body
