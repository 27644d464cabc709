"""Each rule that a comment, docstring or page cites by its id can be looked up in docs/rules.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "rules.md"
FAMILIES = "OPT|TOP|ST|BD|PD|PAR|PR|KEY|PK|CL|SP|DG|TN|SR|MD|UP|F"
RULE = re.compile(rf"\b({FAMILIES})-(\d+)\b(?: to (?:\1-)?(\d+)\b)?")
CITED = re.compile(r"\bRULES ((?:[A-Z]{1,3}(?:-\d+)?)(?:(?:,| and) [A-Z]{1,3}(?:-\d+)?)*)")
SECTION = re.compile(r"\b(RULES|FORMATS) section (\d+)")
INTEGRATION = re.compile(r"\b([ABCE])(\d+)\b(?: to \1(\d+)\b)?")


def read_sources() -> Iterator[tuple[Path, str]]:
    """What is written in this repository, except the page itself and this test."""
    for folder in ("kdsl", "formats", "tests", "bench", "examples", "docs"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in {".py", ".md", ".toml"} and path not in {PAGE, Path(__file__)}:
                yield path, path.read_text(encoding="utf-8")


def ids(text: str, pattern: re.Pattern[str], dash: str = "-") -> set[str]:
    """The ids in a string, those of ranges one by one."""
    return {
        f"{family}{dash}{number}"
        for family, first, last in pattern.findall(text)
        for number in range(int(first), int(last or first) + 1)
    }


@pytest.fixture(scope="module")
def page_ids() -> set[str]:
    """The ids that stand at the start of a row of the page."""
    rows = re.findall(r"^\| ([A-Z0-9, -]+) \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    return {id_ for row in rows for id_ in row.split(", ")}


def test_each_cited_rule_is_on_the_page(page_ids: set[str]) -> None:
    cited = {id_: path for path, text in read_sources() for id_ in ids(text, RULE)}

    assert len(cited) > 60
    assert {id_: str(path.relative_to(ROOT)) for id_, path in cited.items() if id_ not in page_ids} == {}


def test_each_cited_group_of_rules_and_section_is_on_the_page(page_ids: set[str]) -> None:
    groups = {id_.partition("-")[0] for id_ in page_ids}
    page = PAGE.read_text(encoding="utf-8")
    named = {(kind, number) for _, text in read_sources() for kind, number in SECTION.findall(text)}
    headings = {"RULES": "\n## {}. ", "FORMATS": "\n## Formats, section {}: "}
    families = {
        part.strip().partition("-")[0]
        for _, text in read_sources()
        for item in CITED.findall(text)
        for part in re.split(r",| and ", item)
    }

    assert families >= {"KEY", "DG", "TN", "ST"}
    assert families - groups == set()
    assert len(named) > 3
    assert [(kind, number) for kind, number in sorted(named) if headings[kind].format(number) not in page] == []


def test_each_integration_test_that_a_test_names_is_on_the_page(page_ids: set[str]) -> None:
    docstrings = [
        docstring
        for folder in ("tests/itcases", "tests/run/itcases")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for docstring in re.findall(r'"""(.*?)"""', path.read_text(encoding="utf-8"), re.DOTALL)
    ]
    cited = {id_ for text in docstrings for id_ in ids(text, INTEGRATION, dash="")}

    assert len(cited) > 20
    assert cited - page_ids == set()
