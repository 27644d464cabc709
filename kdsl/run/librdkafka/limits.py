"""How much of a backlog a micro-batch takes: a limit shared fairly, so that every partition moves on.

Spark's watermark is the latest event time of all partitions. Where one is read ahead of the others, their rows would be
dropped as late, so that a table with a watermark is caught up along the records' timestamps (`shares_by_time`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kdsl.offsets import TopicPartition


def shares(
    backlog: Mapping[TopicPartition, int], *, most: int | None = None, most_each: int | None = None, turn: int = 0
) -> dict[TopicPartition, int]:
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
    taken: dict[TopicPartition, int] = {}
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


END_OF_TIME = 2**43
"""A time in milliseconds before which every record counts."""


def shares_by_time(
    until: Callable[[int], Mapping[TopicPartition, int]],
    *,
    ahead: int,
    guess: int = 0,
    most: int | None = None,
    most_each: int | None = None,
    turn: int = 0,
) -> tuple[dict[TopicPartition, int], int]:
    """How many records of each partition are taken, so that none is read ahead of the others by much.

    Everything before some time is taken, the latest time that the limits allow, and what is left of the limits goes to
    records that are later by ``ahead`` at most.

    Args:
        until: Gives for a time how many records of each partition come before the first that is not older. Everything
            before `END_OF_TIME` must be more than the limits allow.
        ahead: By how much a partition may be read ahead, in milliseconds.
        guess: The time to begin at, where one is known that is not too late: that of the batch before.
        most: The most records together; None is no limit.
        most_each: The most records of one partition; None is no limit.
        turn: As for `shares`.

    Returns:
        The counts, and the time before which everything is taken.
    """

    def fits(counts: Mapping[TopicPartition, int]) -> bool:
        within = most_each is None or all(count <= most_each for count in counts.values())
        return within and (most is None or sum(counts.values()) <= most)

    low, base, high, step = 0, dict.fromkeys(until(0), 0), END_OF_TIME, max(1, ahead)
    probe = guess
    while high - low > max(1, ahead // 2) and not (most is not None and 2 * sum(base.values()) >= most):
        counts = until(probe)
        if fits(counts):
            low, base = probe, dict(counts)
        else:
            high = probe
        # From the guess on in steps that double; once the time lies between two, by halves.
        probe = min(low + step, high - 1) if high == END_OF_TIME and guess else (low + high) // 2
        step *= 2
    reach = max(low + ahead, high) if high - low <= max(1, ahead // 2) else low + ahead
    rest = {place: count - base[place] for place, count in until(reach).items()}
    if most_each is not None:
        rest = {place: min(count, most_each - base[place]) for place, count in rest.items()}
    more = shares(rest, most=None if most is None else most - sum(base.values()), turn=turn)
    taken = {place: count + more.get(place, 0) for place, count in base.items()}
    return {place: count for place, count in taken.items() if count > 0}, low
