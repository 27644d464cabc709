"""Splits a message into the values of one CSV row, character by character, as Flink's CSV reader does.

This module defines where values begin and end; the faster splitter only splits messages with plain values.
"""

from __future__ import annotations

import codecs
from typing import NoReturn

import attrs

from kdsl.errors import pluralize
from kdsl.shown_values import quote_value
from kdsl.types.strings.numbers import BLANKS, trim

_BREAKS = "\r\n"
_UNESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_MARKS = (
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF8, "utf-8"),
)
_MARKED = 4  # a shorter message has no byte order mark


@attrs.frozen
class Dialect:
    """The characters and rules of CSV.

    Attributes:
        delimiter: Separates values.
        quote: Surrounds a value with special characters; None disables quoting.
        escape: Removes the special meaning of the next character; None if there is no such character.
        array_delimiter: Separates the elements of an ARRAY and the members of a ROW.
        null_literal: The string that represents NULL; None if there is none.
        comments: Whether lines that begin with ``#``, empty lines and blanks before the row are skipped.
        trim: Whether blanks around values that are not quoted are dropped.
        ignore_extra: Whether values beyond the last column are dropped.
        trailing_delimiter: Whether one delimiter may follow the last value.
        require_all: Whether a row with too few values is an error even if errors are ignored per value.
        empty_as_null: Whether an empty value is NULL.
    """

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    array_delimiter: str = ";"
    null_literal: str | None = None
    comments: bool = False
    trim: bool = False
    ignore_extra: bool = False
    trailing_delimiter: bool = True
    require_all: bool = False
    empty_as_null: bool = False


def decode_message(message: bytes) -> str:
    """Decode a message: as UTF-8, or in the encoding of the byte order mark at its start, which is left out.

    What is not UTF-8 is read as Java's modified UTF-8. A message of fewer than four bytes has no mark.
    """
    encoding, skipped = "utf-8", 0
    if len(message) >= _MARKED:
        marks = ((encoding, len(mark)) for mark, encoding in _MARKS if message.startswith(mark))
        encoding, skipped = next(marks, (encoding, skipped))
    data = message[skipped:]
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as e:
        if encoding == "utf-8" and (text := _java_utf8(data)) is not None:
            return text
        raise ValueError(f"byte {skipped + e.start + 1} is not {encoding.upper()} ({e.reason})") from None


def _java_utf8(data: bytes) -> str | None:
    """Decode Java's modified UTF-8, which has two bytes for U+0000 and six for characters beyond U+FFFF.

    Plain UTF-8 is read, too. None if the bytes are not valid.
    """
    try:
        halves = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None


def split_row(text: str, dialect: Dialect, columns: int) -> list[str]:
    """The values of the first row of a string; everything after the row is ignored.

    Returns:
        At most as many values as there are columns.
    """
    row = _RowReader(text, dialect)
    values: list[str] = []
    for _ in range(columns):
        values.append(row.value())
        if not row.skip_delimiter():
            break
    else:
        _read_extra(row, dialect, columns)
    if dialect.require_all and len(values) < columns:
        raise ValueError(f"the row has {count_values(len(values))}, but the table has {pluralize(columns, 'column')}")
    return values


def _read_extra(row: _RowReader, dialect: Dialect, columns: int) -> None:
    """Skip values beyond the last column, or only a blank one after a trailing delimiter."""
    extra = row.value()
    if dialect.ignore_extra:
        while row.skip_delimiter():
            row.value()
    elif row.skip_delimiter() or not dialect.trailing_delimiter or trim(extra):
        raise ValueError(f"the row has more values than the table's {columns} columns")


def count_values(values: int) -> str:
    """A number of values as a phrase."""
    return pluralize(values, "value")


class _RowReader:
    """Reads the first row of a string, value by value."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        """Start at the row, after comments and blanks if the dialect skips them."""
        self.text, self.dialect, self.position = text, dialect, 0
        if dialect.comments:
            self._skip_comments()
        if self.position == len(text):
            raise ValueError("the message contains only comments and blanks" if text else "the message is empty")

    def _skip_comments(self) -> None:
        """Skip comments, empty lines and blanks before the row, whatever the dialect; at most to the string's end."""
        text, position = self.text, self.position
        while position < len(text) and text[position] in " \r\n#":
            if text[position] == "#":
                while position < len(text) and text[position] not in _BREAKS:
                    position += 1
            else:
                position += 1
        self.position = position

    def skip_delimiter(self) -> bool:
        """Skip the delimiter at the position, and return True; return False if something else is there."""
        if self.text.startswith(self.dialect.delimiter, self.position):
            self.position += 1
            return True
        return False

    def value(self) -> str:
        """Read a value, up to the delimiter or the end of the row; `ValueError` for a wrong quote or escape."""
        text, dialect = self.text, self.dialect
        if dialect.trim:
            self._skip_blanks()
        if dialect.quote is not None and text.startswith(dialect.quote, self.position):
            return self._read_quoted(dialect.quote)
        value_read, start = "", self.position
        while self.position < len(text):
            c = text[self.position]
            if c == dialect.delimiter or c in _BREAKS:
                break
            if c == dialect.escape:
                value_read += text[start : self.position] + self._read_escaped()
                start = self.position
            else:
                self.position += 1
        value_read += text[start : self.position]
        return value_read.rstrip(BLANKS) if dialect.trim else value_read

    def _read_quoted(self, quote: str) -> str:
        """Read a quoted value and the blanks after it, and return it without quotes and escapes."""
        text, escape = self.text, self.dialect.escape
        self.position += 1
        value_read, start = "", self.position
        while self.position < len(text):
            c = text[self.position]
            if c == quote:
                value_read += text[start : self.position]
                self.position += 1
                if not text.startswith(quote, self.position):
                    self._skip_blanks()
                    self._check_end_of_value()
                    return value_read
                start = self.position
                self.position += 1
            elif c == escape:
                value_read += text[start : self.position] + self._read_escaped()
                start = self.position
            else:
                self.position += 1
        raise ValueError("a quoted value has no closing quote")

    def _read_escaped(self) -> str:
        """Read an escape character and the character after it; returns what they stand for."""
        self.position += 2
        if self.position > len(self.text):
            raise ValueError("the message ends with an escape character")
        c = self.text[self.position - 1]
        return _UNESCAPED.get(c, c)

    def _skip_blanks(self) -> None:
        """Move after blanks, up to a delimiter or the end of the line."""
        text, delimiter = self.text, self.dialect.delimiter
        while self.position < len(text) and text[self.position] <= " ":
            if text[self.position] == delimiter or text[self.position] in _BREAKS:
                break
            self.position += 1

    def _check_end_of_value(self) -> None:
        """Check that only a delimiter or a line end follows a closing quote."""
        rest = self.text[self.position : self.position + 1]
        if rest and rest != self.dialect.delimiter and rest not in _BREAKS:
            self._fail(rest)

    def _fail(self, character: str) -> NoReturn:
        """Raise the error for a character after a closing quote."""
        expected = f"expected {self.dialect.delimiter!r} or the end of the line"
        raise ValueError(
            f"{quote_value(character)} follows a closing quote at character {self.position + 1}; {expected}"
        )
