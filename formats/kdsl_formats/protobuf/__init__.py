"""The format ``protobuf``: one Protobuf message per Kafka message, columns by the names of fields."""

from __future__ import annotations

from kdsl_formats.protobuf.format import Protobuf

__all__ = ["Protobuf"]
