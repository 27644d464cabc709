"""Checks after each batch what Spark's own Kafka source does not check: topics that were created again, and gaps.

Spark's checkpoint stores topics by name, and with a reset policy (``failOnDataLoss=false``) Spark skips deleted records
without counting them. Therefore, after each batch, a thread asks the brokers for the ids of its topics and, where there
is a policy, for the first offsets of its partitions. With the transport ``librdkafka`` the source itself does both
before it gives a row.

Spark reports a query that is stopped as one that succeeded. Therefore a query whose topic was created again is made to
fail where possible (in a classic session, while it runs), and the error is stored for kdsl's own callers.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from queue import Empty, SimpleQueue
from threading import Lock, Thread

import attrs

from kdsl.callbacks import TopicPartition
from kdsl.errors import KdslError, TopicRecreatedError
from kdsl.run.admin import errors
from kdsl.run.admin.cluster_admin import ClusterAdmin
from kdsl.run.listeners.ending import has_reached
from kdsl.run.listeners.events import Observer, Progress, Query, ReadProgress
from kdsl.run.listeners.reads import Read
from kdsl.run.offsets.subscription import warn_of_unread
from kdsl.spark_internals.errors import GatewayError
from kdsl.spark_internals.queries import fail_on_stop

log = logging.getLogger("kdsl.read")

_KEPT_ERRORS = 100
"""For how many runs, the last ones that it has ended, a guard stores the error."""


@attrs.define
class Guarded:
    """A read on Spark's own source.

    Attributes:
        admin: The admin client of its cluster.
        ids: The id of each of its topics when the read was made, or when the topic was first read.
        passes_gaps: Whether Spark skips deleted records.
        lost: How many offsets were skipped so far in this process.
    """

    admin: ClusterAdmin
    ids: dict[str, str]
    passes_gaps: bool
    lost: int = 0


_guarded: dict[str, Guarded] = {}
_lock = Lock()


def guard(read: Read, admin: ClusterAdmin, ids: Mapping[str, str], *, passes_gaps: bool) -> None:
    """Check the batches of a read from now on; it replaces an earlier check of the same read, but not its count.

    Args:
        read: The read.
        admin: The admin client of its cluster.
        ids: The ids of its topics now.
        passes_gaps: Whether Spark skips deleted records.
    """
    with _lock:
        before = _guarded.get(read.id)
        _guarded[read.id] = Guarded(admin, dict(ids), passes_gaps, before.lost if before else 0)


def count_lost(read_id: str) -> int:
    """Return how many offsets of deleted records Spark has skipped for a read in this process, at most."""
    guarded = _guarded.get(read_id)
    return guarded.lost if guarded else 0


def count_lost_in_batch(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    earliest: Mapping[TopicPartition, int],
    rows: int,
) -> Counter[TopicPartition]:
    """Compute how many offsets of a batch were deleted before they were read, at most, by partition.

    Partitions without any are left out.

    Args:
        start: Where the batch began.
        end: Where it ended.
        earliest: Where the logs begin now.
        rows: How many records were read.
    """
    sizes = {partition: max(0, at - start.get(partition, at)) for partition, at in end.items()}
    missing = sum(sizes.values()) - rows
    lost: Counter[TopicPartition] = Counter()
    for partition, size in sorted(sizes.items()):
        deleted = min(size, max(0, earliest.get(partition, 0) - start.get(partition, 0)), missing)
        if deleted > 0:
            lost[partition] = deleted
            missing -= deleted
    return lost


class SparkSourceGuard(Observer):
    """Checks the batches of guarded reads (an observer)."""

    def __init__(self) -> None:
        self._work: SimpleQueue[tuple[Progress, ReadProgress]] = SimpleQueue()
        self._thread: Thread | None = None
        self._lock = Lock()
        self._errors: dict[str, TopicRecreatedError] = {}

    def on_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Queue a batch that has ended for the check, which a thread makes, if a guarded read has moved in it."""
        for one in reads:
            if one.read.id in _guarded and (one.start is None or one.start.positions != one.end.positions):
                self._work.put((progress, one))
                self._wake()

    def wait(self) -> None:
        """Wait, without a time limit, until all batches are checked; for the end of the process, and for tests."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def error_of(self, run_id: str) -> TopicRecreatedError | None:
        """The error for which this guard has ended a run of a query; None if there was none, or it is long ago."""
        return self._errors.get(run_id)

    def _wake(self) -> None:
        """Start the thread if it does not run."""
        with self._lock:
            if self._thread is None:
                self._thread = Thread(target=self._run, name="kdsl guard of Spark's source", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        """Check the queued batches (`_check_or_end`), and log errors.

        Runs in a thread, until the queue is empty.
        """
        while True:
            with self._lock:
                try:
                    progress, one = self._work.get_nowait()
                except Empty:
                    self._thread = None
                    return
            try:
                self._check_or_end(progress, one)
            except KdslError as e:
                log.warning("%s: a batch could not be checked for lost records: %s", one.read.plan.table, e)
            except Exception:
                log.exception("%s: a batch could not be checked for lost records", one.read.plan.table)

    def _check_or_end(self, progress: Progress, one: ReadProgress) -> None:
        """Check a batch (`_check`); if a topic was recreated, store the error, and end the query.

        That a query cannot be ended is logged.
        """
        try:
            self._check(progress, one)
        except TopicRecreatedError as e:
            query = progress.query
            log.error("%s; the query %s is ended", e, query.name or query.id)  # noqa: TRY400
            self._errors[query.run_id] = e.with_traceback(None)  # its frames would keep the query alive
            if len(self._errors) > _KEPT_ERRORS:
                del self._errors[next(iter(self._errors))]
            try:
                _end(query, e)
            except Exception:
                log.exception("the query %s could not be ended", query.name or query.id)

    def _check(self, progress: Progress, one: ReadProgress) -> None:
        """Compare the ids of the topics that a batch has read with the former ones; count and log skipped offsets.

        Topics that do not exist now are ignored, and the id of a new one is stored. Offsets are only counted if the
        settings let Spark skip gaps. Partitions that a read at its end leaves unread are logged, too.
        """
        guarded, table = _guarded[one.read.id], one.read.plan.table
        names = {topic for topic, _ in one.end.positions}
        topics = guarded.admin.topics(names)
        for name in sorted(names & topics.keys()):
            now = topics[name].id
            before = guarded.ids.setdefault(name, now)
            if now and before and now != before:
                raise errors.topic_recreated(table, name, before, now, "it was read")
        stop = one.end.stop
        if stop and has_reached(one.end.positions, stop) and not one.read.plan.topics.partitions:
            every = {(name, partition) for name, topic in topics.items() for partition in range(topic.partitions)}
            warn_of_unread(table, every - stop.keys())
        if not guarded.passes_gaps or one.start is None:
            return
        start, end = one.start.positions, one.end.positions
        read = [partition for partition, at in end.items() if at > start.get(partition, at) and partition[0] in topics]
        lost = count_lost_in_batch(start, end, guarded.admin.earliest(read), one.rows)
        guarded.lost += lost.total()
        for (topic, partition), count in lost.items():
            deleted = errors.explain_deleted(topic, partition, count)
            log.warning("%s: batch %d: up to %s, and Spark skipped them", table, progress.batch, deleted)


def _end(query: Query, error: KdslError) -> None:
    """End a query that still runs in the same run: with an error in a classic session.

    Spark Connect can only stop it. A warning is logged if a classic session does not take the error, either.
    """
    running = query.session.streams.get(query.id)
    if running is None or str(running.runId) != query.run_id:
        return
    message = f"{type(error).__module__}.{type(error).__name__}: {error}"
    try:
        fail_on_stop(query.session, running, message)
    except (GatewayError, TypeError, AttributeError) as e:  # these are parts inside Spark, which may change
        log.warning("Spark reports the query %s as stopped and not as failed: %s", query.name or query.id, e)
    running.stop()


SPARK_SOURCE_GUARD = SparkSourceGuard()
