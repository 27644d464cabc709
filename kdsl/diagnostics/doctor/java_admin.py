"""Asks a cluster with Java's admin client, if only that can log in."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError

from kdsl.client_settings.bootstrap import Address
from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import needs_jvm, open_admin
from kdsl.diagnostics.doctor.admin import (
    Config,
    GroupState,
    Inspector,
    LibrdkafkaInspector,
    NotAnsweredError,
    Partition,
    TopicState,
    recognize_missing_groups,
)
from kdsl.errors import KafkaReadError, TopicMissingError
from kdsl.run.admin.cluster_admin import ClusterAdmin, topic_id

if TYPE_CHECKING:
    from kdsl.run.admin.java_admin import JavaAdmin

V = TypeVar("V")


def open_inspector(cluster: Cluster, who: str) -> Inspector:
    """Open a client for doctor's questions: librdkafka's, or Java's (in a Spark session) if only that can log in.

    Args:
        cluster: The cluster.
        who: The asking command, for messages.
    """
    return inspect_with(open_admin(cluster, who), cluster) if needs_jvm(cluster) else LibrdkafkaInspector(cluster)


def inspect_with(admin: ClusterAdmin, cluster: Cluster) -> Inspector:
    """Create the inspector of a cluster that uses the same library as an admin client of it.

    Java's client itself is used; for librdkafka another client is created, and ResolveError raised if the settings have
    errors.
    """
    from kdsl.run.admin.java_admin import JavaAdmin

    return JavaInspector(admin) if isinstance(admin, JavaAdmin) else LibrdkafkaInspector(cluster)


class JavaInspector:
    """Asks a cluster with Java's admin client; see `Inspector`.

    Args:
        admin: The admin client of the cluster.
    """

    def __init__(self, admin: JavaAdmin) -> None:
        self._admin, self._client, self._jvm = admin, admin.client, admin.jvm

    def brokers(self) -> dict[int, Address]:
        """Ask for the advertised address of each broker, by its id; see `Inspector.brokers`."""
        nodes = self._result(self._client.describeCluster().nodes(), "the cluster")
        return {int(node.id()): Address(str(node.host()), int(node.port())) for node in self._admin.elements(nodes)}

    def topics(self, names: Iterable[str]) -> dict[str, TopicState | NotAnsweredError]:
        """Ask for the state of each topic, or why the cluster does not report it; see `Inspector.topics`."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        options = self._package.DescribeTopicsOptions().includeAuthorizedOperations(True)
        futures = self._client.describeTopics(self._admin.java_list(wanted), options).topicNameValues()
        return {name: self._answer(futures.get(name), f"the topic {name!r}", _parse_topic) for name in wanted}

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, Config] | NotAnsweredError]:
        """Ask for the configs of each topic; see `Inspector.configs`."""
        config = self._jvm.org.apache.kafka.common.config.ConfigResource
        resources = {name: config(config.Type.valueOf("TOPIC"), name) for name in sorted(set(names))}
        if not resources:
            return {}
        futures = self._client.describeConfigs(self._admin.java_list(resources.values())).values()
        return {
            name: self._answer(futures.get(resource), f"the configs of {name!r}", self._parse_configs)
            for name, resource in resources.items()
        }

    def groups(self, names: Iterable[str]) -> dict[str, GroupState | NotAnsweredError]:
        """Ask for the state of each consumer group; see `Inspector.groups`."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        options = self._package.DescribeConsumerGroupsOptions().includeAuthorizedOperations(True)
        futures = self._client.describeConsumerGroups(self._admin.java_list(wanted), options).describedGroups()
        return recognize_missing_groups(
            {name: self._answer(futures.get(name), f"the group {name!r}", self._parse_group) for name in wanted}
        )

    def _parse_configs(self, described: Any) -> dict[str, Config]:
        """Convert Java's configs of a topic; a sensitive one has no value."""
        return {
            str(entry.name()): Config(
                None if entry.value() is None or entry.isSensitive() else str(entry.value()),
                str(entry.source().name()) == "DYNAMIC_TOPIC_CONFIG",
            )
            for entry in self._admin.elements(described.entries())
        }

    def _parse_group(self, described: Any) -> GroupState:
        """Convert Java's description of a group; a dead one does not exist."""
        members = tuple(
            f"{member.clientId()} on {str(member.host()).lstrip('/')}"
            for member in self._admin.elements(described.members())
        )
        exists = str(described.state().name()) != "DEAD"
        return GroupState(members, _name_rights(described.authorizedOperations()), exists)

    @property
    def _package(self) -> Any:
        """The Java package of the admin client, through py4j."""
        return self._jvm.org.apache.kafka.clients.admin

    def _answer(self, future: Any, what: str, parse: Callable[[Any], V]) -> V | NotAnsweredError:
        """Wait for a future of Java and parse its result; return the error instead of raising it."""
        try:
            return parse(self._result(future, what))
        except NotAnsweredError as e:
            return e

    def _result(self, future: Any, what: str) -> Any:
        """Wait for a future of Java."""
        return _convert_errors(lambda: self._admin.result(future, what))


def _convert_errors(ask: Callable[[], V]) -> V:
    """Call a function of the client, and return its result."""
    from kdsl.run.admin.java_admin import GroupMissingError

    try:
        return ask()
    except TopicMissingError as e:
        raise NotAnsweredError(str(e), KafkaError.UNKNOWN_TOPIC_OR_PART) from e
    except GroupMissingError as e:
        raise NotAnsweredError(str(e), KafkaError.GROUP_ID_NOT_FOUND) from e
    except KafkaReadError as e:
        raise NotAnsweredError(str(e)) from e


def _parse_topic(described: Any) -> TopicState:
    """Convert Java's description of an existing topic: its id, partitions and the rights of this user."""
    partitions = []
    for one in described.partitions():
        leader = one.leader()
        node = None if leader is None or leader.isEmpty() else int(leader.id())
        partitions.append(Partition(int(one.partition()), node, one.replicas().size(), one.isr().size()))
    return TopicState(
        topic_id(str(described.topicId())), tuple(partitions), _name_rights(described.authorizedOperations())
    )


def _name_rights(operations: Any) -> frozenset[str] | None:
    """Return the names of Java's operations; None if the cluster does not report them."""
    return None if operations is None else frozenset(str(operation.name()) for operation in operations)
