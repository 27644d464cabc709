"""Scripts as plans: what is matched, and everything that is refused before Spark starts."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import parse_script, read_script
from kdsl.errors import ResolveError
from kdsl.flink_sql.expressions.casts import is_assignable
from kdsl.own_columns import WINDOW
from kdsl.scripts.planner import check_script, plan_script
from kdsl.scripts.script_plan import ScriptPlan
from kdsl.scripts.show import show_script
from kdsl.types.parse import parse_type
from tests.installed_plugins import InstallPlugins

DATA = Path(__file__).parent / "data"
CLUSTER = Cluster("broker:9092")
TABLES = """
CREATE TABLE source (id INT, name STRING, age INT, ts TIMESTAMP(3)) WITH (
  'connector' = 'kafka', 'topic' = 'source', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE marked (id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) WITH (
  'connector' = 'kafka', 'topic' = 'marked', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset');
CREATE TABLE sink (id BIGINT, name STRING) WITH ('connector' = 'print');
CREATE TABLE kafka_sink (id BIGINT, name STRING, `offset` BIGINT METADATA VIRTUAL, twice AS id * 2) WITH (
  'connector' = 'kafka', 'topic' = 'sink', 'format' = 'json');
CREATE TABLE made (id INT) WITH ('connector' = 'datagen');
CREATE TABLE nothing (id BIGINT) WITH ('connector' = 'blackhole');
"""
CHANGED = """
CREATE TABLE changed (id BIGINT, name STRING) WITH ('connector' = 'kafka', 'topic' = 'c', 'format' = 'debezium-json');
"""


def plan_statements(text: str) -> ScriptPlan:
    return plan_script(read_script(TABLES + text, file="job.sql"), CLUSTER)


def problems(text: str) -> list[tuple[str, str]]:
    with pytest.raises(ResolveError) as error:
        plan_statements(text)
    return [(p.code, p.message) for p in error.value.problems]


class TestColumns:
    def test_go_by_position_with_the_casts_that_need_no_cast(self) -> None:
        (job,) = plan_statements("INSERT INTO sink SELECT id, name AS other FROM source").insert_jobs

        assert [(c.name, str(c.type), c.index, str(c.query_type)) for c in job.columns] == [
            ("id", "BIGINT", 0, "INT"),
            ("name", "STRING", 1, "STRING"),
        ]

    def test_virtual_and_computed_columns_of_a_sink_are_left_out(self) -> None:
        (job,) = plan_statements("INSERT INTO kafka_sink SELECT id, name FROM source").insert_jobs

        assert [c.name for c in job.columns] == ["id", "name"]

    def test_named_columns_and_constants(self) -> None:
        (one, two) = plan_statements(
            "INSERT INTO sink (name, id) SELECT name, id FROM source;"
            "INSERT INTO sink PARTITION (name = 'x') SELECT id FROM source"
        ).insert_jobs

        assert [(c.name, c.index) for c in one.columns] == [("id", 1), ("name", 0)]
        assert [(c.name, c.index, c.constant) for c in two.columns] == [("id", 0, None), ("name", None, "'x'")]

    @pytest.mark.parametrize(
        ("statement", "code", "message"),
        [
            ("INSERT INTO sink SELECT id FROM source", "insert-count", "the query has 1 column (id INT)"),
            (
                "INSERT INTO sink SELECT name, name FROM source",
                "insert-type",
                "'name', is STRING, and sink.id is BIGINT",
            ),
            ("INSERT INTO sink (id, nme) SELECT id, name FROM source", "insert-column", "(did you mean 'name'?)"),
            ("INSERT INTO sink (id, id) SELECT id, id FROM source", "insert-column", "the column 'id' is named twice"),
            (
                "INSERT INTO sink PARTITION (name = 'x') (id, name) SELECT id, name FROM source",
                "insert-column",
                "the column 'name' is named twice",
            ),
            ("INSERT INTO snk SELECT id, name FROM source", "table-unknown", "(did you mean 'sink'?)"),
            ("INSERT INTO sink SELECT id, nme FROM source", "sql-query", "(did you mean 'name'?)"),
            ("INSERT INTO sink SELECT id, name FROM sorce", "sql-query", "(did you mean 'source'?)"),
            (  # not of 'sink', which cannot be read
                "INSERT INTO sink SELECT id, name FROM made",
                "sql-query",
                "no table after FROM has a column 'name'; it is a column of 'source' and 'kafka_sink'",
            ),
            (
                "CREATE TABLE shown (nme STRING) WITH ('connector' = 'print'); "
                "INSERT INTO shown SELECT nme FROM source",
                "sql-query",
                "there is no column 'nme' (did you mean 'name'?)",
            ),
            ("INSERT INTO made SELECT id FROM source", "insert-sink", "which cannot be written"),
            ("SELECT * FROM sink", "select-source", "which cannot be read"),
            ("INSERT OVERWRITE sink SELECT id, name FROM source", "insert-overwrite", "which is impossible in a topic"),
        ],
    )
    def test_mismatches_are_reported_at_their_location(self, statement: str, code: str, message: str) -> None:
        (sample,) = problems(statement)

        assert sample[0] == code
        assert message in sample[1]

    def test_the_location_is_that_of_the_name_in_the_script(self) -> None:
        with pytest.raises(ResolveError) as error:
            plan_statements("INSERT INTO sink\nSELECT id, nme FROM source")
        (problem,) = error.value.problems

        assert problem.where.location == "job.sql:12:12"
        assert (problem.where.excerpt or "").splitlines()[1].rstrip() == "           ^^^"


class TestCastsThatNeedNoCast:
    """Flink's answers for each pair of types; `record.py` asked for them."""

    TAKEN: Mapping[str, list[str]] = json.loads((DATA / "implicit-casts.json").read_text(encoding="utf-8"))

    @pytest.mark.parametrize("sink", TAKEN)
    def test_a_sink_takes_what_flink_takes(self, sink: str) -> None:
        taken = [kind for kind in self.TAKEN if is_assignable(parse_type(kind), parse_type(sink))]

        assert taken == self.TAKEN[sink]


class TestStreams:
    @pytest.mark.parametrize(
        ("query", "code"),
        [
            ("SELECT COUNT(*), name FROM source GROUP BY name", "stream-aggregate"),
            ("SELECT DISTINCT id, name FROM source", "stream-distinct"),
            ("SELECT id, name FROM source ORDER BY id", "stream-order"),
            (
                "SELECT COUNT(DISTINCT id), CAST(window_start AS STRING) FROM TABLE(TUMBLE(TABLE marked, "
                "DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end",
                "stream-distinct-values",
            ),
            ("SELECT s.id, s.name FROM source s LEFT JOIN made m ON s.id = m.id", "stream-outer-join"),
            ("SELECT id, name FROM source UNION SELECT id, 'x' FROM made", "stream-set"),
            ("SELECT ROW_NUMBER() OVER (PARTITION BY id ORDER BY ts), name FROM source", "stream-over"),
            (
                "SELECT COUNT(*), CAST(window_start AS STRING) FROM TABLE(TUMBLE(TABLE source, DESCRIPTOR(ts), "
                "INTERVAL '1' MINUTE)) GROUP BY window_start, window_end",
                "stream-watermark",
            ),
        ],
    )
    def test_refuse_what_would_have_to_be_taken_back(self, query: str, code: str) -> None:
        assert [c for c, _ in problems(f"INSERT INTO sink {query}")] == [code]

    @pytest.mark.parametrize(
        ("start", "reason"),
        [
            ("INSERT INTO sink", "Spark does not return the result before"),
            (f"{CHANGED} INSERT INTO changed", "Spark does not return the result before"),
            ("", "Spark does not return the result before"),
            ("INSERT INTO kafka_sink", "the table can only store new rows"),
        ],
    )
    def test_a_group_without_a_window_is_refused_with_a_reason_for_its_sink(self, start: str, reason: str) -> None:
        ((code, message),) = problems(f"{start} SELECT COUNT(*), name FROM source GROUP BY name")

        assert code == "stream-aggregate"
        assert reason in message

    def test_several_groupings_are_refused(self) -> None:
        source = "TABLE(TUMBLE(TABLE marked, DESCRIPTOR(ts), INTERVAL '1' MINUTE))"
        query = f"SELECT COUNT(*) FROM {source} GROUP BY window_start, window_end, ROLLUP (id)"

        assert [code for code, _ in problems(f"INSERT INTO nothing {query}")] == ["stream-grouping"]

    def test_a_group_by_a_window_with_a_watermark_is_supported(self) -> None:
        query = "TABLE(TUMBLE(TABLE marked, DESCRIPTOR(ts), INTERVAL '1' MINUTE)) GROUP BY window_start, window_end"
        (job,) = plan_statements(f"INSERT INTO nothing SELECT COUNT(*) FROM {query}").insert_jobs

        assert job.streaming
        assert f"GROUP BY `marked`.`{WINDOW}`" in job.query.text

    def test_a_batch_takes_it_all(self) -> None:
        query = "SELECT COUNT(*), name FROM source GROUP BY name ORDER BY name LIMIT 3"
        (job,) = plan_statements(
            f"SET 'execution.runtime-mode' = 'batch'; INSERT INTO sink (id, name) {query}"
        ).insert_jobs

        assert not job.streaming

    @pytest.mark.parametrize(
        "ends",
        ["'number-of-rows' = '9'", "'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '9'"],
    )
    def test_tables_that_end_are_read_at_once_and_can_do_what_a_batch_can(self, ends: str) -> None:
        table = f"CREATE TABLE few (id INT) WITH ('connector' = 'datagen', {ends});"
        query = "SELECT id, n FROM (SELECT id, ROW_NUMBER() OVER (ORDER BY id) AS n FROM few) WHERE n < 3;"
        script = read_script(f"{TABLES}{table} {query}")

        (job,) = plan_script(script, CLUSTER).insert_jobs
        _, problems = check_script(script, CLUSTER, checkpoint="/somewhere")
        assert (job.at_once, job.streaming, [p.code for p in problems]) == (True, False, ["stream-over"])

    def test_values_are_a_batch(self) -> None:
        assert not plan_statements("INSERT INTO sink VALUES (1, 'a')").insert_jobs[0].streaming

    def test_a_batch_refuses_a_table_without_end(self) -> None:
        assert [c for c, _ in problems("SET 'execution.runtime-mode' = 'batch'; SELECT * FROM made")] == [
            "batch-unbounded"
        ]


class TestHints:
    def test_a_query_reads_a_table_with_other_options(self) -> None:
        hint = "/*+ OPTIONS('scan.startup.mode' = 'latest-offset', 'topic' = 'other') */"
        one, two = plan_statements(
            f"INSERT INTO sink SELECT id, name FROM source {hint} AS s; INSERT INTO sink SELECT id, name FROM source"
        ).insert_jobs

        (name,) = one.tables
        table = one.tables[name].topic
        assert table is not None
        assert table.definition.options.valid().startup == "latest-offset"
        assert table.definition.options.valid().topic == ("other",)
        assert f"FROM `{name}` AS `s`" in one.query.text
        assert list(two.tables) == ["source"]

    def test_one_query_reads_a_table_both_ways(self) -> None:
        (job,) = plan_statements(
            "INSERT INTO sink SELECT id, name FROM source UNION ALL "
            "SELECT id, name FROM source /*+ OPTIONS('topic' = 'other') */"
        ).insert_jobs

        assert len(job.tables) == 2

    def test_a_window_of_a_table_with_other_options(self) -> None:
        source = "TUMBLE(TABLE marked /*+ OPTIONS('topic' = 'x') */, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
        (job,) = plan_statements(
            f"INSERT INTO nothing SELECT COUNT(*) FROM {source} GROUP BY window_start, window_end"
        ).insert_jobs

        assert "marked" not in job.tables

    @pytest.mark.parametrize(
        ("query", "code", "message", "location"),
        [
            ("source /*+ OPTIONS('scan.startup.mod' = 'x') */", "option-unknown", "scan.startup.mod", "11:58"),
            ("source /*+ OPTIONS('topic') */", "sql", "where '=' is expected", "11:65"),
            ("source /*+ BROADCAST(source) */", "sql-query", "only OPTIONS can be hinted at", "11:46"),
            ("v /*+ OPTIONS('topic' = 'x') */", "hint-view", "'v' is a view and has no options", "11:41"),
            ("source /*+ OPTIONS('format' = 'debezium-json') */", "hint-format", "changes whether", "11:46"),
            ("source s /*+ OPTIONS('topic' = 'x') */", "sql-query", "after the name of a table", "11:48"),
        ],
    )
    def test_mistakes_are_reported_at_their_location(self, query: str, code: str, message: str, location: str) -> None:
        with pytest.raises(ResolveError) as error:
            plan_script(
                read_script(
                    f"{TABLES}INSERT INTO sink SELECT id, name FROM {query}".replace(
                        "CREATE TABLE nothing", "CREATE VIEW v AS SELECT id, name FROM source; CREATE TABLE nothing"
                    ),
                    file="job.sql",
                ),
                CLUSTER,
            )
        problem = error.value.problems[0]

        assert problem.code == code
        assert message in problem.message
        assert problem.where.location == f"job.sql:{location}"


class TestSettings:
    def test_settings_apply_to_the_statements_after_them(self) -> None:
        one, two, three = plan_statements(
            "INSERT INTO nothing SELECT id FROM source; SET 'pipeline.name' = 'x'; "
            "INSERT INTO nothing SELECT id FROM source; RESET 'pipeline.name'; INSERT INTO nothing SELECT id FROM source"  # noqa: E501
        ).insert_jobs

        assert [j.settings.name for j in (one, two, three)] == [None, "x", None]

    def test_an_unknown_key_warns_with_a_suggestion(self) -> None:
        (warning,) = plan_statements("SET 'execution.runtime-mod' = 'batch'").warnings

        assert (warning.severity, "did you mean 'execution.runtime-mode'?" in warning.message) == ("warning", True)

    @pytest.mark.parametrize(
        ("key", "value"),
        [("execution.runtime-mode", "fast"), ("table.local-time-zone", "Mars"), ("parallelism.default", "0")],
    )
    def test_a_wrong_value_is_refused(self, key: str, value: str) -> None:
        assert [c for c, _ in problems(f"SET '{key}' = '{value}'")] == ["option-value"]


class TestTables:
    def test_a_view_reads_its_tables(self) -> None:
        (job,) = plan_statements(
            "CREATE VIEW v (i, n) AS SELECT id, name FROM source; INSERT INTO sink SELECT i, n FROM v"
        ).insert_jobs

        assert (list(job.tables), [v.name for v in job.views]) == (["source"], ["v"])

    @pytest.mark.parametrize("drop", ["DROP TABLE source", "DROP VIEW v"])
    def test_a_view_does_not_outlive_what_it_reads(self, drop: str) -> None:
        views = "CREATE VIEW v AS SELECT id, name FROM source; CREATE VIEW w AS SELECT * FROM v;"
        ((code, message),) = problems(f"{views} {drop}; INSERT INTO sink SELECT * FROM w")

        assert (code, message.partition(" needs ")[0]) == ("table-unknown", "a view that the query reads")

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ("'rows-per-secnd' = '1'", "did you mean 'rows-per-second'?"),
            ("'fields.idd.kind' = 'random'", "does not refer to a column of the table (did you mean 'id'?)"),
            ("'fields.id.kind' = 'sequence'", "needs a start and an end"),
            ("'fields.id.min' = 'x'", "which is not a number"),
            ("'fields.id.max' = '99999999999'", "which is out of range for INT"),
            ("'fields.id.null-rate' = '2'", "has the value '2'"),
        ],
    )
    def test_options_of_datagen_are_judged(self, options: str, message: str) -> None:
        (sample,) = problems(f"CREATE TABLE g (id INT) WITH ('connector' = 'datagen', {options})")

        assert message in sample[1]

    @pytest.mark.parametrize(
        ("kind", "options", "message"),
        [
            ("DOUBLE", {"max": "1e400"}, "'fields.x.max' is 1E+400, which is out of range for DOUBLE"),
            ("DOUBLE", {"min": "-Infinity"}, "'fields.x.min' is -Infinity, which is out of range for DOUBLE"),
            ("DOUBLE", {"min": "NaN"}, "'fields.x.min' has the value 'NaN', which is not a number"),
            ("FLOAT", {"max": "3.5e38"}, "'fields.x.max' is 3.5E+38, which is out of range for FLOAT"),
            ("DECIMAL(3, 2)", {"max": "1000"}, "'fields.x.max' is 1000, which is out of range for DECIMAL(3, 2)"),
            ("DECIMAL(3, 2)", {"min": "-9.995"}, "'fields.x.min' is -9.995, which is out of range for DECIMAL(3, 2)"),
            ("BIGINT", {"max": "1e5000"}, "'fields.x.max' is 1E+5000, which is out of range for BIGINT"),
            ("INT", {"min": "5", "max": "4"}, "'fields.x.min' is 5, above the max 4 of INT"),
            ("TINYINT", {"start": "1", "end": "128"}, "'fields.x.end' is 128, which is out of range for TINYINT"),
            (
                "BIGINT",
                {"start": "1", "end": str(10**30)},
                f"'fields.x.end' is {10**30}, which is out of range for BIG",
            ),
            ("STRING", {"start": str(-(10**30)), "end": "1"}, "'fields.x.start' is -1000000000000000000000000000000, "),
            (
                "DOUBLE",
                {"start": "1", "end": str(2**63)},
                f"'fields.x.end' is {2**63}, which is out of range for BIGINT",
            ),
            ("DECIMAL(3, 2)", {"start": "1", "end": "10"}, "'fields.x.end' is 10, which is out of range for DECIMAL"),
        ],
    )
    def test_numbers_that_the_type_of_a_generated_column_cannot_hold(
        self, kind: str, options: dict[str, str], message: str
    ) -> None:
        if "start" in options:
            options = {"kind": "sequence", **options}
        texts = "".join(f", 'fields.x.{key}' = '{text}'" for key, text in options.items())
        ((code, sample),) = problems(f"CREATE TABLE g (x {kind}) WITH ('connector' = 'datagen'{texts})")

        assert code == "datagen-field"
        assert message in sample

    def test_a_sequence_whose_start_and_end_are_out_of_range(self) -> None:
        bounds = "'fields.x.kind' = 'sequence', 'fields.x.start' = '-129', 'fields.x.end' = '128'"

        assert [m for _, m in problems(f"CREATE TABLE g (x TINYINT) WITH ('connector' = 'datagen', {bounds})")] == [
            "'fields.x.start' is -129, which is out of range for TINYINT",
            "'fields.x.end' is 128, which is out of range for TINYINT",
        ]

    @pytest.mark.parametrize(
        ("kind", "options", "sql"),
        [
            ("TINYINT", "'fields.x.min' = '-128.9', 'fields.x.max' = '127.9'", "(-128L) + CAST(floor(rand() * 256D)"),
            ("FLOAT", "'fields.x.max' = '3.4028235E38'", "+ rand() * 1.70141175e+38D"),
            ("DOUBLE", "'fields.x.min' = '-1.6e308', 'fields.x.max' = '1.6e308'", "-8e+307D + rand() * 1.6e+308D"),
            ("DECIMAL(38, 0)", "'fields.x.min' = '0'", f"least(CAST('{'9' * 38}' AS DECIMAL(38, 0))"),
            ("DECIMAL(2, 2)", "'fields.x.max' = '0.99'", "greatest(CAST('-0.99' AS DECIMAL(2, 2))"),
            (
                "BIGINT",
                f"'fields.x.kind' = 'sequence', 'fields.x.start' = '{-(2**63)}', 'fields.x.end' = '0'",
                "((-9223372036854775807L - 1L) + value)",
            ),
        ],
    )
    def test_generated_numbers_up_to_the_bounds_of_their_types(self, kind: str, options: str, sql: str) -> None:
        script = f"CREATE TABLE g (x {kind}) WITH ('connector' = 'datagen', {options}); SELECT x FROM g"
        generated = plan_script(read_script(script)).insert_jobs[0].tables["g"].generated

        assert generated is not None
        assert sql in generated.columns["x"]

    def test_a_changelog_is_not_written_to_what_only_takes_new_rows(self) -> None:
        table = "CREATE TABLE cdc (id INT, name STRING) WITH ('connector' = 'kafka', 'topic' = 'c', 'format' = "
        table += "'debezium-json', 'scan.startup.mode' = 'earliest-offset');"

        assert [c for c, _ in problems(f"{table} INSERT INTO kafka_sink SELECT id, name FROM cdc")] == [
            "write-changelog"
        ]
        (job,) = plan_statements(f"{table} INSERT INTO sink SELECT id, name FROM cdc WHERE id > 1").insert_jobs
        assert job.query.text.endswith("`cdc`.`_row_kind` AS `_row_kind` FROM `cdc` AS `cdc` WHERE (`cdc`.`id` > 1)")

    def test_the_plan_as_a_string(self) -> None:
        text = show_script(plan_statements("INSERT INTO sink SELECT id, name FROM source"))

        assert text.splitlines() == [
            "insert-1-sink (streaming)",
            "  reads     source (kafka, source)",
            "  query     SELECT `source`.`id` AS `id`, `source`.`name` AS `name` FROM `source` AS `source`",
            "  writes    sink (print)",
            "            id BIGINT = id, from INT",
            "            name STRING = name",
        ]


class TestUpserts:
    """Rows that change, and the primary keys that they are written by."""

    TABLES = """
        CREATE TABLE words (word STRING, shop STRING) WITH ('connector' = 'kafka', 'topic' = 'words', 'format' = 'json',
          'scan.startup.mode' = 'earliest-offset');
        CREATE TABLE counts (word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED) WITH (
          'connector' = 'upsert-kafka', 'topic' = 'counts', 'key.format' = 'json', 'value.format' = 'json');
        CREATE TABLE by_number (word STRING, n BIGINT, PRIMARY KEY (n) NOT ENFORCED) WITH (
          'connector' = 'upsert-kafka', 'topic' = 'by-number', 'key.format' = 'json', 'value.format' = 'json');
        CREATE TABLE by_both (word STRING, n BIGINT, PRIMARY KEY (word, n) NOT ENFORCED) WITH (
          'connector' = 'upsert-kafka', 'topic' = 'by-both', 'key.format' = 'json', 'value.format' = 'json');
        CREATE TABLE shown (word STRING, n BIGINT) WITH ('connector' = 'print');
        CREATE TABLE appended (word STRING, n BIGINT) WITH ('connector' = 'kafka', 'topic' = 'a', 'format' = 'json');
    """
    LAST = "/*+ OPTIONS('scan.changelog.mode' = 'upsert') */"

    def plan_upserts(self, text: str) -> ScriptPlan:
        return plan_statements(self.TABLES + text)

    def describe_problems(self, text: str) -> list[str]:
        return [f"{code}: {message}" for code, message in problems(self.TABLES + text)]

    @pytest.mark.parametrize(
        "query",
        [
            "SELECT word, COUNT(*) FROM words GROUP BY word",
            "SELECT w.word, COUNT(*) FROM words AS w WHERE shop > 'a' GROUP BY word HAVING word > 'a'",
            "SELECT LOWER(word) AS word, COUNT(*) AS n FROM words GROUP BY LOWER(word)",
            "SELECT word, SUM(x) FROM (SELECT LOWER(word) AS word, 1 AS x FROM words) GROUP BY word",
            "WITH lower AS (SELECT LOWER(word) AS word FROM words) SELECT word, COUNT(*) FROM lower GROUP BY word",
            "SELECT 'all', COUNT(*) FROM words",
            "SELECT CAST(word AS STRING), COUNT(*) FROM words GROUP BY word",
            "SELECT word, n FROM counts WHERE n > 1",
            "SELECT word, CAST(shop AS BIGINT) FROM words",
        ],
    )
    def test_a_key_that_names_the_rows_takes_changes(self, query: str) -> None:
        (job,) = self.plan_upserts(f"INSERT INTO counts {query}").insert_jobs

        assert job.streaming
        assert job.aggregates == ("COUNT" in query or "SUM" in query)

    @pytest.mark.parametrize(
        ("sink", "query", "message"),
        [
            ("by_number", "SELECT word, n FROM counts", "can have the same primary key 'n' of by_number (which lacks"),
            ("counts", "SELECT word, COUNT(*) FROM words GROUP BY word, shop", "primary key 'word' of counts, and"),
            ("by_both", "SELECT word, COUNT(*) FROM words GROUP BY word", "may change 'n' in the primary key"),
            ("by_both", "SELECT word, n FROM counts {last}", "may change 'n' in the primary key"),
            ("by_number", "SELECT * FROM v", "can have the same primary key 'n'"),
            ("counts", "SELECT MIN(shop), COUNT(*) FROM (SELECT * FROM words) GROUP BY word", "and would replace"),
        ],
    )
    def test_a_key_that_does_not_is_refused(self, sink: str, query: str, message: str) -> None:
        view = "CREATE VIEW v (a, b) AS SELECT word, n FROM counts;"

        (error_text,) = self.describe_problems(f"{view} INSERT INTO {sink} {query.format(last=self.LAST)}")

        assert error_text.startswith("upsert-key-query: ")
        assert message in error_text

    def test_a_key_with_more_columns_is_valid_if_rows_have_before_images(self) -> None:
        (job,) = self.plan_upserts("INSERT INTO by_both SELECT word, n FROM counts").insert_jobs

        assert job.query.changelog

    def test_new_rows_have_any_key(self) -> None:
        assert self.plan_upserts("INSERT INTO by_number SELECT word, CHAR_LENGTH(shop) FROM words").insert_jobs

    @pytest.mark.parametrize(
        ("query", "code"),
        [
            ("SELECT word, COUNT(*) FROM (SELECT word, shop, COUNT(*) FROM words GROUP BY word, shop) GROUP BY word",
             "stream-several"),
            ("SELECT a.word, COUNT(*) FROM words a JOIN words b ON a.shop = b.shop GROUP BY a.word", "stream-several"),
            ("SELECT word, MIN(n) FROM counts GROUP BY word", "sql-query"),
            ("SELECT word, COUNT(DISTINCT n) FROM counts GROUP BY word", "sql-query"),
            ("SELECT word, COUNT(*) FROM (SELECT word, COUNT(*) AS n FROM counts GROUP BY word) GROUP BY word",
             "sql-query"),
            ("SELECT word, COUNT(*) FROM counts {last} GROUP BY word", "group-images"),
        ],
    )  # fmt: skip
    def test_plans_whose_changes_spark_does_not_report_are_refused(self, query: str, code: str) -> None:
        message = self.describe_problems(f"INSERT INTO counts {query.format(last=self.LAST)}")

        assert [each.partition(":")[0] for each in message] == [code]

    def test_groups_of_a_changelog_are_deleted_when_they_are_empty_or_filtered_out(self) -> None:
        query = "SELECT word, SUM(n) FROM counts GROUP BY word HAVING AVG(n) > 2"
        for source, kinds in (("counts", True), ("words", False)):
            text = query.replace("counts", source).replace("(n)", "(n)" if kinds else "(CHAR_LENGTH(shop))")
            (stream,) = self.plan_upserts(f"INSERT INTO counts {text}").insert_jobs
            (batch,) = self.plan_upserts(
                f"SET 'execution.runtime-mode' = 'batch'; INSERT INTO appended {text}"
            ).insert_jobs

            assert (stream.query.changelog, stream.images, stream.aggregates) == (True, False, True)
            assert (batch.query.changelog, "HAVING" in batch.query.text) == (False, True)
            assert ("HAVING" in stream.query.text, "'-D' END AS `_row_kind`" in stream.query.text) == (False, True)

    def test_values_computed_from_a_group_are_null_if_the_group_is_missing(self) -> None:
        query = "SELECT word, 100 / SUM(CHAR_LENGTH(shop)) FROM words GROUP BY word HAVING SUM(CHAR_LENGTH(shop)) <> 0"
        (job,) = self.plan_upserts(f"INSERT INTO counts {query}").insert_jobs

        passes = "(sum(char_length(`words`.`shop`)) <> 0)"
        text = job.query.text.lower().replace("cast(", "").replace(" as int)", "")
        assert f"if({passes.lower()}, " in text, text

    @pytest.mark.parametrize(
        ("query", "error_text"),
        [
            ("SELECT word, ROW_NUMBER() OVER (PARTITION BY word ORDER BY n) FROM counts", "cannot have OVER windows"),
            ("SELECT word, n FROM counts ORDER BY n", "ORDER BY of a changelog"),
            ("SELECT word, n FROM counts LIMIT 3", "LIMIT of a changelog"),
            ("SELECT word, 1 FROM words WHERE EXISTS (SELECT 1 FROM counts)", "cannot read a changelog"),
            ("SELECT word, 1 FROM words WHERE word IN (SELECT word FROM counts)", "cannot read a changelog"),
            ("SELECT word, (SELECT n FROM counts WHERE word = 'a') FROM words", "cannot read a changelog"),
        ],
    )
    def test_what_would_take_changes_for_rows_is_refused_in_batches_too(self, query: str, error_text: str) -> None:
        ((code, message),) = problems(
            f"{self.TABLES} SET 'execution.runtime-mode' = 'batch'; INSERT INTO counts {query}"
        )

        assert (code, error_text in message) == ("sql-query", True), message

    def test_a_nested_query_of_a_batch_takes_the_groups_of_a_changelog(self) -> None:
        nested = "SELECT word, 1 FROM words WHERE word IN (SELECT word FROM counts GROUP BY word)"

        assert self.plan_upserts(f"SET 'execution.runtime-mode' = 'batch'; INSERT INTO shown {nested}").insert_jobs

    def test_groups_of_values_are_not_a_stream(self) -> None:
        query = "SELECT word, COUNT(*) FROM (VALUES ('a'), ('a'), ('b')) AS v (word) GROUP BY word HAVING COUNT(*) > 1"
        (job,) = self.plan_upserts(f"INSERT INTO appended {query}").insert_jobs

        assert (job.query.changelog, "HAVING" in job.query.text) == (False, True)

    def test_a_group_by_what_it_is_grouped_by_never_goes(self) -> None:
        (job,) = self.plan_upserts(
            "INSERT INTO counts SELECT word, COUNT(*) FROM words GROUP BY word HAVING word > 'a'"
        ).insert_jobs

        assert not job.query.changelog

    def test_a_view_of_groups_that_go_is_what_the_mode_of_its_reader_needs(self) -> None:
        view = (
            "CREATE VIEW v AS SELECT word, COUNT(*) AS n FROM counts GROUP BY word; INSERT INTO counts SELECT * FROM v;"
        )
        stream, batch = self.plan_upserts(
            f"{view} SET 'execution.runtime-mode' = 'batch'; INSERT INTO counts SELECT * FROM v"
        ).insert_jobs

        assert (stream.query.changelog, batch.query.changelog) == (True, False)

    def test_a_view_that_a_mode_cannot_read_is_refused_with_a_reason(self) -> None:
        view = "CREATE VIEW v AS SELECT word FROM words WHERE word IN (SELECT word FROM counts);"
        ((code, message),) = problems(f"{self.TABLES} {view} SET 'execution.runtime-mode' = 'batch'; SELECT * FROM v")

        assert code == "view-mode"
        assert message.startswith("the view 'v' cannot be read as a batch: a query inside an expression cannot read")

    def test_changes_go_to_print_and_not_to_what_only_takes_new_rows(self) -> None:
        (job,) = self.plan_upserts("INSERT INTO shown SELECT * FROM counts").insert_jobs
        (message,) = self.describe_problems("INSERT INTO appended SELECT * FROM counts")

        assert job.query.changelog
        assert message.startswith("write-changelog: the query is a changelog, and the format of appended")

    def test_the_last_change_alone_has_no_values_in_a_delete(self) -> None:
        rows = [
            self.plan_upserts(f"SELECT * FROM counts {hint}").insert_jobs[0].query.columns for hint in ("", self.LAST)
        ]
        last = self.TABLES.replace("'topic' = 'counts'", "'topic' = 'counts', 'scan.changelog.mode' = 'upsert'")
        table = "CREATE TABLE m (word STRING, n BIGINT NOT NULL, PRIMARY KEY (word) NOT ENFORCED) WITH ("
        table += "'connector' = 'upsert-kafka', 'topic' = 'm', 'key.format' = 'json', 'value.format' = 'json'"
        kinds = [
            [
                str(f.type)
                for f in plan_statements(f"{last}{table}{mode}); SELECT * FROM m").insert_jobs[0].query.columns.fields
            ]
            for mode in ("", ", 'scan.changelog.mode' = 'upsert'")
        ]

        assert rows[0] == rows[1]
        assert kinds == [["STRING NOT NULL", "BIGINT NOT NULL"], ["STRING NOT NULL", "BIGINT"]]

    @pytest.mark.parametrize(
        ("query", "good"),
        [
            ("SELECT * FROM counts {last} WHERE word > 'a'", True),
            ("SELECT * FROM counts {last} AS c WHERE CHAR_LENGTH(c.word) > 1 AND 1 = 1", True),
            ("SELECT * FROM counts {last} WHERE word > 'a' AND n > 1", False),
            ("SELECT w FROM (SELECT word AS w, n AS m FROM counts {last}) WHERE m > 1", False),
            ("SELECT * FROM (SELECT word, n FROM counts {last} WHERE n IS NOT NULL) WHERE word > 'a'", False),
            ("SELECT * FROM counts WHERE n > 1", True),
        ],
    )
    def test_a_filter_of_last_changes_goes_by_the_key(self, query: str, good: bool) -> None:
        text = query.format(last=self.LAST)

        assert good or [message.partition(":")[0] for message in self.describe_problems(text)] == ["upsert-filter"]
        assert not good or self.plan_upserts(text).insert_jobs

    @pytest.mark.parametrize(
        "query",
        [
            "SELECT * FROM (SELECT word, COUNT(*) AS n FROM words GROUP BY word) WHERE n < 3",
            "SELECT * FROM (SELECT word, SUM(n) AS n FROM counts GROUP BY word) WHERE n < 3",
        ],
    )
    def test_a_group_that_no_longer_passes_a_filter_would_stay(self, query: str) -> None:
        ((code, message),) = problems(f"{self.TABLES} INSERT INTO counts {query}")

        assert code == "upsert-filter"
        assert message == "an updated row that no longer passes the filter would remain in the sink"
        assert self.plan_upserts(f"SET 'execution.runtime-mode' = 'batch'; INSERT INTO counts {query}").insert_jobs

    def test_the_plan_names_the_connector(self) -> None:
        assert "  reads     counts (upsert-kafka, counts)" in show_script(self.plan_upserts("SELECT * FROM counts"))


class TestAllProblems:
    """Every mistake of a script is reported in one go, and one mistake is one error."""

    def errors(self, text: str) -> list[str]:
        _, problems = check_script(parse_script(text), CLUSTER)
        return [f"{p.where.line}: {p.code}" for p in problems if p.severity == "error"]

    def test_a_statement_that_cannot_be_read_hides_no_other_mistake(self) -> None:
        script = """LOAD MODULE m;
            CREATE FUNCTION f AS 'x.Y';
            CREATE TABLE a (id BIGNIT) WITH ('connector' = 'kafka', 'topic' = 'a', 'format' = 'json');
            CREATE TABLE b (id INT) WITH ('connector' = 'print', 'print-identifer' = 'x');
            CREATE TABEL c (id INT);
            SELEC 1;
            INSERT INTO b SELECT nope FROM b;
            INSERT INTO nowhere SELECT id FROM a;
            SET 'execution.runtime-mode' = 'fast'"""

        assert self.errors(script) == [
            *("1: sql-statement", "2: sql-statement", "3: type-syntax", "4: option-unknown", "5: sql", "6: sql"),
            *("7: sql-query", "8: table-unknown", "9: option-value"),
        ]

    @pytest.mark.parametrize(
        "use",
        [
            "INSERT INTO lost SELECT id FROM good",
            "INSERT INTO good SELECT id FROM lost",
            "CREATE VIEW v AS SELECT id FROM lost; INSERT INTO good SELECT id FROM v",
            "CREATE TABLE other LIKE lost; INSERT INTO good SELECT id FROM other",
            "DROP TABLE lost",
        ],
    )
    @pytest.mark.parametrize(
        "lost",
        ["CREATE TABLE lost (id INT, b) WITH ('format' 'x')", "CREATE TEMPORARY TABLE IF NOT EXISTS db.lost (id INT"],
    )
    def test_statements_that_use_an_unreadable_table_are_not_reported(self, lost: str, use: str) -> None:
        good = "CREATE TABLE good (id INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json');"

        assert {error.partition(":")[2] for error in self.errors(f"CREATE {lost};\n{good} {use}")} == {" sql"}

    def test_statements_that_use_a_wrong_view_are_not_reported(self) -> None:
        assert self.errors(
            f"{TABLES}CREATE VIEW v AS SELECT nope FROM source; INSERT INTO nothing SELECT id FROM v"
        ) == ["11: sql-query"]

    def test_statements_that_use_a_wrongly_typed_column_are_not_reported(self) -> None:
        table = """CREATE TABLE t (id INT, at TIMESTAMPP(3), on_day AS CAST(at AS DATE), WATERMARK FOR at AS at)
            WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json');"""
        into = "CREATE TABLE days (id INT, d DATE) WITH ('connector' = 'print');"

        assert self.errors(f"{table} {into} INSERT INTO days SELECT id, on_day FROM t;SELECT at + 1 FROM t") == [
            "1: type-syntax"
        ]

    def test_a_sink_that_cannot_be_loaded_is_one_error_of_several(self, install_plugins: InstallPlugins) -> None:
        install_plugins({"kdsl.sinks": {"lake": "no_such_module:Lake"}})

        assert self.errors("CREATE CATALOG c WITH ('type' = 'lake');\nSELECT 1 FROM nothing") == [
            *("1: catalog-type", "2: sql-query"),
        ]

    @pytest.mark.parametrize("name", ["jdbc", "hologres", "elasticsearch-7", "filesystem"])
    def test_an_unsupported_connector_is_one_error(self, name: str) -> None:
        table = f"CREATE TABLE s (id INT PRIMARY KEY NOT ENFORCED) WITH ('connector' = '{name}', 'y' = 'z');"
        script = f"{TABLES}{table} INSERT INTO s SELECT id FROM source"

        _, problems = check_script(parse_script(script))
        (messages,) = [p for p in problems if p.where.table == "s"]
        assert messages.message == f"there is no connector {name!r}"
        for known in ("kafka", "upsert-kafka", "print", "blackhole", "datagen"):
            assert f"'{known}'" in messages.fix

    def test_a_misspelt_connector_hides_no_other_mistake(self) -> None:
        table = "CREATE TABLE s (id INT) WITH ('connector' = 'kafak', 'topc' = 's', 'topic' = 's', 'format' = 'json');"

        assert self.errors(f"{table} SELECT id FROM s") == ["1: connector", "1: option-unknown"]


class TestJoins:
    """Joins of streams: Spark runs them by equal columns, and outer ones by times that bound each other."""

    TABLES = """
        CREATE TABLE o (id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ({}'topic' = 'o');
        CREATE TABLE s (id INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts) WITH ({}'topic' = 's');
        CREATE TABLE plain (id INT, ts TIMESTAMP(3)) WITH ({}'topic' = 'p');
    """.replace("{}", "'connector' = 'kafka', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset', ")

    def codes(self, query: str) -> list[str]:
        _, problems = check_script(parse_script(f"{self.TABLES} {query}"), CLUSTER)
        return [p.code for p in problems]

    @pytest.mark.parametrize(
        "query",
        [
            "SELECT o.id FROM o, s WHERE o.id = s.id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '4' HOUR",
            "SELECT o.id FROM o, s, plain p WHERE o.id = s.id AND s.id + 1 = p.id",
            "SELECT o.id FROM o JOIN plain USING (id)",
            "SELECT o.id FROM o CROSS JOIN (VALUES (1)) v (x)",
            "SELECT o.id FROM o LEFT JOIN s ON o.id = s.id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '4' HOUR",
            "SELECT o.id FROM o LEFT JOIN s ON o.id = s.id AND s.ts - INTERVAL '1' DAY < o.ts",
            "SELECT o.id FROM o LEFT JOIN s ON o.id = s.id AND o.ts = s.ts",
            "SELECT o.id FROM o RIGHT JOIN s ON o.id = s.id AND s.ts >= o.ts",
            "SELECT o.id FROM o RIGHT JOIN s ON o.id = s.id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '1' MONTH",
            "SELECT o.id FROM o FULL JOIN s ON o.id = s.id AND s.ts >= o.ts AND s.ts < o.ts + INTERVAL '1' HOUR",
            "SELECT o.id FROM o LEFT JOIN (VALUES (1)) v (x) ON o.id = v.x",
            "WITH c (x) AS (VALUES (1)) SELECT o.id FROM o LEFT JOIN c ON o.id = c.x",
            "WITH c (x) AS (VALUES (1)) SELECT o.id FROM o LEFT JOIN (SELECT * FROM c) d ON o.id = d.x",
            "WITH c (x) AS (VALUES (1)), d AS (SELECT x FROM c) SELECT o.id FROM o LEFT JOIN d ON o.id = d.x",
            "SELECT o.id FROM o LEFT JOIN (WITH c (x) AS (VALUES (1)) SELECT * FROM c) d ON o.id = d.x",
        ],
    )
    def test_of_streams_that_run(self, query: str) -> None:
        assert self.codes(query) == []

    VIEW = """CREATE VIEW v AS SELECT o.id, o.ts, s.id AS place FROM o JOIN s
        ON o.id = s.id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '1' HOUR;"""

    def instants(self, query: str) -> dict[str, list[str]]:
        plan, problems = check_script(parse_script(f"{self.TABLES} {query}"), CLUSTER)
        assert problems == ()
        (job,) = plan.insert_jobs
        named = [(view.name, view.query) for view in job.views] + [("", job.query)]
        return {name: [f"{i.source}.{i.column}" for i in query.instants] for name, query in named}

    def test_of_streams_compare_instants_where_spark_can_use_them(self) -> None:
        bounds = "o.ts BETWEEN v.ts AND v.ts + INTERVAL '1' HOUR"

        assert self.instants(f"{self.VIEW} SELECT v.id FROM v JOIN o ON v.id = o.id AND {bounds}") == {
            "v": ["o.ts", "s.ts"],
            "": ["v.ts", "o.ts"],
        }
        assert self.instants("SELECT o.id FROM o JOIN s ON o.id = s.id") == {"": []}
        assert self.instants("SELECT o.id FROM o JOIN s ON o.id = s.id AND s.ts < o.ts + INTERVAL '1' MONTH") == {
            "": []
        }
        assert self.instants("SELECT o.id FROM o JOIN plain p ON o.id = p.id AND p.ts <= o.ts") == {"": []}
        assert self.instants("SELECT o.id FROM o LEFT JOIN (VALUES (1)) v (x) ON o.id = v.x") == {"": []}
        derived = "(VALUES (1, TIMESTAMP '2024-05-01 00:00:00')) v (id, ts)"
        assert self.instants(f"SELECT o.id FROM o JOIN {derived} ON o.id = v.id AND {bounds}") == {"": []}

    def test_aggregates_of_streams_pass_their_event_time_to_a_view_and_not_to_a_query(self) -> None:
        window = "SELECT window_start, window_end, COUNT(*) FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '1' "
        window += "HOUR)) GROUP BY window_start, window_end"
        inner = self.VIEW.partition(" AS ")[2].rstrip(";")

        assert self.codes(f"{self.VIEW} {window}") == []
        assert self.codes(f"CREATE VIEW v AS SELECT * FROM ({inner}) AS i; {window}") == ["stream-window-time"]

    @pytest.mark.parametrize(
        ("query", "code"),
        [
            ("SELECT o.id FROM o, s", "stream-join-without-equality"),
            ("SELECT o.id FROM o JOIN s ON s.ts > o.ts", "stream-join-without-equality"),
            ("SELECT o.id FROM o LEFT JOIN s ON o.id = s.id", "stream-outer-join"),
            ("SELECT o.id FROM o LEFT JOIN s ON o.id = s.id AND s.ts >= o.ts", "stream-outer-join"),
            ("SELECT o.id FROM o RIGHT JOIN s ON o.id = s.id AND s.ts < o.ts", "stream-outer-join"),
            ("SELECT o.id FROM o FULL JOIN s ON o.id = s.id AND s.ts < o.ts", "stream-outer-join"),
            (
                "SELECT o.id FROM o LEFT JOIN s ON o.id = s.id AND s.ts < o.ts + INTERVAL '1' MONTH",
                "stream-outer-join-by-interval",
            ),
            (
                "SELECT o.id FROM o FULL JOIN s ON o.id = s.id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '33' DAY",
                "stream-outer-join-by-interval",
            ),
            ("SELECT o.id FROM o LEFT JOIN plain p ON o.id = p.id AND p.ts <= o.ts", "stream-outer-join"),
            (
                "SELECT o.id FROM o LEFT JOIN (SELECT * FROM s) s ON o.id = s.id AND s.ts <= o.ts",
                "stream-outer-join-of-queries",
            ),
            ("SELECT o.id FROM o RIGHT JOIN (VALUES (1)) v (x) ON o.id = v.x", "stream-outer-join-with-a-constant"),
            (
                "WITH c (x) AS (VALUES (1)) SELECT o.id FROM (SELECT * FROM c) d LEFT JOIN o ON o.id = d.x",
                "stream-outer-join-with-a-constant",
            ),
            (
                "WITH s AS (SELECT 1 AS id), t AS (WITH s AS (SELECT * FROM o) SELECT * FROM s) "
                "SELECT o.id FROM o LEFT JOIN t ON o.id = t.id",
                "stream-outer-join",
            ),
            (
                "SELECT q.id FROM (SELECT o.id FROM o JOIN (WITH s AS (SELECT 1 AS id) SELECT id FROM s) d "
                "ON o.id = d.id) q LEFT JOIN s ON q.id = s.id",
                "stream-outer-join",
            ),
            (
                "SELECT o.id FROM o JOIN s ON CAST(o.id AS STRING) = JSON_VALUE(CAST(s.id AS STRING), '$.a' "
                "DEFAULT CAST(o.id AS STRING) ON EMPTY)",
                "stream-join-without-equality",
            ),
        ],
    )
    def test_of_streams_that_spark_cannot_run_are_refused(self, query: str, code: str) -> None:
        assert self.codes(query) == [code]
        assert self.codes(f"SET 'execution.runtime-mode' = 'batch'; {query}") == []


class TestSinks:
    KAFKA = "'connector' = 'kafka', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'"

    def problem_codes(self, text: str, cluster: Cluster | None = CLUSTER) -> list[tuple[str, str]]:
        _, problems = check_script(parse_script(text), cluster)
        return [(p.code, p.severity) for p in problems]

    @pytest.mark.parametrize(
        ("reads", "writes", "warns"),
        [
            ("'topic' = 't'", "'topic' = 't'", True),
            ("'topic' = 'a;t'", "'topic' = 't'", True),
            ("'topic-pattern' = 't.*'", "'topic' = 'ttt'", True),
            ("'topic' = 't'", "'topic' = 'u'", False),
            ("'topic-pattern' = 't.*'", "'topic' = 'u'", False),
            ("'topic' = 't', 'scan.bounded.mode' = 'latest-offset'", "'topic' = 't'", False),
            ("'topic' = 't', 'properties.bootstrap.servers' = 'x:1'",
             "'topic' = 't', 'properties.bootstrap.servers' = 'y:1'", False),
            ("'topic' = 't', 'properties.bootstrap.servers' = 'x:1,x:2'",
             "'topic' = 't', 'properties.bootstrap.servers' = 'x:2'", True),
        ],
    )  # fmt: skip
    def test_a_stream_that_reads_its_own_topic_warns(self, reads: str, writes: str, warns: bool) -> None:
        script = f"""CREATE TABLE a (id INT) WITH ({self.KAFKA}, {reads});
            CREATE TABLE b (id INT) WITH ({self.KAFKA}, {writes});
            INSERT INTO b SELECT id FROM a"""

        cluster = None if "bootstrap" in reads else CLUSTER
        assert self.problem_codes(script, cluster) == [("topic-loop", "warning")] * warns

    def test_a_table_that_names_the_brokers_of_the_command_reads_its_own_topic(self) -> None:
        script = f"""CREATE TABLE a (id INT) WITH ({self.KAFKA}, 'topic' = 't');
            CREATE TABLE b (id INT) WITH ({self.KAFKA}, 'topic' = 't', 'properties.bootstrap.servers' = 'broker:9092');
            INSERT INTO b SELECT id FROM a"""

        assert self.problem_codes(script) == [("topic-loop", "warning")]

    def test_a_pattern_that_is_wrong_is_reported_with_a_sink(self) -> None:
        script = f"""CREATE TABLE a (id INT) WITH ({self.KAFKA}, 'topic-pattern' = 'orders-[');
            CREATE TABLE derived WITH ('topic-pattern' = 'users-[') LIKE a (OVERWRITING OPTIONS);
            CREATE TABLE b (id INT) WITH ({self.KAFKA}, 'topic' = 't');
            INSERT INTO b SELECT id FROM a; INSERT INTO b SELECT id FROM derived;"""

        assert self.problem_codes(script) == [("topic-pattern", "error"), ("topic-pattern", "error")]

    @pytest.mark.parametrize("connector", ["print", "blackhole"])
    def test_a_sink_without_messages_writes_no_metadata(self, connector: str) -> None:
        source = f"CREATE TABLE a (id INT, ts TIMESTAMP_LTZ(3)) WITH ({self.KAFKA}, 'topic' = 't');"
        sink = "CREATE TABLE b (id INT, ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp'{}) WITH ('connector' = '{}');"

        message = self.problem_codes(source + sink.format("", connector) + "INSERT INTO b SELECT id, ts FROM a")
        virtual = self.problem_codes(source + sink.format(" VIRTUAL", connector) + "INSERT INTO b SELECT id FROM a")
        assert (message, virtual) == ([("metadata-sink", "error")], [])

    def test_a_primary_key_may_identify_each_record_by_its_position(self) -> None:
        columns = (
            "`offset` BIGINT NOT NULL METADATA VIRTUAL, part INT NOT NULL METADATA FROM 'partition' VIRTUAL, id INT"
        )
        table = f"CREATE TABLE a ({columns}, PRIMARY KEY ({{}}) NOT ENFORCED) WITH ({self.KAFKA}, 'topic' = '{{}}');"

        assert self.problem_codes(table.format("part, `offset`", "t") + "SELECT * FROM a") == []
        assert self.problem_codes(table.format("`offset`", "t") + "SELECT * FROM a") == [("primary-key", "error")]
        assert self.problem_codes(table.format("part, `offset`", "t;u") + "SELECT * FROM a") == [
            ("primary-key", "error")
        ]
