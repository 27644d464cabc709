"""How the numbers of a sink get from the commit of a batch to the program: through a file.

Spark calls the commit of a Python sink in a process of its own on the driver's machine. What it has to tell goes, a
line for each batch, into a file whose path travels as an option; the program reads it when it hears of the batch. The
folder is the user's alone and goes with the process. Where the commit runs on another machine (a remote Connect
server) there is no such folder: then Spark's own count of rows stands for the records.
"""

from __future__ import annotations

import atexit
import itertools
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

import attrs
import orjson

OPTION = "metrics"
_nth = itertools.count(1)
_folders: dict[int, Path] = {}


class TaskReport(Protocol):
    """What a task says that it wrote."""

    @property
    def records(self) -> int:
        """The records that Kafka acknowledged."""
        ...

    @property
    def bytes(self) -> int:
        """The bytes of keys and values."""
        ...

    @property
    def lost(self) -> int:
        """The records that failed."""
        ...

    @property
    def send_time(self) -> float:
        """Milliseconds from the last record to the acknowledgement of all."""
        ...

    @property
    def client(self) -> Mapping[str, Mapping[str, float]]:
        """What librdkafka told of the producer."""
        ...


@attrs.frozen
class SinkCounts:
    """What was written, by one batch or by all of them."""

    records: int = 0
    bytes: int = 0
    lost: int = 0
    send_time: float | None = None
    client: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)


class Spool:
    """The file that the commits of one query write and the program reads.

    Attributes:
        path: The file.
        total: What was written up to the last `read`; of the send time and the clients the last.
        told: Whether there was anything to read yet.
    """

    def __init__(self) -> None:
        self.path = _folder() / f"{next(_nth)}.jsonl"
        self.path.touch(mode=0o600)
        self.total = SinkCounts()
        self.told = False
        self._at = 0

    def read(self) -> bool:
        """Take in what was added; tells whether anything was."""
        try:
            with self.path.open("rb") as file:
                file.seek(self._at)
                data = file.read()
        except OSError:
            return False
        whole = data[: data.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            one = SinkCounts(**orjson.loads(line))
            self.told = True
            self.total = SinkCounts(
                self.total.records + one.records,
                self.total.bytes + one.bytes,
                self.total.lost + one.lost,
                self.total.send_time if one.send_time is None else one.send_time,
                {**self.total.client, **one.client},
            )
        return bool(whole)


def tell(path: str | None, tasks: Iterable[TaskReport]) -> None:
    """Add what the tasks of a batch wrote to the file, if it is there.

    Args:
        path: The file.
        tasks: What the tasks say.
    """
    if path is None:
        return
    said = list(tasks)
    client: dict[str, Mapping[str, float]] = {}
    for one in said:
        client |= one.client
    batch = SinkCounts(
        sum(one.records for one in said),
        sum(one.bytes for one in said),
        sum(one.lost for one in said),
        max((one.send_time for one in said if one.records), default=None),
        client,
    )
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    except OSError:
        return  # another machine
    with os.fdopen(handle, "ab") as file:
        file.write(orjson.dumps(attrs.asdict(batch)) + b"\n")


def _folder() -> Path:
    pid = os.getpid()
    if pid not in _folders:
        _folders[pid] = Path(tempfile.mkdtemp(prefix="kdsl-metrics-"))
        atexit.register(_remove, pid)
    return _folders[pid]


def _remove(pid: int) -> None:
    if pid == os.getpid() and pid in _folders:
        shutil.rmtree(_folders.pop(pid), ignore_errors=True)
