"""The judge of what a CSV message means: record by record, plain and exact.

It follows Flink's CSV reader, which is Jackson's; `docs/differences.md` lists where it does not. The fast
decoder sends it every message that it has any doubt about.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kdsl.types import model as t
from kdsl.types.texts import numbers, temporal
from kdsl_formats._text.base64_text import parse_base64
from kdsl_formats._text.lenient_dates import parse_jdbc_date, parse_local_time
from kdsl_formats.csv.grammar import Dialect, counted, split, text_of

Convert = Callable[[str], Any]
SHOWN = 60


class ReferenceDecoder:
    """Reads one message at a time into Python values, in the order of the columns.

    An ARRAY is a list, a ROW a dict by name; dates are days, times nanoseconds, timestamps microseconds.
    """

    def __init__(self, row: t.Row, dialect: Dialect, *, ignore_parse_errors: bool) -> None:
        self.row, self.dialect, self.ignore = row, dialect, ignore_parse_errors
        self._columns = [(f.name, self._column(f.type)) for f in row.fields]

    def values(self, message: bytes) -> list[Any] | None:
        """The values of a message's row; None when the message gives no row.

        Raises:
            ValueError: The message cannot be read; says why.
        """
        try:
            values = split(text_of(message), self.dialect, len(self._columns))
        except ValueError:
            if self.ignore:
                return None
            raise
        if len(values) < len(self._columns) and not self.ignore:
            raise ValueError(f"the row has {counted(len(values))}, and the table has {len(self._columns)} columns")
        made = []
        for (name, convert), value in zip(self._columns, values, strict=False):
            try:
                made.append(convert(value))
            except ValueError as e:
                raise ValueError(f"field {name!r}: {e}") from None
        return made + [None] * (len(self._columns) - len(made))

    def _column(self, kind: t.DataType) -> Convert:
        match kind:
            case t.Array(element=element):
                convert = self._scalar(element)
                return lambda value: [convert(part) for part in self._parts(value)]
            case t.Row():
                return self._lenient(self._nested_row(kind))
            case _:
                return self._scalar(kind)

    def _parts(self, value: str) -> list[str]:
        if not numbers.trim(value):
            return []
        parts = value.split(self.dialect.array_delimiter)
        return [numbers.trim(part) for part in parts] if self.dialect.trim else parts

    def _nested_row(self, kind: t.Row) -> Convert:
        members = [(f.name, self._scalar(f.type)) for f in kind.fields]

        def convert(value: str) -> dict[str, Any] | None:
            parts = self._parts(value)
            if not parts:
                return None
            if len(parts) < len(members) and not self.ignore:
                raise ValueError(f"{shown(value)} has {counted(len(parts))}, and the ROW has {len(members)} members")
            made: dict[str, Any] = dict.fromkeys(name for name, _ in members)
            for (name, make), part in zip(members, parts, strict=False):
                try:
                    made[name] = make(part)
                except ValueError as e:
                    raise ValueError(f"member {name!r}: {e}") from None
            return made

        return convert

    def _scalar(self, kind: t.DataType) -> Convert:
        strict, spelling = _converter(kind), kind.spelling
        literal, empty_as_null = self.dialect.null_literal, self.dialect.empty_as_null
        article = "an" if spelling[0] in "AI" else "a"

        def convert(value: str) -> Any:
            if value == literal or (empty_as_null and not value):
                return None
            try:
                return strict(value)
            except ValueError as e:
                raise ValueError(f"{shown(value)} is not {article} {spelling} ({e})") from None

        return self._lenient(convert)

    def _lenient(self, convert: Convert) -> Convert:
        """The converter, or one that turns a bad value into NULL where the options say so."""
        if not self.ignore:
            return convert

        def lenient(value: str) -> Any:
            try:
                return convert(value)
            except ValueError:
                return None

        return lenient


def shown(value: str) -> str:
    """A value in a message."""
    return repr(value) if len(value) <= SHOWN else f"{value[:SHOWN]!r}…"


def _converter(kind: t.DataType) -> Convert:
    match kind:
        case t.Char() | t.VarChar():
            return str
        case t.Boolean():
            return lambda v: numbers.trim(v).isascii() and numbers.trim(v).lower() == "true"
        case t.TinyInt():
            return lambda v: numbers.parse_integer(numbers.trim(v), 8)
        case t.SmallInt():
            return lambda v: numbers.parse_integer(numbers.trim(v), 16)
        case t.Int():
            return lambda v: numbers.parse_integer(numbers.trim(v), 32)
        case t.BigInt():
            return lambda v: numbers.parse_integer(numbers.trim(v), 64)
        case t.Float():
            return numbers.parse_float
        case t.Double():
            return numbers.parse_double
        case t.Decimal(precision=precision, scale=scale):
            return lambda v: numbers.parse_decimal(v, precision, scale)
        case t.Binary() | t.VarBinary():
            return parse_base64
        case t.Date():
            return parse_jdbc_date
        case t.Time(precision=precision):
            return _time(precision)
        case t.Timestamp() | t.TimestampLtz():
            zoned = isinstance(kind, t.TimestampLtz)
            return lambda v: temporal.parse_timestamp(numbers.trim(v), "SQL", zoned=zoned)
    raise AssertionError(kind)  # Csv.check refuses the others


def _time(precision: int) -> Convert:
    unit: int = 10 ** (9 - min(precision, 3))

    def convert(value: str) -> int:
        nanos = parse_local_time(value)
        return nanos - nanos % unit

    return convert
