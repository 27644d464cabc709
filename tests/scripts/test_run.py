"""Scripts on a real Kafka: what ``kdsl run`` does with them, and what ``print`` prints."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl.cli.run import show, show_json
from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import read_script
from kdsl.demo import MESSAGES
from kdsl.errors import KdslError
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, ScriptError, run_script
from kdsl.testing import LocalKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.managed_session import refuse_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATA = Path(__file__).parent / "data"
EXAMPLES = Path(__file__).parents[2] / "examples" / "sql"
ORDERS = """
CREATE TABLE ordersSource (
  order_id string, order_channel string, order_time timestamp(3), pay_amount double, real_pay double,
  pay_time string, user_id string, user_name string, area_id string
) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'properties.group.id' = 'GroupId',
  'scan.startup.mode' = 'earliest-offset', 'format' = 'json');
CREATE TABLE ordersSink (
  order_id string, order_channel string, order_time timestamp(3), pay_amount double, real_pay double,
  pay_time string, user_id string, user_name string, area_id string
) WITH ('connector' = 'print');
INSERT INTO ordersSink SELECT * FROM ordersSource;
"""


def run(
    spark: SparkSession, text: str, kafka: LocalKafka | None = None, *, once: bool = True, checkpoint: str | None = None
) -> None:
    cluster = None if kafka is None else Cluster(kafka.bootstrap_servers)
    plan = plan_script(read_script(text), cluster, checkpoint=checkpoint)
    run_script(plan, spark, RunOptions(cluster, once=once, checkpoint=checkpoint))


class TestOnKafka:
    @pytest.mark.parametrize("mode", ["streaming", "batch"])
    def test_orders_print_as_flink_prints_them(
        self,
        mode: str,
        spark: SparkSession,
        kdsl_kafka: LocalKafka,
        kdsl_topic: MakeTopic,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *MESSAGES)

        script = (EXAMPLES / "show.sql").read_text(encoding="utf-8").replace("'orders'", f"'{topic}'")
        run(spark, f"SET 'execution.runtime-mode' = '{mode}'; {script}", kdsl_kafka)

        printed = [line for line in capfd.readouterr().out.splitlines() if line.startswith("order> ")]
        assert printed == (DATA / "show.txt").read_text(encoding="utf-8").splitlines()

    def test_a_checkpoint_continues_where_it_ended(
        self,
        spark: SparkSession,
        kdsl_kafka: LocalKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
    ) -> None:
        source, sink = kdsl_topic("source"), kdsl_topic("sink")
        text = f"""
            CREATE TABLE a (id INT, name STRING, age INT) WITH ('connector' = 'kafka', 'topic' = '{source}',
              'scan.startup.mode' = 'earliest-offset', 'format' = 'csv');
            CREATE TABLE b (id BIGINT, name STRING, age INT) WITH ('connector' = 'kafka', 'topic' = '{sink}',
              'format' = 'json');
            CREATE VIEW grown AS SELECT id, UPPER(name) AS name, age / 2 AS half FROM a WHERE age > 17;
            INSERT INTO b SELECT * FROM grown;
        """
        for rows in (("1,Ann,31", "2,Bob,9"), ("3,Cid,44",)):
            kdsl_kafka.produce(source, *rows)
            run(spark, text, kdsl_kafka, checkpoint=str(tmp_path))

        assert [json.loads(r.value() or b"") for r in kdsl_kafka.read(sink)] == [
            {"id": 1, "name": "ANN", "age": 15},
            {"id": 3, "name": "CID", "age": 22},
        ]

    def test_the_inserts_of_a_statement_set_run_together_and_keep_their_checkpoints(
        self,
        spark: SparkSession,
        kdsl_kafka: LocalKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
    ) -> None:
        source, other, sink = kdsl_topic("source"), kdsl_topic("other"), kdsl_topic("sink")
        options = "'connector' = 'kafka', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json', 'topic' = "
        tables = "".join(
            f"CREATE TABLE {name} (id INT) WITH ({options}'{topic}');"
            for name, topic in (("a", source), ("b", other), ("s", sink))
        )
        inserts = ["INSERT INTO s SELECT id FROM a;", "INSERT INTO s SELECT id + 100 FROM b;"]
        lines: list[str] = []
        for number, statements in enumerate((inserts, inserts[::-1], ["INSERT INTO s SELECT -id FROM b;", *inserts])):
            for topic in (source, other):
                kdsl_kafka.produce(topic, json.dumps({"id": number}))
            text = f"{tables} EXECUTE STATEMENT SET BEGIN {' '.join(statements)} END;"
            plan = plan_script(read_script(text), Cluster(kdsl_kafka.bootstrap_servers), checkpoint=str(tmp_path))
            assert len({job.group for job in plan.jobs}) == 1
            shared = RunOptions(
                Cluster(kdsl_kafka.bootstrap_servers),
                once=True,
                checkpoint=str(tmp_path),
                report_progress=lines.append,
            )
            run_script(plan, spark, shared)

        assert lines[:2] == ["insert-1-s: started", "insert-2-s: started"]
        written = Counter(json.loads(r.value() or b"")["id"] for r in kdsl_kafka.read(sink))
        assert written == Counter([0, 1, 2, 100, 101, 102, 0, -1, -2])

    def test_an_unreadable_record_ends_the_script_with_its_location(
        self, spark: SparkSession, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "{")

        with pytest.raises(ScriptError, match=r"insert-1-ordersSink failed: .*partition 0, offset 0"):
            run(spark, ORDERS.format(topic=topic), kdsl_kafka)


class TestJoins:
    """Joins of streams: rows without a partner come when a watermark has passed the time at which one could come."""

    @pytest.mark.parametrize(
        ("kind", "joins"),
        [
            ("TIMESTAMP(3)", {"comma": "FROM o, s WHERE", "full": "FROM o FULL JOIN s ON"}),
            ("TIMESTAMP_LTZ(3)", {"left": "FROM o LEFT JOIN s ON", "right": "FROM o RIGHT JOIN s ON"}),
        ],
    )
    @pytest.mark.reliability
    def test_interval_joins(
        self,
        kind: str,
        joins: dict[str, str],
        spark: SparkSession,
        kdsl_kafka: LocalKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
    ) -> None:
        orders, shipments = kdsl_topic("orders"), kdsl_topic("shipments")
        sinks = {name: kdsl_topic(name) for name in joins}
        zone = "Z" if "LTZ" in kind else ""
        options = "'connector' = 'kafka', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json', 'topic' = "
        script = "".join(
            f"CREATE TABLE {name} (id INT, ts {kind}, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND) "
            f"WITH ({options}'{topic}');"
            for name, topic in (("o", orders), ("s", shipments))
        )
        condition = "o.id = s.id AND s.ts BETWEEN o.ts AND o.ts + INTERVAL '4' HOUR"
        for name, sink in sinks.items():
            script += f"CREATE TABLE {name}_sink (o INT, s INT) WITH ({options}'{sink}');"
        inserts = [f"INSERT INTO {name}_sink SELECT o.id, s.id {join} {condition};" for name, join in joins.items()]
        script += f"SET 'parallelism.default' = '1'; EXECUTE STATEMENT SET BEGIN {' '.join(inserts)} END;"

        def send(topic: str, *rows: tuple[int, str]) -> None:
            kdsl_kafka.produce(topic, *(json.dumps({"id": i, "ts": f"2024-05-{at}:00{zone}"}) for i, at in rows))

        send(orders, (1, "01 08:00"), (2, "01 08:01"), (3, "01 08:04"))
        send(shipments, (1, "01 08:30"), (3, "01 14:00"), (9, "01 15:00"))
        run(spark, script, kdsl_kafka, checkpoint=str(tmp_path))
        for topic in (orders, shipments):
            send(topic, (77, "02 20:00"))
        run(spark, script, kdsl_kafka, checkpoint=str(tmp_path))

        rows: dict[str, Counter[tuple[int | None, int | None]]] = {}
        for name, sink in sinks.items():
            pairs = [(row["o"], row["s"]) for r in kdsl_kafka.read(sink) for row in [json.loads(r.value() or b"")]]
            rows[name] = Counter(pair for pair in pairs if pair != (77, 77))
        left, right = ((2, None), (3, None)), ((None, 3), (None, 9))
        wanted: dict[str, list[tuple[int | None, int | None]]] = {
            "comma": [(1, 1)],
            "left": [(1, 1), *left],
            "right": [(1, 1), *right],
            "full": [(1, 1), *left, *right],
        }
        assert rows == {name: Counter(wanted[name]) for name in joins}


class TestGeneratedRows:
    GEN = """
        CREATE TABLE gen (id INT, code CHAR(5), part DECIMAL(4, 2), few TINYINT, never INT,
          ts AS TIMESTAMP '2024-01-01 00:00:00' + INTERVAL '1' SECOND * id,
          WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
        ) WITH ('connector' = 'datagen', 'fields.id.kind' = 'sequence', 'fields.id.start' = '1',
          'fields.id.end' = '25', 'fields.part.min' = '-1', 'fields.part.max' = '1', 'fields.few.min' = '3',
          'fields.few.max' = '4', 'fields.never.null-rate' = '1');
        CREATE TABLE shown (a BIGINT, b STRING) WITH ('connector' = 'print', 'print-identifier' = 'x');
    """

    def rows_in_output(self, capfd: pytest.CaptureFixture[str]) -> list[str]:
        return sorted(line for line in capfd.readouterr().out.splitlines() if line.startswith("x> "))

    def test_rows_keep_to_their_options(self, spark: SparkSession, capfd: pytest.CaptureFixture[str]) -> None:
        run(
            spark,
            f"""{self.GEN} SET 'execution.runtime-mode' = 'batch';
            INSERT INTO shown SELECT COUNT(*), CAST(MIN(id) AS STRING) || ' ' || CAST(MAX(id) AS STRING) || ' '
              || CAST(MIN(CHAR_LENGTH(code)) AS STRING) || ' ' || CAST(MIN(few) AS STRING) || ' '
              || CAST(MAX(few) AS STRING) || ' ' || CAST(COUNT(never) AS STRING)
            FROM gen WHERE part BETWEEN -1 AND 1""",
        )

        assert self.rows_in_output(capfd) == ["x> +I[25, 1 25 5 3 4 0]"]

    @pytest.mark.parametrize(
        ("least", "most"),
        [(-(2**63), 2**63 - 2), (1 - 2**63, 2**63 - 1), (-(2**61), 2**63 - 1), (-5, 2**60), (-(2**63), 2**63 - 1)],
    )
    def test_random_integers_fill_a_wide_range_evenly(self, spark: SparkSession, least: int, most: int) -> None:
        bounds = f"'fields.id.min' = '{least}', 'fields.id.max' = '{most}'"
        script = f"CREATE TABLE wide (id BIGINT) WITH ('connector' = 'datagen', {bounds}); SELECT id FROM wide"
        generated = plan_script(read_script(script)).insert_jobs[0].tables["wide"].generated
        assert generated is not None

        rows = spark.range(8000).toDF("value").selectExpr(generated.columns["id"]).collect()

        assert all(least <= row.id <= most for row in rows)
        quarters = Counter((row.id - least) * 4 // (most - least + 1) for row in rows)
        assert all(1700 < quarters[i] < 2300 for i in range(4))  # 2000 each, with a standard deviation of 39

    def test_the_windows_of_a_table_that_ends_come_all(
        self, spark: SparkSession, capfd: pytest.CaptureFixture[str]
    ) -> None:
        run(
            spark,
            f"""{self.GEN} INSERT INTO shown SELECT COUNT(*), CAST(window_start AS STRING)
            FROM TABLE(TUMBLE(TABLE gen, DESCRIPTOR(ts), INTERVAL '10' SECONDS)) GROUP BY window_start, window_end""",
            once=False,
        )

        assert self.rows_in_output(capfd) == [
            "x> +I[10, 2024-01-01 00:00:10.000]",
            "x> +I[6, 2024-01-01 00:00:20.000]",
            "x> +I[9, 2024-01-01 00:00:00.000]",
        ]

    WINDOWS = """
        CREATE VIEW instants AS SELECT CAST(ts AS TIMESTAMP_LTZ(3)) AS at FROM gen;
        CREATE VIEW windows AS SELECT window_start FROM TABLE({}) GROUP BY window_start, window_end;
        SET 'execution.runtime-mode' = 'batch'; SET 'table.local-time-zone' = '{}';
        INSERT INTO shown SELECT COUNT(*), CAST(MIN(window_start) AS STRING) FROM windows;
    """

    @pytest.mark.parametrize(
        ("zone", "window"),
        [
            ("Europe/Berlin", "TUMBLE(TABLE instants, DESCRIPTOR(at), INTERVAL '1' DAY)"),
            ("Asia/Kolkata", "TUMBLE(TABLE instants, DESCRIPTOR(at), INTERVAL '7' MINUTES)"),
            ("Asia/Kolkata", "CUMULATE(TABLE instants, DESCRIPTOR(at), INTERVAL '10' MINUTES, INTERVAL '1' HOUR)"),
        ],
    )
    def test_windows_that_begin_elsewhere_in_flink_are_refused(
        self, zone: str, window: str, spark: SparkSession
    ) -> None:
        with pytest.raises(KdslError, match=f"would begin at midnight in UTC and not in {zone}; CAST the time"):
            run(spark, self.GEN + self.WINDOWS.format(window, zone))

    def test_the_error_of_a_session_that_does_not_allow_settings_has_the_line_to_add(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refuse_settings(spark, monkeypatch)
        window = "TUMBLE(TABLE instants, DESCRIPTOR(at), INTERVAL '1' HOUR)"
        with pytest.raises(KdslError, match=r"^a SET statement of the script needs the setting") as raised:
            run(spark, self.GEN + self.WINDOWS.format(window, "Asia/Tokyo"))

        assert "\n    spark.sql.session.timeZone Asia/Tokyo\nto the Spark configuration" in str(raised.value)

    @pytest.mark.parametrize(
        ("zone", "window", "first"),
        [
            ("Asia/Shanghai", "TUMBLE(TABLE instants, DESCRIPTOR(at), INTERVAL '1' HOUR)", "[1, 2024-01-01 00:00"),
            (
                "Asia/Kolkata",
                "HOP(TABLE instants, DESCRIPTOR(at), INTERVAL '30' MINUTES, INTERVAL '1' HOUR)",
                "[2, 2023-12-31 23:30",
            ),
        ],
    )
    def test_windows_that_begin_as_in_flink_run_in_any_time_zone(
        self, zone: str, window: str, first: str, spark: SparkSession, capfd: pytest.CaptureFixture[str]
    ) -> None:
        run(spark, self.GEN + self.WINDOWS.format(window, zone))

        (row,) = self.rows_in_output(capfd)
        assert row == f"x> +I{first}:00.000]"

    @pytest.mark.parametrize(
        "sessions",
        [
            "SELECT COUNT(*), CAST(window_start AS STRING) FROM TABLE(SESSION(TABLE few, DESCRIPTOR(ts), "
            "INTERVAL '2' SECONDS)) GROUP BY window_start, window_end",
            pytest.param(
                "SELECT COUNT(*), CAST(SESSION_START(ts, INTERVAL '2' SECONDS) AS STRING) FROM few "
                "GROUP BY SESSION(ts, INTERVAL '2' SECONDS)",
                marks=pytest.mark.reliability,
            ),
        ],
    )
    def test_sessions_of_all_rows_of_a_stream(
        self, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], sessions: str
    ) -> None:
        run(
            spark,
            f"{self.GEN} CREATE VIEW few AS SELECT ts FROM gen WHERE id NOT IN (4, 5, 9, 10, 11);"
            f"SET 'parallelism.default' = '1'; INSERT INTO shown {sessions}",
            checkpoint=str(tmp_path),
        )

        assert self.rows_in_output(capfd) == [
            "x> +I[3, 2024-01-01 00:00:01.000]",
            "x> +I[3, 2024-01-01 00:00:06.000]",
        ]

    def test_windows_of_a_stream_that_grow(
        self, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        run(
            spark,
            f"""{self.GEN} SET 'parallelism.default' = '1'; INSERT INTO shown
            SELECT COUNT(*), CAST(window_start AS STRING) || ' ' || CAST(window_end AS STRING)
            FROM TABLE(CUMULATE(TABLE gen, DESCRIPTOR(ts), INTERVAL '5' SECONDS, INTERVAL '10' SECONDS))
            GROUP BY window_start, window_end""",
            checkpoint=str(tmp_path),
        )

        assert self.rows_in_output(capfd) == [
            "x> +I[10, 2024-01-01 00:00:10.000 2024-01-01 00:00:20.000]",
            "x> +I[4, 2024-01-01 00:00:00.000 2024-01-01 00:00:05.000]",
            "x> +I[5, 2024-01-01 00:00:10.000 2024-01-01 00:00:15.000]",
            "x> +I[9, 2024-01-01 00:00:00.000 2024-01-01 00:00:10.000]",
        ]

    @pytest.mark.reliability
    def test_a_view_of_an_interval_join_is_windowed_and_joined(
        self, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        other = self.GEN.replace("TABLE gen", "TABLE other").partition("CREATE TABLE shown")[0]
        bounds = "{0}.id = {1}.id AND {1}.ts BETWEEN {0}.ts AND {0}.ts + INTERVAL '1' SECOND"
        run(
            spark,
            f"""{self.GEN} {other} SET 'parallelism.default' = '1';
            CREATE VIEW v AS SELECT gen.id, gen.ts FROM gen JOIN other ON {bounds.format("gen", "other")};
            INSERT INTO shown SELECT COUNT(*), CAST(window_start AS STRING)
            FROM TABLE(TUMBLE(TABLE v, DESCRIPTOR(ts), INTERVAL '10' SECONDS)) GROUP BY window_start, window_end;
            INSERT INTO shown SELECT v.id, 'joined' FROM v JOIN other p ON {bounds.format("v", "p")} WHERE p.id > 24""",
            checkpoint=str(tmp_path),
        )

        assert self.rows_in_output(capfd) == [
            "x> +I[10, 2024-01-01 00:00:10.000]",
            "x> +I[25, joined]",
            "x> +I[9, 2024-01-01 00:00:00.000]",
        ]

    def test_a_stream_counts_on_from_its_checkpoint(
        self, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        for _ in range(2):
            run(
                spark,
                f"{self.GEN} SET 'parallelism.default' = '1';"
                "INSERT INTO shown SELECT id, CAST(TUMBLE_END(ts, INTERVAL '1' HOUR) AS STRING) FROM gen "
                "GROUP BY id, TUMBLE(ts, INTERVAL '1' HOUR);"
                "INSERT INTO shown SELECT id, 'x' FROM gen WHERE id > 23",
                checkpoint=str(tmp_path),
            )

        assert self.rows_in_output(capfd) == ["x> +I[24, x]", "x> +I[25, x]"]

    def test_rows_of_a_select_are_not_cut_in_a_pipe(
        self, spark: SparkSession, capsys: pytest.CaptureFixture[str]
    ) -> None:
        plan = plan_script(read_script(f"SELECT '{'x' * 300}' AS a, CAST(NULL AS INT) AS b, DATE '2024-05-01' AS c"))

        run_script(plan, spark, RunOptions(show=show))
        run_script(plan, spark, RunOptions(show=show_json))

        *table, line = capsys.readouterr().out.splitlines()
        assert any("x" * 300 in row for row in table)
        assert json.loads(line) == {"a": "x" * 300, "b": None, "c": "2024-05-01"}

    def test_a_plan_that_reads_at_once_keeps_no_progress(self, spark: SparkSession, tmp_path: Path) -> None:
        plan = plan_script(read_script(f"{self.GEN} SELECT id FROM gen"))

        with pytest.raises(KdslError, match="planned without a checkpoint"):
            run_script(plan, spark, RunOptions(checkpoint=str(tmp_path)))

    def test_a_session_that_is_not_in_ansi_mode_is_refused(self, spark: SparkSession) -> None:
        spark.conf.set("spark.sql.ansi.enabled", "false")
        try:
            with pytest.raises(Exception, match="ANSI mode"):
                run(spark, "SELECT 1")
        finally:
            spark.conf.unset("spark.sql.ansi.enabled")
