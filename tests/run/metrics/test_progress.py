"""Reports that came by accumulator, put into the progress of their batch, without Spark."""

from __future__ import annotations

from typing import Any

import pytest

from kdsl.run.listeners.events import Query
from kdsl.run.metrics import accumulated
from kdsl.run.metrics.observer import METRICS
from kdsl.run.metrics.progress import add_reports
from kdsl.run.metrics.source_reports import Reporter


@pytest.fixture
def report_store(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the driver keeps, empty."""
    result = accumulated.ReportStore()
    monkeypatch.setattr(accumulated, "STORE", result)
    return result


def report(records: int, task: str = "a") -> str:
    reporter = Reporter(task)
    reporter.read(records, 10 * records, None, 0.0)
    return reporter.report()


def document(batch: int, **more: Any) -> dict[str, Any]:
    return {"id": "q", "batchId": batch, "durationMs": {"addBatch": 3}, **more}


def test_the_reports_of_a_batch_are_next_to_sparks_observations(report_store: Any) -> None:
    report_store.extend([("q", 1, "kdsl.x.1", report(3)), ("q", 1, "kdsl.x.1", report(2, "b"))])
    report_store.extend([("q", 2, "kdsl.x.1", report(9)), ("other", 1, "kdsl.x.1", report(9))])

    result = add_reports(document(1, observedMetrics={"mine": {"n": 1}}))["observedMetrics"]

    assert result["mine"] == {"n": 1}
    numbers = result["kdsl.x.1"]["metrics"]
    assert (numbers["numRecordsIn"], numbers["numBytesIn"], len(numbers["reports"])) == (5, 50, 2)
    assert "currentFetchEventTimeLag" not in numbers, "no record had a timestamp"


def test_an_idle_progress_has_the_number_of_the_next_batch_and_none_of_its_reports(report_store: Any) -> None:
    report_store.extend([("q", 1, "kdsl.x.1", report(3))])
    waiting = document(1, durationMs={"latestOffset": 1})

    assert add_reports(waiting) is waiting


def test_a_batch_without_reports_is_unchanged(report_store: Any) -> None:
    message = document(1)

    assert add_reports(message) is message


def test_all_reports_of_the_last_batches_are_kept(report_store: Any) -> None:
    text = report(1)
    for n in range(300):
        report_store.extend([("q", n, "kdsl.x.1", text)] * 100)

    assert accumulated.STORE.reports(("q", 0)) == accumulated.STORE.reports(("q", 99)) == {}
    assert [len(accumulated.STORE.reports(("q", n))["kdsl.x.1"]) for n in (100, 299)] == [100, 100]

    report_store.extend([("q", 300, "kdsl.x.1", text)] * 50_000)
    assert len(accumulated.STORE.reports(("q", 300))["kdsl.x.1"]) == 50_000
    assert accumulated.STORE.reports(("q", 299)) == {}


def test_a_batch_that_a_query_has_run_in_part_before_it_was_started_again_counts_once(report_store: Any) -> None:
    report_store.extend([("q", 1, "kdsl.x.1", report(3)), ("other", 1, "kdsl.x.1", report(9))])
    METRICS.on_start(Query("q", "run 2"))
    report_store.extend([("q", 1, "kdsl.x.2", report(5))])

    assert list(accumulated.STORE.reports(("q", 1))) == ["kdsl.x.2"]
    assert list(accumulated.STORE.reports(("other", 1))) == ["kdsl.x.1"]


class Unwilling:
    """A progress of Java's that lets nobody add to it."""

    def observedMetrics(self) -> dict[str, Any]:
        raise TypeError("read-only")


def test_numbers_that_sparks_object_does_not_accept_are_reported_nevertheless(
    report_store: Any, caplog: pytest.LogCaptureFixture
) -> None:
    report_store.extend([("q", 1, "kdsl.x.1", report(3))])

    result = add_reports(document(1), Unwilling())["observedMetrics"]

    assert result["kdsl.x.1"]["metrics"]["numRecordsIn"] == 3
    assert "kdsl.x.1" in caplog.text
    assert "read-only" in caplog.text


def test_nothing_is_reported_outside_of_a_batch() -> None:
    accumulated.send_report(-99, "kdsl.x.1", report(1))
