"""Sends the reports of tasks to the driver by an accumulator, and stores the last ones by query and batch.

Spark passes accumulated values to the driver before it reports a batch's progress.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from threading import Lock

import orjson

from kdsl.run.metrics.source_reports import SINK_OBSERVATION, Reporter, StateSize
from kdsl.run.records.drops import DropLog, log_drops
from kdsl.run.task_reports import Accumulators, send_to_driver
from kdsl.spark_internals.workers import current_batch_id, current_query_id, current_task

OPTION = "metrics.accumulator"
"""The option of a source that names the accumulator of its tasks' reports."""
_MAX_REPORTS = 20_000  # reports, of less than a kilobyte each

_Batch = tuple[str, int]
_Report = tuple[str, int, str, str]
"""The id of a query, a batch, the name of an observation, and the report. For a read outside a query: an empty
id, -1, the table's name, and what was left out, as JSON."""
_NO_QUERY = ""


class ReportStore:
    """Stores the reports of the last batches."""

    def __init__(self) -> None:
        self._batches: OrderedDict[_Batch, dict[str, list[str]]] = OrderedDict()
        self._count = 0
        self._lock = Lock()

    def extend(self, reports: Iterable[_Report]) -> None:
        """Add reports of tasks by query and batch; if there are too many, drop the batches that got none for longest.

        What reads outside of a query have left out is logged instead.
        """
        with self._lock:
            for query, batch, name, text in reports:
                if query == _NO_QUERY:
                    _DROPS.add(name, orjson.loads(text))
                    continue
                self._batches.setdefault((query, batch), {}).setdefault(name, []).append(text)
                self._batches.move_to_end((query, batch))
                self._count += 1
            while self._count > _MAX_REPORTS and len(self._batches) > 1:
                self._drop(next(iter(self._batches)))

    def forget(self, query: str) -> None:
        """Drop the reports of all batches of a query."""
        with self._lock:
            for batch in [batch for batch in self._batches if batch[0] == query]:
                self._drop(batch)

    def reports(self, batch: _Batch) -> dict[str, list[str]]:
        """Return a copy of the reports of a batch, by the names of the observations; empty if there are none."""
        with self._lock:
            return {name: list(texts) for name, texts in self._batches.get(batch, {}).items()}

    def _drop(self, batch: _Batch) -> None:
        """Drop the reports of a batch."""
        self._count -= sum(map(len, self._batches.pop(batch).values()))


_DROPS = DropLog()
STORE = ReportStore()
ACCUMULATORS = Accumulators(STORE)


def send_report(accumulator: int, name: str, text: str) -> None:
    """Send a report from a task of a streaming query to the driver; it arrives if the task succeeds.

    Outside of a query nothing is sent. A job that ``foreachBatch`` runs in another thread does not know its batch and
    sends nothing either, unless the thread is a ``pyspark.InheritableThread``. A task calls this once at most.

    Args:
        accumulator: The id of the accumulator.
        name: The name of the observation.
        text: The report.
    """
    task = current_task()
    query, batch = (None, None) if task is None else (current_query_id(task), current_batch_id(task))
    if query is not None and batch is not None:
        send_to_driver(accumulator, (query, batch, name, text))


def report_written(
    accumulator: int | None, table: str, rows: int, dropped: Mapping[str, int], *, of_query: bool
) -> None:
    """Report which rows a writing task has left out or counted, if any; for writes whose commits report nothing.

    Args:
        accumulator: The id of the accumulator; without one (Spark Connect) the task itself logs it, on its machine.
        table: The table's name.
        rows: How many rows the task has written.
        dropped: How many rows, under the keys of `kdsl.run.records.drops`.
        of_query: Whether it is the sink of a query, whose metrics count them; otherwise the driver only logs them.
    """
    task = current_task()
    if accumulator is None or task is None or not of_query:
        report_dropped(accumulator, table, dropped)
    elif any(dropped.values()):
        reporter = Reporter(f"partition {task.partitionId()}")
        reporter.read(rows, None, None, 0.0, dropped=dropped)
        send_report(accumulator, SINK_OBSERVATION, reporter.report())


def report_sizes(accumulator: int, name: str, sizes: Sequence[StateSize]) -> None:
    """Report the sizes of the states of shards that a task has stored.

    Args:
        accumulator: The id of the accumulator.
        name: The name of the observation.
        sizes: For each shard its number, keys and bytes.
    """
    for size in sizes:
        reporter = Reporter(f"shard {size[0]}")
        reporter.state([size])
        send_report(accumulator, name, reporter.report())


def report_dropped(accumulator: int | None, table: str, dropped: Mapping[str, int]) -> None:
    """Report what a task of a batch read or write has left out, if anything, so that the driver logs it.

    Args:
        accumulator: The id of the accumulator; without one (Spark Connect) the task itself logs it, on its machine.
        table: The table's name.
        dropped: How many records, by `kdsl.run.records.drops.Reason`.
    """
    if accumulator is None:
        log_drops(table, dropped)
    elif any(dropped.values()):
        text = orjson.dumps({f"{reason}": count for reason, count in dropped.items()}).decode()
        send_to_driver(accumulator, (_NO_QUERY, -1, table, text))
