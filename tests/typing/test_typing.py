"""Type checkers, without a plugin, accept the right lines of ``cases/`` and refuse the wrong ones.

So does mypy with the modules that codegen writes and with the first tables of the documentation's pages: one run over
everything, for each run on its own would look at all that kdsl imports again.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.codegen.written import write_modules
from tests.pages import FIRST_TABLES, PAGES, first_table, python_blocks, write_typed_module

ROOT = Path(__file__).parents[2]
# Other tests run the packages of docs/extending.md; the pages in docs/problems show mistakes.
TYPED_PAGES = [
    page for page in PAGES if python_blocks(page) and page.name != "extending.md" and page.parent.name != "problems"
]
# The module that docs/testing.md imports as the reader's own.
MY_TABLES = """\
from kdsl import Col, Json, KafkaTable


class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest"):
    order_id: Col[str]
"""
CASES = sorted((Path(__file__).parent / "cases").glob("*.py"))
MYPY = re.compile(r"# type: ignore\[[a-z, -]+\]")
PYRIGHT = re.compile(r"# pyright: ignore\[[A-Za-z, ]+\]")
pytestmark = [
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
    pytest.mark.timeout(1800),  # minutes on a busy machine: all that kdsl imports is looked at
]


def check(*command: str) -> str:
    """What a checker says, from the root of the project."""
    here = {**os.environ, "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}  # nor does it ask the network for newer versions
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, env=here, capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the generated modules and the pages' tables are."""
    result = tmp_path_factory.mktemp("typed")
    write_modules(result)
    for page in FIRST_TABLES:
        (result / f"page_{page.stem}.py").write_text(first_table(page, used=True), encoding="utf-8")
    for page in TYPED_PAGES:
        (result / f"code_{page.stem.replace('-', '_')}.py").write_text(write_typed_module(page), encoding="utf-8")
    (result / "my_tables.py").write_text(MY_TABLES, encoding="utf-8")
    return result


@pytest.fixture(scope="module")
def mypy_says(folder: Path) -> list[str]:
    """What mypy says of all of them, line by line; it has looked at each."""
    files = [*CASES, *sorted(folder.glob("*.py"))]
    lines = (
        check("mypy", "--config-file", "pyproject.toml", "--warn-unreachable", *map(str, files)).strip().splitlines()
    )

    assert lines[-1].rstrip(")").endswith(f" {len(files)} source files"), lines
    return lines[:-1]


def test_mypy_agrees_with_every_line(mypy_says: list[str]) -> None:
    assert [line for line in mypy_says if "typing/cases/" in line] == []


def test_mypy_is_content_with_generated_modules(mypy_says: list[str], folder: Path) -> None:
    assert len(list(folder.glob("m[0-9]*.py"))) == 25
    assert [line for line in mypy_says if re.search(r"\b(m\d+|awkward|defaults)\.py:", line)] == []


@pytest.mark.parametrize("page", FIRST_TABLES, ids=lambda path: path.name)
def test_mypy_is_content_with_the_first_table_of_a_page(mypy_says: list[str], page: Path) -> None:
    assert [line for line in mypy_says if f"page_{page.stem}.py:" in line] == []


@pytest.mark.parametrize("page", TYPED_PAGES, ids=lambda path: path.name)
def test_mypy_is_content_with_the_code_of_a_page(mypy_says: list[str], page: Path) -> None:
    name = f"code_{page.stem.replace('-', '_')}.py:"

    assert [line for line in mypy_says if name in line] == []


def test_mypy_reports_nothing_else(mypy_says: list[str]) -> None:
    assert mypy_says == []


def test_pyright_agrees_with_every_line() -> None:
    message = check("pyright", "--project", str(Path(__file__).parent), "--pythonpath", sys.executable)

    assert message.strip() == "0 errors, 0 warnings, 0 informations"


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.stem)
def test_what_one_checker_refuses_the_other_refuses_too(case: Path) -> None:
    lines = case.read_text(encoding="utf-8").splitlines()
    by_mypy = [i for i, line in enumerate(lines, 1) if MYPY.search(line)]
    by_pyright = [i for i, line in enumerate(lines, 1) if PYRIGHT.search(line)]

    assert by_mypy == by_pyright
    assert (by_mypy != []) == case.stem.endswith("wrong")
