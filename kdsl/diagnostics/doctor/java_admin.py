"""The questions of doctor to a cluster that only Java's client can log in to; the answers are those of `Admin`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import KafkaError

from kdsl.client_settings.bootstrap import Address
from kdsl.cluster import Cluster
from kdsl.diagnostics.clients import needs_jvm, open_admin as open_client
from kdsl.diagnostics.doctor.admin import Admin, NotAnsweredError, Partition, TopicState
from kdsl.errors import KafkaReadError, TopicMissingError
from kdsl.run.admin.cluster_admin import topic_id
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin

if TYPE_CHECKING:
    from kdsl.run.admin.java_admin import JavaAdmin

V = TypeVar("V")


def open_admin(cluster: Cluster, who: str) -> Admin | JavaInspector:
    """Open the client for doctor's questions: librdkafka's, or Java's if only that can log in.

    Args:
        cluster: The cluster.
        who: What asks, for messages.
    """
    brokers = open_client(cluster, who) if needs_jvm(cluster) else None
    return Admin(cluster) if brokers is None or isinstance(brokers, LibrdkafkaAdmin) else JavaInspector(brokers)


class JavaInspector:
    """Asks a cluster by Java's admin client.

    Args:
        brokers: The admin client of the cluster.
    """

    def __init__(self, brokers: JavaAdmin) -> None:
        self._brokers, self._client, self._jvm = brokers, brokers.client, brokers.jvm

    def brokers(self) -> dict[int, Address]:
        """The advertised address of each broker, by its id."""
        nodes = self._result(self._client.describeCluster().nodes(), "the cluster")
        return {int(node.id()): Address(str(node.host()), int(node.port())) for node in self._brokers.elements(nodes)}

    def topics(self, names: Iterable[str]) -> dict[str, TopicState | NotAnsweredError]:
        """The state of each topic, or why the cluster does not report it."""
        wanted = sorted(set(names))
        if not wanted:
            return {}
        options = self._admin.DescribeTopicsOptions().includeAuthorizedOperations(True)
        futures = self._client.describeTopics(self._brokers.java_list(wanted), options).topicNameValues()
        states: dict[str, TopicState | NotAnsweredError] = {}
        for name in wanted:
            try:
                states[name] = _topic(self._result(futures.get(name), f"the topic {name!r}"))
            except NotAnsweredError as e:
                states[name] = e
        return states

    def topic_settings(self, name: str) -> dict[str, str]:
        """The settings of a topic, the brokers' defaults among them."""
        return self._settings("TOPIC", name)

    def broker_settings(self, node: int) -> dict[str, str]:
        """The settings of a broker."""
        return self._settings("BROKER", str(node))

    def group(self, name: str) -> tuple[list[str], frozenset[str] | None]:
        """The members of a consumer group (client id and host), and what this user may do with it."""
        options = self._admin.DescribeConsumerGroupsOptions().includeAuthorizedOperations(True)
        futures = self._client.describeConsumerGroups(self._brokers.java_list([name]), options).describedGroups()
        try:
            description = self._result(futures.get(name), f"the group {name!r}")
        except NotAnsweredError as e:
            if e.code == KafkaError.GROUP_ID_NOT_FOUND:
                return [], None
            raise
        members = [
            f"{member.clientId()} on {str(member.host()).lstrip('/')}"
            for member in self._brokers.elements(description.members())
        ]
        return members, _rights(description.authorizedOperations())

    @property
    def _admin(self) -> Any:
        return self._jvm.org.apache.kafka.clients.admin

    def _settings(self, kind: str, name: str) -> dict[str, str]:
        config = self._jvm.org.apache.kafka.common.config.ConfigResource
        resource = config(config.Type.valueOf(kind), name)
        future = self._client.describeConfigs(self._brokers.java_list([resource])).values().get(resource)
        entries = self._result(future, f"the settings of {name!r}").entries()
        return {
            str(entry.name()): str(entry.value())
            for entry in self._brokers.elements(entries)
            if entry.value() is not None
        }

    def _result(self, future: Any, what: str) -> Any:
        return _convert_errors(lambda: self._brokers.result(future, what))


def _convert_errors(ask: Callable[[], V]) -> V:
    from kdsl.run.admin.java_admin import GroupMissingError

    try:
        return ask()
    except TopicMissingError as e:
        raise NotAnsweredError(str(e), KafkaError.UNKNOWN_TOPIC_OR_PART) from e
    except GroupMissingError as e:
        raise NotAnsweredError(str(e), KafkaError.GROUP_ID_NOT_FOUND) from e
    except KafkaReadError as e:
        raise NotAnsweredError(str(e)) from e


def _topic(described: Any) -> TopicState:
    partitions = []
    for one in described.partitions():
        leader = one.leader()
        node = None if leader is None or leader.isEmpty() else int(leader.id())
        partitions.append(Partition(int(one.partition()), node, one.replicas().size(), one.isr().size()))
    return TopicState(topic_id(str(described.topicId())), tuple(partitions), _rights(described.authorizedOperations()))


def _rights(operations: Any) -> frozenset[str] | None:
    return None if operations is None else frozenset(str(operation.name()) for operation in operations)
