"""Encodes rows as CSV, column by column; equal to `ReferenceEncoder` for every message."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Encoded
from kdsl.types import model as t
from kdsl_formats._columns.arrays import Indices, Mask, content, find_bounds, put_nulls
from kdsl_formats._text import writing
from kdsl_formats._text.decimals import decimals
from kdsl_formats.csv.grammar import Dialect
from kdsl_formats.csv.reference_encoder import LONGEST_UNQUOTED, UNQUOTED, largest_special

Write = Callable[[pa.Array], pa.StringArray]
_FOUR_BYTES = 0xF0  # the lowest first byte of a character beyond U+FFFF, which has two UTF-16 units
_LAST_ASCII = "\x7f"


class CsvEncoder:
    """Encodes arrays of rows as CSV messages."""

    def __init__(self, row: t.Row, dialect: Dialect, *, scientific: bool) -> None:
        self.dialect, self.scientific = dialect, scientific
        self.null = dialect.null_literal or ""
        self._columns = [self._column_writer(f.type) for f in row.fields]
        self._quoter = _Quoter(dialect)

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Encode an array of rows, whatever their kinds; no row fails."""
        strings = [write(column) for write, column in zip(self._columns, rows.flatten(), strict=True)]
        return Encoded(self._join(strings, self.dialect.delimiter).cast(pa.binary()))

    def _join(self, strings: list[pa.StringArray], delimiter: str) -> pa.StringArray:
        """Join columns of strings; NULL becomes the null literal."""
        return pc.binary_join_element_wise(*strings, delimiter, null_handling="replace", null_replacement=self.null)

    def _column_writer(self, kind: t.DataType) -> Write:
        """The function that writes a column, with quotes if its type may need them and the dialect has quotes.

        It writes every value of the types that `Csv.check` accepts.
        """
        write = self._value_writer(kind)
        if isinstance(kind, UNQUOTED) or self.dialect.quote is None:
            return write
        return lambda column: self._quoter.quote_strings(write(column))

    def _value_writer(self, kind: t.DataType) -> Write:
        """The function that writes values of a type that `Csv.check` accepts as strings, without quotes."""
        match kind:
            case t.Array(element=element):
                inner = self._value_writer(element)
                return lambda column: self._write_array(column, inner)
            case t.Row(fields=fields):
                members = [self._value_writer(f.type) for f in fields]
                return lambda column: self._write_row(column, members)
            case t.Decimal():
                return lambda column: decimals(column, plain=not self.scientific)
            case t.Timestamp() | t.TimestampLtz():
                return lambda column: writing.timestamps(column, "SQL")
            case t.Char() | t.VarChar():
                return lambda column: column
            case _:
                return _WRITERS[type(kind)]

    def _write_array(self, column: pa.ListArray, inner: Write) -> pa.StringArray:
        """Write arrays: their elements with the array delimiter between them, NULL elements as the null literal.

        The string of an array that is NULL is NULL.
        """
        counts = np.asarray(pc.list_value_length(column).fill_null(0))
        offsets = np.zeros(len(counts) + 1, dtype=np.int32)
        np.cumsum(counts, out=offsets[1:])
        elements = inner(column.flatten()).fill_null(self.null)
        lists = pa.ListArray.from_arrays(pa.array(offsets), elements)
        return put_nulls(column, pc.binary_join(lists, self.dialect.array_delimiter))

    def _write_row(self, column: pa.StructArray, members: list[Write]) -> pa.StringArray:
        """Write nested rows: their members with the array delimiter between them, NULL members as the null literal.

        The string of a row that is NULL is NULL.
        """
        if not members:
            return put_nulls(column, pa.array([""] * len(column), pa.string()))
        strings = [write(member) for write, member in zip(members, column.flatten(), strict=True)]
        return put_nulls(column, self._join(strings, self.dialect.array_delimiter))


class _Quoter:
    """Adds quotes to those strings of whole columns that might need them."""

    def __init__(self, dialect: Dialect) -> None:
        """Prepare the search for characters that cause quotes (see `_has_special`)."""
        self.quote, self.escape = dialect.quote or "", dialect.escape
        largest, special = largest_special(dialect), dialect.escape or "\\"
        self.special = np.zeros(256, dtype=bool)
        self.pattern = ""
        if max(largest, special) <= _LAST_ASCII:
            self.special[: ord(largest) + 1] = True
            self.special[ord(special)] = True
        else:
            self.pattern = rf"[\x00-\x{{{ord(largest):X}}}{re.escape(special)}]"
            if largest >= "\ud800":  # then the surrogates of characters beyond U+FFFF are special, too
                self.pattern = rf"[\x00-\x{{{ord(largest):X}}}\x{{10000}}-\x{{10FFFF}}]"

    def quote_strings(self, strings: pa.StringArray) -> pa.StringArray:
        """Put quotes around strings that might need them; inside these, quotes and escape characters are doubled."""
        needed = self._find_needed(strings)
        if not needed.any():
            return strings
        inner = strings
        if self.escape is not None and self.escape != self.quote:
            inner = pc.replace_substring(inner, self.escape, self.escape * 2)
        inner = pc.replace_substring(inner, self.quote, self.quote * 2)
        inner = pc.binary_join_element_wise(self.quote, inner, self.quote, "")
        return inner if needed.all() else pc.if_else(pa.array(needed), inner, strings)

    def _find_needed(self, strings: pa.StringArray) -> Mask:
        """Which strings need quotes: those with a special character, and long ones."""
        data = content(strings)
        start, end = find_bounds(strings)
        needed = self._has_special(strings, data, end)
        long = end - start > LONGEST_UNQUOTED
        if long.any() and not needed[long].all():
            if int(data.max()) > ord(_LAST_ASCII):
                long = _utf16_lengths(strings, data, end) > LONGEST_UNQUOTED
            needed |= long
        return needed

    def _has_special(self, strings: pa.StringArray, data: npt.NDArray[np.uint8], end: Indices) -> Mask:
        """Which strings contain a character that causes quotes.

        These are all characters up to the largest of delimiter, quote and line feed, among them blanks, and the escape
        character, or a backslash without one.
        """
        if self.pattern:
            return np.array(pc.match_substring_regex(strings, self.pattern).fill_null(False))
        needed = np.zeros(len(strings), dtype=bool)
        needed[np.searchsorted(end, np.flatnonzero(self.special.take(data)), side="right")] = True
        return needed


def _utf16_lengths(strings: pa.StringArray, data: npt.NDArray[np.uint8], end: Indices) -> Indices:
    """The length of each string in UTF-16 units; 0 for NULL."""
    units = np.array(pc.utf8_length(strings).fill_null(0)).astype(np.int64)
    np.add.at(units, np.searchsorted(end, np.flatnonzero(data >= _FOUR_BYTES), side="right"), 1)
    return units


_WRITERS: dict[type[t.DataType], Write] = {
    t.Boolean: writing.booleans,
    t.TinyInt: writing.integers,
    t.SmallInt: writing.integers,
    t.Int: writing.integers,
    t.BigInt: writing.integers,
    t.Float: writing.floats,
    t.Double: writing.floats,
    t.Binary: writing.base64,
    t.VarBinary: writing.base64,
    t.Date: writing.dates,
    t.Time: writing.times,
}
