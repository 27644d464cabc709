"""The reference encoder of CSV: it writes rows one by one and defines the message of a row.

It follows Flink's CSV writer, which uses Jackson with its loose rule of quoting: a value is quoted as soon as it
*might* need it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

from kdsl.types import model as t
from kdsl.types.strings import numbers, temporal
from kdsl_formats.csv.grammar import Dialect

Write = Callable[[Any], str]
LONGEST_UNQUOTED = 24  # UTF-16 units; longer strings are quoted without a look at their characters
UNQUOTED = (t.Boolean, t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double, t.Decimal)


class ReferenceEncoder:
    """Encodes one row at a time from Python values in the order of the columns, as the reference decoder has them."""

    def __init__(self, row: t.Row, dialect: Dialect, *, scientific: bool) -> None:
        self.dialect, self.scientific = dialect, scientific
        self.null = dialect.null_literal or ""
        self._columns = [self._column_writer(f.type) for f in row.fields]

    def message(self, values: list[Any]) -> bytes:
        """Encode the values of a row."""
        parts = [write(value) for write, value in zip(self._columns, values, strict=True)]
        return self.dialect.delimiter.join(parts).encode()

    def _column_writer(self, kind: t.DataType) -> Write:
        """The function that writes a column, with quotes if its type may need them; None becomes the null literal."""
        write = self._value_writer(kind)
        if isinstance(kind, UNQUOTED):
            return lambda value: self.null if value is None else write(value)
        return lambda value: self.null if value is None else self.quote(write(value))

    def _value_writer(self, kind: t.DataType) -> Write:
        """The function that writes values of a type, without quotes."""
        match kind:
            case t.Array(element=element):
                inner = self._element_writer(element)
                return lambda value: self.dialect.array_delimiter.join(map(inner, value))
            case t.Row(fields=fields):
                members = [(f.name, self._element_writer(f.type)) for f in fields]
                return lambda value: self.dialect.array_delimiter.join(write(value[name]) for name, write in members)
            case t.Decimal():
                return lambda value: numbers.format_decimal(value, plain=not self.scientific)
            case _:
                return _WRITERS[type(kind)]

    def _element_writer(self, kind: t.DataType) -> Write:
        """The function that writes elements of an ARRAY or members of a ROW; None becomes the null literal."""
        write = self._value_writer(kind)
        return lambda value: self.null if value is None else write(value)

    def quote(self, text: str) -> str:
        """Add quotes to a string if it might need them, with quotes and escape characters in it doubled.

        If the dialect has no quotes, the string is returned as it is.
        """
        quote, escape = self.dialect.quote, self.dialect.escape
        if quote is None or not needs_quotes(text, self.dialect):
            return text
        if escape is not None and escape != quote:
            text = text.replace(escape, escape * 2)
        return f"{quote}{text.replace(quote, quote * 2)}{quote}"


def largest_special(dialect: Dialect) -> str:
    """The largest character that is special: every character up to it causes quoting."""
    return max(dialect.delimiter, dialect.quote or "", "\n")


def needs_quotes(text: str, dialect: Dialect) -> bool:
    """Whether a string is longer than 24 UTF-16 units, or contains a character that might be special."""
    if len(text) + sum(c > "\uffff" for c in text) > LONGEST_UNQUOTED:
        return True
    largest, escape = largest_special(dialect), dialect.escape or "\\"
    return any(_first_unit(c) <= largest or c == escape for c in text)


def _first_unit(c: str) -> str:
    """The first UTF-16 unit of a character."""
    return c if c <= "\uffff" else chr(0xD7C0 + (ord(c) >> 10))


_WRITERS: dict[type[t.DataType], Write] = {
    t.Boolean: lambda value: "true" if value else "false",
    t.TinyInt: str,
    t.SmallInt: str,
    t.Int: str,
    t.BigInt: str,
    t.Float: numbers.format_float,
    t.Double: numbers.format_double,
    t.Char: str,
    t.VarChar: str,
    t.Binary: lambda value: base64.b64encode(value).decode(),
    t.VarBinary: lambda value: base64.b64encode(value).decode(),
    t.Date: temporal.format_date,
    t.Time: temporal.format_time,
    t.Timestamp: lambda value: temporal.format_timestamp(value, "SQL", zoned=False),
    t.TimestampLtz: lambda value: temporal.format_timestamp(value, "SQL", zoned=True),
}
