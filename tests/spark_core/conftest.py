"""Stores what the core has shown, for docs/spark-versions.md, in the file that ``KDSL_SPARK_RUNS`` names."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdsl.spark_versions import pyspark_version


@pytest.fixture(autouse=True)
def active_session(request: pytest.FixtureRequest) -> Iterator[None]:
    """Lets a test end with the session with which it began, because some work in a session of their own."""
    yield
    if "spark" in request.fixturenames:
        request.getfixturevalue("spark").createDataFrame([], "a INT")  # which makes the session the active one


_OUTCOMES: dict[str, Counter[str]] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> pytest.TestReport:  # type: ignore[misc]
    """Count the outcome of a test under the description of its class."""
    report: pytest.TestReport = yield
    if isinstance(item, pytest.Function) and item.cls is not None and (report.when == "call" or report.failed):
        _OUTCOMES.setdefault(item.cls.__doc__ or item.cls.__name__, Counter())[report.outcome] += 1
    return report


def pytest_sessionfinish() -> None:
    """Store the outcomes of this version beside those of the others, and of classes that have not run now."""
    name = os.environ.get("KDSL_SPARK_RUNS")
    if name and _OUTCOMES:
        path = Path(name)
        runs = json.loads(path.read_text()) if path.exists() else {}
        rows = {what: dict(outcomes) for what, outcomes in _OUTCOMES.items()}
        runs[pyspark_version()] = {**runs.get(pyspark_version(), {}), **rows}
        path.write_text(json.dumps(runs, indent=2, ensure_ascii=False, sort_keys=True) + "\n")
