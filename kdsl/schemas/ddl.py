"""Flink DDL as tables."""

from __future__ import annotations

from pathlib import Path

from kdsl.ddl.load import read_definitions
from kdsl.errors import listing, nearest
from kdsl.schemas.model import CodegenError, TableDraft


def ddl_drafts(file: str, *, names: tuple[str, ...] = ()) -> list[TableDraft]:
    """Draft the tables that a script declares; clauses that lay out rows are omitted, and noted.

    Tables whose connector is only for scripts are left out.

    Args:
        file: The script.
        names: Which of them; all by default. Other names are ignored if the script declares one of these.
    """
    if not Path(file).is_file():
        raise CodegenError(f"there is no file {file!r}; write the path of an SQL file")
    declared = read_definitions(Path(file))
    definitions = [d for d in declared if not names or d.name in names]
    if not declared:
        raise CodegenError(f"{file!r} declares no table; write CREATE TABLE in it")
    if not definitions:
        raise CodegenError(
            f"{file!r} declares no table {listing(names)}{nearest(names[0], [d.name for d in declared])}; it declares "
            f"{listing(d.name for d in declared)}"
        )
    return [
        TableDraft(
            d, notes=tuple(f"{d.name}: {what} does not apply to a Kafka table and was omitted" for what in d.layout)
        )
        for d in definitions
    ]
