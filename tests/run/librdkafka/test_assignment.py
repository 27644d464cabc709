from __future__ import annotations

from collections import Counter

from hypothesis import given, strategies as st

from kdsl.run.cluster.offsets import Range
from kdsl.run.librdkafka.assignment import PIECE_RECORDS, TASK_RECORDS, in_order, tasks

SIZES = st.one_of(st.integers(0, 50), st.integers(0, 5_000), st.integers(0, 5_000_000))


@st.composite
def ranges(draw: st.DrawFn) -> list[Range]:
    places = draw(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 40)), unique=True, max_size=30))
    starts = [draw(st.integers(0, 10**9)) for _ in places]
    return [Range(*place, start, start + draw(SIZES)) for place, start in zip(places, starts, strict=True)]


@given(ranges(), st.integers(1, 16))
def test_every_offset_is_read_exactly_once(given: list[Range], parallelism: int) -> None:
    pieces = sorted(
        (r for task in tasks(given, parallelism) for r in task), key=lambda r: (r.topic, r.partition, r.start)
    )

    joined: list[Range] = []
    for piece in pieces:
        before = joined[-1] if joined else None
        if before and (before.topic, before.partition, before.end) == (piece.topic, piece.partition, piece.start):
            joined[-1] = Range(piece.topic, piece.partition, before.start, piece.end)
        else:
            joined.append(piece)
    assert joined == sorted((r for r in given if len(r)), key=lambda r: (r.topic, r.partition, r.start))


@given(ranges(), st.integers(1, 16))
def test_there_are_at_most_as_many_tasks_as_asked_for_and_none_is_empty(given: list[Range], parallelism: int) -> None:
    made = tasks(given, parallelism)

    assert len(made) <= parallelism
    assert all(len(r) > 0 for task in made for r in task)
    assert all(task for task in made)


@given(ranges(), st.integers(1, 16))
def test_tasks_depend_on_the_ranges_alone_and_not_on_their_order(given: list[Range], parallelism: int) -> None:
    assert tasks(list(reversed(given)), parallelism) == tasks(given, parallelism)


@given(ranges(), st.integers(1, 16))
def test_no_task_is_much_larger_than_the_others_need_it_to_be(given: list[Range], parallelism: int) -> None:
    made = tasks(given, parallelism)

    total = sum(map(len, given))
    largest = max((sum(map(len, task)) for task in made), default=0)
    assert largest <= max(TASK_RECORDS, 2 * -(-total // max(1, len(made))) + 2 * PIECE_RECORDS)


def test_empty_ranges_make_no_task() -> None:
    assert tasks([Range("a", p, 5, 5) for p in range(1_000)], 4) == []


def test_a_small_batch_over_many_partitions_is_one_task() -> None:
    many = [Range("a", p, 0, 1) for p in range(999)]

    assert tasks(many, 4) == [tuple(many)]


def test_many_small_ranges_are_packed_alike() -> None:
    made = tasks([Range("a", p, 0, 1_000) for p in range(100)], 4)

    assert Counter(sum(map(len, task)) for task in made) == {25_000: 4}


def test_a_big_partition_is_split_between_the_tasks() -> None:
    assert tasks([Range("a", 0, 10, 2_000_010)], 4) == [
        (Range("a", 0, 10, 500_010),),
        (Range("a", 0, 500_010, 1_000_010),),
        (Range("a", 0, 1_000_010, 1_500_010),),
        (Range("a", 0, 1_500_010, 2_000_010),),
    ]


def test_a_partition_is_not_split_into_pieces_that_cost_more_than_they_save() -> None:
    made = tasks([Range("a", 0, 0, 30_000)], 8)

    assert made == [(Range("a", 0, 0, 30_000),)]


@given(ranges(), st.integers(1, 16))
def test_of_changes_the_order_of_tasks_is_that_of_offsets(given: list[Range], parallelism: int) -> None:
    made = in_order(given, parallelism)

    at: dict[tuple[str, int], int] = {}
    for r in (r for task in made for r in task):
        begin = next(g.start for g in given if (g.topic, g.partition) == (r.topic, r.partition))
        assert r.start == at.get((r.topic, r.partition), begin)
        at[r.topic, r.partition] = r.end
    assert at == {(r.topic, r.partition): r.end for r in given if len(r)}
    assert len(made) <= parallelism
    assert all(task for task in made)


@given(ranges(), st.integers(1, 16))
def test_of_changes_no_task_is_much_larger_than_it_needs_to_be(given: list[Range], parallelism: int) -> None:
    total = sum(map(len, given))
    size = -(-total // max(1, min(parallelism, total // TASK_RECORDS)))
    largest = max((sum(map(len, task)) for task in in_order(given, parallelism)), default=0)
    assert largest <= size + 3 * PIECE_RECORDS
