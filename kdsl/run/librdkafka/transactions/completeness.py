"""Checks that all rows of a task have arrived.

Spark sends the rows to a Python worker as an Arrow stream through a socket. If the JVM's side of the task fails, is
stopped or dies, it closes the socket, and Arrow takes that for the end of the rows. For an at-least-once write this is
harmless, because Spark repeats the task. But a transaction would commit some of the rows, and the next attempt would
find its token and leave out the rest. Spark 4.2 and 4.3 send an end mark after the last row, and only then. Before
kdsl supports another version, tests must show that a stopped task lacks the mark there, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from kdsl.errors import ExactlyOnceError, KdslError
from kdsl.spark_internals.workers import current_task, find_task_input

T = TypeVar("T")


def check_complete(rows: Iterator[T]) -> Iterator[T]:
    """Yield the rows of a task, then check that they are complete. Outside Spark there is no check."""
    yield from rows
    if current_task() is not None and not _has_end_mark(_find_task_input()):
        raise ExactlyOnceError(
            "Spark's side of the task ended before all rows were sent, as when it fails or is stopped; nothing of the "
            "task is visible, and the executor's log has the cause"
        )


def _has_end_mark(stream: Any) -> bool:
    """Wait for the mark that Spark sends after the last row, and return whether it came; it stays in the stream.

    False if the stream has ended, or the connection was reset.
    """
    try:
        return bool(stream.peek(1))
    except OSError:  # the JVM has reset the connection
        return False


def _find_task_input() -> Any:
    """Find the stream from which the Python worker of this task reads."""
    stream = find_task_input()
    if stream is None:
        raise KdslError(
            "with this version of pyspark, a task cannot check that it has received all its rows, which an "
            "exactly-once write needs; use a version of pyspark that kdsl is tested with"
        )
    return stream
