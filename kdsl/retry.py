"""Requests that are repeated until their result is final or their deadline passes."""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from threading import Timer
from typing import TypeVar

import attrs

V = TypeVar("V")
PROGRESS = "kdsl_progress"
"""The attribute of log records that say how far something is; the next one makes it obsolete."""


class Deadline:
    """The moment when retries end.

    Args:
        timeout: How many seconds from now.

    Attributes:
        timeout: How many seconds after the start of the retries; it may be changed meanwhile.
    """

    def __init__(self, timeout: float) -> None:
        self._start = time.monotonic()
        self.timeout = timeout

    @property
    def remaining(self) -> float:
        """How many seconds are left; below zero when it has passed."""
        return self._start + self.timeout - time.monotonic()

    @property
    def has_passed(self) -> bool:
        """Whether no time is left."""
        return self.remaining < 0


@attrs.frozen
class Backoff:
    """Pauses between attempts, each twice as long as the one before.

    Attributes:
        first: The first pause, in seconds.
        longest: The longest pause, in seconds.
        jitter: The least and the greatest random factor of each pause, which keeps clients from retrying at once.
    """

    first: float
    longest: float
    jitter: tuple[float, float] = (1.0, 1.0)

    def pauses(self) -> Iterator[float]:
        """The pauses in seconds, without end: doubled up to `longest`, each times its own random factor."""
        pause = self.first
        while True:
            yield min(pause, self.longest) * random.uniform(*self.jitter)  # noqa: S311  # no secret depends on it
            pause *= 2


def retry(
    attempt: Callable[[float], V],
    is_final: Callable[[V], bool],
    deadline: Deadline,
    *,
    pause: float | Backoff = 0.1,
    first_timeout: float = inf,
    wait: Callable[[float], object] = time.sleep,
) -> V:
    """Repeat a request until its result is final or the deadline has passed; errors of ``attempt`` are not caught.

    Args:
        attempt: Sends the request once. Its argument is how many seconds it may take: no more than what is left.
        is_final: Whether a result is the last one: a success, or an error that stays.
        deadline: When to stop. It may be moved by ``attempt``. There is at least one attempt.
        pause: How many seconds to wait between two attempts.
        first_timeout: How many seconds the first attempt may take; each later one may take twice as long as the one
            before.
        wait: Waits for the given number of seconds.

    Returns:
        The first final result, or that of the last attempt before the deadline.
    """
    pauses = (pause if isinstance(pause, Backoff) else Backoff(pause, pause)).pauses()
    timeout = first_timeout
    while True:
        result = attempt(min(timeout, deadline.remaining))
        if is_final(result):
            return result
        wait(min(next(pauses), max(0.0, deadline.remaining)))
        if deadline.remaining <= 0:
            return result
        timeout *= 2


@contextmanager
def announce_wait(log: logging.Logger, line: str, seconds: float = 5.0) -> Iterator[None]:
    """Log a line once, at the level INFO, if the body takes longer than some seconds.

    Args:
        log: The logger.
        line: What the log says: what is waited for.
        seconds: How long the body may take without it.
    """
    timer = Timer(seconds, log.info, ("%s", line))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
