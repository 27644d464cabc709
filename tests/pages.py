"""The code of the pages: the first table that a reader sees, and every block for type checkers."""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from pathlib import Path

import kdsl

ROOT = Path(__file__).parents[1]
FIRST_TABLES = [ROOT / "README.md", ROOT / "docs" / "guide.md"]
_IMPORTS = "from __future__ import annotations\nfrom pyspark.sql import SparkSession\nspark: SparkSession\n"


def first_table(path: Path, *, used: bool = False) -> str:
    """The first code of a page as a module.

    Args:
        path: The page.
        used: With what the page does with the table, in a function, so that nothing of it runs.
    """
    code = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)[0]
    body, _, rest = code.partition("\n\nshop = ")
    job = f"\ndef job(spark: SparkSession) -> None:\n    shop = {rest.strip()}\n".replace("\nbig", "\n    big")
    return f"{_IMPORTS}{body}{job if used and rest else ''}\n"


def code_of(path: Path, language: str = "python") -> str:
    """All code of a page in one language, as one program."""
    return "\n".join(code_blocks(path, language))


def code_blocks(path: Path, language: str) -> list[str]:
    """The code of a page in one language, block by block."""
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_PRELUDE = """\
# mypy: allow-untyped-defs, allow-untyped-calls, allow-incomplete-defs
# mypy: disable-error-code="no-redef, used-before-def, empty-body, import-not-found"
from __future__ import annotations
import os, sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
import kdsl
from kdsl import {names}
"""
_NAMES = {
    "spark": "SparkSession",
    "shop": "Cluster",
    "cluster": "Cluster",
    "df": "DataFrame",
    "stream": "DataFrame",
    "views": "DataFrame",
    "sink": "KafkaSink",
    "HOUR": "Column",
    **dict.fromkeys(("enrich", "store", "pl", "duckdb"), "Any"),
    **dict.fromkeys(("Enriched", "Payments", "Users", "Orders", "Regions"), "type[KafkaTable]"),
}
"""The names that pages use without declaring them, because every reader has their own."""


def python_blocks(path: Path) -> list[str]:
    """The Python code of a page, block by block."""
    blocks = re.findall(r"^( *)```python\n(.*?)^ *```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(code) for _, code in blocks]


def write_typed_module(path: Path) -> str:
    """All Python code of a page as one module for mypy, with declarations of the names that the page does not have."""
    code = "\n".join(python_blocks(path))
    bound, used = _first_lines(ast.parse(code))
    missing = [f"{n}: {kind}" for n, kind in _NAMES.items() if n in used and used[n] < bound.get(n, sys.maxsize)]
    return "\n".join([_PRELUDE.format(names=", ".join(dir(kdsl))), *missing, code]) + "\n"


def _first_lines(tree: ast.Module) -> tuple[dict[str, int], dict[str, int]]:
    """The first lines in which a module binds each name outside of functions and classes, and uses it anywhere."""
    bound: dict[str, int] = {}
    used: dict[str, int] = {}
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef | ast.FunctionDef):
            bound.setdefault(statement.name, statement.lineno)
        elif isinstance(statement, ast.ImportFrom | ast.Import):
            for alias in statement.names:
                bound.setdefault(alias.asname or alias.name, statement.lineno)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                used[node.id] = min(node.lineno, used.get(node.id, node.lineno))
            elif isinstance(node, ast.Name) and not isinstance(statement, ast.ClassDef | ast.FunctionDef):
                bound.setdefault(node.id, node.lineno)
    return bound, used
