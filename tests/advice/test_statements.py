"""What problems of SQL statements advise."""

from __future__ import annotations

import pytest

from tests.advice.cases import Sql, check_advice

BATCH = "SET 'execution.runtime-mode' = 'batch'; "
WINDOW = "FROM TABLE(TUMBLE(TABLE {}, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end"


def read_as_batch(code: str, query: str, advice: str = "'execution.runtime-mode' = 'batch'") -> Sql:
    return Sql(code, f"INSERT INTO sink {query}", advice, f"{BATCH}INSERT INTO sink {query}")


KAFKA = "'connector' = 'kafka', 'topic' = 't', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'"
READ = "; INSERT INTO sink SELECT 1, 'x' FROM d"


def ddl(columns: str, options: str = KAFKA, rest: str = "") -> str:
    return f"CREATE TABLE d ({columns}) {rest} WITH ({options})"


def insert(query: str) -> str:
    return f"INSERT INTO sink {query}"


def like(own: str, clauses: str) -> str:
    return f"CREATE TABLE d ({own}) WITH ('topic' = 'd') LIKE s ({clauses}){READ}"


def read(columns: str, rest: str = "") -> str:
    return ddl(columns, rest=rest) + READ


def upsert(name: str, columns: str, key: str, options: str = "") -> str:
    return (
        f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', "
        f"'topic' = '{name}', 'key.format' = 'json', 'value.format' = 'json'{options}); "
    )


CHANGES = (
    "CREATE TABLE c (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'kafka', 'topic' = 'c', "
    "'format' = 'debezium-json', 'scan.startup.mode' = 'earliest-offset'{}); "
)
UP = (
    "CREATE TABLE up (id INT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'upsert-kafka', "
    "'topic' = 'up', "
    "'key.format' = 'json', 'value.format' = 'json'{}); "
)
Q = UP.format("").replace("up ", "q ").replace("'up'", "'q'")
GEN = "CREATE TABLE g (id INT, name STRING) WITH ('connector' = 'datagen'{}); "
HOLO = "CREATE CATALOG h WITH ('type' = 'hologres', 'endpoint' = 'h:80', 'username' = 'u', 'password' = '${env:P}'); "
LAKE = "CREATE CATALOG lake WITH ('type' = 'delta', 'path' = '/lake'{}); "
HUB = "CREATE CATALOG hub WITH ('type' = 'kafka', 'properties.bootstrap.servers' = 'hub:9092'{}); "


def lake(copy: str) -> str:
    return LAKE.format("") + copy


def hub(statement: str, options: str = "") -> str:
    return HUB.format(options) + statement


UP2 = upsert("up", "id INT", "id")
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
    # declarations
    Sql(
        "primary-key-twice",
        ddl(
            "id INT PRIMARY KEY NOT ENFORCED, n INT, PRIMARY KEY (id) NOT ENFORCED",
            KAFKA.replace("'json'", "'debezium-json'"),
        ),
        "keep one",
        ddl("id INT PRIMARY KEY NOT ENFORCED, n INT", KAFKA.replace("'json'", "'debezium-json'")),
    ),
    Sql(
        "primary-key-enforced",
        ddl("id INT, PRIMARY KEY (id)", KAFKA.replace("'json'", "'debezium-json'")),
        "write NOT ENFORCED after it",
        ddl("id INT, PRIMARY KEY (id) NOT ENFORCED", KAFKA.replace("'json'", "'debezium-json'")),
    ),
    Sql("type-syntax", ddl("id INTT"), "", ddl("id INT")),
    Sql("option-repeated", ddl("id INT", KAFKA + ", 'topic' = 'u'"), "remove one", ddl("id INT")),
    Sql(
        "partition-column",
        read("id INT", rest="PARTITIONED BY (idd)"),
        "name one of 'id', or remove the clause",
        read("id INT"),
    ),
    Sql(
        "partition-column",
        read("id INT", rest="PARTITIONED BY (idd)"),
        "name one of 'id', or remove the clause",
        read("id INT", rest="PARTITIONED BY (id)"),
    ),
    Sql(
        "watermark-expression",
        read("ts TIMESTAMP(3), WATERMARK FOR ts AS ts - 5"),
        "",
        read("ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND"),
    ),
    Sql(
        "watermark-expression",
        read("ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '1' MONTH"),
        "write it in days",
        read("ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '30' DAY"),
    ),
    Sql(
        "watermark-expression",
        read("a STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS TO_TIMESTAMP(a)"),
        "compute anything else in a computed column",
        read("a STRING, ts AS TO_TIMESTAMP(a), WATERMARK FOR ts AS ts"),
    ),
    Sql(
        "watermark-twice",
        ddl("a TIMESTAMP(3), b TIMESTAMP(3), WATERMARK FOR a AS a, WATERMARK FOR b AS b") + READ,
        "keep one",
        ddl("a TIMESTAMP(3), b TIMESTAMP(3), WATERMARK FOR a AS a") + READ,
    ),
    Sql(
        "sql-not-yet",
        "CREATE TABLE d WITH (" + KAFKA + ") AS SELECT id FROM s",
        "INSERT INTO … SELECT",
        ddl("id INT") + "; INSERT INTO d SELECT id FROM s",
    ),
    Sql(
        "sql-not-yet",
        "CREATE OR REPLACE TABLE d WITH (" + KAFKA + ") AS SELECT id FROM s",
        "INSERT INTO … SELECT",
        ddl("id INT") + "; INSERT INTO d SELECT id FROM s",
    ),
    Sql(
        "table-twice",
        ddl("id INT") + ";" + ddl("n INT"),
        "drop that one before",
        ddl("id INT") + "; DROP TABLE d; " + ddl("n INT"),
    ),
    Sql(
        "table-twice",
        "CREATE VIEW d AS SELECT id FROM s; " + ddl("n INT"),
        "give the table another name",
        "CREATE VIEW e AS SELECT id FROM s; " + ddl("n INT"),
    ),
    Sql(
        "table-case",
        ddl("id INT") + ";" + ddl("n INT").replace("TABLE d", "TABLE D"),
        "another name",
        ddl("id INT") + ";" + ddl("n INT").replace("TABLE d", "TABLE e"),
    ),
    Sql(
        "connector-later",
        ddl("id INT", "'connector' = 'dynamic-kafka', 'topic' = 't', 'format' = 'json'")
        + "; INSERT INTO sink SELECT id, 'x' FROM d",
        "'kafka'",
        ddl("id INT") + "; INSERT INTO sink SELECT id, 'x' FROM d",
    ),
    Sql(
        "no-columns",
        "CREATE TABLE d WITH (" + KAFKA + "); INSERT INTO sink SELECT 1, 'x' FROM d",
        "",
        ddl("id INT") + READ,
    ),
    # like
    Sql("like-table", f"CREATE TABLE d LIKE ss{READ}", "name one of", f"CREATE TABLE d LIKE s{READ}"),
    Sql(
        "like-twice",
        like("x INT", "INCLUDING OPTIONS EXCLUDING OPTIONS"),
        "keep one",
        like("x INT", "OVERWRITING OPTIONS"),
    ),
    Sql(
        "like-overwriting",
        like("x INT", "OVERWRITING OPTIONS OVERWRITING CONSTRAINTS"),
        "INCLUDING or EXCLUDING CONSTRAINTS",
        like("x INT", "OVERWRITING OPTIONS EXCLUDING CONSTRAINTS"),
    ),
    Sql(
        "like-column",
        like("id STRING", "OVERWRITING OPTIONS"),
        "remove it",
        f"CREATE TABLE d WITH ('topic' = 'd') LIKE s (OVERWRITING OPTIONS){READ}",
    ),
    Sql(
        "like-column",
        like("id STRING", "OVERWRITING OPTIONS"),
        "give it another name",
        like("x STRING", "OVERWRITING OPTIONS"),
    ),
    Sql("like-both", like("x INT", "INCLUDING OPTIONS"), "OVERWRITING OPTIONS", like("x INT", "OVERWRITING OPTIONS")),
    Sql(
        "like-both",
        f"CREATE TABLE d (WATERMARK FOR ts AS ts) LIKE m (INCLUDING WATERMARKS){READ}",
        "OVERWRITING WATERMARKS",
        f"CREATE TABLE d (WATERMARK FOR ts AS ts) LIKE m (OVERWRITING WATERMARKS){READ}",
    ),
    Sql(
        "like-both",
        f"CREATE TABLE d (PRIMARY KEY (id) NOT ENFORCED) LIKE upserted (INCLUDING CONSTRAINTS){READ}",
        "EXCLUDING CONSTRAINTS",
        f"CREATE TABLE d (PRIMARY KEY (id) NOT ENFORCED) LIKE upserted (EXCLUDING CONSTRAINTS){READ}",
    ),
    # views
    Sql(
        "table-unknown",
        "CREATE VIEW v AS SELECT id, name FROM s; DROP TABLE s; INSERT INTO sink SELECT id, name FROM v",
        "create it again from tables that exist",
        "CREATE VIEW v AS SELECT id, name FROM s; DROP TABLE s; DROP VIEW v; CREATE VIEW v AS SELECT id, name FROM m; "
        "INSERT INTO sink SELECT id, name FROM v",
    ),
    Sql(
        "table-unknown",
        "CREATE VIEW v AS SELECT id, name FROM s; DROP TABLE s; INSERT INTO sink SELECT id, name FROM v",
        "do not drop what it reads",
        "CREATE VIEW v AS SELECT id, name FROM s; INSERT INTO sink SELECT id, name FROM v",
    ),
    Sql("view-unknown", "DROP VIEW v", "DROP VIEW IF EXISTS", "DROP VIEW IF EXISTS v"),
    Sql(
        "view-twice",
        "CREATE VIEW s AS SELECT id FROM m",
        "give the view another name",
        "CREATE VIEW v AS SELECT id FROM m",
    ),
    Sql(
        "view-twice",
        "CREATE VIEW v AS SELECT id FROM m; CREATE VIEW v AS SELECT id FROM s",
        "drop the other one first",
        "CREATE VIEW v AS SELECT id FROM m; DROP VIEW v; CREATE VIEW v AS SELECT id FROM s",
    ),
    Sql(
        "view-columns",
        "CREATE VIEW v (a) AS SELECT id, name FROM m",
        "write 2 names, or none",
        "CREATE VIEW v (a, b) AS SELECT id, name FROM m",
    ),
    Sql(
        "hint-view",
        "CREATE VIEW v AS SELECT id, name FROM s; INSERT INTO sink SELECT * FROM v /*+ OPTIONS('scan.startup.mode' "
        "= 'latest-offset') */",
        "write the hint after the tables in its query",
        "CREATE VIEW v AS SELECT id, name FROM s /*+ OPTIONS('scan.startup.mode' = 'latest-offset') */; INSERT INTO "
        "sink SELECT * FROM v",
    ),
    Sql(
        "hint-format",
        "INSERT INTO sink SELECT id, name FROM s /*+ OPTIONS('format' = 'debezium-json') */",
        "declare another table of the same topic",
        CHANGES.format("").replace("'c'", "'s'")
        + "CREATE TABLE p (id INT, name STRING) WITH ('connector' = 'print'); INSERT INTO p SELECT id, name FROM c",
    ),
    Sql("sql-explain", "EXPLAIN SELECT id FROM s", "remove it", ""),
    # inserts
    Sql(
        "insert-column",
        "INSERT INTO sink (id, nam) SELECT id, name FROM s",
        "name",
        "INSERT INTO sink (id, name) SELECT id, name FROM s",
    ),
    Sql(
        "insert-column",
        "INSERT INTO sink (id, id) SELECT id, id FROM s",
        "name it once, and select one value",
        "INSERT INTO sink (id) SELECT id FROM s",
    ),
    Sql(
        "insert-type",
        "INSERT INTO sink SELECT id, ts FROM s",
        "CAST(… AS STRING)",
        "INSERT INTO sink SELECT id, CAST(ts AS STRING) FROM s",
    ),
    Sql(
        "insert-type",
        "INSERT INTO sink PARTITION (name = 5) SELECT id FROM s",
        "CAST(… AS STRING)",
        "INSERT INTO sink PARTITION (name = CAST(5 AS STRING)) SELECT id FROM s",
    ),
    Sql(
        "insert-null",
        ddl("id INT, n INT NOT NULL") + "; INSERT INTO d (id) SELECT id FROM s",
        "",
        ddl("id INT, n INT NOT NULL") + "; INSERT INTO d (id, n) SELECT id, 0 FROM s",
    ),
    Sql(
        "insert-overwrite",
        "INSERT OVERWRITE sink SELECT id, name FROM s",
        "INSERT INTO",
        "INSERT INTO sink SELECT id, name FROM s",
    ),
    Sql(
        "insert-sink",
        GEN.format("") + "INSERT INTO g SELECT id, name FROM s",
        "'print'",
        "INSERT INTO sink SELECT id, name FROM s",
    ),
    Sql(
        "select-source",
        "INSERT INTO sink SELECT id, name FROM sink",
        "read a table of 'kafka'",
        "INSERT INTO sink SELECT id, name FROM s",
    ),
    Sql(
        "metadata-sink",
        "CREATE TABLE p (id INT, `offset` BIGINT METADATA) WITH ('connector' = 'print'); INSERT INTO p SELECT id, 1 "
        "FROM s",
        "declare it VIRTUAL",
        "CREATE TABLE p (id INT, `offset` BIGINT METADATA VIRTUAL) WITH ('connector' = 'print'); INSERT INTO p "
        "SELECT id FROM s",
    ),
    Sql(
        "metadata-sink",
        "CREATE TABLE p (id INT, `offset` BIGINT METADATA) WITH ('connector' = 'print'); INSERT INTO p SELECT id, 1 "
        "FROM s",
        "declare it without METADATA",
        "CREATE TABLE p (id INT, `offset` BIGINT) WITH ('connector' = 'print'); INSERT INTO p SELECT id, 1 FROM s",
    ),
    Sql(
        "topic-loop",
        "INSERT INTO s SELECT * FROM s",
        "write to another topic",
        ddl("id INT, name STRING, ts TIMESTAMP(3)") + "; INSERT INTO d SELECT * FROM s",
    ),
    Sql(
        "topic-loop",
        "INSERT INTO s SELECT * FROM s",
        "'scan.bounded.mode'",
        "INSERT INTO s SELECT * FROM s /*+ OPTIONS('scan.bounded.mode' = 'latest-offset') */",
    ),
    Sql(
        "batch-unbounded",
        BATCH + GEN.format("") + "INSERT INTO sink SELECT * FROM g",
        "set 'number-of-rows'",
        BATCH + GEN.format(", 'number-of-rows' = '5'") + "INSERT INTO sink SELECT * FROM g",
    ),
    Sql(
        "batch-unbounded",
        BATCH + GEN.format("") + "INSERT INTO sink SELECT * FROM g",
        "run it as a stream",
        GEN.format("") + "INSERT INTO sink SELECT * FROM g",
    ),
    # datagen
    Sql("datagen-field", GEN.format(", 'fields.idd.kind' = 'random'"), "", GEN.format(", 'fields.id.kind' = 'random'")),
    Sql(
        "datagen-field",
        GEN.format(", 'fields.id.kind' = 'sequence'"),
        "set 'fields.id.start' and 'fields.id.end'",
        GEN.format(", 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '9'"),
    ),
    Sql(
        "datagen-field",
        GEN.format(", 'fields.id.min' = '99999999999'"),
        "another number",
        GEN.format(", 'fields.id.min' = '9'"),
    ),
    Sql(
        "datagen-field",
        GEN.format(", 'fields.id.kind' = 'sequence', 'fields.id.start' = '9', 'fields.id.end' = '1'"),
        "set it to 9 or more",
        GEN.format(", 'fields.id.kind' = 'sequence', 'fields.id.start' = '9', 'fields.id.end' = '10'"),
    ),
    Sql(
        "datagen-field",
        "CREATE TABLE g (id INT NOT NULL) WITH ('connector' = 'datagen', 'fields.id.null-rate' = '0.1')",
        "remove it",
        "CREATE TABLE g (id INT NOT NULL) WITH ('connector' = 'datagen')",
    ),
    # changes
    Sql(
        "write-changelog",
        CHANGES.format("") + ddl("id INT, name STRING") + "; INSERT INTO d SELECT * FROM c",
        "'upsert-kafka'",
        CHANGES.format("") + UP.format("") + "INSERT INTO up SELECT * FROM c",
    ),
    Sql(
        "write-changelog",
        CHANGES.format("") + ddl("id INT, name STRING") + "; INSERT INTO d SELECT * FROM c",
        "debezium-json",
        CHANGES.format("")
        + ddl("id INT, name STRING", KAFKA.replace("'json'", "'debezium-json'"))
        + "; INSERT INTO d SELECT * FROM c",
    ),
    Sql(
        "cdc-duplicate",
        CHANGES.format("") + UP.format("") + "INSERT INTO upserted SELECT COUNT(*), name FROM c GROUP BY name",
        "'cdc-events-duplicate' = 'true'",
        CHANGES.format(", 'cdc-events-duplicate' = 'true'")
        + upsert("n", "n BIGINT, name STRING", "name")
        + "INSERT INTO n SELECT COUNT(*), name FROM c GROUP BY name",
    ),
    Sql(
        "group-images",
        UP.format(", 'scan.changelog.mode' = 'upsert'")
        + upsert("n", "n BIGINT, name STRING", "name")
        + "INSERT INTO n SELECT COUNT(*), name FROM up GROUP BY name",
        "'scan.changelog.mode' = 'full'",
        UP.format(", 'scan.changelog.mode' = 'full'")
        + upsert("n", "n BIGINT, name STRING", "name")
        + "INSERT INTO n SELECT COUNT(*), name FROM up GROUP BY name",
    ),
    Sql(
        "unavailable-keep",
        CHANGES.format(", 'debezium-json.unavailable' = 'keep'") + "INSERT INTO sink SELECT id, name FROM c",
        "= 'null'",
        CHANGES.format(", 'debezium-json.unavailable' = 'null'") + "INSERT INTO sink SELECT id, name FROM c",
    ),
    Sql(
        "upsert-filter",
        UP.format(", 'scan.changelog.mode' = 'upsert'") + Q + "INSERT INTO q SELECT id, name FROM up WHERE name = 'a'",
        "or filter by its primary key",
        UP.format(", 'scan.changelog.mode' = 'upsert'") + Q + "INSERT INTO q SELECT id, name FROM up WHERE id = 1",
    ),
    Sql(
        "upsert-filter",
        UP.format(", 'scan.changelog.mode' = 'upsert'") + Q + "INSERT INTO q SELECT id, name FROM up WHERE name = 'a'",
        "'scan.changelog.mode' = 'full'",
        UP.format("") + Q + "INSERT INTO q SELECT id, name FROM up WHERE name = 'a'",
    ),
    Sql(
        "upsert-filter",
        upsert("n", "n BIGINT, name STRING", "name")
        + "INSERT INTO n SELECT n, name FROM (SELECT COUNT(*) AS n, name FROM s GROUP BY name) WHERE n < 3",
        "write it as HAVING",
        upsert("n", "n BIGINT, name STRING", "name")
        + "INSERT INTO n SELECT COUNT(*), name FROM s GROUP BY name HAVING COUNT(*) < 3",
    ),
    Sql(
        "upsert-filter",
        upsert("n", "n BIGINT, name STRING", "name")
        + "INSERT INTO n SELECT n, name FROM (SELECT COUNT(*) AS n, name FROM s GROUP BY name) WHERE n < 3",
        "filter where the upsert table is read",
        upsert("n", "n BIGINT, name STRING", "name")
        + "INSERT INTO n SELECT COUNT(*), name FROM s GROUP BY name; INSERT INTO sink SELECT n, name FROM n WHERE n "
        "< 3",
    ),
    Sql(
        "upsert-key-query",
        CHANGES.format("")
        + "CREATE TABLE n (id INT, name STRING, PRIMARY KEY (name) NOT ENFORCED) WITH ('connector' = "
        "'upsert-kafka', 'topic' = 'n', 'key.format' = 'json', 'value.format' = 'json'); INSERT INTO n SELECT id, "
        "name FROM c",
        "declare them as PRIMARY KEY",
        CHANGES.format("") + UP.format("") + "INSERT INTO up SELECT id, name FROM c",
    ),
    Sql(
        "upsert-key-query",
        UP.format(", 'scan.changelog.mode' = 'upsert'")
        + Q.replace("KEY (id)", "KEY (id, name)")
        + "INSERT INTO q SELECT id, name FROM up",
        "from the PRIMARY KEY",
        UP.format(", 'scan.changelog.mode' = 'upsert'") + Q + "INSERT INTO q SELECT id, name FROM up",
    ),
    # streams
    Sql(
        "stream-several",
        upsert("n", "n BIGINT, k BIGINT", "n")
        + "INSERT INTO n SELECT n, COUNT(*) FROM (SELECT COUNT(*) AS n, name FROM s GROUP BY name) GROUP BY n",
        "write the inner groups to their own table",
        upsert("n", "n BIGINT, k BIGINT", "n")
        + upsert("i", "n BIGINT, name STRING", "name")
        + "INSERT INTO i SELECT COUNT(*) AS n, name FROM s GROUP BY name; INSERT INTO n SELECT n, COUNT(*) FROM i "
        "GROUP BY n",
    ),
    Sql(
        "stream-several",
        upsert("n", "name STRING, n BIGINT", "name")
        + "INSERT INTO n SELECT s.name, COUNT(*) FROM s JOIN m ON s.id = m.id GROUP BY s.name",
        "write the joined rows to their own table",
        upsert("n", "name STRING, n BIGINT", "name")
        + ddl("name STRING")
        + "; INSERT INTO d SELECT s.name FROM s JOIN m ON s.id = m.id; INSERT INTO n SELECT name, COUNT(*) FROM d "
        "GROUP BY name",
    ),
    Sql(
        "stream-window-time",
        insert(f"SELECT COUNT(*), 'x' {WINDOW.format('w')}").replace(
            "INSERT",
            "CREATE TABLE w (a TIMESTAMP(3), ts TIMESTAMP(3), WATERMARK FOR a AS a) WITH (" + KAFKA + "); INSERT",
        ),
        "write the rows to a table that declares WATERMARK FOR ts",
        insert(f"SELECT COUNT(*), 'x' {WINDOW.format('d')}").replace(
            "INSERT",
            ddl("ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND")
            + "; CREATE TABLE w (a TIMESTAMP(3), ts TIMESTAMP(3), WATERMARK FOR a AS a) WITH ("
            + KAFKA
            + "); INSERT INTO d SELECT ts FROM w; INSERT",
        ),
    ),
    Sql(
        "stream-outer-join-by-interval",
        insert(
            "SELECT a.id, b.name FROM m a LEFT JOIN m b ON a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL "
            "'1' MONTH"
        ),
        "INTERVAL '30' DAY",
        insert(
            "SELECT a.id, b.name FROM m a LEFT JOIN m b ON a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL "
            "'30' DAY"
        ),
    ),
    Sql(
        "stream-outer-join-of-queries",
        insert(
            "SELECT a.id, b.name FROM (SELECT id, ts FROM m) a LEFT JOIN (SELECT id, name, ts FROM m) b ON a.id = "
            "b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '4' HOUR"
        ),
        "join the tables themselves",
        insert(
            "SELECT a.id, b.name FROM m a LEFT JOIN m b ON a.id = b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL "
            "'4' HOUR"
        ),
    ),
    Sql(
        "stream-outer-join-of-queries",
        insert(
            "SELECT a.id, b.name FROM (SELECT id, ts FROM m) a LEFT JOIN (SELECT id, name, ts FROM m) b ON a.id = "
            "b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '4' HOUR"
        ),
        "declare the event-time columns as TIMESTAMP_LTZ(3)",
        ddl("id INT, name STRING, ts TIMESTAMP_LTZ(3), WATERMARK FOR ts AS ts")
        + "; "
        + insert(
            "SELECT a.id, b.name FROM (SELECT id, ts FROM d) a LEFT JOIN (SELECT id, name, ts FROM d) b ON a.id = "
            "b.id AND b.ts BETWEEN a.ts AND a.ts + INTERVAL '4' HOUR"
        ),
    ),
    read_as_batch(
        "stream-outer-join-with-a-constant",
        "SELECT v.id, m.name FROM (VALUES (1)) AS v (id) LEFT JOIN m ON v.id = m.id",
    ),
    Sql(
        "connector-later",
        ddl("id INT", "'connector' = 'dynamic-kafka', 'topic' = 't', 'format' = 'json'") + READ,
        "declare a table of the connector 'kafka' for each cluster",
        ddl("id INT", KAFKA + ", 'properties.bootstrap.servers' = 'a:1'")
        + "; "
        + ddl("id INT", KAFKA + ", 'properties.bootstrap.servers' = 'b:1'").replace("TABLE d", "TABLE e")
        + "; INSERT INTO sink SELECT id, 'x' FROM d UNION ALL SELECT id, 'x' FROM e",
    ),
    Sql("catalog-twice", hub("") + HUB.format(""), "another name", hub("") + HUB.format("").replace("hub ", "hub2 ")),
    Sql("catalog-twice", hub("") + HUB.format(""), "drop that one before", hub("DROP CATALOG hub; ") + HUB.format("")),
    Sql("catalog-type", "CREATE CATALOG h WITH ('type' = 'kafk')", "set 'type' = 'kafka'", hub("")),
    Sql("catalog-type", "CREATE CATALOG h WITH ('path' = '/h')", "'delta'", lake("")),
    Sql(
        "catalog-in-use",
        hub("USE CATALOG hub; DROP CATALOG hub"),
        "write USE CATALOG default_catalog before",
        hub("USE CATALOG hub; USE CATALOG default_catalog; DROP CATALOG hub"),
    ),
    Sql("catalog-unknown", "DROP CATALOG hub", "DROP CATALOG IF EXISTS", "DROP CATALOG IF EXISTS hub"),
    Sql("catalog-unknown", "USE CATALOG hub", "CREATE CATALOG before", hub("USE CATALOG hub")),
    Sql(
        "database-unknown",
        hub("USE hub.shop"),
        "'default-database' gives it another name",
        hub("USE hub.shop", ", 'default-database' = 'shop'"),
    ),
    Sql("database-unknown", hub("USE hub.shop"), "use 'kafka'", hub("USE hub.kafka")),
    Sql(
        "database-unknown",
        hub("CREATE TABLE hub.shop.t AS TABLE s"),
        "use 'kafka'",
        hub("CREATE TABLE hub.kafka.t AS TABLE s"),
    ),
    Sql(
        "catalog-sink",
        lake("SELECT * FROM lake.d.t"),
        "CREATE TABLE … AS TABLE",
        lake("CREATE TABLE lake.d.t AS TABLE s"),
    ),
    Sql("catalog-sink", lake("USE CATALOG lake; SHOW TABLES"), "list them with Spark", lake("")),
    Sql(
        "catalog-create",
        hub("CREATE TABLE hub.kafka.d (id INT) WITH (" + KAFKA + ")"),
        "CREATE TEMPORARY TABLE",
        hub("CREATE TEMPORARY TABLE hub.kafka.d (id INT) WITH (" + KAFKA + ")"),
    ),
    Sql(
        "catalog-create",
        hub("CREATE TABLE hub.kafka.d (id INT) WITH (" + KAFKA + ")"),
        "a name without the catalog",
        hub(ddl("id INT")),
    ),
    Sql("catalog-drop", hub("DROP TABLE hub.kafka.d"), "remove the statement", hub("")),
    Sql("catalog-cloud-api", hub("", ", 'aliyun.kafka.instanceId' = 'i'"), "remove it", hub("")),
    Sql(
        "catalog-prefix",
        hub("", ", 'key.fields-prefix' = 'a', 'value.fields-prefix' = 'ab'"),
        "choose prefixes with different first characters",
        hub("", ", 'key.fields-prefix' = 'k_', 'value.fields-prefix' = 'v_'"),
    ),
    Sql(
        "catalog-registry",
        hub("", ", 'schema-registry.properties.basic.auth.user.info' = '${env:X}'"),
        "add 'schema-registry.url'",
        hub("", ", 'schema-registry.properties.basic.auth.user.info' = '${env:X}', 'schema-registry.url' = 'http://r'"),
    ),
    # copies
    Sql(
        "copy-sink",
        "CREATE TABLE d AS TABLE s",
        "write CREATE CATALOG lake",
        lake("CREATE TABLE lake.database.d AS TABLE s"),
    ),
    Sql(
        "copy-connector",
        lake("CREATE TABLE lake.d.s WITH ('connector' = 'jdbc') AS TABLE s"),
        "remove the option",
        lake("CREATE TABLE lake.d.s AS TABLE s"),
    ),
    Sql(
        "copy-name",
        HOLO + "CREATE TABLE h.d.`a.b.c.d` AS TABLE s",
        "another name",
        HOLO + "CREATE TABLE h.d.s AS TABLE s",
    ),
    Sql(
        "copy-column",
        lake("CREATE TABLE lake.d.s (x INT) AS TABLE s"),
        "ADD COLUMN",
        lake("CREATE TABLE lake.d.s AS TABLE s ADD COLUMN (x AS id + 1)"),
    ),
    Sql(
        "copy-column",
        lake("CREATE TABLE lake.d.s (WATERMARK FOR ts AS ts) AS TABLE s"),
        "remove it",
        lake("CREATE TABLE lake.d.s AS TABLE s"),
    ),
    Sql(
        "copy-clause",
        lake("CREATE TEMPORARY TABLE lake.d.s AS TABLE s"),
        "remove it",
        lake("CREATE TABLE lake.d.s AS TABLE s"),
    ),
    Sql(
        "no-effect",
        lake("CREATE TABLE lake.d.s COMMENT 'x' AS TABLE s"),
        "remove it",
        lake("CREATE TABLE lake.d.s AS TABLE s"),
    ),
    Sql(
        "copy-twice",
        lake("CREATE TABLE lake.d.s AS TABLE s; CREATE TABLE lake.d.s AS TABLE m"),
        "fill another table",
        lake("CREATE TABLE lake.d.s AS TABLE s; CREATE TABLE lake.d.m AS TABLE m"),
    ),
    Sql(
        "copy-source",
        lake("CREATE TABLE lake.d.s AS TABLE sink"),
        "copy a table of the connector 'kafka'",
        lake("CREATE TABLE lake.d.s AS TABLE s"),
    ),
    Sql(
        "copy-source",
        upsert("up", "id INT", "id") + lake("CREATE TABLE lake.d.s AS TABLE up"),
        "declare it with the connector 'kafka'",
        ddl("id INT") + ";" + lake("CREATE TABLE lake.d.s AS TABLE d"),
    ),
    Sql(
        "copy-source",
        ddl("id INT", KAFKA.replace("'json'", "'csv'")) + ";" + lake("CREATE TABLE lake.d.s AS TABLE d"),
        "into a table of 'kafka' with the format json, and copy that one",
        ddl("id INT", KAFKA.replace("'json'", "'csv'"))
        + "; CREATE TABLE e (id INT) WITH ("
        + KAFKA.replace("'t'", "'e'")
        + "); INSERT INTO e SELECT id FROM d; "
        + lake("CREATE TABLE lake.d.s AS TABLE e"),
    ),
    Sql(
        "copy-source",
        ddl(
            "id INT, n INT",
            KAFKA + ", 'key.fields' = 'id', 'key.format' = 'csv', 'value.fields-include' = 'EXCEPT_KEY'",
        )
        + ";"
        + lake("CREATE TABLE lake.d.s AS TABLE d"),
        "write INSERT INTO",
        ddl(
            "id INT, n INT",
            KAFKA + ", 'key.fields' = 'id', 'key.format' = 'csv', 'value.fields-include' = 'EXCEPT_KEY'",
        )
        + "; CREATE TABLE e (id INT) WITH ("
        + KAFKA.replace("'t'", "'e'")
        + "); INSERT INTO e SELECT id FROM d; "
        + lake("CREATE TABLE lake.d.s AS TABLE e"),
    ),
    Sql(
        "copy-source",
        lake("CREATE DATABASE lake.d AS DATABASE x"),
        "CREATE TABLE … AS TABLE",
        lake("CREATE TABLE lake.d.s AS TABLE s"),
    ),
    Sql(
        "copy-source",
        LAKE.format("")
        + hub(
            "CREATE DATABASE lake.d AS DATABASE hub.kafka",
            ", 'format' = 'avro-confluent', 'schema-registry.url' = 'http://r'",
        ),
        "INSERT INTO",
        "",
    ),
    Sql(
        "copy-option",
        ddl("id INT", KAFKA + ", 'scan.bounded.mode' = 'latest-offset'")
        + ";"
        + lake("CREATE TABLE lake.d.s AS TABLE d"),
        "remove it: with --once, or in the runtime mode batch",
        BATCH + ddl("id INT") + ";" + lake("CREATE TABLE lake.d.s AS TABLE d"),
    ),
    Sql(
        "copy-option",
        ddl("id INT", KAFKA + ", 'scan.not-null-enforcer' = 'drop'") + ";" + lake("CREATE TABLE lake.d.s AS TABLE d"),
        "remove it",
        ddl("id INT") + ";" + lake("CREATE TABLE lake.d.s AS TABLE d"),
    ),
    Sql(
        "copy-option",
        ddl("id INT", KAFKA + ", 'scan.expect.a' = 'id > 0'") + ";" + lake("CREATE TABLE lake.d.s AS TABLE d"),
        "INSERT INTO",
        ddl("id INT", KAFKA + ", 'scan.expect.a' = 'id > 0'")
        + "; CREATE TABLE e (id INT) WITH ("
        + KAFKA.replace("'t'", "'e'")
        + "); INSERT INTO e SELECT id FROM d; "
        + lake("CREATE TABLE lake.d.s AS TABLE e"),
    ),
    Sql(
        "copy-pattern",
        lake("") + hub("CREATE DATABASE lake.d AS DATABASE hub.kafka INCLUDING TABLE 'a('"),
        "",
        lake("") + hub("CREATE DATABASE lake.d AS DATABASE hub.kafka INCLUDING TABLE 'a.*'"),
    ),
    Sql(
        "topic-loop",
        hub("CREATE TABLE hub.kafka.d AS TABLE s")
        .replace("'hub:9092'", "'broker:9092'")
        .replace("kafka.d ", "kafka.s "),
        "another name",
        hub("CREATE TABLE hub.kafka.d AS TABLE s"),
    ),
    Sql(
        "topic-loop",
        hub("CREATE TABLE hub.kafka.s AS TABLE d").replace(
            "CREATE TABLE",
            ddl("id INT", KAFKA.replace("'t'", "'s'") + ", 'properties.bootstrap.servers' = 'hub:9092'")
            + "; CREATE TABLE",
            1,
        ),
        "copy to another cluster",
        "",
    ),
    Sql(
        "view-mode",
        UP2 + "CREATE VIEW v AS SELECT id FROM s WHERE id IN (SELECT id FROM up); " + BATCH + "SELECT * FROM v",
        "GROUP BY the columns that it selects",
        UP2 + BATCH + "CREATE VIEW v AS SELECT id FROM s WHERE id IN (SELECT id FROM up GROUP BY id); SELECT * FROM v",
    ),
    Sql(
        "view-mode",
        UP2 + "CREATE VIEW v AS SELECT id FROM s WHERE id IN (SELECT id FROM up); " + BATCH + "SELECT * FROM v",
        "GROUP BY the columns that it selects",
        UP2
        + "CREATE VIEW v AS SELECT id FROM s WHERE id IN (SELECT id FROM up GROUP BY id); "
        + BATCH
        + "SELECT * FROM v",
    ),
    Sql(
        "layout",
        ddl("id INT", rest="PARTITIONED BY (id)") + "; INSERT INTO d SELECT id FROM s",
        "remove it",
        ddl("id INT") + "; INSERT INTO d SELECT id FROM s",
    ),
    Sql("computed", read("id INT, a AS idd + 1"), "use one of 'id'", read("id INT, a AS id + 1")),
    Sql("computed", read("id INT, a AS NULL"), "write CAST(NULL AS …)", read("id INT, a AS CAST(NULL AS INT)")),
    Sql(
        "connector",
        "CREATE TABLE d (id INT) WITH ('topic' = 't', 'format' = 'json')" + READ,
        "add 'connector' = 'kafka'",
        read("id INT"),
    ),
    Sql("table-unknown", "DROP TABLE ss", "DROP TABLE IF EXISTS", "DROP TABLE IF EXISTS ss"),
    Sql(
        "cdc-duplicate-key",
        "SET 'table.exec.source.cdc-events-duplicate' = 'true'; "
        + CHANGES.format("").replace(", PRIMARY KEY (id) NOT ENFORCED", "")
        + insert("SELECT id, name FROM c"),
        "add PRIMARY KEY (...) NOT ENFORCED",
        "SET 'table.exec.source.cdc-events-duplicate' = 'true'; "
        + CHANGES.format("")
        + insert("SELECT id, name FROM c"),
    ),
    Sql(
        "cdc-duplicate-key",
        "SET 'table.exec.source.cdc-events-duplicate' = 'true'; "
        + CHANGES.format("").replace(", PRIMARY KEY (id) NOT ENFORCED", "")
        + insert("SELECT id, name FROM c"),
        "or declare 'cdc-events-duplicate' = 'false'",
        "SET 'table.exec.source.cdc-events-duplicate' = 'true'; "
        + CHANGES.format(", 'cdc-events-duplicate' = 'false'").replace(", PRIMARY KEY (id) NOT ENFORCED", "")
        + insert("SELECT id, name FROM c"),
    ),
    # the grammar
    Sql("sql", "CREATE TABLE d (id INT WITH (" + KAFKA + ")", "", ddl("id INT")),
    Sql("sql", ddl("id INT DEFAULT 5"), "remove it, and select a value in the query that writes", ddl("id INT")),
    Sql(
        "sql",
        ddl("r ROW<t TIMESTAMP(3)>, WATERMARK FOR r.t AS r.t"),
        "declare a computed column, as event_time AS r.…",
        ddl("r ROW<t TIMESTAMP(3)>, event_time AS r.t, WATERMARK FOR event_time AS event_time") + READ,
    ),
    Sql("sql", ddl("id INT,"), "remove the comma", ddl("id INT")),
    Sql("sql", ddl("id INT", KAFKA + ","), "remove the comma", ddl("id INT")),
    Sql("sql", ddl("id INT UNIQUE"), "remove it", ddl("id INT")),
    Sql("sql", ddl("id INT, UNIQUE (id)"), "remove it", ddl("id INT")),
    Sql("sql", ddl("id INT") + " WITH ('a' = 'b')", "keep one of them", ddl("id INT")),
    Sql("sql", ddl("id INT", KAFKA.replace(", 'topic'", " 'topic'")), "put a comma between two options", ddl("id INT")),
    Sql("sql", ddl("id INT", "..."), "this looks like a template", ddl("id INT")),
    Sql("sql", ddl("`` INT"), "write one", ddl("id INT")),
    Sql(
        "sql",
        "CREATE TABLE a.b.c.d (id INT) WITH (" + KAFKA + ")",
        "write table, database.table or",
        "CREATE TABLE b.c.d (id INT) WITH (" + KAFKA + ")",
    ),
    Sql("sql", "SELECTT id FROM s", "write a statement that kdsl knows", "SELECT id FROM s"),
    Sql(
        "sql",
        "BEGIN STATEMENT SET; CREATE VIEW v AS SELECT id FROM s; END",
        "put it before the statement set",
        "CREATE VIEW v AS SELECT id FROM s; BEGIN STATEMENT SET; INSERT INTO sink SELECT id, 'x' FROM v; END",
    ),
    Sql("sql", "BEGIN STATEMENT SET; END", "or remove it", ""),
    Sql("sql", "USE a.b.c", "write database or catalog.database", hub("USE hub.kafka")),
    Sql("sql", "INSERT INTO sink SELECT id, 'x FROM s", "", "INSERT INTO sink SELECT id, 'x' FROM s"),
    Sql("sql-statement", "ALTER TABLE s ADD x INT", "change the CREATE statement", ddl("x INT")),
    Sql(
        "sql-statement",
        "MERGE INTO up USING s ON up.id = s.id",
        "into a table of 'upsert-kafka'",
        UP.format("") + "INSERT INTO up SELECT id, name FROM s",
    ),
    Sql(
        "sql-statement",
        "UPDATE up SET name = 'x' WHERE id = 1",
        "INSERT INTO a table of 'upsert-kafka'",
        UP.format("") + "INSERT INTO up VALUES (1, 'x')",
    ),
    Sql(
        "sql-statement",
        "CREATE MATERIALIZED TABLE x AS SELECT id FROM s",
        "INSERT INTO … SELECT to fill it",
        ddl("id INT") + "; INSERT INTO d SELECT id FROM s",
    ),
    Sql("sql-statement", "ADD JAR 'x.jar'", "remove it", ""),
    Sql("sql-statement", "USE MODULES hive", "remove it", ""),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.code}: {case.wrong[:50]}")
def test_the_advice_for_a_statement_works(case: Sql) -> None:
    check_advice(case)
