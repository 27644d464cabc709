from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl import Cluster, Col, Json, KafkaTable
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

THEIR_TEST = """
def test_topics_are_their_own(kdsl_kafka, kdsl_topic):
    first, second = kdsl_topic(), kdsl_topic("orders", partitions=3)
    kdsl_kafka.produce(first, "hello")

    assert first.startswith("test_topics_are_their_own-")
    assert second.startswith("orders-")
    assert kdsl_kafka.end_offsets(second) == {0: 0, 1: 0, 2: 0}
    assert [message.value() for message in kdsl_kafka.read(first)] == [b"hello"]
"""

LIGHT = """
import sys
import kdsl.testing.pytest_plugin
print(sorted({"pyspark", "confluent_kafka", "pyarrow", "pandas", "polars", "rich"} & sys.modules.keys()))
"""


def _run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    plugin = () if entry_points(group="pytest11", name="kdsl") else ("-p", "kdsl.testing.pytest_plugin")
    root = Path(__file__).parents[2]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *plugin, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "formats")]), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.kafka
def test_the_fixtures_work_in_a_project_of_others(kdsl_kafka: RunningKafka, tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(THEIR_TEST)

    done = _run(tmp_path, "-q", KDSL_TEST_BOOTSTRAP=kdsl_kafka.bootstrap_servers)

    assert done.returncode == 0, done.stdout
    assert "1 passed" in done.stdout
    left = kdsl_kafka.admin().list_topics(timeout=60).topics
    assert not [name for name in left if re.fullmatch(r"(test_topics_are_their_own|orders)-[0-9a-f]{8}", name)]


@pytest.mark.kafka
def test_a_kafka_is_started_with_the_properties_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nkdsl_properties =\n    auto.create.topics.enable = true\n")
    (tmp_path / "test_theirs.py").write_text(
        "def test_made_by_writing(kdsl_kafka):\n    assert kdsl_kafka.produce('new', 'x') == [(0, 0)]\n"
    )

    done = _run(tmp_path, "-q", KDSL_TEST_BOOTSTRAP="")

    assert done.returncode == 0, done.stdout


def test_the_options_are_explained(tmp_path: Path) -> None:
    assert "--kdsl-bootstrap=HOST:PORT" in _run(tmp_path, "--help").stdout


def test_a_run_without_kafka_imports_nothing_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest"):
    order_id: Col[str]


def test_a_subclass_reads_the_topic_of_a_test(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    class Here(Orders, topic=kdsl_topic(partitions=2)):
        """The same table on the topic of this test."""

    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    Here.write(Here.rows([Here(order_id="a")], spark=spark), cluster)

    assert [row.order_id for row in Here.collect(Here.read(spark, cluster))] == ["a"]


CASES = """
table: |
  CREATE TABLE t (id INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json')
cases:
  - {name: good, messages: [{value: {id: 1}}], expect: {rows: [{id: 1}]}}
  - {name: bad one, messages: [{value: {id: 1}}], expect: {rows: [{id: 2}]}}
"""


class TestCases:
    def test_they_are_tests_only_where_the_project_or_the_command_line_says_so(self, tmp_path: Path) -> None:
        (tmp_path / "t.test.yaml").write_text(CASES)
        (tmp_path / "test_theirs.py").write_text("def test_theirs(): pass\n")

        assert "1 passed" in _run(tmp_path).stdout
        named = _run(tmp_path, "t.test.yaml").stdout
        assert "1 failed, 1 passed" in named
        (tmp_path / "pytest.ini").write_text("[pytest]\nkdsl_cases = true\n")
        assert "1 failed, 2 passed" in _run(tmp_path).stdout
        chosen = _run(tmp_path, "-v", "-k", "good").stdout
        assert "t.test.yaml::good PASSED" in chosen
        assert "1 passed, 2 deselected" in chosen

    def test_a_failure_shows_what_differs_and_a_mistake_its_line(self, tmp_path: Path) -> None:
        (tmp_path / "t.test.yaml").write_text(CASES)
        (tmp_path / "wrong.test.yaml").write_text("table: x\ncase: []\n")

        done = _run(tmp_path, "t.test.yaml", "wrong.test.yaml", "--continue-on-collection-errors")

        assert "__ bad one __" in done.stdout
        assert "  row 1 (partition 0, offset 0):\n    id: expected 2, got 1\n" in done.stdout
        assert "wrong.test.yaml:2 $.case: a file of cases has no key 'case' (did you mean 'cases'?)" in done.stdout
        assert "Traceback" not in done.stdout


SESSION = """
def test_a_session(kdsl_spark):
    assert kdsl_spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert kdsl_spark.conf.get("spark.sql.shuffle.partitions") == "3"
    assert kdsl_spark.range(3).count() == 3
"""


@pytest.mark.spark
def test_a_session_of_spark_has_the_settings_of_the_project(tmp_path: Path) -> None:
    (tmp_path / "test_theirs.py").write_text(SESSION)
    (tmp_path / "pytest.ini").write_text("[pytest]\nkdsl_spark_settings =\n    spark.sql.shuffle.partitions = 3\n")

    done = _run(tmp_path, "-q")

    assert done.returncode == 0, done.stdout
