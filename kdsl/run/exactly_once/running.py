"""Exactly-once queries that run in this process: their tokens are refreshed, and their prefix is held."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import attrs

from kdsl.cluster import Cluster
from kdsl.errors import ExactlyOnceError
from kdsl.plan.model import WritePlan
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.exactly_once.acquire import TokenRefresh, abort_transactions, refresh_tokens
from kdsl.run.leases.lease import Lease
from kdsl.run.librdkafka.transactions.spec import TransactionSpec
from kdsl.run.librdkafka.transactions.token import LogProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

_INTERVAL = 1
_TIMEOUT = 60.0

_running: dict[tuple[str, str], QueryWatch] = {}  # by bootstrap servers and prefix
_lock = threading.Lock()


@attrs.frozen
class PreparedStream:
    """A stream that is ready to start.

    Attributes:
        rows: The rows, with a partition for each writer.
        spec: The transaction spec of its tasks.
        checkpoint: The checkpoint of the query.
        retention: For how many seconds the brokers keep tokens.
        lease: The lease of the prefix.
    """

    rows: DataFrame
    spec: TransactionSpec
    checkpoint: Checkpoint
    retention: float
    lease: Lease


class QueryWatch:
    """A thread, started at once, that accompanies a query: it refreshes the query's tokens before they expire.

    If the query ends in the middle of a batch, the thread aborts the open transactions, so readers of the topic can
    continue. Then it releases the lease. Until then `wait_for_previous_query` finds the query.
    """

    def __init__(self, query: StreamingQuery, prepared: PreparedStream, cluster: Cluster) -> None:
        self.query, self._prepared, self._cluster = query, prepared, cluster
        self._tokens = TokenRefresh(prepared.retention, prepared.spec.writer, self._is_busy, self._refresh)
        self._key = cluster.bootstrap_servers, prepared.spec.prefix
        with _lock:
            _running[self._key] = self
        self.thread = threading.Thread(target=self._run, name=f"kdsl-{prepared.spec.prefix}", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        """Refresh tokens until the query ends, then abort open transactions and release the lease; runs in a thread.

        Nothing is aborted if the last batch is done, or if another process has taken the lease.
        """
        try:
            while not self._wait_for_end():
                self._tokens.tick(_INTERVAL)
            if self._prepared.lease.lost_to is None and self._is_in_batch():
                abort_transactions(self._prepared.spec, self._cluster)
        finally:
            with _lock:
                if _running.get(self._key) is self:
                    del _running[self._key]
            self._prepared.lease.release()

    def _wait_for_end(self) -> bool:
        """Wait a second for the end of the query, and return whether it has ended; a query that failed has ended."""
        try:
            return bool(self.query.awaitTermination(_INTERVAL))
        except Exception:  # noqa: BLE001  # it has failed, or the session has ended
            return True

    def _is_busy(self) -> bool:
        """Whether the query is in a batch that has data; True if Spark does not say it, because the query has ended."""
        try:
            status = self.query.status
            return bool(status["isTriggerActive"] and status["isDataAvailable"])
        except Exception:  # noqa: BLE001  # it has ended, as the next check shows
            return True

    def _is_in_batch(self) -> bool:
        """Whether the last batch in the checkpoint is not done; True if the checkpoint cannot be read."""
        try:
            return LogProgress(*self._prepared.checkpoint.last_batches()).open
        except Exception:  # noqa: BLE001  # the session has ended, and the checkpoint cannot be reached
            return True

    def _refresh(self, older_than: float) -> None:
        """Write tokens again that are older than some seconds, so that the brokers keep them; not without the lease."""
        if self._prepared.lease.lost_to is not None:
            return  # it would fence off the process that has the ids now
        refresh_tokens(self._prepared.spec, self._cluster, older_than)


def wait_for_previous_query(plan: WritePlan, cluster: Cluster, prefix: str | None = None) -> None:
    """If a query of this process with a prefix has just ended, wait up to a minute until it has released that.

    When the minute is over, nothing is raised.

    Args:
        plan: The write plan.
        cluster: The cluster.
        prefix: The prefix; None for that of the plan.
    """
    assert plan.transactions is not None
    prefix = prefix or plan.transactions.prefix
    with _lock:
        watch = _running.get((cluster.bootstrap_servers, prefix))
    if watch is None:
        return
    if watch.query.isActive:
        holder = watch.query.name or watch.query.id
        raise ExactlyOnceError(
            f"{plan.table}: the transactional_id_prefix {prefix!r} is held by the query {holder} of this process; each "
            "running query needs its own prefix"
        )
    watch.thread.join(_TIMEOUT)
