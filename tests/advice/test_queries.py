"""What mistakes in queries advise (the code ``sql-query``), message by message."""

from __future__ import annotations

import pytest

from tests.advice.cases import Sql, check_advice

BATCH = "SET 'execution.runtime-mode' = 'batch'; "
X = (
    "CREATE TABLE x (a ARRAY<INT>, p MAP<STRING, INT>, r ROW<b INT>, d DECIMAL(20, 8), f DOUBLE, l TIMESTAMP_LTZ(3), "
    "da DATE, ss ARRAY<STRING>, rr ARRAY<ROW<b INT>>) WITH ('connector' = 'kafka', 'topic' = 'x', 'format' = "
    "'json', 'scan.startup.mode' = 'earliest-offset'); "
)
UP = (
    "CREATE TABLE up (id INT, name STRING, ts TIMESTAMP(3), PRIMARY KEY (id) NOT ENFORCED) WITH ("
    "'connector' = 'upsert-kafka', 'topic' = 'up', 'key.format' = 'json', 'value.format' = 'json'); "
)
NOW = "(SELECT id, name, ts FROM up GROUP BY id, name, ts) AS u"
W = "TABLE(TUMBLE(TABLE m, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
BY = "GROUP BY window_start, window_end"
QUERIES = [
    # FROM
    (
        "SELECT i FROM UNNEST(ARRAY[1]) AS u (i)",
        "write FROM t CROSS JOIN UNNEST",
        "SELECT i FROM s CROSS JOIN UNNEST(ARRAY[1]) AS u (i)",
    ),
    (
        "SELECT name FROM s WHERE COUNT(*) > 1 GROUP BY name",
        "use HAVING",
        BATCH + "SELECT name FROM s GROUP BY name HAVING COUNT(*) > 1",
    ),
    (
        "SELECT * FROM (SELECT id, name FROM s) AS q (a)",
        "write as many names as columns",
        "SELECT * FROM (SELECT id, name FROM s) AS q (a, b)",
    ),
    (
        f"SELECT COUNT(*) FROM {W.replace('(ts)', '(tss)')} {BY}",
        "use one of id, name, ts",
        f"SELECT COUNT(*) FROM {W} {BY}",
    ),
    (
        f"SELECT COUNT(*) FROM {W.replace('(ts)', '(name)')} {BY}",
        "use a TIMESTAMP column",
        f"SELECT COUNT(*) FROM {W} {BY}",
    ),
    (
        f"SELECT COUNT(*) FROM TABLE(HOP(TABLE m, DESCRIPTOR(ts), INTERVAL '2' MINUTE, INTERVAL '5' MINUTE)) {BY}",
        "choose a slide that divides the size",
        f"SELECT COUNT(*) FROM TABLE(HOP(TABLE m, DESCRIPTOR(ts), INTERVAL '1' MINUTE, INTERVAL '5' MINUTE)) {BY}",
    ),
    (
        "SELECT i, s.id FROM s CROSS JOIN UNNEST(ARRAY[1]) AS u (i) JOIN m ON s.id = m.id",
        "write it last",
        "SELECT i, s.id FROM s JOIN m ON s.id = m.id CROSS JOIN UNNEST(ARRAY[1]) AS u (i)",
    ),
    (
        "SELECT s.id FROM s JOIN s ON s.id = s.id",
        "give one of them another name with AS",
        "SELECT s.id FROM s JOIN s AS b ON s.id = b.id",
    ),
    ("SELECT id FROM s JOIN m ON s.id = m.id", "write s.id", "SELECT s.id FROM s JOIN m ON s.id = m.id"),
    ("SELECT id FROM s JOIN m USING (idd)", "write ON a.x = b.x", "SELECT s.id FROM s JOIN m ON s.id = m.id"),
    (
        "SELECT i FROM s LEFT JOIN UNNEST(ARRAY[1]) AS u (i) ON i > 1",
        "LEFT JOIN … ON TRUE",
        "SELECT i FROM s LEFT JOIN UNNEST(ARRAY[1]) AS u (i) ON TRUE",
    ),
    (
        "SELECT i FROM s LEFT JOIN UNNEST(ARRAY[1]) AS u (i) ON i > 1",
        "the condition after WHERE",
        "SELECT i FROM s CROSS JOIN UNNEST(ARRAY[1]) AS u (i) WHERE i > 1",
    ),
    (
        "SELECT i FROM s CROSS JOIN UNNEST(name) AS u (i)",
        "or ARRAY[…]",
        "SELECT i FROM s CROSS JOIN UNNEST(ARRAY[name]) AS u (i)",
    ),
    (
        "SELECT i FROM s CROSS JOIN UNNEST(ARRAY[1]) AS u (i, j)",
        "write as many",
        "SELECT i FROM s CROSS JOIN UNNEST(ARRAY[1]) AS u (i)",
    ),
    (
        "WITH q AS (SELECT id FROM s) SELECT * FROM q /*+ OPTIONS('scan.startup.mode' = 'latest-offset') */",
        "hint at the table in it",
        "WITH q AS (SELECT id FROM s /*+ OPTIONS('scan.startup.mode' = 'latest-offset') */) SELECT * FROM q",
    ),
    (
        "SELECT a.id FROM TABLE(SESSION(TABLE m, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) AS a JOIN s ON a.id = s.id",
        "group it in a nested query",
        "SELECT a.n FROM (SELECT COUNT(*) AS n FROM TABLE(SESSION(TABLE m, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) "
        "GROUP BY window_start, window_end) AS a JOIN s ON a.n = s.id",
    ),
    (
        "SELECT a.id FROM m AS a JOIN s FOR SYSTEM_TIME AS OF a.ts AS b ON a.id = b.id",
        "join with a table that has a row for each version",
        "SELECT a.id FROM m AS a JOIN s AS b ON a.id = b.id AND a.ts >= b.ts",
    ),
    (
        "SELECT id FROM s AS q /*+ OPTIONS('scan.startup.mode' = 'latest-offset') */",
        "write FROM t /*+ OPTIONS(…) */ AS name",
        "SELECT id FROM s /*+ OPTIONS('scan.startup.mode' = 'latest-offset') */ AS q",
    ),
    ("SELECT id FROM s /*+ BROADCAST(s) */", "or leave it out", "SELECT id FROM s"),
    (
        f"SELECT COUNT(*) FROM {W} AS w (a, b) {BY}",
        "name the columns in SELECT",
        f"SELECT COUNT(*) AS a FROM {W} AS w {BY}",
    ),
    (
        "WITH RECURSIVE q AS (SELECT 1 AS a) SELECT a FROM q",
        "write the steps out",
        "WITH q AS (SELECT 1 AS a) SELECT a FROM q",
    ),
    (
        "SELECT id FROM s NATURAL JOIN m ON s.id = m.id",
        "leave NATURAL or the condition out",
        "SELECT s.id FROM s JOIN m ON s.id = m.id",
    ),
    # groups
    (
        "SELECT MAX(COUNT(*)) FROM s GROUP BY name",
        "use a nested query",
        BATCH + "SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM s GROUP BY name)",
    ),
    (
        BATCH + "SELECT id, COUNT(*) FROM s GROUP BY name",
        "add it to GROUP BY",
        BATCH + "SELECT id, COUNT(*) FROM s GROUP BY name, id",
    ),
    (
        BATCH + "SELECT *, COUNT(*) FROM s GROUP BY name",
        "name the columns",
        BATCH + "SELECT name, COUNT(*) FROM s GROUP BY name",
    ),
    (
        BATCH + "SELECT name, COUNT(*) FROM s GROUP BY 1",
        "write the column",
        BATCH + "SELECT name, COUNT(*) FROM s GROUP BY name",
    ),
    (
        BATCH + "SELECT ROW_NUMBER() FROM s",
        "write OVER (PARTITION BY … ORDER BY …)",
        BATCH + "SELECT ROW_NUMBER() OVER (PARTITION BY name ORDER BY id) FROM s",
    ),
    (
        BATCH + "SELECT SUM(id) OVER w FROM s",
        "declare it after WINDOW",
        BATCH + "SELECT SUM(id) OVER w FROM s WINDOW w AS (ORDER BY id)",
    ),
    (
        BATCH + "SELECT SUM(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) FROM s",
        "AND CURRENT ROW",
        BATCH + "SELECT SUM(id) OVER (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) FROM s",
    ),
    (BATCH + "SELECT SUM() FROM s", "write SUM(column)", BATCH + "SELECT SUM(id) FROM s"),
    (X + BATCH + "SELECT MAX(a) FROM x", "use it for a member of it", X + BATCH + "SELECT MAX(a[1]) FROM x"),
    (
        X + BATCH + "SELECT AVG(d) FROM x",
        "write AVG(CAST(… AS DOUBLE))",
        X + BATCH + "SELECT AVG(CAST(d AS DOUBLE)) FROM x",
    ),
    (
        BATCH + "SELECT GROUPING(id, name), COUNT(*) FROM s GROUP BY CUBE (id, name)",
        "write GROUPING_ID(a, b)",
        BATCH + "SELECT GROUPING_ID(id, name), COUNT(*) FROM s GROUP BY CUBE (id, name)",
    ),
    (
        BATCH + "SELECT GROUPING(ts), COUNT(*) FROM s GROUP BY CUBE (id, name)",
        "name columns of ROLLUP, CUBE",
        BATCH + "SELECT GROUPING(id), COUNT(*) FROM s GROUP BY CUBE (id, name)",
    ),
    (
        "SELECT COUNT(*) FROM m GROUP BY TUMBLE(ts)",
        "write TUMBLE(ts, INTERVAL …)",
        "SELECT COUNT(*) FROM m GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
    ),
    (
        "SELECT COUNT(*) FROM m GROUP BY TUMBLE(name, INTERVAL '1' MINUTE)",
        "name the event-time column",
        "SELECT COUNT(*) FROM m GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
    ),
    (
        "SELECT HOP_START(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE) FROM m GROUP BY TUMBLE(ts, INTERVAL '1' "
        "MINUTE)",
        "with the same arguments",
        "SELECT HOP_START(ts, INTERVAL '1' MINUTE, INTERVAL '5' MINUTE) FROM m GROUP BY HOP(ts, INTERVAL '1' "
        "MINUTE, INTERVAL '5' MINUTE)",
    ),
    (
        "SELECT TUMBLE(ts, INTERVAL '1' MINUTE) FROM m GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "write TUMBLE_START",
        "SELECT TUMBLE_START(ts, INTERVAL '1' MINUTE) FROM m GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
    ),
    (
        "SELECT TUMBLE_PROCTIME(ts, INTERVAL '1' MINUTE) FROM m GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
        "use TUMBLE_END",
        "SELECT TUMBLE_END(ts, INTERVAL '1' MINUTE) FROM m GROUP BY TUMBLE(ts, INTERVAL '1' MINUTE)",
    ),
    (
        "SELECT COUNT(*) FROM m GROUP BY TUMBLE(ts, INTERVAL '1' MONTH)",
        "write INTERVAL '1' DAY",
        "SELECT COUNT(*) FROM m GROUP BY TUMBLE(ts, INTERVAL '1' DAY)",
    ),
    (
        f"SELECT COUNT(*) FROM {W} GROUP BY window_start",
        "write GROUP BY window_start, window_end, …",
        f"SELECT COUNT(*) FROM {W} GROUP BY window_start, window_end",
    ),
    (
        BATCH + f"SELECT COUNT(*) FROM {W} GROUP BY GROUPING SETS ((window_start, window_end, id), (window_start, "
        "window_end))",
        "write GROUP BY window_start, window_end, GROUPING SETS (…)",
        BATCH + f"SELECT COUNT(*) FROM {W} GROUP BY window_start, window_end, GROUPING SETS ((id), ())",
    ),
    (
        "SELECT * FROM TABLE(SESSION(TABLE m, DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
        "write GROUP BY window_start, window_end",
        f"SELECT COUNT(*) FROM TABLE(SESSION(TABLE m, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) {BY}",
    ),
    (
        f"SELECT COUNT(*) FROM TABLE(SESSION(TABLE m PARTITION BY id, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) {BY}",
        "name the same columns in both",
        f"SELECT COUNT(*) FROM TABLE(SESSION(TABLE m PARTITION BY id, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) {BY}, id",
    ),
    # nested queries and sets
    (
        BATCH + "SELECT id FROM s WHERE id IN (SELECT id, name FROM m)",
        "select the same number of columns",
        BATCH + "SELECT id FROM s WHERE id IN (SELECT id FROM m)",
    ),
    (
        BATCH + "SELECT (SELECT id, name FROM m) FROM s",
        "select one column",
        BATCH + "SELECT (SELECT MAX(id) FROM m) FROM s",
    ),
    ("SELECT id FROM s LIMIT id", "write a number", BATCH + "SELECT id FROM s LIMIT 5"),
    (
        "SELECT id FROM s UNION ALL SELECT id, name FROM m",
        "select the same number of columns",
        "SELECT id, name FROM s UNION ALL SELECT id, name FROM m",
    ),
    (
        "SELECT id FROM s UNION ALL SELECT ts FROM m",
        "CAST one to the type of the other",
        "SELECT CAST(id AS STRING) FROM s UNION ALL SELECT CAST(ts AS STRING) FROM m",
    ),
    (
        "SELECT id FROM s WHERE 1 = 1 UNION ALL VALUES (1), (2, 3)",
        "write the same number of values in each",
        "SELECT id FROM s UNION ALL VALUES (1), (2)",
    ),
    ("SELECT q.* FROM s", "name a table after FROM", "SELECT s.* FROM s"),
    # changelogs
    (UP + "SELECT id FROM up ORDER BY id", "remove it", UP + "SELECT id FROM up"),
    (
        UP + "SELECT id FROM up ORDER BY id",
        "(SELECT a, b FROM t GROUP BY a, b)",
        UP + BATCH + f"SELECT id FROM {NOW} ORDER BY id",
    ),
    (
        UP + "SELECT up.id FROM up JOIN s ON up.id = s.id",
        "(SELECT a, b FROM t GROUP BY a, b)",
        UP + BATCH + f"SELECT u.id FROM {NOW} JOIN s ON u.id = s.id",
    ),
    (
        UP + "SELECT ROW_NUMBER() OVER (ORDER BY id) FROM up",
        "(SELECT a, b FROM t GROUP BY a, b)",
        UP + BATCH + f"SELECT ROW_NUMBER() OVER (ORDER BY id) FROM {NOW}",
    ),
    (UP + "SELECT DISTINCT name FROM up", "write GROUP BY", UP + BATCH + "SELECT name FROM up GROUP BY name"),
    (
        UP + BATCH + "SELECT name, COUNT(*) FROM up GROUP BY ROLLUP (name)",
        "group by columns only",
        UP + BATCH + "SELECT name, COUNT(*) FROM up GROUP BY name",
    ),
    (
        UP + BATCH + "SELECT name, COUNT(*) FROM up GROUP BY ROLLUP (name)",
        "(SELECT a, b FROM t GROUP BY a, b)",
        UP + BATCH + f"SELECT name, COUNT(*) FROM {NOW} GROUP BY ROLLUP (name)",
    ),
    (
        UP + f"SELECT COUNT(*) FROM {W.replace('m,', 'up,')} {BY}",
        "CREATE VIEW v AS SELECT a, b FROM t GROUP BY a, b",
        UP + BATCH + "CREATE VIEW v AS SELECT id, name, ts FROM up GROUP BY id, name, ts; SELECT COUNT(*) FROM "
        f"{W.replace('m,', 'v,')} {BY}",
    ),
    (UP + BATCH + "SELECT MAX(id) FROM up", "use COUNT, SUM or AVG", UP + BATCH + "SELECT SUM(id) FROM up"),
    (
        UP + BATCH + "SELECT MAX(id) FROM up",
        "(SELECT a, b FROM t GROUP BY a, b)",
        UP + BATCH + f"SELECT MAX(id) FROM {NOW}",
    ),
    (
        UP + BATCH + "SELECT id FROM up UNION SELECT id FROM s",
        "(SELECT a, b FROM t GROUP BY a, b)",
        UP + BATCH + f"SELECT id FROM {NOW} UNION SELECT id FROM s",
    ),
    (
        UP + "INSERT INTO up SELECT * FROM up UNION ALL SELECT id, name, ts FROM s",
        "write one INSERT for each side",
        UP + "INSERT INTO up SELECT * FROM up /*+ OPTIONS('scan.bounded.mode' = 'latest-offset') */; INSERT INTO up "
        "SELECT id, name, ts FROM s",
    ),
    # expressions
    ("SELECT CAST(TRUE AS DATE) FROM s", "use another value", "SELECT CAST(name AS DATE) FROM s"),
    (
        "SELECT CAST(id AS TIMESTAMP_LTZ(3)) FROM s",
        "write TO_TIMESTAMP_LTZ(x, 3)",
        "SELECT TO_TIMESTAMP_LTZ(id, 3) FROM s",
    ),
    (
        X + "SELECT CAST(r AS ROW<b INT, c INT>) FROM x",
        "with the same number of members",
        X + "SELECT CAST(r AS ROW<b BIGINT>) FROM x",
    ),
    ("SELECT CHAR_LENGTH(name, 2) FROM s", "pass 1", "SELECT CHAR_LENGTH(name) FROM s"),
    (
        "SELECT CHAR_LENGTH(id) FROM s",
        "CAST it to the type that you mean",
        "SELECT CHAR_LENGTH(CAST(id AS STRING)) FROM s",
    ),
    ("SELECT CARDINALITY(id) FROM s", "pass one of them", X + "SELECT CARDINALITY(a) FROM x"),
    ("SELECT ARRAY_DISTINCT(id) FROM s", "pass an ARRAY", X + "SELECT ARRAY_DISTINCT(a) FROM x"),
    ("SELECT MAP_KEYS(id) FROM s", "pass a MAP", X + "SELECT MAP_KEYS(p) FROM x"),
    (
        X + "SELECT ARRAY_JOIN(a, ',') FROM x",
        "CAST it to ARRAY<STRING>",
        X + "SELECT ARRAY_JOIN(CAST(a AS ARRAY<STRING>), ',') FROM x",
    ),
    (X + "SELECT ROUND(d, CAST(f AS INT)) FROM x", "write it as a number", X + "SELECT ROUND(d, 2) FROM x"),
    (
        X + "SELECT TRUNCATE(f, 2) FROM x",
        "CAST it to a DECIMAL before",
        X + "SELECT TRUNCATE(CAST(f AS DECIMAL(20, 5)), 2) FROM x",
    ),
    ("SELECT JSON_VALUE(name, '$..a') FROM s", "use steps as", "SELECT JSON_VALUE(name, '$.a') FROM s"),
    (
        "SELECT JSON_VALUE(name, '$.a' RETURNING DATE) FROM s",
        "and CAST it",
        "SELECT CAST(JSON_VALUE(name, '$.a' RETURNING STRING) AS DATE) FROM s",
    ),
    ("SELECT EXTRACT(DAY FROM name) FROM s", "CAST it", "SELECT EXTRACT(DAY FROM CAST(name AS DATE)) FROM s"),
    ("SELECT FLOOR(name TO DAY) FROM s", "CAST it", "SELECT FLOOR(CAST(name AS TIMESTAMP(3)) TO DAY) FROM s"),
    ("SELECT DATE_FORMAT(ts, 'yyyy-MM-dd GG') FROM s", "", "SELECT DATE_FORMAT(ts, 'yyyy-MM-dd') FROM s"),
    ("SELECT TO_TIMESTAMP_LTZ(id, 1) FROM s", "write TO_TIMESTAMP_LTZ(x, 3)", "SELECT TO_TIMESTAMP_LTZ(id, 3) FROM s"),
    (
        "SELECT TIMESTAMPADD(DAY, name, ts) FROM s",
        "CAST it to INT",
        "SELECT TIMESTAMPADD(DAY, CAST(name AS INT), ts) FROM s",
    ),
    (
        X + "SELECT TIMESTAMPDIFF(DAY, l, CAST(da AS TIMESTAMP(3))) FROM x",
        "CAST one to the type of the other",
        X + "SELECT TIMESTAMPDIFF(DAY, CAST(l AS TIMESTAMP(3)), CAST(da AS TIMESTAMP(3))) FROM x",
    ),
    ("SELECT DATE '2024-13-01' FROM s", "write it as", "SELECT DATE '2024-12-01' FROM s"),
    (
        "SELECT id FROM s WHERE ts = id",
        "CAST one of them to the other's type",
        "SELECT id FROM s WHERE CAST(ts AS STRING) = name",
    ),
    ("SELECT ts - ts FROM s", "use TIMESTAMPDIFF", "SELECT TIMESTAMPDIFF(SECOND, ts, ts) FROM s"),
    ("SELECT id[1] FROM s", "use it on an ARRAY or a MAP", X + "SELECT a[1] FROM x"),
    (X + "SELECT a[0] FROM x", "count from 1", X + "SELECT a[1] FROM x"),
    (X + "SELECT a['1'] FROM x", "CAST it to INT", X + "SELECT a[CAST('1' AS INT)] FROM x"),
    ("SELECT FOO(id) FROM s", "use another function", "SELECT ABS(id) FROM s"),
    ("SELECT name.a FROM s", "use a column of type ROW", X + "SELECT r.b FROM x"),
    (X + "SELECT r.c FROM x", "use one of b", X + "SELECT r.b FROM x"),
    (
        "SELECT 1234567890123456789012345678901234567890 FROM s",
        "at most 38 digits",
        "SELECT 12345678901234567890 FROM s",
    ),
    ("SELECT ts + INTERVAL 'x' DAY FROM s", "write INTERVAL '5' DAY", "SELECT ts + INTERVAL '5' DAY FROM s"),
    ("SELECT NOT id FROM s", "", "SELECT NOT id > 0 FROM s"),
    (
        "SELECT id FROM s WHERE name LIKE 'a' ESCAPE 'ab'",
        "write ESCAPE '!'",
        "SELECT id FROM s WHERE name LIKE 'a' ESCAPE '!'",
    ),
    ("SELECT ARRAY[] FROM s", "CAST a NULL to the type instead", "SELECT CAST(NULL AS ARRAY<INT>) FROM s"),
    (
        X + "SELECT f FROM x WHERE l = CAST(da AS TIMESTAMP(3))",
        "CAST one of them",
        X + "SELECT f FROM x WHERE CAST(l AS TIMESTAMP(3)) = CAST(da AS TIMESTAMP(3))",
    ),
    (
        X + "SELECT da + INTERVAL '5' HOUR FROM x",
        "CAST it to TIMESTAMP(3) first",
        X + "SELECT CAST(da AS TIMESTAMP(3)) + INTERVAL '5' HOUR FROM x",
    ),
    (
        "SELECT id FROM s WHERE name SIMILAR TO 'a[0-9]'",
        "use REGEXP(text, 'regular expression')",
        "SELECT id FROM s WHERE REGEXP(name, '^a[0-9]$')",
    ),
    (
        "SELECT COALESCE(id, ts) FROM s",
        "CAST them to one type",
        "SELECT COALESCE(CAST(id AS STRING), CAST(ts AS STRING)) FROM s",
    ),
    ("SELECT ROW(NULL) FROM s", "write CAST(NULL AS …)", "SELECT ROW(CAST(NULL AS INT)) FROM s"),
    ("SELECT id || name FROM s", "write CAST(… AS STRING)", "SELECT CAST(id AS STRING) || name FROM s"),
    ("SELECT ts AT TIME ZONE 'UTC' FROM s", "CAST to TIMESTAMP_LTZ", "SELECT CAST(ts AS TIMESTAMP_LTZ(3)) FROM s"),
    ("SELECT ? FROM s", "write the value", "SELECT 1 FROM s"),
    ("SELECT MAP['a', 1, 'b'] FROM s", "write MAP['a', 1, 'b', 2]", "SELECT MAP['a', 1, 'b', 2] FROM s"),
    ("SELECT ts + INTERVAL 5 DAY FROM s", "write INTERVAL '5' SECOND", "SELECT ts + INTERVAL '5' SECOND FROM s"),
    ("SELECT ts + INTERVAL '5' DAYZ FROM s", "use one of", "SELECT ts + INTERVAL '5' DAY FROM s"),
    # more of expressions and of the grammar
    ("SELECT STR_TO_MAP(name, ',') FROM s", "pass both delimiters", "SELECT STR_TO_MAP(name, ',', '=') FROM s"),
    ("SELECT HEX(ts) FROM s", "CAST it", "SELECT HEX(CAST(ts AS STRING)) FROM s"),
    ("SELECT BIN(name) FROM s", "CAST it", "SELECT BIN(CAST(name AS BIGINT)) FROM s"),
    ("SELECT FLOOR(ts TO CENTURY) FROM s", "use one of", "SELECT FLOOR(ts TO YEAR) FROM s"),
    (
        "SELECT DATE_FORMAT(id, 'yyyy') FROM s",
        "CAST it to TIMESTAMP(3)",
        "SELECT DATE_FORMAT(CAST(name AS TIMESTAMP(3)), 'yyyy') FROM s",
    ),
    ("SELECT TIMESTAMPADD(DAY, 1, id) FROM s", "CAST it", "SELECT TIMESTAMPADD(DAY, 1, CAST(name AS DATE)) FROM s"),
    (
        "SELECT TIMESTAMPDIFF(DAY, id, ts) FROM s",
        "CAST it",
        "SELECT TIMESTAMPDIFF(DAY, CAST(name AS TIMESTAMP(3)), ts) FROM s",
    ),
    (X + "SELECT f FROM x WHERE p > p", "compare its members", X + "SELECT f FROM x WHERE p['a'] > p['b']"),
    (
        "SELECT id FROM s WHERE name LIKE 'a' ESCAPE ''''",
        "write ESCAPE '!'",
        "SELECT id FROM s WHERE name LIKE 'a' ESCAPE '!'",
    ),
    ("SELECT ts + INTERVAL 'x' WEEK FROM s", "write INTERVAL '2' WEEK", "SELECT ts + INTERVAL '2' WEEK FROM s"),
    (
        "SELECT id FROM s WHERE INTERVAL '1' MONTH > INTERVAL '30' DAY",
        "or both in days to seconds",
        "SELECT id FROM s WHERE INTERVAL '31' DAY > INTERVAL '30' DAY",
    ),
    ("SELECT SPLIT(name) FROM s", "pass", "SELECT SPLIT(name, ',') FROM s"),
    (X + "SELECT ARRAY_SORT(a, f > 1) FROM x", "write TRUE or FALSE", X + "SELECT ARRAY_SORT(a, TRUE) FROM x"),
    (X + "SELECT TRUNCATE(d, CAST(f AS INT)) FROM x", "write it as a number", X + "SELECT TRUNCATE(d, 2) FROM x"),
    (
        X + "SELECT TRY_CAST(a AS ARRAY<BIGINT>) FROM x",
        "cast its members one by one",
        X + "SELECT ARRAY[TRY_CAST(a[1] AS BIGINT)] FROM x",
    ),
    ("SELECT id FROM s WHERE id IS 5", "correct the SQL at this position", "SELECT id FROM s WHERE id = 5"),
    ("SELECT CASE id END FROM s", "", "SELECT CASE id WHEN 1 THEN 'a' END FROM s"),
    (
        "SELECT ts + INTERVAL '1' SECOND TO MINUTE FROM s",
        "write INTERVAL '90' SECOND",
        "SELECT ts + INTERVAL '90' SECOND FROM s",
    ),
    ("SELECT id FROM s JOIN m", "", "SELECT s.id FROM s JOIN m ON s.id = m.id"),
    (
        f"SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE m, INTERVAL '1' MINUTE)) {BY}",
        "write TABLE t, DESCRIPTOR(ts), …",
        f"SELECT COUNT(*) FROM {W} {BY}",
    ),
    (f"SELECT COUNT(*) FROM TABLE(TUMBLE(TABLE m, DESCRIPTOR(ts))) {BY}", "", f"SELECT COUNT(*) FROM {W} {BY}"),
    (
        "SELECT COUNT(*) FROM TABLE(TUMBLE(DATA => TABLE m, TIMECOL => DESCRIPTOR(ts), SIZ => INTERVAL '1' "
        f"MINUTE)) {BY}",
        "",
        "SELECT COUNT(*) FROM TABLE(TUMBLE(DATA => TABLE m, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' "
        f"MINUTE)) {BY}",
    ),
    (
        BATCH + "SELECT COUNT(*) FROM s GROUP BY ROLLUP (CUBE (id, name))",
        "write the sets out",
        BATCH + "SELECT COUNT(*) FROM s GROUP BY GROUPING SETS ((id, name), (id), (name), ())",
    ),
    (
        "SELECT id FROM s WHERE id = (SELECT id FROM m",
        "",
        BATCH + "SELECT id FROM s WHERE id = (SELECT MAX(id) FROM m)",
    ),
    (
        "INSERT INTO sink PARTITION (name = UPPER(5)) SELECT id FROM s",
        "CAST",
        "INSERT INTO sink PARTITION (name = UPPER(CAST(5 AS STRING))) SELECT id FROM s",
    ),
    ("SELECT JSON_ARRAY(id ABSENT ON NULL) FROM s", "", "SELECT id FROM s"),
    (
        "SELECT LISTAGG(name ORDER BY id) FROM s",
        "changes the order of the values",
        BATCH + "SELECT LISTAGG(name) FROM s",
    ),
    (
        "SELECT id FROM s QUALIFY ROW_NUMBER() OVER (ORDER BY id) = 1",
        "after WHERE of a query around this one",
        BATCH + "SELECT id FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS n FROM s) WHERE n = 1",
    ),
]
CASES = [Sql("sql-query", *texts) for texts in QUERIES]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.wrong[-60:])
def test_the_advice_for_a_query_works(case: Sql) -> None:
    check_advice(case)
