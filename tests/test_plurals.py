"""Numbers of things in messages: "1 record", and not "1 records" or "1 record(s)"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdsl.errors import pluralize
from tests.source_trees import modules, read, walk

NOUNS = (
    "(?:records|rows|letters|tables|topics|partitions|columns|files|changes|keys|batches|tasks|queries|offsets|errors|"
    "problems|values|statements|cases)"
)
AFTER_A_NUMBER = re.compile(rf" (?:(?:more|further|other|new|last|bad) )*{NOUNS}\b")
IN_A_LOG = re.compile(rf"%[sd] (?:(?:more|further|other|of) )*{NOUNS}\b")
HAND_MADE = re.compile(r"[a-z]{3}(?<!http)\(e?s\)(?!\w)")
AT_LEAST_TWO = re.compile(r"_?[A-Z][A-Z_]+")
"""A constant, such as the most rows that are shown."""
WITHOUT_ONE = {
    *("kdsl.cli.peek", "kdsl.ddl.load", "kdsl.load", "kdsl.run.jvm.read", "kdsl.testing.cases.targets"),
    *("kdsl.run.key_order", "kdsl.run.exactly_once.write_log"),  # a constant, a verb
}
"""Modules in which such a number cannot be 1, or stands for something else."""


def find_mistakes(path: Path) -> Iterator[str]:
    """Yield where a number stands before a plural, and could be 1."""
    for node in walk(ast.parse(read(path))):
        if isinstance(node, ast.JoinedStr):
            for value, after in zip(node.values, node.values[1:], strict=False):
                if not isinstance(value, ast.FormattedValue) or not isinstance(after, ast.Constant):
                    continue
                number = ast.unparse(value.value)
                if AFTER_A_NUMBER.match(str(after.value)) and not AT_LEAST_TWO.fullmatch(number.rpartition(".")[2]):
                    yield f"{path}:{value.lineno}: {number}{after.value!s}"
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from (f"{path}:{node.lineno}: {match[0]}" for match in IN_A_LOG.finditer(node.value))
            yield from (f"{path}:{node.lineno}: {match[0]}" for match in HAND_MADE.finditer(node.value))


@pytest.mark.parametrize(
    ("number", "words", "expected"),
    [
        (1, ("record",), "1 record"),
        (0, ("record",), "0 records"),
        (2_000, ("more row",), "2,000 more rows"),
        (1, ("query", "queries"), "1 query"),
        (3, ("record is", "records are"), "3 records are"),
    ],
)
def test_the_noun_fits_the_number(number: int, words: tuple[str, ...], expected: str) -> None:
    assert pluralize(number, *words) == expected


def test_numbers_in_messages_have_the_noun_that_fits() -> None:
    paths = [path for name, path in modules().items() if name.startswith("kdsl.") and name not in WITHOUT_ONE]
    mistakes = [mistake for path in paths for mistake in find_mistakes(path)]

    assert not mistakes, "write {pluralize(number, 'record')}:\n" + "\n".join(mistakes)
