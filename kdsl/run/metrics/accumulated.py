"""Reports of tasks by an accumulator, which costs a batch nothing: on classic sessions.

Spark hands what tasks have accumulated to the driver before a batch's progress is told. There is one accumulator for
each Spark application; it keeps the reports of the last batches, each under its query and batch.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs
from pyspark import AccumulatorParam, TaskContext
from pyspark.accumulators import _deserialize_accumulator

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OPTION = "metrics.accumulator"
"""The option of a source that names the accumulator of its tasks' reports."""
_KEPT = 500
_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # what Spark tells the tasks of a batch

_Batch = tuple[str, int]


@attrs.frozen
class Report:
    """A report on its way.

    Attributes:
        query: The id of the query.
        batch: The batch.
        name: The observation that it is part of.
        text: What it says.
    """

    query: str
    batch: int
    name: str
    text: str


class _Kept:
    """The reports of the last batches."""

    def __init__(self) -> None:
        self._batches: OrderedDict[_Batch, dict[str, list[str]]] = OrderedDict()
        self._lock = Lock()

    def extend(self, reports: Iterable[Report]) -> None:
        with self._lock:
            for one in reports:
                key = (one.query, one.batch)
                self._batches.setdefault(key, {}).setdefault(one.name, []).append(one.text)
                self._batches.move_to_end(key)
            while len(self._batches) > _KEPT:
                self._batches.popitem(last=False)

    def of(self, batch: _Batch) -> dict[str, list[str]]:
        with self._lock:
            return {name: list(texts) for name, texts in self._batches.get(batch, {}).items()}


class _Reports(AccumulatorParam[Any]):
    def zero(self, value: Any) -> list[Report]:  # noqa: ARG002
        return []

    def addInPlace(self, value1: Any, value2: list[Report]) -> Any:  # noqa: N802
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
    """Report, from within a task of a streaming query.

    Args:
        accumulator: The id of the accumulator.
        name: The observation that the report is part of.
        text: What it says.
    """
    task = TaskContext.get()
    query, batch = (None, None) if task is None else (task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH))
    if query is not None and batch is not None:
        _deserialize_accumulator(accumulator, [], _REPORTS).add([Report(query, int(batch), name, text)])


def reports_of(query: str, batch: int) -> Mapping[str, list[str]]:
    """What the tasks of a batch that has ended have reported, by the names of the observations.

    Args:
        query: The id of the query.
        batch: The batch.
    """
    return _KEEPING.of((query, batch))
