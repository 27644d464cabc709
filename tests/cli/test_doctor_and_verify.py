"""The commands ``kdsl doctor`` and ``kdsl verify`` as a user calls them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kdsl.cli.app import app
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.patience import wait_for_answers

TABLE = """
from kdsl import Col, KafkaTable, Key

class Orders(KafkaTable, topic={topic!r}, key="json", value="json", startup="earliest"):
    id: Key[int]
    note: Col[str]
"""


def kdsl(*arguments: str, env: dict[str, str | None] | None = None) -> Result:
    return CliRunner().invoke(app, arguments, env=env)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_answers(monkeypatch)


@pytest.fixture
def orders(tmp_path: Path, kdsl_topic: MakeTopic) -> Path:
    path = tmp_path / "doctor_orders.py"
    path.write_text(TABLE.format(topic=kdsl_topic()), encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def this_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark's workers would run this Python."""
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)


def test_doctor_looks_at_a_cluster_and_at_tables(kdsl_kafka: RunningKafka, orders: Path) -> None:
    result = kdsl("doctor", str(orders), "--bootstrap", kdsl_kafka.bootstrap_servers, "--json")

    report = json.loads(result.stdout)
    assert result.exit_code == 0
    assert (report["errors"], report["warnings"]) == (0, 1)
    assert {"login", "start", "partitioner"} <= {f["check"] for f in report["findings"]}


def test_doctor_exits_with_1_on_a_failure() -> None:
    result = kdsl("doctor", "--bootstrap", "127.0.0.1:1")

    assert result.exit_code == 1
    assert "error   network 127.0.0.1:1: 127.0.0.1 refuses the connection" in result.stdout
    assert "fix: check that a broker runs there" in result.stdout


def test_doctor_reports_settings_that_cannot_be_translated_and_ends_with_its_document() -> None:
    properties = ("security.protocol=SSL", "ssl.truststore.type=PEM", "ssl.truststore.location=/missing/ca.pem")

    result = kdsl("doctor", "--bootstrap", "127.0.0.1:1", *(word for p in properties for word in ("-p", p)), "--json")

    report = json.loads(result.stdout)
    assert (result.exit_code, report["errors"]) == (1, 1)
    assert [f["check"] for f in report["findings"] if f["state"] == "error"] == ["settings"]


def test_doctor_looks_at_the_registry_also_where_no_broker_answers() -> None:
    result = kdsl("doctor", "--bootstrap", "127.0.0.1:1", "--registry", "http://127.0.0.1:1", "--json")

    wrong = [f["check"] for f in json.loads(result.stdout)["findings"] if f["state"] == "error"]
    assert wrong == ["network 127.0.0.1:1", "registry http://127.0.0.1:1"]
    assert result.exit_code == 1


def test_doctor_tries_each_login_of_tables_on_the_same_brokers(tmp_path: Path) -> None:
    path = tmp_path / "tables.sql"
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="{}";'
    tables = [
        f"CREATE TABLE {name} (v STRING) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json', "
        "'properties.bootstrap.servers' = '127.0.0.1:1', 'properties.security.protocol' = 'SASL_PLAINTEXT', "
        f"'properties.sasl.mechanism' = 'PLAIN', 'properties.sasl.jaas.config' = '{login.format(password)}');"
        for name, password in (("a", "one"), ("b", "two"), ("c", "one"))
    ]
    path.write_text("\n".join(tables), encoding="utf-8")

    result = kdsl("doctor", str(path), "--json")

    wrong = [f["check"] for f in json.loads(result.stdout)["findings"] if f["state"] == "error"]
    assert wrong == ["network 127.0.0.1:1"] * 2
    assert '"one' not in result.output


@pytest.mark.parametrize("command", [("doctor",), ("verify", "in", "out"), ("lag", "--group", "g")])
def test_a_command_without_brokers_explains_how_to_set_them(command: tuple[str, ...]) -> None:
    result = kdsl(*command, env={"KDSL_BOOTSTRAP_SERVERS": None, "COLUMNS": "400"})

    assert result.exit_code == 2
    assert "--bootstrap host:9092 (or the variable KDSL_BOOTSTRAP_SERVERS), or --cluster-file" in result.output


def test_doctor_takes_settings(kdsl_kafka: RunningKafka) -> None:
    result = kdsl("doctor", "--bootstrap", kdsl_kafka.bootstrap_servers, "-p", "security.protocol=SSL")

    assert result.exit_code == 1
    assert "the port does not use TLS" in result.stdout


def test_doctor_takes_a_document_of_clusters(tmp_path: Path, kdsl_kafka: RunningKafka) -> None:
    path = tmp_path / "clusters.yaml"
    path.write_text(f"clusters: {{test: {{bootstrap_servers: '{kdsl_kafka.bootstrap_servers}'}}}}", encoding="utf-8")

    assert kdsl("doctor", "--cluster-file", str(path)).exit_code == 0
    assert kdsl("doctor", "--cluster", "test").exit_code == 2
    assert kdsl("doctor", "--bootstrap", "k:1", "-p", "nothing").exit_code == 2


def test_verify_compares_topics(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    one, other = kdsl_topic(), kdsl_topic()
    at = ("--bootstrap", kdsl_kafka.bootstrap_servers)
    kdsl_kafka.produce(one, Record("1", "a"), Record("2", "b"))
    kdsl_kafka.produce(other, Record("1", "a"))

    lacking = kdsl("verify", one, other, *at)
    kdsl_kafka.produce(other, Record("2", "b"))
    equal = kdsl("verify", one, other, "--by", "key", *at, "--json")

    assert lacking.exit_code == 1
    assert "different" in lacking.stdout
    assert equal.exit_code == 0
    assert json.loads(equal.stdout)["equal"] is True


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("keys", "'keys' (did you mean 'key'?) names columns, but 'in' is a topic and has none; write record"),
        ("header:", "'header:' contains an empty name; write record, key, value or header:NAME"),
        ("a,", "'a,' contains an empty name"),
    ],
)
def test_verify_lists_what_can_identify_records(by: str, message: str) -> None:
    result = kdsl("verify", "in", "out", "--by", by, "--bootstrap", "127.0.0.1:1", env={"COLUMNS": "400"})

    assert result.exit_code == 2
    assert message in result.output


def test_verify_takes_tables_and_columns(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, orders: Path) -> None:
    result = kdsl(
        "verify", f"{orders}:Orders", f"{orders}:Orders", "--by", "id", "--bootstrap", kdsl_kafka.bootstrap_servers
    )

    assert result.exit_code == 0, result.output
