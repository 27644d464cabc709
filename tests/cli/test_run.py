"""``kdsl run``: what it prints without Spark, and how it ends."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import urllib.request
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

import kdsl
from kdsl.cli.app import app
from kdsl.cli.console import log_lines
from kdsl.cli.run import _serve_metrics
from kdsl.cli.starts import table_starts
from kdsl.cluster import Cluster
from kdsl.ddl.load import load_sql
from kdsl.declare.start_and_end import Startup
from kdsl.errors import Problem
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

EXAMPLES = Path(__file__).parents[2] / "examples" / "sql"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["run", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})


def test_a_dry_run_prints_the_plans() -> None:
    done = run("--dry-run", "--bootstrap-servers", "nowhere:9092", str(EXAMPLES / "copy.sql"))

    assert done.exit_code == 0
    assert done.stdout.splitlines()[:2] == [
        "insert-1-kafka_sink (streaming)",
        "  reads     kafka_source (kafka, source)",
    ]


def test_a_dry_run_prints_the_folder_where_progress_is_stored(tmp_path: Path) -> None:
    base, setting = tmp_path / "given", f"execution.checkpointing.dir={tmp_path}/set"

    def progress(*arguments: str) -> list[str]:
        done = run("--dry-run", "--bootstrap", "x:1", *arguments, str(EXAMPLES / "copy.sql"))
        assert done.exit_code == 0
        return [line.removeprefix("  progress  ") for line in done.stdout.splitlines() if "  progress  " in line]

    assert progress() == []
    assert progress("-D", setting) == [f"{tmp_path}/set/insert-1-kafka_sink"]
    assert progress("-D", setting, "--checkpoint", f"{base}/") == [f"{base}/insert-1-kafka_sink"]
    assert progress("--checkpoint", "hdfs://name/c") == [
        "hdfs://name/c/insert-1-kafka_sink, if hdfs://name/c/kdsl/inserts.json names no other folder"
    ]
    (base / "kdsl").mkdir(parents=True)
    stored = {"insert-7-kafka_sink": {"digest": "0", "sink": "kafka_sink", "reads": ["source"]}}
    (base / "kdsl" / "inserts.json").write_text(json.dumps({"version": 1, "inserts": stored}))
    assert progress("-D", setting, "--checkpoint", str(base)) == [f"{base}/insert-7-kafka_sink"]


def test_a_dry_run_names_the_tables_that_use_sparks_own_connector() -> None:
    lines = run("--dry-run", str(EXAMPLES / "upsert_kerberos.sql")).stdout.splitlines()

    assert lines[1] == "  reads     orders (upsert-kafka, orders-by-key, transport jvm)"


def test_every_mistake_is_reported_with_line_column_and_caret(tmp_path: Path) -> None:
    path = tmp_path / "job.sql"
    path.write_text(
        "CREATE TABLE g (id INT) WITH ('connector' = 'datagen');\n"
        "CREATE TABLE p (id INT) WITH ('connector' = 'print');\n"
        "INSERT INTO p SELECT idd FROM g;\n"
        "INSERT INTO p SELECT UPER('x') FROM g;\n"
    )
    done = run(str(path))

    assert done.exit_code == 1
    assert f"{path}:3:22" in done.stdout
    assert f"{path}:4:22" in done.stdout
    assert "                     ^^^" in done.stdout
    assert "did you mean 'UPPER'?" in done.stdout


def test_tables_without_brokers_ask_for_them() -> None:
    done = run("--dry-run", str(EXAMPLES / "copy.sql"))

    assert done.exit_code == 1
    assert "run it with --bootstrap" in done.stdout


def test_wrong_arguments_exit_with_2(tmp_path: Path) -> None:
    assert run("nowhere.sql").exit_code == 2
    assert run("--dry-run", "-D", "x", str(EXAMPLES / "copy.sql")).exit_code == 2


def test_a_setting_of_the_command_applies_from_the_start() -> None:
    arguments = ("--dry-run", "--bootstrap-servers", "x:1", "-D", "execution.runtime-mode=batch")

    assert run(*arguments, str(EXAMPLES / "copy.sql")).stdout.startswith("insert-1-kafka_sink (batch)")


@pytest.mark.parametrize("setting", ["execution.runtime-mode=btach", "parallelism.default=0"])
def test_a_wrong_value_of_the_command_is_refused_like_one_of_the_script(setting: str) -> None:
    done = run("--dry-run", "--bootstrap", "x:1", "-D", setting, str(EXAMPLES / "copy.sql"))

    assert done.exit_code == 1
    assert "-D" in done.stdout
    assert setting.partition("=")[0] in done.stdout


def test_an_unknown_setting_of_the_command_is_reported_with_a_suggestion() -> None:
    done = run("--dry-run", "--bootstrap", "x:1", "-D", "execution.runtime-mod=batch", str(EXAMPLES / "copy.sql"))

    assert done.exit_code == 0
    assert "did you mean 'execution.runtime-mode'?" in done.stdout


def test_a_script_of_tables_alone_is_reported_as_such(tmp_path: Path) -> None:
    path = tmp_path / "tables.sql"
    path.write_text("CREATE TABLE p (id INT) WITH ('connector' = 'print');")

    assert run(str(path)).stdout == "the script declares tables but writes to none\n"


TABLES = """
CREATE TABLE a (id INT) WITH ('connector' = 'kafka', 'topic' = 'a', 'format' = 'json');
CREATE TABLE b (id INT) WITH ('connector' = 'kafka', 'topic' = 'b', 'format' = 'json');
CREATE TABLE k (id INT, PRIMARY KEY (id) NOT ENFORCED)
  WITH ('connector' = 'upsert-kafka', 'topic' = 'k', 'key.format' = 'json', 'value.format' = 'json');
"""


class TestStartAt:
    @pytest.mark.parametrize(
        ("texts", "starts"),
        [
            ([], {}),
            (["earliest"], {"a": "earliest", "b": "earliest"}),  # a table by key always starts at the beginning
            (["b=latest-offset"], {"b": "latest"}),
            (["a=earliest", "GROUP-OFFSETS"], {"a": "earliest", "b": "group-offsets"}),
            (["a=partition:0,offset:42;partition:1,offset:7"], {"a": {0: 42, 1: 7}}),
            (["a=2025-01-31T08:00:00Z"], {"a": datetime(2025, 1, 31, 8, tzinfo=UTC)}),
            (["a=2025-01-31T09:00:00+01:00"], {"a": datetime(2025, 1, 31, 8, tzinfo=UTC)}),
            (["a=1738310400000"], {"a": datetime(2025, 1, 31, 8, tzinfo=UTC)}),
        ],
    )
    def test_it_names_the_start_of_each_table(self, texts: list[str], starts: dict[str, Startup]) -> None:
        assert table_starts(texts, load_sql(TABLES)) == starts

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("earlyest", "'earlyest' is not a start (did you mean 'earliest'?)"),
            ("2025-01-31T08:00:00", "has no time zone; write 2025-01-31T08:00:00Z for UTC"),
            ("c=earliest", "there is no table 'c' in Kafka"),
            ("a=partition:0", "'partition:0' is not of the form"),
            ("k=latest", "start_at= is set, but k is an upsert table, which is always read from the beginning"),
            ("", "the start is empty; write earliest, latest"),
            ("a=", "the start is empty; write earliest, latest"),
            ("99999999999999999999", "the time 99999999999999999999 is in milliseconds since 1970, and lies after"),
            ("253402300800000", "lies after the year 9999"),
            ("2025-01-31", "write 2025-01-31T00:00:00Z for UTC, or an offset as 2025-01-31T00:00:00+01:00"),
        ],
    )
    def test_an_invalid_start_is_reported(self, text: str, message: str) -> None:
        with pytest.raises(typer.BadParameter) as e:
            table_starts([text], load_sql(TABLES))

        assert message in e.value.message

    def test_a_wrong_start_exits_with_2_before_spark_starts(self) -> None:
        done = run("--dry-run", "--bootstrap", "x:1", "--start-at", "yesterday", str(EXAMPLES / "copy.sql"))

        assert done.exit_code == 2
        assert "--start-at" in done.stderr


def test_what_kdsl_logs_is_shown_as_lines_except_what_was_printed(capsys: pytest.CaptureFixture[str]) -> None:
    printed, other = (Problem("c", message, "f", severity="warning") for message in ("printed", "other"))
    log = logging.getLogger("kdsl.commits")
    before = logging.getLogger("kdsl").level

    with log_lines([printed]):
        log.info("offsets are [not] committed")
        log.warning("%s", printed)
        log.warning("%s", other)
        log.debug("details")
    log.info("later")

    assert capsys.readouterr().err.splitlines() == ["offsets are [not] committed", "warning: other; f [c]"]
    assert logging.getLogger("kdsl").level == before


def test_the_metrics_are_served_while_the_script_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with _serve_metrics(0, "127.0.0.1"):
        address = capsys.readouterr().err.removeprefix("metrics: ").strip()
        with urllib.request.urlopen(address, timeout=60) as answer:
            assert answer.status == 200
    with pytest.raises(typer.BadParameter, match="cannot listen on"), _serve_metrics(0, "192.0.2.1"):
        pass


@pytest.mark.spark
@pytest.mark.usefixtures("python_workers")
def test_a_run_without_a_checkpoint_commits_to_the_default_group_and_reports(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, silent = kdsl_topic(), kdsl_topic()
    script = tmp_path / "job.sql"
    script.write_text(
        f"""
        CREATE TABLE here (id INT) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'format' = 'csv');
        CREATE TABLE early (id INT) WITH ('connector' = 'kafka', 'topic' = '{silent}', 'format' = 'csv',
          'scan.startup.mode' = 'earliest-offset');
        CREATE TABLE p (id INT) WITH ('connector' = 'print');
        INSERT INTO p SELECT id FROM here;
        INSERT INTO p SELECT id FROM early;
        """
    )
    kdsl_kafka.produce(topic, "1", "2", "3")
    kdsl_kafka.produce(silent, "4")
    options = ["--once", "--start-at", "here=partition:0,offset:1", "--report", "--metrics-port", "0"]
    options += ["--bootstrap", kdsl_kafka.bootstrap_servers]
    done = subprocess.run(
        [sys.executable, "-m", "kdsl", "run", *options, str(script)],
        env={**os.environ, "COLUMNS": "200", "TERM": "dumb"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["+I[2]", "+I[3]", "+I[4]"]
    lines = [" ".join(line.replace("│", " ").split()) for line in done.stderr.splitlines()]
    assert any(line.startswith("metrics: http://127.0.0.1:") for line in lines)
    assert "here numRecordsIn 2 records" in lines
    assert "early numRecordsIn 1 records" in lines
    reason = "no group id is declared (group_id=, 'properties.group.id')"
    assert f"early: offsets are not committed to Kafka: {reason}" in lines
    brokers = LibrdkafkaAdmin(Cluster(kdsl_kafka.bootstrap_servers), "test")
    assert brokers.group_offsets("KafkaSource-here") == {(topic, 0): 3}  # where the next run starts by itself
    assert brokers.group_offsets("KafkaSource-early") == {}


def test_the_version() -> None:
    done = CliRunner().invoke(app, ["--version"])

    assert (done.exit_code, done.stdout) == (0, f"kdsl {kdsl.__version__}\n")
    assert kdsl.__version__ == metadata.version("kdsl-kafka")
