"""What a file of cases declares: a table, or where the text or the file of a script or an ingestion is."""

from __future__ import annotations

import re

from kdsl import load
from kdsl.ddl.load import table_definitions
from kdsl.ddl.script_reader import parse_script
from kdsl.declare.document import read_tables
from kdsl.errors import KdslError
from kdsl.table import Table
from kdsl.testing.cases.model import CaseFile

_SOURCES = (".py", ".yaml", ".yml", ".sql", ".ddl")


def load_table(file: CaseFile) -> Table:
    """Load the table of a file of cases."""
    if not file.is_inline:
        return load.table(locate(file))
    text = place_text(file)
    if re.match(r"\s*[\w'\"]+\s*:", file.target):
        tables = [Table(one) for one in read_tables(text, file=str(file.path))]
    else:
        tables = [Table(one) for one in table_definitions(parse_script(text, file=str(file.path)))]
    if len(tables) != 1:
        raise KdslError(f"{file.path}:{file.line}: {len(tables)} tables are declared; write exactly one, or 'script:'")
    return tables[0]


def locate(file: CaseFile) -> str:
    """The file that is declared, which is relative to the file of cases; a Python module stays as it is."""
    name = file.target.rpartition(":")[0] or file.target
    is_file = file.target.lower().endswith(_SOURCES) or name.lower().endswith(_SOURCES)
    return str(file.path.parent / file.target) if is_file else file.target


def place_text(file: CaseFile) -> str:
    """The text of a declaration after as many empty lines as come before it, so that messages give its lines."""
    return "\n" * file.line + file.target
