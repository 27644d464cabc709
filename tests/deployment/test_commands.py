"""Files of every kind: SQL scripts with statements, YAML tables, ingestions in YAML and in Python."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kdsl.cli.app import app
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic


@pytest.fixture
def run(kdsl_kafka: RunningKafka) -> Any:
    def call(command: str, *arguments: object) -> Result:
        servers = ("--bootstrap", kdsl_kafka.bootstrap_servers)
        return CliRunner().invoke(app, [command, *map(str, arguments), *servers])

    return call


def differences(result: Result) -> list[tuple[str, str, str, int | None]]:
    document = json.loads(result.stdout)
    return [(d["mark"], d["name"], d["what"], d["line"]) for d in document["differences"]]


def test_tables_in_yaml(run: Any, kdsl_topic: MakeTopic, tmp_path: Path) -> None:
    topic, path = kdsl_topic(), tmp_path / "tables.yaml"
    path.write_text(
        f"name: orders\ncolumns: [{{name: id, type: BIGINT}}]\noptions:\n  connector: kafka\n  topic: {topic}\n"
        "  value.format: json\n  topic.partitions: 3\n  topic.config.max.message.bytes: 2000000\n",
        encoding="utf-8",
    )

    result = run("diff", path, "--json")
    applied = run("apply", path, "--yes")
    after = run("diff", path, "--exit-code")

    assert differences(result) == [("~", topic, "partitions", 7), ("~", topic, "max.message.bytes", 8)]
    assert applied.exit_code == 0, applied.output
    assert after.exit_code == 0


def test_the_statements_of_a_script_say_what_is_read_and_written(
    run: Any, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    source, sink, path = kdsl_topic("from"), kdsl_topic("to"), tmp_path / "script.sql"
    path.write_text(
        f"CREATE TABLE a (id BIGINT) WITH ('connector' = 'kafka', 'topic' = '{source}', 'format' = 'json',\n"
        f"  'scan.dead-letter.topic' = '{source}.dead', 'scan.startup.mode' = 'earliest-offset');\n"
        f"CREATE TABLE b (id BIGINT) WITH ('connector' = 'kafka', 'topic' = '{sink}', 'format' = 'json',\n"
        f"  'scan.dead-letter.topic' = '{sink}.dead', 'topic.partitions' = '2');\n"
        "INSERT INTO b SELECT id FROM a;\n",
        encoding="utf-8",
    )

    result = run("diff", path, "--json")

    # the sink is not read, so that it has no dead letters
    assert differences(result) == [("+", f"{source}.dead", "", 1), ("~", sink, "partitions", 4)]


def test_ingestions_in_yaml_and_python(
    run: Any, kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, tmp_path: Path
) -> None:
    topic, yaml, python = kdsl_topic(), tmp_path / "shop.yaml", tmp_path / "shop_ingestion.py"
    yaml.write_text(
        f"source: {{type: kafka, properties.bootstrap.servers: '{kdsl_kafka.bootstrap_servers}', topic: {topic}}}\n"
        f"sink:\n  type: kafka\n  properties.bootstrap.servers: '{kdsl_kafka.bootstrap_servers}'\n"
        f"  topic: ${{name}}\n  topic.partitions: 2\n",
        encoding="utf-8",
    )
    python.write_text(
        "from kdsl.ingest import Ingestion\n\n"
        f"shop = Ingestion.from_yaml({str(yaml)!r}, {{'name': {topic + '-out'!r}}})\n",
        encoding="utf-8",
    )

    results = [run("diff", yaml, "--var", f"name={topic}-out", "--json"), run("diff", python, "--json")]

    for result in results:
        assert differences(result) == [("+", f"{topic}-out", "", 2)]


def test_wrong_declarations_are_reported_together(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "tables.sql"
    path.write_text(
        "CREATE TABLE a (id BIGINT) WITH ('connector' = 'kafka', 'topic' = 'a', 'format' = 'json', "
        "'topic.partitions' = '0');\n"
        "CREATE TABLE b (id BIGINT) WITH ('connector' = 'kafka', 'topic' = 'b', 'format' = 'json', "
        "'topic.replication-factor' = 'many', 'topic.config.num.partitions' = '3');\n",
        encoding="utf-8",
    )

    result = run("diff", path)

    assert result.exit_code == 2
    for part in ("greater than 0", "expected an integer", "a setting of brokers and not of topics"):
        assert part in result.stdout
