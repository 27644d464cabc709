from __future__ import annotations

from typing import Any

import pytest

from kdsl.formats import Direction
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl_formats.csv import Csv
from kdsl_formats.csv.format import unescape
from tests.problem_texts import without_code

PLAIN = t.row(a=t.STRING)


def problems_of(csv: Csv, row: t.Row = PLAIN, direction: Direction = "read") -> list[str]:
    return [without_code(p) for p in (*csv.problems(), *csv.check(row, direction))]


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (",", ","),
        ("\\t", "\t"),
        ("\\u0001", "\x01"),
        ("\\uu00e9", "é"),
        ("\\u+0041", "A"),
        ("\\001", "\x01"),
        ("\\377", "ÿ"),
        ("\\400", " 0"),
        ("\\\\", "\\"),
        ("\\'", "'"),
        ("\\x", "x"),
        ("\\", ""),
        ("\\u00g9", "u00g9"),
    ],
)
def test_a_delimiter_is_read_as_java_spells_it(value: str, meant: str) -> None:
    assert unescape(value) == meant


@pytest.mark.parametrize("value", [";;", "", "\\", "\\t\\t", "😀"])
def test_a_delimiter_is_one_character(value: str) -> None:
    assert problems_of(Csv(field_delimiter=value)) == [
        f"field_delimiter= has the value {value!r}; "
        "write exactly one character, literally or as a Java escape (\\t, \\u0001)"
    ]


@pytest.mark.parametrize("value", ["\n", "\\n", "\r"])
def test_a_delimiter_is_not_a_line_break(value: str) -> None:
    assert problems_of(Csv(field_delimiter=value)) == [
        f"field_delimiter= has the value {value!r}; a line break ends a message; choose another character"
    ]


@pytest.mark.parametrize("name", ["quote_character", "escape_character", "array_element_delimiter"])
@pytest.mark.parametrize("value", ["", "ab", "\\t"])
def test_the_other_characters_are_unchanged(name: str, value: str) -> None:
    options: dict[str, Any] = {name: value}

    assert problems_of(Csv(**options)) == [f"{name}= has the value {value!r}; write exactly one character"]


def test_quoting_cannot_be_disabled_and_have_a_character() -> None:
    assert problems_of(Csv(quote_character='"', disable_quote_character=True)) == [
        "the format 'csv' cannot both have a quote character and have quoting disabled; "
        "remove the quote character, or do not disable quoting"
    ]


def test_one_character_cannot_have_two_meanings() -> None:
    assert problems_of(Csv(field_delimiter='"')) == [
        "the format 'csv' has '\"' both as its field delimiter and as its quote character; "
        "choose another character for one of them"
    ]
    assert problems_of(Csv(field_delimiter="|", escape_character="|"))[0].startswith("the format 'csv' has '|' both")
    assert problems_of(Csv(field_delimiter='"', disable_quote_character=True)) == []


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("MAP<STRING, INT>", "csv-type"),
        ("MULTISET<STRING>", "csv-type"),
        ("ARRAY<MAP<STRING, INT>>", "csv-type"),
        ("ARRAY<ARRAY<INT>>", "csv-nesting"),
        ("ROW<x ROW<y INT>>", "csv-nesting"),
        ("ROW<x ARRAY<INT>>", "csv-nesting"),
    ],
)
@pytest.mark.parametrize("direction", ["read", "write"])
def test_a_type_without_a_form_is_refused(kind: str, code: str, direction: Direction) -> None:
    problems = list(Csv().check(t.row(a=parse_type(kind)), direction))

    assert [(p.code, p.where.column) for p in problems] == [(code, "a")]


@pytest.mark.parametrize("kind", ["TIME(4)", "ARRAY<TIME(6)>", "ROW<x TIME(9)>"])
def test_times_finer_than_milliseconds_are_written_and_not_read(kind: str) -> None:
    row = t.row(a=parse_type(kind))

    assert [p.code for p in Csv().check(row, "read")] == ["csv-time"]
    assert list(Csv().check(row, "write")) == []


def test_flinks_keys_configure_the_same_format() -> None:
    settings = {"field-delimiter": "\\t", "quote-character": "'", "null-literal": "", "ignore-parse-errors": "TRUE"}

    assert Csv.from_strings(settings) == Csv(
        field_delimiter="\\t", quote_character="'", null_literal="", ignore_parse_errors=True
    )
    assert problems_of(Csv.from_strings({"disable-quote-character": "yes"})) == [
        "disable_quote_character= has the value 'yes': expected true or false; "
        "set disable_quote_character= to true or false"
    ]
