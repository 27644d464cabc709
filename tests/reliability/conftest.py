"""Prints what held: a table of the scenarios of a run, which `make test-reliability` ends with."""

from __future__ import annotations

import inspect
import re

import pytest

from tests.changelog.conftest import postgres

__all__ = ["postgres"]

_IDS = re.compile(r"\b[SFKW]\d+\b")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note the scenarios that a test names at the beginning of its docstring."""
    for item in items:
        about = inspect.getdoc(getattr(item, "function", None)) or ""
        matches = _IDS.findall(about.partition(".")[0])
        if matches:
            item.user_properties.append(("scenarios", " ".join(matches)))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table, where long scenarios were asked for."""
    if config.getoption("markexpr") != "reliability":
        return
    rows = []
    for result in ("passed", "failed", "error", "skipped"):
        for report in terminalreporter.stats.get(result, []):
            ids = dict(getattr(report, "user_properties", ())).get("scenarios", "")
            what = report.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")
            rows.append((str(ids), what, result, report.duration))
    terminalreporter.section("scenarios")
    for ids, what, result, seconds in sorted(rows):
        terminalreporter.write_line(f"{ids:<8} {result:<8} {seconds:6.0f} s  {what}", red=result in ("failed", "error"))
