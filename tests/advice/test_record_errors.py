"""What errors about records advise: a fix is followed, the record is then read, and the other rows stay as they were.

A suggestion in the code that reads records needs a case in `READINGS` or `INGESTIONS`, or a line in `ELSEWHERE`.
"""

from __future__ import annotations

import ast
import io
import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from uuid import UUID

import attrs
import fastavro
import pytest

from kdsl.declare.config import Scalar
from kdsl.errors import RecordError
from kdsl.ingest import KafkaFeed
from kdsl.ingest.records import RecordSplitter, Split
from kdsl.plan.build import read_plan
from kdsl.resolve import resolve
from kdsl.run.records.decode import RecordDecoder
from kdsl_formats.cdc_json import DebeziumJson
from kdsl_formats.json import Json
from tests.advice.test_codes import RAISED_BY
from tests.ingest.test_records import feed, records
from tests.registry.front import Answer, Front, Request
from tests.resolve.tables import table
from tests.run.records.test_decode import raw
from tests.source_trees import modules, read, walk

Row = dict[str, Any]


@attrs.frozen(kw_only=True)
class Reading:
    """A table, records that it reads, one that it cannot read, and the table that follows the advice.

    Attributes:
        advice: A part of the suggestion.
        columns: The columns of the table.
        options: Its options, besides the topic.
        keys: Its primary key.
        good: Records that both tables read.
        bad: The record with the error; where the producer is to blame, `sent` is what it then sends.
        right_columns: The columns that follow the advice; None where they stay.
        right_options: The options that follow it; None for those that the error itself names as in SQL.
        right_keys: The primary key that follows it; None where it stays.
        sent: The record that the corrected producer sends in place of the bad one.
        rows: The rows of the record then: values of some columns.
        changes: What the error says where rows of other records change; empty where they must not.
    """

    advice: str
    columns: tuple[str, ...] = ("id INT", "name STRING")
    options: Mapping[str, Scalar]
    keys: tuple[str, ...] = ()
    good: tuple[Row, ...] = ()
    bad: Row
    right_columns: tuple[str, ...] | None = None
    right_options: Mapping[str, Scalar] | None = None
    right_keys: tuple[str, ...] | None = None
    sent: Row | None = None
    rows: tuple[Row, ...]
    changes: str = ""


def decode(
    columns: tuple[str, ...], options: Mapping[str, Scalar], keys: tuple[str, ...], records: list[Row], url: str
) -> list[Row]:
    values = {key: url if text == REGISTRY else text for key, text in options.items()}
    without = () if {"format", "value.format"} & values.keys() == {"format"} else ("format",)
    definition = table(*columns, options=values, primary_key=keys, without=without)
    rows = RecordDecoder(read_plan(resolve(definition, "read"))).decode(raw(records))
    return [{name: value for name, value in row.items() if not name.startswith("\ufdd0")} for row in rows.to_pylist()]


def value(text: str | bytes | None, key: bytes | None = None, **rest: Any) -> Row:
    return {"value": text.encode() if isinstance(text, str) else text, "key": key, **rest}


def change(after: str, op: str = "c", before: str = "null") -> str:
    return f'{{"before":{before},"after":{after},"op":"{op}"}}'


def connect(payload: str, *fields: str) -> str:
    """A row with Kafka Connect's schema."""
    return f'{{"schema":{{"type":"struct","fields":[{",".join(fields)}]}},"payload":{payload}}}'


REGISTRY = "REGISTRY"
JSON_OPTIONS: Mapping[str, Scalar] = {"format": "json"}
DEBEZIUM: Mapping[str, Scalar] = {"format": "debezium-json"}
KEYED: Mapping[str, Scalar] = {
    "cdc-events-duplicate": "true", "key.format": "json", "key.fields": "id", "value.format": "debezium-json"
}  # fmt: skip
AVRO: Mapping[str, Scalar] = {"format": "avro-confluent", "avro-confluent.url": REGISTRY}
PROTO: Mapping[str, Scalar] = {
    "format": "protobuf",
    "protobuf.message-class-name": "Order",
    "protobuf.proto-text": 'syntax = "proto3"; message Order { int32 id = 1; }',
}
SQL_TIME, ISO_TIME = '{"id":1,"at":"2024-05-01 12:30:00"}', '{"id":2,"at":"2024-05-01T12:30:00"}'
SCHEMAS: dict[int, tuple[str, Any]] = {
    1: ("AVRO", {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}),
    2: ("AVRO", {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}),
    3: ("AVRO", {"type": "record", "name": "Order", "fields": [{"name": "id", "type": ["null", "int"]}]}),
    4: ("AVRO", [{"type": "record", "name": n, "fields": [{"name": "id", "type": "int"}]} for n in ("Paid", "Sent")]),
    5: ("AVRO", "string"),
    6: ("AVRO", {"type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "int"},
        {"name": "color", "type": {"type": "enum", "name": "shop.Color", "symbols": ["RED"]}}]}),
    7: ("JSON", {"type": "object", "properties": {"id": {"type": "integer"}}}),
}  # fmt: skip


def frame(number: int, content: Any, index: int | None = None) -> Row:
    """A message of a schema of the registry: of a union, of the record type with an index."""
    kind, schema = SCHEMAS[number]
    out = io.BytesIO()
    if kind == "JSON":
        out.write(json.dumps(content).encode())
    else:
        if index is not None:
            out.write(bytes([2 * index]))
            schema = schema[index]
        fastavro.schemaless_writer(out, fastavro.parse_schema(schema), content)
    return value(b"\0" + number.to_bytes(4, "big") + out.getvalue())


COLOR = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "color", "type": {"type": "enum", "name": "shop.Colour", "symbols": ["RED"]}},
    ],
}
ALIASED = json.loads(json.dumps(COLOR).replace('"shop.Colour"', '"shop.Colour", "aliases": ["shop.Color"]'))
RENAMED = json.loads(json.dumps(COLOR).replace("shop.Colour", "shop.Color"))
DECIMALS = (
    '{"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"3"},'
    '"field":"n"}'
)
DATES = '{"type":"int32","optional":true,"name":"io.debezium.time.Date","field":"n"}'
MICROS = '{"type":"int64","optional":true,"name":"io.debezium.time.MicroTimestamp","field":"n"}'
PRECISE = {"format": "json", "json.schema-include": "true", "json.decimal.handling.mode": "precise"}
ADAPTIVE = {"format": "json", "json.schema-include": "true", "json.time.precision.mode": "adaptive"}
PLACEHOLDER = "__debezium_unavailable_value"
READINGS = [
    # other options of the format, which the error names
    Reading(advice="to read it, in SQL and YAML", columns=("id INT", "at TIMESTAMP(3)"), options=JSON_OPTIONS,
            good=(value('{"id":1}'),), bad=value(ISO_TIME), rows=({"id": 2},)),
    Reading(advice="to read it, in SQL and YAML 'key.json", columns=("at TIMESTAMP(3)", "id INT"),
            options={"key.format": "json", "key.fields": "at", "value.format": "json",
            "value.fields-include": "EXCEPT_KEY"},
            good=(value('{"id":1}'),), bad=value('{"id":2}', b'{"at":"2024-05-01T12:30:00"}'), rows=({"id": 2},)),
    Reading(advice="null_is_tombstone=True", options={"format": "json"}, good=(value('{"id":1}'),),
            bad=value("null"), right_options={"format": "json", "json.decode.null-is-tombstone": "true"}, rows=(),
            changes="if it deletes its row"),
    # NULL in columns that are NOT NULL
    Reading(advice="declare it nullable", columns=("id INT NOT NULL", "name STRING"), options=JSON_OPTIONS,
            good=(value('{"id":1}'),), bad=value('{"name":"a"}'), right_columns=("id INT", "name STRING"),
            rows=({"id": None, "name": "a"},)),
    # metadata of another size
    Reading(advice="declare it as BIGINT", columns=("id INT", "offset INT METADATA VIRTUAL"), options=JSON_OPTIONS,
            good=(value('{"id":1}', offset=1),), bad=value('{"id":2}', offset=2**40),
            right_columns=("id INT", "offset BIGINT METADATA VIRTUAL"), rows=({"id": 2, "offset": 2**40},)),
    Reading(advice="declare it as MAP<STRING, INT>",
           columns=("id INT", "types MAP<STRING, TINYINT> METADATA FROM value.sql-type VIRTUAL"),
            options={"format": "canal-json"}, good=(value('{"data":[{"id":"1"}],"type":"INSERT","sqlType":{"id":4}}'),),
            bad=value('{"data":[{"id":"2"}],"type":"INSERT","sqlType":{"id":2014}}'),
            right_columns=("id INT", "types MAP<STRING, INT> METADATA FROM value.sql-type VIRTUAL"),
            rows=({"id": 2, "types": "[('id', 2014)]"},)),
    Reading(advice="remove the metadata column that reads it",
            columns=("id INT", "at TIMESTAMP(3) METADATA FROM value.event-timestamp VIRTUAL"),
            options={"format": "ogg-json"},
            good=(value('{"after":{"id":1},"op_type":"I","op_ts":"2020-05-13 15:40:06.000000"}'),),
            bad=value('{"after":{"id":2},"op_type":"I","op_ts":"yesterday"}'), right_columns=("id INT",),
            rows=({"id": 2},)),
    # row rules
    Reading(advice="on_fail='drop'", options={"format": "json", "scan.expect.positive": "id > 0",
           "scan.expect.positive.on-fail": "fail"},
            good=(value('{"id":1}'),), bad=value('{"id":-1}'), rows=(),
            right_options={"format": "json", "scan.expect.positive": "id > 0", "scan.expect.positive.on-fail": "drop"}),
    # Kafka Connect's schema in the message
    Reading(advice="declare DECIMAL(p, 3)", columns=("n DECIMAL(10, 2)",), options=PRECISE,
           bad=value(connect('{"n":"AegB"}', DECIMALS)),
            right_columns=("n DECIMAL(10, 3)",), rows=({"n": 124.929},)),
    Reading(advice="declare DATE", columns=("n TIMESTAMP(3)",), options=ADAPTIVE, bad=value(connect('{"n":1}', DATES)),
            right_columns=("n DATE",), rows=({"n": "1970-01-02"},)),
    Reading(advice="declare TIMESTAMP(6)", columns=("n TIMESTAMP(3)",), options=ADAPTIVE,
           bad=value(connect('{"n":5000000}', MICROS)),
            right_columns=("n TIMESTAMP(6)",), rows=({"n": "1970-01-01 00:00:05"},)),
    Reading(advice="remove 'schema-include'", options={"format": "json", "json.schema-include": "true"},
           bad=value('{"id":1}'),
            right_options=JSON_OPTIONS, rows=({"id": 1},)),
    Reading(advice="declare the column nullable to read NULL", columns=("at TIMESTAMP(6) NOT NULL",),
            options={"format": "json", "json.time.precision.mode": "adaptive"}, good=(value('{"at":0}'),),
            bad=value('{"at":9223372036825200000}'), right_columns=("at TIMESTAMP(6)",), rows=({"at": None},)),
    # change data
    Reading(advice="read the topic with the format json", columns=("id INT", "name STRING"), options=DEBEZIUM,
            bad=value('{"before":null,"after":"{\\"_id\\":1}","op":"c","source":{"connector":"mongodb"}}'),
            sent=value('{"id":1,"name":"a"}'), right_options=JSON_OPTIONS,
            rows=({"id": 1, "name": "a"},)),
    Reading(advice="set truncate='skip'", options=DEBEZIUM, good=(value(change('{"id":1}')),),
           bad=value('{"op":"t"}'), rows=()),
    Reading(advice="or set 'apply' for a table with cdc-events-duplicate", columns=("id INT NOT NULL", "name STRING"),
           options=DEBEZIUM,
            bad=value('{"op":"t"}'), keys=("id",), rows=(),
            right_options={**DEBEZIUM, "debezium-json.truncate": "apply", "cdc-events-duplicate": "true"}),
    Reading(advice="or 'null' for NULL", options=DEBEZIUM, good=(value(change('{"id":1,"name":"a"}')),),
            bad=value(change(f'{{"id":1,"name":"{PLACEHOLDER}"}}', "c")),
            right_options={**DEBEZIUM, "debezium-json.unavailable": "null"}, rows=({"id": 1, "name": None},)),
    Reading(advice="write DebeziumJson(unavailable='keep') and declare the primary key", options=DEBEZIUM,
            columns=("id INT NOT NULL", "name STRING"), good=(value(change('{"id":1,"name":"a"}')),),
            bad=value(change(f'{{"id":1,"name":"{PLACEHOLDER}"}}', "c")),
            right_options={**DEBEZIUM, "debezium-json.unavailable": "keep"}, right_keys=("id",),
            rows=({"id": 1, "name": None},)),
    Reading(advice="set the REPLICA IDENTITY to FULL", columns=("id INT NOT NULL", "name STRING"), keys=("id",),
            options={**DEBEZIUM, "cdc-events-duplicate": "true"}, good=(value(change('{"id":1}')),),
            bad=value(change('{"id":2}', "u", '{"name":"b"}')),
            sent=value(change('{"id":2}', "u", '{"id":2,"name":"b"}')),
            right_options={**DEBEZIUM, "cdc-events-duplicate": "true"}, rows=({"id": 2},)),
    Reading(advice="declare the key's format and columns as the messages have them",
           columns=("id INT NOT NULL", "name STRING"),
            keys=("id",), options=KEYED, good=(value(change('{"id":1}'), b'{"id":1}'),), bad=value(None, b'{"no":1}'),
            right_columns=("id INT NOT NULL", "name STRING", "no INT"), right_options={**KEYED, "key.fields": "no"},
            rows=()),
    Reading(advice="or declare no key format, and such messages are left out",
           columns=("id INT NOT NULL", "name STRING"),
            keys=("id",), options=KEYED, good=(value(change('{"id":1}'), b'{"id":1}'),), bad=value(None, b'{"no":1}'),
            right_options={**DEBEZIUM, "cdc-events-duplicate": "true"}, rows=()),
    Reading(advice="read the topic with a KafkaTable", columns=("id INT NOT NULL", "name STRING"), keys=("id",),
            options={"connector": "upsert-kafka", "key.format": "json", "value.format": "json"},
            good=(value('{"id":1,"name":"a"}', b'{"id":1}'),), bad=value('{"name":"b"}'),
            right_columns=("id INT", "name STRING"),
            right_keys=(), right_options=JSON_OPTIONS, rows=({"id": None, "name": "b"},)),
    # messages of another format
    Reading(advice="which is read with the format json", options=AVRO, good=(), bad=value('{"id":1}'),
           right_options=JSON_OPTIONS,
            rows=({"id": 1},)),
    Reading(advice="which is read with the format json", columns=("id INT",), options={"format": "avro"},
           bad=value('{"id":1}'),
            right_options=JSON_OPTIONS, rows=({"id": 1},)),
    Reading(advice="which is read with the format json", columns=("id INT",), options=PROTO, bad=value('{"id":1}'),
            right_options=JSON_OPTIONS, rows=({"id": 1},)),
    Reading(advice="or read the topic as 'raw'", columns=("id INT",), options=AVRO,
           bad=value(b"\3\0" + UUID(int=7).bytes + b"\2"),
            right_columns=("id BYTES",), right_options={"format": "raw"},
            rows=({"id": b"\3\0" + UUID(int=7).bytes + b"\2"},)),
    Reading(advice="read it with the format of its type", columns=("id INT",), options=AVRO, bad=frame(7, {"id": 1}),
            right_options={"format": "json-schema-confluent", "json-schema-confluent.url": REGISTRY},
            rows=({"id": 1},)),
    # Avro
    Reading(advice="declare the column as STRING", columns=("id INT",), options=AVRO, bad=frame(2, {"id": "a"}),
            right_columns=("id STRING",), rows=({"id": "a"},)),
    Reading(advice="declare it without NOT NULL, as INT", columns=("id INT NOT NULL",), options=AVRO,
           good=(frame(3, {"id": 1}),),
            bad=frame(3, {"id": None}), right_columns=("id INT",), rows=({"id": None},)),
    Reading(advice="declare it without NOT NULL, as STRING", columns=("id INT", "name STRING NOT NULL"), options=AVRO,
            bad=frame(1, {"id": 1}), right_columns=("id INT", "name STRING"), rows=({"id": 1, "name": None},)),
    Reading(advice="or give it a default, in the option 'defaults'", columns=("id INT", "name STRING NOT NULL"),
           options=AVRO,
            bad=frame(1, {"id": 1}), right_options={**AVRO, "avro-confluent.defaults": '{"name": "x"}'},
            rows=({"id": 1, "name": "x"},)),
    Reading(advice="set 'record-name' to those that the table has", columns=("id INT",), options=AVRO,
           good=(frame(1, {"id": 1}),),
            bad=frame(4, {"id": 2}, 0), right_options={**AVRO, "avro-confluent.record-name": "Paid;Order"},
            rows=({"id": 2},)),
    Reading(advice="declare one column, as STRING", columns=("id INT", "name STRING"), options=AVRO, bad=frame(5, "a"),
            right_columns=("name STRING",), rows=({"name": "a"},)),
    Reading(advice="give it this name", columns=("id INT NOT NULL", "color STRING NOT NULL"),
           options={**AVRO, "avro-confluent.schema": json.dumps(COLOR)},
            bad=frame(6, {"id": 1, "color": "RED"}),
            right_options={**AVRO, "avro-confluent.schema": json.dumps(RENAMED)},
            rows=({"id": 1, "color": "RED"},)),
    Reading(advice="or the alias 'shop.Color'", columns=("id INT NOT NULL", "color STRING NOT NULL"),
           options={**AVRO, "avro-confluent.schema": json.dumps(COLOR)},
            bad=frame(6, {"id": 1, "color": "RED"}),
            right_options={**AVRO, "avro-confluent.schema": json.dumps(ALIASED)},
            rows=({"id": 1, "color": "RED"},)),
]  # fmt: skip
_OPTION = re.compile(r"'([a-z0-9.-]+)' = '([^']*)'")


def answer(request: Request) -> Answer:
    parts = request.path.partition("?")[0].strip("/").split("/")
    if parts[:2] == ["schemas", "ids"] and int(parts[2]) in SCHEMAS:
        kind, schema = SCHEMAS[int(parts[2])]
        return 200, {"schema": json.dumps(schema), "schemaType": kind}
    return 404, {"error_code": 40403, "message": "Schema not found"}


@pytest.fixture(scope="module")
def registry_url() -> Iterator[str]:
    with Front(answer) as front:
        yield front.url


def show(row: Row) -> Row:
    """The values of a row, times as text and decimals as numbers."""
    return {
        n: v if isinstance(v, int | str | bytes | None) else float(v) if hasattr(v, "as_tuple") else str(v)
        for n, v in row.items()
    }


def find_error(case: Reading, url: str) -> RecordError:
    with pytest.raises(RecordError) as error:
        decode(case.columns, case.options, case.keys, [*case.good, case.bad], url)
    return error.value


def pick(row: Row, names: Collection[str]) -> Row:
    return {name: value for name, value in row.items() if name in names}


@pytest.mark.parametrize("case", READINGS, ids=lambda case: case.advice)
def test_the_advice_for_a_record_is_followed_and_keeps_the_rows_of_the_others(case: Reading, registry_url: str) -> None:
    good = list(case.good)
    before = decode(case.columns, case.options, case.keys, good, registry_url)

    error = find_error(case, registry_url)
    text = str(error)
    assert case.advice in text
    assert case.changes in text
    assert error.offset == case.bad.get("offset", 100 + len(good))

    columns = case.columns if case.right_columns is None else case.right_columns
    keys = case.keys if case.right_keys is None else case.right_keys
    options = {**case.options, **dict(_OPTION.findall(text))} if case.right_options is None else case.right_options
    after = decode(columns, options, keys, [*good, case.sent or case.bad], registry_url)
    same, others = after[: len(before)], after[len(before) :]
    shared = set.intersection(*(set(row) for row in [*before, *same])) if before else set()
    assert len(shared) >= (1 if before else 0)
    assert [pick(row, shared) for row in same] == [pick(row, shared) for row in before]
    assert [pick(show(row), one) for one, row in zip(case.rows, others, strict=True)] == list(case.rows)


@attrs.frozen
class Ingested:
    """A feed, a record that it rejects, the feeds that follow the advice, and the columns of its table then."""

    advice: str
    source: KafkaFeed
    message: Mapping[str, Any]
    key: Mapping[str, Any] | None
    right: tuple[KafkaFeed, ...]
    columns: tuple[str, ...]

    def find_rejection(self) -> str:
        (rejection,) = self.split(self.source).rejections
        return rejection.reason

    def split(self, source: KafkaFeed) -> Split:
        good = {**self.message, "after": {"id": 0, "name": "a"}} if "after" in self.message else {"id": 0, "name": "a"}
        batch = records(good, self.message, keys=[{"id": 0} if "after" in self.message else None, self.key])
        return RecordSplitter(source, max_columns=100, keyed=True).split(batch, {})


UPDATE = {"op": "u", "before": None, "after": {"id": 1, "name": PLACEHOLDER}, "source": {"db": "d", "table": "t"}}
FIELDS = [{"field": "id", "type": "int32", "optional": True}]
IN_PAYLOAD = {"schema": {"type": "struct", "fields": FIELDS, "optional": True}, "payload": {"id": 1}}
INGESTIONS = [
    Ingested("set debezium-json.unavailable to keep, by which the sink table keeps its value, or to null",
             feed(value=DebeziumJson()), UPDATE, {"id": 1},
             (feed(value=DebeziumJson(unavailable="keep")), feed(value=DebeziumJson(unavailable="null"))),
             ("id", "name")),
    Ingested("set key.json.schema-include: true (in Python key=Json(schema_include=True))", feed(key=Json()),
             {"name": "b"}, IN_PAYLOAD, (feed(key=Json(schema_include=True)),), ("id", "name")),
]  # fmt: skip


@pytest.mark.parametrize("case", INGESTIONS, ids=lambda case: case.advice)
def test_the_advice_for_a_record_of_an_ingestion_is_followed(case: Ingested) -> None:
    assert case.advice in case.find_rejection()
    for source in case.right:
        done = case.split(source)
        assert [r.index for r in done.rejections if r.index == 1] == []
        assert sum(packet.records.num_rows for packet in done.packets) == 2 - len(done.rejections)
        columns = {f.name for packet in done.packets if packet.delta is not None for f in packet.delta.schema.columns}
        assert columns == set(case.columns)


READERS = (
    "kdsl/run/records/*.py",
    "kdsl/run/upsert/*.py",
    "kdsl/ingest/records.py",
    "kdsl/ingest/run/rows.py",
    "formats/kdsl_formats/_*/*.py",
    "formats/kdsl_formats/*/*decoder.py",
    "formats/kdsl_formats/*/metadata.py",
)
"""The modules that read records."""
_VERBS = "add|change|correct|declare|give|name|put|read|register|remove|rename|set|start|use|write"
_ADVICE = re.compile(rf"(?:; |^)(?:or |to [a-z ]+, )?(?:{_VERBS})\b|\bis read with\b")
OTHER_MODULES = {
    "records/encode.py": "written records",
    "records/partitioner.py": "written records",
    "upsert/partition_changes.py": "the checkpoint at the start of a query",
    "upsert/keyed_state.py": "the checkpoint at the start of a query",
    "upsert/partitioned_keys.py": "the checkpoint at the start of a query",
    "upsert/spark_batches.py": "the use of a stream: tests/run/upsert/test_spark_batches.py",
    "_avro/model.py": "schemas that are not valid",
    "_avro/schema.py": "columns of tables and of schemas: `test_formats`",
    "_avro/write_steps.py": "written records",
    "_connect/schemas.py": "hints of doctor and codegen",
    "_connect/wires.py": "written records",
    "_debezium/options.py": "declarations: `test_tables`",
    "_registry/avro_format.py": "declarations: `test_tables`",
    "_registry/options.py": "schemas that are registered",
    "_registry/schema_option.py": "declarations: `test_formats`",
    "_text/charsets.py": "declarations",
}
"""Modules whose suggestions are about something else than a record that is read."""
ELSEWHERE = {
    "integers beyond 2^53": "a warning in the log: the records are read",
    "{}: the column {} is declared NOT NULL, but rows in the checkpoint": "the checkpoint at the start of a query",
    "{}: the checkpoint": "the checkpoint at the start of a query",
    "read the topic from where its rows were inserted": "tests/run/upsert/test_state.py",
    "declare the column nullable and ": "tests/run/upsert/test_state.py",
    ", which a change does not contain (TOAST)": "an expression of Spark: tests/ingest/test_filters.py",
    "correct the expressions that": "values of expressions: tests/ingest/test_value_errors.py",
    "correct the projection or": "values of expressions: tests/ingest/test_value_errors.py",
    "the writer's schema and the table's have more than": "a limit of schemas: tests/formats/test_schema_limits.py",
}
"""Suggestions without a case here: how they begin, and what they are about, or which test follows them."""


def find_suggestions() -> Iterator[str]:
    """The strings in the modules that read records that suggest something; ``{}`` is what a message puts in.

    Those of problems are left out: `test_codes` finds them.
    """
    for path in modules().values():
        if not any(map(path.match, READERS)) or any(map(path.match, OTHER_MODULES)):
            continue
        tree = ast.parse(read(path))
        skipped: set[int] = set()
        for node in walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in RAISED_BY:
                skipped |= {id(part) for part in walk(node)}
            elif isinstance(node, ast.Expr | ast.JoinedStr):
                skipped |= {id(part) for part in ast.iter_child_nodes(node) if isinstance(part, ast.Constant)}
        for node in walk(tree):
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
            is_string = isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, str)
            )
            if is_string and id(node) not in skipped and " " in text and _ADVICE.search(text):
                yield text


def test_every_suggestion_in_an_error_about_a_record_has_a_case(registry_url: str) -> None:
    texts = [str(find_error(case, registry_url)) for case in READINGS]
    texts += [case.find_rejection() for case in INGESTIONS]
    suggestions = list(dict.fromkeys(find_suggestions()))

    def is_followed(suggestion: str) -> bool:
        pattern = re.compile(".*?".join(map(re.escape, suggestion.split("{}"))), re.DOTALL)
        return any(map(pattern.search, texts)) or any(suggestion.startswith(start) for start in ELSEWHERE)

    assert len(suggestions) > 20
    assert [suggestion for suggestion in suggestions if not is_followed(suggestion)] == []
    assert [m for m in OTHER_MODULES if not any(path.match(m) for path in modules().values())] == []
    assert [start for start in ELSEWHERE if not any(one.startswith(start) for one in suggestions)] == []
