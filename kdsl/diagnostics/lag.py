"""How far a consumer group, or a query's checkpoint, is behind its topics: asked of the brokers, without Spark."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self
from urllib.parse import unquote, urlsplit

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import jvm_session, needs_jvm, open_admin
from kdsl.errors import KdslError, TopicMissingError, listing, nearest
from kdsl.run.checkpoint.checkpoint import source_offsets
from kdsl.run.librdkafka.consumers import SIZES, PooledConsumer
from kdsl.run.metrics.statistics import client_id
from kdsl.run.offsets.stored import Range, positions_of

if TYPE_CHECKING:
    from kdsl.run.jvm.ranges import RangeReader

_PATIENCE = 5.0
"""How long the next records of lagging partitions are waited for, in seconds."""
_WHO = "lag"
_NEAR = 100
"""How far after its offset the next record is looked for through Java's client; other offsets may have no record."""


class LagError(KdslError):
    """There is no such group or checkpoint, or nothing is known of how far it has come."""


@attrs.frozen
class PartitionLag:
    """How far behind a reader of a partition is.

    Attributes:
        topic: The topic.
        partition: The partition.
        current: The offset of the next record to read; None where the group has committed none.
        start: The offset of the first record that is there.
        stable: The last stable offset: how far ``read_committed`` reads.
        end: The high watermark: the offset after the last record.
        lag: Offsets from the next record to the end (to the stable one under ``read_committed``); None where nothing
            was committed.
        seconds: The age of the next record; 0 without lag, None where it did not come in time.
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


@attrs.frozen
class Lag:
    """How far behind a reader is.

    Attributes:
        of: Whose: ``group orders-group``, or ``checkpoint /data/cp, batch 7``.
        partitions: Each partition, in order.
    """

    of: str
    partitions: tuple[PartitionLag, ...]

    @property
    def total(self) -> int:
        """The lag of all partitions together."""
        return sum(p.lag or 0 for p in self.partitions)

    @property
    def seconds(self) -> float | None:
        """The age of the oldest record that waits; None where no partition says."""
        return max((p.seconds for p in self.partitions if p.seconds is not None), default=None)


class LagReader:
    """Asks how far readers are behind, as often as wanted, with the same clients. A context manager.

    Args:
        cluster: Where the topics live.
        patience: How long the brokers may take to answer, in seconds; by default as long as the client settings say
            (``default.api.timeout.ms``).
    """

    def __init__(self, cluster: Cluster, patience: float | None = None) -> None:
        if patience is not None:
            most = min(int(patience * 1000), cluster.kdsl_settings().api_timeout_ms)
            cluster = cluster.with_properties({"default.api.timeout.ms": most})
        self._cluster = cluster
        self._brokers = open_admin(cluster, _WHO)
        self._consumer: PooledConsumer | None = None
        self._reader: RangeReader | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the clients."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def group_positions(self, group: str) -> dict[TopicPartition, int]:
        """The offsets that a group has committed.

        Raises:
            LagError: There is no such group, or it has committed nothing.
            KafkaReadError: The brokers do not answer, or do not allow it.
        """
        offsets = self._brokers.group_offsets(group)
        if offsets:
            return offsets
        known = self._brokers.groups()
        if group in known:
            raise LagError(
                f"the group {group!r} has committed no offsets yet; a stream of kdsl commits after each batch, if a "
                "group id is declared and 'commit.offsets.on.checkpoint' is not false"
            )
        has = f"; there are {listing(known)}" if known else "; it has no groups"
        raise LagError(f"{self._cluster.bootstrap_servers} has no group {group!r}{nearest(group, known)}{has}")

    def topics_like(self, names: Iterable[str], pattern: str | None) -> list[str]:
        """The topics that a table reads."""
        if pattern is None:
            return list(names)
        return [name for name in self._brokers.names() if re.fullmatch(pattern, name)]

    def lag_of(self, of: str, positions: Mapping[TopicPartition, int], topics: Iterable[str] = ()) -> Lag:
        """How far some positions are behind their topics now.

        Args:
            of: Whose positions they are.
            positions: The offset of the next record, by partition.
            topics: Further topics to show; all partitions of each topic are shown, read or not.

        Raises:
            LagError: A topic does not exist any more.
            KafkaReadError: The brokers do not answer, or do not allow it.
        """
        names = {topic for topic, _ in positions} | set(topics)
        known = self._brokers.topics(names)
        if gone := sorted(names - known.keys()):
            raise LagError(
                f"{of}: {self._cluster.bootstrap_servers} has no topic {listing(gone)}; it may have been deleted"
            )
        places = sorted({*positions, *((name, n) for name, topic in known.items() for n in range(topic.partitions))})
        try:
            start, stable, end = (
                self._brokers.earliest(places),
                self._brokers.latest(places, committed=True),
                self._brokers.latest(places, committed=False),
            )
        except TopicMissingError as e:
            raise LagError(f"{of}: {e}; the topic was deleted and created again with fewer partitions") from e
        committed = self._cluster.java("consumer").settings.get("isolation.level") == "read_committed"
        reach = stable if committed else end
        lags = {place: max(0, reach[place] - at) for place, at in positions.items()}
        waiting = {place: max(positions[place], start[place]) for place, lag in lags.items() if lag}
        ages = self._ages({p: at for p, at in waiting.items() if at < reach[p]}, reach)
        return Lag(
            of,
            tuple(
                PartitionLag(
                    *place,
                    positions.get(place),
                    start[place],
                    stable[place],
                    end[place],
                    lags.get(place),
                    ages.get(place) if lags.get(place) else 0.0 if place in lags else None,
                )
                for place in places
            ),
        )

    def _ages(
        self, nexts: Mapping[TopicPartition, int], reach: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, float]:
        """The age of the first record from an offset on, of each partition."""
        if not nexts:
            return {}
        if needs_jvm(self._cluster):
            return self._ages_by_java(nexts, reach)
        consumer = self._consumer = self._consumer or self._create_consumer()
        ages: dict[TopicPartition, float] = {}
        open_ones = dict(nexts)
        until = time.monotonic() + _PATIENCE
        try:
            consumer.assign([Range(*place, at, reach[place]) for place, at in open_ones.items()])
            while open_ones and time.monotonic() < until:
                before = len(open_ones)
                for message in consumer.consume(500, 0.1):
                    place = (message.topic() or "", message.partition() or 0)
                    if place not in open_ones:
                        continue
                    if message.error() is None:
                        ages[place] = max(0.0, time.time() - message.timestamp()[1] / 1000)
                    del open_ones[place]  # or nothing comes: an end, or an offset that is gone
                if open_ones and len(open_ones) < before:
                    consumer.assign([Range(*place, at, reach[place]) for place, at in open_ones.items()])
            consumer.pause()
        except BaseException:
            self.close()
            raise
        return ages

    def _ages_by_java(
        self, nexts: Mapping[TopicPartition, int], reach: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, float]:
        from kdsl.run.jvm.ranges import RangeReader

        self._reader = self._reader or RangeReader(jvm_session(), self._cluster, _WHO, {"timestamp"})
        ranges = [Range(*place, at, min(at + _NEAR, reach[place])) for place, at in nexts.items()]
        ages: dict[TopicPartition, float] = {}
        for batch in self._reader.read(ranges):
            for record in batch.to_pylist():  # in the order of their offsets: the first of each partition counts
                age = max(0.0, time.time() - record["timestamp"] / 1000)
                ages.setdefault((record["topic"], record["partition"]), age)
        return ages

    def _create_consumer(self) -> PooledConsumer:
        one_each = {"queued.min.messages": 1, "fetch.message.max.bytes": 65_536}
        settings = self._cluster.consumer({**SIZES[0].settings, **one_each, "group.id": "kdsl-lag"})
        settings["client.id"] = client_id(self._cluster.kdsl_settings().client_id_prefix or "kdsl", "lag")
        return PooledConsumer(settings, self._cluster.bootstrap_servers)


def checkpoint_positions(place: str) -> tuple[int, dict[TopicPartition, int]]:
    """Read the last committed batch of a query, and the offsets of the next records.

    Args:
        place: The checkpoint's folder on this machine.

    Raises:
        LagError: It is not a checkpoint, has no finished batch, or the query reads no Kafka topic.
    """
    parts = urlsplit(place)
    if parts.scheme not in ("", "file") and len(parts.scheme) > 1:
        raise LagError(
            f"the checkpoint {place!r} is not on this machine; copy its folders 'offsets' and 'commits' here, or ask "
            "for the lag of the query's group with --group"
        )
    folder = Path(unquote(parts.path)) if parts.scheme == "file" else Path(place)
    if not (folder / "offsets").is_dir():
        raise LagError(f"{str(folder)!r} is not the checkpoint of a streaming query: it has no folder 'offsets'")
    done = [int(p.name) for p in (folder / "commits").glob("*") if p.name.isdigit()]
    if not done:
        raise LagError(f"the query of the checkpoint {str(folder)!r} has not finished a batch yet")
    batch = max(done)
    try:
        entry = (folder / "offsets" / str(batch)).read_text(encoding="utf-8")
    except OSError as e:
        raise LagError(f"batch {batch} of the checkpoint {str(folder)!r} cannot be read: {e.strerror}") from e
    offsets: dict[TopicPartition, int] = {}
    for document in source_offsets(entry):
        positions = positions_of(document) or {}  # a source that is not Kafka has none
        offsets |= {place: min(at, offsets.get(place, at)) for place, at in positions.items()}
    if not offsets:
        raise LagError(f"the query of the checkpoint {str(folder)!r} reads no Kafka topic")
    return batch, offsets
