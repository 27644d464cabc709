"""Reports that came by accumulator, put into the progress of their batch, without Spark."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kdsl.run.metrics import accumulated
from kdsl.run.metrics.accumulated import Report, reports_of
from kdsl.run.metrics.progress import completed
from kdsl.run.metrics.source_reports import Reporter


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the driver keeps, empty."""
    made = accumulated._Kept()
    monkeypatch.setattr(accumulated, "_KEEPING", made)
    return made


def report(records: int, task: str = "a") -> str:
    reporter = Reporter(task)
    reporter.read(records, 10 * records, None, 0.0)
    return reporter.report()


def document(batch: int, **more: Any) -> dict[str, Any]:
    return {"id": "q", "batchId": batch, "durationMs": {"addBatch": 3}, **more}


def test_the_reports_of_a_batch_stand_beside_what_spark_observed(kept: Any) -> None:
    kept.extend([Report("q", 1, "kdsl.x.1", report(3)), Report("q", 1, "kdsl.x.1", report(2, "b"))])
    kept.extend([Report("q", 2, "kdsl.x.1", report(9)), Report("other", 1, "kdsl.x.1", report(9))])

    found = completed(document(1, observedMetrics={"mine": {"n": 1}}))["observedMetrics"]

    assert found["mine"] == {"n": 1}
    numbers = found["kdsl.x.1"]["metrics"]
    assert (numbers["numRecordsIn"], numbers["numBytesIn"], len(numbers["reports"])) == (5, 50, 2)
    assert "currentFetchEventTimeLag" not in numbers, "no record had a timestamp"


def test_a_progress_of_waiting_has_the_number_of_the_next_batch_and_none_of_its_reports(kept: Any) -> None:
    kept.extend([Report("q", 1, "kdsl.x.1", report(3))])
    waiting = document(1, durationMs={"latestOffset": 1})

    assert completed(waiting) is waiting


def test_a_batch_without_reports_is_as_it_was(kept: Any) -> None:
    told = document(1)

    assert completed(told) is told


def test_of_many_batches_the_last_are_kept(kept: Any) -> None:
    for n in range(2_000):
        kept.extend([Report("q", n, "kdsl.x.1", report(1))])

    assert reports_of("q", 0) == {}
    assert list(reports_of("q", 1_999)) == ["kdsl.x.1"]


def test_outside_a_batch_of_a_stream_nothing_is_told() -> None:
    accumulated.tell(-99, "kdsl.x.1", report(1))

    assert pickle.loads(pickle.dumps(Report("q", 1, "n", "t"))) == Report("q", 1, "n", "t")
