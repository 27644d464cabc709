"""Time two ways of doing the same work in turn, A B B A …, and compare them pair by pair."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from typing import Any

import attrs
import psutil

Work = Callable[[], object]
SAMPLES = 2000
SERVERS = ("kafka.Kafka", "apicurio")
"""Strings in the command lines of brokers and registries."""


@attrs.frozen
class Run:
    """One run: elapsed seconds, and seconds of processor time of this process and its descendants."""

    wall: float
    cpu: float


@attrs.frozen
class Pair:
    """The result of a comparison.

    Attributes:
        name: The name of the comparison.
        records: The number of records of each run.
        ours: kdsl's runs.
        theirs: The runs of the other side.
        ratio: The median over the pairs of their seconds divided by ours; above 1, kdsl is faster.
        interval: The 95 % bootstrap interval of that median.
        goal: The wanted ratio, or None.
    """

    name: str
    records: int
    ours: tuple[Run, ...]
    theirs: tuple[Run, ...]
    ratio: float
    interval: tuple[float, float]
    goal: float | None

    def rate(self, runs: tuple[Run, ...]) -> float:
        """Records per second of the median run."""
        return self.records / statistics.median(r.wall for r in runs)

    def cpu(self, runs: tuple[Run, ...]) -> float:
        """Seconds of processor time per million records of the median run."""
        return statistics.median(r.cpu for r in runs) / self.records * 1e6

    def describe(self) -> str:
        """Describe the ratio, the goal, and both sides (``with`` and ``without`` what is measured) in a line."""
        low, high = self.interval
        return (
            f"{self.name}: ratio {self.ratio:.3f} ({low:.3f} to {high:.3f}), goal {self.goal}; "
            f"{self.rate(self.ours):,.0f} records/s with, {self.rate(self.theirs):,.0f} without; processor "
            f"{self.cpu(self.ours):.2f} and {self.cpu(self.theirs):.2f} s per million"
        )

    def json(self) -> dict[str, Any]:
        """The figures and the raw runs."""
        return {
            **attrs.asdict(self),
            "records_per_second": {"kdsl": self.rate(self.ours), "pyspark": self.rate(self.theirs)},
            "cpu_seconds_per_million": {"kdsl": self.cpu(self.ours), "pyspark": self.cpu(self.theirs)},
        }


def compare(name: str, ours: Work, theirs: Work, *, records: int, pairs: int, goal: float | None = None) -> Pair:
    """Run both sides in turn, after one warm-up of each.

    Args:
        name: The name of the comparison.
        ours: The work with kdsl.
        theirs: The work to compare with.
        records: The number of records of each run.
        pairs: The number of pairs of runs.
        goal: The wanted ratio.
    """
    for warm_up in (ours, theirs):
        measure(warm_up)
    mine: list[Run] = []
    other: list[Run] = []
    for i in range(pairs):
        for work, runs in ((ours, mine), (theirs, other)) if i % 2 == 0 else ((theirs, other), (ours, mine)):
            runs.append(measure(work))
    ratios = [b.wall / a.wall for a, b in zip(mine, other, strict=True)]
    return Pair(name, records, tuple(mine), tuple(other), statistics.median(ratios), interval(ratios), goal)


def measure(work: Work) -> Run:
    """Run some work once, and measure it."""
    before, start = _cpu(), time.perf_counter()
    work()
    return Run(time.perf_counter() - start, max(0.0, _cpu() - before))


def _cpu() -> float:
    """Processor time of this process and its descendants, except servers, which count for neither side."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            if any(server in part for part in process.cmdline() for server in SERVERS):
                continue
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def interval(ratios: list[float]) -> tuple[float, float]:
    """The 95 % bootstrap interval of the median."""
    chance = random.Random(7)
    medians = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(SAMPLES))
    return medians[int(0.025 * SAMPLES)], medians[int(0.975 * SAMPLES)]
