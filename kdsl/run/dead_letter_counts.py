"""The driver's count of dead letters: by query and read, beside the checkpoint, and its limit.

The letters of a batch are stored under the number of the batch, together with how many all earlier batches had. A batch
that runs again replaces its number and never adds to it. Batches that wrote no letter have no file, and old files are
removed.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

import attrs
import orjson

from kdsl.declare.dead_letters import NO_LIMIT
from kdsl.errors import DeadLetterError
from kdsl.run.checkpoint.checkpoint import FOLDER, Checkpoint
from kdsl.run.checkpoint.folder import Folder
from kdsl.run.dead_letters.report import (
    FEW,
    PROPERTY,
    BatchId,
    Committed,
    LetterReport,
    allow,
    allow_all,
    check_refusal,
    read_report,
    refusals,
    refuse,
    storing,
    too_many,
)
from kdsl.run.listeners.events import Observer
from kdsl.run.listeners.listener import observe
from kdsl.run.task_reports import Accumulators
from kdsl.spark_internals.queries import RunningQuery, cancel_stage, set_in_query_session
from kdsl.spark_internals.session import is_connect
from kdsl.spark_internals.workers import current_batch_id, current_query_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kdsl.run.listeners.events import Progress, Query, ReadProgress

log = logging.getLogger("kdsl.read")

COUNTS = f"{FOLDER}/dead-letters"
"""The folder of a checkpoint with a file for each batch that has letters."""
VERSION = 1
_LAST_BATCHES = 3
UNKNOWN = -2
"""The limit of a read before its tasks have reported it."""
_KEPT_FILES = 100
"""How many files are kept: as many batches as Spark keeps by default (``spark.sql.streaming.minBatchesToRetain``)."""
_EARLIER = -1
"""The number under which the letters of batches without a file count."""
_MAX_ACTIONS = 1_000


@attrs.define
class _Letters:
    """The letters of one read in one batch, by task: how many, and the first reasons."""

    tasks: dict[str, tuple[int, tuple[str, ...]]] = attrs.field(factory=dict)

    def add(self, report: LetterReport) -> None:
        """Store a task's letters, in place of those of an earlier run of the task."""
        self.tasks[report.task] = (report.count, report.reasons)

    @property
    def count(self) -> int:
        """How many letters all tasks have written."""
        return sum(count for count, _ in self.tasks.values())

    @property
    def reasons(self) -> tuple[str, ...]:
        """The first reasons, at most `FEW`, task by task."""
        return tuple(reason for _, reasons in self.tasks.values() for reason in reasons)[:FEW]


@attrs.define
class _QueryCounts:
    """The letters of a running query.

    Attributes:
        session: Its session.
        query: Its id, which all its runs have.
        run: The id of the run.
        folder: Its checkpoint.
        stored: What the checkpoint has, by read and batch.
        stored_reasons: The reasons of the last batch that the checkpoint has, by read.
        letters: What this run has written, by read and batch.
    """

    session: SparkSession
    query: str
    run: str
    folder: Folder
    stored: dict[str, dict[int, int]]
    stored_reasons: dict[str, tuple[str, ...]]
    letters: dict[str, dict[int, _Letters]] = attrs.field(factory=dict)

    def counts(self, read: str) -> dict[int, int]:
        """The letters of a read by batch: those of this run in place of stored ones, `_EARLIER` among the batches."""
        present = {number: letters.count for number, letters in self.letters.get(read, {}).items()}
        return {**self.stored.get(read, {}), **present}

    def reasons(self, read: str) -> tuple[str, ...]:
        """The first `FEW` reasons of a read's letters in this run, newest batch first; without any, the stored ones."""
        batches = sorted(self.letters.get(read, {}).items(), reverse=True)
        present = tuple(reason for _, letters in batches for reason in letters.reasons)[:FEW]
        return present or self.stored_reasons.get(read, ())

    def document(self, number: int) -> dict[str, Any]:
        """Return the document of a batch's file: by read, its letters and reasons, and the letters of those before."""
        reads = sorted({*self.stored, *self.letters})
        all_counts = {read: self.counts(read) for read in reads}
        return {
            "version": VERSION,
            "counts": {read: counts[number] for read, counts in all_counts.items() if number in counts},
            "earlier": {
                read: earlier
                for read, counts in all_counts.items()
                if (earlier := sum(count for batch, count in counts.items() if batch < number))
            },
            "reasons": {read: of_read[number].reasons for read, of_read in self.letters.items() if number in of_read},
        }

    def forget_before(self, number: int) -> list[int]:
        """Replace the letters of old batches by their sum; return the numbers of those batches.

        Args:
            number: The last batch that need not be repeated. If it has no letters, the last one before it that has
                some is not forgotten: only its file has their sum, until a later batch with letters is committed.
        """
        reads = {*self.stored, *self.letters}
        number = max((batch for read in reads for batch in self.counts(read) if batch <= number), default=0)
        gone: set[int] = set()
        for read in reads:
            counts = self.counts(read)
            old = {batch for batch in counts if batch < number}
            recent = {batch: count for batch, count in counts.items() if batch >= number}
            self.stored[read] = {_EARLIER: sum(counts[batch] for batch in old), **recent}
            self.letters[read] = {b: one for b, one in self.letters.get(read, {}).items() if b >= number}
            gone |= old - {_EARLIER}
        return sorted(gone)


class LetterCounts(Observer):
    """Counts the letters of the queries and actions of this process (an observer, and a receiver of reports)."""

    def __init__(self) -> None:
        self._queries: dict[str, _QueryCounts] = {}
        self._unread: dict[str, str] = {}  # why the stored letters of a query could not be read
        self._actions: OrderedDict[tuple[int, str], _Letters] = OrderedDict()
        self._lock = Lock()
        self._writing = ThreadPoolExecutor(1, "kdsl dead letters")
        self._writes: dict[str, Future[None]] = {}
        self._session: SparkSession | None = None

    def use(self, session: SparkSession) -> None:
        """Note the session of batch reads, whose stages are cancelled when an action has too many letters."""
        self._session = session

    def on_start(self, query: Query) -> None:
        """Read the letters in a query's checkpoint, take back its refusals, and tell its tasks; not on Spark Connect.

        Nothing happens without a session either. If they cannot be read, that error is raised, and batches with letters
        are refused.
        """
        if query.session is None or is_connect(query.session):
            return
        allow_all(query.id)
        with self._lock:
            self._queries.pop(query.id, None)
            self._unread.pop(query.id, None)
        try:
            checkpoint = Checkpoint.open(query.session, RunningQuery(query.session, query.id).checkpoint)
            _, done = checkpoint.last_batches()
            stored = _read_counts(checkpoint.folder, done)
        except Exception as e:
            with self._lock:
                self._unread[query.id] = str(e)
            raise
        counts = _QueryCounts(query.session, query.id, query.run_id, checkpoint.folder, *stored)
        with self._lock:
            self._queries[query.id] = counts
        for read in counts.stored:
            self._tell_tasks(counts, read, UNKNOWN)

    def on_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Wait until the letters of the batch are stored; raise the error, a CheckpointError, if they could not be."""
        del reads
        self._wait(progress.query.id)

    def on_end(self, query: Query) -> None:
        """Forget a query once its letters are stored, unless it runs again already: Spark reports ends late.

        If the letters could not be stored, that error is raised afterwards.
        """
        try:
            self._wait(query.id)
        finally:
            with self._lock:
                counts = self._queries.get(query.id)
                if counts is not None and counts.run == query.run_id:
                    del self._queries[query.id]

    def extend(self, documents: Iterable[Mapping[str, Any]]) -> None:
        """Count the letters of tasks that have succeeded, on the thread on which Spark waits for accumulators.

        A batch or action with too many is refused. Errors are only logged.
        """
        for report in map(read_report, documents):
            try:
                self._add(report)
            except Exception:
                log.exception("%s: cannot count the dead letters of a task", report.table)

    def _add(self, report: LetterReport) -> None:
        """Count the letters of a task; those of a query are stored and sent to its next tasks; too many are refused.

        A refusal of the query's batch is taken back if there are not too many. An action with too many letters is
        refused, logged and cancelled. A report of a query that is not known (not started here, or ended) is ignored;
        if the stored letters could not be read, its batch is refused. Of actions only the last `_MAX_ACTIONS` are
        counted.
        """
        number = report.batch.number
        if not report.batch.query:
            with self._lock:
                letters = self._actions.setdefault((number, report.read), _Letters())
                letters.add(report)
                while len(self._actions) > _MAX_ACTIONS:
                    self._actions.popitem(last=False)
            if report.limit != NO_LIMIT and letters.count > report.limit:
                error = too_many(report.table, letters.count, report.limit, letters.reasons)
                refuse(report.batch, str(error))
                log.error("%s", error)
                if self._session is not None:
                    cancel_stage(self._session, report.stage, str(error))
            return
        with self._lock:
            counts = self._queries.get(report.batch.query)
            if counts is None:
                if (reason := self._unread.get(report.batch.query)) is not None:
                    refuse(report.batch, f"the dead letters of earlier batches cannot be counted: {reason}")
                return
            counts.letters.setdefault(report.read, {}).setdefault(number, _Letters()).add(report)
            total = sum(count for batch, count in counts.counts(report.read).items() if batch <= number)
        if report.limit != NO_LIMIT and total > report.limit:
            reasons = counts.letters[report.read][number].reasons
            refuse(report.batch, str(too_many(report.table, total, report.limit, reasons)))
        else:
            allow(report.batch)
        self._tell_tasks(counts, report.read, report.limit)
        self._store(counts, number)

    def _tell_tasks(self, counts: _QueryCounts, read: str, limit: int) -> None:
        """Tell the tasks of the next batches how many letters a read has, by a setting of the query's session.

        Nothing happens if the query has ended. The first reasons are added if there are more letters than ``limit``, or
        if that is `UNKNOWN`.
        """
        batches = sorted(counts.counts(read).items())
        earlier, last = batches[:-_LAST_BATCHES], batches[-_LAST_BATCHES:]
        total = sum(count for _, count in batches)
        is_over = limit == UNKNOWN or (limit != NO_LIMIT and total > limit)
        reasons = counts.reasons(read) if is_over else ()
        text = Committed(sum(count for _, count in earlier), tuple(last), reasons).to_text()
        set_in_query_session(counts.session, counts.query, f"{PROPERTY}{read}", text)

    def _store(self, counts: _QueryCounts, number: int) -> None:
        """Store the letters of a batch in the checkpoint, on another thread: file systems may be slow, and Spark waits.

        The files of batches before the last `_KEPT_FILES` are removed, if a later one still says how many letters they
        have; these are only remembered as a sum. The commit of a sink of kdsl waits for it; if the letters cannot be
        stored, the batch is refused.
        """
        folder, name, batch = counts.folder, f"{COUNTS}/{number}.json", BatchId(counts.query, number)
        pending = ExitStack()
        pending.enter_context(storing(batch))

        def write() -> None:
            with pending:
                with self._lock:
                    document = counts.document(number)
                    old = counts.forget_before(number - _KEPT_FILES)
                try:
                    folder.write(name, orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode() + "\n")
                except BaseException as e:
                    refuse(batch, f"the number of dead letters cannot be stored: {e}")
                    raise
            for one in old:
                folder.remove(f"{COUNTS}/{one}.json")

        self._writes[counts.query] = self._writing.submit(write)

    def _wait(self, query: str) -> None:
        """Wait until the last letters of a query are stored; once, raise the CheckpointError if they could not be."""
        write = self._writes.pop(query, None)
        if write is not None:
            write.result()


LETTERS = LetterCounts()
ACCUMULATORS = Accumulators(LETTERS)
"""The accumulators of the reports of tasks."""


@cache
def watch_letters() -> None:
    """Count the letters of all queries and actions of this process from now on; once in a process."""
    observe(LETTERS)


def check_letters(batch: DataFrame) -> None:
    """Fail if a batch has too many letters; for a sink of kdsl in ``foreachBatch``, once the rows are computed.

    It waits until the letters of the batch are stored. Outside of a query, and on Spark Connect, nothing is checked.
    """
    session = batch.sparkSession
    if is_connect(session):
        return
    context = session.sparkContext
    query, number = current_query_id(context), current_batch_id(context)
    if query is not None and number is not None:
        check_refusal(refusals(), BatchId(query, number))


def _read_counts(folder: Folder, done: int) -> tuple[dict[str, dict[int, int]], dict[str, tuple[str, ...]]]:
    """The stored letters by read and batch (`_EARLIER` for those without a file), and the last batch's reasons by read.

    Args:
        folder: The checkpoint.
        done: The last batch that Spark has committed. Files of later batches are ignored: these run again.
    """
    documents: dict[int, Mapping[str, Any]] = {}
    for name in folder.names(COUNTS):
        number = name.removesuffix(".json")
        if not number.isdecimal() or int(number) > done:
            continue
        path = folder.path(f"{COUNTS}/{name}")
        try:
            document = orjson.loads(folder.read(f"{COUNTS}/{name}") or "")
            version = document["version"]
            documents[int(number)] = {part: dict(document[part]) for part in ("counts", "earlier", "reasons")}
        except (ValueError, KeyError, TypeError) as e:
            raise DeadLetterError(f"{path} cannot be read: {e}; remove or restore it") from e
        if version != VERSION:
            raise DeadLetterError(
                f"{path} has version {version}, and this kdsl reads version {VERSION}; use the kdsl that wrote it"
            )
    stored: dict[str, dict[int, int]] = {}
    for batch in sorted(documents):
        for read, count in documents[batch]["counts"].items():
            stored.setdefault(read, {})[batch] = count
    for read, count in documents[min(documents)]["earlier"].items() if documents else ():
        stored.setdefault(read, {})[_EARLIER] = count
    reasons = documents[max(documents)]["reasons"] if documents else {}
    return stored, {read: tuple(of_read) for read, of_read in reasons.items()}
