"""What makes PySpark take an object for a column."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column

try:
    from pyspark.sql.classic.column import Column as ClassicColumn
except ModuleNotFoundError:  # Spark 3.5: tables can be declared and checked there, and nothing more
    ClassicColumn = Column  # type: ignore[misc,assignment]

__all__ = ("ClassicColumn", "ColumnProxy")


class ColumnProxy:
    """An object that stands for a column of Spark; a subclass has it as ``_column``."""

    if TYPE_CHECKING:

        @property
        def _column(self) -> Column: ...

    @property
    def _jc(self) -> Any:
        """Java's object of the column, for classic sessions."""
        column: Any = self._column
        return column._jc  # noqa: SLF001

    @property
    def _expr(self) -> Any:
        """The expression of the column, for Spark Connect."""
        column: Any = self._column
        return column._expr  # noqa: SLF001
