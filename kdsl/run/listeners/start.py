"""Starts streaming queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def start_query(
    writer: DataStreamWriter, checkpoint: str, trigger: Mapping[str, Any] | None, name: str | None
) -> StreamingQuery:
    """Set the checkpoint, name and trigger of a stream's writer, and start the query; Spark's errors are passed on.

    Args:
        writer: What it writes, and where.
        checkpoint: The folder of its checkpoint.
        trigger: The arguments of Spark's ``trigger``; None for one batch after the other.
        name: Its name; None for none.
    """
    writer = writer.option("checkpointLocation", checkpoint)
    if name is not None:
        writer = writer.queryName(name)
    if trigger:
        writer = writer.trigger(**trigger)
    return writer.start()
