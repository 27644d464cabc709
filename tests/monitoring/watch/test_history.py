"""The values of a query over time: gaps, restarts, and how many are remembered."""

from __future__ import annotations

from math import isnan

import pytest

from kdsl.monitoring.watch.endpoint import Key
from kdsl.monitoring.watch.history import History

COUNT: Key = ("Orders", "recordsLost", ())
LAG: Key = ("Orders", "pendingSeconds", ())


def record(key: Key, *values: float | None, every: float = 1) -> History:
    history = History()
    for i, value in enumerate(values):
        history.add(i * every, {} if value is None else {key: value})
    return history


@pytest.mark.parametrize(
    ("values", "since", "grown"),
    [
        ([0, 5, 9], 0, 9),
        ([4, 5, 9], 1, 5),
        ([4, 5, 5], 2, 0),
        ([7, 7, 7], 0, 7),  # nobody has seen it at 0
        ([7, None, 9], 2, 2),
        ([None, None, 9], 1, 9),
        ([5, 8, 2, 3], 1, 6),  # it was started again: 3 before, 3 after
        ([None, None], 0, 0),
    ],
)
def test_a_counter_grows_also_over_gaps_and_restarts(values: list[float | None], since: float, grown: float) -> None:
    assert record(COUNT, *values).increase(COUNT, since) == grown


@pytest.mark.parametrize(
    ("values", "since"),
    [([9, 1, 9, 9], 2), ([9, 9], 0), ([9, 1], None), ([9, None, 9, None], 0), ([5], None), ([], None)],
)
def test_a_gauge_is_above_its_limit_since(values: list[float | None], since: float | None) -> None:
    assert record(LAG, *values).above(LAG, 5) == since


def test_points_are_the_highest_of_their_period_and_gaps_stay() -> None:
    times, (points, unknown) = record(LAG, 1, 3, None, None, 2, 5).series([LAG, COUNT], 0, 2)

    assert times == [1, 3, 5]
    assert (points[0], points[2]) == (3, 5)
    assert isnan(points[1])
    assert all(map(isnan, unknown))


def test_what_came_before_a_metric_was_there_is_a_gap() -> None:
    history = record(LAG, 1, 2)
    history.add(2, {COUNT: 4})

    _, (lags, counts) = history.series([LAG, COUNT], 0, 1)
    assert [*map(isnan, lags)] == [False, False, True]
    assert [*map(isnan, counts)] == [True, True, False]


def test_a_day_is_remembered_in_minutes_and_the_last_hour_as_it_was() -> None:
    history = History()
    for i in range(100_000):  # two days and seven hours, every two seconds
        history.add(i * 2, {LAG: i % 1000, COUNT: i})

    assert len(history.times) <= 4_000
    newest = history.times[-1800:]
    assert newest[-1] - newest[0] == 1799 * 2
    assert history.times[-1] - history.times[0] > 24 * 3600
    old, (lags, _) = history.series([LAG, COUNT], 0, 1)
    assert max(lags[:1000]) == 999  # the highest of each minute
    assert history.increase(COUNT, history.times[-1] - 600) == 300 + 1
    assert [*old] == sorted(old)


def test_a_clock_that_is_set_back_does_not_mix_up_the_moments() -> None:
    history = record(LAG, 1, 2, 3)
    history.add(0.5, {LAG: 4})

    assert [*history.times] == [0, 1, 2, 2]
