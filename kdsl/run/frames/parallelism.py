"""As many write tasks as the table declares (RULES PAR-3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import (
    functions as F,
    types as s,
)

from kdsl.plan.model import WritePlan
from kdsl.types.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def in_tasks(rows: DataFrame, plan: WritePlan) -> DataFrame:
    """The rows in exactly as many partitions as the plan wants tasks, or as they are.

    Rows of one message key stay in one task, and those that came from one partition of the DataFrame stay in their
    order, so that the order of a key holds in Kafka. Rows without a key are dealt out.

    Args:
        rows: What is written, as `kdsl.run.frames.fit.fitted` gives it.
        plan: What is written.
    """
    count = plan.parallelism
    if count is None:
        return rows
    if count == 1:
        return rows.coalesce(1)  # no shuffle, no new order
    return rows.repartition(count, *(_hashable(rows, name) for name in plan.key_columns))


def _hashable(rows: DataFrame, name: str) -> Column:
    """A column that Spark can hash: maps are no such thing."""
    column = F.col(quoted(name))
    return F.to_json(F.struct(column)) if _has_map(rows.schema[name].dataType) else column


def _has_map(kind: s.DataType) -> bool:
    match kind:
        case s.MapType():
            return True
        case s.ArrayType():
            return _has_map(kind.elementType)
        case s.StructType():
            return any(_has_map(f.dataType) for f in kind.fields)
        case _:
            return False
