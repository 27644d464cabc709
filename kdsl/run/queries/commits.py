"""Commits of consumer groups: how far the streams of this process have read, told to the brokers for others to see.

Offsets in the checkpoint alone say where a query goes on; those of the group are for lag tools, and for a new query
that starts at ``group-offsets``. They are committed when a batch has ended, never before, all partitions in one
request, and once more when the query has ended. A commit runs on a thread of its own, where only the newest offsets of
a query wait; one that fails is counted, and repaired by the next.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping
from threading import Condition, Thread

import attrs

from kdsl.client.connector import ConnectorSettings
from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.offsets import TopicPartition
from kdsl.plan.model import ReadPlan
from kdsl.run.cluster.brokers import Brokers
from kdsl.run.queries.events import Progress, Query, ReadProgress
from kdsl.run.queries.reads import GroupOffsets, Read, offsets_of, read_id

log = logging.getLogger("kdsl.commits")

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_AT_EXIT = 10.0
"""How long the end of the process waits for commits that are under way, in seconds."""


@attrs.define
class CommitCounts:
    """What became of the commits of a read in this process; a plain object to look at.

    Attributes:
        succeeded: How many commits succeeded.
        failed: How many failed.
        committed: The offset that was last committed, by partition.
        error: Why the last commit failed; None when it succeeded.
    """

    succeeded: int = 0
    failed: int = 0
    committed: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    error: str | None = None


def counts_of(read_id: str) -> CommitCounts:
    """What became of the commits of a read so far."""
    return _counts.setdefault(read_id, CommitCounts())


def why_not(read: Read) -> str | None:
    """Why the offsets of a read are not committed; None where they are (RULES ST-7, PR-6; seed 003)."""
    settings = read.cluster.connector()
    if read.plan.group_id is None or not read.plan.group_declared:
        return "no group id is declared (group_id=, 'properties.group.id')"
    if not settings.commit_on_checkpoint and not settings.auto_commit:
        return "'commit.offsets.on.checkpoint' is false"
    return None


def tell_of_batch(plan: ReadPlan, cluster: Cluster) -> None:
    """Warn who asks for commits of a batch read: Spark tells nobody which of its records were used in the end.

    Args:
        plan: What is read.
        cluster: Where it lives, with the table's own client properties.
    """
    id_ = read_id(plan, cluster)
    if cluster.connector().auto_commit and id_ not in _batches:
        _batches.add(id_)
        log.warning(
            "%s: 'enable.auto.commit' is true, but a batch read commits nothing: Spark may run it again, or in part, "
            "and its end is not known; to commit what was read use read_stream with trigger(availableNow=True)",
            plan.table,
        )


def wait_for_commits(seconds: float = _AT_EXIT) -> bool:
    """Wait until every commit that is due was tried.

    Args:
        seconds: How long to wait at most.

    Returns:
        Whether none waits any more.
    """
    until = time.monotonic() + seconds
    return all(worker.wait(until) for worker in tuple(_workers.values()))


class ByBrokers:
    """The offsets of a group, by librdkafka.

    Args:
        read: The read of which they are.
    """

    def __init__(self, read: Read) -> None:
        self._brokers = Brokers(read.cluster, read.plan.table)

    def commit(self, read: Read, positions: Mapping[TopicPartition, int]) -> None:
        """Commit the offset of the next record of each partition."""
        self._brokers.commit(read.group, positions)

    def committed(self, read: Read, places: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The offsets that the group has committed, where it has."""
        return self._brokers.committed(read.group, places)


class Commits:
    """Commits the positions of the reads of a process (an observer)."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, Worker]] = {}
        self._told: set[str] = set()

    def started(self, query: Query) -> None:
        """Nothing is known yet."""

    def progressed(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Let the new positions be committed."""
        positions: dict[str, dict[TopicPartition, int]] = {}
        by_id = {one.read.id: one.read for one in reads}
        for one in reads:  # a table that is read twice in a query has come as far as the slower one
            into = positions.setdefault(one.read.id, {})
            for place, at in one.end.positions.items():
                into[place] = min(at, into.get(place, at))
        workers = self._runs.setdefault(progress.query.run_id, {})
        for id_, found in positions.items():
            reason = why_not(by_id[id_])
            if reason is None:
                workers[id_] = _worker(by_id[id_])
                workers[id_].put(progress.query.run_id, found)
            elif id_ not in self._told:
                self._told.add(id_)
                log.info("%s: offsets are not committed to Kafka: %s", by_id[id_].plan.table, reason)

    def idle(self, query: Query) -> None:
        """A commit that failed is tried again by itself."""

    def ended(self, query: Query) -> None:
        """Commit what waits, at once."""
        for worker in self._runs.pop(query.run_id, {}).values():
            worker.end(query.run_id)


@attrs.define
class _Run:
    """What a run of a query wants to have committed, and what was."""

    wanted: dict[TopicPartition, int] = attrs.field(factory=dict)
    done: dict[TopicPartition, int] = attrs.field(factory=dict)
    due: float = 0.0
    pause: float = _FIRST_PAUSE
    ended: bool = False
    tried: bool = True
    warned: bool = False

    @property
    def settled(self) -> bool:
        """Whether all that is wanted was committed."""
        return all(self.done.get(place) == at for place, at in self.wanted.items())


class Worker:
    """Commits for one read, on a thread of its own that lives as long as there is something to commit.

    Args:
        read: The read.
    """

    def __init__(self, read: Read) -> None:
        self.read = read
        self._settings: ConnectorSettings = read.cluster.connector()
        self._interval = self._settings.auto_commit_interval_ms / 1000 if self._settings.auto_commit else 0.0
        self._runs: dict[str, _Run] = {}
        self._changed = Condition()
        self._thread: Thread | None = None
        self._offsets: GroupOffsets | None = None
        self._last = float("-inf")

    def put(self, run_id: str, positions: Mapping[TopicPartition, int]) -> None:
        """Commit some positions of a run; what is older does not matter any more, and nothing goes back."""
        with self._changed:
            run = self._runs.setdefault(run_id, _Run())
            run.wanted = {place: max(at, run.done.get(place, at)) for place, at in positions.items()}
            if run.settled:
                return
            run.tried = False
            run.due = max(time.monotonic(), self._last + self._interval)
            self._wake()

    def end(self, run_id: str) -> None:
        """A run has ended: what it still wants is committed at once, tried once."""
        with self._changed:
            run = self._runs.get(run_id)
            if run is not None:
                run.ended, run.due, run.tried = True, 0.0, run.settled
                self._wake()

    def wait(self, until: float) -> bool:
        """Wait until everything was tried."""
        with self._changed:
            return self._changed.wait_for(
                lambda: all(run.tried for run in self._runs.values()), max(0.0, until - time.monotonic())
            )

    def _wake(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._live, name=f"commits {self.read.id}", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _live(self) -> None:
        while (found := self._next()) is not None:
            run, wanted = found
            error: str | None = None
            try:
                self._by().commit(self.read, wanted)
            except KdslError as e:
                error = str(e)
            except Exception as e:  # noqa: BLE001  # a commit never ends the thread, whatever client makes it
                error = f"{type(e).__name__}: {e}"
            with self._changed:
                self._note(run, wanted, error)
                self._changed.notify_all()

    def _next(self) -> tuple[_Run, dict[TopicPartition, int]] | None:
        """What is to be committed next; None, and the thread ends, where no run is left."""
        with self._changed:
            while True:
                for id_ in [id_ for id_, run in self._runs.items() if run.ended and run.tried]:
                    del self._runs[id_]
                if not self._runs:
                    self._thread = self._offsets = None
                    self._changed.notify_all()
                    return None
                waiting = [run for run in self._runs.values() if not run.settled]
                run = min(waiting, key=lambda run: run.due, default=None)
                left = None if run is None else run.due - time.monotonic()
                if run is not None and left is not None and left <= 0:
                    return run, dict(run.wanted)
                self._changed.wait(left)

    def _by(self) -> GroupOffsets:
        offsets = self._offsets
        if offsets is None:
            offsets = self._offsets = offsets_of(self.read) or ByBrokers(self.read)
        return offsets

    def _note(self, run: _Run, wanted: dict[TopicPartition, int], error: str | None) -> None:
        counts, table = counts_of(self.read.id), self.read.plan.table
        counts.error = error
        self._last = time.monotonic()
        if error is None:
            counts.succeeded += 1
            counts.committed = {**counts.committed, **wanted}
            run.done, run.pause = {**run.done, **wanted}, _FIRST_PAUSE
            if run.warned:
                log.info("%s: the offsets of the group are committed again", table)
            run.warned = False
            run.due = 0.0 if run.ended else self._last + self._interval
        else:
            counts.failed += 1
            log.log(
                logging.DEBUG if run.warned else logging.WARNING,
                "%s: offsets were not committed to Kafka, which lag tools will show; the query goes on, and the next "
                "commit repairs it: %s",
                table,
                error,
            )
            run.warned = True
            run.due = 0.0 if run.ended else self._last + run.pause
            run.pause = min(2 * run.pause, _LONGEST_PAUSE)
        run.tried = run.wanted == wanted


_counts: dict[str, CommitCounts] = {}
_workers: dict[str, Worker] = {}
_batches: set[str] = set()


def _worker(read: Read) -> Worker:
    worker = _workers.get(read.id)
    if worker is None or worker.read != read:
        worker = _workers[read.id] = Worker(read)
    return worker
