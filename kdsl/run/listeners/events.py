"""The events of streaming queries that the listener passes to observers, the same for all kinds of sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kdsl.run.listeners.reads import Read
from kdsl.run.offsets.stored import Offsets


@attrs.frozen
class Query:
    """A run of a streaming query.

    Attributes:
        id: The query's id, which lives as long as its checkpoint.
        run_id: The id of this run.
        name: The name that the user gave it, or None.
        error: Spark's message, where it failed.
        session: The session in which it runs.
    """

    id: str
    run_id: str
    name: str | None = None
    error: str | None = None
    session: Any = attrs.field(default=None, eq=False, repr=False)


@attrs.frozen
class ReadProgress:
    """How far one read of a query has come.

    Attributes:
        read: The read.
        start: Where the batch began; None in the first batch of a query.
        end: Where it ended.
        latest: How far the topics could be read when it was planned; None if the source does not report it.
        rows: How many rows the source gave.
        source: The index of the query's source.
    """

    read: Read
    start: Offsets | None
    end: Offsets
    latest: Offsets | None
    rows: int
    source: int


@attrs.frozen
class Progress:
    """A report of a query's progress; it comes after a batch has ended.

    Attributes:
        query: The run.
        batch: The number of the batch.
        sources: How many sources the query has, including those of others than kdsl.
        document: The whole report as Spark's JSON has it (``numInputRows``, ``durationMs``, ``eventTime``, …).
        java: Java's object of the report, from which ``lastProgress`` is made; None for Spark Connect.
    """

    query: Query
    batch: int
    sources: int
    document: Mapping[str, Any] = attrs.field(repr=False)
    java: Any = attrs.field(default=None, eq=False, repr=False)


class Observer:
    """Receives the events of queries, on the listener's thread: by default none. It must not wait for anything.

    The events of one session come one after the other; those of several sessions may come at once.
    """

    def on_start(self, query: Query) -> None:
        """Receive the start of a query."""

    def on_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Receive the end of a batch. ``reads`` are the query's sources that are reads of kdsl; there may be none."""

    def on_idle(self, query: Query) -> None:
        """Receive that a query waits for data."""

    def on_end(self, query: Query) -> None:
        """Receive the end of a query, with or without an error."""
