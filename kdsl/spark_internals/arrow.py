"""Rows as Arrow, and functions over Arrow, where not every supported version of PySpark has a method for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kdsl.spark_internals.session import is_spark_3

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


def to_arrow(df: DataFrame) -> pa.Table:
    """Bring all rows of a DataFrame to the driver, as ``DataFrame.toArrow`` does; Spark's errors are passed on."""
    if not is_spark_3():
        return df.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    frame: Any = df
    schema = to_arrow_schema(df.schema)
    batches = frame._collect_as_arrow()  # noqa: SLF001
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def apply_in_groups(
    df: DataFrame, column: str, function: Callable[[pa.Table], pa.Table], schema: StructType
) -> DataFrame:
    """The rows that a function makes of each group of rows, as ``GroupedData.applyInArrow`` does.

    Args:
        df: The rows.
        column: The column whose values are the groups, an integer that is not NULL.
        function: Called in tasks, with all rows of a group; its annotations name Arrow's classes.
        schema: The columns of the result.
    """
    if not is_spark_3():
        return df.groupBy(column).applyInArrow(function, schema)
    together = df.repartition(column).sortWithinPartitions(column)
    return together.mapInArrow(_ApplyToGroups(column, function), schema)


class _ApplyToGroups:
    """Calls a function with each group of a task's rows; those of a group follow one another.

    Args:
        column: The column whose values are the groups.
        function: The function.
    """

    def __init__(self, column: str, function: Callable[[pa.Table], pa.Table]) -> None:
        self._column, self._function = column, function

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all groups."""
        group: int | None = None
        rows: list[pa.RecordBatch] = []
        for batch in batches:
            start = 0
            for i, value in enumerate(batch.column(self._column).to_pylist()):
                if value == group:
                    continue
                if i > start:
                    rows.append(batch.slice(start, i - start))
                yield from self._apply(rows)
                group, rows, start = value, [], i
            if batch.num_rows > start:
                rows.append(batch.slice(start))
        yield from self._apply(rows)

    def _apply(self, rows: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the function makes of a group; nothing of no rows."""
        if rows:
            yield from self._function(pa.Table.from_batches(rows)).to_batches()
