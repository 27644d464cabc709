"""The last change of each key of a changelog: what a table by key needs of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kdsl.formats import ROW_KIND
from kdsl.types.sql import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ROW, _PLACE, _KEY = "__kdsl_row", "__kdsl_place", "__kdsl_key"


def last_changes(df: DataFrame, keys: Sequence[str], order_by: Sequence[str] = ()) -> DataFrame:
    """The last change of each key: ``+U`` with the row that it has now, or ``-D``.

    A row before an update (``-U``) that nothing of its key follows is the end of the key: the update has given the row
    another key.

    Args:
        df: A changelog, no stream; without the column of the row kind each row is the one that its key has now.
        keys: The columns of the key. NULL in one of them fails the job.
        order_by: The columns that say which change is later; by default, and between equal ones, the DataFrame's own
            order says it: that of its partitions, and in each the order of its rows.

    Returns:
        The columns of the DataFrame, the row kind first. Of a delete only the key is sure to have values.
    """
    from pyspark.sql import functions as F

    names = [name for name in df.columns if name != ROW_KIND]
    kind = _kind(F.col(ROW_KIND)) if ROW_KIND in df.columns else F.lit("+U")
    parts = [_present(df, name).alias(f"{_KEY}{i}") for i, name in enumerate(keys)]
    row = F.struct(kind.alias(ROW_KIND), *(F.col(quoted(name)) for name in names))
    order = (F.col(quoted(name)).alias(f"order{i}") for i, name in enumerate(order_by))
    place = F.struct(*order, F.monotonically_increasing_id().alias("row"))
    marked = df.select(*parts, row.alias(_ROW), place.alias(_PLACE))
    last = marked.groupBy(*(f"{_KEY}{i}" for i in range(len(keys)))).agg(F.max_by(_ROW, _PLACE).alias(_ROW))
    return last.select(*(F.col(_ROW).getField(name).alias(name) for name in (ROW_KIND, *names)))


def _kind(column: Column) -> Column:
    from pyspark.sql import functions as F

    shown = F.coalesce(column, F.lit("NULL"))
    odd = F.raise_error(F.concat(F.lit(f"{ROW_KIND} has '"), shown, F.lit("', which is none of +I, -U, +U and -D")))
    return F.when(column.isin("+I", "+U"), "+U").when(column.isin("-U", "-D"), "-D").otherwise(odd)


def _present(df: DataFrame, name: str) -> Column:
    from pyspark.sql import functions as F

    column = F.col(quoted(name))
    if not df.schema[name].nullable:
        return column
    missing = F.raise_error(F.lit(f"the key column {name!r} is NULL in a row, so nothing says which row it changes"))
    return F.when(column.isNull(), missing).otherwise(column)
