"""SQL expressions that grow by what Python does to them, which is how the body of a computed column is written down.

They give what Python would give: ``%`` of whole numbers and floats has the sign of the divisor, ``+`` of texts joins
them, ``== None`` asks for NULL. What SQL would do otherwise than Python is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from kdsl.errors import KdslError, listing, nearest
from kdsl.types import model as t
from kdsl.types.sql import NoLiteralError, literal, quoted

FIX = "write arithmetic on the columns, or use pyspark's functions, as F.when for if"


class BodyError(KdslError):
    """The body of a computed column says what neither SQL nor Spark can do.

    Attributes:
        message: What it does.
        fix: What to write instead.
    """

    def __init__(self, message: str, fix: str = FIX) -> None:
        super().__init__(message, fix)
        self.message, self.fix = message, fix


def recorded(value: Any) -> Recorded:
    """A value of a body as SQL: an expression, or a literal.

    Raises:
        BodyError: SQL has no such value.
    """
    return value if isinstance(value, Recorded) else Recorded(*_literal(value))


def _literal(value: Any) -> tuple[str, t.DataType | None]:
    """A plain Python value as SQL, with its type."""
    refused = BodyError(f"its body uses {value!r} of type {type(value).__name__}, which is no SQL value")
    if isinstance(value, list | tuple | dict):
        raise refused
    try:
        return literal(value)
    except NoLiteralError:
        raise refused from None


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
            FIX.replace("if", "if, and & | ~ for and, or, not"),
        )

    def __add__(self, other: Any) -> Recorded:
        return _binary(self, "||" if _any_text(self, other) else "+", other)

    def __radd__(self, other: Any) -> Recorded:
        return recorded(other) + self

    def __sub__(self, other: Any) -> Recorded:
        return _binary(self, "-", other)

    def __rsub__(self, other: Any) -> Recorded:
        return recorded(other) - self

    def __mul__(self, other: Any) -> Recorded:
        return _binary(self, "*", other)

    def __rmul__(self, other: Any) -> Recorded:
        return recorded(other) * self

    def __truediv__(self, other: Any) -> Recorded:
        made = _binary(self, "/", other)
        return Recorded(made.text, t.Double() if isinstance(made.type, _WHOLE) else made.type, compound=True)

    def __rtruediv__(self, other: Any) -> Recorded:
        return recorded(other) / self

    def __mod__(self, other: Any) -> Recorded:
        right = recorded(other)
        if isinstance(self.type, t.Decimal) or isinstance(right.type, t.Decimal):
            return _binary(self, "%", right)
        kind = _wider(self.type, right.type)
        if isinstance(other, int | float) and other > 0:
            return Recorded(f"PMOD({self.text}, {right.text})", kind)
        return Recorded(f"({self.operand} % {right.operand} + {right.operand}) % {right.operand}", kind, compound=True)

    def __rmod__(self, other: Any) -> Recorded:
        return recorded(other) % self

    def __floordiv__(self, other: Any) -> NoReturn:
        raise BodyError(
            "its body divides with //, which rounds otherwise in Spark", "divide with /, or use F.floor(a / b)"
        )

    __rfloordiv__ = __floordiv__

    def __pow__(self, other: Any) -> Recorded:
        return Recorded(f"POWER({self.text}, {recorded(other).text})", t.Double())

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
        return recorded(other) & self

    def __or__(self, other: Any) -> Recorded:
        return _logic(self, "OR", "|", other)

    def __ror__(self, other: Any) -> Recorded:
        return recorded(other) | self

    def __invert__(self) -> Recorded:
        if isinstance(self.type, _WHOLE):
            return Recorded(f"~ {self.operand}", self.type, compound=True)
        return Recorded(f"NOT {self.operand}", t.Boolean(), compound=True)

    def __getitem__(self, key: Any) -> Recorded:
        match self.type:
            case t.Map(value=value) | t.Array(element=value) if not (isinstance(key, int) and key < 0):
                return Recorded(f"{self.operand}[{recorded(key).text}]", value)
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
            return Recorded(f"{self.text}.{quoted(name)}", found[name])
        if isinstance(self.type, _TEXTS) and name in _TEXT_METHODS:
            return lambda *args: _TEXT_METHODS[name](self, *args)
        raise BodyError(f"its body uses {self.text}.{name}, which has no counterpart in SQL", "use pyspark's functions")


def _of_text(function: str, kind: t.DataType) -> Callable[..., Recorded]:
    def call(text: Recorded, *args: Any) -> Recorded:
        return Recorded(f"{function}({', '.join(recorded(a).text for a in (text, *args))})", kind)

    return call


_TEXT_METHODS = {
    "upper": _of_text("UPPER", t.STRING),
    "lower": _of_text("LOWER", t.STRING),
    "startswith": _of_text("STARTSWITH", t.Boolean()),
    "endswith": _of_text("ENDSWITH", t.Boolean()),
}


def _any_text(left: Recorded, right: Any) -> bool:
    return isinstance(left.type, _TEXTS) or isinstance(recorded(right).type, _TEXTS)


def _wider(left: t.DataType | None, right: t.DataType | None) -> t.DataType | None:
    """The type of a result, as far as it matters."""
    for kinds in (_FLOATS, (t.Decimal,), (t.Timestamp, t.TimestampLtz, t.Date), _TEXTS):
        for kind in (left, right):
            if isinstance(kind, kinds):
                return kind
    return left if right is None else right


def _binary(left: Recorded, operator: str, right: Any) -> Recorded:
    other = recorded(right)
    return Recorded(f"{left.operand} {operator} {other.operand}", _wider(left.type, other.type), compound=True)


def _compare(left: Recorded, operator: str, right: Any) -> Recorded:
    return Recorded(f"{left.operand} {operator} {recorded(right).operand}", t.Boolean(), compound=True)


def _is_null(value: Recorded, asked: str) -> Recorded:
    return Recorded(f"{value.operand} {asked}", t.Boolean(), compound=True)


def _logic(left: Recorded, word: str, sign: str, right: Any) -> Recorded:
    other = recorded(right)
    if isinstance(left.type, _WHOLE) and isinstance(other.type, _WHOLE):
        return _binary(left, sign, other)
    return Recorded(f"{left.operand} {word} {other.operand}", t.Boolean(), compound=True)
