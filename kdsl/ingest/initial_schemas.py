"""Initial schemas of tables: from CREATE TABLE statements of Flink SQL, and from table classes to such statements."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import attrs

from kdsl.ddl.script_reader import parse_script
from kdsl.ddl.statements import CreateTable
from kdsl.ddl.tables import OF_COLUMNS, declare_table
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.errors import Problem
from kdsl.formats import TableId
from kdsl.kafka_table import KafkaTable
from kdsl.table import Table
from kdsl.types import model as t
from kdsl.types.sql import quote_name
from kdsl.types.widening import TableSchema

KEY_FIELDS = "key.fields"


@attrs.frozen
class InitialTable:
    """A table as it is declared before any record.

    Attributes:
        columns: The declared columns, in order. Metadata and computed columns are columns of the rows beside those that
            messages have.
        schema: The columns that messages have, and the primary key.
        key: The names of the columns that are in the message key.
    """

    columns: tuple[ColumnDef, ...]
    schema: TableSchema
    key: tuple[str, ...] = ()

    @property
    def other_columns(self) -> tuple[ColumnDef, ...]:
        """The metadata and computed columns."""
        return tuple(c for c in self.columns if c.role != "physical")


@lru_cache(maxsize=64)
def read_initial_schemas(statements: str | None) -> tuple[dict[TableId, InitialTable], list[Problem]]:
    """Read statements to tables by table id; the result is cached, and must not be changed.

    Args:
        statements: ``CREATE TABLE`` statements, separated by ``;``; None for none.

    Returns:
        The tables, and the problems, each with its position in the statements where it is known; warnings are left out.
        Whether expressions of computed columns can be translated is not checked: they may use columns that only
        messages show. Other statements, and those with LIKE or AS, give no table; one with another problem does. Of a
        table that is declared twice, which is a problem, the last declaration counts.
    """
    schemas: dict[TableId, InitialTable] = {}
    if statements is None:
        return schemas, []
    script = parse_script(statements)
    problems = [p for p in script.problems if p.severity == "error"]

    def report(statement: Any, message: str, fix: str) -> None:
        problems.append(Problem("ingest-ddl", message, fix, statement.name.where))

    for statement in script.statements:
        if not isinstance(statement, CreateTable):
            message = "only CREATE TABLE statements can describe initial schemas"
            problems.append(Problem("ingest-ddl", message, "remove the other statements"))
            continue
        table = statement.name.parts
        if table in schemas:
            report(statement, f"the table {str(statement.name)!r} is declared twice", "remove one of the statements")
        if statement.like is not None or statement.source is not None or statement.copy is not None:
            report(statement, "LIKE and AS cannot be used here", "write the columns")
            continue
        if [option for option in statement.options if option.key != KEY_FIELDS]:
            message = f"only {KEY_FIELDS!r} can be set here"
            report(statement, message, "remove the other options: the source has them")
        declared = declare_table(statement)
        problems += (p for p in declared.problems if p.code not in OF_COLUMNS)
        columns = tuple(t.Field(c.name, c.type, c.comment) for c in declared.columns if c.role == "physical")
        names = [f.name for f in columns]
        primary_key = () if statement.primary_key is None else statement.primary_key.columns
        key = tuple(name for name in declared.options.get(KEY_FIELDS, "").split(";") if name)
        for what, unknown in (("PRIMARY KEY", primary_key), (KEY_FIELDS, key)):
            if wrong := [name for name in unknown if name not in names]:
                message = f"{what} names {wrong[0]!r}, which is not a column that messages have"
                report(statement, message, "name declared columns; primary-keys of a transform can name all columns")
        schemas[table] = InitialTable(declared.columns, TableSchema(columns, primary_key), key)
    return schemas, problems


def write_initial_schema(table: str | type[KafkaTable] | Table | object) -> str:
    """Write the statement of a table, named as its topic, with its physical columns and primary key, without ``;``.

    Of a statement, only spaces around it and the semicolons at its end are removed.
    """
    if isinstance(table, str):
        return table.strip().rstrip(";").rstrip()
    definition = _definition(table)
    columns = [c for c in definition.columns if c.role == "physical"]
    if len(definition.options.topic) != 1:
        raise TypeError(f"an initial schema needs a table of one topic, and {definition.name} has another number")
    parts = [f"{quote_name(c.name)} {c.type}" for c in columns]
    if definition.primary_key:
        parts.append(f"PRIMARY KEY ({', '.join(map(quote_name, definition.primary_key))}) NOT ENFORCED")
    return f"CREATE TABLE {quote_name(definition.options.topic[0])} ({', '.join(parts)})"


def write_initial_table(table: TableId, columns: tuple[ColumnDef, ...], key: tuple[str, ...]) -> str:
    """Write the statement that declares a table; `read_initial_schemas` reads it.

    Args:
        table: The id of the table.
        columns: Its columns; computed ones have their expression in Flink's SQL.
        key: The names of the columns that are in the message key.
    """
    options = f" WITH ('{KEY_FIELDS}' = '{_double_quotes(';'.join(key))}')" if key else ""
    return f"CREATE TABLE {'.'.join(map(quote_name, table))} ({', '.join(map(_write_column, columns))}){options}"


def _write_column(column: ColumnDef) -> str:
    """Write a physical, computed or metadata column of a statement."""
    comment = "" if column.comment is None else f" COMMENT '{_double_quotes(column.comment)}'"
    if column.role == "computed":
        assert column.expression is not None
        return f"{quote_name(column.name)} AS {column.expression.flink or column.expression.text}{comment}"
    source = f" METADATA FROM '{_double_quotes(column.shows)}' VIRTUAL" if column.role == "metadata" else ""
    return f"{quote_name(column.name)} {column.type}{source}{comment}"


def _double_quotes(text: str) -> str:
    """Write each single quote of a string twice, for a literal of SQL."""
    return text.replace("'", "''")


def _definition(table: object) -> TableDef:
    """The definition of a table class or a table."""
    if isinstance(table, type) and issubclass(table, KafkaTable):
        return table.definition()
    if isinstance(table, Table):
        return table.definition
    raise TypeError(f"an initial schema is a CREATE TABLE statement or a table class, not {table!r}")
