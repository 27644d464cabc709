"""The settings in ``properties.*`` that kdsl keeps for itself, as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import attrs

from kdsl.client_settings.draft import Resolve, draft_settings
from kdsl.secrets import has_reference

Reset = Literal["earliest", "latest", "none"]
ISOLATION_LEVEL = "isolation.level"


@attrs.frozen
class KdslSettings:
    """The client settings that kdsl reads itself and that no Kafka client gets in this form.

    Attributes:
        group_id: The consumer group; None if no group is set.
        client_id_prefix: The prefix of client ids: ``client.id.prefix``, else ``client.id``.
        discovery_interval_ms: How often kdsl looks for new partitions; None if it is not set, 0 or less means never.
        commit_on_checkpoint: Whether offsets are committed after each micro-batch.
        auto_commit: Whether ``enable.auto.commit`` is true (the default is false).
        auto_commit_interval_ms: How often offsets are committed with ``enable.auto.commit``.
        auto_offset_reset: What to do if an offset is missing or expired; None if it is not set, which means ``none``.
        exclude_internal_topics: Whether a topic pattern excludes internal topics.
        auto_create_topics: Whether a missing topic may be created by reading or writing it.
        register_consumer_metrics: Whether the metrics of consumers are collected.
        register_producer_metrics: Whether the metrics of producers are collected.
        idempotence: The value of ``enable.idempotence``; None if it is not set.
        acks: ``all``, ``1`` or ``0``.
        transaction_timeout_ms: The transaction timeout; None if it is not set.
        api_timeout_ms: The timeout of each request to the cluster.
        max_block_ms: How long to wait for space in the producer's queue.
    """

    group_id: str | None = None
    client_id_prefix: str | None = None
    discovery_interval_ms: int | None = None
    commit_on_checkpoint: bool = True
    auto_commit: bool = False
    auto_commit_interval_ms: int = 5000
    auto_offset_reset: Reset | None = None
    exclude_internal_topics: bool = True
    auto_create_topics: bool = True
    register_consumer_metrics: bool = True
    register_producer_metrics: bool = True
    idempotence: bool | None = None
    acks: str = "all"
    transaction_timeout_ms: int | None = None
    api_timeout_ms: int = 60_000
    max_block_ms: int = 60_000


def kdsl_settings(properties: Mapping[str, str], resolve: Resolve | None = None) -> KdslSettings:
    """Read the settings that kdsl keeps for itself.

    Settings with a wrong value, or with a reference that cannot be resolved, count as not set; the translations of
    `kdsl.client_settings.to_librdkafka` report them.

    Args:
        properties: Java's names and their values.
        resolve: Replaces references; without it a value that is a reference counts as not set.
    """
    consumer, producer = (draft_settings(properties, client, resolve).java for client in ("consumer", "producer"))
    known = {key: text for key, text in {**consumer, **producer}.items() if not has_reference(text)}

    def number(key: str) -> int | None:
        return int(known[key]) if key in known else None

    def switch(key: str, default: bool) -> bool:
        return known.get(key, str(default).lower()) == "true"

    bounds = {"api_timeout_ms": number("default.api.timeout.ms"), "max_block_ms": number("max.block.ms")}
    return KdslSettings(
        group_id=known.get("group.id"),
        client_id_prefix=known.get("client.id.prefix") or known.get("client.id"),
        discovery_interval_ms=number("partition.discovery.interval.ms"),
        commit_on_checkpoint=switch("commit.offsets.on.checkpoint", default=True),
        auto_commit=switch("enable.auto.commit", default=False),
        auto_commit_interval_ms=int(known.get("auto.commit.interval.ms", "5000")),
        auto_offset_reset=cast("Reset | None", known.get("auto.offset.reset")),
        exclude_internal_topics=switch("exclude.internal.topics", default=True),
        auto_create_topics=switch("allow.auto.create.topics", default=True),
        register_consumer_metrics=switch("register.consumer.metrics", default=True),
        register_producer_metrics=switch("register.producer.metrics", default=True),
        idempotence=switch("enable.idempotence", default=True) if "enable.idempotence" in known else None,
        acks=known.get("acks", "all"),
        transaction_timeout_ms=number("transaction.timeout.ms"),
        **{name: value for name, value in bounds.items() if value is not None},
    )
