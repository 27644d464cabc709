"""The page of promises names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+)(?:::(?:\w+::)*(\w+))?`", PAGE.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(("path", "name"), NAMED, ids=lambda part: part.rpartition("/")[2])
def test_a_test_that_the_page_names_exists(path: str, name: str) -> None:
    assert (ROOT / path).exists()
    assert not name or re.search(rf"def {name}\(", (ROOT / path).read_text(encoding="utf-8"))
