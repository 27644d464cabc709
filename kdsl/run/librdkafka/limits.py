"""How much of a backlog a micro-batch takes: a limit shared fairly, so that every partition moves on.

Spark's watermark is the latest event time of all partitions. Where one is read ahead of the others, their rows would be
dropped as late, so that a table with a watermark is caught up along the records' timestamps (`up_to_a_time`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kdsl.run.librdkafka.brokers import Place


def shares(
    backlog: Mapping[Place, int], *, most: int | None = None, most_each: int | None = None, turn: int = 0
) -> dict[Place, int]:
    """How many records of each partition are taken.

    Small backlogs are taken whole, and what is left of the limit is shared alike by the larger ones. Where the limit
    is lower than the number of partitions, the partitions take turns.

    Args:
        backlog: How many records each partition has.
        most: The most records together; None is no limit.
        most_each: The most records of one partition; None is no limit.
        turn: Whose turn it is: a number that grows by ``most`` from batch to batch.
    """
    wanted = {place: count if most_each is None else min(count, most_each) for place, count in backlog.items()}
    wanted = {place: count for place, count in wanted.items() if count > 0}
    if most is None or sum(wanted.values()) <= most:
        return wanted
    taken: dict[Place, int] = {}
    left = most
    waiting = sorted(wanted, key=lambda place: (wanted[place], place))
    for at, place in enumerate(waiting):
        level = left // (len(waiting) - at)
        if wanted[place] > level:
            waiting = sorted(waiting[at:])
            break
        taken[place] = wanted[place]
        left -= wanted[place]
    level, rest = divmod(left, len(waiting))
    first = turn % len(waiting)
    for at, place in enumerate(waiting[first:] + waiting[:first]):
        count = level + (1 if at < rest else 0)
        if count:
            taken[place] = count
    return taken
