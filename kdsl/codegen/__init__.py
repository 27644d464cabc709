"""Tables as text, and text as tables: Python source, Avro schemas, Flink DDL and YAML."""

from __future__ import annotations

from kdsl.codegen.model import CodegenError as CodegenError, Draft as Draft, Hint as Hint, Symbol as Symbol
from kdsl.codegen.source import to_python as to_python

__all__ = ["CodegenError", "Draft", "Hint", "Symbol", "to_python"]
