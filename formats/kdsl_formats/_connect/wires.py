"""The form of a column's values on the wire, by its type and the settings of a Debezium connector.

A `Wire` reads and writes JSON values, and reads the corresponding Avro values. Its functions for single values are the
reference; those for whole columns leave unusual values to the fallback.
"""

from __future__ import annotations

import base64
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Literal

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl.types.strings import numbers, temporal
from kdsl_formats._columns.arrays import validity
from kdsl_formats._columns.string_spans import StringSpans
from kdsl_formats._columns.unscaled import number_bytes
from kdsl_formats._connect import columns, values
from kdsl_formats._connect.columns import ReadColumn
from kdsl_formats._connect.values import LONG, MICROS, MILLIS, NANOS
from kdsl_formats._text import reading, writing
from kdsl_formats._text.base64_text import parse_base64

DecimalMode = Literal["precise", "string", "double"]
TimeMode = Literal["adaptive", "adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]
_HEX = re.compile("(?:[0-9A-Fa-f]{2})*")
_PLAIN_NUMBER = re.compile("-?[0-9]+")


@attrs.frozen
class Modes:
    """The connector settings that define the form of values; None if the format's own rules apply.

    Attributes:
        decimals: ``decimal.handling.mode``.
        times: ``time.precision.mode``.
        binary: ``binary.handling.mode``.
    """

    decimals: DecimalMode | None = None
    times: TimeMode | None = None
    binary: BinaryMode | None = None


NO_MODES = Modes()
"""The format's own rules."""


class Wire(ABC):
    """Reads and writes the values of a column.

    Functions for single values raise ValueError for an invalid value (`values.InfiniteError` for infinity).

    Attributes:
        kind: The column's type.
        expected: A description of valid values, for messages.
        quoted: Whether all values are written as JSON strings.
    """

    quoted = True

    def __init__(self, kind: t.DataType, expected: str) -> None:
        self.kind = kind
        self.type = arrow_type(kind)
        self.expected = expected

    def from_string(self, string: str) -> Any:
        """Read a value from a string; a wire that can be a string overrides this."""
        raise ValueError(f"expected {self.expected}")

    def from_number(self, spelled: str) -> Any:
        """Read a value from a number, as it is spelled in JSON; a wire that can be a number overrides this."""
        raise ValueError(f"expected {self.expected}")

    def from_object(self, members: Mapping[str, Any]) -> Any:
        """Read a value from an object; a wire that can be an object overrides this."""
        raise ValueError(f"expected {self.expected}")

    def read_strings(self, strings: StringSpans) -> ReadColumn:
        """Read values from strings; unless a wire overrides this, all need the fallback."""
        return columns.all_fallback(strings.present, self.type)

    def read_numbers(self, strings: StringSpans) -> ReadColumn:
        """Read values from numbers as spelled in JSON; unless a wire overrides this, all need the fallback."""
        return columns.all_fallback(strings.present, self.type)

    def read_objects(self, strings: StringSpans) -> ReadColumn:
        """Read values from objects as spelled in JSON; unless a wire overrides this, all need the fallback."""
        return columns.all_fallback(strings.present, self.type)

    @abstractmethod
    def write(self, value: Any) -> str:
        """Write a value as JSON, without the quotes of a string."""

    @abstractmethod
    def write_column(self, array: pa.Array) -> pa.StringArray:
        """Write a column as JSON values, without the quotes of strings; NULL stays NULL."""


class _NumberWire(Wire):
    """Values that are numbers on the wire."""

    @abstractmethod
    def from_long(self, number: int) -> Any:
        """Read a value from a number; `ValueError` if it is not valid, or if values are strings."""

    @abstractmethod
    def read_longs(self, array: pa.Array) -> ReadColumn:
        """Read values from 64-bit or 32-bit numbers; all need the fallback if values are strings."""

    def from_number(self, spelled: str) -> Any:
        """Read a value from an integer, as it is spelled in JSON; `ValueError` if it is not a valid one."""
        if not _PLAIN_NUMBER.fullmatch(spelled):
            raise ValueError(f"expected {self.expected}")
        return self.from_long(numbers.parse_integer(spelled, 64))

    def read_numbers(self, strings: StringSpans) -> ReadColumn:
        """Read values from numbers, as they are spelled in JSON; also return which need the fallback."""
        integers, fallback = reading.integers(strings.array, pa.int64())
        read = self.read_longs(integers)
        return attrs.evolve(read, fallback=read.fallback | fallback) if fallback.any() else read


class Decimals(Wire):
    """Decimals: the base64 of their unscaled numbers, a ``VariableScaleDecimal``, a string or a number.

    Numbers are read in every mode: Kafka Connect's JsonConverter writes them if ``decimal.format=numeric``.
    """

    def __init__(self, kind: t.Decimal, mode: DecimalMode) -> None:
        expected = {
            "precise": "its digits in base64, as decimal.handling.mode 'precise' writes them",
            "string": "a number as a string",
            "double": "a number",
        }
        super().__init__(kind, expected[mode])
        self.decimal, self.mode = kind, mode
        self.quoted = mode != "double"

    def from_string(self, string: str) -> Decimal:
        """Read a decimal from base64 in the mode ``precise``, otherwise as `from_number` does."""
        if self.mode != "precise":
            return self.from_number(string)
        try:
            unscaled = parse_base64(string)
        except ValueError:
            raise ValueError(f"expected {self.expected}") from None
        return values.decimal_of(unscaled, self.decimal.scale, self.decimal)

    def from_number(self, spelled: str) -> Decimal:
        """Read a decimal from its spelling, rounded half up to the scale."""
        if spelled in values.INFINITE_NUMBERS:
            raise values.InfiniteError
        number = numbers.parse_decimal(spelled, self.decimal.precision, self.decimal.scale)
        if number is None:
            raise ValueError("it has too many digits")
        return number

    def from_object(self, members: Mapping[str, Any]) -> Decimal:
        """Read a decimal from ``scale`` and ``value`` (base64) of an object, rounded half up to the type's scale.

        Args:
            members: The object; the scale is a number as it is spelled in JSON, a string.
        """
        scale, value = members.get("scale"), members.get("value")
        if self.mode != "precise" or not isinstance(scale, str) or type(value) is not str:
            raise ValueError(f"expected {self.expected}")
        return values.decimal_of(parse_base64(value), numbers.parse_integer(scale, 32), self.decimal)

    def read_strings(self, strings: StringSpans) -> ReadColumn:
        """Read values from strings; also return which need the fallback."""
        if self.mode == "precise":
            return columns.decimals_of_base64(strings.array, self.decimal)
        return columns.decimals_of_strings(strings, self.decimal)

    def read_numbers(self, strings: StringSpans) -> ReadColumn:
        """Read values from numbers, as they are spelled in JSON; also return which need the fallback."""
        return columns.decimals_of_strings(strings, self.decimal)

    def read_objects(self, strings: StringSpans) -> ReadColumn:
        """Read values from objects, as they are spelled in JSON; all need the fallback in modes but ``precise``."""
        if self.mode == "precise":
            return columns.decimals_of_objects(strings.array, self.decimal)
        return super().read_objects(strings)

    def write(self, value: Decimal) -> str:
        """Write a decimal by the mode: as base64 of its unscaled number, its digits, or a double; without quotes.

        A double has about 15 of its digits; other digits are lost.
        """
        if self.mode == "string":
            return numbers.format_decimal(value, plain=True)
        if self.mode == "double":
            return numbers.format_double(float(value))
        return base64.b64encode(values.to_unscaled(value, self.decimal.scale)).decode()

    def write_column(self, array: pa.Array) -> pa.StringArray:
        """Write decimals by the mode, as `write` does, without quotes; NULL stays NULL."""
        if self.mode == "string":
            return writing.decimals(array, plain=True)
        if self.mode == "double":
            return writing.floats(pc.cast(writing.decimals(array, plain=True), pa.float64()))
        data, size = number_bytes(array)
        offsets = np.zeros(len(array) + 1, dtype=np.int32)
        np.cumsum(size, out=offsets[1:])
        buffers = [validity(array), pa.py_buffer(offsets), pa.py_buffer(data)]
        return writing.base64(pa.Array.from_buffers(pa.binary(), len(array), buffers))


class Dates(_NumberWire):
    """Dates: days, or ISO strings."""

    def __init__(self, kind: t.DataType, *, iso: bool) -> None:
        super().__init__(kind, "a date as 2017-09-15Z" if iso else "a number of days since 1970-01-01")
        self.iso = self.quoted = iso

    def from_long(self, number: int) -> int:
        """Read the days since 1970-01-01 from a number of days."""
        if self.iso:
            raise ValueError(f"expected {self.expected}")
        return values.days_of_number(number)

    def read_longs(self, array: pa.Array) -> ReadColumn:
        """Read dates from 64-bit or 32-bit numbers; all need the fallback if dates are strings on this wire."""
        return (
            columns.all_fallback(np.asarray(array.is_valid()), self.type)
            if self.iso
            else columns.dates_of_numbers(array)
        )

    def from_string(self, string: str) -> int:
        """Read the days since 1970-01-01 from an ISO date."""
        return values.days_of_string(string) if self.iso else super().from_string(string)

    def read_strings(self, strings: StringSpans) -> ReadColumn:
        """Read dates from strings; all need the fallback if dates are numbers on this wire."""
        return columns.dates_of_strings(strings) if self.iso else super().read_strings(strings)

    def write(self, value: int) -> str:
        """Write a date as its number of days, or as an ISO date with ``Z``, without quotes."""
        return f"{temporal.format_date(value)}Z" if self.iso else str(value)

    def write_column(self, array: pa.Array) -> pa.StringArray:
        """Write dates as `write` does, without quotes; NULL stays NULL."""
        if not self.iso:
            return writing.integers(array.view(pa.int32()))
        return pc.binary_join_element_wise(writing.dates(array), "Z", "")


class Times(_NumberWire):
    """Times of day: numbers, or ISO strings.

    Strings are read in every mode: Debezium always writes a time with a zone (Postgres' TIMETZ) as a string in UTC.

    Attributes:
        unit: The unit of numbers, in nanoseconds; None if times are strings.
    """

    def __init__(self, kind: t.Time, unit: int | None) -> None:
        super().__init__(kind, f"a number of {_NAMES[unit]} since midnight" if unit else "a time as 04:05:11.789Z")
        self.time, self.unit = kind, unit
        self.quoted = unit is None

    def from_long(self, number: int) -> int:
        """Read the nanoseconds of a time of day from a number; `ValueError` beyond a day, or if times are strings."""
        if self.unit is None:
            raise ValueError(f"expected {self.expected}")
        return values.time_of_number(number, self.unit, self.time.precision)

    def read_longs(self, array: pa.Array) -> ReadColumn:
        """Read times from 64-bit or 32-bit numbers; all need the fallback if times are strings on this wire."""
        if self.unit is None:
            return columns.all_fallback(np.asarray(array.is_valid()), self.type)
        return columns.times_of_numbers(array, self.unit, self.time)

    def from_string(self, string: str) -> int:
        """Read the nanoseconds of a time of day from an ISO time, in every mode; `ValueError` if it is not one."""
        return values.time_of_string(string, self.time.precision)

    def read_strings(self, strings: StringSpans) -> ReadColumn:
        """Read times from strings, in every mode; also return which need the fallback."""
        return columns.times_of_strings(strings, self.time)

    def write(self, value: int) -> str:
        """Write a time as a number, without digits finer than the unit, or as an ISO time with ``Z`` without quotes."""
        return f"{temporal.format_time(value)}Z" if self.unit is None else str(value // self.unit)

    def write_column(self, array: pa.Array) -> pa.StringArray:
        """Write times as `write` does, without quotes; NULL stays NULL."""
        if self.unit is None:
            return pc.binary_join_element_wise(writing.times(array), "Z", "")
        return writing.integers(pc.divide(array.view(pa.int64()), self.unit))


class Timestamps(_NumberWire):
    """Timestamps: numbers, or ISO strings.

    An instant (TIMESTAMP_LTZ) is read from strings in every mode, and written as a string, as Debezium does for
    Postgres' TIMESTAMPTZ. Numbers become instants, too, because Kafka Connect's own timestamps are numbers.

    Attributes:
        unit: The unit of numbers, in nanoseconds; None if timestamps are strings.
    """

    def __init__(self, kind: t.DataType, unit: int | None) -> None:
        self.zoned = isinstance(kind, t.TimestampLtz)
        string, number = "a timestamp as 2019-07-09T02:28:57.123456Z", ""
        if unit is not None:
            number = f"a number of {_NAMES[unit]} since 1970-01-01"
        super().__init__(kind, f"{number}, or {string}" if number and self.zoned else number or string)
        self.unit = unit
        self.quoted = self.zoned or unit is None

    def from_long(self, number: int) -> int:
        """Read microseconds since 1970-01-01 from a number."""
        if self.unit is None:
            raise ValueError(f"expected {self.expected}")
        return values.timestamp_of_number(number, self.unit)

    def read_longs(self, array: pa.Array) -> ReadColumn:
        """Read timestamps from 64-bit or 32-bit numbers; all need the fallback if they are strings on this wire."""
        if self.unit is None:
            return columns.all_fallback(np.asarray(array.is_valid()), self.type)
        return columns.timestamps_of_numbers(array, self.unit, self.kind)

    def from_string(self, string: str) -> int:
        """Read microseconds since 1970-01-01 from an ISO timestamp, which needs a zone for TIMESTAMP_LTZ."""
        if self.unit is not None and not self.zoned:
            raise ValueError(f"expected {self.expected}")
        return values.timestamp_of_string(string, zoned=self.zoned)

    def read_strings(self, strings: StringSpans) -> ReadColumn:
        """Read timestamps from ISO strings; all need the fallback if it is a TIMESTAMP and the wire has numbers."""
        if self.unit is not None and not self.zoned:
            return super().read_strings(strings)
        return columns.timestamps_of_strings(strings, self.kind)

    def write(self, value: int) -> str:
        """Write a timestamp as a number, or as an ISO timestamp in UTC without quotes.

        It is rounded down to the unit.
        """
        if self.quoted:
            return temporal.format_timestamp(value, "ISO-8601", zoned=True)
        if self.unit == NANOS and not -LONG <= value * 1_000 <= LONG:
            raise values.UnwritableError(
                f"{temporal.format_timestamp(value, 'SQL', zoned=False)} is beyond the years that nanoseconds reach, "
                "1677 to 2262; write time.precision.mode 'microseconds'"
            )
        return str(value * 1_000 if self.unit == NANOS else value // 1_000 if self.unit == MILLIS else value)

    def write_column(self, array: pa.Array) -> pa.StringArray:
        """Write timestamps as `write` does, without quotes; NULL stays NULL."""
        if self.quoted:
            return writing.timestamps(array.view(pa.timestamp("us", tz="UTC")), "ISO-8601")
        return writing.integers(self._to_unit(array.view(pa.int64())))

    def _to_unit(self, micros: pa.Int64Array) -> pa.Int64Array:
        """Convert microseconds to the unit on the wire, rounded down."""
        if self.unit == NANOS:
            far = pc.or_(pc.greater(micros, LONG // 1_000), pc.less(micros, -(LONG // 1_000)))
            if pc.any(far).as_py():
                raise values.UnwritableError("a timestamp is beyond the years that nanoseconds reach")
            return pc.multiply(micros, 1_000)
        if self.unit == MILLIS:
            in_unit = np.asarray(micros.fill_null(0)) // 1_000
            return pa.array(in_unit, mask=np.asarray(micros.is_null()) if micros.null_count else None)
        return micros


class Binary(Wire):
    """Bytes: in base64 (modes ``bytes`` and ``base64``), in URL-safe base64, or in hexadecimal digits."""

    def __init__(self, kind: t.DataType, mode: BinaryMode) -> None:
        super().__init__(kind, "hexadecimal digits" if mode == "hex" else f"bytes in {mode.replace('bytes', 'base64')}")
        self.mode = mode

    def from_string(self, string: str) -> bytes:
        """Read bytes from a string of the mode; `ValueError` if it is not one."""
        if self.mode == "hex":
            if not _HEX.fullmatch(string):
                raise ValueError(f"expected {self.expected}")
            return bytes.fromhex(string)
        if self.mode == "base64-url-safe":
            string = string.replace("-", "+").replace("_", "/")
        return parse_base64(string)

    def read_strings(self, strings: StringSpans) -> ReadColumn:
        """Read values from strings; also return which need the fallback."""
        if self.mode == "hex":
            return columns.bytes_of_hex(strings.array)
        return columns.bytes_of_base64(strings.array, url_safe=self.mode == "base64-url-safe")

    def write(self, value: bytes) -> str:
        """Write bytes as a string of the mode (see the class), without quotes; hexadecimal digits are in lower case."""
        if self.mode == "hex":
            return value.hex()
        string = base64.b64encode(value).decode()
        return string.replace("+", "-").replace("/", "_") if self.mode == "base64-url-safe" else string

    def write_column(self, array: pa.Array) -> pa.StringArray:
        """Write bytes as `write` does, without quotes; NULL stays NULL."""
        if self.mode == "hex":
            return writing.hexadecimal(array)
        string = writing.base64(array)
        if self.mode == "base64-url-safe":
            string = pc.replace_substring(pc.replace_substring(string, "+", "-"), "/", "_")
        return string


_NAMES = {MILLIS: "milliseconds", MICROS: "microseconds", NANOS: "nanoseconds"}
_FIXED: Mapping[str, int | None] = {
    "connect": MILLIS, "microseconds": MICROS, "nanoseconds": NANOS, "isostring": None,
}  # fmt: skip


def wire_of(kind: t.DataType, modes: Modes) -> Wire | None:
    """The form of a column's values under some connector settings; None if the format's own rules apply."""
    match kind:
        case t.Decimal() if modes.decimals is not None:
            return Decimals(kind, modes.decimals)
        case t.Date() if modes.times is not None:
            return Dates(kind, iso=modes.times == "isostring")
        case t.Time(precision=precision) if modes.times is not None:
            micros = modes.times == "adaptive_time_microseconds"
            return Times(kind, MICROS if micros else _unit(modes.times, precision))
        case t.Timestamp(precision=precision) | t.TimestampLtz(precision=precision) if modes.times is not None:
            return Timestamps(kind, _unit(modes.times, precision))
        case t.Binary() | t.VarBinary() if modes.binary is not None:
            return Binary(kind, modes.binary)
    return None


def _unit(mode: TimeMode, precision: int) -> int | None:
    """The unit of times as numbers, in nanoseconds; None if times are strings.

    In the adaptive modes these are milliseconds up to the precision 3, microseconds up to 6, and then nanoseconds.
    """
    if mode in _FIXED:
        return _FIXED[mode]
    return MILLIS if precision <= 3 else MICROS if precision <= 6 else NANOS
