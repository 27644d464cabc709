"""What is recorded about a query while it is translated: its tables, and what may be impossible in a stream."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from kdsl.flink_sql.expressions.values import TypedSql
from kdsl.types import model as t


@attrs.frozen
class StreamNote:
    """A part of a query that may be impossible in a stream.

    Attributes:
        kind: ``aggregate``, ``grouping``, ``distinct``, ``distinct values``, ``over``, ``order``, ``offset``, ``join``,
            ``set``, ``nested``.
        name: The word in the query.
        position: Its position in the query.
    """

    kind: str
    name: str
    position: int


@attrs.frozen
class TimeWindow:
    """A window of time.

    Attributes:
        kind: ``TUMBLE``, ``HOP``, ``CUMULATE`` or ``SESSION``.
        position: Its position in the query.
        time: The SQL of its time column.
        zoned: Whether that column is a TIMESTAMP_LTZ.
        step: The milliseconds from the start of a window to the start of the next; for SESSION the gap.
        watermarked: Whether the time column is the column of a watermark itself.
    """

    kind: str
    position: int
    time: str
    zoned: bool
    step: int
    watermarked: bool = True


@attrs.frozen
class TableHint:
    """A table that is read with other options than it was declared with: ``t /*+ OPTIONS(…) */``.

    Attributes:
        table: The table.
        view: Its name in Spark, which is unique for the hint.
        position: The position of the hint in the query.
    """

    table: str
    view: str
    position: int


@attrs.frozen
class Instants:
    """A table or view that a query reads with an instant instead of its wall-clock event time.

    Spark can solve the condition of a join for the watermark with instants only; see
    `kdsl.run.dataframes.watermark.with_instants`.

    Attributes:
        view: Its name in Spark.
        source: The name of the table or view.
        column: Its column of event time.
    """

    view: str
    source: str
    column: str


class QueryFacts:
    """What is recorded about a query while it is translated.

    Args:
        streaming: Whether the query runs as a stream, whose groups change.
        windows: Whether the query contains windows of time.
        sinks: The tables that can only be written, which messages do not suggest to read.
    """

    def __init__(self, *, streaming: bool = False, windows: bool = False, sinks: Collection[str] = frozenset()) -> None:
        self.streaming = streaming
        self.sinks = sinks
        self.has_windows = windows
        self.instants: dict[str, Instants] = {}
        self.retracts: int | None = None
        self.notes: list[StreamNote] = []
        self.windows: list[TimeWindow] = []
        self.tables: list[str] = []
        self.hints: dict[str, TableHint] = {}
        self.aggregates = False

    def add_note(self, kind: str, name: str, at: int) -> None:
        """Record something at a position that may be impossible in a stream; for the kinds, see `StreamNote`."""
        self.notes.append(StreamNote(kind, name, at))

    def add_window(self, kind: str, at: int, time: TypedSql, step: int, *, watermarked: bool) -> None:
        """Append a window of time, even one that is there already, to ``windows``; see `TimeWindow`."""
        zoned = isinstance(time.type, t.TimestampLtz)
        self.windows.append(TimeWindow(kind, at, time.text, zoned, step, watermarked))
