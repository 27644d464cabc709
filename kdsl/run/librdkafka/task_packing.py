"""Packs offset ranges into tasks: small ranges share a task, large ones are split.

One task for each topic partition would cost more than the work of most micro-batches, and one large partition would
keep a single core busy. All functions are pure: a batch that is planned again has the same tasks.

An exactly-once sink relies on that, because the index of a task decides which transactional id writes its records. A
change of what `pack` returns therefore needs a new `PackingKind`; the results of the present ones must never change.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise

from kdsl.run.offsets.stored import Packing, Range

TASK_RECORDS = 1_000
"""The fewest records of a task: below this, starting a task costs more than reading the records."""

PIECE_RECORDS = 20_000
"""The fewest records of a piece of a partition: each piece costs one fetch request more."""


def choose_packing(tasks: int, *, whole: bool = False) -> Packing:
    """Choose how new batches are packed.

    The tasks keep the order of the records of each partition, on which everything relies that looks for the last row of
    a key: further parts of a partition come into later tasks.

    Args:
        tasks: The maximum number of tasks of a batch.
        whole: Whether a partition must be read by one task.
    """
    return Packing("whole" if whole else "balanced", tasks, TASK_RECORDS, PIECE_RECORDS)


def pack(ranges: Iterable[Range], packing: Packing) -> list[tuple[Range, ...]]:
    """Pack ranges into tasks.

    Args:
        ranges: What is to be read; empty ranges are left out.
        packing: How to pack; for a batch that is planned again, the packing that was stored with it.

    Returns:
        The tasks; each offset of each range belongs to exactly one of them.
    """
    functions = {"balanced": pack_balanced, "whole": pack_whole}
    return functions[packing.kind](ranges, packing.tasks, packing.task_records, packing.piece_records)


def clip(tasks: Iterable[Sequence[Range]], remaining: Iterable[Range]) -> list[tuple[Range, ...]]:
    """Cut packed ranges to what remains after records at the beginning or end of partitions were lost.

    Args:
        tasks: The tasks as they were planned.
        remaining: The remaining range of each partition; nothing remains of a partition that is missing.

    Returns:
        The same number of tasks in the same order; a task is empty if nothing of it remains.
    """
    rest = {(r.topic, r.partition): r for r in remaining}

    def clip_task(task: Sequence[Range]) -> tuple[Range, ...]:
        pairs = ((r, rest[r.topic, r.partition]) for r in task if (r.topic, r.partition) in rest)
        clipped = (Range(r.topic, r.partition, max(r.start, of.start), min(r.end, of.end)) for r, of in pairs)
        return tuple(r for r in clipped if len(r) > 0)

    return [clip_task(task) for task in tasks]


def pack_balanced(
    ranges: Iterable[Range], parallelism: int, task_records: int = TASK_RECORDS, piece_records: int = PIECE_RECORDS
) -> list[tuple[Range, ...]]:
    """Pack ranges into tasks of about equal numbers of records, further pieces of a partition into later tasks.

    Of two records of a partition, the later one is in a later task or further on in the same task.

    Args:
        ranges: What is to be read; empty ranges are left out.
        parallelism: The maximum number of tasks, usually twice the number of cores.
        task_records: The approximate minimum of records of a task.
        piece_records: The minimum of records of a piece into which a partition is split.

    Returns:
        The tasks; each offset of each range belongs to exactly one of them.
    """
    tasks = _distribute(*_cut(ranges, parallelism, task_records, piece_records))
    pieces: dict[tuple[str, int], list[Range]] = {}
    for task in tasks:
        for r in task:
            pieces.setdefault((r.topic, r.partition), []).append(r)
    remaining = {partition: iter(sorted(of, key=lambda r: r.start)) for partition, of in pieces.items()}
    # The sizes of a partition's pieces differ by one record at most, so the tasks stay as large as they are.
    return _merge_each([[next(remaining[r.topic, r.partition]) for r in task] for task in tasks])


def pack_whole(
    ranges: Iterable[Range], parallelism: int, task_records: int = TASK_RECORDS, piece_records: int = PIECE_RECORDS
) -> list[tuple[Range, ...]]:
    """Pack ranges into tasks of about equal numbers of records, and split none of them.

    The arguments are those of `pack_balanced`; ``piece_records`` has no effect.
    """
    del piece_records
    nonempty = [r for r in ranges if len(r) > 0]
    return _merge_each(_distribute(nonempty, max(1, min(parallelism, sum(map(len, nonempty)) // task_records))))


def _cut(ranges: Iterable[Range], parallelism: int, task_records: int, piece_records: int) -> tuple[list[Range], int]:
    """Cut ranges into pieces for a number of tasks, and return that number, too: at least 1, at most ``parallelism``.

    Empty ranges are left out. The arguments are those of `pack_balanced`.
    """
    nonempty = [r for r in ranges if len(r) > 0]
    total = sum(map(len, nonempty))
    count = max(1, min(parallelism, total // task_records))
    return [piece for r in nonempty for piece in _split(r, -(-total // count), piece_records)], count


def _distribute(pieces: list[Range], count: int) -> list[list[Range]]:
    """Distribute whole ranges over at most ``count`` tasks with about equal numbers of records.

    ``pieces`` is sorted in place, the longest first; a task gets its ranges in this order.
    """
    pieces.sort(key=lambda r: (-len(r), r.topic, r.partition, r.start))
    tasks: list[list[Range]] = [[] for _ in range(min(count, len(pieces)))]
    loads = [(0, i) for i in range(len(tasks))]
    for piece in pieces:
        load, lightest = loads[0]
        tasks[lightest].append(piece)
        heapq.heapreplace(loads, (load + len(piece), lightest))
    return tasks


def _merge_each(tasks: Iterable[Iterable[Range]]) -> list[tuple[Range, ...]]:
    """Sort the ranges of each task, and merge those that follow one another."""
    return [_merge_adjacent(sorted(task, key=lambda r: (r.topic, r.partition, r.start))) for task in tasks]


def _split(whole: Range, size: int, minimum: int) -> list[Range]:
    """Split a range into equal pieces of about ``size`` records, but at least ``minimum``; a shorter range is one."""
    count = max(1, min(-(-len(whole) // size), len(whole) // minimum))
    cuts = [whole.start + len(whole) * i // count for i in range(count + 1)]
    return [Range(whole.topic, whole.partition, a, b) for a, b in pairwise(cuts)]


def _merge_adjacent(ranges: Sequence[Range]) -> tuple[Range, ...]:
    """Return the sorted ranges of a task, with those merged that follow one another without a gap in a partition."""
    merged: list[Range] = []
    for r in ranges:
        previous = merged[-1] if merged else None
        if previous and (previous.topic, previous.partition, previous.end) == (r.topic, r.partition, r.start):
            merged[-1] = Range(r.topic, r.partition, previous.start, r.end)
        else:
            merged.append(r)
    return tuple(merged)
