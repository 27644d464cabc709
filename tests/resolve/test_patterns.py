"""Patterns of names: what the regular expressions of Java and Python have in common; the rest is refused by name."""

from __future__ import annotations

import re

import pytest

from kdsl.ddl.load import sql
from kdsl.errors import ResolveError
from kdsl.name_patterns import PatternError, compile_pattern
from kdsl.resolve import resolve
from kdsl.run.java_clients.options import anchor_pattern

NAMES = ("a", "b", "c", "ab", "abab", "A", "B", "orders-1", "orders.eu", "ordersXeu", "_x", "7", "-", "orders", "aab")
MATCHES = {
    "orders-.*": {"orders-1"},
    "(?i)ORDERS": {"orders"},
    "(?i:A)b": {"ab"},
    "a|b": {"a", "b"},
    "[a-c]": {"a", "b", "c"},
    r"[\w-]+\d": {"orders-1"},
    r"[^\]a-z]+": {"A", "B", "7", "-"},
    r"(ab)\1": {"abab"},
    "[]a]": {"a"},
    "[a&b]": {"a", "b"},
    "a{1,2}b": {"ab", "aab"},
    "a*+b": {"b", "ab", "aab"},
    "a*+ab": set(),
    "(?>a|ab)": {"a"},
    "(?!ab)(?:.*)(?<=b)": {"b", "aab"},
    r"orders\.eu": {"orders.eu"},
    r"\x61\u0062": {"ab"},
}
"""What Java 17 matches of these names."""


@pytest.mark.parametrize("pattern", MATCHES)
def test_the_common_language_has_one_meaning(pattern: str) -> None:
    assert {name for name in NAMES if compile_pattern(pattern).fullmatch(name)} == MATCHES[pattern]


@pytest.mark.parametrize(
    ("pattern", "reason", "fix"),
    [
        ("orders-(", "is not a regular expression: missing )", "the whole topic name must match"),
        ("*a", "is not a regular expression: nothing to repeat at position 0", "the whole topic name must match"),
        (r"orders-\p{Lower}+", r"has '\p{Lower}' at position 7", "write the characters out, as [a-z]"),
        (r"\Qorders.eu\E-a", r"has '\Qorders.eu\E' at position 0", r"as in orders\.eu"),
        (r"(?<n>a)\k<n>", "has '(?<n>' at position 0", r"write a group as (…), and \1"),
        ("(?P<n>a)", "has '(?P<n>' at position 0", r"write a group as (…), and \1"),
        (r"a\Gb", r"has '\G' at position 1", "remove it: the whole name must match"),
        (r"a\z", r"has '\z' at position 1", "remove it: the whole name must match"),
        ("(?x)a b", "has '(?x)' at position 0", "the only flag is (?i)"),
        ("(?s).", "has '(?s)' at position 0", "the only flag is (?i)"),
        ("a(?i)b", "has '(?i)' at position 1", "or write (?i:…) around a part"),
        ("(?i)a(?-i)b", "has '(?-i)' at position 5", "write (?-i:…) around a part"),
        ("(?(1)a|b)", "has '(?(' at position 0", "write a group as (…) or (?:…)"),
        ("[a-z&&[^b]]", "has '[a-z&&' at position 0", "write one class in brackets, such as [a-z0-9_]"),
        ("[a[bc]]", "has '[a' at position 0", "write one class in brackets, such as [a-z0-9_]"),
        (r"[\p{Lu}_]", r"has '[\p{Lu}_' at position 0", "write one class in brackets, such as [a-z0-9_]"),
        (r"\h", r"has '\h' at position 0", "write the character itself, or its code"),
        ("a\\", "has '\\' at position 1", "write the character itself, or its code"),
        ("a{,3}", "has '{,3}' at position 1", r"{0,2}, and a brace as \{"),
        ("orders-{name}", "has '{name}' at position 7", r"{0,2}, and a brace as \{"),
        ("a{2", "has '{2' at position 1", r"{0,2}, and a brace as \{"),
    ],
)
def test_what_the_languages_do_not_share_is_refused_by_name_with_a_way_out(pattern: str, reason: str, fix: str) -> None:
    with pytest.raises(PatternError) as raised:
        compile_pattern(pattern)
    assert str(raised.value).startswith(reason)
    assert fix in raised.value.fix


def statement(pattern: str) -> str:
    return (
        "CREATE TABLE t (v STRING) WITH ('connector'='kafka', 'properties.bootstrap.servers'='b:9092', "
        f"'format'='raw', 'topic-pattern'='{pattern}')"
    )


def test_a_table_keeps_its_pattern_and_both_transports_read_by_it() -> None:
    table = resolve(sql(statement(r"(?i)orders-[a-z]+|x")).definition, "read")

    assert table.topics.pattern == "(?i)orders-[a-z]+|x"
    assert anchor_pattern(table.topics.pattern) == "^(?:(?i)orders-[a-z]+|x)$"


def test_a_table_with_a_pattern_that_cannot_be_used_is_refused_while_it_is_declared() -> None:
    with pytest.raises(ResolveError) as raised:
        resolve(sql(statement(r"a\G")).definition, "read")
    (problem,) = raised.value.problems
    assert problem.message.endswith(r"has '\G' at position 1, which Java and Python do not have in common")


OTHER_NAMES = ("orders", "größe", "Größe", "GRößE", "order$items", "ß", "\u017f", "\u212a", "7", "٣", "\n", "日本")
OF_OTHER_NAMES = {
    r"\w+": ["orders", "7"],
    r"\w+\W+\w+": ["größe", "Größe", "GRößE", "order$items"],
    r"\d": ["7"],
    "(?i)größe": ["größe", "Größe", "GRößE"],
    "(?i)[a-z]": [],
    "(?i)[a-zöß]+": ["orders", "größe", "Größe", "GRößE", "ß"],
    "[^a]": ["ß", "\u017f", "\u212a", "7", "٣", "\n"],
    ".": ["ß", "\u017f", "\u212a", "7", "٣"],
}
"""What Java 17 matches of these names."""


@pytest.mark.parametrize("pattern", OF_OTHER_NAMES)
def test_names_with_other_characters_than_ascii_match_as_in_java(pattern: str) -> None:
    matcher = compile_pattern(pattern)

    assert [name for name in OTHER_NAMES if matcher.fullmatch(name)] == OF_OTHER_NAMES[pattern]
    assert re.ASCII & matcher.flags
