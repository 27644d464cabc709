"""The table of a source's raw records, which the query of an ingestion reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import attrs

from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import TableDef
from kdsl.ingest.ends.kafka import KafkaFeed
from kdsl.ingest.run.tasks import raw_columns
from kdsl.resolve.transport import choose_transport
from kdsl.table import Table

_SHARED = (
    *("startup", "startup_timestamp", "startup_offsets", "header_filter", "check_group", "discovery"),
    *("max_records_per_trigger", "max_records_per_partition", "transport"),
)
"""The options of a source that say how its topics are read."""


def raw_table(*feeds: KafkaFeed, parallelism: int | None = None, **more: Any) -> Table:
    """The table whose rows are the raw records of a source, or of several that differ only in their topics.

    It reads the topics of all sources; the other options are those of the first.

    Args:
        *feeds: The sources.
        parallelism: The largest number of tasks that read.
        **more: Further options of the connector.
    """
    feed, chosen = feeds[0], feeds[0].valid()
    topics, pattern = _join_topics([one.valid() for one in feeds])
    options = KafkaOptions(
        topic=topics,
        topic_pattern=pattern,
        scan_parallelism=parallelism,
        **{name: getattr(chosen, name) for name in _SHARED},
        **more,
    )
    transport = choose_transport(chosen.transport, feed.cluster.properties.reveal())
    return Table(TableDef(feed.name or "ingestion", raw_columns(transport), options=options))


def can_share(one: KafkaFeed, other: KafkaFeed) -> bool:
    """Whether the records of two sources can be read together.

    They have the same cluster, and the same options of reading except topics and names.
    """
    if one.cluster != other.cluster:
        return False
    tables = (raw_table(attrs.evolve(feed, topic=("all",), topic_pattern=None, name=None)) for feed in (one, other))  # type: ignore[misc]
    return next(tables) == next(tables)


def _join_topics(feeds: Sequence[KafkaFeed]) -> tuple[tuple[str, ...], str | None]:
    """The topics of sources; or none, and a pattern that matches them, if a source has one."""
    if all(feed.topic_pattern is None for feed in feeds):
        return tuple(dict.fromkeys(name for feed in feeds for name in feed.topic)), None
    return (), feeds[0].topic_pattern if len(feeds) == 1 else "|".join(topic_regex(feed) for feed in feeds)


def topic_regex(feed: KafkaFeed) -> str:
    """The regular expression that matches the topics of a source, as Java reads it."""
    if feed.topic_pattern is not None:
        return f"(?:{feed.topic_pattern})"
    return "|".join(re.escape(name) for name in feed.topic)
