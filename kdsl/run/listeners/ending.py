"""The end of bounded streams: a query whose sources have all reached their ends is stopped.

A source of kdsl only stops giving records (`kdsl.run.librdkafka.stream`), which to Spark looks like waiting for more.
When every source of a query has reached its stopping offsets, kdsl waits for the batches without data that a watermark
may need, and stops the query; ``awaitTermination`` returns as after any other end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from threading import Thread
from typing import Any

from kdsl.run.listeners.events import Observer, Progress, Query, ReadProgress
from kdsl.run.listeners.listener import current_reads
from kdsl.run.listeners.reads import has_unrecorded_ends

log = logging.getLogger("kdsl.queries")


class Endings(Observer):
    """Stops the queries that have read everything up to their ends (an observer)."""

    def __init__(self) -> None:
        self._ending: set[str] = set()
        self._progressed: set[str] = set()

    def on_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Stop the query, in a thread, if all its sources are reads of kdsl and have reached their ends.

        The run is remembered until `on_end`: `on_idle` does not stop it any more, and it is stopped once.
        """
        run = progress.query.run_id
        self._progressed.add(run)
        if run in self._ending or not reads or len(reads) < progress.sources or not has_ended(reads):
            return
        self._ending.add(run)
        # Only operators with state may need batches without data.
        stateful = bool(progress.document.get("stateOperators"))
        Thread(target=_stop, args=(progress.query, stateful), name=f"end of {run}", daemon=True).start()

    def on_idle(self, query: Query) -> None:
        """Stop a query that began with nothing left to read, in a thread: Spark's own source reports no batch then.

        On Spark Connect, where the reads of a query cannot be seen then, nothing happens. It is stopped once.
        Errors are those of `current_reads`.
        """
        if query.run_id not in self._progressed and query.run_id not in self._ending and has_unrecorded_ends():
            sources, reads = current_reads(query)
            if reads and len(reads) == sources and has_ended(reads):
                self._ending.add(query.run_id)
                Thread(target=_stop, args=(query, False), name=f"end of {query.run_id}", daemon=True).start()

    def on_end(self, query: Query) -> None:
        """Forget the run."""
        self._ending.discard(query.run_id)
        self._progressed.discard(query.run_id)


def has_ended(reads: Iterable[ReadProgress]) -> bool:
    """Whether all reads have an end and have reached it in each partition; True without reads."""
    return all(_is_bounded(one) and has_reached(one.end.positions, one.end.stop) for one in reads)


def _is_bounded(one: ReadProgress) -> bool:
    """Whether a read ends by itself: it has stopping offsets, or it is to end and has no partition.

    It has none if its pattern matches no topic.
    """
    return bool(one.end.stop) or (one.read.plan.stop.mode != "unbounded" and not one.end.positions)


def has_reached(positions: Mapping[Any, int], stop: Mapping[Any, int]) -> bool:
    """Whether all partitions with a stopping offset have reached it; one without a position counts as behind."""
    return all(positions.get(partition, -1) >= at for partition, at in stop.items())


def _stop(query: Query, stateful: bool) -> None:
    """Stop a query that has read everything, unless another run of it has begun; errors are logged.

    One with state first processes what is available.
    """
    try:
        running = query.session.streams.get(query.id)
        if running is None or str(running.runId) != query.run_id:
            return
        if stateful:
            running.processAllAvailable()
        log.info("the query %s has read everything up to its end, and is stopped", query.name or query.id)
        running.stop()
    except Exception as e:  # noqa: BLE001  # it has ended by itself, or failed
        log.debug("the query %s had ended already: %s", query.id, e)
