"""The writes that are done under a prefix: a compacted topic with a record for each ``write_id``.

Tokens are stored as offsets, which the brokers forget some time after the last commit (``offsets.retention.minutes``),
and a token describes only the last write. A scheduler may repeat a write after weeks, or after later writes. The record
of a write is in the transaction of its rows: either both exist or neither does. Compaction keeps it.
"""

from __future__ import annotations

import json
import logging
import re
import zlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import attrs
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from kdsl.cluster import Cluster
from kdsl.errors import ExactlyOnceError, KafkaReadError, TopicMissingError
from kdsl.retry import Deadline, retry
from kdsl.run.admin import errors
from kdsl.run.admin.admin_client import SafeAdminClient
from kdsl.run.admin.errors import RETRIABLE, NotAllowedError, StalledError
from kdsl.run.librdkafka.transactions.spec import RECORD_VERSION
from kdsl.run.librdkafka.transactions.token_store import TokenAdmin

POLICY = "cleanup.policy"
_REPLICAS = "default.replication.factor"
_ENDING = ".kdsl-writes"
_LONGEST = 249
_ILLEGAL = re.compile(r"[^A-Za-z0-9._-]")
_SECONDS = 30.0
_log = logging.getLogger(__name__)
V = TypeVar("V")


def log_topic(prefix: str) -> str:
    """Build the name of the topic that records the writes of a prefix.

    It begins with the prefix, whose characters that are illegal in topic names are replaced. If any was, or if the name
    would be too long, the prefix is cut to 200 characters, and a checksum of it added. It ends with ``.kdsl-writes``.
    """
    name = _ILLEGAL.sub("_", prefix)
    if name != prefix or len(name) + len(_ENDING) > _LONGEST:
        name = f"{name[:200]}-{zlib.crc32(prefix.encode()):08x}"
    return name + _ENDING


def writes_group(prefix: str) -> str:
    """The group that reads the topic: it begins with the prefix, for whose groups the user has rights."""
    return prefix + _ENDING


def replicas_of_log(target: int, default: int | None) -> int:
    """Choose the number of replicas of the topic: as many as the target topic has, or -1 for the brokers' default.

    The default is chosen where it is known to be enough, or nothing is known of the target.

    Args:
        target: The number of replicas of the target topic; 0 where that is not known.
        default: The brokers' default; None if this user may not see it.
    """
    return target if target and (default is None or default < target) else -1


@attrs.frozen
class DoneWrite:
    """A write that is done.

    Attributes:
        table: The table's name.
        plan: The digest of its records (`kdsl.run.librdkafka.transactions.spec.records_digest`).
        time: When it was made, in milliseconds since the epoch.
        topics: The ids of the topics that it wrote to, by name.
    """

    table: str
    plan: str
    time: int
    topics: dict[str, str]

    def missing_topics(self, now: Mapping[str, str]) -> list[str]:
        """List the topics that were deleted since, or created again; empty if the brokers have no topic ids.

        Args:
            now: The ids that topics have now, by name.
        """
        return [name for name, id_ in self.topics.items() if id_ and now.get(name) != id_]


class WriteLog:
    """The record of the writes under a prefix.

    Args:
        cluster: The cluster.
        prefix: The prefix of the transactional ids.
        table: The table's name, for messages.

    Attributes:
        topic: The topic that contains the record.
    """

    def __init__(self, cluster: Cluster, prefix: str, table: str) -> None:
        self.topic = log_topic(prefix)
        self._cluster, self._prefix, self._table = cluster, prefix, table
        self._admin = TokenAdmin(cluster, table)

    def prepare(self, target: str) -> None:
        """Create the topic if it is missing; otherwise check that it keeps its records.

        If this user may not see the topic's settings, a warning is logged instead.

        Args:
            target: The topic that is written; a new topic of writes gets at least as many replicas as it has.
        """
        created = not self._admin.topics([self.topic]) and self._create(target)
        if not created:
            self._check_policy()
        self._wait_for(lambda: self._admin.topics([self.topic]))

    def _wait_for(self, ask: Callable[[], Mapping[str, V]]) -> Mapping[str, V]:
        """Ask the brokers for the topic until the answer is not empty, and return it.

        Not every broker knows at once about a topic that was created, perhaps by another process.
        """
        answer = retry(lambda _: ask(), bool, Deadline(_SECONDS))
        if not answer:
            raise TopicMissingError(
                f"{self._table}: the brokers do not know the topic {self.topic!r}, which records the writes that are "
                f"done, {_SECONDS:g} s after it was created; check that all brokers run, and start the write again"
            )
        return answer

    def _create(self, target: str) -> bool:
        """Create the topic, compacted and with one partition, and return whether this process did, which is logged.

        False where another process was faster.
        """
        default = self._admin.settings([_REPLICAS]).get(_REPLICAS)
        replicas = replicas_of_log(self._admin.replicas(target), default)
        new = NewTopic(self.topic, 1, replicas, config={POLICY: "compact"})
        admin = SafeAdminClient(self._cluster.admin({"log_level": 0}))
        error = _error_of(admin.create_topics([new], operation_timeout=_SECONDS)[self.topic])
        if error is None:
            _log.info("%s: created the topic %s, which records the writes that are done", self._table, self.topic)
        elif error.code() != KafkaError.TOPIC_ALREADY_EXISTS:
            factor = f" --replication-factor {replicas}" if replicas > 0 else ""
            raise ExactlyOnceError(
                f"{self._table}: the topic {self.topic!r}, which records the writes under the "
                f"transactional_id_prefix {self._prefix!r} that are done, cannot be created: {error.str()}; create "
                f"it (kafka-topics.sh --create --topic {self.topic} --partitions 1{factor} --config {POLICY}=compact), "
                "and grant READ, WRITE and DESCRIBE on it to this user"
            )
        return error is None

    def _check_policy(self) -> None:
        """Check that the topic is compacted and so keeps its records; warn if this user may not see its settings."""
        try:
            policy = self._wait_for(lambda: self._admin.topic_settings(self.topic))[POLICY]
        except NotAllowedError as e:
            _log.warning(
                "%s: kdsl cannot check whether the topic %s keeps the record of done writes (%s); make sure that "
                "its %s is 'compact', or grant DESCRIBE_CONFIGS on the topic %r to this user",
                self._table, self.topic, e, POLICY, self.topic,
            )  # fmt: skip
            return
        if policy != "compact":
            raise ExactlyOnceError(
                f"{self._table}: the topic {self.topic!r} records the writes that are done, and must keep them "
                f"forever, but its {POLICY} is {policy!r}; set it to 'compact' (kafka-configs.sh --alter --topic "
                f"{self.topic} --add-config {POLICY}=compact)"
            )

    def find(self, write_ids: Iterable[str]) -> dict[str, DoneWrite]:
        """Read the whole topic, and return the done writes among some ids, by id; the last record of an id counts.

        The topic must exist (`prepare`), or a KeyError is raised. No process may write under the prefix at the same
        time. The consumer is closed afterwards.
        """
        partitions = self._admin.topics([self.topic])[self.topic].partitions
        settings: dict[str, Any] = {
            **self._cluster.consumer(),
            "group.id": writes_group(self._prefix),
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "log_level": 0,
        }
        consumer = Consumer(settings)
        try:
            consumer.assign([TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in range(partitions)])
            return self._read(consumer, {id_.encode() for id_ in write_ids}, set(range(partitions)))
        finally:
            consumer.close()

    def _describe_refused(self, error: KafkaError) -> str:
        """Name what this user may not read, the group or the topic, for a message."""
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return f"through the group {writes_group(self._prefix)!r}"
        return f"the topic {self.topic!r}, which records the writes that are done"

    def _read(self, consumer: Consumer, keys: set[bytes], open_ones: set[int]) -> dict[str, DoneWrite]:
        """Read the done writes with some keys, up to the ends of the partitions, and return them by key.

        Args:
            consumer: A consumer to which all partitions are assigned.
            keys: The keys.
            open_ones: The partitions that are not read to their ends; it is emptied.
        """
        done_writes = {}
        deadline = Deadline(_SECONDS)
        while open_ones:
            messages = consumer.consume(1_000, 0.5)
            if messages:
                deadline = Deadline(_SECONDS)
            elif deadline.has_passed:
                raise StalledError(
                    f"{self._table}: the topic {self.topic!r}, which records the writes that are done, sent nothing "
                    f"within {_SECONDS:g} s; check that its partitions have leaders and that no transaction hangs"
                )
            for message in messages:
                error = message.error()
                if error is None:
                    key = message.key()
                    if key in keys:
                        done_writes[key.decode()] = read_done_write(message.value() or b"", self.topic)
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                    open_ones.discard(message.partition() or 0)
                elif errors.is_not_allowed(error):
                    raise errors.not_allowed(self._table, self._describe_refused(error), error)
                elif error.code() not in RETRIABLE:
                    raise KafkaReadError(f"{self._table}: the topic {self.topic!r} cannot be read: {error.str()}")
        return done_writes


def read_done_write(value: bytes, topic: str) -> DoneWrite:
    """Read a record of the topic (`kdsl.run.librdkafka.transactions.spec.TransactionSpec.done_record` makes it)."""
    try:
        document = json.loads(value)
        version = document["version"]
        if version == RECORD_VERSION:
            return DoneWrite(*(document[name] for name in ("table", "plan", "time", "topics")))
    except (ValueError, KeyError, TypeError):
        raise ExactlyOnceError(
            f"a record of the topic {topic!r}, which records the writes that are done, cannot be read; only kdsl "
            "should write to this topic: remove the right of others to write to it, and choose another prefix"
        ) from None
    raise ExactlyOnceError(
        f"a record of the topic {topic!r} has version {version}, this kdsl reads version {RECORD_VERSION}; use the "
        "newer kdsl"
    )


def _error_of(future: Any) -> KafkaError | None:
    """Wait for a future; return its Kafka error (that of a timeout if it is not done in time), None without one."""
    try:
        future.result(_SECONDS)
    except TimeoutError:
        return KafkaError(KafkaError._TIMED_OUT)  # noqa: SLF001
    except KafkaException as e:
        error: KafkaError = e.args[0]
        return error
    return None
