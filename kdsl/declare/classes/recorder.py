"""The body of a computed column as an SQL expression: it is run once with names in the place of values.

What the body does to them becomes SQL text that gives what Python would give: ``%`` of whole numbers and floats takes
the sign of the divisor's remainder as Python does, ``+`` of texts joins them, ``== None`` asks for NULL. A body that
calls pyspark's functions cannot be recorded: it is run again, on Spark columns, when there is a session.
"""

from __future__ import annotations

import ast
import dis
import inspect
import textwrap
import traceback
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from typing import Any, NoReturn

import attrs
from pyspark.sql import Column, functions as F

from kdsl.declare.definition import Expression
from kdsl.errors import KdslError, listing, nearest
from kdsl.types import model as t
from kdsl.types.spark import spark_type

_FIX = "write arithmetic on the columns, or use pyspark's functions, as F.when for if"


class BodyError(KdslError):
    """The body of a computed column says what neither SQL nor Spark can do.

    Attributes:
        message: What it does.
        fix: What to write instead.
    """

    def __init__(self, message: str, fix: str = _FIX) -> None:
        super().__init__(message, fix)
        self.message, self.fix = message, fix


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
    return Expression(_recorded(result).text)


def _by_spark(name: str, body: Callable[[Any], Any], columns: Mapping[str, Source], owner: type) -> Expression:
    def column() -> Column:
        made = body(_Row(columns, owner, _as_column, name))
        if not isinstance(made, Column):
            raise BodyError(f"the body of {owner.__name__}.{name} gives {made!r}, which is no Spark column")
        return made

    return Expression(_source(body), column)


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
        return Recorded(_quoted(source.name), source.type)
    return Recorded(f"CAST({_recorded(made).text} AS {spark_type(source.type).simpleString()})", source.type)


def _as_column(source: Source, made: Any) -> Column:
    """A column as a Spark column; of a computed one, its expression with its type."""
    if source.body is None:
        return F.col(_quoted(source.name))
    return (made if isinstance(made, Column) else F.lit(made)).cast(spark_type(source.type))


def _other(row: _Row, name: str, owner: type, columns: Mapping[str, Source]) -> Any:
    """What an attribute of the class is that is no column: a constant, or a function that takes the row."""
    for cls in owner.__mro__:
        if name in vars(cls) and not name.startswith("__"):
            value = vars(cls)[name]
            return value.__get__(row, owner) if hasattr(value, "__get__") else value
    message = f"its body uses {name!r}, which is no column{nearest(name, columns)}"
    raise BodyError(message, f"the columns are {listing(columns)}")


def _quoted(name: str) -> str:
    return "`{}`".format(name.replace("`", "``"))


def _recorded(value: Any) -> Recorded:
    return value if isinstance(value, Recorded) else Recorded(*_literal(value))


def _literal(value: Any) -> tuple[str, t.DataType | None]:
    """A Python value as SQL, with its type."""
    match value:
        case Enum():
            return _literal(value.value)
        case None:
            return "NULL", None
        case bool():
            return str(value).upper(), t.Boolean()
        case int():
            return (str(value) if value >= 0 else f"({value})"), t.BigInt()
        case float() if isfinite(value):
            return (f"{value!r}D" if value >= 0 else f"({value!r}D)"), t.Double()
        case float():
            return f"CAST('{value}' AS DOUBLE)", t.Double()
        case Decimal() if value.is_finite():
            digits = f"{value:f}BD"
            return (digits if value >= 0 else f"({digits})"), t.Decimal()
        case str():
            escaped = value.replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'", t.STRING
        case bytes():
            return f"X'{value.hex()}'", t.BYTES
        case datetime():
            kind: t.DataType = t.Timestamp() if value.tzinfo is None else t.TimestampLtz()
            return f"{kind.name} '{value.isoformat(sep=' ')}'", kind
        case date():
            return f"DATE '{value.isoformat()}'", t.Date()
        case time():
            return f"TIME '{value.isoformat()}'", t.Time()
        case timedelta():
            return _interval(value), None
        case _:
            raise BodyError(f"its body uses {value!r} of type {type(value).__name__}, which is no SQL value")


def _interval(value: timedelta) -> str:
    sign = "-" if value < timedelta() else ""
    whole = abs(value)
    seconds = (
        f"{whole.seconds // 3600:02}:{whole.seconds // 60 % 60:02}:{whole.seconds % 60:02}.{whole.microseconds:06}"
    )
    return f"INTERVAL '{sign}{whole.days} {seconds}' DAY TO SECOND"


_WHOLE = (t.TinyInt, t.SmallInt, t.Int, t.BigInt)
_FLOATS = (t.Float, t.Double)
_TEXTS = (t.Char, t.VarChar)


class Recorded:
    """An SQL expression that grows by what Python does to it.

    Attributes:
        text: The SQL.
        type: The type as far as it matters for what an operator means; None where it is not known.
        compound: Whether it needs brackets inside a longer expression.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str, type: t.DataType | None, *, compound: bool = False) -> None:  # noqa: A002
        self.text, self.type, self.compound = text, type, compound

    @property
    def operand(self) -> str:
        """The text as a part of a longer expression."""
        return f"({self.text})" if self.compound else self.text

    def __repr__(self) -> str:
        return self.text

    def __str__(self) -> str:
        raise BodyError(
            "its body makes a text of a column", "join texts with +, or use pyspark's F.concat and F.format_string"
        )

    def __format__(self, spec: str) -> str:
        return str(self)

    def __bool__(self) -> bool:
        raise BodyError(
            "its body asks if a column is true, by if, and, or, not, in",
            _FIX.replace("if", "if, and & | ~ for and, or, not"),
        )

    def __add__(self, other: Any) -> Recorded:
        return _binary(self, "||" if _any_text(self, other) else "+", other)

    def __radd__(self, other: Any) -> Recorded:
        return _recorded(other) + self

    def __sub__(self, other: Any) -> Recorded:
        return _binary(self, "-", other)

    def __rsub__(self, other: Any) -> Recorded:
        return _recorded(other) - self

    def __mul__(self, other: Any) -> Recorded:
        return _binary(self, "*", other)

    def __rmul__(self, other: Any) -> Recorded:
        return _recorded(other) * self

    def __truediv__(self, other: Any) -> Recorded:
        made = _binary(self, "/", other)
        return Recorded(made.text, t.Double() if isinstance(made.type, _WHOLE) else made.type, compound=True)

    def __rtruediv__(self, other: Any) -> Recorded:
        return _recorded(other) / self

    def __mod__(self, other: Any) -> Recorded:
        right = _recorded(other)
        if isinstance(self.type, t.Decimal) or isinstance(right.type, t.Decimal):
            return _binary(self, "%", right)
        kind = _wider(self.type, right.type)
        if isinstance(other, int | float) and other > 0:
            return Recorded(f"PMOD({self.text}, {right.text})", kind)
        return Recorded(f"({self.operand} % {right.operand} + {right.operand}) % {right.operand}", kind, compound=True)

    def __rmod__(self, other: Any) -> Recorded:
        return _recorded(other) % self

    def __floordiv__(self, other: Any) -> NoReturn:
        raise BodyError(
            "its body divides with //, which rounds otherwise in Spark", "divide with /, or use F.floor(a / b)"
        )

    __rfloordiv__ = __floordiv__

    def __pow__(self, other: Any) -> Recorded:
        return Recorded(f"POWER({self.text}, {_recorded(other).text})", t.Double())

    def __neg__(self) -> Recorded:
        return Recorded(f"- {self.operand}", self.type, compound=True)

    def __pos__(self) -> Recorded:
        return self

    def __abs__(self) -> Recorded:
        return Recorded(f"ABS({self.text})", self.type)

    def __eq__(self, other: object) -> Recorded:  # type: ignore[override]
        return _is_null(self, "IS NULL") if other is None else _compare(self, "=", other)

    def __ne__(self, other: object) -> Recorded:  # type: ignore[override]
        return _is_null(self, "IS NOT NULL") if other is None else _compare(self, "<>", other)

    def __lt__(self, other: Any) -> Recorded:
        return _compare(self, "<", other)

    def __le__(self, other: Any) -> Recorded:
        return _compare(self, "<=", other)

    def __gt__(self, other: Any) -> Recorded:
        return _compare(self, ">", other)

    def __ge__(self, other: Any) -> Recorded:
        return _compare(self, ">=", other)

    def __and__(self, other: Any) -> Recorded:
        return _logic(self, "AND", "&", other)

    def __rand__(self, other: Any) -> Recorded:
        return _recorded(other) & self

    def __or__(self, other: Any) -> Recorded:
        return _logic(self, "OR", "|", other)

    def __ror__(self, other: Any) -> Recorded:
        return _recorded(other) | self

    def __invert__(self) -> Recorded:
        if isinstance(self.type, _WHOLE):
            return Recorded(f"~ {self.operand}", self.type, compound=True)
        return Recorded(f"NOT {self.operand}", t.Boolean(), compound=True)

    def __getitem__(self, key: Any) -> Recorded:
        match self.type:
            case t.Map(value=value) | t.Array(element=value) if not (isinstance(key, int) and key < 0):
                return Recorded(f"{self.operand}[{_recorded(key).text}]", value)
            case _:
                raise BodyError(f"its body takes the part {key!r} of {self.text}, which Spark cannot do alike")

    def __len__(self) -> NoReturn:
        raise BodyError(f"its body asks for the length of {self.text}", "use pyspark's F.length or F.size")

    def __iter__(self) -> NoReturn:
        raise BodyError(f"its body goes through the elements of {self.text}", "use pyspark's functions, as F.transform")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if isinstance(self.type, t.Row):
            found = {f.name: f.type for f in self.type.fields}
            if name not in found:
                message = f"its body uses {self.text}.{name}, and there is no such member{nearest(name, found)}"
                raise BodyError(message, f"the members are {listing(found)}")
            return Recorded(f"{self.text}.{_quoted(name)}", found[name])
        if isinstance(self.type, _TEXTS) and name in _TEXT_METHODS:
            return lambda *args: _TEXT_METHODS[name](self, *args)
        raise BodyError(f"its body uses {self.text}.{name}, which has no counterpart in SQL", "use pyspark's functions")


def _of_text(function: str, kind: t.DataType) -> Callable[..., Recorded]:
    def call(text: Recorded, *args: Any) -> Recorded:
        return Recorded(f"{function}({', '.join(_recorded(a).text for a in (text, *args))})", kind)

    return call


_TEXT_METHODS = {
    "upper": _of_text("UPPER", t.STRING),
    "lower": _of_text("LOWER", t.STRING),
    "startswith": _of_text("STARTSWITH", t.Boolean()),
    "endswith": _of_text("ENDSWITH", t.Boolean()),
}


def _any_text(left: Recorded, right: Any) -> bool:
    return isinstance(left.type, _TEXTS) or isinstance(_recorded(right).type, _TEXTS)


def _wider(left: t.DataType | None, right: t.DataType | None) -> t.DataType | None:
    """The type of a result, as far as it matters."""
    for kinds in (_FLOATS, (t.Decimal,), (t.Timestamp, t.TimestampLtz, t.Date), _TEXTS):
        for kind in (left, right):
            if isinstance(kind, kinds):
                return kind
    return left if right is None else right


def _binary(left: Recorded, operator: str, right: Any) -> Recorded:
    other = _recorded(right)
    return Recorded(f"{left.operand} {operator} {other.operand}", _wider(left.type, other.type), compound=True)


def _compare(left: Recorded, operator: str, right: Any) -> Recorded:
    return Recorded(f"{left.operand} {operator} {_recorded(right).operand}", t.Boolean(), compound=True)


def _is_null(value: Recorded, asked: str) -> Recorded:
    return Recorded(f"{value.operand} {asked}", t.Boolean(), compound=True)


def _logic(left: Recorded, word: str, sign: str, right: Any) -> Recorded:
    other = _recorded(right)
    if isinstance(left.type, _WHOLE) and isinstance(other.type, _WHOLE):
        return _binary(left, sign, other)
    return Recorded(f"{left.operand} {word} {other.operand}", t.Boolean(), compound=True)
