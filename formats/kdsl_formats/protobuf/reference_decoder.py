"""The reference decoder of Protobuf: it reads messages one by one and defines what they mean.

Google's library parses the messages; this module converts the values to those of columns.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from typing import Any

import attrs
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from kdsl.shown_values import show_value
from kdsl.types import model as t
from kdsl_formats._text.looks import JSON_INSTEAD, looks_like_json
from kdsl_formats.protobuf.layout import Layout, Member

UNRECOGNIZED = "UNRECOGNIZED"
NANOS = 1_000_000_000
FIRST_INSTANT, LAST_INSTANT = -(1 << 63), (1 << 63) - 1


@attrs.frozen
class ReadingRules:
    """The options of the format for reading.

    Attributes:
        ignore_parse_errors: Whether a bad message produces no row, instead of an error.
        read_default_values: Whether absent values become their defaults, instead of NULL.
        null_fails: Whether a null message is an error; otherwise it produces no row.
    """

    ignore_parse_errors: bool = False
    read_default_values: bool = False
    null_fails: bool = True


_MAP_KEY = re.compile(r"(?<=\[).+(?=\])")


class BadMessageError(ValueError):
    """A message that cannot be read, or a row that cannot be written."""


class ReferenceDecoder:
    """Decodes messages to rows of one type.

    Args:
        layout: The message and the row type.
        rules: The options of the format.
    """

    def __init__(self, layout: Layout, rules: ReadingRules) -> None:
        self._layout = layout
        self._make = layout.make
        self._defaults = rules.read_default_values

    def read_row(self, message: bytes) -> dict[str, Any]:
        """Decode a message to a row whose values Arrow accepts."""
        try:
            parsed: Any = self._make.FromString(message)
        except DecodeError as e:
            instead = JSON_INSTEAD if looks_like_json(message) else ""
            raise BadMessageError(f"it is not such a message: {show_value(e)}{instead}") from e
        if not parsed.IsInitialized():
            paths = parsed.FindInitializationErrors()
            missing = ", ".join(_MAP_KEY.sub(lambda key: show_value(key[0]), path) for path in paths)
            raise BadMessageError(f"required fields are missing: {missing}")
        return self._read_row(self._layout, parsed)

    def _read_row(self, layout: Layout, message: Message) -> dict[str, Any]:
        """Convert a parsed message to a row of the layout's columns, with values as in `_read_value`."""
        return {m.name: self._read_value(m, message) for m in layout.members}

    def _read_value(self, member: Member, message: Message) -> Any:
        """The value of a field, or its values; None if it is absent or empty, unless the rules read defaults.

        The value of a single field without presence is never None.
        """
        if member.shape == "one":
            if member.presence and not self._defaults and not message.HasField(member.name):
                return None
            return self._read_single(member, getattr(message, member.name))
        values = getattr(message, member.name)
        if not len(values) and not self._defaults:
            return None
        if member.shape == "array":
            return [self._read_single(member, value) for value in values]
        return self._read_entries(member, values)

    def _read_entries(self, member: Member, entries: Any) -> list[tuple[Any, Any]]:
        """A map's entries; of equal keys the last one wins, at the index of the first.

        An entry with a number that a closed enum lacks is left out.
        """
        assert member.inside is not None
        key, value = member.inside.members
        pairs: dict[Any, Any] = {}
        for entry in entries:
            value_read = getattr(entry, value.name)
            if value.closed and entry.HasField(value.name) and value_read not in value.names:
                continue  # such an entry counts as an unknown field
            if value.closed and not entry.HasField(value.name):
                value_read = next(iter(value.names))
            pairs[self._read_single(key, getattr(entry, key.name))] = self._read_single(value, value_read)
        return list(pairs.items())

    def _read_single(self, member: Member, value: Any) -> Any:
        """Convert one value of a field; `BadMessageError` if it cannot be represented."""
        match member.form:
            case "scalar":
                return _convert_scalar(member.kind, value)
            case "enum":
                return _convert_enum(member, value)
            case "timestamp":
                return to_micros(value.seconds, value.nanos)
            case "json":
                return _to_json(value)
        assert member.inside is not None
        if member.form == "wrapper":
            return self._read_single(member.inside.members[0], value.value)
        return self._read_row(member.inside, value)


def to_micros(seconds: int, nanos: int) -> int:
    """Convert a Timestamp to microseconds; finer digits are truncated."""
    micros = seconds * 1_000_000 + nanos // 1000
    if not 0 <= nanos < NANOS or not FIRST_INSTANT <= micros <= LAST_INSTANT:
        shown = f"{show_value(seconds)} seconds and {show_value(nanos)} nanoseconds"
        raise BadMessageError(f"the timestamp of {shown} is out of range")
    return micros


def _convert_scalar(kind: t.DataType, value: Any) -> Any:
    """Convert a scalar to the column's type; unsigned numbers become signed, except in a DECIMAL.

    Bytes in a string that are not UTF-8 are replaced by U+FFFD.
    """
    match kind:
        case t.Int() if value >= 1 << 31:
            return value - (1 << 32)  # unsigned numbers are signed in Java
        case t.BigInt() if value >= 1 << 63:
            return value - (1 << 64)
        case t.Decimal():
            return Decimal(value)
        case t.Char() | t.VarChar() if isinstance(value, bytes):
            return value.decode("utf-8", "replace")  # only proto2 allows other bytes in a string
        case _:
            return value


def _convert_enum(member: Member, number: int) -> str | int:
    """Convert an enum value to its name or number; the name of an unknown number is `UNRECOGNIZED`."""
    known = member.names.get(number)
    if member.by_name:
        return UNRECOGNIZED if known is None else known
    if known is None:
        name = member.field.full_name.rpartition(".")[2]
        reason = f"the field {name!r} has the unknown enum value {show_value(number)}"
        raise BadMessageError(f"{reason}, which only a STRING column can represent")
    return number


def _to_json(value: Message) -> str:
    """Write a message as compact JSON."""
    try:
        return json.dumps(json_format.MessageToDict(value), ensure_ascii=False, separators=(",", ":"))
    except (json_format.Error, ValueError, TypeError) as e:
        raise BadMessageError(f"a value cannot be written as JSON: {show_value(e)}") from e
