"""The progress of a query with what its tasks have reported by accumulator, as if Spark had observed it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from kdsl.run.metrics.accumulated import reports_of
from kdsl.run.metrics.source_reports import OBSERVED, SHOWN, read_reports

_log = logging.getLogger(__name__)


def completed(document: Mapping[str, Any], java: Any = None) -> Mapping[str, Any]:
    """A report of progress with the numbers of its batch among its observations.

    Args:
        document: The report, as Spark's JSON has it.
        java: Java's own object of it, on a classic session. It is given the numbers too: what a user sees in
            ``lastProgress`` is this object.
    """
    if "addBatch" not in document.get("durationMs", {}):
        return document  # nothing has run; the number is that of the next batch
    told = reports_of(str(document["id"]), int(document["batchId"]))
    if not told:
        return document
    observed = dict(document.get("observedMetrics") or {})
    for name, reports in told.items():
        if name in observed:  # Java's own object was given them before
            numbers = observed[name][OBSERVED]
        else:
            numbers = _numbers(reports)
            if java is not None:
                _show(java, name, numbers)
        observed[name] = {OBSERVED: {**numbers, "reports": reports}}
    return {**document, "observedMetrics": observed}


def _numbers(reports: Iterable[str]) -> dict[str, int]:
    counts = read_reports(reports)
    return {number: value for number, field, _ in SHOWN if (value := getattr(counts, field)) is not None}


def _show(java: Any, name: str, numbers: Mapping[str, int]) -> None:
    try:
        java.observedMetrics().put(name, _row(numbers))
    except (Py4JError, TypeError) as e:  # it is Spark's own object; the metrics do without
        _log.warning("Spark's progress does not take the numbers of %s: %s", name, e)


def _row(numbers: Mapping[str, int]) -> Any:
    """A Java row of whole numbers, within a row as an observation is."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001
    jvm = gateway.jvm
    longs = gateway.new_array(jvm.long, len(numbers))
    for at, number in enumerate(numbers.values()):
        longs[at] = number
    columns = ", ".join(f"{name}: bigint" for name in numbers)
    row = jvm.org.apache.spark.sql.catalyst.expressions.GenericRowWithSchema
    types = jvm.org.apache.spark.sql.types.StructType.fromDDL(f"{OBSERVED} struct<{columns}>")
    whole = gateway.new_array(jvm.java.lang.Object, 1)
    whole[0] = row(jvm.java.util.Arrays.stream(longs).boxed().toArray(), types.apply(0).dataType())
    return row(whole, types)
