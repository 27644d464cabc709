"""Adds the reports that tasks sent by accumulator to a query's progress, as if Spark had observed them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from kdsl.run.metrics import accumulated
from kdsl.run.metrics.source_reports import OBSERVED, PROGRESS_NUMBERS, read_reports, violations_name
from kdsl.run.records.drops import count_violations
from kdsl.spark_internals.observations import ObservationError, add_observation

_log = logging.getLogger(__name__)


def add_reports(document: Mapping[str, Any], java: Any = None) -> Mapping[str, Any]:
    """Return a progress report whose observations also have what tasks reported.

    It is the same one if they reported nothing, or if no batch has run.

    Args:
        document: The report, as Spark's JSON.
        java: The Java object of the report, on a classic session. The numbers are added to it, too, because users see
            this object in ``lastProgress``.
    """
    if "addBatch" not in document.get("durationMs", {}):
        return document  # no batch has run; the id is that of the next batch
    all_reports = accumulated.STORE.reports((str(document["id"]), int(document["batchId"])))
    if not all_reports:
        return document
    observed = dict(document.get("observedMetrics") or {})
    for name, reports in all_reports.items():
        if name in observed:  # they were added to the Java object before
            numbers = observed[name][OBSERVED]
        else:
            numbers = _numbers(reports)
            if java is not None:
                _add_to_java(java, name, numbers)
        observed[name] = {OBSERVED: {**numbers, "reports": reports}}
    return {**document, "observedMetrics": observed}


def _numbers(reports: Iterable[str]) -> dict[str, int]:
    """Add up reports to the numbers in the progress, by name; numbers that are not known are left out."""
    counts = read_reports(reports)
    numbers = {number: value for number, field, _ in PROGRESS_NUMBERS if (value := counts.number(field)) is not None}
    return {**numbers, **{violations_name(rule): n for (_, rule), n in count_violations(counts.dropped).items()}}


def _add_to_java(java: Any, name: str, numbers: Mapping[str, int]) -> None:
    """Add numbers to Spark's Java object of a progress, as an observation; an ObservationError is only logged."""
    try:
        add_observation(java, name, OBSERVED, numbers)
    except ObservationError as e:  # the metrics do not need it
        _log.warning("cannot add the numbers of %s to Spark's progress: %s", name, e)
