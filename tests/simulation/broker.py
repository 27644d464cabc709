"""A model of Kafka's topics: logs with leader epochs, transactions in them, retention, compaction and truncation.

The model has no replicas: what an unclean election loses is decided when it happens. The coordinators of groups and
transactions are in `tests.simulation.coordinator`; what clients see is in the modules of the clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from tests.simulation.world import World

TopicPartition = tuple[str, int]


@attrs.frozen
class Record:
    """A record of a log, or the end of a transaction.

    Attributes:
        offset: Its offset.
        epoch: The epoch of the leader that appended it.
        key: The key.
        value: The value; for the end of a transaction, None.
        time: Its time in milliseconds since 1970.
        producer: The id of the producer of its transaction; None without a transaction.
        ends: ``commit`` or ``abort`` for the end of a transaction; empty for a record.
    """

    offset: int
    epoch: int
    key: bytes | None
    value: bytes | None
    time: int
    producer: int | None = None
    ends: str = ""


@attrs.define
class Log:
    """The log of a partition.

    Attributes:
        records: Its records, by offset; compaction and aborted transactions leave gaps.
        start: The offset before which records were deleted.
        end: The offset of the next record.
        epoch: The epoch of its leader.
        epoch_starts: The first offset of each epoch that has records.
        open: The first offset of each producer's open transaction.
        aborted: The first and last offset, and the producer, of aborted transactions.
    """

    records: list[Record] = attrs.field(factory=list)
    start: int = 0
    end: int = 0
    epoch: int = 0
    epoch_starts: dict[int, int] = attrs.field(factory=dict)
    open: dict[int, int] = attrs.field(factory=dict)
    aborted: list[tuple[int, int, int]] = attrs.field(factory=list)

    @property
    def last_stable(self) -> int:
        """The offset before which no transaction is open."""
        return min(self.open.values(), default=self.end)

    def append(
        self, key: bytes | None, value: bytes | None, time: int, producer: int | None = None, ends: str = ""
    ) -> int:
        """Append a record, and return its offset."""
        offset = self.end
        self.records.append(Record(offset, self.epoch, key, value, time, producer, ends))
        self.epoch_starts.setdefault(self.epoch, offset)
        self.end += 1
        if producer is not None and not ends:
            self.open.setdefault(producer, offset)
        return offset

    def end_transaction(self, producer: int, time: int, *, commit: bool) -> None:
        """Append the end of a producer's transaction; do nothing if it has none here."""
        if producer in self.open:
            offset = self.append(None, None, time, producer, "commit" if commit else "abort")
            begun = self.open.pop(producer)
            if not commit:
                self.aborted.append((begun, offset, producer))

    def read(self, start: int, end: int, *, committed: bool) -> list[Record]:
        """The records of offsets, without the ends of transactions.

        Args:
            start: The first offset.
            end: The offset after the last one.
            committed: Whether records of open and aborted transactions are left out.
        """
        if committed:
            end = min(end, self.last_stable)
        records = [record for record in self.records if start <= record.offset < end and not record.ends]
        return [record for record in records if not (committed and self._is_aborted(record))]

    def _is_aborted(self, record: Record) -> bool:
        return any(
            producer == record.producer and first <= record.offset <= last for first, last, producer in self.aborted
        )

    def delete_before(self, offset: int) -> None:
        """Delete the records before an offset, as retention does."""
        self.start = max(self.start, min(offset, self.end))
        self.records = [record for record in self.records if record.offset >= self.start]

    def compact(self) -> None:
        """Remove records whose key has a later one before the last stable offset."""
        stable = self.last_stable
        last = {record.key: record.offset for record in self.read(self.start, stable, committed=True)}
        self.records = [
            record
            for record in self.records
            if record.offset >= stable or record.ends or last.get(record.key) == record.offset
        ]

    def elect(self, lost: int = 0) -> None:
        """Elect another leader, which lacks the last records if ``lost`` is not 0."""
        self.epoch += 1
        self.end = max(self.start, self.end - lost)
        ended = {record.producer for record in self.records if record.ends and record.offset >= self.end}
        self.records = [record for record in self.records if record.offset < self.end]
        self.epoch_starts = {epoch: at for epoch, at in self.epoch_starts.items() if at < self.end}
        self.open = {producer: at for producer, at in self.open.items() if at < self.end}
        self.aborted = [one for one in self.aborted if one[1] < self.end]
        for record in reversed(self.records) if ended else ():  # a transaction whose end is lost is open again
            if record.producer in ended:
                if record.ends:
                    ended.discard(record.producer)
                elif record.producer is not None:
                    self.open[record.producer] = record.offset

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """Where a leader epoch ends, as OffsetForLeaderEpoch answers: the last epoch up to it, and its end; -1 for both
        if the epoch is after that of the leader.
        """
        if epoch > self.epoch:
            return -1, -1
        if epoch == self.epoch:
            return epoch, self.end
        known = [one for one in self.epoch_starts if one <= epoch]
        later = [at for one, at in self.epoch_starts.items() if one > epoch]
        return max(known, default=epoch), min(later, default=self.end)


@attrs.define
class SimulatedTopic:
    """A topic.

    Attributes:
        id: Its id, which another topic of its name does not have.
        logs: The logs of its partitions.
        compacted: Whether it is compacted.
    """

    id: str
    logs: list[Log]
    compacted: bool = False


class Broker:
    """A cluster that is reached as if it were one broker.

    Attributes:
        topics: Its topics, by name.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._ids = 0
        self.topics: dict[str, SimulatedTopic] = {}

    def create_topic(self, name: str, partitions: int = 1, *, compacted: bool = False) -> SimulatedTopic:
        """Create a topic, also in the place of another one with its name."""
        self._ids += 1
        topic = self.topics[name] = SimulatedTopic(f"id-{self._ids}", [Log() for _ in range(partitions)], compacted)
        return topic

    def delete_topic(self, name: str) -> None:
        """Delete a topic, if there is one."""
        self.topics.pop(name, None)

    def add_partitions(self, name: str, partitions: int) -> None:
        """Give a topic more partitions."""
        logs = self.topics[name].logs
        logs.extend(Log() for _ in range(partitions - len(logs)))

    def log(self, partition: TopicPartition) -> Log:
        """The log of a partition; KeyError if there is none."""
        name, number = partition
        topic = self.topics.get(name)
        if topic is None or number >= len(topic.logs):
            raise KeyError(partition)
        return topic.logs[number]

    def produce(self, topic: str, rows: Iterable[tuple[int, bytes | None, bytes | None]]) -> None:
        """Append records as another program does: partition, key and value."""
        for partition, key, value in rows:
            self.log((topic, partition)).append(key, value, self.now())

    def now(self) -> int:
        """The time in milliseconds since 1970."""
        return int(self._world.now * 1000)

    def values(self, topic: str, *, committed: bool = True) -> Mapping[int, list[bytes | None]]:
        """The values that a reader of a whole topic finds, by partition."""
        return {
            number: [record.value for record in log.read(log.start, log.end, committed=committed)]
            for number, log in enumerate(self.topics[topic].logs)
        }
