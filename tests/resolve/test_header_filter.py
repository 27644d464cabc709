"""The header filter (docs/connector.md)."""

from __future__ import annotations

import pytest

from kdsl.resolve import HeaderCondition, resolve
from kdsl.resolve.header_filter import HeaderFilterError, parse_header_filter
from tests.resolve.tables import errors, table


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("a:b", (HeaderCondition("a", "b"),)),
        (
            "depart:toy|depart:book&!env:test",
            (
                HeaderCondition("depart", "toy"),
                HeaderCondition("depart", "book", joined="|"),
                HeaderCondition("env", "test", negated=True),
            ),
        ),
        (" a : b:c | ! d :", (HeaderCondition("a", "b:c"), HeaderCondition("d", "", negated=True, joined="|"))),
    ],
)
def test_conditions_are_evaluated_from_left_to_right(text: str, conditions: tuple[HeaderCondition, ...]) -> None:
    assert parse_header_filter(text) == conditions


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "at position 1 a condition is missing"),
        ("a:b&", "at position 5 a condition is missing"),
        ("a:b||c:d", "at position 5 a condition is missing"),
        ("|a:b", "at position 1 a condition is missing"),
        ("a:b & c", "at position 7 the condition 'c' has no colon between name and value"),
        ("!!a:b", "at position 1 the condition '!!a:b' is negated twice"),
        (":b", "at position 1 the condition ':b' names no header"),
        ("(a:b)", "at position 1 the condition '(a:b)' has a parenthesis, which header filters do not have"),
    ],
)
def test_an_error_names_its_position(text: str, message: str) -> None:
    with pytest.raises(HeaderFilterError) as raised:
        parse_header_filter(text)

    assert str(raised.value) == message


def test_a_filter_that_cannot_be_read_is_a_problem_of_the_table() -> None:
    (problem,) = errors(table(options={"scan.header-filter": "a"}))

    assert problem.code == "header-filter"
    assert problem.message.startswith("'scan.header-filter': 'a' cannot be parsed: at position 1")


def test_only_a_read_has_a_filter() -> None:
    definition = table(options={"scan.header-filter": "a:b"})

    assert resolve(definition, "read").headers == (HeaderCondition("a", "b"),)
    assert resolve(definition, "write").headers == ()
