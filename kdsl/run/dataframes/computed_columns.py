"""Computed columns: Spark's expressions on the columns that a source gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from kdsl.declare.definition import TableDef
from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan
from kdsl.run.dataframes.watermark import with_watermark
from kdsl.spark_internals.sql_text import parse_column
from kdsl.types import model as t
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

ColumnMaker = Callable[[], "Column"]
"""Creates the Spark column of a computed column."""


def list_column_makers(table: TableDef) -> dict[str, ColumnMaker]:
    """Return what creates the Spark columns of a table's computed columns, by name; those in SQL are left out."""
    expressions = {c.name: c.expression for c in table.columns if c.expression is not None}
    return {name: e.column for name, e in expressions.items() if e.column is not None}


def add_computed_columns(
    df: DataFrame, plan: ReadPlan, computed: Mapping[str, ColumnMaker], *, streaming: bool
) -> DataFrame:
    """Add the computed columns and a stream's watermark, and select the columns of the plan's output in its order.

    Values are cast to the types of their columns. Spark is not asked for the columns, which the plan knows: in a
    pipeline it refuses such questions.
    """
    from pyspark.sql import functions as sf

    from kdsl.types.spark import spark_type

    for column in plan.computed:
        if column.sql:
            value = parse_column(column.text)
        elif column.column in computed:
            value = computed[column.column]()
        else:
            raise KdslError(
                f"{plan.table}: the computed column {column.column!r} has neither SQL nor a function in computed="
            )
        df = df.withColumn(column.column, value.cast(spark_type(column.type)))
    present = list(dict.fromkeys([*plan.columns.names, *(column.column for column in plan.computed)]))
    if plan.watermark is not None and streaming:
        types = {f.name: f.type for f in plan.columns.fields} | {c.column: c.type for c in plan.computed}
        wall_clock = isinstance(types[plan.watermark.column], t.Timestamp)
        df = with_watermark(df, plan.watermark, present, wall_clock=wall_clock)
    names = list(plan.output.names)
    return df if present == names else df.select(*(sf.col(quote_name(name)) for name in names))
