"""A Kafka that runs, here or elsewhere, with the few operations that tests need."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import attrs
from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kdsl.errors import pluralize
from kdsl.retry import Deadline, retry
from kdsl.testing.errors import LocalKafkaError

_T = TypeVar("_T")

_SECONDS = 60.0
_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
_EAGER = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 250, "log_level": 0}
_MOVING = (
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError._NOENT,  # noqa: SLF001  # no leader is known
)
"""The errors for a partition until all brokers know its leader."""


@attrs.frozen
class Record:
    """A record to produce.

    Attributes:
        value: The value; a ``str`` is written as UTF-8, None makes a tombstone.
        key: The key; None for no key.
        headers: Header names with their values, in order; a name may come twice, a value may be None.
        partition: The partition; by the key if it is None, as Java's producer does it.
        timestamp: Milliseconds since the epoch; now if it is None.
    """

    value: bytes | str | None = None
    key: bytes | str | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp: int | None = None


class RunningKafka:
    """A Kafka cluster, with operations for tests.

    Args:
        bootstrap_servers: The bootstrap servers, as ``host:port,host:port``.
        client_properties: Further properties of a confluent-kafka client, as for the login.
        java_properties: The same by Java's names, as declarations contain them.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        client_properties: Mapping[str, str] | None = None,
        java_properties: Mapping[str, str] | None = None,
    ) -> None:
        self._bootstrap = bootstrap_servers
        self._login = dict(client_properties or {})
        self._java = dict(java_properties or {})
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bootstrap_servers!r})"

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap servers, as ``host:port,host:port``."""
        return self._bootstrap

    @property
    def client_properties(self) -> dict[str, str]:
        """The settings that a confluent-kafka client needs to connect, ``bootstrap.servers`` included."""
        return {"bootstrap.servers": self.bootstrap_servers, **self._login}

    @property
    def java_properties(self) -> dict[str, str]:
        """The properties of a login, by Java's names: ``Cluster(kafka.bootstrap_servers, properties=…)``."""
        return dict(self._java)

    def admin(self) -> AdminClient:
        """Return an ``AdminClient``, created once, without waiting; LocalKafkaError if `LocalKafka` is not started."""
        if self._admin is None:
            self._admin = AdminClient({**self.client_properties, **_EAGER})
        return self._admin

    def create_topic(
        self, name: str, partitions: int = 1, replication: int | None = None, config: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic, and wait until each of its partitions has a leader.

        Args:
            name: The topic.
            partitions: How many partitions it has.
            replication: How many brokers keep each partition; the broker's ``default.replication.factor`` if None.
            config: Topic settings, as ``{"cleanup.policy": "compact"}``.

        Returns:
            The name.

        Raises:
            LocalKafkaError: The broker refuses, as for a topic that exists, or does not answer; or leaders are missing
                after 60 s.
        """
        topic = NewTopic(name, partitions, -1 if replication is None else replication, config=dict(config or {}))
        with convert_errors(f"Topic {name!r} cannot be created"):
            _await_one(self.admin().create_topics([topic], operation_timeout=_SECONDS))
        self._wait_for_leaders(name, partitions)
        return name

    def create_missing(self, topics: Mapping[str, int]) -> None:
        """Create those of some topics that do not exist, as `create_topic` does; the others stay as they are.

        Args:
            topics: The number of partitions by topic.

        Raises:
            LocalKafkaError: The broker refuses or does not answer, or leaders are missing after 60 s.
        """
        for name, partitions in topics.items():
            if self._count_leaders(name) is None:
                self.create_topic(name, partitions)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until it is gone.

        Raises:
            LocalKafkaError: The broker refuses, as for a topic that does not exist, or does not answer; or it still
                exists after 60 s.
        """
        with convert_errors(f"Topic {name!r} cannot be deleted"):
            _await_one(self.admin().delete_topics([name], operation_timeout=_SECONDS))
        _wait_until(lambda: self._count_leaders(name) is None, f"Topic {name!r} still exists")

    def add_partitions(self, name: str, total: int) -> None:
        """Grow a topic to ``total`` partitions, and wait until each has a leader. `produce` then uses a new client.

        Raises:
            LocalKafkaError: The broker refuses, as for a total that is not larger than before, or does not answer; or
                leaders are missing after 60 s.
        """
        with convert_errors(f"Topic {name!r} cannot have {pluralize(total, 'partition')}"):
            _await_one(self.admin().create_partitions([NewPartitions(name, total)], operation_timeout=_SECONDS))
        self._wait_for_leaders(name, total)
        self._producer = None  # it would not look for partitions that it does not know for minutes

    def delete_records(self, name: str, before: Mapping[int, int]) -> None:
        """Delete the records of some partitions that lie before an offset.

        Args:
            name: The topic.
            before: The first offset to keep, by partition; -1 deletes all records.

        Raises:
            LocalKafkaError: The broker refuses, as for an offset beyond the end, or does not answer.
        """
        wanted = [TopicPartition(name, partition, offset) for partition, offset in before.items()]
        with convert_errors(f"Records of topic {name!r} cannot be deleted"):
            _await_all(self.admin().delete_records(wanted))

    def topic_id(self, name: str) -> str:
        """Ask for the id of a topic; a topic that is deleted and created again has another one.

        Raises:
            LocalKafkaError: There is no such topic, or the brokers do not answer.
        """
        with convert_errors(f"Topic {name!r} cannot be described"):
            described = _await_one(self.admin().describe_topics(TopicCollection([name])))
        return str(described.topic_id)

    def start_offsets(self, name: str) -> dict[int, int]:
        """Ask for the offset of the first record of each partition.

        Raises:
            LocalKafkaError: There is no such topic, or the brokers do not answer.
        """
        return self._offsets(name, _EARLIEST)

    def end_offsets(self, name: str, *, committed: bool = False) -> dict[int, int]:
        """Ask for the offset after the last record of each partition.

        Args:
            name: The topic.
            committed: The last stable offset instead, before which no transaction is open.

        Raises:
            LocalKafkaError: There is no such topic, or the brokers do not answer.
        """
        return self._offsets(name, _LATEST, committed=committed)

    def produce(self, topic: str, *records: Record | bytes | str | None) -> list[tuple[int, int]]:
        """Write records, and wait until the brokers have them.

        Args:
            topic: The topic.
            *records: The records; a plain ``bytes``, ``str`` or None is the value of one without a key.

        Returns:
            The partition and the offset of each record, in order.

        Raises:
            LocalKafkaError: A record was not accepted, as when the topic does not exist, or not within 60 s; others may
                have been written. Or a `LocalKafka` is not started.
        """
        producer = self._writer()
        placed: list[tuple[int, int]] = [(-1, -1)] * len(records)
        errors: list[KafkaError] = []
        for at, value in enumerate(records):
            record = value if isinstance(value, Record) else Record(value)

            def on_delivery(error: KafkaError | None, message: Message[bytes, bytes], at: int = at) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    placed[at] = (message.partition() or 0, message.offset() or 0)

            optional: dict[str, Any] = {"partition": record.partition, "timestamp": record.timestamp}
            while True:
                try:
                    producer.produce(
                        topic,
                        value=record.value,
                        key=record.key,
                        headers=list(record.headers),
                        on_delivery=on_delivery,
                        **{key: value for key, value in optional.items() if value is not None},
                    )
                    break
                except BufferError:
                    producer.poll(0.1)
                except KafkaException as error:
                    raise LocalKafkaError(
                        f"A record for topic {topic!r} was not accepted: {_error_text(error)}"
                    ) from error
            producer.poll(0)
        producer.flush()
        if errors:
            refused = pluralize(len(errors), "record")
            raise LocalKafkaError(f"Kafka has not accepted {refused} for topic {topic!r}: {errors[0].str()}")
        return placed

    def read(self, topic: str, *, committed: bool = True) -> list[Message[bytes, bytes]]:
        """Read all records that a topic holds now, by partition and offset.

        Args:
            topic: The topic.
            committed: Leave out records of transactions that were aborted or are open.

        Raises:
            LocalKafkaError: There is no such topic, reading fails, or no record arrives for 60 s before the end.
        """
        partitions = sorted(self._offsets(topic, _EARLIEST))
        consumer = Consumer(
            {
                **self.client_properties,
                **_EAGER,
                "group.id": "kdsl-read",  # asked for by the client, but the group is never joined
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,  # an empty answer shows the end
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed" if committed else "read_uncommitted",
            }
        )
        messages: list[Message[bytes, bytes]] = []
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
            open_ends = set(partitions)
            last = time.monotonic()
            while open_ends:
                for message in consumer.consume(10_000, timeout=0.05):
                    error = message.error()
                    if error is None:
                        messages.append(message)
                    elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                        open_ends.discard(message.partition() or 0)
                    else:
                        raise LocalKafkaError(f"Topic {topic!r} cannot be read: {error.str()}")
                    last = time.monotonic()
                if time.monotonic() - last > _SECONDS:
                    raise LocalKafkaError(
                        f"Topic {topic!r} cannot be read: no record arrived for {_SECONDS:g} s; check that its "
                        "partitions have leaders"
                    )
        finally:
            consumer.close()
        return sorted(messages, key=lambda message: (message.partition() or 0, message.offset() or 0))

    def close(self) -> None:
        """Drop the clients of the operations above; a later operation creates them again."""
        self._admin = None
        self._producer = None

    def _writer(self) -> Producer:
        """Return the producer, created at the first use; errors as `client_properties`."""
        if self._producer is None:
            self._producer = Producer(
                {
                    **self.client_properties,
                    **_EAGER,
                    "enable.idempotence": True,
                    "partitioner": "murmur2_random",  # Java's; librdkafka's own puts keys elsewhere
                    "linger.ms": 2,
                    "message.timeout.ms": int(_SECONDS * 1000),
                    "topic.metadata.propagation.max.ms": 2000,  # how long a missing topic is waited for
                }
            )
        return self._producer

    def _offsets(self, name: str, spec: OffsetSpec, *, committed: bool = False) -> dict[int, int]:
        """Ask for an offset of each partition of a topic, again while partitions move; 60 s at most."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

        def ask(_: float) -> dict[int, int] | KafkaException:
            described = _await_one(self.admin().describe_topics(TopicCollection([name])))
            wanted = {TopicPartition(name, partition.id): spec for partition in described.partitions}
            try:
                offsets = _await_all(self.admin().list_offsets(wanted, isolation_level=level))
            except KafkaException as error:
                if error.args[0].code() not in _MOVING:
                    raise
                return error
            return {p.partition: offsets[p].offset for p in sorted(offsets, key=lambda p: p.partition)}

        with convert_errors(f"Offsets of topic {name!r} cannot be read"):
            answer = retry(ask, lambda answer: isinstance(answer, dict), Deadline(_SECONDS), pause=0.02)
            if isinstance(answer, KafkaException):
                raise answer
            return answer

    def _wait_for_leaders(self, name: str, partitions: int) -> None:
        """Wait until the leaders of a topic's partitions serve, 60 s at most."""

        def serves() -> bool:
            if self._count_leaders(name) == partitions:
                # A leader is elected before it has opened its log; until then it refuses requests.
                with suppress(KafkaException, TimeoutError):
                    _await_all(self.admin().list_offsets({TopicPartition(name, p): _LATEST for p in range(partitions)}))
                    return True
            return False

        _wait_until(serves, f"Topic {name!r} has no leader")

    def _count_leaders(self, name: str) -> int | None:
        """Ask how many partitions have a leader; None if there is no such topic. LocalKafkaError for other errors."""
        with convert_errors(f"Topic {name!r} cannot be described"):
            try:
                described = _await_one(self.admin().describe_topics(TopicCollection([name])))
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return None
                raise
        return sum(1 for partition in described.partitions if partition.leader is not None and partition.leader.id >= 0)


def _await_one(futures: Mapping[Any, Future[_T]]) -> _T:
    """Wait for the single request of the admin client, and return its result; errors as in `_await_all`."""
    return next(iter(_await_all(futures).values()))


def _await_all(futures: Mapping[Any, Future[_T]]) -> dict[Any, _T]:
    """Wait for requests of the admin client, and return their results by the same keys."""
    return {key: future.result(_SECONDS) for key, future in futures.items()}


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds."""
    if not retry(lambda _: condition(), bool, Deadline(_SECONDS), pause=0.02):
        raise LocalKafkaError(f"{what} after {_SECONDS:g} s")


@contextmanager
def convert_errors(what: str) -> Iterator[None]:
    """Convert errors of the client inside a with statement.

    Raises:
        LocalKafkaError: The client had an error, or got no answer in time; ``what`` begins the message.
    """
    try:
        yield
    except KafkaException as error:
        raise LocalKafkaError(f"{what}: {_error_text(error)}") from error
    except TimeoutError as error:
        raise LocalKafkaError(f"{what}: no answer within {_SECONDS:g} s") from error


def _error_text(error: KafkaException) -> str:
    """Return the message of an error, without its code if it is one of Kafka's."""
    return str(error.args[0].str()) if error.args and isinstance(error.args[0], KafkaError) else str(error)


def topic_list(topics: Mapping[str, int] | Iterable[str]) -> dict[str, int]:
    """Return topics with their numbers of partitions; a bare name has one."""
    return dict(topics) if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
