"""A model of Kafka's coordinators: transactional ids with their transactions, and groups with offsets and members.

It follows brokers from 3.8 on, which verify that a producer's transaction is open before they append its records or
store its offsets. A transaction is decided at once; its end reaches each partition and each group later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress

import attrs
from confluent_kafka import KafkaError

from tests.simulation.broker import Broker, TopicPartition
from tests.simulation.world import World

RETENTION = 3_600.0
"""For how many seconds a group without members keeps offsets (``offsets.retention.minutes``)."""
SESSION = 6.0
"""After how many seconds without a sign of life a member of a group is removed."""
MAX_TIMEOUT_MS = 900_000
"""The longest timeout of a transaction that is allowed (``transaction.max.timeout.ms``)."""
_MARKER_DELAYS = (0.02, 0.3, 4.0, 40.0)
_MARKER_RATES = (0.0, 0.0, 0.05, 0.3)


class CoordinatorError(Exception):
    """The brokers refuse a request.

    Attributes:
        code: The code of `confluent_kafka.KafkaError`.
    """

    def __init__(self, code: int) -> None:
        super().__init__(KafkaError(code).str())
        self.code = code


@attrs.define
class TransactionalId:
    """What the coordinator knows of a transactional id.

    Attributes:
        producer: The id of its producer.
        epoch: The epoch of its producer; those with an earlier one are fenced.
        state: ``empty``, ``ongoing``, ``ending`` (decided, and not everywhere yet), or ``ended``.
        commits: Whether the last transaction was committed.
        transactions: How many transactions there were.
        partitions: The partitions of the transaction.
        groups: The groups of the transaction.
        used: When it was used last.
    """

    producer: int
    epoch: int = 0
    state: str = "empty"
    commits: bool = False
    transactions: int = 0
    partitions: dict[TopicPartition, None] = attrs.field(factory=dict)
    groups: dict[str, None] = attrs.field(factory=dict)
    used: float = 0.0
    timeout: float = 60.0


@attrs.frozen
class StoredOffset:
    """A committed offset.

    Attributes:
        offset: The offset.
        metadata: The metadata.
        time: When it was committed.
    """

    offset: int
    metadata: str
    time: float


@attrs.define
class GroupMember:
    """A member of a group.

    Attributes:
        client: Its client id.
        id: Its id.
        joined: When it joined.
        seen: Tells when it gave its last sign of life, given when it joined; clients do that in the background.
    """

    client: str
    id: str
    joined: float
    seen: Callable[[float], float]


@attrs.define
class Group:
    """A consumer group.

    Attributes:
        offsets: Its offsets, by partition.
        pending: Offsets of transactions that have not ended, by producer.
        members: Its members, by client id.
    """

    offsets: dict[TopicPartition, StoredOffset] = attrs.field(factory=dict)
    pending: dict[int, dict[TopicPartition, StoredOffset]] = attrs.field(factory=dict)
    members: dict[str, GroupMember] = attrs.field(factory=dict)


class Coordinator:
    """The coordinators of a broker. None of the methods makes a step: whoever calls them has made the request.

    Args:
        world: The world.
        broker: The broker.
        late: The chance that the end of a transaction reaches a partition or a group late; by default it is decided.

    Attributes:
        broker: The broker.
        ids: The transactional ids.
        groups: The groups.
    """

    current: Coordinator
    """The one of the world that runs now."""

    def __init__(self, world: World, broker: Broker, late: float | None = None) -> None:
        self._world, self.broker = world, broker
        self.ids: dict[str, TransactionalId] = {}
        self.groups: dict[str, Group] = defaultdict(Group)
        self._producers = 0
        self._members = 0
        self._sequences: dict[tuple[int, int, TopicPartition], int] = {}
        self._late = _MARKER_RATES[world.decisions.choose(len(_MARKER_RATES))] if late is None else late
        Coordinator.current = self

    # Transactions

    def init_producer(self, id_: str, timeout: float) -> tuple[int, int]:
        """Give a transactional id a new epoch, and return its producer and epoch; an open transaction is aborted first.

        Args:
            id_: The transactional id.
            timeout: For how many seconds a transaction may be open.
        """
        known = self.ids.get(id_)
        if known is None:
            self._producers += 1
            known = self.ids[id_] = TransactionalId(self._producers)
        elif known.state == "ongoing":
            known.epoch += 1
            self._decide(known, commits=False)
            raise CoordinatorError(KafkaError.CONCURRENT_TRANSACTIONS)
        elif known.state == "ending":
            raise CoordinatorError(KafkaError.CONCURRENT_TRANSACTIONS)
        else:
            known.epoch += 1
            known.state = "empty"
        known.used, known.timeout = self._world.now, timeout
        return known.producer, known.epoch

    def add_partition(self, id_: str, producer: int, epoch: int, partition: TopicPartition) -> None:
        """Add a partition to the transaction of a producer, which begins by that."""
        self._begin(id_, producer, epoch).partitions[partition] = None

    def add_group(self, id_: str, producer: int, epoch: int, group: str) -> None:
        """Add a group to the transaction of a producer, which begins by that."""
        self._begin(id_, producer, epoch).groups[group] = None

    def produce(
        self,
        id_: str,
        producer: int,
        epoch: int,
        partition: TopicPartition,
        sequence: int,
        records: Iterable[tuple[bytes | None, bytes | None]],
    ) -> None:
        """Append records of a transaction, unless that was done already.

        Args:
            id_: The transactional id.
            producer: The id of the producer.
            epoch: The epoch of the producer.
            partition: The partition, which is part of the transaction.
            sequence: The number of the request, counted by producer, epoch and partition.
            records: The key and value of each record.
        """
        known = self._check_open(id_, producer, epoch)
        if partition not in known.partitions:
            raise CoordinatorError(KafkaError.INVALID_TXN_STATE)
        last = self._sequences.get((producer, epoch, partition), -1)
        if sequence <= last:
            return
        if sequence != last + 1:
            raise CoordinatorError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self._sequences[producer, epoch, partition] = sequence
        log, now = self.broker.log(partition), self.broker.now()
        for key, value in records:
            log.append(key, value, now, producer)

    def commit_offset(
        self, id_: str, producer: int, epoch: int, group: str, partition: TopicPartition, offset: int, metadata: str
    ) -> None:
        """Store an offset of a group within a transaction."""
        known = self._check_open(id_, producer, epoch)
        if group not in known.groups:
            raise CoordinatorError(KafkaError.INVALID_TXN_STATE)
        pending = self.groups[group].pending.setdefault(producer, {})
        pending[partition] = StoredOffset(offset, metadata, self._world.now)

    def end(self, id_: str, producer: int, epoch: int, *, commits: bool) -> None:
        """Decide the transaction of a producer; the same decision may be repeated."""
        known = self._check(id_, producer, epoch)
        if known.state == "ongoing":
            self._decide(known, commits=commits)
        elif known.state == "ending" and known.commits == commits:
            raise CoordinatorError(KafkaError.CONCURRENT_TRANSACTIONS)
        elif known.state != "ended" or known.commits != commits:
            raise CoordinatorError(KafkaError.INVALID_TXN_STATE)

    def forget_unused_ids(self, seconds: float) -> None:
        """Forget transactional ids that nobody has used for some seconds (``transactional.id.expiration.ms``)."""
        for id_, known in list(self.ids.items()):
            if known.state in ("empty", "ended") and self._world.now - known.used > seconds:
                del self.ids[id_]

    def has_open_transactions(self) -> bool:
        """Whether a transaction has not ended everywhere."""
        return any(known.state in ("ongoing", "ending") for known in self.ids.values())

    def _check(self, id_: str, producer: int, epoch: int) -> TransactionalId:
        known = self.ids.get(id_)
        if known is None or known.producer != producer:
            raise CoordinatorError(KafkaError.INVALID_PRODUCER_ID_MAPPING)
        if known.epoch != epoch:
            raise CoordinatorError(KafkaError.PRODUCER_FENCED)
        known.used = self._world.now
        return known

    def _check_open(self, id_: str, producer: int, epoch: int) -> TransactionalId:
        known = self._check(id_, producer, epoch)
        if known.state != "ongoing":
            raise CoordinatorError(KafkaError.INVALID_TXN_STATE)
        return known

    def _begin(self, id_: str, producer: int, epoch: int) -> TransactionalId:
        known = self._check(id_, producer, epoch)
        if known.state == "ending":
            raise CoordinatorError(KafkaError.CONCURRENT_TRANSACTIONS)
        if known.state != "ongoing":
            known.state, known.partitions, known.groups = "ongoing", {}, {}
            known.transactions += 1
            number = known.transactions
            self._world.call_later(known.timeout, lambda: self._time_out(id_, number))
        return known

    def _time_out(self, id_: str, number: int) -> None:
        known = self.ids.get(id_)
        if known is not None and known.state == "ongoing" and known.transactions == number:
            self._world.note("transaction timeout", "coordinator")
            self._world.tell("the transaction of %s has taken too long, and is aborted", id_)
            known.epoch += 1
            self._decide(known, commits=False)

    def _decide(self, known: TransactionalId, *, commits: bool) -> None:
        """Decide a transaction; its end reaches each partition and group now, or later."""
        known.state, known.commits = "ending", commits
        ends = [lambda p=p: self._end_in_partition(known.producer, p, commits) for p in known.partitions]
        ends += [lambda g=g: self._end_in_group(known.producer, g, commits) for g in known.groups]
        left = len(ends)

        def end_one(end: object) -> None:
            nonlocal left
            end()  # type: ignore[operator]
            left -= 1
            if not left:
                known.state = "ended"

        for end in ends:
            decisions = self._world.decisions
            if self._late and not self._world.calm and decisions.happens(self._late):
                delay = _MARKER_DELAYS[decisions.choose(len(_MARKER_DELAYS))]
                self._world.note("late marker", "coordinator")
                self._world.call_later(delay, lambda end=end: end_one(end))  # type: ignore[misc]
            else:
                end_one(end)

    def _end_in_partition(self, producer: int, partition: TopicPartition, commits: bool) -> None:
        with suppress(KeyError):  # the topic was deleted
            self.broker.log(partition).end_transaction(producer, self.broker.now(), commit=commits)

    def _end_in_group(self, producer: int, group: str, commits: bool) -> None:
        known = self.groups[group]
        pending = known.pending.pop(producer, {})
        if commits:
            known.offsets.update(pending)

    # Groups

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Store offsets for a client that is no member of the group, which a group with members refuses."""
        if self._living(group):
            raise CoordinatorError(KafkaError.UNKNOWN_MEMBER_ID)
        stored = {partition: StoredOffset(offset, "", self._world.now) for partition, offset in offsets.items()}
        self.groups[group].offsets.update(stored)

    def read_offsets(self, group: str, *, stable: bool) -> dict[TopicPartition, StoredOffset]:
        """The offsets of a group.

        Args:
            group: The group.
            stable: Whether an offset within a transaction that has not ended is an error; not so the first offset of a
                partition, which nobody sees before.
        """
        known = self.groups.get(group)
        if known is None:
            return {}
        if stable and any(partition in known.offsets for pending in known.pending.values() for partition in pending):
            raise CoordinatorError(KafkaError.UNSTABLE_OFFSET_COMMIT)
        self._expire(known)
        return dict(known.offsets)

    def read_positions(self, group: str) -> dict[TopicPartition, int]:
        """The offsets of a group without their metadata, of transactions that have ended."""
        return {partition: one.offset for partition, one in self.read_offsets(group, stable=False).items()}

    def list_groups(self) -> list[str]:
        """The names of all groups that have offsets or members."""
        for known in self.groups.values():
            self._expire(known)
        return sorted(name for name, known in self.groups.items() if known.offsets or known.pending or known.members)

    def join(self, group: str, client: str, seen: Callable[[float], float]) -> str:
        """Let a client join a group, and return the id of the member.

        Args:
            group: The group.
            client: The client id.
            seen: As that of a `GroupMember`.
        """
        self._members += 1
        id_ = f"{client}-{self._members}"
        self.groups[group].members[client] = GroupMember(client, id_, self._world.now, seen)
        return id_

    def is_member(self, group: str, client: str, id_: str) -> bool:
        """Whether a client is still the member that it was."""
        member = self._living(group).get(client)
        return member is not None and member.id == id_

    def leave(self, group: str, client: str) -> None:
        """Remove a member from a group."""
        self.groups[group].members.pop(client, None)

    def members(self, group: str) -> list[GroupMember]:
        """The members of a group that are not removed for their silence."""
        return list(self._living(group).values())

    def _living(self, group: str) -> dict[str, GroupMember]:
        known = self.groups[group]
        oldest = self._world.now - SESSION
        known.members = {
            client: member for client, member in known.members.items() if member.seen(member.joined) >= oldest
        }
        return known.members

    def _expire(self, known: Group) -> None:
        oldest = self._world.now - RETENTION
        if known.offsets and not known.pending and not known.members:
            fresh = {partition: one for partition, one in known.offsets.items() if one.time >= oldest}
            known.offsets = fresh
