"""The duplicate-group check of reads over Spark's own Kafka source, which cannot make it: held from here.

A source of kdsl holds its group in the process that plans its query. Spark's source knows nothing of that, so the group
is held by the process that made the read: from then on, until a query that reads it has ended.
"""

from __future__ import annotations

from threading import Lock, Thread

from kdsl.run.cluster.group import hold_group
from kdsl.run.cluster.lease import Lease
from kdsl.run.queries.events import Progress, Query, ReadProgress
from kdsl.run.queries.reads import Read


class Holds:
    """Holds the groups of reads that check them (an observer)."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._runs: dict[str, set[str]] = {}
        self._lock = Lock()

    def hold(self, read: Read) -> None:
        """Hold the group of a read. One that is held for a read whose query has not begun serves again.

        Raises:
            LeaseHeldError: Somebody uses the group, perhaps a query of this process.
        """
        with self._lock:
            used = any(read.id in ids for ids in self._runs.values())
            if read.id not in self._leases or used:
                self._leases[read.id] = hold_group(read.plan, read.cluster)

    def started(self, query: Query) -> None:
        """What it reads is not known yet."""

    def progressed(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Note which reads a query has."""
        held = {one.read.id for one in reads if one.read.id in self._leases}
        if held:
            self._runs[progress.query.run_id] = held

    def idle(self, query: Query) -> None:
        """It goes on."""

    def ended(self, query: Query) -> None:
        """Give back the groups of the query's reads."""
        for id_ in self._runs.pop(query.run_id, ()):
            lease = self._leases.pop(id_, None)
            if lease is not None:
                Thread(target=lease.release, name=f"release {lease.name}", daemon=True).start()
