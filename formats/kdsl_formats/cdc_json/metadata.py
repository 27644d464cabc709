"""The metadata of change-data messages: the member that contains each field, and its conversion.

Each form has a conversion of single values (`MetadataField.value`), which is the reference, and one of whole columns
(`MetadataField.column`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.shown_values import quote_value, show_value
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl.types.strings import numbers, temporal
from kdsl_formats._columns.arrays import Mask
from kdsl_formats._columns.string_spans import StringSpans
from kdsl_formats._text import reading
from kdsl_formats.json.errors import FieldError

Form = Literal["unchanged", "milliseconds", "seconds", "clock"]

STRINGS = t.Map(t.STRING, t.STRING)
INSTANT = pa.timestamp("us", tz="UTC")
_UNITS: Mapping[str, int] = {"milliseconds": 1_000, "seconds": 1_000_000}
_LARGEST = np.iinfo(np.int64).max
_CLOCK_PATTERN = re.compile(
    r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2}):(\d{1,2})(?:\.(\d{0,9}))?)?", re.ASCII
)


@attrs.frozen
class MetadataField:
    """A metadata field.

    Attributes:
        type: Its column type.
        member: The member of the message that contains it.
        wire_type: The type of that member in the message.
        form: The conversion of the member's value.
        within: The member of that object that contains the field; None if the first member itself is the field.
        beside_payload: Whether it is beside the payload of a message with its schema; it is NULL in other messages.
    """

    type: t.DataType
    member: str
    wire_type: t.DataType
    form: Form = "unchanged"
    within: str | None = None
    beside_payload: bool = False

    def value(self, value: Any) -> Any:
        """Convert the member, or what it has in `within`, to the field's value: times to microseconds; None stays None.

        Args:
            value: The member, as `ReferenceDecoder` returns it.
        """
        if self.within is not None and value is not None:
            value = dict(value).get(self.within)
        if value is None or self.form == "unchanged":
            return value
        try:
            return _parse_clock(value) if self.form == "clock" else _to_micros(value, _UNITS[self.form])
        except ValueError as e:
            raise FieldError(str(e)).inside(f"{self.member}.{self.within}" if self.within else self.member) from None

    def column(self, array: pa.Array) -> tuple[pa.Array, Mask]:
        """Convert the values of many messages, as `value` does one; also returns which of them need the fallback.

        Args:
            array: The values of the member; if `within` is set, the strings of that member of the object.
        """
        none = np.zeros(len(array), dtype=bool)
        if self.form == "unchanged":
            return array, none
        if self.form == "clock":
            return _read_clocks(array)
        fallback = none
        if pa.types.is_string(array.type):
            array, fallback = reading.integers(array, pa.int64())
        unit = _UNITS[self.form]
        far = pc.or_(pc.greater(array, _LARGEST // unit), pc.less(array, -(_LARGEST // unit)))
        wrong = np.asarray(pc.fill_null(far, False))
        if wrong.any():
            array = pc.if_else(far, 0, array)
        return pc.multiply(array, unit).view(INSTANT), fallback | wrong


def metadata_type(field: MetadataField) -> pa.DataType:
    """The Arrow type of a field."""
    return arrow_type(field.type)


def _to_micros(value: int | str, unit: int) -> int:
    """Convert a number of units, or its string, to microseconds; each unit has `unit` microseconds."""
    number = numbers.parse_integer(value, 64) if isinstance(value, str) else value
    if abs(number) > _LARGEST // unit:
        raise ValueError(f"{show_value(number)} is too far away for a timestamp")
    return number * unit


def _parse_clock(text: str) -> int:
    """Read a date in UTC, perhaps with a time after a blank or ``T``; return microseconds since 1970, rounded down."""
    match = _CLOCK_PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(
            f"{quote_value(text)} is not a timestamp such as 2020-05-13 15:40:06.000000; correct the "
            "messages, or remove the metadata column that reads it"
        )
    year, month, day = (int(match[i]) for i in (1, 2, 3))
    hour, minute, second = (int(match[i] or 0) for i in (4, 5, 6))
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 60):
        raise ValueError(f"{quote_value(text)} is not a timestamp: there is no such day or time")
    days = temporal.parse_date(f"{year:04}-{month:02}-{day:02}")
    micros = int((match[7] or "").ljust(6, "0")[:6])
    return ((days * 24 + hour) * 60 + minute) * 60_000_000 + second * 1_000_000 + micros


def _read_clocks(strings: pa.StringArray) -> tuple[pa.Array, Mask]:
    """Read dates and times as timestamps in UTC; return them and which strings need the fallback.

    The usual form is read: with a blank or a ``T``, and a fraction of up to six digits.
    """
    plain = pc.replace_substring_regex(strings, r"^(\d{4}-\d\d-\d\d)T", r"\1 ")
    timestamps, fallback = reading.timestamps(StringSpans.of(plain), "SQL", zoned=False)
    return timestamps.view(INSTANT), fallback
