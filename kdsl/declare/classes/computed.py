"""Computed columns in the body of a table class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, overload

from pyspark.sql import Column as SparkColumn

from kdsl.declare.classes.columns import Virtual
from kdsl.declare.classes.sql import BodyError, Recorded
from kdsl.types.python import SqlType

T = TypeVar("T")


class Computed(Virtual[T]):
    """A column that is worked out from others, made by `computed` or `expression`.

    Attributes:
        function: The body, which takes a row, or what stands for it while an expression is made.
        sql: The expression where it is given as SQL, which only Spark works out.
        flink: The same where it is Flink's SQL.
        by_spark: Whether the body makes Spark columns, so that a row cannot work it out; known once the definition of
            the table was made.
    """

    def __init__(
        self, function: Callable[[Any], Any], sql: str | None = None, flink: str | None = None, **said: Any
    ) -> None:
        super().__init__(**said)
        self.function, self.sql, self.flink, self.by_spark = function, sql, flink, False

    def absent(self, row: object) -> Any:
        """Work it out from the row's values."""
        type(row).definition()  # type: ignore[attr-defined]  # every row is one of a table class
        if not self.by_spark:
            return self.function(row)
        name = type(row).__name__
        raise AttributeError(
            f"{name}.{self.attribute} is worked out by Spark, so only rows that were read have it; "
            f"{name}.collect(df) makes such rows"
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
    """A column that is worked out from others; its body is arithmetic on the values of a row.

    ```python
    @computed
    def total(self) -> Decimal:
        return self.amount * self.quantity
    ```

    On a row the body runs as it stands. For the DataFrame it is called once with names in place of the values, and what
    it does becomes an SQL expression: ``+ - * / %``, comparisons, ``& | ~``, ``abs``, ``upper()``, ``lower()``,
    ``startswith()``, ``endswith()``, members of rows, literals, other computed columns. A body may use pyspark's
    functions instead, as ``F.upper(self.name)``: then only Spark can work it out, and rows have it when they were read.

    Args:
        function: The body; its return annotation gives the type.
        type: As for `col`.
        watermark: As for `col`.
        comment: What the column means; by default the docstring of the body.
        name: As for `col`.
    """
    said: dict[str, Any] = {"type": type, "watermark": watermark, "comment": comment, "name": name}
    return Computed(function, **said) if function is not None else lambda f: Computed(f, **said)


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
    """A column that is worked out from others by an expression in SQL.

    ```python
    total: Virtual[Decimal] = expression("amount * quantity", type="decimal(12, 2)")
    ```

    As tables from SQL and YAML have it. `computed` is typed more sharply, and is worked out on rows, too; only rows
    that were read have this one.

    Args:
        sql: The expression, over the names of the columns.
        dialect: Whose SQL it is; Flink's, as computed columns of its DDL are written, is translated.
        type: As for `col`; the result is cast to it.
        watermark: As for `col`.
        comment: As for `col`.
        name: As for `col`.
        init: For type checkers; not to be given.
    """
    del init

    given: object = sql  # a class statement may hold anything

    def body(row: Any) -> Recorded:
        if not isinstance(given, str) or not given.strip():
            raise BodyError(f"the expression is {given!r}", "write SQL, as expression('amount * 2')")
        text = given if dialect == "spark" else _translated(given, row._kdsl_row[0])  # noqa: SLF001
        return Recorded(text, None, compound=True)

    flink = sql if dialect == "flink" else None
    return Computed(body, sql=sql, flink=flink, type=type, watermark=watermark, comment=comment, name=name)


def _translated(sql: str, columns: Mapping[str, Any]) -> str:
    """An expression of Flink's SQL in Spark's."""
    from kdsl.declare.translate import UntranslatableError, typed_expression

    try:
        return typed_expression(sql, {c.name: c.type for c in columns.values() if c.body is None}).text
    except UntranslatableError as e:
        raise BodyError(f"the expression {sql!r} cannot be translated: {e.reason}", e.fix) from None


def as_value(column: SparkColumn) -> T:  # type: ignore[type-var]  # pyright: ignore[reportInvalidTypeVarUse]
    """Tell a type checker that a Spark column stands for its value in the body of a `computed` column.

    ``return as_value(F.upper(self.name))`` in a body that is annotated ``-> str``; at run time it is the column itself.
    """
    made: Any = column
    return made  # type: ignore[no-any-return]
