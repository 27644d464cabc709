"""Sinks without options: the console, nothing, and the memory of this process."""

from __future__ import annotations

from typing import ClassVar

from kdsl.ingest.ends.end import Sink, SinkRules


class Print(Sink):
    """Prints the changes of every table."""

    type: ClassVar[str] = "print"
    rules: ClassVar[SinkRules] = SinkRules(stores_rows=False, checks_not_null=False)


class Blackhole(Sink):
    """Drops all rows; for measurements."""

    type: ClassVar[str] = "blackhole"
    rules: ClassVar[SinkRules] = SinkRules(keeps_values=True, stores_rows=False, checks_not_null=False)


class Memory(Sink):
    """Keeps the tables in this process; for tests and notebooks."""

    type: ClassVar[str] = "memory"
    rules: ClassVar[SinkRules] = SinkRules("memory", keeps_values=True, checks_not_null=False)
