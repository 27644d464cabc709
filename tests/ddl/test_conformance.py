"""The reference's recorded answers: which statements are taken, and which are refused, in the statement's direction.

The file ``factory-cases`` holds the recorded answers; ``factory-more`` holds those to the same tables in the other
direction, and to odd values, recorded in the same way. Connectors that kdsl does not support are reported as such.
"""

from __future__ import annotations

import json
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

from kdsl.ddl.load import sql
from kdsl.errors import ResolveError
from kdsl.formats import Direction, format_names
from kdsl.resolve import problems

HERE = Path(__file__).parent
# The recording engine had no jar for it, and so refused whatever a table said.
ARTEFACTS = {"r461", "r462", "k175", "k176"}


@attrs.frozen
class Case:
    """A recorded answer.

    Attributes:
        id: Its name.
        statement: The ``CREATE TABLE``.
        connector: Its connector.
        formats: The formats that it names.
        direction: Whether it was read or written.
        accepted: Whether the reference takes it.
        reference_error: What the reference says otherwise.
    """

    id: str
    statement: str
    connector: str
    formats: tuple[str, ...]
    direction: Direction
    accepted: bool
    reference_error: str


@attrs.frozen
class Difference:
    """A rule of ``differences.toml``."""

    title: str
    reason: str
    codes: tuple[str, ...] = attrs.field(default=(), converter=tuple)
    ids: tuple[str, ...] = attrs.field(default=(), converter=tuple)

    def covers(self, case: Case, codes: list[str]) -> bool:
        """Whether it explains one of the errors of a case, or that there is none."""
        return case.id in self.ids or (case.accepted and any(code in self.codes for code in codes))


def _quote(text: str) -> str:
    return "'{}'".format(text.replace("'", "''"))


def _case(line: str) -> Case:
    document: dict[str, Any] = json.loads(line)
    options: dict[str, str] = document["options"]
    clause = ",\n  ".join(f"{_quote(key)} = {_quote(value)}" for key, value in options.items())
    return Case(
        id=document["id"],
        statement=f"CREATE TABLE t1 (\n  {document['columns']}\n) WITH (\n  {clause}\n)",
        connector=options.get("connector", ""),
        formats=tuple(value for key, value in options.items() if key in ("format", "key.format", "value.format")),
        direction="read" if document["statement"].startswith("SELECT") else "write",
        accepted=document["ok"],
        reference_error=document.get("root_message", ""),
    )


@cache
def cases() -> tuple[Case, ...]:
    files = (HERE / "data" / name for name in ("factory-cases.jsonl", "factory-more.jsonl"))
    return tuple(_case(line) for file in files for line in file.read_text(encoding="utf-8").splitlines())


@cache
def _rules() -> tuple[tuple[Difference, ...], frozenset[str]]:
    read = tomllib.loads((HERE / "differences.toml").read_text(encoding="utf-8"))
    return tuple(Difference(**d) for d in read["difference"]), frozenset(d["connector"] for d in read["later"])


@cache
def codes_of(case: Case) -> tuple[str, ...]:
    """The codes of kdsl's errors with a case."""
    try:
        actual = problems(sql(case.statement).definition, case.direction)
    except ResolveError as e:
        actual = list(e.problems)
    return tuple(p.code for p in actual if p.severity == "error")


def ids(case: Case) -> str:
    return case.id


@pytest.mark.parametrize("case", cases(), ids=ids)
def test_a_statement_is_judged_as_the_reference_judges_it(case: Case) -> None:
    codes = list(codes_of(case))
    differences, later = _rules()
    missing = [name for name in case.formats if name not in format_names()]

    if case.connector in later:
        assert codes == ["connector-later"]
    elif missing and case.accepted:
        assert "format-unknown" in codes
        pytest.skip(f"the format {missing[0]!r} is not installed")
    elif case.id not in ARTEFACTS and (not codes) != case.accepted:
        rules = [d for d in differences if d.covers(case, codes)]
        covered = {code for d in rules for code in d.codes}
        assert rules, f"kdsl says {codes or 'yes'}, the reference {case.reference_error or 'yes'}"
        assert set(codes) <= covered


@pytest.mark.parametrize("difference", _rules()[0], ids=lambda d: d.title)
def test_a_difference_is_reported(difference: Difference) -> None:
    judged = {case.id: (case, list(codes_of(case))) for case in cases()}
    covered = {
        i for i, (case, codes) in judged.items() if difference.covers(case, codes) and bool(codes) == case.accepted
    }

    assert covered
    assert set(difference.ids) <= covered


def test_the_page_of_the_differences_has_them_all() -> None:
    page = (HERE.parents[1] / "docs" / "differences-ddl.md").read_text(encoding="utf-8")

    assert [d.title for d in _rules()[0] if f"| {d.title} | {d.reason} |" not in page] == []


@pytest.mark.parametrize(("mark", "what", "least"), [("r", "recorded statements", 0.9), ("k", "odd ones", 0.8)])
def test_the_share_of_equal_judgements(mark: str, what: str, least: float, capsys: pytest.CaptureFixture[str]) -> None:
    _, later = _rules()
    every = [case for case in cases() if case.id.startswith(mark)]
    judged = [case for case in every if case.connector not in later and case.id not in ARTEFACTS]
    equal = sum((not codes_of(case)) == case.accepted for case in judged)
    with capsys.disabled():
        share = f"{equal} of {len(judged)} {what} ({equal / len(judged):.1%}) are judged as the reference does"
        print(f"\n{share}; {len(every) - len(judged)} are of connectors to come")

    assert equal >= len(judged) * least
