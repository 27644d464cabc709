"""Reports of tasks by an accumulator, which costs a batch nothing: on classic sessions.

Spark hands what tasks have accumulated to the driver before a batch's progress is told. There is one accumulator for
each Spark application; it keeps the last reports, each under its query and batch. They travel as plain tuples: what the
driver cannot read would end the accumulators of the whole application.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

from pyspark import Accumulator, AccumulatorParam, TaskContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTION = "metrics.accumulator"
"""The option of a source that names the accumulator of its tasks' reports."""
_KEPT = 20_000  # reports, of less than a kilobyte each
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # what Spark tells the tasks of a batch

_Batch = tuple[str, int]
_Report = tuple[str, int, str, str]
"""The id of a query, a batch, the name of an observation, and what the report says."""


class _Kept:
    """The reports of the last batches."""

    def __init__(self) -> None:
        self._batches: OrderedDict[_Batch, dict[str, list[str]]] = OrderedDict()
        self._count = 0
        self._lock = Lock()

    def extend(self, reports: Iterable[_Report]) -> None:
        with self._lock:
            for query, batch, name, text in reports:
                self._batches.setdefault((query, batch), {}).setdefault(name, []).append(text)
                self._batches.move_to_end((query, batch))
                self._count += 1
            while self._count > _KEPT and len(self._batches) > 1:
                self._drop(next(iter(self._batches)))

    def forget(self, query: str) -> None:
        with self._lock:
            for batch in [batch for batch in self._batches if batch[0] == query]:
                self._drop(batch)

    def of(self, batch: _Batch) -> dict[str, list[str]]:
        with self._lock:
            return {name: list(texts) for name, texts in self._batches.get(batch, {}).items()}

    def _drop(self, batch: _Batch) -> None:
        self._count -= sum(map(len, self._batches.pop(batch).values()))


class _Reports(AccumulatorParam[Any]):
    def zero(self, value: Any) -> list[_Report]:  # noqa: ARG002
        return []

    def addInPlace(self, value1: Any, value2: list[_Report]) -> Any:  # noqa: N802
        value1.extend(value2)  # a list in a task, what is kept on the driver
        return value1


_REPORTS = _Reports()
_KEEPING = _Kept()
_accumulators: dict[str, int] = {}
_lock = Lock()


def accumulator(spark: SparkSession) -> int:
    """The id of the accumulator of a classic session's application."""
    context = spark.sparkContext
    with _lock:
        application = context.applicationId
        if application not in _accumulators:
            _accumulators[application] = context.accumulator(_KEEPING, _REPORTS).aid
        return _accumulators[application]


def tell(accumulator: int, name: str, text: str) -> None:
    """Report, from within a task of a streaming query, once in each task.

    A job that ``foreachBatch`` runs in a thread of its own does not say of which batch it is, and tells nothing, unless
    the thread is one of ``pyspark.InheritableThread``.

    Args:
        accumulator: The id of the accumulator.
        name: The observation that the report is part of.
        text: What it says.
    """
    task = TaskContext.get()
    query, batch = (None, None) if task is None else (task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH))
    if query is not None and batch is not None:
        Accumulator(accumulator, [], _REPORTS).add([(query, int(batch), name, text)])


def forget(query: str) -> None:
    """Forget what was told of a query: it begins anew, and its next batch may be one that has run in part.

    Args:
        query: The id of the query.
    """
    _KEEPING.forget(query)


def reports_of(query: str, batch: int) -> Mapping[str, list[str]]:
    """What the tasks of a batch that has ended have reported, by the names of the observations.

    Args:
        query: The id of the query.
        batch: The batch.
    """
    return _KEEPING.of((query, batch))
