"""How many records of a backlog a micro-batch reads: a limit is divided fairly, so that every partition advances.

Spark's watermark is the latest event time of all partitions. If one partition were read far ahead of the others, the
others' rows would be dropped as late. The backlog of a table with a watermark is therefore read along the records'
timestamps (`divide_limit_by_time`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kdsl.callbacks import TopicPartition


def divide_limit(
    backlog: Mapping[TopicPartition, int],
    *,
    max_records: int | None = None,
    max_records_per_partition: int | None = None,
    turn: int = 0,
) -> dict[TopicPartition, int]:
    """Choose how many records of each partition a micro-batch reads.

    Small backlogs are read whole, and the larger ones share the rest of the limit equally. If the limit is lower than
    the number of partitions, the partitions take turns.

    Args:
        backlog: How many records of each partition have not been read.
        max_records: The maximum of all partitions together; None means no limit.
        max_records_per_partition: The maximum of each partition; None means no limit.
        turn: Whose turn it is: a number that grows by ``max_records`` from batch to batch.

    Returns:
        The number of records by partition; partitions that are not read are left out.
    """
    wanted = {
        partition: count if max_records_per_partition is None else min(count, max_records_per_partition)
        for partition, count in backlog.items()
    }
    wanted = {partition: count for partition, count in wanted.items() if count > 0}
    if max_records is None or sum(wanted.values()) <= max_records:
        return wanted
    counts: dict[TopicPartition, int] = {}
    remaining = max_records
    waiting = sorted(wanted, key=lambda partition: (wanted[partition], partition))
    for i, partition in enumerate(waiting):
        share = remaining // (len(waiting) - i)
        if wanted[partition] > share:
            waiting = sorted(waiting[i:])
            break
        counts[partition] = wanted[partition]
        remaining -= wanted[partition]
    share, rest = divmod(remaining, len(waiting))
    first = turn % len(waiting)
    for i, partition in enumerate(waiting[first:] + waiting[:first]):
        count = share + (1 if i < rest else 0)
        if count:
            counts[partition] = count
    return counts


END_OF_TIME = 2**43
"""A time in milliseconds, in the year 2248: what has a later one counts as the last, and is read by number."""


def divide_limit_by_time(
    backlog: Mapping[TopicPartition, int],
    count_before: Callable[[int], Mapping[TopicPartition, int]],
    *,
    ahead: int,
    guess: int = 0,
    max_records: int | None = None,
    max_records_per_partition: int | None = None,
    turn: int = 0,
) -> tuple[dict[TopicPartition, int], int]:
    """Choose how many records of each partition a micro-batch reads, so that none is read far ahead of the others.

    The batch reads everything before a time: about the latest one that the limits allow, or the first one that the
    search meets which uses half of ``max_records``. What remains of the limits is spent on records that are at most
    ``ahead`` later. Once only records that follow one of `END_OF_TIME` or later remain, they are divided by number.

    Args:
        backlog: How many records of each partition have not been read; they exceed the limits.
        count_before: Returns for a time before `END_OF_TIME` how many of them come before the first that is not older.
            What it raises is passed on.
        ahead: How far a partition may be read ahead, in milliseconds.
        guess: Where the search begins: a time that is known not to be too late, such as that of the previous batch; 0
            if none is known.
        max_records: The maximum of all partitions together; None means no limit.
        max_records_per_partition: The maximum of each partition; None means no limit.
        turn: As for `divide_limit`.

    Returns:
        The counts, without the partitions that are not read, and the time before which everything is read.
    """

    def fits(counts: Mapping[TopicPartition, int]) -> bool:
        within = max_records_per_partition is None or all(
            count <= max_records_per_partition for count in counts.values()
        )
        return within and (max_records is None or sum(counts.values()) <= max_records)

    def count(millis: int) -> Mapping[TopicPartition, int]:
        return backlog if millis >= END_OF_TIME else count_before(millis)

    low, base, high, step = 0, dict.fromkeys(backlog, 0), END_OF_TIME, max(1, ahead)
    probe = guess
    while high - low > max(1, ahead // 2) and not (max_records is not None and 2 * sum(base.values()) >= max_records):
        counts = count(probe)
        if fits(counts):
            low, base = probe, dict(counts)
        else:
            high = probe
        # From the guess on in doubling steps; once the time lies between two probes, by bisection.
        probe = min(low + step, high - 1) if high == END_OF_TIME and guess else (low + high) // 2
        step *= 2
    reach = max(low + ahead, high) if high - low <= max(1, ahead // 2) else low + ahead
    rest = {partition: n - base[partition] for partition, n in count(reach).items()}
    if max_records_per_partition is not None:
        rest = {p: min(n, max_records_per_partition - base[p]) for p, n in rest.items()}
    budget = None if max_records is None else max_records - sum(base.values())
    more = divide_limit(rest, max_records=budget, turn=turn)
    total = {partition: n + more.get(partition, 0) for partition, n in base.items()}
    return {partition: n for partition, n in total.items() if n > 0}, low
