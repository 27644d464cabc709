"""Reports of tasks on rows, for where executors reach the driver by rows alone.

The rows of a stream have one column more, a text that is null but on the first row of each Arrow batch. Spark's
``observe`` gathers it, and the column is dropped right behind. A task that has something to tell and no row gives one
row that a filter takes out again. Looking at each row costs: a tenth of the time of a stream of JSON (bench/README.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kdsl.run.metrics.source_reports import OBSERVED, SHOWN, Reporter
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMN = "__kdsl_metrics"
_ROWLESS = "rowless"


def observed(df: DataFrame, name: str) -> DataFrame:
    """The rows without the column, whose reports Spark's progress tells under a name.

    Args:
        df: The rows of a source, with the column.
        name: The observation's name, unique in the query.
    """
    from pyspark.sql import functions as sf

    def total(field: str, how: str) -> str:
        found = f"cast(get_json_object(x, '$.{field}') as bigint)"
        if how == "sum":
            return f"aggregate(reports, 0L, (s, x) -> s + coalesce({found}, 0L))"
        return f"array_max(transform(reports, x -> {found}))"

    fields = ", ".join(f"'{name}', {total(field, how)}" for name, field, how in SHOWN)
    # The lambda gives the list a name: each other mention would gather it anew, row by row.
    gathered = f"transform(array(collect_list({COLUMN})), reports -> named_struct({fields}, 'reports', reports))[0]"
    rows = df.observe(name, sf.expr(gathered).alias(OBSERVED))
    return rows.where(f"{COLUMN} is null or {COLUMN} not like '%\"{_ROWLESS}\"%'").drop(COLUMN)


class OnRows:
    """Puts the reports of a task on its rows.

    Args:
        reporter: What counts.
        schema: The columns of the rows.
    """

    def __init__(self, reporter: Reporter, schema: t.Row) -> None:
        self._reporter, self._schema = reporter, schema

    def on(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with what was counted since the last ones."""
        nulls = pa.nulls(rows.num_rows - 1, pa.string())
        column = pa.concat_arrays([pa.array([self._reporter.report()], pa.string()), nulls])
        return pa.RecordBatch.from_arrays([*rows.columns, column], schema=with_column(rows.schema))

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What no row could carry, as a row that the driver takes out; nothing where nothing is left."""
        if not self._reporter.new:
            return
        schema = arrow_schema(self._schema)
        filled = [pa.array([_some(field.type)], schema.field(field.name).type) for field in self._schema.fields]
        report = pa.array([self._reporter.report({_ROWLESS: True})], pa.string())
        yield pa.RecordBatch.from_arrays([*filled, report], schema=with_column(schema))


def with_column(schema: pa.Schema) -> pa.Schema:
    """A schema of rows with the column of reports."""
    return schema.append(pa.field(COLUMN, pa.string()))


def _some(type_: t.DataType) -> Any:
    """A value of a type: NULL where that may be."""
    import datetime as dt
    from decimal import Decimal

    if type_.nullable:
        return None
    match type_:
        case t.Row():
            return {field.name: _some(field.type) for field in type_.fields}
        case t.Array() | t.Map() | t.Multiset():
            return []
        case t.Boolean():
            return False
        case t.Char() | t.VarChar():
            return ""
        case t.Binary() | t.VarBinary():
            return b""
        case t.Decimal():
            return Decimal(0)
        case t.Date():
            return dt.date(1970, 1, 1)
        case t.Time():
            return dt.time()
        case t.Timestamp():
            return dt.datetime(1970, 1, 1)
        case t.TimestampLtz():
            return dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
        case _:
            return 0
