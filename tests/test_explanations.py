"""What codes of problems and classes of errors mean: complete, current, and printed by ``kdsl explain``."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from docs.generate.explanations import CODES, explanations_json
from kdsl.cli.app import app
from kdsl.errors import Problem
from kdsl.explanations import AREAS, UnknownCodeError, explain, explanations, list_codes
from tests.advice.test_codes import find_codes

RUNNER = CliRunner()


def test_the_explanations_are_those_of_the_cases() -> None:
    assert CODES.read_text(encoding="utf-8") == explanations_json(), "run make docs"


def test_every_problem_has_a_message_and_an_advice() -> None:
    assert find_codes() <= set(explanations())
    unexplained = [code for code in find_codes() if not explanations()[code].examples]
    assert unexplained == []
    shown = [code for code in find_codes() if explanations()[code].examples[0].wrong is not None]
    assert len(shown) > 0.9 * len(find_codes())


def test_every_code_is_on_one_page() -> None:
    listed = [code for area in AREAS for code in list_codes(area)]

    assert sorted(listed) == sorted(explanations())


def test_no_explanation_names_the_machine() -> None:
    assert re.findall(r"/(?:tmp|home|work|root)/\S*", CODES.read_text(encoding="utf-8")) == []


def test_the_message_of_a_problem_ends_with_its_code() -> None:
    assert str(Problem("topic-name", "the topic is 'a b'", "remove the blank")) == (
        "the topic is 'a b'; remove the blank [topic-name]"
    )


def test_a_code_is_explained() -> None:
    printed = RUNNER.invoke(app, ["explain", "[alignment-half]"])

    assert printed.exit_code == 0
    assert printed.stdout.startswith("# alignment-half\n")
    assert "CREATE TABLE" in printed.stdout
    assert "**Instead:**" in printed.stdout


def test_the_class_of_an_error_is_explained() -> None:
    assert "a `KafkaReadError`" in explain("OffsetError")


def test_all_codes_are_listed() -> None:
    printed = RUNNER.invoke(app, ["explain"]).stdout

    assert "topic-pattern" in printed
    assert "OffsetError" in printed


def test_an_unknown_code_names_a_similar_one() -> None:
    with pytest.raises(UnknownCodeError, match=r"'topic-patern' \(did you mean 'topic-pattern'\?\)"):
        explain("topic-patern")
