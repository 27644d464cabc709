"""Evaluated expressions: Arrow values, and the rows for which Spark would raise an error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl.types.arrays import Mask
from kdsl.types.arrow import arrow_type


@attrs.frozen(eq=False)
class Failure:
    """Rows for which an expression has no value: an overflow, a division by zero.

    Attributes:
        rows: Which rows.
        reason: Why.
    """

    rows: Mask
    reason: str


@attrs.frozen(eq=False)
class Evaluated:
    """The values of an expression for the rows of a batch.

    Attributes:
        values: One value for each row, or one scalar for all.
        failures: The rows that have no value; theirs in ``values`` means nothing.
    """

    values: pa.Array | pa.Scalar
    failures: tuple[Failure, ...] = ()


@attrs.frozen(eq=False)
class Rows:
    """The rows for which an expression is evaluated.

    Attributes:
        columns: The columns, by name.
        count: How many rows there are.
    """

    columns: Mapping[str, pa.Array]
    count: int


Step = Callable[[Rows], Evaluated]
"""Computes an expression for the rows of a batch."""


@attrs.frozen(eq=False)
class Compiled:
    """A compiled expression.

    Attributes:
        type: Its type; None for a NULL without a type.
        step: Computes it.
        constant: Its value, if it is a constant.
    """

    type: t.DataType | None
    step: Step
    constant: pa.Scalar | None = None


def compile_constant(value: object, kind: t.DataType) -> Compiled:
    """A constant of a type; None is NULL. A value that does not fit raises Arrow's error, or OverflowError."""
    scalar = pa.scalar(value, arrow_type(kind))
    return Compiled(kind, lambda _: Evaluated(scalar), scalar)


def as_array(evaluated: Evaluated, count: int) -> pa.Array:
    """The values as an array with one value for each row; a scalar is repeated."""
    values = evaluated.values
    return pa.repeat(values, count) if isinstance(values, pa.Scalar) else values


def find_true_rows(values: pa.Array | pa.Scalar, count: int) -> Mask:
    """The mask of the rows whose boolean value is true; NULL is not. A scalar counts for all ``count`` rows."""
    if isinstance(values, pa.Scalar):
        return np.full(count, values.as_py() is True)
    mask: Mask = pc.fill_null(values, False).to_numpy(zero_copy_only=False)
    return mask


def list_only_in(failures: Iterable[Failure], rows: Mask) -> tuple[Failure, ...]:
    """The failures limited to some rows, because the others are not computed; empty ones are left out."""
    limited = (Failure(failure.rows & rows, failure.reason) for failure in failures)
    return tuple(failure for failure in limited if failure.rows.any())


def fail_where(rows: pa.Array | pa.Scalar, reason: str, count: int) -> tuple[Failure, ...]:
    """A failure of the rows whose flag is true; none if there are no such rows."""
    mask = find_true_rows(rows, count)
    return (Failure(mask, reason),) if mask.any() else ()


def compile_strict(
    kind: t.DataType | None, compute: Callable[..., pa.Array | pa.Scalar], *operands: Compiled
) -> Compiled:
    """An expression that needs all its operands, and fails where one of them fails.

    Args:
        kind: The type of the result.
        compute: Computes the values from those of the operands.
        operands: The operands.
    """

    def step(rows: Rows) -> Evaluated:
        evaluated = [operand.step(rows) for operand in operands]
        failures = tuple(failure for each in evaluated for failure in each.failures)
        return Evaluated(compute(*(each.values for each in evaluated)), failures)

    return Compiled(kind, step)
