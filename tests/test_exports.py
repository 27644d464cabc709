"""The public names: what type checkers see is what there is."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import kdsl


def seen_by_type_checkers() -> dict[str, str]:
    tree = ast.parse(Path(kdsl.__file__).read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
    assert all(a.asname == a.name for node in imports for a in node.names)
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_both_lists_name_the_same() -> None:
    assert seen_by_type_checkers() == kdsl._PUBLIC
    assert sorted(kdsl._PUBLIC) == sorted(kdsl.__all__)


def test_every_name_can_be_imported() -> None:
    assert [name for name in kdsl.__all__ if getattr(kdsl, name, None) is None] == []
    assert dir(kdsl) == sorted(kdsl.__all__)


def test_importing_kdsl_is_cheap() -> None:
    code = (
        "import sys, kdsl; print([m for m in ('pyspark', 'pyarrow', 'polars', 'confluent_kafka') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
