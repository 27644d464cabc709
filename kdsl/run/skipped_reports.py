"""Reports of the records that a repeated batch skips, from its first task to the driver, and their totals by query."""

from __future__ import annotations

from collections.abc import Mapping

from kdsl.callbacks import TopicPartition
from kdsl.run.offsets.stored import nest_by_topic
from kdsl.run.task_reports import send_to_driver
from kdsl.spark_internals.workers import current_batch_id, current_query_id, current_task

OPTION = "skipped.accumulator"
"""The option of a source with the id of the accumulator by which tasks report skipped records."""

TOTALS: dict[str, dict[str, int]] = {}
"""How many records the queries of this process have skipped in repeated batches since their first start, by query and
read."""


def report_skipped(accumulator: int, read: str, lost: Mapping[TopicPartition, int]) -> None:
    """Report from a task of a query what its batch has skipped; it arrives if the task succeeds.

    Args:
        accumulator: The id of the accumulator.
        read: The id of the read.
        lost: How many records, by topic partition.
    """
    task = current_task()
    query, batch = (None, None) if task is None else (current_query_id(task), current_batch_id(task))
    if query is not None and batch is not None:
        send_to_driver(accumulator, (query, batch, read, nest_by_topic(lost)))


def count_skipped(query: str, read: str) -> int:
    """Return how many records a read of a query has skipped in batches that ran again, since the first start."""
    return TOTALS.get(query, {}).get(read, 0)
