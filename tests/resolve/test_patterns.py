"""Topic patterns of Java's regular expressions, with the meaning that ``java.util.regex`` gives them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from kdsl.ddl.load import sql
from kdsl.errors import ResolveError
from kdsl.java_patterns import Characters, PatternError, compile_pattern, python_pattern
from kdsl.resolve import resolve
from kdsl.run.java_clients.options import java_pattern

NAMES = ("a", "b", "c", "ab", "abab", "A", "B", "orders-1", "orders.eu", "ordersXeu", "_x", "7", "-", "orders", "aab")

SAME = [
    "orders-.*",
    "(?i)ORDERS",
    "a|b",
    "[a-c]",
    r"[\w-]+\d",
    r"[^\]a-z]+",
    "(?P<x>a)(?P=x)b",
    "[]a]",
    "a{1,2}b",
    "[a&b]",
]

JAVA = {
    r"\p{Lower}+": {"a", "b", "c", "ab", "abab", "orders", "aab"},
    r"\pL+-\p{Nd}": {"orders-1"},
    r"\P{L}+": {"7", "-"},
    r"[\p{Lu}_].?": {"A", "B", "_x"},
    r"\p{IsAlphabetic}": {"a", "b", "c", "A", "B"},
    r"\p{javaUpperCase}": {"A", "B"},
    r"(?<n>ab)\k<n>": {"abab"},
    r"\Qorders.eu\E": {"orders.eu"},
    r"orders[\Q.-\E].+": {"orders-1", "orders.eu"},
    "[a-z&&[^b]]": {"a", "c"},
    "[a-c&&bcd]": {"b", "c"},
    "(?i)[a-z&&[^b]]": {"a", "c", "A"},
    "[a-b&&]": {"a", "b"},
    "[a[bc]]": {"a", "b", "c"},
    r"[^\w&&[^b]]": {"b", "-"},
    "a*+b": {"b", "ab", "aab"},
    "a*+ab": set(),
    "(?>a|ab)": {"a"},
    r"\x{61}\u0062\z": {"ab"},
    r"\0141": {"a"},
    r"a\h?b": {"ab"},
    r"(?U)\w": {"a", "b", "c", "A", "B", "7"},
}


def matching(pattern: str) -> set[str]:
    return {name for name in NAMES if re.fullmatch(pattern, name)}


@pytest.mark.filterwarnings("error::FutureWarning")
@pytest.mark.parametrize("pattern", JAVA)
def test_what_only_java_has_keeps_its_meaning(pattern: str) -> None:
    assert matching(python_pattern(pattern)) == JAVA[pattern]


@pytest.mark.parametrize("pattern", SAME)
def test_the_common_syntax_of_both_languages_is_unchanged(pattern: str) -> None:
    assert python_pattern(pattern) == pattern


@pytest.mark.parametrize(
    ("pattern", "reason", "fix"),
    [
        (
            "orders-(",
            r"is not a regular expression: missing \)",
            "write a pattern that the whole topic name must match",
        ),
        ("(?x)a b", r"has the flag 'x' in '\(\?x\)'", r"\(\?i\)"),
        ("a(?i)b", "switches a flag in its middle", r"\(\?i:…\)"),
        ("a(?-i)b", "switches a flag in its middle at position 1", r"\(\?-i:…\)"),
        ("(?i)a(?-i)b", "switches a flag in its middle at position 5", r"\(\?-i:…\)"),
        (r"\p{IsFoo}", r"has the property \\p{IsFoo} at position 0", "write the characters out"),
        (r"\p{}", r"has the property \\p{} at position 0", "write the characters out"),
        (r"a\Gb", r"has \\G at position 1", "write a pattern"),
        ("[a-z&&[^b]", "has a class in brackets that does not end, from position 0 on", "write a pattern"),
        ("(?i:[a&&b])", r"has '\[a&&b\]\)' at position 4, a class that only Java has, with", r"put \(\?i\) first"),
        ("a\\", "ends with a backslash", "write a pattern"),
    ],
)
def test_what_has_no_meaning_here_is_refused_by_name_with_a_way_out(pattern: str, reason: str, fix: str) -> None:
    with pytest.raises(PatternError, match=reason) as raised:
        python_pattern(pattern)
    assert re.search(fix, raised.value.fix)


def statement(pattern: str) -> str:
    return (
        "CREATE TABLE t (v STRING) WITH ('connector'='kafka', 'properties.bootstrap.servers'='b:9092', "
        f"'format'='raw', 'topic-pattern'='{pattern}')"
    )


def test_a_table_gets_the_rewritten_pattern_and_both_transports_read_by_it() -> None:
    table = resolve(sql(statement(r"(?<n>\p{Lower}+)-[a-z&&[^b]]\k<n>")).definition, "read")

    assert table.topics.pattern == "(?P<n>[a-z]+)-[ac-z](?P=n)"
    assert java_pattern(table.topics.pattern) == r"^(?:(?<n>[a-z]+)-[ac-z]\k<n>)$"


def test_a_table_with_a_pattern_that_cannot_be_used_is_refused_while_it_is_declared() -> None:
    with pytest.raises(ResolveError) as raised:
        resolve(sql(statement(r"a\G")).definition, "read")
    (problem,) = raised.value.problems
    assert problem.message.endswith(r"has \G at position 1, which topic patterns do not have")


OTHER_NAMES = (
    *("orders", "größe", "Größe", "GRößE", "order$items", "ß", "é", "e\u0301", "\u017f", "\u212a", "7", "٣", "²", "_"),
    *("\n", "\x85", "\u2028", "\u00a0", "\x1b", "\x01", "ǅ", "日本", "\U0001f600", "\ud800", "\r\n", "a\nb"),
)
OF_ANY_NAME = {
    r"\w+": ["orders", "7", "_"],
    r"\w+\W+\w+": ["größe", "Größe", "GRößE", "order$items", "a\nb"],
    r"\d": ["7"],
    r"\p{Nd}": ["7", "٣"],
    r"\p{L}+": ["orders", "größe", "Größe", "GRößE", "ß", "é", "\u017f", "\u212a", "ǅ", "日本"],
    r"\p{L}\p{M}": ["e\u0301"],
    r"\p{Lu}.*": ["Größe", "GRößE", "\u212a"],
    r"(?i)\p{Lu}": ["ß", "é", "\u017f", "\u212a", "ǅ"],
    r"[\p{L}&&[^a-z]]+": ["GRößE", "ß", "é", "\u017f", "\u212a", "ǅ", "日本"],
    r"\p{Alpha}+": ["orders"],
    r"\p{InBasicLatin}+": ["orders", "order$items", "7", "_", "\n", "\x1b", "\x01", "\r\n", "a\nb"],
    r"\p{So}": ["\U0001f600"],
    "(?i)größe": ["größe", "Größe", "GRößE"],
    "(?i)[a-z]": [],
    "(?i)[a-z&&[^g]]+": ["orders"],
    r"\h": ["\u00a0"],
    r"\v": ["\n", "\x85", "\u2028"],
    r"\R": ["\n", "\x85", "\u2028", "\r\n"],
    r"\e|\cA": ["\x1b", "\x01"],
    "[^a]": ["ß", "é", "\u017f", "\u212a", "7", "٣", "²", "_", "\n", "\x85", "\u2028", "\u00a0", "\x1b", "\x01", "ǅ",
             "\U0001f600", "\ud800"],
    ".": ["ß", "é", "\u017f", "\u212a", "7", "٣", "²", "_", "\u00a0", "\x1b", "\x01", "ǅ", "\U0001f600", "\ud800"],
}  # fmt: skip
"""What Java 17 matches of these names."""


@pytest.mark.parametrize("pattern", OF_ANY_NAME)
def test_names_of_any_characters_match_as_in_java(pattern: str) -> None:
    matcher = compile_pattern(pattern)

    assert [name for name in OTHER_NAMES if matcher.fullmatch(name)] == OF_ANY_NAME[pattern]


@pytest.mark.parametrize("pattern", ["(?s).", "(?U)\\w", "(?u)ä", r"\p{IsAlphabetic}", r"\p{javaLowerCase}", r"\X"])
def test_what_has_another_meaning_for_other_names_than_those_of_topics_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match=r"patterns of names do not have|which kdsl does not know"):
        compile_pattern(pattern)


@given(st.lists(st.characters(max_codepoint=0x2FF)), st.lists(st.characters(max_codepoint=0x2FF)))
def test_sets_of_characters_are_those_of_python(one: list[str], other: list[str]) -> None:
    first, second = Characters.of(*one), Characters.of(*other)
    expected = {
        first | second: {*one, *other},
        first & second: {*one} & {*other},
        first - second: {*one} - {*other},
        ~~first: {*one},
    }

    for characters, members in expected.items():
        assert {chr(c) for c in range(0x300) if re.fullmatch(characters.write(), chr(c))} == members
