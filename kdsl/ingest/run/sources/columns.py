"""How a column of a database is read: the database writes what Spark reads without loss."""

from __future__ import annotations

import attrs

from kdsl.types import model as t
from kdsl.types.spark import spark_type_name
from kdsl.types.sql import literal, quote_name


@attrs.frozen
class ReadColumn:
    """How a column of a database is read.

    Attributes:
        name: Its name.
        type: Its type.
        sql: What the database selects, in its own SQL.
        conversion: What Spark makes of the value ``{0}`` before it becomes the type.
        has_type: Whether what Spark reads has the type already.
    """

    name: str
    type: t.DataType
    sql: str
    conversion: str = "{0}"
    has_type: bool = False

    def spark_sql(self, selected: str, table: str) -> str:
        """The Spark SQL of the column, of its type; a value that the type does not hold fails the job.

        Strings, bytes and booleans, and columns that have their type already, are not checked.

        Args:
            selected: The name of what the database selected.
            table: The table, for messages.
        """
        value = self.conversion.format(quote_name(selected))
        if self.has_type:
            return value
        return cast_sql(
            value, self.type, f"{table}, column {self.name!r}: {self.type} does not hold a value that it has"
        )


def cast_sql(value: str, kind: t.DataType, problem: str) -> str:
    """The Spark SQL of a string as a value of a type; one that the type does not hold fails the job with a message.

    Strings, bytes and booleans are not checked.
    """
    name = spark_type_name(kind)
    if name in ("STRING", "BINARY", "BOOLEAN"):
        return value
    error = f"raise_error({literal(problem)[0]})"
    return f"CASE WHEN {value} IS NOT NULL THEN coalesce(TRY_CAST({value} AS {name}), {error}) END"
