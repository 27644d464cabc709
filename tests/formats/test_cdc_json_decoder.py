"""Change data is read by columns as its reference reads it one by one: same rows, same order, same errors."""

from __future__ import annotations

import json
import re
from random import Random
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kdsl.formats import BadRecord, Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats.cdc_json.decoder import ChangeDecoder
from kdsl_formats.cdc_json.dialects import CANAL, DEBEZIUM, MAXWELL, OGG, Dialect
from kdsl_formats.cdc_json.metadata import metadata_type
from kdsl_formats.cdc_json.reference_decoder import ChangeReadingRules, Include, MessageRows, ReferenceChangeDecoder
from tests.formats.change_documents import ChangeWriter
from tests.formats.conformance import python_rows
from tests.formats.test_json_decoder import comparable

unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
RANDOMS = st.randoms(use_true_random=False)


def meaning_of(random: Random, dialect: Dialect, row: t.Row) -> ChangeReadingRules:
    """What is wanted: with any options and metadata."""
    keys = [key for key in dialect.metadata if random.random() < 0.4]
    random.shuffle(keys)
    include = [Include(m, re.compile("a|é")) for m in ("database", "table") if random.random() < 0.3]
    return ChangeReadingRules(
        dialect,
        row,
        ignore_parse_errors=random.random() < 0.4,
        standard=random.choice(["SQL", "ISO-8601"]),
        payload=dialect is DEBEZIUM and random.random() < 0.4,
        include=tuple(include) if dialect is CANAL else (),
        metadata=tuple(keys),
        keyed=random_key(random, row),
    )


def random_key(random: Random, row: t.Row) -> tuple[str, ...]:
    """No primary key, or one of some columns, or one that the value does not have."""
    if random.random() < 0.6:
        return ()
    return tuple(name for name in row.names if random.random() < 0.4) or ("elsewhere",)


def one_by_one(rules: ChangeReadingRules, messages: list[bytes | None]) -> tuple[Any, ...]:
    """What the reference says about messages."""
    reader = ReferenceChangeDecoder(rules)
    rows: list[Any] = []
    owner: list[int] = []
    kinds: list[int] = []
    metadata: list[tuple[Any, ...]] = []
    bad: list[BadRecord] = []
    for i, message in enumerate(messages):
        try:
            result = reader.read_changes(message or b"")
        except ValueError as e:
            bad.append(BadRecord(i, str(e)))
            continue
        rows += result.rows
        kinds += result.kinds
        owner += [i] * len(result.rows)
        metadata += [result.metadata] * len(result.rows)
    columns = [
        list(python_rows(pa.array([values[i] for values in metadata], metadata_type(piece))))
        for i, piece in enumerate(rules.metadata_fields)
    ]
    return comparable(pa.array(rows, arrow_type(rules.row))), owner, kinds, columns, bad, dict(reader.undeclared)


def check(rules: ChangeReadingRules, messages: list[bytes | None], min_batch: int) -> None:
    decoder = ChangeDecoder(rules, min_batch=min_batch)
    expected = one_by_one(rules, messages)
    for _ in range(2):  # the second time with the shapes that were learned
        decoded = decoder.decode(pa.array(messages, pa.binary()))
        decoded.rows.validate(full=True)
        assert decoded.rows.type == arrow_type(rules.row)
        assert tuple(decoded.metadata) == rules.metadata
        assert [a.type for a in decoded.metadata.values()] == [metadata_type(p) for p in rules.metadata_fields]
        owners = list(range(len(decoded.rows))) if decoded.messages is None else decoded.messages.to_pylist()
        assert decoded.kinds is not None
        assert (
            comparable(decoded.rows),
            owners,
            decoded.kinds.to_pylist(),
            [list(python_rows(a)) for a in decoded.metadata.values()],
            list(decoded.bad),
            dict(decoded.undeclared),
        ) == expected


@unhurried
@given(
    RANDOMS,
    st.sampled_from([DEBEZIUM, CANAL, MAXWELL, OGG]),
    st.sampled_from([0.0, 0.01, 0.1, 0.5, 1.0]),
    st.integers(0, 30),
    st.integers(1, 4),
)
def test_reading_by_columns_equals_reading_one_by_one(
    random: Random, dialect: Dialect, dirt: float, count: int, min_batch: int
) -> None:
    writer = ChangeWriter(random, dirt)
    rules = meaning_of(random, dialect, writer.row())
    check(rules, writer.changes(rules, count), min_batch)


@pytest.mark.parametrize("keyed", [(), ("id",)])
@pytest.mark.parametrize(
    ("dialect", "update"),
    [
        (DEBEZIUM, '{"before":%s,"after":%s,"op":"u"}'),
        (CANAL, '{"old":[%s],"data":[%s],"type":"UPDATE"}'),
        (MAXWELL, '{"old":%s,"data":%s,"type":"update"}'),
        (OGG, '{"before":%s,"after":%s,"op_type":"U"}'),
    ],
    ids=["Debezium", "Canal", "Maxwell", "Ogg"],
)
def test_undeclared_members_are_counted_once_for_each_image(
    dialect: Dialect, update: str, keyed: tuple[str, ...]
) -> None:
    image = '{"id":1,"a":%s,"x":1}'
    values = ['"7 "' if i % 20 == 0 else "2" for i in range(100)]  # those with a blank are read one by one
    messages = pa.array([(update % (image % 1, image % value)).encode() for value in values], pa.binary())
    decoder = ChangeDecoder(ChangeReadingRules(dialect, t.row(id=t.Int(), a=t.Int()), keyed=keyed))
    for _ in range(2):  # the second time with the shapes that were learned
        decoded = decoder.decode(messages)
        assert (dict(decoded.undeclared), decoded.bad) == ({"x": 200}, ())


@pytest.mark.parametrize("count", [1, 100])
@pytest.mark.parametrize(
    ("dialect", "message", "undeclared"),
    [
        (DEBEZIUM, '{"before":null,"after":{"id":1,"x":1},"op":"u"}', 0),
        (DEBEZIUM, '{"before":{"x":1},"after":{"id":1},"op":"c"}', 0),
        (DEBEZIUM, '{"before":{"id":1,"x":1},"after":{"id":1,"x":1},"op":"d"}', 1),
        (CANAL, '{"data":[{"id":1,"x":1},null,{"x":1}],"type":"INSERT"}', 1),
        (CANAL, '{"old":[{"x":1}],"data":[{"id":1,"x":1},{"x":1}],"type":"UPDATE"}', 2),
        (CANAL, '{"old":[{"x":1}],"data":[{"id":1}],"type":"INSERT"}', 0),
        (MAXWELL, '{"old":null,"data":{"id":1,"x":1},"type":"update"}', 0),
        (MAXWELL, '{"old":{"x":1},"data":{"id":1},"type":"delete"}', 0),
    ],
)
def test_undeclared_members_are_counted_in_images_of_returned_rows_only(
    dialect: Dialect, message: str, undeclared: int, count: int
) -> None:
    decoder = ChangeDecoder(ChangeReadingRules(dialect, t.row(id=t.Int()), ignore_parse_errors=True))
    decoded = decoder.decode(pa.array([message.encode()] * count, pa.binary()))
    assert decoded.undeclared.get("x", 0) == undeclared * count


@unhurried
@given(
    RANDOMS,
    st.sampled_from([DEBEZIUM, CANAL, MAXWELL, OGG]),
    st.sampled_from([0.0, 0.01, 0.1, 0.5]),
    st.integers(0, 30),
    st.integers(1, 4),
)
def test_undeclared_members_are_counted_by_columns_as_one_by_one(
    random: Random, dialect: Dialect, dirt: float, count: int, min_batch: int
) -> None:
    writer = ChangeWriter(random, dirt)
    rules = meaning_of(random, dialect, writer.row())
    messages = writer.changes(rules, count)
    declared = t.Row(tuple(f for f in rules.row.fields if f.name in rules.keyed or random.random() < 0.5))
    check(attrs.evolve(rules, row=declared), messages, min_batch)


@pytest.mark.parametrize("operation", ["c", "u", "d"])
@pytest.mark.parametrize("keyed", [(), ("id",), ("elsewhere",)])
def test_batches_of_one_operation_are_read_by_columns(operation: str, keyed: tuple[str, ...]) -> None:
    rules = ChangeReadingRules(DEBEZIUM, ROW, keyed=keyed)
    images = [json.dumps({"id": i, "name": "n", "amount": 1.5}) for i in range(20)]
    before, after = (["null"] * 20 if operation == kind else images for kind in "cd")
    rows = zip(before, after, strict=True)

    check(rules, [f'{{"before":{b},"after":{a},"op":"{operation}"}}'.encode() for b, a in rows], 1)


@pytest.mark.parametrize("dialect", [DEBEZIUM, OGG], ids=["debezium-json", "ogg-json"])
@pytest.mark.parametrize("empty", ["{}", "{ }", "{\n}"])
@pytest.mark.parametrize("keyed", [(), ("id",)])
@pytest.mark.parametrize("min_batch", [1, 100])
def test_an_empty_row_before_is_like_none(dialect: Dialect, empty: str, keyed: tuple[str, ...], min_batch: int) -> None:
    rules, row = ChangeReadingRules(dialect, ROW, keyed=keyed), '{"id":1,"name":"n","amount":1.5}'
    insert, update, delete = dialect.inserts[0], dialect.update, dialect.delete
    changes = [(insert, row), (update, row), (delete, "null")]

    def decode(before: str) -> Decoded:
        messages = [f'{{"before":{before},"after":{after},"{dialect.operation}":"{op}"}}' for op, after in changes]
        return ChangeDecoder(rules, min_batch=min_batch).decode(pa.array([m.encode() for m in messages], pa.binary()))

    decoded, expected = decode(empty), decode("null")

    assert decoded.rows.equals(expected.rows)
    assert decoded.kinds is not None
    assert decoded.kinds.equals(expected.kinds)
    assert [(bad.index, bad.reason) for bad in decoded.bad] == [(bad.index, bad.reason) for bad in expected.bad]
    assert [bad.index for bad in decoded.bad] == ([2] if keyed else [1, 2])


def by_columns(rules: ChangeReadingRules, messages: list[str]) -> int:
    """How many messages the reference was asked about."""
    decoder = ChangeDecoder(rules)
    asked: list[bytes] = []
    changes = decoder.reference.read_changes

    def record_message(message: bytes) -> MessageRows:
        asked.append(message)
        return changes(message)

    decoder.reference.read_changes = record_message  # type: ignore[method-assign]
    decoded = decoder.decode(pa.array([m.encode() for m in messages], pa.binary()))
    assert decoded.bad == ()
    return len(asked)


ROW = t.row(id=t.BigInt(), name=t.STRING, amount=t.Double())


def test_plain_changes_need_no_reference() -> None:
    source = (
        '{"version":"1.9","ts_ms":1600000000000,"db":"shop","table":"orders","pos":15,"snapshot":"false","gtid":null}'
    )
    image = '{"id":%d,"name":"n","amount":1.5}'
    after = [f'{{"before":null,"after":{image % i},"source":{source},"op":"c","ts_ms":{i}}}' for i in range(200)]
    updates = [
        f'{{"before":{image % i},"after":{image % -i},"source":{source},"op":"u","ts_ms":{i}}}' for i in range(200)
    ]
    deletes = [f'{{"before":{image % i},"after":null,"source":{source},"op":"d","ts_ms":{i}}}' for i in range(200)]
    mixed = [m for three in zip(after, updates, deletes, strict=True) for m in three]
    keys = tuple(key for key in DEBEZIUM.metadata)

    assert by_columns(ChangeReadingRules(DEBEZIUM, ROW, metadata=keys), mixed) == 0
    framed = [f'{{"schema":{{"type":"struct","fields":[{{"a":1}}]}},"payload":{m}}}' for m in mixed]
    assert by_columns(ChangeReadingRules(DEBEZIUM, ROW, metadata=keys, payload=True), framed) == 0


def test_plain_changes_of_the_other_dialects_need_no_reference() -> None:
    image, other = '{"id":"%d","name":"n","amount":"1.5"}', ['{"name":"o"}', '{"amount":null}']
    canal = [
        f'{{"data":[{image % i},{image % -i}],"database":"d","es":15,"old":[{other[i % 2]},{other[0]}],'
        f'"pkNames":["id"],"sqlType":{{"id":4}},"table":"t","ts":16,"type":"UPDATE"}}'
        for i in range(300)
    ] + [f'{{"data":[{image % i}],"database":"d","old":null,"table":"x","type":"INSERT"}}' for i in range(300)]
    maxwell = [
        f'{{"database":"d","table":"t","type":"update","ts":15,"data":{image % i},"old":{other[i % 2]}}}'
        for i in range(300)
    ]
    ogg = [
        f'{{"table":"T","op_type":"U","op_ts":"2020-05-13 15:40:06.{i:06}","current_ts":"2020-05-13T15:40:06.1",'
        f'"before":{image % i},"after":{image % i}}}'
        for i in range(300)
    ]
    include = (Include("table", re.compile("t")),)

    assert by_columns(ChangeReadingRules(CANAL, ROW, metadata=tuple(CANAL.metadata), include=include), canal) == 0
    assert by_columns(ChangeReadingRules(MAXWELL, ROW, metadata=tuple(MAXWELL.metadata)), maxwell) == 0
    assert by_columns(ChangeReadingRules(OGG, ROW, metadata=tuple(OGG.metadata)), ogg) == 0


def make_inserts(schema: str, count: int) -> list[bytes | None]:
    """Inserts with their schema, and a tombstone after each tenth."""
    results: list[bytes | None] = []
    for i in range(count):
        change = f'{{"before":null,"after":{{"id":{i},"name":"n","amount":1.5}},"op":"c","ts_ms":{i}}}'
        results.append(f'{{"schema":{schema},"payload":{change}}}'.encode())
        results += [None] if i % 10 == 0 else []
    return results


def test_messages_with_the_same_schema_are_read_without_it() -> None:
    rules = ChangeReadingRules(DEBEZIUM, ROW, metadata=("schema", "ingestion-timestamp"), payload=True)
    schema = '{"type":"struct","fields":[{"type":"string","field":"n"}],"name":"x"}'
    messages = make_inserts(schema, 300)
    odd: dict[int, bytes] = {
        3: (messages[3] or b"")[:-1],
        4: (messages[4] or b"")[:-1] + b',"more":{}}',
        5: (messages[5] or b"")[:-1] + b',"payload":{"op":"r","after":{"id":-1}}}',
        6: (messages[6] or b"") + b"{}",
        7: b'{"schema":1,"payload":{"op":"c","after":{"id":-2}}}',
        8: (messages[8] or b"").replace(b'"op"', b'"\xff"'),
        9: (messages[9] or b"").replace(b'"payload":', b'"payload":{}{'),
    }
    for i, message in odd.items():
        messages[i] = message

    assert by_columns(rules, [m.decode() for m in make_inserts(schema, 300) if m]) == 0
    assert ChangeDecoder(rules)._frames.find(pa.array(messages, pa.binary()), np.array([bool(m) for m in messages]))
    check(rules, messages, 48)


def test_messages_with_several_schemas_need_no_reference() -> None:
    schemas = [f'{{"type":"struct","name":"{"x" * 300}{i}","fields":[{{"a":"b"}}]}}' for i in range(3)]
    messages = [m for three in zip(*(make_inserts(s, 100) for s in schemas), strict=True) for m in three]
    rules = ChangeReadingRules(DEBEZIUM, ROW, metadata=("schema",), payload=True)

    assert by_columns(rules, [m.decode() for m in messages if m]) == 0
    check(rules, messages, 48)


def test_a_broken_schema_is_not_a_frame() -> None:
    for schema in ("{", '{"a":01}', '{"a":tru}', "[1}", '{"a":"\\x"}'):
        check(ChangeReadingRules(DEBEZIUM, ROW, metadata=("schema",), payload=True), make_inserts(schema, 100), 48)
