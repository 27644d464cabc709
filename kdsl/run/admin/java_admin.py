"""The admin client of Java's Kafka client, for clusters that librdkafka cannot log in to.

It needs a classic session, whose JVM it runs in, and the connector's jars in the driver
(`kdsl.run.java_clients.jars.attach_connector`).
"""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kdsl.callbacks import TopicPartition
from kdsl.client_settings.to_librdkafka import admin_settings
from kdsl.cluster import Cluster
from kdsl.errors import KafkaReadError, KdslError, TopicMissingError
from kdsl.run.admin import errors
from kdsl.run.admin.cluster_admin import (
    FIRST_ANSWER,
    SETTLING,
    ClusterAdmin,
    OffsetAndEpoch,
    Topic,
    find_topics,
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
    refused = [p for p in admin_settings(cluster.settings()).problems if p.severity == "error"]
    if not refused:
        return LibrdkafkaAdmin(cluster, table)
    if is_connect(spark):
        raise KdslError(
            f"{table}: librdkafka cannot log in to this cluster ({refused[0].message}), and a session of Spark Connect "
            "has no JVM for Java's client; use a classic session"
        )
    return JavaAdmin(spark, cluster, table)


class JavaAdmin:
    """The admin client of Java's Kafka client (`kdsl.run.admin.cluster_admin.ClusterAdmin`).

    It attaches the connector's jars to a classic session, sets the JVM's system properties, and opens the client.

    Attributes:
        servers: The cluster's ``bootstrap.servers``.
        client: Java's ``AdminClient``.
        jvm: The JVM that it runs in.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, table: str) -> None:
        attach_connector(spark, everywhere=True)
        set_system_properties(spark, cluster, table)
        self.servers = cluster.bootstrap_servers
        self._table = table
        self._timeout = cluster.kdsl_settings.api_timeout_ms / 1000
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

    def topics(self, names: Iterable[str], *, known: bool = False) -> dict[str, Topic]:
        """The topics among `names` that exist (`kdsl.run.admin.cluster_admin.ClusterAdmin.topics`).

        If all are ``known`` to exist, missing ones are asked for again for `SETTLING` seconds. Errors are those of
        `result`.
        """
        return find_topics(self._describe_topics, names, SETTLING if known else 0.0)

    def _describe_topics(self, names: list[str]) -> dict[str, Topic]:
        """Describe topics, without those that do not exist."""
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
        """The sorted names of all topics that this user may see (`ClusterAdmin.names`); errors as in `result`."""
        options = self._clients.admin.ListTopicsOptions().listInternal(internal)
        return sorted(self.result(self.client.listTopics(options).names(), "the list of topics"))

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition; errors are those of `_ask_for_offsets`."""
        offsets = self._ask_for_offsets(partitions, self._clients.admin.OffsetSpec.earliest())
        return {partition: one.offset for partition, one in offsets.items()}

    def latest(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition, or the last stable offset where ``committed``.

        Errors are those of `_ask_for_offsets`.
        """
        return {partition: end.offset for partition, end in self.log_ends(partitions, committed=committed).items()}

    def log_ends(
        self, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """The end of each partition as in `latest`, with its leader's epoch; errors are those of `_ask_for_offsets`."""
        return self._ask_for_offsets(partitions, self._clients.admin.OffsetSpec.latest(), committed=committed)

    def at_time(self, partitions: Iterable[TopicPartition], millis: int) -> dict[TopicPartition, int | None]:
        """The offset of each partition's first record that is not older than a time; None if there is none.

        The time is in milliseconds since 1970. Errors are those of `_ask_for_offsets`.
        """
        offsets = self._ask_for_offsets(partitions, self._clients.admin.OffsetSpec.forTimestamp(millis))
        return {partition: None if one.offset < 0 else one.offset for partition, one in offsets.items()}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that a consumer group has committed; partitions without one are left out.

        Without partitions nothing is requested.
        """
        wanted = list(partitions)
        if not wanted:
            return {}
        options = self._clients.admin.ListConsumerGroupOffsetsOptions()
        options = options.topicPartitions(self.java_list([self._create_java_partition(p) for p in wanted]))
        offsets = self._group_offsets(group, options)
        # Java's client leaves out the offsets of topics that this user may not see, but not their descriptions' errors.
        self._describe_topics(sorted({topic for topic, _ in set(wanted) - offsets.keys()}))
        return offsets

    def groups(self) -> list[str]:
        """The sorted ids of all consumer groups that this user may see.

        The groups of brokers that refuse or do not answer are left out; the first such error is logged as a warning.
        """
        listing, what = self.client.listConsumerGroups(), "the list of groups"
        groups = self.result(listing.valid(), what)
        for error in self.elements(self.result(listing.errors(), what))[:1]:
            reason = str(error.getMessage() or error.getClass().getName())
            log.warning("%s: the groups of a broker are missing from the list: %s", self._table, reason)
        return sorted(str(group.groupId()) for group in self.elements(groups))

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """All offsets that a consumer group has committed; empty if there is no such group.

        Errors are those of `_group_offsets`.
        """
        return self._group_offsets(group)

    def _group_offsets(self, group: str, *options: Any) -> dict[TopicPartition, int]:
        """Ask the brokers for the offsets of a group by partition, where it has one; empty if there is no such group.

        Args:
            group: The group.
            options: Java's options, which choose partitions; nothing for all of them.
        """
        future = self.client.listConsumerGroupOffsets(group, *options).partitionsToOffsetAndMetadata()
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
        """Commit the offsets of a consumer group (`kdsl.run.admin.cluster_admin.ClusterAdmin.commit`)."""
        offsets = self.jvm.java.util.HashMap()
        for partition, offset in positions.items():
            offsets.put(self._create_java_partition(partition), self._clients.consumer.OffsetAndMetadata(offset))
        future = self.client.alterConsumerGroupOffsets(group, offsets).all()
        self.result(future, f"the offsets of the group {group!r}", "commit")

    def create_topic(
        self, name: str, partitions: int | None, replication_factor: int | None, configs: Mapping[str, str]
    ) -> None:
        """Create a topic (`kdsl.run.admin.cluster_admin.ClusterAdmin.create_topic`)."""
        topic = self._clients.admin.NewTopic(name, partitions or -1, replication_factor or -1)
        values = self.jvm.java.util.HashMap()
        for key, value in configs.items():
            values.put(key, value)
        future = self.client.createTopics(self.java_list([topic.configs(values)])).all()
        self.result(future, f"the topic {name!r}", "create")

    def raise_partitions(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, so that it has ``partitions`` (`ClusterAdmin.raise_partitions`)."""
        wanted = self.jvm.java.util.HashMap()
        wanted.put(topic, self._clients.admin.NewPartitions.increaseTo(partitions))
        self.result(self.client.createPartitions(wanted).all(), f"the topic {topic!r}", "change")

    def set_config(self, topic: str, name: str, value: str) -> None:
        """Set one config of a topic; its other configs stay as they are (`ClusterAdmin.set_config`)."""
        admin, config = self._clients.admin, self.jvm.org.apache.kafka.common.config.ConfigResource
        entry = admin.ConfigEntry(name, value)
        change = admin.AlterConfigOp(entry, admin.AlterConfigOp.OpType.valueOf("SET"))
        changes = self.jvm.java.util.HashMap()
        changes.put(config(config.Type.valueOf("TOPIC"), topic), self.java_list([change]))
        future = self.client.incrementalAlterConfigs(changes).all()
        self.result(future, f"the config {name!r} of the topic {topic!r}", "change")

    def _ask_for_offsets(
        self, partitions: Iterable[TopicPartition], spec: Any, *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """Ask for an offset of each partition and its epoch; for a time, it is below 0 if all records are older.

        Args:
            partitions: The partitions.
            spec: Java's ``OffsetSpec``: the earliest, the latest, or that of a time.
            committed: Whether the latest is the last stable offset, before which no transaction is open.
        """
        wanted = {partition: self._create_java_partition(partition) for partition in partitions}
        if not wanted:
            return {}
        specs = self.jvm.java.util.HashMap()
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
        """Create kdsl's error for an exception of Java's client.

        Args:
            error: The Java exception.
            what: What was requested, for the message.
            action: What was to be done with it.
            seconds: How long the request could take; 0 if there was none, which leaves out Java's message.

        Returns:
            A TopicMissingError, GroupMissingError, UnreachableError (also for a timeout) or NotAllowedError where the
            exception says so; otherwise a plain KafkaReadError.
        """
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
