"""CREATE TABLE to definitions: the same tables as from YAML, by ``kdsl.sql`` and from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kdsl.ddl.load import load_sql, sql
from kdsl.ddl.script_reader import read_script
from kdsl.ddl.statements import Explain, Fragment, Insert, Query, SetOption, StatementSet
from kdsl.ddl.watermark import watermark_delay
from kdsl.declare.definition import TableDef, WatermarkDef
from kdsl.declare.document import read_tables
from kdsl.errors import Problem, ResolveError
from kdsl.flink_sql.syntax.errors import UntranslatableError
from kdsl.options import Spelling
from kdsl.resolve import problems
from kdsl.types import model as t
from kdsl.types.parse import parse_type

ORDERS = """\
CREATE TABLE orders (
  k_id BIGINT NOT NULL COMMENT 'who',
  amount DECIMAL(10, 2),
  tags ROW<a INT, b ARRAY<STRING>>,
  placed_at TIMESTAMP_LTZ(3) METADATA FROM 'timestamp',
  `offset` BIGINT METADATA VIRTUAL,
  WATERMARK FOR placed_at AS placed_at - INTERVAL '5' SECOND
) COMMENT 'Orders as the shop writes them.' WITH (
  'connector' = 'kafka',
  'topic' = 'orders;more-orders',
  'properties.bootstrap.servers' = 'localhost:9092',
  'properties.enable.idempotence' = 'false',
  'key.format' = 'csv',
  'key.csv.field-delimiter' = '|',
  'key.fields' = 'k_id',
  'key.fields-prefix' = 'k_',
  'value.format' = 'json',
  'value.json.ignore-parse-errors' = 'true',
  'value.fields-include' = 'EXCEPT_KEY',
  'scan.max-records-per-trigger' = '1000'
)"""
DOCUMENT = """\
name: orders
comment: Orders as the shop writes them.
columns:
  - {name: k_id, type: BIGINT NOT NULL, comment: who}
  - {name: amount, type: "DECIMAL(10, 2)"}
  - {name: tags, type: "ROW<a INT, b ARRAY<STRING>>"}
  - {name: placed_at, type: TIMESTAMP_LTZ(3), metadata: timestamp}
  - {name: offset, type: BIGINT, metadata: true, virtual: true}
watermark: {column: placed_at, delay: 5 seconds}
options:
  connector: kafka
  topic: orders;more-orders
  properties.bootstrap.servers: localhost:9092
  properties.enable.idempotence: false
  key.format: csv
  key.csv.field-delimiter: "|"
  key.fields: k_id
  key.fields-prefix: k_
  value.format: json
  value.json.ignore-parse-errors: true
  value.fields-include: EXCEPT_KEY
  scan.max-records-per-trigger: 1000
"""
WITH = "WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json')"


def define(columns: str, rest: str = WITH) -> TableDef:
    return sql(f"CREATE TABLE t ({columns}) {rest}").definition


def errors(table: TableDef, direction: str = "read") -> list[Problem]:
    return [p for p in problems(table, direction) if p.severity == "error"]  # type: ignore[arg-type]


def error_of(call: Callable[[], object]) -> str:
    """What a refusal says."""
    with pytest.raises(ResolveError) as caught:
        call()
    return str(caught.value)


class TestDefinitions:
    def test_ddl_and_yaml_declare_equal_tables(self) -> None:
        (from_yaml,) = read_tables(DOCUMENT)

        assert sql(ORDERS).definition == from_yaml
        assert sql(ORDERS).definition.spelling is Spelling.DDL

    def test_a_table_is_of_use_at_once(self) -> None:
        assert "orders" in sql(ORDERS).explain()
        assert sql(ORDERS).cluster().bootstrap_servers == "localhost:9092"

    @pytest.mark.parametrize(
        "spelling",
        ["BOOLEAN", "TINYINT", "SMALLINT", "INT", "INTEGER", "BIGINT", "FLOAT", "DOUBLE", "DOUBLE PRECISION",
         "DECIMAL", "DECIMAL(10)", "DEC(10, 2)", "NUMERIC(5, 1)", "CHAR", "CHAR(3)", "VARCHAR(3)", "STRING",
         "BINARY(2)", "VARBINARY", "BYTES", "DATE", "TIME", "TIME(3)", "TIMESTAMP", "TIMESTAMP(3) WITHOUT TIME ZONE",
         "TIMESTAMP WITH LOCAL TIME ZONE", "TIMESTAMP(6) WITH LOCAL TIME ZONE", "TIMESTAMP_LTZ(3)",
         "ARRAY<INT NOT NULL>", "INT ARRAY", "MAP<STRING, ARRAY<INT>>", "MULTISET<STRING>",
         "ROW<a INT, `b c` ROW<d DATE>>", "ROW(a INT 'x')", "INT NULL", "string", "row<a int not null>"],
    )  # fmt: skip
    @pytest.mark.parametrize("more", ["", " NOT NULL"])
    def test_every_type(self, spelling: str, more: str) -> None:
        whole = spelling.removesuffix(" NULL") + more
        table = define(f"a INT, c {whole} COMMENT 'x', m {whole} METADATA FROM 'k' VIRTUAL, z INT")

        assert [c.name for c in table.columns] == ["a", "c", "m", "z"]
        assert [c.type for c in table.columns[1:3]] == [parse_type(whole)] * 2
        assert (table.columns[1].comment, table.columns[2].shows) == ("x", "k")

    def test_names_in_back_quotes_and_keywords_as_names(self) -> None:
        table = define("`a ``b``` INT, `offset` BIGINT, timestamp STRING, `select` INT, value STRING, comment STRING")

        assert [c.name for c in table.columns] == ["a `b`", "offset", "timestamp", "select", "value", "comment"]

    def test_doubled_quotes_and_unicode(self) -> None:
        table = define(
            "a STRING COMMENT 'it''s'", "WITH ('connector' = 'kafka', 'topic' = U&'\\006f\\006b', 'format' = 'json')"
        )

        assert (table.columns[0].comment, table.options.topic) == ("it's", ("ok",))

    def test_columns_of_a_primary_key_are_never_null(self) -> None:
        table = define("id INT, name STRING, CONSTRAINT k PRIMARY KEY (id) NOT ENFORCED")

        assert table.primary_key == ("id",)
        assert [c.type.nullable for c in table.columns] == [False, True]
        assert define("id INT PRIMARY KEY NOT ENFORCED, name STRING") == table

    def test_a_computed_column_is_spark_sql_with_its_type(self) -> None:
        table = define("a INT, b DECIMAL(10, 2), c AS CAST(b AS STRING) COMMENT 'text', d AS a + 1")

        assert [str(c.type) for c in table.columns[2:]] == ["STRING", "INT"]
        assert [c.role for c in table.columns] == ["physical", "physical", "computed", "computed"]
        assert table.columns[2].comment == "text"
        assert errors(table) == []

    def test_an_expression_missing_in_spark_is_refused_by_name_at_its_location(self) -> None:
        table = sql("CREATE TABLE t (\n  a STRING,\n  b AS UPPER(NO_SUCH(a))\n) " + WITH).definition

        (problem,) = errors(table)
        assert "NO_SUCH" in problem.message
        assert (problem.where.line, problem.where.position) == (3, 14)
        assert (problem.where.excerpt or "").splitlines() == ["  b AS UPPER(NO_SUCH(a))", "             ^^^^^^^"]

    def test_null_has_no_type(self) -> None:
        (problem,) = errors(define("a INT, b AS NULL"))

        assert problem.code == "computed"

    def test_an_unknown_column_of_the_watermark_is_reported_at_the_watermark(self) -> None:
        table = sql("CREATE TABLE t (\n  a TIMESTAMP(3),\n  WATERMARK FOR b AS b\n) " + WITH).definition

        (problem,) = errors(table)
        assert (problem.code, problem.where.line, problem.where.position) == ("watermark-column", 3, 3)

    @pytest.mark.parametrize("clause", ["PARTITIONED BY (a)", "DISTRIBUTED BY HASH(a) INTO 4 BUCKETS"])
    def test_a_layout_only_stops_a_sink(self, clause: str) -> None:
        table = sql(f"CREATE TABLE t (a INT)\n{clause}\n{WITH}").definition

        assert errors(table) == []
        (warning,) = problems(table, "read")
        (error,) = errors(table, "write")
        assert warning.message.startswith(f"{clause} has no effect")
        assert (error.code, error.where.line) == ("layout", 2)

    def test_the_option_property_version_is_ignored(self) -> None:
        assert errors(define("a INT", WITH.replace(")", ", 'property-version' = '1')"))) == []


class TestWatermarks:
    @pytest.mark.parametrize(
        ("text", "delay"),
        [
            ("ts", "0 seconds"),
            ("`ts`", "0 seconds"),
            ("ts - INTERVAL '5' SECOND", "5 seconds"),
            ("(ts - interval '1' seconds)", "1 second"),
            ("ts - INTERVAL '0.001' SECOND", "1 millisecond"),
            ("ts - INTERVAL '1' MINUTE", "1 minute"),
            ("ts - INTERVAL '2' HOUR(3)", "2 hours"),
            ("ts - INTERVAL '1' DAY", "1 day"),
            ("ts - INTERVAL '1' WEEK", "7 days"),
            ("ts - INTERVAL '01:30' MINUTE TO SECOND", "90 seconds"),
            ("ts - INTERVAL '1 02:03:04.5' DAY TO SECOND(3)", "93784500 milliseconds"),
            ("ts - INTERVAL - '5' SECOND", "PT-5.000000S"),
        ],
    )
    def test_a_delay(self, text: str, delay: str) -> None:
        assert watermark_delay("ts", text) == delay
        assert WatermarkDef("ts", watermark_delay("ts", "ts - INTERVAL '60' SECOND")) == WatermarkDef("ts", "1 min")

    @pytest.mark.parametrize(
        ("text", "position", "message"),
        [
            ("other", 0, "is computed from 'other'"),
            ("other - INTERVAL '5' SECOND", 0, "is computed from 'other'"),
            ("ts + INTERVAL '5' SECOND", 0, "neither the column nor the column minus an interval"),
            ("TO_TIMESTAMP(ts)", 0, "neither the column nor the column minus an interval"),
            ("ts - 5", 5, "is not an INTERVAL"),
            ("ts - INTERVAL 5 SECOND", 14, "the value of the interval in quotes"),
            ("ts - INTERVAL '5'", 17, "expected a unit of time"),
            ("ts - INTERVAL '5' FORTNIGHT", 18, "expected a unit of time"),
            ("ts - INTERVAL '1' MONTH", 5, "no fixed length"),
            ("ts - INTERVAL 'x' SECOND", 5, "is not a valid INTERVAL"),
            ("ts - INTERVAL '1' SECOND TO DAY", 28, "from a longer unit to a shorter one"),
            (
                "ts - INTERVAL '1' SECOND - INTERVAL '1' SECOND",
                0,
                "neither the column nor the column minus an interval",
            ),
            ("ts - INTERVAL '1' WEEK TO DAY", 26, "from a longer unit to a shorter one"),
            ("ts -", 4, "expected an expression"),
        ],
    )
    def test_another_expression(self, text: str, position: int, message: str) -> None:
        with pytest.raises(UntranslatableError, match=message) as caught:
            watermark_delay("ts", text)
        assert caught.value.position == position


class TestDoors:
    def test_several_statements_are_for_load_sql(self) -> None:
        text = error_of(lambda: sql(f"CREATE TABLE a (x INT) {WITH}; CREATE TABLE b (x INT) {WITH}"))

        assert "the SQL has 2 statements; write one CREATE TABLE statement; kdsl.load_sql reads scripts" in text

    @pytest.mark.parametrize("text", ["", "-- nothing", ";", "SELECT 1", "INSERT INTO t SELECT 1"])
    def test_statements_other_than_create_table(self, text: str) -> None:
        message = error_of(lambda: sql(text))

        assert "the SQL has no statement" in message or "this is not a CREATE TABLE statement" in message

    def test_a_print_table_alone_is_refused(self) -> None:
        text = error_of(lambda: sql("CREATE TABLE t (a INT) WITH ('connector' = 'print')"))

        assert "tables of the connector 'print' can be used in SQL scripts only; run the file with `kdsl run`" in text

    def test_a_planned_connector_is_reported_as_such_and_nothing_else(self) -> None:
        options = "'connector' = 'dynamic-kafka', 'x' = 'y'"
        table = sql(f"CREATE TABLE t (a INT, PRIMARY KEY (a) NOT ENFORCED) WITH ({options})")

        assert [p.code for p in errors(table.definition)] == ["connector-later"]

    def test_a_file_and_a_string(self, tmp_path: Path) -> None:
        text = (
            f"CREATE TABLE a (x INT) {WITH};\nCREATE TABLE p WITH ('connector' = 'print') LIKE a (EXCLUDING OPTIONS);\n"
        )
        path = tmp_path / "tables.sql"
        path.write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())

        assert [t.name for t in load_sql(path)] == ["a"]
        assert [t.name for t in load_sql(str(path))] == ["a"]
        assert [t.name for t in load_sql(text)] == ["a"]
        assert load_sql(path)[0].definition.where.location.endswith("tables.sql:1:14")

    def test_a_binary_file(self, tmp_path: Path) -> None:
        path = tmp_path / "tables.sql"
        path.write_bytes(b"CREATE\n\xff")

        assert "tables.sql:2: the script is not UTF-8: it contains the byte 0xff" in error_of(lambda: load_sql(path))

    def test_a_missing_file(self) -> None:
        with pytest.raises(FileNotFoundError):
            load_sql("nowhere.sql")

    def test_names_are_taken_once(self) -> None:
        one = f"CREATE TABLE a (x INT) {WITH};"
        twice = error_of(lambda: load_sql(f"{one}\n{one}"))

        assert "the table 'a' exists already, declared in line 1, column 14" in twice
        assert len(load_sql(f"{one}\nCREATE TABLE IF NOT EXISTS a (y INT) {WITH}")) == 1
        assert len(load_sql(f"{one} DROP TABLE a; {one}")) == 2
        assert "there is no table 'b' to drop" in error_of(lambda: load_sql(f"{one} DROP TABLE b;"))
        assert len(load_sql(f"{one} DROP TABLE IF EXISTS b;")) == 1
        assert "the table 'a' exists already" in error_of(lambda: load_sql(f"{one} DROP VIEW IF EXISTS a; {one}"))


class TestStatements:
    def test_queries_are_stored_with_their_locations(self) -> None:
        script = read_script(
            "SET 'a.b' = 'c';\nINSERT INTO t (x, y) SELECT a, ';' -- why\n FROM s WHERE b > 1;\n"
            "BEGIN STATEMENT SET; INSERT INTO u SELECT 1; INSERT OVERWRITE v VALUES (1); END;\n"
            "EXPLAIN CHANGELOG_MODE SELECT * FROM t; WITH q AS (SELECT 1) SELECT * FROM q"
        )

        setting, insert, together, explain, query = script.statements
        assert isinstance(setting, SetOption)
        assert (setting.key, setting.value) == ("a.b", "c")
        assert isinstance(insert, Insert)
        assert (insert.table.parts, insert.columns) == (("t",), ("x", "y"))
        assert insert.query == Fragment("SELECT a, ';' -- why\n FROM s WHERE b > 1")
        assert (insert.query.where().line, insert.query.where(22).line) == (2, 3)
        assert isinstance(together, StatementSet)
        inserts = [one for one in together.statements if isinstance(one, Insert)]
        assert [(i.table.last, i.overwrite) for i in inserts] == [("u", False), ("v", True)]
        assert isinstance(explain, Explain)
        assert explain.details == ("CHANGELOG_MODE",)
        assert isinstance(query, Query)
        assert query.query.text == "WITH q AS (SELECT 1) SELECT * FROM q"

    def test_a_hint_with_options(self) -> None:
        (insert,) = read_script("INSERT INTO t /*+ OPTIONS('sink.parallelism' = '2') */ SELECT 1").statements

        assert isinstance(insert, Insert)
        assert [(o.key, o.value, o.where.position) for o in insert.options] == [("sink.parallelism", "2", 27)]

    def test_constants_of_a_partition(self) -> None:
        (insert,) = read_script("INSERT INTO t PARTITION (a = 'x', b = 2) SELECT 1").statements

        assert isinstance(insert, Insert)
        assert [(name, value.text) for name, value in insert.partition] == [("a", "'x'"), ("b", "2")]


def test_the_row_of_a_table_for_scripts() -> None:
    from kdsl.ddl.load import declare_script_tables

    (table,) = declare_script_tables(
        read_script("CREATE TABLE p (a INT, b AS a * 2) WITH ('connector' = 'print', 'x' = '1')")
    )

    assert table.row.names == ("a", "b")
    assert table.row.fields[0].type == t.Int()
    assert table.options == {"connector": "print", "x": "1"}
    assert table.locations["x"].position == 65
