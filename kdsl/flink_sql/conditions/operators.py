"""Comparison, logic and arithmetic with Spark's results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.flink_sql.conditions.casts import BOUNDS, FLOATS
from kdsl.flink_sql.conditions.values import (
    Compiled,
    Evaluated,
    Failure,
    Rows,
    compile_strict,
    find_true_rows,
    list_only_in,
)
from kdsl.flink_sql.expressions.values import INTEGERS
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type

Values = Any  # an Arrow array or scalar
BOOLEAN = t.Boolean()
_NULL = pa.nulls(1, pa.bool_())[0]  # pa.scalar would import pandas


# comparison


def compare(operator: str, left: Compiled, right: Compiled) -> Compiled:
    """Return the comparison of two expressions of one type by ``= <> < <= > >=``.

    It is NULL if one of them is NULL, which may have no type.
    """
    if left.type is None or right.type is None:
        return compile_strict(BOOLEAN, lambda *_: _NULL, left, right)
    return compile_strict(BOOLEAN, choose_comparison(operator, left.type), left, right)


def choose_comparison(operator: str, kind: t.DataType) -> Callable[[Values, Values], Values]:
    """Return the function that compares Arrow values of a type; NaN equals NaN and is greater than other numbers."""
    if isinstance(kind, FLOATS):
        return _choose_float_comparison(operator)
    compare_plain = _PLAIN[operator]
    if isinstance(kind, t.Boolean):  # Arrow does not order booleans
        return lambda a, b: compare_plain(pc.cast(a, pa.int8()), pc.cast(b, pa.int8()))
    return compare_plain


_PLAIN: Mapping[str, Callable[[Values, Values], Values]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _choose_float_comparison(operator: str) -> Callable[[Values, Values], Values]:
    """Return the function that compares FLOAT or DOUBLE values as Spark does; see `comparison`."""
    match operator:
        case "=":
            return _equal_floats
        case "<>":
            return lambda a, b: pc.invert(_equal_floats(a, b))
        case "<":
            return _less_float
        case ">":
            return lambda a, b: _less_float(b, a)
        case "<=":
            return lambda a, b: pc.invert(_less_float(b, a))
        case _:
            return lambda a, b: pc.invert(_less_float(a, b))


def _equal_floats(a: Values, b: Values) -> Values:
    """Whether numbers are equal, or both NaN."""
    return pc.or_(pc.equal(a, b), pc.and_(pc.is_nan(a), pc.is_nan(b)))


def _less_float(a: Values, b: Values) -> Values:
    """Whether numbers are less than others; NaN is the greatest."""
    return pc.or_(pc.less(a, b), pc.and_(pc.invert(pc.is_nan(a)), pc.is_nan(b)))


def compile_not_distinct(left: Compiled, right: Compiled) -> Compiled:
    """``IS NOT DISTINCT FROM``: NULL is the same as NULL, and the result is never NULL."""

    def compute(a: Values, b: Values) -> Values:
        null_a, null_b = pc.is_null(a), pc.is_null(b)
        if left.type is None or right.type is None:
            return pc.and_(null_a, null_b)
        equal = pc.fill_null(choose_comparison("=", left.type)(a, b), False)
        return pc.or_(pc.and_(null_a, null_b), equal)

    return compile_strict(BOOLEAN, compute, left, right)


# logic: an operand is computed for those rows only whose result it decides


def combine(operator: str, left: Compiled, right: Compiled) -> Compiled:
    """``AND`` or ``OR``; the right side fails only where the left side does not decide the result."""
    both, decided = (pc.and_kleene, pc.invert) if operator == "AND" else (pc.or_kleene, lambda values: values)

    def step(rows: Rows) -> Evaluated:
        first, second = left.step(rows), right.step(rows)
        failures = second.failures
        if failures:
            failures = list_only_in(failures, ~find_true_rows(decided(first.values), rows.count))
        return Evaluated(both(first.values, second.values), (*first.failures, *failures))

    return Compiled(BOOLEAN, step)


def negate(value: Compiled) -> Compiled:
    """``NOT``; NULL stays NULL."""
    return compile_strict(BOOLEAN, pc.invert, value)


def choose(kind: t.DataType, branches: Sequence[tuple[Compiled, Compiled]], otherwise: Compiled) -> Compiled:
    """``CASE WHEN``: the value of the first branch whose condition is true; all values have the type ``kind``.

    A branch fails only for rows that reach it.
    """

    def step(rows: Rows) -> Evaluated:
        undecided = np.ones(rows.count, dtype=bool)
        failures: list[Failure] = []
        conditions, values = [], []
        for condition, value in branches:
            tested, computed = condition.step(rows), value.step(rows)
            chosen = find_true_rows(tested.values, rows.count)
            failures += list_only_in(tested.failures, undecided)
            failures += list_only_in(computed.failures, undecided & chosen)
            conditions.append(pa.array(chosen))
            values.append(computed.values)
            undecided &= ~chosen
        last = otherwise.step(rows)
        failures += list_only_in(last.failures, undecided)
        result = last.values
        for chosen_rows, each in zip(reversed(conditions), reversed(values), strict=True):
            result = pc.if_else(chosen_rows, each, result)
        return Evaluated(result, tuple(failures))

    return Compiled(kind, step)


def choose_first_valid(kind: t.DataType, values: Sequence[Compiled]) -> Compiled:
    """``COALESCE``: the first value that is not NULL; all have the type ``kind``.

    A value fails only for rows in which those before it are NULL.
    """
    *some, last = values
    return choose(kind, [(compile_strict(BOOLEAN, pc.is_valid, each), each) for each in some], last)


# arithmetic


def calculate(operator: str, kind: t.DataType, left: Compiled, right: Compiled) -> Compiled | None:
    """``+ - * / %`` of two numbers of one type, with the result in the type ``kind``; None if Spark may differ.

    It may for ``/`` and ``%`` of DECIMAL, ``%`` of floats, and DECIMAL results that may be rounded. A division by zero,
    also of floats, and an integer that overflows fail for their rows.

    Args:
        operator: The operator.
        kind: The type of the result; that of a remainder may be smaller than that of the operands.
        left: The first operand.
        right: The second operand; of the same type, except for DECIMAL.
    """
    if isinstance(kind, t.Decimal):
        return (
            compile_strict(kind, _DECIMAL[operator], left, right)
            if _is_exact(operator, left.type, right.type)
            else None
        )
    if isinstance(kind, FLOATS):
        return (
            None if operator == "%" else _with_failures(kind, left, right, _choose_float_operation(operator), operator)
        )
    if not isinstance(left.type, INTEGERS):
        return None
    if operator in ("/", "%"):
        return _with_failures(kind, left, right, _divide if operator == "/" else _compute_remainder, operator)
    return _with_failures(kind, left, right, _CHECKED[operator], operator)


_NEGATED_DIGITS = 34  # of java.math.MathContext.DECIMAL128
_DECIMAL = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}
_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}


def _is_exact(operator: str, one: t.DataType | None, other: t.DataType | None) -> bool:
    """Whether all digits of ``+``, ``-`` or ``*`` of two DECIMAL fit, so that neither Spark nor Arrow rounds.

    False for other operators and types.
    """
    if not isinstance(one, t.Decimal) or not isinstance(other, t.Decimal):
        return False
    if operator == "*":
        return one.precision + other.precision + 1 <= t.MAX_DECIMAL
    whole = max(one.precision - one.scale, other.precision - other.scale)
    return operator in "+-" and whole + max(one.scale, other.scale) + 1 <= t.MAX_DECIMAL


def _choose_float_operation(operator: str) -> Callable[[Values, Values], Values]:
    """Return Arrow's function for ``+``, ``-``, ``*`` or ``/`` of floats; a division by zero is infinite or NaN."""
    operations: dict[str, Callable[[Values, Values], Values]] = {
        "+": pc.add,
        "-": pc.subtract,
        "*": pc.multiply,
        "/": pc.divide,
    }
    return operations[operator]


def _divide(a: Values, b: Values) -> Values:
    """Divide integers toward zero; rows that would fail must be NULL, as `_with_failures` makes them."""
    return pc.divide_checked(a, b)


def _compute_remainder(a: Values, b: Values) -> Values:
    """Return the remainder of integers, with the sign of the dividend.

    The dividend must be NULL where the divisor is zero, otherwise Arrow raises ArrowInvalid.
    """
    safe = pc.if_else(pc.equal(b, pa.scalar(-1, b.type)), pa.scalar(1, b.type), b)  # the smallest number / -1 overflows
    return pc.subtract(a, pc.multiply(pc.divide(a, safe), safe))


def add(kind: t.DataType, left: Compiled, right: Compiled) -> Compiled:
    """Return the sum of two integers of one type as a ``kind`` that is stored as such a number: a date, a timestamp.

    A sum that overflows fails for its row.
    """
    return _with_failures(kind, left, right, _CHECKED["+"], "+")


def _with_failures(
    kind: t.DataType, left: Compiled, right: Compiled, compute: Callable[[Values, Values], Values], operator: str
) -> Compiled:
    """Return an operation with a result of type ``kind``; rows that `_find_failing_rows` finds fail and become NULL."""

    def step(rows: Rows) -> Evaluated:
        a, b = left.step(rows), right.step(rows)
        failures = (*a.failures, *b.failures)
        x, y = a.values, b.values
        wrong = _find_failing_rows(operator, x, y, rows.count)
        if wrong is not None:
            bad, reason = wrong
            failures = (*failures, Failure(bad, reason))
            x = pc.if_else(pa.array(bad), pa.scalar(None, x.type), x)
        return Evaluated(pc.cast(compute(x, y), arrow_type(kind), safe=False), failures)

    return Compiled(kind, step)


def _find_failing_rows(operator: str, x: Values, y: Values, count: int) -> tuple[Any, str] | None:
    """Find the rows with a division by zero or an integer overflow, and one reason for all; None if there are none.

    A row with a NULL dividend does not fail.
    """
    if operator in ("/", "%"):
        zero = pc.and_(pc.equal(y, pa.scalar(0, y.type)), pc.is_valid(x))
        bad, reason = find_true_rows(zero, count), "division by zero"
        if operator == "/" and pa.types.is_integer(x.type):
            lowest = pa.scalar(-(2 ** (x.type.bit_width - 1)), x.type)
            over = find_true_rows(pc.and_(pc.equal(x, lowest), pc.equal(y, pa.scalar(-1, y.type))), count)
            bad, reason = bad | over, reason if bad.any() else "the result does not fit its type"
        return (bad, reason) if bad.any() else None
    if pa.types.is_floating(x.type):
        return None
    try:
        _CHECKED[operator](x, y)
    except pa.ArrowInvalid:
        exact = _DECIMAL[operator](_as_decimal256(x), _as_decimal256(y))
        bound = 2 ** (x.type.bit_width - 1)
        low, high = (pa.scalar(n, pa.decimal256(20, 0)) for n in (-bound, bound))
        over = pc.or_(pc.less(exact, low), pc.greater_equal(exact, high))
        return find_true_rows(over, count), "the result does not fit its type"
    return None


def _as_decimal256(values: Values) -> Values:
    """Convert integers to DECIMAL(20, 0), in which their sums, differences and products do not overflow."""
    return pc.cast(pc.cast(pc.cast(values, pa.int64()), pa.decimal128(19, 0)), pa.decimal256(20, 0))


def compile_unary(kind: t.DataType, value: Compiled, name: str) -> Compiled | None:
    """``-x`` and ``ABS(x)`` (``name`` is ``negate`` or ``abs``), which fail for the smallest integer.

    None if the number may have more than 34 digits: Spark rounds it then.
    """
    if isinstance(kind, t.Decimal) and kind.precision > _NEGATED_DIGITS:
        return None
    compute = getattr(pc, name)
    bound = BOUNDS.get(type(kind))

    def step(rows: Rows) -> Evaluated:
        evaluated = value.step(rows)
        values, failures = evaluated.values, evaluated.failures
        if bound is not None:
            lowest = pc.equal(values, pa.scalar(-bound, values.type))
            if (bad := find_true_rows(lowest, rows.count)).any():
                failures = (*failures, Failure(bad, "the result does not fit its type"))
        return Evaluated(compute(values), failures)

    return Compiled(kind, step)
