"""The body of a computed column as an expression: it is run once with names in the place of values.

What the body does to them becomes SQL (`kdsl.declare.classes.sql`). A body that calls pyspark's functions cannot be
recorded: it is run again, on Spark columns, when there is a session.
"""

from __future__ import annotations

import ast
import dis
import inspect
import textwrap
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import attrs
from pyspark.sql import Column, functions as F

from kdsl.declare.classes.sql import BodyError, Recorded, recorded
from kdsl.declare.definition import Expression
from kdsl.errors import listing, nearest
from kdsl.types import model as t
from kdsl.types.spark import spark_type
from kdsl.types.sql import quoted


@attrs.frozen
class Source:
    """A column as the body of a computed column sees it.

    Attributes:
        name: The column's name.
        type: Its type.
        body: For a computed column, its body.
    """

    name: str
    type: t.DataType
    body: Callable[[Any], Any] | None = None


def record(name: str, body: Callable[[Any], Any], columns: Mapping[str, Source], owner: type) -> Expression:
    """The expression of a computed column.

    Args:
        name: The attribute.
        body: What takes a row.
        columns: The columns under their attributes.
        owner: The table class, whose other attributes the body may use.

    Raises:
        BodyError: The body cannot be an expression.
    """
    _no_identity(body)
    row = _Row(columns, owner, _as_sql, name)
    try:
        result = body(row)
    except Exception as e:
        if _raised_in_spark(e):
            return _by_spark(name, body, columns, owner)
        if isinstance(e, BodyError):
            raise
        raise BodyError(f"its body fails on columns: {type(e).__name__}: {e}") from e
    if isinstance(result, Column):
        return _by_spark(name, body, columns, owner)
    if result is None and _returns_nothing(body):
        raise BodyError("its body returns nothing", "return the expression")
    return Expression(recorded(result).text)


def _by_spark(name: str, body: Callable[[Any], Any], columns: Mapping[str, Source], owner: type) -> Expression:
    def column() -> Column:
        made = body(_Row(columns, owner, _as_column, name))
        if not isinstance(made, Column):
            raise BodyError(f"the body of {owner.__name__}.{name} gives {made!r}, which is no Spark column")
        return made

    return Expression(_source(body), column)


def _returns_nothing(body: Callable[[Any], Any]) -> bool:
    """Whether the source of a body is there, and has no ``return``."""
    try:
        (function,) = ast.parse(textwrap.dedent(inspect.getsource(body))).body
    except (OSError, SyntaxError, ValueError):
        return False
    return isinstance(function, ast.FunctionDef) and not any(isinstance(n, ast.Return) for n in ast.walk(function))


def _source(body: Callable[[Any], Any]) -> str:
    """The returned expression of a body, or all of the body, as it is written."""
    try:
        text = textwrap.dedent(inspect.getsource(body))
        statements = ast.parse(text).body[0].body  # type: ignore[attr-defined]  # a body is a function
    except (OSError, SyntaxError, IndexError, AttributeError):
        return f"{body.__qualname__}(…)"
    rest = [s for s in statements if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
    if len(rest) == 1 and isinstance(rest[0], ast.Return) and rest[0].value is not None:
        return ast.unparse(rest[0].value)
    return "\n".join(map(ast.unparse, rest))


def _no_identity(body: Callable[[Any], Any]) -> None:
    """Refuse ``is``, which no column can answer, and which would silently be False."""
    code = getattr(body, "__code__", None)
    for instruction in dis.get_instructions(code) if code else ():
        if instruction.opname == "IS_OP" or "_IF_NONE" in instruction.opname or "_IF_NOT_NONE" in instruction.opname:
            raise BodyError("its body asks with 'is', which a column cannot answer", "write == None or != None")


def _raised_in_spark(error: BaseException) -> bool:
    """Whether pyspark was called with what stands for a value, and failed on it."""
    frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(f.f_globals.get("__name__", "").partition(".")[0] in ("pyspark", "py4j") for f in frames)


class _Row:
    """Stands for a row: an attribute that is a column is what stands for its value.

    Args:
        columns: The columns under their attributes.
        owner: The table class.
        stands: Makes of a column what stands for its value.
        inside: The computed columns whose bodies are being run.
    """

    def __init__(
        self, columns: Mapping[str, Source], owner: type, stands: Callable[[Source, Any], Any], *inside: str
    ) -> None:
        self._kdsl_row = (columns, owner, stands, inside)

    def __getattr__(self, name: str) -> Any:
        columns, owner, stands, inside = self._kdsl_row
        source = columns.get(name)
        if source is None:
            return _other(self, name, owner, columns)
        if source.body is None:
            return stands(source, None)
        if name in inside:
            raise BodyError(f"{listing((*inside, name))} are worked out from each other", "break the circle")
        return stands(source, source.body(_Row(columns, owner, stands, *inside, name)))


def _as_sql(source: Source, made: Any) -> Recorded:
    """A column as SQL; of a computed one, its expression with its type."""
    if source.body is None:
        return Recorded(quoted(source.name), source.type)
    return Recorded(f"CAST({recorded(made).text} AS {spark_type(source.type).simpleString()})", source.type)


def _as_column(source: Source, made: Any) -> Column:
    """A column as a Spark column; of a computed one, its expression with its type."""
    if source.body is None:
        return F.col(quoted(source.name))
    if isinstance(made, Recorded):
        made = F.expr(made.text)
    return (made if isinstance(made, Column) else F.lit(made)).cast(spark_type(source.type))


def _other(row: _Row, name: str, owner: type, columns: Mapping[str, Source]) -> Any:
    """What an attribute of the class is that is no column: a constant, or a function that takes the row."""
    for cls in owner.__mro__:
        if name in vars(cls) and not name.startswith("__"):
            value = vars(cls)[name]
            return value.__get__(row, owner) if hasattr(value, "__get__") else value
    message = f"its body uses {name!r}, which is no column{nearest(name, columns)}"
    raise BodyError(message, f"the columns are {listing(columns)}")
