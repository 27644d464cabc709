"""What Debezium's events have in common, whether they are JSON or Avro: options, and values that it does not have."""

from __future__ import annotations

from kdsl_formats._debezium.options import DebeziumFormat, PlaceholderFormat
from kdsl_formats._debezium.unavailable import PlaceholderFinder

__all__ = ["DebeziumFormat", "PlaceholderFinder", "PlaceholderFormat"]
