"""The micro-batch of a task or of a thread, and what Spark's Python workers hide from the code that they run."""

from __future__ import annotations

import os
import socket
import sys
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pyspark import Accumulator, AccumulatorParam, TaskContext

BATCH_ID = "streaming.sql.batchId"
"""The local property of Spark that contains the id of a micro-batch."""
_QUERY_ID = "sql.streaming.queryId"
_EXECUTION_ID = "spark.sql.execution.id"
_MAIN = ("main", "_main")
"""The names of the functions of pyspark in which a process serves the JVM."""
_QUICK: int | None = getattr(socket, "TCP_QUICKACK", None)
_CONNECT_WORKER = "pyspark.sql.connect.streaming.worker.foreach_batch_worker"


class _Context(Protocol):
    """A task's context, or the context of a classic session, with its local properties."""

    def getLocalProperty(self, key: str) -> str | None: ...  # noqa: N802


def current_task() -> TaskContext | None:
    """The context of the task that runs here; None on the driver, and in a process without PySpark."""
    pyspark = sys.modules.get("pyspark")  # a task's process has imported it
    context: TaskContext | None = None if pyspark is None else pyspark.TaskContext.get()
    return context


def current_query_id(context: _Context) -> str | None:
    """The id of the streaming query that a task or a thread belongs to; None outside of one.

    A thread that ``foreachBatch`` starts has it only if it inherits local properties (``pyspark.InheritableThread``).
    """
    return context.getLocalProperty(_QUERY_ID)


def current_batch_id(context: _Context) -> int | None:
    """The id of the micro-batch that a task or a thread belongs to; None outside of one."""
    batch = context.getLocalProperty(BATCH_ID)
    return None if batch is None else int(batch)


def current_execution_id(context: _Context) -> int | None:
    """The id of Spark's SQL execution that a task belongs to, which an action on a DataFrame begins; None outside."""
    execution = context.getLocalProperty(_EXECUTION_ID)
    return None if execution is None else int(execution)


def session_zone(context: _Context) -> str | None:
    """The time zone of the session that a task belongs to; None if it is not set there, or outside of SQL."""
    return context.getLocalProperty("spark.sql.session.timeZone")


def local_property(context: _Context, name: str) -> str | None:
    """A local property that kdsl has set for tasks; None if it is not set."""
    return context.getLocalProperty(name)


def task_accumulator(id_: int, param: AccumulatorParam[Any]) -> Accumulator[Any]:
    """The accumulator with an id in this process; in a task it is created at the first use, as the zero of ``param``.

    A second object with the id would replace the first one, and Spark would not deliver the values in that.
    """
    from pyspark.accumulators import _deserialize_accumulator

    return _deserialize_accumulator(id_, param.zero(None), param)


def runs_foreach_batch_for_connect() -> bool:
    """Whether this process is the worker in which Spark Connect runs the function of ``foreachBatch``."""
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return main is not None and main.name == _CONNECT_WORKER


def find_task_input() -> Any | None:
    """The stream from which the Python worker of the running task reads its rows; None if it cannot be found.

    A task's code gets only the rows. The stream is a local variable of pyspark's ``worker.main``, which has called it.
    """
    frame = sys._getframe()  # noqa: SLF001
    while (caller := frame.f_back) is not None:
        frame = caller
        if frame.f_code.co_name == "main" and PurePath(frame.f_code.co_filename).name == "worker.py":
            stream = frame.f_locals.get("infile")
            if hasattr(stream, "peek"):
                return stream
    return None


def exchange_packets_at_once() -> None:
    """Let this process and the JVM receive all parts of one another's messages at once.

    It has an effect if pyspark's worker calls it, until the worker's next answer. Each side sends messages in several
    small packets: a task's function and its rows, or an answer and its end. By default the second packet waits until
    the first one is acknowledged (Nagle's algorithm), and a side that has nothing to send acknowledges after 40 ms.
    Therefore this process sends its packets without waiting and, on Linux, acknowledges what it has received now.
    """
    frame = sys._getframe()  # noqa: SLF001
    while (caller := frame.f_back) is not None:
        frame = caller
        stream: Any = frame.f_locals.get("outfile")
        if frame.f_code.co_name in _MAIN and hasattr(stream, "fileno"):
            with suppress(OSError), socket.socket(fileno=os.dup(stream.fileno())) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6):
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    if _QUICK is not None:
                        connection.setsockopt(socket.IPPROTO_TCP, _QUICK, 1)
            return
