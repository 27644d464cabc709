"""What happens in a cluster while a query reads: records, transactions, retention, elections, topics created again.

Everything that was ever written is remembered, with what became of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import attrs

from kdsl.callbacks import TopicPartition
from tests.simulation.broker import Broker, Log
from tests.simulation.reading_clients import Network
from tests.simulation.world import World

USUAL = ("produce", "produce", "transact", "finish", "add_partition", "elect")
"""Events that take nothing from a reader."""
DANGERS: Sequence[tuple[str, ...]] = (
    (),
    ("retain", "retain"),
    ("compact", "compact"),
    ("cut_off", "cut_off"),
    ("recreate",),
    ("delete",),
    ("retain", "cut_off", "compact"),
)
"""A run has one group of these events beside the usual ones."""
_KEYS = 3


@attrs.define
class Written:
    """A record that was written.

    Attributes:
        topic: The id of its topic.
        partition: Its topic partition.
        offset: Its offset.
        state: ``open`` in a transaction, ``there``, or what took it: ``aborted``, ``deleted``, ``compacted``, ``cut``,
            or ``early`` if it was deleted before the query had begun there.
        replaces: Whether another record had its offset before a log was cut off.
    """

    topic: str
    partition: TopicPartition
    offset: int
    state: str
    replaces: bool = False


class ClusterEvents:
    """Lets things happen in a cluster.

    Args:
        world: The world.
        broker: The broker.
        topic: The topic in which they happen.
        kinds: The names of the methods that may be called.
        count: How many events may happen.
        rate: The chance of an event at each request.

    Attributes:
        network: The network between the clients and the broker.
        records: What was written, by value.
        happened: The events, by name.
        has_begun: Whether the query has begun to read a partition.
    """

    def __init__(
        self, world: World, broker: Broker, topic: str, *, kinds: Sequence[str], count: int, rate: float
    ) -> None:
        self._world, self._broker, self._topic = world, broker, topic
        self._kinds, self._left, self._rate = kinds, count, rate
        self.network = Network(world, broker, self.disturb)
        self.records: dict[bytes, Written] = {}
        self.happened: set[str] = set()
        self.has_begun: Callable[[TopicPartition], bool] = lambda _: True
        self._producers = 0
        self._reopened: set[int] = set()
        self._cut: dict[TopicPartition, int] = {}

    def disturb(self) -> None:
        """Sometimes let something happen."""
        world = self._world
        if self._left <= 0 or world.calm or not world.decisions.happens(self._rate):
            return
        self._left -= 1
        kind = self._kinds[world.decisions.choose(len(self._kinds))]
        if self._topic in self._broker.topics:
            world.note("event", kind)
            self.happened.add(kind)
            getattr(self, kind)()

    def produce(self, producer: int | None = None) -> None:
        """Write some records to a partition."""
        partition, log = self._choose_log()
        self._append(partition, log, 1 + self._world.decisions.choose(4), producer)

    def _append(self, partition: TopicPartition, log: Log, count: int, producer: int | None = None) -> None:
        topic = self._broker.topics[self._topic].id
        for _ in range(count):
            value = b"%d" % len(self.records)
            offset = log.append(b"%d" % (len(self.records) % _KEYS), value, self._broker.now(), producer)
            state = "there" if producer is None else "open"
            self.records[value] = Written(topic, partition, offset, state, offset < self._cut.get(partition, 0))
        self._world.tell("records are written to %s[%d], which now ends at %d", *partition, log.end)

    def transact(self) -> None:
        """Write some records in a transaction that stays open."""
        self._producers += 1
        self.produce(self._producers)

    def finish(self) -> None:
        """End a transaction."""
        producers = sorted({producer for _, log in self._logs() for producer in log.open})
        if producers:
            choice = self._world.decisions.choose(2 * len(producers))
            self._end(producers[choice // 2], commit=choice % 2 == 0)

    def finish_all(self) -> None:
        """Commit all open transactions."""
        for producer in sorted({producer for _, log in self._logs() for producer in log.open}):
            self._end(producer, commit=True)

    def _end(self, producer: int, *, commit: bool) -> None:
        for partition, log in self._logs():
            if producer not in log.open:
                continue
            commit = commit or producer in self._reopened
            self._set_state(log, producer, "there" if commit else "aborted")
            log.end_transaction(producer, self._broker.now(), commit=commit)
            self._world.tell("a transaction in %s[%d] %s", *partition, "commits" if commit else "aborts")

    def _set_state(self, log: Log, producer: int, state: str) -> None:
        """Set the state of the records of an open transaction."""
        for record in log.records:
            if record.producer == producer and record.offset >= log.open[producer] and record.value is not None:
                self.records[record.value].state = state

    def add_partition(self) -> None:
        """Give the topic another partition, which some brokers do not know yet."""
        count = len(self._broker.topics[self._topic].logs)
        if count < 4:
            self._broker.add_partitions(self._topic, count + 1)
            self.network.note_new(self._topic, count)
            self._world.tell("%s has %d partitions", self._topic, count + 1)

    def elect(self) -> None:
        """Let another leader take a partition, which needs time to catch up, and loses nothing."""
        partition, log = self._choose_log()
        log.elect()
        self._announce(partition, log)

    def cut_off(self) -> None:
        """Let a leader take a partition that lacks its last records."""
        partition, log = self._choose_log()
        before, open_before = log.end, set(log.open)
        log.elect(1 + self._world.decisions.choose(4))
        for written in self._list_written(partition, "there", "open", "aborted"):
            if written.offset >= log.end:
                written.state = "cut"
        for producer in log.open.keys() - open_before:  # somebody will commit it: its records may have been read
            self._reopened.add(producer)
            self._set_state(log, producer, "open")
        self._cut[partition] = max(before, self._cut.get(partition, 0))
        self._world.tell("%s[%d] is cut off from %d to %d", *partition, before, log.end)
        self._announce(partition, log)
        if self._world.decisions.choose(2):
            self._append(partition, log, before - log.end + self._world.decisions.choose(3))

    def retain(self) -> None:
        """Delete the first records of a partition."""
        partition, log = self._choose_log()
        length = log.last_stable - log.start
        if length:
            log.delete_before(log.start + 1 + self._world.decisions.choose(length))
            state = "deleted" if self.has_begun(partition) else "early"
            for written in self._list_written(partition, "there"):
                if written.offset < log.start:
                    written.state = state
            self._world.tell("%s[%d] now begins at %d", *partition, log.start)

    def compact(self) -> None:
        """Compact a partition."""
        partition, log = self._choose_log()
        log.compact()
        offsets_left = {record.offset for record in log.records}
        for written in self._list_written(partition, "there"):
            if written.offset not in offsets_left:
                written.state = "compacted"
        self._world.tell("%s[%d] is compacted", *partition)

    def recreate(self) -> None:
        """Delete the topic, and make it again with other records."""
        count = len(self._broker.topics[self._topic].logs)
        self.delete()
        self._broker.create_topic(self._topic, count)
        self._world.tell("%s is made again", self._topic)
        for _ in range(2 * count):
            self.produce()

    def delete(self) -> None:
        """Delete the topic."""
        self._broker.delete_topic(self._topic)
        self._world.tell("%s is deleted", self._topic)

    def _announce(self, partition: TopicPartition, log: Log) -> None:
        """Let the clients see a new leader."""
        choice = self._world.decisions.choose(4)
        behind = max(log.start, log.end - 1 - self._world.decisions.choose(3))
        self.network.note_election(partition, behind, (0.0, 0.0, 1.0, 3.0)[choice], (0.0, 1.0, 0.0, 2.0)[choice])
        self._world.tell("%s[%d] has a leader of epoch %d", *partition, log.epoch)

    def _list_written(self, partition: TopicPartition, *states: str) -> Iterator[Written]:
        """The records of a partition with some states."""
        topic = self._broker.topics[self._topic].id
        for written in self.records.values():
            if written.partition == partition and written.topic == topic and written.state in states:
                yield written

    def _logs(self) -> Iterator[tuple[TopicPartition, Log]]:
        topic = self._broker.topics.get(self._topic)
        for number, log in enumerate(() if topic is None else topic.logs):
            yield (self._topic, number), log

    def _choose_log(self) -> tuple[TopicPartition, Log]:
        logs = list(self._logs())
        return logs[self._world.decisions.choose(len(logs))]
