"""Flink DDL as tables."""

from __future__ import annotations

from pathlib import Path

from kdsl.codegen.model import CodegenError, TableDraft
from kdsl.flink_sql.load import script_definitions


def ddl_drafts(file: str, *, names: tuple[str, ...] = ()) -> list[TableDraft]:
    """Draft the tables that a script declares.

    Args:
        file: The script.
        names: Which of them; all by default.

    Raises:
        ResolveError: The script has mistakes, which are all reported with line and column.
        CodegenError: The file does not exist, or declares no such table.
    """
    if not Path(file).is_file():
        raise CodegenError(f"there is no file {file!r}")
    definitions = [d for d in script_definitions(Path(file)) if not names or d.name in names]
    if not definitions:
        raise CodegenError(f"{file!r} declares no table" + (f" with the name {', '.join(names)}" if names else ""))
    return [
        TableDraft(
            d, notes=tuple(f"{d.name}: {what} does not apply to a Kafka table and was omitted" for what in d.layout)
        )
        for d in definitions
    ]
