"""The reference encoder of Protobuf: it writes rows one by one and defines the message of a row."""

from __future__ import annotations

from typing import Any

import attrs
from google.protobuf import json_format
from google.protobuf.message import EncodeError, Message

from kdsl.types import model as t
from kdsl_formats.protobuf.layout import Layout, Member
from kdsl_formats.protobuf.reference_decoder import BadMessageError


@attrs.frozen
class WritingRules:
    """The options of the format for writing.

    Attributes:
        null_text: The string for a NULL inside an ARRAY or a MAP.
        unknown_fails: Whether a name or number that an enum does not have is an error; otherwise the enum's first value
            is written.
    """

    null_text: str = ""
    unknown_fails: bool = False


class ReferenceEncoder:
    """Encodes rows of one type as messages.

    Args:
        layout: The message and the row type.
        rules: The options of the format.
    """

    def __init__(self, layout: Layout, rules: WritingRules) -> None:
        self._layout = layout
        self._make = layout.make
        self._rules = rules

    def write_message(self, row: dict[str, Any]) -> bytes:
        """Encode a row, whose values have the form of Arrow's: instants in microseconds, maps as pairs."""
        built = self._make()
        self._fill(self._layout, built, row)
        try:
            return built.SerializeToString(deterministic=True)
        except EncodeError as e:
            raise BadMessageError(str(e)) from e

    def _fill(self, layout: Layout, message: Message, row: dict[str, Any]) -> None:
        """Set the fields of a message from a row with all columns, in place; None leaves a field unset."""
        for member in layout.members:
            value = row[member.name]
            if value is None:
                continue
            if member.shape == "one":
                self._set_value(member, message, value)
            elif member.shape == "array":
                self._add_elements(member, getattr(message, member.name), value)
            else:
                self._add_entries(member, getattr(message, member.name), value)

    def _set_value(self, member: Member, message: Message, value: Any) -> None:
        """Set a field of a message to one value, in place; `BadMessageError` if it cannot be written."""
        if member.inside is None:
            setattr(message, member.name, self._convert_scalar(member, value))
            return
        inner = getattr(message, member.name)
        inner.SetInParent()
        self._fill_message(member, inner, value)

    def _add_elements(self, member: Member, target: Any, values: list[Any]) -> None:
        """Add the elements of an array to a repeated field, in place; NULL becomes a default or an empty message."""
        for value in values:
            if member.inside is None:
                target.append(self._convert_element(member, value))
            else:
                inner = target.add()
                if value is not None:
                    self._fill_message(member, inner, value)

    def _add_entries(self, member: Member, target: Any, pairs: list[tuple[Any, Any]]) -> None:
        """Add the entries of a map to a repeated field, in place; NULL becomes a default or an empty message."""
        assert member.inside is not None
        for pair in pairs:
            entry = target.add()
            for part, value in zip(member.inside.members, pair, strict=True):
                if part.inside is None:
                    setattr(entry, part.name, self._convert_element(part, value))
                else:
                    inner = getattr(entry, part.name)
                    inner.SetInParent()
                    if value is not None:
                        self._fill_message(part, inner, value)

    def _fill_message(self, member: Member, message: Any, value: Any) -> None:
        """Set a nested message, in place, from an instant, a wrapped value, a row, or JSON (Struct, Value, …)."""
        assert member.inside is not None
        match member.form:
            case "timestamp":
                message.seconds, micros = divmod(value, 1_000_000)
                message.nanos = micros * 1000
            case "wrapper":
                self._set_value(member.inside.members[0], message, value)
            case "json":
                try:
                    json_format.Parse(value, message)
                except json_format.ParseError as e:
                    raise BadMessageError(f"{member.name}: {value!r} is not JSON for it: {e}") from e
            case _:
                self._fill(member.inside, message, value)

    def _convert_element(self, member: Member, value: Any) -> Any:
        """Convert a scalar or enum value inside an ARRAY or a MAP.

        NULL becomes the enum's first value, the null text, b"", False or 0.
        """
        if value is not None:
            return self._convert_scalar(member, value)
        if member.form == "enum":
            return next(iter(member.names))
        match member.kind:
            case t.Char() | t.VarChar():
                return self._rules.null_text
            case t.Binary() | t.VarBinary():
                return b""
            case t.Boolean():
                return False
            case _:
                return 0

    def _convert_scalar(self, member: Member, value: Any) -> Any:
        """Convert an enum value to its number, and a value of an unsigned field to an unsigned number; others stay.

        A negative number of as many bits as the field becomes the unsigned number of the same bits.
        """
        if member.form == "enum":
            return self._enum_number(member, value)
        if not is_unsigned(member):
            return value
        bits = 32 if member.field.cpp_type == member.field.CPPTYPE_UINT32 else 64
        if isinstance(member.kind, t.Decimal) or (bits == 32 and isinstance(member.kind, t.BigInt)):
            if not 0 <= value < 1 << bits:
                raise BadMessageError(
                    f"{member.name}: {value} is out of the range of an unsigned number of {bits} bits"
                )
            return int(value)
        return value % (1 << bits)

    def _enum_number(self, member: Member, value: Any) -> int:
        """Return the number of an enum value; an unknown value becomes the first one."""
        if member.by_name:
            if value in member.numbers:
                return member.numbers[value]
        elif value in member.names:
            return int(value)
        if self._rules.unknown_fails:
            raise BadMessageError(f"{member.name}: the enum has no value {value!r}")
        return next(iter(member.names))


def is_unsigned(member: Member) -> bool:
    """Whether a field contains unsigned numbers."""
    return member.field.cpp_type in (member.field.CPPTYPE_UINT32, member.field.CPPTYPE_UINT64)
