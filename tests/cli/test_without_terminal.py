"""Commands that would wait for somebody who types end where nobody can, and shells complete what is typed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

KERNEL = ({"JPY_PARENT_PID": "1"}, {"CLICOLOR_FORCE": "1", "GIT_PAGER": "cat"})
KDSL = (sys.executable, "-c", "import sys; sys.argv[0] = 'kdsl'; from kdsl.cli import main; main()")
PRODUCE = ("produce", "orders", "--bootstrap", "localhost:1")


def call(
    *arguments: str, variables: Mapping[str, str] | None = None, stdin: int | None = None, closed: bool = False
) -> tuple[int, str]:
    """Call kdsl in a process, with a standard input, or none; return the exit code and what it prints."""
    command = [*KDSL, *arguments]
    if closed:
        command = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *command]
    done = subprocess.run(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        env={**os.environ, "COLUMNS": "200", "TERM": "dumb", **(variables or {})},
        check=False,
    )
    return done.returncode, " ".join(done.stdout.split())


@pytest.mark.parametrize("variables", KERNEL)
def test_produce_in_a_cell_of_a_notebook_says_what_to_write(variables: dict[str, str]) -> None:
    keyboard, terminal = os.openpty()
    try:
        code, shown = call(*PRODUCE, stdin=terminal, variables=variables)
    finally:
        os.close(keyboard)
        os.close(terminal)

    assert code == 2
    assert "there is no standard input to read from; name a file of lines" in shown


def test_produce_without_a_standard_input_says_the_same() -> None:
    code, shown = call(*PRODUCE, closed=True)

    assert code == 2
    assert "there is no standard input to read from" in shown


def test_produce_on_a_terminal_says_how_the_lines_end() -> None:
    keyboard, terminal = os.openpty()
    os.write(keyboard, b"\x04")  # Ctrl-D
    try:
        code, shown = call(*PRODUCE, "--key-separator", ":", stdin=terminal)
    finally:
        os.close(keyboard)
        os.close(terminal)

    assert "reading lines from the terminal; Ctrl-D ends them" in shown
    assert code in (0, 1)  # it ends, although there is no broker


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ("kdsl la", "lag"),
        ("kdsl monitor gr", "grafana"),
        ("kdsl lag --check", "--checkpoint"),
        ("kdsl document-schema in", "ingestion"),
        ("kdsl explain topic-pat", "topic-pattern"),
    ],
)
def test_shells_complete_commands_options_values_and_codes(typed: str, expected: str) -> None:
    words = {"COMP_WORDS": typed, "COMP_CWORD": str(len(typed.split()) - 1)}
    done = subprocess.run(
        KDSL,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "_KDSL_COMPLETE": "complete_bash", **words},
        check=False,
    )

    assert expected in done.stdout.split(), done.stderr


def test_the_completion_is_installed_for_bash(tmp_path: Path) -> None:
    variables = {"HOME": str(tmp_path), "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    code, shown = call("--install-completion", "bash", variables=variables)

    assert code == 0, shown
    script = (tmp_path / ".bash_completions" / "kdsl.sh").read_text(encoding="utf-8")
    assert "_KDSL_COMPLETE=complete_bash" in script
    assert "kdsl.sh" in (tmp_path / ".bashrc").read_text(encoding="utf-8")
