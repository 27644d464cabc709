"""Passes the numbers of a sink from the commit of a batch to the user's process, through a file.

Spark calls the commit of a Python sink in a separate process on the driver's machine. The commit appends one line for
each batch to a file whose path is an option of the write; the user's process reads the file when the batch has ended.
Only the user can read the folder, and it is deleted with the process. If the commit runs on another machine (a remote
Connect server), the folder does not exist there, and Spark's own count of rows is used instead.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Protocol

import attrs
import orjson

from kdsl.folders import process_folder
from kdsl.plan.model import WritePlan
from kdsl.run.records.drops import log_drops

OPTION = "metrics"
_nth = itertools.count(1)


class TaskReport(Protocol):
    """What a task has written."""

    @property
    def records(self) -> int:
        """How many records Kafka acknowledged."""
        ...

    @property
    def bytes(self) -> int:
        """The bytes of keys and values."""
        ...

    @property
    def lost(self) -> int:
        """How many records failed."""
        ...

    @property
    def send_time(self) -> float:
        """Milliseconds from the last record to the acknowledgement of all."""
        ...

    @property
    def dropped(self) -> Mapping[str, int]:
        """How many rows were left out or violated rules, under the keys of `kdsl.run.records.drops`."""
        ...

    @property
    def client(self) -> Mapping[str, Mapping[str, float]]:
        """The statistics that librdkafka emitted for the producer."""
        ...


@attrs.frozen
class SinkCounts:
    """What was written, by one batch or by all batches."""

    records: int = 0
    bytes: int = 0
    lost: int = 0
    send_time: float | None = None
    client: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)
    dropped: Mapping[str, int] = attrs.field(factory=dict)


class Spool:
    """The file that the commits of one query write and the program reads.

    Attributes:
        path: The file.
        total: What was written up to the last `read`; the send time is that of the last batch with records, and each
            client has its last statistics.
        has_reports: Whether there has been anything to read.
    """

    def __init__(self) -> None:
        """Create an empty file, which only the user can read, in the folder of this process; OSError if that fails.

        The folder is deleted when the process ends.
        """
        self.path = process_folder("metrics") / f"{next(_nth)}.jsonl"
        self.path.touch(mode=0o600)
        self.total = SinkCounts()
        self.has_reports = False
        self._position = 0

    def read(self) -> bool:
        """Add to `total` the complete lines that were appended to the file since the last call.

        Returns:
            Whether there were any; False if the file cannot be read.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except OSError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            one = SinkCounts(**orjson.loads(line))
            self.has_reports = True
            self.total = SinkCounts(
                self.total.records + one.records,
                self.total.bytes + one.bytes,
                self.total.lost + one.lost,
                self.total.send_time if one.send_time is None else one.send_time,
                {**self.total.client, **one.client},
                Counter(self.total.dropped) + Counter(one.dropped),
            )
        return bool(whole)


@contextmanager
def log_violations(plan: WritePlan) -> Iterator[dict[str, str]]:
    """Log which rows a batch write has left out or counted, when the body has ended without an error.

    They come from a `Spool`, which is deleted at the end.

    Yields:
        The option with which the batch is written; none if the plan can leave out no row.
    """
    if not plan.rules and not plan.drops_nulls:
        yield {}
        return
    spool = Spool()
    try:
        yield {OPTION: str(spool.path)}
        spool.read()
        log_drops(plan.table, spool.total.dropped)
    finally:
        spool.path.unlink(missing_ok=True)


def append_report(path: str | None, tasks: Iterable[TaskReport]) -> None:
    """Append what a batch's tasks have written to the file of a `Spool`, in one line.

    Without a path, and if the file cannot be opened (as on another machine), do nothing.
    """
    if path is None:
        return
    reports = list(tasks)
    client: dict[str, Mapping[str, float]] = {}
    dropped: Counter[str] = Counter()
    for one in reports:
        client |= one.client
        dropped.update(one.dropped)
    batch = SinkCounts(
        sum(one.records for one in reports),
        sum(one.bytes for one in reports),
        sum(one.lost for one in reports),
        max((one.send_time for one in reports if one.records), default=None),
        client,
        {f"{key}": count for key, count in dropped.items()},
    )
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError:
        return  # another machine
    with os.fdopen(handle, "ab") as file:
        file.write(orjson.dumps(attrs.asdict(batch)) + b"\n")
