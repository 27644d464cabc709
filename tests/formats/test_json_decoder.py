"""The JSON decoder reads by columns what its reference reads one by one: same rows, same order, same errors."""

from __future__ import annotations

import math
from collections import Counter
from random import Random
from typing import Any
from unittest.mock import patch

import attrs
import pyarrow as pa
import pytest
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


Outcome = tuple[Any, list[int], list[BadRecord], dict[str, int]]


def one_by_one(row: t.Row, rules: ReadingRules, messages: list[bytes | None]) -> Outcome:
    """What the reference says about messages."""
    reference = ReferenceDecoder(row, rules)
    reference.undeclared = Counter()
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
    return comparable(pa.array(rows, arrow_type(row))), owner, bad, dict(reference.undeclared)


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


def outcome(decoded: Decoded, count: int) -> Outcome:
    decoded.rows.validate(full=True)
    assert decoded.rows.null_count == 0
    owner = list(range(count)) if decoded.messages is None else decoded.messages.to_pylist()
    return comparable(decoded.rows), owner, list(decoded.bad), dict(decoded.undeclared)


def check(row: t.Row, rules: ReadingRules, messages: list[bytes | None], min_batch: int) -> None:
    decoder = JsonDecoder(row, rules, min_batch=min_batch, count_undeclared=True)
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


@unhurried
@given(
    RANDOMS,
    RULES,
    st.sampled_from([0.0, 0.01, 0.1, 0.5]),
    st.integers(0, 30),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([0, 64]),
)
def test_undeclared_members_are_counted_once_for_each_row(
    random: Random, rules: ReadingRules, dirt: float, count: int, min_batch: int, flat: bool, dense: int
) -> None:
    writer = Writer(random, dirt)
    row = writer.row()
    messages = writer.messages(row, count)
    declared = t.Row(tuple(field for field in row.fields if random.random() < 0.5))
    with patch.object(objects, "_DENSE", dense):
        check(declared, attrs.evolve(rules, flat=frozenset() if flat else None), messages, min_batch)


def count_undeclared(row: t.Row, messages: list[bytes], **rules: Any) -> dict[str, int]:
    decoder = JsonDecoder(row, ReadingRules(**rules), count_undeclared=True)
    return dict(decoder.decode(pa.array(messages, pa.binary())).undeclared)


def test_undeclared_members_of_messages_that_are_read_again_are_counted_once() -> None:
    usual, odd = [b'{"a":%d,"x":1}' % i for i in range(95)], [b'{"a":"7 ","x":1}'] * 5
    assert count_undeclared(t.row(a=t.Int()), usual + odd) == {"x": 100}
    arrays = [b'[{"a":1,"x":1},{"a":%s,"x":1}]' % (b'"7 "' if i % 20 == 0 else b"2") for i in range(100)]
    assert count_undeclared(t.row(a=t.Int()), arrays) == {"x": 200}
    nested = [b'{"a":{"b":%s},"x":1}' % (b'"7 "' if i % 20 == 0 else b"2") for i in range(100)]
    assert count_undeclared(t.row(**{"a.b": t.Int()}), nested, flat=frozenset()) == {"x": 100}
    lost = [b'{"a":%s,"x":1}' % (b"true" if i % 20 == 0 else b"2") for i in range(100)]
    assert count_undeclared(t.row(a=t.Int()), lost) == {"x": 95}  # the others are bad


@pytest.mark.parametrize("count", [1, 100])
def test_undeclared_members_of_bad_arrays_are_not_counted(count: int) -> None:
    messages = [b'[{"b":1,"zz":1},{"b":"x"}]', b'[{"b":1,"yy":1}]'] * count
    assert count_undeclared(t.row(b=t.Int()), messages) == {"yy": count}


def test_a_repeated_undeclared_member_is_counted_once() -> None:
    same = [b'{"a":%d,"x":1,"x":2}' % i for i in range(100)]
    assert count_undeclared(t.row(a=t.Int()), same) == {"x": 100}
    mixed = [b'{"a":%d,%s"x":1,"y":1,"x":2}' % (i, b"".join(b'"b%d":0,' % n for n in range(i))) for i in range(100)]
    for dense in (0, 64):
        with patch.object(objects, "_DENSE", dense):
            counts = count_undeclared(t.row(a=t.Int()), mixed)
        assert (counts["x"], counts["y"], counts["b0"], counts["b98"]) == (100, 100, 99, 1)


def test_a_long_unused_key_does_not_lead_past_the_last_message() -> None:
    messages: list[bytes | None] = [b'{"%s":%d}' % (b"k" * 200, i) for i in range(100)]
    check(t.row(a=t.Int()), ReadingRules(), [*messages, b'{"a":1}'], 48)


def test_many_columns_of_one_type_are_read_as_each_of_them() -> None:
    kinds = [t.BigInt(), t.Double(), t.Date(), t.STRING, t.Decimal(10, 2)]
    values = ["7", '"8"', "null", "2.5", "x", '"2024-02-29"', '"2024-02-30"', "-0", "true", "99999999999999999999"]
    row = t.Row(tuple(t.Field(f"c{i}", kinds[i % 5 if i < 100 else 0]) for i in range(500)))
    plain = [
        "{{{}}}".format(",".join(f'"c{i}":{(i * j) % 100}' for i in range(500) if i % (j + 2))).encode()
        for j in range(60)
    ]
    assert b'"c3":0,' in plain[0]
    assert b'"c499":0}' in plain[0]
    messages: list[bytes | None] = [*plain]
    for value in values:
        messages.append(plain[0].replace(b'"c3":0', b'"c3":%b' % value.encode()))
        messages.append(plain[0].replace(b'"c499":0', b'"c499":%b' % value.encode()))
    check(row, ReadingRules(ignore_parse_errors=True), messages, 48)
    check(row, ReadingRules(), messages, 48)


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
