"""A topic of one partition in memory, whose leaders change and lose records, as Kafka's do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count, pairwise

from kdsl.callbacks import TopicPartition
from kdsl.run.admin.cluster_admin import OffsetAndEpoch, Topic

TOPIC = "orders"
PARTITION = (TOPIC, 0)


class ScriptedLog:
    """The log, and the part of `kdsl.run.admin.cluster_admin.ClusterAdmin` that planning needs.

    Attributes:
        records: The leader epoch and the value of each record.
        epoch: The present leader's epoch.
        stale: The ends that the next answers report instead of the log's end.
        stable: The last stable offset; None if no transaction is open.
        group: The offset that each group has committed.
        answers: How many times ends were asked for.
        checks: How many times the end of an epoch was asked for.
    """

    servers = ""

    def __init__(self, records: int = 0) -> None:
        self.records: list[tuple[int, int]] = []
        self.epoch = 0
        self.stale: list[int] = []
        self.stable: int | None = None
        self.group: dict[str, int] = {}
        self.answers = self.checks = 0
        self._starts = [(0, 0)]
        self._values = count()
        self.append(records)

    def append(self, records: int) -> None:
        """Append records."""
        self.records += [(self.epoch, next(self._values)) for _ in range(records)]

    def elect(self, end: int | None = None) -> None:
        """Let another replica lead, which has the records before an offset; all of them if it is None."""
        end = len(self.records) if end is None else min(end, len(self.records))
        self.epoch += 1
        del self.records[end:]
        self._starts = [(epoch, start) for epoch, start in self._starts if start < end] + [(self.epoch, end)]

    def end_of_epoch(self, epoch: int) -> OffsetAndEpoch:
        """The latest epoch up to another one, and where it ends (``OffsetForLeaderEpoch``)."""
        if epoch > self.epoch:
            return OffsetAndEpoch(-1, -1)
        if epoch == self.epoch:
            return OffsetAndEpoch(len(self.records), epoch)
        for (known, _), (higher, start) in pairwise(self._starts):
            if known <= epoch < higher:
                return OffsetAndEpoch(start, known)
        return OffsetAndEpoch(self._starts[0][1], epoch)

    def find_truncations(
        self, cluster: object, table: str, group: str, positions: Mapping[TopicPartition, OffsetAndEpoch]
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """As `kdsl.run.librdkafka.truncation.find_truncations`."""
        self.checks += 1
        ends = {p: self.end_of_epoch(at.epoch or 0) for p, at in positions.items()}
        return {p: end for p, end in ends.items() if end.offset < positions[p].offset}

    def topics(self, names: Iterable[str], *, known: bool = False) -> dict[str, Topic]:
        """The topic."""
        return {name: Topic("TKCJsSHvTzmd0ZQgpnyPgw", 1) for name in names if name == TOPIC}

    def names(self, *, internal: bool = False) -> list[str]:
        """The topic."""
        return [TOPIC]

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Nothing is deleted at the beginning."""
        return dict.fromkeys(partitions, 0)

    def latest(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:
        """The ends without their epochs."""
        return {partition: end.offset for partition, end in self.log_ends(partitions, committed=committed).items()}

    def log_ends(
        self, partitions: Iterable[TopicPartition], *, committed: bool
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """The end of the log, or what `stale` has."""
        wanted = list(partitions)
        if not wanted:
            return {}
        self.answers += 1
        end = min([len(self.records), *self.stale[:1]])
        del self.stale[:1]
        if committed and self.stable is not None:
            end = min(end, self.stable)
        return dict.fromkeys(wanted, OffsetAndEpoch(end, self.epoch))

    def at_time(self, partitions: Iterable[TopicPartition], millis: int) -> dict[TopicPartition, int | None]:
        """No record has a time."""
        return dict.fromkeys(partitions)

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """What `group` has."""
        return {p: self.group[group] for p in partitions if group in self.group}
