"""Records to tables: every record that is accepted is read without error with the schema that all records show."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.cluster import Cluster
from kdsl.formats import Format, TableId
from kdsl.ingest import KafkaFeed
from kdsl.ingest.initial_schemas import read_initial_schemas
from kdsl.ingest.learn import learn
from kdsl.ingest.records import Packet, RecordSplitter, Split, initial_tables, plan_table
from kdsl.ingest.schema_changes import UpstreamTable
from kdsl.own_columns import KIND
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import RAW
from kdsl.types import model as t
from kdsl.types.widening import TableSchema
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.json import Json
from tests.strategies import examples

CLUSTER = Cluster("localhost:9092")
Known = Mapping[TableId, UpstreamTable]


def encode(value: Any) -> bytes | None:
    return value if value is None or isinstance(value, bytes) else json.dumps(value).encode()


def records(
    *values: Any, keys: Sequence[Any] | None = None, topics: Sequence[str] | None = None, partition: int = 0
) -> pa.RecordBatch:
    n = len(values)
    columns: dict[str, list[Any]] = {
        "topic": list(topics or ["t"] * n),
        "partition": [partition] * n,
        "offset": list(range(10, 10 + n)),
        "timestamp": [1_700_000_000_000] * n,
        "timestamp_type": [0] * n,
        "leader_epoch": [0] * n,
        "headers": [[]] * n,
        "key": [encode(key) for key in keys or [None] * n],
        "value": [encode(value) for value in values],
    }
    return pa.RecordBatch.from_pydict({name: pa.array(columns[name], kind) for name, kind in RAW.items()})


def feed(**options: Any) -> KafkaFeed:
    return KafkaFeed(CLUSTER, topic=("t",), **({"value": Json()} | options))


def split(source: KafkaFeed, batch: pa.RecordBatch, known: Known | None = None) -> Split:
    return RecordSplitter(source, max_columns=100).split(batch, known or {})


def learn_from(source: KafkaFeed, batch: pa.RecordBatch, known: Known | None = None) -> Known:
    deltas = [p.delta for p in split(source, batch, known).packets if p.delta is not None]
    return learn(known or {}, deltas).tables


def rows(source: KafkaFeed, batch: pa.RecordBatch, known: Known | None = None) -> dict[TableId, list[dict[str, Any]]]:
    """The rows of each table, with the schemas that the batch shows."""
    tables = learn_from(source, batch, known)

    def read(packet: Packet) -> list[dict[str, Any]]:
        decoder = RecordDecoder(plan_table(source, packet.table, tables[packet.table]))
        return list(decoder.decode(packet.records).to_pylist())

    return {packet.table: read(packet) for packet in split(source, batch, known).packets if packet.table in tables}


def columns(table: UpstreamTable) -> dict[str, str]:
    return {f.name: str(f.type) for f in table.schema.columns}


def test_a_topic_is_a_table() -> None:
    batch = records({"a": 1}, {"a": 2, "b": "x"}, {"a": "n/a"}, topics=["t", "u", "t"])

    assert rows(feed(), batch) == {
        ("t",): [{"a": "1"}, {"a": "n/a"}],
        ("u",): [{"a": 2, "b": "x"}],
    }


@pytest.mark.parametrize("value", [DebeziumJson(), CanalJson(), Json()])
def test_rows_of_packets_are_those_that_their_records_give(value: Format) -> None:
    """Also if some records of a table are unusual, of another topic, or show something new."""
    inserts: list[Any]
    if isinstance(value, Json):
        inserts = [{"id": i, "text": f"a{i}"} for i in range(200)]
    elif isinstance(value, CanalJson):
        beside = {"type": "INSERT", "database": "d", "pkNames": ["id"], "old": None}
        inserts = [{**beside, "data": [{"id": f"{i}", "text": "a"}], "table": f"x{i % 2}"} for i in range(200)]
    else:
        inserts = [
            {
                "before": None,
                "after": {"id": i, "text": f"a{i}"},
                "op": "c",
                "source": {"db": "d", "table": f"x{i % 2}"},
            }
            for i in range(200)
        ]
    source = feed(value=value)
    inserts[7] = json.dumps(inserts[7], indent=1).encode()
    batch = records(*inserts, None, topics=[*["t"] * 100, *["u"] * 101])
    known = learn_from(source, batch)
    more = records(*inserts[:150], topics=[*["t"] * 100, *["u"] * 50])
    splitter = RecordSplitter(source, max_columns=100)
    for _ in range(2):
        packets = splitter.split(more, known, decodes=True).packets
        assert len(packets) >= 2
        for packet in packets:
            assert packet.rows is not None
            plan = plan_table(source, packet.table, known[packet.table], places=True)
            assert packet.rows.equals(RecordDecoder(plan).decode(packet.records))
    assert all(one.rows is None for one in splitter.split(more, known).packets)
    assert all(one.rows is None for one in splitter.split(more, {}, decodes=True).packets), "they show all columns"


def test_fields_name_the_table() -> None:
    batch = records({"app": "web", "event": "view", "n": 1}, {"app": "web", "event": "tap", "n": 2.5})
    source = feed(value=Json(table_id_fields="app,event"))

    assert {table: [row["n"] for row in read] for table, read in rows(source, batch).items()} == {
        ("web", "view"): [1], ("web", "tap"): [2.5],
    }  # fmt: skip


def change(table: str, **after: Any) -> dict[str, Any]:
    return {"before": None, "after": after, "op": "c", "source": {"db": "shop", "table": table}}


def test_change_data_names_its_tables() -> None:
    batch = records(change("orders", id=1), change("users", id=1, name="x"), None, change("orders", id=2, note="y"))

    read = rows(feed(value=DebeziumJson()), batch)

    assert read == {
        ("shop", "orders"): [{KIND: "+I", "id": 1, "note": None}, {KIND: "+I", "id": 2, "note": "y"}],
        ("shop", "users"): [{KIND: "+I", "id": 1, "name": "x"}],
    }


def test_canal_names_the_primary_key() -> None:
    message = {"data": [{"id": "1", "n": "5"}], "type": "INSERT", "database": "crm", "table": "users",
               "pkNames": ["id"], "mysqlType": {"id": "bigint", "n": "int"}}  # fmt: skip
    source = feed(value=CanalJson(infer_strategy="MYSQL_TYPE"), value_prefix="v_")

    table = learn_from(source, records(message))["crm", "users"]

    assert table.schema.primary_key == ("v_id",)
    assert columns(table) == {"v_id": "BIGINT NOT NULL", "v_n": "INT"}
    assert rows(source, records(message))["crm", "users"] == [{KIND: "+I", "v_id": 1, "v_n": 5}]


class TestKeys:
    SOURCE = feed(key=Json(), key_prefix="k_", value_prefix="v_")

    def test_columns_of_the_key_come_first(self) -> None:
        batch = records({"a": 1}, {"b": 2}, keys=[{"a": 7}, None])

        assert rows(self.SOURCE, batch)["t",] == [
            {"k_a": 7, "v_a": 1, "v_b": None}, {"k_a": None, "v_a": None, "v_b": 2},
        ]  # fmt: skip

    def test_later_fields_of_the_key_are_ignored_and_types_become_wider(self) -> None:
        known = learn_from(self.SOURCE, records({"a": 1}, keys=[{"a": 7}]))
        batch = records({"a": 2}, keys=[{"a": "x", "other": 1}])

        assert rows(self.SOURCE, batch, known)["t",] == [{"k_a": "x", "v_a": 2}]

    def test_a_column_that_is_also_in_the_value_is_that_of_the_value(self) -> None:
        source = feed(key=Json())
        batch = records({"id": 1, "n": 2}, keys=[{"id": 9, "k": 3}])

        assert rows(source, batch)["t",] == [{"k": 3, "id": 1, "n": 2}]

    def test_also_if_the_value_shows_it_later(self) -> None:
        source = feed(key=Json())
        known = learn_from(source, records({"n": 1}, keys=[{"id": 9}]))
        assert known["t",].key == ("id",)

        assert rows(source, records({"n": 1, "id": 5}, keys=[{"id": 9}]), known)["t",] == [{"id": 5, "n": 1}]

    def test_a_key_that_cannot_be_read_rejects_the_record(self) -> None:
        done = split(self.SOURCE, records({"a": 1}, {"a": 2}, keys=[{"a": 7}, b"oops"]))

        assert [(r.index, r.side) for r in done.rejections] == [(1, "key")]
        assert [p.records.num_rows for p in done.packets] == [1]

    def test_a_table_of_an_initial_schema_gets_the_columns_of_the_key(self) -> None:
        schemas, _ = read_initial_schemas("CREATE TABLE t (v_a BIGINT)")

        table = learn_from(self.SOURCE, records({"a": 1}, keys=[{"a": 7}]), initial_tables(schemas))["t",]

        assert (table.key, list(columns(table))) == (("k_a",), ["v_a", "k_a"])


def test_a_value_that_cannot_be_read_is_rejected_with_its_index() -> None:
    batch = records({"a": 1}, b"{", {"a": 2}, b"\xff", topics=["t", "u", "t", "t"])

    done = split(feed(), batch)

    assert [(r.index, r.side) for r in done.rejections] == [(1, "value"), (3, "value")]
    assert [p.table for p in done.packets] == [("t",)]


PLACEHOLDER = "__debezium_unavailable_value"


class TestValuesThatDebeziumDoesNotHave:
    def update(self, **after: Any) -> dict[str, Any]:
        return {"op": "u", "before": None, "after": {"id": 1, **after}, "source": {"db": "d", "table": "t"}}

    @pytest.mark.parametrize("form", [PLACEHOLDER, base64.b64encode(PLACEHOLDER.encode()).decode()])
    def test_records_that_lack_one_are_rejected_with_what_to_do(self, form: str) -> None:
        source = feed(value=DebeziumJson())
        batch = records(*(self.update(n=n, text=text) for n, text in ((1, "a"), (2, form), (3, "c"))),
                        keys=[{"id": 1}] * 3)  # fmt: skip
        splitter = RecordSplitter(source, max_columns=100, keyed=True)
        known: Known = {}
        for _ in range(2):  # when the table is new, and when it is known
            done = splitter.split(batch, known)
            assert [(r.index, r.column) for r in done.rejections] == [(1, "text")]
            assert "set debezium-json.unavailable to keep" in done.rejections[0].reason
            assert [p.records.num_rows for p in done.packets] == [2]
            known = learn(known, [p.delta for p in done.packets if p.delta is not None]).tables

    def test_they_are_not_if_the_format_says_what_to_do(self) -> None:
        batch = records(self.update(text=PLACEHOLDER), keys=[{"id": 1}])
        for source in (feed(value=DebeziumJson(unavailable="keep")), feed(value=DebeziumJson(unavailable="null"))):
            assert RecordSplitter(source, max_columns=100, keyed=True).split(batch, {}).rejections == ()


def test_a_static_table_reads_updates_without_the_row_before_if_the_sink_does_not_need_it() -> None:
    source = feed(value=DebeziumJson(), inference="static")
    row = {"db": "d", "table": "t"}
    first = {"op": "c", "before": None, "after": {"id": 1, "n": 1}, "source": row}
    known = learn_from(source, records(first, keys=[{"id": 1}]))
    update = records({"op": "u", "before": None, "after": {"id": 1, "n": 2}, "source": row}, keys=[{"id": 1}])

    assert RecordSplitter(source, max_columns=100, keyed=True).split(update, known).rejections == ()


def test_an_initial_schema_only_becomes_wider() -> None:
    schemas, wrong = read_initial_schemas("CREATE TABLE t (id INT, name VARCHAR(10), PRIMARY KEY (id) NOT ENFORCED)")
    known = initial_tables(schemas)
    assert wrong == []

    assert split(feed(), records({"id": 5, "name": "x"}), known).packets[0].delta is None
    table = learn_from(feed(), records({"id": 2**40, "age": 3}), known)["t",]

    assert columns(table) == {"id": "BIGINT NOT NULL", "name": "VARCHAR(10)", "age": "BIGINT"}
    assert table.schema.primary_key == ("id",)


class TestOneTable:
    CHANGES = (
        {"op": "c", "before": None, "after": {"id": 1}, "source": {"db": "d", "table": "a"}},
        {"op": "c", "before": None, "after": {"id": 2, "x": "y"}, "source": {"db": "d", "table": "b"}},
    )

    def test_all_messages_belong_to_it(self) -> None:
        source = feed(value=DebeziumJson(), table="lake.all")
        batch = records(*self.CHANGES, topics=["t", "u"])
        known = learn_from(source, batch)
        done = split(source, batch, known)

        assert {table: columns(one) for table, one in known.items()} == {
            ("lake", "all"): {"id": "BIGINT", "x": "STRING"}
        }
        assert [(p.table, p.records.num_rows, p.delta) for p in done.packets] == [(("lake", "all"), 1, None)] * 2

    def test_or_to_that_of_their_topic(self) -> None:
        source = feed(value=DebeziumJson(), table="lake.<topic>")

        tables = learn_from(source, records(*self.CHANGES, topics=["t", "u.v"]))

        assert {table: list(columns(one)) for table, one in tables.items()} == {
            ("lake", "t"): ["id"], ("lake", "u.v"): ["id", "x"],
        }  # fmt: skip

    def test_a_name_of_too_many_parts_is_a_problem(self) -> None:
        (wrong,) = feed(table="a.b.c.<topic>").check()

        assert (wrong.code, wrong.key) == ("ingest-table", "table")


class TestDeclaredColumns:
    DDL = """CREATE TABLE t (
          k INT, n STRING, part BIGINT METADATA FROM 'partition', `offset` INT METADATA, c AS UPPER(n)
        ) WITH ('key.fields' = 'k')"""

    def test_metadata_and_key_columns_are_read(self) -> None:
        source = feed(initial_schemas=self.DDL, key=Json(), prefetch=0)
        known = initial_tables(source.initial_tables)
        batch = records({"n": "a", "more": 1}, keys=[{"k": 5, "other": 1}], partition=3)

        assert known["t",].key == ("k",)
        assert rows(source, batch, known)["t",] == [{"k": 5, "n": "a", "more": 1, "part": 3, "offset": 10}]

    @pytest.mark.parametrize("known", [True, False])
    def test_members_with_the_names_of_other_declared_columns_are_not_read(self, known: bool) -> None:
        ddl = self.DDL if known else "CREATE TABLE t (`offset` INT METADATA, c AS UPPER(n))"
        source = feed(initial_schemas=ddl, key=Json() if known else None, prefetch=0)
        tables: Known = initial_tables(source.initial_tables)
        assert bool(tables) is known
        batch = records({"n": "a", "offset": "x", "c": {"d": 1}}, {"offset": 1, "c": 1})
        tables = learn_from(source, batch, tables)

        assert list(columns(tables["t",])) == (["k", "n"] if known else ["n"])
        assert [p.delta for p in split(source, batch, tables).packets] == [None]

    def test_what_cannot_be_declared(self) -> None:
        _, wrong = read_initial_schemas(
            "CREATE TABLE t (a INT, p INT METADATA FROM 'partition', PRIMARY KEY (p) NOT ENFORCED) "
            "WITH ('key.fields' = 'b', 'topic' = 'x')"
        )

        assert [w.code for w in wrong] == ["ingest-ddl"] * 3
        assert "only 'key.fields' can be set here" in wrong[0].message


def test_metadata_columns_are_the_last() -> None:
    source = feed(metadata=("topic", "partition", "offset"))

    assert rows(source, records({"a": 1}))["t",] == [{"a": 1, "topic": "t", "partition": 0, "offset": 10}]


def test_tasks_leave_a_column_with_the_name_of_a_metadata_column_to_the_decision() -> None:
    source = feed(metadata=("offset",), inference="static")
    batch = records({"id": 1, "offset": 2}, {"id": "x", "offset": 3})
    table = UpstreamTable(TableSchema((t.Field("id", t.BigInt()), t.Field("offset", t.BigInt()))))

    done = split(source, batch, {("t",): table})

    assert done.rejections == ()
    assert [packet.records.num_rows for packet in done.packets] == [2]


def test_every_kind_of_metadata_is_a_column() -> None:
    names = ("topic", "partition", "offset", "timestamp", "timestamp-type", "headers", "leader-epoch", "__raw_key__",
             "__raw_value__")  # fmt: skip
    source = feed(metadata=names)
    (row,) = rows(source, records({"a": 1}, keys=[b"k"]))["t",]

    assert list(row) == ["a", *names]
    assert row == {
        "a": 1, "topic": "t", "partition": 0, "offset": 10, "timestamp": datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC),
        "timestamp-type": "CreateTime", "headers": [], "leader-epoch": 0, "__raw_key__": b"k",
        "__raw_value__": b'{"a": 1}',
    }  # fmt: skip


def test_a_delta_names_the_records() -> None:
    delta = split(feed(), records({"a": 1}, {"b": 1}, {"a": "x"}, partition=3)).packets[0].delta

    assert delta is not None
    assert {name: str(place) for name, place in delta.first.items()} == {
        "a": "topic t, partition 3, offset 10", "b": "topic t, partition 3, offset 11",
    }  # fmt: skip


def test_a_record_that_would_give_a_table_too_many_columns_is_rejected() -> None:
    batch = records({"a": 1}, {f"user_{i}": i for i in range(101)})

    assert [r.index for r in split(feed(), batch).rejections] == [1]


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.sampled_from(["2024-05-01", "2024-05-01 10:00:00", "10:00:00", "2024-05-01T10:00:00Z"])
)  # fmt: skip
VALUES = SCALARS | st.lists(SCALARS, max_size=2) | st.dictionaries(st.sampled_from("xy"), SCALARS, max_size=2)
OBJECTS = st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3)
MESSAGES = OBJECTS | st.sampled_from([None, b"", b"null", b"[1]", b"{"])
BATCHES = st.lists(st.tuples(MESSAGES, OBJECTS | st.none(), st.sampled_from("tu")), min_size=1, max_size=6)


def to_raw(batch: list[tuple[Any, Any, str]]) -> pa.RecordBatch:
    values, keys, topics = zip(*batch, strict=True)
    return records(*values, keys=keys, topics=topics)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(BATCHES, min_size=1, max_size=3), st.booleans())
def test_what_is_accepted_is_read_and_a_repeated_batch_shows_nothing_new(
    batches: list[list[tuple[Any, Any, str]]], prefixed: bool
) -> None:
    prefixes = {"key_prefix": "k_", "value_prefix": "v_"} if prefixed else {}
    source = feed(key=Json(), **prefixes)
    raw = list(map(to_raw, batches))
    known: Known = {}
    for batch in raw:
        known = learn_from(source, batch, known)

    assert [p.delta for p in split(source, raw[-1], known).packets if p.delta is not None] == []
    for batch in raw:
        for packet in split(source, batch, known).packets:
            if packet.table in known and packet.delta is None:  # keys of a table without columns are not learned
                decoder = RecordDecoder(plan_table(source, packet.table, known[packet.table]))
                assert decoder.decode(packet.records).num_rows == packet.records.num_rows


@pytest.mark.parametrize("rows_of_task", [1, 2, 5])
def test_tasks_of_any_size_learn_the_same(rows_of_task: int) -> None:
    batch = records(*({"a": 1, "b": "x"}, {"a": 2.5}, {"c": True}, {"b": "2024-05-01"}, {"a": 10**30, "d": {}}))
    whole = learn_from(feed(), batch)
    parts = [batch.slice(i, rows_of_task) for i in range(0, batch.num_rows, rows_of_task)]

    deltas = [p.delta for part in parts for p in split(feed(), part).packets if p.delta is not None]

    assert learn({}, deltas).tables == whole


def test_a_first_batch_that_is_mostly_of_another_format_has_a_hint() -> None:
    canal = {"data": [{"id": "1"}], "type": "INSERT", "database": "d", "table": "t", "isDdl": False}
    splitter = RecordSplitter(feed(value=DebeziumJson()), max_columns=100)
    first = splitter.split(records(canal, canal), {})

    assert first.hint is not None
    assert first.hint.startswith("topic t: 2 of 2 messages cannot be read as debezium-json")
    assert first.hint.endswith("they look like canal-json")
    assert splitter.split(records(canal), {("d", "t"): UpstreamTable(TableSchema(()))}).hint is None


EVENT = {"op": "c", "before": None, "after": {"id": 1, "n": "x"}, "source": {"db": "d", "table": "t"}}


@pytest.mark.parametrize(
    ("keys", "options", "primary_key"),
    [
        ([{"id": 1}], {}, ("id",)),
        ([None, {"schema": {}, "payload": {"n": "x", "id": 1}}], {}, ("n", "id")),
        ([{"id": 1}], {"key_is_primary_key": False}, ()),
        ([{"other": 1}], {}, ()),
        ([b"{", {"id": 1}], {}, ()),
        ([5], {}, ()),
        ([None], {}, ()),
    ],
)
def test_the_message_key_is_the_primary_key_of_a_new_table(
    keys: list[Any], options: dict[str, Any], primary_key: tuple[str, ...]
) -> None:
    source = feed(value=DebeziumJson(), **options)
    batch = records(*[EVENT] * len(keys), keys=keys)
    known = learn_from(source, batch)

    assert known["d", "t"].schema.primary_key == primary_key
    later = records({**EVENT, "after": {"id": 1, "more": 2}}, keys=[{"id": 1}])
    assert learn_from(source, later, known)["d", "t"].schema.primary_key == primary_key
