"""Notes on messages of Kafka Connect and Debezium: what their values look like, and defaults in place of NULLs."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from kdsl.formats import Format
from kdsl.types import model as t
from kdsl_formats.json.connect import (
    FIRST_DAY,
    MICROS,
    MILLIS,
    NANOS,
    describe_replaced_nulls,
    infinite_of,
)
from kdsl_formats.json.document import to_number

Object = Mapping[str, Any]
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_LONGEST = 16  # bytes of a decimal
_FIRST, _LAST = 946_684_800, 4_102_444_800  # the years 2000 to 2100, in seconds
_UNITS = {"milliseconds": (MILLIS, 3), "microseconds": (MICROS, 6), "nanoseconds": (NANOS, 9)}
_SECOND = 1_000_000_000  # nanoseconds
_VARIABLE = ("scale", "value")
_DAY = 86_400
_YEAR = 366
_EARLIEST = -1_000_000  # days: 769 years before Christ
_OF_DAYS = re.compile(r"date|day|birth|dob", re.IGNORECASE)


def describe_defaults(defaults: Mapping[str, Any], rows: pa.RecordBatch, chosen: Format) -> Iterator[str]:
    """Yield a note on columns that are nullable and have a default, if no row of a sample has a NULL in them.

    Kafka Connect's converters write the default in place of a NULL, unless a setting says otherwise.

    Args:
        defaults: The defaults, by column.
        rows: The rows of the sample.
        chosen: The format of the messages.
    """
    columns = [name for name in defaults if name in rows.schema.names and not rows.column(name).null_count]
    if columns and len(rows):
        yield describe_replaced_nulls({name: defaults[name] for name in columns}, registered=chosen.needs_registry)


def describe_looks(rows: Sequence[Object], row: t.Row) -> Iterator[str]:
    """Yield a note for each kind of Debezium's decimals, dates and times that columns look like; none is certain."""
    decimals = [f.name for f in row.fields if isinstance(f.type, t.VarChar) and _are_digits(_values(rows, f.name))]
    if decimals:
        yield (
            f"{_listing(decimals)} like decimals in base64, as Debezium and Kafka Connect write them: declare "
            "DECIMAL(p, s) with the scale of the database, and decimal_handling_mode='precise' in the format "
            "(in SQL and YAML 'decimal.handling.mode')"
        )
    numbers = [(f.name, _values(rows, f.name)) for f in row.fields if isinstance(f.type, t.BigInt)]
    several = [f.name for f in row.fields if isinstance(f.type, t.Row) and f.type.names == _VARIABLE]
    if several:
        yield (
            f"{_listing(several)} like decimals that each have their own scale: declare DECIMAL(p, s), and "
            "decimal_handling_mode='precise' in the format (in SQL and YAML 'decimal.handling.mode')"
        )
    for name, (unit, digits) in _UNITS.items():
        times = [column for column, values in numbers if _are_times(values, unit)]
        if times:
            yield (
                f"{_listing(times)} like {name} since 1970: declare TIMESTAMP({digits}), and "
                "time_precision_mode='adaptive' in the format (in SQL and YAML 'time.precision.mode')"
            )
    days = [column for column, values in numbers if _are_days(column, values)]
    if days:
        yield (
            f"{_listing(days)} like days since 1970: declare DATE, and time_precision_mode='adaptive' in the format "
            "(in SQL and YAML 'time.precision.mode')"
        )


def _values(rows: Iterable[Object], name: str) -> list[Any]:
    """Return the values of a field, without nulls."""
    return [to_number(row[name]) for row in rows if row.get(name) is not None]


def _listing(names: Sequence[str]) -> str:
    """Join names and the verb "look", as the beginning of a note."""
    return f"{names[0]} looks" if len(names) == 1 else f"{', '.join(names)} look"


def _within(values: Sequence[Any], least: int, most: int) -> bool:
    """Whether there are values, and all are integers from ``least`` to before ``most``."""
    return bool(values) and all(type(v) is int and least <= v < most for v in values)


def _are_times(values: Sequence[Any], unit: int) -> bool:
    """Whether there are values, and all are times of 2000 to 2100 in a unit (in nanoseconds), or one means infinity."""
    if any(value in infinite_of(unit) for value in values):
        return True
    return _within(values, _FIRST * _SECOND // unit, _LAST * _SECOND // unit)


def _are_days(column: str, values: Sequence[Any]) -> bool:
    """Whether all values may be days since 1970, or infinity, and the column's name suggests a date.

    At least one value must be more than a year from 1970.
    """
    if not _OF_DAYS.search(column) or not values or any(type(v) is not int for v in values):
        return False
    finite = [v for v in values if not -(1 << 31) <= v < FIRST_DAY]
    far = any(abs(v) > _YEAR for v in values)  # smaller numbers may be days of a month or of a year
    return far and all(_EARLIEST <= v < _LAST // _DAY for v in finite)


def _are_digits(values: Sequence[Any]) -> bool:
    """Whether all values are base64 of at most 16 bytes, and at least one contains ``=``, ``+`` or ``/``."""
    if not values or not all(isinstance(v, str) and v and _BASE64.fullmatch(v) for v in values):
        return False
    return all(len(base64.b64decode(v)) <= _LONGEST for v in values) and any(set(v) & set("=+/") for v in values)
