"""Counts the records that batches have skipped when they ran again, because they were deleted since the first plan.

The offsets at the end of such a batch are in Spark's log already, without the count, and the next batch may be planned
by another process, which does not know it. Therefore the first task of the batch reports the count, and the driver
stores it beside the checkpoint before Spark counts the task as done. A batch that runs again once more replaces its
count.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from threading import Lock
from typing import Any

import attrs
import orjson

from kdsl.errors import CheckpointError
from kdsl.run.checkpoint.checkpoint import FOLDER, Checkpoint
from kdsl.run.checkpoint.folder import Folder
from kdsl.run.listeners.events import Observer, Progress, Query, ReadProgress
from kdsl.run.skipped_reports import TOTALS
from kdsl.run.task_reports import Accumulators
from kdsl.spark_internals.queries import RunningQuery
from kdsl.spark_internals.session import is_connect

log = logging.getLogger("kdsl.read")

FILE = f"{FOLDER}/skipped.json"
"""The file of a checkpoint with the counts, by batch, read, topic and partition."""
VERSION = 1

_Batches = dict[int, dict[str, dict[str, dict[str, int]]]]


@attrs.define
class _Counts:
    """The counts of a query, its checkpoint, and whether that has them."""

    folder: Folder
    batches: _Batches
    is_stored: bool = True


class SkippedCounts(Observer):
    """Stores the counts of the queries of this process (an observer, and a receiver of reports)."""

    def __init__(self) -> None:
        self._queries: dict[str, _Counts] = {}
        self._lock = Lock()

    def on_start(self, query: Query) -> None:
        """Read the counts in a query's checkpoint, without those of batches that it has not planned (any more).

        Nothing happens on Spark Connect, where tasks report nothing. If they cannot be read, that error is raised.
        """
        if query.session is None or is_connect(query.session):
            return
        checkpoint = Checkpoint.open(query.session, RunningQuery(query.session, query.id).checkpoint)
        batches = _read_counts(checkpoint)
        with self._lock:
            self._queries[query.id] = _Counts(checkpoint.folder, batches)
            TOTALS[query.id] = _add_up(batches)

    def extend(self, reports: Iterable[tuple[str, int, str, Mapping[str, Mapping[str, int]]]]) -> None:
        """Store the counts of tasks that have succeeded; errors are logged, and `on_progress` tries again.

        Args:
            reports: For each task the id of its query, its batch, the id of its read, and the counts by topic and
                partition.
        """
        for query, batch, read, lost in reports:
            with self._lock:
                counts = self._queries.get(query)
                if counts is not None:
                    counts.batches.setdefault(batch, {})[read] = {topic: dict(of) for topic, of in lost.items()}
                    counts.is_stored = False
                    TOTALS[query] = _add_up(counts.batches)
            if counts is None:
                log.error("the records that batch %d of the query %s has skipped are not counted", batch, query)
                continue
            try:
                self._store(counts)
            except CheckpointError:
                log.exception("the count of the records that batch %d has skipped is not stored yet", batch)

    def on_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Store counts that could not be stored before; a CheckpointError says that they still cannot."""
        del reads
        with self._lock:
            counts = self._queries.get(progress.query.id)
        if counts is not None and not counts.is_stored:
            self._store(counts)

    def _store(self, counts: _Counts) -> None:
        with self._lock:
            batches = {str(number): reads for number, reads in sorted(counts.batches.items())}
            text = orjson.dumps({"version": VERSION, "batches": batches}).decode()
        counts.folder.write(FILE, f"{text}\n")
        counts.is_stored = True


def _add_up(batches: _Batches) -> dict[str, int]:
    """Return how many records all batches have skipped, by read."""
    totals: Counter[str] = Counter()
    for reads in batches.values():
        for read, topics in reads.items():
            totals[read] += sum(sum(partitions.values()) for partitions in topics.values())
    return dict(totals)


def _read_counts(checkpoint: Checkpoint) -> _Batches:
    """Read the counts of a checkpoint; empty if there are none."""
    text = checkpoint.folder.read(FILE)
    if text is None:
        return {}
    path = checkpoint.folder.path(FILE)
    try:
        document: dict[str, Any] = orjson.loads(text)
        version, batches = document["version"], {int(number): of for number, of in document["batches"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise CheckpointError(f"{path} cannot be read: {e}; remove or restore it") from e
    if version != VERSION:
        raise CheckpointError(
            f"{path} has version {version}, and this kdsl reads version {VERSION}; use the kdsl that wrote it"
        )
    planned, _ = checkpoint.last_batches()  # a checkpoint that was set back plans those batches anew
    return {number: of for number, of in batches.items() if number <= planned}


SKIPPED = SkippedCounts()
ACCUMULATORS = Accumulators(SKIPPED)
"""The accumulators of the reports of tasks."""
