"""Tables from Flink SQL: `script_reader` reads statements, `tables` turns them into tables, `load` reads files."""

from __future__ import annotations
