"""The four JSON dialects of change data: which member contains the operation, and where the rows are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from kdsl.types import model as t
from kdsl_formats._debezium import events
from kdsl_formats.cdc_json.metadata import STRINGS, MetadataField

Images = Literal["before and after", "data and old", "lists of data and old"]
_MILLIS, _MICROS = t.TimestampLtz(3), t.TimestampLtz(6)


@attrs.frozen
class Dialect:
    """The JSON that a change capture tool writes.

    Attributes:
        name: The tool's name.
        operation: The member that contains the operation.
        inserts: Its strings for an inserted row; the first one is written.
        update: Its string for an updated row.
        delete: Its string for a deleted row; it is written.
        skipped: Its strings for messages without rows.
        truncate: Its string for an emptied table; None if the tool does not write it.
        boundaries: The strings of the member ``status`` of messages about transactions, which have no operation.
        images: The location of the rows: before and after a change; the row and the old values of its changed members;
            or lists of both.
        metadata: The metadata fields, by key.
        table_id: The members that name the table, from the outermost in.
        primary_key: The member with the names of the primary key; None if messages do not contain it.
        ddl: The member that is true in messages of DDL statements, which have no rows.
        query: The operation of messages of other statements, which have no rows either.
        notices: The operations of messages about tables and the tool itself; they have no rows, and their members do
            not have the form of rows.
        heartbeat: The only member of messages that say that the tool is running.
    """

    name: str
    operation: str
    inserts: tuple[str, ...]
    update: str
    delete: str
    images: Images
    metadata: Mapping[str, MetadataField]
    skipped: tuple[str, ...] = ()
    truncate: str | None = None
    boundaries: tuple[str, ...] = ()
    table_id: tuple[str, ...] = ("database", "table")
    primary_key: str | None = None
    ddl: str | None = None
    query: str | None = None
    notices: tuple[str, ...] = ()
    heartbeat: str | None = None

    @property
    def types(self) -> Mapping[str, t.DataType]:
        """The types of the metadata fields, by key."""
        return {key: field.type for key, field in self.metadata.items()}

    @property
    def members(self) -> tuple[str, str]:
        """The members with the rows: the before- and after-image, or the row and its old values."""
        return ("before", "after") if self.images == "before and after" else ("data", "old")


def _source_field(member: str, kind: t.DataType = t.STRING) -> MetadataField:
    """A member of Debezium's object ``source``: a number of milliseconds for `_MILLIS`, otherwise a string."""
    return MetadataField(kind, "source", STRINGS, "milliseconds" if kind is _MILLIS else "unchanged", within=member)


DEBEZIUM = Dialect(
    name="Debezium",
    operation="op",
    inserts=(events.CREATE, events.READ),
    update=events.UPDATE,
    delete=events.DELETE,
    skipped=(events.MESSAGE,),
    truncate=events.TRUNCATE,
    boundaries=("BEGIN", "END"),
    heartbeat="ts_ms",
    table_id=("source.db", "source.schema", "source.table"),
    images="before and after",
    metadata={
        "schema": MetadataField(t.STRING, "schema", t.STRING, beside_payload=True),
        "ingestion-timestamp": MetadataField(_MILLIS, "ts_ms", t.BigInt(), "milliseconds"),
        "source.timestamp": _source_field("ts_ms", _MILLIS),
        "source.database": _source_field("db"),
        "source.schema": _source_field("schema"),
        "source.table": _source_field("table"),
        "source.properties": MetadataField(STRINGS, "source", STRINGS),
    },
)

CANAL = Dialect(
    name="Canal",
    operation="type",
    inserts=("INSERT",),
    update="UPDATE",
    delete="DELETE",
    skipped=("CREATE",),
    images="lists of data and old",
    primary_key="pkNames",
    ddl="isDdl",
    query="QUERY",
    metadata={
        "database": MetadataField(t.STRING, "database", t.STRING),
        "table": MetadataField(t.STRING, "table", t.STRING),
        "sql-type": MetadataField(t.Map(t.STRING, t.Int()), "sqlType", t.Map(t.STRING, t.Int())),
        "pk-names": MetadataField(t.Array(t.STRING), "pkNames", t.Array(t.STRING)),
        "ingestion-timestamp": MetadataField(_MILLIS, "ts", t.BigInt(), "milliseconds"),
        "event-timestamp": MetadataField(_MILLIS, "es", t.BigInt(), "milliseconds"),
    },
)

MAXWELL = Dialect(
    name="Maxwell",
    operation="type",
    inserts=("insert", "bootstrap-insert"),
    update="update",
    delete="delete",
    notices=(
        *("bootstrap-start", "bootstrap-complete", "table-create", "table-alter", "table-drop"),
        *("database-create", "database-alter", "database-drop"),
    ),
    images="data and old",
    primary_key="primary_key_columns",
    metadata={
        "database": MetadataField(t.STRING, "database", t.STRING),
        "table": MetadataField(t.STRING, "table", t.STRING),
        "primary-key-columns": MetadataField(t.Array(t.STRING), "primary_key_columns", t.Array(t.STRING)),
        "ingestion-timestamp": MetadataField(_MILLIS, "ts", t.BigInt(), "seconds"),
    },
)

OGG = Dialect(
    name="Ogg",
    operation="op_type",
    inserts=("I",),
    update="U",
    delete="D",
    images="before and after",
    table_id=("table",),
    primary_key="primary_keys",
    metadata={
        "table": MetadataField(t.STRING, "table", t.STRING),
        "primary-keys": MetadataField(t.Array(t.STRING), "primary_keys", t.Array(t.STRING)),
        "ingestion-timestamp": MetadataField(_MICROS, "current_ts", t.STRING, "clock"),
        "event-timestamp": MetadataField(_MICROS, "op_ts", t.STRING, "clock"),
    },
)
