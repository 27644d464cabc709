"""The options of the format ``csv``, its plan-time rules, and the creation of its decoder and encoder."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import attrs

from kdsl.errors import Problem, Where
from kdsl.formats import ALONE, Decoder, Direction, Encoder, Format, Use
from kdsl.options import option
from kdsl.types import model as t
from kdsl_formats.csv.decoder import CsvDecoder
from kdsl_formats.csv.encoder import CsvEncoder
from kdsl_formats.csv.grammar import Dialect

MAX_TIME = 3
QUOTE = '"'
_ESCAPE = re.compile(r"\\(?:([0-3]?[0-7]{1,2})|u+\+?([0-9a-fA-F]{4})|(.?))", re.DOTALL)
_NAMED = {"b": "\b", "n": "\n", "t": "\t", "f": "\f", "r": "\r"}


def unescape(text: str) -> str:
    r"""Replace Java's escapes in a string: ``\t``, ``\u0001``, ``\001``, ``\\``; of others only drop the backslash."""

    def replace(match: re.Match[str]) -> str:
        octal, code, other = match.groups()
        if octal is not None:
            return chr(int(octal, 8))
        return chr(int(code, 16)) if code is not None else _NAMED.get(other, other)

    return _ESCAPE.sub(replace, text)


def _check_character(value: str | None) -> str | None:
    """How to correct an option that must be one character, up to U+FFFF; None if it is valid, or None."""
    if value is None or (len(value) == 1 and value <= "\uffff"):
        return None
    return "write exactly one character"


def _check_delimiter(value: str) -> str | None:
    """How to correct the field delimiter, one character or Java escape, but no line break; None if it is valid."""
    character = unescape(value)
    if len(character) != 1 or character > "\uffff":
        return "write exactly one character, literally or as a Java escape (\\t, \\u0001)"
    return "a line break ends a message; choose another character" if character in "\r\n" else None


class Csv(Format):
    """One line of delimited values per message, assigned to columns by their order (Flink's format ``csv``).

    A message is one row: only its first line is read, but a line break inside quotes belongs to the value. A null
    message produces no row. Values can be quoted; inside quotes a quote is doubled. An ARRAY or ROW is one value, split
    at its own delimiter, one level deep.

    When it is read, an integer may have blanks around it and a sign; a DECIMAL may not, is rounded half up to its
    scale, and is NULL if it has too many digits; BOOLEAN is true for ``true`` in any letter case and false for
    everything else; a DATE ``2020-02-30`` is the first of March; a TIMESTAMP is ``2020-01-02 03:04:05.678``, a
    TIMESTAMP_LTZ ends in ``Z``, a TIME is ``03:04[:05.678]``; BYTES are base64. Lengths are not enforced.

    When it is written, a string, date, time or nested value is quoted if it is longer than 24 UTF-16 units, or if
    it contains a character up to the largest of delimiter, quote and line feed (with ``,`` all below ``-``), or a
    backslash (the escape character, if one is set). Numbers and booleans are never quoted.

    What is written can be read back, except: NULL and ``''`` without a null literal; a string equal to the null
    literal; a row whose only value is empty, which is an empty message; an ARRAY or ROW that is NULL, or blank without
    being empty, or whose strings contain its delimiter; all special characters if quoting is disabled; a string at the
    start of the message that begins with U+FEFF; dates outside the years 1 to 9999, and the ten days before 1582-10-15.
    """

    identifier = "csv"
    emits = ("key",)

    field_delimiter: str = option(
        "field-delimiter",
        "The character between values, literally or as a Java escape (\\t, \\u0001). ASCII characters are read faster.",
        default=",",
        check=_check_delimiter,
    )
    disable_quote_character: bool = option(
        "disable-quote-character",
        "Whether quoting is disabled. Write: special characters are not protected, so a message may not read back.",
        default=False,
    )
    quote_character: str | None = option(
        "quote-character",
        "The character around values that contain special characters; '\"' by default.",
        default=None,
        check=_check_character,
    )
    allow_comments: bool = option(
        "allow-comments",
        "Read: whether lines that begin with '#', empty lines and blanks before the row are skipped.",
        default=False,
    )
    ignore_parse_errors: bool = option(
        "ignore-parse-errors",
        "Read: whether a bad value becomes NULL and an unreadable message produces no row, instead of an error.",
        default=False,
        decides="is_lenient",
    )
    array_element_delimiter: str = option(
        "array-element-delimiter",
        "The character between the elements of an ARRAY and the members of a ROW.",
        default=";",
        check=_check_character,
    )
    escape_character: str | None = option(
        "escape-character",
        "The character after which the next one has no special meaning.",
        default=None,
        check=_check_character,
    )
    null_literal: str | None = option(
        "null-literal",
        "The string for NULL. Without it NULL is written as an empty value, which a STRING column reads as ''.",
        default=None,
    )
    write_bigdecimal_in_scientific_notation: bool = option(
        "write-bigdecimal-in-scientific-notation",
        "Write: whether decimals are shortened (1E+5); otherwise they have all digits of their scale (100000.00).",
        default=False,
    )
    trim_spaces: bool = option(
        "trim-spaces",
        "Read: whether blanks around a value that is not quoted are dropped.",
        default=False,
    )
    ignore_trailing_unmappable: bool = option(
        "ignore-trailing-unmappable",
        "Read: whether values beyond the last column are dropped; otherwise the message is an error.",
        default=False,
    )
    allow_trailing_comma: bool = option(
        "allow-trailing-comma",
        "Read: whether one delimiter may follow the last value.",
        default=True,
    )
    fail_on_missing_columns: bool = option(
        "fail-on-missing-columns",
        "Read: whether a message with too few values produces no row even if errors are ignored; otherwise the "
        "missing values are NULL then.",
        default=False,
    )
    empty_string_as_null: bool = option(
        "empty-string-as-null",
        "Read: whether an empty value, quoted or not, is NULL.",
        default=False,
    )

    def check(self, row: t.Row, direction: Direction) -> Iterable[Problem]:
        """Report types that CSV does not support and the nesting of types (rules F-5 and F-7).

        A TIME finer than milliseconds is one for reads. Options of quoting that contradict each other are reported,
        too; `problems` checks the values of the options (F-6).
        """
        yield from self._quoting_problems()
        for field in row.fields:
            yield from _type_problems(field, direction)

    def _quoting_problems(self) -> Iterator[Problem]:
        """Report a quote character with quoting disabled, and a field delimiter that is also the quote or escape."""
        if self.quote_character is not None and self.disable_quote_character is True:
            yield Problem(
                "csv-quote",
                "the format 'csv' cannot both have a quote character and have quoting disabled",
                "remove the quote character, or do not disable quoting",
            )
        delimiter = unescape(str(self.field_delimiter))
        quote = None if self.disable_quote_character is True else self.quote_character or QUOTE
        for name, character in (("quote character", quote), ("escape character", self.escape_character)):
            if character == delimiter:
                yield Problem(
                    "csv-delimiter",
                    f"the format 'csv' has {delimiter!r} both as its field delimiter and as its {name}",
                    "choose another character for one of them",
                )

    def alternatives(self) -> Iterable[Format]:
        """Formats with one valid change each: another delimiter, null literal or quote, or other text around a row."""
        changes: list[dict[str, Any]] = [{"field_delimiter": one} for one in (",", ";", "\\t", "|")]
        changes += [{"null_literal": one} for one in ("", "NULL", "null", "\\N")]
        if not self.disable_quote_character:
            changes.append({"quote_character": "'"})
        changes += [{name: True} for name in ("trim_spaces", "allow_trailing_comma", "allow_comments")]
        for change in changes:
            other = attrs.evolve(self, **change)  # type: ignore[misc]
            if other != self and not any(other.check(t.Row(()), "read")):
                yield other

    def decoder(self, row: t.Row, use: Use = ALONE) -> Decoder:
        """A decoder for rows of this type, whatever the use."""
        return CsvDecoder(row, self.dialect(), ignore_parse_errors=self.ignore_parse_errors)

    def encoder(self, row: t.Row, use: Use = ALONE) -> Encoder:
        """An encoder for rows of this type, whatever the use."""
        return CsvEncoder(row, self.dialect(), scientific=self.write_bigdecimal_in_scientific_notation)

    def dialect(self) -> Dialect:
        """The options in the form that the decoder and the encoder use."""
        return Dialect(
            delimiter=unescape(self.field_delimiter),
            quote=None if self.disable_quote_character else self.quote_character or QUOTE,
            escape=self.escape_character,
            array_delimiter=self.array_element_delimiter,
            null_literal=self.null_literal,
            comments=self.allow_comments,
            trim=self.trim_spaces,
            ignore_extra=self.ignore_trailing_unmappable,
            trailing_delimiter=self.allow_trailing_comma,
            require_all=self.fail_on_missing_columns,
            empty_as_null=self.empty_string_as_null,
        )


def _type_problems(field: t.Field, direction: Direction) -> Iterator[Problem]:
    """Report a column with a MAP or MULTISET, more than one level of nesting, or (for reads) a TIME(4) or finer."""
    where = Where(column=field.name)
    for kind in (field.type, *(() if isinstance(field.type, t.Map | t.Multiset) else t.children(field.type))):
        if isinstance(kind, t.Map | t.Multiset):
            yield Problem("csv-type", f"the format 'csv' does not support the type {kind}", _type_fix(kind), where)
        elif kind is not field.type and isinstance(kind, t.Array | t.Row):
            yield Problem(
                "csv-nesting",
                f"the type {field.type} contains {kind}, but the format 'csv' has only one level of nesting",
                "use separate columns for the inner values, or the format 'json'",
                where,
            )
        elif isinstance(kind, t.Time) and kind.precision > MAX_TIME and direction == "read":
            yield Problem(
                "csv-time",
                f"the format 'csv' reads times in milliseconds, but the type {kind} is finer",
                f"use TIME({MAX_TIME}), or STRING",
                where,
            )


def _type_fix(kind: t.DataType) -> str:
    """The fix for an unsupported type."""
    return f"use the format 'json' for the type {kind.spelling}, or a STRING"
