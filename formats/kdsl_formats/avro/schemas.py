"""Avro schemas for modules outside the formats: reading, checking, and conversion from and to tables."""

from __future__ import annotations

from typing import Any

from kdsl.formats import Format
from kdsl.types import model as t
from kdsl_formats._avro.defaults import default_json, write_defaults
from kdsl_formats._avro.model import MISSING, AvroTypeError, Json, RecordField, Type, json_of, schema_type
from kdsl_formats._avro.readings import EXACT, WIDENED, Reading, declaration_of, reading_of
from kdsl_formats._avro.resolution import default_of, has_record
from kdsl_formats._avro.schema import MEMBER, avro_schema, column_of_type, row_of, row_of_type
from kdsl_formats._registry.avro_format import AvroRegistryFormat
from kdsl_formats._registry.references import whole_schema
from kdsl_formats.avro.format import Avro

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
    "schema_of_columns",
    "schema_type",
    "whole_schema",
    "write_defaults",
]


def schema_of_columns(chosen: Format | None, row: t.Row) -> Any:
    """Return the Avro schema of rows with the mapping of a format; for other formats than Avro's with the exact one."""
    legacy = isinstance(chosen, (Avro, AvroRegistryFormat)) and chosen.legacy_timestamps
    return avro_schema(row, legacy_timestamps=legacy, instants=not isinstance(chosen, Avro))
