"""Docstrings where they are needed: those of private functions are short, and nested functions have none."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.source_trees import modules

Function = ast.FunctionDef | ast.AsyncFunctionDef


def find_functions(
    node: ast.AST, *, private: bool = False, nested: bool = False
) -> Iterator[tuple[Function, bool, bool]]:
    """The functions below a node, each with whether it or its class is private, and whether it is inside another."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from find_functions(child, private=private or is_private(child.name), nested=nested)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            hidden = private or is_private(child.name)
            yield child, hidden, nested
            yield from find_functions(child, private=hidden, nested=True)
        else:
            yield from find_functions(child, private=private, nested=nested)


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


@pytest.mark.parametrize("path", modules().values(), ids=str)
def test_docstrings_stand_where_a_reader_needs_them(path: Path) -> None:
    """The errors of private functions are those that the public ones document, and nobody would keep them in step."""
    mistakes = []
    for function, private, nested in find_functions(ast.parse(path.read_text(encoding="utf-8"))):
        text = ast.get_docstring(function) or ""
        if nested and text and len(function.body) > 1:
            mistakes.append(f"{function.lineno}: the nested function {function.name} has a docstring; write a comment")
        elif private and "Raises:" in text.splitlines():
            mistakes.append(f"{function.lineno}: {function.name} is private; say what it raises in public docstrings")
    assert mistakes == []
