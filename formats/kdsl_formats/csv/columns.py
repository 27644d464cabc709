"""Whole columns of CSV values to Arrow, where they are plain; what is in doubt is left to the reference decoder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl.types.arrow import arrow_field, arrow_type
from kdsl.types.texts.numbers import BLANKS
from kdsl_formats._columns.arrays import Mask, Positions
from kdsl_formats._text import reading
from kdsl_formats.csv.grammar import Dialect

Read = Callable[[pa.StringArray], tuple[pa.Array, Mask]]
FIRST_GREGORIAN_DAY = -141_427
_KEEPS_EMPTY = (t.Char, t.VarChar, t.Binary, t.VarBinary, t.Boolean)


class ColumnReader:
    """Makes the columns of a row type from texts.

    `read` gives the values and the doubts: a mask of the rows that the reference decoder has to read.
    """

    def __init__(self, dialect: Dialect, *, ignore_parse_errors: bool) -> None:
        self.dialect, self.ignore = dialect, ignore_parse_errors

    def reader(self, kind: t.DataType) -> Read:
        """What reads a column of a type."""
        match kind:
            case t.Array():
                return self._array(kind)
            case t.Row():
                return self._row(kind)
            case _:
                return self._scalar(kind)

    def _scalar(self, kind: t.DataType) -> Read:
        read = _converter(kind)
        empty = self.dialect.empty_as_null or (self.ignore and not isinstance(kind, _KEEPS_EMPTY))
        nulls = {self.dialect.null_literal, "" if empty else None} - {None}

        def convert(texts: pa.StringArray) -> tuple[pa.Array, Mask]:
            for text in nulls:
                found = pc.equal(texts, text)
                if found.true_count:
                    texts = pc.if_else(found, pa.scalar(None, pa.string()), texts)
            return read(texts)

        return convert

    def _parts(self, texts: pa.StringArray) -> tuple[pa.StringArray, Positions]:
        """The parts of all texts, and how many each text has; a blank text has none."""
        blank = np.asarray(pc.equal(pc.binary_length(_trim(texts)), 0))
        lists = pc.split_pattern(texts, self.dialect.array_delimiter)
        counts = np.asarray(pc.list_value_length(lists)).astype(np.int64)
        flat = lists.flatten()
        if blank.any():
            flat = flat.filter(pa.array(np.repeat(~blank, counts)))
            counts[blank] = 0
        return _trim(flat) if self.dialect.trim else flat, counts

    def _array(self, kind: t.Array) -> Read:
        read, made = self._scalar(kind.element), arrow_type(kind)

        def convert(texts: pa.StringArray) -> tuple[pa.Array, Mask]:
            flat, counts = self._parts(texts)
            elements, doubts = read(flat)
            offsets = np.zeros(len(counts) + 1, dtype=np.int32)
            np.cumsum(counts, out=offsets[1:])
            doubtful = np.zeros(len(counts), dtype=bool)
            doubtful[np.repeat(np.arange(len(counts)), counts)[doubts]] = True
            return pa.ListArray.from_arrays(pa.array(offsets), elements, type=made), doubtful

        return convert

    def _row(self, kind: t.Row) -> Read:
        members = [(arrow_field(f.name, f.type), self._scalar(f.type)) for f in kind.fields]

        def convert(texts: pa.StringArray) -> tuple[pa.Array, Mask]:
            flat, counts = self._parts(texts)
            doubtful = (counts > 0) & (counts < len(members))
            present = counts >= max(len(members), 1)
            first = (np.cumsum(counts) - counts)[present]
            places = np.flatnonzero(present)
            scattered = np.zeros(len(counts), dtype=np.int64)
            scattered[places] = np.arange(len(places))
            spread = pa.array(scattered, mask=~present)
            columns = []
            for i, (_, read) in enumerate(members):
                values, doubts = read(flat.take(pa.array(first + i)))
                doubtful[places[doubts]] = True
                columns.append(values.take(spread))
            fields = [field for field, _ in members]
            return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(~present)), doubtful

        return convert


def _trim(texts: pa.StringArray) -> pa.StringArray:
    return pc.ascii_trim(texts, characters=BLANKS)


def _converter(kind: t.DataType) -> Read:
    made = arrow_type(kind)
    match kind:
        case t.Char() | t.VarChar():
            return lambda texts: (texts, _no_doubts(texts))
        case t.Boolean():
            return _booleans
        case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
            return lambda texts: reading.integers(texts, made)
        case t.Float() | t.Double():
            return lambda texts: reading.floats(texts, made)
        case t.Decimal():
            return lambda texts: reading.decimals(texts, made)
        case t.Binary() | t.VarBinary():
            return reading.base64
        case t.Date():
            return _dates
        case t.Time(precision=precision):
            return lambda texts: _times(texts, precision)
        case t.Timestamp():
            return lambda texts: reading.timestamps(texts, "SQL", zoned=False)
        case t.TimestampLtz():
            return lambda texts: reading.timestamps(texts, "SQL", zoned=True)
    raise AssertionError(kind)  # Csv.check refuses the others


def _booleans(texts: pa.StringArray) -> tuple[pa.Array, Mask]:
    return pc.equal(pc.ascii_lower(_trim(texts)), "true"), _no_doubts(texts)


def _dates(texts: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Dates that are in both calendars what they say."""
    values, doubts = reading.dates(texts)
    days = np.asarray(values.view(pa.int32()).fill_null(0))
    return values, doubts | (days < FIRST_GREGORIAN_DAY)


def _times(texts: pa.StringArray, precision: int) -> tuple[pa.Array, Mask]:
    values, doubts = reading.times(texts)
    unit = 10 ** (9 - min(precision, 3))
    nanos = np.asarray(values.view(pa.int64()).fill_null(0))
    return pa.array(nanos - nanos % unit, pa.time64("ns"), mask=np.asarray(values.is_null())), doubts


def _no_doubts(texts: pa.Array) -> Mask:
    return np.zeros(len(texts), dtype=bool)
