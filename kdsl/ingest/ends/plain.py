"""Sinks without options: the console, nothing, and the memory of this process."""

from __future__ import annotations

from typing import Any, ClassVar

from kdsl.ingest.ends.end import Sink, SinkRules
from kdsl.plugins import import_object


class Print(Sink):
    """Prints the changes of every table."""

    type: ClassVar[str] = "print"
    rules: ClassVar[SinkRules] = SinkRules(stores_rows=False, checks_not_null=False)

    def writer(self, concurrency: int, name: str = "") -> Any:
        """A writer that prints one table at a time; see `Sink.writer`."""
        del concurrency, name
        return import_object("kdsl.ingest.run.sinks.plain:PrintWriter")(concurrency=1)


class Blackhole(Sink):
    """Drops all rows; for measurements."""

    type: ClassVar[str] = "blackhole"
    rules: ClassVar[SinkRules] = SinkRules(keeps_values=True, stores_rows=False, checks_not_null=False)

    def writer(self, concurrency: int, name: str = "") -> Any:
        """See `Sink.writer`."""
        del name
        return import_object("kdsl.ingest.run.sinks.plain:BlackholeWriter")(concurrency)


class Memory(Sink):
    """Keeps the tables in this process; for tests and notebooks."""

    type: ClassVar[str] = "memory"
    rules: ClassVar[SinkRules] = SinkRules("memory", keeps_values=True, checks_not_null=False)

    def writer(self, concurrency: int, name: str = "") -> Any:
        """See `Sink.writer`."""
        del name
        return import_object("kdsl.ingest.run.sinks.plain:MemoryWriter")(concurrency)
