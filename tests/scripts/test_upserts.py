"""Scripts with upsert tables on a real Kafka: the examples of the product's source, groups that change, restarts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import read_script
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, run_script
from kdsl.testing import LocalKafka, Record
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEEDS = Path(__file__).parents[1] / "ddl" / "data"
TEXT = (
    '{"order_id":"%s", "order_channel":"%s", "order_time":"%s", "pay_amount":"%s", "real_pay":"%s", "pay_time":"%s", '
    '"user_id":"%s", "user_name":"%s", "area_id":"%s"}'
)
BOB = (
    "202303251202020001",
    "miniAppShop",
    "2023-03-25 12:02:02",
    "60.00",
    "60.00",
    "2023-03-25 12:03:00",
    "0002",
    "Bob",
)
CINDY = (
    "202303251505050001",
    "appshop",
    "2023-03-25 15:05:05",
    "500.00",
    "400.00",
    "2023-03-25 15:10:00",
    "0003",
    "Cindy",
)
ORDERS = tuple(TEXT % order for order in ((*BOB, "330110"), (*CINDY, "330108"), (*BOB, "330111")))
KEYS = (BOB[0], CINDY[0], BOB[0])
SHOWN = {
    "Bob": "202303251202020001, miniAppShop, 2023-03-25 12:02:02, 60.0, 60.0, 2023-03-25 12:03:00, 0002, Bob, {}",
    "Cindy": "202303251505050001, appshop, 2023-03-25 15:05:05, 500.0, 400.0, 2023-03-25 15:10:00, 0003, Cindy, {}",
}


def line(kind: str, name: str, area: str) -> str:
    return f"{kind}[{SHOWN[name].format(area)}]"


# Huawei's page prints these with misprints; see docs/differences.md.
CHANGES = {
    "Bob": [line("+I", "Bob", "330110"), line("-U", "Bob", "330110"), line("+U", "Bob", "330111")],
    "Cindy": [line("+I", "Cindy", "330108")],
}


def run(spark: SparkSession, text: str, kafka: LocalKafka, **more: Any) -> None:
    cluster = Cluster(kafka.bootstrap_servers)
    plan = plan_script(read_script(text), cluster, checkpoint=more.get("checkpoint"))
    run_script(plan, spark, RunOptions(cluster, once=True, **more))


def adapt_script(name: str, *topics: str) -> str:
    """An example of the page, with topics that there are instead of ``KafkaTopic``."""
    first, *others = (SEEDS / f"{name}.sql").read_text(encoding="utf-8").split("'KafkaTopic'")
    assert len(others) == len(topics)
    return "".join([first, *(f"'{topic}'{rest}" for topic, rest in zip(topics, others, strict=True))])


def changelog_lines(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return [text for text in capfd.readouterr().out.splitlines() if text[:3] in ("+I[", "-U[", "+U[", "-D[")]


def by_name(lines: list[str], index: int = 7) -> dict[str, list[str]]:
    results: dict[str, list[str]] = {}
    for text in lines:
        results.setdefault(text[3:-1].split(", ")[index], []).append(text)
    return results


class TestTheExamplesOfThePage:
    @pytest.mark.parametrize("mode", [pytest.param("streaming", marks=pytest.mark.reliability), "batch"])
    def test_orders_are_printed_as_a_changelog(
        self, mode: str, spark: SparkSession, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic,
        capfd: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *(Record(text, key=key) for text, key in zip(ORDERS, KEYS, strict=True)))

        run(spark, f"SET 'execution.runtime-mode' = '{mode}'; {adapt_script('004-example-1', topic)}", kdsl_kafka)

        assert by_name(changelog_lines(capfd)) == CHANGES

    def test_a_restart_in_the_middle_continues_with_the_previous_rows(
        self, spark: SparkSession, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, tmp_path: Path,
        capfd: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        topic = kdsl_topic()
        records = [Record(text, key=key) for text, key in zip(ORDERS, KEYS, strict=True)]
        seen = []
        for some in (records[:2], records[2:]):
            kdsl_kafka.produce(topic, *some)
            run(spark, adapt_script("004-example-1", topic), kdsl_kafka, checkpoint=str(tmp_path))
            seen.append(by_name(changelog_lines(capfd)))

        assert seen == [{"Bob": CHANGES["Bob"][:1], "Cindy": CHANGES["Cindy"]}, {"Bob": CHANGES["Bob"][1:]}]

    def test_orders_become_rows_by_their_key(
        self, spark: SparkSession, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic
    ) -> None:
        source, sink = kdsl_topic("orders"), kdsl_topic("by-key", partitions=2)
        kdsl_kafka.produce(source, *ORDERS)

        run(spark, adapt_script("004-example-2", source, sink).replace("latest-offset", "earliest-offset"), kdsl_kafka)

        records = [(r.key(), json.loads(r.value() or b"")) for r in kdsl_kafka.read(sink)]
        expected = [json.loads(text) | {"pay_amount": p, "real_pay": r} for text, (p, r) in zip(
            ORDERS, ((60.0, 60.0), (500.0, 400.0), (60.0, 60.0)), strict=True
        )]  # fmt: skip
        assert [value for key, value in records if key == BOB[0].encode()] == [expected[0], expected[2]]
        assert [value for key, value in records if key == CINDY[0].encode()] == [expected[1]]
        assert [list(value) for _, value in records] == [list(json.loads(ORDERS[0]))] * 3


class TestChanges:
    TABLES = """
        SET 'parallelism.default' = '1';
        CREATE TABLE words (word STRING, shop STRING) WITH ('connector' = 'kafka', 'topic' = '{words}',
          'format' = 'json', 'scan.startup.mode' = 'earliest-offset', 'scan.max-records-per-trigger' = '2');
        CREATE TABLE counts (word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED) WITH (
          'connector' = 'upsert-kafka', 'topic' = '{counts}', 'key.format' = 'json', 'value.format' = 'json');
        CREATE TABLE big (word STRING, n BIGINT, PRIMARY KEY (word) NOT ENFORCED) WITH (
          'connector' = 'upsert-kafka', 'topic' = '{big}', 'key.format' = 'raw', 'value.format' = 'json');
        CREATE TABLE shown (word STRING, n BIGINT) WITH ('connector' = 'print');
    """

    def test_a_group_without_a_window_is_written_as_it_changes(
        self, spark: SparkSession, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, tmp_path: Path,
        capfd: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        topics = {name: kdsl_topic(name) for name in ("words", "counts", "big")}
        text = self.TABLES.format(**topics) + (
            "CREATE VIEW lower AS SELECT LOWER(word) AS word FROM words;"
            "INSERT INTO counts SELECT word, COUNT(*) FROM lower GROUP BY word;"
            "INSERT INTO big SELECT word, n FROM counts WHERE n > 1;"
            "INSERT INTO shown SELECT * FROM big;"
        )
        for words in (("a", "B", "A", "c"), ("a", "b")):
            kdsl_kafka.produce(topics["words"], *(json.dumps({"word": word}) for word in words))
            run(spark, text, kdsl_kafka, checkpoint=str(tmp_path))

        assert by_name(changelog_lines(capfd), 0) == {
            "a": ["+I[a, 2]", "-U[a, 2]", "+U[a, 3]"],
            "b": ["+I[b, 2]"],
        }
        counts: dict[bytes | None, list[Any]] = {}
        for record in kdsl_kafka.read(topics["counts"]):
            counts.setdefault(record.key(), []).append(json.loads(record.value() or b"")["n"])
        assert counts == {b'{"word":"a"}': [1, 2, 3], b'{"word":"b"}': [1, 2], b'{"word":"c"}': [1]}

    @pytest.mark.reliability
    def test_groups_of_a_changelog_retract_old_rows_and_disappear_when_empty_or_filtered_out(
        self, spark: SparkSession, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, tmp_path: Path,
        capfd: pytest.CaptureFixture[str],
    ) -> None:  # fmt: skip
        users, regions = kdsl_topic("users"), kdsl_topic("regions")
        moves = [
            (1, "Ulm", 5), (2, "Ulm", 8), (3, "Bern", -128), (4, "Rom", None), (5, "Oslo", 1),
            (1, "Bern", 6), (5, None, 0), (4, "Rom", 3), (2, "Rom", 7), (6, "Ulm", 2),
        ]  # fmt: skip
        records = [
            Record(
                None if region is None else json.dumps({"id": n, "region": region, "visits": visits}), f'{{"id":{n}}}'
            )
            for n, region, visits in moves
        ]
        kdsl_kafka.produce(users, *records)
        columns = "region STRING, n BIGINT NOT NULL, visits TINYINT, average TINYINT, each DOUBLE"
        tables = f"""
            SET 'parallelism.default' = '1';
            CREATE TABLE users (id INT, region STRING, visits TINYINT, PRIMARY KEY (id) NOT ENFORCED) WITH (
              'connector' = 'upsert-kafka', 'topic' = '{users}', 'key.format' = 'json', 'value.format' = 'json',
              'scan.max-records-per-trigger' = '5');
            CREATE TABLE regions ({columns}, PRIMARY KEY (region) NOT ENFORCED) WITH (
              'connector' = 'upsert-kafka', 'topic' = '{regions}', 'key.format' = 'json', 'value.format' = 'json');
            CREATE TABLE shown ({columns}) WITH ('connector' = 'print');
        """
        groups = """
            SELECT region, COUNT(*), SUM(visits), AVG(visits), CAST(SUM(visits) AS DOUBLE) / COUNT(*) FROM users
            WHERE id > 0 GROUP BY region HAVING CAST(SUM(visits) AS DOUBLE) / COUNT(*) > -60;
        """

        run(spark, f"{tables} INSERT INTO regions {groups}", kdsl_kafka, checkpoint=str(tmp_path))
        run(spark, f"SET 'execution.runtime-mode' = 'batch'; {tables} INSERT INTO shown {groups}", kdsl_kafka)
        in_batch = by_name(changelog_lines(capfd), 0)
        run(spark, f"{tables} INSERT INTO shown SELECT * FROM regions", kdsl_kafka)

        assert by_name(changelog_lines(capfd), 0) == {
            "Ulm": ["+I[Ulm, 2, 13, 6, 6.5]", "-U[Ulm, 2, 13, 6, 6.5]", "+U[Ulm, 1, 2, 2, 2.0]"],
            "Rom": ["+I[Rom, 2, 10, 5, 5.0]"],
            "Oslo": ["+I[Oslo, 1, 1, 1, 1.0]", "-D[Oslo, 1, 1, 1, 1.0]"],
        }
        assert in_batch == {"Ulm": ["+I[Ulm, 1, 2, 2, 2.0]"], "Rom": ["+I[Rom, 2, 10, 5, 5.0]"]}

    @pytest.mark.reliability
    def test_deletes_go_through(
        self, spark: SparkSession, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, capfd: pytest.CaptureFixture[str]
    ) -> None:
        topics = {name: kdsl_topic(name) for name in ("words", "counts", "big")}
        rows = [('{"word":"a","n":1}', "a"), ('{"word":"b","n":2}', "b"), (None, "a"), (None, "z")]
        kdsl_kafka.produce(topics["counts"], *(Record(value, key=f'{{"word":"{key}"}}') for value, key in rows))
        text = self.TABLES.format(**topics) + "INSERT INTO big SELECT * FROM counts; INSERT INTO shown TABLE counts;"

        run(spark, text, kdsl_kafka)

        results = {(r.key(), r.value()) for r in kdsl_kafka.read(topics["big"])}
        assert results == {(b"a", b'{"word":"a","n":1}'), (b"b", b'{"word":"b","n":2}'), (b"a", None)}
        assert by_name(changelog_lines(capfd), 0) == {"a": ["+I[a, 1]", "-D[a, 1]"], "b": ["+I[b, 2]"]}

    @pytest.mark.reliability
    def test_windows_return_only_their_last_result(
        self, spark: SparkSession, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, tmp_path: Path
    ) -> None:
        source, sink = kdsl_topic("timed"), kdsl_topic("sink")
        rows = [{"word": "a", "at": f"2026-01-01 00:{minute:02}:30"} for minute in (0, 0, 1, 5)]
        kdsl_kafka.produce(source, *map(json.dumps, rows))
        text = f"""
            SET 'parallelism.default' = '1';
            CREATE TABLE timed (word STRING, `at` TIMESTAMP(3), WATERMARK FOR `at` AS `at`) WITH (
              'connector' = 'kafka', 'topic' = '{source}', 'format' = 'json',
              'scan.startup.mode' = 'earliest-offset', 'scan.max-records-per-trigger' = '1');
            CREATE TABLE sums (word STRING, begins TIMESTAMP(3), n BIGINT, PRIMARY KEY (word, begins) NOT ENFORCED)
              WITH ('connector' = 'upsert-kafka', 'topic' = '{sink}', 'key.format' = 'json', 'value.format' = 'json');
            INSERT INTO sums SELECT word, window_start, COUNT(*)
              FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(`at`), INTERVAL '1' MINUTE))
              GROUP BY word, window_start, window_end;
        """

        run(spark, text, kdsl_kafka, checkpoint=str(tmp_path))

        results = [json.loads(r.value() or b"") for r in kdsl_kafka.read(sink)]
        assert [(row["begins"], row["n"]) for row in results] == [
            ("2026-01-01 00:00:00", 2),
            ("2026-01-01 00:01:00", 1),
        ]
