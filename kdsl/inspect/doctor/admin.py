"""What doctor asks a cluster beyond what a read asks: settings, rights, members."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

import attrs
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclOperation,  # pyright: ignore[reportPrivateImportUsage]
    AdminClient,
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from kdsl.client.bootstrap import Address
from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.run.cluster.brokers import PASSING, topic_id

V = TypeVar("V")

ANSWER = 10.0
"""How long an answer may take, in seconds."""


@attrs.frozen
class Partition:
    """A partition as the cluster has it now.

    Attributes:
        id: Its number.
        leader: The broker that leads it; None where there is none.
        replicas: How many copies it should have.
        in_sync: How many copies are complete.
    """

    id: int
    leader: int | None
    replicas: int
    in_sync: int


@attrs.frozen
class TopicState:
    """A topic as the cluster has it now.

    Attributes:
        id: Its id; empty where the brokers are older than topic ids (2.8).
        partitions: Its partitions.
        rights: What this user may do with it; None where the brokers do not tell.
    """

    id: str
    partitions: tuple[Partition, ...]
    rights: frozenset[str] | None


class NotToldError(KdslError):
    """The cluster did not answer a question; the text says why.

    Attributes:
        code: Why, as a number of `confluent_kafka.KafkaError`; None where the client gives none.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Admin:
    """The questions of doctor to a cluster that lets this client in.

    Args:
        cluster: The cluster.
    """

    def __init__(self, cluster: Cluster) -> None:
        settings: dict[str, Any] = {**cluster.admin({"log_level": 0}), "error_cb": lambda _: None}
        self._client = AdminClient(settings)

    def brokers(self) -> dict[int, Address]:
        """The advertised address of each broker, by its id."""
        metadata = _told(lambda: self._client.list_topics(timeout=ANSWER))
        return {broker.id: Address(str(broker.host), int(broker.port)) for broker in metadata.brokers.values()}

    def topics(self, names: Iterable[str]) -> dict[str, TopicState | NotToldError]:
        """The topics, or why nothing is told of one."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        futures = self._client.describe_topics(
            TopicCollection(wanted), include_authorized_operations=True, request_timeout=ANSWER
        )
        found: dict[str, TopicState | NotToldError] = {}
        for name, future in futures.items():
            try:
                found[name] = _topic(_result(future))
            except NotToldError as e:
                found[name] = e
        return found

    def topic_settings(self, name: str) -> dict[str, str]:
        """The settings of a topic, the brokers' defaults among them."""
        return self._settings(ResourceType.TOPIC, name)

    def broker_settings(self, node: int) -> dict[str, str]:
        """The settings of a broker."""
        return self._settings(ResourceType.BROKER, str(node))

    def group(self, name: str) -> tuple[list[str], frozenset[str] | None]:
        """The members of a consumer group (client id and host), and what this user may do with it."""
        until = time.monotonic() + ANSWER
        while True:
            (future,) = self._client.describe_consumer_groups(
                [name], include_authorized_operations=True, request_timeout=ANSWER
            ).values()
            try:
                found = _result(future)
                break
            except NotToldError as e:
                if e.code == KafkaError.GROUP_ID_NOT_FOUND:
                    return [], None
                if e.code not in PASSING or time.monotonic() > until:
                    raise
                time.sleep(0.1)  # a coordinator that is being found
        members = [f"{member.client_id} on {member.host.lstrip('/')}" for member in found.members]
        return members, _rights(found.authorized_operations)

    def _settings(self, kind: ResourceType, name: str) -> dict[str, str]:
        (future,) = self._client.describe_configs([ConfigResource(kind, name)], request_timeout=ANSWER).values()
        return {key: entry.value for key, entry in _result(future).items() if entry.value is not None}


def _topic(described: Any) -> TopicState:
    partitions = tuple(
        Partition(p.id, None if p.leader is None or p.leader.id < 0 else p.leader.id, len(p.replicas), len(p.isr))
        for p in described.partitions
    )
    return TopicState(topic_id(described.topic_id), partitions, _rights(described.authorized_operations))


def _rights(operations: Iterable[AclOperation] | None) -> frozenset[str] | None:
    return None if operations is None else frozenset(operation.name for operation in operations)


def _result(future: Future[V]) -> V:
    return _told(lambda: future.result(ANSWER + 1))


def _told(ask: Callable[[], V]) -> V:
    try:
        return ask()
    except TimeoutError:
        raise NotToldError(f"no answer within {ANSWER:g} s") from None
    except KafkaException as e:
        told = e.args[0]
        if isinstance(told, KafkaError):
            raise NotToldError(f"{told.str()} ({told.name()})", told.code()) from e
        raise NotToldError(str(told)) from e


Settings = Mapping[str, str]

__all__ = ["ANSWER", "Admin", "NotToldError", "Partition", "Settings", "TopicState"]
