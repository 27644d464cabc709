"""Values of Avro without parts, as they are on the wire, to values of columns."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

from kdsl.shown_values import show_value
from kdsl.types import model as t
from kdsl_formats._avro.steps import UNITS, Scalar

_EXACT = decimal.Context(prec=200)


def converter_of(step: Scalar) -> Callable[[Any], Any]:
    """The function that converts a value on the wire to the column's; it raises ValueError if the value does not fit.

    It returns None for a decimal with too many digits.
    """
    kind, unit = step.column, step.unit
    match kind:
        case t.TinyInt() | t.SmallInt():
            bound = 1 << (7 if isinstance(kind, t.TinyInt) else 15)
            return lambda v: v if -bound <= v < bound else _raise_out_of_range(v, kind)
        case t.Float() | t.Double():
            return float
        case t.Time():
            day = 86_400_000_000_000 // unit
            return lambda v: v * unit if 0 <= v < day else _raise_out_of_range(v, kind)
        case t.Timestamp() | t.TimestampLtz():
            most = (1 << 63) // 1000 * 1000 if unit == UNITS["nanos"] else ((1 << 63) - 1) * 1000 // unit
            return lambda v: v * unit // 1000 if -most <= v <= most or unit <= 1000 else _raise_out_of_range(v, kind)
        case t.Decimal():
            return _decimal_converter(kind, step.scale)
        case _:
            return lambda v: v


def _decimal_converter(kind: t.Decimal, scale: int) -> Callable[[bytes], decimal.Decimal | None]:
    """The function that converts a decimal's bytes, rounded to the column's scale, with ties away from zero.

    It returns None if the rounded number has too many digits before the point for the column, or if there are more than
    64 bytes, and raises ValueError for no bytes.
    """
    quantum = decimal.Decimal(1).scaleb(-kind.scale)
    bound = 10 ** (kind.precision - kind.scale)

    def convert(data: bytes) -> decimal.Decimal | None:
        if not data:
            raise ValueError("a decimal of no bytes is not a number")
        if len(data) > 64:  # far beyond every decimal, and slow to convert
            return None
        number = decimal.Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)
        if scale != kind.scale:
            number = number.quantize(quantum, decimal.ROUND_HALF_UP, _EXACT)
        return number if number.copy_abs() < bound else None  # abs would round

    return convert


def _raise_out_of_range(value: int, kind: t.DataType) -> Any:
    """Raise the error of a value beyond a type."""
    raise ValueError(f"{show_value(value)} is out of the range of {kind.spelling}")
