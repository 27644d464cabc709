"""Docstrings where they are needed: errors where users can import, short ones of private functions, none of nested."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from typing import TypeGuard

import pytest

from tests.source_trees import import_statements, modules

# Packages that export their names in `__init__.py`: `import_statements` finds the modules which define them.
EXPORTING = ("kdsl.changelog", "kdsl.formats", "kdsl.ingest", "kdsl.ingest.ends", "kdsl.registry", "kdsl.testing")
# Modules that pages tell users or authors of plug-ins to import, beside those.
NAMED = (
    "kdsl.diagnostics.dead_letters",
    "kdsl.ingest.run.sinks",
    "kdsl.ingest.run.sources",
    "kdsl.json_logs",
    "kdsl.options",
    "kdsl.pipelines",
    "kdsl.plugins",
    "kdsl.secrets",
    "kdsl.testing",
    "kdsl.types",
    "kdsl.vendors",
)

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


@cache
def public_modules() -> set[str]:
    """The modules that define what users and plug-ins import."""
    files = modules()
    doors = [files["kdsl"].with_suffix(".pyi"), *(files[package] for package in EXPORTING)]
    return {statement.module or "" for door in doors for statement, _ in import_statements(door) if is_from(statement)}


def is_from(statement: ast.Import | ast.ImportFrom) -> TypeGuard[ast.ImportFrom]:
    return isinstance(statement, ast.ImportFrom)


def is_public(module: str) -> bool:
    return module in public_modules() or any(module == name or module.startswith(f"{name}.") for name in NAMED)


@pytest.mark.parametrize("module", modules())
def test_docstrings_stand_where_a_reader_needs_them(module: str) -> None:
    """The errors of internal functions are those that the public ones document, and nobody would keep them in step."""
    tree, internal = ast.parse(modules()[module].read_text(encoding="utf-8")), not is_public(module)
    mistakes = [
        f"{node.lineno}: {node.name} is internal; say what it raises in public docstrings"
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and (internal or is_private(node.name))
        if "Raises:" in (ast.get_docstring(node) or "").splitlines()
    ]
    for function, private, nested in find_functions(tree):
        text = ast.get_docstring(function) or ""
        if nested and text and len(function.body) > 1:
            mistakes.append(f"{function.lineno}: the nested function {function.name} has a docstring; write a comment")
        elif (private or internal) and "Raises:" in text.splitlines():
            mistakes.append(f"{function.lineno}: {function.name} is internal; say what it raises in public docstrings")
    assert mistakes == []
