"""The keywords of a class statement, as type checkers see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, TypedDict

import attrs

from kdsl.declare.connector import (
    ChangelogMode,
    ChangelogState,
    Delivery,
    ExactlyOnce,
    KafkaOptions,
    Latency,
    NotNullEnforcer,
    TableUse,
    Transport,
    UpsertOptions,
    ValueFields,
)
from kdsl.declare.dead_letters import DeadLetters
from kdsl.declare.start_and_end import Bounded, Startup
from kdsl.declare.topic_settings import TopicSettings
from kdsl.formats import Format

if TYPE_CHECKING:
    from kdsl.callbacks import Partitioner


class CommonKeywords(TypedDict, total=False):
    """The keywords of all table classes.

    Most of them are options of `kdsl.declare.connector.KafkaOptions`, which describes them (docs/connector.md lists
    them by their Python names). The others are described here.

    Attributes:
        topic_settings: The partitions, replicas and configs that the topics should have, for `kdsl diff` and
            `kdsl apply`.
        name: The table's name, if it is not that of the class; for example the name in a catalog.
        comment: What the table means, if the docstring of the class says something else.
        key: The format of the message key, or its name.
        value: The format of the message value, or its name.
        primary_key: The columns of the primary key in order, if ``PrimaryKey`` does not mark them.
        bounded: Where a read ends: a mode, an aware datetime, or for each partition the first offset that is not read.
        group_id: The consumer group; by default ``KafkaSource-<table>``.
        dead_letters: The topic for records that cannot be read, which are then left out; without it such a record is an
            error.
        properties: Settings of the Kafka client, by the names that Kafka's Java client uses.
    """

    topic: str | Sequence[str]
    topic_pattern: str
    topic_settings: TopicSettings
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
    watermark_group: str
    watermark_drift: timedelta | str
    watermark_max_ahead: timedelta | str
    changelog: ChangelogMode
    changelog_state: ChangelogState
    state_ttl: timedelta | str
    state_location: str
    sink_parallelism: int
    sink_not_null_enforcer: NotNullEnforcer
    delivery: Delivery
    transactional_id_prefix: str
    exactly_once: ExactlyOnce
    direction: TableUse
    transport: Transport
    latency: Latency
    # of the plug-in kdsl.vendors.dew; type checkers do not see plug-ins
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
    """

    key_fields: Sequence[str]
    startup: Startup
    cdc_events_duplicate: bool
    partitioner: str | Partitioner


class UpsertTableKeywords(CommonKeywords, total=False):
    """The keywords of an `UpsertTable`: those of all table classes, and the buffer of its writer.

    `kdsl.declare.connector.UpsertOptions` describes them.
    """

    buffer_rows: int
    buffer_interval: timedelta | str


def make_keyword_signature(options: type[KafkaOptions]) -> Signature:
    """Make the signature that shows the keywords of class statements, for notebooks, consoles and ``help``.

    Args:
        options: The options of the tables, whose defaults the keywords have; the others have None.
    """
    keywords = UpsertTableKeywords if issubclass(options, UpsertOptions) else TableKeywords
    defaults = {a.name: a.default for a in attrs.fields(options)}
    parameters = [
        Parameter(
            name, Parameter.KEYWORD_ONLY, default=defaults.get(name), annotation=getattr(kind, "__forward_arg__", kind)
        )
        for name, kind in keywords.__annotations__.items()
    ]
    return Signature(parameters)
