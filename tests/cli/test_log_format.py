"""Lines of JSON on the standard error: ``kdsl --log-format json``, and the formatter in a job's own logging."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kdsl.cli.start import _find_command
from kdsl.errors import Problem, Where
from kdsl.json_logs import JsonFormatter

TABLE = """
from kdsl import Col, Json, KafkaTable

class Orders(KafkaTable, topic="orders", value=Json()):
    id: Col[int]
"""


def lines_of(*arguments: str, env: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Run kdsl in a process; the documents on its standard error."""
    command = [sys.executable, "-m", "kdsl", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **(env or {})})

    assert done.returncode == 1
    return [json.loads(line) for line in done.stderr.splitlines()]


@pytest.mark.parametrize("arguments", [("--log-format", "json"), ("--log-format=json",)], ids=str)
def test_the_error_that_ends_a_command_is_a_line(arguments: tuple[str, ...]) -> None:
    (line,) = lines_of(*arguments, "lag", "missing.py:Orders")

    assert (line["level"], line["logger"], line["error"]) == ("error", "kdsl.cli", "TargetError")
    assert line["message"] == "there is no file 'missing.py'"
    assert line["time"].endswith("+00:00")


def test_the_environment_sets_the_format_and_progress_is_lines_too(tmp_path: Path) -> None:
    file = tmp_path / "orders.py"
    file.write_text(TABLE)

    env = {"KDSL_LOG_FORMAT": "json", "KDSL_BOOTSTRAP_SERVERS": "127.0.0.1:1"}
    *progress, last = lines_of("peek", f"{file}:Orders", env=env)

    assert last["error"] == "UnreachableError"
    assert {line["level"] for line in progress} <= {"info", "warning"}


def format_record(message: str, *args: object, **more: Any) -> dict[str, Any]:
    record = logging.LogRecord("kdsl.read", logging.WARNING, __file__, 1, message, args, None)
    vars(record).update(more)
    text = JsonFormatter().format(record)

    assert "\n" not in text
    document: dict[str, Any] = json.loads(text)
    return document


def test_a_problem_has_its_code_and_its_location() -> None:
    where = Where(table="Orders", file="orders.py", line=4)
    line = format_record("%s", Problem("topic-name", "the topic is 'a b'", "remove the blank", where))

    assert (line["code"], line["table"], line["file"], line["line"]) == ("topic-name", "Orders", "orders.py", 4)
    assert "column" not in line


def test_what_a_caller_adds_follows_under_its_own_name_and_hides_nothing() -> None:
    line = format_record("two\nlines of %s", "text", batch=7, path=Path("/c"), level="x", time="y")

    assert (line["batch"], line["path"], line["level"]) == (7, "/c", "warning")
    assert line["message"] == "two\nlines of text"
    assert line["time"] != "y"


def test_an_error_has_its_class_and_its_traceback() -> None:
    try:
        int("no \u2028 number")
    except ValueError:
        record = logging.LogRecord("kdsl", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    line = json.loads(JsonFormatter().format(record))

    assert line["error"] == "ValueError"
    assert r"no \u2028 number" in line["traceback"]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["run", "x.sql"], ["run"]),
        (["--log-format", "json", "run", "lag"], ["run"]),
        (["--log-format=json", "lag"], ["lag"]),
        (["--help", "run"], ["--help"]),
        (["pek", "plan"], ["pek"]),
        ([], []),
    ],
    ids=str,
)
def test_only_the_command_that_is_called_is_imported(arguments: list[str], word: list[str]) -> None:
    assert _find_command(arguments) == word
