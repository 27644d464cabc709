"""Typed rows to a DataFrame and back: ``rows()`` and ``collect()`` of a table class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
import pyarrow as pa

from kdsl.declare.classes.define import attributes, statements
from kdsl.declare.classes.reading import Attribute
from kdsl.declare.classes.rows import fill, row_kind, set_row_kind, writable
from kdsl.declare.classes.values import BadValueError, from_arrow, to_arrow
from kdsl.declare.definition import MISSING
from kdsl.errors import KdslError, listing
from kdsl.formats import ROW_KIND
from kdsl.resolve.changelog import changes
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema, arrow_type
from kdsl.types.spark import TIME_SWITCH, spark_schema, spark_type, without_time
from kdsl.types.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

R = TypeVar("R")


class RowError(KdslError, ValueError):
    """Rows that cannot become a DataFrame, or a DataFrame that holds no rows of the table."""


def data_frame(cls: type, rows: Iterable[Any], spark: SparkSession | None) -> DataFrame:
    """A DataFrame of rows of a table class: the columns that can be written.

    Raises:
        RowError: An object is no row of the table, or a value is none of its column's type.
    """
    from pyspark.sql import SparkSession

    session = spark or SparkSession.getActiveSession()
    if session is None:
        raise RowError(f"{cls.__name__}.rows(...) needs a Spark session, and none is active; give it as spark=")
    given = list(rows)
    for i, row in enumerate(given):
        if not isinstance(row, cls):
            raise RowError(f"{cls.__name__}.rows(...): row {i} is {row!r}, not a row of {cls.__name__}")
    columns = [a for a in attributes(cls)[0].values() if writable(a)]
    _check_time(cls, columns, session)
    arrays = [pa.array([_value(cls, i, r, a) for i, r in enumerate(given)], arrow_type(a.column.type)) for a in columns]
    kind = _row_type(columns)
    if _is_changelog(cls):
        arrays.insert(0, pa.array([row_kind(row) for row in given], pa.string()))
        kind = t.Row((t.Field(ROW_KIND, t.STRING.as_nullable(False)), *kind.fields), nullable=False)
    else:
        _only_new(cls, given)
    table = pa.Table.from_arrays(arrays, schema=arrow_schema(kind))
    return session.createDataFrame(table, schema=spark_schema(kind))


def _check_time(cls: type, columns: Iterable[Attribute], session: SparkSession) -> None:
    if told := without_time(_row_type(columns), session.conf.get(TIME_SWITCH, "false")):
        raise RowError(f"{cls.__name__}.rows(...): {told}")


def _row_type(columns: Iterable[Attribute]) -> t.Row:
    return t.Row(tuple(t.Field(a.column.name, a.column.type, a.column.comment) for a in columns), nullable=False)


def _is_changelog(cls: type) -> bool:
    return changes(cls.definition())  # type: ignore[attr-defined]


def _only_new(cls: type, rows: list[Any]) -> None:
    for i, row in enumerate(rows):
        if row_kind(row) != "+I":
            raise RowError(
                f"{cls.__name__}.rows(...): row {i} says {row_kind(row)}, but the value format of {cls.__name__} only "
                "inserts; leave the row out, or use a format that carries changes, as debezium-json"
            )


def _value(cls: type, index: int, row: Any, attribute: Attribute) -> Any:
    try:
        return to_arrow(getattr(row, attribute.name), attribute.column.type)
    except BadValueError as e:
        place = f"row {index}, column {attribute.column.name!r}"
        raise RowError(f"{cls.__name__}.rows(...): {place} ({attribute.column.type}): {e}") from None


def collect(cls: type[R], df: DataFrame) -> list[R]:
    """The rows of a DataFrame as rows of a table class.

    Raises:
        RowError: Columns are missing, left over, or of other types.
    """
    found, _ = attributes(cls)
    by_column = {a.column.name: a for a in found.values()}
    changelog = ROW_KIND in df.columns and _is_changelog(cls)
    _check(cls, df.drop(ROW_KIND) if changelog else df, by_column)
    names = [n for n in df.columns if n != ROW_KIND or not changelog]
    reading = {a.name: statement.names for statement in statements(cls) for a in statement.attributes()[0]}
    columns = []
    rows = _loosened(df, by_column).toArrow()
    kinds = rows.column(ROW_KIND).to_pylist() if changelog else []
    for name in names:
        a = by_column[name]
        values = rows.column(name).to_pylist()
        columns.append([from_arrow(v, a.column.type, a.annotation, reading[a.name]) for v in values])
    made = []
    for values in zip(*columns, strict=True):
        row = cls.__new__(cls)
        carried = dict(zip((by_column[n].name for n in names), values, strict=True))
        fill(row, {n: v for n, v in carried.items() if writable(found[n])})
        vars(row).update({n: v for n, v in carried.items() if not writable(found[n])})
        made.append(row)
    for row, kind in zip(made, kinds, strict=False):
        set_row_kind(row, kind)
    return made


def _loosened(df: DataFrame, by_column: Mapping[str, Attribute]) -> DataFrame:
    """The DataFrame without NOT NULL inside its columns, which pyspark cannot bring to Arrow where a row is NULL."""
    from pyspark.sql import functions as F

    columns = [F.col(quoted(n)) for n in df.columns]
    kinds = [by_column[n].column.type if n in by_column else t.STRING for n in df.columns]
    loosened = (spark_type(_loose(k)) if _has(t.Row, k) else None for k in kinds)
    return df.select([c if k is None else c.cast(k) for c, k in zip(columns, loosened, strict=True)])


def _has(sought: type[t.DataType], kind: t.DataType) -> bool:
    return isinstance(kind, sought) or any(_has(sought, child) for child in t.children(kind))


def _loose(kind: t.DataType) -> t.DataType:
    match kind:
        case t.Array(element=element):
            return t.Array(_loose(element))
        case t.Map(key=key, value=value):
            return t.Map(_loose(key), _loose(value))
        case t.Row(fields=fields):
            return t.Row(tuple(attrs.evolve(f, type=_loose(f.type)) for f in fields))
        case _:
            return kind.as_nullable()


def _check(cls: type, df: DataFrame, by_column: Mapping[str, Attribute]) -> None:
    wrong: list[str] = []
    given = {f.name: f.dataType for f in df.schema.fields}
    surplus = [n for n in given if n not in by_column]
    if surplus:
        told = f"{listing(surplus)} {'is' if len(surplus) == 1 else 'are'} no column of {cls.__name__}"
        wrong.append(f"{told}, which df.drop({', '.join(map(repr, surplus))}) leaves out")
    for name, attribute in by_column.items():
        kind = spark_type(attribute.column.type)
        if name not in given:
            if writable(attribute) and attribute.declared.default is MISSING:
                wrong.append(f"there is no column {name!r}")
        elif given[name].simpleString() != kind.simpleString():  # which says nothing of nullability
            wrong.append(f"{name!r} is {given[name].simpleString()}, not {kind.simpleString()}")
    if len(df.columns) != len(given):
        wrong.append("some columns have the same name")
    if wrong:
        raise RowError(f"{cls.__name__}.collect(...): {'; '.join(wrong)}")
