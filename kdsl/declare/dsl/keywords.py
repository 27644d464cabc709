"""The keywords of a class statement, as type checkers see them: each with its type and its meaning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, TypedDict

from kdsl.declare.connector import (
    ChangelogMode,
    Delivery,
    EmitStrategy,
    ExactlyOnce,
    Latency,
    Naming,
    NotNullEnforcer,
    Transport,
    ValueFields,
)
from kdsl.declare.dead_letters import DeadLetters
from kdsl.declare.start_and_end import Bounded, Startup
from kdsl.formats import Format

if TYPE_CHECKING:
    from kdsl.callbacks import Partitioner


class CommonKeywords(TypedDict, total=False):
    """The keywords of all table classes.

    Attributes:
        topic: The topic, or several: a list, or a string separated by ``;``.
        topic_pattern: Instead of names, a regular expression that the whole name of a topic must match.
        name: The table's name, if it is not that of the class; for example the name in a catalog.
        comment: What the table means, if the docstring of the class says something else.
        key: The format of the message key, or its name.
        value: The format of the message value, or its name.
        primary_key: The columns of the primary key in order, if ``PrimaryKey`` does not mark them.
        key_prefix: A prefix of the key columns' names that the message key itself does not have. Needs
            ``value_fields="EXCEPT_KEY"``.
        value_prefix: A prefix of the value columns' names that the message value itself does not have.
        value_fields: Whether the message value also contains the key columns.
        bounded: Where a read ends by itself: a mode, an aware datetime, or for each partition the first offset that is
            not read. By default a batch ends at the latest offsets, and a stream does not end.
        group_id: The consumer group; by default ``KafkaSource-<table>``.
        check_group: Refuse to start a stream while another consumer uses the group.
        header_filter: Keep only records whose headers match, such as ``"depart:toy|depart:book&!env:test"``.
        scan_not_null_enforcer: What a read does with NULL in a NOT NULL column: ``error``, or ``drop`` the row.
        dead_letters: The topic for records that cannot be read, which are then left out; without it such a record is an
            error.
        scan_parallelism: The most tasks of a read; by default twice the cores.
        discovery: How often a stream looks for new partitions and topics; never if zero or negative.
        max_records_per_trigger: The most records of one micro-batch, over all partitions.
        max_records_per_partition: The most records of one partition in one micro-batch.
        watermark_emit: A Flink option without effect in Spark.
        watermark_group: Together with ``watermark_drift``: read the partitions at the same pace of event time.
        watermark_drift: How far a partition may be ahead of the slowest one; by default the watermark's delay.
        watermark_update: A Flink option without effect in Spark.
        watermark_idle: A Flink option without effect: an idle partition does not hold Spark's watermark back.
        changelog: ``full``: changes with before-images, for which a stream keeps the last row of each key in its state.
            ``upsert``: the last change (``+U`` or ``-D``) of each key in a micro-batch, without state. A `KafkaTable`
            takes it with ``cdc_events_duplicate``; a delete of an `UpsertTable` then has values in the key columns
            only.
        changelog_buckets: The number of buckets that the keys are distributed over; fixed when the checkpoint is
            created. A `KafkaTable` takes it with ``cdc_events_duplicate``.
        sink_parallelism: The number of tasks that write; by default the number of the DataFrame's partitions.
        sink_not_null_enforcer: What a write does with NULL in a NOT NULL column: ``error``, or ``drop`` the row.
        delivery: The delivery guarantee of a write.
        transactional_id_prefix: The prefix of the transactional ids of an exactly-once sink.
        transaction_naming: A Flink option without effect in Spark.
        exactly_once: ``direct``, or ``staged`` for rows that may differ when a batch is computed again.
        transport: The client that reads and writes: ``librdkafka``, or ``jvm``, the default for a login with Kerberos.
        latency: ``micro-batch``, or with the transport ``jvm`` also ``realtime``.
        dew_endpoint: The address of the service that the secrets provider ``dew`` asks.
        dew_secret: The secret in that service that holds the keys.
        dew_fields: The client properties whose values are keys there, such as ``"properties.sasl.jaas.config"``.
        dew_version: The version of that secret.
        properties: Settings of the Kafka client, by the names that Kafka's Java client uses.
    """

    topic: str | Sequence[str]
    topic_pattern: str
    name: str
    comment: str
    key: Format | str
    value: Format | str
    primary_key: Sequence[str]
    key_prefix: str
    value_prefix: str
    value_fields: ValueFields
    bounded: Bounded
    group_id: str
    check_group: bool
    header_filter: str
    scan_not_null_enforcer: NotNullEnforcer
    dead_letters: DeadLetters
    scan_parallelism: int
    discovery: timedelta | str
    max_records_per_trigger: int
    max_records_per_partition: int
    watermark_emit: EmitStrategy
    watermark_group: str
    watermark_drift: timedelta | str
    watermark_update: timedelta | str
    watermark_idle: timedelta | str
    changelog: ChangelogMode
    changelog_buckets: int
    sink_parallelism: int
    sink_not_null_enforcer: NotNullEnforcer
    delivery: Delivery
    transactional_id_prefix: str
    transaction_naming: Naming
    exactly_once: ExactlyOnce
    transport: Transport
    latency: Latency
    dew_endpoint: str
    dew_secret: str
    dew_fields: str
    dew_version: str
    properties: Mapping[str, str | int | float | bool]


class TableKeywords(CommonKeywords, total=False):
    """The keywords of a `KafkaTable`: those of all table classes, and these.

    Attributes:
        key_fields: The columns of the message key in order, if that is not the order of those marked ``Key``.
        startup: Where a read without a checkpoint starts: a mode, an aware datetime, or the offset of each partition.
        cdc_events_duplicate: For change data with a primary key: keep the last row of each key, and return the changes
            between rows. Repeated events change nothing, and updates and deletes need no before-image.
        partitioner: ``default`` (by the key), ``fixed``, ``round-robin``, or a function of your own or its name,
            ``package.module:function``; see `kdsl.callbacks`.
    """

    key_fields: Sequence[str]
    startup: Startup
    cdc_events_duplicate: bool
    partitioner: str | Partitioner


class UpsertTableKeywords(CommonKeywords, total=False):
    """The keywords of an `UpsertTable`: those of all table classes, and these.

    Attributes:
        buffer_rows: The most keys that a writing task buffers, keeping the last change of each, before it writes them.
        buffer_interval: The longest time that it buffers. The end of a micro-batch always writes all.
    """

    buffer_rows: int
    buffer_interval: timedelta | str
