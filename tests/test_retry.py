"""Retries: when they stop, how long each attempt may take, and the pauses between attempts."""

from __future__ import annotations

from itertools import islice

import pytest

from kdsl import retry as retries
from kdsl.retry import Backoff, Deadline, retry


class Clock:
    """A clock that stands still except for the pauses."""

    def __init__(self) -> None:
        self.now = 100.0
        self.pauses: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(retries, "time", clock)
    return clock


def test_the_first_final_result_is_returned(clock: Clock) -> None:
    results = iter([1, 2, 3])

    result = retry(lambda _: next(results), lambda n: n == 2, Deadline(60), wait=clock.sleep)

    assert (result, clock.pauses) == (2, [0.1])


def test_the_last_result_before_the_deadline_is_returned(clock: Clock) -> None:
    attempts: list[float] = []

    retry(attempts.append, bool, Deadline(2.5), pause=1.0, wait=clock.sleep)

    assert attempts == [2.5, 1.5, 0.5]
    assert clock.pauses == [1.0, 1.0, 0.5]


def test_there_is_one_attempt_with_a_passed_deadline(clock: Clock) -> None:
    attempts: list[float] = []

    retry(attempts.append, bool, Deadline(0), wait=clock.sleep)

    assert len(attempts) == 1


def test_each_attempt_may_take_twice_as_long_as_the_one_before(clock: Clock) -> None:
    attempts: list[float] = []

    retry(attempts.append, lambda _: len(attempts) == 4, Deadline(60), first_timeout=3.0, pause=0, wait=clock.sleep)

    assert attempts == [3.0, 6.0, 12.0, 24.0]


def test_a_deadline_may_be_moved_by_an_attempt(clock: Clock) -> None:
    deadline, attempts = Deadline(1.0), list[float]()

    def attempt(seconds: float) -> None:
        attempts.append(seconds)
        deadline.timeout = 3.0

    retry(attempt, bool, deadline, pause=1.0, wait=clock.sleep)

    assert attempts == [1.0, 2.0, 1.0]
    assert deadline.remaining == 0


def test_pauses_grow_up_to_the_longest_with_jitter() -> None:
    assert list(islice(Backoff(1, 5).pauses(), 5)) == [1, 2, 4, 5, 5]
    assert all(2 <= pause <= 4 for pause in islice(Backoff(2, 2, jitter=(1, 2)).pauses(), 100))
