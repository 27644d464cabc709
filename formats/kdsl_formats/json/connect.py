"""Schemas inside messages, for modules outside the formats."""

from __future__ import annotations

from kdsl_formats._connect.schemas import (
    DECIMAL,
    PRECISION,
    connect_schema,
    describe_replaced_nulls,
)
from kdsl_formats._connect.values import FIRST_DAY, MICROS, MILLIS, NANOS, infinite_of

__all__ = [
    "DECIMAL",
    "FIRST_DAY",
    "MICROS",
    "MILLIS",
    "NANOS",
    "PRECISION",
    "connect_schema",
    "describe_replaced_nulls",
    "infinite_of",
]
