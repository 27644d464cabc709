"""The constructs of Flink's SQL pages, a script each: what a stream of it can do, and the rows against Flink's.

The scripts are in ``constructs``; ``constructs/record.py`` asked Flink for the rows. The tables end, so they are read
at once, and the rows that are there at the end are compared with Flink's. Whether an endless stream may run a script is
judged while planning, and not tried here.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.cluster import Cluster
from kdsl.flink_sql.ddl.script_reader import read_script
from kdsl.flink_sql.scripts.planner import check_script, plan_script
from kdsl.flink_sql.scripts.run import RunOptions, run_script
from kdsl.flink_sql.scripts.script_plan import Job
from kdsl.formats import ROW_KIND
from kdsl.testing import LocalKafka
from tests.flink_sql.scripts.constructs.record import plain

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HERE = Path(__file__).parent / "constructs"
PAGE = Path(__file__).parents[3] / "docs" / "sql-scripts.md"
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


def test_the_page_lists_every_script() -> None:
    listed = re.findall(
        r"\]\(\.\./tests/flink_sql/scripts/constructs/([\w-]+)\.sql\)", PAGE.read_text(encoding="utf-8")
    )

    assert sorted(listed) == sorted(SCRIPTS)


@pytest.fixture(scope="module")
def topics(kdsl_kafka: LocalKafka) -> str:
    """The rows of the tables in topics; what stands before the names of the tables in theirs."""
    prefix = "constructs-"
    for table, rows in ROWS.items():
        kdsl_kafka.create_topic(prefix + table)
        kdsl_kafka.produce(prefix + table, *map(json.dumps, rows))
    return prefix


@pytest.fixture
def utc(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.session.timeZone") or "UTC"
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    yield
    spark.conf.set("spark.sql.session.timeZone", before)


@pytest.mark.usefixtures("utc")
@pytest.mark.parametrize(
    "name", [name for name in SCRIPTS if "rows" in ANSWERS.get(name, {}) and not EXPECTED[name].get("batch")]
)
def test_the_rows_are_those_of_flink(name: str, spark: SparkSession, kdsl_kafka: LocalKafka, topics: str) -> None:
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    rows: list[Any] = []

    def keep(df: DataFrame, _: Job) -> None:
        assert ROW_KIND not in df.columns
        rows.extend([plain(value) for value in row] for row in df.collect())

    run_script(
        plan_script(read_script(script(name, ends=True, prefix=topics)), cluster), spark, RunOptions(cluster, show=keep)
    )

    wanted = EXPECTED[name].get("rows", ANSWERS[name].get("rows"))
    assert sorted(rows, key=json.dumps) == wanted
