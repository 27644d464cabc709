"""The options of the ``kafka`` connector, each declared once.

Source: Flink's KafkaConnectorOptions (RULES section 1). The Python names are the keywords of a table class
(`kdsl.declare.dsl.keywords`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import attrs

from kdsl.client_settings.properties import Properties, Value
from kdsl.declare.added_options import AddedOptions, OptionNames, check_distinct, load_added_options
from kdsl.declare.dead_letters import NO_LIMIT
from kdsl.declare.start_and_end import format_offsets, parse_offsets
from kdsl.errors import Problem
from kdsl.option_values import Codec
from kdsl.options import option

StartupMode = Literal["group-offsets", "earliest-offset", "latest-offset", "timestamp", "specific-offsets"]
BoundedMode = Literal["unbounded", "latest-offset", "group-offsets", "timestamp", "specific-offsets"]
ValueFields = Literal["ALL", "EXCEPT_KEY"]
Delivery = Literal["none", "at-least-once", "exactly-once"]
ExactlyOnce = Literal["direct", "staged"]
Naming = Literal["INCREMENTING", "POOLING"]
Transport = Literal["librdkafka", "jvm"]
TableUse = Literal["read", "write", "both"]
Latency = Literal["micro-batch", "realtime"]
EmitStrategy = Literal["on-periodic", "on-event"]
ChangelogMode = Literal["full", "net", "upsert"]
ChangelogState = Literal["auto", "partition", "key"]
NotNullEnforcer = Literal["error", "drop"]

PARTITIONS = (
    "How many partitions each topic should have. `kdsl diff` compares it with the cluster, and `kdsl apply` creates "
    "and changes topics; by default those that it creates have the brokers' `num.partitions`."
)
REPLICATION_FACTOR = (
    "How many replicas each partition should have, for `kdsl diff` and `kdsl apply`; by default the brokers' "
    "`default.replication.factor`."
)
CONFIGS = (
    "Configs that each topic should have, by Kafka's names, such as `topic.config.retention.ms`, for `kdsl diff` and "
    "`kdsl apply`."
)
"""The options of a topic that sinks of ingestions have as well."""
_ALWAYS_ALL = "an upsert table is always read from the beginning, because only all records give its current rows"


def check_positive(value: int | None) -> str | None:
    """Return what to do about a number that is not positive, or is 2**31 or more; None if it is right or not set."""
    if value is None or 0 < value < 1 << 31:
        return None
    return "use a number greater than 0" if value <= 0 else "use a number less than 2147483648"


def check_replicas(value: int | None) -> str | None:
    """Return what to do about a number of replicas that Kafka cannot store; None if it is right or not set."""
    return None if value is None or 0 < value < 1 << 15 else "use a number from 1 to 32767"


def _check_duration(value: timedelta | None) -> str | None:
    """Return what to do about a duration that is not longer than 0; None if it is right or not set."""
    return None if value is None or value > timedelta() else "use a duration longer than 0"


def check_string(value: str | None) -> str | None:
    """Return what to do about an empty string; None if it is right."""
    return "write a string, or remove the option" if value == "" else None


def _check_count(value: int) -> str | None:
    """Return what to do about a number below -1; None if it is right."""
    return None if value >= NO_LIMIT else "use a number from 0 on, or -1 for any number"


def _check_location(value: str | None) -> str | None:
    """Return what to do about a location of states that is relative, or contains a password; None if it is right."""
    if value is None or value.startswith("/") or re.match("(?i)(file|dbfs):/", value):
        return None
    if not re.match("[A-Za-z][A-Za-z0-9+.-]*://[^/]", value):
        return "write an absolute path that all workers see, or a location such as s3a://bucket/states"
    if re.match("[^:]*://[^/]*:[^/]*@", value):
        return "remove the user and the password, and set the credentials of the file system in the session"
    return None


_OFFSETS = Codec(parse_offsets, format_offsets)


_BY_PLUGIN = load_added_options()
ADDED = tuple(_BY_PLUGIN.values())
"""The groups of options that packages add."""
if TYPE_CHECKING:  # which cannot see what is installed
    _Added = AddedOptions
else:
    _Added = type("_Added", ADDED or (AddedOptions,), {"__module__": __name__})


class KafkaOptions(_Added):
    """The options of a table, without its columns, formats and client properties."""

    title = "the connector 'kafka'"
    connector: ClassVar[str] = "kafka"

    topic: tuple[str, ...] = option(
        "topic", "The topics, separated by ';' (in Python also a list). Set either this or topic-pattern.", default=()
    )
    topic_pattern: str | None = option(
        "topic-pattern",
        "A regular expression that the whole name of a topic must match, in the syntax that Java and Python share.",
        default=None,
    )
    topic_partitions: int | None = option(
        "topic.partitions",
        PARTITIONS,
        default=None,
        check=check_positive,
    )
    topic_replication_factor: int | None = option(
        "topic.replication-factor",
        REPLICATION_FACTOR,
        default=None,
        check=check_replicas,
    )
    topic_configs: Mapping[str, Value] = option(
        "topic.config.*",
        CONFIGS,
        default=Properties(),
    )
    key_prefix: str = option(
        "key.fields-prefix",
        "A prefix of the key columns' names that the message key itself does not have. Needs EXCEPT_KEY.",
        default="",
    )
    value_prefix: str = option(
        "value.fields-prefix",
        "A prefix of the value columns' names that the message value itself does not have.",
        default="",
    )
    value_fields: ValueFields = option(
        "value.fields-include",
        "Whether the message value also contains the key columns.",
        default="ALL",
        ignore_case=True,
    )
    startup: StartupMode = option(
        "scan.startup.mode",
        "Where a read without a checkpoint starts.",
        default="group-offsets",
        ignore_case=True,
    )
    startup_timestamp: int | None = option(
        "scan.startup.timestamp-millis",
        "For the startup mode timestamp: milliseconds since 1970-01-01 UTC; each partition starts at its first record "
        "that is not older.",
        default=None,
    )
    startup_offsets: Mapping[int, int] | str | None = option(
        "scan.startup.specific-offsets",
        "For the startup mode specific-offsets: 'partition:0,offset:42;partition:1,offset:300'.",
        default=None,
        codec=_OFFSETS,
    )
    bounded: BoundedMode = option(
        "scan.bounded.mode",
        "Where a read ends. If unbounded, a batch ends at the offsets that are the latest when it is planned, and a "
        "stream does not end.",
        default="unbounded",
        ignore_case=True,
    )
    bounded_timestamp: int | None = option(
        "scan.bounded.timestamp-millis",
        "For the bounded mode timestamp: milliseconds since 1970-01-01 UTC; each partition ends before its first "
        "record that is not older.",
        default=None,
    )
    bounded_offsets: Mapping[int, int] | str | None = option(
        "scan.bounded.specific-offsets",
        "For the bounded mode specific-offsets: 'partition:0,offset:42;partition:1,offset:300', the first offset of "
        "each partition that is not read.",
        default=None,
        codec=_OFFSETS,
    )
    header_filter: str | None = option(
        "scan.header-filter",
        "Keep the records whose headers match: 'depart:toy|depart:book&!env:test', evaluated from left to right.",
        default=None,
        check=check_string,
    )
    scan_not_null_enforcer: NotNullEnforcer = option(
        "scan.not-null-enforcer",
        "What a read does with a row that has NULL in a NOT NULL column: error (or a dead letter, if the table has a "
        "dead-letter topic), or drop, which leaves it out and counts it.",
        default="error",
        ignore_case=True,
    )
    dead_letter_topic: str | None = option(
        "scan.dead-letter.topic",
        "Where records go that cannot be read: this topic, with the reason as headers. The read leaves them out. "
        "Without it such a record is an error.",
        default=None,
        check=check_string,
        side="read",
    )
    dead_letter_max_count: int = option(
        "scan.dead-letter.max-count",
        "How many dead letters a stream may write in all, and each action of a batch read; with more the read fails. "
        "-1: any number.",
        default=NO_LIMIT,
        check=_check_count,
        side="read",
    )
    dead_letter_batch_reads: bool = option(
        "scan.dead-letter.batch-reads",
        "Whether batch reads write dead letters, too: each action on their DataFrame reads the records again, and "
        "writes the letters again. Without it a batch read leaves such records out, and counts and logs them.",
        default=False,
        side="read",
    )
    dead_letter_properties: Mapping[str, Value] = option(
        "scan.dead-letter.properties.*",
        "Settings of the Kafka client that writes the dead letters, by Java's names. With `bootstrap.servers` the "
        "topic is on that cluster; without it they override the settings of the table's cluster.",
        default=Properties(),
        side="read",
    )
    check_group: bool = option(
        "scan.check.duplicated.group.id",
        "Refuse to start a stream while another consumer, or another stream that checks, uses the consumer group.",
        default=False,
    )
    scan_parallelism: int | None = option(
        "scan.parallelism",
        "The maximum number of tasks of a read; by default twice the number of cores.",
        default=None,
        check=check_positive,
    )
    discovery: timedelta = option(
        "scan.topic-partition-discovery.interval",
        "How often a stream looks for new partitions and topics, which are read from their earliest offset; never if "
        "zero or negative.",
        default=timedelta(minutes=5),
    )
    max_records_per_trigger: int | None = option(
        "scan.max-records-per-trigger",
        "The maximum number of records of one micro-batch, over all partitions.",
        default=None,
        check=check_positive,
    )
    max_records_per_partition: int | None = option(
        "scan.max-records-per-partition",
        "The maximum number of records of each partition in one micro-batch.",
        default=None,
        check=check_positive,
    )
    watermark_emit: EmitStrategy = option(
        "scan.watermark.emit.strategy",
        "A Flink option without effect: Spark advances the watermark once for each micro-batch.",
        default="on-periodic",
        ignore_case=True,
        sql_only=True,
    )
    watermark_group: str | None = option(
        "scan.watermark.alignment.group",
        "Together with max-drift: read the partitions of the table at the same pace of event time.",
        default=None,
        check=check_string,
    )
    watermark_drift: timedelta | None = option(
        "scan.watermark.alignment.max-drift",
        "How far the event time of a partition may be ahead of the slowest one; by default the watermark's delay.",
        default=None,
        check=_check_duration,
    )
    watermark_max_ahead: timedelta | None = option(
        "scan.watermark.max-ahead",
        "How far the event time of a row may be ahead of the clock to advance the watermark. Rows beyond it are read "
        "like others, and do not advance it. By default every row does.",
        default=None,
        check=_check_duration,
    )
    watermark_update: timedelta = option(
        "scan.watermark.alignment.update-interval",
        "A Flink option without effect: partitions are aligned with each micro-batch.",
        default=timedelta(seconds=1),
        check=_check_duration,
        sql_only=True,
    )
    watermark_idle: timedelta | None = option(
        "scan.watermark.idle-timeout",
        "A Flink option without effect: an idle partition does not hold Spark's watermark back.",
        default=None,
        sql_only=True,
    )
    cdc_events_duplicate: bool = option(
        "cdc-events-duplicate",
        "For change data with a primary key: keep the last row of each key, and return the changes between rows, as "
        "an upsert table does. Repeated events change nothing, and updates and deletes need no before-image; only its "
        "key is used.",
        default=False,
        side="read",
    )
    changelog: ChangelogMode = option(
        "scan.changelog.mode",
        "The changes that a table with the last row of each key returns (upsert-kafka, or change data with "
        "cdc-events-duplicate). full: +I, -U, +U and -D with before-images, for which a stream keeps the last row of "
        "each key in its state. net: the same, but at most one change of each key in a micro-batch, from its row "
        "before the batch to that after it. upsert: the last change (+U or -D) of each key in a micro-batch, without "
        "state; a delete of an upsert table then has values in the key columns only.",
        default="full",
    )
    changelog_state: ChangelogState = option(
        "scan.changelog.state",
        "How a stream finds the last row of each key, which it keeps in files. partition: in the task that reads the "
        "topic partition, in which all records of the key must be. key: in a task that gets all records of the key, "
        "from any partition, through a shuffle. auto: partition if a sample of the topic's keys shows by which "
        "partitioner the producers choose partitions, and each new key is where that puts it; otherwise key. Fixed "
        "when the checkpoint is created; kdsl state convert changes it.",
        default="auto",
        ignore_case=True,
    )
    state_ttl: timedelta | None = option(
        "scan.changelog.state.ttl",
        "How long the last row of a key is kept after its last record, as "
        "Flink's table.exec.state.ttl; by default as long as the key exists. A record that comes later is a new key.",
        default=None,
        check=_check_duration,
    )
    state_location: str | None = option(
        "scan.changelog.state.location",
        "Where a stream keeps the last row of each key by partition: a folder that all workers see, or one on s3a://, "
        "gs://, abfss:// or hdfs://; by default in the checkpoint. Each checkpoint has its own folder in it. Fixed "
        "when the checkpoint is created.",
        default=None,
        check=_check_location,
    )
    partitioner: str = option(
        "sink.partitioner",
        "default: by the key, as Java's client does; fixed: each task writes to one partition; round-robin: records go "
        "to the partitions in turn; or your own function, as 'package.module:function' (in Python also the function).",
        default="default",
        check=lambda value: None if value else "write 'default', 'fixed', 'round-robin' or 'package.module:function'",
    )
    sink_parallelism: int | None = option(
        "sink.parallelism",
        "The number of tasks that write; by default the number of the DataFrame's partitions.",
        default=None,
        check=check_positive,
    )
    sink_not_null_enforcer: NotNullEnforcer = option(
        "sink.not-null-enforcer",
        "What a write does with a row that has NULL in a NOT NULL column: error, or drop, which leaves it out and "
        "counts it; as Flink's table.exec.sink.not-null-enforcer.",
        default="error",
        ignore_case=True,
    )
    delivery: Delivery = option(
        "sink.delivery-guarantee",
        "at-least-once: a batch succeeds when every record is acknowledged. exactly-once: readers of committed records "
        "see each record once, even if a batch is written again. none: the write does not wait, and records that Kafka "
        "refuses are only counted and logged.",
        default="at-least-once",
        ignore_case=True,
    )
    semantic: Delivery | None = option(
        "sink.semantic",
        "The old name of sink.delivery-guarantee.",
        default=None,
        ignore_case=True,
        side="write",
        sql_only=True,
    )
    transactional_id_prefix: str | None = option(
        "sink.transactional-id-prefix",
        "The prefix of the transactional ids of an exactly-once sink; no other job on the cluster may use it.",
        default=None,
        check=check_string,
    )
    transaction_naming: Naming = option(
        "sink.transaction-naming-strategy",
        "A Flink option without effect: kdsl always reuses a small pool of transactional ids.",
        default="POOLING",
        ignore_case=True,
        sql_only=True,
    )
    exactly_once: ExactlyOnce = option(
        "sink.exactly-once.mode",
        "direct: rows are written to Kafka at once, and must be the same when a batch is computed again. staged: any "
        "rows; they are first stored in the checkpoint's folder.",
        default="direct",
        ignore_case=True,
    )
    direction: TableUse = option(
        "direction",
        "What the table is for: read, write or both. A table that is declared for one direction is not checked for the "
        "other, and refuses it.",
        default="both",
        ignore_case=True,
    )
    transport: Transport | None = option(
        "transport",
        "The client that reads and writes: librdkafka, which needs no jar, or jvm, which is Spark's own connector. By "
        "default librdkafka, or jvm for a login with GSSAPI (Kerberos), which only Java's clients support.",
        default=None,
        ignore_case=True,
    )
    latency: Latency = option(
        "latency",
        "micro-batch, or realtime: Spark's real-time mode, which needs the transport jvm.",
        default="micro-batch",
        ignore_case=True,
    )

    @classmethod
    def declarations(cls) -> tuple[attrs.Attribute[Any], ...]:
        """The declarations of the options, in order, with those that packages add at the end."""
        added = {a.name for kind in ADDED for a in attrs.fields(kind)}
        return tuple(sorted(super().declarations(), key=lambda a: a.name in added))

    def change_properties(self, properties: Properties) -> Properties:
        """The client properties as clients get them, changed by the options that packages add."""
        for kind in ADDED:
            properties = kind.change_properties(self, properties)
        return properties

    def check_table(self, table: OptionNames) -> Iterator[Problem]:
        """Yield what is wrong with the options that packages add; see `AddedOptions.check_table`."""
        for kind in ADDED:
            yield from kind.check_table(self, table)


class UpsertOptions(KafkaOptions):
    """The options of an upsert table: those of a topic, except for where a read starts, which is always the beginning.

    Source: Flink's UpsertKafkaDynamicTableFactory (RULES section 11).
    """

    title = "the connector 'upsert-kafka'"
    connector: ClassVar[str] = "upsert-kafka"
    without: ClassVar[Mapping[str, str]] = {
        "startup": _ALWAYS_ALL,
        "startup_timestamp": _ALWAYS_ALL,
        "startup_offsets": _ALWAYS_ALL,
        "partitioner": "changes of one key must go to one partition, which the key chooses",
        "semantic": "",
        "cdc_events_duplicate": "an upsert table always keeps the last row of each key",
    }

    startup: StartupMode = option("scan.startup.mode", "Always the beginning.", default="earliest-offset")
    buffer_rows: int = option(
        "sink.buffer-flush.max-rows",
        "The maximum number of keys that a writing task buffers, with the last change of each; checked once per Arrow "
        "batch. Set both buffer options above 0, or both to 0 to disable the buffer.",
        default=0,
    )
    buffer_interval: timedelta = option(
        "sink.buffer-flush.interval",
        "The longest time that a writing task buffers. The end of a micro-batch always flushes the buffer.",
        default=timedelta(),
    )


for _options in (KafkaOptions, UpsertOptions):
    check_distinct(_BY_PLUGIN, (a for a in attrs.fields(_options) if not a.inherited))
