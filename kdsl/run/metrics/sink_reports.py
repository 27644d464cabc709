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

import attrs
import orjson

from kdsl.folders import process_folder
from kdsl.plan.model import WritePlan
from kdsl.run.records.drops import log_drops

OPTION = "metrics"
_nth = itertools.count(1)


@attrs.frozen
class SinkCounts:
    """What was written, by one task, by one batch or by all batches.

    Attributes:
        records: How many records Kafka acknowledged.
        bytes: The bytes of the keys and values of all records.
        lost: How many records failed; always 0 for a write with a delivery guarantee.
        send_time: Milliseconds from the last record to the acknowledgement of all; None if nothing was written.
        client: librdkafka's statistics of the producers, by client id.
        dropped: How many rows were left out or violated rules, under the keys of `kdsl.run.records.drops`.
    """

    records: int = 0
    bytes: int = 0
    lost: int = 0
    send_time: float | None = None
    client: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)
    dropped: Mapping[str, int] = attrs.field(factory=dict)

    def __add__(self, later: SinkCounts) -> SinkCounts:
        return SinkCounts(
            self.records + later.records,
            self.bytes + later.bytes,
            self.lost + later.lost,
            self.send_time if later.send_time is None else later.send_time,
            {**self.client, **later.client},
            Counter(self.dropped) + Counter(later.dropped),
        )


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
            self.has_reports = True
            self.total += SinkCounts(**orjson.loads(line))
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


def add_up(tasks: Iterable[SinkCounts]) -> SinkCounts:
    """Add up what the tasks of a batch have written; the send time is the longest, because they send at once."""
    counts = list(tasks)
    longest = max((one.send_time for one in counts if one.send_time is not None), default=None)
    return attrs.evolve(sum(counts, SinkCounts()), send_time=longest)


def append_report(path: str | None, batch: SinkCounts) -> None:
    """Append what a batch has written to the file of a `Spool`, in one line.

    Without a path, and if the file cannot be opened (as on another machine), do nothing.
    """
    if path is None:
        return
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError:
        return  # another machine
    with os.fdopen(handle, "ab") as file:
        file.write(orjson.dumps(attrs.asdict(batch), option=orjson.OPT_NON_STR_KEYS) + b"\n")
