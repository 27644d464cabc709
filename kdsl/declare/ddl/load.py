"""SQL texts and files to definitions of tables."""

from __future__ import annotations

from pathlib import Path

from kdsl.declare.ddl.parser import Script, read_script
from kdsl.declare.ddl.statements import CreateTable
from kdsl.declare.ddl.tables import DeclaredTable, declared_tables
from kdsl.declare.definition import TableDef
from kdsl.declare.files import read_text
from kdsl.errors import Problem, ResolveError, Where, fail_on

ENDINGS = (".sql", ".ddl")


def read_file(path: str | Path) -> Script:
    """Read a script from a file.

    Args:
        path: The file.

    Raises:
        ResolveError: The file is no UTF-8, or its statements are wrong; everything is told.
        OSError: The file cannot be read.
    """
    text = read_text(path, "script", "sql")
    return read_script(text.replace("\r\n", "\n"), file=str(path))


def read_source(source: str | Path) -> Script:
    """Read a script from a file or from a text; a text without blanks names a file.

    Args:
        source: The file or the text.

    Raises:
        ResolveError: As for `read_file`.
        OSError: As for `read_file`.
    """
    if isinstance(source, Path) or (source and not any(c.isspace() for c in source)):
        return read_file(source)
    named = "\n" not in source and source.lower().endswith(ENDINGS) and Path(source).is_file()
    return read_file(source) if named else read_script(source)


def script_tables(script: Script) -> list[DeclaredTable]:
    """The tables of a script.

    Args:
        script: The script.

    Raises:
        ResolveError: Two tables have one name, or one is dropped that there is not.
    """
    tables, problems = declared_tables(script)
    fail_on(problems, script.subject)
    return tables


def script_definitions(source: str | Path) -> list[TableDef]:
    """The definitions of a script's tables, but for those whose connector only serves scripts.

    Args:
        source: A file, or the text.

    Raises:
        ResolveError: As for `read_file`; or two tables have one name.
        OSError: As for `read_file`.
    """
    return definitions(read_source(source))


def definitions(script: Script) -> list[TableDef]:
    """The definitions of the tables of a script that was read; see `script_definitions`.

    Args:
        script: The script.

    Raises:
        ResolveError: Two tables have one name, or one is dropped that there is not.
    """
    tables = script_tables(script)
    return [t.definition() for t in tables if t.connector is None or t.connector.use != "script"]


def statement_definition(text: str) -> TableDef:
    """The definition of the one table that a text declares.

    Args:
        text: A ``CREATE TABLE`` statement.

    Raises:
        ResolveError: It holds mistakes, or something else than one such statement.
    """
    script = read_script(text)
    what = "write one CREATE TABLE statement; kdsl.load_sql reads scripts, and `kdsl run` runs them"
    others = [s for s in script.statements if not isinstance(s, CreateTable)]
    if others:
        raise _refused("this is no CREATE TABLE statement", what, others[0].where)
    if len(script.statements) != 1:
        where = script.statements[1].where if script.statements else script.source.where(0)
        count = len(script.statements)
        raise _refused(
            "the text holds no statement" if not count else f"the text holds {count} statements", what, where
        )
    (table,) = script_tables(script)
    if table.connector is not None and table.connector.use == "script":
        message = f"tables of the connector {table.connector.name!r} only stand in scripts of SQL"
        raise _refused(message, table.connector.instead, table.places["connector"])
    return table.definition()


def _refused(message: str, fix: str, where: Where) -> ResolveError:
    return ResolveError("the SQL has 1 problem", [Problem("sql", message, fix, where)])
