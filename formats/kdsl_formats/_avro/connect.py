"""Values that Kafka Connect's converters wrote: ``connect.name`` in the writer's schema defines what they mean.

They are converted directly to the column's type, whatever type the table's schema has for them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kdsl.types import model as t
from kdsl_formats._avro.model import Type
from kdsl_formats._columns.string_spans import StringSpans
from kdsl_formats._connect import columns, values
from kdsl_formats._connect.columns import ReadColumn
from kdsl_formats._connect.schemas import CONNECT, DECIMAL, TIME_SCHEMAS, VARIABLE, VARIABLE_TYPE
from kdsl_formats._connect.values import MICROS
from kdsl_formats._connect.wires import Dates, Decimals, Times, Timestamps

VARIABLE_SCALE_ROW = t.row(scale=t.Int(), value=t.BYTES)
"""A ``VariableScaleDecimal``."""
CONNECT_TIMESTAMP = f"{CONNECT}Timestamp"
"""Kafka Connect's own timestamps: milliseconds since 1970 in UTC."""


class Conversion(ABC):
    """Converts values on the wire to a column's values.

    Attributes:
        wire_type: The type with which the values on the wire are read.
        kind: The column's type.
    """

    wire_type: t.DataType
    kind: t.DataType

    @abstractmethod
    def value(self, value: Any) -> Any:
        """Convert one value."""

    @abstractmethod
    def column(self, values: pa.Array) -> ReadColumn:
        """Convert an array of values; also return which are infinite, and which need the fallback."""


class _WireConversion(Conversion):
    """Dates, times and timestamps as numbers or strings, and decimals as strings or doubles."""

    def __init__(self, wire: Dates | Times | Timestamps | Decimals, wire_type: t.DataType) -> None:
        self.wire, self.wire_type, self.kind = wire, wire_type, wire.kind

    def value(self, value: Any) -> Any:
        """Convert a value; `ValueError` if it does not fit the column, `InfiniteError` if it is infinite or NaN."""
        if isinstance(value, str):
            return self.wire.from_string(value)
        if not isinstance(self.wire, Decimals):
            return self.wire.from_long(value)
        if not math.isfinite(value):
            raise values.InfiniteError
        return self.wire.from_number(repr(value))

    def column(self, values: pa.Array) -> ReadColumn:
        """Convert a column of values; also return which need the fallback."""
        if pa.types.is_string(values.type):
            return self.wire.read_strings(StringSpans.of(values))
        if not isinstance(self.wire, Decimals):
            return self.wire.read_longs(values)
        return self.wire.read_numbers(StringSpans.of(pc.cast(values, pa.string())))


class _VariableScaleConversion(Conversion):
    """Decimals that each have their own scale (``VariableScaleDecimal``)."""

    wire_type = VARIABLE_SCALE_ROW

    def __init__(self, kind: t.Decimal) -> None:
        self.kind = self.decimal = kind

    def value(self, value: Any) -> Decimal:
        """Convert a row of scale and bytes; `ValueError` if the decimal does not fit the column."""
        return values.decimal_of(value["value"], value["scale"], self.decimal)

    def column(self, values: pa.Array) -> ReadColumn:
        """Convert a column of values; also return which need the fallback."""
        return columns.decimals_of_pairs(values.field(0), values.field(1), self.decimal, values)


def conversion_of(wire: Type, column: t.DataType) -> Conversion | None:
    """The conversion to a column of values that Kafka Connect wrote; None if Avro's own rules apply.

    Dates, times and timestamps are recognized by a ``connect.name`` that fits the type on the wire and the column.
    Strings, doubles and ``VariableScaleDecimal`` are converted to a DECIMAL, and ``time-micros`` to a TIME, without it.
    """
    if isinstance(column, t.Decimal):
        if wire.name == VARIABLE and {f.name: f.type.kind for f in wire.fields} == {"scale": "int", "value": "bytes"}:
            return _VariableScaleConversion(column)
        if wire.kind == "string":
            return _WireConversion(Decimals(column, "string"), t.STRING)
        return _WireConversion(Decimals(column, "double"), t.Double()) if wire.kind == "double" else None
    if wire.kind == "long" and wire.logical == "time-micros" and isinstance(column, t.Time):
        return _WireConversion(Times(column, MICROS), t.BigInt())
    time_schema = TIME_SCHEMAS.get(wire.connect or "")
    if time_schema is None or wire.kind not in ("int", "long", "string"):
        return None
    text = wire.kind == "string"
    if text != (time_schema.unit is None):
        return None
    wire_type: t.DataType = t.STRING if text else t.Int() if wire.kind == "int" else t.BigInt()
    match column, time_schema.type:
        case t.Date(), t.Date():
            return _WireConversion(Dates(column, iso=text), wire_type)
        case t.Time(), t.Time():
            return _WireConversion(Times(column, time_schema.unit), wire_type)
        case t.TimestampLtz(), t.Timestamp() | t.TimestampLtz():
            return _WireConversion(Timestamps(column, time_schema.unit), wire_type)
        case t.Timestamp(), t.Timestamp():
            return _WireConversion(Timestamps(column, time_schema.unit), wire_type)
    return None


def connect_column(wire: Type) -> t.DataType | None:
    """The column type of values that Kafka Connect wrote, which may not be the type on the wire.

    None if Avro's own rules apply: no ``connect.name`` that fits the type, and no ``VariableScaleDecimal``. The
    precision of a decimal is cut to the maximum of 38.
    """
    if wire.name == VARIABLE:
        return VARIABLE_TYPE
    if wire.connect == DECIMAL and wire.logical == "decimal" and wire.scale <= t.MAX_DECIMAL:
        # The converter writes the precision 64 if it does not know it.
        return t.Decimal(min(wire.precision, t.MAX_DECIMAL), wire.scale)
    time_schema = TIME_SCHEMAS.get(wire.connect or "")
    fits = time_schema is not None and conversion_of(wire, time_schema.type) is not None
    return time_schema.type if time_schema is not None and fits else None


def connect_unit(wire: Type) -> int | None:
    """The nanoseconds per unit of a number that Kafka Connect names as a time or timestamp; None for other types."""
    time_schema = TIME_SCHEMAS.get(wire.connect or "")
    return None if time_schema is None or connect_column(wire) is None else time_schema.unit
