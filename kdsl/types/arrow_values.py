"""Arrow's values as Python's, for people: what Python's types cannot hold becomes readable text instead of an error."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from kdsl.types.strings import temporal

_NANOS = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
_ERRORS = (ValueError, OverflowError, LookupError, pa.ArrowException)  # LookupError: a zone that Python does not know


class ArrowText(str):
    """The text of a value that Python's types cannot hold, such as a time in the year 58881.

    Attributes:
        scalar: The value itself.
    """

    scalar: pa.Scalar

    def __new__(cls, text: str, scalar: pa.Scalar) -> ArrowText:
        """Create the text of a value."""
        self = super().__new__(cls, text)
        self.scalar = scalar
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """How pickle creates it again: Arrow's arrays can be pickled, and its values outside Python's ranges cannot."""
        return _from_array, (str(self), pa.array([self.scalar], self.scalar.type))


def _from_array(text: str, array: pa.Array) -> ArrowText:
    """Create the text of the only value of an array."""
    return ArrowText(text, array[0])


def python_values(array: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column as those of ``to_pylist``, which has none for some values that Arrow's types can hold.

    Values that Python's types cannot hold exactly are `ArrowText`: dates and timestamps outside the years 1 to 9999,
    times outside a day or finer than microseconds, durations of more than 999,999,999 days, and strings that are not
    UTF-8. ``to_pylist`` raises an error for most of them, and returns other times for some. Instants that only the
    column's zone moves out of these years are in UTC. Rows with several members of one name are lists of pairs.
    """
    if not _has_times(array.type):
        try:
            return list(array.to_pylist())
        except ValueError:  # a string that is not UTF-8, or members of one name
            pass
    return [python_value(scalar) for scalar in array]


def python_rows(rows: pa.Table | pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of a table as dicts by column, with the values of `python_values`; columns have different names."""
    names = rows.schema.names
    columns = [python_values(column) for column in rows.columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)] or [{}] * rows.num_rows


def python_value(scalar: pa.Scalar) -> Any:
    """A single value; see `python_values`."""
    if not scalar.is_valid:
        return None
    match scalar:
        case pa.StructScalar():
            members = [(name, python_value(value)) for name, value in scalar.items()]
            unique = dict(members)
            return unique if len(unique) == len(members) else members
        case pa.MapScalar():
            entries = scalar.values
            return list(zip(python_values(entries.field(0)), python_values(entries.field(1)), strict=True))
        case pa.ListScalar():
            return python_values(scalar.values)
        case pa.DictionaryScalar() | pa.UnionScalar() | pa.RunEndEncodedScalar() | pa.ExtensionScalar():
            return python_value(scalar.value)
        case pa.Time32Scalar() | pa.Time64Scalar():
            return _time(scalar)
        case pa.TimestampScalar():
            return _timestamp(scalar)
        case pa.Date32Scalar() | pa.Date64Scalar():
            days = scalar.value if isinstance(scalar, pa.Date32Scalar) else scalar.value // 86_400_000
            return _value_or_text(scalar, lambda: temporal.format_date(days))
        case pa.DurationScalar():
            return _duration(scalar)
        case pa.StringScalar():
            return _value_or_text(scalar, lambda: scalar.as_buffer().to_pybytes().decode(errors="backslashreplace"))
        case _:
            return scalar.as_py()


def arrow_array(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of values that `python_values` returned, of the type that they had.

    Errors are those of ``pa.array`` for values that do not have the type.
    """
    return pa.array([_restore(value) for value in values], kind)


def find_text(value: Any) -> ArrowText | None:
    """The first `ArrowText` in a value that `python_values` returned, at any depth; None if there is none."""
    if isinstance(value, ArrowText):
        return value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return next((text for one in inner if (text := find_text(one)) is not None), None)


def _restore(value: Any) -> Any:
    """Return a value with Arrow's own values in place of `ArrowText`, which Arrow accepts among Python's."""
    match value:
        case ArrowText():
            return value.scalar
        case list() | tuple():
            return type(value)(map(_restore, value))
        case dict():
            return {name: _restore(inner) for name, inner in value.items()}
        case _:
            return value


def _has_times(kind: pa.DataType) -> bool:
    """Return whether values of a type are or contain dates, times, timestamps or durations."""
    if pa.types.is_temporal(kind):
        return True
    if pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind):
        return _has_times(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return _has_times(kind.storage_type)
    return any(_has_times(kind.field(i).type) for i in range(kind.num_fields))


def _value_or_text(scalar: pa.Scalar, text: Any) -> Any:
    """Return a value as Python's, or if Python has none the text that a function returns."""
    try:
        return scalar.as_py()
    except _ERRORS:
        return ArrowText(text(), scalar)


def _time(scalar: pa.Time32Scalar | pa.Time64Scalar) -> Any:
    """Return a time of day, whose Python value wraps around at midnight and ends at microseconds; else its text."""
    nanos = scalar.value * _NANOS[scalar.type.unit]
    if 0 <= nanos < temporal.NANOS_PER_DAY and nanos % 1000 == 0:
        return scalar.as_py()
    return ArrowText(f"{'-' if nanos < 0 else ''}{temporal.format_time(abs(nanos))}", scalar)


def _timestamp(scalar: pa.TimestampScalar) -> Any:
    """Return a timestamp in its zone, in UTC if only its zone's clock is beyond Python's years, or else its text."""
    nanos, zone = scalar.value * _NANOS[scalar.type.unit], scalar.type.tz
    if nanos % 1000 == 0:
        for tz in dict.fromkeys((zone, zone and "UTC")):
            try:
                return pa.scalar(nanos // 1000, pa.timestamp("us", tz)).as_py()
            except _ERRORS:
                continue
    days, clock = divmod(nanos, temporal.NANOS_PER_DAY)
    text = f"{temporal.format_date(days)} {temporal.format_time(clock)}"
    return ArrowText(text if zone is None else f"{text}+00:00", scalar)


def _duration(scalar: pa.DurationScalar) -> Any:
    """Return a duration, or its number and unit if Python's is shorter or less fine."""
    number, unit = scalar.value, scalar.type.unit
    if unit == "ns" and number % 1000 == 0:
        return pa.scalar(number // 1000, pa.duration("us")).as_py()
    text = f"{number} {unit}"
    return ArrowText(text, scalar) if unit == "ns" else _value_or_text(scalar, lambda: text)
