"""The header filter at work: on raw batches, against what each record says by itself."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from kdsl.plan.model import HeaderCondition
from kdsl.resolve.header_filter import parse_header_filter
from kdsl.run.records.header_filter import match_headers
from kdsl.run.records.metadata import HEADERS

Record = Sequence[tuple[str, bytes | None]]


def match(text: str, *records: Record) -> list[bool]:
    return list(match_headers(array(records), parse_header_filter(text)).tolist())


def array(records: Sequence[Record]) -> pa.Array:
    return pa.array([[{"key": k, "value": v} for k, v in record] for record in records], HEADERS)


def test_the_example_is_evaluated_from_left_to_right() -> None:
    text = "depart:toy|depart:book&!env:test"

    assert match(
        text,
        [("depart", b"toy")],
        [("depart", b"book"), ("env", b"prod")],
        [("depart", b"toy"), ("env", b"test")],
        [("depart", b"car")],
        [],
    ) == [True, True, False, False, False]


def test_there_is_no_precedence() -> None:
    only_a: Record = [("a", b"1")]

    assert match("a:1|b:1&c:1", only_a) == [False]
    assert match("b:1&c:1|a:1", only_a) == [True]


def test_any_occurrence_of_a_header_is_enough_and_one_is_enough_against_it() -> None:
    twice: Record = [("a", b"1"), ("a", b"2")]

    assert [*match("a:1", twice), *match("a:2", twice), *match("a:3", twice)] == [True, True, False]
    assert [*match("!a:1", twice), *match("!a:3", twice)] == [False, True]


def test_a_null_value_never_matches() -> None:
    null: Record = [("a", None)]

    assert [*match("a:", null), *match("!a:", null)] == [False, True]
    assert match("a:", [("a", b"")]) == [True]


def test_values_are_compared_as_utf8_strings() -> None:
    assert match("city:Zürich", [("city", "Zürich".encode())], [("city", "Zürich".encode("latin-1"))]) == [True, False]


def test_names_are_case_sensitive() -> None:
    assert match("a:1", [("A", b"1")]) == [False]


def test_a_part_of_a_batch_is_judged_by_its_own_headers() -> None:
    whole = array([[("a", b"1")], [], [("a", b"2"), ("a", b"1")], [("b", b"1")]])

    assert match_headers(whole.slice(1, 3), parse_header_filter("a:1")).tolist() == [False, True, False]
    assert match_headers(whole.slice(0, 0), parse_header_filter("a:1")).tolist() == []


NAMES = st.sampled_from(["a", "b"])
VALUES = st.sampled_from(["", "1", "é"])
RECORDS = st.lists(st.lists(st.tuples(NAMES, st.none() | VALUES.map(str.encode)), max_size=3), max_size=6)
CONDITIONS = st.lists(
    st.builds(HeaderCondition, NAMES, VALUES, st.booleans(), st.sampled_from(["&", "|"])), min_size=1, max_size=4
)


@given(RECORDS, CONDITIONS)
def test_it_equals_the_filter_of_each_single_record(records: list[Record], conditions: list[HeaderCondition]) -> None:
    def evaluate(record: Record) -> bool:
        result = True
        for c in conditions:
            holds = ((c.name, c.value.encode()) in record) is not c.negated
            result = (result and holds) if c.joined == "&" else (result or holds)
        return result

    assert np.array_equal(match_headers(array(records), conditions), [evaluate(r) for r in records])
