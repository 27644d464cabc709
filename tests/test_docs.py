"""The pages say what the code declares, their links lead somewhere, and the first code a reader sees is right."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kdsl.docs import pages, write_pages
from kdsl.resolve.transport import CAPABILITIES
from tests.pages import FIRST_TABLES, first_table

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN = [ROOT / "README.md", ROOT / "bench" / "README.md", *sorted(DOCS.rglob("*.md"))]


@pytest.mark.parametrize("name", list(pages(DOCS)), ids=str)
def test_a_generated_page_is_the_one_that_the_declarations_make(name: Path) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == pages(DOCS)[name], "run make docs"


@pytest.mark.parametrize("name", [name for name in pages(DOCS) if name != Path("transports.md")], ids=str)
def test_a_generated_page_says_first_what_makes_it(name: Path) -> None:
    line = (DOCS / name).read_text(encoding="utf-8").splitlines()[0]

    assert re.fullmatch(r"<!-- Made by python -m kdsl\.docs from the .+; do not edit\. -->", line)


def test_the_table_of_the_transports_has_a_row_for_each_capability() -> None:
    page = (DOCS / "transports.md").read_text(encoding="utf-8")

    for one in CAPABILITIES:
        assert f"| {one.doc.removesuffix('.')} |" in page


def test_there_is_a_page_for_each_format_and_no_other(tmp_path: Path) -> None:
    write_pages(tmp_path)

    assert {p.name for p in (tmp_path / "formats").iterdir()} == {p.name for p in (DOCS / "formats").iterdir()}


@pytest.mark.parametrize("path", WRITTEN, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_to_files_that_are_there(path: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8"))
    near = [link for link in links if not re.match(r"https?:", link)]

    assert [link for link in near if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", FIRST_TABLES, ids=lambda p: p.name)
def test_the_first_table_of_a_page_passes_the_check(path: Path, tmp_path: Path) -> None:
    """What mypy says of it stands with all else that it checks, in ``tests/typing``."""
    program = tmp_path / "page.py"
    program.write_text(first_table(path), encoding="utf-8")

    checked = subprocess.run([sys.executable, "-m", "kdsl", "check", str(program)], capture_output=True, text=True)

    assert checked.stdout.splitlines()[-1] == "1 table checked: no problems", checked.stdout + checked.stderr
