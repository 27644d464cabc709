"""What doctor asks a cluster: brokers, topics and their settings, members of groups, and the rights of this user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

import attrs
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from kdsl.client_settings.bootstrap import Address
from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.retry import Deadline, retry
from kdsl.run.admin.cluster_admin import topic_id
from kdsl.run.admin.errors import RETRIABLE

V = TypeVar("V")

ANSWER = 10.0
"""How long an answer may take, in seconds."""


@attrs.frozen
class Partition:
    """The current state of a partition.

    Attributes:
        id: Its number.
        leader: The broker that leads it; None if there is none.
        replicas: How many copies it should have.
        in_sync: How many copies are complete.
    """

    id: int
    leader: int | None
    replicas: int
    in_sync: int


@attrs.frozen
class TopicState:
    """The current state of a topic.

    Attributes:
        id: Its id; empty if the brokers are older than topic ids (2.8).
        partitions: Its partitions.
        rights: What this user may do with it; None if the brokers do not report it.
    """

    id: str
    partitions: tuple[Partition, ...]
    rights: frozenset[str] | None


class NotAnsweredError(KdslError):
    """The cluster did not answer a question; the message contains the reason.

    Attributes:
        code: The code of `confluent_kafka.KafkaError`; None if the client gives none.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Inspector(Protocol):
    """Asks a cluster about its state; each method raises a `NotAnsweredError` if there is no answer."""

    def brokers(self) -> dict[int, Address]:
        """Ask for the advertised address of each broker, by its id.

        Raises:
            NotAnsweredError: The cluster does not report it.
        """
        ...

    def topics(self, names: Iterable[str]) -> dict[str, TopicState | NotAnsweredError]:
        """Ask for the state of each topic, or why the cluster does not report it."""
        ...

    def topic_settings(self, name: str) -> dict[str, str]:
        """Ask for the settings of a topic, including the brokers' defaults.

        Raises:
            NotAnsweredError: The cluster does not report them.
        """
        ...

    def group(self, name: str) -> tuple[list[str], frozenset[str] | None]:
        """Ask for the members of a consumer group (client id and host), and what this user may do with it.

        A group that does not exist has no members; the rights are None if the cluster does not report them.

        Raises:
            NotAnsweredError: The cluster does not report the group.
        """
        ...


class LibrdkafkaInspector:
    """Asks a cluster with librdkafka's admin client; see `Inspector`.

    Args:
        cluster: The cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        settings: dict[str, Any] = {**cluster.admin({"log_level": 0}), "error_cb": lambda _: None}
        self._client = AdminClient(settings)

    def brokers(self) -> dict[int, Address]:
        """Ask for the advertised address of each broker, by its id; see `Inspector.brokers`."""
        metadata = _convert_errors(lambda: self._client.list_topics(timeout=ANSWER))
        return {broker.id: Address(str(broker.host), int(broker.port)) for broker in metadata.brokers.values()}

    def topics(self, names: Iterable[str]) -> dict[str, TopicState | NotAnsweredError]:
        """Ask for the state of each topic, or why the cluster does not report it; see `Inspector.topics`."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self._client.describe_topics(
            TopicCollection(wanted), include_authorized_operations=True, request_timeout=ANSWER
        )
        states: dict[str, TopicState | NotAnsweredError] = {}
        for name, future in futures.items():
            try:
                states[name] = _parse_topic(_result(future))
            except NotAnsweredError as e:
                states[name] = e
        return states

    def topic_settings(self, name: str) -> dict[str, str]:
        """Ask for the settings of a topic, including the brokers' defaults; see `Inspector.topic_settings`."""
        return self._settings(name)

    def group(self, name: str) -> tuple[list[str], frozenset[str] | None]:
        """Ask for the members of a consumer group, and the rights of this user; see `Inspector.group`.

        Retriable errors are retried for `ANSWER` seconds. A group that does not exist has no members; its rights are
        None.

        Raises:
            NotAnsweredError: The cluster does not report the group.
        """

        def ask(_: float) -> Any:
            """Describe the group once; return the error instead of raising it."""
            (future,) = self._client.describe_consumer_groups(
                [name], include_authorized_operations=True, request_timeout=ANSWER
            ).values()
            try:
                return _result(future)
            except NotAnsweredError as e:
                return e

        def is_final(result: Any) -> bool:
            return not isinstance(result, NotAnsweredError) or result.code not in RETRIABLE

        group = retry(ask, is_final, Deadline(ANSWER))  # a coordinator may have to be found first
        if isinstance(group, NotAnsweredError):
            if group.code == KafkaError.GROUP_ID_NOT_FOUND:
                return [], None
            raise group
        members = [f"{member.client_id} on {member.host.lstrip('/')}" for member in group.members]
        return members, _name_rights(group.authorized_operations)

    def _settings(self, topic: str) -> dict[str, str]:
        """Ask for the settings of a topic that have a value.

        Raises:
            NotAnsweredError: The cluster does not report them.
        """
        resource = ConfigResource(ResourceType.TOPIC, topic)
        (future,) = self._client.describe_configs([resource], request_timeout=ANSWER).values()
        return {key: entry.value for key, entry in _result(future).items() if entry.value is not None}


def _parse_topic(described: Any) -> TopicState:
    """Convert the client's description of a topic."""
    partitions = tuple(
        Partition(p.id, None if p.leader is None or p.leader.id < 0 else p.leader.id, len(p.replicas), len(p.isr))
        for p in described.partitions
    )
    return TopicState(topic_id(described.topic_id), partitions, _name_rights(described.authorized_operations))


def _name_rights(operations: Iterable[AclOperation] | None) -> frozenset[str] | None:
    """Return the names of operations; None if the cluster does not report them."""
    return None if operations is None else frozenset(operation.name for operation in operations)


def _result(future: Future[V]) -> V:
    """Wait for a future.

    Raises:
        NotAnsweredError: It fails or takes too long.
    """
    return _convert_errors(lambda: future.result(ANSWER + 1))


def _convert_errors(ask: Callable[[], V]) -> V:
    """Call a function of the client, and return its result.

    Raises:
        NotAnsweredError: It fails or takes too long.
    """
    try:
        return ask()
    except TimeoutError:
        raise NotAnsweredError(f"no answer within {ANSWER:g} s") from None
    except KafkaException as e:
        kafka_error = e.args[0]
        if isinstance(kafka_error, KafkaError):
            raise NotAnsweredError(f"{kafka_error.str()} ({kafka_error.name()})", kafka_error.code()) from e
        raise NotAnsweredError(str(kafka_error)) from e


Settings = Mapping[str, str]

__all__ = ["ANSWER", "Inspector", "LibrdkafkaInspector", "NotAnsweredError", "Partition", "Settings", "TopicState"]
