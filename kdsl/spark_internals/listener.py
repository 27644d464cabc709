"""A listener of streaming queries that gets each event as one JSON document.

PySpark's own listener reads an event field by field, each a call into the JVM, and a listener costs time in every
batch. Here an event crosses to Python once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import orjson
from pyspark.sql.streaming.listener import StreamingQueryListener

from kdsl.spark_internals.queries import progress_document

EventKind = Literal["start", "progress", "idle", "end"]


class JsonListener(StreamingQueryListener):
    """A listener, for classic sessions and Spark Connect; a subclass implements `receive`."""

    _wrapper: Any = None

    def receive(self, kind: EventKind, document: Mapping[str, Any], java: Any = None) -> None:
        """Receive an event; each subclass implements it, and this class raises NotImplementedError.

        Args:
            kind: What has happened.
            document: The event; of ``progress``, the progress report.
            java: Java's object of the progress report, on a classic session.
        """
        raise NotImplementedError

    @property
    def _jlistener(self) -> Any:
        """The Java object of the listener, which a classic session registers; created on first use, and stored.

        PySpark's ``addListener`` starts py4j's callback server before it asks for the object. Py4J's errors are passed
        on.
        """
        if self._wrapper is None:
            from pyspark import SparkContext

            jvm: Any = SparkContext._jvm  # noqa: SLF001
            self._wrapper = jvm.PythonStreamingQueryListenerWrapper(_ClassicListener(self))
        return self._wrapper

    # Spark Connect calls these methods.

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Report the start of a query."""
        self.receive("start", {"id": str(event.id), "runId": str(event.runId), "name": event.name})

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Report the end of a batch."""
        self.receive("progress", progress_document(event.progress))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Report that a query waits for data."""
        self.receive("idle", {"id": str(event.id), "runId": str(event.runId)})

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Report the end of a query."""
        self.receive("end", {"id": str(event.id), "runId": str(event.runId), "exception": event.exception})


class _ClassicListener:
    """Java's interface of a listener, implemented in Python."""

    def __init__(self, listener: JsonListener) -> None:
        self._listener = listener

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802
        """Report the start of a query."""
        self._listener.receive("start", orjson.loads(event.json()))

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        """Report the end of a batch, with Java's object of the progress report; errors of `receive` are passed on."""
        progress = event.progress()
        self._listener.receive("progress", orjson.loads(progress.json()), progress)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Report that a query waits for data."""
        self._listener.receive("idle", orjson.loads(event.json()))

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        """Report the end of a query."""
        self._listener.receive("end", orjson.loads(event.json()))

    class Java:
        """What py4j asks for."""

        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)
