"""Schemas inside messages, for modules outside the formats."""

from __future__ import annotations

from kdsl_formats._connect.schemas import (
    DECIMAL,
    PRECISION,
    InlineRows,
    SchemaTable,
    connect_schema,
    describe_replaced_nulls,
    find_inline_rows,
    table_of_schema,
)
from kdsl_formats._connect.values import FIRST_DAY, MICROS, MILLIS, NANOS, infinite_of

__all__ = [
    "DECIMAL",
    "FIRST_DAY",
    "MICROS",
    "MILLIS",
    "NANOS",
    "PRECISION",
    "InlineRows",
    "SchemaTable",
    "connect_schema",
    "describe_replaced_nulls",
    "find_inline_rows",
    "infinite_of",
    "table_of_schema",
]
