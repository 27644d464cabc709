"""Finds logs that were cut off: the records at some offsets are not those that were there in an earlier leader epoch.

After an unclean leader election, or when a broker lost its disk, the new leader has fewer records than the former one,
and other records take their offsets. The brokers know where each leader epoch ends (the request OffsetForLeaderEpoch).
librdkafka has no function for it, but sends it when a partition is assigned at an offset with a leader epoch, and
reports a shorter log as an error whose message has the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition as ClientPartition

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.errors import KafkaReadError, OffsetError, pluralize
from kdsl.plan.model import ReadPlan
from kdsl.retry import Deadline
from kdsl.run.admin import errors
from kdsl.run.admin.cluster_admin import OffsetAndEpoch
from kdsl.run.admin.errors import RETRIABLE, StalledError
from kdsl.run.librdkafka.consumers import GROUP_ERRORS, SIZES
from kdsl.run.offsets.ends import Ends
from kdsl.run.offsets.starting import describe_truncated
from kdsl.run.offsets.stored import Range
from kdsl.run.offsets.subscription import log

_POLL_SECONDS = 0.1
_POLL_MESSAGES = 1_000
_TRUNCATED = re.compile(
    r"(?:Partition log truncation detected|No epoch found less or equal).*"
    r"broker end offset is (-?\d+) \(offset leader epoch (-?\d+)\)"
)
_CODES = (
    KafkaError._AUTO_OFFSET_RESET,  # noqa: SLF001
    KafkaError._LOG_TRUNCATION,  # noqa: SLF001
)
_NO_RECORD = (*_CODES, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._PARTITION_EOF)  # noqa: SLF001


def truncation_of(error: KafkaError) -> OffsetAndEpoch | None:
    """Return where the log ends according to an error of librdkafka about a log that was cut off; None for another one.

    The epoch is the latest one that the brokers know up to the wanted one, and the offset is where it ends. Both are -1
    if the brokers know none, or if the message of the error does not have them.
    """
    match = _TRUNCATED.search(error.str())
    if match is not None and error.code() in _CODES:
        return OffsetAndEpoch(int(match[1]), int(match[2]))
    return OffsetAndEpoch(-1, -1) if error.code() == _CODES[1] else None


def find_truncations(
    cluster: Cluster, table: str, group: str, positions: Mapping[TopicPartition, OffsetAndEpoch]
) -> dict[TopicPartition, OffsetAndEpoch]:
    """Ask the brokers which positions lie after the end of their leader epoch, with a consumer for this alone.

    A position whose records were deleted, or whose epoch the brokers do not check, is not one of them.

    Args:
        cluster: The cluster.
        table: The table's name, for messages.
        group: The consumer group that the consumer names; it does not join it.
        positions: Offsets, each with the leader epoch in which all records before it existed.

    Returns:
        For the partitions that were cut off, where the epoch ends (`truncation_of`).
    """
    own = {
        # One record shows that an offset was accepted.
        "queued.min.messages": 1,
        "max.partition.fetch.bytes": 16_384,
        "fetch.wait.max.ms": 20,
        "isolation.level": "read_uncommitted",  # aborted records are as good as others
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "log_level": 0,
    }
    last: list[str] = []
    settings = cluster.consumer({**SIZES[0].settings, "group.id": group})
    seconds = cluster.kdsl_settings.api_timeout_ms / 1000
    consumer = Consumer({**settings, **own, "error_cb": lambda error: last.append(error.str())})
    waiting, truncations = set(positions), dict[TopicPartition, OffsetAndEpoch]()
    deadline = Deadline(seconds)
    try:
        consumer.assign([_client_partition(partition, at) for partition, at in positions.items()])
        while waiting:
            if deadline.has_passed:
                raise _explain_silence(table, waiting, seconds, last)
            for partition, truncation in _outcomes(consumer.consume(_POLL_MESSAGES, _POLL_SECONDS), table):
                if partition in waiting and truncation is not None:
                    truncations[partition] = truncation
                waiting.discard(partition)
    finally:
        with suppress(KafkaException, RuntimeError):
            consumer.close()
    return truncations


def _client_partition(partition: TopicPartition, at: OffsetAndEpoch) -> ClientPartition:
    """Create the client's object for a partition at an offset with a leader epoch."""
    return ClientPartition(*partition, at.offset, leader_epoch=at.epoch)


def _outcomes(
    messages: Iterable[Message[bytes, bytes]], table: str
) -> Iterable[tuple[TopicPartition, OffsetAndEpoch | None]]:
    """Yield the partitions for which messages show the outcome: where their log was cut off, or None if it was not."""
    for message in messages:
        error, partition = message.error(), (message.topic() or "", message.partition() or 0)
        if error is None or error.code() in _NO_RECORD or truncation_of(error) is not None:
            yield partition, None if error is None else truncation_of(error)
        elif error.fatal() or error.code() not in (*RETRIABLE, *GROUP_ERRORS):
            what = f"whether the log of topic {partition[0]}, partition {partition[1]} was cut off"
            raise KafkaReadError(f"{table}: cannot find out {what}: {error.str()} ({error.name()})")


def _explain_silence(
    table: str, waiting: Iterable[TopicPartition], seconds: float, last: Iterable[str]
) -> StalledError:
    """Create the error for brokers that did not say in time whether logs were cut off."""
    names = errors.join_some(f"{topic}[{partition}]" for topic, partition in sorted(waiting))
    last_error = errors.describe_last_error(next(reversed(list(last)), None))
    return StalledError(
        f"{table}: the leaders of {names} have changed, and they did not say within {seconds:.0f} s whether the logs "
        f"were cut off{last_error}; to wait longer, raise the client property default.api.timeout.ms"
    )


class TruncationSearch:
    """Finds the logs of a stream that were cut off; each leader is asked once.

    Args:
        plan: What is read.
        cluster: The cluster that is read.
        reset: What the settings say about offsets without records (``auto.offset.reset``).
    """

    def __init__(self, plan: ReadPlan, cluster: Cluster, reset: str) -> None:
        self._plan, self._cluster, self._reset = plan, cluster, reset
        self._verified: dict[TopicPartition, tuple[OffsetAndEpoch, int]] = {}

    def find(
        self,
        positions: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int],
        ends: Ends,
        *,
        keeps_rows: bool,
    ) -> dict[TopicPartition, int]:
        """Find the logs that were cut off before positions, and return where the new records begin in them.

        Only partitions whose leader has another epoch than the position are asked about, once for each leader.

        Args:
            positions: Offsets up to which the records were known.
            epochs: The leader epochs of that time, where they are known.
            ends: The present ends, which were asked for before.
            keeps_rows: Whether states of partitions have rows of the records; then a log that was cut off is an error.
        """
        changed = [p for p, epoch in epochs.items() if ends.epochs.get(p, epoch) > epoch and positions.get(p)]
        suspects = {p: OffsetAndEpoch(positions[p], epochs[p]) for p in changed}
        leaders = {p: ends.epochs[p] for p in changed}
        suspects = {p: at for p, at in suspects.items() if self._verified.get(p) != (at, leaders[p])}
        if not suspects:
            return {}
        plan = self._plan
        truncations = find_truncations(self._cluster, plan.table, plan.group_id or f"kdsl-{plan.table}", suspects)
        unknown = any(at.offset < 0 for at in truncations.values())
        if truncations and (self._reset == "none" or unknown or keeps_rows):
            raise OffsetError(describe_truncated(plan.table, suspects, truncations, keeps_rows=keeps_rows))
        self._verified |= {p: (at, leaders[p]) for p, at in suspects.items() if p not in truncations}
        return {partition: at.offset for partition, at in truncations.items()}

    def find_and_log(
        self,
        positions: Mapping[TopicPartition, int],
        epochs: Mapping[TopicPartition, int],
        ends: Ends,
        *,
        keeps_rows: bool,
        planned: bool = False,
    ) -> dict[TopicPartition, int]:
        """Return where to continue in partitions whose logs were cut off before their positions, and log them.

        The new records in the place of the lost ones are read.

        Args:
            positions: As for `find`.
            epochs: As for `find`.
            ends: As for `find`.
            keeps_rows: As for `find`.
            planned: Whether the positions are the ends of a planned batch, which may not have read the lost records.
        """
        truncations = self.find(positions, epochs, ends, keeps_rows=keeps_rows)
        what = "planned" if planned else "read"
        for (topic, partition), at in sorted(truncations.items()):
            log.warning(
                "%s: the log of topic %s, partition %d was cut off at offset %d, and %s up to offset "
                "%d: %s lost there, and others take their offsets; the read continues at "
                "offset %d, according to auto.offset.reset=%s",
                self._plan.table,
                topic,
                partition,
                at,
                "the batch was planned" if planned else "the query has read",
                positions[topic, partition],
                pluralize(
                    positions[topic, partition] - at, f"record that was {what} is", f"records that were {what} are"
                ),
                at,
                self._reset,
            )
        return truncations


class EpochCheck:
    """Checks that the records of a task existed when its offsets were planned.

    The leader that reported the end of a log had an epoch. A record before that end with a higher epoch has taken the
    place of another one. The epochs of a partition's records only grow, so the last record of each fetch is enough.

    Args:
        cluster: The cluster.
        table: The table's name, for messages.
        group: The consumer group that a consumer names which asks the brokers.
        epochs: The epochs of the leaders that reported the ends of the planned ranges.
        keeps_rows: Whether the query keeps the rows of keys by partition.
    """

    def __init__(
        self,
        cluster: Cluster,
        table: str,
        group: str,
        epochs: Mapping[TopicPartition, int],
        *,
        keeps_rows: bool = False,
    ) -> None:
        self._cluster, self._table, self._group, self._epochs = cluster, table, group, dict(epochs)
        self._keeps_rows = keeps_rows

    def verify(self, last_epochs: Sequence[tuple[Range, int | None]]) -> None:
        """Check the epochs of fetched records; where one is too high, the brokers are asked, once for each partition.

        Args:
            last_epochs: The fetched ranges, each with the epoch of its last record so far, if the client knows it.
        """
        suspects = {}
        for at, epoch in last_epochs:
            planned = self._epochs.get((at.topic, at.partition))
            if planned is not None and epoch is not None and epoch > planned:
                suspects[at.topic, at.partition] = OffsetAndEpoch(at.end, planned)
        if not suspects:
            return
        truncations = find_truncations(self._cluster, self._table, self._group, suspects)
        if truncations:
            raise OffsetError(self.describe(suspects, truncations, "the batch was planned up to"))
        for partition in suspects:  # these brokers number epochs in another way
            del self._epochs[partition]

    def describe(
        self,
        positions: Mapping[TopicPartition, OffsetAndEpoch],
        truncations: Mapping[TopicPartition, OffsetAndEpoch],
        reached: str,
    ) -> str:
        """Return the message of an error about logs that were cut off; arguments are those of `describe_truncated`."""
        return describe_truncated(self._table, positions, truncations, reached, keeps_rows=self._keeps_rows)


__all__ = ["EpochCheck", "find_truncations", "truncation_of"]
