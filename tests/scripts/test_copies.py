"""``CREATE TABLE … AS TABLE`` and ``CREATE DATABASE … AS DATABASE``: how they are read, checked and planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import parse_script, read_script
from kdsl.ddl.statements import CreateDatabase, CreateTable, StatementSet
from kdsl.errors import Problem
from kdsl.ingest import DeltaTables, JdbcTables, KafkaTopics
from kdsl.scripts.checkpoint_folders import JobIdentity
from kdsl.scripts.planner import check_script
from kdsl.scripts.script_plan import Copy, CopyJob, ScriptPlan
from kdsl.scripts.show import show_script
from kdsl.vendors.hologres import HologresTables

CATALOGS = """CREATE CATALOG shop WITH ('type' = 'kafka', 'format' = 'json', 'properties.bootstrap.servers' = 'a:1');
CREATE CATALOG lake WITH ('type' = 'delta', 'path' = '/lake');
CREATE CATALOG pg WITH ('type' = 'jdbc', 'url' = 'jdbc:postgresql://h/d');
CREATE CATALOG holo WITH ('type' = 'hologres', 'endpoint' = 'h:80', 'username' = 'u', 'password' = '${env:P}');
CREATE CATALOG other WITH ('type' = 'kafka', 'properties.bootstrap.servers' = 'b:1');
"""
ORDERS = """CREATE TABLE orders (
  id BIGINT NOT NULL, note STRING, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', `day` AS CAST(ts AS DATE)
) WITH ('connector' = 'kafka', 'topic' = 'o', 'properties.bootstrap.servers' = 'a:1',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
"""
LINES = (CATALOGS + ORDERS).count("\n")
PUBLISHED = Path(__file__).parents[1] / "ddl" / "data"


def check(
    text: str, *, before: str = CATALOGS + ORDERS, cluster: Cluster | None = None
) -> tuple[ScriptPlan, list[Problem]]:
    plan, problems = check_script(parse_script(before + text), cluster)
    return plan, [p for p in problems if p.severity == "error"]


def errors(text: str, *, before: str = CATALOGS + ORDERS) -> list[str]:
    """The errors of some statements, with their lines in them."""
    shift = before.count("\n")
    return [f"{(p.where.line or 0) - shift}: {p.code}" for p in check(text, before=before)[1]]


def message(text: str) -> str:
    (problem,) = check(text)[1]
    return str(problem)


def jobs(text: str, *, before: str = CATALOGS + ORDERS) -> list[CopyJob]:
    plan, problems = check(text, before=before)
    assert problems == []
    return list(plan.copy_jobs)


def copy_of(text: str) -> Copy:
    (job,) = jobs(text)
    (copy,) = job.copies
    return copy


class TestReading:
    def test_a_table(self) -> None:
        (statement,) = read_script(
            """CREATE TABLE IF NOT EXISTS lake.shop.t (PRIMARY KEY (a, b) NOT ENFORCED) PARTITIONED BY (a)
            WITH ('x' = 'y') AS TABLE shop.kafka.o /*+ OPTIONS('k' = 'v') */
            ADD COLUMN (x AS UPPER(a) COMMENT 'c' FIRST, y AS COALESCE(f(a, 'b'), 1) AFTER `x y`,
              z AS 1 COMMENT 'AFTER d')"""
        ).statements
        assert isinstance(statement, CreateTable)
        assert statement.copy is not None
        x, y, z = statement.copy.added

        assert (str(statement.name), str(statement.copy.table)) == ("lake.shop.t", "shop.kafka.o")
        assert statement.primary_key is not None
        assert statement.primary_key.columns == ("a", "b")
        assert [(o.key, o.value) for o in (*statement.options, *statement.copy.options)] == [("x", "y"), ("k", "v")]
        assert (x.column.name, x.column.expression.text, x.column.comment, x.first) == ("x", "UPPER(a)", "c", True)
        assert (y.column.expression.text, y.first, y.after) == ("COALESCE(f(a, 'b'), 1)", False, "x y")
        assert (z.column.expression.text, z.column.comment, z.after) == ("1", "AFTER d", None)

    def test_a_database(self) -> None:
        first, second = read_script(
            """CREATE DATABASE IF NOT EXISTS lake.shop COMMENT 'c' WITH ('x' = 'y') AS DATABASE shop.kafka
              INCLUDING ALL TABLES EXCLUDING TABLE 'tmp_.*' /*+ OPTIONS('k' = 'v') */;
            CREATE DATABASE d AS DATABASE e INCLUDING TABLE 'a|b'"""
        ).statements
        assert isinstance(first, CreateDatabase)
        assert isinstance(second, CreateDatabase)

        assert (str(first.name), str(first.source), first.if_not_exists) == ("lake.shop", "shop.kafka", True)
        assert first.including is None
        assert first.excluding is not None
        assert first.excluding.value == "tmp_.*"
        assert [o.key for o in (*first.options, *first.source_options)] == ["x", "k"]
        assert second.including is not None
        assert (second.including.value, second.excluding) == ("a|b", None)

    def test_a_statement_set(self) -> None:
        (together,) = read_script(
            "BEGIN STATEMENT SET; INSERT INTO a SELECT 1; CREATE TABLE l.d.t AS TABLE o; "
            "CREATE DATABASE l.d AS DATABASE s.k; END"
        ).statements
        assert isinstance(together, StatementSet)

        assert [type(one).__name__ for one in together.statements] == ["Insert", "CreateTable", "CreateDatabase"]

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("CREATE TABLE t AS TABLE", "where the name of a table is expected"),
            ("CREATE TABLE t AS TABLE s ADD x AS 1", "where COLUMN is expected"),
            ("CREATE TABLE t AS TABLE s ADD COLUMN x 1", "where AS is expected"),
            ("CREATE TABLE t AS TABLE s ADD COLUMN x AS FIRST", "where an expression is expected"),
            ("CREATE TABLE t AS TABLE s ADD COLUMN x AS 1, y AS 2", "put several columns in brackets"),
            ("CREATE TABLE t AS TABLE s WHERE x = 1", "where ';' or ADD COLUMN is expected"),
            ("CREATE TABLE t (WITH ('a' = 'b') AS TABLE s", "is not closed before WITH"),
            ("CREATE DATABASE d", "where AS DATABASE or WITH is expected"),
            ("CREATE DATABASE d AS DATABASE s INCLUDING TABLES", "where TABLE or ALL TABLES is expected"),
            ("CREATE DATABASE d AS DATABASE s EXCLUDING TABLE a", "where a regular expression in quotes is expected"),
            ("BEGIN STATEMENT SET; CREATE TABLE t (a INT); END", "this one only declares something"),
        ],
    )
    def test_mistakes(self, text: str, expected: str) -> None:
        assert expected in str(parse_script(text).problems[0])


class TestPlanning:
    def test_a_declared_table_is_an_ingestion_with_its_columns(self) -> None:
        copy = copy_of(
            """CREATE TABLE lake.web.t (PRIMARY KEY (id) NOT ENFORCED) PARTITIONED BY (`day`)
            WITH ('sink.type-normalize-strategy' = 'BROADEN') AS TABLE vvp.`default`.orders
            ADD COLUMN (loud AS UPPER(note) AFTER note, `year` AS EXTRACT(YEAR FROM `day`) FIRST)"""
        )
        plan = copy.ingestion.plan()
        (table,) = plan.tables()

        assert (copy.name, copy.source, copy.new_table) == ("lake.web.t", "orders", ("web", "t"))
        assert copy.ingestion.sink == DeltaTables("/lake", type_normalization="BROADEN")
        assert (copy.feed.topic, copy.feed.inference, copy.feed.startup) == (("o",), "static", "earliest-offset")
        assert table.targets == (("web", "t"),)
        assert [(c.name, str(c.type)) for c in table.transformed.columns] == [
            ("year", "BIGINT"), ("id", "BIGINT NOT NULL"), ("note", "STRING"), ("loud", "STRING"),
            ("ts", "TIMESTAMP_LTZ(3)"), ("day", "DATE"),
        ]  # fmt: skip
        assert table.transformed.primary_key == ("id",)
        assert table.transformed.partition_keys == ("day",)

    def test_the_sink_follows_from_the_catalog(self) -> None:
        text = "CREATE TABLE IF NOT EXISTS {} AS TABLE orders"
        delta, jdbc, hologres, kafka = (
            copy_of(text.format(name)) for name in ("lake.a.t", "pg.a.t", "holo.a.t", "other.kafka.t")
        )

        assert [c.feed.table for c in (delta, jdbc, hologres, kafka)] == ["a.t", "a.t", "t", "t"]
        assert isinstance(delta.ingestion.sink, DeltaTables)
        assert isinstance(jdbc.ingestion.sink, JdbcTables)
        assert isinstance(hologres.ingestion.sink, HologresTables)
        assert hologres.ingestion.sink.dbname == "a"
        assert isinstance(kafka.ingestion.sink, KafkaTopics)
        assert (kafka.ingestion.sink.cluster, kafka.ingestion.sink.value.identifier) == (Cluster("b:1"), "json")
        assert kafka.ingestion.sink.topic_of(("t",)) == "t"
        with_acks = copy_of("CREATE TABLE other.kafka.t WITH ('properties.acks' = '1') AS TABLE orders").ingestion.sink
        assert isinstance(with_acks, KafkaTopics)
        assert with_acks.cluster == Cluster("b:1", properties={"acks": "1"})
        assert delta.new_table is None

    def test_a_database_is_an_ingestion_of_a_pattern(self) -> None:
        copy = copy_of(
            """CREATE DATABASE lake.web AS DATABASE shop.kafka INCLUDING TABLE 'web-.*' EXCLUDING TABLE '.*-tmp|x'
            /*+ OPTIONS('scan.startup.mode' = 'latest-offset', 'ingestion.ignore-errors' = 'true') */"""
        )

        assert copy.feed.topic_pattern == "(?!(?:.*-tmp|x)$)(?:web-.*)"
        assert (copy.feed.table, copy.feed.startup, copy.feed.ignore_errors) == ("web.<topic>", "latest-offset", True)
        assert copy.feed.table_id("web-a.b") == ("web", "web-a.b")
        assert copy.feed.metadata == ("partition", "offset", "timestamp")
        (transform,) = copy.ingestion.transform
        assert transform.primary_keys == ("partition", "offset")

    def test_statements_of_a_set_with_the_same_source_share_a_query(self) -> None:
        text = """BEGIN STATEMENT SET;
            CREATE TABLE lake.a.one AS TABLE shop.kafka.x;
            CREATE TABLE lake.a.two AS TABLE shop.kafka.y;
            CREATE DATABASE pg.a AS DATABASE shop.kafka;
            CREATE TABLE lake.a.three AS TABLE shop.kafka.x /*+ OPTIONS('scan.startup.mode' = 'latest-offset') */;
            CREATE TABLE lake.a.four AS TABLE other.kafka.x; END;
            CREATE TABLE lake.a.five AS TABLE shop.kafka.x;"""
        planned = jobs(text)

        assert [[copy.last_name for copy in job.copies] for job in planned] == [
            ["one", "two", "a"], ["three"], ["four"], ["five"],
        ]  # fmt: skip
        assert [job.group for job in planned] == [1, 1, 1, 2]
        assert [job.name for job in planned] == ["copy-1-one", "copy-2-three", "copy-3-four", "copy-4-five"]

    def test_dead_letters_and_settings_go_into_the_pipeline(self) -> None:
        before = CATALOGS + ORDERS.replace(
            "'format'", "'scan.dead-letter.topic' = 'bad', 'scan.dead-letter.max-count' = '5', 'format'"
        )
        (job,) = jobs(
            "SET 'execution.checkpointing.interval' = '5 s'; SET 'table.local-time-zone' = 'Asia/Tokyo';"
            "SET 'execution.runtime-mode' = 'batch'; CREATE TABLE lake.a.t AS TABLE orders;",
            before=before,
        )
        copy = job.copies[0]
        pipeline = copy.ingestion.pipeline

        assert (copy.feed.ignore_errors, copy.feed.max_errors) == (True, 5)
        assert (pipeline.collector, pipeline.collector_topic) == ("kafka", "bad")
        assert (pipeline.trigger is not None, pipeline.time_zone, pipeline.runtime_mode) == (
            True,
            "Asia/Tokyo",
            "BATCH",
        )
        assert job.ends

    def test_a_job_is_known_by_its_tables_and_topics(self) -> None:
        text = "CREATE TABLE lake.a.t AS TABLE orders"
        one, added, another = (
            JobIdentity.of(jobs(t)[0]) for t in (text, f"{text} ADD COLUMN x AS 1", text.replace(".t", ".u"))
        )

        assert (one.sink, one.reads) == ("lake.a.t", ("o",))
        assert one.is_edited(added)
        assert one != added
        assert not one.is_edited(another)

    def test_the_plan_shows_the_ingestion(self) -> None:
        plan, problems = check("CREATE TABLE lake.web.t AS TABLE orders ADD COLUMN loud AS UPPER(note) AFTER note")
        shown = show_script(plan, {"copy-1-t": "/c/copy-1-t"})

        assert problems == []
        assert shown.startswith("copy-1-t (streaming)\n  copies    orders into lake.web.t\n")
        assert "add `loud` AS UPPER(note) AFTER `note`" in shown
        assert "                loud STRING = upper(`note`)" in shown
        assert shown.endswith("  progress  /c/copy-1-t")

    def test_a_table_whose_columns_are_inferred_is_checked_without_them(self) -> None:
        inferred = """CREATE TABLE open_orders (part INT METADATA FROM 'partition') WITH (
          'connector' = 'kafka', 'topic' = 'o',
          'properties.bootstrap.servers' = 'a:1', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json');"""
        copy = copy_of(f"{inferred} CREATE TABLE lake.a.t AS TABLE open_orders ADD COLUMN x AS UPPER(unknown)")

        assert (copy.feed.inference, copy.feed.prefetch) == ("continuous", 50)
        assert list(copy.feed.initial_tables) == [("a", "t")]
        assert errors(f"{inferred} CREATE TABLE lake.a.t AS TABLE open_orders ADD COLUMN x AS UPPER(") != []


class TestProblems:
    @pytest.mark.parametrize(
        ("text", "code"),
        [
            ("CREATE TABLE t AS TABLE orders", "copy-sink"),
            ("CREATE TABLE leka.a.t AS TABLE orders", "catalog-unknown"),
            ("CREATE TABLE lake.a.t AS TABLE order", "table-unknown"),
            ("CREATE TABLE lake.a.t (x INT) AS TABLE orders", "copy-column"),
            ("CREATE TEMPORARY TABLE lake.a.t AS TABLE orders", "copy-clause"),
            ("CREATE TABLE lake.a.t WITH ('connector' = 'kafka') AS TABLE orders", "copy-connector"),
            ("CREATE TABLE lake.a.t WITH ('sink.rewrite.max-byte' = '1') AS TABLE orders", "option-unknown"),
            ("CREATE TABLE lake.a.t WITH ('sink.rewrite.max-bytes' = 'x') AS TABLE orders", "option-value"),
            ("CREATE TABLE lake.a.t (PRIMARY KEY (idd) NOT ENFORCED) AS TABLE orders", "ingest-transform"),
            ("CREATE TABLE lake.a.t AS TABLE orders ADD COLUMN x AS UPPER(nott)", "ingest-expression"),
            ("CREATE TABLE lake.a.t AS TABLE orders ADD COLUMN x AS UPPER(id)", "ingest-expression"),
            ("CREATE TABLE lake.a.t AS TABLE orders ADD COLUMN note AS 'x'", "ingest-transform"),
            ("CREATE TABLE lake.a.t AS TABLE orders ADD COLUMN x AS 'x' AFTER y", "ingest-transform"),
            ("CREATE TABLE lake.a.t AS TABLE orders /*+ OPTIONS('scan.startup.mode' = 'sometime') */", "option-value"),
            (
                "CREATE TABLE lake.a.t AS TABLE orders /*+ OPTIONS('scan.bounded.mode' = 'latest-offset') */",
                "copy-option",
            ),
            (
                "CREATE TABLE lake.a.t AS TABLE orders /*+ OPTIONS('scan.max.pre.fetch.records' = 'x') */",
                "option-value",
            ),
            ("CREATE TABLE lake.a.t AS TABLE shop.kafka.x /*+ OPTIONS('prefetch' = '5') */", "option-unknown"),
            ("CREATE TABLE other.kafka.t WITH ('partition.strateg' = 'x') AS TABLE orders", "option-unknown"),
            ("CREATE TABLE other.kafka.t WITH ('value.format' = 'csv') AS TABLE orders", "format-unknown"),
            ("CREATE TABLE other.kafkaa.t AS TABLE orders", "database-unknown"),
            ("CREATE TABLE shop.kafka.o AS TABLE orders", "topic-loop"),
            ("CREATE DATABASE shop.kafka AS DATABASE shop.kafka", "topic-loop"),
            ("CREATE DATABASE lake.a AS DATABASE lake.b", "copy-source"),
            ("CREATE DATABASE lake.a AS DATABASE default_catalog.x", "copy-source"),
            ("CREATE DATABASE lake.a AS DATABASE shop.other", "database-unknown"),
            ("CREATE DATABASE lake.a AS DATABASE shop.kafka INCLUDING TABLE 'a['", "copy-pattern"),
            (
                "CREATE DATABASE lake.a AS DATABASE shop.kafka /*+ OPTIONS('scan.startup.mod' = 'x') */",
                "option-unknown",
            ),
            ("SELECT * FROM lake.a.t", "catalog-sink"),
            ("INSERT INTO lake.a.t SELECT * FROM orders", "catalog-sink"),
            ("SHOW TABLES IN lake.a", "catalog-sink"),
            ("CREATE CATALOG x WITH ('type' = 'delta', 'paht' = '/x')", "option-unknown"),
            ("CREATE CATALOG lake WITH ('type' = 'delta', 'path' = '/x')", "catalog-twice"),
        ],
    )
    def test_a_mistake_is_one_problem(self, text: str, code: str) -> None:
        assert errors(text) == [f"1: {code}"]

    def test_all_mistakes_are_reported_with_their_places(self) -> None:
        text = """CREATE TABLE lake.a.t
          WITH ('sink.rewrite.max-bytes' = 'x',
            'catalog' = 'c')
          AS TABLE orders
          ADD COLUMN (x AS UPPER(nott),
            y AS 1 AFTER z);"""

        assert errors(text) == [
            "2: option-value", "3: ingest-delta", "5: ingest-expression", "6: ingest-transform",
        ]  # fmt: skip

    def test_a_table_is_filled_by_one_statement(self) -> None:
        text = "CREATE TABLE lake.a.t AS TABLE orders;\nCREATE TABLE lake.a.t AS TABLE orders;"

        assert errors(text) == ["2: copy-twice"]

    @pytest.mark.parametrize(
        ("old", "new", "code"),
        [
            ("'format' = 'json'", "'format' = 'csv'", "copy-source"),
            ("'connector' = 'kafka'", "'connector' = 'print'", "copy-source"),
            ("'format' = 'json'", "'format' = 'json', 'scan.not-null-enforcer' = 'drop'", "copy-option"),
        ],
    )
    def test_tables_that_cannot_be_copied(self, old: str, new: str, code: str) -> None:
        before = CATALOGS + ORDERS.replace(old, new)

        assert code in [e.partition(": ")[2] for e in errors("CREATE TABLE lake.a.t AS TABLE orders", before=before)]

    def test_an_upsert_table_is_refused(self) -> None:
        before = f"""{CATALOGS} CREATE TABLE users (id BIGINT, name STRING, PRIMARY KEY (id) NOT ENFORCED) WITH (
            'connector' = 'upsert-kafka', 'topic' = 'u', 'properties.bootstrap.servers' = 'a:1', 'key.format' = 'json',
            'value.format' = 'json');"""

        assert errors("CREATE TABLE lake.a.t AS TABLE users", before=before) == ["1: copy-source"]

    def test_a_mistake_of_the_copied_table_is_reported_there_alone(self) -> None:
        before = CATALOGS + ORDERS.replace("'topic' = 'o'", "'topic' = 'o', 'scan.startup.timestamp-millis' = 'x'")
        _, problems = check("CREATE TABLE lake.a.t AS TABLE orders", before=before)

        assert [(p.code, p.where.line) for p in problems] == [("option-value", LINES - 1)]

    def test_the_fix_says_what_to_write(self) -> None:
        assert "write CREATE CATALOG lake WITH ('type' = 'delta'" in message("CREATE TABLE t AS TABLE orders")
        assert "did you mean 'orders'?" in message("CREATE TABLE lake.a.t AS TABLE order")
        assert "set 'type' = 'kafka', or for copies of tables" in message("CREATE CATALOG x WITH ('type' = 'mongo')")


class TestPublishedExamples:
    HOLOGRES = next(line for line in CATALOGS.splitlines() if "holo " in line).replace("holo ", "hologres ")

    def codes(self, number: int, *replacements: tuple[str, str]) -> list[str]:
        text = (
            (PUBLISHED / f"000-example-{number}.sql").read_text(encoding="utf-8").replace("<yourKafkaBrokers>", "a:1")
        )
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        _, problems = check_script(parse_script(f"{self.HOLOGRES}\n{text}"))
        return [p.code for p in problems if p.severity == "error"]

    def test_the_second_runs_as_it_is(self) -> None:
        assert self.codes(2) == []

    def test_the_third_has_a_stray_bracket(self) -> None:
        assert self.codes(3) == ["sql"]
        assert self.codes(3, ("`sync_kafka`(", "`sync_kafka`")) == []

    def test_the_fourth_names_a_key_field_that_is_not_declared(self) -> None:
        column = ("`distinct_id` INT", "`key_id` INT, `distinct_id` INT")
        option = ("'key.fields-prefix'", "'value.fields-include' = 'EXCEPT_KEY', 'key.fields-prefix'")

        assert sorted(self.codes(4)) == ["key-field", "key-prefix-all"]
        assert self.codes(4, column, option) == []
