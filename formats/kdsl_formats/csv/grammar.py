"""A message as the values of one CSV row, character by character, as Flink's CSV reader splits it.

This is the judge of where values begin and end; the fast decoder splits only messages of which it is sure.
"""

from __future__ import annotations

import codecs
from typing import NoReturn

import attrs

from kdsl.types.texts.numbers import BLANKS, trim

_BREAKS = "\r\n"
_UNESCAPED = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}
_MARKS = (
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF8, "utf-8"),
)
_MARKED = 4  # a shorter message has no mark


@attrs.frozen
class Dialect:
    """The characters and rules of the CSV that is read and written.

    Attributes:
        delimiter: Stands between values.
        quote: Stands around a value that holds other special characters; None switches quoting off.
        escape: Takes its meaning from the next character; None when there is none.
        array_delimiter: Stands between the elements of an ARRAY and the members of a ROW.
        null_literal: The text of NULL; None when NULL has none.
        comments: Lines that begin with ``#``, and empty lines and blanks before the row, are skipped.
        trim: Blanks around values that are not quoted are dropped.
        ignore_extra: Values beyond the last column are dropped.
        trailing_delimiter: One delimiter may follow the last value.
        require_all: A row with fewer values than columns is an error even where errors are ignored per value.
        empty_as_null: An empty value is NULL.
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


def text_of(message: bytes) -> str:
    """The text of a message: UTF-8, or what a mark at its beginning says.

    Raises:
        ValueError: The bytes are no text.
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
        raise ValueError(f"byte {skipped + e.start + 1} is no {encoding.upper()} ({e.reason})") from None


def _java_utf8(data: bytes) -> str | None:
    """The text of Java's own UTF-8, which spells U+0000 with two bytes and characters beyond U+FFFF with six."""
    try:
        halves = data.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return halves.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    except UnicodeDecodeError:
        return None


def split(text: str, dialect: Dialect, columns: int) -> list[str]:
    """The values of the first row of a text; what follows the row is not looked at.

    Returns:
        At most as many values as there are columns.

    Raises:
        ValueError: There is no row, or it is broken, or it has too many values.
    """
    row = _Row(text, dialect)
    values: list[str] = []
    for _ in range(columns):
        values.append(row.value())
        if not row.more():
            break
    else:
        _read_extra(row, dialect, columns)
    if dialect.require_all and len(values) < columns:
        raise ValueError(f"the row has {counted(len(values))}, and the table has {columns} columns")
    return values


def _read_extra(row: _Row, dialect: Dialect, columns: int) -> None:
    extra = row.value()
    if dialect.ignore_extra:
        while row.more():
            row.value()
    elif row.more() or not dialect.trailing_delimiter or trim(extra):
        raise ValueError(f"the row has more values than the table has columns, which are {columns}")


def counted(values: int) -> str:
    """A number of values in words."""
    return "1 value" if values == 1 else f"{values} values"


class _Row:
    """A place in a text that moves on value by value to the end of the row."""

    def __init__(self, text: str, dialect: Dialect) -> None:
        self.text, self.dialect, self.place = text, dialect, 0
        if dialect.comments:
            self._skip_comments()
        if self.place == len(text):
            raise ValueError("the message holds only comments and blanks" if text else "the message is empty")

    def _skip_comments(self) -> None:
        text, place = self.text, self.place
        while place < len(text) and text[place] in " \r\n#":
            if text[place] == "#":
                while place < len(text) and text[place] not in _BREAKS:
                    place += 1
            else:
                place += 1
        self.place = place

    def more(self) -> bool:
        """Step over the delimiter behind a value; False at the end of the row."""
        if self.text.startswith(self.dialect.delimiter, self.place):
            self.place += 1
            return True
        return False

    def value(self) -> str:
        """Read a value, up to the delimiter or the end of the row."""
        text, dialect = self.text, self.dialect
        if dialect.trim:
            self._skip_blanks()
        if dialect.quote is not None and text.startswith(dialect.quote, self.place):
            return self._quoted(dialect.quote)
        made, start = "", self.place
        while self.place < len(text):
            c = text[self.place]
            if c == dialect.delimiter or c in _BREAKS:
                break
            if c == dialect.escape:
                made += text[start : self.place] + self._unescaped()
                start = self.place
            else:
                self.place += 1
        made += text[start : self.place]
        return made.rstrip(BLANKS) if dialect.trim else made

    def _quoted(self, quote: str) -> str:
        text, escape = self.text, self.dialect.escape
        self.place += 1
        made, start = "", self.place
        while self.place < len(text):
            c = text[self.place]
            if c == quote:
                made += text[start : self.place]
                self.place += 1
                if not text.startswith(quote, self.place):
                    self._skip_blanks()
                    self._check_end_of_value()
                    return made
                start = self.place
                self.place += 1
            elif c == escape:
                made += text[start : self.place] + self._unescaped()
                start = self.place
            else:
                self.place += 1
        raise ValueError("a quoted value has no closing quote")

    def _unescaped(self) -> str:
        self.place += 2
        if self.place > len(self.text):
            raise ValueError("an escape character stands at the end")
        c = self.text[self.place - 1]
        return _UNESCAPED.get(c, c)

    def _skip_blanks(self) -> None:
        text, delimiter = self.text, self.dialect.delimiter
        while self.place < len(text) and text[self.place] <= " ":
            if text[self.place] == delimiter or text[self.place] in _BREAKS:
                break
            self.place += 1

    def _check_end_of_value(self) -> None:
        rest = self.text[self.place : self.place + 1]
        if rest and rest != self.dialect.delimiter and rest not in _BREAKS:
            self._fail(rest)

    def _fail(self, found: str) -> NoReturn:
        expected = f"expected {self.dialect.delimiter!r} or the end of the line"
        raise ValueError(f"{found!r} follows a closing quote at character {self.place + 1}; {expected}")
