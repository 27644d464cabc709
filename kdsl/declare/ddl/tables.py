"""Statements to tables: ``LIKE`` written out, types and expressions worked out, options sorted by their connector."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs

from kdsl.declare.connectors import CONNECTORS, Connector
from kdsl.declare.ddl.like import merged
from kdsl.declare.ddl.parser import Script
from kdsl.declare.ddl.statements import (
    Column,
    ComputedColumn,
    CreateTable,
    Drop,
    MetadataColumn,
    Name,
    PhysicalColumn,
    Watermark,
)
from kdsl.declare.ddl.watermark import delay_of
from kdsl.declare.definition import ColumnDef, Expression, TableDef, WatermarkDef
from kdsl.declare.translate import UntranslatableError, typed_expression
from kdsl.declare.with_clause import read_with_clause
from kdsl.errors import Problem, Where, listing, nearest
from kdsl.options import Spelling
from kdsl.types import model as t
from kdsl.types.model import STRING

LATER = "a table that is made and filled by one statement is not there yet"


@attrs.frozen
class DeclaredTable:
    """A table of a script, whatever its connector.

    Attributes:
        statement: The statement, with its ``LIKE`` clause written out.
        columns: The columns; their problems stand in ``problems``.
        watermarks: The watermarks.
        problems: What is wrong with the statement, but for the options.
    """

    statement: CreateTable
    columns: tuple[ColumnDef, ...]
    watermarks: tuple[WatermarkDef, ...] = ()
    problems: tuple[Problem, ...] = ()

    @property
    def name(self) -> str:
        """The table's own name."""
        return self.statement.name.last

    @property
    def where(self) -> Where:
        """Where its name stands."""
        return self.statement.name.where

    @cached_property
    def options(self) -> dict[str, str]:
        """The options of the ``WITH`` clause."""
        return {o.key: o.value for o in self.statement.options}

    @cached_property
    def places(self) -> dict[str, Where]:
        """The place of each option."""
        return {o.key: attrs.evolve(o.where, table=self.name) for o in self.statement.options}

    @property
    def connector(self) -> Connector | None:
        """The connector, if one is named that there is."""
        return CONNECTORS.get(self.options.get("connector", ""))

    @property
    def row(self) -> t.Row:
        """The columns and their types."""
        return t.Row(tuple(t.Field(c.name, c.type, c.comment) for c in self.columns), nullable=False)

    def definition(self) -> TableDef:
        """The definition of a table whose connector has topics; of another one, a definition that never holds."""
        statement = self.statement
        clause = read_with_clause(self.options, self.places)
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
            properties=clause.properties,
            comment=statement.comment,
            spelling=Spelling.DDL,
            where=self.where,
            problems=(*self.problems, *clause.problems),
            unread=clause.unread,
            places=self.places,
            layout=self._layout(),
        )

    def _layout(self) -> dict[str, Where]:
        found: dict[str, Where] = {}
        if self.statement.partitioned_by:
            names = ", ".join(self.statement.partitioned_by)
            found[f"PARTITIONED BY ({names})"] = self.statement.partitioned_where
        if self.statement.distribution is not None:
            place = self.statement.distribution
            found[" ".join(place.text.split())] = place.where()
        return found


class Catalog:
    """The tables of a script, as its statements make and drop them."""

    def __init__(self) -> None:
        self.tables: list[DeclaredTable] = []
        self.problems: list[Problem] = []

    def find(self, name: Name) -> DeclaredTable | None:
        """The table of a name, where it is there."""
        return next((table for table in reversed(self.tables) if table.statement.name.means(name)), None)

    def create(self, statement: CreateTable) -> DeclaredTable:
        """Make a table. What is wrong with it, it tells itself; that its name is taken is told by the catalog."""
        found: list[Problem] = []
        if statement.like is not None:
            base = self.find(statement.like.table)
            if base is None:
                where = statement.like.table.where
                names = [table.name for table in self.tables]
                message = f"LIKE names the table {str(statement.like.table)!r}, which the script does not declare"
                message += f" before{nearest(statement.like.table.last, names)}"
                fix = f"name one of {listing(names)}" if names else "declare that table above this one"
                found.append(Problem("like-table", message, fix, where))
                statement = attrs.evolve(statement, like=None)
            else:
                statement, told = merged(statement, base.statement)
                found += told
        names = [c.name for c in statement.columns]
        for name in (n for n in statement.partitioned_by if n not in names and statement.source is None):
            message = f"PARTITIONED BY names {name!r}, which is no column{nearest(name, names)}"
            fix = f"name one of {listing(names)}, or remove the clause"
            found.append(Problem("partition-column", message, fix, statement.partitioned_where))
        if statement.source is not None:
            fix = "write CREATE TABLE with its columns, and INSERT INTO … SELECT to fill it"
            found.append(Problem("sql-not-yet", LATER, fix, statement.source.where()))
        table = _declared(_never_null(statement), found)
        before = self.find(statement.name)
        if before is not None and statement.name.parts[-1] == before.name:
            if statement.if_not_exists:
                return before
            line, column = before.where.line, before.where.position
            message = f"there is a table {table.name!r} already, declared in line {line}, column {column}"
            fix = "give one of them another name, or drop that one before"
            self.problems.append(Problem("table-twice", message, fix, table.where))
        self.tables.append(table)
        return table

    def drop(self, statement: Drop) -> None:
        """Drop a table; that there is none is told by the catalog."""
        table = self.find(statement.name)
        if table is not None:
            self.tables.remove(table)
        elif statement.kind == "TABLE" and not statement.if_exists:
            names = [table.name for table in self.tables]
            message = f"there is no table {str(statement.name)!r} to drop{nearest(statement.name.last, names)}"
            self.problems.append(Problem("table-unknown", message, "write DROP TABLE IF EXISTS", statement.name.where))


def declared_tables(script: Script) -> tuple[list[DeclaredTable], list[Problem]]:
    """Every table that a script declares, also one that it drops again, and what is wrong with their names.

    Args:
        script: The script.
    """
    catalog, found = Catalog(), list[DeclaredTable]()
    for statement in script.statements:
        if isinstance(statement, CreateTable):
            table = catalog.create(statement)
            if not any(table is known for known in found):
                found.append(table)
        elif isinstance(statement, Drop) and statement.kind == "TABLE":
            catalog.drop(statement)
    return found, catalog.problems


def _never_null(statement: CreateTable) -> CreateTable:
    """The statement with NOT NULL at the columns of its primary key, also for tables that are made LIKE it."""
    names = statement.primary_key.columns if statement.primary_key else ()

    def column(one: Column) -> Column:
        if isinstance(one, ComputedColumn) or one.name not in names:
            return one
        return attrs.evolve(one, type=one.type.as_nullable(False))

    return attrs.evolve(statement, columns=tuple(column(one) for one in statement.columns))


def _declared(statement: CreateTable, found: list[Problem]) -> DeclaredTable:
    columns = _Columns(statement)
    made = columns.made()
    watermarks = tuple(columns.watermark(w) for w in statement.watermarks)
    return DeclaredTable(statement, made, watermarks, (*found, *columns.problems))


class _Columns:
    """The columns of a statement."""

    def __init__(self, statement: CreateTable) -> None:
        self.statement = statement
        self.problems: list[Problem] = []

    @cached_property
    def types(self) -> Mapping[str, t.DataType]:
        """The columns that an expression can use."""
        return {c.name: c.type for c in self.statement.columns if not isinstance(c, ComputedColumn)}

    def made(self) -> tuple[ColumnDef, ...]:
        return tuple(self._column(c) for c in self.statement.columns)

    def _column(self, column: Column) -> ColumnDef:
        table = self.statement.name.last
        where = attrs.evolve(column.where, table=table)
        match column:
            case PhysicalColumn():
                return ColumnDef(column.name, column.type, comment=column.comment, where=where)
            case MetadataColumn():
                return ColumnDef(
                    column.name,
                    column.type,
                    role="metadata",
                    metadata_key=column.key,
                    virtual=column.virtual,
                    comment=column.comment,
                    where=where,
                )
            case ComputedColumn():
                text, kind = self._expression(column)
                expression = Expression(text, flink=column.expression.text)
                return ColumnDef(
                    column.name, kind, role="computed", expression=expression, comment=column.comment, where=where
                )

    def _expression(self, column: ComputedColumn) -> tuple[str, t.DataType]:
        """A computed column in Spark's SQL, and its type; where there is none, the problem is told at its place."""
        table = self.statement.name.last
        try:
            value = typed_expression(column.expression.text, self.types)
        except UntranslatableError as e:
            place = column.expression.where(e.position, len(e.name), table=table, column=column.name)
            self.problems.append(Problem("computed", e.reason, e.fix, place))
            return column.expression.text, STRING
        if value.type is None:
            place = column.expression.where(table=table, column=column.name)
            fix = "write CAST(NULL AS …) with the type that the column has"
            self.problems.append(Problem("computed", "NULL by itself has no type", fix, place))
        return value.text, value.type or STRING

    def watermark(self, watermark: Watermark) -> WatermarkDef:
        table = self.statement.name.last
        where = attrs.evolve(watermark.where, table=table)
        try:
            delay = delay_of(watermark.column, watermark.expression.text)
        except UntranslatableError as e:
            place = watermark.expression.where(e.position, len(e.name), table=table, column=watermark.column)
            self.problems.append(Problem("watermark-expression", e.reason, e.fix, place))
            delay = "0 seconds"
        return WatermarkDef(watermark.column, delay, where)
