"""The admin client of Java's Kafka client, for clusters that librdkafka cannot log in to.

It needs a classic session, whose JVM it runs in, and the connector's jars in the driver
(`kdsl.run.java_clients.jars.attach_connector`).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kdsl.callbacks import TopicPartition
from kdsl.client_settings.to_librdkafka import librdkafka_settings
from kdsl.cluster import Cluster
from kdsl.errors import KafkaReadError, KdslError, TopicMissingError
from kdsl.run.admin import errors
from kdsl.run.admin.cluster_admin import (
    FIRST_ANSWER,
    ClusterAdmin,
    OffsetAndEpoch,
    Position,
    Topic,
    topic_id,
)
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.java_clients.jars import attach_connector
from kdsl.run.java_clients.options import kafka_options
from kdsl.run.java_clients.system_properties import set_system_properties
from kdsl.spark_internals.errors import JavaError, root_cause
from kdsl.spark_internals.session import is_connect, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("kdsl.brokers")

_ERRORS = "org.apache.kafka.common.errors."
_LOGIN_ERRORS = (
    *("SaslAuthenticationException", "SslAuthenticationException", "UnsupportedSaslMechanismException"),
    *("LoginException", "FailedLoginException", "AccountException", "KrbException", "GSSException"),
)
"""The exceptions of a login, those of Java's Kerberos among them; their messages name principals, but no settings."""
_REFUSED = {
    "TopicAuthorizationException": "the topic",
    "GroupAuthorizationException": "the consumer group",
    "ClusterAuthorizationException": "the cluster",
}
"""On what rights must be granted, by the name of the exception without its package."""


class GroupMissingError(KafkaReadError):
    """The consumer group does not exist."""


def open_admin(spark: SparkSession, cluster: Cluster, table: str) -> ClusterAdmin:
    """Create the admin client for a cluster: librdkafka's where it can log in, else Java's.

    No broker is asked. For Java's client the session and the JVM change as `JavaAdmin` says.
    """
    refused = [p for p in librdkafka_settings(cluster.settings(), "admin").problems if p.severity == "error"]
    if not refused:
        return LibrdkafkaAdmin(cluster, table)
    if is_connect(spark):
        raise KdslError(
            f"{table}: librdkafka cannot log in to this cluster ({refused[0].message}), and a session of Spark Connect "
            "has no JVM for Java's client; use a classic session"
        )
    return JavaAdmin(spark, cluster, table)


class JavaAdmin(ClusterAdmin):
    """The admin client of Java's Kafka client.

    It attaches the connector's jars to a classic session, sets the JVM's system properties, and opens the client.

    Attributes:
        client: Java's ``AdminClient``.
        jvm: The JVM that it runs in.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, table: str) -> None:
        attach_connector(spark, everywhere=True)
        set_system_properties(spark, cluster, table)
        super().__init__(cluster, table)
        self._answered = False
        self.jvm: Any = jvm_of(spark)
        self._clients: Any = self.jvm.org.apache.kafka.clients
        settings = self.jvm.java.util.HashMap()
        for name, text in kafka_options(cluster, "admin", table).items():
            settings.put(name.removeprefix("kafka."), text)
        settings.put("default.api.timeout.ms", str(int(self._timeout * 1000)))
        self.client: Any = self._call_java(lambda: self._clients.admin.AdminClient.create(settings), "the cluster")
        self._closing = weakref.finalize(self, _close, self.client, self.jvm)
        self._closing.atexit = False  # the client ends with the JVM, which may be gone before Python is

    def close(self) -> None:
        """Close the client's connections; garbage collection does so as well. Errors are ignored."""
        self._closing()

    def _existing_topics(self, names: list[str]) -> dict[str, Topic]:
        futures = self.client.describeTopics(self.java_list(names)).topicNameValues()
        topics = {}
        for name in names:
            try:
                one = self.result(futures.get(name), f"the topic {name!r}")
            except TopicMissingError:
                continue
            topics[name] = Topic(topic_id(one.topicId().toString()), one.partitions().size())
        return topics

    def names(self, *, internal: bool = False) -> list[str]:
        """See `ClusterAdmin.names`."""
        options = self._clients.admin.ListTopicsOptions().listInternal(internal)
        return sorted(self.result(self.client.listTopics(options).names(), "the list of topics"))

    def groups(self) -> list[str]:
        """See `ClusterAdmin.groups`."""
        listing, what = self.client.listConsumerGroups(), "the list of groups"
        groups = self.result(listing.valid(), what)
        for error in self.elements(self.result(listing.errors(), what))[:1]:
            reason = str(error.getMessage() or error.getClass().getName())
            log.warning("%s: the groups of a broker are missing from the list: %s", self._table, reason)
        return sorted(str(group.groupId()) for group in self.elements(groups))

    def _group_offsets(self, group: str, partitions: Set[TopicPartition] | None) -> dict[TopicPartition, int]:
        options = self._clients.admin.ListConsumerGroupOffsetsOptions()
        if partitions is not None:
            options = options.topicPartitions(self.java_list([self._create_java_partition(p) for p in partitions]))
        future = self.client.listConsumerGroupOffsets(group, options).partitionsToOffsetAndMetadata()
        try:
            offsets = self.result(future, f"the offsets of the group {group!r}")
        except GroupMissingError:
            return {}
        return {
            (str(partition.topic()), int(partition.partition())): int(offsets.get(partition).offset())
            for partition in self.elements(offsets.keySet())
            if offsets.get(partition) is not None
        }

    def commit(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """See `ClusterAdmin.commit`."""
        offsets = self.jvm.java.util.HashMap()
        for partition, offset in positions.items():
            offsets.put(self._create_java_partition(partition), self._clients.consumer.OffsetAndMetadata(offset))
        future = self.client.alterConsumerGroupOffsets(group, offsets).all()
        self.result(future, f"the offsets of the group {group!r}", "commit")

    def create_topic(
        self, name: str, partitions: int | None, replication_factor: int | None, configs: Mapping[str, str]
    ) -> None:
        """See `ClusterAdmin.create_topic`."""
        topic = self._clients.admin.NewTopic(name, partitions or -1, replication_factor or -1)
        values = self.jvm.java.util.HashMap()
        for key, value in configs.items():
            values.put(key, value)
        future = self.client.createTopics(self.java_list([topic.configs(values)])).all()
        self.result(future, f"the topic {name!r}", "create")

    def raise_partitions(self, topic: str, partitions: int) -> None:
        """See `ClusterAdmin.raise_partitions`."""
        wanted = self.jvm.java.util.HashMap()
        wanted.put(topic, self._clients.admin.NewPartitions.increaseTo(partitions))
        self.result(self.client.createPartitions(wanted).all(), f"the topic {topic!r}", "change")

    def set_config(self, topic: str, name: str, value: str) -> None:
        """See `ClusterAdmin.set_config`."""
        admin, config = self._clients.admin, self.jvm.org.apache.kafka.common.config.ConfigResource
        entry = admin.ConfigEntry(name, value)
        change = admin.AlterConfigOp(entry, admin.AlterConfigOp.OpType.valueOf("SET"))
        changes = self.jvm.java.util.HashMap()
        changes.put(config(config.Type.valueOf("TOPIC"), topic), self.java_list([change]))
        future = self.client.incrementalAlterConfigs(changes).all()
        self.result(future, f"the config {name!r} of the topic {topic!r}", "change")

    def _ask_for_offsets(
        self, partitions: Iterable[TopicPartition], position: Position, *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        wanted = {partition: self._create_java_partition(partition) for partition in partitions}
        if not wanted:
            return {}
        kinds, specs = self._clients.admin.OffsetSpec, self.jvm.java.util.HashMap()
        spec = kinds.forTimestamp(position) if isinstance(position, int) else getattr(kinds, position)()
        for java_partition in wanted.values():
            specs.put(java_partition, spec)
        levels = self.jvm.org.apache.kafka.common.IsolationLevel
        level = levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED
        result = self.client.listOffsets(specs, self._clients.admin.ListOffsetsOptions(level))
        answers = {
            partition: self.result(result.partitionResult(java), f"the topic {partition[0]!r}")
            for partition, java in wanted.items()
        }
        return {
            partition: OffsetAndEpoch(int(one.offset()), one.leaderEpoch().orElse(None))
            for partition, one in answers.items()
        }

    def _create_java_partition(self, partition: TopicPartition) -> Any:
        """Create Java's ``TopicPartition``."""
        return self.jvm.org.apache.kafka.common.TopicPartition(*partition)

    def elements(self, collection: Any) -> list[Any]:
        """The elements of any Java collection; py4j iterates over lists and sets only."""
        return list(self.jvm.java.util.ArrayList(collection))

    def java_list(self, values: Iterable[Any]) -> Any:
        """Create a Java list of some values."""
        java = self.jvm.java.util.ArrayList()
        for value in values:
            java.add(value)
        return java

    def result(self, future: Any, what: str, action: errors.Action = "read") -> Any:
        """Wait for the result of a ``KafkaFuture``, and return it (a Java object).

        It waits as long as ``default.api.timeout.ms``; until the cluster has answered once, `FIRST_ANSWER` seconds at
        most. A result counts as an answer, an error does not.

        Args:
            future: The future.
            what: What was requested, for messages.
            action: What was to be done with it.
        """
        seconds = self._timeout if self._answered else min(FIRST_ANSWER, self._timeout)
        unit = self.jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        result = self._call_java(lambda: future.get(int(seconds * 1000), unit), what, action, seconds)
        self._answered = True
        return result

    def _call_java(self, call: Callable[[], Any], what: str, action: errors.Action = "read", seconds: float = 0) -> Any:
        """Call a function of Java's client and return its result."""
        try:
            return call()
        except JavaError as e:
            raise self._read_error(root_cause(e), what, action, seconds) from None

    def _read_error(self, error: Any, what: str, action: errors.Action, seconds: float) -> KafkaReadError:
        """Create kdsl's error for an exception of Java's client; without ``seconds`` it leaves out Java's message."""
        name = error.getClass().getName()
        kind = name.removeprefix(_ERRORS)
        is_login = kind.rpartition(".")[2] in _LOGIN_ERRORS
        # While the client is created, the messages of other errors may quote a setting.
        text = str(error.getMessage() or name) if seconds or is_login else name
        if kind in ("UnknownTopicOrPartitionException", "UnknownTopicIdException"):
            return TopicMissingError(f"{self._table}: {what} does not exist any more ({text})")
        if kind == "GroupIdNotFoundException":
            return GroupMissingError(f"{self._table}: {what} does not exist ({text})")
        if is_login:
            return errors.login_refused(self._table, self.servers, text)
        if "Timeout" in kind:
            return errors.unreachable(self._table, self.servers, seconds, None)
        if kind.endswith("AuthorizationException"):
            return errors.no_permission(self._table, what, text, _REFUSED.get(kind, "it"), action)
        reason = kind if text == name else f"{text} ({kind})"
        return errors.not_possible(self._table, what, self.servers, reason, action)


def _close(client: Any, jvm: Any) -> None:
    """Close Java's client within a second; errors are ignored."""
    with suppress(Exception):  # the JVM may be gone
        client.close(jvm.java.time.Duration.ofSeconds(1))
