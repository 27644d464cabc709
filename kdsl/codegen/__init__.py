"""Generates table classes from schemas, and Avro schemas, Flink DDL and YAML from tables."""

from __future__ import annotations

from kdsl.codegen.avro_schema import to_avro as to_avro
from kdsl.codegen.ddl_text import to_ddl as to_ddl
from kdsl.codegen.source import to_python as to_python
from kdsl.codegen.yaml_text import to_yaml as to_yaml
from kdsl.schemas.model import (
    CodegenError as CodegenError,
    Hint as Hint,
    Symbol as Symbol,
    TableDraft as TableDraft,
)

__all__ = ["CodegenError", "Hint", "Symbol", "TableDraft", "to_avro", "to_ddl", "to_python", "to_yaml"]
