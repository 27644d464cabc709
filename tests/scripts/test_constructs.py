"""The constructs of Flink's SQL pages, a script each: what a stream of it can do, and the rows against Flink's.

The scripts are in ``constructs``; ``constructs/record.py`` asked Flink for the rows. ``make test`` reads tables that
end at once, and compares the rows with Flink's; whether an endless stream may run a script is judged while planning.
``make test-reliability`` runs each of those streams, too.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.cluster import Cluster
from kdsl.ddl.script_reader import read_script
from kdsl.formats import ROW_KIND
from kdsl.scripts.planner import check_script, plan_script
from kdsl.scripts.run import RunOptions, run_script
from kdsl.scripts.script_plan import Job
from kdsl.testing import LocalKafka
from tests.scripts.constructs.record import plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent / "constructs"
SCRIPTS = {path.stem: path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.sql")) if path.stem != "tables"}
ANSWERS: dict[str, Any] = json.loads((HERE / "answers.json").read_text(encoding="utf-8"))
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((HERE / "expected.toml").read_text(encoding="utf-8"))
TABLES = (HERE / "tables.sql").read_text(encoding="utf-8")
ROWS: dict[str, list[dict[str, Any]]] = json.loads((HERE / "tables.json").read_text(encoding="utf-8"))
KAFKA = "'connector' = 'kafka', 'topic' = '{}', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset'"
CLUSTER = Cluster("broker:9092")


def script(name: str, *, ends: bool, prefix: str = "") -> str:
    end = ", 'scan.bounded.mode' = 'latest-offset'" if ends else ""
    return TABLES.format(**{table: KAFKA.format(prefix + table) + end for table in ROWS}) + SCRIPTS[name]


def refusals(name: str, *, ends: bool) -> list[str]:
    _, problems = check_script(read_script(script(name, ends=ends)), CLUSTER)
    return sorted({p.code for p in problems if p.severity == "error"})


def test_each_script_has_an_expectation_and_each_answer_a_script() -> None:
    assert set(SCRIPTS) == set(EXPECTED)
    assert set(ANSWERS) <= set(SCRIPTS)


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_refused_as_a_stream_and_over_tables_that_end(name: str) -> None:
    expected = EXPECTED[name]

    assert (refusals(name, ends=False), refusals(name, ends=True)) == (expected["stream"], expected.get("batch", []))


def write_tables(kafka: LocalKafka, prefix: str) -> None:
    """Create a topic for each table, whose name begins with a prefix, with the table's rows."""
    for table, rows in ROWS.items():
        kafka.create_topic(prefix + table)
        kafka.produce(prefix + table, *map(json.dumps, rows))


@pytest.fixture(scope="module")
def topics(kdsl_kafka: LocalKafka) -> str:
    """The rows of the tables in topics; what stands before the names of the tables in theirs."""
    prefix = "constructs-"
    write_tables(kdsl_kafka, prefix)
    return prefix


def run_together(spark: SparkSession, run: Callable[[SparkSession, str], Any], names: list[str]) -> dict[str, Any]:
    """Run scripts, some at a time, each in a session of its own; return the results, or the errors, by their names."""

    def run_one(name: str) -> Any:
        session = spark.newSession()
        session.conf.set("spark.sql.session.timeZone", "UTC")
        try:
            return run(session, name)
        except Exception as e:  # noqa: BLE001  # the test of this script reports it
            return e

    with ThreadPoolExecutor(4) as pool:
        return dict(zip(names, pool.map(run_one, names), strict=True))


ENDING = [name for name in SCRIPTS if "rows" in ANSWERS.get(name, {}) and not EXPECTED[name].get("batch")]


@pytest.fixture(scope="module")
def rows_of_batches(spark: SparkSession, kdsl_kafka: LocalKafka, topics: str) -> dict[str, Any]:
    """The rows of all scripts over tables that end; the error of a script that cannot run."""
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    def run(session: SparkSession, name: str) -> list[Any]:
        rows: list[Any] = []

        def keep(df: DataFrame, _: Job) -> None:
            assert ROW_KIND not in df.columns
            rows.extend([plain(value) for value in row] for row in df.collect())

        plan = plan_script(read_script(script(name, ends=True, prefix=topics)), cluster)
        run_script(plan, session, RunOptions(cluster, show=keep))
        return sorted(rows, key=json.dumps)

    return run_together(spark, run, ENDING)


@pytest.mark.parametrize("name", ENDING)
def test_the_rows_are_those_of_flink(name: str, rows_of_batches: dict[str, Any]) -> None:
    assert rows_of_batches[name] == EXPECTED[name].get("rows", ANSWERS[name].get("rows"))


@pytest.fixture(scope="module")
def more_topics(kdsl_kafka: LocalKafka) -> tuple[str, Callable[[], None]]:
    """As ``topics``; and a function that adds rows of 2030, which end all windows and join with none before."""
    prefix = "constructs-of-streams-"
    write_tables(kdsl_kafka, prefix)

    def end_windows() -> None:
        later: dict[str, Any] = {"ts": "2030-01-01 00:00:00", "id": 2030, "order_id": 2030, "items": ["2030"]}
        later |= dict.fromkeys(("customer", "place", "item", "bidder", "currency"), "2030")
        for table, rows in ROWS.items():
            row = {name: later.get(name, value) for name, value in rows[0].items()}
            kdsl_kafka.produce(prefix + table, json.dumps(row))

    return prefix, end_windows


@pytest.mark.reliability
def test_the_rows_of_streams_are_those_of_flink(
    spark: SparkSession, kdsl_kafka: LocalKafka, more_topics: tuple[str, Callable[[], None]], tmp_path: Path
) -> None:
    """Each script that a stream can run, with a restart: rows of an open window come once the window has ended."""
    prefix, end_windows = more_topics
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    streams = [name for name in SCRIPTS if not EXPECTED[name]["stream"] and "rows" in ANSWERS.get(name, {})]
    rows: dict[str, list[Any]] = {name: [] for name in streams}

    def run(session: SparkSession, name: str) -> None:
        def keep(df: DataFrame, _: Job) -> None:
            rows[name].extend([plain(value) for value in row] for row in df.collect())

        checkpoint = str(tmp_path / name)
        text = f"SET 'parallelism.default' = '1'; {script(name, ends=False, prefix=prefix)}"
        plan = plan_script(read_script(text), cluster, checkpoint=checkpoint)
        run_script(plan, session, RunOptions(cluster, checkpoint=checkpoint, once=True, show=keep))

    assert {*run_together(spark, run, streams).values()} == {None}
    end_windows()
    assert {*run_together(spark, run, streams).values()} == {None}

    others = {
        name: (read, wanted)
        for name in streams
        if (read := sorted((row for row in rows[name] if "2030" not in json.dumps(row)), key=json.dumps))
        != (wanted := EXPECTED[name].get("rows", ANSWERS[name]["rows"]))
    }
    assert len(streams) == 20
    assert others == {}
