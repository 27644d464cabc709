"""What the driver asks the brokers: topics with their ids, offsets by place and by time, a group's offsets.

All partitions go in one request. Every call is bounded: by a short time until the first answer ever, by
``default.api.timeout.ms`` from then on; what passes by itself (a new leader, a broker that restarts) is tried again
until then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import cached_property
from typing import Any, TypeVar

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
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from kdsl.cluster import Cluster
from kdsl.offsets import TopicPartition
from kdsl.run.cluster import errors, login
from kdsl.run.cluster.group_offsets import GroupOffsets, asks_former_coordinator

log = logging.getLogger("kdsl.brokers")

K = TypeVar("K")
V = TypeVar("V")

FIRST_ANSWER = 10.0
"""How long a cluster may take to answer for the first time, in seconds; connecting takes milliseconds."""
_FIRST_ATTEMPT = 3.0
_FRESH = 30.0
"""For so many seconds a client's view of leaders and connections is taken for good.

A request for offsets neither connects again nor asks for new leaders: without a connection it may wait for ever, after
a change of leaders it fails for ever. So the topics are asked for first, where the view is older, and after errors.
"""
_AGAIN = 1.0
"""How long what a broker has told after an error is taken for good, in seconds, while errors go on."""
_RENEWING = 3.0
"""How long a broker may take to tell who is there, in seconds, after an error."""
_SETTLING = 5.0
"""How long a leader may not know of a partition, in seconds, that the cluster has."""
_LISTING = 15.0
"""How long brokers that are away may be missing from a list of groups, in seconds."""

_EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
_LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
OFFSETS_TOPIC = "__consumer_offsets"
_INTERNAL = frozenset({OFFSETS_TOPIC, "__transaction_state", "__share_group_state", "__cluster_metadata"})
PASSING = frozenset(
    (
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TIMED_OUT_QUEUE,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._WAIT_CACHE,  # noqa: SLF001
        KafkaError._WAIT_COORD,  # noqa: SLF001
        KafkaError._UNKNOWN_BROKER,  # noqa: SLF001
        KafkaError._DESTROY_BROKER,  # noqa: SLF001
        KafkaError._NOENT,  # noqa: SLF001  # no leader is known
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.BROKER_NOT_AVAILABLE,
    )
)


@attrs.frozen
class Topic:
    """A topic as the cluster has it.

    Attributes:
        id: Its id, which another topic of the same name never has; empty where the brokers tell none.
        partitions: How many partitions it has.
    """

    id: str
    partitions: int


@attrs.frozen
class Member:
    """A member of a consumer group: a client that subscribes with the group's id.

    Attributes:
        client: Its client id.
        host: Where it runs, as the broker sees it.
        id: What the group calls it.
    """

    client: str
    host: str
    id: str

    def __str__(self) -> str:
        return f"{self.client} at {self.host.lstrip('/')} (member id {self.id})"


class Brokers:
    """The brokers of a cluster, asked on behalf of a table.

    Args:
        cluster: Where they are.
        table: The table's name, for messages.
    """

    def __init__(self, cluster: Cluster, table: str) -> None:
        self.servers = cluster.bootstrap_servers
        self._cluster = cluster
        self._table = table
        self._patience = cluster.connector().api_timeout_ms / 1000
        self._answered = False
        self._viewed = float("-inf")
        self._last_error: KafkaError | None = None
        self._refused: KafkaError | None = None
        self._looked = False
        self._failed = False
        self._renewed = float("-inf")
        self._connect()

    def _connect(self) -> None:
        settings: dict[str, Any] = {**self._cluster.admin({"log_level": 0}), "error_cb": self._on_error}
        self._login = login.plain(settings)
        self._admin = AdminClient(settings)
        self._made = time.monotonic()

    def topics(self, names: Iterable[str]) -> dict[str, Topic]:
        """Those of the topics that exist."""
        found = {}
        for name, result in self._topics(sorted(set(names))).items():
            if isinstance(result, KafkaError):
                if not errors.is_unknown_topic(result):
                    raise self._told(result, f"the topic {name!r}")
                continue
            found[name] = result
        return found

    def names(self, *, internal: bool = False) -> list[str]:
        """The names of all topics that this user may see."""
        metadata = self._patiently(lambda seconds: self._admin.list_topics(timeout=seconds))
        return sorted(name for name in metadata.topics if internal or name not in _INTERNAL)

    def earliest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition."""
        return self._offsets(dict.fromkeys(places, _EARLIEST))

    def latest(self, places: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        """The offset after the last record of each partition.

        Args:
            places: The partitions.
            committed: The last stable offset instead, before which no transaction is open.
        """
        return self._offsets(dict.fromkeys(places, _LATEST), committed=committed)

    def at_time(self, places: Iterable[TopicPartition], millis: int) -> dict[TopicPartition, int | None]:
        """The offset of each partition's first record that is not older; None where there is none."""
        spec = OffsetSpec.for_timestamp(millis)
        found = self._offsets(dict.fromkeys(places, spec))
        return {place: None if offset < 0 else offset for place, offset in found.items()}

    def committed(self, group: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that a consumer group has committed, where it has."""
        wanted = frozenset(places)
        found = self.group_offsets(group, {topic for topic, _ in wanted}) if wanted else {}
        return {place: offset for place, offset in found.items() if place in wanted}

    def commit(self, group: str, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the offsets of a consumer group, all in one request.

        Args:
            group: The group. The brokers refuse while it has members, whose offsets these would be.
            positions: The offset of the next record of each partition.

        Raises:
            KafkaReadError: An offset was not committed; others may have been.
        """
        if not positions:
            return
        wanted = [ClientPartition(topic, partition, at) for (topic, partition), at in sorted(positions.items())]

        def once(seconds: float) -> list[ClientPartition] | KafkaError:
            request = [ConsumerGroupTopicPartitions(group, wanted)]
            sent = self._admin.alter_consumer_group_offsets(request, request_timeout=seconds)
            done = self._results(sent, seconds)[group]
            return done if isinstance(done, KafkaError) else list(done.topic_partitions)

        done = self._patiently(once, _passing_place)
        failed = [done] if isinstance(done, KafkaError) else [p.error for p in done if p.error]
        if failed:
            raise self._told(failed[0], f"the offsets of the group {group!r}", "committed to")

    def groups(self) -> list[str]:
        """The ids of all consumer groups that this user may see."""
        until = time.monotonic() + min(_LISTING, self._patience)
        while True:
            found = self._ask(lambda seconds: {"": self._admin.list_consumer_groups(request_timeout=seconds)})[""]
            if isinstance(found, KafkaError):
                raise self._told(found, "the list of groups")
            away = next(filter(None, (_if_passing(errors.kafka_error(e)) for e in found.errors)), None)
            if away is None or time.monotonic() > until:
                break
            self._failed = True
            time.sleep(0.1)
        if away is not None:
            log.warning("%s: the list of groups is without those of a broker: %s", self._table, away.str())
        return sorted(group.group_id for group in found.valid)

    def group_offsets(self, group: str, topics: Iterable[str] = ()) -> dict[TopicPartition, int]:
        """All offsets that a consumer group has committed; empty where there is no such group.

        Args:
            group: The group.
            topics: Topics that this user must be allowed to see: the brokers leave others out without a word.
        """
        names = TopicCollection(sorted(set(topics)))
        native = self._group_offsets

        def once(seconds: float) -> tuple[KafkaError | None, dict[TopicPartition, int]]:
            stale = self._stale_view(names, seconds)
            if stale is not None:
                return stale, {}
            code, found = native.positions(group, seconds)
            return KafkaError(code) if code else None, found

        error, found = self._patiently(once, lambda result: _if_passing(result[0]))
        if error is not None and error.code() != KafkaError.GROUP_ID_NOT_FOUND:
            raise self._told(error, f"the offsets of the group {group!r}")
        return found

    def members(self, group: str, patience: float | None = None) -> tuple[Member, ...]:
        """The members that a consumer group has now.

        Args:
            group: The group.
            patience: How long to wait for an answer, in seconds; ``default.api.timeout.ms`` if None.
        """
        found = self._ask(
            lambda seconds: self._admin.describe_consumer_groups([group], request_timeout=seconds), patience=patience
        )[group]
        if isinstance(found, KafkaError):
            if found.code() == KafkaError.GROUP_ID_NOT_FOUND:
                return ()
            raise self._told(found, f"the group {group!r}")
        return tuple(Member(m.client_id or "", m.host or "", m.member_id or "") for m in found.members)

    def _topics(self, names: list[str]) -> dict[str, Topic | KafkaError]:
        if not names:
            return {}
        described = self._ask(
            lambda seconds: self._admin.describe_topics(TopicCollection(names), request_timeout=seconds)
        )
        return {
            name: one if isinstance(one, KafkaError) else Topic(topic_id(one.topic_id), len(one.partitions))
            for name, one in described.items()
        }

    def _offsets(
        self, wanted: Mapping[TopicPartition, OffsetSpec], *, committed: bool = False
    ) -> dict[TopicPartition, int]:
        if not wanted:
            return {}
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        specs = {ClientPartition(topic, partition): spec for (topic, partition), spec in wanted.items()}
        names = {topic for topic, _ in wanted}
        until = time.monotonic() + min(_SETTLING, self._patience)
        while True:
            found = self._ask(
                lambda seconds: self._admin.list_offsets(specs, isolation_level=level, request_timeout=seconds),
                names,
                _told_offset,
            )
            unknown = [p for p, r in found.items() if isinstance(r, KafkaError) and errors.is_unknown_topic(r)]
            if not unknown or time.monotonic() > until or not self._are_there(unknown):
                break
            time.sleep(0.1)
        offsets = {}
        for place, result in found.items():
            if isinstance(result, KafkaError):
                if errors.is_unknown_topic(result):
                    raise errors.TopicMissingError(
                        f"{self._table}: partition {place.partition} of the topic {place.topic!r} is gone "
                        f"({result.str()})"
                    )
                raise self._told(result, f"the topic {place.topic!r}")
            offsets[place.topic, place.partition] = result.offset
        return offsets

    def _ask(
        self,
        ask: Callable[[float], Mapping[K, Future[Any]]],
        topics: Iterable[str] = (),
        read: Callable[[Any], Any] = lambda result: result,
        patience: float | None = None,
    ) -> dict[K, Any]:
        """The result of each future, or its KafkaError; asked again as long as an error may pass.

        Args:
            ask: Sends the request; is given the seconds that it may take.
            topics: The topics whose leaders the request goes to.
            read: Makes of a result what it says: itself, or a KafkaError.
            patience: How long, in seconds; ``default.api.timeout.ms`` if None.
        """
        names = TopicCollection(sorted(set(topics)))

        def once(seconds: float) -> dict[K, Any]:
            stale = self._stale_view(names, seconds)
            if stale is not None:
                return {"": stale}  # type: ignore[dict-item]  # an error, after which it is tried again
            return {key: read(result) for key, result in self._results(ask(seconds), seconds).items()}

        return self._patiently(once, _passing, patience)

    def _are_there(self, places: Iterable[ClientPartition]) -> bool:
        """Whether the cluster has partitions that a leader does not know: one that was made just now, say."""
        topics = self.topics({place.topic for place in places})
        return all(place.topic in topics and place.partition < topics[place.topic].partitions for place in places)

    def _renew(self, seconds: float) -> None:
        """After an error, learn anew from any broker who is there.

        Topics are asked of the controller that the client has last heard of, and while that one is away, nobody else
        is asked who it is.
        """
        if self._failed and time.monotonic() - self._renewed > _AGAIN:
            with suppress(KafkaException):  # what is asked next says what is wrong
                self._admin.list_topics(
                    OFFSETS_TOPIC, timeout=min(_RENEWING, seconds)
                )  # any topic: all brokers come along
            self._failed, self._renewed = False, time.monotonic()

    def _stale_view(self, names: TopicCollection, seconds: float) -> KafkaError | None:
        """Look at topics anew, where that was long ago; an error that may pass where that did not go well."""
        self._renew(seconds)
        if names.topic_names and time.monotonic() - self._viewed > _FRESH:
            results = self._results(self._admin.describe_topics(names, request_timeout=seconds), seconds)
            found = _passing(results)
            if found is not None:
                return found
            self._viewed = time.monotonic()
            self._answered |= any(not isinstance(r, KafkaError) or _is_theirs(r) for r in results.values())
        return None

    @cached_property
    def _group_offsets(self) -> GroupOffsets:
        # An AdminClient does the same, and librdkafka crashes where the coordinator has just moved.
        return GroupOffsets(self._cluster)

    def _results(self, futures: Mapping[K, Future[Any]], seconds: float) -> dict[K, Any]:
        until = time.monotonic() + seconds + 1
        open_ones = set(futures.values())
        while open_ones and time.monotonic() < until:
            open_ones = wait(open_ones, timeout=0.2).not_done
            if open_ones:
                self._look_at_errors()
        return {key: _result(future) for key, future in futures.items()}

    def _patiently(
        self,
        once: Callable[[float], V],
        passing: Callable[[V], KafkaError | None] = lambda _: None,
        most: float | None = None,
    ) -> V:
        """What a call gives within a time; called again, with more time, as long as its error may pass."""
        started = time.monotonic()
        attempt = _FIRST_ATTEMPT
        most = self._patience if most is None else most
        error: KafkaError | None = None
        while True:
            patience = most if self._answered else min(FIRST_ANSWER, most)
            left = started + patience - time.monotonic()
            if left <= 0:
                tell, last = errors.unreachable, self._last_error
                if self._answered:
                    tell = errors.kept_waiting
                    last = error if error is not None and _is_theirs(error) else self._last_error
                raise tell(self._table, self.servers, patience, last.str() if last else None)
            try:
                result = once(min(left, attempt))  # the client goes on connecting between attempts
            except Exception as e:
                error = errors.kafka_error(e)
                if error is None:
                    raise
                if error.code() not in PASSING:
                    raise self._told(error, "the cluster") from e
            else:
                error = passing(result)
                if error is None:
                    self._answered, self._failed, self._last_error = True, False, None
                    return result
            attempt *= 2
            self._failed, self._viewed = True, float("-inf")
            if asks_former_coordinator(error.code(), self._made):
                self._connect()
            self._answered |= _is_theirs(error)
            if self._last_error is None:
                self._last_error = error
            self._look_at_errors()
            self._look_at_port()
            time.sleep(0.1)

    def _on_error(self, error: KafkaError) -> None:
        if errors.is_login_error(error):
            self._refused = error
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._last_error = error

    def _look_at_errors(self) -> None:
        self._admin.poll(0)
        if self._answered:
            return
        if self._refused is not None:
            self._looked = False  # what the client was told says more than a port that was looked at before
            self._look_at_port()
            raise errors.refused_login(self._table, self.servers, self._refused.str())
        if self._last_error is not None and login.is_telling(self._last_error.str()):
            self._look_at_port()

    def _look_at_port(self) -> None:
        """Say why no broker lets the client in, where that can be told apart, once."""
        if self._answered or self._looked:
            return
        self._looked = True
        said = self._refused or self._last_error
        told = login.reason(self.servers, self._login, said.str() if said else None)
        if told is not None:
            raise errors.not_let_in(self._table, self.servers, told)

    def _told(self, error: KafkaError, what: str, done: str = "read from") -> errors.KafkaReadError:
        if errors.is_not_allowed(error):
            return errors.not_allowed(self._table, what, error)
        if errors.is_login_error(error):
            return errors.refused_login(self._table, self.servers, error.str())
        return errors.KafkaReadError(
            f"{self._table}: {what} cannot be {done} {self.servers}: {error.str()} ({error.name()})"
        )


def topic_id(given: object) -> str:
    """The id of a topic as text; empty where the brokers are older than ids (2.8), and give zeros."""
    text = str(given)
    return "" if set(text) <= {"A"} else text


def _passing(results: Mapping[Any, Any]) -> KafkaError | None:
    """An error among the results that may pass."""
    return next((r for r in results.values() if isinstance(r, KafkaError) and r.code() in PASSING), None)


def _passing_place(result: list[ClientPartition] | KafkaError) -> KafkaError | None:
    """An error that may pass, of a request or of one of its partitions."""
    found = [result] if isinstance(result, KafkaError) else [place.error for place in result]
    return next((error for error in found if _if_passing(error) is not None), None)


def _is_theirs(error: KafkaError) -> bool:
    """Whether an error is a broker's answer; the client's own have numbers below zero."""
    return error.code() > 0


def _if_passing(error: KafkaError | None) -> KafkaError | None:
    return error if error is not None and error.code() in PASSING else None


def _told_offset(result: Any) -> Any:
    """An answer about a partition; librdkafka gives one without an offset where a leader among others stands still."""
    unset = not isinstance(result, KafkaError) and result.offset == OFFSET_INVALID
    return KafkaError(KafkaError._TIMED_OUT) if unset else result  # noqa: SLF001


def _result(future: Future[Any]) -> Any:
    """A future's result, or the KafkaError that stands for it."""
    try:
        return future.result(0)
    except TimeoutError:
        return KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001
    except Exception as e:
        error = errors.kafka_error(e)
        if error is None:
            raise
        return error
