"""A resolved table: a definition that holds, with the key/value split and the start worked out for one direction."""

from __future__ import annotations

from typing import Literal

import attrs

from kdsl.client.connector import Reset
from kdsl.declare.definition import ColumnDef, TableDef, WatermarkDef
from kdsl.errors import Problem
from kdsl.formats import Direction, Format
from kdsl.types import model as t

StartMode = Literal["group-offsets", "earliest", "latest", "timestamp", "specific-offsets"]


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
    """The topics of a table: names, or a pattern that a whole name must match."""

    names: tuple[str, ...] = ()
    pattern: str | None = None

    def __str__(self) -> str:
        return f"pattern {self.pattern!r}" if self.pattern is not None else ", ".join(self.names)


@attrs.frozen
class Start:
    """Where a read without a checkpoint starts.

    Attributes:
        mode: The startup mode.
        timestamp: For the mode timestamp: milliseconds since the epoch.
        offsets: For the mode specific-offsets: pairs of partition and offset, by partition.
        reset: Where a partition starts that has no usable offset; ``none`` is an error.
    """

    mode: StartMode = "group-offsets"
    timestamp: int | None = None
    offsets: tuple[tuple[int, int], ...] = ()
    reset: Reset = "none"


@attrs.frozen
class ResolvedTable:
    """A table that can be read, or written.

    Attributes:
        table: The definition.
        direction: For which direction it was judged.
        topics: The topics.
        start: Where a read starts.
        group_id: The consumer group; for a table without one ``KafkaSource-<table>`` (seed 001).
        key: The message key, or None where no column comes from it.
        value: The message value, or None where no column comes from it.
        metadata: The metadata columns of this direction.
        computed: The computed columns (none on a write).
        watermark: The watermark, or None.
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
    warnings: tuple[Problem, ...] = attrs.field(default=(), eq=False)
