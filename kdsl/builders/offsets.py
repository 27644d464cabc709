"""Where a source starts and where it ends, for each partition (seeds 002 and 003)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, TypeAlias, cast

import attrs

from kdsl.client.connector import Reset
from kdsl.errors import Problem, Where, listing
from kdsl.functions import FunctionError, name_of
from kdsl.offsets import OffsetsRetriever, TopicPartition
from kdsl.resolve.model import Start, Stop, StopMode

__all__ = ["CustomOffsets", "OffsetResetStrategy", "OffsetsInitializer"]

CustomOffsets: TypeAlias = Callable[[tuple[TopicPartition, ...], OffsetsRetriever], Mapping[TopicPartition, int]]
"""An initializer of the user's own: from the partitions and what can be asked of the cluster to an offset of each.

It runs where a query is planned, once, when a read starts that has no checkpoint, so it must be a function at the top
of a module. A partition that it leaves out follows the reset strategy, else starts at its earliest record.
"""
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_Mode = Literal["earliest", "latest", "group-offsets", "timestamp", "specific-offsets"]


class OffsetResetStrategy(StrEnum):
    """Where a partition starts whose offset is missing, or does not exist any more."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


@attrs.frozen
class OffsetsInitializer:
    """An offset of each partition, worked out when a read starts. Made by the class methods.

    Attributes:
        mode: How offsets are found.
        millis: For a time: milliseconds since 1970-01-01 UTC.
        given: For given offsets: topic, partition and offset, sorted.
        function: For an initializer of the user's own: its name, ``package.module:function``.
        reset: Where a partition starts that has no usable offset; None leaves it to the property
            ``auto.offset.reset``, without which it is an error.
        problems: What is wrong with it.
    """

    mode: _Mode
    millis: int | None = None
    given: tuple[tuple[str, int, int], ...] = ()
    function: str = ""
    reset: Reset | None = None
    problems: tuple[Problem, ...] = attrs.field(default=(), eq=False, repr=False)

    @classmethod
    def earliest(cls) -> OffsetsInitializer:
        """The first record of each partition."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> OffsetsInitializer:
        """The end of each partition, as it is when the read starts."""
        return cls("latest")

    @classmethod
    def committed_offsets(
        cls, reset: OffsetResetStrategy | Literal["earliest", "latest", "none"] = OffsetResetStrategy.NONE
    ) -> OffsetsInitializer:
        """What the consumer group has committed.

        Args:
            reset: Where a partition starts for which it has committed nothing; ``none`` is an error.
        """
        found, problems = _reset(reset)
        return cls("group-offsets", reset=found, problems=problems)

    @classmethod
    def timestamp(cls, at: int | datetime) -> OffsetsInitializer:
        """The first record of each partition that is not older; the end, where all are.

        Args:
            at: Milliseconds since 1970-01-01 UTC, or an aware datetime.
        """
        if not isinstance(at, datetime):
            if type(at) is int:
                return cls("timestamp", at)
            message = f"OffsetsInitializer.timestamp() is given {at!r}, which is no time"
            return cls("timestamp", 0, problems=_wrong(message, "give milliseconds since 1970, or an aware datetime"))
        if at.tzinfo is None:
            message = f"the time {at.isoformat(sep=' ')} has no time zone, so it is no instant"
            fix = "write it with one, as datetime(2025, 1, 1, tzinfo=UTC)"
            return cls("timestamp", 10**12, problems=_wrong(message, fix))
        return cls("timestamp", (at - _EPOCH) // timedelta(milliseconds=1))

    @classmethod
    def offsets(
        cls,
        offsets: Mapping[tuple[str, int], int],
        reset: OffsetResetStrategy | Literal["earliest", "latest", "none"] | None = None,
    ) -> OffsetsInitializer:
        """A given offset of each partition, the record at which is the first.

        Args:
            offsets: Offsets by topic and partition, as ``{("orders", 0): 42}``.
            reset: Where a partition starts whose offset does not exist any more, or that is not in ``offsets``. None
                leaves that to the property ``auto.offset.reset``: without one an expired offset is an error, and a
                partition without an offset starts at its earliest record, which is logged.
        """
        found, problems = _reset(reset)
        given = []
        if not isinstance(offsets, Mapping):
            message = f"OffsetsInitializer.offsets() is given {offsets!r}, which is no mapping"
            problems += _wrong(message, "write {('orders', 0): 42}: an offset by topic and partition")
            return cls("specific-offsets", reset=found, problems=problems)
        for place, offset in offsets.items():
            if not _is_place(place) or not _is_count(offset):
                message = f"OffsetsInitializer.offsets() is given {place!r}: {offset!r}"
                problems += _wrong(message, "write {('orders', 0): 42}: a topic, a partition and an offset from 0 on")
            else:
                given.append((place[0], place[1], offset))
        if not offsets:
            problems += _wrong("OffsetsInitializer.offsets() is given no offset", "write {('orders', 0): 42}")
        return cls("specific-offsets", given=tuple(sorted(given)), reset=found, problems=problems)

    @classmethod
    def custom(
        cls,
        function: CustomOffsets,
        reset: OffsetResetStrategy | Literal["earliest", "latest", "none"] | None = None,
    ) -> OffsetsInitializer:
        """The offsets that a function gives.

        Args:
            function: See `CustomOffsets`.
            reset: As for `offsets`.
        """
        found, problems = _reset(reset)
        if not callable(function):
            message = f"{function!r} is no offsets initializer"
            fix = "write OffsetsInitializer.earliest(), or another of its methods, or give a function"
            return cls("specific-offsets", reset=found, problems=(*problems, *_wrong(message, fix)))
        try:
            name = name_of(function)
        except FunctionError as e:
            message = f"the process that plans a query cannot import the offsets initializer: {e.reason}"
            return cls("specific-offsets", reset=found, problems=(*problems, *_wrong(message, e.fix)))
        return cls("specific-offsets", function=name, reset=found, problems=problems)

    def start(self, reset: Reset | None) -> Start:
        """The start of a plan.

        Args:
            reset: What ``auto.offset.reset`` says, which holds where the initializer says nothing.
        """
        return Start(self.mode, self.millis, self.given, self.reset or reset or "none", self.function)

    def stop(self) -> Stop:
        """The end of a plan."""
        return Stop(cast("StopMode", self.mode), self.millis, self.given, self.function)


def _wrong(message: str, fix: str) -> tuple[Problem, ...]:
    return (Problem("offsets-initializer", message, fix, Where()),)


def _reset(given: object) -> tuple[Reset | None, tuple[Problem, ...]]:
    if given is None:
        return None, ()
    names = [str(strategy) for strategy in OffsetResetStrategy]
    if str(given).lower() not in names:
        return None, _wrong(f"the reset strategy is {given!r}", f"use one of {listing(names)}")
    return cast("Reset", str(given).lower()), ()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_place(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and _is_count(value[1])
