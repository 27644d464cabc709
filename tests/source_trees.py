"""The modules of kdsl and its formats, and fast walks over syntax trees, for tests that check how code is written."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]


@cache
def modules() -> dict[str, Path]:
    """The file of each module of kdsl and kdsl_formats, without the files of templates of projects."""
    return {
        ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path
        for root, package in ((ROOT, "kdsl"), (ROOT / "formats", "kdsl_formats"))
        for path in sorted((root / package).rglob("*.py"))
        if "templates" not in path.parts
    }


@cache
def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def walk(*trees: ast.AST) -> list[ast.AST]:
    """The nodes of syntax trees in any order, as `ast.walk`, without those that have no fields (`ast.Load`)."""
    nodes: list[ast.AST] = []
    stack = list(trees)
    while stack:
        node = stack.pop()
        nodes.append(node)
        for name in node._fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                stack.extend([item for item in value if isinstance(item, ast.AST)])
            elif isinstance(value, ast.AST) and value._fields:
                stack.append(value)
    return nodes


@cache
def import_statements(path: Path) -> list[tuple[ast.Import | ast.ImportFrom, bool]]:
    """The imports of a file, at its top and inside functions, and whether each is for type checkers only.

    No tree stays in memory: those of all files would slow down whatever the process does next.
    """
    imports: list[tuple[ast.Import | ast.ImportFrom, bool]] = []
    stack: list[tuple[ast.AST, bool]] = [(ast.parse(read(path)), False)]
    while stack:
        node, for_types = stack.pop()
        if isinstance(node, ast.Import | ast.ImportFrom):
            imports.append((node, for_types))
            continue
        for_types = for_types or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            inner = getattr(node, name, ())
            if isinstance(inner, list):  # a lambda and a conditional expression have one, too
                stack += [(statement, for_types) for statement in inner]
    return imports
