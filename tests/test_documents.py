"""Locations in YAML documents."""

from __future__ import annotations

import pytest

from kdsl.documents import YamlDocument


@pytest.mark.parametrize(
    ("path", "line"), [("$.a.b", 2), ("$.a.other[3].more", 1), ("$.c", 1), ("c.d", None), ("", None)]
)
def test_an_unknown_path_is_located_by_the_longest_part_that_is_known(path: str, line: int | None) -> None:
    where = YamlDocument("a:\n  b: 1", "tables.yaml").where(path)

    assert (where.file, where.line, where.path) == ("tables.yaml", line, path)
