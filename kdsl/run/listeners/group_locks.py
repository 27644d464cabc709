"""The duplicate-group check of reads over Spark's own Kafka source.

A source of kdsl holds the lease of its group in the process that plans its query. Spark's source does not check groups,
so the process that made the read holds the lease: from then on, until a query that reads it has ended.
"""

from __future__ import annotations

from threading import Lock, Thread

from kdsl.run.leases.group import acquire_group_lease
from kdsl.run.leases.lease import Lease
from kdsl.run.listeners.events import Observer, Progress, Query, ReadProgress
from kdsl.run.listeners.reads import Read


class GroupLocks(Observer):
    """Holds the leases of the groups of reads that check them (an observer)."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}
        self._runs: dict[str, set[str]] = {}
        self._lock = Lock()

    def acquire(self, read: Read) -> None:
        """Acquire the lease of a read's group.

        If the same read was made before and no query has begun to run it, the lease from then is kept.
        """
        with self._lock:
            used = any(read.id in ids for ids in tuple(self._runs.values()))  # which the listener's thread changes
            if read.id not in self._leases or used:
                self._leases[read.id] = acquire_group_lease(read.plan, read.cluster)

    def on_progress(self, progress: Progress, reads: tuple[ReadProgress, ...]) -> None:
        """Note which reads of a query hold a lease, so that its end releases these."""
        leased = {one.read.id for one in reads if one.read.id in self._leases}
        if leased:
            self._runs[progress.query.run_id] = leased

    def on_end(self, query: Query) -> None:
        """Release the leases of the query's reads, in threads."""
        for id_ in self._runs.pop(query.run_id, ()):
            lease = self._leases.pop(id_, None)
            if lease is not None:
                Thread(target=lease.release, name=f"release {lease.name}", daemon=True).start()
