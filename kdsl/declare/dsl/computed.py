"""Computed columns in the body of a table class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from kdsl.declare.dsl.columns import Virtual
from kdsl.declare.dsl.sql_expression import BodyError, SqlExpression
from kdsl.types.python import SqlType

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

T = TypeVar("T")


class Computed(Virtual[T]):
    """A column that is computed from others, created by `computed` or `expression`.

    Attributes:
        function: The body, which takes a row, or an object that replaces it while the expression is recorded.
        sql: The expression, if it was written in SQL, which only Spark computes.
        flink: The same, if it was written in Flink's SQL.
        by_spark: Whether the body creates Spark columns, so that a row cannot compute it; known when the definition
            of the table was created.
    """

    def __init__(
        self, function: Callable[[Any], Any], sql: str | None = None, flink: str | None = None, **declared: Any
    ) -> None:
        super().__init__(**declared)
        self.function, self.sql, self.flink, self.by_spark = function, sql, flink, False

    def absent(self, row: object) -> Any:
        """Compute the column's value from the row's other values, each time that the attribute is read.

        The first call creates the definition of the table, which sets ``by_spark``. Errors of the body are not caught.

        Raises:
            AttributeError: Only Spark can compute the column, so only rows that were read have it.
        """
        type(row).definition()  # type: ignore[attr-defined]  # every row is one of a table class
        if not self.by_spark:
            return self.function(row)
        name = type(row).__name__
        raise AttributeError(
            f"{name}.{self.attribute} is computed by Spark, so only rows that were read with it have it; "
            f"{name}.collect(df) returns such rows if df has the column"
        )


@overload
def computed(function: Callable[[Any], T], /) -> Virtual[T]: ...
@overload
def computed(
    *,
    type: SqlType | None = None,
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
) -> Callable[[Callable[[Any], T]], Virtual[T]]: ...
def computed(
    function: Callable[[Any], Any] | None = None,
    /,
    *,
    type: SqlType | None = None,  # noqa: A002
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
) -> Any:
    """A column that is computed from others; its body is arithmetic on the values of a row.

    ```python
    @computed
    def total(self) -> Decimal:
        return self.amount * self.quantity
    ```

    On a row the body runs as Python. For a DataFrame it is called once with expressions instead of values, and its
    operations become an SQL expression: ``+ - * / %``, comparisons, ``& | ~``, ``abs``, ``upper()``, ``lower()``,
    ``startswith()``, ``endswith()``, members of rows, literals, other computed columns. A body may use pyspark's
    functions instead, such as ``F.upper(self.name)``: then only Spark can compute it, and only rows that were read have
    it. The body is not called here; that it fails on expressions is an error when the table is first used.

    Args:
        function: The body; its return annotation gives the type. Without it a decorator is returned.
        type: As for `col`.
        watermark: As for `col`.
        comment: What the column means; by default the docstring of the body.
        name: As for `col`.
    """
    declared: dict[str, Any] = {"type": type, "watermark": watermark, "comment": comment, "name": name}
    return Computed(function, **declared) if function is not None else lambda f: Computed(f, **declared)


def expression(
    sql: str,
    *,
    dialect: Literal["spark", "flink"] = "spark",
    type: SqlType | None = None,  # noqa: A002
    watermark: str | None = None,
    comment: str | None = None,
    name: str | None = None,
    init: Literal[False] = False,
) -> Any:
    """A column that is computed from others by an expression in SQL.

    ```python
    total: Virtual[Decimal] = expression("amount * quantity", type="decimal(12, 2)")
    ```

    Tables from SQL and YAML have such columns. `computed` is typed more precisely, and rows compute it, too; this one
    only rows that were read have. Nothing is raised here for a wrong expression: it is an error when the table is first
    used.

    Args:
        sql: The expression, over the names of the columns.
        dialect: Whose SQL it is; Flink's, as computed columns of its DDL are written, is translated.
        type: As for `col`; the result is cast to it.
        watermark: As for `col`.
        comment: As for `col`.
        name: As for `col`.
        init: For type checkers only.
    """
    del init

    text: object = sql  # a class statement may hold anything

    def body(row: Any) -> SqlExpression:
        if not isinstance(text, str) or not text.strip():
            raise BodyError(f"the expression is {text!r}", "write SQL, such as expression('amount * 2')")
        spark_sql = text if dialect == "spark" else _translate(text, row._kdsl_row[0])  # noqa: SLF001
        return SqlExpression(spark_sql, None, compound=True)

    flink = sql if dialect == "flink" else None
    return Computed(body, sql=sql, flink=flink, type=type, watermark=watermark, comment=comment, name=name)


def _translate(sql: str, columns: Mapping[str, Any]) -> str:
    """Translate an expression from Flink's SQL to Spark's.

    Args:
        sql: The expression.
        columns: The `BodyColumn` objects of the table; it may use those that are not computed.
    """
    from kdsl.flink_sql.expressions.translator import translate_expression
    from kdsl.flink_sql.syntax.errors import UntranslatableError

    try:
        return translate_expression(sql, {c.name: c.type for c in columns.values() if c.body is None}).text
    except UntranslatableError as e:
        raise BodyError(f"the expression {sql!r} cannot be translated: {e.reason}", e.fix) from None


def as_value(column: SparkColumn) -> T:  # type: ignore[type-var]  # pyright: ignore[reportInvalidTypeVarUse]
    """Make a type checker treat a Spark column as its value in the body of a `computed` column.

    ``return as_value(F.upper(self.name))`` in a body that is annotated ``-> str``; at run time it is the column itself.
    """
    value: Any = column
    return value  # type: ignore[no-any-return]
