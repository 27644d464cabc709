"""Offsets from a function of the user: called once, in the process that plans a read without a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import TypeVar

import attrs

from kdsl.callbacks import EARLIEST, FunctionError, TopicPartition, import_function
from kdsl.errors import OffsetError
from kdsl.plan.model import Start, Stop
from kdsl.run.admin.cluster_admin import ClusterAdmin
from kdsl.run.admin.errors import join_some

M = TypeVar("M", Start, Stop)


class Retriever:
    """`kdsl.callbacks.OffsetsRetriever` over an admin client.

    Args:
        admin: The admin client.
        group: The consumer group, or None.
        ends: Returns the offsets up to which a read may go now.
    """

    def __init__(
        self,
        admin: ClusterAdmin,
        group: str | None,
        ends: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]],
    ) -> None:
        self._admin, self._group, self._ends = admin, group, ends

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Ask the brokers for the offset of the first record of each partition."""
        return self._admin.earliest(list(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Ask how far each partition may be read now: the offset after its last record, or its last stable offset."""
        return self._ends(list(partitions))

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Ask the brokers for the offsets that the consumer group has committed; partitions without are left out."""
        if self._group is None:
            raise OffsetError(
                "the source has no consumer group, so no offsets are committed for it; give it a group id"
            )
        return self._admin.committed(self._group, list(partitions))

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """Ask the brokers for the offset of each partition's first record that is not older than a time.

        The times are in milliseconds since 1970. None in partitions where all records are older.
        """
        by_time: dict[int, list[TopicPartition]] = {}
        for partition, millis in timestamps.items():
            by_time.setdefault(millis, []).append(partition)
        return {
            partition: at
            for millis, partitions in by_time.items()
            for partition, at in self._admin.at_time(partitions, millis).items()
        }


def call_initializer(table: str, moment: M, partitions: Sequence[TopicPartition], retriever: Retriever) -> M:
    """Call the function that returns the offsets of a start or an end.

    Args:
        table: The table's name, for messages.
        moment: The start or the end.
        partitions: The partitions that are read.
        retriever: The function's access to the cluster.

    Returns:
        The start or the end with the function's offsets; it is unchanged where it has no function.
    """
    if not moment.function:
        return moment
    subject = f"{table}: the offsets initializer {moment.function!r}"
    try:
        function = import_function(moment.function)
    except FunctionError as e:
        raise OffsetError(f"{table}: the offsets initializer {e}") from e
    try:
        offsets = function(tuple(partitions), retriever)
    except Exception as e:
        raise OffsetError(f"{subject} raised {type(e).__name__}: {e}") from e
    if not isinstance(offsets, Mapping):
        raise OffsetError(
            f"{subject} returned a {type(offsets).__name__}; return a dict such as {{('topic', 0): 42}}, with the "
            "offset of each partition"
        )
    unknown = sorted((partition for partition in offsets if partition not in set(partitions)), key=repr)
    if unknown:
        raise OffsetError(
            f"{subject} returned an offset for {join_some(map(_partition_name, unknown))}, which is not read; return "
            f"offsets for {join_some(map(_partition_name, partitions))}"
        )
    wrong = {partition: at for partition, at in offsets.items() if not _is_offset(at)}
    if wrong:
        values = join_some(f"{_partition_name(partition)}: {at!r}" for partition, at in sorted(wrong.items()))
        raise OffsetError(
            f"{subject} returned a value that is not an offset ({values}); an offset is an integer from 0 on, or -2 "
            "(earliest) or -1 (latest)"
        )
    by_partition = tuple(sorted((topic, partition, int(at)) for (topic, partition), at in offsets.items()))
    return attrs.evolve(moment, offsets=by_partition, function="")


def _is_offset(at: object) -> bool:
    """Whether a value is an offset, or stands for an end of the log: an int or one of numpy's, but not a bool."""
    return not isinstance(at, bool) and isinstance(at, Integral) and int(at) >= EARLIEST


def _partition_name(partition: object) -> str:
    """Return a partition as ``topic[0]``; anything else as its repr."""
    is_partition = isinstance(partition, tuple) and len(partition) == 2
    return f"{partition[0]}[{partition[1]}]" if is_partition else repr(partition)  # type: ignore[index]
