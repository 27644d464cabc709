"""The published YAML examples are planned, and run with the servers of the tests in the place of theirs."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.ingest import Ingestion
from kdsl.ingest.run.sinks import MemoryWriter
from kdsl.secrets import DIRECTORY
from tests.ingest.setup import Setup, change
from tests.ingest.test_mysql import schema_of
from tests.ingest.test_yaml_examples import FOLDER, INDENTED, NAMES, VARIABLES, text_of
from tests.mariadb import PASSWORD as MARIADB_PASSWORD, USER, MariaDb
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from collections.abc import Mapping

FROM_MYSQL = ("from-mysql", "no-mapping", "route-indented", "mapping-one-topic", "mapping-two-entries")


def correct_example(name: str) -> str:
    """An example that can be planned: what kdsl says of binlogs and of the indentation is followed."""
    text = text_of(name).replace("\n route:", "\nroute:") if name == INDENTED else text_of(name)
    return text.replace("  server-id:", "  scan.startup.mode: snapshot\n  server-id:") if name in FROM_MYSQL else text


def read(text: str, variables: Mapping[str, str]) -> Ingestion:
    ingestion, problems = Ingestion.read(text, variables)
    assert ingestion is not None, problems
    assert [p for p in problems if p.severity == "error"] == []
    return ingestion


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_a_plan(name: str) -> None:
    actual = read(correct_example(name), VARIABLES).explain()

    assert actual == (FOLDER / f"{name}.txt").read_text(encoding="utf-8")


def local(setup: Setup, text: str) -> str:
    """An example with the brokers and the topic of a test."""
    servers = setup.kafka.bootstrap_servers
    text = text.replace("localhost:9092", servers).replace("host:9092", servers)
    return text.replace("test-topic", setup.topic)


def run_into_memory(setup: Setup, text: str) -> MemoryWriter:
    """Run an example into memory, up to what there is."""
    writer = MemoryWriter()
    variables = {**VARIABLES, "kafka.topic": setup.topic, "kafka.bootstraps.server": setup.kafka.bootstrap_servers}
    setup.run(read(local(setup, text), variables), writer)
    return writer


def types(setup: Setup, *table: str) -> dict[str, str]:
    return {f.name: str(f.type) for f in setup.state().sinks[table].columns}


def test_initial_schemas(setup: Setup) -> None:
    """The statements are for tables db1.t1 and db1.t2, and here the messages name their tables so."""
    setup.produce({"id": 1, "d": "db1", "t": "t1"}, {"id": 2, "d": "db1", "t": "t2"})
    text = text_of("initial-schemas").replace("  # Set", "  json.decode.parser-table-id.fields: d,t\n  # Set")
    writer = run_into_memory(setup, text)

    assert types(setup, "db1", "t1") == {"id": "BIGINT", "name": "VARCHAR(10)", "d": "STRING", "t": "STRING"}
    assert types(setup, "db1", "t2") == {"id": "BIGINT", "d": "STRING", "t": "STRING"}
    assert writer.appended["db1", "t1"] == [{"id": 1, "name": None, "d": "db1", "t": "t1"}]


def test_fixed_types(setup: Setup) -> None:
    setup.produce({"id": 1, "name": "abc", "other": 1.5})
    writer = run_into_memory(setup, text_of("fixed-types"))

    assert types(setup, setup.topic) == {"id": "BIGINT", "name": "VARCHAR(10)", "other": "DOUBLE"}
    assert writer.appended[setup.topic,] == [{"id": 1, "name": "abc", "other": 1.5}]


def test_table_id_fields(setup: Setup) -> None:
    setup.produce({"col1": "a", "col2": "b", "n": 1}, {"col1": "a", "col2": "c", "n": 2})
    writer = run_into_memory(setup, text_of("table-id-fields"))

    assert {table: [row["n"] for row in rows] for table, rows in writer.appended.items()} == {
        ("a", "b"): [1], ("a", "c"): [2],
    }  # fmt: skip


def test_primary_keys(setup: Setup) -> None:
    """The pattern of the example fits ids of one name, which are topics."""
    source = "source: {type: kafka, properties.bootstrap.servers: 'host:9092', topic: test-topic, value.format: json,\n"
    text = (FOLDER / "primary-keys.yaml").read_text(encoding="utf-8") + "\n" + source
    setup.produce({"key1": 1, "key2": "x", "n": 1}, {"key1": 1, "key2": "x", "n": 2}, {"key1": 2, "key2": "x", "n": 3})
    writer = run_into_memory(setup, f"{text}  scan.startup.mode: earliest-offset}}\nsink: {{type: memory}}\n")

    assert writer.tables[setup.topic,].rows() == [
        {"key1": 1, "key2": "x", "n": 2}, {"key1": 2, "key2": "x", "n": 3},
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["errors-up-to", "errors-all", "errors-logged"])
def test_dirty_data(setup: Setup, name: str, caplog: pytest.LogCaptureFixture) -> None:
    setup.produce({"id": 1}, "nonsense", "[1]", {"id": 2})
    with caplog.at_level(logging.WARNING):
        writer = run_into_memory(setup, text_of(name))

    assert writer.appended[setup.topic,] == [{"id": 1}, {"id": 2}]
    assert setup.state().counts == {"dirty": 2}
    logged = [offset for offset in (1, 2) if f"{setup.topic}, partition 0, offset {offset}" in caplog.text]
    assert logged == ([1, 2] if name == "errors-logged" else [])


def test_into_hologres(setup: Setup, postgres: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hologres has the protocol of Postgres."""
    (tmp_path / "ak_id").write_text("kdsl", encoding="utf-8")
    (tmp_path / "ak_secret").write_text(PASSWORD, encoding="utf-8")
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    schema = f"h{setup.topic[-8:]}"
    text = text_of("into-hologres").replace("<yourEndpoint>", f"127.0.0.1:{postgres.port}")
    text = text.replace("<yourDbname>", "postgres")
    row = {"id": 1, "n": 1.5}
    setup.produce({**change("c", None, row), "source": {"db": schema, "table": "orders"}})
    variables = {**VARIABLES, "kafka.topic": setup.topic, "kafka.bootstraps.server": setup.kafka.bootstrap_servers}
    setup.run(read(text, variables))

    assert postgres.execute(f"SELECT id, n FROM {schema}.orders").split() == ["1", "1.5"]


def test_from_kafka_into_kafka(setup: Setup) -> None:
    """The example does not say where to start: at the offsets of its group, or else where the option says."""
    table = f"t{setup.topic[-8:]}"
    text = text_of("syntax").replace("  topic:", "  scan.startup.mode: earliest-offset\n  topic:")
    setup.kafka.create_topic(f"shop.{table}")
    setup.produce(change("c", None, {"id": 1}, table))
    setup.run(read(local(setup, text), {"kafka.topic": setup.topic}))

    (record,) = setup.kafka.read(f"shop.{table}")
    assert json.loads(record.value() or b"")["after"] == {"id": 1}


@pytest.mark.mariadb
@pytest.mark.parametrize("name", [name for name in FROM_MYSQL if name != "from-mysql"])
def test_from_mysql(setup: Setup, mariadb: MariaDb, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    database = schema_of(
        setup, mariadb,
        "CREATE TABLE mytable1 (id INT PRIMARY KEY); CREATE TABLE mytable2 (id INT PRIMARY KEY); "
        "INSERT INTO mytable1 VALUES (1); INSERT INTO mytable2 VALUES (2)",
    )  # fmt: skip
    for key, value in {"hostname": "127.0.0.1", "username": USER, "password": MARIADB_PASSWORD}.items():
        (tmp_path / f"mysql.{key}").write_text(value, encoding="utf-8")
    monkeypatch.setenv(DIRECTORY, str(tmp_path))
    text = correct_example(name).replace("sink-table: mytable1", f"sink-table: {setup.topic}-out")
    text = text.replace(":mytable", f":{setup.topic}-out").replace("mydb", database)
    variables = {"mysql.port": str(mariadb.port), "kafka.bootstraps.server": setup.kafka.bootstrap_servers}
    topics = [f"{database}.mytable1", f"{database}.mytable2"] if name == "no-mapping" else [f"{setup.topic}-out"]
    for topic in topics:
        setup.kafka.create_topic(topic)

    assert read(text, variables).copy(setup.spark, setup.checkpoint)

    rows: list[dict[str, Any]] = [
        json.loads(record.value() or b"")["after"] for topic in topics for record in setup.kafka.read(topic)
    ]
    assert sorted(row["id"] for row in rows) == [1, 2]
