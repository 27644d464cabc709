"""Offsets that a function of the user's gives: run once, in the process that plans a read without a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Integral
from typing import Protocol, TypeVar

import attrs

from kdsl.functions import FunctionError, load
from kdsl.offsets import EARLIEST, TopicPartition
from kdsl.plan.model import Start, Stop
from kdsl.run.cluster.errors import OffsetError, some

M = TypeVar("M", Start, Stop)


class Brokers(Protocol):
    """What of the brokers is needed, whichever client asks."""

    def earliest(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record of each partition."""
        ...

    def at_time(self, places: Iterable[TopicPartition], millis: int) -> dict[TopicPartition, int | None]:
        """The offset of each partition's first record that is not older; None where there is none."""
        ...

    def committed(self, group: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offsets that a consumer group has committed, where it has."""
        ...


class Retriever:
    """`kdsl.offsets.OffsetsRetriever` over the brokers.

    Args:
        brokers: The brokers.
        group: The consumer group, or None.
        ends: Gives the ends as far as a read goes.
    """

    def __init__(
        self,
        brokers: Brokers,
        group: str | None,
        ends: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]],
    ) -> None:
        self._brokers, self._group, self._ends = brokers, group, ends

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset of the first record of each partition."""
        return self._brokers.earliest(list(partitions))

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offset behind the last record of each partition that may be read now."""
        return self._ends(list(partitions))

    def committed_offsets(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """What the consumer group has committed.

        Raises:
            OffsetError: The source has no consumer group.
        """
        if self._group is None:
            raise OffsetError("the source has no consumer group, so nothing is committed for it; give it a group id")
        return self._brokers.committed(self._group, list(partitions))

    def offsets_for_times(self, timestamps: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, int | None]:
        """The offset of the first record that is not older; None where all are."""
        by_time: dict[int, list[TopicPartition]] = {}
        for place, millis in timestamps.items():
            by_time.setdefault(millis, []).append(place)
        return {
            place: at
            for millis, places in by_time.items()
            for place, at in self._brokers.at_time(places, millis).items()
        }


def settled(table: str, moment: M, places: Sequence[TopicPartition], retriever: Retriever) -> M:
    """A start or an end with the offsets that its function gives; another one as it is.

    Args:
        table: The table's name, for messages.
        moment: The start or the end.
        places: The partitions that are read.
        retriever: What the function may ask.

    Raises:
        OffsetError: The function cannot be imported here, failed, or gave something else than offsets of partitions.
    """
    if not moment.function:
        return moment
    named = f"{table}: the offsets initializer {moment.function!r}"
    try:
        function = load(moment.function)
    except FunctionError as e:
        raise OffsetError(f"{table}: the offsets initializer {e}") from e
    try:
        given = function(tuple(places), retriever)
    except Exception as e:
        raise OffsetError(f"{named} raised {type(e).__name__}: {e}") from e
    if not isinstance(given, Mapping):
        raise OffsetError(f"{named} gave a {type(given).__name__}; give {{('topic', 0): 42}}: an offset by partition")
    unknown = sorted((place for place in given if place not in set(places)), key=repr)
    if unknown:
        raise OffsetError(
            f"{named} gave an offset for {some(map(_shown, unknown))}, which is not read; it is asked for "
            f"{some(map(_shown, places))}"
        )
    wrong = {place: at for place, at in given.items() if not _is_offset(at)}
    if wrong:
        told = some(f"{_shown(place)}: {at!r}" for place, at in sorted(wrong.items()))
        raise OffsetError(
            f"{named} gave no offset for {told}; an offset is a number from 0 on, or -2 or -1 for the ends"
        )
    offsets = tuple(sorted((topic, partition, int(at)) for (topic, partition), at in given.items()))
    return attrs.evolve(moment, offsets=offsets, function="")


def _is_offset(at: object) -> bool:
    """Whether something is a number of an offset, or stands for an end; numbers of numpy are, truth values are not."""
    return not isinstance(at, bool) and isinstance(at, Integral) and int(at) >= EARLIEST


def _shown(place: object) -> str:
    return f"{place[0]}[{place[1]}]" if isinstance(place, tuple) and len(place) == 2 else repr(place)
