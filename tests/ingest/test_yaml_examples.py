"""The YAML examples of the documentation of a runtime with a Kafka source: all are read, checked and written again.

Source: https://www.alibabacloud.com/help/en/flink/developer-reference/kafka-connector (data ingestion, in July 2026).
Examples that show only a source or a transform get the rest.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.errors import Problem
from kdsl.ingest import Ingestion

FOLDER = Path(__file__).parent / "examples"
VARIABLES = {
    "kafka.topic": "orders",
    "kafka.bootstraps.server": "a:9092,b:9092",
    "value.format": "debezium-json",
    "scan.startup.mode": "earliest-offset",
    "mysql.port": "3306",
    "mysql.source.table": "mydb.mytable",
}
SOURCE = "source: {type: kafka, properties.bootstrap.servers: 'a:9092', topic: orders}\n"
SINK = "sink: {type: memory}\n"
BINLOG = "ingest-binlog"
PROBLEMS = {
    "from-mysql": [BINLOG],
    "primary-keys": ["ingest-selector"],
    "no-mapping": [BINLOG],
    "mapping-one-topic": [BINLOG, "ingest-mapping"],
    "initial-schemas": ["ingest-unused", "ingest-unused"],  # by the topic, no message belongs to the tables
    "mapping-two-entries": [BINLOG, "ingest-mapping"],
}
INDENTED = "route-indented"
NAMES = sorted(path.stem for path in FOLDER.glob("*.yaml"))


def text_of(name: str) -> str:
    text = (FOLDER / f"{name}.yaml").read_text(encoding="utf-8")
    text += "" if "source:" in text.splitlines() else SOURCE
    return text + ("" if "sink:" in text.splitlines() else SINK)


def read(text: str) -> Ingestion:
    ingestion, problems = Ingestion.read(text, VARIABLES, file="example.yaml")
    assert ingestion is not None, problems
    return ingestion


def test_there_are_14_examples() -> None:
    assert len(NAMES) == 14


@pytest.mark.parametrize("name", [n for n in NAMES if n != INDENTED])
def test_an_example_has_no_other_problems_than_these(name: str) -> None:
    assert [p.code for p in read(text_of(name)).problems()] == PROBLEMS.get(name, [])


@pytest.mark.parametrize("name", [n for n in NAMES if n != INDENTED])
def test_an_example_is_written_and_read_again(name: str) -> None:
    ingestion = read(text_of(name))

    assert read(ingestion.to_yaml()) == ingestion


def test_a_section_that_is_indented_by_one_blank_is_reported_with_its_line() -> None:
    ingestion, problems = Ingestion.read(text_of(INDENTED), VARIABLES, file="example.yaml")

    assert ingestion is None
    assert [(p.code, p.where.line) for p in problems] == [("yaml", 16)]
    assert "indented" in problems[0].message


def test_the_example_reads_without_the_indentation() -> None:
    ingestion = read(text_of(INDENTED).replace("\n route:", "\nroute:"))

    assert [(r.source_table, r.sink_table) for r in ingestion.route] == [
        ("mydb.mytable1,mydb.mytable2", "mytable1"),
    ]


def problem(name: str, code: str) -> Problem:
    return next(p for p in read(text_of(name)).problems() if p.code == code)


def test_a_mapping_in_the_source_is_used_for_the_sink_with_a_warning() -> None:
    ingestion = read(text_of("mapping-one-topic"))
    warning = problem("mapping-one-topic", "ingest-mapping")

    assert ingestion.sink.write()["sink.tableId-to-topic.mapping"] == "mydb.mytable1,mydb.mytable2:mytable"
    assert (warning.severity, warning.where.line) == ("warning", 10)


def test_the_binlog_is_refused_with_what_to_write_instead() -> None:
    error = problem("from-mysql", BINLOG)

    assert error.severity == "error"
    assert "Debezium or Canal" in error.fix


def test_a_pattern_with_a_misplaced_dot_is_a_warning() -> None:
    warning = problem("primary-keys", "ingest-selector")

    assert (warning.severity, warning.where.path) == ("warning", "$.transform[0].source-table")
    assert r"\.*.\.*" in warning.fix
