"""The plans: frozen values that say everything that a read or a write does, and nothing of how.

A plan holds no Spark object and no secret. It is what travels to the executors (as text, `kdsl.plan.text`) and what
``explain`` prints (`kdsl.plan.show`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import attrs

from kdsl.client.properties import Properties
from kdsl.declare.connector import Delivery, Latency, Transport
from kdsl.resolve.model import HeaderCondition, Part, Start, Stop, Topics, Transactions
from kdsl.types import model as t

__all__ = [
    "Computed",
    "HeaderCondition",
    "MetadataColumn",
    "Part",
    "ReadPlan",
    "Start",
    "Stop",
    "Topics",
    "Transactions",
    "UpsertWrite",
    "Upserts",
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
    """The column of event time and how late a row may be.

    Attributes:
        column: The column.
        delay: How late, as text ('5 seconds').
        drift: How far ahead of the slowest partition another one may be read; None is as far as the delay.
    """

    column: str
    delay: str
    drift: timedelta | None = None


@attrs.frozen
class Upserts:
    """How records by key become changes.

    Attributes:
        keys: The columns of the primary key.
        images: Whether changes have before-images, for which the last row of each key is kept; else each key that a
            micro-batch touches has its last change of the batch.
        buckets: Over how many buckets the keys are spread: what goes together through Spark, and is kept together.
    """

    keys: tuple[str, ...]
    images: bool = True
    buckets: int = 64


@attrs.frozen
class UpsertWrite:
    """How changes become upserts and tombstones.

    Attributes:
        keys: The columns of the primary key.
        rows: How many keys a task gathers before it writes the last change of each; 0 is no gathering.
        seconds: How long it gathers at most.
    """

    keys: tuple[str, ...]
    rows: int = 0
    seconds: float = 0.0


@attrs.frozen
class ReadPlan:
    """Everything a read does.

    Attributes:
        table: The table's name, for messages.
        topics: What is read.
        start: Where it starts.
        stop: Where it ends by itself.
        headers: The header filter, condition by condition from left to right; records that do not match are skipped.
        group_id: The consumer group (whose offsets may be the start, and which shows how far a stream has read).
        group_declared: Whether it was declared; offsets are committed to no other.
        check_group: Whether a stream is refused while somebody else uses the group.
        parallelism: The most tasks of a batch; None is twice the cores.
        transport: The client that reads.
        latency: Micro-batches or real-time mode.
        discovery: How often a stream looks for new partitions; None is never.
        max_records: The most records of a micro-batch, or None.
        max_records_per_partition: The most records of one partition in a micro-batch, or None.
        key: How the message key is read; None where no column comes from it.
        value: How the message value is read; None where the table has no column of it (a table of metadata alone).
        metadata: The metadata columns.
        columns: What the source gives, in the table's order: physical and metadata columns.
        computed: The columns worked out from those, in order.
        watermark: The watermark, or None.
        output: What the DataFrame has in the end.
        changelog: Whether rows are changes: the first of the columns is the row kind then (`kdsl.formats.ROW_KIND`).
        upserts: How changes are made of records by key; None where each record is by itself.
        properties: Client settings of the table, under Java's names; the cluster's come on top.
    """

    table: str
    topics: Topics
    columns: t.Row
    output: t.Row
    changelog: bool = False
    upserts: Upserts | None = None
    start: Start = attrs.field(factory=Start)
    stop: Stop = attrs.field(factory=Stop)
    headers: tuple[HeaderCondition, ...] = ()
    check_group: bool = False
    parallelism: int | None = None
    transport: Transport = "librdkafka"
    latency: Latency = "micro-batch"
    group_id: str | None = None
    group_declared: bool = True
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
        transactions: How an exactly-once sink writes; None for the other promises.
        partitioner: ``default``, ``fixed``, ``round-robin``, or a function as ``package.module:function``.
        parallelism: How many tasks write; None is as many as the DataFrame has partitions.
        transport: The client that writes.
        latency: Micro-batches or real-time mode.
        changelog: Whether rows may be changes: the first of the columns is the row kind then, ``+I`` by default.
        upserts: How changes become upserts and tombstones; None where the value format says what a row is.
        properties: Client settings of the table, under Java's names; the cluster's come on top.
    """

    table: str
    topics: Topics
    columns: t.Row
    changelog: bool = False
    upserts: UpsertWrite | None = None
    key: Part | None = None
    value: Part | None = None
    metadata: tuple[MetadataColumn, ...] = ()
    defaults: Mapping[str, str] = attrs.field(factory=dict)
    delivery: Delivery = "at-least-once"
    transactions: Transactions | None = None
    partitioner: str = "default"
    parallelism: int | None = None
    transport: Transport = "librdkafka"
    latency: Latency = "micro-batch"
    properties: Properties = attrs.field(factory=Properties)

    @property
    def key_columns(self) -> tuple[str, ...]:
        """The columns that the message key is made of; empty where there is no key."""
        if self.key is not None:
            return self.key.columns
        return tuple(m.column for m in self.metadata if m.key == "__raw_key__")
