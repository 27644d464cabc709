"""The lag of a consumer group or of a query's checkpoint, computed from the brokers' answers, without Spark."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

import attrs
import numpy as np

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import jvm_session, needs_jvm, open_admin
from kdsl.errors import KdslError, TopicMissingError, listing, nearest, pluralize
from kdsl.notebooks import make_html, table_html
from kdsl.retry import Deadline
from kdsl.run.checkpoint.checkpoint import source_offsets
from kdsl.run.librdkafka.consumers import SIZES, PooledConsumer
from kdsl.run.librdkafka.message_batch import MessageBatch
from kdsl.run.metrics.statistics import client_id
from kdsl.run.offsets.ends import read_ends
from kdsl.run.offsets.stored import Range, positions_of
from kdsl.run.records.metadata import NO_TIMESTAMP

if TYPE_CHECKING:
    from kdsl.run.jvm.ranges import RangeReader

TIMEOUT = 5.0
"""How long to wait for the next records of lagging partitions, in seconds."""
LAG_NUMBERS = ("current", "LSO", "high watermark", "lag", "lag in seconds")
"""The columns of a table of lags after the topic and the partition; see `PartitionLag.format_cells`."""
_WHO = "lag"
_NEAR = 100
"""How many offsets Java's client searches for the next record; not every offset has one."""


class LagError(KdslError):
    """The group or checkpoint does not exist, or has no progress yet."""


@attrs.frozen
class PartitionLag:
    """The lag of a reader in one topic partition.

    Attributes:
        topic: The topic.
        partition: The partition.
        current: The offset of the next record to read; None if the group has committed none.
        start: The offset of the first record that still exists.
        stable: The last stable offset, up to which ``read_committed`` reads.
        end: The high watermark: the offset after the last record.
        lag: The offsets from the next record to the end (to the last stable offset under ``read_committed``); None if
            nothing was committed.
        seconds: The age of the next record in seconds; 0 without lag, None if the record did not arrive in time.
    """

    topic: str
    partition: int
    current: int | None
    start: int
    stable: int
    end: int
    lag: int | None
    seconds: float | None

    @property
    def expired(self) -> bool:
        """Whether the next record was deleted before it was read."""
        return self.current is not None and self.current < self.start

    def format_cells(self) -> list[str]:
        """Format the lag as cells of a table; an unknown position is ``none``, an unknown lag is empty."""
        current = "none" if self.current is None else f"{self.current:,}{' (expired)' if self.expired else ''}"
        lag = "" if self.lag is None else f"{self.lag:,}"
        seconds = format_seconds(self.seconds)
        return [self.topic, str(self.partition), current, f"{self.stable:,}", f"{self.end:,}", lag, seconds]


def format_seconds(seconds: float | None) -> str:
    """Format seconds for a table; empty if they are unknown."""
    return "" if seconds is None else f"{seconds:,.1f}"


@attrs.frozen
class Lag:
    """The lag of a reader.

    Attributes:
        of: The reader: ``group orders-group``, or ``checkpoint /data/cp, batch 7``.
        partitions: The lag in each topic partition, in order.
    """

    of: str
    partitions: tuple[PartitionLag, ...]

    @property
    def total(self) -> int:
        """The lag of all partitions together; a partition whose lag is unknown counts as 0."""
        return sum(p.lag or 0 for p in self.partitions)

    @property
    def unknown(self) -> tuple[PartitionLag, ...]:
        """The partitions that have records, and whose lag is unknown because nothing was committed."""
        return tuple(p for p in self.partitions if p.lag is None and p.end > p.start)

    @property
    def seconds(self) -> float | None:
        """The age of the oldest unread record in seconds; None if it is unknown for all partitions."""
        return max((p.seconds for p in self.partitions if p.seconds is not None), default=None)

    def _repr_html_(self) -> str:
        """The lag as notebooks show it, by partition, with the total in the caption."""
        oldest = "" if self.seconds is None else f", {format_seconds(self.seconds)} s"
        names = ("topic", "partition", *LAG_NUMBERS)
        rows = [p.format_cells() for p in self.partitions]
        title = f"{self.of}: {pluralize(self.total, 'record')} behind{oldest}"
        return make_html(table_html(title, names, rows, numbers=names[1:]))


class LagReader:
    """Computes the lag of readers repeatedly, with the same clients. A context manager.

    Args:
        cluster: The cluster of the topics.
        timeout: How long the brokers may take to answer, in seconds; at most, and by default, the client setting
            ``default.api.timeout.ms``.
    """

    def __init__(self, cluster: Cluster, timeout: float | None = None) -> None:
        """Open an admin client with the shorter one of the timeouts; this may start a Spark session.

        Errors are those of `open_admin`.
        """
        if timeout is not None:
            most = min(int(timeout * 1000), cluster.kdsl_settings.api_timeout_ms)
            cluster = cluster.with_properties({"default.api.timeout.ms": most})
        self._cluster = cluster
        self._admin = open_admin(cluster, _WHO)
        self._consumer: PooledConsumer | None = None
        self._reader: RangeReader | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the consumer that reads the ages of records, if there is one; the next question opens another."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def group_positions(self, group: str) -> dict[TopicPartition, int]:
        """Ask the brokers for the offsets that a group has committed."""
        offsets = self._admin.group_offsets(group)
        if offsets:
            return offsets
        known = self._admin.groups()
        if group in known:
            raise LagError(
                f"the group {group!r} has committed no offsets yet; a stream of kdsl commits after each batch, if a "
                "group id is declared and 'commit.offsets.on.checkpoint' is not false"
            )
        has = f"; its groups are {listing(known)}" if known else "; it has no groups"
        raise LagError(f"{self._cluster.bootstrap_servers} has no group {group!r}{nearest(group, known)}{has}")

    def topics_like(self, names: Iterable[str], pattern: str | None) -> list[str]:
        """Return the topics that a table names, unchecked; for a pattern, ask the brokers which ones it matches.

        It must match the whole name; Kafka's own topics are left out.
        """
        if pattern is None:
            return list(names)
        return [name for name in self._admin.names() if re.fullmatch(pattern, name)]

    def lag_of(self, of: str, positions: Mapping[TopicPartition, int], topics: Iterable[str] = ()) -> Lag:
        """Compute the current lag of some positions, and read the next record of each that lags, for its age.

        It waits 5 s at most for these records; Java's client reads them with a Spark job.

        Args:
            of: The reader, for messages.
            positions: The offset of the next record, by partition.
            topics: Further topics to include, with all their partitions, whether they are read or not.
        """
        names = {topic for topic, _ in positions} | set(topics)
        known = self._admin.topics(names)
        if missing := sorted(names - known.keys()):
            raise LagError(
                f"{of}: {self._cluster.bootstrap_servers} has no topic {listing(missing)}, which may have been "
                "deleted; create it again, or remove it from what is read"
            )
        partitions = sorted(
            {*positions, *((name, n) for name, topic in known.items() for n in range(topic.partitions))}
        )
        try:
            start, ends = (
                self._admin.earliest(partitions),
                read_ends(self._admin, partitions, committed=False, known=positions),
            )
            stable, end = self._admin.latest(partitions, committed=True), ends.offsets
        except TopicMissingError as e:
            raise LagError(
                f"{of}: {e}; the topic was deleted and created again with fewer partitions, so the positions are those "
                "of the former topic; start the query with a new checkpoint, or reset the group's offsets "
                "(kafka-consumer-groups.sh --reset-offsets)"
            ) from e
        committed = self._cluster.java("consumer").settings.get("isolation.level") == "read_committed"
        reach = stable if committed else end
        lags = {partition: max(0, reach[partition] - at) for partition, at in positions.items()}
        waiting = {partition: max(positions[partition], start[partition]) for partition, lag in lags.items() if lag}
        ages = self._read_ages({p: at for p, at in waiting.items() if at < reach[p]}, reach)
        return Lag(
            of,
            tuple(
                PartitionLag(
                    *partition,
                    positions.get(partition),
                    start[partition],
                    stable[partition],
                    end[partition],
                    lags.get(partition),
                    ages.get(partition) if lags.get(partition) else 0.0 if partition in lags else None,
                )
                for partition in partitions
            ),
        )

    def _read_ages(
        self, nexts: Mapping[TopicPartition, int], reach: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, float]:
        """Read the first record at or after an offset of each partition, and return its age in seconds.

        Left out are partitions whose record does not arrive within 5 s, does not exist before the end in ``reach``, or
        has no timestamp; an error that a partition delivers ends its search, too. The consumer is created at the first
        use, and stays open; after an exception of its own, which is raised, it is closed.
        """
        if not nexts:
            return {}
        if needs_jvm(self._cluster):
            return self._ages_by_java(nexts, reach)
        consumer = self._consumer = self._consumer or self._create_consumer()
        ages: dict[TopicPartition, float] = {}
        open_ones = dict(nexts)
        deadline = Deadline(TIMEOUT)
        try:
            consumer.assign([Range(*partition, at, reach[partition]) for partition, at in open_ones.items()])
            while open_ones and not deadline.has_passed:
                before = len(open_ones)
                with consumer.consume(500, 0.1) as messages:
                    times = _first_times(messages)
                for partition, at in times.items():
                    if open_ones.pop(partition, None) is not None and at != NO_TIMESTAMP:
                        ages[partition] = max(0.0, time.time() - at / 1000)
                if open_ones and len(open_ones) < before:
                    consumer.assign([Range(*partition, at, reach[partition]) for partition, at in open_ones.items()])
            consumer.pause()
        except BaseException:
            self.close()
            raise
        return ages

    def _ages_by_java(
        self, nexts: Mapping[TopicPartition, int], reach: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, float]:
        """As `_read_ages`, with Java's client, which searches only the next 100 offsets of a partition; no timeout.

        It may start a Spark session. If an offset was deleted meanwhile, the error of the Spark job is raised.
        """
        from kdsl.run.jvm.ranges import RangeReader

        self._reader = self._reader or RangeReader(jvm_session(), self._cluster, _WHO, {"timestamp"})
        ranges = [Range(*partition, at, min(at + _NEAR, reach[partition])) for partition, at in nexts.items()]
        first: dict[TopicPartition, int] = {}
        for batch in self._reader.read(ranges):
            for record in batch.to_pylist():  # in the order of their offsets
                first.setdefault((record["topic"], record["partition"]), record["timestamp"])
        now = time.time()
        return {partition: max(0.0, now - at / 1000) for partition, at in first.items() if at != NO_TIMESTAMP}

    def _create_consumer(self) -> PooledConsumer:
        """Create a consumer that fetches as little as possible, outside of any group's membership."""
        one_each = {"queued.min.messages": 1, "fetch.message.max.bytes": 65_536}
        settings = self._cluster.consumer({**SIZES[0].settings, **one_each, "group.id": "kdsl-lag"})
        settings["client.id"] = client_id(self._cluster.kdsl_settings.client_id_prefix or "kdsl", "lag")
        return PooledConsumer(settings, self._cluster.bootstrap_servers)


def checkpoint_positions(location: str) -> tuple[int, dict[TopicPartition, int]]:
    """Read the last committed batch of a query, and the offsets of the next records.

    Args:
        location: The checkpoint's folder on this machine.

    Returns:
        The number of the batch, and the offset of the next record of each partition; of several sources, the least.
    """
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") and len(parts.scheme) > 1:
        raise LagError(
            f"the checkpoint {location!r} is not on this machine; copy its folders 'offsets' and 'commits' here, or "
            "ask for the lag of the query's group with --group"
        )
    folder = Path(unquote(parts.path)) if parts.scheme == "file" else Path(location)
    if not (folder / "offsets").is_dir():
        raise LagError(
            f"{str(folder)!r} is not the checkpoint of a streaming query: it has no folder 'offsets'; name the folder "
            "that was passed as checkpoint="
        )
    done = [int(p.name) for p in (folder / "commits").glob("*") if p.name.isdigit()]
    if not done:
        raise LagError(
            f"the query of the checkpoint {str(folder)!r} has not finished a batch yet; ask again when it has"
        )
    batch = max(done)
    try:
        entry = (folder / "offsets" / str(batch)).read_text(encoding="utf-8")
    except OSError as e:
        raise LagError(
            f"batch {batch} of the checkpoint {str(folder)!r} cannot be read: {e.strerror}; let this user read it"
        ) from e
    offsets: dict[TopicPartition, int] = {}
    for document in source_offsets(entry):
        positions = positions_of(document) or {}  # a source that is not Kafka has none
        offsets |= {partition: min(at, offsets.get(partition, at)) for partition, at in positions.items()}
    if not offsets:
        raise LagError(
            f"the query of the checkpoint {str(folder)!r} reads no Kafka topic, so it has no lag; name the checkpoint "
            "of one that does"
        )
    return batch, offsets


def _first_times(messages: MessageBatch) -> dict[TopicPartition, int]:
    """Return the timestamp of the first record of each partition in a batch, in milliseconds since 1970.

    It is `NO_TIMESTAMP` for a record without one, and for an error, which ends the search of a partition, too: its end,
    or an offset that was deleted.
    """
    records = messages.records()
    partitions, lengths = records.partition_runs()
    times = records.build("timestamp").to_pylist()
    first: dict[TopicPartition, int] = {}
    for partition, end, length in zip(partitions, np.cumsum(lengths).tolist(), lengths.tolist(), strict=True):
        first.setdefault(partition, times[end - length])
    for event in messages.events():
        first.setdefault((event.topic or "", event.partition), NO_TIMESTAMP)
    return first
