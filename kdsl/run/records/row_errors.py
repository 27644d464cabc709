"""Errors about one of the rows that are written."""

from __future__ import annotations

from typing import Any

from kdsl.errors import RecordError
from kdsl.spark_internals.workers import current_task


def name_row(index: int) -> str:
    """The name of a row in messages: its number in the task of Spark that runs here, else among the given rows."""
    return f"row {index + 1:,}" if current_task() is None else f"row {index + 1:,} of the task"


def row_error(table: str, index: int, reason: str, **details: Any) -> RecordError:
    """Make the error of a row that cannot be written.

    Args:
        table: The table's name.
        index: The row among those that are written here, from 0.
        reason: Why it cannot be written.
        **details: Other arguments of the error.
    """
    return RecordError("write", table, f"{name_row(index)}: {reason}", row=index, **details)
