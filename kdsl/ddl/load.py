"""Tables from SQL: strings and files to definitions, and to tables that are ready to use."""

from __future__ import annotations

import os
from pathlib import Path

from kdsl.ddl.script_reader import Script, parse_script, read_script
from kdsl.ddl.statements import CreateTable
from kdsl.ddl.tables import DeclaredTable, declare_tables
from kdsl.declare.definition import TableDef
from kdsl.documents import SQL_ENDINGS, read_text
from kdsl.errors import Problem, ResolveError, Where, fail_on
from kdsl.table import Table


def parse_file(path: str | Path) -> Script:
    """Read a script from a file; mistakes in it are among its problems, and ``CRLF`` line breaks become ``LF``.

    Raises:
        ResolveError: The file is not UTF-8.
        OSError: The file cannot be read.
    """
    text = read_text(path, "script", "sql")
    return parse_script(text.replace("\r\n", "\n"), file=str(path))


def parse_source(source: str | Path) -> Script:
    """Read a script from a file or from a string; mistakes in it are among its problems.

    A string is the name of a file if it has no blanks or line breaks (and is not empty), or if it is one line that ends
    with ``.sql`` or ``.ddl`` and such a file exists.

    Raises:
        ResolveError: The file is not UTF-8.
        OSError: The file cannot be read.
    """
    if isinstance(source, Path) or (source and not any(c.isspace() for c in source)):
        return parse_file(source)
    named = "\n" not in source and source.lower().endswith(SQL_ENDINGS) and os.path.isfile(source)  # noqa: PTH113  # of a name of any length
    return parse_file(source) if named else parse_script(source)


def declare_script_tables(script: Script) -> list[DeclaredTable]:
    """Declare the tables of a script as `declare_tables` does; problems of a table itself are in its definition.

    Raises:
        ResolveError: Statements have mistakes, two tables have the same name, or a missing table is dropped.
    """
    tables, problems = declare_tables(script)
    fail_on([*script.problems, *problems], script.subject)
    return tables


def read_definitions(source: str | Path) -> list[TableDef]:
    """Read the definitions of a script's tables, except those whose connector is only for scripts.

    ``source`` is a file, or the script itself; see `parse_source`.

    Raises:
        ResolveError: As for `parse_file` and `declare_script_tables`.
        OSError: As for `parse_file`.
    """
    return table_definitions(parse_source(source))


def table_definitions(script: Script) -> list[TableDef]:
    """The definitions of the tables of a parsed script, except those whose connector is only for scripts.

    Raises:
        ResolveError: As for `declare_script_tables`.
    """
    tables = declare_script_tables(script)
    return [t.definition() for t in tables if t.connector is None or t.connector.use != "script"]


def read_definition(text: str) -> TableDef:
    """Return the definition of the one table that a string declares; problems of its options are in the definition.

    Raises:
        ResolveError: The statement has mistakes, there is not exactly one, it is not a CREATE TABLE, or its connector
            is only for scripts.
    """
    script = read_script(text)
    what = "write one CREATE TABLE statement; kdsl.load_sql reads scripts, and `kdsl run` runs them"
    others = [s for s in script.statements if not isinstance(s, CreateTable)]
    if others:
        raise _refusal("this is not a CREATE TABLE statement", what, others[0].where)
    if len(script.statements) != 1:
        where = script.statements[1].where if script.statements else script.source.where(0)
        count = len(script.statements)
        raise _refusal("the SQL has no statement" if not count else f"the SQL has {count} statements", what, where)
    if script.has_copies:
        message = "CREATE TABLE … AS TABLE copies another table, which only a script can do"
        raise _refusal(message, "declare the columns, or run the statement with `kdsl run`", script.statements[0].where)
    (table,) = declare_script_tables(script)
    if table.connector is not None and table.connector.use == "script":
        message = f"tables of the connector {table.connector.name!r} can be used in SQL scripts only"
        raise _refusal(message, table.connector.instead, table.locations["connector"])
    return table.definition()


def _refusal(message: str, fix: str, where: Where) -> ResolveError:
    """Create the error for SQL with one problem."""
    return ResolveError("the SQL has 1 problem", [Problem("sql", message, fix, where)])


def sql(text: str) -> Table:
    """Read a ``CREATE TABLE`` statement of Flink SQL, and return the table that it declares, ready to use.

    Args:
        text: The statement. docs/sql.md describes what is supported.

    Raises:
        ResolveError: It is not exactly one such statement, or its connector is only for scripts; every mistake with
            line, column and the line itself. Problems of the table are reported when it is resolved.
    """
    return Table(read_definition(text))


def load_sql(source: str | Path) -> list[Table]:
    """Read a script of Flink SQL, and return the tables that it declares, in order, ready to use.

    Tables that it drops again are returned, too; not those whose connector is only for scripts (such as ``print``), and
    those ``LIKE`` a table of a catalog. Other statements have no effect.

    Args:
        source: A file, or the script itself. A string without blanks, or one line with the name of an existing file
            that ends with ``.sql`` or ``.ddl``, is the name of a file.

    Raises:
        ResolveError: The file is not UTF-8, or the script has mistakes; each is reported with line, column and the line
            itself. Problems of a table are reported when it is resolved.
        OSError: The file cannot be read.
    """
    return [Table(definition) for definition in read_definitions(source)]
