"""Spark's output mode of a streaming write: the modes that a table accepts and a query needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kdsl.errors import KdslError
from kdsl.plan.model import OutputMode, WritePlan
from kdsl.spark_internals.plans import plan_of
from kdsl.spark_internals.session import explain_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_AGGREGATE = re.compile(r"^[\s:+\-~]*Aggregate \[", re.MULTILINE)
_REFUSED = {
    "update": "emits a row again whenever it changes, and each time another record would be written",
    "complete": "replaces the whole result with each batch, and a topic cannot be replaced",
}


def choose_output_mode(df: DataFrame, plan: WritePlan, asked: OutputMode | None) -> OutputMode:
    """Choose the output mode of a query.

    A table that appends accepts rows when they are final. An upsert table accepts rows whenever they change: from a
    query with an aggregation it takes updates, unless the user asks for final rows.

    Args:
        df: The stream.
        plan: The write plan.
        asked: The mode that the user asks for; None for the table's default.

    Returns:
        ``append`` or ``update``.
    """
    if plan.upserts is not None and asked != "complete":
        if asked in ("append", "update"):
            return asked
        if asked is None:
            return "update" if aggregates(df) else "append"
    if asked in (None, "append"):
        return "append"
    reason = _REFUSED.get(str(asked), "is not a mode of Spark")
    fix = "use 'append', which emits a row when it is final (an aggregation needs a watermark for that)"
    if plan.upserts is not None:
        fix = "use 'update', which emits the rows that have changed"
    elif asked == "update":
        fix += "; or declare an UpsertTable, which takes updates by key"
    raise KdslError(f"{plan.table}: the output mode {asked!r} {reason}; {fix}")


def aggregates(df: DataFrame) -> bool:
    """Whether a query has an aggregation, whose rows change. On Spark Connect the server is asked."""
    return bool(_AGGREGATE.search(_plan_text(df)))


def _plan_text(df: DataFrame) -> str:
    """The analyzed plan as text; on Spark Connect the server is asked, and its errors are raised."""
    plan = plan_of(df)
    if plan is not None:
        return str(plan)
    return explain_text(df)
