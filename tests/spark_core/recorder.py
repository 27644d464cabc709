"""Stores what ``make test-spark`` has shown, for docs/spark-versions.md, in the file that ``KDSL_SPARK_RUNS`` names.

A plugin of pytest: ``-p tests.spark_core.recorder``. The core is counted by class, the scenarios by file.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from kdsl.spark_versions import pyspark_version

CORE = Path(__file__).parent
ROOT = CORE.parents[1]
SCENARIOS = frozenset(ROOT / name for name in (CORE / "scenarios.txt").read_text(encoding="utf-8").split())
_OUTCOMES: dict[str, Counter[str]] = {}


def describe(item: pytest.Item) -> str | None:
    """The row that counts a test: what its class shows in the core, what its file shows in a scenario; None if none."""
    if not isinstance(item, pytest.Function):
        return None
    if item.path.parent == CORE:
        return None if item.cls is None else item.cls.__doc__ or item.cls.__name__
    return str(item.module.__doc__).splitlines()[0] if item.path in SCENARIOS else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> pytest.TestReport:  # type: ignore[misc]
    """Count the outcome of a test."""
    report: pytest.TestReport = yield
    row = describe(item)
    if row is not None and (report.when == "call" or not report.passed):
        _OUTCOMES.setdefault(row, Counter())[report.outcome] += 1
    return report


def pytest_sessionfinish() -> None:
    """Store the outcomes of this version beside those of the others, and of rows that have not run now."""
    name = os.environ.get("KDSL_SPARK_RUNS")
    if name and _OUTCOMES:
        path = Path(name)
        runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        rows = {what: dict(outcomes) for what, outcomes in _OUTCOMES.items()}
        runs[pyspark_version()] = {**runs.get(pyspark_version(), {}), **rows}
        path.write_text(json.dumps(runs, indent=2, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
