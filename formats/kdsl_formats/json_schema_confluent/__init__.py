"""The format ``json-schema-confluent``: JSON whose schemas are in a schema registry."""

from __future__ import annotations

from kdsl_formats.json_schema_confluent.format import JsonSchemaConfluent

__all__ = ["JsonSchemaConfluent"]
