from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import psutil
import pytest
from typer.testing import CliRunner

from kdsl.cli.app import app
from kdsl.cluster import Cluster, Registry
from kdsl.registry import RegistryClient
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.testing import RunningKafka
from kdsl.testing._watchdog import wait_ended
from kdsl.testing.ports import answers

pytestmark = pytest.mark.kafka


class Command(Protocol):
    def __call__(self, *arguments: str, code: int = 0) -> str: ...


@pytest.fixture
def kafka_command(tmp_path: Path) -> Iterator[Command]:
    """Runs ``kdsl kafka`` under a name that nobody else has; what it starts, in a process of its own."""
    name = f"test-{uuid.uuid4().hex[:8]}"

    def run(*arguments: str, code: int = 0) -> str:
        if arguments[0] != "start":
            environment = {"XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "200"}
            result = CliRunner().invoke(app, ["kafka", *arguments, "--name", name], env=environment)
            assert result.exit_code == code, result.output
            return result.stdout if code == 0 else result.output
        done = subprocess.run(
            [sys.executable, "-c", "from kdsl.cli import main; main()", "kafka", *arguments, "--name", name],
            env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state"), "COLUMNS": "200"},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if code == 0 else done.stdout + done.stderr

    yield run
    run("stop")


def _status(command: Command, code: int = 0) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(command("status", "--json", code=code))
    return document


def test_it_runs_until_it_is_stopped(kafka_command: Command) -> None:
    assert _status(kafka_command, code=1)["running"] is False

    started = json.loads(kafka_command("start", "--topic", "orders:3", "--topic", "users", "--json"))
    kafka = RunningKafka(started["bootstrap_servers"])

    assert kafka.end_offsets("orders") == {0: 0, 1: 0, 2: 0}
    assert kafka.end_offsets("users") == {0: 0}
    assert _status(kafka_command) == started
    assert started["running"] is True

    assert "runs already" in kafka_command("start", "--topic", "late")
    assert _status(kafka_command)["brokers"] == started["brokers"]
    assert kafka.end_offsets("late") == {0: 0}
    assert "runs already, with 1 broker" in kafka_command("start", "--brokers", "2", code=1)

    assert "its data was deleted" in kafka_command("stop")
    assert not answers(started["brokers"][0]["port"])
    assert not Path(started["data_dir"]).exists()
    assert kafka_command("stop") == "Kafka is not running\n"
    assert kafka_command("status", code=1) == "Kafka is not running\n"


@pytest.mark.reliability
def test_a_folder_keeps_the_data_and_a_dead_broker_is_reported(kafka_command: Command, tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    first = json.loads(kafka_command("start", "--data-dir", folder, "--topic", "kept", "--json"))
    port = str(first["brokers"][0]["port"])
    RunningKafka(first["bootstrap_servers"]).produce("kept", "here")
    broker = psutil.Process(first["brokers"][0]["pid"])
    broker.kill()
    assert wait_ended([broker], 120) == []

    assert _status(kafka_command, code=1)["running"] is False
    again = json.loads(kafka_command("start", "--data-dir", folder, "--port", port, "--json"))

    assert again["bootstrap_servers"] == first["bootstrap_servers"]
    assert [message.value() for message in RunningKafka(again["bootstrap_servers"]).read("kept")] == [b"here"]
    assert f"its data stays in {folder}" in kafka_command("stop")


@pytest.mark.parametrize("security", ["sasl_ssl", "oauth_signed"])
@pytest.mark.reliability
def test_a_login_works_from_other_processes_with_the_file_that_is_written(
    kafka_command: Command, security: str
) -> None:
    started = json.loads(kafka_command("start", "--security", security, "--topic", "orders:2", "--json"))
    cluster = Cluster.from_yaml(started["cluster_file"])

    assert LibrdkafkaAdmin(cluster, "test").topics(["orders"])["orders"].partitions == 2
    assert Path(started["cluster_file"]).stat().st_mode & 0o077 == 0
    assert "runs already" in kafka_command("start", "--security", security, "--topic", "late")
    assert "late" in LibrdkafkaAdmin(cluster, "test").names()
    left = [psutil.Process(service["pid"]) for service in started["services"]]
    assert len(left) == (security == "oauth_signed")

    kafka_command("stop")

    assert wait_ended(left, 120) == []


@pytest.mark.parametrize(
    ("option", "value", "code", "message"),
    [
        ("--topic", "orders:many", 2, "'orders:many': write NAME or NAME:PARTITIONS"),
        ("--property", "fast", 2, "as KEY=VALUE, such as log.retention"),
        ("--property", "node.id=4", 1, "'node.id' cannot be set"),
    ],
)
def test_an_impossible_request_is_explained_in_one_sentence(
    tmp_path: Path, option: str, value: str, code: int, message: str
) -> None:
    environment = {"XDG_STATE_HOME": str(tmp_path), "COLUMNS": "200"}

    result = CliRunner().invoke(app, ["kafka", "start", option, value], env=environment)

    assert result.exit_code == code
    assert message in result.output + str(result.exception)


@pytest.mark.registry
@pytest.mark.reliability
def test_a_schema_registry_runs_with_it(kafka_command: Command) -> None:
    started = json.loads(kafka_command("start", "--registry", "--json"))
    url = started["registry"]["url"]

    assert RegistryClient(Registry(url)).subjects() == ()
    assert _status(kafka_command)["registry"]["running"] is True
    assert f"schemas {url}" in kafka_command("start", "--registry")

    process = psutil.Process(started["registry"]["pid"])
    process.kill()
    assert wait_ended([process], 120) == []
    assert "the schema registry has died" in kafka_command("status", code=1)
    again = json.loads(kafka_command("start", "--registry", "--json"))["registry"]
    assert RegistryClient(Registry(again["url"])).subjects() == ()
    process = psutil.Process(again["pid"])
    kafka_command("stop")
    assert wait_ended([process], 120) == []
