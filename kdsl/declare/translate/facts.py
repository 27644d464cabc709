"""What is found out about a query on the way: its tables, and what a stream of it may not be able to do."""

from __future__ import annotations

import attrs

from kdsl.declare.translate.values import Value
from kdsl.types import model as t


@attrs.frozen
class Note:
    """Something of a query that a stream may not be able to do.

    Attributes:
        kind: ``aggregate``, ``grouping``, ``distinct``, ``distinct values``, ``over``, ``order``, ``offset``, ``join``,
            ``set``, ``nested``.
        name: The word in the query.
        position: Its place in the query.
    """

    kind: str
    name: str
    position: int


@attrs.frozen
class TimeWindow:
    """A window of event time: its kind, its place, the SQL of its time column, and its length in milliseconds."""

    kind: str
    position: int
    time: str
    zoned: bool
    size: int


@attrs.frozen
class Hint:
    """A table that is read with other options than it was declared with: ``t /*+ OPTIONS(…) */``.

    Attributes:
        table: The table.
        view: Its name in Spark, which is that of no other hint.
        position: The place of the hint in the query.
    """

    table: str
    view: str
    position: int


class Facts:
    """What is found out about a query while it is translated.

    Args:
        streaming: Whether the query runs as a stream, whose groups change.
    """

    def __init__(self, *, streaming: bool = False) -> None:
        self.streaming = streaming
        self.for_streams: bool | None = None
        self.retracts: int | None = None
        self.notes: list[Note] = []
        self.windows: list[TimeWindow] = []
        self.tables: list[str] = []
        self.hints: dict[str, Hint] = {}
        self.aggregates = False

    def note(self, kind: str, name: str, at: int) -> None:
        """Note a thing that streams may not do."""
        self.notes.append(Note(kind, name, at))

    def windowed(self, kind: str, at: int, time: Value, size: int) -> None:
        """Note a window."""
        self.windows.append(TimeWindow(kind, at, time.text, isinstance(time.type, t.TimestampLtz), size))
