"""What is known of tables, the changes of their schemas, and the changes that are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from kdsl.formats import TableId
from kdsl.ingest.ids import format_id
from kdsl.types import model as t
from kdsl.types.widening import (
    TableSchema,
)

Tag = Literal["create.table", "add.column", "alter.column.type"]
RefusalCode = Literal[
    "database-change",
    "database-type",
    "expression",
    "key-type",
    "lost-values",
    "many-columns",
    "many-errors",
    "many-tables",
    "merged-keys",
    "message-key",
    "missing-key",
    "missing-table",
    "missing-topic",
    "name-case",
    "name-character",
    "name-empty",
    "name-length",
    "name-reserved",
    "not-null",
    "not-null-missing",
    "refused-change",
    "replaced-table",
    "rewrite",
    "sink-key",
    "source-type",
    "source-value",
    "table-excluded",
    "table-name",
    "topic-name",
    "transform",
    "type-change",
    "unreadable",
    "wrong-format",
]
"""The stable names of the reasons for which a batch is refused. Each can be freed by what its message advises."""
NESTED_FIX = (
    "leave the column out with a projection; or declare it as STRING, in which it is JSON, and start with a new "
    "checkpoint"
)
"""What to do about a column of a nested type that a sink cannot store."""


@attrs.frozen(order=True)
class RecordId:
    """Where a record is."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"topic {self.topic}, partition {self.partition}, offset {self.offset}"


@attrs.frozen
class UpstreamTable:
    """What is known of an upstream table.

    Attributes:
        schema: Its columns, those of the message key first, and its primary key.
        key: The names of the columns that are in the message key. They are fixed as soon as there are any.
    """

    schema: TableSchema
    key: tuple[str, ...] = ()


@attrs.frozen
class TableDelta:
    """What some records show of one table beyond its known schema.

    Attributes:
        table: The table.
        schema: The known schema joined with what the records show.
        first: The first record that shows each new or changed column, by the column's name.
        record_id: The first of these records.
        key: The names of the columns that are in the message key.
    """

    table: TableId
    schema: TableSchema
    first: Mapping[str, RecordId]
    record_id: RecordId
    key: tuple[str, ...] = ()


@attrs.frozen
class SchemaChange:
    """A change of a table's schema.

    Attributes:
        tag: What is changed.
        table: The table.
        columns: The columns that are created or added, or the one whose type changes, with the new type.
        before: The type before a change.
        record_id: The record that caused it, where it is known.
    """

    tag: Tag
    table: TableId
    columns: tuple[t.Field, ...]
    before: t.DataType | None = None
    record_id: RecordId | None = attrs.field(default=None, eq=False)

    def __str__(self) -> str:
        what = ", ".join(map(str, self.columns))
        if self.before is not None:
            what = f"{t.Field(self.columns[0].name, self.before)} → {self.columns[0].type}"
        return f"{self.tag} {format_id(self.table)} {what}" + ("" if self.record_id is None else f" ({self.record_id})")


@attrs.frozen
class Refusal:
    """A change that is refused, before anything is written.

    Attributes:
        table: The table.
        column: The column; None if it is about the table.
        reason: Why, with both types.
        fix: What to do.
        record_id: The record that caused it, where it is known.
        sql_fix: What to do in a script; None if that is the same.
        code: The stable name of the reason.
    """

    table: TableId
    column: str | None
    reason: str
    fix: str
    record_id: RecordId | None = attrs.field(default=None, eq=False)
    sql_fix: str | None = attrs.field(default=None, kw_only=True)
    code: RefusalCode = attrs.field(kw_only=True)

    def __str__(self) -> str:
        return self.describe()

    def describe(self, *, in_sql: bool = False) -> str:
        """Write what is refused, why, and what to do.

        Args:
            in_sql: Whether the ingestion is a statement of a script.
        """
        return f"{self.message}; {self.sql_fix if in_sql and self.sql_fix is not None else self.fix}"

    @property
    def message(self) -> str:
        """What is refused, and why."""
        name = format_id(self.table) if self.column is None else f"{format_id(self.table)}, column {self.column!r}"
        cause = "" if self.record_id is None else f" (shown by the record at {self.record_id})"
        return f"{name}: {self.reason}{cause}"


def changes_between(
    table: TableId, before: TableSchema | None, after: TableSchema, first: Mapping[str, RecordId] | None = None
) -> tuple[SchemaChange, ...]:
    """The changes from one schema of a table to a later one, which has all its columns; a change of nullability counts.

    Args:
        table: The table.
        before: The earlier schema; None if there is no table yet: the only change is then its creation.
        after: The later schema.
        first: The records that caused the changes, by column.
    """
    record_ids = first or {}
    if before is None:
        return (SchemaChange("create.table", table, after.columns, record_id=min(record_ids.values(), default=None)),)
    types = {f.name: f.type for f in before.columns}
    changes = []
    for field in after.columns:
        record_id = record_ids.get(field.name)
        if field.name not in types:
            changes.append(SchemaChange("add.column", table, (field,), record_id=record_id))
        elif types[field.name] != field.type:
            changes.append(SchemaChange("alter.column.type", table, (field,), types[field.name], record_id))
    return tuple(changes)
