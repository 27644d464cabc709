from __future__ import annotations

from bisect import bisect_left

from hypothesis import given, strategies as st

from kdsl.run.librdkafka.limits import END_OF_TIME, divide_limit, divide_limit_by_time

BACKLOG = st.dictionaries(st.tuples(st.just("a"), st.integers(0, 20)), st.integers(0, 1_000), max_size=12)


@given(BACKLOG, st.integers(1, 3_000), st.none() | st.integers(1, 500), st.integers(0, 10**6))
def test_limits_are_respected_and_used_up(
    backlog: dict[tuple[str, int], int], most: int, each: int | None, turn: int
) -> None:
    taken = divide_limit(backlog, max_records=most, max_records_per_partition=each, turn=turn)

    within = {partition: min(count, each or count) for partition, count in backlog.items()}
    assert all(0 < count <= within[partition] for partition, count in taken.items())
    assert sum(taken.values()) == min(most, sum(within.values()))


@given(BACKLOG, st.integers(1, 3_000), st.integers(0, 10**6))
def test_no_partition_gets_more_than_another_that_still_has_records(
    backlog: dict[tuple[str, int], int], most: int, turn: int
) -> None:
    taken = divide_limit(backlog, max_records=most, turn=turn)

    waiting = [taken.get(partition, 0) for partition, count in backlog.items() if taken.get(partition, 0) < count]
    assert (
        all(count <= min(waiting) + 1 for count in taken.values())
        if waiting
        else taken == {partition: count for partition, count in backlog.items() if count}
    )


@given(st.integers(1, 12), st.integers(1, 20))
def test_no_partition_starves_under_a_limit_below_their_number(most: int, partitions: int) -> None:
    turn = 0
    served: set[tuple[str, int]] = set()
    for _ in range(-(-partitions // most)):
        taken = divide_limit({("a", p): 1_000_000 for p in range(partitions)}, max_records=most, turn=turn)
        turn += sum(taken.values())
        served |= taken.keys()

    assert served == {("a", p) for p in range(partitions)}


def test_a_small_backlog_is_read_completely_next_to_a_large_one() -> None:
    assert divide_limit({("a", 0): 1_000_000, ("a", 1): 10}, max_records=1_000) == {("a", 0): 990, ("a", 1): 10}


def test_without_limits_everything_is_taken() -> None:
    assert divide_limit({("a", 0): 7, ("a", 1): 0}) == {("a", 0): 7}


def test_the_limit_for_each_partition_applies_alone() -> None:
    assert divide_limit({("a", 0): 70, ("a", 1): 3}, max_records_per_partition=10) == {("a", 0): 10, ("a", 1): 3}


TIMES = st.dictionaries(
    st.tuples(st.just("a"), st.integers(0, 6)), st.lists(st.integers(1, 5_000), min_size=1, max_size=40), min_size=1
)


@given(TIMES, st.integers(1, 60), st.integers(0, 500), st.integers(0, 6_000))
def test_a_backlog_is_caught_up_without_running_ahead(
    times: dict[tuple[str, int], list[int]], most: int, ahead: int, guess: int
) -> None:
    logs = {partition: sorted(stamps) for partition, stamps in times.items()}
    read = dict.fromkeys(logs, 0)
    total = sum(map(len, logs.values()))

    while (left := total - sum(read.values())) > most:
        taken, _ = divide_limit_by_time(
            {p: len(stamps) - read[p] for p, stamps in logs.items()},
            lambda millis: {p: max(0, bisect_left(stamps, millis) - read[p]) for p, stamps in logs.items()},
            ahead=ahead,
            guess=guess,
            max_records=most,
        )
        assert 0 < sum(taken.values()) <= most
        for partition, count in taken.items():
            read[partition] += count
        latest = max(logs[p][n - 1] for p, n in read.items() if n)
        next_ones = [logs[p][n] for p, n in read.items() if n < len(logs[p])]
        assert latest <= min(next_ones) + max(1, ahead)
        assert total - sum(read.values()) < left


def test_each_partition_keeps_its_own_limit_along_the_time() -> None:
    logs = {("a", 0): list(range(100)), ("a", 1): list(range(0, 1_000, 10))}

    taken, time = divide_limit_by_time(
        dict.fromkeys(logs, 100),
        lambda millis: {p: bisect_left(stamps, millis) for p, stamps in logs.items()},
        ahead=0,
        max_records_per_partition=20,
    )

    assert (taken, time) == ({("a", 0): 20, ("a", 1): 3}, 20)


def test_records_of_one_moment_are_shared_where_the_limit_cuts_them() -> None:
    taken, _ = divide_limit_by_time(
        {("a", 0): 100, ("a", 1): 100},
        lambda millis: {("a", p): 100 if millis > 7 else 0 for p in range(2)},
        ahead=0,
        max_records=30,
    )

    assert taken == {("a", 0): 15, ("a", 1): 15}
    assert END_OF_TIME > 4_102_444_800_000  # the year 2100


STAMPS = st.integers(1, 5_000) | st.sampled_from([END_OF_TIME - 1, END_OF_TIME, 253_402_300_799_000, 2**63 - 1])
LOGS = st.dictionaries(
    st.tuples(st.just("a"), st.integers(0, 3)), st.lists(STAMPS, min_size=1, max_size=40), min_size=1
)


@given(LOGS, st.integers(1, 60), st.integers(0, 500) | st.just(3_600_000))
def test_every_backlog_is_caught_up_whatever_the_times_of_its_records(
    logs: dict[tuple[str, int], list[int]], most: int, ahead: int
) -> None:
    read, guess = dict.fromkeys(logs, 0), 0

    def count_before(millis: int) -> dict[tuple[str, int], int]:
        """As brokers do: what comes before the first record that is not older, wherever it is."""
        first = {
            p: next((i for i, one in enumerate(stamps) if one >= millis), len(stamps)) for p, stamps in logs.items()
        }
        return {p: max(0, i - read[p]) for p, i in first.items()}

    while sum((left := {p: len(stamps) - read[p] for p, stamps in logs.items()}).values()) > most:
        taken, guess = divide_limit_by_time(left, count_before, ahead=ahead, guess=guess, max_records=most)
        assert 0 < sum(taken.values()) <= most
        for partition, count in taken.items():
            read[partition] += count
            assert read[partition] <= len(logs[partition])
