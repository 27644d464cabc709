"""The format ``avro``: one Avro body per message, with the schema that is derived from the table."""

from __future__ import annotations

from kdsl_formats.avro.format import Avro

__all__ = ["Avro"]
