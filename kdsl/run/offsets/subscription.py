"""The driver's view of a read: which partitions it reads, where they start, and how far they reach now."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.client_settings.kdsl_settings import Reset
from kdsl.cluster import Cluster
from kdsl.errors import OffsetError, TopicMissingError
from kdsl.plan.model import ReadPlan, Stop
from kdsl.run.admin import errors
from kdsl.run.admin.cluster_admin import ClusterAdmin, Topic
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.offsets.ends import Ends, read_ends
from kdsl.run.offsets.initializer import Retriever, call_initializer
from kdsl.run.offsets.starting import Begin, Known, decide_start
from kdsl.run.offsets.stopping import End, decide_stop, ends_at_committed

log = logging.getLogger("kdsl.read")


class Subscription:
    """The topics of a table on a cluster.

    Args:
        plan: The read.
        cluster: The cluster of the topics.
        admin: The admin client; None means librdkafka's.

    Attributes:
        admin: The admin client.
        reset: What to do about an offset that is missing or has expired.
    """

    def __init__(self, plan: ReadPlan, cluster: Cluster, admin: ClusterAdmin | None = None) -> None:
        self._plan = plan
        kdsl_settings = cluster.kdsl_settings
        self.admin: ClusterAdmin = admin or LibrdkafkaAdmin(cluster, plan.table)
        self.reset: Reset = (
            plan.start.reset if plan.start.reset != "none" else kdsl_settings.auto_offset_reset or "none"
        )
        self._warned = False
        self._internal = not kdsl_settings.exclude_internal_topics
        settings = cluster.consumer() if admin is None else cluster.java("consumer").settings
        self._committed = settings.get("isolation.level") == "read_committed"

    def topics(self, *, known: bool = False) -> dict[str, Topic]:
        """Ask the brokers for the topics of the table that exist now.

        For brokers without topic ids, a warning is logged once.

        Args:
            known: Whether they existed a moment ago (`kdsl.run.admin.cluster_admin.ClusterAdmin.topics`).
        """
        names = self._names()
        topics = self.admin.topics(names, known=known)
        if self._plan.topics.pattern is None and (missing := set(names) - topics.keys()):
            raise errors.missing_topics(self._plan.table, missing, self.admin.names())
        without = sorted(name for name, topic in topics.items() if not topic.id)
        if without and not self._warned:
            self._warned = True
            log.warning(
                "%s: the brokers have no id for the topic %r, because they are older than Kafka 2.8, the oldest "
                "version that kdsl supports; a topic that is deleted and created again is not noticed",
                self._plan.table,
                without[0],
            )
        return topics

    def partitions(self, topics: Mapping[str, Topic]) -> list[TopicPartition]:
        """List the partitions of some topics that are read: all, or those that the plan names."""
        every = _all_partitions(topics)
        wanted = set(self._plan.topics.partitions)
        missing = sorted(partition for partition in wanted - set(every) if partition[0] in topics)
        if missing:
            named = errors.join_some(f"{topic}[{partition}]" for topic, partition in missing)
            existing = errors.join_some(
                f"{topic} has the partitions 0 to {topics[topic].partitions - 1}"
                for topic in dict.fromkeys(topic for topic, _ in missing)
            )
            raise TopicMissingError(f"{self._plan.table}: there is no partition {named}: {existing}")
        return [partition for partition in every if partition in wanted] if wanted else every

    def begin(self, topics: Mapping[str, Topic]) -> Begin:
        """Compute where a stream without a checkpoint starts, as `span` does, with its effects and errors."""
        return self.span(topics, batch=False)[0]

    def span(self, topics: Mapping[str, Topic], *, batch: bool) -> tuple[Begin, dict[TopicPartition, int]]:
        """Compute where a read without a checkpoint starts, and where it ends by itself; call offsets initializers.

        The brokers are asked for the offsets.
        Gaps that are skipped, and decisions that were not declared, are logged.

        Args:
            topics: The topics.
            batch: Whether a batch is read, which ends in any case and cannot wait
                (`kdsl.run.offsets.stopping.decide_stop`).

        Returns:
            The start, and the stopping offset of each partition; empty if the read does not end.
        """
        partitions = self.partitions(topics)
        start = call_initializer(self._plan.table, self._plan.start, partitions, self._retriever())
        plan = attrs.evolve(self._plan, start=start, stop=self._stop(partitions))
        known = self._ask_offsets(plan, partitions, batch=batch)
        try:
            end = self._end(plan, known, batch=batch)
        except OffsetError as e:
            raise self._with_start(e, plan, known) from e
        begin = attrs.evolve(decide_start(plan, known, self.reset, end.offsets), epochs=known.epochs)
        for note in begin.notes:
            log.warning("%s: %s", self._plan.table, note)
        self.warn_of_lost(begin.lost)
        return begin, dict(end.offsets)

    def stop(
        self, partitions: Iterable[TopicPartition], known: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, int]:
        """Compute where a stream over some partitions that has begun already ends by itself, and log notes about it.

        If the end is an offsets initializer, that is called.

        Args:
            partitions: The partitions.
            known: Offsets that the logs should reach (`read_ends`); those of the start and the end are among them.

        Returns:
            The stopping offset of each partition; empty if the stream does not end.
        """
        wanted = list(partitions)
        plan = attrs.evolve(self._plan, stop=self._stop(wanted))
        return dict(
            self._end(plan, self._ask_offsets(plan, wanted, batch=False, known=known or {}), batch=False).offsets
        )

    def _stop(self, partitions: list[TopicPartition]) -> Stop:
        """Return the plan's end; if it is an offsets initializer, call that for the offsets."""
        return call_initializer(self._plan.table, self._plan.stop, partitions, self._retriever())

    def _retriever(self) -> Retriever:
        """Return the object by which an offsets initializer asks for offsets."""
        return Retriever(self.admin, self._plan.group_id, self.ends)

    def _with_start(self, error: OffsetError, plan: ReadPlan, known: Known) -> OffsetError:
        """Return the error of an end, or one with that of the start added if both are wrong; nothing is asked."""
        try:
            decide_start(plan, known, self.reset)
        except OffsetError as e:
            return OffsetError(f"{error}; and {str(e).removeprefix(f'{plan.table}: ')}")
        return error

    def _end(self, plan: ReadPlan, known: Known, *, batch: bool) -> End:
        """Decide where the read ends, and log its notes; an OffsetError is that of `decide_stop`."""
        end = decide_stop(plan, known, batch=batch)
        for note in end.notes:
            log.warning("%s: %s", self._plan.table, note)
        return end

    def _ask_offsets(
        self,
        plan: ReadPlan,
        partitions: list[TopicPartition],
        *,
        batch: bool,
        known: Mapping[TopicPartition, int] = MappingProxyType({}),
    ) -> Known:
        """Ask the brokers for the offsets that start and end need.

        A log that ends before an offset at which the read starts or ends, or a ``known`` one, is waited for
        (`read_ends`), except where a stream ends: it may be declared to end later than the log does now.
        """
        start, stop = plan.start, plan.stop
        groups = partitions if start.mode == "group-offsets" else ends_at_committed(plan, partitions)
        committed = self.admin.committed(self._plan.group_id or "", groups)
        declared = [*start.offsets, *(stop.offsets if batch else ())]
        reached = [known, committed, *({(topic, partition): at} for topic, partition, at in declared)]
        ends = self.read_ends(partitions, {one: max(offsets.get(one, 0) for offsets in reached) for one in partitions})
        return Known(
            earliest=self.admin.earliest(partitions),
            latest=ends.offsets,
            high=ends.high,
            committed=committed,
            epochs=ends.epochs,
            at_time=self.admin.at_time(partitions, start.timestamp or 0) if start.mode == "timestamp" else {},
            stop_at_time=self.admin.at_time(partitions, stop.timestamp or 0) if stop.mode == "timestamp" else {},
        )

    def ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Ask how far each partition can be read: to its end, or to its last stable offset for ``read_committed``."""
        return self.read_ends(partitions, {}).offsets

    def read_ends(
        self,
        partitions: Iterable[TopicPartition],
        known: Mapping[TopicPartition, int],
        on_short: Callable[[], object] = lambda: None,
    ) -> Ends:
        """Ask as `ends` does, and wait for logs that end before ``known`` offsets.

        Arguments and errors are those of `kdsl.run.offsets.ends.read_ends`.
        """
        return read_ends(self.admin, partitions, committed=self._committed, known=known, on_short=on_short)

    def high(
        self, partitions: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int]:
        """Ask for the end of each partition, including open transactions; an offset beyond it does not exist.

        Unless the isolation level is ``read_committed``, return ``ends`` itself.

        Args:
            partitions: The partitions.
            ends: What `ends` returned for them.
        """
        return self.admin.latest(partitions, committed=False) if self._committed else ends

    def find_held_back(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, tuple[int, int]]:
        """Find the partitions that an open transaction holds back; return their last stable offset and the log's end.

        Empty unless the isolation level is ``read_committed``; otherwise the brokers are asked for the logs' ends.

        Args:
            ends: What `ends` returned.
        """
        high = self.high(ends, ends)
        return {partition: (at, high[partition]) for partition, at in ends.items() if high[partition] > at}

    def warn_of_lost(self, lost: Mapping[TopicPartition, int]) -> None:
        """Log a warning for each partition of ``lost``, with the number of its deleted offsets.

        With a reset policy it says that the read continues after them, otherwise that nothing else was to be read.
        """
        consequence = "nothing else was to be read"
        if self.reset != "none":
            consequence = f"the read continues after them, according to auto.offset.reset={self.reset}"
        for (topic, partition), count in sorted(lost.items()):
            log.warning("%s: %s; %s", self._plan.table, errors.explain_deleted(topic, partition, count), consequence)

    def _names(self) -> list[str]:
        """Return the topics that the plan names, or that match its pattern; for a pattern the brokers are asked.

        A pattern matches internal topics only if ``exclude.internal.topics`` is false.
        """
        pattern = self._plan.topics.pattern
        if pattern is None:
            return list(self._plan.topics.names)
        return [name for name in self.admin.names(internal=self._internal) if re.fullmatch(pattern, name)]


def warn_of_unread(table: str, partitions: Iterable[TopicPartition]) -> None:
    """Log which partitions a stream that ends by itself leaves unread.

    Args:
        table: The table's name.
        partitions: Those that came after its end was computed; there may be none.
    """
    named = errors.join_some(f"{topic}[{partition}]" for topic, partition in sorted(partitions))
    if named:
        log.warning(
            "%s: the stream ends without the records of %s, which came after its end was computed; a bounded read "
            "reads the partitions that exist when it begins",
            table,
            named,
        )


def _all_partitions(topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """Return all partitions of some topics, sorted."""
    return [(name, partition) for name, topic in sorted(topics.items()) for partition in range(topic.partitions)]
