r"""The two kinds of patterns of tables, and routes.

The tables of patterns and ids are those of Flink CDC's ``SelectorsTest`` and ``TableIdRouterTest``.
"""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from kdsl.ingest.ids import format_id, parse_id
from kdsl.ingest.selectors import (
    RoutePattern,
    RouteRule,
    SelectorError,
    TablePattern,
    TopicMapping,
    misread_dots,
    route_table,
)
from tests.strategies import table_ids

SELECTED = [
    ("db.sc1.A[0-9]+,db.sc2.B[0-1]+,db.sc1.sc1",
     "db.sc1.sc1 db.sc1.A1 db.sc1.A2 db.sc2.B0 db.sc2.B1",
     "db.sc1.A db.sc1a.B db.sc1.AA db.sc2.B2 db2.sc1.A1 db2.sc1.A2 db.sc11.A1 db.sc1A.A1"),
    (r"db\..sc1.A[0-9]+,db.sc2.B[0-1]+,db\..sc1.sc1,db.sc1.sc1",
     "db.sc1.sc1 db1.sc1.sc1 dba.sc1.sc1 db1.sc1.A1 dba.sc1.A2 db.sc2.B0 db.sc2.B1",
     "db.sc1.A db.sc1a.B db.sc1.AA db.sc2.B2 dba1.sc1.A1 dba2.sc1.A2 db.sc11.A1 db.sc1A.A1"),
    ("sc1.A[0-9]+,sc2.B[0-1]+,sc1.sc1",
     "sc1.sc1 sc1.A1 sc1.A2 sc2.B0 sc2.B1",
     "db.sc1.A1 sc1.A sc2.B sc1.AA sc11.A1 sc1A.A1 sc2.B2"),
    (r"\.A[0-9]+,B[0-1]+,sc1",
     "sc1 1A1 AA2 B0 B1",
     "db.sc1.sc1 sc1.sc1 db.sc1.A1 A B 2B"),
    ("sc1.sc1", "sc1.sc1", "sc1.sc2"),
    ("sc1.sc[0-9]+", "sc1.sc1", "sc1.sc"),
    (r"sc1.\.*", "sc1.sc1", "sc2.sc1"),
    # A pattern with more names than the id: its last ones count.
    (r"\.*.\.*", "a a.b", "a.b.c"),
    (r"\.*.\.*.\.*", "a a.b a.b.c", ""),
    (r"\.*\.\.*", "a orders", "a.b"),
    ("DB.Orders", "db.orders DB.ORDERS", "db.order"),
    (r"db.t{1\,3}", "db.t db.ttt", "db.tttt"),
]  # fmt: skip
ROUTES = [
    ("db_1.table_1", "db_1.table_1", None), ("db_1.table_2", "db_1.table_2", None),
    ("db_2.table_1", "db_2.table_2", None), ("db_2.table_2", "db_2.table_3", None),
    ("db_2.table_3", "db_2.table_1", None),
    (r"db_3.table_\.*", "db_3.table_merged", None),
    ("db_4.table_1", "db_4.table_a", None), ("db_4.table_1", "db_4.table_b", None),
    ("db_4.table_1", "db_4.table_c", None), ("db_4.table_2", "db_4.table_b", None),
    ("db_4.table_2", "db_4.table_c", None), ("db_4.table_3", "db_4.table_c", None),
    (r"db_5.table_\.*", "db_5.prefix_<>_suffix", "<>"),
    ("foo", "bar", None),
    (r"re_\d+.table_(\.*)", "database.another_table_with_$1$1$1_index", None),
    (r"(inv_\d+).(table_\.*)", "$2.$1", None),
]  # fmt: skip
ROUTED = [
    ("db_0.table_1", "db_0.table_1"),
    ("db_1.table_1", "db_1.table_1"),
    ("db_2.table_1", "db_2.table_2"),
    ("db_2.table_2", "db_2.table_3"),
    ("db_2.table_3", "db_2.table_1"),
    ("db_3.table_1", "db_3.table_merged"),
    ("db_3.table_2", "db_3.table_merged"),
    ("db_4.table_1", "db_4.table_a db_4.table_b db_4.table_c"),
    ("db_4.table_2", "db_4.table_b db_4.table_c"),
    ("db_4.table_3", "db_4.table_c"),
    ("db_5.table_1", "db_5.prefix_table_1_suffix"),
    ("foo", "bar"),
    ("re_12.table_x", "database.another_table_with_xxx_index"),
    ("inv_7.table_z", "table_z.inv_7"),
    ("DB_5.table_1", "DB_5.table_1"),  # letter case counts
]
PATTERNS = [
    ("foo.bar", r"foo\.bar"),
    ("foo.bar,foo.baz", r"foo\.bar|foo\.baz"),
    (r"db_\d+.t, x", r"db_\d+\.t|x"),
]


@pytest.mark.parametrize(("pattern", "fitting", "others"), SELECTED)
def test_a_pattern_of_names_selects_tables(pattern: str, fitting: str, others: str) -> None:
    selector = TablePattern.parse(pattern)

    assert [table for table in fitting.split() if not selector.fits(tuple(table.split(".")))] == []
    assert [table for table in others.split() if selector.fits(tuple(table.split(".")))] == []


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2).map(tuple))
def test_an_escaped_dot_is_any_character(table: tuple[str, str]) -> None:
    assert TablePattern.parse(r"\.*.\.+").fits(table)
    assert RoutePattern.parse(r"\.*.\.+").match(table)


@pytest.mark.parametrize(("table", "targets"), ROUTED)
def test_a_table_goes_to_the_targets_of_all_routes_that_fit(table: str, targets: str) -> None:
    rules = [RouteRule.parse(*route) for route in ROUTES]

    assert [format_id(t) for t in route_table(parse_id(table), rules)] == targets.split()
    assert route_table(parse_id(table), rules, "FIRST_MATCH") == (parse_id(targets.split()[0]),)


@pytest.mark.parametrize(("pattern", "regex"), PATTERNS)
def test_the_pattern_of_a_route_is_one_regular_expression(pattern: str, regex: str) -> None:
    assert RoutePattern.parse(pattern).regex.pattern == regex


def test_digits_after_a_dollar_are_a_group_only_as_far_as_there_are_groups() -> None:
    assert RouteRule.parse(r"a_(\d).b", "x_$12", None).target(("a_7", "b")) == ("x_72",)


def test_the_symbol_stands_for_a_name_with_a_dot_as_one_name() -> None:
    rule = RouteRule.parse(r"\.*", "lake.<>", "<>")

    assert rule.target(("shop.orders",)) == ("lake", "shop.orders")


@pytest.mark.parametrize(
    ("source", "sink", "symbol", "part"),
    [
        ("db.t{1,3}", "x", None, "write out repetitions"),
        ("db.(", "x", None, "regular expression"),
        ("", "x", None, "empty"),
        ("db.t", "a.b.c.d", None, "at most three names"),
        ("db.t", "$1", None, "0 groups"),
        ("db.(t)", "<>.$1", "<>", "one of the two"),
        ("db.t", "lake.t", "<>", "contains the replace-symbol"),
        ("db.t", "lake.t", ".", "contains the replace-symbol"),
        ("db.t", "lake.t", "", "empty"),
    ],
)
def test_a_route_that_cannot_work_is_refused_with_a_fix(source: str, sink: str, symbol: str | None, part: str) -> None:
    with pytest.raises(SelectorError) as error:
        RouteRule.parse(source, sink, symbol)

    assert part in f"{error.value}; {error.value.fix}"


@pytest.mark.parametrize("pattern", ["a.b.c.d", "a..b", "", "a.[", "a,"])
def test_a_pattern_of_names_that_cannot_work_is_refused(pattern: str) -> None:
    with pytest.raises(SelectorError):
        TablePattern.parse(pattern)


def test_the_first_entry_of_a_mapping_that_fits_counts() -> None:
    mapping = TopicMapping.parse(r"mydb.t1,mydb.t2:first;mydb.\.*:rest;")

    assert [mapping.topic(t) for t in (("mydb", "t1"), ("MYDB", "T2"), ("mydb", "x"), ("y", "x"))] == [
        "first", "first", "rest", None,
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["a.b", "a:b:c", ":b", "a:", "a.b.c.d:x"])
def test_an_entry_of_a_mapping_has_one_colon(text: str) -> None:
    with pytest.raises(SelectorError):
        TopicMapping.parse(text)


def test_only_patterns_of_dots_alone_are_likely_misread() -> None:
    assert [misread_dots(p) for p in (r"\.*\.\.*", r"\.*", r"\.*.\.*", r"a\.b")] == [r"\.*.\.*", None, None, None]


@given(table_ids())
def test_an_id_is_written_and_read_again(table: tuple[str, ...]) -> None:
    assert parse_id(format_id(table)) == table


@given(st.lists(table_ids(), min_size=2, max_size=2, unique=True))
def test_different_ids_are_written_differently(tables: list[tuple[str, ...]]) -> None:
    assert len(set(map(format_id, tables))) == 2


@given(table_ids(min_size=1))
def test_a_name_stays_one_name_in_a_route(table: tuple[str, ...]) -> None:
    """Whatever is in it: dots, blanks, quotes, dollars, line breaks."""
    assert RouteRule.parse(r"([\s\S]*)", "$1").target(table) == table
    assert RouteRule.parse(r"[\s\S]*", "lake.x_<>", "<>").target(table) == ("lake", f"x_{table[-1]}")


@given(st.lists(st.from_regex(r"[a-z_]{1,4}", fullmatch=True), min_size=1, max_size=3).map(tuple))
def test_groups_are_replaced_as_in_text_where_names_are_plain(table: tuple[str, ...]) -> None:
    for pattern, sink in ((r"(\.*)", "a_$1"), (r"(\.*)_(\.*)", "$2.b$1"), (r"(\.*)\.(\.*)", "$1_$2")):
        rule = RouteRule.parse(pattern, sink)
        match = rule.pattern.match(table)
        if match is None:
            assert rule.target(table) is None
            continue
        text = re.sub(r"\$(\d)", lambda m: match[int(m[1])], sink)  # noqa: B023  # it is called at once
        try:
            wanted = parse_id(text)
        except ValueError:
            with pytest.raises(ValueError, match="is not the name of a table"):
                rule.target(table)
        else:
            assert rule.target(table) == wanted


def test_a_dot_in_a_name_stays_in_it() -> None:
    table = ("app", "billing.accounts")

    assert RouteRule.parse(r"app.(\.*)", "public.$1").target(table) == ("public", "billing.accounts")
    assert RouteRule.parse(r"app.(\.*)", "public.x$1y").target(table) == ("public", "xbilling.accountsy")
    assert RouteRule.parse(r"([\s\S]*)", "$1").target(table) == table
    with pytest.raises(ValueError, match="is not the name of a table"):
        RouteRule.parse(r"(app.\.*)", "a.b.$1").target(table)


def test_a_group_that_matches_nothing_is_empty() -> None:
    rule = RouteRule.parse(r"(a)?(b*).t", "x$1$2")

    assert rule.target(("b", "t")) == ("xb",)
    assert rule.target(("", "t")) == ("x",)
    with pytest.raises(ValueError, match="is not the name of a table"):
        RouteRule.parse(r"(b*).t", "$1").target(("", "t"))


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a.b.c.d", "`a", "`a`b", " ", "a. .b", "a.`"])
def test_a_string_that_is_not_an_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape("is not the name of a table")):
        parse_id(text)
