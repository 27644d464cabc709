"""What problems of SQL statements advise."""

from __future__ import annotations

import pytest

from tests.advice.cases import Sql, check_advice

BATCH = "SET 'execution.runtime-mode' = 'batch'; "
WINDOW = "FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end"


def read_as_batch(code: str, query: str, advice: str = "'execution.runtime-mode' = 'batch'") -> Sql:
    return Sql(code, f"INSERT INTO sink {query}", advice, f"{BATCH}INSERT INTO sink {query}")


CASES = [
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


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.wrong[:50]}")
def test_the_advice_for_a_statement_works(case: Sql) -> None:
    check_advice(case)
