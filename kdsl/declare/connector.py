"""The options of the ``kafka`` connector, each declared once.

Source: Flink's KafkaConnectorOptions (RULES section 1), seeds 000 and 001. Python names are what a table class takes.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Literal

from kdsl.options import Options, option

StartupMode = Literal["group-offsets", "earliest-offset", "latest-offset", "timestamp", "specific-offsets"]
ValueFields = Literal["ALL", "EXCEPT_KEY"]
Delivery = Literal["none", "at-least-once"]
Transport = Literal["librdkafka"]


def _positive(value: int | None) -> str | None:
    return None if value is None or value > 0 else "give a number greater than 0"


class KafkaOptions(Options):
    """What a table says about its topics, beside its columns, formats and client properties."""

    title = "the connector 'kafka'"

    topic: tuple[str, ...] = option("topic", "The topics, separated by ';'. Either this or topic-pattern.", default=())
    topic_pattern: str | None = option(
        "topic-pattern", "A regular expression that the whole name of a topic must match.", default=None
    )
    key_prefix: str = option(
        "key.fields-prefix",
        "A prefix of the key columns' names, which the message key itself does not have. Needs EXCEPT_KEY.",
        default="",
    )
    value_prefix: str = option(
        "value.fields-prefix",
        "A prefix of the value columns' names, which the message value itself does not have.",
        default="",
    )
    value_fields: ValueFields = option(
        "value.fields-include",
        "Whether the key columns stand in the message value too.",
        default="ALL",
        ignore_case=True,
    )
    startup: StartupMode = option(
        "scan.startup.mode",
        "Where a read starts that has no checkpoint.",
        default="group-offsets",
        ignore_case=True,
    )
    startup_timestamp: int | None = option(
        "scan.startup.timestamp-millis",
        "For the startup mode timestamp: milliseconds since 1970-01-01 UTC; each partition starts at its first record "
        "that is not older.",
        default=None,
    )
    startup_offsets: str | None = option(
        "scan.startup.specific-offsets",
        "For the startup mode specific-offsets: 'partition:0,offset:42;partition:1,offset:300'.",
        default=None,
    )
    discovery: timedelta = option(
        "scan.topic-partition-discovery.interval",
        "How often a stream looks for new partitions and topics; they are read from their earliest offset. Zero or "
        "less: never.",
        default=timedelta(minutes=5),
    )
    max_records_per_trigger: int | None = option(
        "scan.max-records-per-trigger",
        "The most records of one micro-batch, over all partitions.",
        default=None,
        check=_positive,
    )
    max_records_per_partition: int | None = option(
        "scan.max-records-per-partition",
        "The most records of one partition in one micro-batch.",
        default=None,
        check=_positive,
    )
    delivery: Delivery = option(
        "sink.delivery-guarantee",
        "at-least-once: a batch succeeds when every record is acknowledged. none: it does not wait.",
        default="at-least-once",
        ignore_case=True,
    )
    transport: Transport = option(
        "transport", "The client that reads and writes: librdkafka, which needs no jar.", default="librdkafka"
    )
