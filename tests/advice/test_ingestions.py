"""Problems of ingestions; see `tests.advice.cases`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kdsl.ingest import Ingestion, Transform
from kdsl.ingest.projection import TransformRule, transform_table
from kdsl.types import model as t
from kdsl.types.widening import TableSchema
from tests.advice.cases import Called, Shown, check_advice

SOURCE = {"type": "kafka", "properties.bootstrap.servers": "a:9092", "topic": "t"}
KAFKA = {"type": "kafka", "properties.bootstrap.servers": "b:9092"}
DELTA = {"type": "delta", "path": "/tables"}
TABLE = "CREATE TABLE t (id INT, n STRING, day DATE, PRIMARY KEY (id) NOT ENFORCED)"
OTHER = "CREATE TABLE u (id INT, n STRING)"
KNOWN = {"scan.value.initial-schemas.ddls": TABLE}
OTHER_KEY = "CREATE TABLE u (id INT, n STRING, PRIMARY KEY (n) NOT ENFORCED)"
KNOWN_KEYS = {"scan.value.initial-schemas.ddls": f"{TABLE}; {OTHER_KEY}", "topic": "t;u"}
KNOWN_BOTH = {"scan.value.initial-schemas.ddls": f"{TABLE}; {OTHER}", "topic": "t;u"}


def ingest(
    source: Mapping[str, str | None] | None = None,
    sink: Mapping[str, str] | None = None,
    *rest: str,
    feed: Mapping[str, str] = SOURCE,
) -> Callable[[], object]:
    """A call that returns the problems of a document.

    Args:
        source: What its source has besides ``feed``; None removes an option.
        sink: Its sink; by default the memory.
        rest: Its other lines.
        feed: Its source.
    """
    options = {key: text for key, text in {**feed, **(source or {})}.items() if text is not None}
    lines = ["source:", *(f"  {key}: {write(text)}" for key, text in options.items()), "sink:"]
    lines += [f"  {key}: {write(text)}" for key, text in (sink or {"type": "memory"}).items()]
    document = "\n".join([*lines, *rest, ""])
    return Shown(lambda: list(Ingestion.read(document)[1]), document, "yaml")


def write(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def transform(*entries: str, **ends: Mapping[str, str]) -> Callable[[], object]:
    return ingest(ends.get("source"), ends.get("sink"), "transform:", *(f"  - {{{entry}}}" for entry in entries))


def route(*entries: str, **ends: Mapping[str, str]) -> Callable[[], object]:
    return ingest(ends.get("source"), ends.get("sink"), "route:", *(f"  - {{{entry}}}" for entry in entries))


def pipeline(*lines: str, **ends: Mapping[str, str]) -> Callable[[], object]:
    return ingest(ends.get("source"), ends.get("sink"), "pipeline:", *(f"  {line}" for line in lines))


def project(**options: Any) -> Callable[[], object]:
    """A call that returns the problems of a transform of a table whose schema is known when it runs."""
    schema = TableSchema((t.Field("id", t.BigInt(nullable=False)), t.Field("day", t.Date())), ("id",))
    return lambda: transform_table(("t",), schema, [TransformRule.parse(Transform("t", **options))], ())[1]


MYSQL = {"type": "mysql", "hostname": "h", "username": "u", "password": "${env:P}", "tables": "a.b"}
JDBC = {"type": "jdbc", "url": "jdbc:postgresql://h/d", "tables": "public.b"}
FEED = {"type": "delta", "path": "/t", "table": "db.orders"}
IGNORE = {"ingestion.ignore-errors": "true"}
CASES = [
    Called("ingest-prefix", ingest({"key.format": "json", "key.fields-prefix": "a", "value.fields-prefix": "ab"}),
           "choose prefixes with different first characters",
           ingest({"key.format": "json", "key.fields-prefix": "k_", "value.fields-prefix": "v_"})),
    Called("ingest-prefix", ingest({"key.fields-prefix": "a"}), "add key.format: json",
           ingest({"key.fields-prefix": "a", "key.format": "json"})),
    Called("ingest-prefix", ingest({"value.fields-prefix": "\ufdd0"}), "choose another prefix",
           ingest({"value.fields-prefix": "v_"})),
    Called("ingest-errors", ingest({"ingestion.error-tolerance.max-count": "5"}),
           "set ingestion.ignore-errors to true", ingest({"ingestion.error-tolerance.max-count": "5", **IGNORE})),
    Called("ingest-errors", ingest({"value.format": "json", "json.ignore-parse-errors": "true", **IGNORE}),
           "keep one of the two", ingest({"value.format": "json", **IGNORE})),
    Called("ingest-table", ingest({"table": "a.b.c.d"}), "write one to three names, as 'shop.<topic>'",
           ingest({"table": "shop.<topic>"})),
    Called("ingest-ddl", ingest({"scan.value.initial-schemas.ddls": f"{TABLE}; DROP TABLE t"}),
           "remove the other statements", ingest(KNOWN)),
    Called("ingest-ddl", ingest({"scan.value.initial-schemas.ddls": TABLE.replace(" t ", " a.b.c.d ")}),
           "write table, database.table or catalog.database.table",
           ingest({"scan.value.initial-schemas.ddls": TABLE.replace(" t ", " a.b.c ")})),
    Called("ingest-ddl", ingest({"scan.value.initial-schemas.ddls": f"{TABLE}; {TABLE}"}),
           "remove one of the statements", ingest(KNOWN)),
    Called("ingest-ddl", ingest({"scan.value.initial-schemas.ddls": f"{TABLE}; CREATE TABLE u LIKE t"}),
           "write the columns", ingest(KNOWN_BOTH)),
    Called("ingest-ddl", ingest({"scan.value.initial-schemas.ddls": TABLE + " WITH ('key.fields' = 'id')"}),
           "add key.format: json", ingest({"scan.value.initial-schemas.ddls": TABLE + " WITH ('key.fields' = 'id')",
           "key.format": "json"})),
    Called("ingest-static", ingest({"schema.inference.strategy": "static", "scan.max.pre.fetch.records": "0"}),
           "set scan.max.pre.fetch.records to a number greater than 0",
           ingest({"schema.inference.strategy": "static", "scan.max.pre.fetch.records": "5"})),
    Called("ingest-static", ingest({"schema.inference.strategy": "static", "scan.max.pre.fetch.records": "0"}),
           "or scan.value.initial-schemas.ddls",
           ingest({"schema.inference.strategy": "static", "scan.max.pre.fetch.records": "0", **KNOWN})),
    Called("ingest-metadata", ingest({"transport": "jvm", "metadata.list": "leader-epoch"}),
           "or set transport: librdkafka", ingest({"metadata.list": "leader-epoch", "transport": "librdkafka"})),
    Called("ingest-metadata", ingest({"metadata.list": "offset,offset"}), "remove one",
           ingest({"metadata.list": "offset"})),
    Called("ingest-mapping", ingest({}, {**KAFKA, "sink.tableId-to-topic.mapping": "a.b"}),
           "write 'db.orders:orders;", ingest({}, {**KAFKA, "sink.tableId-to-topic.mapping": "a.b:c"})),
    Called("ingest-mapping", ingest({}, {**KAFKA, "sink.tableId-to-topic.mapping": "a.b:c", "topic": "d"}),
           "remove one of the two", ingest({}, {**KAFKA, "topic": "d"})),
    Called("ingest-mapping", ingest({"sink.tableId-to-topic.mapping": "t:c"}, KAFKA), "move it to 'sink'",
           ingest({}, {**KAFKA, "sink.tableId-to-topic.mapping": "t:c"})),
    Called("ingest-topic", ingest({}, {**KAFKA, "topic": "a b"}), "letters, digits, '.', '_' and '-'",
           ingest({}, {**KAFKA, "topic": "a_b"})),
    Called("ingest-topic", ingest({}, {**KAFKA, "sink.tableId-to-topic.mapping": "t:a b"}),
           "letters, digits, '.', '_' and '-'", ingest({}, {**KAFKA, "sink.tableId-to-topic.mapping": "t:a_b"})),
    Called("ingest-topic", ingest({"scan.value.initial-schemas.ddls": TABLE.replace(" t ", " `a b` "),
           "table": "a b"}, KAFKA), "name a topic for the table in sink.tableId-to-topic.mapping",
           ingest({"scan.value.initial-schemas.ddls": TABLE.replace(" t ", " `a b` "), "table": "a b"},
           {**KAFKA, "sink.tableId-to-topic.mapping": "a b:ab"})),
    Called("transactional-id", ingest({}, {**KAFKA, "sink.delivery-guarantee": "exactly-once"}), "add it",
           ingest({}, {**KAFKA, "sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "copy"})),
    Called("transactional-id", ingest({},
           {**KAFKA, "sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": " "}),
           "write sink.transactional-id-prefix: ingest-1",
           ingest({}, {**KAFKA, "sink.delivery-guarantee": "exactly-once",
           "sink.transactional-id-prefix": "ingest-1"})),
    Called("ingest-header", ingest({}, {**KAFKA, "sink.custom-header": "x"}), "write 'name:value;name:value'",
           ingest({}, {**KAFKA, "sink.custom-header": "x:y"})),
    Called("ingest-delta", ingest({}, {"type": "delta"}), "add path: the folder of the tables", ingest({}, DELTA)),
    Called("ingest-delta", ingest({}, {"type": "delta"}), "or catalog",
           ingest({}, {"type": "delta", "catalog": "main"})),
    Called("ingest-delta", ingest({}, {**DELTA, "catalog": "main"}), "keep one of them", ingest({}, DELTA)),
    Called("ingest-delta", ingest(feed={"type": "delta", "path": "/"}), "name the table: table: db.orders",
           ingest(feed={"type": "delta", "path": "/", "table": "db.orders"})),
    Called("ingest-delta", ingest(feed={**FEED, "starting-version": "3"}), "add read.change-feed: true",
           ingest(feed={**FEED, "starting-version": "3", "read.change-feed": "true"})),
    Called("ingest-jdbc", ingest({}, {"type": "jdbc", "url": "jdbc:oracle:thin:@h:1/x"}),
           "jdbc:postgresql://host/database", ingest({}, {"type": "jdbc", "url": "jdbc:postgresql://h/d"})),
    Called("ingest-jdbc", ingest(feed={**JDBC, "url": "jdbc:mariadb://h/d"}), "write jdbc:mysql://…",
           ingest(feed={**JDBC, "url": "jdbc:mysql://h/d"})),
    Called("ingest-selector", ingest(feed={**JDBC, "tables": "a.(b"}), "write one that a whole name must match",
           ingest(feed={**JDBC, "tables": r"a\.b"})),
    Called("ingest-selector", transform(r"source-table: 'a[', projection: '*'"),
           "write one that a whole name must match", transform("source-table: 'a', projection: '*'")),
    Called("ingest-selector", transform(r"source-table: '.*', projection: '*'"), r"write one such as 'db.\.*'",
           transform(r"source-table: 'db.\.*', projection: '*'")),
    Called("ingest-selector", route("source-table: 'a.(b', sink-table: c"), "write one that a whole name must match",
           route(r"source-table: 'a\.b', sink-table: c")),
    Called("ingest-selector", route("source-table: 'a', sink-table: $1"),
           "put the part of the pattern that you mean in round brackets", route("source-table: '(a)', sink-table: $1")),
    Called("ingest-binlog", ingest(feed=MYSQL), "scan.startup.mode: snapshot to copy the tables once",
           ingest(feed={**MYSQL, "scan.startup.mode": "snapshot"})),
    Called("ingest-transform", transform("source-table: t, primary-keys: ix", source=KNOWN),
           "use columns of the sink table",
           transform("source-table: t, primary-keys: id", source=KNOWN)),
    Called("ingest-transform", project(partition_keys=("dy",)), "use columns of the sink table: 'id' and 'day'",
           project(partition_keys=("day",))),
    Called("ingest-transform", project(primary_keys=("ix",)), "use columns of the sink table: 'id' and 'day'",
           project(primary_keys=("id",))),
    Called("secret-literal", ingest({}, {"type": "jdbc", "url": "jdbc:postgresql://h/d", "password": "x"}),
           "write a reference, such as ${env:NAME}",
           ingest({}, {"type": "jdbc", "url": "jdbc:postgresql://h/d", "password": "${env:NAME}"})),
    Called("no-effect", pipeline("operator.uid.prefix: x"), "remove it", pipeline("max-tables: 5")),
    Called("no-effect", transform(r"source-table: t, projection: '*', partition-keys: day"), "remove it",
           transform(r"source-table: t, projection: '*'")),
    Called("ingest-collector", pipeline("dirty-data.collector.type: kafka", source=IGNORE), "add it",
           pipeline("dirty-data.collector.type: kafka", "dirty-data.collector.topic: dead", source=IGNORE)),
    Called("ingest-collector", pipeline("dirty-data.collector.topic: dead", source=IGNORE), "add the type",
           pipeline("dirty-data.collector.type: kafka", "dirty-data.collector.topic: dead", source=IGNORE)),
    Called("ingest-collector", pipeline("dirty-data.collector.type: kafka", "dirty-data.collector.topic: t",
           source=IGNORE), "choose another topic",
           pipeline("dirty-data.collector.type: kafka", "dirty-data.collector.topic: dead", source=IGNORE)),
    Called("ingest-collector", pipeline("dirty-data.collector.type: kafka", "dirty-data.collector.topic: dead",
           source={"value.format": "json", "json.ignore-parse-errors": "true"}),
           "keep one of the two", pipeline("dirty-data.collector.type: kafka", "dirty-data.collector.topic: dead",
           source={"value.format": "json", **IGNORE})),
    Called("ingest-collector", pipeline("dirty-data.collector.type: kafka", "dirty-data.collector.topic: dead"),
           "set ingestion.ignore-errors of the source to true",
           pipeline("dirty-data.collector.type: kafka", "dirty-data.collector.topic: dead", source=IGNORE)),
    Called("ingest-unavailable", ingest({"value.format": "debezium-json", "debezium-json.unavailable": "keep"},
           KAFKA), "set it to null",
           ingest({"value.format": "debezium-json", "debezium-json.unavailable": "null"}, KAFKA)),
    Called("ingest-order", transform(r"source-table: '\.*.\.*.\.*', projection: '*'",
           "source-table: t, projection: id"), "put it before that one",
           transform("source-table: t, projection: id", r"source-table: '\.*.\.*.\.*', projection: '*'")),
    Called("ingest-expression", transform("source-table: t, projection: 'UPER(n) AS m'"), "use another function",
           transform("source-table: t, projection: 'UPPER(n) AS m'")),
    Called("ingest-expression", transform("source-table: t, filter: 'id >'"), "correct the SQL at this position",
           transform("source-table: t, filter: 'id > 5'")),
    Called("ingest-expression", transform("source-table: t, add-columns: 'x y'"), "write AS",
           transform("source-table: t, add-columns: 'x AS n'")),
    Called("ingest-transform", transform("source-table: t, table-options: x"), "write 'key=value,key=value'",
           transform("source-table: t, table-options: 'x=y'")),
    Called("ingest-transform", transform("source-table: t, primary-keys: 'id,id'"), "remove one",
           transform("source-table: t, primary-keys: id")),
    Called("ingest-unused", transform("source-table: tt, projection: '*'", source={"value.format": "json"}),
           "correct it, or remove it", transform("source-table: t, projection: '*'", source={"value.format": "json"})),
    Called("ingest-unused", transform("source-table: a.b, projection: '*'",
           source={"value.format": "json", "topic": "a.b"}), "write '`a.b`'",
           transform("source-table: '`a.b`', projection: '*'", source={"value.format": "json", "topic": "a.b"})),
    Called("ingest-keys", ingest(KNOWN_BOTH, {**KAFKA, "partition.strategy": "hash-by-key"}),
           "set primary-keys in 'transform'",
           transform("source-table: u, primary-keys: id", source=KNOWN_BOTH,
           sink={**KAFKA, "partition.strategy": "hash-by-key"})),
    Called("ingest-keys", route(r"source-table: '\.*', sink-table: all",
           source=KNOWN_KEYS),
           "give them the same primary-keys in 'transform'",
           ingest(KNOWN_KEYS, None,
                  "transform:", "  - {source-table: u, primary-keys: id, projection: 'id, n'}", "route:",
                  r"  - {source-table: '\.*', sink-table: all}")),
    Called("ingest-sink", ingest({"scan.value.initial-schemas.ddls": TABLE.replace(" t ", " _t "), "table": "_t"},
           DELTA), "name another sink table in a route",
           ingest({"scan.value.initial-schemas.ddls": TABLE.replace(" t ", " _t "), "table": "_t"}, DELTA, "route:",
           "  - {source-table: _t, sink-table: t}")),
    Called("ingest-sink", route("source-table: t, sink-table: _t", sink=DELTA), "name another sink table",
           route("source-table: t, sink-table: t2", sink=DELTA)),
    Called("ingest-route", route("source-table: '(x)*t', sink-table: ods.$1", source=KNOWN), "as 'ods.t_$1'",
           route("source-table: '(x)*t', sink-table: ods.t_$1", source=KNOWN)),
    Called("option-missing", ingest({}, {"type": "jdbc"}), "add",
           ingest({}, {"type": "jdbc", "url": "jdbc:postgresql://h/d"})),
    Called("option-value", ingest({"scan.max.pre.fetch.records": "many"}),
           "set scan.max.pre.fetch.records to an integer", ingest({"scan.max.pre.fetch.records": "5"})),
    Called("startup", ingest({"scan.startup.mode": "timestamp"}), "add scan.startup.timestamp-millis",
           ingest({"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "1700000000000"})),
    Called("startup", ingest({"scan.startup.timestamp-millis": "1700000000000"}), "set scan.startup.mode: timestamp",
           ingest({"scan.startup.mode": "timestamp", "scan.startup.timestamp-millis": "1700000000000"})),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.advice[:30]}")
def test_the_advice_for_an_ingestion_works(case: Called) -> None:
    check_advice(case)
