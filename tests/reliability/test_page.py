"""The page of promises names tests that exist, and says which are long."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "reliability.md"
NAMED = sorted(set(re.findall(r"`(tests/[\w/.]+)(?:::(?:\w+::)*(\w+))?`", PAGE.read_text(encoding="utf-8"))))


@pytest.mark.parametrize(("path", "name"), NAMED, ids=lambda part: part.rpartition("/")[2])
def test_a_test_that_the_page_names_exists(path: str, name: str) -> None:
    assert (ROOT / path).exists()
    assert not name or re.search(rf"def {name}\(", (ROOT / path).read_text(encoding="utf-8"))


ROWS = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ") and "`tests/" in line]
LONG = "pytest.mark.reliability"


@cache
def marks(path: str) -> dict[str, str]:
    """The decorators of each test of a file, with those of its class and the marks of the module."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    common = "".join(ast.unparse(s) for s in tree.body if isinstance(s, ast.Assign) and "pytestmark" in ast.unparse(s))
    results: dict[str, str] = {}
    for outer in tree.body:
        of_class = outer.decorator_list if isinstance(outer, ast.ClassDef) else []
        for test in outer.body if isinstance(outer, ast.ClassDef) else [outer]:
            if isinstance(test, ast.FunctionDef):
                own = [ast.unparse(decorator) for decorator in (*of_class, *test.decorator_list)]
                results[test.name] = "\n".join([common, *own])
    return results


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip() or "more")
def test_a_guarantee_is_marked_as_long_if_one_of_its_tests_is(row: str) -> None:
    """A test is long if it has the mark; it may be long if some of its parameters have it."""
    named = [marks(path)[name] for path, name in re.findall(r"`(tests/[\w/]+\.py)::(?:\w+::)*(\w+)`", row)]
    is_long = [any(LONG in line and "param" not in line for line in one.split("\n")) for one in named]

    if re.search(r"\bL[,)]", row):
        assert any(LONG in one for one in named)
    else:
        assert not any(is_long)
