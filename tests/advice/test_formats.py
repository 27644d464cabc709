"""Problems of formats in tables; see `tests.advice.cases`."""

from __future__ import annotations

import json

import pytest

from kdsl.cluster import Cluster
from kdsl.declare.config import Scalar
from kdsl_formats.avro_confluent import AvroConfluent
from tests.advice.cases import Called, Declared, check_advice

REGISTRY = "http://registry:8081"
RECORD = json.dumps({"type": "record", "name": "o", "fields": [{"name": "id", "type": "int"}]})
MAP = "the keys of a map"
PROTO = 'syntax = "proto2"; message Order { required int32 id = 1; optional string name = 2; }'


def of(name: str, **options: str | None) -> dict[str, Scalar]:
    """The options of a table with a value format: ``a_b`` is ``NAME.a-b``, ``a__b`` is ``NAME.a.b``."""
    keys = {
        f"{name}.{key if '.' in key else key.replace('__', '.').replace('_', '-')}": text
        for key, text in options.items()
    }
    return {"format": name, **{key: text for key, text in keys.items() if text is not None}}


def confluent(name: str = "avro-confluent", **options: str) -> dict[str, Scalar]:
    return of(name, url=REGISTRY, **options)


def proto(text: str = PROTO, **options: str) -> dict[str, Scalar]:
    return of("protobuf", message_class_name="Order", proto_text=text, **options)


def declare(
    code: str,
    options: dict[str, Scalar],
    columns: tuple[str, ...],
    advice: str,
    right: tuple[str, ...] | None = None,
    right_options: dict[str, Scalar] | None = None,
    direction: str = "read",
) -> Declared:
    return Declared(
        code,
        {"options": options},
        advice,
        {"options": options if right_options is None else right_options},
        direction,  # type: ignore[arg-type]
        columns,
        right,
    )


ID, AT = ("id INT",), ("at TIMESTAMP_LTZ(3)",)
CASES: list[Declared | Called] = [
    declare("avro-time", of("avro"), ("at TIME(6)",), "use TIME(3)", ("at TIME(3)",)),
    declare("avro-time", of("avro"), ("at TIME(6)",), "or STRING", ("at STRING",)),
    declare("avro-timestamp-ltz", of("avro"), AT, "set 'timestamp_mapping.legacy' to 'false'", AT,
           of("avro", **{"timestamp_mapping.legacy": "false"})),
    declare("avro-timestamp-ltz", of("avro"), AT, "or use a TIMESTAMP(3)", ("at TIMESTAMP(3)",)),
    declare("avro-timestamp", of("avro"), ("at TIMESTAMP(6)",), "or use TIMESTAMP(3)", ("at TIMESTAMP(3)",)),
    declare("avro-timestamp", of("avro"), ("at TIMESTAMP(6)",), "set 'timestamp_mapping.legacy' to 'false'", None,
           of("avro", **{"timestamp_mapping.legacy": "false", "timestamp_mapping.micros": "true"})),
    declare("avro-micros", of("avro", **{"timestamp_mapping.legacy": "false"}), ("at TIMESTAMP(6)",),
           "set 'timestamp_mapping.micros' to 'true'", None,
             of("avro", **{"timestamp_mapping.legacy": "false", "timestamp_mapping.micros": "true"})),
    declare("avro-micros", of("avro", **{"timestamp_mapping.legacy": "false"}), ("at TIMESTAMP(6)",),
           "or use 3 digits", ("at TIMESTAMP(3)",)),
    declare("avro-map-key", of("avro"), ("m MAP<INT, INT>",), "use MAP<STRING, INT>", ("m MAP<STRING, INT>",)),
    declare("avro-map-key", of("avro"), ("m MAP<INT, INT>",), "or ARRAY<ROW<`key` INT, `value` INT>>",
           ("m ARRAY<ROW<`key` INT, `value` INT>>",)),
    declare("avro-name", of("avro"), ("a-b INT",), "choose a valid name for the column on the wire", ("a_b INT",)),
    declare("avro-name", of("avro"), ("a_b ROW<x INT>", "a ROW<b ROW<y INT>>"),
           "choose another name for one of them on the wire", ("a_c ROW<x INT>", "a ROW<b ROW<y INT>>")),
    declare("registry-subject", confluent(subject_name_strategy="record"), ("id INT NOT NULL",),
           "set 'schema', whose record has a name of its own", None,
             confluent(subject_name_strategy="record", schema=RECORD), "write"),
    declare("registry-subject", confluent(subject_name_strategy="record"), ID,
           "or replace 'subject-name-strategy' by 'subject'", None, confluent(subject="orders-value"), "write"),
    declare("registry-subject", confluent(subject_name_strategy="record", subject="x"), ID,
           "keep one of 'subject' and 'subject-name-strategy'", None, confluent(subject="x"), "write"),
    declare("registry-subject", {**confluent(), "topic": "a;b"}, (*ID, "topic STRING METADATA"), "declare one topic",
           ID, {**confluent(), "topic": "a"}, "write"),
    declare("registry-subject", {**confluent(), "topic": "a;b"}, (*ID, "topic STRING METADATA"), "or set 'subject'",
           None, {**confluent(subject="orders"), "topic": "a;b"}, "write"),
    declare("registry-subject", {**confluent(), "topic": "a;b"}, ("id INT NOT NULL", "topic STRING METADATA"),
           "or set 'subject-name-strategy' to 'record', and set 'schema'", None,
           {**confluent(subject_name_strategy="record", schema=RECORD), "topic": "a;b"}, "write"),
    declare("registry-subject", confluent("json-schema-confluent", subject_name_strategy="record",
           schema='{"type": "object", "properties": {"id": {"type": "integer"}}}'), ("id INT NOT NULL",),
           "add a 'title' to the schema", None,
             confluent("json-schema-confluent", subject_name_strategy="record",
             schema='{"title": "Order", "type": "object", "properties": {"id": {"type": "integer"}}}'), "write"),
    declare("registry-latest", confluent(schema=RECORD, use_latest_version="true"), ("id INT NOT NULL",),
           "keep one of them", None, confluent(use_latest_version="true"), "write"),
    declare("registry-schema", confluent(schema='"int"'), ("id INT", "name STRING"), "write an Avro record",
           ("id INT NOT NULL",), confluent(schema=RECORD)),
    declare("registry-schema", confluent(schema=RECORD), ("ix INT",), "declare the columns `id` INT NOT NULL",
           ("id INT NOT NULL",)),
    declare("registry-schema", confluent(schema=RECORD), ("ix INT",), "omit 'schema' to derive it from the table",
           None, confluent()),
    declare("registry-schema", confluent("json-schema-confluent", schema='[1]'), ID,
           "write a JSON Schema of an object", None,
             confluent("json-schema-confluent",
             schema='{"type": "object", "properties": {"id": {"type": "integer"}}}')),
    declare("registry-schema", confluent("json-schema-confluent",
           schema='{"type": "object", "properties": {"id": {"type": "string"}}}'), ID,
           "or remove 'schema' to derive it from the table", None, confluent("json-schema-confluent"), "write"),
    declare("canal-json-strategy", of("canal-json", mysql__treat_mysql_timestamp_as_datetime_enabled="false"), ID,
           "or leave the option out", None, of("canal-json")),
    declare("csv-quote", of("csv", quote_character="'", disable_quote_character="true"), ID,
           "remove the quote character", None, of("csv", disable_quote_character="true")),
    declare("csv-quote", of("csv", quote_character="'", disable_quote_character="true"), ID,
           "or do not disable quoting", None, of("csv", quote_character="'")),
    declare("csv-time", of("csv"), ("at TIME(6)",), "use TIME(3)", ("at TIME(3)",)),
    declare("csv-time", of("csv"), ("at TIME(6)",), "or STRING", ("at STRING",)),
    declare("json-digits", of("json", time__precision__mode="connect"), ("at TIMESTAMP(6)",), "set 'microseconds'",
           None, of("json", time__precision__mode="microseconds"), "write"),
    declare("json-digits", of("json", decimal__handling__mode="double"), ("d DECIMAL(30, 2)",), "or use up to",
           ("d DECIMAL(15, 2)",), None, "write"),
    declare("protobuf-message", of("protobuf-confluent", url=REGISTRY), ID, "or set 'use-latest-version'", None,
           of("protobuf-confluent", url=REGISTRY, use_latest_version="true"), "write"),
    declare("protobuf-message", of("protobuf-confluent", url=REGISTRY), ID,
           "set 'message-class-name' and its source", None,
           of("protobuf-confluent", url=REGISTRY, message_class_name="Order", proto_text=PROTO), "write"),
    declare("protobuf-message", proto("nonsense"), ID, "correct the definition", None, proto()),
    declare("protobuf-message", of("protobuf", message_class_name="Ordr", proto_text=PROTO), ID,
           "write the name of one that exists: 'Order'", None, proto()),
    declare("protobuf-field", proto(), ("nme STRING",), "use the name of a field: 'id' and 'name'", ("name STRING",)),
    declare("protobuf-required", proto(), ("name STRING",), "declare columns for them", ("id INT", "name STRING"),
           None, "write"),
    declare("protobuf-type", proto(), ("id STRING",), "declare INT", ("id INT",)),
    declare("protobuf-type", proto('syntax = "proto3"; message Order { repeated int32 id = 1; }'), ("id INT",),
           "declare ARRAY<element>", ("id ARRAY<INT>",)),
    declare("raw-delimiter", of("raw", charset="US-ASCII", line_delimiter="ä"), ("v STRING",),
           "choose another line delimiter", None, of("raw", charset="US-ASCII", line_delimiter="|")),
    declare("raw-delimiter", of("raw", charset="US-ASCII", line_delimiter="ä"), ("v STRING",),
           "or a charset that has its characters", None, of("raw", charset="UTF-8", line_delimiter="ä")),
    declare("option-twice", {**confluent(), "avro-confluent.schema-registry.url": "http://other:8081"}, ID,
           "keep 'avro-confluent.url'", None, confluent()),
    Called("registry-missing", lambda: list(AvroConfluent().check_registry(None)), "(url='http://HOST:PORT')",
           lambda: list(AvroConfluent(url="http://registry:8081").check_registry(None))),
    Called("registry-missing", lambda: list(AvroConfluent().check_registry(None)),
           "or pass Cluster(…, registry='http://HOST:PORT')",
           lambda: list(AvroConfluent().check_registry(Cluster("b:9092", registry=REGISTRY).registry))),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.advice[:30]}")
def test_the_advice_for_a_format_works(case: Declared | Called) -> None:
    check_advice(case)
