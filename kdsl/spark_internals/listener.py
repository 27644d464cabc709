"""A listener of streaming queries that gets each event as one JSON document.

PySpark's own listener reads an event field by field, each a call into the JVM, and a listener costs time in every
batch. Here an event crosses to Python once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import orjson

from kdsl.spark_internals.queries import progress_document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryListener

EventKind = Literal["start", "progress", "idle", "end"]
Receive = Callable[[EventKind, Mapping[str, Any], Any], None]
"""Receives an event: its kind; the event, of ``progress`` the progress report, as JSON; and, for a progress report of a
classic session, Java's object of it, else None."""


def add_json_listener(spark: SparkSession, receive: Receive) -> StreamingQueryListener:
    """Add a listener to a session, classic or Connect, that passes each event to a function, and return it.

    PySpark's and Py4J's errors are passed on.
    """
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class JsonListener(StreamingQueryListener):
        """The listener: Spark Connect calls its methods, and a classic session those of `_ClassicListener`."""

        _wrapper: Any = None

        @property
        def _jlistener(self) -> Any:
            if self._wrapper is None:
                from pyspark import SparkContext

                jvm: Any = SparkContext._jvm  # noqa: SLF001
                self._wrapper = jvm.PythonStreamingQueryListenerWrapper(_ClassicListener(receive))
            return self._wrapper

        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            receive("start", {"id": str(event.id), "runId": str(event.runId), "name": event.name}, None)

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            receive("progress", progress_document(event.progress), None)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            receive("idle", {"id": str(event.id), "runId": str(event.runId)}, None)

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            receive("end", {"id": str(event.id), "runId": str(event.runId), "exception": event.exception}, None)

    listener = JsonListener()
    spark.streams.addListener(listener)
    return listener


class _ClassicListener:
    """Java's interface of a listener, implemented in Python."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Report the start of a query."""
        self._receive("start", orjson.loads(event.json()), None)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Report the end of a batch, with Java's object of the progress report; errors of `receive` are passed on."""
        progress = event.progress()
        self._receive("progress", orjson.loads(progress.json()), progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Report that a query waits for data."""
        self._receive("idle", orjson.loads(event.json()), None)

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Report the end of a query."""
        self._receive("end", orjson.loads(event.json()), None)

    class Java:
        """What py4j asks for."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
