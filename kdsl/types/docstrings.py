"""The strings under the members of a class, which are the comments of a row's members.

A file is parsed once. In a REPL there may be no source; then there are no comments.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Iterator, Mapping

_parsed: dict[str, tuple[list[str], dict[str, dict[str, str]]]] = {}


def member_docstrings(cls: type) -> Mapping[str, str]:
    """The docstring under each annotated member of a class that has one, also of inherited members.

    Empty for a class whose source is not found; each file is parsed once, until its lines change.
    """
    docstrings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        file = getattr(module, "__file__", None)
        if module is None or file is None:
            continue
        lines = linecache.getlines(file, vars(module))
        known = _parsed.get(file)
        if known is None or known[0] is not lines:
            known = _parsed[file] = (lines, dict(_class_docstrings("".join(lines))))
        docstrings.update(known[1].get(base.__qualname__, {}))
    return docstrings


def _class_docstrings(text: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the qualified name of each class of a source with its members' docstrings; none if it cannot be parsed."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # the file was changed since it was imported
        return
    yield from _walk_classes(tree, "")


def _walk_classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the classes at any depth by qualified name, with docstrings; expressions are not visited."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, block, ()):
            match child:
                case ast.ClassDef():
                    yield f"{prefix}{child.name}", _members_with_docstrings(child)
                    yield from _walk_classes(child, f"{prefix}{child.name}.")
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield from _walk_classes(child, f"{prefix}{child.name}.<locals>.")
                case _:
                    yield from _walk_classes(child, prefix)


def _members_with_docstrings(class_node: ast.ClassDef) -> dict[str, str]:
    """Return the strings directly under annotated members of a class body, without their indentation, by member."""
    docstrings: dict[str, str] = {}
    before: ast.stmt | None = None
    for node in class_node.body:
        text = node.value.value if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) else None
        if isinstance(text, str) and isinstance(before, ast.AnnAssign) and isinstance(before.target, ast.Name):
            docstrings[before.target.id] = inspect.cleandoc(text)
        before = node
    return docstrings
