"""The classes that make PySpark accept an object as a column; importing this module does not import PySpark."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from kdsl.spark_internals.session import is_spark_3

if TYPE_CHECKING:
    from pyspark.sql import Column

CONNECT_EXPRESSIONS = "pyspark.sql.connect.expressions"
"""The module of Spark Connect that converts values to literals, strings among them."""


def classic_column_class() -> type[Column]:
    """Import the class of the columns of classic sessions."""
    try:
        from pyspark.sql.classic.column import Column as ClassicColumn
    except ModuleNotFoundError:  # Spark 3.5 has one class only, or there is no PySpark
        from pyspark.sql import Column

        return Column
    return ClassicColumn


def cast_or_null(column: Column) -> Column:
    """Cast a column of strings to a timestamp; NULL for one that is none, also in ANSI mode."""
    from pyspark.sql import functions as sf

    # A column of Spark 3.5 has no `try_cast`, but takes any name for that of a member.
    return sf.try_to_timestamp(column) if is_spark_3() else column.try_cast("timestamp")


def column_methods() -> Mapping[str, Any]:
    """What PySpark's class of columns defines, by name; its methods are among it."""
    from pyspark.sql import Column

    return vars(Column)


def connect_column_class() -> type[Column]:
    """Import the class of the columns of Spark Connect; ImportError if its packages are not installed."""
    from pyspark.sql.connect.column import Column as ConnectColumn

    return ConnectColumn


def is_spark_column(value: object) -> TypeGuard[Column]:
    """Whether a value is a column of Spark; without an imported PySpark there are none."""
    module: Any = sys.modules.get("pyspark.sql")
    return module is not None and isinstance(value, module.Column)


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
