"""The settings in ``properties.*`` that the connector reads itself, as typed values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

import attrs

from kdsl.client.draft import Resolve, read
from kdsl.secrets import has_reference

Reset = Literal["earliest", "latest", "none"]


@attrs.frozen
class ConnectorSettings:
    """What kdsl itself takes from the client properties.

    Attributes:
        group_id: The consumer group; None where the properties name none.
        client_id_prefix: How client ids begin: ``client.id.prefix``, else ``client.id``.
        discovery_interval_ms: How often new partitions are looked for; None where it is not given, 0 or less is never.
        commit_on_checkpoint: Whether offsets are committed when a micro-batch has ended.
        auto_commit: Whether ``enable.auto.commit`` asks for commits (the connector's default is false).
        auto_commit_interval_ms: The interval that goes with it.
        auto_offset_reset: The answer to a missing or expired offset; None where it is not given, which is ``none``.
        exclude_internal_topics: Whether a topic pattern leaves out internal topics.
        auto_create_topics: Whether a missing topic may be created by reading or writing it.
        register_consumer_metrics: Whether the metrics of consumers are told.
        register_producer_metrics: Whether the metrics of producers are told.
        idempotence: What ``enable.idempotence`` says; None where it is not given.
        acks: ``all``, ``1`` or ``0``.
        transaction_timeout_ms: None where it is not given.
        api_timeout_ms: The bound of each call to the cluster.
        max_block_ms: The bound of waiting for room in the producer's queue.
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


def connector_settings(properties: Mapping[str, str], resolve: Resolve | None = None) -> ConnectorSettings:
    """What the connector takes from client properties.

    Args:
        properties: Java's names and their texts.
        resolve: Replaces references; without it a value that is a reference counts as not given.

    Values that are wrong count as not given; the translations of `kdsl.client.translate` tell them.
    """
    given = {**read(properties, "consumer", resolve).given, **read(properties, "producer", resolve).given}
    known = {key: text for key, text in given.items() if not has_reference(text)}

    def number(key: str) -> int | None:
        return int(known[key]) if key in known else None

    def switch(key: str, default: bool) -> bool:
        return known.get(key, str(default).lower()) == "true"

    bounds = {"api_timeout_ms": number("default.api.timeout.ms"), "max_block_ms": number("max.block.ms")}
    return ConnectorSettings(
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
