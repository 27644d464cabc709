"""How the driver handles transactional ids before a query starts, while it is idle, and after it has ended.

Before the start it acquires each id once. This aborts the transactions that an earlier run left open, so readers reach
the ends of the topics again. It compares the tokens with Spark's log, and writes a token for each id: if one is missing
later, it was lost. Tasks then acquire the ids themselves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

import attrs

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, Problem, ResolveError
from kdsl.run.librdkafka.producer import ProducerError
from kdsl.run.librdkafka.transactions.errors import exactly_once_error
from kdsl.run.librdkafka.transactions.producer import TransactionalProducer
from kdsl.run.librdkafka.transactions.spec import TransactionSpec, add_transaction_settings
from kdsl.run.librdkafka.transactions.task import abort_and_close, take_id, token_admin_of
from kdsl.run.librdkafka.transactions.token import (
    LogProgress,
    Token,
    check_owner,
    find_half_written,
    find_start_batches,
)
from kdsl.run.librdkafka.transactions.token_store import RETENTION, TIMEOUT, TokenAdmin

DEFAULT_TIMEOUT_MS = 3_600_000
DEFAULT_MAX_TIMEOUT_MS = 900_000  # Kafka's default of transaction.max.timeout.ms
DEFAULT_RETENTION_MINUTES = 7 * 24 * 60
MIN_TIMEOUT_MS = 1_000
"""The shortest ``transaction.timeout.ms`` that librdkafka accepts."""

_log = logging.getLogger(__name__)
_THREADS = 8
_SHORTEST, _DAY = 1.0, 86_400.0


def read_limits(admin: TokenAdmin, asked_ms: int | None, table: str) -> tuple[int, float]:
    """Read the transaction timeout in milliseconds, and for how many seconds the brokers keep tokens.

    Kafka's defaults stand in for settings that this user may not see.

    Args:
        admin: The admin client.
        asked_ms: The user's ``transaction.timeout.ms``; None for an hour, or the brokers' maximum where that is less.
        table: The table's name, for messages.
    """
    settings = admin.settings((TIMEOUT, RETENTION))
    retention = settings.get(RETENTION, DEFAULT_RETENTION_MINUTES) * 60.0
    most = settings.get(TIMEOUT)
    if asked_ms is None:
        return min(DEFAULT_TIMEOUT_MS, DEFAULT_MAX_TIMEOUT_MS if most is None else most), retention
    message = fix = ""
    if most is not None and asked_ms > most:
        message = f"'transaction.timeout.ms' is {asked_ms}, but the brokers allow {most} (transaction.max.timeout.ms)"
        fix = f"set at most {most}, remove it, or raise transaction.max.timeout.ms of the brokers"
    elif asked_ms < MIN_TIMEOUT_MS:
        message = f"'transaction.timeout.ms' is {asked_ms}, but the client requires at least {MIN_TIMEOUT_MS}"
        fix = "give more than a batch takes, or remove it"
    if message:
        raise ResolveError(f"{table} cannot be written", [Problem("transaction-timeout", message, fix)])
    return asked_ms, retention


def acquire_ids(
    spec: TransactionSpec,
    cluster: Cluster,
    progress: LogProgress,
    *,
    before: Iterable[str] = (),
    successors: Mapping[str, str] | None = None,
    fits: Callable[[int], bool] = lambda _: True,
    adopt: bool = False,
    strict: bool = True,
) -> dict[str, int]:
    """Acquire the ids of a write, check their tokens, and give each the token that its tasks continue from.

    Every id that the query has or had gets a token of this run, including those beyond the present number of writers
    and under another prefix. Late tasks of an earlier run are then refused whatever id they use. Open transactions of
    these ids are aborted. The producers are closed again.

    Args:
        spec: The write.
        cluster: The cluster.
        progress: The last batches in Spark's logs.
        before: The ids that the query used before, perhaps under another prefix, or more of them.
        successors: The id that now writes the same rows, for each of those; None or empty if there is none.
        fits: Whether a number of writers routes the rows of the open batch as the ids ``before`` do.
        adopt: Whether to continue although tokens are missing or belong to another query.
        strict: Whether each of the ids ``before`` must have a token.

    Returns:
        The batch up to which each of the spec's ids has written.
    """
    admin = token_admin_of(cluster, spec.writer.table)
    previous = list(before)
    further = [id_ for id_ in dict.fromkeys([*spec.ids, *admin.ids(spec.prefix)]) if id_ not in previous]
    with ThreadPoolExecutor(_THREADS) as pool:
        if not adopt:  # a running query of another user must not be fenced off by a query that is then refused
            for id_, token in zip(further, pool.map(partial(admin.token, stable=False), further), strict=True):
                if token is not None:
                    check_owner(id_, token, spec.writer)
        settings = cluster.producer()
        everything = [*previous, *further]
        producers = [add_transaction_settings(settings, id_, spec.timeout_ms) for id_ in everything]
        futures = [pool.submit(take_id, spec, cluster, one) for one in producers]
        acquired = {}
        failed: list[BaseException] = []
        for id_, future in zip(everything, futures, strict=True):
            try:
                acquired[id_] = future.result()
            except Exception as e:  # noqa: BLE001
                failed.append(e)
        try:
            if failed:
                raise failed[0]
            tokens = {id_: token for id_, (_, token) in acquired.items()}
            old = {id_: tokens[id_] for id_ in previous}
            inherits = {new: id_ for id_, new in (successors or {}).items()}
            batches = find_start_batches(
                spec.writer,
                progress,
                old,
                {id_: inherits.get(id_, "" if successors or previous else id_) for id_ in spec.ids},
                {id_: tokens[id_] for id_ in further},
                plan=spec.plan,
                offsets=spec.offsets,
                fits=fits,
                adopt=adopt,
                strict=strict,
            )
            last = max((token.number for token in tokens.values() if token is not None), default=0)
            # What an id has written stays known if the driver dies here, and the next one starts with the former ids.
            half = dict.fromkeys(find_half_written(spec.writer, progress, old, spec.offsets), progress.planned)
            seeded = {**dict.fromkeys(everything, progress.done), **half, **batches}
            list(
                pool.map(
                    lambda id_: _seed(spec, acquired[id_][0], _create_first_token(spec, progress, seeded[id_], last)),
                    everything,
                )
            )
        finally:
            pool.shutdown()  # no thread may use a producer that is closed
            for producer, _ in acquired.values():
                producer.close()
    return batches


def _create_first_token(spec: TransactionSpec, progress: LogProgress, batch: int, last: int) -> Token:
    """Create the first token of an id in a run: it says that ``batch`` is written, and its number follows ``last``.

    It has the digest of the open batch's offsets only if that is its batch, which the id may have written.
    """
    token = spec.token(batch, last + 1)
    return token if progress.open and batch == progress.planned else attrs.evolve(token, offsets="")


def _seed(spec: TransactionSpec, producer: TransactionalProducer, token: Token) -> None:
    """Commit a token in a transaction of its own, with a producer that has acquired the id."""
    try:
        producer.begin()
        producer.send_token(producer.id, spec.topic, token.number, token.text(), spec.step_timeout)
        producer.commit(spec.step_timeout)
    except ProducerError as e:
        abort_and_close(producer)
        raise exactly_once_error(spec, producer.id, token.batch, e) from e


def refresh_tokens(spec: TransactionSpec, cluster: Cluster, older_than: float) -> int:
    """Commit the tokens of this run again before the brokers forget them; those of other runs are left alone.

    This fences off an active writer, which notices it before it sends its rows.

    Args:
        spec: The write.
        cluster: The cluster.
        older_than: Only refresh tokens that were committed more than this many seconds ago.

    Returns:
        How many tokens were committed again.
    """
    admin = token_admin_of(cluster, spec.writer.table)
    now = time.time() * 1000
    count = 0
    for id_ in spec.ids:
        token = admin.token(id_)
        if token is None or not spec.owns(token) or now - token.time < older_than * 1000:
            continue
        producer, token = take_id(spec, cluster, add_transaction_settings(cluster.producer(), id_, spec.timeout_ms))
        try:
            if token is not None and spec.owns(token):
                _seed(spec, producer, attrs.evolve(token, time=int(time.time() * 1000), number=token.number + 1))
                count += 1
        finally:
            producer.close()
    return count


class TokenRefresh:
    """Refreshes the tokens of a query, often enough that the brokers never forget one.

    Args:
        retention: For how many seconds the brokers keep tokens.
        writer: Who writes, for messages.
        busy: Whether the query is in a batch. A refresh fences off a writer that has just begun, which fails its task.
            Therefore it is delayed then, but only up to a limit: a query may be busy all the time.
        refresh: Refreshes the tokens that are older than the given number of seconds.
    """

    def __init__(
        self, retention: float, writer: object, busy: Callable[[], bool], refresh: Callable[[float], object]
    ) -> None:
        self._every = max(_SHORTEST, min(retention / 4, _DAY))
        self._writer, self._busy, self._refresh, self._waited = writer, busy, refresh, 0.0

    def tick(self, seconds: float) -> None:
        """Note that some seconds have passed, and refresh the tokens if that is due; errors are only logged.

        While the query is in a batch, a refresh is delayed for half an interval at most.
        """
        self._waited += seconds
        if self._waited < self._every or (self._waited < 1.5 * self._every and self._busy()):
            return
        self._waited = 0.0
        try:
            self._refresh(self._every / 2)
        except Exception as e:  # noqa: BLE001  # the thread goes on: without it the brokers forget the tokens
            _log.warning("%s: tokens cannot be refreshed now, and kdsl will retry: %s", self._writer, e)


def abort_transactions(spec: TransactionSpec, cluster: Cluster) -> None:
    """Acquire each id once more, which aborts its open transaction: that would hold up the readers of the topic.

    It fences off the id's writer, too. An id that cannot be acquired, for whatever reason, is left to the transaction
    timeout: no `KdslError` is raised.
    """
    for id_ in spec.ids:
        with suppress(KdslError):  # the brokers abort it after the transaction timeout
            settings = add_transaction_settings(cluster.producer(), id_, spec.timeout_ms)
            producer, _ = take_id(spec, cluster, settings)
            producer.close()
