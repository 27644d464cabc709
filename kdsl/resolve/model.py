"""A resolved table: a definition that holds, with the key/value split and the start worked out for one direction."""

from __future__ import annotations

from typing import Literal

import attrs

from kdsl.client.connector import Reset
from kdsl.declare.connector import Delivery
from kdsl.declare.definition import ColumnDef, TableDef, WatermarkDef
from kdsl.errors import Problem
from kdsl.formats import Direction, Format
from kdsl.types import model as t

StartMode = Literal["group-offsets", "earliest", "latest", "timestamp", "specific-offsets"]
StopMode = Literal["unbounded", "group-offsets", "latest", "timestamp", "specific-offsets"]


@attrs.frozen
class Part:
    """The key or the value of a message.

    Attributes:
        format: How its bytes are read or written.
        row: What they hold, under the names on the wire.
        columns: For each member of ``row`` the table's column.
    """

    format: Format
    row: t.Row
    columns: tuple[str, ...]


@attrs.frozen
class Topics:
    """The topics of a table: names, or a pattern that a whole name must match.

    Attributes:
        names: The topics.
        pattern: The pattern, a regular expression.
        partitions: Those of the named topics that are read, as pairs of topic and partition; empty is all (only the
            builder of sources can say this).
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        return f"pattern {self.pattern!r}" if self.pattern is not None else ", ".join(self.names)


@attrs.frozen
class Start:
    """Where a read without a checkpoint starts.

    Attributes:
        mode: The startup mode.
        timestamp: For the mode timestamp: milliseconds since the epoch.
        offsets: For the mode specific-offsets: topic, partition and offset, sorted. A table has one topic then.
        reset: Where a partition starts that has no usable offset; ``none`` is an error.
        function: For the mode specific-offsets: a function that gives the offsets, as ``package.module:function`` (only
            the builder of sources can say this).
    """

    mode: StartMode = "group-offsets"
    timestamp: int | None = None
    offsets: tuple[tuple[str, int, int], ...] = ()
    reset: Reset = "none"
    function: str = ""


@attrs.frozen
class Stop:
    """Where a read ends by itself. The record at a stopping offset is not read.

    Attributes:
        mode: The bounded mode.
        timestamp: For the mode timestamp: milliseconds since the epoch.
        offsets: For the mode specific-offsets: topic, partition and offset, sorted.
        function: For the mode specific-offsets: a function that gives the offsets; see `Start`.
    """

    mode: StopMode = "unbounded"
    timestamp: int | None = None
    offsets: tuple[tuple[str, int, int], ...] = ()
    function: str = ""


@attrs.frozen
class HeaderCondition:
    """One condition of a header filter.

    Attributes:
        name: The header's name.
        value: The text that one of its values must be, in UTF-8.
        negated: Whether the condition holds where there is no such header.
        joined: How it goes together with all conditions before it; the first one is joined with ``&``.
    """

    name: str
    value: str
    negated: bool = False
    joined: Literal["&", "|"] = "&"


@attrs.frozen
class Transactions:
    """How an exactly-once sink writes.

    Attributes:
        prefix: How the names of its transactions begin.
        staged: Whether a batch is written beside the checkpoint first.
    """

    prefix: str
    staged: bool = False


@attrs.frozen
class ResolvedTable:
    """A table that can be read, or written.

    Attributes:
        table: The definition.
        direction: For which direction it was judged.
        topics: The topics.
        start: Where a read starts.
        stop: Where it ends.
        headers: The header filter, condition by condition from left to right.
        delivery: What a write promises, whichever option says it.
        transactions: How an exactly-once sink writes; None for the other guarantees.
        group_id: The consumer group; for a table without one ``KafkaSource-<table>`` (seed 001).
        group_declared: Whether the group was declared, and is not that default.
        key: The message key, or None where no column comes from it.
        value: The message value, or None where no column comes from it.
        metadata: The metadata columns of this direction.
        computed: The computed columns (none on a write).
        watermark: The watermark, or None.
        changelog: Whether the rows are changes.
        warnings: What is odd but works.
    """

    table: TableDef
    direction: Direction
    topics: Topics
    start: Start
    group_id: str
    key: Part | None
    value: Part | None
    metadata: tuple[ColumnDef, ...]
    computed: tuple[ColumnDef, ...]
    watermark: WatermarkDef | None
    stop: Stop = attrs.field(factory=Stop)
    headers: tuple[HeaderCondition, ...] = ()
    delivery: Delivery = "at-least-once"
    transactions: Transactions | None = None
    group_declared: bool = True
    changelog: bool = False
    warnings: tuple[Problem, ...] = attrs.field(default=(), eq=False)
