"""Observing change data: the fast observer finds what the reference finds, and the decoder reads what is observed."""

from __future__ import annotations

import json
from random import Random
from typing import Any, Literal

import attrs
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from kdsl.formats import Decoded, LocatedMessages, LocatingDecoder, Observed, TableId, Use
from kdsl.types import model as t
from kdsl.types.arrays import Indices
from kdsl.types.widening import TableSchema, join_schemas
from kdsl_formats.cdc_json import CanalJson, DebeziumJson, MaxwellJson, OggJson
from kdsl_formats.cdc_json.decoder import ChangeDecoder
from kdsl_formats.cdc_json.formats import ChangeJson
from kdsl_formats.cdc_json.observer import ChangeObserver
from kdsl_formats.json.objects import FoundMembers, ObjectFinder
from tests.formats import debezium_messages
from tests.formats.json_documents import STYLES, Style, Writer
from tests.formats.test_observe_json import Records, facts
from tests.strategies import examples

unhurried = settings(
    max_examples=examples(300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
RANDOMS = st.randoms(use_true_random=False)
JDBC = {"int": "-5", "number": "3", "text": "12", "bool": "-7", "object": "12", "array": "-1", "day": "93", "null": "4"}
MYSQL = {
    "int": '"bigint(20)"', "number": '"decimal(20,4)"', "text": '"varchar(40)"', "bool": '"tinyint(1)"',
    "object": '"json"', "array": '"blob"', "day": '"datetime(3)"', "null": '"float unsigned"',
}  # fmt: skip
TEXTS = {
    "int": ["1", "-5", "9223372036854775808", "12.5", " 7"],
    "number": ["1.5", "0.12345", "1e3", "x", "12345678901234567890"],
    "bool": ["0", "1", "2", "true"], "day": ["2024-01-01 10:00:00", "2024-01-01", "0000-00-00 00:00:00", "2024-02-30"],
    "array": ["abc", "\u00ff\u0001", "\u4e2d"], "null": ["1.5", "3.4e39", "NaN"],
}  # fmt: skip


@attrs.define
class Changes(Records):
    """Writes changes of rows, mostly of one table."""

    def changes(self, format_: ChangeJson, count: int) -> list[bytes | None]:
        r, dialect = self.random, format_.dialect
        writer = Writer(r, self.dirt)
        styles = r.sample(STYLES, r.randint(1, 2))
        names = r.sample(["a", "b", "c", "é"], r.randint(1, 3))
        kinds = {name: r.choice([*JDBC]) for name in names}
        key = r.choice([[], ["a"], names[:1]])
        messages: list[bytes | None] = []
        for _ in range(count):
            style = r.choice(styles)
            operation = r.choice([*dialect.inserts, dialect.update, dialect.delete])
            if r.random() < self.dirt / 4:
                operation = r.choice([*dialect.skipped, "t", "ALTER", "x"])
            members = self.images(format_, operation, kinds, style, writer)
            members.append((dialect.operation, json.dumps(operation)))
            members += self.beside(format_, kinds, key, style, writer)
            if r.random() < self.dirt / 4:
                r.shuffle(members)
            if r.random() < self.dirt / 8:
                members = [(n, v if r.random() < 0.8 else writer.any(style, 1)) for n, v in members]
            parts = [f"{writer.text(n, style)}{style.colon}{v}" for n, v in members]
            text = f"{{{style.comma.join(parts)}}}"
            messages.append(
                writer.broken(text, t.row(a=t.Int()), style) if r.random() < self.dirt / 4 else text.encode()
            )
        return messages

    def images(
        self, format_: ChangeJson, operation: str, kinds: dict[str, str], style: Style, writer: Writer
    ) -> list[tuple[str, str]]:
        dialect, r = format_.dialect, self.random
        is_update = operation == dialect.update

        def row(share: float = 1.0) -> str:
            members = [(n, k) for n, k in kinds.items() if r.random() < share]
            if dialect.name == "Canal":
                parts = [f"{writer.text(n, style)}{style.colon}{self.column(k, style, writer)}" for n, k in members]
                return f"{{{style.comma.join(parts)}}}"
            return self.object(members, style, writer, 2)

        match dialect.images:
            case "before and after":
                before = row() if is_update or operation == dialect.delete else "null"
                after = "null" if operation == dialect.delete else row()
                return [("before", before), ("after", after)]
            case "data and old":
                return [("data", row()), ("old", row(0.5) if is_update else "null")]
            case _:
                count = r.choice([1, 1, 2])
                data, old = ([row(share) for _ in range(count)] for share in (1.0, 0.5))
                return [
                    ("data", f"[{style.comma.join(data)}]"),
                    ("old", f"[{style.comma.join(old)}]" if is_update else "null"),
                ]

    def column(self, kind: str, style: Style, writer: Writer) -> str:
        """A value of Canal: a string, or null."""
        r = self.random
        if r.random() < self.dirt / 4:
            return self.value(kind, style, writer, 1)
        if r.random() < 0.1:
            return "null"
        texts = TEXTS.get(kind, ["x", "", "2024-01-01"])
        return writer.text(texts[0] if r.random() > self.dirt else r.choice(texts), style)

    def beside(
        self, format_: ChangeJson, kinds: dict[str, str], key: list[str], style: Style, writer: Writer
    ) -> list[tuple[str, str]]:
        r = self.random
        table = r.choice(["orders", "orders", "orders", "items"])
        if format_.dialect.name == "Debezium":
            schema = r.choice(["", '"schema":null,', '"schema":"public",']) if r.random() < 0.3 else ""
            return [("source", f'{{"ts_ms":5,"db":"shop",{schema}"table":"{table}"}}')]
        if format_.dialect.name == "Ogg":
            return [("table", f'"SHOP.{table}"'), ("primary_keys", json.dumps(key))]
        members = [("database", '"shop"'), ("table", f'"{table}"')]
        if format_.dialect.name == "Maxwell":
            return [*members, ("primary_key_columns", json.dumps(key))]
        typed = [n for n in kinds if r.random() > self.dirt / 8]
        jdbc = ",".join(f"{json.dumps(n)}:{JDBC[kinds[n]]}" for n in typed)
        mysql = ",".join(f"{json.dumps(n)}:{MYSQL[kinds[n]]}" for n in typed)
        members += [("pkNames", json.dumps(key) if key else "null"), ("sqlType", f"{{{jdbc}}}")]
        return [*members, ("mysqlType", f"{{{mysql}}}"), ("isDdl", "true" if r.random() < self.dirt / 8 else "false")]


def formats() -> st.SearchStrategy[ChangeJson]:
    """The formats with options that change what is inferred."""
    common = {
        "infer_primitive_as_string": st.sampled_from([False, False, False, True]),
        "infer_fixed_types": st.sampled_from([None, None, "a BIGINT", "b STRING, c DOUBLE"]),
    }
    canal = st.builds(
        CanalJson,
        infer_strategy=st.sampled_from(["AUTO", "SQL_TYPE", "MYSQL_TYPE"]),
        database_include=st.sampled_from([None, "shop|x"]),
        table_include=st.sampled_from([None, "ord.*"]),
        mysql_timestamp_as_datetime=st.booleans(),
        mysql_tinyint1_as_boolean=st.booleans(),
        **common,
    )
    debezium = st.builds(DebeziumJson, truncate=st.sampled_from(["error", "skip"]), **common)
    return st.one_of(canal, canal, debezium, st.builds(MaxwellJson, **common), st.builds(OggJson, **common))


def check_readable(
    format_: ChangeJson, use: Use, messages: list[bytes | None], observed: Observed, known: dict[TableId, TableSchema]
) -> None:
    """The decoder reads what is observed with the joined schema, and where all columns are joined with STRING."""
    deltas = {delta.table: delta.schema for delta in observed.deltas}
    for code, table in enumerate(observed.ids):
        schema = join_schemas(known.get(table), deltas.get(table))
        if schema is None or not schema.columns:
            continue
        mine = [m for m, each in zip(messages, observed.tables.to_pylist(), strict=True) if each == code]
        strings = TableSchema(tuple(attrs.evolve(f, type=t.STRING) for f in schema.columns))
        for one in (schema, join_schemas(schema, strings)):
            assert one is not None
            decoded = format_.reading_observed().decoder(one.row, use).decode(pa.array(mine, pa.binary()))
            assert decoded.bad == ()


@unhurried
@given(RANDOMS, formats(), st.sampled_from([0.0, 0.05, 0.3]), st.sampled_from([1, 5, 48]), st.integers(1, 100))
def test_the_fast_observer_finds_what_the_reference_finds(
    random: Random, format_: ChangeJson, dirt: float, min_batch: int, count: int
) -> None:
    messages = Changes(random, dirt).changes(format_, count)
    array = pa.array(messages, pa.binary())
    use = Use(keyed=random.choice([(), (), ("a",)]))
    fast = format_.observer(use)
    assert isinstance(fast, ChangeObserver)
    by_columns = ChangeObserver(fast.reference, fast.reader, min_batch=min_batch)
    expected = fast.reference.observe(array, {})
    assert facts(by_columns.observe(array, {})) == facts(expected)
    known = {delta.table: delta.schema for delta in expected.deltas}
    again = by_columns.observe(array, known)
    assert again.deltas == (), "what was observed is known"
    assert facts(again) == facts(fast.reference.observe(array, known))
    check_readable(format_, use, messages, expected, {})


def contents(decoded: Decoded) -> dict[str, str]:
    """All that a decoder returned, in a form that can be compared."""
    shown = {name: repr(value) for name, value in attrs.asdict(decoded, recurse=False).items()}
    for name in ("rows", "messages", "kinds"):
        shown[name] = repr(pa.array(getattr(decoded, name)).to_pylist())
    for name in ("metadata", "unavailable"):
        shown[name] = repr({key: array.to_pylist() for key, array in sorted(getattr(decoded, name).items())})
    for name in ("undeclared", "lossy"):
        shown[name] = repr(sorted(getattr(decoded, name).items()))
    return shown


@unhurried
@given(
    RANDOMS, formats(), st.sampled_from([0.0, 0.02, 0.1]), st.sampled_from([1, 5, 48]), st.integers(1, 120),
    st.booleans(),
)  # fmt: skip
def test_what_the_observer_has_located_is_read_as_without_it(
    random: Random, format_: ChangeJson, dirt: float, min_batch: int, count: int, by_key: bool
) -> None:
    """Also with fewer columns than there are members, with metadata, and after the observer was used again."""
    array = pa.array(Changes(random, dirt).changes(format_, count), pa.binary())
    keyed = ("a",) if by_key else ()
    fast = format_.observer(Use(keyed=keyed))
    assert isinstance(fast, ChangeObserver)
    observer = ChangeObserver(fast.reference, fast.reader, min_batch=min_batch)
    known = {delta.table: delta.schema for delta in observer.observe(array, {}).deltas}
    observed = observer.observe(array, known)
    codes = observed.tables.fill_null(-1).to_numpy()
    metadata = tuple(name for name in format_.metadata if random.random() < 0.3)
    arguments: list[tuple[ChangeDecoder, pa.Array, LocatedMessages, Indices]] = []
    for code, table in enumerate(observed.ids):
        located = observed.located.get(table)
        if located is None or table not in known:
            continue
        places: Indices = np.flatnonzero(codes == code)
        messages = array.take(pa.array(places))
        columns = tuple(f for f in known[table].columns if f.name in keyed or random.random() < 0.9)
        if not columns:
            continue
        rules = format_.reading_observed().change_rules(t.Row(columns), Use(metadata=metadata, keyed=keyed))
        decoder, other = (ChangeDecoder(rules, min_batch=min_batch) for _ in range(2))
        expected = contents(other.decode(messages))
        assert contents(decoder.decode_located(messages, located, places)) == expected
        assert contents(decoder.decode_located(messages, located, places)) == expected, "it is not changed"
        arguments.append((decoder, messages, located, places))
    observer.observe(pa.array([b'{"x":1}'] * count, pa.binary()), known)
    for decoder, messages, located, places in arguments:
        again = decoder.decode_located(messages, located, places)
        assert contents(again) == contents(decoder.decode(messages)), "what is not valid any longer is not used"


@pytest.mark.parametrize("format_", [DebeziumJson(), CanalJson(), MaxwellJson(), OggJson()])
def test_the_decoder_does_not_look_for_located_members_again(
    format_: ChangeJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    row, other = {"id": 1, "text": "x", "n": 2.5}, {"id": 1, "text": "y", "n": None}
    debezium = {"source": {"db": "d", "table": "x"}}
    messages_of: dict[str, list[dict[str, Any]]] = {
        "debezium-json": [
            {"before": None, "after": row, "op": "c", **debezium},
            {"before": row, "after": other, "op": "u", **debezium},
        ],
        "canal-json": [
            {"data": [row], "old": None, "type": "INSERT", "database": "d", "table": "x", "pkNames": None},
            {"data": [row, other], "old": [{"n": 1}, {"n": 2}], "type": "UPDATE", "database": "d", "table": "x",
             "pkNames": None},
        ],
        "maxwell-json": [
            {"database": "d", "table": "x", "type": "insert", "data": row},
            {"database": "d", "table": "x", "type": "update", "data": other, "old": {"text": "x"}},
        ],
        "ogg-json": [
            {"table": "d.x", "op_type": "I", "after": row},
            {"table": "d.x", "op_type": "U", "before": row, "after": other},
        ],
    }  # fmt: skip
    documents = messages_of[format_.identifier] * 100
    array = pa.array([json.dumps(document, separators=(",", ":")).encode() for document in documents], pa.binary())
    observer = format_.observer()
    assert isinstance(observer, ChangeObserver)
    known = {delta.table: delta.schema for delta in observer.observe(array, {}).deltas}
    observed = observer.observe(array, known)
    (table,), places = observed.ids, np.arange(len(array))
    decoder = format_.reading_observed().decoder(known[table].row)
    assert isinstance(decoder, LocatingDecoder)
    expected = contents(decoder.decode(array))

    def find(*_: object) -> FoundMembers:
        raise AssertionError("the members of changes and rows are known")

    monkeypatch.setattr(ObjectFinder, "find", find)
    assert contents(decoder.decode_located(array, observed.located[table], places)) == expected


@pytest.mark.parametrize("strategy", ["AUTO", "SQL_TYPE", "MYSQL_TYPE"])
def test_plain_changes_need_no_look_of_the_reference(strategy: Literal["AUTO", "SQL_TYPE", "MYSQL_TYPE"]) -> None:
    format_ = CanalJson(infer_strategy=strategy)
    row = {"id": "1", "name": "x", "amount": None}
    more = {
        "sqlType": {"id": -5, "name": 12, "amount": 3},
        "mysqlType": {"id": "int", "name": "text", "amount": "float"},
    }
    beside = {"database": "d", "table": "x", "pkNames": ["id"], **more}
    documents = [
        {"data": [row], "old": None, "type": "INSERT", **beside},
        {"data": [{**row, "amount": "2.5"}], "old": [{"amount": None}], "type": "UPDATE", **beside},
        {"data": [row, row], "old": None, "type": "DELETE", **beside},
    ]
    messages = pa.array([json.dumps(document).encode() for document in documents] * 100, pa.binary())
    observer = format_.observer()
    assert isinstance(observer, ChangeObserver)
    known = {delta.table: delta.schema for delta in observer.observe(messages, {}).deltas}
    looked: list[int] = []
    look_at = observer.reference.look_at

    def count_looks(observation: Any, index: int, message: bytes | None) -> None:
        looked.append(index)
        look_at(observation, index, message)

    observer.reference.look_at = count_looks  # type: ignore[method-assign]
    assert not observer.observe(messages, known).bad
    assert not looked


def test_an_observer_remembers_no_members_of_messages() -> None:
    observer = MaxwellJson().observer()
    assert isinstance(observer, ChangeObserver)
    change = b'{"database":"d","table":"x","type":"insert","data":{"a%d":1}}'
    observed = observer.observe(pa.array([change % i for i in range(3)], pa.binary()), {})
    assert len(observed.deltas[0].schema.columns) == 3
    assert not observer.reader._structure.undeclared


def test_messages_of_a_real_debezium_with_their_schemas() -> None:
    """Types come from the schema: decimals, times and numbers of their widths."""
    messages = [one.value for one in debezium_messages.load_messages("schemas.shop.full")]
    format_ = DebeziumJson(schema_include=True, truncate="skip")
    observer = format_.observer()
    assert isinstance(observer, ChangeObserver)
    observed = observer.observe(pa.array(messages * 20, pa.binary()), {})
    assert observed.ids == (("postgres", "shop", "full"),)
    types = {f.name: f.type for f in observed.deltas[0].schema.columns}
    assert types["a_numeric_12_2"] == t.Decimal(12, 2)
    assert types["a_smallint"] == t.SmallInt()
    assert types["a_date"] == t.Date()
    assert types["a_bytea"] == t.BYTES
    assert {bad.reason for bad in observed.bad} == {
        "field 'a_numeric': an object is not a DECIMAL(38, 18) (it has too many digits)"
    }
    good = [m for m, table in zip(messages * 20, observed.tables.to_pylist(), strict=True) if table == 0]
    decoder = format_.reading_observed().decoder(observed.deltas[0].schema.row)
    decoded = decoder.decode(pa.array(good, pa.binary()))
    assert decoded.bad == ()
    by_hand = DebeziumJson(
        schema_include=True, truncate="skip", decimal_handling_mode="precise", time_precision_mode="adaptive"
    )
    expected = by_hand.decoder(observed.deltas[0].schema.row).decode(pa.array(good, pa.binary()))
    assert expected.bad == ()
    for field in observed.deltas[0].schema.columns:
        if field.name != "a_point":  # a number is spelled as it was, and not as the tree reader of Flink spells it
            assert repr(decoded.rows.field(field.name).to_pylist()) == repr(expected.rows.field(field.name).to_pylist())


def _with_schema(fields: list[dict[str, Any]], row: dict[str, Any]) -> bytes:
    """An insert of Debezium with its schema."""
    image = {"type": "struct", "optional": True, "fields": fields}
    schema = {"type": "struct", "fields": [{**image, "field": "before"}, {**image, "field": "after"}]}
    change = {"before": None, "after": row, "op": "c", "source": {"db": "d", "table": "x"}}
    return json.dumps({"schema": schema, "payload": change}, separators=(",", ":")).encode()


def test_types_of_a_schema_beside_fixed_types_and_strings() -> None:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "field": "a", "optional": True}
    fields = [{**decimal, "parameters": {"scale": "2"}}, {"type": "int32", "field": "b", "optional": True}]
    good, bad = ([_with_schema(fields, {"a": a, "b": 1})] * 60 for a in ("AJY=", "?"))
    for options, kinds, row in (
        ({"infer_primitive_as_string": True}, ["STRING", "STRING"], {"a": "1.50", "b": "1"}),
        ({"infer_fixed_types": "a STRING, b BIGINT"}, ["STRING", "BIGINT"], {"a": "1.50", "b": 1}),
        ({"infer_fixed_types": "b TINYINT"}, None, None),
    ):
        format_ = DebeziumJson(schema_include=True, **options)
        observed = format_.observer().observe(pa.array([*good, *bad], pa.binary()), {})
        if kinds is None:
            assert {one.reason for one in observed.bad[:60]} == {
                "field 'b': the schema in the message says INT, which TINYINT does not hold"
            }
            continue
        assert [one.index for one in observed.bad] == list(range(60, 120))
        columns = observed.deltas[0].schema.row
        assert [str(f.type) for f in columns.fields] == kinds
        decoded = format_.reading_observed().decoder(columns).decode(pa.array(good, pa.binary()))
        assert decoded.rows.to_pylist() == [row] * 60


def test_a_schema_that_changes_its_scale_and_its_unit_is_read_right() -> None:
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "field": "amount", "optional": True}
    narrow = [
        {**decimal, "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
        {"type": "int64", "name": "io.debezium.time.Timestamp", "field": "at", "optional": True},
        {"type": "int32", "name": "io.debezium.time.Date", "field": "day", "optional": True},
    ]
    wide = [
        {**decimal, "parameters": {"scale": "4", "connect.decimal.precision": "12"}},
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "field": "at", "optional": True},
        {"type": "string", "field": "day", "optional": True},
    ]
    messages = [
        _with_schema(narrow, {"amount": "AJY=", "at": 1000, "day": 1}),  # 1.50
        _with_schema(wide, {"amount": "OpA=", "at": 2_000_000, "day": "soon"}),  # 1.4992
    ]
    format_ = DebeziumJson(schema_include=True)
    observed = format_.observer().observe(pa.array(messages, pa.binary()), {})
    row = observed.deltas[0].schema.row
    assert [f.type for f in row.fields] == [t.Decimal(12, 4), t.Timestamp(6), t.STRING]
    decoded = format_.reading_observed().decoder(row).decode(pa.array(messages, pa.binary()))
    assert decoded.bad == ()
    values = [[str(value) for value in each.values()] for each in decoded.rows.to_pylist()]
    assert values == [["1.5000", "1970-01-01 00:00:01", "1970-01-02"], ["1.4992", "1970-01-01 00:00:02", "soon"]]
