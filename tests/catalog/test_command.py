"""``kdsl run`` and ``kdsl check`` of scripts with catalogs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner, Result

from kdsl.catalog.stored import FILE, Inference
from kdsl.cli.app import app
from kdsl.ddl.script_reader import read_script
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, run_script
from kdsl.testing import LocalKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
SCRIPT = """CREATE CATALOG shop WITH ('type' = 'kafka', 'value.fields-prefix' = '',
  'properties.bootstrap.servers' = '{servers}');
CREATE TABLE shown (id BIGINT) WITH ('connector' = 'print');
SHOW TABLES IN shop.kafka LIKE '{topic}';
DESCRIBE shop.kafka.`{topic}`;
"""
INSERT = "INSERT INTO shown SELECT id FROM shop.kafka.`{topic}`;"


def command(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def topic(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic) -> str:
    name = kdsl_topic()
    kdsl_kafka.produce(name, '{"id": 1}')
    return name


def test_what_statements_show_is_printed_without_spark(kdsl_kafka: LocalKafka, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "show.sql"
    path.write_text(SCRIPT.format(servers=kdsl_kafka.bootstrap_servers, topic=topic))

    shown, as_json = command("run", str(path)), command("run", "--json", str(path))

    assert (shown.exit_code, as_json.exit_code) == (0, 0)
    assert topic in shown.stdout
    assert "METADATA VIRTUAL" in shown.stdout
    names, *columns = map(json.loads, as_json.stdout.splitlines())
    assert names == {"table name": topic}
    assert [c["name"] for c in columns] == ["partition", "offset", "timestamp", "id"]
    assert columns[-1] == {
        "name": "id",
        "type": "BIGINT",
        "null": "TRUE",
        "key": None,
        "extras": None,
        "watermark": None,
    }


def test_check_warns_and_a_dry_run_asks_the_cluster(kdsl_kafka: LocalKafka, topic: str, tmp_path: Path) -> None:
    path = tmp_path / "job.sql"
    text = (SCRIPT + INSERT).format(servers=kdsl_kafka.bootstrap_servers, topic=topic)
    path.write_text(text.replace("SELECT id", "SELECT idd"))

    checked, planned = command("check", str(path)), command("run", "--dry-run", str(path))
    path.write_text(text)
    right = command("run", "--dry-run", str(path))

    assert checked.exit_code == 0
    assert "are inferred when the script runs" in checked.stdout
    assert planned.exit_code == 1
    assert "idd" in planned.stdout
    assert right.exit_code == 0
    assert "from the newest 1 record of 1 partition:" in right.stdout


@pytest.mark.reliability
def test_a_restart_has_the_stored_columns_unless_they_are_inferred_anew(
    kdsl_kafka: LocalKafka, topic: str, tmp_path: Path, spark: SparkSession
) -> None:
    text = (SCRIPT + INSERT).format(servers=kdsl_kafka.bootstrap_servers, topic=topic)
    path, checkpoint = tmp_path / "job.sql", str(tmp_path / "checkpoint")
    path.write_text(text)
    plan = plan_script(read_script(text), checkpoint=checkpoint, inference=Inference())
    run_script(plan, spark, RunOptions(once=True, checkpoint=checkpoint))
    kdsl_kafka.produce(topic, '{"id": 2, "more": true}')

    def run(*more: str) -> str:
        arguments = [sys.executable, "-m", "kdsl", "run", str(path), "--checkpoint", checkpoint, *more]
        done = subprocess.run(
            arguments, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "COLUMNS": "200"}, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def read_stored_columns() -> list[str]:
        document = json.loads(Path(checkpoint, FILE).read_text(encoding="utf-8"))
        return [c["name"] for c in document["tables"][f"shop.kafka.{topic}"]["value"]["columns"]]

    assert "from the newest 1 record of 1 partition:" in run("--dry-run")
    assert read_stored_columns() == ["id"]
    assert "+I[2]" in run("--once", "--infer-anew")
    assert read_stored_columns() == ["id", "more"]
