"""Typed rows to a DataFrame and back: ``rows()`` and ``collect()`` of a table class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from kdsl.declare.definition import MISSING, TableDef
from kdsl.declare.dsl.column_reader import ClassColumn
from kdsl.declare.dsl.rows import fill, is_constructor_argument, row_kind, set_row_kind
from kdsl.declare.dsl.table_def import read_columns
from kdsl.declare.dsl.values import BadValueError, from_arrow, to_arrow
from kdsl.errors import RowError, listing
from kdsl.formats import ROW_KIND
from kdsl.run.dataframes.collect import collect_arrow
from kdsl.run.session import get_setting
from kdsl.spark_internals.arrow import dataframe_from_arrow
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema, arrow_type
from kdsl.types.arrow_values import find_text, python_values
from kdsl.types.spark import TIME_TYPE_SETTING, spark_schema, spark_type, time_type_problem
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

R = TypeVar("R")


def create_dataframe(cls: type, rows: Iterable[Any], spark: SparkSession | None) -> DataFrame:
    """Create a DataFrame of rows of a table class, with the columns that can be written and, in a changelog, row kinds.

    Args:
        cls: The table class.
        rows: Its rows.
        spark: The session; None for the active one.
    """
    from pyspark.sql import SparkSession

    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise RowError(f"{cls.__name__}.rows(...) needs a Spark session, and none is active; give it as spark=")
    objects = list(rows)
    for i, row in enumerate(objects):
        if not isinstance(row, cls):
            raise RowError(f"{cls.__name__}.rows(...): row {i} is {row!r}, not a row of {cls.__name__}")
    columns = [a for a in read_columns(cls)[0].values() if is_constructor_argument(a)]
    _check_time(cls, columns, session)
    arrays = [
        pa.array([_value(cls, i, r, a) for i, r in enumerate(objects)], arrow_type(a.column.type)) for a in columns
    ]
    kind = _row_type(columns)
    if _is_changelog(cls):
        arrays.insert(0, pa.array([row_kind(row) for row in objects], pa.string()))
        kind = t.Row((t.Field(ROW_KIND, t.STRING.as_nullable(False)), *kind.fields), nullable=False)
    else:
        _check_inserts(cls, objects)
    table = pa.Table.from_arrays(arrays, schema=arrow_schema(kind))
    return dataframe_from_arrow(session, table, spark_schema(kind))


def _check_time(cls: type, columns: Iterable[ClassColumn], session: SparkSession) -> None:
    """Check that Spark's TIME type is enabled in the session, if a column needs it."""
    if problem := time_type_problem(_row_type(columns), get_setting(session, TIME_TYPE_SETTING, "false")):
        raise RowError(f"{cls.__name__}.rows(...): {problem}")


def _row_type(columns: Iterable[ClassColumn]) -> t.Row:
    """Return the type of rows with the columns."""
    return t.Row(tuple(t.Field(a.column.name, a.column.type, a.column.comment) for a in columns), nullable=False)


def _is_changelog(cls: type) -> bool:
    """Return whether rows of a table class have row kinds."""
    definition: TableDef = cls.definition()  # type: ignore[attr-defined]
    return definition.is_changelog


def _check_inserts(cls: type, rows: list[Any]) -> None:
    """Check that all rows are inserts."""
    for i, row in enumerate(rows):
        if row_kind(row) != "+I":
            raise RowError(
                f"{cls.__name__}.rows(...): row {i} has the row kind {row_kind(row)}, but the value format of "
                f"{cls.__name__} only inserts; leave out the row, or use a format that carries changes, such as "
                "debezium-json"
            )


def _value(cls: type, index: int, row: Any, attribute: ClassColumn) -> Any:
    """Return the value of an attribute of a row, converted for Arrow to the type of its column."""
    try:
        return to_arrow(getattr(row, attribute.name), attribute.column.type)
    except BadValueError as e:
        where = f"row {index}, column {attribute.column.name!r}"
        raise RowError(f"{cls.__name__}.rows(...): {where} ({attribute.column.type}): {e}") from None


def collect(cls: type[R], df: DataFrame) -> list[R]:
    """Collect the rows of a DataFrame on the driver as rows of a table class, with row kinds if both have them.

    A missing column has its default; a missing computed or virtual column is not set. Only enums are checked.
    """
    class_columns, _ = read_columns(cls)
    by_column = {a.column.name: a for a in class_columns.values()}
    changelog = ROW_KIND in df.columns and _is_changelog(cls)
    _check_columns(cls, df.drop(ROW_KIND) if changelog else df, by_column)
    names = [n for n in df.columns if n != ROW_KIND or not changelog]
    columns = []
    rows = collect_arrow(df)
    kinds = rows.column(ROW_KIND).to_pylist() if changelog else []
    for name in names:
        a = by_column[name]
        values = python_values(rows.column(name))
        _check_values(cls, name, a, values)
        columns.append([from_arrow(v, a.column.type, a.annotation, a.namespace) for v in values])
    result = []
    for row_values in zip(*columns, strict=True):
        row = cls.__new__(cls)
        carried = dict(zip((by_column[n].name for n in names), row_values, strict=True))
        fill(row, {n: v for n, v in carried.items() if is_constructor_argument(class_columns[n])})
        vars(row).update({n: v for n, v in carried.items() if not is_constructor_argument(class_columns[n])})
        result.append(row)
    for row, kind in zip(result, kinds, strict=False):
        set_row_kind(row, kind)
    return result


def _check_values(cls: type, name: str, attribute: ClassColumn, values: list[Any]) -> None:
    """Check that Python has all values of a column."""
    for i, value in enumerate(values):
        if (text := find_text(value)) is not None:
            raise RowError(
                f"{cls.__name__}.collect(...): row {i}, column {name!r} ({attribute.column.type}): the value {text} is "
                f"outside the values of Python's types; leave such rows out of the DataFrame, or collect the column as "
                f"text with df.selectExpr({f'CAST({quote_name(name)} AS STRING)'!r})"
            )


def _check_columns(cls: type, df: DataFrame, by_column: Mapping[str, ClassColumn]) -> None:
    """Check that a DataFrame has the columns of a class, with their types and no others.

    Columns with a default, computed and virtual ones may be missing. Nullability is not compared.
    """
    wrong: list[str] = []
    types = {f.name: f.dataType for f in df.schema.fields}
    surplus = [n for n in types if n not in by_column]
    if surplus:
        problem = (
            f"{listing(surplus)} {'is not a column' if len(surplus) == 1 else 'are not columns'} of {cls.__name__}"
        )
        wrong.append(f"{problem}; remove them with df.drop({', '.join(map(repr, surplus))})")
    for name, attribute in by_column.items():
        kind = spark_type(attribute.column.type)
        if name not in types:
            if is_constructor_argument(attribute) and attribute.descriptor.default is MISSING:
                wrong.append(f"there is no column {name!r}")
        elif types[name].simpleString() != kind.simpleString():  # which says nothing of nullability
            wrong.append(f"{name!r} is {types[name].simpleString()}, not {kind.simpleString()}")
    if len(df.columns) != len(types):
        wrong.append("some columns have the same name")
    if wrong:
        raise RowError(f"{cls.__name__}.collect(...): {'; '.join(wrong)}")
