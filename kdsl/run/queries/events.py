"""What happens to streaming queries, as values: what the listener hands to observers, on whatever kind of session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import attrs
import orjson

from kdsl.run.cluster.offsets import Offsets
from kdsl.run.queries.reads import Read


@attrs.frozen
class Query:
    """A run of a streaming query.

    Attributes:
        id: The query's id, which lives as long as its checkpoint.
        run_id: The id of this run.
        name: The name that the user gave it, or None.
        error: Why it ended, where it failed; as Spark tells it.
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
        latest: How far the topics could be read when it was planned; None where the source does not tell.
        rows: How many rows the source gave.
        source: Which of the query's sources it is, counted from 0.
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
        sources: How many sources the query has, others than kdsl's included.
        document: The whole report as Spark's JSON has it (``numInputRows``, ``durationMs``, ``eventTime``, …).
        java: Java's own object of the report, which ``lastProgress`` is made from; None on Spark Connect.
    """

    query: Query
    batch: int
    sources: int
    document: Mapping[str, Any] = attrs.field(repr=False)
    java: Any = attrs.field(default=None, eq=False, repr=False)


def report_of(progress: Any) -> Mapping[str, Any]:
    """A query's report of progress as Spark's JSON has it.

    Args:
        progress: PySpark's own object of it.
    """
    given = getattr(progress, "_jdict", None)  # what came over Spark Connect
    document: Mapping[str, Any] = orjson.loads(progress.json) if given is None else given
    return document


class Observer(Protocol):
    """What wants to know about queries. It is called on the listener's thread, and must not wait for anything.

    On one session no two calls come at once; on several they may.
    """

    def started(self, query: Query) -> None:
        """A query begins."""
        ...

    def progressed(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """A batch has ended. ``reads`` are the query's sources that are reads of kdsl; there may be none."""
        ...

    def idle(self, query: Query) -> None:
        """A query waits for data."""
        ...

    def ended(self, query: Query) -> None:
        """A query has ended, with or without an error."""
        ...
