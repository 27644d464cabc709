"""Aggregates of a changelog as Spark SQL: what an inserted row adds, its deletion subtracts.

Spark's aggregates have no retractions. So a removed row (``-U``, ``-D``) counts as -1, and its values with the opposite
sign; a group exists as long as it has more inserted than removed rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from kdsl.flink_sql.expressions.values import INTEGERS, TypedSql
from kdsl.types import model as t

RETRACTABLE = ("COUNT", "SUM", "AVG")
"""The aggregates that can be retracted row by row."""


def is_addition(kinds: str) -> str:
    """Write the SQL condition that a row of a changelog adds a row instead of removing one.

    Args:
        kinds: The SQL of the row kind.
    """
    return f"{kinds} IN ('+I', '+U')"


def count_rows(added: str, values: Sequence[TypedSql] = (), suffix: str = "") -> str:
    """Write the SQL of the number of rows of a changelog's group without NULLs: those added minus those removed.

    Args:
        added: The SQL condition that a row adds a row, from `is_addition`.
        values: The values; rows in which one is NULL are not counted.
        suffix: The SQL after the aggregate, as ``FILTER (…)``.
    """
    absent = " OR ".join(f"{v.text} IS NULL" for v in values)
    never = f"WHEN {absent} THEN 0L " if absent else ""
    return f"coalesce(sum(CASE {never}WHEN {added} THEN 1L ELSE -1L END){suffix}, 0L)"


def apply_sign(added: str, value: TypedSql) -> TypedSql:
    """Write a number, with the opposite sign unless the condition ``added`` says that the row adds a row.

    The SQL of an integer is a BIGINT; the type of the result is still that of the value.
    """
    text = f"CAST({value.text} AS BIGINT)" if isinstance(value.type, INTEGERS) else value.text  # -(-128) fits there
    return TypedSql(f"CASE WHEN {added} THEN {text} ELSE -({text}) END", value.type)


def write_null_unless(exists: str, value: TypedSql) -> TypedSql:
    """Write a value of a group, or NULL unless the condition ``exists`` is true: dividing by its count could fail."""
    return TypedSql(f"if({exists}, {value.text}, NULL)", value.type)


def average(added: str, value: TypedSql, suffix: str) -> TypedSql:
    """Write the average of a group of a changelog, with the type that Flink gives it.

    Args:
        added: As for `count_rows`.
        value: A number; a DECIMAL has at most 6 digits after the point.
        suffix: As for `count_rows`.
    """
    count = f"nullif({count_rows(added, [value], suffix)}, 0L)"
    taken = apply_sign(added, value)
    exact = write_exact_average(taken, count, "", suffix)
    if exact is not None:
        return exact
    if isinstance(value.type, t.Float):
        return TypedSql(f"CAST(sum(CAST({taken.text} AS DOUBLE)){suffix} / {count} AS FLOAT)", t.Float())
    return TypedSql(f"(sum({taken.text}){suffix} / {count})", t.Double())


def write_exact_average(value: TypedSql, count: str, word: str, suffix: str) -> TypedSql | None:
    """Write the average of integers or decimals (sum divided by count) with Flink's type; None for other types.

    Args:
        value: What is summed, in a changelog already with its sign.
        count: The SQL by which the sum is divided, NULL instead of zero.
        word: ``DISTINCT ``, or nothing.
        suffix: As for `count_rows`.
    """
    match value.type:
        case t.Decimal(scale=scale):
            kind = t.Decimal(38, max(6, scale))
            total = f"sum({word}CAST({value.text} AS DECIMAL(38, {scale}))){suffix}"
            return TypedSql(f"CAST({total} / {count} AS DECIMAL(38, {kind.scale}))", kind)
        case found if isinstance(found, INTEGERS):
            return TypedSql(f"CAST(sum({word}{value.text}){suffix} DIV {count} AS {found.name})", found.as_nullable())
    return None
