"""Commits of consumer groups: how far the streams of this process have read, for others to see.

A query continues from the offsets in its checkpoint only; those of the group are for lag tools, and for a new query
that starts at ``group-offsets``. They are committed when a batch has ended, never before, all partitions in one
request, and once more when the query has ended. Commits run on their own thread, where only the newest offsets of a
query are pending; a commit that fails is counted, and the next one repairs it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from threading import Condition, Thread

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan
from kdsl.run.admin.cluster_admin import ClusterAdmin
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.listeners.events import Observer, Progress, Query, ReadProgress
from kdsl.run.listeners.reads import Read, admin_of, read_id

log = logging.getLogger("kdsl.commits")

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
_AT_EXIT = 10.0
"""How many seconds the end of the process waits for pending commits."""


@attrs.define
class CommitCounts:
    """The results of the commits of a read in this process.

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
    """Return the results of the commits of a read so far, zero without any; later commits update the object."""
    return _counts.setdefault(read_id, CommitCounts())


def reason_not_to_commit(read: Read) -> str | None:
    """Say why the offsets of a read are not committed; None if they are (rules ST-7 and PR-6 in docs/rules.md).

    They are if a group id is declared, and ``commit.offsets.on.checkpoint`` or ``enable.auto.commit`` is true.
    """
    settings = read.cluster.kdsl_settings
    if read.plan.group_id is None or not read.plan.commits:
        return "no group id is declared (group_id=, 'properties.group.id')"
    if not settings.commit_on_checkpoint and not settings.auto_commit:
        return "'commit.offsets.on.checkpoint' is false"
    return None


def warn_about_batch_commits(plan: ReadPlan, cluster: Cluster) -> None:
    """Log a warning, once for each read of a process, if a batch read asks for commits (``enable.auto.commit``).

    They do not happen: Spark does not report which records of a batch were used in the end.
    """
    id_ = read_id(plan, cluster)
    if cluster.kdsl_settings.auto_commit and id_ not in _batches:
        _batches.add(id_)
        log.warning(
            "%s: 'enable.auto.commit' is true, but a batch read commits nothing: Spark may run it again or in part, "
            "and does not report its end; to commit what was read, use read_stream with trigger(availableNow=True)",
            plan.table,
        )


def wait_for_commits(seconds: float = _AT_EXIT) -> bool:
    """Wait until all pending commits were tried, ``seconds`` at most; return whether all were. None is hastened."""
    until = time.monotonic() + seconds
    return all(worker.wait(until) for worker in tuple(_workers.values()))


class Commits(Observer):
    """Commits the positions of the reads of a process (an observer)."""

    def __init__(self) -> None:
        self._runs: dict[str, dict[str, Worker]] = {}
        self._reported: set[str] = set()

    def on_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Hand the new positions of each read to the worker that commits them; log once why a read commits nothing.

        No position moves ahead of a slower read. The workers of the run are remembered until `on_end`.
        """
        positions: dict[str, dict[TopicPartition, int]] = {}
        by_id = {one.read.id: one.read for one in reads}
        for one in reads:  # a table that is read twice in a query has come as far as the slower one
            into = positions.setdefault(one.read.id, {})
            for partition, at in one.end.positions.items():
                into[partition] = min(at, into.get(partition, at))
        workers = self._runs.setdefault(progress.query.run_id, {})
        for id_, by_partition in positions.items():
            reason = reason_not_to_commit(by_id[id_])
            if reason is None:
                workers[id_] = _worker(by_id[id_])
                workers[id_].put(progress.query.run_id, by_partition)
            elif id_ not in self._reported:
                self._reported.add(id_)
                log.info("%s: offsets are not committed to Kafka: %s", by_id[id_].plan.table, reason)

    def on_end(self, query: Query) -> None:
        """Forget the run, and let its workers commit its pending positions at once; do not wait for them."""
        for worker in self._runs.pop(query.run_id, {}).values():
            worker.end(query.run_id)


@attrs.define
class _Run:
    """The pending and the committed positions of a run of a query."""

    wanted: dict[TopicPartition, int] = attrs.field(factory=dict)
    done: dict[TopicPartition, int] = attrs.field(factory=dict)
    due: float = 0.0
    pause: float = _FIRST_PAUSE
    ended: bool = False
    hurried: bool = False
    tried: bool = True
    warned: bool = False

    @property
    def settled(self) -> bool:
        """Whether all wanted positions are committed."""
        return all(self.done.get(partition) == at for partition, at in self.wanted.items())


class Worker:
    """Commits for the reads of one id, on its own thread, which lives as long as there is something to commit.

    Attributes:
        read: The present read of the id.
    """

    def __init__(self, read: Read) -> None:
        self.read = read
        self._interval = _shortest_interval(read)
        self._runs: dict[str, _Run] = {}
        self._changed = Condition()
        self._thread: Thread | None = None
        self._admin: ClusterAdmin | None = None
        self._last = float("-inf")

    def replace_read(self, read: Read) -> None:
        """Commit with the client and the settings of another read of the same id from now on, pending positions too.

        The former client is dropped. Nothing changes if the reads are equal.
        """
        with self._changed:
            if read != self.read:
                self.read, self._interval, self._admin = read, _shortest_interval(read), None

    def put(self, run_id: str, positions: Mapping[TopicPartition, int]) -> None:
        """Schedule a commit of a run's positions, and start the thread if it does not run.

        They replace all pending ones of the run; where a log was cut off, they are before the committed ones. Nothing
        is scheduled if all of them are committed.
        """
        with self._changed:
            run = self._runs.setdefault(run_id, _Run())
            run.wanted = dict(positions)
            run.tried = run.settled
            if run.settled:
                self._changed.notify_all()
                return
            run.due = max(time.monotonic(), self._last + self._interval)
            self._wake()

    def commit(self, run_id: str, positions: Mapping[TopicPartition, int], until: float) -> None:
        """Commit positions of a run at once, before those that are pending, and wait for it.

        A `KdslError` says why they were not committed, or that it took longer than until a time (`time.monotonic`).
        """
        self.put(run_id, positions)
        with self._changed:
            run = self._runs[run_id]
            if run.settled:
                return
            run.hurried, run.due = True, 0.0
            self._wake()
            answered = self._changed.wait_for(lambda: run.tried, max(0.0, until - time.monotonic()))
            run.hurried = False
            if not run.settled:
                reason = counts_of(self.read.id).error if answered else "the brokers do not answer"
                raise KdslError(f"{self.read.plan.table}: offsets were not committed to Kafka: {reason}")

    def end(self, run_id: str) -> None:
        """Schedule the last commit of a run that has ended, if positions are pending: at once, with one attempt."""
        with self._changed:
            run = self._runs.get(run_id)
            if run is not None:
                run.ended, run.due, run.tried = True, 0.0, run.settled
                self._wake()

    def wait(self, until: float) -> bool:
        """Wait until all pending commits were tried, or until a time (`time.monotonic`); return whether they were.

        None is hastened.
        """
        with self._changed:
            return self._changed.wait_for(
                lambda: all(run.tried for run in self._runs.values()), max(0.0, until - time.monotonic())
            )

    def _wake(self) -> None:
        """Start the thread if it does not run, and wake it; the lock must be held."""
        if self._thread is None:
            self._thread = Thread(target=self._work, name=f"commits {self.read.id}", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        """Commit offsets as they become due, until nothing is left to commit; errors are noted. Runs in a thread."""
        while (pending := self._next()) is not None:
            run, wanted = pending
            error: str | None = None
            try:
                self._open_admin().commit(self.read.group, wanted)
            except KdslError as e:
                error = str(e)
            except Exception as e:  # noqa: BLE001  # a commit never ends the thread, whatever client makes it
                error = f"{type(e).__name__}: {e}"
            with self._changed:
                self._note(run, wanted, error)
                self._changed.notify_all()

    def _next(self) -> tuple[_Run, dict[TopicPartition, int]] | None:
        """Wait for the next commit that is due; return its run and positions, which stay pending until `_note`.

        Runs that have ended and were tried are dropped. None if no run is left: the thread must end, and the client is
        dropped.
        """
        with self._changed:
            while True:
                for id_ in [id_ for id_, run in self._runs.items() if run.ended and run.tried]:
                    del self._runs[id_]
                if not self._runs:
                    self._thread = self._admin = None
                    self._changed.notify_all()
                    return None
                waiting = [run for run in self._runs.values() if not run.settled]
                run = min(waiting, key=lambda run: run.due, default=None)
                left = None if run is None else run.due - time.monotonic()
                if run is not None and left is not None and left <= 0:
                    return run, dict(run.wanted)
                self._changed.wait(left)

    def _open_admin(self) -> ClusterAdmin:
        """Return the client that commits: the read's own, or one of librdkafka, created when the read is first used."""
        with self._changed:
            read, admin = self.read, self._admin
        if admin is None:
            admin = admin_of(read) or LibrdkafkaAdmin(read.cluster, read.plan.table)
            with self._changed:
                if self.read is read:
                    self._admin = admin
        return admin

    def _note(self, run: _Run, wanted: dict[TopicPartition, int], error: str | None) -> None:
        """Store a commit's outcome in the run and in `counts_of`, schedule the next one, log failures and the recovery.

        Failures that follow another one are logged as DEBUG, the others as warnings.

        Args:
            run: The run.
            wanted: The positions that the commit contained.
            error: Why it failed; None if it succeeded.
        """
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
            run.due = 0.0 if run.ended or run.hurried else self._last + self._interval
        else:
            counts.failed += 1
            log.log(
                logging.DEBUG if run.warned else logging.WARNING,
                "%s: offsets were not committed to Kafka, which lag tools will show; the query continues, and the "
                "next commit repairs it: %s",
                table,
                error,
            )
            run.warned = True
            run.due = 0.0 if run.ended or run.hurried else self._last + run.pause
            run.pause = min(2 * run.pause, _LONGEST_PAUSE)
        run.tried = run.settled or run.wanted == wanted


_counts: dict[str, CommitCounts] = {}
_workers: dict[str, Worker] = {}
_batches: set[str] = set()


def _worker(read: Read) -> Worker:
    """Return this process's worker for the offsets of a read, which uses this read if it has changed."""
    worker = _workers.setdefault(read.id, Worker(read))
    worker.replace_read(read)
    return worker


def _shortest_interval(read: Read) -> float:
    """Return the seconds from one commit to the next, at least: with ``enable.auto.commit``, its interval."""
    settings = read.cluster.kdsl_settings
    return settings.auto_commit_interval_ms / 1000 if settings.auto_commit else 0.0
