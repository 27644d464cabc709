"""Messages that tools write beside the usual ones, and what errors say of messages of another kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from kdsl import Avro, AvroConfluent, CanalJson, DebeziumJson, Json, MaxwellJson, Protobuf
from kdsl.cluster import Registry
from kdsl.formats import ROW_KINDS, Format, Use
from kdsl.types import model as t
from tests.registry.front import Front
from tests.run.dead_letters.poison import answer_schemas

ROW = t.row(id=t.BigInt(), name=t.STRING)
COPIES = pytest.mark.parametrize("copies", [1, 100])
"""How often the messages are in the batch: few are read one by one, many by columns."""


def read(chosen: Format, *documents: Any, use: Use | None = None) -> list[tuple[str, Any]]:
    decoded = chosen.decoder(ROW, use or Use()).decode(encode(*documents))
    assert decoded.bad == ()
    kinds = [ROW_KINDS[kind] for kind in decoded.kinds.to_pylist()] if decoded.kinds else ["+I"] * len(decoded.rows)
    return list(zip(kinds, [tuple(row.values()) for row in decoded.rows.to_pylist()], strict=True))


def encode(*documents: Any) -> pa.BinaryArray:
    return pa.array([one if isinstance(one, bytes) else json.dumps(one).encode() for one in documents], pa.binary())


def reason_of(chosen: Format, message: Any, row: t.Row = ROW, use: Use | None = None) -> str:
    (bad,) = chosen.decoder(row, use or Use()).decode(encode(message)).bad
    return bad.reason


MAXWELL = {"database": "shop", "table": "orders", "ts": 1}
NOTICES = [
    {**MAXWELL, "type": "bootstrap-start", "data": {}},
    {**MAXWELL, "type": "bootstrap-complete", "data": {}},
    {**MAXWELL, "type": "table-create", "def": {"table": "orders", "columns": [{"type": "int", "name": "id"}]}},
    {
        **MAXWELL,
        "type": "table-alter",
        "old": {"database": "shop", "table": "orders", "columns": [], "id": ["x"], "name": {"a": 1}},
        "def": {"table": "orders"},
        "sql": "ALTER TABLE orders ADD COLUMN n int",
    },
    {**MAXWELL, "type": "table-drop"},
    {"database": "shop", "type": "database-create", "ts": 1},
    {"database": "shop", "type": "database-alter", "ts": 1},
    {"database": "shop", "type": "database-drop", "ts": 1},
]


@COPIES
def test_rows_of_maxwells_bootstrap_are_inserts_and_its_notices_have_no_rows(copies: int) -> None:
    rows = [{**MAXWELL, "type": "bootstrap-insert", "data": {"id": i, "name": "a"}} for i in range(3)]

    actual = read(MaxwellJson(), *[*NOTICES[:1], rows[0], *NOTICES, *rows[1:]] * copies)

    assert actual == [("+I", (i, "a")) for i in range(3)] * copies


def test_what_maxwells_notices_say_becomes_no_column() -> None:
    observer = MaxwellJson().observer()
    assert observer is not None
    insert = {**MAXWELL, "type": "bootstrap-insert", "data": {"id": 1}}

    observed = observer.observe(encode(*NOTICES, insert), {})

    assert observed.bad == ()
    assert observed.tables.to_pylist() == [None] * len(NOTICES) + [0]
    assert [f.name for f in observed.deltas[0].schema.columns] == ["id"]


CANAL = {"database": "shop", "table": "orders", "pkNames": ["id"]}
DELETE = {**CANAL, "type": "DELETE", "data": None, "old": [{"id": 8, "name": "z"}, {"id": 9, "name": "y"}]}


@COPIES
def test_a_delete_of_canal_may_have_its_rows_in_old(copies: int) -> None:
    usual = {**CANAL, "type": "DELETE", "data": [{"id": 7, "name": "x"}], "old": None}

    actual = read(CanalJson(), *[DELETE, usual] * copies)

    assert actual == [("-D", (8, "z")), ("-D", (9, "y")), ("-D", (7, "x"))] * copies


def test_columns_of_a_delete_of_canal_are_those_of_old() -> None:
    observer = CanalJson().observer()
    assert observer is not None

    observed = observer.observe(encode(DELETE), {})

    assert observed.bad == ()
    assert [f.name for f in observed.deltas[0].schema.columns] == ["id", "name"]
    assert observed.deltas[0].schema.primary_key == ("id",)


def test_undeclared_columns_of_old_count() -> None:
    more = {**DELETE, "old": [{"id": 8, "name": "z", "more": 1}]}

    decoded = CanalJson().decoder(ROW).decode(encode(more))

    assert decoded.undeclared == {"more": 1}


@pytest.mark.parametrize("data", [None, []])
def test_a_delete_of_canal_without_any_row_cannot_be_read(data: Any) -> None:
    if data is None:
        assert reason_of(CanalJson(), {**CANAL, "type": "DELETE", "data": None, "old": None}).startswith(
            "the member 'data'"
        )
    else:
        assert read(CanalJson(), {**CANAL, "type": "DELETE", "data": [], "old": None}) == []


MONGO = {"connector": "mongodb", "db": "shop", "collection": "orders"}


@pytest.mark.parametrize(
    "change",
    [
        {"before": None, "after": '{"_id": 1, "name": "a"}', "op": "c", "source": MONGO},
        {"before": None, "after": None, "updateDescription": {"updatedFields": "{}"}, "op": "u", "source": MONGO},
        {"before": None, "after": None, "op": "d", "source": MONGO},
    ],
)
@pytest.mark.parametrize("payload", [False, True])
def test_events_of_mongodb_are_named_with_what_makes_rows_of_them(change: Any, payload: bool) -> None:
    message = {"schema": {}, "payload": change} if payload else change

    reason = reason_of(DebeziumJson(schema_include=payload), message)

    assert "Debezium's connector for MongoDB wrote this event" in reason
    assert "ExtractNewDocumentState" in reason
    assert "REPLICA IDENTITY" not in reason
    unwrapped = {"_id": 1, "id": 1, "name": "a"}
    assert read(Json(), unwrapped) == [("+I", (1, "a"))], "what the transformation writes"


def test_an_update_without_the_row_before_names_each_way_out() -> None:
    update = {"before": None, "after": {"id": 1, "name": "a"}, "op": "u"}

    declared, inferred = reason_of(DebeziumJson(), update), reason_of(DebeziumJson(inferred_columns=True), update)

    assert "REPLICA IDENTITY to FULL, or declare the primary key and the table option cdc-events-duplicate" in declared
    assert "REPLICA IDENTITY to FULL, or write an ingestion's rows to a table with a primary key in Delta" in inferred
    assert read(DebeziumJson(inferred_columns=True), update, use=Use(keyed=("id",))) == [("+U", (1, "a"))]


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b'{"id', "not JSON: unterminated string starting at character 2"),
        (b'{"a": "x', "not JSON: unterminated string starting at character 7"),
        (b"\xff\xfe", "the message contains only a byte order mark"),
        (b"\xfe\xff", "the message contains only a byte order mark"),
        (b"\xef\xbb\xbf", "the message contains only a byte order mark"),
        (b"   ", "the message contains only blanks"),
    ],
)
def test_broken_json_is_described(message: bytes, reason: str) -> None:
    assert reason_of(Json(inferred_columns=True), message) == reason


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with Front(answer_schemas) as front:
        yield Registry(url=front.url)


DOCUMENT = b'{"id": 1, "name": "a"}'
PROTO = 'syntax = "proto3"; message Order { int64 id = 1; string name = 2; }'


def test_json_is_recognized_by_binary_formats(registry: Registry) -> None:
    """The advice is followed: the format json reads the message."""
    use = Use(registry=registry)
    not_null = t.row(day=t.STRING.as_nullable(False), id=t.STRING.as_nullable(False))

    reasons = [
        reason_of(Avro(), DOCUMENT, t.Row(not_null.fields, nullable=False)),
        reason_of(AvroConfluent(), DOCUMENT, use=use),
        reason_of(AvroConfluent(), b"[1]", use=use),
        reason_of(Protobuf(message_class_name="Order", proto_text=PROTO), DOCUMENT),
    ]

    assert all(
        reason.endswith("; the message looks like JSON, which is read with the format json") for reason in reasons
    )
    assert not reason_of(AvroConfluent(), b"{oops", use=use).endswith("format json")
    assert read(Json(), DOCUMENT) == [("+I", (1, "a"))]
