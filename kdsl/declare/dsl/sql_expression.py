"""SQL expressions that are built by applying Python's operators; the body of a computed column is recorded with them.

The SQL computes what Python would compute: ``%`` of integers and floats has the sign of the divisor, ``+`` joins
strings, ``== None`` is IS NULL. Operations that SQL and Python define differently are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from kdsl.errors import KdslError, listing, nearest
from kdsl.types import model as t
from kdsl.types.sql import NoLiteralError, literal, quote_name

FIX = "write arithmetic on the columns, or use pyspark's functions, such as F.when instead of if"


class BodyError(KdslError):
    """The body of a computed column does something that neither SQL nor Spark can do.

    Attributes:
        message: What the body does.
        fix: What to write instead.
    """

    def __init__(self, message: str, fix: str = FIX) -> None:
        super().__init__(message, fix)
        self.message, self.fix = message, fix


def to_sql(value: Any) -> SqlExpression:
    """Convert a value of a body to SQL: an expression stays; raise BodyError for a value without an SQL literal."""
    return value if isinstance(value, SqlExpression) else SqlExpression(*_write_literal(value))


def _write_literal(value: Any) -> tuple[str, t.DataType | None]:
    """Return a plain Python value as an SQL literal, with its type."""
    error = BodyError(f"the body uses {value!r} of type {type(value).__name__}, which SQL has no literal for")
    if isinstance(value, list | tuple | dict):
        raise error
    try:
        return literal(value)
    except NoLiteralError:
        raise error from None


_INTEGERS = (t.TinyInt, t.SmallInt, t.Int, t.BigInt)
_FLOATS = (t.Float, t.Double)
_STRINGS = (t.Char, t.VarChar)


class SqlExpression:
    """An SQL expression; Python's operators on it give longer expressions.

    Attributes:
        text: The SQL.
        type: The type, as far as the meaning of an operator depends on it; None if it is not known.
        compound: Whether it needs parentheses inside a longer expression.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, text: str, type: t.DataType | None, *, compound: bool = False) -> None:  # noqa: A002
        self.text, self.type, self.compound = text, type, compound

    @property
    def operand(self) -> str:
        """The SQL for use inside a longer expression."""
        return f"({self.text})" if self.compound else self.text

    def __repr__(self) -> str:
        return self.text

    def __str__(self) -> str:
        """Raise BodyError, always: a column is not a string."""
        raise BodyError(
            "the body converts a column to a string",
            "join strings with +, or use pyspark's F.concat and F.format_string",
        )

    def __format__(self, spec: str) -> str:
        """Raise BodyError, always, as ``str()`` does."""
        return str(self)

    def __bool__(self) -> bool:
        """Raise BodyError, always: the value of a column is not known yet."""
        raise BodyError(
            "the body uses a column as a condition (with if, and, or, not or in), but its value is not known yet",
            "write & | ~ for and, or, not; write F.when for if",
        )

    def __add__(self, other: Any) -> SqlExpression:
        """Write a sum, or the concatenation of strings; BodyError if the other value has no SQL literal."""
        return _write_operation(self, "||" if _any_string(self, other) else "+", other)

    def __radd__(self, other: Any) -> SqlExpression:
        """Write a sum, or the concatenation of strings; BodyError if the other value has no SQL literal."""
        return to_sql(other) + self

    def __sub__(self, other: Any) -> SqlExpression:
        """Write a difference; BodyError if the other value has no SQL literal."""
        return _write_operation(self, "-", other)

    def __rsub__(self, other: Any) -> SqlExpression:
        """Write a difference; BodyError if the other value has no SQL literal."""
        return to_sql(other) - self

    def __mul__(self, other: Any) -> SqlExpression:
        """Write a product; BodyError if the other value has no SQL literal."""
        return _write_operation(self, "*", other)

    def __rmul__(self, other: Any) -> SqlExpression:
        """Write a product; BodyError if the other value has no SQL literal."""
        return to_sql(other) * self

    def __truediv__(self, other: Any) -> SqlExpression:
        """Write a division, of integers with the type DOUBLE; BodyError if the divisor has no SQL literal."""
        quotient = _write_operation(self, "/", other)
        return SqlExpression(
            quotient.text, t.Double() if isinstance(quotient.type, _INTEGERS) else quotient.type, compound=True
        )

    def __rtruediv__(self, other: Any) -> SqlExpression:
        """Write a division; BodyError if the other value has no SQL literal."""
        return to_sql(other) / self

    def __mod__(self, other: Any) -> SqlExpression:
        """Write a remainder with the sign of the divisor; that of decimals, as in Python, with that of the dividend.

        BodyError if the divisor has no SQL literal.
        """
        right = to_sql(other)
        if isinstance(self.type, t.Decimal) or isinstance(right.type, t.Decimal):
            return _write_operation(self, "%", right)
        kind = _wider_type(self.type, right.type)
        if isinstance(other, int | float) and other > 0:
            return SqlExpression(f"PMOD({self.text}, {right.text})", kind)
        return SqlExpression(
            f"({self.operand} % {right.operand} + {right.operand}) % {right.operand}", kind, compound=True
        )

    def __rmod__(self, other: Any) -> SqlExpression:
        """Write a remainder, as `__mod__` does; BodyError if the other value has no SQL literal."""
        return to_sql(other) % self

    def __floordiv__(self, other: Any) -> NoReturn:
        """Raise BodyError, always: Spark rounds differently."""
        raise BodyError(
            "the body divides with //, which Spark rounds differently", "divide with /, or use F.floor(a / b)"
        )

    __rfloordiv__ = __floordiv__

    def __pow__(self, other: Any) -> SqlExpression:
        """Write a power, which has the type DOUBLE; BodyError if the exponent has no SQL literal."""
        return SqlExpression(f"POWER({self.text}, {to_sql(other).text})", t.Double())

    def __neg__(self) -> SqlExpression:
        """Write the negative value."""
        return SqlExpression(f"- {self.operand}", self.type, compound=True)

    def __pos__(self) -> SqlExpression:
        """Return the expression itself."""
        return self

    def __abs__(self) -> SqlExpression:
        """Write the absolute value, with the type of the value."""
        return SqlExpression(f"ABS({self.text})", self.type)

    def __eq__(self, other: object) -> SqlExpression:  # type: ignore[override]
        """Write a comparison, or IS NULL for None; BodyError if the other value has no SQL literal."""
        return _write_null_test(self, "IS NULL") if other is None else _write_comparison(self, "=", other)

    def __ne__(self, other: object) -> SqlExpression:  # type: ignore[override]
        """Write a comparison, or IS NOT NULL for None; BodyError if the other value has no SQL literal."""
        return _write_null_test(self, "IS NOT NULL") if other is None else _write_comparison(self, "<>", other)

    def __lt__(self, other: Any) -> SqlExpression:
        """Write a comparison; BodyError if the other value has no SQL literal."""
        return _write_comparison(self, "<", other)

    def __le__(self, other: Any) -> SqlExpression:
        """Write a comparison; BodyError if the other value has no SQL literal."""
        return _write_comparison(self, "<=", other)

    def __gt__(self, other: Any) -> SqlExpression:
        """Write a comparison; BodyError if the other value has no SQL literal."""
        return _write_comparison(self, ">", other)

    def __ge__(self, other: Any) -> SqlExpression:
        """Write a comparison; BodyError if the other value has no SQL literal."""
        return _write_comparison(self, ">=", other)

    def __and__(self, other: Any) -> SqlExpression:
        """Write AND, or the bit operator of two integers; BodyError if the other value has no SQL literal."""
        return _write_logic(self, "AND", "&", other)

    def __rand__(self, other: Any) -> SqlExpression:
        """Write AND, or the bit operator of two integers; BodyError if the other value has no SQL literal."""
        return to_sql(other) & self

    def __or__(self, other: Any) -> SqlExpression:
        """Write OR, or the bit operator of two integers; BodyError if the other value has no SQL literal."""
        return _write_logic(self, "OR", "|", other)

    def __ror__(self, other: Any) -> SqlExpression:
        """Write OR, or the bit operator of two integers; BodyError if the other value has no SQL literal."""
        return to_sql(other) | self

    def __invert__(self) -> SqlExpression:
        """Write the bitwise complement of an integer, and NOT for a value of any other type."""
        if isinstance(self.type, _INTEGERS):
            return SqlExpression(f"~ {self.operand}", self.type, compound=True)
        return SqlExpression(f"NOT {self.operand}", t.Boolean(), compound=True)

    def __getitem__(self, key: Any) -> SqlExpression:
        """Write the access to an element of a map or an array."""
        match self.type:
            case t.Array() if isinstance(key, int) and key < 0:
                pass
            case t.Map(value=value) | t.Array(element=value):
                return SqlExpression(f"{self.operand}[{to_sql(key).text}]", value)
        raise BodyError(f"the body uses {self.text}[{key!r}], which has no counterpart in SQL")

    def __len__(self) -> NoReturn:
        """Raise BodyError, always: the length of a value is not known yet."""
        raise BodyError(f"the body calls len() on {self.text}", "use pyspark's F.length or F.size")

    def __iter__(self) -> NoReturn:
        """Raise BodyError, always: the elements of a value are not known yet."""
        raise BodyError(f"the body iterates over {self.text}", "use pyspark's functions, such as F.transform")

    def __getattr__(self, name: str) -> Any:
        """Return the expression of a member of a row, or the method of a string that writes a call in SQL."""
        if name.startswith("_"):
            raise AttributeError(name)
        if isinstance(self.type, t.Row):
            members = {f.name: f.type for f in self.type.fields}
            if name not in members:
                message = f"the body uses {self.text}.{name}, but there is no such member{nearest(name, members)}"
                raise BodyError(message, f"the members are {listing(members)}")
            return SqlExpression(f"{self.text}.{quote_name(name)}", members[name])
        if isinstance(self.type, _STRINGS) and name in _STRING_METHODS:
            return lambda *args: _STRING_METHODS[name](self, *args)
        raise BodyError(f"the body uses {self.text}.{name}, which has no counterpart in SQL", "use pyspark's functions")


def _string_function(function: str, kind: t.DataType) -> Callable[..., SqlExpression]:
    """Return a method that writes the call of an SQL function with a string and its arguments.

    The method does not check the types of the arguments; one without an SQL literal raises BodyError.
    """

    def call(string: SqlExpression, *args: Any) -> SqlExpression:
        return SqlExpression(f"{function}({', '.join(to_sql(a).text for a in (string, *args))})", kind)

    return call


_STRING_METHODS = {
    "upper": _string_function("UPPER", t.STRING),
    "lower": _string_function("LOWER", t.STRING),
    "startswith": _string_function("STARTSWITH", t.Boolean()),
    "endswith": _string_function("ENDSWITH", t.Boolean()),
}


def _any_string(left: SqlExpression, right: Any) -> bool:
    """Return whether one of two values is a string."""
    return isinstance(left.type, _STRINGS) or isinstance(to_sql(right).type, _STRINGS)


def _wider_type(left: t.DataType | None, right: t.DataType | None) -> t.DataType | None:
    """Return the type of an operation of two values, as far as it matters; None if neither type is known.

    It is the first of the two that is a float, else a decimal, else a date or timestamp, else a string; otherwise the
    right one, or the left one if the right one is not known.
    """
    for kinds in (_FLOATS, (t.Decimal,), (t.Timestamp, t.TimestampLtz, t.Date), _STRINGS):
        for kind in (left, right):
            if isinstance(kind, kinds):
                return kind
    return left if right is None else right


def _write_operation(left: SqlExpression, operator: str, right: Any) -> SqlExpression:
    """Write an operation of two values, without brackets around it, with the wider type."""
    other = to_sql(right)
    return SqlExpression(
        f"{left.operand} {operator} {other.operand}", _wider_type(left.type, other.type), compound=True
    )


def _write_comparison(left: SqlExpression, operator: str, right: Any) -> SqlExpression:
    """Write a comparison of two values; raise BodyError if the right one has no SQL literal."""
    return SqlExpression(f"{left.operand} {operator} {to_sql(right).operand}", t.Boolean(), compound=True)


def _write_null_test(value: SqlExpression, test: str) -> SqlExpression:
    """Write a test such as ``IS NULL``."""
    return SqlExpression(f"{value.operand} {test}", t.Boolean(), compound=True)


def _write_logic(left: SqlExpression, word: str, sign: str, right: Any) -> SqlExpression:
    """Combine two values with AND or OR (``word``), or two integers with the bit operator (``sign``)."""
    other = to_sql(right)
    if isinstance(left.type, _INTEGERS) and isinstance(other.type, _INTEGERS):
        return _write_operation(left, sign, other)
    return SqlExpression(f"{left.operand} {word} {other.operand}", t.Boolean(), compound=True)
