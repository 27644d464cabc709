"""The pages that are followed in a terminal: every file is written and every command run, in the order of the page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import attrs
import pytest

from kdsl.testing.ports import free_port

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "docs" / "tutorial.md"]
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


def read_blocks(page: Path) -> list[Block]:
    return [Block(*match) for match in _BLOCK.findall(page.read_text(encoding="utf-8"))]


def write_script(blocks: list[Block], port: int) -> tuple[str, list[tuple[str, list[str]]]]:
    """A shell script of a page, and its commands; the script prints a line of its own before each command."""
    lines: list[str] = []
    commands: list[tuple[str, list[str]]] = []
    for number, block in enumerate(blocks):
        if block.file:
            lines.append(f"cp ../blocks/{number} {block.file}")
            continue
        for command, expected in block.commands:
            lines += [f"echo '=== {len(commands)}'", command.replace("19092", str(port))]
            commands.append((command, expected))
    return "\n".join(["set -euo pipefail", *lines, "echo '=== end'"]) + "\n", commands


def run_page(page: Path, folder: Path) -> dict[str, str]:
    """Write the files of a page and run its commands, as in a terminal; the output of each command."""
    blocks = read_blocks(page)
    for name in ("bin", "blocks", "work"):
        (folder / name).mkdir()
    for name, call in {"python": '"$@"', "kdsl": '-m kdsl "$@"'}.items():
        program = folder / "bin" / name
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" {call}\n', encoding="utf-8")
        program.chmod(0o755)
    (folder / "bin" / "spark-submit").symlink_to(Path(sys.executable).with_name("spark-submit"))
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
    try:
        run = subprocess.run(
            ["bash", "-c", script],
            cwd=folder / "work",
            env=environment,
            capture_output=True,
            text=True,
            timeout=1700,
            check=False,
        )
    finally:
        stop = [sys.executable, "-m", "kdsl", "kafka", "stop"]
        subprocess.run(stop, cwd=folder, env=environment, capture_output=True, check=False)
    outputs = re.split(r"^=== .*\n", run.stdout, flags=re.MULTILINE)[1:]
    assert run.returncode == 0, f"{commands[len(outputs) - 1][0]}\n{outputs[-1]}\n{run.stderr[-5000:]}"
    for (command, lines), output in zip(commands, outputs, strict=False):
        assert set(lines) <= set(output.splitlines()), f"{command}\n{output}"
    return {command: output for (command, _), output in zip(commands, outputs, strict=False)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_is_a_file_or_a_command(page: Path) -> None:
    blocks = read_blocks(page)

    assert [block.text for block in blocks if not block.file and block.language != "console"] == []
    assert len(re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE)) == 2 * len(blocks)


@pytest.mark.reliability
@pytest.mark.timeout(1800)
def test_the_tutorial_works_as_written(tmp_path: Path) -> None:
    outputs = run_page(PAGES[0], tmp_path)

    letters = outputs["kdsl dlq list orders.dead"]
    assert "amount" in letters
