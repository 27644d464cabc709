"""What kdsl's modules see of the coordinators: librdkafka's transactional producer, the offsets of groups, the admin.

`SimulatedProducer` replaces librdkafka below `TransactionalProducer`, whose own code runs as it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, NoReturn

from confluent_kafka import KafkaError

from kdsl.run.admin import group_offsets
from kdsl.run.admin.client_status import ClientStatus
from kdsl.run.admin.cluster_admin import Topic
from kdsl.run.admin.group_offsets import CommittedOffset
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin, Member
from kdsl.run.librdkafka.producer import ProducerError
from kdsl.run.librdkafka.transactions import task, token_store
from kdsl.run.librdkafka.transactions.producer import FENCED, TransactionalProducer
from kdsl.run.librdkafka.transactions.token_store import RETENTION, TIMEOUT, TokenAdmin
from kdsl.run.librdkafka.write_failures import Failure
from tests.simulation import coordinator
from tests.simulation.coordinator import Coordinator, CoordinatorError
from tests.simulation.scenario import Substitutes
from tests.simulation.world import World

_TIMED_OUT = int(KafkaError._TIMED_OUT)
_FATAL = int(KafkaError._FENCED)
_OUTAGES = (0.0, 0.0, 3.0, 40.0, 300.0)
_WAITING = (KafkaError.CONCURRENT_TRANSACTIONS,)


class _UnansweredError(Exception):
    """A request was not answered."""


def _fail(happened: str) -> NoReturn:
    raise _UnansweredError(happened)


class SimulatedCluster:
    """A cluster as kdsl's modules use it, without any connection.

    Attributes:
        bootstrap_servers: Its address.
        kdsl_settings: kdsl's own settings.
    """

    bootstrap_servers = "broker:9092"
    kdsl_settings = SimpleNamespace(
        transaction_timeout_ms=None, api_timeout_ms=60_000, auto_create_topics=False, client_id_prefix=""
    )

    def producer(self, more: Mapping[str, Any] | None = None) -> dict[str, str]:
        """The settings of a producer."""
        return {"bootstrap.servers": self.bootstrap_servers, **(more or {})}

    consumer = admin = producer


class _Error:
    """An error of librdkafka.

    Attributes:
        code: Its code.
        retriable: Whether the step may be tried again.
        abortable: Whether the transaction must be aborted.
    """

    def __init__(self, code: int, *, retriable: bool = False, abortable: bool = False) -> None:
        self.code, self.retriable, self.abortable = code, retriable, abortable


class _Library:
    """The functions of librdkafka that a transactional producer calls; a handle is a `SimulatedProducer`."""

    def rd_kafka_init_transactions(self, producer: SimulatedProducer, milliseconds: int) -> _Error | None:
        return producer.acquire(milliseconds / 1000)

    def rd_kafka_begin_transaction(self, producer: SimulatedProducer) -> _Error | None:
        return producer.begin_transaction()

    def rd_kafka_send_offsets_to_transaction(
        self, producer: SimulatedProducer, offsets: list[Any], group: str, milliseconds: int
    ) -> _Error | None:
        one = offsets[0].contents
        metadata = ctypes.string_at(one.metadata, one.metadata_size).decode()
        return producer.store_offset(group, (one.topic, one.partition), one.offset, metadata, milliseconds / 1000)

    def rd_kafka_commit_transaction(self, producer: SimulatedProducer, milliseconds: int) -> _Error | None:
        return producer.end(milliseconds / 1000, commits=True)

    def rd_kafka_abort_transaction(self, producer: SimulatedProducer, milliseconds: int) -> _Error | None:
        return producer.end(milliseconds / 1000, commits=False)

    def rd_kafka_fatal_error(self, producer: SimulatedProducer, text: Any, size: int) -> int:
        del size
        text.value = b"fenced"
        return producer.fatal.code if producer.fatal is not None else 0

    def rd_kafka_topic_partition_list_new(self, size: int) -> list[Any]:
        del size
        return []

    def rd_kafka_topic_partition_list_add(self, offsets: list[Any], topic: bytes, partition: int) -> Any:
        offsets.append(SimpleNamespace(contents=SimpleNamespace(topic=topic.decode(), partition=partition)))
        return offsets[-1]

    def rd_kafka_topic_partition_list_destroy(self, offsets: list[Any]) -> None:
        offsets.clear()

    def rd_kafka_consumer_group_metadata_new(self, group: bytes) -> str:
        return group.decode()

    def rd_kafka_consumer_group_metadata_destroy(self, group: str) -> None:
        pass

    def rd_kafka_error_code(self, error: _Error) -> int:
        return error.code

    def rd_kafka_error_string(self, error: _Error) -> bytes:
        return KafkaError(error.code).str().encode()

    def rd_kafka_error_is_retriable(self, error: _Error) -> bool:
        return error.retriable

    def rd_kafka_error_txn_requires_abort(self, error: _Error) -> bool:
        return error.abortable

    def rd_kafka_error_destroy(self, error: _Error) -> None:
        pass


class _ClosedLibrary:
    """Stands for the functions in a closed producer."""

    def __getattr__(self, name: str) -> Any:
        raise ProducerError(f"{name} cannot be called, because the producer was closed")


_LIBRARY = _Library()
_CLOSED = _ClosedLibrary()


class SimulatedProducer(TransactionalProducer):
    """A transactional producer without librdkafka: it keeps librdkafka's state, and makes its requests.

    Attributes:
        fatal: Why it has failed for good; None if it works.
    """

    def __init__(self, settings: Mapping[str, str], *, reports_offsets: bool = False) -> None:
        del reports_offsets
        self.id = settings["transactional.id"]
        self._timeout = int(settings["transaction.timeout.ms"]) / 1000
        self._lib, self._handle = _LIBRARY, self  # type: ignore[assignment]
        self.fatal: _Error | None = None
        self.failed, self.failure, self.last_error = 0, None, ""
        self.offsets, self.known_topics, self.partition_counts = {}, set(), {}
        self._closed = False
        self._producer, self._epoch = -1, -1
        self._begun = self._must_abort = False
        self._added: set[object] = set()
        self._queue: dict[tuple[str, int], list[tuple[bytes | None, bytes | None]]] = {}
        self._sequences: dict[tuple[str, int], int] = {}
        self._cut_off = 0.0
        self._answer: Any = None

    # What librdkafka does

    def acquire(self, seconds: float) -> _Error | None:
        """Acquire the transactional id."""
        error = self._request("init", seconds, partial(Coordinator.current.init_producer, self.id, self._timeout))
        if error is None:
            self._producer, self._epoch = self._answer
        return error

    def begin_transaction(self) -> _Error | None:
        """Begin a transaction; the coordinator does not learn of it before something is added."""
        return self.fatal

    def store_offset(
        self, group: str, partition: tuple[str, int], offset: int, metadata: str, seconds: float
    ) -> _Error | None:
        """Store an offset of a group in the transaction."""
        coordinator, who = Coordinator.current, (self.id, self._producer, self._epoch)
        if group not in self._added:
            error = self._request("add group", seconds, partial(coordinator.add_group, *who, group))
            if error is not None:
                return error
            self._added.add(group)
        return self._request(
            "store token", seconds, partial(coordinator.commit_offset, *who, group, partition, offset, metadata)
        )

    def end(self, seconds: float, *, commits: bool) -> _Error | None:
        """Commit or abort the transaction."""
        if self.fatal is not None:
            return self.fatal
        if commits and (self._must_abort or self.failed):
            return _Error(int(KafkaError._STATE), abortable=True)
        if not self._added:
            return None
        who = (self.id, self._producer, self._epoch)
        error = self._request(
            "commit" if commits else "abort", seconds, partial(Coordinator.current.end, *who, commits=commits)
        )
        if error is None:
            self._added.clear()
            self._queue.clear()
            self._must_abort = False
        return error

    def _request(self, place: str, seconds: float, effect: Callable[[], object]) -> _Error | None:
        """Make a request until it is answered, refused, or the time is over."""
        world = World.current
        if self.fatal is not None:
            return self.fatal
        until, pause = world.now + seconds, 0.02
        while True:
            if world.now < self._cut_off:
                world.sleep(min(self._cut_off, until) - world.now)
            if world.now >= until:
                return _Error(_TIMED_OUT, retriable=True)
            try:
                self._answer = world.request(place, effect, _fail, late=True)
            except _UnansweredError:
                self.last_error = "request timed out"
                self._cut_off = world.now + _OUTAGES[world.decisions.choose(len(_OUTAGES))]
            except CoordinatorError as e:
                if e.code in FENCED:
                    self.fatal = _Error(_FATAL)
                    return self.fatal
                if e.code not in _WAITING:
                    self._must_abort = True
                    return _Error(e.code, abortable=True)
            else:
                return None
            world.sleep(pause)
            pause = min(8.0, pause * 3)

    # What the Python class of kdsl does with other functions of librdkafka

    def reset(self) -> None:
        """Forget failures of earlier tasks; a producer that has failed for good raises its error."""
        self.poll()
        self.failed, self.failure, self.last_error, self.offsets = 0, None, "", {}

    def poll(self, milliseconds: int = 0) -> None:
        """Wait."""
        if self._closed:
            raise ProducerError("the producer was closed")
        if milliseconds:
            World.current.sleep(milliseconds / 1000)

    def _look_up(self, topic: str, milliseconds: int) -> int:
        del milliseconds
        known = Coordinator.current.broker.topics.get(topic)
        if known is None:
            return int(KafkaError.UNKNOWN_TOPIC_OR_PART)
        self.partition_counts[topic] = len(known.logs)
        return 0

    def queue(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> None:
        """Queue a record."""
        self._queue.setdefault((topic, partition), []).append((key, value))

    def send(self, topic: str, records: Any, rows: Any) -> None:
        """Queue records of an Arrow batch in partition 0."""
        del rows
        for key, value in zip(records.column("key").to_pylist(), records.column("value").to_pylist(), strict=True):
            self.queue(topic, 0, key, value)

    def flush(self, timeout: float | None = None) -> int:
        """Send the queued records, and wait for the answers, or for the first failure."""
        del timeout
        coordinator, who = Coordinator.current, (self.id, self._producer, self._epoch)
        for partition, records in self._queue.items():
            if not records:
                continue
            error = None
            if partition not in self._added:
                error = self._request(
                    "add partition", self._timeout, partial(coordinator.add_partition, *who, partition)
                )
                self._added.add(partition)
            sequence = self._sequences.get(partition, 0)
            if error is None:
                produce = partial(coordinator.produce, *who, partition, sequence, list(records))
                error = self._request("produce", self._timeout, produce)
            if error is not None:
                self.failed += len(records)
                self.failure = Failure(error.code, KafkaError(error.code).str(), partition[0], partition[1], 0, 0)
                return 0
            self._sequences[partition] = sequence + 1
            records.clear()
        return 0

    def abandon(self) -> None:
        """Discard what is queued, and close the producer."""
        self._queue.clear()
        self.close()

    def close(self) -> None:
        """Close the producer."""
        self._closed, self._lib = True, _CLOSED


class SimulatedGroupOffsets:
    """Reads the committed offsets of groups."""

    def __init__(self, cluster: object) -> None:
        del cluster

    def read(self, group: str, timeout: float, *, stable: bool) -> tuple[int, list[CommittedOffset]]:
        """Read all offsets of a group; return a code of `confluent_kafka.KafkaError`, and the offsets."""
        world = World.current
        place = "read token" if stable else "look at token"
        try:
            answer = world.request(place, partial(Coordinator.current.read_offsets, group, stable=stable), _fail)
        except _UnansweredError:
            world.sleep(timeout)
            return _TIMED_OUT, []
        except CoordinatorError as e:
            return e.code, []
        return 0, [(partition, one.offset, one.metadata) for partition, one in answer.items()]


def _init_admin(self: LibrdkafkaAdmin, cluster: Any, table: str, *, answered: bool = False) -> None:
    del answered
    status = ClientStatus(table, cluster.bootstrap_servers, answered=True)
    vars(self).update(_cluster=cluster, _table=table, _timeout=60.0, _requests=SimpleNamespace(status=status))


def _init_token_admin(self: TokenAdmin, cluster: Any, table: str) -> None:
    _init_admin(self, cluster, table)
    vars(self).update(_offsets_of=SimulatedGroupOffsets(cluster))


def _ask(place: str, effect: Callable[[], Any]) -> Any:
    """Make a request of the admin client, which repeats it until it is answered."""
    world = World.current
    while True:
        try:
            return world.request(place, effect, _fail)
        except _UnansweredError:
            world.sleep(1.0)


def _groups(self: LibrdkafkaAdmin) -> list[str]:
    del self
    answer: list[str] = _ask("list groups", Coordinator.current.list_groups)
    return answer


def _names(self: LibrdkafkaAdmin, *, internal: bool = False) -> list[str]:
    del self, internal
    return sorted(Coordinator.current.broker.topics)


def _existing_topics(self: LibrdkafkaAdmin, names: Iterable[str]) -> dict[str, Topic]:
    del self
    known = Coordinator.current.broker.topics
    return {name: Topic(known[name].id, len(known[name].logs)) for name in names if name in known}


def _members(self: LibrdkafkaAdmin, group: str, timeout: float | None = None) -> tuple[Member, ...]:
    del self, timeout
    members = _ask("members", partial(Coordinator.current.members, group))
    return tuple(Member(member.client, "host", member.id) for member in members)


def _settings(self: TokenAdmin, names: Iterable[str]) -> dict[str, int]:
    del self
    known = {TIMEOUT: coordinator.MAX_TIMEOUT_MS, RETENTION: int(coordinator.RETENTION / 60)}
    return {name: known[name] for name in names if name in known}


def _topic_settings(self: LibrdkafkaAdmin, topic: str) -> dict[str, str]:
    del self
    known = Coordinator.current.broker.topics.get(topic)
    return {} if known is None else {"cleanup.policy": "compact" if known.compacted else "delete"}


def _replicas(self: TokenAdmin, topic: str) -> int:
    del self
    return int(topic in Coordinator.current.broker.topics)


def _open_admin(pid: int, cluster: Any, table: str) -> TokenAdmin:
    """A client for tokens, which has no state."""
    del pid
    return TokenAdmin(cluster, table)


def client_substitutes() -> Substitutes:
    """Let kdsl's modules use this module's producers and admin clients."""
    return [
        (task, "TransactionalProducer", SimulatedProducer),
        (task, "_open_admin", _open_admin),
        (token_store, "GroupOffsets", SimulatedGroupOffsets),
        (group_offsets, "GroupOffsets", SimulatedGroupOffsets),
        (LibrdkafkaAdmin, "__init__", _init_admin),
        (LibrdkafkaAdmin, "groups", _groups),
        (LibrdkafkaAdmin, "names", _names),
        (LibrdkafkaAdmin, "_existing_topics", _existing_topics),
        (LibrdkafkaAdmin, "members", _members),
        (LibrdkafkaAdmin, "topic_settings", _topic_settings),
        (TokenAdmin, "__init__", _init_token_admin),
        (TokenAdmin, "settings", _settings),
        (TokenAdmin, "replicas", _replicas),
    ]
