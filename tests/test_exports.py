"""The public names: the stub lists them once, and each is imported on first use."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import kdsl

STUB = Path(kdsl.__file__).with_suffix(".pyi")
NAMES: list[str] = kdsl.__all__  # type: ignore[attr-defined]


def test_every_name_of_the_stub_can_be_imported() -> None:
    imports = [node for node in ast.parse(STUB.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom)]
    names = {alias.name: node.module for node in imports for alias in node.names if node.module != "__future__"}

    assert all(alias.asname == alias.name for node in imports[1:] for alias in node.names)
    assert sorted(names) == NAMES == dir(kdsl)
    assert [name for name in names if getattr(kdsl, name, None) is None] == []


def test_a_star_import_provides_every_name() -> None:
    namespace: dict[str, object] = {}

    exec("from kdsl import *", namespace)

    assert set(NAMES) <= set(namespace)


def test_all_public_exceptions_are_in_one_module() -> None:
    import kdsl.errors

    exceptions = [name for name in NAMES if name.endswith("Error")]

    assert len(exceptions) >= 15
    assert [name for name in exceptions if getattr(kdsl.errors, name, None) is not getattr(kdsl, name)] == []


def test_importing_kdsl_is_cheap() -> None:
    heavy = "('pyspark', 'pyarrow', 'polars', 'confluent_kafka')"
    code = f"import sys, kdsl, kdsl.errors; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_commands_start_without_pandas() -> None:
    """It takes a third of a second to import, and Arrow imports it for arrays that are made from Python's lists."""
    code = "import sys, kdsl.cli.app; print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
