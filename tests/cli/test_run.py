"""``kdsl run``: what it prints without Spark, and how it ends."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from kdsl.cli.app import app

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


def test_everything_wrong_is_told_with_line_column_and_caret(tmp_path: Path) -> None:
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


def test_wrong_calls_end_with_2(tmp_path: Path) -> None:
    assert run("nowhere.sql").exit_code == 2
    assert run("--dry-run", "-D", "x", str(EXAMPLES / "copy.sql")).exit_code == 2


def test_a_setting_of_the_command_holds_from_the_start() -> None:
    arguments = ("--dry-run", "--bootstrap-servers", "x:1", "-D", "execution.runtime-mode=batch")

    assert run(*arguments, str(EXAMPLES / "copy.sql")).stdout.startswith("insert-1-kafka_sink (batch)")


@pytest.mark.parametrize("setting", ["execution.runtime-mode=btach", "parallelism.default=0"])
def test_a_wrong_value_of_the_command_is_refused_as_one_of_the_script(setting: str) -> None:
    done = run("--dry-run", "--bootstrap", "x:1", "-D", setting, str(EXAMPLES / "copy.sql"))

    assert done.exit_code == 1
    assert "-D" in done.stdout
    assert setting.partition("=")[0] in done.stdout


def test_an_unknown_setting_of_the_command_is_told_with_the_nearest() -> None:
    done = run("--dry-run", "--bootstrap", "x:1", "-D", "execution.runtime-mod=batch", str(EXAMPLES / "copy.sql"))

    assert done.exit_code == 0
    assert "did you mean 'execution.runtime-mode'?" in done.stdout


def test_a_script_of_tables_alone_is_said_to_be_one(tmp_path: Path) -> None:
    path = tmp_path / "tables.sql"
    path.write_text("CREATE TABLE p (id INT) WITH ('connector' = 'print');")

    assert run(str(path)).stdout == "the script declares tables, and writes to none\n"
