"""Where a source starts and ends in each partition, like Flink's `OffsetsInitializer`.

See https://nightlies.apache.org/flink/flink-docs-stable/docs/connectors/datastream/kafka/#starting-offset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Literal, TypeAlias, cast

import attrs

from kdsl.callbacks import FunctionError, OffsetsRetriever, TopicPartition, import_name
from kdsl.client_settings.kdsl_settings import Reset
from kdsl.errors import Problem, Where, listing
from kdsl.resolve.model import Start, Stop, StopMode

__all__ = [
    "CustomOffsets",
    "KafkaOffsetResetStrategy",
    "KafkaOffsetsInitializer",
    "OffsetResetStrategy",
    "OffsetsInitializer",
]

CustomOffsets: TypeAlias = Callable[[tuple[TopicPartition, ...], OffsetsRetriever], Mapping[TopicPartition, int]]
"""An initializer of the user's: it gets the partitions and a client for offsets, and returns an offset for each.

It is called once, in the process that plans the query, when a read without a checkpoint starts; therefore it must be a
function at the top level of a module. A partition that it leaves out follows the reset strategy, or without one starts
at its earliest record.
"""
_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_Mode = Literal["earliest", "latest", "group-offsets", "timestamp", "specific-offsets"]


class OffsetResetStrategy(StrEnum):
    """Where a partition starts if its offset is missing or no longer exists."""

    EARLIEST = "earliest"
    LATEST = "latest"
    NONE = "none"


@attrs.frozen
class OffsetsInitializer:
    """An offset for each partition, computed when a read starts. Use the class methods to make one.

    Attributes:
        mode: How the offsets are determined.
        millis: With mode ``timestamp``: milliseconds since 1970-01-01 UTC.
        specific: With mode ``specific-offsets``: topic, partition and offset, sorted.
        function: The name of the user's function, ``package.module:function``.
        reset: Where a partition without a usable offset starts; None leaves that to the property
            ``auto.offset.reset``, without which it is an error.
        problems: Mistakes in the arguments.
    """

    mode: _Mode
    millis: int | None = None
    specific: tuple[tuple[str, int, int], ...] = ()
    function: str = ""
    reset: Reset | None = None
    problems: tuple[Problem, ...] = attrs.field(default=(), eq=False, repr=False)

    @classmethod
    def earliest(cls) -> OffsetsInitializer:
        """Choose the first record of each partition."""
        return cls("earliest")

    @classmethod
    def latest(cls) -> OffsetsInitializer:
        """Choose the end of each partition, as it is when the read starts."""
        return cls("latest")

    @classmethod
    def committed_offsets(
        cls, reset: OffsetResetStrategy | Literal["earliest", "latest", "none"] = OffsetResetStrategy.NONE
    ) -> OffsetsInitializer:
        """Choose the committed offsets of the consumer group.

        An unknown reset strategy is reported when the source is built.

        Args:
            reset: Where a partition starts that has no committed offset, or whose committed offset no longer exists;
                ``none`` makes both an error.
        """
        strategy, problems = _parse_reset(reset)
        return cls("group-offsets", reset=strategy, problems=problems)

    @classmethod
    def timestamp(cls, at: int | datetime) -> OffsetsInitializer:
        """Choose the first record of each partition that is not older than a time; the end if all are older.

        A value that is not a time, and one without a time zone, is reported when the source is built.

        Args:
            at: Milliseconds since 1970-01-01 UTC, or an aware datetime.
        """
        if not isinstance(at, datetime):
            if type(at) is int:
                return cls("timestamp", at)
            message = f"OffsetsInitializer.timestamp() expects a time, not {at!r}"
            return cls(
                "timestamp", 0, problems=_create_problem(message, "pass milliseconds since 1970, or an aware datetime")
            )
        if at.tzinfo is None:
            message = f"the time {at.isoformat(sep=' ')} has no time zone, so it does not name an instant"
            fix = "add a time zone, as in datetime(2025, 1, 1, tzinfo=UTC)"
            return cls("timestamp", 10**12, problems=_create_problem(message, fix))
        return cls("timestamp", (at - _EPOCH) // timedelta(milliseconds=1))

    @classmethod
    def offsets(
        cls,
        offsets: Mapping[tuple[str, int], int],
        reset: OffsetResetStrategy | Literal["earliest", "latest", "none"] | None = None,
    ) -> OffsetsInitializer:
        """Choose a specific offset of each partition: that of the first record that is read.

        Mistakes in the mapping, and an unknown reset strategy, are reported when the source is built.

        Args:
            offsets: Offsets by topic and partition, as ``{("orders", 0): 42}``.
            reset: Where a partition starts if its offset no longer exists, or if it is not in ``offsets``. None leaves
                that to the property ``auto.offset.reset``: without it an expired offset is an error, and a partition
                without an offset starts at its earliest record, which is logged.
        """
        strategy, problems = _parse_reset(reset)
        specific = []
        if not isinstance(offsets, Mapping):
            message = f"OffsetsInitializer.offsets() expects a mapping, not {offsets!r}"
            problems += _create_problem(message, "write {('orders', 0): 42}: an offset by topic and partition")
            return cls("specific-offsets", reset=strategy, problems=problems)
        for partition, offset in offsets.items():
            if not is_topic_partition(partition) or not _is_count(offset):
                message = f"OffsetsInitializer.offsets() has the item {partition!r}: {offset!r}"
                problems += _create_problem(
                    message, "write {('orders', 0): 42}: a topic, a partition and an offset from 0 on"
                )
            else:
                specific.append((partition[0], partition[1], offset))
        if not offsets:
            problems += _create_problem("OffsetsInitializer.offsets() has no offset", "write {('orders', 0): 42}")
        return cls("specific-offsets", specific=tuple(sorted(specific)), reset=strategy, problems=problems)

    @classmethod
    def custom(
        cls,
        function: CustomOffsets,
        reset: OffsetResetStrategy | Literal["earliest", "latest", "none"] | None = None,
    ) -> OffsetsInitializer:
        """Choose the offsets that a function returns.

        A function that other processes cannot import, something else than a function, and an unknown reset strategy are
        reported when the source is built.

        Args:
            function: See `CustomOffsets`.
            reset: As for `offsets`.
        """
        strategy, problems = _parse_reset(reset)
        if not callable(function):
            message = f"{function!r} is not an offsets initializer"
            fix = "write OffsetsInitializer.earliest(), or another of its methods, or pass a function"
            return cls("specific-offsets", reset=strategy, problems=(*problems, *_create_problem(message, fix)))
        try:
            name = import_name(function)
        except FunctionError as e:
            message = f"the process that plans a query cannot import the offsets initializer: {e.reason}"
            return cls("specific-offsets", reset=strategy, problems=(*problems, *_create_problem(message, e.fix)))
        return cls("specific-offsets", function=name, reset=strategy, problems=problems)

    def start(self, reset: Reset | None) -> Start:
        """Convert to the start of a plan; mistakes in the arguments are not reported here.

        Args:
            reset: The value of ``auto.offset.reset``, which applies if the initializer has no reset strategy; without
                both it is ``none``.
        """
        return Start(self.mode, self.millis, self.specific, self.reset or reset or "none", self.function)

    def stop(self) -> Stop:
        """Convert to the end of a plan, for which a reset strategy has no meaning."""
        return Stop(cast("StopMode", self.mode), self.millis, self.specific, self.function)


# PyFlink's names for the same classes.
KafkaOffsetResetStrategy = OffsetResetStrategy
KafkaOffsetsInitializer = OffsetsInitializer


def _create_problem(message: str, fix: str) -> tuple[Problem, ...]:
    """Create a problem of an offsets initializer without a location, as a tuple of one."""
    return (Problem("offsets-initializer", message, fix, Where()),)


def _parse_reset(strategy: object) -> tuple[Reset | None, tuple[Problem, ...]]:
    """Return a reset strategy, in any letter case, as the plan names it; None for None.

    An unknown one is None, too, with a problem.
    """
    if strategy is None:
        return None, ()
    names = [str(one) for one in OffsetResetStrategy]
    if str(strategy).lower() not in names:
        return None, _create_problem(f"there is no reset strategy {strategy!r}", f"use one of {listing(names)}")
    return cast("Reset", str(strategy).lower()), ()


def _is_count(value: object) -> bool:
    """Whether a value is an integer from 0, and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_topic_partition(value: object) -> bool:
    """Whether a value is a pair of a string and an integer from 0."""
    match value:
        case (str(), number):
            return _is_count(number)
    return False
