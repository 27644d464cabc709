"""Initial schemas of tables: from CREATE TABLE statements of Flink SQL, and from table classes to such statements."""

from __future__ import annotations

from typing import Any

from kdsl.declare.definition import TableDef
from kdsl.errors import Problem, ResolveError
from kdsl.flink_sql.ddl.script_reader import parse_script
from kdsl.flink_sql.ddl.statements import CreateTable, PhysicalColumn
from kdsl.flink_sql.ddl.tables import declare_table
from kdsl.formats import TableId
from kdsl.ingest.ids import MAX_PARTS
from kdsl.kafka_table import KafkaTable
from kdsl.table import Table
from kdsl.types import model as t
from kdsl.types.sql import quote_name
from kdsl.types.widening import TableSchema


def read_initial_schemas(statements: str | None) -> tuple[dict[TableId, TableSchema], list[Problem]]:
    """Read statements to schemas by table id.

    Args:
        statements: ``CREATE TABLE`` statements, separated by ``;``; None for none.

    Returns:
        The schemas, and the problems, each with its position in the statements.
    """
    schemas: dict[TableId, TableSchema] = {}
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
        if len(table) > MAX_PARTS:
            report(statement, f"the table {str(statement.name)!r} has more than three names", "remove one")
        if table in schemas:
            report(statement, f"the table {str(statement.name)!r} is declared twice", "remove one of the statements")
        if statement.like is not None or statement.source is not None:
            report(statement, "LIKE and AS cannot be used here", "write the columns")
            continue
        others = [c.name for c in statement.columns if not isinstance(c, PhysicalColumn)]
        if others:
            report(
                statement, f"the column {others[0]!r} is computed, or metadata", "declare columns of the message only"
            )
        if statement.options:
            report(statement, "a WITH clause cannot be used here", "remove it: the source has the options")
        declared = declare_table(statement)
        problems += declared.problems
        key = statement.primary_key
        columns = tuple(t.Field(c.name, c.type, c.comment) for c in declared.columns if c.role == "physical")
        schemas[table] = TableSchema(columns, () if key is None else key.columns)
    return schemas, problems


def write_initial_schema(table: str | type[KafkaTable] | Table | object) -> str:
    """Write the statement of a table, without a semicolon at its end; a statement stays as it is.

    Raises:
        TypeError: It is neither a statement nor a table of one topic.
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


def _definition(table: object) -> TableDef:
    """The definition of a table class or a table.

    Raises:
        TypeError: It is something else.
    """
    if isinstance(table, type) and issubclass(table, KafkaTable):
        return table.definition()
    if isinstance(table, Table):
        return table.definition
    raise TypeError(f"an initial schema is a CREATE TABLE statement or a table class, not {table!r}")


def initial_schemas(statements: str | None) -> dict[TableId, TableSchema]:
    """The schemas of statements; see `read_initial_schemas`.

    Raises:
        ResolveError: Statements have mistakes.
    """
    schemas, problems = read_initial_schemas(statements)
    if problems:
        raise ResolveError("the initial schemas cannot be read", problems)
    return schemas
