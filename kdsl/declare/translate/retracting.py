"""Aggregates of a changelog as Spark SQL: what a row that comes adds, the same row takes away again when it goes.

Spark's aggregates take nothing back. So a row that goes (``-U``, ``-D``) counts as -1, and its values with the other
sign; a group is there as long as more rows have come than gone.
"""

from __future__ import annotations

from collections.abc import Sequence

from kdsl.declare.translate.values import INTEGERS, Value
from kdsl.types import model as t

COUNTED = ("COUNT", "SUM", "AVG")
"""The aggregates that can be taken back row by row."""


def comes(kinds: str) -> str:
    """The SQL of whether a row comes, and does not go.

    Args:
        kinds: The SQL of what the row says.
    """
    return f"{kinds} IN ('+I', '+U')"


def counted(comes: str, values: Sequence[Value] = (), behind: str = "") -> str:
    """The SQL of how many rows are there, of those in which no value is NULL.

    Args:
        comes: The SQL of whether a row comes.
        values: The values.
        behind: What stands behind the aggregate, as ``FILTER (…)``.
    """
    absent = " OR ".join(f"{v.text} IS NULL" for v in values)
    never = f"WHEN {absent} THEN 0L " if absent else ""
    return f"coalesce(sum(CASE {never}WHEN {comes} THEN 1L ELSE -1L END){behind}, 0L)"


def signed(comes: str, value: Value) -> Value:
    """A value that is taken away where its row goes.

    Args:
        comes: As for `counted`.
        value: A number.
    """
    text = f"CAST({value.text} AS BIGINT)" if isinstance(value.type, INTEGERS) else value.text  # -(-128) fits there
    return Value(f"CASE WHEN {comes} THEN {text} ELSE -({text}) END", value.type)


def guarded(there: str, value: Value) -> Value:
    """A value of a group that may not be there any more: NULL then, for a division by what is left may fail.

    Args:
        there: The SQL of whether the group is there.
        value: The value.
    """
    return Value(f"if({there}, {value.text}, NULL)", value.type)


def average(comes: str, value: Value, behind: str) -> Value:
    """The average of what is there, with the type that Flink gives it.

    Args:
        comes: As for `counted`.
        value: A number; a decimal one has 6 digits behind the point at most.
        behind: As for `counted`.
    """
    count = f"nullif({counted(comes, [value], behind)}, 0L)"
    taken = signed(comes, value)
    exact = exact_average(taken, count, "", behind)
    if exact is not None:
        return exact
    if isinstance(value.type, t.Float):
        return Value(f"CAST(sum(CAST({taken.text} AS DOUBLE)){behind} / {count} AS FLOAT)", t.Float())
    return Value(f"(sum({taken.text}){behind} / {count})", t.Double())


def exact_average(value: Value, count: str, word: str, behind: str) -> Value | None:
    """The average of whole or decimal numbers, with the type that Flink gives it; None for others.

    Args:
        value: What is summed.
        count: The SQL of how many there are, NULL instead of none.
        word: ``DISTINCT ``, or nothing.
        behind: As for `counted`.
    """
    match value.type:
        case t.Decimal(scale=scale):
            kind = t.Decimal(38, max(6, scale))
            total = f"sum({word}CAST({value.text} AS DECIMAL(38, {scale}))){behind}"
            return Value(f"CAST({total} / {count} AS DECIMAL(38, {kind.scale}))", kind)
        case found if isinstance(found, INTEGERS):
            return Value(f"CAST(sum({word}{value.text}){behind} DIV {count} AS {found.name})", found.as_nullable())
    return None
