"""Avro schemas for modules outside the formats: reading, checking, and conversion from and to tables."""

from __future__ import annotations

from kdsl_formats._avro.defaults import default_json, write_defaults
from kdsl_formats._avro.model import MISSING, AvroTypeError, Json, RecordField, Type, json_of, schema_type
from kdsl_formats._avro.readings import EXACT, WIDENED, Reading, declaration_of, reading_of
from kdsl_formats._avro.resolution import default_of, has_record
from kdsl_formats._avro.schema import MEMBER, avro_schema, column_of_type, row_of, row_of_type
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
    "column_of_type",
    "declaration_of",
    "default_json",
    "default_of",
    "has_record",
    "json_of",
    "reading_of",
    "row_of",
    "row_of_type",
    "schema_type",
    "whole_schema",
    "write_defaults",
]
