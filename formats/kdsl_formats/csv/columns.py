"""Converts columns of CSV values to Arrow if they have their usual form; the reference decoder reads the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl.types.arrow import arrow_field, arrow_type
from kdsl.types.strings.numbers import BLANKS
from kdsl_formats._columns.arrays import Indices, Mask
from kdsl_formats._columns.string_spans import StringSpans
from kdsl_formats._text import reading
from kdsl_formats.csv.grammar import Dialect

Read = Callable[[pa.StringArray], tuple[pa.Array, Mask]]
FIRST_GREGORIAN_DAY = -141_427
_KEEPS_EMPTY = (t.Char, t.VarChar, t.Binary, t.VarBinary, t.Boolean)


class ColumnReader:
    """Builds functions that convert strings to columns of a row type.

    The functions return the values, and a mask of the rows that the reference decoder must read.
    """

    def __init__(self, dialect: Dialect, *, ignore_parse_errors: bool) -> None:
        self.dialect, self.ignore = dialect, ignore_parse_errors

    def reader(self, kind: t.DataType) -> Read:
        """The function that reads strings as a column of a type, and marks rows for the fallback."""
        match kind:
            case t.Array():
                return self._array_reader(kind)
            case t.Row():
                return self._row_reader(kind)
            case _:
                return self._scalar_reader(kind)

    def _scalar_reader(self, kind: t.DataType) -> Read:
        """The function that reads strings as a column of values without parts; null literals become NULL.

        So do empty strings where the dialect says so, and where errors are ignored and the type has no empty value.
        """
        read = _reader_of(kind)
        empty = self.dialect.empty_as_null or (self.ignore and not isinstance(kind, _KEEPS_EMPTY))
        nulls = {self.dialect.null_literal, "" if empty else None} - {None}

        def convert(strings: pa.StringArray) -> tuple[pa.Array, Mask]:
            for text in nulls:
                is_null = pc.equal(strings, text)
                if is_null.true_count:
                    strings = pc.if_else(is_null, pa.scalar(None, pa.string()), strings)
            return read(strings)

        return convert

    def _split_parts(self, strings: pa.StringArray) -> tuple[pa.StringArray, Indices]:
        """Split strings, none of them NULL, into parts; return these one string after the other, and how many each has.

        A blank string has no part. Parts are trimmed if the dialect trims values.
        """
        blank = np.asarray(pc.equal(pc.binary_length(_trim(strings)), 0))
        lists = pc.split_pattern(strings, self.dialect.array_delimiter)
        counts = np.asarray(pc.list_value_length(lists)).astype(np.int64)
        flat = lists.flatten()
        if blank.any():
            flat = flat.filter(pa.array(np.repeat(~blank, counts)))
            counts[blank] = 0
        return _trim(flat) if self.dialect.trim else flat, counts

    def _array_reader(self, kind: t.Array) -> Read:
        """The function that splits strings at the array delimiter into a column of arrays; blank ones are empty.

        No string may be NULL. Arrays with an element that needs the fallback are marked for it.
        """
        read, arrow = self._scalar_reader(kind.element), arrow_type(kind)

        def convert(strings: pa.StringArray) -> tuple[pa.Array, Mask]:
            flat, counts = self._split_parts(strings)
            elements, fallback = read(flat)
            offsets = np.zeros(len(counts) + 1, dtype=np.int32)
            np.cumsum(counts, out=offsets[1:])
            fallback_rows = np.zeros(len(counts), dtype=bool)
            fallback_rows[np.repeat(np.arange(len(counts)), counts)[fallback]] = True
            return pa.ListArray.from_arrays(pa.array(offsets), elements, type=arrow), fallback_rows

        return convert

    def _row_reader(self, kind: t.Row) -> Read:
        """The function that splits strings at the array delimiter, and reads a column of rows; blank ones are NULL.

        Strings with too few parts are NULL, too, and marked for the fallback; surplus parts are ignored.
        """
        members = [(arrow_field(f.name, f.type), self._scalar_reader(f.type)) for f in kind.fields]

        def convert(strings: pa.StringArray) -> tuple[pa.Array, Mask]:
            flat, counts = self._split_parts(strings)
            fallback_rows = (counts > 0) & (counts < len(members))
            present = counts >= max(len(members), 1)
            first = (np.cumsum(counts) - counts)[present]
            indexes = np.flatnonzero(present)
            scattered = np.zeros(len(counts), dtype=np.int64)
            scattered[indexes] = np.arange(len(indexes))
            spread = pa.array(scattered, mask=~present)
            columns = []
            for i, (_, read) in enumerate(members):
                values, fallback = read(flat.take(pa.array(first + i)))
                fallback_rows[indexes[fallback]] = True
                columns.append(values.take(spread))
            fields = [field for field, _ in members]
            return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(~present)), fallback_rows

        return convert


def _trim(strings: pa.StringArray) -> pa.StringArray:
    """Remove blanks and control characters at both ends."""
    return pc.ascii_trim(strings, characters=BLANKS)


def _reader_of(kind: t.DataType) -> Read:
    """The function that reads strings as values of a type without parts, and marks those that need the fallback.

    The type is one that `Csv.check` accepts; AssertionError for others.
    """
    arrow = arrow_type(kind)
    match kind:
        case t.Char() | t.VarChar():
            return lambda strings: (strings, _no_fallback(strings))
        case t.Boolean():
            return _read_booleans
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            return lambda strings: reading.integers(strings, arrow)
        case t.Float() | t.Double():
            return lambda strings: reading.floats(strings, arrow)
        case t.Decimal():
            return lambda strings: reading.decimals(StringSpans.of(strings), arrow)
        case t.Binary() | t.VarBinary():
            return reading.base64
        case t.Date():
            return _read_dates
        case t.Time(precision=precision):
            return lambda strings: _read_times(strings, precision)
        case t.Timestamp():
            return lambda strings: reading.timestamps(StringSpans.of(strings), "SQL", zoned=False)
        case t.TimestampLtz():
            return lambda strings: reading.timestamps(StringSpans.of(strings), "SQL", zoned=True)
    raise AssertionError(kind)  # Csv.check rejects other types


def _read_booleans(strings: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Read booleans: ``true`` in any letter case and with blanks is true, every other string false."""
    return pc.equal(pc.ascii_lower(_trim(strings)), "true"), _no_fallback(strings)


def _read_dates(strings: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Read dates; also returns which strings need the fallback: unusual ones, and days before 1582-10-15."""
    values, fallback = reading.dates(StringSpans.of(strings))
    days = np.asarray(values.view(pa.int32()).fill_null(0))
    return values, fallback | (days < FIRST_GREGORIAN_DAY)


def _read_times(strings: pa.StringArray, precision: int) -> tuple[pa.Array, Mask]:
    """Read times, cut to the precision and at most to milliseconds; also return which strings need the fallback."""
    values, fallback = reading.times(StringSpans.of(strings))
    unit = 10 ** (9 - min(precision, 3))
    nanos = np.asarray(values.view(pa.int64()).fill_null(0))
    return pa.array(nanos - nanos % unit, pa.time64("ns"), mask=np.asarray(values.is_null())), fallback


def _no_fallback(strings: pa.Array) -> Mask:
    """A mask in which no value needs the fallback."""
    return np.zeros(len(strings), dtype=bool)
