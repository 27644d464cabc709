"""Locations in YAML documents."""

from __future__ import annotations

import pytest

from kdsl.documents import MAX_REPEATED, YamlDocument


@pytest.mark.parametrize(
    ("path", "line"), [("$.a.b", 2), ("$.a.other[3].more", 1), ("$.c", 1), ("c.d", None), ("", None)]
)
def test_an_unknown_path_is_located_by_the_longest_part_that_is_known(path: str, line: int | None) -> None:
    where = YamlDocument("a:\n  b: 1", "tables.yaml").where(path)

    assert (where.file, where.line, where.path) == ("tables.yaml", line, path)


def write_repeated(levels: int, *, merge: bool = False) -> str:
    """A document whose anchors repeat ten values at each of some levels."""
    first = "a0: &a0 {x: 1}\n" if merge else f"a0: &a0 [{','.join('x' * 10)}]\n"
    below = ("{{<<: [{}]}}" if merge else "[{}]").format
    return first + "".join(f"a{i}: &a{i} {below(','.join([f'*a{i - 1}'] * 10))}\n" for i in range(1, levels))


@pytest.mark.parametrize("levels", [5, 9, 30])
@pytest.mark.parametrize("merge", [False, True])
def test_the_values_that_anchors_repeat_are_limited(levels: int, merge: bool) -> None:
    document = YamlDocument(write_repeated(levels, merge=merge), "tables.yaml")

    (problem,) = document.problems
    assert "more than 10,000 further values" in problem.message
    assert problem.where.line is not None
    assert len(document.lines) < 2 * MAX_REPEATED


@pytest.mark.parametrize("merge", [False, True])
def test_anchors_may_be_used_often(merge: bool) -> None:
    document = YamlDocument(write_repeated(3, merge=merge), None)

    assert document.problems == []
    assert document.value["a2"] == ({"x": 1} if merge else [[["x"] * 10] * 10] * 10)
