"""How tasks report their dead letters to the driver, and what the driver tells later tasks and the commits of sinks.

* A task reports by accumulator, which Spark passes to the driver's Python process before it counts the task as done.
* The driver tells the tasks of later batches how many letters the query has, by a setting of the query's own session,
  which Spark passes to tasks as a local property.
* The commit of a Python sink runs in a process of its own on the driver's machine. The driver tells it by files that a
  batch has too many letters, and that their number is being stored.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import orjson

from kdsl.declare.dead_letters import NO_LIMIT
from kdsl.errors import DeadLetterError, pluralize
from kdsl.folders import process_folder
from kdsl.run.task_reports import send_to_driver
from kdsl.spark_internals.workers import (
    current_batch_id,
    current_execution_id,
    current_query_id,
    current_task,
    local_property,
)

OPTION = "deadletters.accumulator"
"""The option of a source with the id of the accumulator of its tasks' reports."""
REFUSALS = "deadletters.refusals"
"""The option of a sink with the folder in which the driver refuses batches."""
PROPERTY = "spark.kdsl.deadLetters."
"""The prefix of the settings with the letters of a query (`Committed`), followed by the id of the read."""
FEW = 5
"""How many reasons an error names."""


@attrs.frozen
class BatchId:
    """What letters are counted for: a batch of a streaming query, or one action of a batch read.

    Attributes:
        query: The id of the query; empty for an action.
        number: The batch of the query, or Spark's id of the execution.
    """

    query: str
    number: int

    @property
    def name(self) -> str:
        """A name for files."""
        return f"{self.query or 'execution'}-{self.number}"


def current_batch() -> BatchId | None:
    """The batch of the task that runs, or its action as a batch without a query; None if Spark names neither.

    None outside of a task, too.
    """
    task = current_task()
    if task is None:
        return None
    query, batch = current_query_id(task), current_batch_id(task)
    if query is not None and batch is not None:
        return BatchId(query, batch)
    execution = current_execution_id(task)
    return None if execution is None else BatchId("", execution)


@attrs.frozen
class LetterReport:
    """The letters of one task.

    Attributes:
        batch: The batch or action.
        read: The id of the read.
        table: The table.
        limit: The most letters of the read; -1 for any number.
        task: What the task read; the same in every run of the task.
        count: How many letters it has written.
        reasons: The first of their reasons, each with the topic, partition and offset of its record.
        stage: Spark's stage.
    """

    batch: BatchId
    read: str
    table: str
    limit: int
    task: str
    count: int
    reasons: tuple[str, ...]
    stage: int = -1


def send_report(accumulator: int, report: LetterReport) -> None:
    """Send a report from a task to the driver; Spark delivers it if the task succeeds."""
    send_to_driver(accumulator, attrs.asdict(report))


def read_report(document: Mapping[str, Any]) -> LetterReport:
    """Read a report from the document that `send_report` sends; KeyError or TypeError for any other document."""
    batch = BatchId(**document["batch"])
    return LetterReport(**{**document, "batch": batch, "reasons": tuple(document["reasons"])})


@attrs.frozen
class Committed:
    """The letters of a read in a query so far.

    Attributes:
        earlier: The letters of all batches before those in ``batches``.
        batches: The letters of the last batches, by number.
        reasons: The first reasons, if there are more letters than the limit.
    """

    earlier: int = 0
    batches: tuple[tuple[int, int], ...] = ()
    reasons: tuple[str, ...] = ()

    def before(self, batch: int) -> int:
        """The letters of the batches before a batch; those of its own first run do not count."""
        return self.earlier + sum(count for number, count in self.batches if number < batch)

    def to_text(self) -> str:
        """Return them as JSON, for a setting."""
        return orjson.dumps([self.earlier, self.batches, self.reasons]).decode()

    @classmethod
    def from_text(cls, text: str) -> Committed:
        """Create them from the result of `to_text`; ValueError or TypeError for another string."""
        earlier, batches, reasons = orjson.loads(text)
        return cls(earlier, tuple((number, count) for number, count in batches), tuple(reasons))


def committed(read: str) -> tuple[int, tuple[str, ...]]:
    """The letters of a read in the batches before that of this task, and the first reasons if they are too many.

    (0, ()) outside of a query, or before the driver has sent any number.
    """
    task, batch = current_task(), current_batch()
    text = None if task is None else local_property(task, f"{PROPERTY}{read}")
    if text is None or batch is None or not batch.query:
        return 0, ()
    so_far = Committed.from_text(text)
    return so_far.before(batch.number), so_far.reasons


def too_many(table: str, count: int, limit: int, reasons: Sequence[str]) -> DeadLetterError:
    """Create the error of a read with at least ``count`` letters, more than its limit; it has the first reasons."""
    assert limit != NO_LIMIT
    shown = reasons[:FEW]
    each = "".join(f"\n  {reason}" for reason in shown)
    more = f"\n  and {count - len(shown)} more" if count > len(shown) else ""
    return DeadLetterError(
        f"{table}: {pluralize(count, 'record')} could not be read, and the limit of dead letters is {limit}; correct "
        "the table or "
        "the records, or raise max_count ('scan.dead-letter.max-count') and start again"
        + (f"; the first {'reason is' if len(shown) == 1 else 'reasons are'}:{each}{more}" if shown else "")
    )


_STORING = ".storing"
_POLL = 0.01  # seconds


def refusals() -> Path:
    """The folder in which this process, the driver, refuses batches; created at the first use, deleted at its end."""
    return process_folder("letters")


def refuse(batch: BatchId, message: str) -> None:
    """Refuse a batch, by a file in the folder `refusals`: the commit of a sink of kdsl then fails with a message."""
    path = refusals() / batch.name
    new = path.with_suffix(".new")
    new.write_text(message, encoding="utf-8")
    new.replace(path)


def allow(batch: BatchId) -> None:
    """Take back the refusal of a batch, if there is one."""
    (refusals() / batch.name).unlink(missing_ok=True)


def allow_all(query: str) -> None:
    """Take back the refusals of a query that starts again, and its marks that letters are being stored."""
    for path in refusals().glob(f"{query}-*"):
        path.unlink(missing_ok=True)


@contextmanager
def storing(batch: BatchId) -> Iterator[None]:
    """Let the commit of a batch wait while the body stores its letters, which may take place on another thread.

    A file in the folder `refusals` says so; enter it before the tasks of the batch have ended.
    """
    handle, name = tempfile.mkstemp(_STORING, f"{batch.name}.", refusals())
    os.close(handle)
    try:
        yield
    finally:
        Path(name).unlink(missing_ok=True)


def check_refusal(folder: str | os.PathLike[str] | None, batch: BatchId | None) -> None:
    """Wait until the letters of a batch are stored, without limit; then fail if the driver has refused the batch.

    Args:
        folder: The folder of the refusals, the option `REFUSALS`; None if the sink has none: nothing is checked.
        batch: The batch; None if it is not known: nothing is checked.
    """
    if folder is None or batch is None:
        return
    while any(Path(folder).glob(f"{batch.name}.*{_STORING}")):
        time.sleep(_POLL)
    try:
        message = (Path(folder) / batch.name).read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    raise DeadLetterError(message)
