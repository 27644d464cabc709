"""Values that the expressions of a transform cannot compute: in which column, by which rule, and what to write."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from kdsl.ingest.ids import format_id
from kdsl.ingest.plan import IngestPlan

if TYPE_CHECKING:
    from kdsl.ingest.decision import Decision, TableWork

_OVERFLOW = "write an operand with a larger type, as CAST(column AS DECIMAL(38, 0)) * 2, which no 64 bits limit"
_FIXES = {
    "ARITHMETIC_OVERFLOW": _OVERFLOW,
    "BINARY_ARITHMETIC_OVERFLOW": _OVERFLOW,
    "CAST_OVERFLOW": "write TRY_CAST, which is NULL then, or cast to a larger type",
    "CAST_INVALID_INPUT": "write TRY_CAST, which is NULL then",
    "NUMERIC_VALUE_OUT_OF_RANGE": "write TRY_CAST, which is NULL then, or cast to a DECIMAL with more digits",
    "DIVIDE_BY_ZERO": "divide by NULLIF(column, 0): the result is NULL where it is 0",
    "REMAINDER_BY_ZERO": "divide by NULLIF(column, 0): the result is NULL where it is 0",
}
"""What to write instead, by Spark's condition."""
_CONDITION = re.compile(r"\[([A-Z_]+)[.A-Z_]*\] ([^\n.]*)")
_COLUMN = re.compile(r"`(?:[^`]|``)+`")
"""A column that is taken over as it is."""
_SQL = re.compile(r"== SQL[^\n]*==\n(.*?)\n\s*\^", re.DOTALL)


def explain_value_error(plan: IngestPlan, decision: Decision, error: BaseException) -> str | None:
    """Return the message for a job that failed because a value cannot be computed; None for other reasons.

    It names the columns whose expression Spark's error shows; None, too, if it shows none of them.
    """
    text = "\n".join(_messages(error))
    known = [match for match in _CONDITION.finditer(text) if match[1] in _FIXES]
    if not known:
        return None
    condition, reason = known[0][1], known[0][2].strip()
    shown = _SQL.search(text, known[0].end())
    if shown is None:
        return None
    places = [place for work in decision.tables for place in _places(plan, work, shown[1].strip())]
    if not places:
        return None
    listed = "; ".join(places)
    return f"a value of a row cannot be computed: {listed}: {reason} ({condition}); {_FIXES[condition]}"


def _messages(error: BaseException) -> Iterator[str]:
    """The messages of an error and of those behind it."""
    cause: BaseException | None = error
    while cause is not None:
        yield str(cause)
        cause = cause.__cause__ or cause.__context__


def _places(plan: IngestPlan, work: TableWork, sql: str) -> Iterator[str]:
    """The computed columns, and the filter, of a table whose Spark SQL contains some SQL, with their rule."""
    rule = plan.transform_rule(work.plan.table)
    where = "" if rule is None else f" of the transform {rule.pattern.text!r}"
    for column in work.plan.transformed.columns:
        if _COLUMN.fullmatch(column.sql) is None and (sql in column.sql or column.sql in sql):
            names = ", ".join(map(format_id, work.plan.targets))
            yield f"{names}, column {column.name!r}, by the projection{where}"
    condition = work.plan.transformed.filter
    if condition is not None and (sql in condition or condition in sql):
        yield f"{format_id(work.plan.table)}, by the filter{where}"
