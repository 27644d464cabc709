"""The reference decoder of CSV: it reads messages one by one and defines what they mean.

It follows Flink's CSV reader, which uses Jackson; `docs/differences.md` lists the differences. The column decoder
leaves all messages to it that are not plain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kdsl.errors import pluralize
from kdsl.shown_values import quote_value
from kdsl.types import model as t
from kdsl.types.strings import numbers, temporal
from kdsl_formats._text.base64_text import parse_base64
from kdsl_formats._text.lenient_dates import parse_jdbc_date, parse_local_time
from kdsl_formats.csv.grammar import Dialect, count_values, decode_message, split_row

Convert = Callable[[str], Any]


class ReferenceDecoder:
    """Decodes one message at a time to Python values, in the order of the columns.

    An ARRAY is a list, a ROW a dict by name; dates are days, times nanoseconds, timestamps microseconds.
    """

    def __init__(self, row: t.Row, dialect: Dialect, *, ignore_parse_errors: bool) -> None:
        self.row, self.dialect, self.ignore = row, dialect, ignore_parse_errors
        self._columns = [(f.name, self._column_converter(f.type)) for f in row.fields]

    def values(self, message: bytes) -> list[Any] | None:
        """The values of a message's row, one for each column.

        If errors are ignored, bad and missing values are None, and so is the result if the row cannot be split, or
        lacks values that the dialect requires.
        """
        try:
            values = split_row(decode_message(message), self.dialect, len(self._columns))
        except ValueError:
            if self.ignore:
                return None
            raise
        if len(values) < len(self._columns) and not self.ignore:
            raise ValueError(
                f"the row has {count_values(len(values))}, but the table has {pluralize(len(self._columns), 'column')}"
            )
        converted = []
        for (name, convert), value in zip(self._columns, values, strict=False):
            try:
                converted.append(convert(value))
            except ValueError as e:
                raise ValueError(f"field {name!r}: {e}") from None
        return converted + [None] * (len(self._columns) - len(converted))

    def _column_converter(self, kind: t.DataType) -> Convert:
        """The function that converts a column's string; ValueError for a bad value, or None if errors are ignored.

        In an ARRAY that is None for each bad element, not for the whole value.
        """
        match kind:
            case t.Array(element=element):
                convert = self._scalar_converter(element)
                return lambda value: [convert(part) for part in self._split_parts(value)]
            case t.Row():
                return self._make_lenient(self._row_converter(kind))
            case _:
                return self._scalar_converter(kind)

    def _split_parts(self, value: str) -> list[str]:
        """The elements of an ARRAY or ROW, trimmed if the dialect trims values; a blank value has none."""
        if not numbers.trim(value):
            return []
        parts = value.split(self.dialect.array_delimiter)
        return [numbers.trim(part) for part in parts] if self.dialect.trim else parts

    def _row_converter(self, kind: t.Row) -> Convert:
        """The function that converts a ROW's string; a blank one is None, and surplus members are ignored.

        It raises ValueError for a bad member and for too few members; if errors are ignored, these are None instead.
        """
        members = [(f.name, self._scalar_converter(f.type)) for f in kind.fields]

        def convert(value: str) -> dict[str, Any] | None:
            parts = self._split_parts(value)
            if not parts:
                return None
            if len(parts) < len(members) and not self.ignore:
                wanted = pluralize(len(members), "member")
                raise ValueError(f"{quote_value(value)} has {count_values(len(parts))}, but the ROW has {wanted}")
            row: dict[str, Any] = dict.fromkeys(name for name, _ in members)
            for (name, convert_member), part in zip(members, parts, strict=False):
                try:
                    row[name] = convert_member(part)
                except ValueError as e:
                    raise ValueError(f"member {name!r}: {e}") from None
            return row

        return convert

    def _scalar_converter(self, kind: t.DataType) -> Convert:
        """The function that converts a string to a value, None for a null literal.

        For a bad value it returns None if errors are ignored, and raises ValueError otherwise.
        """
        strict, spelling = _converter(kind), kind.spelling
        literal, empty_as_null = self.dialect.null_literal, self.dialect.empty_as_null
        article = "an" if spelling[0] in "AI" else "a"

        def convert(value: str) -> Any:
            if value == literal or (empty_as_null and not value):
                return None
            try:
                return strict(value)
            except ValueError as e:
                raise ValueError(f"{quote_value(value)} is not {article} {spelling} ({e})") from None

        return self._make_lenient(convert)

    def _make_lenient(self, convert: Convert) -> Convert:
        """The converter, which returns NULL for a bad value if the options ignore errors."""
        if not self.ignore:
            return convert

        def lenient(value: str) -> Any:
            try:
                return convert(value)
            except ValueError:
                return None

        return lenient


def _converter(kind: t.DataType) -> Convert:
    """The function that converts strings to a type without parts; it raises ValueError for an invalid one.

    A decimal with too many digits becomes None. The type is one that `Csv.check` accepts; AssertionError for others.
    """
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
            return _time_converter(precision)
        case t.Timestamp() | t.TimestampLtz():
            zoned = isinstance(kind, t.TimestampLtz)
            return lambda v: temporal.parse_timestamp(numbers.trim(v), "SQL", zoned=zoned)
    raise AssertionError(kind)  # Csv.check rejects other types


def _time_converter(precision: int) -> Convert:
    """The function that reads times as nanoseconds, cut to the precision and at most to milliseconds.

    It raises ValueError for an invalid one.
    """
    unit: int = 10 ** (9 - min(precision, 3))

    def convert(value: str) -> int:
        nanos = parse_local_time(value)
        return nanos - nanos % unit

    return convert
