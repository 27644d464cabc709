"""The number of write tasks that a table declares (rule PAR-3 in docs/rules.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import (
    functions as F,
    types as s,
)

from kdsl.own_columns import POSITION
from kdsl.plan.model import WritePlan
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def repartition_for_tasks(rows: DataFrame, plan: WritePlan, *, pieces: int = 0) -> DataFrame:
    """Repartition rows into exactly as many partitions as the plan declares tasks; without a declaration, not at all.

    Rows of one message key stay in one task, and those from one partition of the DataFrame stay in their order.
    Therefore the order of a key is kept in Kafka. Rows of a table without key columns are distributed evenly.

    Args:
        rows: The rows.
        plan: What is written.
        pieces: The number of tasks that read the rows, if those of a key may come from several of them, in whose order
            they are; otherwise 0. Then they are repartitioned by the key and sorted; only those of a batch can be.
    """
    count = plan.parallelism
    if pieces:  # a shuffle alone fetches the rows of several partitions in any order
        keys = [_hashable(rows, name) for name in plan.key_columns]
        placed = rows.withColumn(POSITION, F.monotonically_increasing_id())
        return placed.repartition(count or pieces, *keys).sortWithinPartitions(POSITION).drop(POSITION)
    if count is None:
        return rows
    if count == 1:
        return rows.coalesce(1)  # no shuffle, no new order
    return rows.repartition(count, *(_hashable(rows, name) for name in plan.key_columns))


def _hashable(rows: DataFrame, name: str) -> Column:
    """A column that Spark can hash: one with maps becomes JSON as a whole, because Spark cannot hash maps."""
    column = F.col(quote_name(name))
    return F.to_json(F.struct(column)) if _has_map(rows.schema[name].dataType) else column


def _has_map(kind: s.DataType) -> bool:
    """Return whether a type is or contains a map."""
    match kind:
        case s.MapType():
            return True
        case s.ArrayType():
            return _has_map(kind.elementType)
        case s.StructType():
            return any(_has_map(f.dataType) for f in kind.fields)
        case _:
            return False
