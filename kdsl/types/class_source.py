"""The lines of the parts of a class in its file, and the strings under its members, which are their comments.

A file is parsed once, until its lines change. In a REPL there may be no source: then only the line of a class is known.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import attrs


@attrs.frozen
class ClassSource:
    """A class statement in its file.

    Attributes:
        line: The line of the word ``class``.
        arguments: The line of each argument of the class statement.
        columns: The line of each name in the body.
        comments: The string under each name in the body that has one.
        repeated: For each name that occurs in the body twice, the line of the first.
    """

    line: int
    arguments: Mapping[str, int] = attrs.field(factory=dict)
    columns: Mapping[str, int] = attrs.field(factory=dict)
    comments: Mapping[str, str] = attrs.field(factory=dict)
    repeated: Mapping[str, int] = attrs.field(factory=dict)


_Classes = dict[str | tuple[str, int], ClassSource]
_parsed: dict[str, tuple[list[str], _Classes]] = {}


def class_source(file: str, name: str, line: int, module: dict[str, Any] | None = None) -> ClassSource:
    """Return the lines and comments of a class in its source, which is parsed once and cached.

    Args:
        file: The file, or the name that a notebook gives a cell.
        name: The class.
        line: The line where the class begins, as Python reports it: its first decorator, or the word ``class``.
        module: The names of its module, which can load a source that is not a plain file.

    Returns:
        Only ``line`` if the source has no such class.
    """
    return _classes_in(file, module).get((name, line)) or ClassSource(line)


def member_docstrings(cls: type) -> Mapping[str, str]:
    """The string under each member of a class that has one, also of inherited members.

    Empty for a class whose source is not found.
    """
    docstrings: dict[str, str] = {}
    for base in reversed(cls.__mro__):
        module = sys.modules.get(base.__module__)
        file = getattr(module, "__file__", None)
        if module is not None and file is not None:
            source = _classes_in(file, vars(module)).get(base.__qualname__)
            docstrings.update({} if source is None else source.comments)
    return docstrings


def _classes_in(file: str, module: dict[str, Any] | None) -> _Classes:
    """The classes of a source by qualified name, and by name and each line that may be their beginning."""
    lines = linecache.getlines(file, module)
    known = _parsed.get(file)
    if known is None or known[0] is not lines:
        known = _parsed[file] = (lines, dict(_read_classes("".join(lines))))
    return known[1]


def _read_classes(text: str) -> Iterator[tuple[str | tuple[str, int], ClassSource]]:
    """Yield each class of a source under each of its keys; none if it is not Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # the file was changed since it was imported
        return
    for qualified_name, node in _walk_classes(tree, ""):
        source = _read_class(node)
        yield qualified_name, source
        for first in {node.lineno, *(d.lineno for d in node.decorator_list[:1])}:
            yield (node.name, first), source


def _read_class(statement: ast.ClassDef) -> ClassSource:
    """Read the lines of a class statement's arguments, and the lines, comments and repetitions of names in its body."""
    columns: dict[str, int] = {}
    comments: dict[str, str] = {}
    repeated: dict[str, int] = {}
    named: list[str] = []
    for node in statement.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            comments.update(dict.fromkeys(named, inspect.cleandoc(node.value.value)))
            named = []
        else:
            named = list(_list_names(node))
            repeated.update((name, columns[name]) for name in named if name in columns)
            columns.update(dict.fromkeys(named, node.lineno))
    arguments = {k.arg: k.value.lineno for k in statement.keywords if k.arg}
    return ClassSource(statement.lineno, arguments, columns, comments, repeated)


def _list_names(node: ast.stmt) -> Iterator[str]:
    """Yield the names that a statement annotates, assigns or defines as a function."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))
    elif isinstance(node, ast.FunctionDef):
        yield node.name


def _walk_classes(node: ast.AST, prefix: str) -> Iterator[tuple[str, ast.ClassDef]]:
    """The class statements at any depth with their qualified names; only statements are visited, not expressions."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, block, ()):
            match child:
                case ast.ClassDef():
                    yield f"{prefix}{child.name}", child
                    yield from _walk_classes(child, f"{prefix}{child.name}.")
                case ast.FunctionDef() | ast.AsyncFunctionDef():
                    yield from _walk_classes(child, f"{prefix}{child.name}.<locals>.")
                case _:
                    yield from _walk_classes(child, prefix)
