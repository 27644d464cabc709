"""The key of a changelog, and the last change of each key, which is all that a table with a key needs of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kdsl.declare.definition import TableDef
from kdsl.errors import KdslError
from kdsl.formats import ROW_KIND, UNAVAILABLE
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NULL_KEY = "is NULL in a row, and part of the primary key"
"""What errors say of a column of the key that is NULL."""
_ROW, _ORDER, _KEY, _KNOWN = "__kdsl_row", "__kdsl_order", "__kdsl_key", "__kdsl_known"


def choose_key(table: TableDef | None, keys: Iterable[str] | None = None) -> tuple[str, ...]:
    """Choose the columns that identify the row of a change: ``keys``, or else those that the table declares.

    Args:
        table: The table, whose key is its primary key, or else its message key; None if ``keys`` are given.
        keys: The columns, or the name of one, instead of the declared ones; they are not checked.

    Raises:
        KdslError: Neither the arguments nor the table name a column.
    """
    chosen = tuple(map(str, [keys] if isinstance(keys, str) else keys or ()))
    declared = () if table is None else table.primary_key or table.message_key
    if chosen or declared:
        return chosen or declared
    name = "the changelog" if table is None else table.name
    raise KdslError(
        f"{name}: the key of the rows is unknown; "
        + ("pass the table, or keys=[...]" if table is None else "declare a PrimaryKey, or pass keys=[...]")
    )


def last_changes(
    df: DataFrame, keys: Sequence[str], order_by: Sequence[str] = (), *, in_one_task: bool = False
) -> DataFrame:
    """Compute the last change of each key: ``+U`` with the row that it has now, or ``-D``.

    A last ``+I`` becomes ``+U``, and a last ``-U`` becomes ``-D``. Another row kind fails the job.

    Args:
        df: A changelog, not a stream; without the column of the row kind each row is the present row of its key.
        keys: The columns of the key. A NULL in one of them fails the job.
        order_by: The columns by which changes are ordered; by default, and for equal values, it is the DataFrame's own
            order: that of its partitions, and of the rows in each.
        in_one_task: Whether one task finds the last changes, which takes less time than a shuffle of few rows.

    Returns:
        The columns of the DataFrame, with the row kind first. A delete certainly has values only for its key. A column
        without a value in the last change (`kdsl.formats.UNAVAILABLE`) has that of the last change with one, if any,
        and is then not listed as unavailable.
    """
    from pyspark.sql import functions as F

    names = [name for name in df.columns if name != ROW_KIND]
    lacking = [name for name in names if name not in keys and _may_lack(df, name)] if UNAVAILABLE in names else []
    kind = _kind(F.col(ROW_KIND)) if ROW_KIND in df.columns else F.lit("+U")
    parts = [_present(df, name).alias(f"{_KEY}{i}") for i, name in enumerate(keys)]
    row = F.struct(kind.alias(ROW_KIND), *(F.col(quote_name(name)) for name in names))
    order = (F.col(quote_name(name)).alias(f"order{i}") for i, name in enumerate(order_by))
    position = F.struct(*order, F.monotonically_increasing_id().alias("row"))
    marked = df.select(*parts, row.alias(_ROW), position.alias(_ORDER))
    if in_one_task:
        marked = marked.coalesce(1)  # after the position, because it does not keep the order of partitions
    known = (_last_known(df, name).alias(f"{_KNOWN}{i}") for i, name in enumerate(lacking))
    last = marked.groupBy(*(f"{_KEY}{i}" for i in range(len(keys)))).agg(F.max_by(_ROW, _ORDER).alias(_ROW), *known)
    columns = {name: F.col(_ROW).getField(name) for name in (ROW_KIND, *names)}
    for i, name in enumerate(lacking):
        value = F.col(f"{_KNOWN}{i}")
        filled = F.array_contains(F.col(_ROW).getField(UNAVAILABLE), name) & value.isNotNull()
        columns[name] = F.when(filled, value.getField("value")).otherwise(columns[name])
        columns[UNAVAILABLE] = F.when(value.isNull(), columns[UNAVAILABLE]).otherwise(
            F.array_remove(columns[UNAVAILABLE], name)
        )
    return last.select(*(column.alias(name) for name, column in columns.items()))


def _may_lack(df: DataFrame, name: str) -> bool:
    """Whether changes may lack a column's value: those of fixed length, and `UNAVAILABLE` itself, are always sent."""
    fixed = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz")
    return name != UNAVAILABLE and df.schema[name].dataType.simpleString() not in fixed


def _last_known(df: DataFrame, name: str) -> Column:
    """The aggregate of a column's value in the last change, except deletes, that has it, in a struct; NULL if none."""
    from pyspark.sql import functions as F

    row = F.col(_ROW)
    has = ~F.array_contains(row.getField(UNAVAILABLE), name)
    if ROW_KIND in df.columns:
        has &= row.getField(ROW_KIND) == "+U"  # a delete certainly has values only for its key
    return F.max_by(F.struct(row.getField(name).alias("value")), F.when(has, F.col(_ORDER)))


def _kind(column: Column) -> Column:
    """Return a column with ``+U`` for ``+I`` and ``+U``, and ``-D`` for ``-U`` and ``-D``.

    Spark raises an error for an unknown kind, and for NULL.
    """
    from pyspark.sql import functions as F

    shown = F.coalesce(column, F.lit("NULL"))
    unknown = F.raise_error(
        F.concat(F.lit(f"{ROW_KIND} has '"), shown, F.lit("', which is not one of +I, -U, +U and -D"))
    )
    return F.when(column.isin("+I", "+U"), "+U").when(column.isin("-U", "-D"), "-D").otherwise(unknown)


def _present(df: DataFrame, name: str) -> Column:
    """Return a key column that makes Spark raise an error where it is NULL."""
    from pyspark.sql import functions as F

    column = F.col(quote_name(name))
    if not df.schema[name].nullable:
        return column
    missing = F.raise_error(F.lit(f"the key column {name!r} {NULL_KEY}"))
    return F.when(column.isNull(), missing).otherwise(column)
