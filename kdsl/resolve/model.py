"""A resolved table: a valid definition with its parts of key and value, its start and its end, for one direction."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Literal

import attrs

from kdsl.client_settings.kdsl_settings import Reset
from kdsl.client_settings.properties import Properties
from kdsl.declare.connector import Delivery
from kdsl.declare.definition import ColumnDef, TableDef, WatermarkDef
from kdsl.declare.row_rules import OnFail
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
        unread: The names on the wire of declared columns that a read does not need.
    """

    format: Format
    row: t.Row
    columns: tuple[str, ...]
    unread: tuple[str, ...] = ()


@attrs.frozen
class Topics:
    """The topics of a table: names, or a pattern that a whole name must match.

    Attributes:
        names: The topics.
        pattern: The pattern, a regular expression.
        partitions: The partitions to read, as pairs of topic and number; empty means all (only `KafkaSource` can set
            this).
    """

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[tuple[str, int], ...] = ()

    def contains(self, name: str) -> bool:
        """Whether a topic is one of these, or the pattern matches its whole name."""
        return name in self.names if self.pattern is None else re.fullmatch(self.pattern, name) is not None

    def __str__(self) -> str:
        return f"pattern {self.pattern!r}" if self.pattern is not None else ", ".join(self.names)


@attrs.frozen
class Start:
    """Where a read without a checkpoint starts.

    Attributes:
        mode: The startup mode.
        timestamp: For the mode timestamp: milliseconds since the epoch.
        offsets: For the mode specific-offsets: topic, partition and offset, sorted. A table has one topic then.
        reset: Where a partition without a usable offset starts; ``none`` is an error.
        function: For the mode specific-offsets: a function that returns the offsets, as ``package.module:function``
            (only `KafkaSource` can set this).
        checkpoint: For the mode specific-offsets: the folder of the checkpoint of another query, after whose last
            batch the read starts; empty without one. The run replaces it by ``offsets``.
        rewind: How far before the watermark of that query the read starts instead; None for not at all.
    """

    mode: StartMode = "group-offsets"
    timestamp: int | None = None
    offsets: tuple[tuple[str, int, int], ...] = ()
    reset: Reset = "none"
    function: str = ""
    checkpoint: str = ""
    rewind: timedelta | None = None


@attrs.frozen
class Stop:
    """Where a read ends by itself. The record at a stopping offset is not read.

    Attributes:
        mode: The bounded mode.
        timestamp: For the mode timestamp: milliseconds since the epoch.
        offsets: For the mode specific-offsets: topic, partition and offset, sorted.
        function: For the mode specific-offsets: a function that returns the offsets; see `Start`.
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
        value: The string that one of its values must equal, in UTF-8.
        negated: Whether the condition is true if there is no such header.
        joined: How it is combined with all conditions before it; the first one has ``&``.
    """

    name: str
    value: str
    negated: bool = False
    joined: Literal["&", "|"] = "&"


@attrs.frozen
class RowRule:
    """A row rule.

    Attributes:
        name: Its name.
        condition: The condition, an expression of Flink SQL; a row for which it is false violates the rule.
        on_fail: What happens to such rows.
        columns: The columns that the condition uses.
    """

    name: str
    condition: str
    on_fail: OnFail = "warn"
    columns: tuple[str, ...] = ()


@attrs.frozen
class DeadLetterTopic:
    """Where a read writes the records that it cannot read.

    Attributes:
        topic: The topic.
        max_count: How many letters a stream may write in all, and each action of a batch read; -1 for any number.
        keyed: Whether the rows of the table replace each other by key, so that an old record must not come again
            after a newer one.
        batch_reads: Whether batch reads write letters, too; otherwise only streams do.
        properties: The settings of the client; with ``bootstrap.servers`` they replace those of the table's cluster.
    """

    topic: str
    max_count: int = -1
    keyed: bool = False
    batch_reads: bool = False
    properties: Properties = attrs.field(factory=Properties)


@attrs.frozen
class Transactions:
    """How an exactly-once sink writes.

    Attributes:
        prefix: The prefix of its transactional ids.
        staged: Whether a batch is first stored in the checkpoint's folder.
    """

    prefix: str
    staged: bool = False


@attrs.frozen
class ResolvedTable:
    """A table that can be read, or written.

    Attributes:
        table: The definition.
        direction: The direction for which it was checked.
        topics: The topics.
        start: Where a read starts.
        stop: Where it ends.
        headers: The header filter, condition by condition from left to right.
        delivery: The delivery guarantee of a write.
        transactions: How an exactly-once sink writes; None for the other guarantees.
        group_id: The consumer group; for a table without one ``KafkaSource-<table>``.
        commits: Whether a stream commits its offsets to the group: to a declared one, and to the default of a table
            that starts at the group's offsets.
        key: The message key, or None if no column is decoded from it.
        value: The message value, or None if no column is decoded from it.
        metadata: The metadata columns of this direction.
        computed: The computed columns (none on a write).
        watermark: The watermark, or None.
        changelog: Whether the rows are changes.
        rules: The row rules.
        dead_letters: Where the records go that cannot be read; None if they are errors, and for a write.
        warnings: Problems that are not errors.
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
    commits: bool = True
    changelog: bool = False
    rules: tuple[RowRule, ...] = ()
    dead_letters: DeadLetterTopic | None = None
    warnings: tuple[Problem, ...] = attrs.field(default=(), eq=False)

    def _repr_html_(self) -> str:
        """The columns as notebooks show them."""
        return self.table.to_html()
