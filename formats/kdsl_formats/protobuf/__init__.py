"""The formats ``protobuf`` and ``protobuf-confluent``: Protobuf messages, whose fields become columns by name."""

from __future__ import annotations

from kdsl_formats.protobuf.confluent import ProtobufConfluent
from kdsl_formats.protobuf.format import Protobuf

__all__ = ["Protobuf", "ProtobufConfluent"]
