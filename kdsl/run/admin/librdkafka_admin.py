"""The admin client of librdkafka.

All partitions go in one request. Every call takes a limited time: `FIRST_ANSWER` seconds until the cluster has answered
once, ``default.api.timeout.ms`` from then on. Within that time retriable errors (a new leader, a broker that restarts)
are retried.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cached_property
from typing import Any, Generic, TypeVar

import attrs
from confluent_kafka import (
    OFFSET_INVALID,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
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
from kdsl.errors import KafkaReadError, TopicMissingError, UnreachableError
from kdsl.retry import Deadline, retry
from kdsl.run.admin import errors
from kdsl.run.admin.admin_client import SafeAdminClient, weak_callback
from kdsl.run.admin.cluster_admin import FIRST_ANSWER, SETTLING, OffsetAndEpoch, Topic, find_topics, topic_id
from kdsl.run.admin.errors import RETRIABLE
from kdsl.run.admin.group_offsets import GroupOffsets, asks_former_coordinator
from kdsl.run.reachability import login

log = logging.getLogger("kdsl.brokers")

K = TypeVar("K")
V = TypeVar("V")

FIRST_ATTEMPT = 3.0
_FRESH = 30.0
"""For how many seconds the client's view of leaders and connections is trusted.

A request for offsets neither reconnects nor looks for new leaders: without a connection it may wait without end, and
after a change of leaders it fails without end. Therefore topics are described first when the view is older than this,
and after errors.
"""
_REFRESH_INTERVAL = 1.0
"""How many seconds to trust a broker's answer after an error, while errors continue."""
_REFRESH_TIMEOUT = 3.0
"""How many seconds a broker may take to list the brokers after an error."""
_LISTING = 15.0
"""How many seconds unreachable brokers may be missing from a list of groups."""

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
OFFSETS_TOPIC = "__consumer_offsets"
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


@attrs.frozen
class _Outcome(Generic[V]):
    """The outcome of one attempt: a value, or a retriable error."""

    value: V | None = None
    error: KafkaError | None = None


class _MetadataView:
    """How fresh the client's knowledge of brokers and leaders is."""

    def __init__(self) -> None:
        self._described = self._refreshed = float("-inf")
        self._invalid = False

    @property
    def is_stale(self) -> bool:
        """Whether topics must be described before a request goes to their leaders."""
        return time.monotonic() - self._described > _FRESH

    @property
    def needs_refresh(self) -> bool:
        """Whether to ask any broker for the list of brokers, after an error."""
        return self._invalid and time.monotonic() - self._refreshed > _REFRESH_INTERVAL

    def note_description(self) -> None:
        """Note that topics were described now."""
        self._described = time.monotonic()

    def note_refresh(self) -> None:
        """Note that the client's metadata were refreshed now, so that the view is valid."""
        self._invalid, self._refreshed = False, time.monotonic()

    def note_success(self) -> None:
        """Note that the brokers answered, so that the view is valid."""
        self._invalid = False

    def expire(self) -> None:
        """Let the next question describe the topics again."""
        self._described = float("-inf")

    def note_error(self) -> None:
        """Note that the view may be invalid."""
        self._invalid = True


class LibrdkafkaAdmin:
    """The admin client of librdkafka (`kdsl.run.admin.cluster_admin.ClusterAdmin`).

    Args:
        cluster: The cluster.
        table: The table's name, for messages.
        answered: Whether the cluster is known to answer: then its first answer may take as long as any other.

    Attributes:
        servers: The cluster's ``bootstrap.servers``.

    Raises:
        ResolveError: As for `Cluster.admin`.
    """

    def __init__(self, cluster: Cluster, table: str, *, answered: bool = False) -> None:
        self.servers = cluster.bootstrap_servers
        self._cluster = cluster
        self._table = table
        self._timeout = cluster.kdsl_settings.api_timeout_ms / 1000
        self._view = _MetadataView()
        self._answered = answered
        self._last_error: KafkaError | None = None
        self._login_error: KafkaError | None = None
        self._examined_port = False
        self._connect()

    def _connect(self) -> None:
        """Create the client, in place of an earlier one; no broker is asked yet."""
        settings: dict[str, Any] = {**self._cluster.admin({"log_level": 0}), "error_cb": weak_callback(self._on_error)}
        self._login = login.public_settings(settings)
        self._admin = SafeAdminClient(settings)
        self._connected_at = time.monotonic()

    def topics(self, names: Iterable[str], *, known: bool = False) -> dict[str, Topic]:
        """The topics among `names` that exist (`kdsl.run.admin.cluster_admin.ClusterAdmin.topics`).

        If all are ``known`` to exist, missing ones are asked for again for `SETTLING` seconds. Errors are those of
        `_existing_topics`.
        """
        return find_topics(self._existing_topics, names, min(SETTLING, self._timeout) if known else 0.0)

    def names(self, *, internal: bool = False) -> list[str]:
        """The sorted names of all topics that this user may see (`ClusterAdmin.names`); errors as in `_retry`."""
        metadata = self._retry(lambda timeout: self._admin.list_topics(timeout=timeout))
        return sorted(name for name in metadata.topics if internal or name not in _INTERNAL)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition; errors are those of `_offsets`."""
        return {partition: one.offset for partition, one in self._offsets(dict.fromkeys(partitions, _EARLIEST)).items()}

    def latest(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition, or the last stable offset where ``committed``.

        Errors are those of `_offsets`.
        """
        return {partition: end.offset for partition, end in self.log_ends(partitions, committed=committed).items()}

    def log_ends(
        self, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """The end of each partition as in `latest`, with its leader's epoch; errors are those of `_offsets`."""
        return self._offsets(dict.fromkeys(partitions, _LATEST), committed=committed)

    def at_time(self, partitions: Iterable[TopicPartition], millis: int) -> dict[TopicPartition, int | None]:
        """The offset of each partition's first record that is not older than a time; None if there is none.

        The time is in milliseconds since 1970. Errors are those of `_offsets`.
        """
        offsets = self._offsets(dict.fromkeys(partitions, OffsetSpec.for_timestamp(millis)))
        return {partition: None if one.offset < 0 else one.offset for partition, one in offsets.items()}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that a consumer group has committed; partitions without one are left out.

        Without partitions nothing is requested.

        Raises:
            NotAllowedError: This user may not see the group, or one of the topics.
            KafkaReadError: The brokers refuse for another reason, or do not answer in time.
        """
        wanted = frozenset(partitions)
        offsets = self._group_offsets(group, {topic for topic, _ in wanted}) if wanted else {}
        # The brokers leave out the offsets of topics that this user may not see, but refuse to describe these topics.
        self._existing_topics(sorted({topic for topic, _ in wanted - offsets.keys()}))
        return {partition: offset for partition, offset in offsets.items() if partition in wanted}

    def commit(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets of a consumer group (`ClusterAdmin.commit`); nothing without positions.

        Raises:
            KafkaReadError: An offset was not committed; others may have been.
        """
        if not positions:
            return
        wanted = [ClientPartition(topic, partition, at) for (topic, partition), at in sorted(positions.items())]

        def commit_once(timeout: float) -> list[ClientPartition] | KafkaError:
            request = [ConsumerGroupTopicPartitions(group, wanted)]
            futures = self._admin.alter_consumer_group_offsets(request, request_timeout=timeout)
            result = self._results(futures, timeout)[group]
            return result if isinstance(result, KafkaError) else list(result.topic_partitions)

        result = self._retry(commit_once, _retriable_commit_error)
        failed = [result] if isinstance(result, KafkaError) else [p.error for p in result if p.error]
        if failed:
            raise self._read_error(failed[0], f"the offsets of the group {group!r}", "commit")

    def groups(self) -> list[str]:
        """The ids of all consumer groups that this user may see, in alphabetical order.

        The groups of a broker that refuses, or does not answer within `_LISTING` seconds, are left out, with a warning
        in the log.

        Raises:
            KafkaReadError: The brokers refuse, or none answers in time.
        """

        def ask(_: float) -> tuple[list[Any], KafkaError | None]:
            listing = self._ask(lambda timeout: {"": self._admin.list_consumer_groups(request_timeout=timeout)})[""]
            if isinstance(listing, KafkaError):
                raise self._read_error(listing, "the list of groups")
            failures = list(filter(None, map(errors.kafka_error, listing.errors)))
            failures.sort(key=lambda failure: _if_retriable(failure) is None)
            if failures and _if_retriable(failures[0]) is not None:
                self._view.note_error()
            return listing.valid, failures[0] if failures else None

        deadline = Deadline(min(_LISTING, self._timeout))
        groups, missing = retry(ask, lambda result: _if_retriable(result[1]) is None, deadline)
        if missing is not None:
            log.warning("%s: the groups of a broker are missing from the list: %s", self._table, missing.str())
        return sorted(group.group_id for group in groups)

    def group_offsets(self, group: str) -> dict[TopicPartition, int]:
        """All offsets that a consumer group has committed; empty if there is no such group.

        Those of topics that this user may not see are left out. Errors are those of `_group_offsets`.
        """
        return self._group_offsets(group, ())

    def create_topic(
        self, name: str, partitions: int | None, replication_factor: int | None, configs: Mapping[str, str]
    ) -> None:
        """Create a topic (`ClusterAdmin.create_topic`).

        Raises:
            KafkaReadError: The topic exists, the brokers refuse, or they do not answer.
        """
        topic = NewTopic(name, partitions or -1, replication_factor or -1, config=dict(configs))

        def send(timeout: float) -> Mapping[str, Future[Any]]:
            return self._admin.create_topics([topic], operation_timeout=timeout, request_timeout=timeout)

        self._change(send, f"the topic {name!r}", "create", KafkaError.TOPIC_ALREADY_EXISTS)

    def raise_partitions(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, so that it has ``partitions`` (`ClusterAdmin.raise_partitions`).

        Raises:
            KafkaReadError: It has as many or more, the brokers refuse, or they do not answer.
        """
        wanted = NewPartitions(topic, partitions)

        def send(timeout: float) -> Mapping[str, Future[Any]]:
            return self._admin.create_partitions([wanted], operation_timeout=timeout, request_timeout=timeout)

        self._change(send, f"the topic {topic!r}", "change", KafkaError.INVALID_PARTITIONS)

    def set_config(self, topic: str, name: str, value: str) -> None:
        """Set one config of a topic; its other configs stay as they are (`ClusterAdmin.set_config`).

        Raises:
            KafkaReadError: The brokers refuse, or do not answer.
        """
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])

        def send(timeout: float) -> Mapping[Any, Future[Any]]:
            return self._admin.incremental_alter_configs([resource], request_timeout=timeout)

        self._change(send, f"the config {name!r} of the topic {topic!r}", "change")

    def _change(
        self, send: Callable[[float], Mapping[K, Future[Any]]], what: str, action: errors.Action, repeated: int = 0
    ) -> None:
        """Send a request that changes something, and raise its error.

        Args:
            send: Sends the request.
            what: What is changed, for messages.
            action: What is done with it.
            repeated: The error of a request whose first attempt succeeded although its answer was lost; it is ignored
                after the first attempt.
        """
        attempts = 0

        def send_again(timeout: float) -> Mapping[K, Future[Any]]:
            nonlocal attempts
            attempts += 1
            return send(timeout)

        for result in self._ask(send_again).values():
            if isinstance(result, KafkaError) and (attempts == 1 or result.code() != repeated):
                raise self._read_error(result, what, action)

    def members(self, group: str, timeout: float | None = None) -> tuple[Member, ...]:
        """Return the members that a consumer group has now; none without the group.

        Args:
            group: The group.
            timeout: How many seconds to wait for an answer; ``default.api.timeout.ms`` if None.

        Raises:
            KafkaReadError: The brokers refuse, or do not answer in time.
        """
        result = self._ask(
            lambda seconds: self._admin.describe_consumer_groups([group], request_timeout=seconds), timeout=timeout
        )[group]
        if isinstance(result, KafkaError):
            if result.code() == KafkaError.GROUP_ID_NOT_FOUND:
                return ()
            raise self._read_error(result, f"the group {group!r}")
        return tuple(Member(m.client_id or "", m.host or "", m.member_id or "") for m in result.members)

    def _existing_topics(self, names: list[str]) -> dict[str, Topic]:
        """Describe topics, without those that do not exist."""
        topics = {}
        for name, result in self._describe_topics(names).items():
            if not isinstance(result, KafkaError):
                topics[name] = result
            elif not errors.is_unknown_topic(result):
                raise self._read_error(result, f"the topic {name!r}")
        return topics

    def _describe_topics(self, names: list[str]) -> dict[str, Topic | KafkaError]:
        """Describe topics, by name; an error takes the place of a topic. Errors of the whole request as in `_retry`."""
        if not names:
            return {}
        described = self._ask(
            lambda timeout: self._admin.describe_topics(TopicCollection(names), request_timeout=timeout)
        )
        return {
            name: one if isinstance(one, KafkaError) else Topic(topic_id(one.topic_id), len(one.partitions))
            for name, one in described.items()
        }

    def _group_offsets(self, group: str, topics: Iterable[str]) -> dict[TopicPartition, int]:
        """Ask the brokers for the offsets of a group; empty if there is no such group.

        Args:
            group: The group.
            topics: Topics that are described before, if the view of them is stale. Offsets of topics that this user may
                not see are left out by the brokers, without an error.
        """
        names = TopicCollection(sorted(set(topics)))

        def ask(timeout: float) -> tuple[KafkaError | None, dict[TopicPartition, int]]:
            stale = self._refresh_view(names, timeout)
            if stale is not None:
                return stale, {}
            code, offsets = self._offset_reader.positions(group, timeout)
            return KafkaError(code) if code else None, offsets

        error, offsets = self._retry(ask, lambda result: _if_retriable(result[0]))
        if error is not None and error.code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise self._read_error(error, f"the offsets of the group {group!r}")
        return offsets

    def _offsets(
        self, wanted: Mapping[TopicPartition, OffsetSpec], *, committed: bool = False
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """Ask for offsets of partitions; partitions of a topic that was just created are asked for again for a while.

        The offset for a time is below 0 if all records are older.

        Args:
            wanted: Which offset of each partition: the earliest, the latest, or that of a time.
            committed: Whether the latest is the last stable offset, before which no transaction is open.
        """
        if not wanted:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        specs = {ClientPartition(topic, partition): spec for (topic, partition), spec in wanted.items()}
        names = {topic for topic, _ in wanted}

        def ask(_: float) -> dict[ClientPartition, Any]:
            return self._ask(
                lambda timeout: self._admin.list_offsets(specs, isolation_level=level, request_timeout=timeout),
                names,
                _offset_or_error,
            )

        def is_final(results: Mapping[ClientPartition, Any]) -> bool:
            unknown = [p for p, r in results.items() if isinstance(r, KafkaError) and errors.is_unknown_topic(r)]
            return not unknown or not self._do_exist(unknown)

        results = retry(ask, is_final, Deadline(min(SETTLING, self._timeout)))
        offsets = {}
        for partition, result in results.items():
            if isinstance(result, KafkaError):
                if errors.is_unknown_topic(result):
                    raise TopicMissingError(
                        f"{self._table}: partition {partition.partition} of the topic {partition.topic!r} does not "
                        f"exist any more ({result.str()})"
                    )
                raise self._read_error(result, f"the topic {partition.topic!r}")
            offsets[partition.topic, partition.partition] = OffsetAndEpoch(result.offset, result.leader_epoch)
        return offsets

    def _ask(
        self,
        send: Callable[[float], Mapping[K, Future[Any]]],
        topics: Iterable[str] = (),
        read: Callable[[Any], Any] = lambda result: result,
        timeout: float | None = None,
    ) -> dict[K, Any]:
        """Send a request until none of its results is a retriable error.

        Args:
            send: Sends the request; its argument is the seconds that it may take.
            topics: The topics to whose leaders the request goes.
            read: Turns a result into a value or a KafkaError.
            timeout: For how many seconds; ``default.api.timeout.ms`` if None.

        Returns:
            The result of each future, or its KafkaError.
        """
        names = TopicCollection(sorted(set(topics)))

        def ask(seconds: float) -> dict[K, Any]:
            stale = self._refresh_view(names, seconds)
            if stale is not None:
                return {"": stale}  # type: ignore[dict-item]  # a retriable error
            return {key: read(result) for key, result in self._results(send(seconds), seconds).items()}

        return self._retry(ask, _retriable_error, timeout)

    def _do_exist(self, partitions: Sequence[ClientPartition]) -> bool:
        """Ask whether the cluster has all of some partitions, which a leader may not know just after their creation."""
        topics = self.topics({partition.topic for partition in partitions})
        return all(p.topic in topics and p.partition < topics[p.topic].partitions for p in partitions)

    def _refresh_brokers(self, timeout: float) -> None:
        """After an error, ask any broker that runs for the list of brokers, once per interval.

        Its own errors are ignored.

        The client asks the last known controller for topics, and while that one is down, it does not ask another broker
        who the controller is.
        """
        if self._view.needs_refresh:
            with suppress(KafkaException):  # the next request reports the error
                # The answer for any topic lists all brokers.
                self._admin.list_topics(OFFSETS_TOPIC, timeout=min(_REFRESH_TIMEOUT, timeout))
            self._view.note_refresh()

    def _refresh_view(self, names: TopicCollection, timeout: float) -> KafkaError | None:
        """Describe topics again if the view of them is stale; return a retriable error if that failed, else None.

        The brokers are listed before if an error requires it. An error of a topic that is not retriable is ignored:
        the view counts as fresh. What a broker answers to the description then counts as the first answer.
        """
        self._refresh_brokers(timeout)
        if names.topic_names and self._view.is_stale:
            results = self._results(self._admin.describe_topics(names, request_timeout=timeout), timeout)
            error = _retriable_error(results)
            if error is not None:
                return error
            self._view.note_description()
            self._answered |= any(not isinstance(r, KafkaError) or _is_from_broker(r) for r in results.values())
        return None

    @cached_property
    def _offset_reader(self) -> GroupOffsets:
        """The reader of committed offsets, created at the first use; its own client is created by its first request."""
        # An AdminClient does the same, and librdkafka crashes when the coordinator has just moved.
        return GroupOffsets(self._cluster)

    def _results(self, futures: Mapping[K, Future[Any]], timeout: float) -> dict[K, Any]:
        """Wait for the results of futures, at most a little longer than a timeout.

        An error, or that of a timeout, takes the place of a result.
        """
        deadline = Deadline(timeout + 1)
        pending = set(futures.values())
        while pending and not deadline.has_passed:
            pending = wait(pending, timeout=0.2).not_done
            if pending:
                self._raise_final_error()
        return {key: _result(future) for key, future in futures.items()}

    def _retry(
        self,
        ask: Callable[[float], V],
        retriable_error: Callable[[V], KafkaError | None] = lambda _: None,
        timeout: float | None = None,
    ) -> V:
        """Repeat a request, with longer and longer timeouts, as long as its error is retriable, and return its result.

        Errors in the result that are not retriable are returned with it. Answers and errors are noted for later
        requests (`_note_retriable`, which may connect again); a success clears the last error.

        Args:
            ask: Sends the request; its argument is the seconds that it may take.
            retriable_error: The retriable error in a result.
            timeout: For how many seconds; ``default.api.timeout.ms`` if None. Until the cluster has answered once,
                `FIRST_ANSWER` seconds at most.
        """
        most = self._timeout if timeout is None else timeout
        deadline = Deadline(most if self._answered else min(FIRST_ANSWER, most))

        def attempt(seconds: float) -> _Outcome[V]:
            try:
                result = ask(seconds)  # the client keeps connecting between attempts
            except Exception as e:
                error = errors.kafka_error(e)
                if error is None:
                    raise
                if error.code() not in RETRIABLE:
                    raise self._read_error(error, "the cluster") from e
            else:
                error = retriable_error(result)
                if error is None:
                    self._answered, self._last_error = True, None
                    self._view.note_success()
                    return _Outcome(result)
            self._note_retriable(error)
            deadline.timeout = most if self._answered else min(FIRST_ANSWER, most)
            return _Outcome(error=error)

        outcome = retry(attempt, lambda result: result.error is None, deadline, first_timeout=FIRST_ATTEMPT)
        if outcome.error is not None:
            raise self._timeout_error(outcome.error, deadline.timeout)
        return outcome.value  # type: ignore[return-value]  # a value that may be None itself

    def _note_retriable(self, error: KafkaError) -> None:
        """Note an error after which the question is repeated, and connect again if the group's coordinator has moved.

        The view of the topics becomes stale, an error of a broker counts as the first answer, and `_last_error` is set
        if it is None.
        """
        self._view.note_error()
        self._view.expire()
        if asks_former_coordinator(error.code(), self._connected_at):
            self._connect()
        self._answered |= _is_from_broker(error)
        if self._last_error is None:
            self._last_error = error
        self._raise_final_error()
        self._examine_port()

    def _timeout_error(self, error: KafkaError, seconds: float) -> UnreachableError:
        """Create the error for brokers that did not answer in time."""
        last = self._last_error
        if not self._answered:
            return errors.unreachable(self._table, self.servers, seconds, last.str() if last else None)
        last = error if _is_from_broker(error) else last
        return errors.no_answer(self._table, self.servers, seconds, last.str() if last else None)

    def _on_error(self, error: KafkaError) -> None:
        """Store an error that the client reports beside answers as the last one; an error of the login as such, too.

        That all brokers are down is ignored: other errors say why.
        """
        if errors.is_login_error(error):
            self._login_error = error
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._last_error = error

    def _raise_final_error(self) -> None:
        """Raise an error if the client has reported one after which waiting does not help; do nothing after an answer.

        The client's events are handled before.
        """
        self._admin.poll(0)
        if self._answered:
            return
        if self._login_error is not None:
            self._examined_port = False  # the client's error says more than a port that was examined before
            self._examine_port()
            raise errors.login_refused(self._table, self.servers, self._login_error.str())
        if self._last_error is not None and login.is_final_error(self._last_error.str()):
            self._examine_port()

    def _examine_port(self) -> None:
        """Examine the first broker's port, once, if no broker has answered yet."""
        if self._answered or self._examined_port:
            return
        self._examined_port = True
        error = self._login_error or self._last_error
        reason = login.explain_refusal(self.servers, self._login, error.str() if error else None)
        if reason is not None:
            raise errors.not_accepted(self._table, self.servers, reason)

    def _read_error(self, error: KafkaError, what: str, action: errors.Action = "read") -> KafkaReadError:
        """Create the exception for an error that is not retriable.

        Args:
            error: The error.
            what: What was requested.
            action: What was to be done with it.

        Returns:
            A NotAllowedError, an UnreachableError for a refused login, or a plain KafkaReadError.
        """
        if errors.is_not_allowed(error):
            return errors.not_allowed(self._table, what, error, action)
        if errors.is_login_error(error):
            return errors.login_refused(self._table, self.servers, error.str())
        return errors.not_possible(self._table, what, self.servers, f"{error.str()} ({error.name()})", action)


def _retriable_error(results: Mapping[Any, Any]) -> KafkaError | None:
    """The first retriable error among the results; None if there is none."""
    return next((r for r in results.values() if isinstance(r, KafkaError) and r.code() in RETRIABLE), None)


def _retriable_commit_error(result: list[ClientPartition] | KafkaError) -> KafkaError | None:
    """The first retriable error of a request or of its partitions; None if there is none."""
    commit_errors = [result] if isinstance(result, KafkaError) else [partition.error for partition in result]
    return next((error for error in commit_errors if _if_retriable(error) is not None), None)


def _is_from_broker(error: KafkaError) -> bool:
    """Whether an error is a broker's answer; the client's own errors have codes below zero."""
    return error.code() > 0


def _if_retriable(error: KafkaError | None) -> KafkaError | None:
    """Return an error after which a request can be repeated; None for another one."""
    return error if error is not None and error.code() in RETRIABLE else None


def _offset_or_error(result: Any) -> Any:
    """Return a partition's result or KafkaError; that of a timeout if the result has no offset: its leader hangs."""
    unset = not isinstance(result, KafkaError) and result.offset == OFFSET_INVALID
    return KafkaError(KafkaError._TIMED_OUT) if unset else result  # noqa: SLF001


def _result(future: Future[Any]) -> Any:
    """A future's result, its KafkaError, or that of a timeout if it is not done; other exceptions are raised."""
    try:
        return future.result(0)
    except TimeoutError:
        return KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001
    except Exception as e:
        error = errors.kafka_error(e)
        if error is None:
            raise
        return error
