"""The key of a changelog, and the last change of each key, which is all that a table with a key needs of a batch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from kdsl.declare.definition import TableDef
from kdsl.errors import KdslError, nearest
from kdsl.formats import kind_column, unavailable_column
from kdsl.own_columns import KIND, LAST_KEY, LAST_KNOWN, LAST_POSITION, LAST_ROW, is_reserved
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

NULL_KEY = "is NULL in a row, and part of the primary key"
"""What errors say of a column of the key that is NULL."""


def choose_key(table: TableDef | None, keys: Iterable[str] | None = None) -> tuple[str, ...]:
    """Choose the columns that identify the row of a change: ``keys``, or else those that the table declares.

    Args:
        table: The table, whose key is its primary key, or else its message key; None if ``keys`` are given.
        keys: The columns, or the name of one, instead of the declared ones; they are not checked.
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


def choose_key_of_changelog(table: TableDef, keys: Iterable[str] | None) -> tuple[str, ...]:
    """Choose the key as `choose_key` does, and check that its columns exist, and that the table's rows are changes."""
    if not table.is_changelog:
        raise KdslError(
            f"{table.name} only inserts rows, so there is no last row of each key; use read(), declare an "
            "UpsertTable, or use a value format that carries changes, such as debezium-json"
        )
    key = choose_key(table, keys)
    names = [column.name for column in table.columns]
    if unknown := [name for name in key if name not in names]:
        raise KdslError(f"{table.name} has no column {unknown[0]!r}{nearest(unknown[0], names)}, named by keys=")
    return key


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

    own, unavailable = kind_column(df.columns), unavailable_column(df.columns)
    names = [name for name in df.columns if name != own]
    has_unavailable = unavailable in names
    others = [name for name in names if name not in (*keys, unavailable)]
    lacking = [name for name in others if has_unavailable and _may_lack(df, name, own)]
    kind = _kind(own) if own in df.columns else F.lit("+U")
    parts = [_present(df, name).alias(f"{LAST_KEY}{i}") for i, name in enumerate(keys)]
    row = F.struct(kind.alias(own), *(F.col(quote_name(name)) for name in names))
    order = (F.col(quote_name(name)).alias(f"order{i}") for i, name in enumerate(order_by))
    position = F.struct(*order, F.monotonically_increasing_id().alias("row"))
    marked = df.select(*parts, row.alias(LAST_ROW), position.alias(LAST_POSITION))
    if in_one_task:
        marked = marked.coalesce(1)  # after the position, because it does not keep the order of partitions
    known = (_last_known(df, name).alias(f"{LAST_KNOWN}{i}") for i, name in enumerate(lacking))
    last = marked.groupBy(*(f"{LAST_KEY}{i}" for i in range(len(keys)))).agg(
        F.max_by(LAST_ROW, LAST_POSITION).alias(LAST_ROW), *known
    )
    columns = {name: F.col(LAST_ROW).getField(name) for name in (own, *names)}
    known_names: list[Column] = []
    for i, name in enumerate(lacking):
        value = F.col(f"{LAST_KNOWN}{i}")
        filled = F.array_contains(F.col(LAST_ROW).getField(unavailable), name) & value.isNotNull()
        columns[name] = F.when(filled, value.getField("value")).otherwise(columns[name])
        known_names.append(F.when(value.isNotNull(), F.lit(name)))
    if known_names:  # one expression: nested ones would double with each column
        columns[unavailable] = F.array_except(columns[unavailable], F.array_compact(F.array(*known_names)))
    return last.select(*(column.alias(name) for name, column in columns.items()))


def _may_lack(df: DataFrame, name: str, kind: str) -> bool:
    """Whether changes may lack a column's value: those of fixed length are always sent.

    In rows of ingestions such a column may be computed from another one that is not.

    Args:
        df: The changelog.
        name: The column.
        kind: The name of the column of the row kind.
    """
    if kind == KIND:
        return not is_reserved(name)
    fixed = ("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "date", "timestamp", "timestamp_ntz")
    return df.schema[name].dataType.simpleString() not in fixed


def _last_known(df: DataFrame, name: str) -> Column:
    """The aggregate of a column's value in the last change, except deletes, that has it, in a struct; NULL if none."""
    from pyspark.sql import functions as F

    row, kind = F.col(LAST_ROW), kind_column(df.columns)
    has = ~F.array_contains(row.getField(unavailable_column(df.columns)), name)
    if kind in df.columns:
        has &= row.getField(kind) == "+U"  # a delete certainly has values only for its key
    return F.max_by(F.struct(row.getField(name).alias("value")), F.when(has, F.col(LAST_POSITION)))


def _kind(name: str) -> Column:
    """Return the column of the row kind with ``+U`` for ``+I`` and ``+U``, and ``-D`` for ``-U`` and ``-D``.

    Spark raises an error for an unknown kind, and for NULL.
    """
    from pyspark.sql import functions as F

    column = F.col(quote_name(name))
    shown = F.coalesce(column, F.lit("NULL"))
    unknown = F.raise_error(F.concat(F.lit(f"{name} has '"), shown, F.lit("', which is not one of +I, -U, +U and -D")))
    return F.when(column.isin("+I", "+U"), "+U").when(column.isin("-U", "-D"), "-D").otherwise(unknown)


def _present(df: DataFrame, name: str) -> Column:
    """Return a key column that makes Spark raise an error where it is NULL."""
    from pyspark.sql import functions as F

    column = F.col(quote_name(name))
    if not df.schema[name].nullable:
        return column
    missing = F.raise_error(F.lit(f"the key column {name!r} {NULL_KEY}"))
    return F.when(column.isNull(), missing).otherwise(column)
