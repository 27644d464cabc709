"""Flink DDL as tables."""

from __future__ import annotations

from pathlib import Path

from kdsl.codegen.model import CodegenError, Draft
from kdsl.declare.ddl.load import script_definitions


def ddl_drafts(file: str, *, names: tuple[str, ...] = ()) -> list[Draft]:
    """The tables that a script declares.

    Args:
        file: The script.
        names: Which of them; all by default.

    Raises:
        ResolveError: The script has mistakes; everything is told with line and column.
        CodegenError: It declares no such table.
    """
    if not Path(file).is_file():
        raise CodegenError(f"there is no file {file!r}")
    found = [d for d in script_definitions(Path(file)) if not names or d.name in names]
    if not found:
        raise CodegenError(f"{file!r} declares no table" + (f" of the name {', '.join(names)}" if names else ""))
    return [
        Draft(d, notes=tuple(f"{d.name}: {what} says nothing of a Kafka table, and is left out" for what in d.layout))
        for d in found
    ]
