"""What Debezium's events say, whether they are JSON or Avro: operations, and rows before changes."""

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
"""The operation of what Postgres' ``pg_logical_emit_message`` wrote; it has no row."""
TRUNCATE: Final = "t"
"""The operation of a table that was emptied."""


def key_row(row: t.Row, keyed: Sequence[str]) -> t.Row | None:
    """The columns that are read of a row before a change, where only its key counts; None if all columns are.

    Args:
        row: The type of the rows.
        keyed: The primary key of a table that keeps the last row of each key (`kdsl.formats.Use.keyed`).
    """
    fields = tuple(f for f in row.fields if f.name in keyed)
    return t.Row(fields) if fields else None


def deletes_need_row(row: t.Row, keyed: Sequence[str]) -> bool:
    """Whether the row of a delete says which row is deleted; otherwise the message key does.

    Args:
        row: The type of the rows.
        keyed: As in `key_row`.
    """
    return not keyed or key_row(row, keyed) is not None


def truncate_reason(identifier: str) -> str:
    """Why a message that says that a table was emptied is an error.

    Args:
        identifier: The format.
    """
    return (
        "the message says that the table was emptied ('op' is 't'), but not which rows that deletes; write "
        f"truncate='skip' (in SQL and YAML '{identifier}.truncate' = 'skip') to continue, and empty the targets of the "
        "changes yourself; or write 'apply' for a table with cdc-events-duplicate, which keeps rows"
    )
