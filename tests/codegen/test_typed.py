"""Type checkers accept what is generated, strictly and without a plugin, whatever columns are called.

What mypy says stands with all else that it checks, in ``tests/typing``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.codegen.written import write_modules

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")


def test_pyright_is_content(tmp_path: Path) -> None:
    write_modules(tmp_path)
    config = {"include": ["."], "extraPaths": [str(ROOT), str(ROOT / "formats")], "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(config), encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--project", str(tmp_path), "--pythonpath", sys.executable],
        cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},  # nor does it ask the network for newer versions
    )  # fmt: skip

    assert done.stdout.strip() == "0 errors, 0 warnings, 0 informations", done.stdout
