"""The judge of how a row is written as JSON: row by row, plain and exact, as Flink's JSON writer does it.

The fast encoder sends it every row that it has any doubt about.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Literal

import attrs
import pyarrow as pa

from kdsl.types import model as t
from kdsl.types.texts import numbers, temporal
from kdsl_formats.json.document import quoted
from kdsl_formats.json.errors import FieldError

Write = Callable[[Any], str]
_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


@attrs.frozen
class WritingRules:
    """What the options of the format mean for writing.

    Attributes:
        standard: The form of timestamps, ``"SQL"`` or ``"ISO-8601"``.
        null_key_mode: What a NULL key of a map does: ``"FAIL"``, ``"DROP"`` or ``"LITERAL"``.
        null_key: The text of a NULL key for ``"LITERAL"``.
        plain_decimals: Whether decimals have all digits of their scale.
        ignore_null_fields: Whether NULL members of rows are left out.
    """

    standard: Literal["SQL", "ISO-8601"] = "SQL"
    null_key_mode: str = "FAIL"
    null_key: str = "null"
    plain_decimals: bool = False
    ignore_null_fields: bool = False


class ReferenceEncoder:
    """Writes one row at a time."""

    def __init__(self, row: t.Row, rules: WritingRules) -> None:
        self.row = row
        self.rules = rules
        self._write = self._strict(row)

    def messages(self, rows: pa.StructArray) -> Iterator[bytes | FieldError]:
        """The message of each row, or the reason why there is none."""
        for values in python_values(rows, self.row):
            try:
                yield self.message(values)
            except FieldError as e:
                yield e

    def message(self, values: tuple[Any, ...]) -> bytes:
        """The message of one row, given as `python_values` gives rows.

        Raises:
            FieldError: The row cannot be written.
        """
        return self._write(values).encode()

    def writer(self, kind: t.DataType) -> Write:
        """The function that writes values of a type, given as `python_values` gives them."""
        write = self._strict(kind)
        return lambda value: "null" if value is None else write(value)

    def _strict(self, kind: t.DataType) -> Write:
        match kind:
            case t.Boolean():
                return lambda v: "true" if v else "false"
            case t.TinyInt() | t.SmallInt() | t.Int() | t.BigInt():
                return str
            case t.Float():
                return lambda v: _number(numbers.float_text(v))
            case t.Double():
                return lambda v: _number(numbers.double_text(v))
            case t.Decimal():
                plain = self.rules.plain_decimals
                return lambda v: numbers.decimal_text(v, plain=plain)
            case t.Char() | t.VarChar():
                return escaped
            case t.Binary() | t.VarBinary():
                return lambda v: f'"{base64.b64encode(v).decode()}"'
            case t.Date():
                return lambda v: f'"{temporal.date_text(v)}"'
            case t.Time():
                return lambda v: f'"{temporal.time_text(v)}"'
            case t.Timestamp() | t.TimestampLtz():
                standard, zoned = self.rules.standard, isinstance(kind, t.TimestampLtz)
                return lambda v: f'"{temporal.timestamp_text(v, standard, zoned=zoned)}"'
            case t.Array(element=element):
                return self._array(self.writer(element))
            case t.Map(value=value):
                return self._map(self.writer(value))
            case t.Multiset():
                return self._map(self.writer(t.Int()))
            case t.Row():
                return self._object(kind)
        raise AssertionError(kind)

    def _array(self, write: Write) -> Write:
        def elements(values: list[Any]) -> str:
            parts: list[str] = []
            try:
                parts.extend(map(write, values))
            except FieldError as e:
                raise e.inside(f"[{len(parts)}]") from None
            return f"[{','.join(parts)}]"

        return elements

    def _map(self, write: Write) -> Write:
        mode, literal = self.rules.null_key_mode, self.rules.null_key

        def members(entries: list[tuple[str | None, Any]]) -> str:
            parts: dict[str, str] = {}
            for key, value in entries:
                if key is None:
                    if mode == "DROP":
                        continue
                    if mode == "FAIL":
                        raise FieldError(
                            "a map has a NULL key, which JSON cannot hold; "
                            "set map-null-key.mode to DROP or LITERAL to drop or name such entries"
                        )
                    key = literal
                try:
                    parts[key] = write(value)
                except FieldError as e:
                    raise e.inside(f"[{key!r}]") from None
            return f"{{{','.join(f'{escaped(k)}:{v}' for k, v in parts.items())}}}"

        return members

    def _object(self, kind: t.Row) -> Write:
        fields = [(f.name, escaped(f.name), self.writer(f.type)) for f in kind.fields]
        ignore = self.rules.ignore_null_fields

        def members(values: tuple[Any, ...]) -> str:
            parts = []
            for (name, key, write), value in zip(fields, values, strict=True):
                if value is None and ignore:
                    continue
                try:
                    parts.append(f"{key}:{write(value)}")
                except FieldError as e:
                    raise e.inside(name) from None
            return f"{{{','.join(parts)}}}"

        return members


def escaped(text: str) -> str:
    """A JSON text in a message: of the non-ASCII characters, those beyond U+FFFF are escaped, others stay."""
    shown = quoted(text)
    return shown if shown.isascii() else _ASTRAL.sub(_surrogates, shown)


def _surrogates(found: re.Match[str]) -> str:
    high, low = divmod(ord(found[0]) - 0x10000, 0x400)
    return f"\\u{0xD800 + high:04X}\\u{0xDC00 + low:04X}"


def _number(text: str) -> str:
    return f'"{text}"' if text[-1] in "Ny" else text  # NaN and the infinities are no JSON numbers


def python_values(array: pa.Array, kind: t.DataType) -> list[Any]:
    """The values of a column: rows as tuples, maps as lists of pairs, dates and times as numbers."""
    match kind:
        case t.Row(fields=fields):
            columns = [python_values(column, f.type) for column, f in zip(array.flatten(), fields, strict=True)]
            rows = list(zip(*columns, strict=True)) if columns else [()] * len(array)
            return _with_nulls(array, rows)
        case t.Array(element=element):
            return _lists(array, python_values(array.values, element))
        case t.Map(key=key, value=value):
            return _lists(array, _pairs(array, key, value))
        case t.Multiset(element=element):
            return _lists(array, _pairs(array, element, t.Int()))
        case t.Date():
            return list(array.view(pa.int32()).to_pylist())
        case t.Time() | t.Timestamp() | t.TimestampLtz():
            return list(array.view(pa.int64()).to_pylist())
        case _:
            return list(array.to_pylist())


def _pairs(array: pa.MapArray, key: t.DataType, value: t.DataType) -> list[tuple[Any, Any]]:
    return list(zip(python_values(array.keys, key), python_values(array.items, value), strict=True))


def _lists(array: pa.Array, elements: list[Any]) -> list[Any]:
    offsets = array.offsets.to_pylist()
    rows = [elements[start:end] for start, end in pairwise(offsets)]
    return _with_nulls(array, rows)


def _with_nulls(array: pa.Array, values: list[Any]) -> list[Any]:
    if not array.null_count:
        return values
    return [value if valid else None for value, valid in zip(values, array.is_valid().to_pylist(), strict=True)]
