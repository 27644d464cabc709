"""Conversions between types that Arrow computes with Spark's result."""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kdsl.flink_sql.conditions.values import Compiled, Evaluated, Rows, fail_where
from kdsl.flink_sql.expressions.values import INTEGERS, STRINGS, as_decimal, same_in_spark
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type

BOUNDS = {t.TinyInt: 2**7, t.SmallInt: 2**15, t.Int: 2**31, t.BigInt: 2**63}
"""The first number above each integer type."""
FLOATS = (t.Float, t.Double)


def convert(value: Compiled, want: t.DataType, *, trying: bool = False) -> Compiled | None:
    """Convert an expression to a type as CAST does; None if Arrow has no conversion with exactly Spark's result.

    An integer that does not fit a smaller type fails for its row. A NULL without a type becomes a NULL of the type.

    Args:
        value: The expression.
        want: The type.
        trying: Whether an integer that does not fit becomes NULL without failing, as in TRY_CAST.
    """
    have = value.type
    if have is None:
        scalar = pa.scalar(None, arrow_type(want))
        return Compiled(want, lambda _: Evaluated(scalar), scalar)
    if _is_unchanged(have, want):
        return Compiled(want, value.step, value.constant)
    compute = _choose_computation(have, want)
    if compute is not None:
        return _apply(value, want, compute)
    if isinstance(have, INTEGERS) and isinstance(want, INTEGERS):
        return _narrow(value, want, trying=trying)
    return None


def convert_exactly(constant: Compiled, want: t.DataType) -> Compiled | None:
    """Convert a constant integer or decimal to another such type that holds the same number; None for anything else.

    A column is compared faster in its own type than in the common type of both.
    """
    exact = (*INTEGERS, t.Decimal)
    scalar = constant.constant
    if scalar is None or not scalar.is_valid or not isinstance(constant.type, exact) or not isinstance(want, exact):
        return None
    try:
        converted = pa.scalar(scalar.as_py(), arrow_type(want))
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None
    if converted.as_py() != scalar.as_py():
        return None
    return Compiled(want, lambda _: Evaluated(converted), converted)


def _is_unchanged(have: t.DataType, want: t.DataType) -> bool:
    """Whether a cast from ``have`` to ``want`` is known to leave Arrow's values as they are."""
    match have, want:
        case ((t.Char() | t.VarChar()), t.VarChar(length=length)):
            return have.length <= length
        case (t.Timestamp(precision=have_precision), t.Timestamp(precision=precision)) | (
            t.TimestampLtz(precision=have_precision),
            t.TimestampLtz(precision=precision),
        ):
            return precision >= min(have_precision, 6)
        case _ if isinstance(want, STRINGS):
            return False
        case ((t.Binary() | t.VarBinary()), t.VarBinary(length=length)):
            return have.length <= length
        case _, t.Binary():
            return False
    return same_in_spark(have, want)


def _choose_computation(have: t.DataType, want: t.DataType) -> Any:
    """Return the function from Arrow values to values for a conversion of numbers that cannot fail; None for any other.

    An integer is also converted to BOOLEAN.
    """
    match have, want:
        case _ if isinstance(have, INTEGERS) and isinstance(want, INTEGERS):
            wider = INTEGERS.index(type(want)) > INTEGERS.index(type(have))
            return partial(pc.cast, target_type=arrow_type(want)) if wider else None
        case _, (t.Float() | t.Double()) if isinstance(have, INTEGERS):
            return partial(pc.cast, target_type=arrow_type(want), safe=False)  # rounds to the nearest, as in Java
        case t.Float(), t.Double():
            return partial(pc.cast, target_type=arrow_type(want))
        case t.Decimal(), (t.Float() | t.Double()):  # Arrow's own conversion is not always the nearest number
            return lambda values: pc.cast(pc.cast(values, pa.string()), arrow_type(want))
        case _, t.Decimal() if isinstance(have, (*INTEGERS, t.Decimal)):
            exact = as_decimal(have)
            fits = want.scale >= exact.scale and want.precision - want.scale >= exact.precision - exact.scale
            return partial(_to_decimal, want=want) if fits else None
        case _, t.Boolean() if isinstance(have, INTEGERS):
            return lambda values: pc.not_equal(values, pa.scalar(0, arrow_type(have)))
    return None


def _to_decimal(values: pa.Array | pa.Scalar, want: t.Decimal) -> pa.Array | pa.Scalar:
    """Convert integers or decimals to a DECIMAL; pa.ArrowInvalid if one of them does not fit it exactly."""
    if not pa.types.is_decimal(values.type):
        values = pc.cast(pc.cast(values, pa.int64()), pa.decimal128(19, 0))
    return pc.cast(values, arrow_type(want))


def _apply(value: Compiled, kind: t.DataType, compute: Any) -> Compiled:
    """Return an expression of type ``kind`` that applies a function to another's Arrow values; a constant stays one."""
    if value.constant is not None:
        converted = compute(value.constant)
        return Compiled(kind, lambda _: Evaluated(converted), converted)

    def step(rows: Rows) -> Evaluated:
        evaluated = value.step(rows)
        return Evaluated(compute(evaluated.values), evaluated.failures)

    return Compiled(kind, step)


def _narrow(value: Compiled, want: t.DataType, *, trying: bool) -> Compiled:
    """Return an integer in a smaller type; one that does not fit becomes NULL and, without ``trying``, fails."""
    bound = BOUNDS[type(want)]

    def step(rows: Rows) -> Evaluated:
        evaluated = value.step(rows)
        whole = pc.cast(evaluated.values, pa.int64())
        over = pc.or_(pc.less(whole, -bound), pc.greater_equal(whole, bound))
        fitting = pc.if_else(pc.fill_null(over, False), pa.scalar(None, pa.int64()), whole)
        failures = () if trying else fail_where(over, f"the number does not fit {want.spelling}", rows.count)
        return Evaluated(pc.cast(fitting, arrow_type(want)), (*evaluated.failures, *failures))

    return Compiled(want, step)
