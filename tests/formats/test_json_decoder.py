"""The JSON decoder reads by columns what its reference reads one by one: same rows, same order, same errors."""

from __future__ import annotations

import math
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import HealthCheck, given, settings, strategies as st

from kdsl.formats import BadRecord, Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats.json import objects
from kdsl_formats.json.decoder import JsonDecoder
from kdsl_formats.json.reference_decoder import ReadingRules, ReferenceDecoder
from tests.formats.conformance import python_rows
from tests.formats.json_documents import STYLES, Writer

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
RANDOMS = st.randoms(use_true_random=False)
RULES = st.builds(
    lambda kind, standard, streaming: ReadingRules(kind == "strict", kind == "ignore", standard, streaming),
    st.sampled_from(["plain", "plain", "strict", "ignore"]),
    st.sampled_from(["SQL", "ISO-8601"]),
    st.booleans(),
)


def one_by_one(row: t.Row, rules: ReadingRules, messages: list[bytes | None]) -> tuple[Any, list[int], list[BadRecord]]:
    """What the reference says about messages."""
    reference = ReferenceDecoder(row, rules)
    rows: list[Any] = []
    owner: list[int] = []
    bad: list[BadRecord] = []
    for i, message in enumerate(messages):
        try:
            result = reference.read_rows(message or b"")
        except ValueError as e:
            bad.append(BadRecord(i, str(e)))
        else:
            rows += result
            owner += [i] * len(result)
    return comparable(pa.array(rows, arrow_type(row))), owner, bad


def comparable(rows: pa.StructArray) -> list[Any]:
    """The rows as values that can be compared: NaN equals NaN, -0.0 does not equal 0.0."""
    return [_comparable(v) for v in python_rows(rows)]


def _comparable(value: Any) -> Any:
    match value:
        case float():
            return "NaN" if math.isnan(value) else repr(value)
        case dict():
            return {k: _comparable(v) for k, v in value.items()}
        case list():
            return [_comparable(v) for v in value]
        case tuple():
            return tuple(_comparable(v) for v in value)
        case _:
            return value


def outcome(decoded: Decoded, count: int) -> tuple[Any, list[int], list[BadRecord]]:
    decoded.rows.validate(full=True)
    assert decoded.rows.null_count == 0
    owner = list(range(count)) if decoded.messages is None else decoded.messages.to_pylist()
    return comparable(decoded.rows), owner, list(decoded.bad)


def check(row: t.Row, rules: ReadingRules, messages: list[bytes | None], min_batch: int) -> None:
    decoder = JsonDecoder(row, rules, min_batch=min_batch)
    expected = one_by_one(row, rules, messages)
    for _ in range(2):  # the second time with the shapes that were learned
        decoded = decoder.decode(pa.array(messages, pa.binary()))
        assert decoded.rows.type == arrow_type(row)
        assert outcome(decoded, len(messages)) == expected


@unhurried
@given(
    RANDOMS,
    RULES,
    st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    st.integers(0, 30),
    st.integers(1, 4),
    st.sampled_from([0, 1000]),
)
def test_reading_by_columns_equals_reading_one_by_one(
    random: Random, rules: ReadingRules, dirt: float, count: int, min_batch: int, few: int
) -> None:
    writer = Writer(random, dirt)
    row = writer.row()
    with patch.object(objects, "FEW", few):
        check(row, rules, writer.messages(row, count), min_batch)


def test_a_long_unused_key_does_not_lead_past_the_last_message() -> None:
    messages: list[bytes | None] = [b'{"%s":%d}' % (b"k" * 200, i) for i in range(100)]
    check(t.row(a=t.Int()), ReadingRules(), [*messages, b'{"a":1}'], 48)


@given(st.lists(st.from_regex(r"[0-9-]?[0-9/:.eE+-]{0,19}", fullmatch=True), min_size=1), st.integers(1, 3))
def test_unused_numbers_must_be_valid(numbers: list[str], min_batch: int) -> None:
    messages: list[bytes | None] = [f'{{"a":{i},"z":{n}}}'.encode() for i, n in enumerate(numbers)]
    check(t.row(a=t.Int()), ReadingRules(), messages, min_batch)


@unhurried
@given(RANDOMS, st.sampled_from([0.0, 0.1, 0.5]), st.integers(1, 4))
def test_unused_objects_must_be_valid_json(random: Random, dirt: float, min_batch: int) -> None:
    writer = Writer(random, dirt)
    inner = writer.row(width=6, depth=2)
    members = [(f.name, f.type) for f in inner.fields]
    style = random.choice(STYLES)
    messages: list[bytes | None] = []
    for i in range(30):
        text = writer.object(members, style)
        if random.random() < dirt / 2:
            index = random.randrange(len(text))
            text = text[:index] + random.choice(['"', "}", "{", ",", "\\", "]", " ", "x"]) + text[index + 1 :]
        messages.append(f'{{"in":{text},"n":{i},"more":{text}}}'.encode())
    check(t.row(n=t.Int()), ReadingRules(streaming=random.random() < 0.5), messages, min_batch)
