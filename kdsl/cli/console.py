"""What the commands share: the consoles, progress on anything slow, errors as text."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from typing import Any

import attrs
from rich.console import Console
from rich.status import Status
from rich.text import Text

from kdsl.errors import Problem, decode_text
from kdsl.explanations import explanations
from kdsl.json_logs import JsonFormatter, find_problem
from kdsl.retry import PROGRESS

out = Console(emoji=False)
err = Console(stderr=True, emoji=False)
_json_logs: logging.Formatter | None = None
_LONGEST = 400
"""The longest text of a message that a terminal shows, in characters."""


def use_json_logs() -> None:
    """From now on write what kdsl logs, progress, and the error that ends a command as lines of JSON."""
    global _json_logs
    _json_logs = JsonFormatter()


def _write_record(formatter: logging.Formatter, record: logging.LogRecord) -> None:
    err.file.write(f"{formatter.format(record)}\n")
    err.file.flush()


def _make_record(level: int, message: str, **more: Any) -> logging.LogRecord:
    """A record of the command itself, and not of a part of kdsl that logs."""
    return logging.makeLogRecord(
        {
            "name": "kdsl.cli",
            "levelno": level,
            "levelname": logging.getLevelName(level),
            "msg": message,
            **more,
        }
    )


@contextmanager
def progress(doing: str) -> Iterator[Callable[[str], None]]:
    """Show progress on the error stream while something runs; without a terminal, print one line at the start.

    The result replaces the line on a terminal.
    """
    if err.is_terminal and _json_logs is None:
        with err.status(doing) as status:
            yield status.update
    else:
        print_status(f"{doing} …")
        yield lambda _: None


def is_notebook() -> bool:
    """Whether a cell of a notebook has started this process: its terminal takes no input, and no Ctrl-C.

    Kernels set one of these variables, or both, whatever starts them.
    """
    kernel = os.environ.get("CLICOLOR_FORCE") == "1" and os.environ.get("GIT_PAGER") == "cat"
    return kernel or "JPY_PARENT_PID" in os.environ


def has_keyboard() -> bool:
    """Whether the standard input is a terminal on which somebody can type; it is None where it is closed."""
    return sys.stdin is not None and sys.stdin.isatty() and not is_notebook()


def print_status(line: str) -> None:
    """Print a line to the error stream."""
    if _json_logs is not None:
        _write_record(_json_logs, _make_record(logging.INFO, line))
        return
    err.print(line, markup=False, highlight=False, soft_wrap=True)


def print_text(text: str) -> None:
    """Print text to the output as it is, without markup or wrapping."""
    out.print(text, markup=False, highlight=False, soft_wrap=True)


def write_document(text: str, file: Path | None) -> None:
    """Write a document to a file, whose folder is created, and say so; without a file, to the standard output."""
    if file is None:
        out.file.write(text)
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    print_status(f"wrote {file}")


class LogLines(logging.Handler):
    """Prints what kdsl logs on the standard error, one line each; see `log_lines`.

    Args:
        printed: Problems that were printed already; their warnings are not printed again.
    """

    def __init__(self, printed: Iterable[Problem]) -> None:
        super().__init__()
        self._printed = {(p.code, p.message) for p in printed}
        self._status: Status | None = None

    @contextmanager
    def show_progress(self, doing: str) -> Iterator[None]:
        """On a terminal, show the newest record about progress in a line below the others, instead of a line for each.

        Args:
            doing: What the line says before the first such record, whose attribute `PROGRESS` is true.
        """
        if not err.is_terminal or _json_logs is not None:
            yield
            return
        with err.status(Text(doing)) as self._status:
            try:
                yield
            finally:
                self._status = None

    def emit(self, record: logging.LogRecord) -> None:
        """Print a log record on the standard error, unless it is a problem that was already printed."""
        problem = find_problem(record)
        if problem is not None and (problem.code, problem.message) in self._printed:
            return
        if _json_logs is not None:
            _write_record(_json_logs, record)
            return
        if self._status is not None and getattr(record, PROGRESS, False):
            self._status.update(Text(record.getMessage()))
            return
        style = "red" if record.levelno >= logging.ERROR else "yellow"
        level = Text(f"{record.levelname.lower()}: ", style) if record.levelno > logging.INFO else ""
        err.print(Text.assemble(level, record.getMessage()), highlight=False, soft_wrap=True)


@contextmanager
def log_lines(printed: Iterable[Problem] = ()) -> Iterator[LogLines]:
    """Print what kdsl logs at the level INFO and above in the body to the error stream, one line each.

    The result can show progress in one line.

    Other handlers of kdsl's logger stay; its level, and its handlers, are restored at the end.

    Args:
        printed: Problems that were printed already; their warnings are not printed again.
    """
    logger, handler = logging.getLogger("kdsl"), LogLines(printed)
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(min(logger.getEffectiveLevel(), logging.INFO))
    try:
        yield handler
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def print_json(value: Any) -> None:
    """Print a value as one JSON document on the standard output; objects that JSON does not have become strings.

    Keys that JSON does not have, and a value inside itself, are errors as for `json.dumps`.
    """
    plain = not out.encoding.lower().startswith("utf")
    out.print_json(json.dumps(value, default=str), highlight=False, ensure_ascii=plain)


def fail(error: BaseException) -> int:
    """Print the message of an error, as it is, and its class if `explain` knows it, and return the exit code 1."""
    name = type(error).__name__
    if _json_logs is not None:
        _write_record(_json_logs, _make_record(logging.ERROR, str(error), error=name))
        return 1
    code = (f" [{name}]", "dim") if name in explanations() else ""
    err.print(Text.assemble(("error:", "bold red"), f" {error}", code), highlight=False, soft_wrap=True)
    return 1


def problem_json(problem: Problem) -> Mapping[str, Any]:
    """A problem as a JSON object."""
    return attrs.asdict(problem)


def print_problem(problem: Problem) -> None:
    """Print a problem on the standard output: its location, what is wrong, the lines there, the fix, and its code."""
    colour = "red" if problem.severity == "error" else "yellow"
    location, name = problem.where.location, problem.where.name
    line = Text.assemble((location, "bold"), ": " if location else "", (problem.severity, colour))
    line.append(f" {name}: {problem.message}" if name else f": {problem.message}")
    fix = Text.assemble("    ", ("fix:", "green"), f" {problem.fix} ", (f"[{problem.code}]", "dim"))
    excerpt = problem.where.excerpt
    lines = [line, *([Text(indent(excerpt, "    "))] if excerpt else []), fix]
    out.print(*lines, sep="\n", highlight=False, soft_wrap=True)


def display_bytes(data: bytes | None) -> str:
    """Return bytes for the terminal: as `kdsl.errors.decode_text`, and ``NULL`` for None.

    Long ones end after 400 characters, with ``…`` and the number of bytes.
    """
    text = decode_text(data)
    if text is None:
        return "NULL"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(data or b'')} bytes)"
