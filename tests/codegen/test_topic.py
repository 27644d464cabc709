"""Tables inferred from what records look like, and from a real topic and a real registry."""

from __future__ import annotations

import json
from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kdsl import ROW_KIND, CanalJson, Cluster, DebeziumJson, Json, MaxwellJson, OggJson, Raw
from kdsl.cluster import Registry
from kdsl.codegen import CodegenError, to_python
from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.diagnostics.peek import last_records
from kdsl.formats import Format
from kdsl.registry.client import RegistryClient
from kdsl.registry.model import RegisteredSchema
from kdsl.resolve import problems
from kdsl.schemas.model import TopicFormat
from kdsl.schemas.registry import registry_draft
from kdsl.schemas.topic import draft_records, infer_side, topic_draft
from kdsl.table import Table
from kdsl.testing import LocalKafka, Record
from kdsl.types import model as t
from kdsl_formats.json.nested_inference import infer_type
from tests.codegen.tables import definitions, module
from tests.formats import debezium_messages
from tests.registry.front import Front, serve_schemas

if TYPE_CHECKING:
    from kdsl.testing import LocalRegistry

NOWHERE = Cluster("localhost:1")
TEXT, LONG, DOUBLE = (k.as_nullable(False) for k in (t.STRING, t.BigInt(), t.Double()))


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2], LONG),
        ([1, 2.5], DOUBLE),
        ([1, None], t.BigInt()),
        ([None], t.STRING),
        ([1 << 70], t.Decimal(38, 0, nullable=False)),
        ([1 << 70, 1], t.Decimal(38, 0, nullable=False)),
        ([1 << 70, 1.5], TEXT),
        ([10**38 - 1, 1 - 10**38], t.Decimal(38, 0, nullable=False)),
        ([10**38], TEXT),
        ([-(10**38), 1], TEXT),
        ([True, 1], TEXT),
        (["a", {"b": 1}], TEXT),
        ([[1], []], t.Array(LONG, nullable=False)),
        ([[1], ["a", None]], t.Array(t.STRING, nullable=False)),
        ([[]], t.Array(t.STRING, nullable=False)),
        ([{}], t.Map(TEXT, t.STRING, nullable=False)),
        ([{"a": 1}, {"b": "x"}], t.Row((t.Field("a", t.BigInt()), t.Field("b", t.STRING)), nullable=False)),
        ([{"a": {"b": 1}}, {"a": {"b": 1.5}}],
         t.Row((t.Field("a", t.Row((t.Field("b", DOUBLE),), nullable=False)),), nullable=False)),
    ],
)  # fmt: skip
def test_types_are_widened_until_they_fit_all_values(values: list[Any], kind: t.DataType) -> None:
    assert infer_type(values) == kind


TIMES = ("2024-01-01", "2024-01-01 10:00:00", "2024-01-01T10:00:00Z", "10:00:00.5")
VALUES = ("x", True, 1, 1 << 70, 1 << 130, 1.5)


def test_different_times_are_strings_and_those_beside_them_stay_times() -> None:
    """A format with declared columns reads strings of only one of the types; that of a catalog reads all."""
    for one, other in permutations(TIMES, 2):
        row = infer_type([{"at": one, "on": "2024-01-01"}, {"at": other, "on": "2024-01-02"}], times=True)

        assert row == t.Row((t.Field("at", TEXT), t.Field("on", t.Date(nullable=False))), nullable=False)


@pytest.mark.parametrize("one", [*TIMES, *VALUES])
def test_a_catalog_infers_the_same_types(one: Any) -> None:
    for other in (one, *VALUES):
        messages = [json.dumps({"c": value}).encode() for value in (one, other)]
        observer = Json().observer()
        assert observer is not None
        (delta,) = observer.observe(pa.array(messages, pa.binary()), {}).deltas

        (column,) = infer_side(messages, NOWHERE, None, "value").columns

        assert column.type == delta.schema.columns[0].type.as_nullable(False), messages


@pytest.mark.parametrize(
    ("messages", "kind", "format_name", "columns"),
    [
        ([b'{"a": 1}', b'{"a": 2, "b": null}'], None, "json", {"a": LONG, "b": t.STRING}),
        ([b"null", b'{"a": 1}'], None, "json", {"a": LONG}),
        ([b"null", b"words"], None, "raw", {"value": t.STRING}),
        ([b"1,x", b"2,y"], "csv", "csv", {"column_0": LONG, "column_1": TEXT}),
        ([b"1;2.5", b";2"], "csv", "csv", {"column_0": t.BigInt(), "column_1": DOUBLE}),
        ([b"1,a\rb", b"2,c"], "csv", "csv", {"column_0": LONG, "column_1": TEXT}),
        ([b"1," + b"x" * 200_000], "csv", "csv", {"column_0": LONG, "column_1": TEXT}),
        ([b"1_000,1_0.5"], "csv", "csv", {"column_0": TEXT, "column_1": TEXT}),
        (["١٢,\U0001d7cf,1f".encode()], "csv", "csv", {"column_0": TEXT, "column_1": TEXT, "column_2": TEXT}),
        ([b" 1 ,+2,1e3"], "csv", "csv", {"column_0": LONG, "column_1": LONG, "column_2": DOUBLE}),
        ([b"9" * 5000 + b",1"], "csv", "csv", {"column_0": TEXT, "column_1": LONG}),
        ([b'"a,b";1'], "csv", "csv", {"column_0": TEXT, "column_1": LONG}),
        ([b"plain words", b"[1]"], None, "raw", {"value": t.STRING}),
        ([b"\xff\x00"], None, "raw", {"value": t.BYTES}),
        ([b'{"a": 1}'], "raw", "raw", {"value": t.STRING}),
        ([], None, "raw", {"value": t.STRING}),
    ],
)
def test_formats_are_detected_from_the_bytes(
    messages: list[bytes], kind: TopicFormat | None, format_name: str, columns: dict[str, t.DataType]
) -> None:
    side = infer_side(messages, NOWHERE, kind, "value")

    assert side.format.identifier == format_name
    assert {c.name: c.type for c in side.columns} == columns


@pytest.mark.parametrize("kind", [None, "json"])
def test_messages_that_are_null_as_connect_writes_them_are_tombstones(kind: TopicFormat | None) -> None:
    assert infer_side([b'{"a": 1}', b"null"], NOWHERE, kind, "value").format == Json(null_is_tombstone=True)
    assert infer_side([b'{"a": 1}'], NOWHERE, kind, "value").format == Json()


@pytest.mark.parametrize(
    ("messages", "kind", "message"),
    [
        ([b'{"a": 1}', b"x"], "json", "1 of 2 values are not JSON objects; the first one is 'x'"),
        ([b"\xff"], "csv", "is not UTF-8"),
        ([b'"a"b,c'], "csv", "is not csv: 'b' follows a closing quote at character 4"),
        ([b"a,b", b""], "csv", "is not csv: the message is empty"),
        ([b"\x00\x00\x00\x00\x01x"], "avro-confluent", "needs the schema registry"),
    ],
)
def test_messages_of_another_kind_are_reported(messages: list[bytes], kind: TopicFormat, message: str) -> None:
    with pytest.raises(CodegenError, match=message):
        infer_side(messages, NOWHERE, kind, "value")


def test_numbers_that_begin_like_messages_of_a_registry_are_bytes() -> None:
    messages = [n.to_bytes(8, "big") for n in (1, 70_000)]
    with Front(serve_schemas({})) as front:
        side = infer_side(messages, Cluster("nowhere:1", registry=front.url), None, "key")

    assert (side.format, side.columns) == (Raw(), (ColumnDef("key", t.BYTES),))
    assert "they may name schemas, but the registry" in side.notes[0]


@pytest.mark.parametrize(
    ("topic", "chosen"),
    [
        ("json.shop.full", DebeziumJson(timestamp_format="ISO-8601")),  # with a truncate among them
        (
            "schemas.shop.full",
            DebeziumJson(schema_include=True, decimal_handling_mode="precise", time_precision_mode="adaptive"),
        ),
        ("unwrapped.shop.default", Json(null_is_tombstone=True, timestamp_format="ISO-8601")),
    ],
)
def test_messages_of_a_real_debezium_are_known(topic: str, chosen: Format) -> None:
    messages = [m.value for m in debezium_messages.load_messages(topic) if m.value is not None]
    assert infer_side(messages, NOWHERE, None, "value").format == chosen


ROW = {"id": 1, "name": "x", "weight": 1.5}
CHANGE = {"before": None, "after": ROW, "source": {"db": "d"}, "op": "c"}
CANAL = {"data": [{"id": "1", "name": "x", "weight": "1.5"}], "old": None, "type": "INSERT",
         "sqlType": {"id": 4, "name": 12, "weight": 7}}  # fmt: skip
MAXWELL = {"database": "d", "table": "t", "type": "insert", "data": ROW}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([CHANGE, {**CHANGE, "before": ROW, "op": "u"}, {**CHANGE, "before": ROW, "after": None, "op": "d"}],
         DebeziumJson()),
        ([{"schema": {"type": "struct"}, "payload": CHANGE}], DebeziumJson(schema_include=True)),
        ([CANAL, {**CANAL, "type": "UPDATE", "old": [{"name": "y"}]}, {"data": None, "type": "CREATE"}], CanalJson()),
        ([MAXWELL, {**MAXWELL, "type": "update", "old": {"weight": 2.5}}], MaxwellJson()),
        ([{"table": "t", "op_type": "I", "after": ROW}, {"table": "t", "op_type": "D", "before": ROW}], OggJson()),
    ],
)  # fmt: skip
@pytest.mark.parametrize("message", [True, False])
def test_changes_are_tables_of_the_rows_inside_them(
    changes: list[Any], expected: Format, message: bool, tmp_path: Path
) -> None:
    messages = [json.dumps(change).encode() for change in changes]
    kind: Any = expected.identifier if message else None
    side = infer_side(messages, NOWHERE, kind, "value")

    assert side.format == expected
    assert {c.name: c.type for c in side.columns} == {"id": LONG, "name": TEXT, "weight": DOUBLE}
    table = TableDef("t", side.columns, options=KafkaOptions(topic=("t",)), value_format=side.format)
    (again,) = definitions(module(to_python(table), tmp_path))
    assert (again, problems(again, "read")) == (table, [])
    row = t.Row(tuple(t.Field(c.name, c.type) for c in side.columns), nullable=False)
    decoded = side.format.decoder(row).decode(pa.array(messages, pa.binary()))
    assert decoded.bad == ()
    assert decoded.rows[0].as_py() == ROW


def field(name: str, kind: str, of: str | None = None, *, optional: bool = True, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name, **({"name": of, "version": 1} if of else {}), **more}


FIELDS = [
    field("id", "int64", optional=False),
    field("amount", "bytes", "org.apache.kafka.connect.data.Decimal", optional=False,
          parameters={"scale": "2", "connect.decimal.precision": "10"}),
    field("price", "struct", "io.debezium.data.VariableScaleDecimal",
          fields=[field("scale", "int32", optional=False), field("value", "bytes", optional=False)]),
    field("day", "int32", "io.debezium.time.Date"),
    field("at", "int64", "io.debezium.time.MicroTimestamp", optional=False),
    field("seen", "string", "io.debezium.time.ZonedTimestamp"),
    field("tags", "array", items={"type": "string", "optional": True}),
    field("state", "string", "io.debezium.data.Enum", optional=False, parameters={"allowed": "a,b"}),
]  # fmt: skip
TYPED = {
    "id": 1, "amount": "AegB", "price": {"scale": 1, "value": "MDk="}, "day": 19_000, "at": 1_700_000_000_123_456,
    "seen": "2024-05-01T12:30:00.5Z", "tags": ["x", None], "state": "a",
}  # fmt: skip
TYPES = {
    "id": "BIGINT NOT NULL", "amount": "DECIMAL(10, 2) NOT NULL", "price": "DECIMAL(38, 18)", "day": "DATE",
    "at": "TIMESTAMP(6) NOT NULL", "seen": "TIMESTAMP_LTZ(6)", "tags": "ARRAY<STRING>", "state": "STRING NOT NULL",
}  # fmt: skip


@pytest.mark.parametrize("changes", [True, False])
def test_the_schema_inside_messages_determines_the_types(changes: bool, tmp_path: Path) -> None:
    row = {"type": "struct", "fields": FIELDS, "optional": changes}
    images = [{**row, "field": name} for name in ("before", "after")]
    schema = {"type": "struct", "fields": [*images, field("op", "string")], "optional": False} if changes else row
    payload = {"before": None, "after": TYPED, "op": "c"} if changes else TYPED
    messages = [json.dumps({"schema": schema, "payload": payload}).encode()]

    side = infer_side(messages, NOWHERE, None, "value")

    chosen = DebeziumJson if changes else Json
    assert side.format == chosen(schema_include=True, decimal_handling_mode="precise", time_precision_mode="adaptive")
    assert {c.name: str(c.type) for c in side.columns} == TYPES
    assert "price: each value has its own scale" in side.notes[0]
    table = TableDef("t", side.columns, options=KafkaOptions(topic=("t",)), value_format=side.format)
    (again,) = definitions(module(to_python(table), tmp_path))
    assert (again, problems(again, "read")) == (table, [])
    kind = t.Row(tuple(t.Field(c.name, c.type) for c in side.columns), nullable=False)
    decoded = side.format.decoder(kind).decode(pa.array(messages, pa.binary()))
    assert decoded.bad == ()
    assert decoded.rows[0]["amount"].as_py() == Decimal("1249.29")
    assert decoded.rows[0]["price"].as_py() == Decimal("1234.5")


def test_the_last_schema_inside_messages_that_is_not_null_decides() -> None:
    schemas = [{"type": "struct", "fields": [field("id", kind)]} for kind in ("int32", "int64")]
    rows = [*({"schema": schema, "payload": {"id": 1}} for schema in schemas), {"schema": None, "payload": {"id": 2}}]

    side = infer_side([json.dumps(row).encode() for row in rows], NOWHERE, None, "value")

    assert (side.format, side.columns) == (Json(schema_include=True), (ColumnDef("id", t.BigInt()),))
    assert side.notes[-1] == "the messages have 2 schemas; the table is that of the last message"


def test_the_schema_of_messages_without_a_row_determines_the_types() -> None:
    message = {"schema": {"type": "struct", "fields": [field("id", "int64")]}, "payload": None}

    side = infer_side([json.dumps(message).encode()] * 3, NOWHERE, None, "value")

    assert isinstance(side.format, Json)
    assert side.format.schema_include
    assert {c.name: str(c.type) for c in side.columns} == {"id": "BIGINT"}


def test_rows_with_columns_schema_and_payload_are_plain_rows() -> None:
    for row in ({"schema": "v1", "payload": {"id": 1}}, {"schema": {"type": "struct"}, "payload": {"id": 1}, "n": 2}):
        side = infer_side([json.dumps(row).encode()], NOWHERE, None, "value")

        assert (side.format, [c.name for c in side.columns]) == (Json(), list(row))


def test_the_setting_that_writes_most_times_is_taken() -> None:
    fields = [field(name, "int64", "org.apache.kafka.connect.data.Timestamp") for name in ("a", "b")]
    fields.append(field("c", "int64", "io.debezium.time.MicroTimestamp"))
    schema = {"type": "struct", "fields": fields, "optional": False}
    side = infer_side(
        [json.dumps({"schema": schema, "payload": {"a": 1, "b": 2, "c": 3}}).encode()], NOWHERE, None, "value"
    )

    assert side.format == Json(schema_include=True, time_precision_mode="connect")
    assert [str(c.type) for c in side.columns] == ["TIMESTAMP(3)", "TIMESTAMP(3)", "BIGINT"]
    assert side.notes[0].startswith("c: it is a io.debezium.time.MicroTimestamp, which")


def test_what_looks_like_decimals_and_times_is_noted() -> None:
    rows = [
        {"id": 1, "state": "PAID", "amount": "AegB", "fee": "/w==", "birth_date": 9_000, "at": 1_700_000_000_123_456},
        {"id": 2, "state": "NEW", "amount": "AQ==", "fee": None, "birth_date": -40, "at": 1_700_000_001_123_456},
    ]
    side = infer_side([json.dumps(row).encode() for row in rows], NOWHERE, None, "value")

    assert side.format == Json()
    assert [note.split(":")[0] for note in side.notes] == [
        "amount, fee look like decimals in base64, as Debezium and Kafka Connect write them",
        "at looks like microseconds since 1970",
        "birth_date looks like days since 1970",
    ]
    infinite = [
        {"on_date": -2_147_472_692, "at": 9_223_372_036_825_200},
        {"on_date": -719_162, "at": -62_135_596_800_000},
    ]
    side = infer_side([json.dumps(row).encode() for row in infinite], NOWHERE, None, "value")
    assert [note.split(":")[0] for note in side.notes] == [
        "at looks like milliseconds since 1970",
        "on_date looks like days since 1970",
    ]
    several = infer_side([b'{"price": {"scale": 2, "value": "AegB"}}'], NOWHERE, None, "value")
    assert several.notes[0].startswith("price looks like decimals that each have their own scale")
    plain = [{"id": 1, "state": "PAID", "code": "ABCD", "at": 5, "day": 31}]
    assert infer_side([json.dumps(row).encode() for row in plain], NOWHERE, None, "value").notes == ()


def test_a_few_messages_that_are_not_changes_do_not_hide_the_others() -> None:
    messages = [json.dumps(one).encode() for one in (CHANGE, CHANGE, {**CHANGE, "op": "x"})]

    assert infer_side(messages, NOWHERE, None, "value").format == DebeziumJson()


def test_a_message_that_is_not_a_change_is_noted_for_a_table_of_one_column_too() -> None:
    changes = [{"op": "c", "after": {"id": 1}}, {"op": "c", "after": {"id": 2}}, {"id": 3}]

    draft = draft_records("orders", NOWHERE, [{"key": None, "value": json.dumps(one).encode()} for one in changes])

    assert draft.table.columns == (ColumnDef("id", LONG),)
    assert draft.notes[-1].startswith("1 of the 3 records cannot be read: there is no member 'op'")


def test_updates_without_the_row_before_them_are_changes_and_the_advice_about_them_is_noted() -> None:
    """Debezium's connector for Postgres writes them unless the REPLICA IDENTITY is FULL."""
    changes = [CHANGE, *[{**CHANGE, "op": "u"}] * 3, {"op": "t"}]
    records = [{"key": None, "value": json.dumps(change).encode()} for change in changes]

    draft = draft_records("orders", NOWHERE, records)

    assert draft.table.value_format == DebeziumJson()
    assert any("set the table's REPLICA IDENTITY to FULL" in note for note in draft.notes)


def test_what_only_looks_like_changes_is_json() -> None:
    for objects in (
        [CHANGE, {**CHANGE, "op": "x"}],
        [CHANGE, ROW],
        [{**MAXWELL, "data": "x"}],
        [{**CHANGE, "after": 1}],
    ):
        messages = [json.dumps(one).encode() for one in objects]
        assert infer_side(messages, NOWHERE, None, "value").format == Json()
    assert infer_side([json.dumps(CHANGE).encode()], NOWHERE, "json", "value").format == Json()
    with pytest.raises(CodegenError, match="not changes of the format 'ogg-json', but of 'debezium-json'"):
        infer_side([json.dumps(CHANGE).encode()], NOWHERE, "ogg-json", "value")


@pytest.mark.kafka
def test_a_table_of_a_topic_of_changes_reads_them(kdsl_kafka: LocalKafka) -> None:
    kdsl_kafka.create_topic("changes-seen", partitions=1)
    gone = {**CHANGE, "before": ROW, "after": None, "op": "d"}
    records = [Record(json.dumps(CHANGE), key='{"id": 1}'), Record(json.dumps(gone), key='{"id": 1}')]
    kdsl_kafka.produce("changes-seen", *records, Record(None, key='{"id": 1}'))
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    draft = topic_draft("changes-seen", cluster)

    assert len(draft.notes) == 1  # a tombstone behind a delete is nothing to tell
    assert (draft.table.value_format, draft.table.message_key) == (DebeziumJson(), ("id",))
    rows = last_records(Table(draft.table).read_plan(cluster=cluster), cluster, 3).to_pylist()
    assert [row[ROW_KIND] for row in rows] == ["+I", "-D"]

    kdsl_kafka.create_topic("changes-with-schema", partitions=1)
    whole = [json.dumps({"schema": {"type": "struct"}, "payload": part}) for part in ({"id": 1}, CHANGE)]
    kdsl_kafka.produce("changes-with-schema", Record(whole[1], key=whole[0]))
    with_schema = topic_draft("changes-with-schema", cluster)
    assert with_schema.table.value_format == DebeziumJson(schema_include=True)
    assert (with_schema.table.key_format, with_schema.table.message_key) == (Json(schema_include=True), ("id",))
    rows = last_records(Table(with_schema.table).read_plan(cluster=cluster), cluster, 1).to_pylist()
    assert [row["id"] for row in rows] == [1]


@pytest.mark.kafka
def test_a_table_of_a_real_topic_reads_its_records(kdsl_kafka: LocalKafka, tmp_path: Path) -> None:
    kdsl_kafka.create_topic("seen", partitions=2)
    kdsl_kafka.produce(
        "seen",
        Record('{"id": 1, "at": {"x": 1}}', key='{"id": 1}'),
        Record('{"id": 2, "at": {"x": 1.5, "y-z": null}}', key='{"id": 2}'),
    )
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    draft = topic_draft("seen", cluster)

    (table,) = definitions(module(to_python(draft), tmp_path))
    assert table == draft.table
    assert (table.key_format, table.message_key) == (Json(), ("id",))
    assert draft.notes[0] == "inferred from the last 2 records of the topic 'seen'; other records may differ"
    assert problems(table, "read") == []
    rows = last_records(Table(table).read_plan(cluster=cluster), cluster, 2).to_pylist()
    assert sorted(row["at"]["x"] for row in rows) == [1.0, 1.5]


@pytest.mark.kafka
def test_the_last_records_of_each_partition_are_inspected(kdsl_kafka: LocalKafka) -> None:
    kdsl_kafka.create_topic("seen-apart", partitions=2, config={"retention.ms": "-1"})
    older = Record('{"old": 1}', partition=0, timestamp=1)
    newer = (Record('{"new": 1}', partition=1, timestamp=at) for at in (2, 3))
    kdsl_kafka.produce("seen-apart", older, *newer)

    draft = topic_draft("seen-apart", Cluster(kdsl_kafka.bootstrap_servers), records=1)

    assert [c.name for c in draft.table.columns] == ["old", "new"]


@pytest.mark.kafka
def test_a_compacted_topic_with_keys_is_an_upsert_table(kdsl_kafka: LocalKafka, tmp_path: Path) -> None:
    kdsl_kafka.create_topic("users-seen", partitions=1, config={"cleanup.policy": "compact"})
    records = [Record('{"id": 1, "name": "Ann"}', key='{"id": 1}'), Record(None, key='{"id": 1}')]
    kdsl_kafka.produce("users-seen", *records)
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    draft = topic_draft("users-seen", cluster)

    (table,) = definitions(module(to_python(draft), tmp_path))
    assert table == draft.table
    assert table.options == UpsertOptions(topic=("users-seen",))
    assert (table.primary_key, table.message_key) == (("id",), ("id",))
    assert draft.notes[1:] == (
        "the topic is compacted; therefore its records are read as upserts of the rows of their keys",
        "1 of them have no value (tombstones), which delete the rows of their keys",
    )
    assert [problems(table, direction) for direction in ("read", "write")] == [[], []]
    rows = last_records(Table(table).read_plan(cluster=cluster), cluster, 3).to_pylist()
    assert rows == [{ROW_KIND: "+U", "id": 1, "name": "Ann"}, {ROW_KIND: "-D", "id": 1, "name": None}]
    as_records = topic_draft("users-seen", cluster, connector="kafka").table
    assert as_records.options == KafkaOptions(topic=("users-seen",), startup="earliest-offset")


@pytest.mark.kafka
def test_another_topic_is_a_difference_if_requested(kdsl_kafka: LocalKafka, tmp_path: Path) -> None:
    kdsl_kafka.create_topic("users-said", partitions=1)
    kdsl_kafka.produce("users-said", Record('{"name": "Ann"}', key="u1"))
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    table = topic_draft("users-said", cluster, connector="upsert-kafka").table

    assert table.primary_key == ("key_key",)
    assert table.options == UpsertOptions(topic=("users-said",), key_prefix="key_", value_fields="EXCEPT_KEY")
    assert definitions(module(to_python(table), tmp_path)) == [table]
    assert problems(table, "read") == []
    kdsl_kafka.produce("users-said", Record('{"name": "Bob"}'))
    with pytest.raises(CodegenError, match="as an upsert table: 1 of its last 2 records have no message key"):
        topic_draft("users-said", cluster, connector="upsert-kafka")


@pytest.mark.kafka
def test_an_upsert_table_of_the_two_subjects_of_a_topic(kdsl_registry: LocalRegistry, tmp_path: Path) -> None:
    registry = Registry(kdsl_registry.url)
    client = RegistryClient(registry)

    def register(subject: str, *fields: tuple[str, str]) -> None:
        schema = {"type": "record", "name": "User", "fields": [{"name": n, "type": k} for n, k in fields]}
        client.register(subject, RegisteredSchema(json.dumps(schema), "AVRO", ()))

    register("codegen-users-value", ("id", "long"), ("name", "string"))
    with pytest.raises(CodegenError, match="the registry has no subject 'codegen-users-key'"):
        registry_draft("codegen-users-value", registry, connector="upsert-kafka")
    register("codegen-users-key", ("id", "long"))

    draft = registry_draft("codegen-users-value", registry, connector="upsert-kafka")

    assert definitions(module(to_python(draft), tmp_path)) == [draft.table]
    assert draft.table.options == UpsertOptions(topic=("codegen-users",))
    assert draft.table.primary_key == ("id",)
    assert [c.name for c in draft.table.columns] == ["id", "name"]
    assert problems(draft.table, "read") == []


@pytest.mark.kafka
def test_an_empty_and_a_missing_topic_are_reported(kdsl_kafka: LocalKafka) -> None:
    kdsl_kafka.create_topic("empty", partitions=1)

    with pytest.raises(CodegenError, match="has no records"):
        topic_draft("empty", Cluster(kdsl_kafka.bootstrap_servers))


@pytest.mark.kafka
def test_a_subject_of_a_real_registry(kdsl_registry: LocalRegistry, tmp_path: Path) -> None:
    schema = json.loads((Path(__file__).parent / "data" / "orders.avsc").read_text(encoding="utf-8"))
    registry = Registry(kdsl_registry.url)
    RegistryClient(registry).register("codegen-value", RegisteredSchema(json.dumps(schema), "AVRO", ()))

    draft = registry_draft("codegen-value", registry)

    (table,) = definitions(module(to_python(draft), tmp_path))
    assert table.options.topic == ("codegen",)
    assert [c.name for c in table.columns] == [f["name"] for f in schema["fields"]]
    assert problems(table, "read") == []
