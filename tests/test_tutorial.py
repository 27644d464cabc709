"""The pages that are followed in a terminal: every file is written and every command run, in the order of the page."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import attrs
import pytest

from kdsl.testing.ports import free_port

ROOT = Path(__file__).parents[1]
TUTORIAL = ROOT / "docs" / "tutorial.md"
GUARANTEES = ROOT / "docs" / "guarantees.md"
PAGES = [TUTORIAL, GUARANTEES]
_BLOCK = re.compile(r"(?:^`([\w.]+)`[^\n]*(?:\n[^`\n][^\n]*)*\n\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@attrs.frozen
class Block:
    """A block of the page: a file, or commands, each with the lines that the page shows below it."""

    file: str
    language: str
    text: str

    @property
    def commands(self) -> list[tuple[str, list[str]]]:
        """The commands with the lines of output that they must contain."""
        result: list[tuple[str, list[str]]] = []
        for line in self.text.splitlines():
            if line.startswith("$ "):
                result.append((line.removeprefix("$ "), []))
            else:
                result[-1][1].append(line)
        return result


def read_blocks(page: Path, until: str = "") -> list[Block]:
    """The blocks of a page, or those before a heading."""
    text = page.read_text(encoding="utf-8")
    return [Block(*match) for match in _BLOCK.findall(text[: text.index(until)] if until else text)]


def write_script(blocks: list[Block], port: int) -> tuple[str, list[tuple[str, list[str]]]]:
    """A shell script of a page, and its commands; the script prints a line of its own before each command."""
    lines: list[str] = []
    commands: list[tuple[str, list[str]]] = []
    for number, block in enumerate(blocks):
        if block.file:
            lines.append(f"cp ../blocks/{number} {block.file}")
            continue
        for command, expected in block.commands:
            lines += [f"echo '##### {len(commands)}'", command.replace("19092", str(port))]
            commands.append((command, expected))
    return "\n".join(["set -euo pipefail", *lines, "echo '##### end'"]) + "\n", commands


def run_page(page: Path, folder: Path, until: str = "") -> list[tuple[str, str]]:
    """Write the files of a page and run its commands, as in a terminal; each command with its output.

    Args:
        page: The page.
        folder: An empty folder, for its files and for those of the run.
        until: The heading before which the run ends; by default at the end of the page.
    """
    blocks = read_blocks(page, until)
    for name in ("bin", "blocks", "work"):
        (folder / name).mkdir()
    submit = Path(sys.executable).with_name("spark-submit")
    for name, call in {"python": sys.executable, "kdsl": f"{sys.executable} -m kdsl", "spark-submit": submit}.items():
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\nexec {call} "$@"\n', encoding="utf-8")
        program.chmod(0o755)
    for number, block in enumerate(blocks):
        (folder / "blocks" / str(number)).write_text(block.text, encoding="utf-8")
    script, commands = write_script(blocks, free_port())
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("KDSL_", "PYSPARK_", "SPARK_"))},
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'formats'}",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "XDG_STATE_HOME": str(folder / "state"),
    }
    log = folder / "output.txt"
    with log.open("w", encoding="utf-8") as output:
        run = subprocess.Popen(
            ["bash", "-c", script],
            cwd=folder / "work",
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            run.wait(1700)
        finally:  # also what the page has left running in the background
            with suppress(ProcessLookupError):
                os.killpg(run.pid, signal.SIGKILL)
            stop = [sys.executable, "-m", "kdsl", "kafka", "stop"]
            subprocess.run(stop, cwd=folder, env=environment, capture_output=True, check=False)
    outputs = re.split(r"^##### .*\n", log.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert run.returncode == 0, f"{commands[len(outputs) - 1][0]}\n{outputs[-1][-5000:]}"
    for (command, lines), text in zip(commands, outputs, strict=False):
        assert set(lines) <= set(text.splitlines()), f"{command}\n{text}"
    return [(command, text) for (command, _), text in zip(commands, outputs, strict=False)]


def output_of(outputs: list[tuple[str, str]], command: str) -> str:
    """What the first command printed that has a string in it."""
    return next(text for name, text in outputs if command in name)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_a_file_or_a_command(page: Path) -> None:
    blocks = read_blocks(page)

    assert [block.text for block in blocks if not block.file and block.language != "console"] == []
    assert len(re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE)) == 2 * len(blocks)


@pytest.mark.kafka
def test_the_first_rows_of_the_tutorial_come_without_spark(tmp_path: Path) -> None:
    outputs = run_page(TUTORIAL, tmp_path, "## Join them")

    assert "2026-01-01 10:05:00+00:00" in output_of(outputs, "kdsl peek tables.py:Payments")


@pytest.mark.reliability
@pytest.mark.timeout(1800)
def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    outputs = run_page(TUTORIAL, tmp_path)

    assert "amount" in output_of(outputs, "kdsl dlq list orders.dead")
    assert "start_at=kdsl.Checkpoint('checkpoints/paid-orders')" in output_of(outputs, "--checkpoint PaidOrders")


def test_mistakes_are_reported_as_the_page_of_guarantees_says(tmp_path: Path) -> None:
    outputs = run_page(GUARANTEES, tmp_path, "## Prepare")

    for code in ("topic-name", "transactional-id-prefix", "watermark-type"):
        assert f"[{code}]" in output_of(outputs, "kdsl check")


@pytest.mark.reliability
@pytest.mark.timeout(1800)
def test_the_guarantees_can_be_checked_as_written(tmp_path: Path) -> None:
    outputs = run_page(GUARANTEES, tmp_path)

    reasons = [text for command, text in outputs if command.startswith("python copies.py --once ||")]
    for reason, words in zip(reasons, ("oops", "deleted", "created again"), strict=True):
        assert words in reason
        assert "numbers" in reason
