"""What the commands share: the consoles, progress on anything slow, errors as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from textwrap import indent
from typing import Any

import attrs
from rich.console import Console
from rich.text import Text

from kdsl.errors import Problem

out = Console(emoji=False)
err = Console(stderr=True, emoji=False)


@contextmanager
def progress(doing: str) -> Iterator[None]:
    """Show on the error stream that something is under way; where that is no terminal, a line when it begins."""
    if err.is_terminal:
        with err.status(doing):
            yield
    else:
        err.print(f"{doing} …", highlight=False)
        yield


def print_json(value: Any) -> None:
    """Write a value as one JSON document to the output."""
    plain = not out.encoding.lower().startswith("utf")
    out.print_json(json.dumps(value, default=str), highlight=False, ensure_ascii=plain)


def fail(error: BaseException) -> int:
    """Write an error to the error stream; gives the exit code."""
    err.print(Text.assemble(("error:", "bold red"), f" {error}"), highlight=False, soft_wrap=True)
    return 1


def problem_json(problem: Problem) -> Mapping[str, Any]:
    """A problem as JSON holds it."""
    return attrs.asdict(problem)


def print_problem(problem: Problem) -> None:
    """Write a problem: its place, what is wrong, what to write instead."""
    colour = "red" if problem.severity == "error" else "yellow"
    place, name = problem.where.place, problem.where.name
    line = Text.assemble((place, "bold"), ": " if place else "", (problem.severity, colour))
    line.append(f" {name}: {problem.message}" if name else f": {problem.message}")
    fix = Text.assemble("    ", ("fix:", "green"), f" {problem.fix} ", (f"[{problem.code}]", "dim"))
    excerpt = problem.where.excerpt
    lines = [line, *([Text(indent(excerpt, "    "))] if excerpt else []), fix]
    out.print(*lines, sep="\n", highlight=False, soft_wrap=True)
