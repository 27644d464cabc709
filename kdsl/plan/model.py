"""The plans: frozen values that describe a read or a write completely, but not how it is executed.

A plan contains no Spark objects and no secrets. It is sent to the executors (as JSON, `kdsl.plan.text`), and
``explain`` prints it (`kdsl.plan.show`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Literal

import attrs

from kdsl.client_settings.properties import Properties
from kdsl.declare.connector import ChangelogState, Delivery, Latency, Transport
from kdsl.declare.definition import Inferred
from kdsl.resolve.model import DeadLetterTopic, HeaderCondition, Part, RowRule, Start, Stop, Topics, Transactions
from kdsl.types import model as t

__all__ = [
    "Computed",
    "DeadLetterTopic",
    "HeaderCondition",
    "Inferred",
    "MetadataColumn",
    "OutputMode",
    "Part",
    "ReadPlan",
    "RowRule",
    "Start",
    "Stop",
    "Topics",
    "Transactions",
    "UpsertWrite",
    "Upserts",
    "Watermark",
    "WritePlan",
]

OutputMode = Literal["append", "update", "complete"]
"""Spark's output modes of a streaming query."""


@attrs.frozen
class MetadataColumn:
    """A column that shows or sets a part of the record other than key and value.

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
    """A column computed after reading.

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
        delay: How late, as a string ('5 seconds').
        drift: How far a partition may be ahead of the slowest one; None means the delay.
        max_ahead: How far a row may be ahead of the clock to advance the watermark; None means any time.
    """

    column: str
    delay: str
    drift: timedelta | None = None
    max_ahead: timedelta | None = None


KeyPartitioner = Literal["murmur2", "crc32", "fnv1a", "fnv1a-masked", "single"]
"""The name of a partitioner of Kafka's clients (`kdsl.run.upsert.partitioners`), which never gets another meaning."""


@attrs.frozen
class RoutingChoice:
    """What a sample of the keys of a topic says about how a stream finds the last row of each key.

    Attributes:
        routing: By partition, or by key; None if the sample has too few keys to tell.
        reason: Why, as a clause for logs and plans.
        partitions: How many partitions the topic has; 0 if it was not asked for.
        partitioner: The partitioner, for the routing by partition.
        key_form: The form of the keys (`kdsl.formats.Format.find_form`).
    """

    routing: Literal["partition", "key"] | None
    reason: str
    partitions: int = 0
    partitioner: KeyPartitioner | None = None
    key_form: str = ""


@attrs.frozen
class Upserts:
    """How records by key become changes.

    Attributes:
        keys: The columns of the primary key.
        images: Whether changes have before-images, for which the last row of each key is kept; otherwise a micro-batch
            returns only the last change of each key.
        state: How a stream finds these rows, as declared.
        routing: Where changes are computed: in the task that reads a partition, or in one that gets all rows of a key
            through a shuffle. With ``state`` as ``auto``, `kdsl.run.read.read_stream` decides it; a batch read computes
            by key.
        ttl: How long the last row of a key is kept after its last record; None is as long as the key exists.
        net: Whether a micro-batch returns at most one change of each key, from its row before to that after the batch.
        events: Whether records are change data, with the row kind in the message; otherwise a record is the row of its
            key, and a record without a value deletes it.
        placeholders: Whether rows in messages may have placeholders instead of values, which the last row of the key
            has.
        location: Where the rows are kept, in a folder of each checkpoint; None is in the checkpoint.
        by_record: Whether each record becomes a row of its own (``+U``, or ``-D`` with the key alone), which is not
            compared with others. Then there are no before-images.
        choice: What a sample of the keys has said when `kdsl.run.read.read_stream` decided the routing; None if it
            needed none.
    """

    keys: tuple[str, ...]
    images: bool = True
    events: bool = False
    placeholders: bool = False
    state: ChangelogState = "auto"
    routing: Literal["partition", "key"] = "key"
    net: bool = False
    ttl: timedelta | None = None
    location: str | None = None
    by_record: bool = False
    choice: RoutingChoice | None = None

    @property
    def may_lack_values(self) -> bool:
        """Whether a record may not have all values of its row."""
        return self.events or self.placeholders

    @property
    def by_partition(self) -> bool:
        """Whether the task that reads a partition computes the changes of its keys."""
        return self.images and self.routing == "partition"


@attrs.frozen
class UpsertWrite:
    """How changes become upserts and tombstones.

    Attributes:
        keys: The columns of the primary key.
        rows: The most keys that a task buffers before it writes the last change of each; 0 means no buffer.
        seconds: The longest time that it buffers.
    """

    keys: tuple[str, ...]
    rows: int = 0
    seconds: float = 0.0


@attrs.frozen
class ReadPlan:
    """A read.

    Attributes:
        table: The table's name, for messages.
        topics: The topics.
        start: Where it starts.
        stop: Where it ends by itself.
        headers: The header filter, condition by condition from left to right; records that do not match are skipped.
        group_id: The consumer group (whose offsets may be the start, and which shows how far a stream has read).
        commits: Whether a stream commits its offsets to it.
        check_group: Whether a stream is refused while another consumer uses the group.
        parallelism: The most tasks of a batch; None is twice the cores.
        transport: The client that reads.
        latency: Micro-batches or real-time mode.
        discovery: How often a stream looks for new partitions; None is never.
        max_records: The most records of a micro-batch, or None.
        max_records_per_partition: The most records of one partition in a micro-batch, or None.
        key: How the message key is read; None if no column is decoded from it.
        value: How the message value is read; None if no column is decoded from it.
        metadata: The metadata columns.
        columns: The columns of the source, in the table's order: physical and metadata columns.
        rules: The row rules, which are checked before columns are computed.
        drops_nulls: Whether rows with NULL in a NOT NULL column are left out.
        computed: The columns computed from those, in order.
        watermark: The watermark, or None.
        output: The columns of the resulting DataFrame.
        selected: Whether the query has named these columns, and does not get all columns of the table.
        changelog: Whether rows are changes; then the first column is the row kind (`kdsl.formats.ROW_KIND`, or for
            the rows of ingestions `kdsl.own_columns.KIND`).
        inferred: The inferred columns, and what they were inferred from; None if all were declared.
        upserts: How records by key become changes; None if each record becomes its own row.
        keyed: The primary key of change data whose before-images and deleted rows are only used for their key, so an
            update may come without its before-image; empty for other tables.
        dead_letters: Where the records go that cannot be read; None if they are errors.
        packed: Whether the source returns packets of raw records instead of rows, for readers that decode them later
            (`kdsl.run.records.packets`).
        properties: Client settings of the table, by Java's names; those of the cluster are added.
    """

    table: str
    topics: Topics
    columns: t.Row
    output: t.Row
    selected: bool = False
    changelog: bool = False
    upserts: Upserts | None = None
    keyed: tuple[str, ...] = ()
    start: Start = attrs.field(factory=Start)
    stop: Stop = attrs.field(factory=Stop)
    headers: tuple[HeaderCondition, ...] = ()
    check_group: bool = False
    parallelism: int | None = None
    transport: Transport = "librdkafka"
    latency: Latency = "micro-batch"
    group_id: str | None = None
    commits: bool = True
    discovery: timedelta | None = timedelta(minutes=5)
    max_records: int | None = None
    max_records_per_partition: int | None = None
    key: Part | None = None
    value: Part | None = None
    metadata: tuple[MetadataColumn, ...] = ()
    rules: tuple[RowRule, ...] = ()
    drops_nulls: bool = False
    computed: tuple[Computed, ...] = ()
    watermark: Watermark | None = None
    dead_letters: DeadLetterTopic | None = None
    packed: bool = False
    inferred: Inferred | None = None
    properties: Properties = attrs.field(factory=Properties)


@attrs.frozen
class WritePlan:
    """A write.

    Attributes:
        table: The table's name, for messages.
        topics: The topic of all records; if there are several, or a pattern, the metadata column ``topic`` chooses.
        columns: The written columns, in the table's order: physical columns and writable metadata columns.
        key: How the message key is written; None: no key (or ``__raw_key__``).
        value: How the message value is written; None: ``__raw_value__``, or an empty table.
        metadata: The writable metadata columns.
        rules: The row rules.
        drops_nulls: Whether rows with NULL in a NOT NULL column are left out.
        defaults: SQL literals for columns that a DataFrame may leave out.
        delivery: The delivery guarantee.
        transactions: How an exactly-once sink writes; None for the other guarantees.
        partitioner: ``default``, ``fixed``, ``round-robin``, or a function as ``package.module:function``.
        parallelism: The number of tasks that write; None means the number of the DataFrame's partitions.
        transport: The client that writes.
        latency: Micro-batches or real-time mode.
        changelog: Whether rows may be changes; then the first column is the row kind, ``+I`` by default.
        upserts: How changes become upserts and tombstones; None if the value format encodes the row kind.
        properties: Client settings of the table, by Java's names; those of the cluster are added.
    """

    table: str
    topics: Topics
    columns: t.Row
    changelog: bool = False
    upserts: UpsertWrite | None = None
    key: Part | None = None
    value: Part | None = None
    metadata: tuple[MetadataColumn, ...] = ()
    rules: tuple[RowRule, ...] = ()
    drops_nulls: bool = False
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
        """The columns that are encoded into the message key, or the one with its bytes; empty if there is no key."""
        if self.key is not None:
            return self.key.columns
        return tuple(m.column for m in self.metadata if m.key == "__raw_key__")
