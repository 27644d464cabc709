"""The clients that read, over the model of brokers: the admin client, and librdkafka's consumer.

They do what the real ones do as far as kdsl can see it. A broker that has just become a leader may not have caught up,
one may not know a new topic yet, and a partition may have no leader for some seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from types import SimpleNamespace
from typing import Any, NoReturn, TypeVar

import attrs
import numpy as np
import pyarrow as pa
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException, TopicPartition as ClientPartition

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.errors import TopicMissingError
from kdsl.run.admin import errors
from kdsl.run.admin.cluster_admin import ClusterAdmin, OffsetAndEpoch, Position, Topic
from kdsl.run.librdkafka.consumer_client import Answer
from kdsl.run.librdkafka.message_batch import Event
from tests.simulation.broker import Broker, Log, Record
from tests.simulation.coordinator import Coordinator
from tests.simulation.world import World

T = TypeVar("T")

_PATIENCE = 2.0
"""How many seconds a client waits for an answer before it asks again."""
_UNKNOWN_FOR = 3.0
"""For how many seconds a broker may not know a new topic or partition."""
_GONE_AFTER = 5.0
"""After how many seconds a consumer says that a topic does not exist (``topic.metadata.propagation.max.ms``)."""
_CHUNK = 100


class Network:
    """What clients see of a broker at a time.

    Args:
        world: The world.
        broker: The broker.
        disturb: Called before each request: lets something happen in the cluster.

    Attributes:
        broker: The broker.
        coordinator: The coordinator of consumer groups.
        on_commit: Called with a group and its offsets when they are committed.
        skipped: Offsets that a reader has said to skip, because their records are gone.
        rate: The chance that a broker answers as one that has just started.
    """

    current: Network
    """The one of the world that runs now."""

    def __init__(self, world: World, broker: Broker, disturb: Callable[[], None] = lambda: None) -> None:
        self._world, self.broker, self.disturb = world, broker, disturb
        self.coordinator = Coordinator(world, broker, late=0.0)
        self.on_commit: Callable[[str, Mapping[TopicPartition, int]], None] = lambda *_: None
        self.skipped: dict[TopicPartition, set[int]] = {}
        self.rate = 0.3
        self._new: dict[str, tuple[float, int]] = {}
        self._behind: dict[TopicPartition, tuple[float, int]] = {}
        self._leaderless: dict[TopicPartition, float] = {}
        Network.current = self

    def note_new(self, topic: str, before: int = 0) -> None:
        """Note that a topic has just got its partitions, all or those from a number on."""
        self._new[topic] = self._world.now + _UNKNOWN_FOR, before

    def note_election(self, partition: TopicPartition, end: int, behind: float, leaderless: float) -> None:
        """Note that a partition has a new leader.

        Args:
            partition: The partition.
            end: The end that the leader reports until it has caught up.
            behind: For how many seconds that is.
            leaderless: For how many seconds there is no leader before.
        """
        now = self._world.now
        self._leaderless[partition] = now + leaderless
        self._behind[partition] = now + leaderless + behind, end

    def has_leader(self, partition: TopicPartition) -> bool:
        """Whether a partition has a leader now."""
        return self._world.calm or self._leaderless.get(partition, 0.0) <= self._world.now

    def knows_new(self, topic: str) -> int | None:
        """From which partition on a broker does not know a topic; None if it knows all."""
        until, before = self._new.get(topic, (0.0, 0))
        if until <= self._world.now or self._world.calm or not self._world.decisions.happens(self.rate):
            return None
        self._world.note("unknown", "topic")
        return before

    def end(self, partition: TopicPartition, *, committed: bool) -> int:
        """How far a partition can be read now."""
        log = self.broker.log(partition)
        until, end = self._behind.get(partition, (0.0, 0))
        stable = log.last_stable if committed else log.end
        if until > self._world.now and not self._world.calm and end < stable:
            self._world.note("behind", "leader")
            return max(log.start, end)
        return stable


class _UnansweredError(Exception):
    """A request was not answered."""


class SimulatedAdmin(ClusterAdmin):
    """An admin client, which asks again when it gets no answer."""

    def __init__(self, cluster: Cluster, table: str, *, answered: bool = False) -> None:
        super().__init__(cluster, table)
        del answered
        self._network = Network.current

    def _ask(self, what: str, effect: Callable[[], T], partitions: Iterable[TopicPartition] = ()) -> T:
        """Make a request, up to three times; an error says that nobody answered."""
        world, network = World.current, self._network
        wanted = list(partitions)
        for attempt in range(3):
            network.disturb()
            leaders = all(map(network.has_leader, wanted))
            if leaders:
                try:
                    return world.request(f"admin: {what}", effect, _fail)
                except _UnansweredError:
                    if world.decisions.choose(3) == 2:  # it was asked as often as the time allows
                        break
            world.sleep(_PATIENCE * 2**attempt)
        raise errors.no_answer(self._table, self.servers, self._timeout, None)

    def names(self, *, internal: bool = False) -> list[str]:
        """See `ClusterAdmin.names`."""
        del internal
        return self._ask("names", lambda: sorted(self._network.broker.topics))

    def commit(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """See `ClusterAdmin.commit`."""

        def commit() -> None:
            self._network.coordinator.commit(group, positions)
            self._network.on_commit(group, positions)

        self._ask("commit", commit)

    def groups(self) -> list[str]:
        """See `ClusterAdmin.groups`."""
        return self._ask("groups", self._network.coordinator.list_groups)

    def create_topic(
        self, name: str, partitions: int | None, replication_factor: int | None, configs: Mapping[str, str]
    ) -> None:
        """See `ClusterAdmin.create_topic`."""
        raise NotImplementedError("readers do not change topics")

    def raise_partitions(self, topic: str, partitions: int) -> None:
        """See `ClusterAdmin.raise_partitions`."""
        raise NotImplementedError("readers do not change topics")

    def set_config(self, topic: str, name: str, value: str) -> None:
        """See `ClusterAdmin.set_config`."""
        raise NotImplementedError("readers do not change topics")

    def _existing_topics(self, names: list[str]) -> dict[str, Topic]:
        if not names:
            return {}
        network = self._network

        def describe() -> dict[str, Topic]:
            topics = {}
            for name in names:
                topic = network.broker.topics.get(name)
                if topic is None:
                    continue
                known = network.knows_new(name)
                partitions = len(topic.logs) if known is None else min(known, len(topic.logs))
                if partitions:
                    topics[name] = Topic(topic.id, partitions)
            return topics

        return self._ask("topics", describe)

    def _ask_for_offsets(
        self, partitions: Iterable[TopicPartition], position: Position, *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        wanted = list(partitions)
        if not wanted:
            return {}
        network = self._network

        def ask() -> dict[TopicPartition, OffsetAndEpoch]:
            return {one: _offset(network, one, position, committed=committed) for one in wanted}

        try:
            return self._ask(f"offsets ({position if isinstance(position, str) else 'time'})", ask, wanted)
        except KeyError as e:
            topic, number = e.args[0]
            raise TopicMissingError(
                f"{self._table}: partition {number} of the topic {topic!r} does not exist any more"
            ) from e

    def _group_offsets(self, group: str, partitions: Set[TopicPartition] | None) -> dict[TopicPartition, int]:
        del partitions
        return self._ask("group offsets", lambda: self._network.coordinator.read_positions(group))


def _offset(network: Network, partition: TopicPartition, position: Position, *, committed: bool) -> OffsetAndEpoch:
    """Answer a request for an offset as ListOffsets does."""
    log = network.broker.log(partition)
    if position == "earliest":
        return OffsetAndEpoch(log.start, _epoch_at(log, log.start))
    if position == "latest":
        return OffsetAndEpoch(network.end(partition, committed=committed), log.epoch)
    records = log.read(log.start, log.end, committed=False)
    first = next((record for record in records if record.time >= int(position)), None)
    return OffsetAndEpoch(-1, None) if first is None else OffsetAndEpoch(first.offset, first.epoch)


def _epoch_at(log: Log, offset: int) -> int:
    """The leader epoch in which an offset was written."""
    return max((epoch for epoch, at in log.epoch_starts.items() if at <= offset), default=log.epoch)


def _fail(happened: str) -> NoReturn:
    raise _UnansweredError(happened)


class SimulatedMessage:
    """A message of the consumer: a record, or an event of a partition."""

    __slots__ = ("_error", "_offset", "_partition", "_record", "_topic")

    def __init__(
        self, partition: TopicPartition, offset: int, record: Record | None = None, error: KafkaError | None = None
    ) -> None:
        self._topic, self._partition = partition
        self._offset, self._record, self._error = offset, record, error

    def topic(self) -> str:
        """See confluent-kafka."""
        return self._topic

    def partition(self) -> int:
        """See confluent-kafka."""
        return self._partition

    def offset(self) -> int:
        """See confluent-kafka."""
        return self._offset

    def error(self) -> KafkaError | None:
        """See confluent-kafka."""
        return self._error

    def key(self) -> bytes | None:
        """See confluent-kafka."""
        return None if self._record is None else self._record.key

    def value(self) -> bytes | None:
        """See confluent-kafka."""
        return None if self._record is None else self._record.value

    def timestamp(self) -> tuple[int, int]:
        """See confluent-kafka."""
        return 1, 0 if self._record is None else self._record.time

    def leader_epoch(self) -> int | None:
        """See confluent-kafka."""
        return None if self._record is None else self._record.epoch

    def headers(self) -> None:
        """See confluent-kafka."""


@attrs.define
class _Position:
    """How far a partition is fetched."""

    offset: int
    epoch: int | None
    id: str | None = None
    verified: int = -1
    eof_at: int = -1
    failed: bool = False
    missing_since: float | None = None


class SimulatedConsumer:
    """librdkafka's consumer with assigned partitions, and ``auto.offset.reset=error``."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._network = Network.current
        self._committed = settings.get("isolation.level") == "read_committed"
        self._positions: dict[TopicPartition, _Position] = {}
        self._tell: Callable[[KafkaError], object] = settings.get("error_cb", lambda _: None)
        self._closed = False

    def assign(self, partitions: Sequence[ClientPartition]) -> None:
        """Fetch partitions from their offsets on; a leader epoch is verified first."""
        self._check_open()
        self._positions = {(p.topic, p.partition): _Position(p.offset, p.leader_epoch) for p in partitions}

    def unassign(self) -> None:
        """Fetch nothing."""
        self._check_open()
        self._positions = {}

    def incremental_unassign(self, partitions: Sequence[ClientPartition]) -> None:
        """Stop fetching some of the partitions; librdkafka refuses others."""
        self._check_open()
        for one in partitions:
            if self._positions.pop((one.topic, one.partition), None) is None:
                raise KafkaException(KafkaError(KafkaError._INVALID_ARG))

    def close(self) -> None:
        """Close the client."""
        self._closed = True

    def consume(self, count: int, timeout: float) -> list[SimulatedMessage]:
        """Return what has arrived, or nothing after some seconds."""
        self._check_open()
        world, network = World.current, self._network
        if not timeout:
            return []
        network.disturb()
        try:
            world.request("fetch", lambda: None, _fail)
        except _UnansweredError:  # whatever was in the answer is fetched again
            messages = self._tell_trouble()
        else:
            messages = self._fetch(count)
        self._check_open()
        if not messages:
            world.sleep(timeout)
        return messages

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Consumer closed")

    def _fetch(self, count: int) -> list[SimulatedMessage]:
        messages: list[SimulatedMessage] = []
        for partition, at in tuple(self._positions.items()):
            if not at.failed and len(messages) < count:
                messages += self._fetch_partition(partition, at, count - len(messages))
        return messages

    def _tell_trouble(self) -> list[SimulatedMessage]:
        """What the client says when it gets no answer: nothing, an error, or one that is not true any more."""
        choice = World.current.decisions.choose(5)
        active = [one for one in self._positions.items() if not one[1].failed]
        if choice == 1:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        if choice == 2:
            self._tell(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        if choice == 3 and active:
            return [SimulatedMessage(active[0][0], active[0][1].offset, None, KafkaError(KafkaError._TRANSPORT))]
        if choice == 4 and active:
            text = "fetch failed due to requested offset not available on the broker: of an earlier assignment"
            return self._fail(*active[0], KafkaError(KafkaError._AUTO_OFFSET_RESET, text))
        return []

    def _fetch_partition(self, partition: TopicPartition, at: _Position, count: int) -> list[SimulatedMessage]:
        world, network = World.current, self._network
        topic = network.broker.topics.get(partition[0])
        if topic is None or partition[1] >= len(topic.logs):
            at.missing_since = world.now if at.missing_since is None else at.missing_since
            if world.now - at.missing_since < _GONE_AFTER:
                return []
            return self._fail(partition, at, KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        if not network.has_leader(partition):
            return []
        log = topic.logs[partition[1]]
        if at.id not in (None, topic.id):  # the client may learn of it before the broker tells it
            if world.decisions.choose(2):
                return self._fail(partition, at, KafkaError(KafkaError.INCONSISTENT_TOPIC_ID))
            at.epoch = None
        at.id = topic.id
        if at.epoch is not None and at.epoch != log.epoch and at.verified != log.epoch:
            epoch, end = log.end_of_epoch(at.epoch)
            at.verified = log.epoch
            if epoch < 0 or end < at.offset:
                what = "No epoch found less or equal to" if epoch < 0 else "Partition log truncation detected at"
                text = f"{what} offset {at.offset}: broker end offset is {end} (offset leader epoch {epoch})"
                return self._fail(partition, at, KafkaError(KafkaError._AUTO_OFFSET_RESET, text))
        if not log.start <= at.offset <= log.end:
            text = f"fetch failed due to requested offset not available on the broker: offset {at.offset}"
            return self._fail(partition, at, KafkaError(KafkaError._AUTO_OFFSET_RESET, text))
        end = network.end(partition, committed=self._committed)
        records = log.read(at.offset, end, committed=self._committed)
        few = 1 if len(records) > 1 and not world.calm and world.decisions.happens(0.1) else _CHUNK
        wanted = records[: min(count, few)]
        messages = [SimulatedMessage(partition, record.offset, record) for record in wanted]
        if wanted:
            at.epoch = at.verified = wanted[-1].epoch
        if len(wanted) < len(records):
            at.offset = wanted[-1].offset + 1
        elif at.offset <= end:
            at.offset = end
            if at.eof_at != end:
                at.eof_at = end
                error = KafkaError(KafkaError._PARTITION_EOF)
                messages.append(SimulatedMessage(partition, end, None, error))
        return messages

    def _fail(self, partition: TopicPartition, at: _Position, error: KafkaError) -> list[SimulatedMessage]:
        at.failed = True
        World.current.note("error", f"fetch: {error.name()}")
        return [SimulatedMessage(partition, at.offset, None, error)]

    def offsets_for_times(self, partitions: Sequence[ClientPartition], timeout: float) -> list[ClientPartition]:
        """Ask for the ends of logs, which kdsl gives as times."""
        self._check_open()
        world, network = World.current, self._network
        network.disturb()
        marks = {OFFSET_BEGINNING: "earliest", OFFSET_END: "latest"}

        def ask() -> list[ClientPartition]:
            answers = []
            for one in partitions:
                partition = (one.topic, one.partition)
                answer = ClientPartition(one.topic, one.partition, -1)
                topic = network.broker.topics.get(one.topic)
                if topic is None or one.partition >= len(topic.logs):
                    raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
                if network.has_leader(partition):
                    position: Any = marks[one.offset]
                    answer.offset = _offset(network, partition, position, committed=self._committed).offset
                answers.append(answer)
            return answers

        try:
            return world.request("consumer: offsets", ask, _fail)
        except _UnansweredError as e:
            world.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from e

    def list_topics(self, topic: str, timeout: float) -> Any:
        """Ask for the partitions of a topic."""
        self._check_open()
        world, network = World.current, self._network

        def ask() -> Any:
            existing = network.broker.topics.get(topic)
            numbers = () if existing is None else range(len(existing.logs))
            return SimpleNamespace(topics={topic: SimpleNamespace(partitions=dict.fromkeys(numbers))})

        try:
            return world.request("consumer: topics", ask, _fail)
        except _UnansweredError as e:
            world.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from e


class SimulatedClient:
    """kdsl's client of a consumer; see `kdsl.run.librdkafka.consumer_client.ConsumerClient`."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        on_error: Callable[[KafkaError], None],
        on_statistics: Callable[[bytes], None],
    ) -> None:
        del on_statistics
        self._consumer = SimulatedConsumer({**settings, "error_cb": on_error})
        self.unassign, self.close = self._consumer.unassign, self._consumer.close

    def assign(self, partitions: Iterable[tuple[str, int, int]]) -> None:
        """See `ConsumerClient.assign`."""
        self._consumer.assign([ClientPartition(*one) for one in partitions])

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """See `ConsumerClient.release`."""
        self._consumer.incremental_unassign([ClientPartition(*one) for one in partitions])

    def consume(self, most: int, seconds: float) -> SimulatedBatch:
        """See `ConsumerClient.consume`."""
        return SimulatedBatch(self._consumer.consume(most, seconds))

    def discard_fetched(self) -> None:
        """See `ConsumerClient.discard_fetched`: nothing waits."""

    def offsets_for_times(self, partitions: Sequence[tuple[str, int, int]], seconds: float) -> list[Answer]:
        """See `ConsumerClient.offsets_for_times`."""
        answers = self._consumer.offsets_for_times([ClientPartition(*one) for one in partitions], seconds)
        return [Answer(one.offset, None) for one in answers]

    def partitions_of(self, topic: str, seconds: float) -> set[int]:
        """See `ConsumerClient.partitions_of`."""
        return set(self._consumer.list_topics(topic, seconds).topics[topic].partitions)


class SimulatedBatch:
    """The messages of one call; see `kdsl.run.librdkafka.message_batch.MessageBatch`."""

    def __init__(self, messages: Sequence[SimulatedMessage]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def __enter__(self) -> SimulatedBatch:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def events(self) -> list[Event]:
        """See `MessageBatch.events`."""
        return [
            Event(one.topic(), one.partition(), one.offset(), error)
            for one in self._messages
            if (error := one.error()) is not None
        ]

    def records(self) -> SimulatedRecords:
        """See `MessageBatch.records`."""
        return SimulatedRecords([one for one in self._messages if one.error() is None])


class SimulatedRecords:
    """Some records of a batch; see `kdsl.run.librdkafka.message_batch.Records`."""

    def __init__(self, messages: Sequence[SimulatedMessage]) -> None:
        self._messages = messages
        self.offsets = np.array([one.offset() for one in messages], np.int64)
        self.size = sum(len(one.value() or b"") for one in messages)

    def __len__(self) -> int:
        return len(self._messages)

    def select(self, rows: Any) -> SimulatedRecords:
        """See `Records.select`."""
        if isinstance(rows, slice):
            return SimulatedRecords(self._messages[rows])
        return SimulatedRecords([one for one, wanted in zip(self._messages, rows, strict=True) if wanted])

    def partition_runs(self) -> tuple[list[TopicPartition], np.ndarray[Any, Any]]:
        """See `Records.partition_runs`; each run has one record."""
        return [(one.topic(), one.partition()) for one in self._messages], np.ones(len(self), np.int64)

    def leader_epochs(self, rows: Sequence[int]) -> list[int | None]:
        """See `Records.leader_epochs`."""
        return [self._messages[row].leader_epoch() for row in rows]

    def last_time(self) -> int:
        """See `Records.last_time`."""
        return self._messages[-1].timestamp()[1]

    def build(self, name: str) -> pa.Array:
        """See `Records.build`; only values are read."""
        assert name == "value"
        return pa.array([one.value() for one in self._messages], pa.binary())
