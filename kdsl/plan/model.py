"""The plans: frozen values that say everything that a read or a write does, and nothing of how.

A plan holds no Spark object and no secret. It is what travels to the executors (as text, `kdsl.plan.text`) and what
``explain`` prints (`kdsl.plan.show`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

import attrs

from kdsl.client.properties import Properties
from kdsl.resolve.model import Part, Start, Topics
from kdsl.types import model as t

__all__ = [
    "Computed",
    "MetadataColumn",
    "Part",
    "ReadPlan",
    "Start",
    "Topics",
    "Watermark",
    "WritePlan",
]


@attrs.frozen
class MetadataColumn:
    """A column that shows, or sets, a piece of the record beside key and value.

    Attributes:
        column: The table's column.
        key: The metadata key (`kdsl.declare.metadata.METADATA`).
        type: The column's type, to which the metadata is cast (or from which, on a write).
    """

    column: str
    key: str
    type: t.DataType


@attrs.frozen
class Computed:
    """A column worked out after reading.

    Attributes:
        column: Its name.
        type: The type it is cast to.
        text: The SQL expression, or the Python source of an expression that only Python can make.
        sql: Whether ``text`` is SQL.
    """

    column: str
    type: t.DataType
    text: str
    sql: bool = True


@attrs.frozen
class Watermark:
    """The column of event time and how late a row may be."""

    column: str
    delay: str


@attrs.frozen
class ReadPlan:
    """Everything a read does.

    Attributes:
        table: The table's name, for messages.
        topics: What is read.
        start: Where it starts.
        group_id: The consumer group (whose offsets may be the start).
        discovery: How often a stream looks for new partitions; None is never.
        max_records: The most records of a micro-batch, or None.
        max_records_per_partition: The most records of one partition in a micro-batch, or None.
        key: How the message key is read; None where no column comes from it.
        value: How the message value is read; None where no column comes from it (a table of metadata alone).
        metadata: The metadata columns.
        columns: What the source gives, in the table's order: physical and metadata columns.
        computed: The columns worked out from those, in order.
        watermark: The watermark, or None.
        output: What the DataFrame has in the end.
        properties: Client settings of the table, under Java's names; the cluster's come on top.
    """

    table: str
    topics: Topics
    columns: t.Row
    output: t.Row
    start: Start = attrs.field(factory=Start)
    group_id: str | None = None
    discovery: timedelta | None = timedelta(minutes=5)
    max_records: int | None = None
    max_records_per_partition: int | None = None
    key: Part | None = None
    value: Part | None = None
    metadata: tuple[MetadataColumn, ...] = ()
    computed: tuple[Computed, ...] = ()
    watermark: Watermark | None = None
    properties: Properties = attrs.field(factory=Properties)


@attrs.frozen
class WritePlan:
    """Everything a write does.

    Attributes:
        table: The table's name, for messages.
        topics: One name: every record goes there. Several, or a pattern: the metadata column ``topic`` says where.
        columns: What is written, in the table's order: physical columns and writable metadata columns.
        key: How the message key is written; None: no key (or ``__raw_key__``).
        value: How the message value is written; None: ``__raw_value__``, or an empty table.
        metadata: The writable metadata columns.
        defaults: SQL literals for columns that a DataFrame may leave out.
        delivery: The promise.
        properties: Client settings of the table, under Java's names; the cluster's come on top.
    """

    table: str
    topics: Topics
    columns: t.Row
    key: Part | None = None
    value: Part | None = None
    metadata: tuple[MetadataColumn, ...] = ()
    defaults: Mapping[str, str] = attrs.field(factory=dict)
    delivery: Literal["none", "at-least-once"] = "at-least-once"
    properties: Properties = attrs.field(factory=Properties)
