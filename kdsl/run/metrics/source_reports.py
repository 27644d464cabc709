"""The metrics of reading tasks: counted in the tasks, and added up on the driver.

A Python data source has no metrics of its own. A task therefore sends reports, short JSON strings, by an accumulator
(`kdsl.run.metrics.accumulated`) or, without accumulators as on Spark Connect, on rows (`kdsl.run.metrics.on_rows`). In
both cases they appear under a name among the observations of the query's progress.

A task may run more than once (it failed, or ``foreachBatch`` uses the rows twice). A report names its task and its run,
and one run of each task is counted.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import orjson

from kdsl.run.records.drops import (
    COLUMN_LOGS,
    Reason,
    count_by_column,
    count_violations,
    key_of_column,
    key_of_rule,
)

OPTION = "metrics"
"""The option of a source that makes its tasks report: the name of the observation."""
OBSERVED = "metrics"
SWITCH = "spark.kdsl.metrics"
"""The session's setting that turns the metrics of sources off if it is ``false``."""
_PREFIX = "kdsl."
SINK = "sink"
"""What `read_of` returns for the observation of a write."""
SINK_OBSERVATION = f"{_PREFIX}{SINK}.0"
"""The name under which the tasks of a write report, if its commits report nothing."""
_nth = itertools.count(1)


def new_name(read: str) -> str:
    """Return a name for the observation of a read that is unique in this process."""
    return f"{_PREFIX}{read}.{next(_nth)}"


def read_of(name: str) -> str | None:
    """Return the id of the read to which an observation belongs; None if it is not kdsl's observation."""
    return name.removeprefix(_PREFIX).rpartition(".")[0] if name.startswith(_PREFIX) else None


DROPPED = {reason: "numRecordsDropped" + reason.title().replace("-", "") for reason in Reason}
"""The names of dropped records in the progress, by reason: ``numRecordsDroppedParseError``, …"""
PROGRESS_NUMBERS = (
    ("numRecordsIn", "records", "sum"),
    ("numBytesIn", "bytes", "sum"),
    ("numRecordsFiltered", "filtered", "sum"),
    *((shown, reason.replace("-", "_"), "sum") for reason, shown in DROPPED.items()),
    ("currentFetchEventTimeLag", "fetch_lag", "max"),
    ("currentEmitEventTimeLag", "emit_lag", "max"),
)
"""The numbers in the progress: their names, their fields in reports and counts, and how they are combined."""


def violations_name(rule: str) -> str:
    """Return the name in the progress of the rows that violate a rule."""
    return f"numRuleViolations.{rule}"


StateSize = tuple[int, int, int]
"""The number of a partition or a shard, and the keys and bytes of its state."""


class Reporter:
    """Counts what one task reads.

    Args:
        task: What the task reads; it is the same in every run of the task.
    """

    def __init__(self, task: str) -> None:
        self._task, self._run = task, secrets.token_hex(4)
        self._records = self._filtered = 0
        self._bytes: int | None = 0
        self._dropped: Counter[str] = Counter()
        self._event: int | None = None
        self._fetched = 0
        self._client: Mapping[str, Mapping[str, float]] = {}
        self._sizes: tuple[StateSize, ...] = ()
        self.new = False
        """Whether there is something that has not been reported."""

    def read(
        self,
        records: int,
        size: int | None,
        event: int | None,
        fetched: float,
        *,
        filtered: int = 0,
        dropped: Mapping[str, int] | None = None,
    ) -> None:
        """Count some records for the next report.

        Args:
            records: How many.
            size: The bytes of their keys and values; None if they are not known, and then no further report has a size.
            event: The timestamp of the last one, in milliseconds; None if it has none.
            fetched: When it was fetched, in seconds since 1970.
            filtered: How many of them the header filter left out.
            dropped: How many of the others were left out, by `kdsl.run.records.drops.Reason`.
        """
        self._records += records
        self._bytes = None if size is None or self._bytes is None else self._bytes + size
        self._filtered += filtered
        self._dropped.update(dropped or {})
        self.new = True
        if event is not None:
            self._event, self._fetched = event, int(fetched * 1000)

    def client(self, id_: str, metrics: Mapping[str, float] | None) -> None:
        """Store librdkafka's statistics of the client for the next report, if there are any."""
        if metrics:
            self._client, self.new = {id_: metrics}, True

    def state(self, sizes: Sequence[StateSize]) -> None:
        """Store the sizes of the states that the task has written for the next report, if there are any."""
        if sizes:
            self._sizes, self.new = tuple(sizes), True

    def report(self, more: Mapping[str, Any] | None = None) -> str:
        """Return a report of what was counted since the last one, as JSON; set the counts to zero, and `new` to False.

        The clients' statistics are forgotten, too. The timestamp of the last record stays for the next report.

        Args:
            more: Further fields of the report.
        """
        fields: dict[str, Any] = {"task": self._task, "run": self._run, "records": self._records}
        if self._bytes is not None:
            fields["bytes"] = self._bytes
        if self._filtered:
            fields["filtered"] = self._filtered
        fields |= {reason.replace("-", "_"): self._dropped[reason] for reason in Reason if self._dropped[reason]}
        if columns := {reason.value: by for reason in COLUMN_LOGS if (by := count_by_column(self._dropped, reason))}:
            fields["columns"] = columns
        if violations := count_violations(self._dropped):
            fields["rules"] = {f"{on_fail}:{rule}": count for (on_fail, rule), count in violations.items()}
        if self._event is not None:
            fields["event"] = self._event
            fields["fetch_lag"] = self._fetched - self._event
            fields["emit_lag"] = int(time.time() * 1000) - self._event
        if self._client:
            fields["client"] = self._client
        if self._sizes:
            fields["state"] = self._sizes
        self._records = self._filtered = 0
        self._bytes = None if self._bytes is None else 0
        self._dropped.clear()
        self._client, self._sizes, self.new = {}, (), False
        return orjson.dumps({**fields, **(more or {})}).decode()


@attrs.frozen
class SourceCounts:
    """What the tasks of one batch have read.

    Attributes:
        records: The records.
        bytes: The bytes of their keys and values; None if no task knows them.
        filtered: The records that the header filter left out.
        dropped: The other records that were left out, by `kdsl.run.records.drops.Reason`.
        event: The timestamp of the last record, in milliseconds, of the task that is furthest behind; None if no
            record has one.
        fetch_lag: From the timestamp of the last record to its fetch, in milliseconds.
        emit_lag: From the timestamp of the last record to its row, in milliseconds.
        client: librdkafka's statistics, by client id.
        sizes: The sizes of the states that tasks have written.
    """

    records: int = 0
    bytes: int | None = 0
    filtered: int = 0
    dropped: Mapping[str, int] = attrs.field(factory=dict)
    event: int | None = None
    fetch_lag: int | None = None
    emit_lag: int | None = None
    client: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)
    sizes: tuple[StateSize, ...] = ()

    def number(self, field: str) -> int | None:
        """Return one of the `PROGRESS_NUMBERS` by its field, which must be one of theirs; None if it is not known."""
        reason = field.replace("_", "-")
        return self.dropped.get(reason, 0) if reason in DROPPED else getattr(self, field)


def read_reports(reports: Iterable[str]) -> SourceCounts:
    """Add up reports (JSON of `Reporter.report`); of each task only the run that read the most records is counted.

    The time of the last record is that of the task furthest behind, the lags are those of the latest report. The
    clients are those of all runs.
    """
    runs: dict[str, dict[str, list[dict[str, Any]]]] = {}
    client: dict[str, Mapping[str, float]] = {}
    for text in reports:
        fields = orjson.loads(text)
        runs.setdefault(fields["task"], {}).setdefault(fields["run"], []).append(fields)
        client |= fields.get("client", {})
    chosen = [max(of.values(), key=lambda run: sum(one["records"] for one in run)) for of in runs.values()]
    every = [one for run in chosen for one in run]

    columns: Counter[str] = Counter()
    rules: Counter[str] = Counter()
    for one in every:
        for reason, by_column in one.get("columns", {}).items():
            columns.update({key_of_column(Reason(reason), name): count for name, count in by_column.items()})
        rules.update(one.get("rules", {}))

    def total(name: str) -> int:
        return sum(one.get(name, 0) for one in every)

    lasts = [max((one for one in run if "event" in one), key=lambda o: o["event"], default=None) for run in chosen]
    timed = [one for one in lasts if one is not None]
    latest = max(timed, key=lambda one: one["event"] + one["emit_lag"], default=None)
    return SourceCounts(
        total("records"),
        None if every and all("bytes" not in one for one in every) else total("bytes"),
        total("filtered"),
        {
            **{reason.value: count for reason in DROPPED if (count := total(reason.replace("-", "_")))},
            **columns,
            **{key_of_rule(*name.split(":", 1)): count for name, count in rules.items()},
        },
        min((one["event"] for one in timed), default=None),
        None if latest is None else latest["fetch_lag"],
        None if latest is None else latest["emit_lag"],
        client,
        tuple((partition, keys, size) for one in every for partition, keys, size in one.get("state", ())),
    )
