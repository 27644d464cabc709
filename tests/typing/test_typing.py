"""Type checkers, without a plugin, accept the right lines of ``cases/`` and refuse the wrong ones."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
MYPY = re.compile(r"# type: ignore\[[a-z, -]+\]")
PYRIGHT = re.compile(r"# pyright: ignore\[[A-Za-z, ]+\]")


def check(*command: str) -> str:
    """What a checker says, from the root of the project."""
    done = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


def test_mypy_agrees_with_every_line() -> None:
    told = check("mypy", "--config-file", "pyproject.toml", "--warn-unreachable", *map(str, CASES))

    assert told.strip() == f"Success: no issues found in {len(CASES)} source files"


def test_pyright_agrees_with_every_line() -> None:
    told = check("pyright", "--project", str(Path(__file__).parent), "--pythonpath", sys.executable)

    assert told.strip() == "0 errors, 0 warnings, 0 informations"


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_what_one_checker_refuses_the_other_refuses_too(case: Path) -> None:
    lines = case.read_text(encoding="utf-8").splitlines()
    by_mypy = [i for i, line in enumerate(lines, 1) if MYPY.search(line)]
    by_pyright = [i for i, line in enumerate(lines, 1) if PYRIGHT.search(line)]

    assert by_mypy == by_pyright
    assert (by_mypy != []) == case.stem.endswith("wrong")
