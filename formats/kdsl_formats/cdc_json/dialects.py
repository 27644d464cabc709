"""The four dialects of change data in JSON: which member says what happened, and where the rows stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import attrs

from kdsl.types import model as t
from kdsl_formats.cdc_json.metadata import TEXTS, Piece

Images = Literal["before and after", "data and old", "lists of data and old"]
_MILLIS, _MICROS = t.TimestampLtz(3), t.TimestampLtz(6)


@attrs.frozen
class Dialect:
    """How a tool that captures changes writes them.

    Attributes:
        name: The tool's name.
        operation: The member that says what happened.
        inserts: Its texts for a new row; the first one is written.
        update: Its text for a changed row.
        delete: Its text for a row that is gone; it is written.
        skipped: Its texts for messages without rows.
        images: Where the rows stand: before and after a change; the row and the members of it that were others
            before; or lists of both.
        metadata: The pieces of metadata, by key.
    """

    name: str
    operation: str
    inserts: tuple[str, ...]
    update: str
    delete: str
    images: Images
    metadata: Mapping[str, Piece]
    skipped: tuple[str, ...] = ()

    @property
    def types(self) -> Mapping[str, t.DataType]:
        """The types of the pieces of metadata, by key."""
        return {key: piece.type for key, piece in self.metadata.items()}

    @property
    def members(self) -> tuple[str, str]:
        """The members that hold the rows: the one before and the one after a change, or the row and the old one."""
        return ("before", "after") if self.images == "before and after" else ("data", "old")


def _source(member: str, kind: t.DataType = t.STRING) -> Piece:
    return Piece(kind, "source", TEXTS, "milliseconds" if kind is _MILLIS else "as it is", of=member)


DEBEZIUM = Dialect(
    name="Debezium",
    operation="op",
    inserts=("c", "r"),
    update="u",
    delete="d",
    images="before and after",
    metadata={
        "schema": Piece(t.STRING, "schema", t.STRING, beside=True),
        "ingestion-timestamp": Piece(_MILLIS, "ts_ms", t.BigInt(), "milliseconds"),
        "source.timestamp": _source("ts_ms", _MILLIS),
        "source.database": _source("db"),
        "source.schema": _source("schema"),
        "source.table": _source("table"),
        "source.properties": Piece(TEXTS, "source", TEXTS),
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
    metadata={
        "database": Piece(t.STRING, "database", t.STRING),
        "table": Piece(t.STRING, "table", t.STRING),
        "sql-type": Piece(t.Map(t.STRING, t.Int()), "sqlType", t.Map(t.STRING, t.Int())),
        "pk-names": Piece(t.Array(t.STRING), "pkNames", t.Array(t.STRING)),
        "ingestion-timestamp": Piece(_MILLIS, "ts", t.BigInt(), "milliseconds"),
        "event-timestamp": Piece(_MILLIS, "es", t.BigInt(), "milliseconds"),
    },
)

MAXWELL = Dialect(
    name="Maxwell",
    operation="type",
    inserts=("insert",),
    update="update",
    delete="delete",
    images="data and old",
    metadata={
        "database": Piece(t.STRING, "database", t.STRING),
        "table": Piece(t.STRING, "table", t.STRING),
        "primary-key-columns": Piece(t.Array(t.STRING), "primary_key_columns", t.Array(t.STRING)),
        "ingestion-timestamp": Piece(_MILLIS, "ts", t.BigInt(), "seconds"),
    },
)

OGG = Dialect(
    name="Ogg",
    operation="op_type",
    inserts=("I",),
    update="U",
    delete="D",
    images="before and after",
    metadata={
        "table": Piece(t.STRING, "table", t.STRING),
        "primary-keys": Piece(t.Array(t.STRING), "primary_keys", t.Array(t.STRING)),
        "ingestion-timestamp": Piece(_MICROS, "current_ts", t.STRING, "clock"),
        "event-timestamp": Piece(_MICROS, "op_ts", t.STRING, "clock"),
    },
)
