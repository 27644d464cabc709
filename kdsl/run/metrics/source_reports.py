"""The numbers of a task that reads: counted in the task, and added up on the driver.

A Python data source has no metrics of its own. A task therefore writes reports, short texts, and they travel as they
can: with an accumulator (`kdsl.run.metrics.accumulated`), or on rows where there is none, as on Spark Connect
(`kdsl.run.metrics.on_rows`). Either way they stand under a name among the observations of the query's progress.

A task may run more than once (it failed, or ``foreachBatch`` uses the rows twice): a report names its task and its run,
and of each task one run counts.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections.abc import Iterable, Mapping
from typing import Any

import attrs
import orjson

OPTION = "metrics"
"""The option of a source that has its tasks report: the name of the observation."""
OBSERVED = "metrics"
SWITCH = "spark.kdsl.metrics"
"""The session's setting that turns the metrics of sources off, with ``false``."""
_PREFIX = "kdsl."
_nth = itertools.count(1)


def new_name(read: str) -> str:
    """A name for the observation of a read, its own among all reads of this process.

    Args:
        read: The id of the read.
    """
    return f"{_PREFIX}{read}.{next(_nth)}"


def read_of(name: str) -> str | None:
    """The id of the read that an observation belongs to; None where it is not kdsl's."""
    return name.removeprefix(_PREFIX).rpartition(".")[0] if name.startswith(_PREFIX) else None


SHOWN = (
    ("numRecordsIn", "records", "sum"),
    ("numBytesIn", "bytes", "sum"),
    ("numRecordsFiltered", "filtered", "sum"),
    ("currentFetchEventTimeLag", "fetch_lag", "max"),
    ("currentEmitEventTimeLag", "emit_lag", "max"),
)
"""What the progress shows: the names of the numbers, their fields in reports and counts, and how they are joined."""


class Reporter:
    """Counts what one task reads.

    Args:
        task: What the task reads, the same in every run of it.
    """

    def __init__(self, task: str) -> None:
        self._task, self._run = task, secrets.token_hex(4)
        self._records = self._bytes = self._filtered = 0
        self._event: int | None = None
        self._fetched = 0
        self._client: Mapping[str, Mapping[str, float]] = {}
        self.new = False
        """Whether there is something that no report has told yet."""

    def read(self, records: int, size: int, event: int | None, fetched: float, *, filtered: int = 0) -> None:
        """Count some records.

        Args:
            records: How many.
            size: The bytes of their keys and values.
            event: The timestamp of the last one, in milliseconds; None where it has none.
            fetched: When it was fetched, in seconds since 1970.
            filtered: How many of them the header filter left out.
        """
        self._records += records
        self._bytes += size
        self._filtered += filtered
        self.new = True
        if event is not None:
            self._event, self._fetched = event, int(fetched * 1000)

    def client(self, id_: str, metrics: Mapping[str, float] | None) -> None:
        """Tell what librdkafka said of the client since the last time, if it did."""
        if metrics:
            self._client, self.new = {id_: metrics}, True

    def report(self, more: Mapping[str, Any] | None = None) -> str:
        """What was counted since the last report.

        Args:
            more: What the report says besides.
        """
        said: dict[str, Any] = {"task": self._task, "run": self._run, "records": self._records, "bytes": self._bytes}
        if self._filtered:
            said["filtered"] = self._filtered
        if self._event is not None:
            said["event"] = self._event
            said["fetch_lag"] = self._fetched - self._event
            said["emit_lag"] = int(time.time() * 1000) - self._event
        if self._client:
            said["client"] = self._client
        self._records = self._bytes = self._filtered = 0
        self._client, self.new = {}, False
        return orjson.dumps({**said, **(more or {})}).decode()


@attrs.frozen
class SourceCounts:
    """What the tasks of one batch have read.

    Attributes:
        records: The records.
        bytes: The bytes of their keys and values.
        filtered: The records that the header filter left out.
        event: The timestamp of the last record, in milliseconds, of the task that is furthest behind; None where no
            record has one.
        fetch_lag: From the timestamp of the last record to its fetch, in milliseconds.
        emit_lag: The same to the row.
        client: What librdkafka told of clients.
    """

    records: int = 0
    bytes: int = 0
    filtered: int = 0
    event: int | None = None
    fetch_lag: int | None = None
    emit_lag: int | None = None
    client: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)


def read_reports(reports: Iterable[str]) -> SourceCounts:
    """What some reports say together; of each task the run that read most counts."""
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    client: dict[str, Mapping[str, float]] = {}
    for text in reports:
        said = orjson.loads(text)
        runs.setdefault(said["task"], {}).setdefault(said["run"], []).append(said)
        client |= said.get("client", {})
    chosen = [max(of.values(), key=lambda run: sum(one["records"] for one in run)) for of in runs.values()]
    every = [one for run in chosen for one in run]

    def total(name: str) -> int:
        return sum(one.get(name, 0) for one in every)

    lasts = [max((one for one in run if "event" in one), key=lambda o: o["event"], default=None) for run in chosen]
    timed = [one for one in lasts if one is not None]
    latest = max(timed, key=lambda one: one["event"] + one["emit_lag"], default=None)
    return SourceCounts(
        total("records"),
        total("bytes"),
        total("filtered"),
        min((one["event"] for one in timed), default=None),
        None if latest is None else latest["fetch_lag"],
        None if latest is None else latest["emit_lag"],
        client,
    )
