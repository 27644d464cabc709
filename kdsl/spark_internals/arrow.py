"""Rows as Arrow, and functions over Arrow, where not every supported version of PySpark has a method for it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kdsl.spark_internals.session import is_connect, is_spark_3, java_session, jvm_of, keep_active_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

_PLAIN = re.compile(r"\w+")
"""A name that PySpark does not take for anything else."""


def to_arrow(df: DataFrame) -> pa.Table:
    """Bring all rows of a DataFrame to the driver, as ``DataFrame.toArrow`` does; Spark's errors are passed on."""
    if not is_spark_3():
        return df.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    frame: Any = df
    if is_connect(df.sparkSession):
        client = frame.sparkSession.client
        table, schema = client.to_table(frame._plan.to_proto(client))  # noqa: SLF001
        return table.cast(to_arrow_schema(df.schema if schema is None else schema))
    batches = frame._collect_as_arrow()  # noqa: SLF001
    schema = to_arrow_schema(df.schema)
    return pa.Table.from_batches(batches).cast(schema) if batches else schema.empty_table()


def dataframe_from_arrow(spark: SparkSession, table: pa.Table, schema: StructType | None = None) -> DataFrame:
    """Create a DataFrame of an Arrow table, as ``createDataFrame`` does; the active session stays the active one.

    Spark's errors are passed on.

    Args:
        spark: The session, classic or Connect.
        table: The rows, with the Arrow types that Spark exchanges for its own.
        schema: The schema of the DataFrame, with the columns of the table; None for that of the table, where a
            timestamp without a zone is TIMESTAMP_NTZ.
    """
    if schema is None:
        from pyspark.sql.pandas.types import from_arrow_schema

        schema = from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    if not is_spark_3():
        with keep_active_session(spark):
            return spark.createDataFrame(table, schema=schema)
    return _from_arrow_connect(spark, table, schema) if is_connect(spark) else _from_arrow(spark, table, schema)


def _from_arrow(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Create a DataFrame in a classic session of Spark 3, by what its ``createDataFrame`` of a pandas table calls."""
    from pyspark.sql import DataFrame
    from pyspark.sql.pandas.serializers import ArrowStreamSerializer

    context: Any = spark.sparkContext
    jvm = jvm_of(spark)
    # A stream without a batch has no schema, which Spark cannot read.
    batches = table.to_batches() or [pa.RecordBatch.from_pylist([], schema=table.schema)]
    rows = context._serialize_to_jvm(  # noqa: SLF001
        batches,
        ArrowStreamSerializer(),
        jvm.PythonSQLUtils.readArrowStreamFromFile,
        jvm.ArrowIteratorServer,
    )
    return DataFrame(jvm.PythonSQLUtils.toDataFrame(rows, schema.json(), java_session(spark)), spark)


def _from_arrow_connect(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """Create a DataFrame in a session of Spark Connect of Spark 3, as its ``createDataFrame`` does."""
    from pyspark.sql.connect import dataframe, plan

    session: Any = spark
    plans: Any = plan
    frames: Any = dataframe.DataFrame
    relation = plans.LocalRelation(table if table.num_rows else None, schema=schema.json())
    (limit,) = session.client.get_configs("spark.sql.session.localRelationCacheThreshold")
    if limit is not None and int(limit) <= table.nbytes:
        relation = plans.CachedLocalRelation(session._cache_local_relation(relation))  # noqa: SLF001
    created: DataFrame = frames.withPlan(relation, session)
    return created


def map_in_arrow(
    df: DataFrame, function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: StructType | str
) -> DataFrame:
    """The rows that a function makes of Arrow batches, as ``DataFrame.mapInArrow`` does, whatever columns are called.

    PySpark looks columns up by their names, without quotes: it takes a dot for a member, and finds two columns whose
    names differ only in letter case ambiguous. Such columns get other names on the way to the function.

    Args:
        df: The rows.
        function: Called in tasks, with the batches of a task; it can be pickled.
        schema: The columns of the result.
    """
    names = df.columns
    if all(_PLAIN.fullmatch(name) for name in names) and len({name.lower() for name in names}) == len(names):
        return df.mapInArrow(function, schema)
    renamed = df.toDF(*(f"c{i}" for i in range(len(names))))
    return renamed.mapInArrow(_RenameColumns(tuple(names), function), schema)


class _RenameColumns:
    """Calls a function with batches whose columns get other names.

    Args:
        names: The names, in the order of the columns.
        function: The function.
    """

    def __init__(
        self, names: tuple[str, ...], function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
    ) -> None:
        self._names, self._function = names, function

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return what the function returns."""
        return self._function(map(self._rename, batches))

    def _rename(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the names, and the nullability that it has."""
        fields = [field.with_name(name) for field, name in zip(batch.schema, self._names, strict=True)]
        return pa.RecordBatch.from_arrays(batch.columns, schema=pa.schema(fields))


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
