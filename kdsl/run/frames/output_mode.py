"""Spark's output mode of a streaming write: what a table can take, and what a query needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kdsl.errors import KdslError
from kdsl.plan.model import WritePlan
from kdsl.run.frames.analyzed import analyzed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AGGREGATE = re.compile(r"^[\s:+\-~]*Aggregate \[", re.MULTILINE)
_REFUSED = {
    "update": "emits a row again whenever it changes, and each time it would be one more record",
    "complete": "replaces the whole result with each batch, and a topic cannot be replaced",
}


def output_mode(df: DataFrame, plan: WritePlan, asked: str | None) -> str:
    """The output mode of a query.

    A table that appends takes rows when they are final. An upsert table takes rows whenever they change: of a query
    with an aggregation it takes updates, unless it is asked for final rows.

    Args:
        df: What is written, a stream.
        plan: What is written, and where.
        asked: The mode that the user wants; None leaves it to the table.

    Returns:
        ``append`` or ``update``.

    Raises:
        KdslError: The table cannot take the mode that is asked for.
    """
    if plan.upserts is not None and asked != "complete":
        if asked in ("append", "update"):
            return asked
        if asked is None:
            return "update" if aggregates(df) else "append"
    if asked in (None, "append"):
        return "append"
    reason = _REFUSED.get(str(asked), "is none of Spark's")
    fix = "use 'append', which emits a row when it is final (an aggregation needs a watermark for that)"
    if plan.upserts is not None:
        fix = "use 'update', which emits the rows that have changed"
    elif asked == "update":
        fix += "; or declare an UpsertTable, which takes updates by key"
    raise KdslError(f"{plan.table}: the output mode {asked!r} {reason}; {fix}")


def aggregates(df: DataFrame) -> bool:
    """Whether a query has an aggregation, whose rows change."""
    return bool(_AGGREGATE.search(_plan_text(df)))


def _plan_text(df: DataFrame) -> str:
    """The analyzed plan as text."""
    plan = analyzed(df)
    if plan is not None:
        return str(plan.toString())
    explain: Any = getattr(df, "_explain_string")  # noqa: B009  # Spark Connect has no plan but this text
    return str(explain(extended=True))
