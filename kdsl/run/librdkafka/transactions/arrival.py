"""Whether all rows of a task have arrived.

Spark sends the rows to a Python worker as an Arrow stream through a socket. Where the JVM's side of the task fails, is
stopped or dies, it closes the socket, and Arrow takes that for the end of the rows. A write that is at least once need
not mind, for Spark makes the task again. A transaction would commit a part for the whole, and the next attempt would
find its token and leave out the rest. But behind rows that are complete Spark 4.2 sends a word of its own, and never
else; before another version of pyspark is let in, a task that is stopped must be seen to lack it there, too.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, TypeVar

from pyspark import TaskContext

from kdsl.errors import KdslError
from kdsl.run.librdkafka.transactions.token import ExactlyOnceError

T = TypeVar("T")


def all_of(rows: Iterator[T]) -> Iterator[T]:
    """The rows of a task; outside of Spark, whatever there is.

    Raises:
        ExactlyOnceError: They end because Spark's side of the task has ended before them.
        KdslError: It cannot be told, as Spark's worker is another than the one that is known.
    """
    yield from rows
    if TaskContext.get() is not None and not _arrived(_stream()):
        raise ExactlyOnceError(
            "Spark's side of the task ended before its rows did, as when it fails or is stopped; nothing of the task "
            "is visible"
        )


def _arrived(stream: Any) -> bool:
    try:
        return bool(stream.peek(1))
    except OSError:  # the JVM has reset the connection
        return False


def _stream() -> Any:
    """What Spark's worker, which has called this, reads from."""
    frame = sys._getframe()  # noqa: SLF001  # a writer is given nothing but the rows
    while (caller := frame.f_back) is not None:
        frame = caller
        if frame.f_code.co_name == "main" and PurePath(frame.f_code.co_filename).name == "worker.py":
            found = frame.f_locals.get("infile")
            if hasattr(found, "peek"):
                return found
    raise KdslError(
        "this pyspark does not let a task see whether it has got all of its rows, without which nothing is "
        "exactly-once; use a version of pyspark that kdsl is tested with"
    )
