"""What the commands share: the consoles, progress on anything slow, errors as text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from rich.console import Console
from rich.markup import escape

from kdsl.errors import Problem

out = Console()
err = Console(stderr=True)


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
    out.print_json(json.dumps(value, default=str, ensure_ascii=False), highlight=False)


def fail(error: BaseException) -> int:
    """Write an error to the error stream; gives the exit code."""
    err.print(f"[bold red]error:[/] {escape(str(error))}", highlight=False, soft_wrap=True)
    return 1


def problem_json(problem: Problem) -> Mapping[str, Any]:
    """A problem as JSON holds it."""
    return attrs.asdict(problem)


def print_problem(problem: Problem) -> None:
    """Write a problem: its place, what is wrong, what to write instead."""
    colour = "red" if problem.severity == "error" else "yellow"
    place, name = problem.where.place, problem.where.name
    head = f"[bold]{escape(place)}[/]: " if place else ""
    line = f"{head}[{colour}]{problem.severity}[/] {escape(name)}: {escape(problem.message)}"
    out.print(line, highlight=False, soft_wrap=True)
    out.print(f"    [green]fix:[/] {escape(problem.fix)} [dim]\\[{problem.code}][/]", highlight=False, soft_wrap=True)
