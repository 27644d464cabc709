"""What the driver asks the brokers through Java's own client, for clusters that librdkafka cannot log in to.

It answers the same questions as `kdsl.run.cluster.brokers.Brokers`, in the same form. It needs a classic session,
whose JVM is at hand, and the connector's jars in the driver (`kdsl.run.jvm.jars.attach`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kdsl.client.translate import admin_settings
from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.offsets import TopicPartition
from kdsl.run.cluster import errors
from kdsl.run.cluster.brokers import FIRST_ANSWER, Brokers, Topic, topic_id
from kdsl.run.jvm.jars import attach
from kdsl.run.jvm.settings import kafka_options
from kdsl.run.jvm.system import set_system_properties
from kdsl.run.queries.reads import Read
from kdsl.run.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ERRORS = "org.apache.kafka.common.errors."


def brokers_of(spark: SparkSession, cluster: Cluster, table: str) -> Brokers | JavaBrokers:
    """Who answers questions about a cluster: librdkafka where it can log in, else Java's client.

    Args:
        spark: The session.
        cluster: The cluster.
        table: The table on whose behalf it is asked, for messages.

    Raises:
        KdslError: librdkafka cannot log in, and the session is one of Spark Connect, which has no JVM.
    """
    refused = [p for p in admin_settings(cluster.settings()).problems if p.severity == "error"]
    if not refused:
        return Brokers(cluster, table)
    if is_connect(spark):
        raise KdslError(
            f"{table}: librdkafka cannot log in to this cluster ({refused[0].message}), and a session of Spark Connect "
            "has no JVM that could ask the brokers instead; use a classic session"
        )
    return JavaBrokers(spark, cluster, table)


class JavaBrokers:
    """The brokers of a cluster, asked through Java's client on behalf of a table.

    Args:
        spark: A classic session.
        cluster: Where they are.
        table: The table's name, for messages.
    """

    def __init__(self, spark: SparkSession, cluster: Cluster, table: str) -> None:
        attach(spark, everywhere=True)
        set_system_properties(spark, cluster, table)
        self.servers = cluster.bootstrap_servers
        self._table = table
        self._patience = cluster.connector().api_timeout_ms / 1000
        self._answered = False
        self._jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
        assert self._jvm is not None
        self._clients: Any = self._jvm.org.apache.kafka.clients
        settings = self._jvm.java.util.HashMap()
        for name, text in kafka_options(cluster, "admin", table).items():
            settings.put(name.removeprefix("kafka."), text)
        settings.put("default.api.timeout.ms", str(int(self._patience * 1000)))
        self._admin: Any = self._called(lambda: self._clients.admin.AdminClient.create(settings), "the cluster")
        self._closing = weakref.finalize(self, _close, self._admin, self._jvm)
        self._closing.atexit = False  # the client ends with the JVM, which may be gone before Python is

    def close(self) -> None:
        """End the client's threads and connections; it also happens by itself when nobody needs it any more."""
        self._closing()

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that exist."""
        futures = self._admin.describeTopics(self._list(sorted(set(names)))).topicNameValues()
        found = {}
        for name in sorted(set(names)):
            try:
                one = self._got(futures.get(name), f"the topic {name!r}")
            except errors.TopicMissingError:
                continue
            found[name] = Topic(topic_id(one.topicId().toString()), one.partitions().size())
        return found

    def names(self, *, internal: bool = False) -> list[str]:
        """The names of all topics that this user may see."""
        options = self._clients.admin.ListTopicsOptions().listInternal(internal)
        return sorted(self._got(self._admin.listTopics(options).names(), "the list of topics"))

    def earliest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition."""
        return self._offsets(places, self._clients.admin.OffsetSpec.earliest())

    def latest(self, places: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition; the last stable one where ``committed``."""
        return self._offsets(places, self._clients.admin.OffsetSpec.latest(), committed=committed)

    def at_time(self, places: Iterable[TopicPartition], millis: int) -> dict[TopicPartition, int | None]:
        """The offset of each partition's first record that is not older; None where there is none."""
        found = self._offsets(places, self._clients.admin.OffsetSpec.forTimestamp(millis))
        return {place: None if offset < 0 else offset for place, offset in found.items()}

    def committed(self, group: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that a consumer group has committed, where it has."""
        wanted = list(places)
        if not wanted:
            return {}
        options = self._clients.admin.ListConsumerGroupOffsetsOptions()
        options = options.topicPartitions(self._list([self._partition(place) for place in wanted]))
        future = self._admin.listConsumerGroupOffsets(group, options).partitionsToOffsetAndMetadata()
        offsets = self._got(future, f"the offsets of the group {group!r}")
        found = {place: offsets.get(self._partition(place)) for place in wanted}
        return {place: int(one.offset()) for place, one in found.items() if one is not None}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a consumer group that has no members.

        Raises:
            KafkaReadError: The brokers refuse.
        """
        given = self._jvm.java.util.HashMap()
        for place, offset in offsets.items():
            given.put(self._partition(place), self._clients.consumer.OffsetAndMetadata(offset))
        self._got(self._admin.alterConsumerGroupOffsets(group, given).all(), f"the offsets of the group {group!r}")

    def _offsets(
        self, places: Iterable[TopicPartition], spec: Any, *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        wanted = {place: self._partition(place) for place in places}
        if not wanted:
            return {}
        specs = self._jvm.java.util.HashMap()
        for partition in wanted.values():
            specs.put(partition, spec)
        levels = self._jvm.org.apache.kafka.common.IsolationLevel
        level = levels.READ_COMMITTED if committed else levels.READ_UNCOMMITTED
        result = self._admin.listOffsets(specs, self._clients.admin.ListOffsetsOptions(level))
        return {
            place: int(self._got(result.partitionResult(partition), f"the topic {place[0]!r}").offset())
            for place, partition in wanted.items()
        }

    def _partition(self, place: TopicPartition) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(*place)

    def _list(self, values: Iterable[Any]) -> Any:
        made = self._jvm.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made

    def _got(self, future: Any, what: str) -> Any:
        """The result of one of Kafka's futures."""
        seconds = self._patience if self._answered else min(FIRST_ANSWER, self._patience)
        unit = self._jvm.java.util.concurrent.TimeUnit.MILLISECONDS
        result = self._called(lambda: future.get(int(seconds * 1000), unit), what, seconds)
        self._answered = True
        return result

    def _called(self, call: Callable[[], Any], what: str, seconds: float = 0) -> Any:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        try:
            return call()
        except Py4JJavaError as e:
            raise self._told(_innermost(e.java_exception), what, seconds) from None

    def _told(self, error: Any, what: str, seconds: float) -> errors.KafkaReadError:
        name = error.getClass().getName()
        # The message of an error while the client is made may quote a setting.
        text = str(error.getMessage() or name) if seconds else name
        kind = name.removeprefix(_ERRORS)
        if kind in ("UnknownTopicOrPartitionException", "UnknownTopicIdException"):
            return errors.TopicMissingError(f"{self._table}: {what} is gone ({text})")
        if kind in ("SaslAuthenticationException", "SslAuthenticationException", "UnsupportedSaslMechanismException"):
            return errors.refused_login(self._table, self.servers, text)
        if "Timeout" in kind:
            return errors.unreachable(self._table, self.servers, seconds, None)
        if kind.endswith("AuthorizationException"):
            return errors.NotAllowedError(
                f"{self._table}: this user may not read {what} ({text}); grant READ and DESCRIBE on it"
            )
        return errors.KafkaReadError(f"{self._table}: {what} cannot be read from {self.servers}: {text} ({kind})")


class JavaGroup:
    """The committed offsets of consumer groups through Java's client (`kdsl.run.queries.reads.GroupOffsets`).

    Args:
        brokers: Who is asked.
    """

    def __init__(self, brokers: JavaBrokers) -> None:
        self._brokers = brokers

    def commit(self, read: Read, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the offset of the next record of each partition."""
        self._brokers.commit(read.group, positions)

    def committed(self, read: Read, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets that the group has committed, where it has."""
        return self._brokers.committed(read.group, places)


def _close(admin: Any, jvm: Any) -> None:
    with suppress(Exception):  # the JVM may be gone
        admin.close(jvm.java.time.Duration.ofSeconds(1))


def _innermost(error: Any) -> Any:
    while error.getCause() is not None:
        error = error.getCause()
    return error
