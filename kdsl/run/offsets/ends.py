"""How far partitions can be read now: the one place that asks for the ends of logs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.retry import Deadline, retry
from kdsl.run.admin.cluster_admin import SETTLING, ClusterAdmin, OffsetAndEpoch

PAUSE = 0.5
"""How many seconds to wait before the ends are asked for again."""


@attrs.frozen
class Ends:
    """How far partitions can be read.

    Attributes:
        offsets: How far each can be read: to its end, or to its last stable offset.
        high: Its end. Where the last stable offset is not below the known offset, it may stand for the end.
        epochs: The epoch of the leader that reported it; partitions whose brokers report none are left out.
    """

    offsets: dict[TopicPartition, int]
    high: Mapping[TopicPartition, int]
    epochs: Mapping[TopicPartition, int]


def read_ends(
    admin: ClusterAdmin,
    partitions: Iterable[TopicPartition],
    *,
    committed: bool,
    known: Mapping[TopicPartition, int],
    on_short: Callable[[], object] = lambda: None,
) -> Ends:
    """Ask how far partitions can be read, again for `SETTLING` seconds while a log ends before a known offset.

    A new leader may not have caught up, and then reports an end that others have passed. After the deadline the lower
    ends are returned all the same.

    Args:
        admin: The admin client.
        partitions: The partitions.
        committed: Whether only committed records are read: up to the last stable offset.
        known: Offsets up to which the logs should reach, such as those of a checkpoint; other partitions are ignored.
        on_short: Called each time that a log ends before them; an exception that it raises is passed on.
    """
    wanted = list(partitions)

    def is_short(offsets: Mapping[TopicPartition, int], partition: TopicPartition) -> bool:
        return offsets[partition] < known.get(partition, 0)

    def ask(_: float) -> tuple[Ends, bool]:
        reported: Mapping[TopicPartition, OffsetAndEpoch] = admin.log_ends(wanted, committed=committed)
        offsets = {partition: end.offset for partition, end in reported.items()}
        epochs = {partition: end.epoch for partition, end in reported.items() if end.epoch is not None}
        short = [partition for partition in offsets if is_short(offsets, partition)]
        high = offsets
        if committed and short:
            high = {**offsets, **admin.latest(short, committed=False)}
            short = [partition for partition in short if is_short(high, partition)]
        if short:
            on_short()
        return Ends(offsets, high, epochs), not short

    ends, _ = retry(ask, lambda result: result[1], Deadline(SETTLING), pause=PAUSE)
    return ends
