"""Tables inferred from what records look like, and from a real topic and a real registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kdsl import ROW_KIND, CanalJson, Cluster, DebeziumJson, Json, MaxwellJson, OggJson, Raw
from kdsl.cluster import Registry
from kdsl.codegen import CodegenError, to_python
from kdsl.codegen.inputs.inferred import inferred
from kdsl.codegen.inputs.registry import registry_draft
from kdsl.codegen.inputs.topic import seen, topic_draft
from kdsl.codegen.model import TopicFormat
from kdsl.declare.connector import KafkaOptions, UpsertOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.formats import Format
from kdsl.inspect.peek import last_records
from kdsl.registry.client import RegistryClient
from kdsl.registry.model import RegisteredSchema
from kdsl.resolve import problems
from kdsl.table import Table
from kdsl.testing import LocalKafka, Record
from kdsl.types import model as t
from tests.codegen.tables import definitions, module
from tests.registry.front import Front, recorded

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
def test_types_are_widened_until_they_hold_all_values(values: list[Any], kind: t.DataType) -> None:
    assert inferred(values) == kind


@pytest.mark.parametrize(
    ("messages", "kind", "format_name", "columns"),
    [
        ([b'{"a": 1}', b'{"a": 2, "b": null}'], None, "json", {"a": LONG, "b": t.STRING}),
        ([b"1,x", b"2,y"], "csv", "csv", {"column_0": LONG, "column_1": TEXT}),
        ([b"1;2.5", b";2"], "csv", "csv", {"column_0": t.BigInt(), "column_1": DOUBLE}),
        ([b"plain words", b"[1]"], None, "raw", {"value": t.STRING}),
        ([b"\xff\x00"], None, "raw", {"value": t.BYTES}),
        ([b'{"a": 1}'], "raw", "raw", {"value": t.STRING}),
        ([], None, "raw", {"value": t.STRING}),
    ],
)
def test_formats_are_told_by_the_bytes(
    messages: list[bytes], kind: TopicFormat | None, format_name: str, columns: dict[str, t.DataType]
) -> None:
    found = seen(messages, NOWHERE, kind, "value")

    assert found.format.identifier == format_name
    assert {c.name: c.type for c in found.columns} == columns


@pytest.mark.parametrize(
    ("messages", "kind", "told"),
    [
        ([b'{"a": 1}', b"x"], "json", "1 of 2 values are no JSON objects: 78"),
        ([b"\xff"], "csv", "is no UTF-8"),
        ([b"\x00\x00\x00\x00\x01x"], "avro-confluent", "needs the schema registry"),
    ],
)
def test_messages_of_another_kind_are_told(messages: list[bytes], kind: TopicFormat, told: str) -> None:
    with pytest.raises(CodegenError, match=told):
        seen(messages, NOWHERE, kind, "value")


def test_numbers_that_begin_like_messages_of_a_registry_are_bytes() -> None:
    messages = [n.to_bytes(8, "big") for n in (1, 70_000)]
    with Front(recorded({})) as front:
        found = seen(messages, Cluster("nowhere:1", registry=front.url), None, "key")

    assert (found.format, found.columns) == (Raw(), (ColumnDef("key", t.BYTES),))
    assert "they may name schemas, but the registry" in found.notes[0]


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
@pytest.mark.parametrize("told", [True, False])
def test_changes_are_tables_of_the_rows_inside_them(
    changes: list[Any], expected: Format, told: bool, tmp_path: Path
) -> None:
    messages = [json.dumps(change).encode() for change in changes]
    kind: Any = expected.identifier if told else None
    found = seen(messages, NOWHERE, kind, "value")

    assert found.format == expected
    assert {c.name: c.type for c in found.columns} == {"id": LONG, "name": TEXT, "weight": DOUBLE}
    table = TableDef("t", found.columns, options=KafkaOptions(topic=("t",)), value_format=found.format)
    (again,) = definitions(module(to_python(table), tmp_path))
    assert (again, problems(again, "read")) == (table, [])
    row = t.Row(tuple(t.Field(c.name, c.type) for c in found.columns), nullable=False)
    decoded = found.format.decoder(row).decode(pa.array(messages, pa.binary()))
    assert decoded.bad == ()
    assert decoded.rows[0].as_py() == ROW


def test_what_only_looks_like_changes_is_json() -> None:
    for objects in (
        [CHANGE, {**CHANGE, "op": "x"}],
        [CHANGE, ROW],
        [{**MAXWELL, "data": "x"}],
        [{**CHANGE, "after": 1}],
    ):
        messages = [json.dumps(one).encode() for one in objects]
        assert seen(messages, NOWHERE, None, "value").format == Json()
    assert seen([json.dumps(CHANGE).encode()], NOWHERE, "json", "value").format == Json()
    with pytest.raises(CodegenError, match="no changes of the format 'ogg-json', but of 'debezium-json'"):
        seen([json.dumps(CHANGE).encode()], NOWHERE, "ogg-json", "value")


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
    assert (with_schema.table.value_format, with_schema.table.key_format) == (DebeziumJson(schema_include=True), None)
    assert "are left out" in with_schema.notes[1]


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
    assert draft.notes[0] == "inferred from the last 2 records of the topic 'seen'; others may look otherwise"
    assert problems(table, "read") == []
    rows = last_records(Table(table).read_plan(cluster=cluster), cluster, 2).to_pylist()
    assert sorted(row["at"]["x"] for row in rows) == [1.0, 1.5]


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
        "the topic is compacted, so its records are read as the rows that now hold, by their keys",
        "1 of them have no value (tombstones), which delete the rows of their keys",
    )
    assert [problems(table, direction) for direction in ("read", "write")] == [[], []]
    rows = last_records(Table(table).read_plan(cluster=cluster), cluster, 3).to_pylist()
    assert rows == [{ROW_KIND: "+U", "id": 1, "name": "Ann"}, {ROW_KIND: "-D", "id": 1, "name": None}]
    assert topic_draft("users-seen", cluster, connector="kafka").table.options == KafkaOptions(topic=("users-seen",))


@pytest.mark.kafka
def test_another_topic_is_one_where_that_is_said(kdsl_kafka: LocalKafka, tmp_path: Path) -> None:
    kdsl_kafka.create_topic("users-said", partitions=1)
    kdsl_kafka.produce("users-said", Record('{"name": "Ann"}', key="u1"))
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    table = topic_draft("users-said", cluster, connector="upsert-kafka").table

    assert table.primary_key == ("key_key",)
    assert table.options == UpsertOptions(topic=("users-said",), key_prefix="key_", value_fields="EXCEPT_KEY")
    assert definitions(module(to_python(table), tmp_path)) == [table]
    assert problems(table, "read") == []
    kdsl_kafka.produce("users-said", Record('{"name": "Bob"}'))
    with pytest.raises(CodegenError, match="no upsert table: 1 of its last 2 records have no message key"):
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
def test_an_empty_topic_and_one_that_is_not_there_are_told(kdsl_kafka: LocalKafka) -> None:
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
