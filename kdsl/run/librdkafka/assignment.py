"""Ranges to tasks. Tasks are not partitions: small ranges share a task, big ones are split.

One task for each partition would cost more than the work of most micro-batches, and one big partition would keep a
single core busy. All functions are pure: a batch that is planned again has the same tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise

from kdsl.run.cluster.offsets import Range

TASK_RECORDS = 1_000
"""Below this a task costs more than it does; fewer records than this make one task."""

PIECE_RECORDS = 20_000
"""A partition is split into pieces that are not smaller: each piece begins with a request of its own."""


def tasks(ranges: Iterable[Range], parallelism: int) -> list[tuple[Range, ...]]:
    """Pack ranges into tasks of about equal numbers of records.

    Args:
        ranges: What is to be read; empty ranges make no task.
        parallelism: The most tasks there shall be, twice the number of cores.

    Returns:
        The tasks, largest first; each offset of each range stands in exactly one of them.
    """
    found = [r for r in ranges if len(r) > 0]
    total = sum(map(len, found))
    count = max(1, min(parallelism, total // TASK_RECORDS))
    pieces = [piece for r in found for piece in _pieces(r, -(-total // count))]
    pieces.sort(key=lambda r: (-len(r), r.topic, r.partition, r.start))
    packed: list[list[Range]] = [[] for _ in range(min(count, len(pieces)))]
    loads = [(0, i) for i in range(len(packed))]
    for piece in pieces:
        load, lightest = loads[0]
        packed[lightest].append(piece)
        heapq.heapreplace(loads, (load + len(piece), lightest))
    return [_joined(sorted(task, key=lambda r: (r.topic, r.partition, r.start))) for task in packed]


def in_order(ranges: Iterable[Range], parallelism: int) -> list[tuple[Range, ...]]:
    """Pack ranges into tasks that follow one another as the records of each partition do.

    Of two changes of a row the later one stands in a later task, or further on in the same one: what the order of a
    DataFrame's rows means for a changelog.

    Args:
        ranges: What is to be read; empty ranges make no task.
        parallelism: The most tasks there shall be.

    Returns:
        The tasks; each offset of each range stands in exactly one of them.
    """
    found = sorted((r for r in ranges if len(r) > 0), key=lambda r: (r.topic, r.partition, r.start))
    total = sum(map(len, found))
    size = -(-total // max(1, min(parallelism, total // TASK_RECORDS)))
    packed: list[list[Range]] = []
    room = 0
    for r in found:
        start = r.start
        while start < r.end:
            if room <= 0:
                packed.append([])
                room = size
            end = start + max(room, PIECE_RECORDS)
            if r.end - end < PIECE_RECORDS:
                end = r.end
            packed[-1].append(Range(r.topic, r.partition, start, end))
            room -= end - start
            start = end
    return [tuple(task) for task in packed]


def _pieces(whole: Range, size: int) -> list[Range]:
    """The range in equal pieces of at most about ``size`` records."""
    count = max(1, min(-(-len(whole) // size), len(whole) // PIECE_RECORDS))
    cuts = [whole.start + len(whole) * i // count for i in range(count + 1)]
    return [Range(whole.topic, whole.partition, a, b) for a, b in pairwise(cuts)]


def _joined(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """Pieces of a partition that follow one another in one task are one range again."""
    joined: list[Range] = []
    for r in ranges:
        before = joined[-1] if joined else None
        if before and (before.topic, before.partition, before.end) == (r.topic, r.partition, r.start):
            joined[-1] = Range(r.topic, r.partition, before.start, r.end)
        else:
            joined.append(r)
    return tuple(joined)
