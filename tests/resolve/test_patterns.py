"""Topic patterns of Java's regular expressions, with the meaning that ``java.util.regex`` gives them."""

from __future__ import annotations

import re

import pytest

from kdsl.errors import ResolveError
from kdsl.flink_sql.load import sql
from kdsl.resolve import resolve
from kdsl.resolve.patterns import PatternError, python_pattern
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
