"""Debezium's events that are not plain changes, as a real one wrote them: TOAST, truncates, messages without rows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from kdsl.cluster import Registry
from kdsl.declare.document import read_tables
from kdsl.errors import RecordError
from kdsl.formats import ROW_KIND, UNAVAILABLE, Decoded, Use
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.registry import registry_client
from kdsl.registry.model import RegisteredSchema
from kdsl.resolve import problems, resolve
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.drops import Reason, count_by_column
from kdsl.testing import LocalRegistry
from kdsl.types import model as t
from kdsl_formats._registry.avro import schema_text
from kdsl_formats.cdc_json import DebeziumJson
from kdsl_formats.debezium_avro_confluent import DebeziumAvroConfluent
from tests.formats.debezium_messages import load_messages, load_schemas
from tests.run.records.test_decode import raw

TOAST = t.row(
    id=t.BigInt(nullable=False),
    a_text=t.STRING,
    a_bytea=t.BYTES,
    a_jsonb=t.STRING,
    texts=t.Array(t.STRING),
    integers=t.Array(t.Int()),
    bigints=t.Array(t.BigInt()),
    uuids=t.Array(t.STRING),
    an_hstore=t.STRING,
    dates=t.Array(t.Int()),
    counter=t.Int(),
)
NOT_SENT = ("a_text", "a_bytea", "a_jsonb", "texts", "integers", "bigints", "uuids", "an_hstore", "dates")
REST = {"an_xml", "numerics", "doubles", "timestamps", "booleans"}
MANY = 50
"""Copies of a few messages, which whole columns read."""


def decode(messages: Sequence[bytes | None], chosen: DebeziumJson | None = None, row: t.Row = TOAST) -> Decoded:
    return (chosen or DebeziumJson()).decoder(row).decode(pa.array(messages, pa.binary()))


def values(topic: str, *operations: str) -> list[bytes]:
    """Messages of some operations. An update without the row before it is made a create of the row after it."""
    results = [m.value for m in load_messages(topic) if m.value is not None and m.operation in operations]
    return [value.replace(b'"op":"u"', b'"op":"c"') if b'"before":null' in value else value for value in results]


class TestUnavailable:
    @pytest.mark.parametrize("copies", [1, MANY])
    def test_a_value_that_postgres_did_not_send_is_null_and_marked_whatever_its_type(self, copies: int) -> None:
        decoded = decode(values("json.shop.toast_default", "u") * copies)
        assert not decoded.bad
        assert set(decoded.unavailable) == set(NOT_SENT)
        first, second = decoded.rows[0].as_py(), decoded.rows[1].as_py()
        assert first == {"id": 1, **dict.fromkeys(NOT_SENT), "counter": 1}
        assert second == {"id": 1, **dict.fromkeys(NOT_SENT), "counter": 2, "a_text": "short"}
        assert decoded.unavailable["a_text"].to_pylist() == [True, False] * copies
        assert decoded.unavailable["bigints"].to_pylist() == [True, True] * copies
        assert set(decoded.undeclared) == REST

    @pytest.mark.parametrize("copies", [1, MANY])
    def test_where_all_values_are_sent_nothing_is_marked(self, copies: int) -> None:
        decoded = decode(values("json.shop.toast_full", "c", "u", "d") * copies)
        assert not decoded.bad
        assert len(decoded.rows) == 6 * copies
        assert decoded.unavailable == {}
        assert not any(None in row.values() for row in decoded.rows.to_pylist())

    def test_a_hstore_read_as_a_map_and_bytes_read_as_their_base64_are_found_too(self) -> None:
        text = "__debezium_unavailable_value"
        document = {
            "op": "c",
            "before": None,
            "after": {"m": {text: text}, "b": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="},
        }
        decoded = decode([json.dumps(document).encode()], row=t.row(m=t.Map(t.STRING, t.STRING), b=t.STRING))
        assert {name: mask.to_pylist() for name, mask in decoded.unavailable.items()} == {"m": [True], "b": [True]}

    def test_the_placeholder_is_the_connectors(self) -> None:
        messages = [b'{"op":"c","before":null,"after":{"a":"?","b":"__debezium_unavailable_value"}}'] * MANY
        decoded = decode(messages, DebeziumJson(unavailable_value_placeholder="?"), t.row(a=t.STRING, b=t.STRING))
        assert set(decoded.unavailable) == {"a"}
        assert decoded.rows[0].as_py() == {"a": None, "b": "__debezium_unavailable_value"}


class TestMessagesWithoutRows:
    @pytest.mark.parametrize("copies", [1, MANY])
    def test_logical_and_transaction_messages_return_no_row(self, copies: int) -> None:
        without = [m.value for topic in ("json.message", "json.transaction") for m in load_messages(topic)]
        assert len(without) == 7
        decoded = decode([*values("json.shop.toast_default", "c"), *without] * copies)
        assert not decoded.bad
        assert decoded.messages is not None
        assert decoded.messages.to_pylist() == list(range(0, 8 * copies, 8))

    @pytest.mark.parametrize("copies", [1, MANY])
    def test_a_truncate_is_an_error_that_names_the_option_or_is_skipped(self, copies: int) -> None:
        messages = values("json.shop.default", "r", "t") * copies
        decoded = decode(messages, row=t.row(id=t.BigInt()))
        assert [bad.index for bad in decoded.bad] == list(range(2, 3 * copies, 3))
        assert "truncate='skip'" in decoded.bad[0].reason
        assert "'debezium-json.truncate' = 'skip'" in decoded.bad[0].reason
        decoded = decode(messages, DebeziumJson(truncate="skip"), t.row(id=t.BigInt()))
        assert not decoded.bad
        assert len(decoded.rows) == 2 * copies

    def test_the_same_with_schemas_in_the_messages(self) -> None:
        chosen = DebeziumJson(schema_include=True, truncate="skip")
        messages = [m.value for m in load_messages("schemas.shop.full") if m.value is not None]
        decoded = decode(messages * 10, chosen, t.row(id=t.BigInt(), a_text=t.STRING))
        assert not decoded.bad
        without = [m.value for m in load_messages("schemas.message")]
        assert not decode(without * MANY, chosen).bad


DOCUMENT = """
name: files
columns:
  - {name: id, type: BIGINT NOT NULL}
  - {name: counter, type: INT}
  - {name: body, type: STRING NOT NULL}
  - {name: tags, type: ARRAY<STRING>}
primary_key: [id]
options:
  connector: kafka
  topic: files
  value.format: debezium-json
"""


def plan(*columns: str, **options: str) -> ReadPlan:
    more = "".join(f"  value.debezium-json.{key}: {value!r}\n" for key, value in options.items())
    (table,) = read_tables(DOCUMENT + more)
    return read_plan_text(plan_text(read_plan(resolve(table, "read"), columns or None)), ReadPlan)


def change(**row: Any) -> dict[str, Any]:
    document = {"op": "c", "before": None, "after": {"id": 1, "counter": 0, "body": "b", "tags": ["t"], **row}}
    return {"value": json.dumps(document).encode(), "topic": "files", "partition": 3, "offset": 42}


LACKING = change(id=2, body="__debezium_unavailable_value", tags=["__debezium_unavailable_value"])


class TestPolicies:
    def test_by_default_it_is_an_error_that_names_record_column_and_options(self) -> None:
        with pytest.raises(RecordError) as error:
            RecordDecoder(plan()).decode(raw([change(), LACKING, LACKING]))
        text = str(error.value)
        for part in ("partition 3", "offset 42", "'body' has no value", "unavailable='keep'", "REPLICA IDENTITY FULL"):
            assert part in text
        assert error.value.more == 1

    def test_null_is_read_as_null_and_counted(self) -> None:
        decoder = RecordDecoder(plan("id", "tags", unavailable="null"))
        assert decoder.decode(raw([change(), LACKING])).column(2).to_pylist() == [["t"], None]
        assert decoder.dropped[Reason.UNAVAILABLE] == 1

    def test_null_does_not_overrule_not_null(self) -> None:
        with pytest.raises(RecordError, match="'body' is NULL, but it is declared NOT NULL"):
            RecordDecoder(plan(unavailable="null")).decode(raw([LACKING]))

    def test_keep_names_the_columns_in_the_last_one(self) -> None:
        keeping = plan(unavailable="keep")
        assert keeping.output.names == ("_row_kind", "id", "counter", "body", "tags", UNAVAILABLE)
        assert {f.name: f.type.nullable for f in keeping.output.fields}["body"]
        rows = RecordDecoder(keeping).decode(raw([change(), LACKING, change()]))
        rows.validate(full=True)
        assert rows.column(UNAVAILABLE).to_pylist() == [[], ["body", "tags"], []]
        assert rows.column("body").to_pylist() == ["b", None, "b"]

    def test_keep_lets_no_other_null_pass_where_the_column_is_not_null(self) -> None:
        with pytest.raises(RecordError, match="'body' is NULL, but it is declared NOT NULL"):
            RecordDecoder(plan(unavailable="keep")).decode(raw([LACKING, change(body=None)]))

    def test_keep_needs_the_primary_key_alone_of_rows_before_changes(self) -> None:
        update, moved, delete = (
            {**change(), "value": json.dumps({"op": op, "before": before, "after": after}).encode()}
            for op, before, after in (
                ("u", None, json.loads(LACKING["value"])["after"]),
                ("u", {"id": 1}, {"id": 9, "counter": 0, "body": "b", "tags": []}),
                ("d", {"id": 9, "body": None}, None),
            )
        )
        rows = RecordDecoder(plan(unavailable="keep")).decode(raw([update, moved, delete])).to_pylist()
        nulls = dict.fromkeys(("counter", "body", "tags"))
        assert rows == [
            {ROW_KIND: "+U", "id": 2, **nulls, "counter": 0, UNAVAILABLE: ["body", "tags"]},
            {ROW_KIND: "-U", "id": 1, **nulls, UNAVAILABLE: []},
            {ROW_KIND: "+U", "id": 9, "counter": 0, "body": "b", "tags": [], UNAVAILABLE: []},
            {ROW_KIND: "-D", "id": 9, **nulls, UNAVAILABLE: []},
        ]

    @pytest.mark.parametrize("options", [{}, {"unavailable": "null"}])
    def test_otherwise_the_before_image_is_needed_without_state(self, options: dict[str, str]) -> None:
        update = {"value": change()["value"].replace(b'"c"', b'"u"')}
        with pytest.raises(RecordError, match=r"'before' of an UPDATE message is null.*cdc_events_duplicate=True"):
            RecordDecoder(plan(**options)).decode(raw([change() | update]))

    def test_a_column_of_the_name_is_refused(self) -> None:
        document = DOCUMENT.replace("name: counter", f"name: {UNAVAILABLE}")
        (table,) = read_tables(document)
        assert not problems(table, "read")
        (table,) = read_tables(f"{document}  value.debezium-json.unavailable: keep\n")
        assert [p.code for p in problems(table, "read")] == ["row-kind"]


class TestUndeclared:
    @pytest.mark.parametrize("copies", [1, MANY])
    def test_columns_that_the_table_does_not_declare_are_counted_by_name(self, copies: int) -> None:
        decoder = RecordDecoder(plan("id"))  # the others are declared, though this read does not need them
        decoder.decode(raw([change(price=1), change(price=2, colour=None), change()] * copies))
        assert count_by_column(decoder.dropped, Reason.UNDECLARED) == {"price": 2 * copies, "colour": copies}
        assert decoder.dropped[Reason.UNDECLARED] == 3 * copies


UNWRAPPED = """
name: rows
columns:
  - {name: id, type: BIGINT NOT NULL}
  - {name: a_varchar_20, type: STRING}
primary_key: [id]
options:
  connector: upsert-kafka
  topic: rows
  key.format: json
  value.format: json
"""


ROWS = [{"key": m.key, "value": m.value, "timestamp": 0} for m in load_messages("unwrapped.shop.default")]


class TestNullIsTombstone:
    def rows(self, document: str) -> list[tuple[Any, ...]]:
        (table,) = read_tables(document)
        read = RecordDecoder(read_plan(resolve(table, "read")))
        return [tuple(row.values()) for row in read.decode(raw(ROWS)).to_pylist()]

    def test_the_string_null_deletes_the_row_of_its_key(self) -> None:
        rows = self.rows(UNWRAPPED + "  value.json.decode.null-is-tombstone: true\n")
        assert [row[:2] for row in rows if row[0] == "-D"] == [("-D", 2), ("-D", 3)]
        assert ("+U", 1, "changed") in rows
        assert len(rows) == len(ROWS)

    def test_without_the_option_it_is_an_error_that_names_it(self) -> None:
        with pytest.raises(RecordError, match=r"write Json\(null_is_tombstone=True\)"):
            self.rows(UNWRAPPED)


class TestAvro:
    @pytest.fixture(scope="class")
    @classmethod
    def ids(cls, kdsl_registry: LocalRegistry) -> dict[int, int]:
        client = registry_client(Registry(kdsl_registry.url))
        result = load_schemas()
        return {
            id_: client.register(f"debezium-{id_}", RegisteredSchema(schema_text(schema)))
            for id_, schema in result.items()
        }

    def decode_avro(
        self, topic: str, ids: dict[int, int], url: str, row: t.Row, copies: int, **options: Any
    ) -> Decoded:
        messages = [
            m.value.replace(b"\x02u", b"\x02c") if "toast" in topic else m.value
            for m in load_messages(topic)
            if m.value
        ]
        framed = [b"\0" + ids[int.from_bytes(m[1:5], "big")].to_bytes(4, "big") + m[5:] for m in messages]
        use = Use(topics=(topic,), registry=Registry(url))
        return DebeziumAvroConfluent(**options).decoder(row, use).decode(pa.array(framed * copies, pa.binary()))

    @pytest.mark.parametrize("copies", [1, MANY])
    def test_values_that_were_not_sent_are_marked(
        self, ids: dict[int, int], kdsl_registry: LocalRegistry, copies: int
    ) -> None:
        row = t.Row(tuple(f for f in TOAST.fields if f.name != "dates"), nullable=False)
        result = self.decode_avro("avro.shop.toast_default", ids, kdsl_registry.url, row, copies)
        assert not result.bad
        assert set(result.unavailable) == set(NOT_SENT) - {"dates"}
        assert result.unavailable["a_text"].to_pylist() == [False, True, False, False] * copies
        assert result.unavailable["uuids"].to_pylist() == [False, True, True, False] * copies
        assert result.rows[2].as_py() == {**dict.fromkeys(row.names), "id": 1, "a_text": "short", "counter": 2}
        assert set(result.undeclared) == REST | {"dates"}

    @pytest.mark.parametrize("copies", [1, MANY])
    def test_logical_messages_return_no_row(
        self, ids: dict[int, int], kdsl_registry: LocalRegistry, copies: int
    ) -> None:
        result = self.decode_avro("avro.message", ids, kdsl_registry.url, t.row(id=t.BigInt()), copies)
        assert (len(result.rows), result.bad) == (0, ())

    def test_all_changes_of_a_table_are_read(self, ids: dict[int, int], kdsl_registry: LocalRegistry) -> None:
        row = t.row(id=t.BigInt(), a_text=t.STRING, integers=t.Array(t.Int()))
        result = self.decode_avro("avro.shop.full", ids, kdsl_registry.url, row, 1)
        assert not result.bad
        assert result.rows[0].as_py() == {"id": 1, "a_text": "line\nbreak", "integers": [1, 2, None]}
