"""Turns statements into tables: ``LIKE`` is expanded, expressions are translated, options are read by connector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import attrs

from kdsl.ddl.like import merge_like
from kdsl.ddl.script_reader import Script
from kdsl.ddl.statements import (
    Column,
    ComputedColumn,
    CreateCatalog,
    CreateTable,
    Drop,
    MetadataColumn,
    Name,
    PhysicalColumn,
    Watermark,
)
from kdsl.ddl.watermark import watermark_delay
from kdsl.declare.connector_names import CONNECTORS, Connector
from kdsl.declare.definition import ColumnDef, Expression, Inferred, TableDef, WatermarkDef
from kdsl.declare.with_clause import read_with_clause
from kdsl.errors import Problem, Where, listing, nearest
from kdsl.flink_sql.expressions.translator import translate_expression
from kdsl.flink_sql.expressions.values import TypedSql
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.options import Spelling
from kdsl.types import model as t
from kdsl.types.model import STRING

OF_COLUMNS = ("computed", "watermark-expression")
"""The problems of expressions, which use columns that may not be known."""
LATER = "a statement that both creates and fills a table is not supported"


@attrs.frozen
class DeclaredTable:
    """A table of a script, whatever its connector.

    Attributes:
        statement: The statement, with its ``LIKE`` clause expanded.
        columns: The columns.
        watermarks: The watermarks.
        problems: The problems of the statement, except those of its options.
        inferred: What was inferred, where the statement does not declare all columns.
    """

    statement: CreateTable
    columns: tuple[ColumnDef, ...]
    watermarks: tuple[WatermarkDef, ...] = ()
    problems: tuple[Problem, ...] = ()
    inferred: Inferred | None = None

    @property
    def name(self) -> str:
        """The table's own name."""
        return self.statement.name.last

    @property
    def where(self) -> Where:
        """The location of its name."""
        return self.statement.name.where

    @cached_property
    def options(self) -> dict[str, str]:
        """The options of the ``WITH`` clause."""
        return {o.key: o.value for o in self.statement.options}

    @cached_property
    def locations(self) -> dict[str, Where]:
        """The location of each option."""
        return {o.key: attrs.evolve(o.where, table=self.name) for o in self.statement.options}

    @property
    def connector(self) -> Connector | None:
        """The connector; None if the table names none, or an unknown one."""
        return CONNECTORS.get(self.options.get("connector", ""))

    @property
    def row(self) -> t.Row:
        """The columns and their types."""
        return t.Row(tuple(t.Field(c.name, c.type, c.comment) for c in self.columns), nullable=False)

    def definition(self) -> TableDef:
        """Build the definition of the table; its problems are those of the statement and of its options.

        Those of the options, such as a connector that has no topics, are left out if neither the statement could be
        read completely nor a connector is set.
        """
        statement = self.statement
        clause = read_with_clause(self.options, self.locations)
        key = statement.primary_key
        return TableDef(
            name=self.name,
            columns=self.columns,
            options=clause.options,
            key_format=clause.key_format,
            value_format=clause.value_format,
            key_fields=clause.key_fields or (),
            primary_key=() if key is None else key.columns,
            watermarks=self.watermarks,
            rules=clause.rules,
            properties=clause.properties,
            comment=statement.comment,
            spelling=Spelling.DDL,
            where=self.where,
            problems=(*self.problems, *(clause.problems if statement.complete or "connector" in self.options else ())),
            unread=clause.unread,
            complete=statement.complete,
            option_locations=self.locations,
            layout=self._layout_clauses(),
            inferred=self.inferred,
        )

    def _layout_clauses(self) -> dict[str, Where]:
        """Return the clauses about the layout of rows (PARTITIONED BY, DISTRIBUTED), with their locations."""
        clauses: dict[str, Where] = {}
        if self.statement.partitioned_by:
            names = ", ".join(self.statement.partitioned_by)
            clauses[f"PARTITIONED BY ({names})"] = self.statement.partitioned_where
        if self.statement.distribution is not None:
            distribution = self.statement.distribution
            clauses[" ".join(distribution.text.split())] = distribution.where()
        return clauses


class DeclaredTables:
    """The tables of a script, as its statements create and drop them.

    Args:
        unread_names: The tables and views whose statement could not be read; tables ``LIKE`` one of them are added.
        problems: The list to which problems with names are added.
    """

    def __init__(self, unread_names: set[str], problems: list[Problem]) -> None:
        self.unread_names, self.problems = unread_names, problems
        self.tables: list[DeclaredTable] = []

    def find(self, name: Name) -> DeclaredTable | None:
        """Find the table of a name, the one that was created last; None if there is none."""
        return next((table for table in reversed(self.tables) if table.statement.name.can_be(name)), None)

    def declare(self, statement: CreateTable, elsewhere: DeclaredTable | None = None) -> DeclaredTable | None:
        """Declare a table, with its ``LIKE`` clause expanded; its mistakes are its ``problems``, and it is not added.

        Args:
            statement: The statement.
            elsewhere: The table that the statement is ``LIKE``, where these tables do not contain it. Of its physical
                columns those are left out that the statement declares itself.

        Returns:
            The table; None if it is ``LIKE`` one that could not be read: its name is then in ``unread_names``.
        """
        problems: list[Problem] = []
        if statement.like is not None:
            base = self.find(statement.like.table) or (elsewhere and _without_columns_of(statement, elsewhere))
            if base is None and statement.like.table.last in self.unread_names:
                self.unread_names.add(statement.name.last)
                return None
            if base is None:
                where = statement.like.table.where
                names = [table.name for table in self.tables]
                message = f"LIKE names the table {str(statement.like.table)!r}, which the script does not declare"
                message += f" before{nearest(statement.like.table.last, names)}"
                fix = f"name one of {listing(names)}" if names else "declare that table above this one"
                problems.append(Problem("like-table", message, fix, where))
                statement = attrs.evolve(statement, like=None)
            else:
                complete = statement.complete and base.statement.complete
                statement, like_problems = merge_like(statement, base.statement)
                statement = attrs.evolve(statement, complete=complete)
                problems += like_problems
        names = [c.name for c in statement.columns]
        for name in (n for n in statement.partitioned_by if n not in names and statement.source is None):
            message = f"PARTITIONED BY names {name!r}, which is not a column{nearest(name, names)}"
            fix = f"name one of {listing(names)}, or remove the clause"
            problems.append(Problem("partition-column", message, fix, statement.partitioned_where))
        if statement.source is not None:
            fix = "write CREATE TABLE with its columns, and INSERT INTO … SELECT to fill it"
            problems.append(Problem("sql-not-yet", LATER, fix, statement.source.where()))
        return _declare(_with_not_null_key(statement), problems)

    def add(self, table: DeclaredTable) -> None:
        """Add a table; a name that exists is recorded as a problem, and the table is added nevertheless."""
        before = self.find(table.statement.name)
        if before is not None:
            line, column = before.where.line, before.where.position
            message = f"the table {table.name!r} exists already, declared in line {line}, column {column}"
            fix = "give one of them another name, or drop that one before"
            self.problems.append(Problem("table-twice", message, fix, table.where))
        self.tables.append(table)

    def drop(self, name: Name, *, if_exists: bool) -> None:
        """Remove a table; a missing one is recorded as a problem.

        Nothing is recorded with ``if_exists``, or for a table whose statement could not be read.
        """
        table = self.find(name)
        if table is not None:
            self.tables.remove(table)
        elif not if_exists and name.last not in self.unread_names:
            names = [table.name for table in self.tables]
            message = f"there is no table {str(name)!r} to drop{nearest(name.last, names)}"
            self.problems.append(Problem("table-unknown", message, "write DROP TABLE IF EXISTS", name.where))


def _without_columns_of(statement: CreateTable, base: DeclaredTable) -> DeclaredTable:
    """Return a table without the physical columns that a statement declares itself."""
    own = {c.name for c in statement.columns}
    columns = tuple(c for c in base.statement.columns if not (isinstance(c, PhysicalColumn) and c.name in own))
    return attrs.evolve(base, statement=attrs.evolve(base.statement, columns=columns))


def declare_tables(script: Script) -> tuple[list[DeclaredTable], list[Problem]]:
    """Declare every table of a script, including those that it drops again, without asking a cluster.

    Tables ``LIKE`` one of a catalog or one that could not be read, and ``AS TABLE`` another one, are left out.

    Returns:
        The tables, and the problems with their names: those declared twice, or dropped but missing.
    """
    problems = list[Problem]()
    declared, tables = DeclaredTables(set(script.unread_names), problems), list[DeclaredTable]()
    elsewhere = {one.name.last for one in script.statements if isinstance(one, CreateCatalog)}
    for statement in script.statements:
        if isinstance(statement, CreateTable):
            if statement.copy is not None:
                continue  # a table of a sink
            if statement.like is not None and statement.like.table.parts[0] in elsewhere:
                continue  # its columns are those of a topic
            if statement.if_not_exists and declared.find(statement.name) is not None:
                continue
            table = declared.declare(statement)
            if table is not None:
                declared.add(table)
                tables.append(table)
        elif isinstance(statement, Drop) and statement.kind == "TABLE":
            declared.drop(statement.name, if_exists=statement.if_exists)
    return tables, problems


def _with_not_null_key(statement: CreateTable) -> CreateTable:
    """Return a copy of the statement with the columns of its primary key as NOT NULL, except computed ones."""
    names = statement.primary_key.columns if statement.primary_key else ()

    def column(one: Column) -> Column:
        if isinstance(one, ComputedColumn) or one.name not in names:
            return one
        return attrs.evolve(one, type=one.type.as_nullable(False))

    return attrs.evolve(statement, columns=tuple(column(one) for one in statement.columns))


def declare_table(statement: CreateTable) -> DeclaredTable:
    """Declare the table of a statement whose ``LIKE`` clause is expanded; mistakes are in its ``problems``."""
    return _declare(_with_not_null_key(statement), [])


def _declare(statement: CreateTable, problems: Sequence[Problem]) -> DeclaredTable:
    """Declare a table; its problems are the given ones, which come first, and those of its expressions."""
    columns = _ColumnDeclarations(statement)
    definitions = columns.definitions()
    watermarks = tuple(columns.define_watermark(w) for w in statement.watermarks)
    return DeclaredTable(statement, definitions, watermarks, (*problems, *columns.problems))


class _ColumnDeclarations:
    """The columns of a statement."""

    def __init__(self, statement: CreateTable) -> None:
        self.statement = statement
        self.problems: list[Problem] = []

    @cached_property
    def types(self) -> Mapping[str, t.DataType]:
        """The types of the columns that an expression can use: all but the computed ones."""
        return {c.name: c.type for c in self.statement.columns if not isinstance(c, ComputedColumn)}

    def definitions(self) -> tuple[ColumnDef, ...]:
        """Define all columns in order; problems are recorded."""
        return tuple(self._define_column(c) for c in self.statement.columns)

    def _define_column(self, column: Column) -> ColumnDef:
        """Define a column; a computed one that `_translate` cannot translate has an unknown type (STRING).

        Its expression is then kept in Flink's SQL. Problems of an expression are recorded.
        """
        table = self.statement.name.last
        where = attrs.evolve(column.where, table=table)
        match column:
            case PhysicalColumn():
                return ColumnDef(
                    column.name, column.type, comment=column.comment, type_known=column.type_known, where=where
                )
            case MetadataColumn():
                return ColumnDef(
                    column.name,
                    column.type,
                    role="metadata",
                    metadata_key=column.key,
                    virtual=column.virtual,
                    comment=column.comment,
                    type_known=column.type_known,
                    where=where,
                )
            case ComputedColumn():
                value = self._translate(column)
                text = column.expression.text if value is None else value.text
                return ColumnDef(
                    column.name,
                    (value and value.type) or STRING,
                    role="computed",
                    expression=Expression(text, flink=column.expression.text),
                    comment=column.comment,
                    type_known=value is not None and value.type is not None,
                    where=where,
                )

    @cached_property
    def _unknown_types(self) -> frozenset[str]:
        """The columns whose type could not be read."""
        columns = self.statement.columns
        return frozenset(c.name for c in columns if not isinstance(c, ComputedColumn) and not c.type_known)

    def _translate(self, column: ComputedColumn) -> TypedSql | None:
        """Translate a computed column to Spark SQL; ``NULL`` without a type if it has none, which is recorded.

        None if it cannot be translated, which is recorded as a problem unless it uses a column of unknown type.
        """
        table = self.statement.name.last
        if column.expression.contains_any(self._unknown_types):
            return None
        try:
            value = translate_expression(column.expression.text, self.types)
        except UntranslatableError as e:
            location = column.expression.where(e.position, len(e.name), table=table, column=column.name)
            self.problems.append(Problem("computed", e.reason, e.fix, location))
            return None
        if value.type is None:
            location = column.expression.where(table=table, column=column.name)
            fix = "write CAST(NULL AS …) with the type that the column has"
            self.problems.append(Problem("computed", "NULL by itself has no type", fix, location))
        return value

    def define_watermark(self, watermark: Watermark) -> WatermarkDef:
        """Return the watermark; if it cannot be translated, a problem is recorded and its delay is 0 seconds."""
        table = self.statement.name.last
        where = attrs.evolve(watermark.where, table=table)
        try:
            delay = watermark_delay(watermark.column, watermark.expression.text)
        except UntranslatableError as e:
            location = watermark.expression.where(e.position, len(e.name), table=table, column=watermark.column)
            self.problems.append(Problem("watermark-expression", e.reason, e.fix, location))
            delay = "0 seconds"
        return WatermarkDef(watermark.column, delay, where)
