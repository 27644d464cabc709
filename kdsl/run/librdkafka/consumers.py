"""The pooled consumers of a Python worker: created once, kept between tasks, and assigned anew for each task.

Connecting to a cluster costs more than most micro-batches. Spark hands a partition to any idle worker, so records that
were fetched ahead are useless to the next task. The size of the fetches is therefore chosen from the ranges.
"""

from __future__ import annotations

import atexit
import re
import time
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from threading import Thread
from typing import Any

import attrs
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException

from kdsl.cluster import Cluster
from kdsl.errors import KafkaReadError
from kdsl.retry import Deadline, retry
from kdsl.run.admin import errors
from kdsl.run.admin.admin_client import weak_callback
from kdsl.run.admin.errors import RETRIABLE
from kdsl.run.librdkafka.client_pool import ClientPool
from kdsl.run.librdkafka.consumer_client import ConsumerClient
from kdsl.run.librdkafka.message_batch import MessageBatch
from kdsl.run.metrics.statistics import client_metrics
from kdsl.run.offsets.stored import Range

POOL_SIZE = 4
"""How many consumers a Python worker keeps; each holds its prefetched records and one thread for each broker."""


@attrs.frozen
class FetchSize:
    """How much a consumer fetches ahead.

    Attributes:
        name: The name of the size.
        max_records: The largest range, in records, that is read with it.
        settings: librdkafka's settings.
    """

    name: str
    max_records: float
    settings: Mapping[str, int | str]


_COMMON: dict[str, int | str] = {
    # A full queue pauses fetching; with the default of a second, the consumer would pause most of the time.
    "fetch.queue.backoff.ms": 2,
    # The records of a range exist already, so a broker need not wait for more.
    "fetch.wait.max.ms": 20,
    "fetch.error.backoff.ms": 100,
    # The driver has just seen the topics, so an unknown topic was deleted and is not about to appear.
    "topic.metadata.propagation.max.ms": 5_000,
    "allow.auto.create.topics": "false",  # a topic that was deleted must not come back empty
    "max.poll.interval.ms": 86_400_000,  # a slow query downstream is not a failure
    "log_level": 2,  # errors arrive through the callback and are reported as exceptions
}
SIZES = (
    FetchSize(
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
    FetchSize(
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


def choose_size(records: int) -> FetchSize:
    """Choose the fetch size for a range with this number of offsets."""
    return next(size for size in SIZES if records <= size.max_records)


FIRST_ATTEMPT = 3.0
"""The timeout of the first request for offsets, in seconds. Each further request has twice the timeout: a request goes
to the leaders that are known when it begins, and one of them may hang."""
_LEADER_TIMEOUT = 3.0
"""The timeout of a request for the leaders of a topic, in seconds, before its offsets are requested again."""
LOGIN_SETTLING = 5.0
"""How many seconds without a message make a refused login final."""
_RETRIABLE_LOGIN = re.compile(
    "handshake failed: Local: "  # the connection ended during the login, as when a broker shuts down
    "|Failed to acquire SASL OAUTHBEARER token"  # the previous token may still be valid, and the client tries again
)
_ALL_DOWN = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
_BROKER = re.compile(r"^\w+://([^/]+)/")

GROUP_ERRORS = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.INVALID_GROUP_ID)
"""Errors without effect: the client looks for the group's coordinator although its partitions are assigned to it."""


class PooledConsumer:
    """A consumer of one cluster with one fetch size.

    Args:
        settings: librdkafka's settings with resolved secrets; held in memory only, as long as the consumer.
        servers: The cluster's bootstrap servers, for error messages.

    Attributes:
        servers: The cluster's bootstrap servers.
        last_error: The last error since the last assignment, as a string.
        client_id: Its client id.
        pool_key: The key under which it is pooled; None if it was not borrowed.
        login_settling: How many seconds without a message make a refused login final.
    """

    def __init__(self, settings: Mapping[str, Any], servers: str) -> None:
        self.servers = servers
        self.pool_key: Hashable = None
        self.login_settling = LOGIN_SETTLING
        self.last_error: str | None = None
        self._topic_error: KafkaError | None = None
        self._refused: KafkaError | None = None
        self._refused_at = 0.0
        self.client_id: str = settings.get("client.id", "")
        self._statistics: dict[str, float] | None = None
        self._settings = {**settings, "enable.partition.eof": "true"}
        self._connect()

    def _connect(self) -> None:
        """Create the client, and forget an earlier client without closing it."""
        callbacks = weak_callback(self.note_error), weak_callback(self._on_statistics)
        self._client = ConsumerClient(self._settings, *callbacks)
        self._used = False

    def consume(self, most: int, seconds: float) -> MessageBatch:
        """Take at most ``most`` messages, and wait ``seconds`` for them; the client's errors are noted before.

        A KafkaException says that the client has failed.
        """
        return self._client.consume(most, seconds)

    def assign(self, ranges: Sequence[Range]) -> None:
        """Start fetching at the starts of some ranges; discard what was fetched for earlier ones, and their errors."""
        if self._used:  # errors that arrived since the last task are outdated
            self._client.unassign()
            with suppress(KafkaException):
                self._client.discard_fetched()
        self._used = True
        self.last_error = self._topic_error = self._refused = None
        self._client.assign((r.topic, r.partition, r.start) for r in ranges)

    def release(self, ranges: Sequence[Range]) -> None:
        """Stop fetching the partitions of some ranges of the present assignment, and discard what was fetched."""
        self._client.release((r.topic, r.partition) for r in ranges)

    def reconnect(self, ranges: Sequence[Range]) -> None:
        """Start fetching as `assign` does, with a new client; close the old one in a thread.

        `last_error` is kept, and `lasting_error` is forgotten.
        """
        last, old = self.last_error, self._client
        self._connect()
        # The reason why a client does not fetch may also prevent it from closing.
        Thread(target=old.close, name="kdsl abandoned consumer", daemon=True).start()
        self.assign(ranges)
        self.last_error = last

    def pause(self) -> None:
        """Stop fetching until the next assignment."""
        self._client.unassign()

    @property
    def lasting_error(self) -> KafkaError | None:
        """The error since the last assignment that waiting does not cure: a missing or forbidden topic, or a login.

        A refused login counts when nothing has contradicted it for `login_settling` seconds, and then comes before the
        other errors. None if there is no such error.
        """
        final = self._refused is not None and time.monotonic() - self._refused_at > self.login_settling
        return self._refused if final else self._topic_error

    def note_success(self) -> None:
        """Note that the brokers sent something: a login that was refused before is forgotten."""
        self._refused = None

    def note_error(self, error: KafkaError) -> None:
        """Store an error of the client as `last_error`, and for `lasting_error` if it is of such a kind.

        The client may recover from it by itself. Ignored are errors of the group (`GROUP_ERRORS`), and that all brokers
        are down if an earlier error says why. Another error of the broker that refused the login ends the refusal.
        """
        if error.code() in GROUP_ERRORS or (error.code() == _ALL_DOWN and self.last_error):  # the last error says why
            return
        self.last_error = error.str()
        if errors.is_unknown_topic(error) or errors.is_not_allowed(error):
            self._topic_error = error
        elif errors.is_login_error(error) and not _RETRIABLE_LOGIN.search(error.str()):
            if self._refused is None:
                self._refused, self._refused_at = error, time.monotonic()
        elif self._refused and _broker_of(error) == _broker_of(self._refused):  # the broker has got past the login
            self._refused = None

    def close(self) -> None:
        """Close the consumer for good, and end its threads."""
        self._client.close()

    def earliest(self, ranges: Sequence[Range], seconds: float) -> list[int]:
        """Fetch the offset of the first record in the partition of each range; errors as in `latest`."""
        return self._ask_for_offsets(ranges, OFFSET_BEGINNING, seconds)

    def latest(self, ranges: Sequence[Range], seconds: float) -> list[int]:
        """Fetch the offset after the last record in the partition of each range."""
        return self._ask_for_offsets(ranges, OFFSET_END, seconds)

    def _ask_for_offsets(self, ranges: Sequence[Range], mark: int, seconds: float) -> list[int]:
        """Ask the leaders for the offset of a mark (`OFFSET_BEGINNING` or `OFFSET_END`) in each range's partition."""
        # librdkafka passes the protocol's markers for the ends of a log on as if they were timestamps.
        wanted = [(r.topic, r.partition, mark) for r in ranges]
        deadline = Deadline(seconds)

        def ask(timeout: float) -> tuple[list[int], list[tuple[Range, KafkaError | None]]]:
            unknown: list[tuple[Range, KafkaError | None]]
            try:
                answers = self._client.offsets_for_times(wanted, max(0.1, timeout))
            except KafkaException as e:
                unknown = [(r, errors.kafka_error(e)) for r in ranges]
            else:
                # A leader that hangs leaves its partitions without an offset, beside those of other leaders.
                of_each = zip(ranges, answers, strict=True)
                unknown = [(r, a.error) for r, a in of_each if a.error is not None or a.offset < 0]
                if not unknown:
                    return [a.offset for a in answers], []
            gone = self._learn_leaders([r for r, _ in unknown], deadline)
            for r, error in unknown:
                # A request that waits for a connection whose login was cut off fails as if the login was refused.
                lasting = error is not None and error.code() not in RETRIABLE and not errors.is_login_error(error)
                if error is not None and errors.is_unknown_topic(error):
                    lasting = (r.topic, r.partition) in gone
                if lasting:
                    raise self._no_offset(r, error)
            return [], unknown

        offsets, unknown = retry(ask, lambda result: not result[1], deadline, first_timeout=FIRST_ATTEMPT)
        if unknown:
            raise self._no_offset(*unknown[0], waited=f" within {seconds:.0f} s")
        return offsets

    def _no_offset(self, range_: Range, error: KafkaError | None, waited: str = "") -> KafkaReadError:
        """Create the error for a range whose offset cannot be fetched; ``waited`` says in the message for how long."""
        reason = f": {error.str()} ({error.name()})" if error is not None else ""
        fix = "check that the partition has a leader, and that its broker can be reached from this machine"
        if error is not None and errors.is_not_allowed(error):
            fix = "grant READ and DESCRIBE on the topic to this user"
        elif error is not None and errors.is_unknown_topic(error):
            fix = "check that the topic still exists and has this partition"
        return KafkaReadError(f"cannot fetch the offsets of {range_} from {self.servers}{waited}{reason}; {fix}")

    def _learn_leaders(self, ranges: Sequence[Range], deadline: Deadline) -> set[tuple[str, int]]:
        """Refresh the leaders of the partitions of some ranges, and return the partitions that do not exist.

        The result is empty if a request fails. Once the client has learned that a partition has no leader, it does not
        request its offsets for minutes. If no partition of a topic has a leader, it calls the partitions unknown.
        """
        missing = {(r.topic, r.partition) for r in ranges}
        for topic in {r.topic for r in ranges}:
            timeout = min(_LEADER_TIMEOUT, max(0.5, deadline.remaining))
            try:
                present = self._client.partitions_of(topic, timeout)
            except KafkaException:  # no broker answers, so no partition is known to be missing
                return set()
            missing -= {(topic, partition) for partition in present}
        return missing

    def take_statistics(self) -> dict[str, float] | None:
        """Return the client's latest statistics and forget them; None if there are none since the last call."""
        statistics, self._statistics = self._statistics, None
        return statistics

    def _on_statistics(self, text: bytes) -> None:
        """Store the metrics of the client's statistics, in place of the previous ones."""
        self._statistics = client_metrics(text)


def _broker_of(error: KafkaError) -> str:
    """Return the address of the broker that an error names; empty if it names none."""
    match = _BROKER.match(error.str())
    return match[1] if match else ""


def discard(consumer: PooledConsumer) -> None:
    """Close a consumer that is not pooled, such as a borrowed one that has failed, ignoring errors."""
    with suppress(Exception):  # nothing reads with it any more
        consumer.close()


_pool = ClientPool(POOL_SIZE, discard)
_nth = count(1)


def borrow_consumer(cluster: Cluster, cluster_key: str, size: FetchSize, names: Mapping[str, str]) -> PooledConsumer:
    """Take the consumer of a cluster and a fetch size from the pool; create it if there is none.

    The caller owns it until it is passed to `return_consumer` or `discard`. Pooled clients that have been unused for
    ten minutes are closed.

    Args:
        cluster: Where to connect; its secrets are resolved here for a new consumer.
        cluster_key: Distinguishes clusters and tables: the options from which the cluster was read.
        size: How much it fetches ahead.
        names: Defaults for settings of a new consumer, such as ``group.id``; a ``client.id`` here replaces the user's,
            with a number appended. A pooled consumer keeps its own.
    """
    key = (cluster_key, size.name)
    consumer = _pool.take(key)
    if consumer is None:
        settings = cluster.consumer({**names, **size.settings})
        if "client.id" in names:
            settings["client.id"] = f"{names['client.id']}-{next(_nth)}"
        consumer = PooledConsumer(settings, cluster.bootstrap_servers)
        consumer.pool_key = key
    return consumer


def return_consumer(consumer: PooledConsumer) -> None:
    """Stop a borrowed consumer's fetching, and put it into the pool; the oldest one is closed if the pool is full."""
    consumer.pause()
    _pool.put(consumer.pool_key, consumer)


@atexit.register
def _close_all() -> None:
    """Close the pooled consumers when the process ends."""
    for consumer in _pool.take_all():
        discard(consumer)


__all__ = ["FetchSize", "PooledConsumer", "borrow_consumer", "choose_size", "discard", "return_consumer"]
