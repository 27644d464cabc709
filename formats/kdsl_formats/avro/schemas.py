"""Avro schemas for modules outside the formats: reading, checking, and conversion from and to tables."""

from __future__ import annotations

from kdsl_formats._avro.model import MISSING, AvroTypeError, Json, RecordField, Type, json_of, schema_type
from kdsl_formats._avro.readings import EXACT, WIDENED, Reading, declaration_of, reading_of
from kdsl_formats._avro.resolution import default_of
from kdsl_formats._avro.schema import MEMBER, avro_schema, row_of
from kdsl_formats._registry.references import whole_schema

__all__ = [
    "EXACT",
    "MEMBER",
    "MISSING",
    "WIDENED",
    "AvroTypeError",
    "Json",
    "Reading",
    "RecordField",
    "Type",
    "avro_schema",
    "declaration_of",
    "default_of",
    "json_of",
    "reading_of",
    "row_of",
    "schema_type",
    "whole_schema",
]
