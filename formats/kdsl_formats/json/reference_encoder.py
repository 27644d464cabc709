"""The reference encoder of JSON: it writes rows one by one, as Flink's JSON writer does, and defines the result.

The column encoder leaves all rows to it that it cannot write.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal

import attrs

from kdsl.types import model as t
from kdsl.types.strings import numbers, temporal
from kdsl_formats._connect.values import UnwritableError
from kdsl_formats._connect.wires import NO_MODES, Modes, Wire, wire_of
from kdsl_formats.json.document import quote
from kdsl_formats.json.errors import FieldError

WriteValue = Callable[[Any], str]
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


@attrs.frozen
class WritingRules:
    """The options of the format for writing.

    Attributes:
        standard: The timestamp format, ``"SQL"`` or ``"ISO-8601"``.
        null_key_mode: What to do with a NULL key of a map: ``"FAIL"``, ``"DROP"`` or ``"LITERAL"``.
        null_key: The string for a NULL key in the mode ``"LITERAL"``.
        plain_decimals: Whether decimals have all digits of their scale.
        ignore_null_fields: Whether NULL members of rows are omitted.
        modes: The form of values on the wire, if it is not the format's own.
    """

    standard: Literal["SQL", "ISO-8601"] = "SQL"
    null_key_mode: str = "FAIL"
    null_key: str = "null"
    plain_decimals: bool = False
    ignore_null_fields: bool = False
    modes: Modes = NO_MODES


class ReferenceEncoder:
    """Encodes one row at a time."""

    def __init__(self, row: t.Row, rules: WritingRules) -> None:
        self.rules = rules
        self._write = self._writer(row)

    def message(self, values: Mapping[str, Any]) -> bytes:
        """The message of one row of `plain_values`; `FieldError` if it cannot be written."""
        return self._write(values).encode()

    def writer_of(self, kind: t.DataType) -> WriteValue:
        """Return the function that writes values of a type, as `plain_values` returns them, and None as ``null``.

        It raises `FieldError` for a NULL key of a map if the rules say so, and for values that the wire cannot hold.
        """
        write = self._writer(kind)
        return lambda value: "null" if value is None else write(value)

    def _writer(self, kind: t.DataType) -> WriteValue:
        """The function that writes values of a type other than NULL; errors as for `writer_of`."""
        wire = wire_of(kind, self.rules.modes)
        if wire is not None:
            return _wire_writer(wire)
        match kind:
            case t.Boolean():
                return lambda v: "true" if v else "false"
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
                return str
            case t.Float():
                return lambda v: _quote_non_finite(numbers.format_float(v))
            case t.Double():
                return lambda v: _quote_non_finite(numbers.format_double(v))
            case t.Decimal():
                plain = self.rules.plain_decimals
                return lambda v: numbers.format_decimal(v, plain=plain)
            case t.Char() | t.VarChar():
                return escape
            case t.Binary() | t.VarBinary():
                return lambda v: f'"{base64.b64encode(v).decode()}"'
            case t.Date():
                return lambda v: f'"{temporal.format_date(v)}"'
            case t.Time():
                return lambda v: f'"{temporal.format_time(v)}"'
            case t.Timestamp() | t.TimestampLtz():
                standard, zoned = self.rules.standard, isinstance(kind, t.TimestampLtz)
                return lambda v: f'"{temporal.format_timestamp(v, standard, zoned=zoned)}"'
            case t.Array(element=element):
                return self._array_writer(self.writer_of(element))
            case t.Map(value=value):
                return self._map_writer(self.writer_of(value))
            case t.Multiset():
                return self._map_writer(self.writer_of(t.Int()))
            case t.Row():
                return self._row_writer(kind)
        raise AssertionError(kind)

    def _array_writer(self, write: WriteValue) -> WriteValue:
        """Return a function that writes lists, with `write` for the elements, also for None.

        A `FieldError` of an element gets its index.
        """

        def elements(values: list[Any]) -> str:
            parts: list[str] = []
            try:
                parts.extend(map(write, values))
            except FieldError as e:
                raise e.inside(f"[{len(parts)}]") from None
            return f"[{','.join(parts)}]"

        return elements

    def _map_writer(self, write: WriteValue) -> WriteValue:
        """Return a function that writes pairs as objects, with the last value of a key that repeats.

        For a None key it drops the pair, writes the literal of the rules, or raises `FieldError`, as the rules say. A
        `FieldError` of a value gets its key.
        """
        mode, literal = self.rules.null_key_mode, self.rules.null_key

        def members(entries: list[tuple[str | None, Any]]) -> str:
            parts: dict[str, str] = {}
            for key, value in entries:
                if key is None:
                    if mode == "DROP":
                        continue
                    if mode == "FAIL":
                        raise FieldError(
                            "a map has a NULL key, which JSON does not support; "
                            "set map_null_key_mode, in SQL and YAML 'map-null-key.mode', to DROP or LITERAL to drop "
                            "or name such entries"
                        )
                    key = literal
                try:
                    parts[key] = write(value)
                except FieldError as e:
                    raise e.inside(f"[{key!r}]") from None
            return f"{{{','.join(f'{escape(k)}:{v}' for k, v in parts.items())}}}"

        return members

    def _row_writer(self, kind: t.Row) -> WriteValue:
        """Return a function that writes dicts as objects; None members are omitted if the rules ignore null fields.

        A `FieldError` of a member gets its name.
        """
        fields = [(f.name, escape(f.name), self.writer_of(f.type)) for f in kind.fields]
        ignore = self.rules.ignore_null_fields

        def members(values: Mapping[str, Any]) -> str:
            parts = []
            for name, key, write in fields:
                value = values[name]
                if value is None and ignore:
                    continue
                try:
                    parts.append(f"{key}:{write(value)}")
                except FieldError as e:
                    raise e.inside(name) from None
            return f"{{{','.join(parts)}}}"

        return members


def _wire_writer(wire: Wire) -> WriteValue:
    """Return a function that writes values in the form of Debezium and Kafka Connect.

    It raises `FieldError` for values that cannot be represented on the wire.
    """

    def write(value: Any) -> str:
        try:
            text = wire.write(value)
        except UnwritableError as e:
            raise FieldError(str(e)) from None
        return f'"{text}"' if wire.quoted else text

    return write


def escape(text: str) -> str:
    """Quote a string as JSON: characters beyond U+FFFF are escaped, other non-ASCII characters are not."""
    shown = quote(text)
    return shown if shown.isascii() else _ASTRAL.sub(_escape_surrogates, shown)


def _escape_surrogates(match: re.Match[str]) -> str:
    """A character beyond U+FFFF as two escapes with upper-case digits."""
    high, low = divmod(ord(match[0]) - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04X}\\u{0xDC00 + low:04X}"


def _quote_non_finite(text: str) -> str:
    """A number as JSON; NaN and infinities are in quotes."""
    return f'"{text}"' if text[-1] in "Ny" else text  # NaN and the infinities are not JSON numbers
