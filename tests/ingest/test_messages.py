"""Rows of sink tables to Kafka messages: an update is one message, however rows are divided into batches."""

from __future__ import annotations

import json
import zlib
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.cluster import Cluster
from kdsl.errors import RecordError
from kdsl.formats import ROW_KINDS, Format
from kdsl.ingest import KafkaTopics
from kdsl.ingest.changes import filter_changes, find_changes
from kdsl.ingest.messages import PlainTable, encode_packets, encode_rows
from kdsl.ingest.records import plan_table
from kdsl.ingest.run.tasks import split_task
from kdsl.ingest.schema_changes import UpstreamTable
from kdsl.own_columns import KIND, PASSES
from kdsl.run.records.decode import RecordDecoder
from kdsl.types import model as t
from kdsl.types.arrow import arrow_schema
from kdsl.types.widening import TableSchema
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.csv import Csv
from kdsl_formats.json import Json
from tests.ingest.test_records import feed, records, split
from tests.ingest.test_tasks import as_rows, divider
from tests.strategies import examples

SCHEMA = TableSchema((t.Field("n", t.STRING), t.Field("id", t.BigInt(nullable=False))), ("id",))
ONE, TWO = {"n": "a", "id": 1}, {"n": "b", "id": 1}
Row = dict[str, Any]
Change = tuple[str, Row]


def sink(value: Format | None = None, **options: Any) -> KafkaTopics:
    return KafkaTopics(Cluster("localhost:9092"), value=value or DebeziumJson(), **options)


def rows(*changes: Change, passes: list[bool] | None = None) -> pa.RecordBatch:
    columns = {
        KIND: pa.array([kind for kind, _ in changes], pa.string()),
        "n": pa.array([row["n"] for _, row in changes], pa.string()),
        "id": pa.array([row["id"] for _, row in changes], pa.int64()),
    }
    if passes is not None:
        columns[PASSES] = pa.array(passes, pa.bool_())
    return pa.RecordBatch.from_pydict(columns)


def messages(
    to: KafkaTopics, *batches: pa.RecordBatch, table: tuple[str, ...] = ("shop", "orders"), schema: TableSchema = SCHEMA
) -> list[tuple[Any, Any]]:
    encoded = [row for batch in encode_rows(to, table, schema, iter(batches)) for row in batch.to_pylist()]
    return [(row["key"], None if row["value"] is None else json.loads(row["value"])) for row in encoded]


CHANGES: tuple[Change, ...] = (("+I", ONE), ("-U", ONE), ("+U", TWO), ("-D", TWO))


def test_debezium_messages_have_both_rows_of_an_update() -> None:
    source = {"db": "shop", "table": "orders"}

    assert [value for _, value in messages(sink(), rows(*CHANGES))] == [
        {"before": None, "after": ONE, "op": "c", "source": source},
        {"before": ONE, "after": TWO, "op": "u", "source": source},
        {"before": TWO, "after": None, "op": "d", "source": source},
    ]


def test_canal_messages_have_lists_of_rows() -> None:
    common = {"database": "shop", "table": "orders", "pkNames": ["id"]}

    assert [value for _, value in messages(sink(CanalJson()), rows(*CHANGES))] == [
        {"old": None, "data": [ONE], "type": "INSERT", **common},
        {"old": [ONE], "data": [TWO], "type": "UPDATE", **common},
        {"old": None, "data": [TWO], "type": "DELETE", **common},
    ]
    ((_, delete),) = messages(sink(CanalJson()), rows(("-D", TWO)))
    assert delete == {"old": None, "data": [TWO], "type": "DELETE", **common}


def test_json_messages_are_rows_and_tombstones() -> None:
    assert [value for _, value in messages(sink(Json()), rows(*CHANGES))] == [ONE, TWO, None]


def test_a_tombstone_needs_a_key() -> None:
    schema = TableSchema(SCHEMA.columns)
    with pytest.raises(RecordError, match=r"shop\.orders.*without a primary key cannot be a tombstone"):
        messages(sink(Json()), rows(("-D", ONE)), schema=schema)


def test_keys_have_the_table_id_and_the_primary_key() -> None:
    keys = [key for key, _ in messages(sink(), rows(*CHANGES))]
    assert [json.loads(key) for key in keys] == [{"TableId": "shop.orders", "id": 1}] * 3
    assert [key for key, _ in messages(sink(key=Csv()), rows(("+I", ONE)))] == [b"shop.orders,1"]
    (key, _), = messages(sink(), rows(("+I", ONE)), schema=TableSchema(SCHEMA.columns))  # fmt: skip
    assert json.loads(key) == {"TableId": "shop.orders"}


def test_null_in_the_primary_key_is_an_error() -> None:
    with pytest.raises(RecordError, match=r"shop\.orders.*the column 'id' is NULL in a row, and part of the"):
        messages(sink(), rows(("+I", {"n": "a", "id": None})))


def test_names_of_the_table_in_messages() -> None:
    names = {
        ("orders",): {"db": None, "table": "orders"},
        ("shop", "orders"): {"db": "shop", "table": "orders"},
        ("shop", "public", "orders"): {"db": "public", "table": "orders"},
    }
    for table, source in names.items():
        assert messages(sink(), rows(("+I", ONE)), table=table)[0][1]["source"] == source
    full = messages(sink(full_table_id=True), rows(("+I", ONE)), table=("shop", "public", "orders"))
    assert full[0][1]["source"] == {"db": "shop", "schema": "public", "table": "orders"}


@pytest.mark.parametrize(
    ("passes", "expected"),
    [([True, True], ["u"]), ([True, False], ["d"]), ([False, True], ["c"]), ([False, False], [])],
)
def test_an_update_with_one_row_that_passes_the_filter_is_an_insert_or_a_delete(
    passes: list[bool], expected: list[str]
) -> None:
    update = rows(("-U", ONE), ("+U", TWO), passes=passes)

    assert [value["op"] for _, value in messages(sink(), update)] == expected


def test_rows_of_different_updates_are_not_combined() -> None:
    batch = rows(("-U", ONE), ("+U", TWO), ("-U", TWO), ("+U", ONE), passes=[True, False, False, True])

    assert [value["op"] for _, value in messages(sink(), batch)] == ["d", "c"]


UPDATES = st.lists(st.sampled_from([("+I",), ("-D",), ("-U", "+U")]), max_size=8)


@settings(max_examples=examples(200))
@given(UPDATES, st.data())
def test_messages_do_not_depend_on_the_batches(changes: list[tuple[str, ...]], data: st.DataObject) -> None:
    kinds = [kind for change in changes for kind in change]
    values = [{"n": str(i), "id": i} for i in range(len(kinds))]
    passes = data.draw(st.lists(st.booleans(), min_size=len(kinds), max_size=len(kinds)))
    whole = rows(*zip(kinds, values, strict=True), passes=passes)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(kinds)))))
    parts = [whole.slice(a, b - a) for a, b in zip([0, *cuts], [*cuts, len(kinds)], strict=True)]

    assert messages(sink(), *parts) == messages(sink(), whole)
    written = [value for _, value in messages(sink(), whole) if value is not None]
    shown = [row for value in written for row in (value["before"], value["after"]) if row]
    assert sorted(row["id"] for row in shown) == [i for i, one in enumerate(passes) if one]


MOVED = (("-U", ONE), ("+U", {"n": "b", "id": 2}))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Json(), [(1, None), (2, MOVED[1][1])]),
        (DebeziumJson(), [(1, "d"), (1, None), (2, "c")]),
        (CanalJson(), [(1, "DELETE"), (1, None), (2, "INSERT")]),
    ],
    ids=["json", "debezium-json", "canal-json"],
)
def test_an_update_of_the_key_deletes_the_old_key_first(value: Format, expected: list[tuple[int, Any]]) -> None:
    def show(one: Any) -> Any:
        return one if one is None or isinstance(value, Json) else one.get("op", one.get("type"))

    assert [(json.loads(key)["id"], show(one)) for key, one in messages(sink(value), rows(*MOVED))] == expected


def test_a_floating_point_key_is_compared_as_it_is_written() -> None:
    schema = TableSchema((t.Field("id", t.Double(nullable=False)),), ("id",))
    batch = pa.RecordBatch.from_pydict({KIND: ["-U", "+U"], "id": pa.array([0.0, -0.0])})

    keys = [json.loads(key)["id"] for key, _ in messages(sink(Json()), batch, schema=schema)]

    assert [str(key) for key in keys] == ["0.0", "-0.0"]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[tuple[str, Row]], list[bool], dict[int, Row]]:
    """Rows of random changes of a table, which of them meet a filter, and the rows that do at the end."""
    table: dict[int, Row] = {}
    changes: list[tuple[str, Row]] = []
    for n in range(draw(st.integers(0, 25))):
        row: Row = {"n": str(n), "id": draw(st.integers(0, 4))}
        old = table.get(draw(st.integers(0, 4)))
        if old is not None and draw(st.integers(0, 3)) == 0:
            changes.append(("-D", table.pop(old["id"])))
        elif old is not None and (row["id"] == old["id"] or row["id"] not in table):
            changes += [("-U", table.pop(old["id"])), ("+U", row)]
            table[row["id"]] = row
        elif row["id"] not in table:
            changes.append(("+I", row))
            table[row["id"]] = row
    chosen = draw(st.sets(st.integers(0, 25).map(str)))
    return (
        changes,
        [row["n"] not in chosen for _, row in changes],
        {key: row for key, row in table.items() if row["n"] not in chosen},
    )


def fold(value: Format, read: list[tuple[Any, Any]]) -> dict[int, Row]:
    """The table of a reader that sees these messages."""
    table: dict[int, Row | None] = {}
    for key, message in read:
        if isinstance(value, Json):
            table[json.loads(key)["id"]] = message
            continue
        if message is None:
            continue
        debezium = isinstance(value, DebeziumJson)
        after = message["after"] if debezium else message["data"][0] if message["type"] != "DELETE" else None
        before = message["before"] if debezium else (message["old"] or message["data"])[0]
        if before is not None:
            table.pop(before["id"], None)
        if after is not None:
            table[after["id"]] = after
    return {key: row for key, row in table.items() if row is not None}


@pytest.mark.parametrize("value", [Json(), DebeziumJson(), CanalJson()], ids=["json", "debezium-json", "canal-json"])
@settings(max_examples=examples(400))
@given(history=histories(), partitions=st.permutations(range(3)), data=st.data())
def test_readers_of_partitions_and_of_compacted_topics_get_the_rows(
    value: Format, history: tuple[list[tuple[str, Row]], list[bool], dict[int, Row]], partitions: list[int],
    data: st.DataObject,
) -> None:  # fmt: skip
    changes, passes, expected = history
    cut = data.draw(st.integers(0, len(changes)))
    batches = (rows(*changes[:cut], passes=passes[:cut]), rows(*changes[cut:], passes=passes[cut:]))
    written = messages(sink(value), *batches)

    by_partition = [one for partition in partitions for one in written if zlib.crc32(one[0]) % 3 == partition]
    last = {key: (key, message) for key, message in written}
    compacted = [last[key] for key in sorted(last, key=zlib.crc32)]

    assert fold(value, by_partition) == expected
    assert fold(value, compacted) == expected


@pytest.mark.parametrize("soft_delete", [False, True])
@pytest.mark.parametrize("passes", [(a, b) for a in (True, False, None) for b in (True, False, None)])
@pytest.mark.parametrize("cut", [0, 1, 2])
def test_the_filter_decides_on_both_rows_of_an_update(
    soft_delete: bool, passes: tuple[bool | None, bool | None], cut: int
) -> None:
    before, after = ONE, {"n": "b", "id": 2}
    deleted = "+I" if soft_delete else "-D"
    expected = {
        (True, True): [("-U", before), ("+U", after)],
        (True, False): [(deleted, before)],
        (False, True): [("+I", after)],
        (False, False): [],
    }[passes[0] or False, passes[1] or False]
    whole = rows(("-U", before), ("+U", after), ("-D", TWO), ("+I", ONE), passes=[*passes, True, True])  # type: ignore[list-item]
    parts = [whole.slice(0, cut), whole.slice(cut)]

    left = [row for batch in filter_changes(iter(parts), soft_delete=soft_delete) for row in batch.to_pylist()]

    kinds = [(row.pop(KIND), row) for row in left]
    assert kinds == [*expected, (deleted, TWO), ("+I", ONE)]


def test_changes_of_no_rows() -> None:
    changes = find_changes(np.array([], dtype=np.int64), np.array([], dtype=bool))
    assert len(changes.before) == len(changes.after) == 0
    assert ROW_KINDS[1] == "-U"


KINDS = {
    "i": t.Int(), "b": t.BigInt(nullable=False), "d": t.Decimal(10, 2), "f": t.Double(), "o": t.Boolean(),
    "day": t.Date(), "at": t.Timestamp(3), "us": t.Timestamp(6), "zoned": t.TimestampLtz(6), "raw": t.BYTES,
    "s": t.STRING,
}  # fmt: skip
VALUES: dict[str, Any] = {
    "i": -1, "b": 2**60, "d": Decimal("-12.34"), "f": 0.5, "o": True, "day": date(2024, 2, 29),
    "at": datetime(2024, 2, 29, 1, 2, 3, 4000), "us": datetime(2024, 2, 29, 1, 2, 3, 4),
    "zoned": datetime(2024, 2, 29, 1, 2, 3, 4, UTC), "raw": b"\0\xff", "s": "é",
}  # fmt: skip


def test_messages_with_their_schema_are_read_with_the_same_types_and_values() -> None:
    columns = tuple(t.Field(name, kind) for name, kind in KINDS.items())
    schema = TableSchema(columns, ("b",))
    nulls = {name: None if KINDS[name].nullable else VALUES[name] for name in VALUES}
    arrays = [pa.array([VALUES[f.name], nulls[f.name]], f.type) for f in arrow_schema(t.Row(columns))]
    batch = pa.RecordBatch.from_arrays([pa.array(["+I", "+I"]), *arrays], [KIND, *KINDS])
    encoded = list(encode_rows(sink(include_schema=True), ("shop", "t"), schema, iter([batch])))

    raw = records(*encoded[0].column("value").to_pylist())
    source = feed(value=DebeziumJson(schema_include=True))
    (packet,) = split(source, raw).packets
    assert packet.delta is not None
    shown = {f.name: f.type for f in packet.delta.schema.columns}
    assert shown == {name: kind.as_nullable() for name, kind in KINDS.items()}
    decoder = RecordDecoder(plan_table(source, packet.table, UpstreamTable(packet.delta.schema)))
    read = [{name: row[name] for name in VALUES} for row in decoder.decode(packet.records).to_pylist()]
    assert read == [VALUES, nulls]


@pytest.mark.parametrize("headers", [(), (("from", "here"),)])
def test_packets_are_encoded_as_their_rows_are(headers: tuple[tuple[str, str], ...]) -> None:
    source, to = feed(value=DebeziumJson()), sink()
    events = [("c", None, ONE), ("u", ONE, TWO), ("d", TWO, None)]
    raw = records(
        *({"op": op, "before": before, "after": after, "source": {"db": "shop", "table": name}}
          for name in ("orders", "notes") for op, before, after in events)
    )  # fmt: skip
    (packets,) = split_task(divider(source))(iter([as_rows(raw)]))
    expected, tables = [], {}
    for packet in split(source, raw).packets:
        assert packet.delta is not None
        schema = TableSchema(packet.delta.schema.columns, ("id",))
        plan = plan_table(source, packet.table, UpstreamTable(packet.delta.schema))
        rows = RecordDecoder(plan).decode(packet.records)
        expected += messages(to, rows, table=packet.table, schema=schema)
        tables[".".join(packet.table)] = [PlainTable(plan, packet.table, schema, f"to-{packet.table[1]}", headers)]

    encoded = [row for b in encode_packets(to, tables, 0, "UTC", iter([packets])) for row in b.to_pylist()]
    assert [(row["key"], json.loads(row["value"])) for row in encoded] == expected
    assert [row["topic"] for row in encoded] == ["to-orders"] * 3 + ["to-notes"] * 3
    assert {row["partition"] for row in encoded} == {0}
    shown = [{"key": name, "value": value.encode()} for name, value in headers] or None
    assert all(row["headers"] == shown for row in encoded)
    assert list(encode_packets(to, {}, None, "UTC", iter([packets]))) == []
