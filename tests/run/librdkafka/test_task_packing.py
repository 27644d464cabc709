from __future__ import annotations

from collections import Counter
from typing import get_args

import attrs
from hypothesis import given, strategies as st

from kdsl.run.librdkafka.task_packing import (
    PIECE_RECORDS,
    TASK_RECORDS,
    choose_packing,
    clip,
    pack,
    pack_balanced,
    pack_whole,
)
from kdsl.run.offsets.stored import PackingKind, Range

KINDS: tuple[PackingKind, ...] = get_args(PackingKind)
SIZES = st.one_of(st.integers(0, 50), st.integers(0, 5_000), st.integers(0, 5_000_000))


@st.composite
def ranges(draw: st.DrawFn) -> list[Range]:
    partitions = draw(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 40)), unique=True, max_size=30))
    starts = [draw(st.integers(0, 10**9)) for _ in partitions]
    return [Range(*partition, start, start + draw(SIZES)) for partition, start in zip(partitions, starts, strict=True)]


@given(ranges(), st.integers(1, 16))
def test_every_offset_is_read_exactly_once(values: list[Range], parallelism: int) -> None:
    pieces = sorted(
        (r for task in pack_balanced(values, parallelism) for r in task), key=lambda r: (r.topic, r.partition, r.start)
    )

    joined: list[Range] = []
    for piece in pieces:
        before = joined[-1] if joined else None
        if before and (before.topic, before.partition, before.end) == (piece.topic, piece.partition, piece.start):
            joined[-1] = Range(piece.topic, piece.partition, before.start, piece.end)
        else:
            joined.append(piece)
    assert joined == sorted((r for r in values if len(r)), key=lambda r: (r.topic, r.partition, r.start))


@given(ranges(), st.integers(1, 16))
def test_there_are_at_most_the_requested_number_of_tasks_and_none_is_empty(
    values: list[Range], parallelism: int
) -> None:
    result = pack_balanced(values, parallelism)

    assert len(result) <= parallelism
    assert all(len(r) > 0 for task in result for r in task)
    assert all(task for task in result)


@given(ranges(), st.integers(1, 16))
def test_tasks_depend_on_the_ranges_alone_and_not_on_their_order(values: list[Range], parallelism: int) -> None:
    assert pack_balanced(list(reversed(values)), parallelism) == pack_balanced(values, parallelism)


@given(ranges(), st.integers(1, 16))
def test_no_task_is_much_larger_than_the_others_need_it_to_be(values: list[Range], parallelism: int) -> None:
    result = pack_balanced(values, parallelism)

    total = sum(map(len, values))
    largest = max((sum(map(len, task)) for task in result), default=0)
    assert largest <= max(TASK_RECORDS, 2 * -(-total // max(1, len(result))) + 2 * PIECE_RECORDS)


def test_empty_ranges_make_no_task() -> None:
    assert pack_balanced([Range("a", p, 5, 5) for p in range(1_000)], 4) == []


def test_a_small_batch_over_many_partitions_is_one_task() -> None:
    many = [Range("a", p, 0, 1) for p in range(999)]

    assert pack_balanced(many, 4) == [tuple(many)]


def test_many_small_ranges_are_packed_equally() -> None:
    result = pack_balanced([Range("a", p, 0, 1_000) for p in range(100)], 4)

    assert Counter(sum(map(len, task)) for task in result) == {25_000: 4}


def test_a_big_partition_is_split_between_the_tasks() -> None:
    assert pack_balanced([Range("a", 0, 10, 2_000_010)], 4) == [
        (Range("a", 0, 10, 500_010),),
        (Range("a", 0, 500_010, 1_000_010),),
        (Range("a", 0, 1_000_010, 1_500_010),),
        (Range("a", 0, 1_500_010, 2_000_010),),
    ]


def test_a_partition_is_not_split_into_pieces_that_cost_more_than_they_save() -> None:
    result = pack_balanced([Range("a", 0, 0, 30_000)], 8)

    assert result == [(Range("a", 0, 0, 30_000),)]


@given(ranges(), st.integers(1, 16))
def test_the_order_of_tasks_is_that_of_the_offsets_of_each_partition(values: list[Range], parallelism: int) -> None:
    result = pack_balanced(values, parallelism)

    at: dict[tuple[str, int], int] = {}
    for r in (r for task in result for r in task):
        begin = next(g.start for g in values if (g.topic, g.partition) == (r.topic, r.partition))
        assert r.start == at.get((r.topic, r.partition), begin)
        at[r.topic, r.partition] = r.end
    assert at == {(r.topic, r.partition): r.end for r in values if len(r)}
    assert len(result) <= parallelism
    assert all(task for task in result)


@given(ranges(), st.integers(1, 16), st.sampled_from(KINDS), st.data())
def test_tasks_with_deleted_records_keep_their_indices(
    values: list[Range], parallelism: int, kind: PackingKind, data: st.DataObject
) -> None:
    """The place of a task is the writer of its records, who may have written them before the others were deleted."""
    packed = pack(values, attrs.evolve(choose_packing(parallelism), kind=kind))
    left = [Range(r.topic, r.partition, data.draw(st.integers(r.start, r.end)), r.end) for r in values if len(r)]

    rest = clip(packed, [r for r in left if len(r)])

    begins = {(r.topic, r.partition): r.start for r in left}
    wanted = [
        tuple(Range(*partition, start, r.end) for r, partition, start in move_starts(task, begins) if start < r.end)
        for task in packed
    ]
    assert rest == wanted


def move_starts(
    task: tuple[Range, ...], begins: dict[tuple[str, int], int]
) -> list[tuple[Range, tuple[str, int], int]]:
    return [(r, (r.topic, r.partition), max(r.start, begins[r.topic, r.partition])) for r in task]


@given(ranges(), st.integers(1, 16))
def test_a_batch_is_packed_as_planned_whatever_the_packing_of_new_batches(
    values: list[Range], parallelism: int
) -> None:
    """What is recorded with a batch says all; later versions may choose other numbers for theirs."""
    old = attrs.evolve(choose_packing(parallelism), task_records=10, piece_records=50)

    assert pack(values, old) == pack_balanced(values, parallelism, 10, 50)


def test_packed_ranges_never_change() -> None:
    """The numbers are fixed: checkpoints rely on them."""
    some = [Range("a", 0, 0, 61_000), Range("a", 1, 5, 4_005), Range("b", 0, 7, 7), Range("b", 1, 100, 30_100)]

    assert pack(some, choose_packing(4)) == [
        (Range("b", 1, 100, 30_100),),
        (Range("a", 0, 0, 20_333),),
        (Range("a", 0, 20_333, 40_666), Range("a", 1, 5, 4_005)),
        (Range("a", 0, 40_666, 61_000),),
    ]
    assert pack(some, choose_packing(4, whole=True)) == [
        (Range("a", 0, 0, 61_000),),
        (Range("b", 1, 100, 30_100),),
        (Range("a", 1, 5, 4_005),),
    ]


@given(ranges(), st.integers(1, 16))
def test_whole_partitions_are_not_split(values: list[Range], parallelism: int) -> None:
    result = pack_whole(values, parallelism)

    assert sorted(r for task in result for r in map(attrs.astuple, task)) == sorted(
        attrs.astuple(r) for r in values if len(r)
    )
    assert len(result) <= parallelism
    assert all(task for task in result)
    assert pack(reversed(values), choose_packing(parallelism, whole=True)) == result


@given(ranges(), st.integers(1, 16))
def test_a_task_reads_the_records_of_a_partition_before_those_of_later_tasks(values: list[Range], count: int) -> None:
    """The position of a row among the tasks is its position in its partition, by which rows are sorted for a sink."""
    for packing in (choose_packing(count), choose_packing(count, whole=True)):
        read: dict[tuple[str, int], int] = {(r.topic, r.partition): r.start for r in values}
        for r in (r for task in pack(values, packing) for r in task):
            assert read[r.topic, r.partition] == r.start
            read[r.topic, r.partition] = r.end
        assert read == {(r.topic, r.partition): r.end for r in values}


@given(ranges(), st.integers(1, 16))
def test_a_whole_partition_is_read_by_one_task(values: list[Range], count: int) -> None:
    tasks = pack(values, choose_packing(count, whole=True))

    readers = Counter((r.topic, r.partition) for task in tasks for r in task)
    assert len(tasks) <= count
    assert all(readers[r.topic, r.partition] == (len(r) > 0) for r in values)
