"""What problems advise: each fix is followed, and the problem is gone and no other error comes.

A problem with a new code needs a case here, or a test elsewhere that follows its advice. The codes that were there
before, and whose advice no test follows yet, are in `unfollowed_advice.txt`, which may only get shorter.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import attrs
import pytest

from kdsl.cluster import Cluster
from kdsl.declare.config import WatermarkConfig
from kdsl.errors import Problem, ResolveError
from kdsl.flink_sql.ddl.script_reader import read_script
from kdsl.flink_sql.scripts.planner import check_script
from kdsl.formats import Direction
from kdsl.ingest.evolution import RefusalCode
from kdsl.resolve import problems
from tests.resolve.tables import table
from tests.source_trees import modules

AVRO = {"format": "avro-confluent", "avro-confluent.url": "http://registry:8081"}
UNFOLLOWED = Path(__file__).with_name("unfollowed_advice.txt")
CLUSTER = Cluster("broker:9092")
SCRIPT = """
CREATE TABLE s (id INT, name STRING, ts TIMESTAMP(3)) WITH (
  'connector' = 'kafka', 'topic' = 's', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE m (id INT, name STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (
  'connector' = 'kafka', 'topic' = 'm', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE sink (id BIGINT, name STRING) WITH ('connector' = 'print');
CREATE TABLE upserted (id BIGINT, name STRING, PRIMARY KEY (id, name) NOT ENFORCED) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'u', 'key.format' = 'json', 'value.format' = 'json');
"""
BATCH = "SET 'execution.runtime-mode' = 'batch'; "
WINDOW = "FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end"


@attrs.frozen
class Sql:
    """A statement with a problem, a part of its advice, and the statement that follows it."""

    code: str
    wrong: str
    advice: str
    right: str


@attrs.frozen
class Declared:
    """A table with a problem, a part of its advice, and the table that follows it; see `tests.resolve.tables.table`."""

    code: str
    wrong: Mapping[str, Any]
    advice: str
    right: Mapping[str, Any]
    direction: Direction = "read"
    columns: tuple[str, ...] = ()
    right_columns: tuple[str, ...] | None = None


def find_sql_problems(statement: str) -> list[Problem]:
    try:
        return list(check_script(read_script(SCRIPT + statement), CLUSTER, checkpoint="/checkpoint")[1])
    except ResolveError as e:
        return list(e.problems)


def read_as_batch(code: str, query: str, advice: str = "'execution.runtime-mode' = 'batch'") -> Sql:
    return Sql(code, f"INSERT INTO sink {query}", advice, f"{BATCH}INSERT INTO sink {query}")


SQL = [
    Sql(
        "stream-aggregate",
        "INSERT INTO sink SELECT COUNT(*), name FROM s GROUP BY name",
        "write into a table of 'upsert-kafka'",
        "CREATE TABLE u (n BIGINT, name STRING, PRIMARY KEY (name) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', "
        "'topic' = 'n', 'key.format' = 'json', 'value.format' = 'json'); "
        "INSERT INTO u SELECT COUNT(*), name FROM s GROUP BY name",
    ),
    Sql(
        "stream-distinct",
        "INSERT INTO sink SELECT DISTINCT id, name FROM s",
        "leave out DISTINCT and write into a table of 'upsert-kafka' whose PRIMARY KEY has all columns",
        "INSERT INTO upserted SELECT id, name FROM s",
    ),
    read_as_batch("stream-distinct", "SELECT DISTINCT id, name FROM s"),
    read_as_batch("stream-distinct-values", f"SELECT COUNT(DISTINCT id), 'x' {WINDOW.format('m')}"),
    read_as_batch("stream-over", "SELECT ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts), name FROM s"),
    read_as_batch("stream-offset", "SELECT id, name FROM s OFFSET 5"),
    read_as_batch("stream-set", "SELECT id, name FROM s UNION SELECT id, 'x' FROM m"),
    read_as_batch("stream-nested", "SELECT id, name FROM s WHERE id IN (SELECT id FROM m)"),
    read_as_batch("stream-join-without-equality", "SELECT s.id, m.name FROM s JOIN m ON s.id > m.id"),
    read_as_batch("stream-grouping", f"SELECT COUNT(*), 'x' {WINDOW.format('m')}, ROLLUP (id)"),
    Sql(
        "stream-order",
        "INSERT INTO sink SELECT id, name FROM s ORDER BY id",
        "remove ORDER BY: the rows are the same",
        "INSERT INTO sink SELECT id, name FROM s",
    ),
    Sql(
        "stream-outer-join",
        "INSERT INTO sink SELECT a.id, b.name FROM m a LEFT JOIN m b ON a.id = b.id",
        "add a condition on their columns, as b.ts BETWEEN a.ts AND a.ts + INTERVAL '4' HOUR",
        "INSERT INTO sink SELECT a.id, b.name FROM m a LEFT JOIN m b ON a.id = b.id "
        "AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '4' HOUR",
    ),
    Sql(
        "stream-watermark",
        f"INSERT INTO sink SELECT COUNT(*), 'x' {WINDOW.format('s')}",
        "declare WATERMARK FOR ts AS ts - INTERVAL '5' SECOND",
        f"INSERT INTO sink SELECT COUNT(*), 'x' {WINDOW.format('m')}",
    ),
    Sql(
        "setting-unknown",
        "SET 'table.exec.state.ttl' = '1 h'; INSERT INTO sink SELECT id, name FROM s",
        "declare a WATERMARK, and group by windows",
        f"INSERT INTO sink SELECT COUNT(*), 'x' {WINDOW.format('m')}",
    ),
    Sql(
        "setting-unknown",
        "SET 'table.exec.sink.not-null-enforcer' = 'DROP'; INSERT INTO sink SELECT id, name FROM s",
        "write WHERE column IS NOT NULL in the query",
        "INSERT INTO sink SELECT id, name FROM s WHERE name IS NOT NULL",
    ),
    Sql(
        "setting-unknown",
        "SET 'table.exec.legacy-cast-behaviour' = 'ENABLED'; INSERT INTO sink SELECT CAST(name AS INT), name FROM s",
        "write TRY_CAST",
        "INSERT INTO sink SELECT TRY_CAST(name AS INT), name FROM s",
    ),
    Sql(
        "sql-query",
        "INSERT INTO sink SELECT id, word FROM s, LATERAL TABLE(STRING_SPLIT(name, ',')) AS t (word)",
        "write CROSS JOIN UNNEST(array) AS u (item), where SPLIT(text, ',') makes an array",
        "INSERT INTO sink SELECT id, word FROM s CROSS JOIN UNNEST(SPLIT(name, ',')) AS u (word)",
    ),
    Sql(
        "sql-query",
        f"INSERT INTO sink SELECT COUNT(*), 'x' {WINDOW.format('m').replace('TUMBLE', 'TUMBEL')}",
        "write TUMBLE",
        f"INSERT INTO sink SELECT COUNT(*), 'x' {WINDOW.format('m')}",
    ),
    Sql(
        "sql-query",
        f"{BATCH}INSERT INTO sink SELECT APPROX_COUNT_DISTINCT(id), name FROM s GROUP BY name",
        "use COUNT(DISTINCT …), which is exact",
        f"{BATCH}INSERT INTO sink SELECT COUNT(DISTINCT id), name FROM s GROUP BY name",
    ),
    Sql(
        "sql-query",
        "INSERT INTO sink SELECT id, JSON_OBJECT(KEY 'a' VALUE name NULL ON NULL) FROM s",
        "write the values as columns of a table with the format json",
        "CREATE TABLE j (id INT, name STRING) WITH ('connector' = 'kafka', 'topic' = 'j', 'format' = 'json'); "
        "INSERT INTO j SELECT id, name FROM s",
    ),
    Sql(
        "sql-query",
        "INSERT INTO sink SELECT id, CAST(PARSE_JSON(name) AS STRING) FROM s",
        "read single values with JSON_VALUE",
        "INSERT INTO sink SELECT id, JSON_VALUE(name, '$.a') FROM s",
    ),
    Sql(
        "sql-query",
        "CREATE TABLE p (id INT, amount STRING) WITH ('connector' = 'kafka', 'topic' = 'p', 'format' = 'json', "
        "'scan.startup.mode' = 'earliest-offset'); "
        "INSERT INTO sink SELECT id, amount FROM s",
        "join 'p'",
        "CREATE TABLE p (id INT, amount STRING) WITH ('connector' = 'kafka', 'topic' = 'p', 'format' = 'json', "
        "'scan.startup.mode' = 'earliest-offset'); INSERT INTO sink SELECT s.id, amount FROM s JOIN p ON s.id = p.id",
    ),
    Sql("insert-count", "INSERT INTO sink SELECT id FROM s", "", "INSERT INTO sink SELECT id, name FROM s"),
    Sql("table-unknown", "INSERT INTO sing SELECT id, name FROM s", "", "INSERT INTO sink SELECT id, name FROM s"),
]

UPSERT = {"connector": "upsert-kafka", "key.format": "json", "value.format": "json"}
ONCE = {"sink.delivery-guarantee": "exactly-once"}
DECLARED = [
    Declared("topic-missing", {"without": ("topic",)}, "topic", {"options": {"topic": "orders"}}),
    Declared("topic-name", {"options": {"topic": "a b"}}, "", {"options": {"topic": "a-b"}}),
    Declared("topic-repeated", {"options": {"topic": "a;a"}}, "", {"options": {"topic": "a"}}),
    Declared("topic-pattern", {"without": ("topic",), "options": {"topic-pattern": "a("}}, "",
             {"without": ("topic",), "options": {"topic-pattern": "a.*"}}),
    Declared("topic-and-pattern", {"options": {"topic-pattern": "a.*"}}, "", {}),
    Declared("value-format", {"without": ("format",)}, "", {"options": {"format": "json"}}),
    Declared("group-id", {"options": {"properties.group.id": " "}}, "name the group", {}),
    Declared("key-fields", {"options": {"key.format": "json"}, "without": ()}, "",
             {"options": {"key.format": "json", "key.fields": "id"}}),
    Declared("key-format", {"options": {"key.fields": "id"}}, "",
             {"options": {"key.fields": "id", "key.format": "json"}}),
    Declared("key-field", {"options": {"key.fields": "ix", "key.format": "json"}}, "id",
             {"options": {"key.fields": "id", "key.format": "json"}}),
    Declared("key-field-repeated", {"options": {"key.fields": "id;id", "key.format": "json"}}, "",
             {"options": {"key.fields": "id", "key.format": "json"}}),
    Declared("key-prefix-all", {"options": {"key.fields": "id", "key.format": "json", "key.fields-prefix": "i"}},
             "EXCEPT_KEY",
             {"options": {"key.fields": "id", "key.format": "json", "key.fields-prefix": "i",
                          "value.fields-include": "EXCEPT_KEY"}}),
    Declared("primary-key-column", {"options": UPSERT, "without": ("format",), "primary_key": ("ix",)}, "",
             {"options": UPSERT, "without": ("format",), "primary_key": ("id",)}),
    Declared("upsert-key", {"options": UPSERT, "without": ("format",)}, "",
             {"options": UPSERT, "without": ("format",), "primary_key": ("id",)}),
    Declared("upsert-format", {"options": {**UPSERT, "value.format": "debezium-json"}, "without": ("format",),
                               "primary_key": ("id",)}, "",
             {"options": UPSERT, "without": ("format",), "primary_key": ("id",)}),
    Declared("metadata-key", {}, "offset", {}, columns=("id INT", "at BIGINT METADATA FROM ofset"),
             right_columns=("id INT", "at BIGINT METADATA FROM offset")),
    Declared("metadata-type", {}, "", {}, columns=("id INT", "at DATE METADATA FROM offset"),
             right_columns=("id INT", "at BIGINT METADATA FROM offset")),
    Declared("metadata-read-only", {}, "'virtual: true'", {}, "write", ("id INT", "at BIGINT METADATA FROM offset"),
             ("id INT", "at BIGINT METADATA FROM offset VIRTUAL")),
    Declared("nothing-to-write", {}, "", {}, "write", ("at BIGINT METADATA FROM offset VIRTUAL",), ("id INT",)),
    Declared("column-repeated", {}, "", {}, columns=("id INT", "id INT"), right_columns=("id INT", "id_2 INT")),
    Declared("column-name", {}, "", {}, columns=("a\ufdd0 INT",), right_columns=("a INT",)),
    Declared("watermark-column", {"watermark": WatermarkConfig(column="ix", delay="5 s")}, "",
             {"watermark": WatermarkConfig(column="ts", delay="5 s")}, columns=("id INT", "ts TIMESTAMP(3)")),
    Declared("watermark-type", {"watermark": WatermarkConfig(column="id", delay="5 s")}, "",
             {"watermark": WatermarkConfig(column="ts", delay="5 s")}, columns=("id INT", "ts TIMESTAMP(3)")),
    Declared("watermark-delay", {"watermark": WatermarkConfig(column="ts", delay="5 parsecs")}, "",
             {"watermark": WatermarkConfig(column="ts", delay="5 s")}, columns=("id INT", "ts TIMESTAMP(3)")),
    Declared("header-filter", {"options": {"scan.header-filter": "a:1 &&"}}, "",
             {"options": {"scan.header-filter": "a:1"}}),
    Declared("transactional-id-prefix", {"options": ONCE}, "sink.transactional-id-prefix",
             {"options": {**ONCE, "sink.transactional-id-prefix": "p"}}, "write"),
    Declared("exactly-once-idempotence",
             {"options": {**ONCE, "sink.transactional-id-prefix": "p", "properties.enable.idempotence": "false"}}, "",
             {"options": {**ONCE, "sink.transactional-id-prefix": "p"}}, "write"),
    Declared("exactly-once-acks",
             {"options": {**ONCE, "sink.transactional-id-prefix": "p", "properties.acks": "1"}}, "",
             {"options": {**ONCE, "sink.transactional-id-prefix": "p", "properties.acks": "all"}}, "write"),
    Declared("at-least-once-acks", {"options": {"properties.acks": "0"}}, "",
             {"options": {"properties.acks": "all"}}, "write"),
    Declared("format-unknown", {"options": {"format": "jsom"}}, "", {"options": {"format": "json"}}),
    Declared("option-unknown", {"options": {"scan.startup.mod": "earliest-offset"}}, "",
             {"options": {"scan.startup.mode": "earliest-offset"}}),
    Declared("dead-letter-lenient", {"options": {"scan.dead-letter.topic": "d", "json.ignore-parse-errors": "true"}},
             "", {"options": {"scan.dead-letter.topic": "d"}}),
    Declared("csv-type", {"options": {"format": "csv"}}, "", {"options": {"format": "json"}},
             columns=("m MAP<STRING, INT>",)),
    Declared("csv-nesting", {"options": {"format": "csv"}}, "", {"options": {"format": "json"}},
             columns=("a ARRAY<ARRAY<INT>>",)),
    Declared("json-map-key", {}, "", {}, columns=("m MAP<INT, INT>",), right_columns=("m MAP<STRING, INT>",)),
    Declared("raw-one-column", {"options": {"format": "raw"}}, "", {"options": {"format": "raw"}},
             right_columns=("id INT",)),
    Declared("raw-type", {"options": {"format": "raw"}}, "", {"options": {"format": "raw"}},
             columns=("d DATE",), right_columns=("d STRING",)),
    Declared("cdc-duplicate-key", {"options": {"format": "debezium-json", "cdc-events-duplicate": "true"}}, "",
             {"options": {"format": "debezium-json", "cdc-events-duplicate": "true"}, "primary_key": ("id",)}),
    Declared("cdc-duplicate-format", {"options": {"cdc-events-duplicate": "true"}, "primary_key": ("id",)}, "",
             {"options": {"format": "debezium-json", "cdc-events-duplicate": "true"}, "primary_key": ("id",)}),
    Declared("csv-delimiter", {"options": {"format": "csv", "csv.field-delimiter": '"'}}, "",
             {"options": {"format": "csv", "csv.field-delimiter": ";"}}),
    Declared("canal-json-include", {"options": {"format": "canal-json", "canal-json.table.include": "a("}}, "",
             {"options": {"format": "canal-json", "canal-json.table.include": "a.*"}}),
    Declared("json-missing-and-ignore",
             {"options": {"json.fail-on-missing-field": "true", "json.ignore-parse-errors": "true"}}, "",
             {"options": {"json.fail-on-missing-field": "true"}}),
    Declared("raw-value", {}, "", {}, "write", ("id INT", "v BYTES METADATA FROM __raw_value__"), ("id INT",)),
    Declared("transaction-timeout",
             {"options": {**ONCE, "sink.transactional-id-prefix": "p", "properties.transaction.timeout.ms": "1"}}, "",
             {"options": {**ONCE, "sink.transactional-id-prefix": "p"}}, "write"),
    Declared("dead-letter-topic", {"options": {"scan.dead-letter.topic": "orders"}}, "",
             {"options": {"scan.dead-letter.topic": "orders.dead"}}),
    Declared("sink-topic", {"options": {"topic": "a;b"}}, "", {"options": {"topic": "a"}}, "write"),
    Declared("upsert-buffer", {"options": {**UPSERT, "sink.buffer-flush.max-rows": "5"}, "without": ("format",),
                               "primary_key": ("id",)}, "",
             {"options": {**UPSERT, "sink.buffer-flush.max-rows": "5", "sink.buffer-flush.interval": "1 s"},
              "without": ("format",), "primary_key": ("id",)}, "write"),
    Declared("exactly-once-unused", {"options": {"sink.transactional-id-prefix": "p"}}, "",
             {"options": {**ONCE, "sink.transactional-id-prefix": "p"}}, "write"),
    Declared("metadata-twice", {}, "", {}, "write", ("id INT", "a TIMESTAMP(3) METADATA FROM timestamp",
             "b TIMESTAMP(3) METADATA FROM timestamp"), ("id INT", "a TIMESTAMP(3) METADATA FROM timestamp")),
    Declared("debezium-truncate", {"options": {"format": "debezium-json", "debezium-json.truncate": "apply"}}, "",
             {"options": {"format": "debezium-json", "debezium-json.truncate": "skip"}}),
    Declared("watermark-ahead", {"options": {"scan.watermark.max-ahead": "1 h"}}, "", {}, "read"),
    Declared("avro-defaults", {"options": {**AVRO, "avro-confluent.defaults": '{"x": 1}'}}, "a default for each path",
             {"options": {**AVRO, "avro-confluent.defaults": '{"id": 1}'}}, "read", ("id INT NOT NULL",)),
]  # fmt: skip


@pytest.mark.parametrize("case", SQL, ids=lambda case: f"{case.code}: {case.wrong[:50]}")
def test_the_advice_for_a_statement_works(case: Sql) -> None:
    fixes = [p.fix for p in find_sql_problems(case.wrong) if p.code == case.code]

    assert fixes
    assert any(case.advice in fix for fix in fixes), fixes
    assert [p.code for p in find_sql_problems(case.right) if p.severity == "error" or p.code == case.code] == []


@pytest.mark.parametrize("case", DECLARED, ids=lambda case: case.code)
def test_the_advice_for_a_table_works(case: Declared) -> None:
    def find(changes: Mapping[str, Any], columns: tuple[str, ...]) -> list[Problem]:
        return list(problems(table(*columns, **changes), case.direction))

    fixes = [p.fix for p in find(case.wrong, case.columns) if p.code == case.code]
    remaining = find(case.right, case.columns if case.right_columns is None else case.right_columns)

    assert fixes
    assert all(fixes)
    assert any(case.advice in fix for fix in fixes), fixes
    assert [p.code for p in remaining if p.severity == "error" or p.code == case.code] == []


_RAISED_BY = ("Problem", "problem", "_problem", "add_problem", "_add_problem", "WrongOption", "add", "fail")
_CODE = re.compile(r"[a-z]+(-[a-z0-9]+)+")


def find_codes() -> frozenset[str]:
    """The codes of problems in the source, and those of parts of streams; those of refusals have their own test."""
    from kdsl.flink_sql.scripts.stream_checks import _REASONS

    codes = {f"stream-{kind.replace(' ', '-')}" for kind in _REASONS}
    for path in modules().values():
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            if name in _RAISED_BY:
                # the code is the first argument, or the second one after the table or the declaration
                first = [a.value for a in node.args[:2] if isinstance(a, ast.Constant) and isinstance(a.value, str)]
                codes.update(code for code in first[:1] if _CODE.fullmatch(code))
    return frozenset(codes) - set(get_args(RefusalCode))


def test_every_problem_has_a_case_that_follows_its_advice() -> None:
    followed = {case.code for case in SQL} | {case.code for case in DECLARED}
    unfollowed = set(UNFOLLOWED.read_text().split())

    assert len(find_codes()) > 200
    assert sorted(find_codes() - followed - unfollowed) == [], "a new code: add a case that follows its advice"
    assert sorted(unfollowed & followed) == [], "take the code out of the list"
    assert sorted(unfollowed - find_codes()) == [], "the code is gone: take it out of the list"
