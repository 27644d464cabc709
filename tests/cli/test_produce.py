"""``kdsl produce`` against a real broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kdsl.cli.app import app
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic


def run(*arguments: str, text: str = "") -> Result:
    return CliRunner().invoke(app, list(arguments), input=text, env={"COLUMNS": "200", "TERM": "dumb"})


@pytest.fixture
def orders(kdsl_topic: MakeTopic, tmp_path: Path) -> tuple[str, str]:
    """A topic, and the file of its table."""
    topic = kdsl_topic()
    file = tmp_path / "tables.sql"
    file.write_text(
        "CREATE TABLE orders (id INT NOT NULL, note STRING) WITH ('connector' = 'kafka', "
        f"'topic' = '{topic}', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset')"
    )
    return topic, str(file)


def test_rows_are_written_and_read_again(kdsl_kafka: RunningKafka, orders: tuple[str, str], tmp_path: Path) -> None:
    topic, table = orders
    brokers = ("--bootstrap", kdsl_kafka.bootstrap_servers)
    rows = [{"id": 1, "note": "a"}, {"id": 2, "note": None}]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))

    from_file = run("produce", table, str(tmp_path / "rows.jsonl"), *brokers)
    from_input = run("produce", table, *brokers, "--json", text='{"id": 3}\n')

    assert from_file.exit_code == 0, from_file.output
    assert from_file.stdout == f"2 records written to {topic}\n"
    assert json.loads(from_input.stdout)["records"] == 1
    shown = json.loads(run("peek", table, *brokers, "--json").stdout)
    assert shown["rows"] == [*rows, {"id": 3, "note": None}]


def test_nothing_is_sent_if_a_line_is_not_a_row(kdsl_kafka: RunningKafka, orders: tuple[str, str]) -> None:
    topic, table = orders
    brokers = ("--bootstrap", kdsl_kafka.bootstrap_servers)

    refused = run("produce", table, *brokers, text='{"id": 1}\n{"id": 2, "nota": "x"}\n')
    null = run("produce", table, *brokers, text='{"id": 1}\n\n{"note": "x"}\n{"id": null}\n{"id": "x"}\n')

    assert (refused.exit_code, null.exit_code) == (1, 1)
    assert "standard input, line 2: 'nota' cannot be written (did you mean 'note'?)" in str(refused.exception)
    messages = [line.partition(": ")[2] for line in str(null.exception).splitlines()]
    assert messages[:2] == ["id is NULL, but declared NOT NULL; give it a value, or declare it nullable"] * 2
    assert [line.split(":")[0] for line in str(null.exception).splitlines()] == [
        f"standard input, line {n}" for n in (3, 4, 5)
    ]
    assert json.loads(run("peek", topic, *brokers, "--json").stdout)["records"] == []


def test_lines_are_written_to_a_topic(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    brokers = ("--bootstrap", kdsl_kafka.bootstrap_servers)

    plain = run("produce", topic, *brokers, text="one\n\ntwo: 2\n")
    keyed = run("produce", topic, *brokers, "--key-separator", ":", text="k:v:w\n")
    wrong = run("produce", topic, *brokers, "--key-separator", ":", text="k:v\nnone\n")

    assert (plain.exit_code, keyed.exit_code, wrong.exit_code) == (0, 0, 1), plain.output
    assert str(wrong.exception) == "standard input, line 2: there is no ':' between key and value"
    records = json.loads(run("peek", topic, *brokers, "--json").stdout)["records"]
    assert [(r["key"], r["value"]) for r in records] == [(None, "one"), (None, "two: 2"), ("k", "v:w")]


def test_a_record_that_kafka_refuses_is_named_by_its_line(kdsl_kafka: RunningKafka, orders: tuple[str, str]) -> None:
    _, table = orders
    lines = f'\n{{"id": 1}}\n\n{{"id": 2, "note": "{"x" * 2_000_000}"}}\n'
    refused = run("produce", table, "--bootstrap", kdsl_kafka.bootstrap_servers, text=lines)

    assert refused.exit_code == 1
    assert str(refused.exception).startswith("standard input, line 4: orders: cannot write the record at topic")


def test_one_record_is_not_records(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    brokers = ("--bootstrap", kdsl_kafka.bootstrap_servers)

    written = run("produce", topic, *brokers, text="one\n")
    shown = run("peek", topic, *brokers)
    assert written.stdout == f"1 record written to {topic}\n"
    assert f"writing 1 record to {topic}" in written.stderr
    assert f"{topic}: the last record" in shown.stdout


def test_wrong_calls_exit_with_2(orders: tuple[str, str]) -> None:
    _, table = orders
    assert run("produce", "topic").exit_code == 2
    assert run("produce", table, "no-such-file").exit_code == 2
    assert run("produce", table, "--key-separator", ":").exit_code == 2
