"""What Debezium's JSON and Avro events have in common: options, and placeholders for unavailable values."""

from __future__ import annotations

from kdsl_formats._debezium.options import DebeziumFormat, PlaceholderFormat
from kdsl_formats._debezium.unavailable import PlaceholderFinder

__all__ = ["DebeziumFormat", "PlaceholderFinder", "PlaceholderFormat"]
