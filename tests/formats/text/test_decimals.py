from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl.types.strings import numbers
from kdsl_formats._text.decimals import decimals
from tests import strategies

KINDS = st.integers(1, t.MAX_DECIMAL).flatmap(lambda p: st.builds(t.Decimal, st.just(p), st.integers(0, p)))


@given(st.data(), KINDS, st.booleans())
@settings(deadline=None)
def test_a_column_of_decimals_is_written_as_each_of_them_is(data: st.DataObject, kind: t.Decimal, plain: bool) -> None:
    round_ones = st.integers(-9, 9).map(lambda v: Decimal(v).scaleb(kind.precision - kind.scale - 1))
    values = data.draw(st.lists(strategies.values(kind) | round_ones | st.just(Decimal(0)), max_size=8))
    column = pa.array([None, *values, None], arrow_type(kind))[1:]
    expected = [None if v is None else numbers.format_decimal(v, plain=plain) for v in column.to_pylist()]

    assert decimals(column, plain=plain).to_pylist() == expected


@pytest.mark.parametrize(
    ("value", "plain", "short"),
    [
        ("100000.0000000000", "100000.0000000000", "1E+5"),
        ("12.3400000000", "12.3400000000", "12.34"),
        ("0.0000000000", "0.0000000000", "0"),
        ("-0.0000000270", "-0.0000000270", "-2.7E-8"),
        ("0.0000010000", "0.0000010000", "0.000001"),
    ],
)
def test_a_decimal_is_plain_or_short(value: str, plain: str, short: str) -> None:
    column = pa.array([Decimal(value)], pa.decimal128(20, 10))

    assert decimals(column, plain=True).to_pylist() == [plain]
    assert decimals(column, plain=False).to_pylist() == [short]
