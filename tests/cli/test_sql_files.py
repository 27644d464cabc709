"""Files of SQL at the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kdsl.cli.app import app

GOOD = """\
-- where orders come from
CREATE TABLE orders (
  id BIGINT,
  amount DECIMAL(10, 2),
  placed_at TIMESTAMP(3) METADATA FROM 'timestamp',
  placed_on AS CAST(placed_at AS DATE)
) WITH (
  'connector' = 'kafka',
  'topic' = 'orders',
  'properties.bootstrap.servers' = 'localhost:9092',
  'format' = 'json'
);
CREATE TABLE copies (note STRING) WITH ('topic' = 'copies') LIKE orders (EXCLUDING GENERATED OVERWRITING OPTIONS);
CREATE TABLE shown WITH ('connector' = 'print') LIKE orders (EXCLUDING OPTIONS EXCLUDING METADATA EXCLUDING GENERATED);
INSERT INTO shown SELECT id, amount FROM orders;
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tables.sql"
    path.write_text(GOOD, encoding="utf-8")
    return path


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_a_valid_file_is_checked(file: Path) -> None:
    result = run("check", file)

    assert result.exit_code == 0
    assert "2 tables checked: no problems" in result.stdout


def test_a_mistake_is_shown_with_its_line_and_a_caret(file: Path) -> None:
    file.write_text(GOOD.replace("DECIMAL(10", "DECIMEL(10").replace("'format' = 'json'", "'format' 'json'"), "utf-8")

    result = run("check", file)

    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert "tables.sql:4:10: error orders.amount: there is no type 'DECIMEL' (did you mean 'DECIMAL'?)" in lines[0]
    assert lines[1:3] == ["      amount DECIMEL(10, 2),", "             ^^^^^^^"]
    assert any("tables.sql:11:12: error: found \"'json'\", where '=' is expected" in line for line in lines)


def test_a_problem_of_the_resolver_is_shown_the_same_way(file: Path) -> None:
    file.write_text(GOOD.replace("'topic' = 'orders'", "'topc' = 'orders'"), "utf-8")

    result = run("check", file, "--json")

    problem = next(p for p in json.loads(result.stdout)["problems"] if p["code"] == "option-unknown")
    assert (problem["where"]["line"], problem["where"]["position"]) == (9, 3)
    assert problem["where"]["excerpt"] == "  'topc' = 'orders',\n  ^^^^^^^^^^^^^^^^^"


def test_a_table_of_a_file_is_planned(file: Path) -> None:
    assert "orders" in run("plan", f"{file}:orders").stdout
    assert run("schema", f"{file}:copies").stdout.splitlines()[-1] == " |-- note: string (nullable = true)"


def test_one_of_several_is_asked_for(file: Path) -> None:
    result = run("schema", file)

    assert "has several tables; write" in str(result.exception)


def test_a_missing_file() -> None:
    assert "there is no file 'nowhere.sql'" in run("check", "nowhere.sql").stdout


def test_the_queries_of_a_script_are_judged_too(file: Path) -> None:
    file.write_text(GOOD.replace("SELECT id, amount FROM", "SELECT id, amuont FROM"), "utf-8")

    result = run("check", file)

    assert result.exit_code == 1
    assert "tables.sql:15:30: error: there is no column 'amuont' (did you mean 'amount'?)" in result.stdout


def test_a_script_without_a_topic_is_valid(file: Path) -> None:
    file.write_text(
        "CREATE TABLE made (id INT) WITH ('connector' = 'datagen');\n"
        "CREATE TABLE gone (id INT) WITH ('connector' = 'blackhole');\n"
        "INSERT INTO gone SELECT id FROM made;\n",
        "utf-8",
    )

    result = run("check", file)

    assert (result.exit_code, result.stdout) == (0, "0 tables checked: no problems\n")
