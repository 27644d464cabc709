"""Values of defaults as Python source that fits the annotation."""

from __future__ import annotations

import datetime as dt
import decimal
import math
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

from kdsl.codegen.imports import Imports
from kdsl.codegen.layout import bytes_literal, string_literal
from kdsl.schemas.model import ITEMS, VALUES, CodegenError, Path, RelativePath
from kdsl.types import model as t

ClassValueWriter = Callable[[Path, t.DataType, Any], str | None]
"""Returns the source of a value whose type is a class of the module; None for other values."""


class Literals:
    """Writes values.

    Args:
        imports: The module's imports.
        write_class_value: Writes values of the module's own classes.
    """

    def __init__(self, imports: Imports, write_class_value: ClassValueWriter) -> None:
        self._imports, self._write_class_value = imports, write_class_value

    def literal(self, value: Any, kind: t.DataType, path: Path) -> str:
        """Write the source of a value of a type, and import the names in it.

        ``path`` is that of the type, by which its class is found. A member of an enumeration counts as its value.
        """
        if isinstance(value, Enum):
            value = value.value
        if value is None:
            return "None"
        source = self._write_class_value(path, kind, value)
        if source is not None:
            return source
        match kind, value:
            case t.Array(element=element), Sequence():
                return f"[{', '.join(self.literal(v, element, (*path, ITEMS)) for v in value)}]"
            case t.Map(key=key, value=value_type), Mapping():
                return self._write_dict(value, key, value_type, path)
            case t.Multiset(element=element), Mapping():
                return self._write_dict(value, element, t.Int(), path)
            case _:
                return self.scalar(value)

    def _write_dict(self, value: Mapping[Any, Any], key: t.DataType, value_type: t.DataType, path: Path) -> str:
        """Write the source of a dict with keys and values of two types; raise CodegenError if one has no literal."""
        keys = (self.literal(k, key, (*path, "key")) for k in value)
        values = (self.literal(v, value_type, (*path, VALUES)) for v in value.values())
        return f"{{{', '.join(f'{k}: {v}' for k, v in zip(keys, values, strict=True))}}}"

    def scalar(self, value: Any) -> str:
        """Write the source of a plain value, and import the names in it; a list becomes a tuple."""
        match value:
            case None | bool() | int():
                return repr(value)
            case float() if math.isfinite(value):
                return repr(value).replace("e+", "e")
            case float():
                return f'{self._imports.builtin("float")}("{value}")'
            case RelativePath():
                folder = f"{{{self._imports.name('pathlib', 'Path')}(__file__).parent}}"
                quoted = string_literal("/" + value.relative.replace("{", "{{").replace("}", "}}"))
                return f"f{quoted[0]}{folder}{quoted[1:]}"
            case str():
                return string_literal(value)
            case bytes() | bytearray() | memoryview():
                return bytes_literal(bytes(value))
            case decimal.Decimal():
                return f'{self._imports.name("decimal", "Decimal")}("{value}")'
            case dt.datetime() | dt.date() | dt.time():
                return self._write_datetime(value)
            case tuple() | list():
                parts = ", ".join(self.scalar(v) for v in value)
                return f"({parts},)" if len(value) == 1 else f"({parts})"
            case Mapping():
                return f"{{{', '.join(f'{self.scalar(k)}: {self.scalar(v)}' for k, v in value.items())}}}"
            case _:
                raise CodegenError(
                    f"the value {value!r} of type {type(value).__name__} has no Python literal; remove it, and set it "
                    "in the generated class by hand"
                )

    def _write_datetime(self, value: dt.datetime | dt.date | dt.time) -> str:
        """Write the source of a date or time, as ``datetime(2025, 1, 31, 8, 0, tzinfo=UTC)``, and import its names.

        Zeros at its end are left out, and a timestamp with a zone is written in UTC.
        """
        if isinstance(value, dt.datetime):
            utc = None if value.tzinfo is None else self._imports.name("datetime", "UTC")
            plain = value if value.tzinfo is None else value.astimezone(dt.UTC)
            numbers = [plain.year, plain.month, plain.day, plain.hour, plain.minute, plain.second, plain.microsecond]
            least, name = 5, "datetime"
        elif isinstance(value, dt.date):
            utc, numbers, least, name = None, [value.year, value.month, value.day], 3, "date"
        else:
            utc, numbers, least, name = None, [value.hour, value.minute, value.second, value.microsecond], 2, "time"
        while len(numbers) > least and not numbers[-1]:
            numbers.pop()
        parts = [*map(str, numbers), *([f"tzinfo={utc}"] if utc else [])]
        return f"{self._imports.name('datetime', name)}({', '.join(parts)})"
