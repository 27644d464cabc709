"""Records the body of a computed column as an expression: the body runs once on columns instead of values.

The operators that it applies become SQL (`kdsl.declare.dsl.sql_expression`). A body that calls pyspark's functions
cannot be recorded: it runs again, on Spark columns, when there is a session.
"""

from __future__ import annotations

import ast
import dis
import inspect
import textwrap
import traceback
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.declare.definition import Expression
from kdsl.declare.dsl.sql_expression import BodyError, SqlExpression, to_sql
from kdsl.errors import listing, nearest
from kdsl.spark_internals.columns import is_spark_column
from kdsl.spark_internals.sql_text import parse_column
from kdsl.types import model as t
from kdsl.types.spark import simple_string, spark_type
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import Column


@attrs.frozen
class BodyColumn:
    """A column that the body of a computed column can use.

    Attributes:
        name: The column's name.
        type: Its type.
        body: The body, if the column is computed.
    """

    name: str
    type: t.DataType
    body: Callable[[Any], Any] | None = None


def record_expression(
    name: str, body: Callable[[Any], Any], columns: Mapping[str, BodyColumn], owner: type
) -> Expression:
    """Run the body of a computed column on expressions, and return the expression that it computes.

    A body that calls pyspark's functions is not run to its end; it runs again when the expression is used.

    Args:
        name: The attribute.
        body: The function, which takes a row.
        columns: The columns by attribute.
        owner: The table class, whose other attributes the body may use.
    """
    _refuse_identity(body)
    row = _Row(columns, owner, _as_sql, name)
    try:
        result = body(row)
    except Exception as e:
        if _is_raised_in_spark(e):
            return _spark_expression(name, body, columns, owner)
        if isinstance(e, BodyError):
            raise
        raise BodyError(f"the body fails when it runs on columns: {type(e).__name__}: {e}") from e
    if is_spark_column(result):
        return _spark_expression(name, body, columns, owner)
    if result is None and _returns_nothing(body):
        raise BodyError("the body returns nothing", "return the expression")
    return Expression(to_sql(result).text)


def _spark_expression(
    name: str, body: Callable[[Any], Any], columns: Mapping[str, BodyColumn], owner: type
) -> Expression:
    """Return an expression that runs the body with Spark columns whenever it is used.

    Using it raises BodyError if the body returns anything but a Spark column; errors of the body are not caught.
    """

    def column() -> Column:
        result = body(_Row(columns, owner, _as_column, name))
        if not is_spark_column(result):
            raise BodyError(f"the body of {owner.__name__}.{name} returns {result!r}, which is not a Spark column")
        return result

    return Expression(_source_text(body), column)


def _returns_nothing(body: Callable[[Any], Any]) -> bool:
    """Whether the source of a body can be read, and has no ``return``."""
    try:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(body))).body
    except (OSError, SyntaxError, ValueError):
        return False
    return isinstance(function, ast.FunctionDef) and not any(isinstance(n, ast.Return) for n in ast.walk(function))


def _source_text(body: Callable[[Any], Any]) -> str:
    """Return the source of the returned expression if the body is one ``return``, else of the whole body.

    Without a source, and for a lambda, it is the name of the function and ``(…)``.
    """
    try:
        text = textwrap.dedent(inspect.getsource(body))
        statements = ast.parse(text).body[0].body  # type: ignore[attr-defined]  # a body is a function
    except (OSError, SyntaxError, IndexError, AttributeError):
        return f"{body.__qualname__}(…)"
    rest = [s for s in statements if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if len(rest) == 1 and isinstance(rest[0], ast.Return) and rest[0].value is not None:
        return ast.unparse(rest[0].value)
    return "\n".join(map(ast.unparse, rest))


def _refuse_identity(body: Callable[[Any], Any]) -> None:
    """Raise an error for a body that uses ``is``, which a column cannot override: it would silently be False."""
    code = getattr(body, "__code__", None)
    for instruction in dis.get_instructions(code) if code else ():
        if instruction.opname == "IS_OP" or "_IF_NONE" in instruction.opname or "_IF_NOT_NONE" in instruction.opname:
            raise BodyError("the body compares with 'is', which does not work on columns", "write == None or != None")


def _is_raised_in_spark(error: BaseException) -> bool:
    """Whether an error passed through pyspark, which was called with an `SqlExpression`."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(f.f_globals.get("__name__", "").partition(".")[0] in ("pyspark", "py4j") for f in frames)


class _Row:
    """Replaces a row when a body runs: its attributes are expressions instead of values.

    Args:
        columns: The columns by attribute.
        owner: The table class.
        convert: Turns a column into an expression; for a computed one it also gets the result of its body.
        running: The computed columns whose bodies are running.
    """

    def __init__(
        self, columns: Mapping[str, BodyColumn], owner: type, convert: Callable[[BodyColumn, Any], Any], *running: str
    ) -> None:
        self._kdsl_row = (columns, owner, convert, running)

    def __getattr__(self, name: str) -> Any:
        """Return the expression of a column, running the body of a computed one, or an attribute of the table class.

        Errors of that body are not caught.
        """
        columns, owner, convert, running = self._kdsl_row
        column = columns.get(name)
        if column is None:
            return _class_attribute(self, name, owner, columns)
        if column.body is None:
            return convert(column, None)
        if name in running:
            circle = dict.fromkeys((*running, name))
            message = f"the computed columns {listing(circle)} depend on each other"
            if len(circle) == 1:
                message = f"the computed column {name!r} depends on itself"
            raise BodyError(message, "let one of them use only other columns")
        return convert(column, column.body(_Row(columns, owner, convert, *running, name)))


def _as_sql(column: BodyColumn, result: Any) -> SqlExpression:
    """Convert a column to SQL; a computed one is ``result``, that of its body, cast to its type."""
    if column.body is None:
        return SqlExpression(quote_name(column.name), column.type)
    return SqlExpression(f"CAST({to_sql(result).text} AS {simple_string(column.type)})", column.type)


def _as_column(column: BodyColumn, result: Any) -> Column:
    """Convert a column to a Spark column; a computed one is ``result``, that of its body, always cast to its type."""
    from pyspark.sql import functions as F

    if column.body is None:
        return F.col(quote_name(column.name))
    if isinstance(result, SqlExpression):
        result = parse_column(result.text)
    return (result if is_spark_column(result) else F.lit(result)).cast(spark_type(column.type))


def _class_attribute(row: _Row, name: str, owner: type, columns: Mapping[str, BodyColumn]) -> Any:
    """Return an attribute of the class that is not a column: a constant, or a function bound to the row."""
    for cls in owner.__mro__:
        if name in vars(cls) and not name.startswith("__"):
            value = vars(cls)[name]
            return value.__get__(row, owner) if hasattr(value, "__get__") else value
    message = f"the body uses {name!r}, which is not a column{nearest(name, columns)}"
    raise BodyError(message, f"the columns are {listing(columns)}")
