"""The values of a query over time; a limited number of them is remembered."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from math import isnan, nan

from kdsl.monitoring.watch.endpoint import Key

_MOST, _NEWEST, _OLD = 4_000, 2_000, 1_500
"""How many moments are remembered at most, how many stay as they are when there are more, and how many older ones."""
_MINUTE = 60.0


class History:
    """The values of a query at the moments when it was asked; those that were not there are NaN.

    Older moments are combined into one for each minute, with its highest values. If a query is asked every two seconds,
    the last hour is there as it was, and a day in minutes.
    """

    def __init__(self) -> None:
        self.times = array("d")
        self._values: dict[Key, array[float]] = {}

    def add(self, at: float, values: Mapping[Key, float]) -> None:
        """Add the values of a moment, in seconds since 1970."""
        for key in values:
            if key not in self._values:
                self._values[key] = array("d", [nan]) * len(self.times)
        self.times.append(max(at, self.times[-1]) if self.times else at)  # a clock may be set back
        for key, column in self._values.items():
            column.append(values.get(key, nan))
        if len(self.times) > _MOST:
            old = len(self.times) - _NEWEST
            groups = _group(self.times[:old], _MINUTE)[-_OLD:]
            times = array("d", [self.times[end - 1] for _, end in groups])
            for key, column in self._values.items():
                self._values[key] = array("d", _combine(column, groups)) + column[old:]
            self.times = times + self.times[old:]

    def series(self, keys: Sequence[Key], since: float, width: float) -> tuple[list[float], list[list[float]]]:
        """Return times and the values of each key, from a moment on, the highest for each ``width`` seconds."""
        start = bisect_left(self.times, since)
        groups = [(a + start, b + start) for a, b in _group(self.times[start:], width)]
        columns = [self._values.get(key) for key in keys]
        return (
            [self.times[end - 1] for _, end in groups],
            [[nan] * len(groups) if column is None else _combine(column, groups) for column in columns],
        )

    def increase(self, key: Key, since: float) -> float:
        """Return by how much a counter has grown since a moment; one that was not there before has begun at 0.

        A counter that is smaller than before has begun anew at 0.
        """
        column = self._values.get(key, ())
        start = bisect_left(self.times, since)
        last = next((value for value in reversed(column[:start]) if not isnan(value)), 0.0)
        grown = 0.0
        for value in column[start:]:
            if not isnan(value):
                grown += value - last if value >= last else value
                last = value
        return grown

    def above(self, key: Key, limit: float) -> float | None:
        """Return since when a gauge has been above a limit; None if it is not. Moments without a value do not count."""
        since = None
        for at, value in zip(reversed(self.times), reversed(self._values.get(key, ())), strict=False):
            if not isnan(value):
                if value <= limit:
                    break
                since = at
        return since


def _group(times: Sequence[float], width: float) -> list[tuple[int, int]]:
    """The first and last index (excluded) of the moments of each period."""
    ends: list[int] = [i for i in range(1, len(times)) if times[i] // width != times[i - 1] // width]
    starts = [0, *ends] if len(times) else []
    return list(zip(starts, [*ends, len(times)], strict=False))


def _combine(column: Sequence[float], groups: Sequence[tuple[int, int]]) -> list[float]:
    """The highest value of each group; NaN where there is none."""
    return [max((v for v in column[start:end] if not isnan(v)), default=nan) for start, end in groups]
