"""How ranges that are read through Spark's own source are put together; no session."""

from __future__ import annotations

import pytest

from kdsl.run.jvm import ranges
from kdsl.run.jvm.ranges import _groups
from kdsl.run.offsets.stored import Range


def test_a_group_has_each_partition_once_and_no_more_offsets_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "_TOGETHER", 100)
    wanted = [Range("a", 0, 0, 30), Range("a", 1, 5, 5), Range("a", 1, 10, 270), Range("b", 0, 7, 17)]

    groups = list(_groups(wanted))

    assert groups == [
        [Range("a", 0, 0, 30), Range("a", 1, 10, 80)],
        [Range("a", 1, 80, 180)],
        [Range("a", 1, 180, 270), Range("b", 0, 7, 17)],
    ]


def test_nothing_is_read_where_nothing_is_wanted() -> None:
    assert list(_groups([])) == []
    assert list(_groups([Range("a", 0, 3, 3)])) == []
