"""Sends values from tasks to the driver by an accumulator, at no cost for a batch; for classic sessions.

Spark delivers the values of a task that has succeeded before it counts the task as done. They are of plain types: a
value that the driver cannot unpickle would break all accumulators of the application.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING, Any, Protocol

from kdsl.spark_internals.workers import task_accumulator

if TYPE_CHECKING:
    from pyspark import AccumulatorParam
    from pyspark.sql import SparkSession

    Param = AccumulatorParam[Any]
else:
    Param = object  # PySpark asks for the methods only


class Receiver(Protocol):
    """Receives the values on the driver, on the thread on which Spark waits for accumulators."""

    def extend(self, values: Iterable[Any], /) -> None:
        """Receive the values of a task."""
        ...


class _Values(Param):
    def zero(self, value: Any) -> list[Any]:  # noqa: ARG002
        """Return an empty list, with which a task begins."""
        return []

    def addInPlace(self, value1: Any, value2: list[Any]) -> Any:  # noqa: N802
        """Append the values of the second argument to the first, and return the first."""
        value1.extend(value2)  # a list in a task, the receiver on the driver
        return value1


_VALUES = _Values()


class Accumulators:
    """The accumulators that deliver to one receiver: one for each Spark application."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._ids: dict[str, int] = {}
        self._lock = Lock()

    def id_of(self, spark: SparkSession) -> int:
        """Return the id of the accumulator of a classic session's application; create it if needed."""
        context = spark.sparkContext
        with self._lock:
            application = context.applicationId
            if application not in self._ids:
                self._ids[application] = context.accumulator(self._receiver, _VALUES).aid
            return self._ids[application]


def send_to_driver(accumulator: int, value: Any) -> None:
    """Send a value of plain types from a task to the receiver of an accumulator, which is given by its id.

    Spark delivers all values of a task if it succeeds. On the driver, the receiver gets the value at once.
    """
    task_accumulator(accumulator, _VALUES).add([value])
