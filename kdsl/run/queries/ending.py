"""The end of bounded streams: a query whose sources have all reached their ends is stopped.

A source of kdsl only stops giving records (`kdsl.run.librdkafka.stream`), which to Spark looks like waiting for more.
So when every source of a query has reached its stopping offsets, what is left to be done is waited for (batches without
data, that a watermark needs), and the query is stopped; ``awaitTermination`` returns as after any other end.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from threading import Thread
from typing import Any

from kdsl.run.queries.events import Progress, Query, ReadProgress
from kdsl.run.queries.listener import reads_now
from kdsl.run.queries.reads import may_end_unseen

log = logging.getLogger("kdsl.queries")


class Endings:
    """Ends the queries that have read all that they ever will (an observer)."""

    def __init__(self) -> None:
        self._ending: set[str] = set()
        self._progressed: set[str] = set()

    def started(self, query: Query) -> None:
        """Nothing is known yet."""

    def progressed(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """End the query if all its sources have reached their ends."""
        run = progress.query.run_id
        self._progressed.add(run)
        if run in self._ending or not reads or len(reads) < progress.sources or not has_ended(reads):
            return
        self._ending.add(run)
        # Only operators with state may need batches without data.
        stateful = bool(progress.document.get("stateOperators"))
        Thread(target=_end, args=(progress.query, stateful), name=f"end of {run}", daemon=True).start()

    def idle(self, query: Query) -> None:
        """End a query that began with nothing left to read: Spark's own source reports no batch then."""
        if query.run_id not in self._progressed and query.run_id not in self._ending and may_end_unseen():
            sources, reads = reads_now(query)
            if reads and len(reads) == sources and has_ended(reads):
                self._ending.add(query.run_id)
                Thread(target=_end, args=(query, False), name=f"end of {query.run_id}", daemon=True).start()

    def ended(self, query: Query) -> None:
        """Forget the run."""
        self._ending.discard(query.run_id)
        self._progressed.discard(query.run_id)


def has_ended(reads: Iterable[ReadProgress]) -> bool:
    """Whether every one of some reads has an end, and has reached it in each partition."""
    return all(_is_bounded(one) and reached(one.end.positions, one.end.stop) for one in reads)


def _is_bounded(one: ReadProgress) -> bool:
    """Whether a read ends by itself; one of a pattern that matches no topic has no partition that could say it."""
    return bool(one.end.stop) or (one.read.plan.stop.mode != "unbounded" and not one.end.positions)


def reached(positions: Mapping[Any, int], stop: Mapping[Any, int]) -> bool:
    """Whether positions have reached the stopping offsets; partitions that are not among them hold up nothing."""
    return all(positions.get(place, -1) >= at for place, at in stop.items())


def _end(query: Query, stateful: bool) -> None:
    try:
        running = query.session.streams.get(query.id)
        if running is None or str(running.runId) != query.run_id:
            return
        if stateful:
            running.processAllAvailable()
        log.info("the query %s has read everything up to its end, and is stopped", query.name or query.id)
        running.stop()
    except Exception as e:  # noqa: BLE001  # it ended by itself, or failed, which it tells itself
        log.debug("the query %s had ended already: %s", query.id, e)
