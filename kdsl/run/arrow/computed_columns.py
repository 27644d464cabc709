"""Computed columns of Arrow batches: expressions that Arrow computes exactly as Spark does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, RecordError, Where, fail_on
from kdsl.flink_sql.conditions.compiler import ConditionError
from kdsl.flink_sql.conditions.expressions import ExpressionOfRows, compile_expression
from kdsl.plan.model import Computed, ReadPlan
from kdsl.run.records.decode import RowsOfRecords
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, cast_array

_PLACE = ("topic", "partition", "offset")


class ComputedColumns:
    """Computes the columns of a plan that it computes from others; creating it reports those that only Spark computes.

    Args:
        plan: The plan.
        table: The table, which has the expressions as they were written.
    """

    def __init__(self, plan: ReadPlan, table: TableDef) -> None:
        self._table = plan.table
        self._expressions: dict[str, ExpressionOfRows] = {}
        flink = {c.name: c.expression.flink for c in table.columns if c.expression is not None}
        types = {field.name: field.type for field in plan.columns.fields}
        self._types = {name: arrow_type(kind) for name, kind in types.items()}
        problems = []
        for column in plan.computed:
            if column.column not in plan.output.names:  # that of the watermark
                continue
            expression = _compile(column, flink.get(column.column), types)
            if expression is None:
                problems.append(_explain(plan, column))
            else:
                self._expressions[column.column], types[column.column] = expression, expression.type
        fail_on(problems, f"a read of {plan.table} without Spark")

    def of(self, rows: pa.RecordBatch, decoded: RowsOfRecords | None) -> dict[str, pa.Array]:
        """Return the computed columns of some rows, by name; a value that cannot be computed is a RecordError.

        Args:
            rows: The rows.
            decoded: The same with their records, for errors; None if they do not come from one record each.
        """
        if not self._expressions:
            return {}
        columns: dict[str, pa.Array] = {
            name: cast_array(rows.column(name), self._types[name]) for name in rows.schema.names if name in self._types
        }
        computed: dict[str, pa.Array] = {}
        for name, expression in self._expressions.items():
            computed[name], failures = expression.values(columns | computed, rows.num_rows)
            for failure in failures:
                where = np.flatnonzero(failure.rows)
                topic, partition, offset = _place_of(decoded, int(where[0]))
                raise RecordError(
                    "read",
                    self._table,
                    f"column {name!r} cannot be computed: {failure.reason}",
                    topic=topic,
                    partition=partition,
                    offset=offset,
                    more=len(where) - 1,
                    fix="leave the column out with columns=, or declare a row rule that drops such rows",
                )
        return computed


def _compile(column: Computed, flink: str | None, types: Mapping[str, t.DataType]) -> ExpressionOfRows | None:
    """Compile a computed column, from Flink's SQL if it was written in that; None if Arrow may differ from Spark."""
    if not column.sql:
        return None
    try:
        kind = column.type.as_nullable()
        return compile_expression(flink or column.text, types, kind, "flink" if flink else "spark")
    except ConditionError:
        return None


def _place_of(decoded: RowsOfRecords | None, row: int) -> tuple[Any, ...]:
    """Return topic, partition and offset of the record of a row; None for each if it is not known."""
    if decoded is None:
        return (None,) * len(_PLACE)
    return tuple(decoded.of(name)[row].as_py() for name in _PLACE)


def _explain(plan: ReadPlan, column: Computed) -> Problem:
    """Return the problem of a column that only Spark can compute."""
    others = ", ".join(repr(name) for name in plan.output.names if name != column.column)
    return Problem(
        "computed-needs-spark",
        f"the column {column.column!r} is computed as {column.text}, which only Spark computes",
        f"leave it out, with columns=[{others}], and compute it from the others; or read with Spark: "
        f"{plan.table}.read(spark, …)",
        Where(table=plan.table, column=column.column),
    )
