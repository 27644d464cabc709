"""The contents of Debezium's JSON and Avro events: operations, and before-images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kdsl.types import model as t

CREATE: Final = "c"
READ: Final = "r"
"""The operation of a row that a snapshot read."""
UPDATE: Final = "u"
DELETE: Final = "d"
MESSAGE: Final = "m"
"""The operation of a message from Postgres' ``pg_logical_emit_message``; it has no row."""
TRUNCATE: Final = "t"
"""The operation of a TRUNCATE, which empties the table."""
MONGODB: Final = (
    "Debezium's connector for MongoDB wrote this event, whose rows are strings of JSON without the row before; add the "
    "transformation io.debezium.connector.mongodb.transforms.ExtractNewDocumentState to the connector, and read the "
    "topic with the format json"
)
"""Why a change in MongoDB cannot be read, and what to do."""


def key_row(row: t.Row, keyed: Sequence[str]) -> t.Row | None:
    """Return the key columns of a row, which are all that is read of a before-image.

    Args:
        row: The type of the rows.
        keyed: The primary key of a table that keeps the last row of each key (`kdsl.formats.Use.keyed`).

    Returns:
        None if the whole image is read: the table has no such key, or the row has none of its columns.
    """
    fields = tuple(f for f in row.fields if f.name in keyed)
    return t.Row(fields) if fields else None


def deletes_need_row(row: t.Row, keyed: Sequence[str]) -> bool:
    """Whether a delete needs the row to identify what is deleted; otherwise the message key identifies it.

    It does if `keyed` is empty, or the row has at least one of its columns.

    Args:
        row: The type of the rows.
        keyed: See `key_row`.
    """
    return not keyed or key_row(row, keyed) is not None


def truncate_reason(identifier: str) -> str:
    """The text that says why a message that empties the table is bad.

    Args:
        identifier: The identifier of the format.
    """
    return (
        "the message empties the table ('op' is 't') without naming the deleted rows; set "
        f"truncate='skip' (in SQL and YAML '{identifier}.truncate' = 'skip') to continue, and empty the targets of the "
        "changes yourself; or set 'apply' for a table with cdc-events-duplicate, which keeps rows"
    )
