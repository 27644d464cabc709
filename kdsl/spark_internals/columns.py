"""The classes that make PySpark accept an object as a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column

try:
    from pyspark.sql.classic.column import Column as ClassicColumn
except ModuleNotFoundError:  # Spark 3.5: tables can be declared and checked there, and nothing more
    ClassicColumn = Column  # type: ignore[misc,assignment]

__all__ = ("CONNECT_EXPRESSIONS", "ClassicColumn", "ColumnProxy", "connect_column_class")

CONNECT_EXPRESSIONS = "pyspark.sql.connect.expressions"
"""The module of Spark Connect that converts values to literals, strings among them."""


def connect_column_class() -> type[Column]:
    """Import the class of the columns of Spark Connect, whose packages must be installed."""
    from pyspark.sql.connect.column import Column as ConnectColumn

    return ConnectColumn


class ColumnProxy:
    """The base of objects that PySpark uses as a column; a subclass returns the column as ``_column``."""

    if TYPE_CHECKING:

        @property
        def _column(self) -> Column: ...

    @property
    def _jc(self) -> Any:
        """Java's object of ``_column``, for classic sessions; AttributeError if that is a column of Spark Connect."""
        column: Any = self._column
        return column._jc  # noqa: SLF001

    @property
    def _expr(self) -> Any:
        """The expression of ``_column``, for Spark Connect; AttributeError if that is a column of a classic session."""
        column: Any = self._column
        return column._expr  # noqa: SLF001
