"""The admin client of librdkafka.

All partitions go in one request. Every call takes a limited time: `FIRST_ANSWER` seconds until the cluster has answered
once, ``default.api.timeout.ms`` from then on. Within that time retriable errors (a new leader, a broker that restarts)
are retried.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any

import attrs
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    TopicCollection,
    TopicPartition as ClientPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AlterConfigOpType,  # pyright: ignore[reportPrivateImportUsage]
    ConfigEntry,  # pyright: ignore[reportPrivateImportUsage]
    ConfigResource,  # pyright: ignore[reportPrivateImportUsage]
    NewPartitions,  # pyright: ignore[reportPrivateImportUsage]
    NewTopic,  # pyright: ignore[reportPrivateImportUsage]
    OffsetSpec,  # pyright: ignore[reportPrivateImportUsage]
    ResourceType,  # pyright: ignore[reportPrivateImportUsage]
)

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.errors import TopicMissingError
from kdsl.retry import Deadline, retry
from kdsl.run.admin import errors
from kdsl.run.admin.admin_requests import OFFSETS_TOPIC, AdminRequests, if_retriable
from kdsl.run.admin.cluster_admin import ClusterAdmin, OffsetAndEpoch, Position, Topic, topic_id
from kdsl.run.admin.group_offsets import GroupOffsets

log = logging.getLogger("kdsl.brokers")

_LISTING = 15.0
"""How many seconds unreachable brokers may be missing from a list of groups."""

_SPECS: Mapping[str, OffsetSpec] = {
    "earliest": OffsetSpec.earliest(),  # type: ignore[no-untyped-call]
    "latest": OffsetSpec.latest(),  # type: ignore[no-untyped-call]
}
_INTERNAL = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state", "__cluster_metadata"})


@attrs.frozen
class Member:
    """A member of a consumer group: a client that subscribes with the group's id.

    Attributes:
        client: Its client id.
        host: Where it runs, as the broker sees it.
        id: The group's name for it.
    """

    client: str
    host: str
    id: str

    def __str__(self) -> str:
        return f"{self.client} at {self.host.lstrip('/')} (member id {self.id})"


class LibrdkafkaAdmin(ClusterAdmin):
    """The admin client of librdkafka.

    Args:
        cluster: The cluster.
        table: The table's name, for messages.
        answered: Whether the cluster is known to answer: then its first answer may take as long as any other.
    """

    def __init__(self, cluster: Cluster, table: str, *, answered: bool = False) -> None:
        super().__init__(cluster, table)
        self._cluster = cluster
        self._requests = AdminRequests(cluster, table, answered=answered)

    def names(self, *, internal: bool = False) -> list[str]:
        """See `ClusterAdmin.names`."""
        return sorted(name for name in self._requests.list_topics().topics if internal or name not in _INTERNAL)

    def commit(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """See `ClusterAdmin.commit`."""
        if not positions:
            return
        wanted = [ClientPartition(topic, partition, at) for (topic, partition), at in sorted(positions.items())]

        request = [ConsumerGroupTopicPartitions(group, wanted)]
        error = self._requests.ask(
            lambda client, timeout: client.alter_consumer_group_offsets(request, request_timeout=timeout),
            read=_commit_error,
            to_coordinator=True,
        )[group]
        if error is not None:
            raise self._requests.status.read_error(error, f"the offsets of the group {group!r}", "commit")

    def groups(self) -> list[str]:
        """See `ClusterAdmin.groups`."""

        def ask(_: float) -> tuple[list[Any], KafkaError | None]:
            listing = self._requests.ask(
                lambda client, timeout: {"": client.list_consumer_groups(request_timeout=timeout)}
            )[""]
            if isinstance(listing, KafkaError):
                raise self._requests.status.read_error(listing, "the list of groups")
            failures = list(filter(None, map(errors.kafka_error, listing.errors)))
            failures.sort(key=lambda failure: if_retriable(failure) is None)
            if failures and if_retriable(failures[0]) is not None:
                self._requests.view.note_error()
            return listing.valid, failures[0] if failures else None

        deadline = Deadline(min(_LISTING, self._timeout))
        groups, missing = retry(ask, lambda result: if_retriable(result[1]) is None, deadline)
        if missing is not None:
            log.warning("%s: the groups of a broker are missing from the list: %s", self._table, missing.str())
        return sorted(group.group_id for group in groups)

    def create_topic(
        self, name: str, partitions: int | None, replication_factor: int | None, configs: Mapping[str, str]
    ) -> None:
        """See `ClusterAdmin.create_topic`."""
        topic = NewTopic(name, partitions or -1, replication_factor or -1, config=dict(configs))
        self._requests.change(
            lambda client, timeout: client.create_topics([topic], operation_timeout=timeout, request_timeout=timeout),
            f"the topic {name!r}",
            "create",
            KafkaError.TOPIC_ALREADY_EXISTS,
        )

    def raise_partitions(self, topic: str, partitions: int) -> None:
        """See `ClusterAdmin.raise_partitions`."""
        wanted = NewPartitions(topic, partitions)
        self._requests.change(
            lambda client, timeout: client.create_partitions(
                [wanted], operation_timeout=timeout, request_timeout=timeout
            ),
            f"the topic {topic!r}",
            "change",
            KafkaError.INVALID_PARTITIONS,
        )

    def set_config(self, topic: str, name: str, value: str) -> None:
        """See `ClusterAdmin.set_config`."""
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        self._requests.change(
            lambda client, timeout: client.incremental_alter_configs([resource], request_timeout=timeout),
            f"the config {name!r} of the topic {topic!r}",
            "change",
        )

    def topic_settings(self, topic: str) -> dict[str, str]:
        """Ask the brokers for all settings of a topic, defaults included, and return their values as strings, by name.

        Empty if the broker that answers does not know the topic.
        """
        config = self._describe_configs(ConfigResource(ResourceType.TOPIC, topic))
        if isinstance(config, KafkaError):
            if errors.is_unknown_topic(config):
                return {}
            raise self._requests.status.read_error(config, f"the settings of the topic {topic!r}")
        return {name: entry.value for name, entry in config.items()}

    def members(self, group: str, timeout: float | None = None) -> tuple[Member, ...]:
        """Return the members that a consumer group has now; none without the group.

        Args:
            group: The group.
            timeout: How many seconds to wait for an answer; ``default.api.timeout.ms`` if None.
        """
        result = self._requests.ask(
            lambda client, seconds: client.describe_consumer_groups([group], request_timeout=seconds),
            timeout=timeout,
            to_coordinator=True,
        )[group]
        if isinstance(result, KafkaError):
            if result.code() == KafkaError.GROUP_ID_NOT_FOUND:
                return ()
            raise self._requests.status.read_error(result, f"the group {group!r}")
        return tuple(Member(m.client_id or "", m.host or "", m.member_id or "") for m in result.members)

    def _describe_configs(self, resource: ConfigResource) -> Any:
        """Ask for the configs of a topic or broker, by name; return a KafkaError that is not retriable."""
        return self._requests.ask(lambda client, timeout: client.describe_configs([resource], request_timeout=timeout))[
            resource
        ]

    def _existing_topics(self, names: list[str]) -> dict[str, Topic]:
        topics = {}
        for name, result in self._describe_topics(names).items():
            if not isinstance(result, KafkaError):
                topics[name] = result
            elif not errors.is_unknown_topic(result):
                raise self._requests.status.read_error(result, f"the topic {name!r}")
        return topics

    def _describe_topics(self, names: list[str]) -> dict[str, Topic | KafkaError]:
        """Describe topics, by name; an error takes the place of a topic."""
        if not names:
            return {}
        described = self._requests.ask(
            lambda client, timeout: client.describe_topics(TopicCollection(names), request_timeout=timeout)
        )
        return {
            name: one if isinstance(one, KafkaError) else Topic(topic_id(one.topic_id), len(one.partitions))
            for name, one in described.items()
        }

    def _group_offsets(self, group: str, partitions: Set[TopicPartition] | None) -> dict[TopicPartition, int]:
        """Ask for all offsets of a group, after the topics of the partitions if the client's view of them is stale."""
        names = TopicCollection(sorted({topic for topic, _ in partitions or ()}))

        def ask(timeout: float) -> tuple[KafkaError | None, dict[TopicPartition, int]]:
            stale = self._requests.refresh_view(names, timeout)
            if stale is not None:
                return stale, {}
            code, offsets = self._offset_reader.read(group, timeout, stable=False)
            return KafkaError(code) if code else None, {partition: offset for partition, offset, _ in offsets}

        error, offsets = self._requests.retry(ask, lambda result: if_retriable(result[0]))
        if error is not None and error.code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise self._requests.status.read_error(error, f"the offsets of the group {group!r}")
        return offsets

    def _ask_for_offsets(
        self, partitions: Iterable[TopicPartition], position: Position, *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """Ask again for a while where a leader does not know a partition that the cluster has: it was just created."""
        spec = OffsetSpec.for_timestamp(position) if isinstance(position, int) else _SPECS[position]
        specs = {ClientPartition(topic, partition): spec for topic, partition in partitions}
        if not specs:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        names = {partition.topic for partition in specs}

        def ask(_: float) -> dict[ClientPartition, Any]:
            return self._requests.ask(
                lambda client, timeout: client.list_offsets(specs, isolation_level=level, request_timeout=timeout),
                names,
                _offset_or_error,
            )

        def is_final(results: Mapping[ClientPartition, Any]) -> bool:
            unknown = [p for p, r in results.items() if isinstance(r, KafkaError) and errors.is_unknown_topic(r)]
            return not unknown or not self._do_exist(unknown)

        results = retry(ask, is_final, Deadline(self._settling))
        offsets = {}
        for partition, result in results.items():
            if isinstance(result, KafkaError):
                if errors.is_unknown_topic(result):
                    raise TopicMissingError(
                        f"{self._table}: partition {partition.partition} of the topic {partition.topic!r} does not "
                        f"exist any more ({result.str()})"
                    )
                raise self._requests.status.read_error(result, f"the topic {partition.topic!r}")
            offsets[partition.topic, partition.partition] = OffsetAndEpoch(result.offset, result.leader_epoch)
        return offsets

    def _do_exist(self, partitions: Sequence[ClientPartition]) -> bool:
        """Ask whether the cluster has all of some partitions, which a leader may not know just after their creation."""
        topics = self.topics({partition.topic for partition in partitions})
        return all(p.topic in topics and p.partition < topics[p.topic].partitions for p in partitions)

    @cached_property
    def _offset_reader(self) -> GroupOffsets:
        """The reader of committed offsets, created at the first use; its own client is created by its first request."""
        # An AdminClient does the same, and librdkafka crashes when the coordinator has just moved.
        return GroupOffsets(self._cluster)


def _commit_error(result: Any) -> KafkaError | None:
    """The error of a whole commit, or the first of its partitions, retriable ones before others; None without one."""
    if isinstance(result, KafkaError):
        return result
    failed = [partition.error for partition in result.topic_partitions if partition.error]
    return next(filter(if_retriable, failed), next(iter(failed), None))


def _offset_or_error(result: Any) -> Any:
    """Return a partition's result or KafkaError; that of a timeout if the result has no offset: its leader hangs."""
    unset = not isinstance(result, KafkaError) and result.offset == OFFSET_INVALID
    return KafkaError(KafkaError._TIMED_OUT) if unset else result  # noqa: SLF001
