"""What goes wrong when columns are inferred, and what happens then."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest

from kdsl.formats import Format, Observed, SchemaDelta, TableId, Use
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.widening import TableSchema, join_schemas
from kdsl_formats.cdc_json import CanalJson, DebeziumJson, MaxwellJson, OggJson
from kdsl_formats.csv import Csv
from kdsl_formats.json import Json
from kdsl_formats.json.objects import ObjectFinder
from kdsl_formats.suggest import explain_bad_batch, suggest_format

HERE: TableId = ()
Documents = list[Any]


def encode(documents: Documents) -> pa.BinaryArray:
    """Messages: bytes and None as they are, other values as JSON."""
    plain = [d if d is None or isinstance(d, bytes) else json.dumps(d).encode() for d in documents]
    return pa.array(plain, pa.binary())


def observe(format_: Format, documents: Documents, known: dict[TableId, TableSchema] | None = None) -> Observed:
    observer = format_.observer()
    assert observer is not None
    return observer.observe(encode(documents), known or {})


def only(observed: Observed) -> SchemaDelta:
    """The one table that was found."""
    assert len(observed.deltas) == 1
    return observed.deltas[0]


def types(observed: Observed) -> dict[str, str]:
    """The columns of the one table that was found."""
    return {f.name: str(f.type) for f in only(observed).schema.columns}


def read(format_: Format, documents: Documents, observed: Observed) -> list[dict[str, Any]]:
    """The rows of all messages; none of them may be bad."""
    decoded = format_.reading_observed().decoder(only(observed).schema.row).decode(encode(documents))
    assert decoded.bad == ()
    rows: list[dict[str, Any]] = decoded.rows.to_pylist()
    return rows


def reasons(observed: Observed) -> dict[int, str]:
    """Why messages are bad, by their indexes."""
    return {bad.index: bad.reason for bad in observed.bad}


@pytest.mark.parametrize("repeat", [1, 50])
def test_numbers_and_strings_in_one_column_are_strings_as_they_are_spelled(repeat: int) -> None:
    documents = [b'{"id":1,"v":1.50}', b'{"id":2,"v":"x"}', b'{"id":"3","v":1e3}'] * repeat
    observed = observe(Json(), documents)
    assert types(observed) == {"id": "STRING", "v": "STRING"}
    assert only(observed).first == {"id": 0, "v": 0}
    assert read(Json(), documents, observed)[:3] == [
        {"id": "1", "v": "1.50"}, {"id": "2", "v": "x"}, {"id": "3", "v": "1e3"},
    ]  # fmt: skip


def test_a_wider_type_names_the_record_that_needs_it() -> None:
    known = {HERE: TableSchema(t.row(id=t.BigInt(), name=t.STRING).fields)}
    observed = observe(Json(), [{"id": 1}, {"id": 2, "age": 3}, {"id": "x"}, {"id": 1.5}], known)
    assert types(observed) == {"id": "STRING", "name": "STRING", "age": "BIGINT"}
    assert only(observed).first == {"age": 1, "id": 2}


def test_two_partitions_that_show_different_types_join_to_one_schema() -> None:
    one, other = observe(Json(), [{"v": 1}, {"v": 2.5}]), observe(Json(), [{"v": True, "w": 1}])
    both = join_schemas(only(one).schema, only(other).schema)
    assert both == TableSchema(t.row(v=t.STRING, w=t.BigInt()).fields)
    swapped = join_schemas(only(other).schema, only(one).schema)
    assert swapped is not None
    assert set(swapped.columns) == set(both.columns)


def test_members_that_have_one_name_when_flattened_are_bad() -> None:
    format_ = Json(infer_flatten=True)
    observed = observe(
        format_, [{"a.b": 1, "a": {"b": 2}}, {"a": {"b": 3}}, {"a.b": 4}, {"a": {"b.c": 1, "b": {"c": 2}}}]
    )
    assert reasons(observed) == {
        0: "two members have the name 'a.b' when nested columns are flattened",
        3: "two members have the name 'a.b.c' when nested columns are flattened",
    }
    assert read(format_, [{"a": {"b": 3}}, {"a.b": 4}], observed) == [{"a.b": 3}, {"a.b": 4}]


def test_the_last_of_equal_keys_counts() -> None:
    documents = [b'{"a":"x","a":1}']
    observed = observe(Json(), documents)
    assert types(observed) == {"a": "BIGINT"}
    assert read(Json(), documents, observed) == [{"a": 1}]


def test_table_ids_come_from_members() -> None:
    format_ = Json(table_id_fields="app,event")
    documents: Documents = [
        {"app": "web", "event": "click"}, {"app": "web"}, {"app": "web", "event": None}, {"app": "web", "event": {}},
        {"app": "web", "event": ""}, {"app": "a.b", "event": "click"}, {"app": 5, "event": True}, None, b"",
    ]  # fmt: skip
    observed = observe(format_, documents)
    assert observed.ids == (("web", "click"), ("a.b", "click"), ("5", "true"))
    assert observed.tables.to_pylist() == [0, None, None, None, None, 1, 2, None, None]
    assert {index: reason.split(",")[0] for index, reason in reasons(observed).items()} == {
        1: "field 'event': is absent", 2: "field 'event': is null", 3: "field 'event': is an object",
        4: "field 'event': is empty",
    }  # fmt: skip
    assert [p.problem if hasattr(p, "problem") else p.fix for p in Json(table_id_fields="a,b,c,d").problems()]
    key = format_.observer(Use(side="key"))
    assert key is not None
    assert key.observe(encode([{"id": 1}]), {}).ids == (HERE,), "a key does not name a table"


def test_table_ids_may_be_inside_objects() -> None:
    observed = observe(Json(table_id_fields="meta.table"), [{"meta": {"table": "x"}}, {"meta.table": "y"}])
    assert observed.ids == (("x",), ("y",))


def test_messages_that_a_canal_filter_leaves_out_are_not_bad() -> None:
    insert = {"data": [{"id": "1"}], "type": "INSERT", "database": "crm_1", "table": "users"}
    documents: Documents = [insert, {**insert, "database": "other", "data": [{"id": 1}]}, {**insert, "database": None}]
    documents.append({"data": [], "type": "INSERT", "table": "users"})
    observed = observe(CanalJson(database_include=r"crm_\d+"), documents)
    assert observed.ids == (("crm_1", "users"),)
    assert observed.tables.to_pylist() == [0, None, None, None]
    assert list(reasons(observed)) == [3]
    digits = observe(CanalJson(database_include=r"crm_\d"), [{**insert, "database": "crm_\u0663"}])
    assert (digits.ids, digits.bad) == ((), ()), "Java's \\d has only the ASCII digits"


POISON: dict[str, bytes] = {
    "blank": b"  ", "null": b"null", "number": b"123.4", "string": b'"x"', "array of numbers": b"[1]",
    "no value": b'{"a"}',
    "cut": b'{"a":1', "cut UTF-8": b'{"a":"\xc3"}', "two documents": b'{"a":1}{"a":2}', "trailing comma": b'{"a":1,}',
    "NaN": b'{"a":NaN}', "half of a pair": b'{"a":"\\ud800"}', "half of a pair as a key": b'{"\\udc00":1}',
    "deep": b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "no JSON": b"x" * 10_000_000, "comment": b'{/**/"a":1}',
    "leading zero": b'{"a":01}', "single quotes": b"{'a':1}", "bad escape": b'{"a":"\\x"}',
    "long number": b'{"a":' + b"1" * 2000 + b"}",
}  # fmt: skip


@pytest.mark.parametrize("format_", [Json(), Json(infer_flatten=True), Json(infer_primitive_as_string=True)], ids=str)
def test_twenty_kinds_of_poison_are_bad_and_their_neighbours_unharmed(format_: Json) -> None:
    assert len(POISON) == 20
    documents: Documents = []
    for poison in POISON.values():
        documents += [{"a": 1, "b": "x"}] * 60 + [poison]
    observed = observe(format_, documents)
    assert [bad.index for bad in observed.bad] == list(range(60, len(documents), 61))
    assert all(bad.reason for bad in observed.bad)
    assert only(observed).schema.row.names == ("a", "b")
    good = [d for d in documents if isinstance(d, dict)]
    assert len(read(format_, good, observed)) == 60 * 20
    known = {HERE: only(observed).schema}
    assert reasons(observe(format_, documents, known)) == reasons(observed)
    decoded = format_.reading_observed().decoder(only(observed).schema.row).decode(encode(documents))
    unread = 60 + 61 * list(POISON).index("half of a pair as a key")
    assert [bad.index for bad in decoded.bad] == [bad.index for bad in observed.bad if bad.index != unread]


@pytest.mark.parametrize("repeat", [1, 60])
@pytest.mark.parametrize("format_", [Json(), DebeziumJson(), CanalJson(), MaxwellJson(), OggJson()], ids=str)
def test_only_declared_columns_are_read_from_the_first_of_two_documents_and_from_half_a_pair(
    format_: Format, repeat: int
) -> None:
    """Flink reads ``?`` and the first document; where columns are inferred, nothing is lost silently."""
    row = b'{"a":"x\\ud800","b":[{"c":"\\udc00"}]}'
    envelopes = {
        "json": b"%b",
        "debezium-json": b'{"before":null,"after":%b,"op":"c"}',
        "canal-json": b'{"data":[%b],"type":"INSERT"}',
        "maxwell-json": b'{"data":%b,"type":"insert"}',
        "ogg-json": b'{"after":%b,"op_type":"I"}',
    }
    halves = envelopes[format_.identifier] % row
    two = halves.replace(b"\\ud800", b"").replace(b"\\udc00", b"") * 2
    columns = t.row(a=t.STRING, b=t.STRING)

    declared = format_.decoder(columns).decode(encode([halves, two] * repeat))
    inferred = format_.reading_observed().decoder(columns).decode(encode([halves, two] * repeat))

    assert declared.bad == ()
    rows = [{"a": "x?", "b": '[{"c":"?"}]'}, {"a": "x", "b": '[{"c":""}]'}]
    assert declared.rows.to_pylist() == rows * repeat
    assert [bad.index for bad in inferred.bad] == list(range(2 * repeat))
    assert "has half of a surrogate pair" in inferred.bad[0].reason
    assert "something follows the document" in inferred.bad[1].reason
    for column in ("a", "b"):
        alone = format_.reading_observed().decoder(t.row(**{column: t.STRING}))
        assert len(alone.decode(encode([halves] * repeat)).bad) == repeat


def test_keys_that_are_data_stop_at_the_largest_number_of_columns() -> None:
    format_ = Json(infer_flatten=True)
    observer = format_.observer(max_columns=10)
    assert observer is not None
    documents = [{"users": {f"user_{i}": i}} for i in range(100)]
    observed = observer.observe(encode(documents), {})
    assert len(only(observed).schema.columns) == 10
    assert len(observed.bad) == 90
    assert observed.bad[0].reason == (
        "the table would have more than 10 columns with 'users.user_10'; if the names of the members of 'users' are "
        "data, such as 'user_10', keep it whole: 'infer-schema.fixed-types' = 'users STRING'"
    )
    fixed = Json(infer_flatten=True, infer_fixed_types="users STRING")
    observed = observe(fixed, list(documents))
    assert types(observed) == {"users": "STRING"}
    assert observed.bad == ()
    assert read(fixed, documents[:1], observed) == [{"users": '{"user_0":0}'}]


def test_too_many_members_are_not_searched_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each search would remember their names once more."""
    observer = Json().observer(max_columns=10)
    assert observer is not None
    messages = encode([{f"m_{i}_{j}": j for j in range(5)} for i in range(100)])
    before = observer.observe(messages, {})
    searches: list[object] = []
    find = ObjectFinder.find

    def count(*args: Any) -> Any:
        searches.append(args)
        return find(*args)

    monkeypatch.setattr(ObjectFinder, "find", count)
    again = observer.observe(messages, {})

    assert searches == []
    assert [bad.index for bad in again.bad] == [bad.index for bad in before.bad]


@pytest.mark.parametrize("repeat", [1, pytest.param(60, marks=pytest.mark.reliability)])
def test_five_thousand_columns_work_where_they_are_allowed(repeat: int) -> None:
    documents: Documents = [{f"column_{i}": i for i in range(5000)}] * repeat
    observer = Json().observer(max_columns=5000)
    assert observer is not None
    observed = observer.observe(encode(documents), {})
    assert observed.bad == ()
    assert len(only(observed).schema.columns) == 5000
    assert read(Json(), documents, observed) == documents
    assert len(observe(Json(), documents).bad) == repeat, "only 2,000 are allowed unless the caller says otherwise"


def test_only_nulls_show_no_column() -> None:
    assert observe(Json(), []).ids == ()
    observed = observe(Json(), [{"a": None}, {}, {"a": None, "b": []}])
    assert types(observed) == {"b": "STRING"}
    assert observed.tables.to_pylist() == [0, 0, 0], "all of them have a row"
    empty = observe(Json(infer_flatten=True), [{}, {"a": {}}, {"a": None}])
    assert (empty.ids, empty.deltas, empty.bad) == ((HERE,), (), ())


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["9223372036854775807", "-9223372036854775808", "-0"], "BIGINT"),
        (["9223372036854775808"], "DECIMAL(38, 0)"),
        (["1", "-9223372036854775809"], "DECIMAL(38, 0)"),
        (["9" * 38, "1"], "DECIMAL(38, 0)"),
        (["9" * 39], "STRING"),
        (["1.0", "1e3", "-0.0", "1"], "DOUBLE"),
        (["1e400"], "STRING"),
        (["1e-400"], "STRING"),
        (["1.5", "9223372036854775808"], "STRING"),
        (["1", "true"], "STRING"),
        (["true", "null", "false"], "BOOLEAN"),
    ],
)
def test_numbers_get_types_that_hold_them(values: list[str], kind: str) -> None:
    documents = [f'{{"v":{value}}}'.encode() for value in values]
    observed = observe(Json(), list(documents))
    assert types(observed) == {"v": kind}
    rows = [row["v"] for row in read(Json(), list(documents), observed)]
    if kind == "STRING":
        assert rows == values
    else:
        assert rows == [json.loads(value) for value in values]


@pytest.mark.parametrize("repeat", [1, 40])
def test_integers_that_a_double_does_not_hold_are_counted(repeat: int) -> None:
    values = [b"1.5", b"9007199254740993", b"9007199254740992", b"-1152921504606846977", b"1e300"]
    documents = [b'{"v":%b,"w":1}' % value for value in values] * repeat
    observed = observe(Json(), list(documents))
    assert types(observed) == {"v": "DOUBLE", "w": "BIGINT"}
    decoder = Json().reading_observed().decoder(only(observed).schema.row)
    assert decoder.decode(encode(list(documents))).lossy == {"v": 2 * repeat}
    assert decoder.decode(encode([b'{"v":1}'])).lossy == {}
    source = {"db": "d", "table": "x"}
    changes = [{"before": None, "after": {"v": v}, "op": "c", "source": source} for v in (0.5, 2**60 + 1)]
    observed = observe(DebeziumJson(), list(changes))
    changed = DebeziumJson().reading_observed().decoder(only(observed).schema.row).decode(encode(list(changes)))
    assert changed.lossy == {"v": 1}


def test_integers_that_lose_digits_when_a_schema_becomes_double_are_counted() -> None:
    def message(kind: str, value: float | None) -> dict[str, Any]:
        fields = [{"field": "v", "type": kind, "optional": True}]
        return {"schema": {"type": "struct", "fields": fields}, "payload": {"v": value}}

    integers = [2**53, 2**53 + 1, -(2**63), -(2**63) + 1, None, 7]
    documents: Documents = [*(message("int64", v) for v in integers), message("double", 0.5)]
    format_ = Json(schema_include=True)
    observed = observe(format_, documents)
    assert types(observed) == {"v": "DOUBLE"}
    decoded = format_.reading_observed().decoder(only(observed).schema.row).decode(encode(documents))
    assert (decoded.bad, decoded.lossy) == ((), {"v": 2})


@pytest.mark.parametrize("ignored", [True, False])
def test_messages_without_a_schema_are_errors_or_ignored(ignored: bool) -> None:
    fields = [{"field": "v", "type": "int64", "optional": True}]
    schema = {"type": "struct", "fields": fields}
    documents: Documents = [{"schema": schema, "payload": {"v": 1}}, {"v": 2}, {"schema": schema, "payload": {"v": 3}}]
    format_ = Json(schema_include=True, ignore_parse_errors=ignored)
    observed = observe(format_, [documents[0]])

    decoded = format_.reading_observed().decoder(only(observed).schema.row).decode(encode(documents))

    assert [bad.index for bad in decoded.bad] == ([] if ignored else [1])
    assert decoded.rows.to_pylist() == [{"v": 1}, {"v": 3}]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["2024-02-29", "0001-01-01"], "DATE"),
        (["2024-01-01", "n/a"], "STRING"),
        (["2024-02-30"], "STRING"),
        (["0000-01-01"], "STRING"),
        (["2024-01-01", "2024-01-01 10:00:00"], "TIMESTAMP(6)"),
        (["2024-01-01 10:00:00", "2024-01-01T10:00:00.5"], "TIMESTAMP(3)"),
        (["2024-01-01 10:00:00.123456"], "TIMESTAMP(6)"),
        (["2024-01-01 10:00:00.1234567"], "STRING"),
        (["2024-01-01T10:00:00Z", "2024-01-01 10:00:00.5"], "TIMESTAMP_LTZ(3)"),
        (["2024-01-01T10:00:00+02:00"], "STRING"),
        (["10:00:00", "23:59:59.5"], "TIME(3)"),
        (["24:00:00"], "STRING"),
        (["10:00:00", "2024-01-01"], "STRING"),
    ],
)
def test_strings_get_the_types_that_they_look_like(values: list[str], kind: str) -> None:
    documents = [{"v": value} for value in values]
    observed = observe(Json(), list(documents))
    assert types(observed) == {"v": kind}
    rows = read(Json(), list(documents), observed)
    if kind == "STRING":
        assert rows == documents


def test_dates_and_timestamps_are_read_as_what_they_are() -> None:
    documents = [{"d": "2024-01-01", "t": "2024-01-01", "z": "2024-01-01T10:00:00Z"}]
    documents += [{"d": "2024-01-02", "t": "2024-01-01T10:00:00.25", "z": "2024-01-01 10:00:00"}]
    observed = observe(Json(), list(documents))
    first, second = read(Json(), list(documents), observed)
    noon = datetime(2024, 1, 1, 10, tzinfo=UTC)
    assert first == {"d": date(2024, 1, 1), "t": datetime(2024, 1, 1), "z": noon}
    assert second == {"d": date(2024, 1, 2), "t": datetime(2024, 1, 1, 10, 0, 0, 250_000), "z": noon}


def test_arrays_and_objects_are_strings_throughout() -> None:
    documents = [b'{"v":[{"a": 1}]}', b'{"v":[1, "x"]}', b'{"v":{"b":1,"a":[ ]}}']
    observed = observe(Json(), list(documents))
    assert types(observed) == {"v": "STRING"}
    assert [row["v"] for row in read(Json(), list(documents), observed)] == ['[{"a":1}]', '[1,"x"]', '{"b":1,"a":[]}']


def test_messages_of_another_format_are_explained() -> None:
    change = {"data": [{"id": "1"}], "type": "INSERT", "database": "d", "table": "x", "old": None}
    documents: Documents = [change, change, {"before": None}]
    declared = DebeziumJson()
    message = explain_bad_batch(declared, encode(documents), observe(declared, documents))
    assert message is not None
    assert message.startswith(
        "3 of 3 messages cannot be read as debezium-json, the first because there is no member 'op'"
    )
    assert message.endswith("they look like canal-json")
    right = CanalJson()
    assert explain_bad_batch(right, encode(documents), observe(right, documents)) is None
    assert suggest_format([b"x", b"y"]) is None


@pytest.mark.parametrize(
    ("document", "identifier"),
    [
        ({"before": None, "after": {"a": 1}, "op": "c", "source": {"db": "d", "table": "x"}}, "debezium-json"),
        ({"data": {"a": 1}, "type": "insert", "database": "d", "table": "x"}, "maxwell-json"),
        ({"after": {"a": 1}, "op_type": "I", "table": "D.X"}, "ogg-json"),
        ({"a": 1}, "json"),
    ],
)
def test_a_format_is_suggested_for_messages(document: Any, identifier: str) -> None:
    suggestion = suggest_format([json.dumps(document).encode()] * 3)
    assert suggestion is not None
    assert suggestion[0].identifier == identifier


def test_scalars_as_strings_are_as_they_are_spelled() -> None:
    format_ = Json(infer_primitive_as_string=True)
    documents = [b'{"i":1,"f":1.50,"b":true,"d":"2024-01-01","o":{"x":1}}']
    observed = observe(format_, list(documents))
    assert set(types(observed).values()) == {"STRING"}
    expected = {"i": "1", "f": "1.50", "b": "true", "d": "2024-01-01", "o": '{"x":1}'}
    assert read(format_, list(documents), observed) == [expected]


def test_fixed_types_are_not_widened() -> None:
    format_ = Json(infer_fixed_types="id BIGINT, name VARCHAR(10), amount DECIMAL(10, 2)")
    documents: Documents = [
        {"id": 1, "name": "x", "amount": 1.5, "more": 1}, {"id": "2"}, {"id": 1.5}, {"id": "x"}, {"name": "x" * 11},
        {"amount": 1.005}, {"amount": "2.50"},
    ]  # fmt: skip
    observed = observe(format_, documents)
    assert types(observed) == {"id": "BIGINT", "name": "VARCHAR(10)", "amount": "DECIMAL(10, 2)", "more": "BIGINT"}
    assert list(reasons(observed)) == [2, 3, 4, 5]


@pytest.mark.parametrize("text", ["id BIGNT", "id INT> ARRAY --", "id INT> --", "id INT> NOT NULL --"])
def test_fixed_types_that_are_not_a_list_of_types_are_reported(text: str) -> None:
    assert [p.option for p in Json(infer_fixed_types=text).problems()] == ["infer_fixed_types"]


def test_rows_with_their_schema_have_its_types() -> None:
    fields = [
        {"field": "id", "type": "int32"},
        {"field": "day", "type": "int32", "name": "org.apache.kafka.connect.data.Date", "optional": True},
        {"field": "tags", "type": "array", "items": {"type": "string"}, "optional": True},
    ]
    schema = {"type": "struct", "fields": fields}
    documents: Documents = [
        {"schema": schema, "payload": {"id": 1, "day": 19844, "tags": ["a"]}},
        {"schema": {"type": "struct", "fields": [{"field": "id", "type": "string"}]}, "payload": {"id": "x"}},
        {"payload": {"id": 1}},
        {"schema": None, "payload": None},
    ]
    format_ = Json(schema_include=True)
    observed = observe(format_, documents)
    assert types(observed) == {"id": "STRING", "day": "DATE", "tags": "STRING"}
    assert observed.tables.to_pylist() == [0, 0, None, None]
    assert list(reasons(observed)) == [2]
    assert read(format_, documents[:2], observed) == [
        {"id": "1", "day": date(2024, 5, 1), "tags": '["a"]'}, {"id": "x", "day": None, "tags": None},
    ]  # fmt: skip


CANAL: dict[str, Any] = {
    "data": [{"id": "1", "n": "12.50", "f": "1", "b": "\u00ff\u0000", "at": "2024-01-01 10:00:00", "u": "5"}],
    "old": None, "type": "INSERT", "database": "crm", "table": "users", "pkNames": ["id"], "isDdl": False,
    "sqlType": {"id": -5, "n": 3, "f": -7, "b": 2004, "at": 93, "u": 4},
    "mysqlType": {
        "id": "bigint(20) unsigned", "n": "decimal(10,2)", "f": "tinyint(1)", "b": "blob", "at": "timestamp(3)",
        "u": "int unsigned",
    },
}  # fmt: skip


@pytest.mark.parametrize(
    ("format_", "expected"),
    [
        (CanalJson(), ["STRING NOT NULL", *["STRING"] * 5]),
        (
            CanalJson(infer_strategy="SQL_TYPE"),
            ["BIGINT NOT NULL", "DECIMAL(38, 18)", "BOOLEAN", "BYTES", "TIMESTAMP(6)", "INT"],
        ),
        (
            CanalJson(infer_strategy="MYSQL_TYPE"),
            ["DECIMAL(20, 0) NOT NULL", "DECIMAL(10, 2)", "BOOLEAN", "BYTES", "TIMESTAMP(3)", "BIGINT"],
        ),
        (
            CanalJson(infer_strategy="MYSQL_TYPE", mysql_tinyint1_as_boolean=False, mysql_timestamp_as_datetime=False),
            ["DECIMAL(20, 0) NOT NULL", "DECIMAL(10, 2)", "TINYINT", "BYTES", "TIMESTAMP_LTZ(3)", "BIGINT"],
        ),
        (CanalJson(infer_strategy="SQL_TYPE", infer_primitive_as_string=True), ["STRING NOT NULL", *["STRING"] * 5]),
    ],
)
def test_canal_says_types_and_keys(format_: CanalJson, expected: list[str]) -> None:
    observed = observe(format_, [CANAL])
    assert only(observed).table == ("crm", "users")
    assert only(observed).schema.primary_key == ("id",)
    assert list(types(observed).values()) == expected
    row = read(format_, [CANAL], observed)[0]
    assert row["b"] in (b"\xff\x00", "\u00ff\u0000")
    assert row["f"] in (True, 1, "1")


JDBC_TYPES = {
    "BOOLEAN": (-7, 16), "TINYINT": (-6,), "SMALLINT": (5,), "INT": (4,), "BIGINT": (-5,), "DECIMAL(38, 18)": (3, 2),
    "FLOAT": (7, 6), "DOUBLE": (8,), "BYTES": (-2, -3, -4, 2004), "DATE": (91,), "TIME(6)": (92,),
    "TIMESTAMP(6)": (93,), "STRING": (1, 12, -1, 1111, 2005),
}  # fmt: skip
MYSQL_TYPES = {
    "BOOLEAN": ("tinyint(1)", "bit(1)", "bit", "boolean"), "TINYINT": ("tinyint", "TINYINT(4)"),
    "SMALLINT": ("smallint(6)", "tinyint unsigned", "tinyint(1) unsigned"),
    "INT": ("int", "integer", "mediumint(9)", "mediumint unsigned", "smallint(5) unsigned", "year", "year(4)"),
    "BIGINT": ("bigint(20)", "int(10) unsigned", "int unsigned zerofill", "bit(8)"),
    "DECIMAL(20, 0)": ("bigint(20) unsigned", "bit(64)"),
    "DECIMAL(10, 2)": ("decimal(10,2)", "decimal(10, 2) unsigned"),
    "DECIMAL(10, 0)": ("decimal", "numeric(10)", "decimal(0)"), "FLOAT": ("float", "float(7,4)", "float unsigned"),
    "DOUBLE": ("double", "double precision", "real"), "DATE": ("date",), "TIME(0)": ("time",), "TIME(3)": ("time(3)",),
    "TIMESTAMP(0)": ("datetime", "timestamp"), "TIMESTAMP(6)": ("datetime(6)", "timestamp(6)"),
    "TIMESTAMP(9)": ("datetime(10)", "timestamp(99)"), "TIME(9)": ("time(10)",), "CHAR(1)": ("char", "char(0)"),
    "CHAR(3)": ("char(3)",), "VARCHAR(20)": ("varchar(20)",),
    "STRING": (
        "text", "tinytext", "longtext", "json", "enum('a','b')", "set('a')", "geometry", "decimal(65,2)", "?",
        "decimal(5,10)", "varchar", "varchar(0)", "varchar(2147483648)", "char(2147483648)",
    ),
    "BYTES": ("blob", "longblob", "binary(4)", "varbinary(10)"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "member", "types_by_name"),
    [("SQL_TYPE", "sqlType", JDBC_TYPES), ("MYSQL_TYPE", "mysqlType", MYSQL_TYPES)],
)
def test_every_type_that_canal_says(strategy: Any, member: str, types_by_name: dict[str, tuple[Any, ...]]) -> None:
    declared = {f"c{i}": one for i, one in enumerate(one for some in types_by_name.values() for one in some)}
    expected = [name for name, some in types_by_name.items() for _ in some]
    document = {**CANAL, "data": [dict.fromkeys(declared)], "pkNames": None, member: declared}

    observed = observe(CanalJson(infer_strategy=strategy), [document])

    assert list(types(observed).values()) == expected
    assert [str(parse_type(name)) for name in expected] == expected


def test_canal_messages_that_contradict_what_they_say_are_bad() -> None:
    row = CANAL["data"][0]
    documents: Documents = [
        CANAL,
        {**CANAL, "sqlType": None},
        {**CANAL, "data": [{**row, "more": "x"}]},
        {**CANAL, "data": [{**row, "at": "0000-00-00 00:00:00"}]},
        {**CANAL, "data": [{**row, "f": "5"}]},
        {**CANAL, "data": [{**row, "id": None}]},
        {**CANAL, "pkNames": ["n"]},
        {**CANAL, "type": "ALTER", "isDdl": True, "data": None},
    ]
    observed = observe(CanalJson(infer_strategy="SQL_TYPE"), documents)
    assert observed.tables.to_pylist() == [0, *[None] * 7]
    shown = {index: reason.partition(":")[0] for index, reason in reasons(observed).items()}
    assert list(shown) == [1, 2, 3, 4, 5, 6], "the last one is about a DDL statement, and not bad"
    assert "the primary key is ('n'), but that of the table is ('id')" in reasons(observed)[6]
    assert [reasons(observed)[i].split("'")[1] for i in (1, 2, 3, 4, 5)] == ["sqlType", "more", "at", "f", "id"]


def test_change_data_by_values_joins_rows_before_and_after() -> None:
    source = {"db": "shop", "schema": "public", "table": "orders"}
    documents: Documents = [
        {"before": None, "after": {"id": 1, "v": 1}, "op": "c", "source": source},
        {"before": {"id": 1, "v": 1, "gone": True}, "after": {"id": 1, "v": "x"}, "op": "u", "source": source},
        {"status": "BEGIN", "id": "1"},
        {"before": {"id": 1, "v": "x"}, "after": None, "op": "d", "source": {"db": "shop", "table": "orders"}},
    ]
    observed = observe(DebeziumJson(), documents)
    assert observed.ids == (("shop", "public", "orders"), ("shop", "orders"))
    assert observed.tables.to_pylist() == [0, 0, None, 1]
    assert {f.name: str(f.type) for f in observed.deltas[0].schema.columns} == {
        "id": "BIGINT", "v": "STRING", "gone": "BOOLEAN",
    }  # fmt: skip


def test_maxwell_and_goldengate_say_tables_and_keys() -> None:
    maxwell = {"data": {"id": 1}, "type": "insert", "database": "d", "table": "x", "primary_key_columns": ["id"]}
    ogg = {"after": {"id": 1}, "op_type": "I", "table": "D.X", "primary_keys": ["id"]}
    for format_, document, table in ((MaxwellJson(), maxwell, ("d", "x")), (OggJson(), ogg, ("D", "X"))):
        delta = only(observe(format_, [document]))
        assert (delta.table, delta.schema.primary_key) == (table, ("id",))
        assert delta.schema.columns == t.row(id=t.BigInt(nullable=False)).fields


SHAPES: list[tuple[str, dict[str, Any]]] = [
    ("BIGINT", {"s00": 1}), ("DOUBLE", {"s01": 1.5}), ("BOOLEAN", {"s02": True}), ("STRING", {"s03": "x"}),
    ("DATE", {"s04": "2024-01-01"}), ("TIME(3)", {"s05": "10:00:00.5"}),
    ("TIMESTAMP(0)", {"s06": "2024-01-01 10:00:00"}),
    ("TIMESTAMP_LTZ(0)", {"s07": "2024-01-01 10:00:00Z"}), ("STRING", {"s08": [1, 2]}), ("STRING", {"s09": {"a": 1}}),
    ("DECIMAL(38, 0)", {"s10": 2**64}), ("STRING", {"s11": 10**40}), ("STRING", {"s12": "é \" \\ \n"}),
    ("TIMESTAMP(6)", {"s13": "2024-01-01 10:00:00.123456"}), ("BIGINT", {"s14": -1}), ("DOUBLE", {"s15": 1e300}),
    ("STRING", {"s16": ""}), ("STRING", {"s17": "2024-02-30"}), ("STRING", {"s18": []}),
    ("STRING", {"s19": "24:00:00"}),
]  # fmt: skip


@pytest.mark.parametrize("repeat", [1, 30])
def test_a_topic_of_twenty_shapes_reads_as_the_same_table_declared_by_hand(repeat: int) -> None:
    documents = [{"id": i, **values, "nothing": None} for i, (_, values) in enumerate(SHAPES * repeat)]
    observed = observe(Json(), list(documents))
    declared = {"id": "BIGINT"} | {name: kind for kind, values in SHAPES for name in values}
    assert len(SHAPES) == 20
    assert types(observed) == declared
    by_hand = Json().decoder(t.Row(tuple(t.Field(name, parse_type(kind)) for name, kind in declared.items())))
    expected = by_hand.decode(encode(list(documents)))
    assert expected.bad == ()
    assert read(Json(), list(documents), observed) == expected.rows.to_pylist()


def test_a_format_without_an_observer_has_none() -> None:
    assert Csv().observer() is None
    assert Csv().reading_observed() == Csv()
