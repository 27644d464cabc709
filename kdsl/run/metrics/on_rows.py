"""Sends the reports of tasks to the driver on rows, for sessions without accumulators.

The rows of a stream have an additional string column, which is null except on the first row of each Arrow batch.
Spark's ``observe`` collects it, and the column is dropped right after. A task that has a report but no row returns one
row that a filter removes. Looking at each row takes a tenth of the time of a stream of JSON (bench/README.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa

from kdsl.own_columns import TASK_REPORT
from kdsl.plan.model import RowRule
from kdsl.run.metrics.source_reports import OBSERVED, PROGRESS_NUMBERS, Reporter, StateSize, violations_name
from kdsl.spark_internals.sql_text import parse_column
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema
from kdsl.types.sql import literal, quote_name, string_sql

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ROWLESS = "rowless"


def observe_reports(df: DataFrame, name: str, rules: Sequence[RowRule] = ()) -> DataFrame:
    """Remove the report column, and the rows that only carry a report; the reports appear in Spark's progress.

    Args:
        df: The rows of a source, with the column.
        name: The name of the observation in the progress, unique in the query.
        rules: The row rules of the read, whose violations are counted.
    """

    def total(field: str, how: str) -> str:
        value = f"cast(get_json_object(x, {literal(f'$.{field}')[0]}) as bigint)"
        if how == "sum":
            return f"aggregate(reports, 0L, (s, x) -> s + coalesce({value}, 0L))"
        return f"array_max(transform(reports, x -> {value}))"

    of_rules = (
        (violations_name(rule.name), f"rules[{string_sql(f'{rule.on_fail}:{rule.name}')}]", "sum") for rule in rules
    )
    fields = ", ".join(
        f"{string_sql(name)}, {total(field, how)}" for name, field, how in (*PROGRESS_NUMBERS, *of_rules)
    )
    # The lambda names the list; every further mention of the aggregate would collect it again, row by row.
    column = quote_name(TASK_REPORT)
    gathered = f"transform(array(collect_list({column})), reports -> named_struct({fields}, 'reports', reports))[0]"
    rows = df.observe(name, parse_column(gathered).alias(OBSERVED))
    # Of the members of a report, only those below the first level have names of the user.
    rowless = f"get_json_object({column}, {literal(f'$.{_ROWLESS}')[0]})"
    return rows.where(f"{rowless} is null").drop(TASK_REPORT)


def filter_and_observe(df: DataFrame, name: str, condition: Column) -> DataFrame:
    """Filter rows by a condition; Spark's progress reports under a name how many were left out.

    Args:
        df: The records of a source.
        name: The observation's name, unique in the query.
        condition: True for the records to be read, False for the others; never NULL, which would not be counted.
    """
    from pyspark.sql import functions as sf

    left_out = sf.count_if(~condition)
    number = left_out.cast("string")
    parts = [sf.lit('{"task":"filter","run":"","records":'), number, sf.lit(',"filtered":'), number, sf.lit("}")]
    shown = sf.struct(left_out.alias("numRecordsFiltered"), sf.array(sf.concat(*parts)).alias("reports"))
    return df.observe(name, shown.alias(OBSERVED)).where(condition)


class RowReporter:
    """Adds the reports of a task to its rows."""

    def __init__(self, reporter: Reporter, schema: t.Row) -> None:
        self._reporter, self._schema = reporter, schema

    def add_report(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return rows (at least one) with the report column; the first has a report of everything since the last one.

        The reporter's counts begin at zero again.
        """
        nulls = pa.nulls(rows.num_rows - 1, pa.string())
        column = pa.concat_arrays([pa.array([self._reporter.report()], pa.string()), nulls])
        return pa.RecordBatch.from_arrays([*rows.columns, column], schema=add_report_field(rows.schema))

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield a report of what has not been reported yet, if anything, on a row that the driver removes.

        The reporter's counts begin at zero again.
        """
        if not self._reporter.new:
            return
        schema = arrow_schema(self._schema)
        filled = [pa.array([_any_value(field.type)], schema.field(field.name).type) for field in self._schema.fields]
        report = pa.array([self._reporter.report({_ROWLESS: True})], pa.string())
        yield pa.RecordBatch.from_arrays([*filled, report], schema=add_report_field(schema))


@attrs.frozen
class SizesOnRows:
    """Lets the changes of upserts carry the sizes of the states of shards (`kdsl.run.upsert.read.compute_changelog`).

    Attributes:
        name: The name of the observation in the progress, unique in the query.
        row: The columns of the changes.
    """

    name: str
    row: t.Row

    def add_column(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return changes with the report column, in which none has a report."""
        nulls = pa.nulls(rows.num_rows, pa.string())
        return pa.RecordBatch.from_arrays([*rows.columns, nulls], schema=add_report_field(rows.schema))

    def report(self, sizes: Sequence[StateSize]) -> Iterator[pa.RecordBatch]:
        """Yield a row for each state that carries its size, and is removed afterwards."""
        for size in sizes:
            reporter = Reporter(f"shard {size[0]}")
            reporter.state([size])
            yield from RowReporter(reporter, self.row).finish()

    def observe(self, changes: DataFrame) -> DataFrame:
        """Return changes without the column, and without the rows of reports, which appear in Spark's progress."""
        return observe_reports(changes, self.name)


def add_report_field(schema: pa.Schema) -> pa.Schema:
    """Return a schema with the report column added."""
    return schema.append(pa.field(TASK_REPORT, pa.string()))


def _any_value(type_: t.DataType) -> Any:
    """Return any value of a type: NULL if it is nullable."""
    import datetime as dt
    from decimal import Decimal

    if type_.nullable:
        return None
    match type_:
        case t.Row():
            return {field.name: _any_value(field.type) for field in type_.fields}
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
