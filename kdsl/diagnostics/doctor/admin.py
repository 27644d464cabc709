"""What doctor asks a cluster: brokers, topics and their settings, members of groups, and the rights of this user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from typing import Any, Protocol, TypeVar

import attrs
from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,  # pyright: ignore[reportPrivateImportUsage]
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    ConfigSource,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from kdsl.client_settings.bootstrap import Address
from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.retry import Deadline, retry
from kdsl.run.admin.admin_client import SafeAdminClient
from kdsl.run.admin.cluster_admin import topic_id
from kdsl.run.admin.errors import RETRIABLE
from kdsl.run.admin.group_offsets import COORDINATOR_TIMEOUT

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


@attrs.frozen
class Config:
    """The value of a topic's config.

    Attributes:
        value: The value; None if it has none, or is a secret.
        overridden: Whether it is set for the topic itself, and not a default.
    """

    value: str | None
    overridden: bool = False


@attrs.frozen
class GroupState:
    """The current state of a consumer group.

    Attributes:
        members: Its members: client id and host.
        rights: What this user may do with it; None if the brokers do not report it.
        exists: Whether there is such a group.
    """

    members: tuple[str, ...] = ()
    rights: frozenset[str] | None = None
    exists: bool = True


NO_GROUP = GroupState(exists=False)


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
        """Ask for the advertised address of each broker, by its id."""
        ...

    def topics(self, names: Iterable[str]) -> dict[str, TopicState | NotAnsweredError]:
        """Ask for the state of each topic, or why the cluster does not report it; such an error is not raised."""
        ...

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, Config] | NotAnsweredError]:
        """Ask for the configs of each topic, including the brokers' defaults, or why the cluster does not report them.

        All topics are in one request.
        """
        ...

    def groups(self, names: Iterable[str]) -> dict[str, GroupState | NotAnsweredError]:
        """Ask for the state of each consumer group, or why the cluster does not report it.

        A group that does not exist has no members.
        """
        ...


def topic_settings(inspector: Inspector, name: str) -> dict[str, str]:
    """Ask for the configs of a topic that have a value, including the brokers' defaults."""
    configs = inspector.configs([name])[name]
    if isinstance(configs, NotAnsweredError):
        raise configs
    return {key: config.value for key, config in configs.items() if config.value is not None}


class LibrdkafkaInspector:
    """Asks a cluster with librdkafka's admin client; see `Inspector`.

    Args:
        cluster: The cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        """Create the client, without asking a broker."""
        settings: dict[str, Any] = {**cluster.admin({"log_level": 0}), "error_cb": lambda _: None}
        self._client = SafeAdminClient(settings)

    def brokers(self) -> dict[int, Address]:
        """Ask for the advertised address of each broker, by its id; see `Inspector.brokers`."""
        metadata = _convert_errors(lambda: self._client.list_topics(timeout=ANSWER))
        return {broker.id: Address(str(broker.host), int(broker.port)) for broker in metadata.brokers.values()}

    def topics(self, names: Iterable[str]) -> dict[str, TopicState | NotAnsweredError]:
        """Ask for the state of each topic, or why the cluster does not report it; see `Inspector.topics`.

        That the cluster cannot be reached is such a reason, too, for each topic.
        """
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self._client.describe_topics(
            TopicCollection(wanted), include_authorized_operations=True, request_timeout=ANSWER
        )
        return {name: _answer(future, _parse_topic) for name, future in futures.items()}

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, Config] | NotAnsweredError]:
        """Ask for the configs of each topic; see `Inspector.configs`."""
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(set(names))]
        if not resources:
            return {}
        futures = self._client.describe_configs(resources, request_timeout=ANSWER)
        return {str(resource.name): _answer(future, _parse_configs) for resource, future in futures.items()}

    def groups(self, names: Iterable[str]) -> dict[str, GroupState | NotAnsweredError]:
        """Ask for the state of each consumer group; see `Inspector.groups`.

        Groups with retriable errors are asked for again, for `ANSWER` seconds.
        """
        states: dict[str, GroupState | NotAnsweredError] = {}

        def ask(_: float) -> list[str]:
            open_names = sorted(set(names) - states.keys()) or retriable()
            futures = self._client.describe_consumer_groups(
                open_names, include_authorized_operations=True, request_timeout=COORDINATOR_TIMEOUT
            )
            wait(futures.values(), ANSWER)
            states.update({name: _answer(future, _parse_group, 0) for name, future in futures.items()})
            return retriable()

        def retriable() -> list[str]:
            return [n for n, s in states.items() if isinstance(s, NotAnsweredError) and s.code in RETRIABLE]

        if set(names):
            retry(ask, lambda remaining: not remaining, Deadline(ANSWER))  # a coordinator may have to be found first
        return recognize_missing_groups(states)


def recognize_missing_groups(
    states: Mapping[str, GroupState | NotAnsweredError],
) -> dict[str, GroupState | NotAnsweredError]:
    """Return the states of groups, with `NO_GROUP` for the answer of newer brokers that there is no such group."""
    missing = KafkaError.GROUP_ID_NOT_FOUND
    return {
        name: NO_GROUP if isinstance(state, NotAnsweredError) and state.code == missing else state
        for name, state in states.items()
    }


def _answer(future: Future[Any], parse: Callable[[Any], V], seconds: float = ANSWER + 1) -> V | NotAnsweredError:
    """Wait for a future and parse its result; return the error instead of raising it."""
    try:
        return parse(_result(future, seconds))
    except NotAnsweredError as e:
        return e


def _parse_configs(entries: Mapping[str, Any]) -> dict[str, Config]:
    """Convert the client's configs of a topic, by name; sensitive values become None."""
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG
    return {
        key: Config(None if entry.is_sensitive else entry.value, entry.source in (own, own.value))
        for key, entry in entries.items()
    }


def _parse_group(group: Any) -> GroupState:
    """Convert the client's description of a group; a dead one does not exist."""
    members = tuple(f"{member.client_id} on {member.host.lstrip('/')}" for member in group.members)
    return GroupState(members, _name_rights(group.authorized_operations), group.state != ConsumerGroupState.DEAD)


def _parse_topic(described: Any) -> TopicState:
    """Convert the client's description of an existing topic: its id, partitions and the rights of this user."""
    partitions = tuple(
        Partition(p.id, None if p.leader is None or p.leader.id < 0 else p.leader.id, len(p.replicas), len(p.isr))
        for p in described.partitions
    )
    return TopicState(topic_id(described.topic_id), partitions, _name_rights(described.authorized_operations))


def _name_rights(operations: Iterable[AclOperation] | None) -> frozenset[str] | None:
    """Return the names of operations; None if the cluster does not report them."""
    return None if operations is None else frozenset(operation.name for operation in operations)


def _result(future: Future[V], seconds: float = ANSWER + 1) -> V:
    """Wait for a future, for some seconds."""
    return _convert_errors(lambda: future.result(seconds))


def _convert_errors(ask: Callable[[], V]) -> V:
    """Call a function of the client, and return its result."""
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

__all__ = [
    "ANSWER",
    "NO_GROUP",
    "Config",
    "GroupState",
    "Inspector",
    "LibrdkafkaInspector",
    "NotAnsweredError",
    "Partition",
    "Settings",
    "TopicState",
    "topic_settings",
]
