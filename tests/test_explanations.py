"""What codes of problems and classes of errors mean: complete, current, and printed by ``kdsl explain``."""

from __future__ import annotations

import re

import pytest
from typer.testing import CliRunner

from docs.generate.explanations import CODES, explanations_json
from kdsl.cli.app import app
from kdsl.errors import Problem
from kdsl.explanations import AREAS, Example, Text, UnknownCodeError, explain, explanations, list_codes
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


def test_brackets_are_printed_as_they_are() -> None:
    assert "id: Col[int] = col(" in RUNNER.invoke(app, ["explain", "column-type"]).stdout


def test_the_class_of_an_error_is_explained() -> None:
    assert "a `KafkaReadError`" in explain("OffsetError")


def test_all_codes_are_listed() -> None:
    printed = RUNNER.invoke(app, ["explain"]).stdout

    assert "topic-pattern" in printed
    assert "OffsetError" in printed


def test_an_unknown_code_names_a_similar_one() -> None:
    with pytest.raises(UnknownCodeError, match=r"'topic-patern' \(did you mean 'topic-pattern'\?\)"):
        explain("topic-patern")


def test_only_lines_that_differ_are_marked_and_others_are_left_out() -> None:
    wrong = "CREATE TABLE t (\n  a INT,\n  b INT,\n  c INT\n) WITH (\n  'x' = '1',\n  'y' = '2'\n)"
    example = Example("'x' is wrong", "write 'y' = '3'", Text(wrong, "sql"), Text(wrong.replace("'2'", "'3'"), "sql"))

    assert example.to_markdown().splitlines()[4:] == [
        "```diff",
        " CREATE TABLE t (",
        "   …",
        " ) WITH (",
        "   'x' = '1',",
        "-  'y' = '2'",
        "+  'y' = '3'",
        " )",
        "```",
    ]


def test_a_comma_at_the_end_of_a_line_is_not_a_difference() -> None:
    example = Example("no 'c'", "add 'c'", Text("(\n  a,\n  b\n)", "sql"), Text("(\n  a,\n  b,\n  c\n)", "sql"))

    assert [line for line in example.to_markdown().splitlines() if line[:1] in {"-", "+"}] == ["+  c"]


def test_an_example_whose_remedy_is_elsewhere_is_shown_once() -> None:
    text = Text("a:\n  b: 1\n  c: 2\n", "yaml")

    assert Example("none is chosen", "pass name=", text, text).to_markdown() == (
        f"{text.to_markdown()}\n\n> none is chosen\n\n**Instead:** pass name=."
    )
