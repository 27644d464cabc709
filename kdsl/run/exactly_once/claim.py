"""What the driver does with transactional ids before a query begins, while it stands idle, and when it has ended.

Before: each id is taken once, so that whatever an earlier run left open is aborted, and topics can be read up to their
ends again; the tokens are judged against Spark's log; and each id gets a token, so that one that is missing later was
lost. Tasks then take the ids for themselves.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, Problem, ResolveError
from kdsl.run.librdkafka.producer import ProducerError
from kdsl.run.librdkafka.transactions.errors import exactly_once_error
from kdsl.run.librdkafka.transactions.part import acquired, brokers_of, give_up
from kdsl.run.librdkafka.transactions.producer import TransactionalProducer
from kdsl.run.librdkafka.transactions.token import LogProgress, Token, check_owner, seeds
from kdsl.run.librdkafka.transactions.tokens import RETENTION, TIMEOUT, TokenBrokers
from kdsl.run.librdkafka.transactions.work import TransactionalWrite, transactional

WANTED_TIMEOUT_MS = 3_600_000
USUAL_MOST_MS = 900_000  # Kafka's default of transaction.max.timeout.ms
USUAL_RETENTION_MINUTES = 7 * 24 * 60
LEAST_MS = 1_000
"""librdkafka takes no shorter ``transaction.timeout.ms``."""

_AT_ONCE = 8


def limits(brokers: TokenBrokers, asked_ms: int | None, table: str) -> tuple[int, float]:
    """The transactions' timeout in milliseconds, and for how many seconds the brokers keep tokens.

    Args:
        brokers: The brokers.
        asked_ms: ``transaction.timeout.ms`` of the user; None is an hour, or the brokers' maximum where that is less.
        table: The table's name, for messages.

    Raises:
        ResolveError: The user asks for more than the brokers allow, or for less than the client does.
    """
    found = brokers.settings((TIMEOUT, RETENTION))
    kept = found.get(RETENTION, USUAL_RETENTION_MINUTES) * 60.0
    most = found.get(TIMEOUT)
    if asked_ms is None:
        return min(WANTED_TIMEOUT_MS, USUAL_MOST_MS if most is None else most), kept
    message = fix = ""
    if most is not None and asked_ms > most:
        message = f"'transaction.timeout.ms' is {asked_ms}, but the brokers allow {most} (transaction.max.timeout.ms)"
        fix = f"give at most {most}, remove it, or raise transaction.max.timeout.ms of the brokers"
    elif asked_ms < LEAST_MS:
        message = f"'transaction.timeout.ms' is {asked_ms}, but the client takes {LEAST_MS} at least"
        fix = "give more than a batch takes, or remove it"
    if message:
        raise ResolveError(f"{table} cannot be written", [Problem("transaction-timeout", message, fix)])
    return asked_ms, kept


def claim(
    work: TransactionalWrite,
    cluster: Cluster,
    progress: LogProgress,
    *,
    before: Iterable[str] = (),
    heirs: Mapping[str, str] | None = None,
    adopt: bool = False,
    strict: bool = True,
) -> dict[str, int]:
    """Take the ids of a write, judge their tokens, and give each the token that its tasks go on from.

    Args:
        work: The write.
        cluster: Where.
        progress: How far Spark's log is.
        before: The ids through which the query wrote before; under another prefix, perhaps, or more of them.
        heirs: For each of those the id that writes the same rows now.
        adopt: Whether tokens that are missing or of somebody else are passed over.
        strict: Whether each of the ids ``before`` must have a token.

    Returns:
        The batch up to which each id has written.

    Raises:
        ExactlyOnceError: The tokens forbid it, or an id cannot be taken.
    """
    brokers = brokers_of(cluster, work.writer.table)
    previous = list(before)
    further = [id_ for id_ in dict.fromkeys([*work.ids, *brokers.ids(work.prefix)]) if id_ not in previous]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        if not adopt:  # a live query of somebody else shall not be fenced only to be told that it is there
            for id_, token in zip(further, pool.map(partial(brokers.token, stable=False), further), strict=True):
                if token is not None:
                    check_owner(id_, token, work.writer)
        settings = cluster.producer()
        everything = [*previous, *further]
        made = [transactional(settings, id_, work.timeout_ms) for id_ in everything]
        futures = [pool.submit(acquired, work, cluster, one) for one in made]
        seats = {}
        failed: list[BaseException] = []
        for id_, future in zip(everything, futures, strict=True):
            try:
                seats[id_] = future.result()
            except Exception as e:  # noqa: BLE001
                failed.append(e)
        try:
            if failed:
                raise failed[0]
            tokens = {id_: token for id_, (_, token) in seats.items()}
            old = {id_: tokens[id_] for id_ in previous}
            inherits = {new: id_ for id_, new in (heirs or {}).items()}
            batches = seeds(
                work.writer,
                progress,
                old,
                {id_: inherits.get(id_, "" if heirs or previous else id_) for id_ in work.ids},
                {id_: tokens[id_] for id_ in further},
                plan=work.plan,
                adopt=adopt,
                strict=strict,
            )
            last = max((token.number for token in tokens.values() if token is not None), default=0)
            list(pool.map(lambda id_: _seed(work, seats[id_][0], batches[id_], last + 1), work.ids))
        finally:
            pool.shutdown()  # nobody works with a producer that is closed
            for producer, _ in seats.values():
                producer.close()
    return batches


def _seed(work: TransactionalWrite, producer: TransactionalProducer, batch: int, number: int) -> None:
    token = Token(work.writer, batch, work.plan, int(time.time() * 1000), number)
    try:
        producer.begin()
        producer.mark(producer.id, work.topic, number, token.text(), work.patience)
        producer.commit(work.patience)
    except ProducerError as e:
        give_up(producer)
        raise exactly_once_error(work, producer.id, batch, e) from e


def refresh(work: TransactionalWrite, cluster: Cluster, older_than: float) -> int:
    """Commit tokens again that the brokers would forget some day; a writer that is at work hears of it before its rows.

    Args:
        work: The write.
        cluster: Where.
        older_than: Leave alone tokens that were committed within so many seconds.

    Returns:
        How many tokens were committed again.

    Raises:
        ExactlyOnceError: An id cannot be taken.
    """
    brokers = brokers_of(cluster, work.writer.table)
    now = time.time() * 1000
    count = 0
    for id_ in work.ids:
        token = brokers.token(id_)
        if token is None or not token.writer.same(work.writer) or now - token.time < older_than * 1000:
            continue
        producer, token = acquired(work, cluster, transactional(cluster.producer(), id_, work.timeout_ms))
        try:
            if token is not None and token.writer.same(work.writer):
                _seed(work, producer, token.batch, token.number + 1)
                count += 1
        finally:
            producer.close()
    return count


def abort_open(work: TransactionalWrite, cluster: Cluster) -> None:
    """Take each id once more, so that nothing that was left open holds up the topic's readers."""
    settings = cluster.producer()
    for id_ in work.ids:
        with suppress(KdslError):  # the brokers abort it after the transaction's timeout
            producer, _ = acquired(work, cluster, transactional(settings, id_, work.timeout_ms))
            producer.close()
