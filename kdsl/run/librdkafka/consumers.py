"""The consumers of a worker process: made once, kept between tasks, assigned anew for each.

Connecting and learning a cluster costs more than most micro-batches. Spark hands a partition to any idle worker, so
that nothing that was fetched ahead survives a task: what is fetched ahead is sized from the ranges instead.
"""

from __future__ import annotations

import atexit
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import count
from threading import Thread
from typing import Any

import attrs
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition

from kdsl.cluster import Cluster
from kdsl.run.cluster import errors
from kdsl.run.cluster.brokers import PASSING
from kdsl.run.cluster.offsets import Range
from kdsl.run.librdkafka.kept import Kept
from kdsl.run.metrics.statistics import client_metrics

MOST_KEPT = 4
"""How many consumers a worker keeps; each may hold what its size fetches ahead, and a thread per broker."""


@attrs.frozen
class Size:
    """How much a consumer fetches ahead.

    Attributes:
        name: What the size is called.
        most: The most records of a range that is read with it.
        settings: librdkafka's settings.
    """

    name: str
    most: float
    settings: Mapping[str, int | str]


_COMMON: dict[str, int | str] = {
    # Above this many records in the queue fetching pauses; the default pause of a second would be most of the time.
    "fetch.queue.backoff.ms": 2,
    # Ranges end where records are known to be, so that a broker need not wait for more.
    "fetch.wait.max.ms": 20,
    "fetch.error.backoff.ms": 100,
    # The driver has just seen the topics, so that one that is unknown is gone and not on its way.
    "topic.metadata.propagation.max.ms": 5_000,
    "allow.auto.create.topics": "false",  # a topic that is deleted meanwhile shall not come back empty
    "max.poll.interval.ms": 86_400_000,  # a slow query downstream is no failure
    "log_level": 2,  # errors come through the callback, and end in a sentence
}
SIZES = (
    Size(
        "small",
        5_000,
        {
            **_COMMON,
            "queued.min.messages": 1_000,
            "queued.max.messages.kbytes": 8_192,
            "max.partition.fetch.bytes": 262_144,
            "fetch.max.bytes": 4_194_304,
        },
    ),
    Size(
        "big",
        float("inf"),
        {
            **_COMMON,
            "queued.min.messages": 30_000,
            "queued.max.messages.kbytes": 32_768,
            "max.partition.fetch.bytes": 2_097_152,
            "fetch.max.bytes": 16_777_216,
        },
    ),
)


def size_for(records: int) -> Size:
    """The size of consumer for a range of so many offsets."""
    return next(size for size in SIZES if records <= size.most)


_ATTEMPT = 3.0
"""How long the first attempt to learn offsets may take, in seconds. Each has twice the time of the one before: it is
bound to the leaders that are known when it begins, and one of them may stand still."""
_LEADERS = 3.0
"""How long brokers may take to tell the leaders of a topic, in seconds, before its offsets are asked for again."""
_REFUSED = 5.0
"""How long nothing must have come after a refused login, in seconds, until it is final."""
_PASSING_LOGIN = re.compile(
    "handshake failed: Local: "  # the connection ended within the login, as it does where a broker goes down
    "|Failed to acquire SASL OAUTHBEARER token"  # the token before may have some life left, and another try follows
)
_ALL_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
_BROKER = re.compile(r"^\w+://([^/]+)/")

OF_THE_GROUP = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.INVALID_GROUP_ID)
"""Errors that mean nothing here: the client looks for the group's coordinator, though partitions are assigned to it."""


class KeptConsumer:
    """A consumer of one cluster and one size.

    Args:
        settings: librdkafka's settings, secrets among them; held in memory only, as long as the consumer is.
        servers: Where the cluster is, for messages.

    Attributes:
        servers: Where the cluster is.
        last_error: The last trouble since the last assignment, as text.
        client_id: Its client id.
    """

    def __init__(self, settings: Mapping[str, Any], servers: str) -> None:
        self.servers = servers
        self.last_error: str | None = None
        self._topic_error: KafkaError | None = None
        self._refused: KafkaError | None = None
        self._refused_at = 0.0
        self.client_id: str = settings.get("client.id", "")
        self._told: dict[str, float] | None = None
        own: dict[str, Any] = {"error_cb": self.hear, "enable.partition.eof": True}
        if int(settings.get("statistics.interval.ms", 0)):
            own["stats_cb"] = self._on_statistics
        self._settings = {**settings, **own}
        self._connect()

    def _connect(self) -> None:
        self._consumer = Consumer(self._settings)
        self.consume = self._consumer.consume
        self._used = False

    def assign(self, ranges: Sequence[Range]) -> None:
        """Fetch from the starts of some ranges on; what was fetched for others is thrown away."""
        if self._used:  # what came while it lay unused is old news
            self._consumer.unassign()
            with suppress(KafkaException):
                self._consumer.consume(1_000, 0)
        self._used = True
        self.last_error = self._topic_error = self._refused = None
        self._consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in ranges])

    def renew(self, ranges: Sequence[Range]) -> None:
        """Fetch as after `assign`, through new connections; the last trouble is kept in mind."""
        last, old = self.last_error, self._consumer
        self._connect()
        # Whatever keeps a client from fetching may keep it from closing.
        Thread(target=old.close, name="kdsl consumer that is given up", daemon=True).start()
        self.assign(ranges)
        self.last_error = last

    def rest(self) -> None:
        """Fetch nothing."""
        self._consumer.unassign()

    @property
    def hopeless(self) -> KafkaError | None:
        """The trouble that waiting does not mend: a topic that is gone or not allowed, a login that stays refused."""
        lasting = self._refused is not None and time.monotonic() - self._refused_at > _REFUSED
        return self._refused if lasting else self._topic_error

    def succeeded(self) -> None:
        """Something came, so that a login that was refused before is none any more."""
        self._refused = None

    def hear(self, error: KafkaError) -> None:
        """Note a trouble that the client goes on from by itself, if it can."""
        if error.code() in OF_THE_GROUP or (error.code() == _ALL_DOWN and self.last_error):  # which says why
            return
        self.last_error = error.str()
        if errors.is_unknown_topic(error) or errors.is_not_allowed(error):
            self._topic_error = error
        elif errors.is_login_error(error) and not _PASSING_LOGIN.search(error.str()):
            if self._refused is None:
                self._refused, self._refused_at = error, time.monotonic()
        elif self._refused and _broker(error) == _broker(self._refused):  # which does something else by now
            self._refused = None

    def close(self) -> None:
        """End the consumer and its threads."""
        self._consumer.close()

    def earliest(self, ranges: Sequence[Range], seconds: float) -> list[int]:
        """The offset of the first record in the partition of each range, in one request."""
        return self._offsets(ranges, OFFSET_BEGINNING, seconds)

    def latest(self, ranges: Sequence[Range], seconds: float) -> list[int]:
        """The offset after the last record in the partition of each range, in one request."""
        return self._offsets(ranges, OFFSET_END, seconds)

    def _offsets(self, ranges: Sequence[Range], mark: int, seconds: float) -> list[int]:
        # The protocol's marks for the ends of a log stand in the place of a time, and pass.
        wanted = [TopicPartition(r.topic, r.partition, mark) for r in ranges]
        until, attempt = time.monotonic() + seconds, _ATTEMPT
        while True:
            unknown: list[tuple[Range, KafkaError | None]]
            try:
                found = self._consumer.offsets_for_times(wanted, max(0.1, min(attempt, until - time.monotonic())))
            except KafkaException as e:
                unknown = [(r, errors.kafka_error(e)) for r in ranges]
            else:
                # A leader that stands still leaves its partitions without an offset, beside those of other leaders.
                told = zip(ranges, found, strict=True)
                unknown = [(r, place.error) for r, place in told if place.error is not None or place.offset < 0]
                if not unknown:
                    return [place.offset for place in found]
            late = time.monotonic() > until
            gone = self._learn_leaders([r for r, _ in unknown], until)
            for r, error in unknown:
                # What waits for a connection whose login was cut off fails as if it had been refused.
                lasting = error is not None and error.code() not in PASSING and not errors.is_login_error(error)
                if error is not None and errors.is_unknown_topic(error):
                    lasting = (r.topic, r.partition) in gone
                if lasting or late:
                    waited = "" if lasting else f" within {seconds:.0f} s"
                    why = f": {error.str()} ({error.name()})" if error is not None else ""
                    raise errors.KafkaReadError(f"the offsets of {r} cannot be had from {self.servers}{waited}{why}")
            attempt *= 2
            time.sleep(0.1)

    def _learn_leaders(self, ranges: Sequence[Range], until: float) -> set[tuple[str, int]]:
        """Learn anew who leads the partitions of some ranges; gives those that do not exist.

        Where the client has heard once that a partition has no leader, it asks nobody for its offsets for minutes, and
        calls partitions unknown that all have none.
        """
        places = {(r.topic, r.partition) for r in ranges}
        for topic in {r.topic for r in ranges}:
            left = max(0.5, until - time.monotonic())
            try:
                there = self._consumer.list_topics(topic, timeout=min(_LEADERS, left)).topics[topic].partitions
            except KafkaException:  # nobody answers, so that nothing is known to be gone
                return set()
            places -= {(topic, partition) for partition in there}
        return places

    def take_statistics(self) -> dict[str, float] | None:
        """What librdkafka has told of the client since the last time; None where it has not."""
        told, self._told = self._told, None
        return told

    def _on_statistics(self, text: str) -> None:
        self._told = client_metrics(text)


def _broker(error: KafkaError) -> str:
    """The broker that an error names, by its address."""
    found = _BROKER.match(error.str())
    return found[1] if found else ""


def _close(consumer: KeptConsumer) -> None:
    with suppress(Exception):  # it is given up; why it does not end well helps nobody
        consumer.close()


_kept = Kept(MOST_KEPT, _close)
_nth = count(1)


def lend(cluster: Cluster, cluster_key: str, size: Size, names: Mapping[str, str]) -> KeptConsumer:
    """The consumer of a cluster and a size, made if there is none yet.

    Args:
        cluster: Where to connect; its secrets are resolved here.
        cluster_key: What tells clusters and tables apart: the text that the cluster travelled as.
        size: How much it fetches ahead.
        names: ``group.id`` where the user gives none, and how the ``client.id`` begins: a number makes it its own.
    """
    key = (cluster_key, size.name)
    consumer = _kept.take(key)
    if consumer is None:
        settings = cluster.consumer({**names, **size.settings})
        if "client.id" in names:
            settings["client.id"] = f"{names['client.id']}-{next(_nth)}"
        consumer = KeptConsumer(settings, cluster.bootstrap_servers)
    _kept.keep(key, consumer)
    return consumer


def discard(consumer: KeptConsumer) -> None:
    """End a consumer that has met an error."""
    _kept.drop(consumer)
    _close(consumer)


@atexit.register
def _close_all() -> None:
    for consumer in _kept.take_all():
        _close(consumer)


__all__ = ["KeptConsumer", "Size", "discard", "lend", "size_for"]
