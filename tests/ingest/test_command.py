"""``kdsl ingest``: plans, a run from a real Kafka, and what a checkpoint says without Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from kdsl.changelog.delta_session import DeltaSession
from kdsl.cli import ingest as command
from kdsl.cli.app import app
from kdsl.diagnostics import lag
from kdsl.errors import UnreachableError
from kdsl.ingest.schema_changes import UpstreamTable
from kdsl.ingest.state import START, IngestState, Note, StateFiles
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.testing import LocalKafka
from kdsl.types import model as t
from kdsl.types.widening import TableSchema
from tests.changelog.tables import needs_delta

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.testing.pytest_plugin import MakeTopic

DOCUMENT = """\
source: {{type: kafka, properties.bootstrap.servers: "{servers}", topic: "${{topic}}", value.format: json,
         scan.startup.mode: earliest-offset, json.decode.parser-table-id.fields: t}}
sink: {{type: print}}
transform: [{{source-table: a, primary-keys: id, projection: '\\*, id + 1 AS next'}}]
pipeline: {{checkpoint: {checkpoint}}}
"""


def kdsl(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["ingest", *map(str, arguments)])


def write_file(folder: Path, servers: str = "localhost:1") -> Path:
    file = folder / "shop.yaml"
    file.write_text(DOCUMENT.format(servers=servers, checkpoint=folder / "checkpoint"), encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--ddl",), "need --schemas"),
        (("--dry-run", "--status"), "use only one of"),
        (("--schemas", "--ddl", "--python"), "use only one of"),
        (("--sample",), "--sample needs --dry-run"),
        (("-D", "trigger=5 s"), "write pipeline.KEY=VALUE"),
        (("--status",), "is not the checkpoint of an ingestion"),
    ],
)
def test_calls_that_make_no_sense_are_refused(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    result = kdsl(write_file(tmp_path), "--var", "topic=x", *arguments)

    assert result.exit_code != 0
    assert message in " ".join((result.output + str(result.exception or "")).replace("│", " ").split())


def test_a_sample_of_another_source_than_kafka_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text("source: {type: delta, path: /orders}\nsink: {type: print}\n")
    result = kdsl(file, "--dry-run", "--sample")

    assert result.exit_code == 2
    assert "it reads topics, and the source is 'delta'" in " ".join(result.output.replace("│", " ").split())


def test_a_dry_run_prints_the_plan_with_settings(tmp_path: Path) -> None:
    result = kdsl(write_file(tmp_path), "--var", "topic=orders", "--dry-run", "-D", "pipeline.name=shop")

    assert result.exit_code == 0, result.output
    assert result.output.startswith("ingestion shop\nsource kafka localhost:1 topic orders\n")


def test_all_problems_are_printed(tmp_path: Path) -> None:
    file = write_file(tmp_path)
    file.write_text(file.read_text() + "extra: 1\n")
    result = kdsl(file, "--dry-run")

    assert result.exit_code == 1
    assert "there is no variable 'topic'" in result.output
    assert "no section 'extra'" in result.output


def test_a_run_prints_rows_and_its_checkpoint_says_what_was_learned(
    kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path, monkeypatch: Any,
    capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    topic = kdsl_topic()
    call = (write_file(tmp_path, kdsl_kafka.bootstrap_servers), "--var", f"topic={topic}")
    monkeypatch.setattr(command, "session", lambda *_: Unstoppable(spark))
    kdsl_kafka.produce(topic, *map(json.dumps, [{"t": "a", "id": 1}, {"t": "b", "x": True}]))
    sample = kdsl(*call, "--dry-run", "--sample")
    assert "a → a\n    t STRING\n    id BIGINT NOT NULL\n    next BIGINT" in sample.output

    runs = [kdsl(*call, "--once")]
    kdsl_kafka.produce(topic, json.dumps({"t": "a", "id": 2, "n": "x"}))
    runs.append(kdsl(*call, "--once"))
    kdsl_kafka.produce(topic, json.dumps({"t": "a", "id": 3}))
    status, columns = kdsl(*call, "--status").output, kdsl(*call, "a", "--schemas").output

    assert "batch 1 is done; 1 record is not read yet" in status
    assert [run.exit_code for run in runs] == [0, 0]
    for run, line in zip(
        runs, ["batch 0: 2 records of 2 tables (a 1, b 1)", "batch 1: 1 record of 1 table (a 1)"], strict=True
    ):
        assert f"{line}, in " in run.output
        assert "s; up to date\nended after 1 batch: " in run.output
    rows = [[cell.strip() for cell in line.split("│")] for line in status.splitlines() if line.startswith("│")]
    assert [row[1:4] for row in rows] == [["a", "2", "3"], ["b", "1", "2"]]
    assert f"last schema change: batch 1: add.column a `n` STRING (topic {topic}, partition 0, offset 2)" in status
    assert columns == "a\n  `t` STRING\n  `id` BIGINT\n  `n` STRING\n"
    history = kdsl(*call, "--schemas", "--history").output.splitlines()
    assert [line.split(" (")[0] for line in history] == [
        "batch 0: create.table a `t` STRING, `id` BIGINT NOT NULL, `next` BIGINT",
        "batch 0: create.table b `t` STRING, `x` BOOLEAN",
        "batch 1: add.column a `n` STRING",
    ]
    assert "CREATE TABLE `a` (" in kdsl(*call, "--schemas", "--ddl").output
    module = kdsl(*call, "a", "--schemas", "--python").output
    assert "class A(\n    KafkaTable,\n" in module
    assert f'topic="{topic}"' in module
    assert kdsl(*call, "c", "--schemas").exit_code == 2


def test_the_status_without_brokers_has_the_rest_and_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = tmp_path / "checkpoint"
    (checkpoint / "offsets").mkdir(parents=True)
    table = UpstreamTable(TableSchema((t.Field("id", t.BigInt()),)))
    note = Note(START, {("a",): table}, counts={"dirty": 3})
    StateFiles(open_local_folder(checkpoint)).write(note, IngestState())
    call = (write_file(tmp_path), "--var", "topic=x", "--status")

    result = kdsl(*call)
    assert (result.exit_code, "has not finished a batch yet" in result.output) == (0, True)

    def fail(_: object) -> Any:
        raise UnreachableError("no broker of localhost:1 answers")

    monkeypatch.setattr(lag, "checkpoint_positions", lambda _: (0, {("x", 0): 1}))
    monkeypatch.setattr(lag, "LagReader", fail)
    result = kdsl(*call)

    assert result.exit_code == 1
    assert f"checkpoint {checkpoint}\nthe progress is not known: no broker of localhost:1 answers\ndirty: 3\n" in (
        result.output
    )
    assert "\n1 table\n" in result.output
    assert "none" in next(line for line in result.output.splitlines() if line.startswith("│ a"))  # the primary key


def test_the_status_counts_finished_batches_and_tables_with_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch that is noted and not committed is shown apart; tables that only a sample showed have no sink table."""
    folder, state = open_local_folder(tmp_path / "checkpoint"), IngestState()
    table = UpstreamTable(TableSchema((t.Field("id", t.BigInt()),)))
    files = StateFiles(folder)
    state = files.write(Note(START, {("shop.orders",): table, ("b",): table}), state)
    state = files.write(Note(0, sinks={("b",): table.schema}, records={("b",): 5}, counts={"dirty": 1}), state)
    state = files.write(Note(1, records={("b",): 70}, counts={"dirty": 2}), state)
    for name in ("commits/0", "offsets/0", "offsets/1"):
        folder.write(name, "v1\n{}\n")
    call = (write_file(tmp_path), "--var", "topic=x")
    monkeypatch.setattr(lag, "checkpoint_positions", lambda _: (_ for _ in ()).throw(lag.LagError("no lag")))

    status = kdsl(*call, "--status").output
    rows = [[cell.strip() for cell in line.split("│")] for line in status.splitlines() if line.startswith("│")]
    assert [(row[1], row[2]) for row in rows[:2]] == [("b", "5"), ("`shop.orders`", "0")]
    assert rows[0][5] == "b"
    assert " ".join(row[5] for row in rows[1:]) == "`shop.orders` (no rows yet)"
    assert "batch 1 is not finished; its 70 records are not counted here\ndirty: 1\n" in status
    assert kdsl(*call, "shop.orders", "--schemas").output == kdsl(*call, "`shop.orders`", "--schemas").output
    assert kdsl(*call, "shop.orders", "--schemas", "--ddl").output.startswith("CREATE TABLE `shop.orders` (")
    folder.write("commits/1", "v1\n{}\n")
    assert "dirty: 3\n" in kdsl(*call, "--status").output


def test_a_run_of_the_changes_of_a_delta_table(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    needs_delta()
    table, opened = f"delta.`{tmp_path}/orders`", DeltaSession(spark)
    with opened.active():
        opened.sql(f"CREATE TABLE {table} (id BIGINT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)")
        opened.sql(f"INSERT INTO {table} VALUES (7)")
    file = tmp_path / "orders.yaml"
    file.write_text("source: {type: delta, path: '${folder}/orders', read.change-feed: true}\nsink: {type: print}\n")
    monkeypatch.setattr(command, "session", lambda *_: Unstoppable(spark))
    call = (file, "--var", f"folder={tmp_path}", "--checkpoint", tmp_path / "checkpoint")

    assert kdsl(*call, "--once").exit_code == 0
    status = kdsl(*call, "--status").output
    assert "batch 0 is the last one with rows or changes\nread up to version 1\n" in status
    assert kdsl(*call, "--schemas").output == "orders\n  `id` BIGINT\n"
    assert "--ddl describes tables of Kafka topics, and the source is 'delta'" in str(
        kdsl(*call, "--schemas", "--ddl").exception
    )


class Unstoppable:
    """The session of the tests, which a command does not stop."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def __getattr__(self, name: str) -> Any:
        return getattr(self._spark, name)

    def stop(self) -> None:
        """Go on."""
