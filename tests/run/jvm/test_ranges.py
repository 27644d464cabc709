"""How ranges that are read through Spark's own source are put together; no session."""

from __future__ import annotations

from kdsl.run.jvm.ranges import group_ranges
from kdsl.run.offsets.stored import Range


def test_a_group_has_each_partition_once_and_no_more_offsets_than_fit() -> None:
    wanted = [Range("a", 0, 0, 30), Range("a", 1, 5, 5), Range("a", 1, 10, 270), Range("b", 0, 7, 17)]

    groups = list(group_ranges(wanted, 100))

    assert groups == [
        [Range("a", 0, 0, 30), Range("a", 1, 10, 80)],
        [Range("a", 1, 80, 180)],
        [Range("a", 1, 180, 270), Range("b", 0, 7, 17)],
    ]


def test_nothing_is_read_where_nothing_is_wanted() -> None:
    assert list(group_ranges([])) == []
    assert list(group_ranges([Range("a", 0, 3, 3)])) == []
