"""A task's part of an exactly-once write: its rows and its token in one transaction, or nothing.

Kafka lets one producer at a time have a transactional id; whoever takes it fences the one before and aborts what that
one had open. So the token that is read after an id is taken is the last word on what is written.
"""

from __future__ import annotations

import itertools
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TypeVar

import attrs
import pyarrow as pa

from kdsl.cluster import Cluster
from kdsl.errors import RecordError
from kdsl.run.librdkafka.kept import Kept
from kdsl.run.librdkafka.producer import ProducerError
from kdsl.run.librdkafka.transactions.arrival import all_of
from kdsl.run.librdkafka.transactions.errors import exactly_once_error
from kdsl.run.librdkafka.transactions.producer import FENCED, TransactionalProducer, TransactionError
from kdsl.run.librdkafka.transactions.token import ExactlyOnceError, Token, missing, next_step
from kdsl.run.librdkafka.transactions.tokens import TokenBrokers
from kdsl.run.librdkafka.transactions.work import TransactionalWrite, transactional

KEPT = 8
_ABORTING = 5.0
_log = logging.getLogger(__name__)
R = TypeVar("R")
Send = Callable[[TransactionalProducer, Iterable[pa.RecordBatch]], R]


@attrs.frozen
class OwnedProducer:
    """A producer that has a transactional id, and the id's last token.

    Attributes:
        producer: The producer.
        token: The token that it has read or committed last.
    """

    producer: TransactionalProducer
    token: Token

    def close(self) -> None:
        """End the producer."""
        self.producer.close()


_kept = Kept(KEPT, OwnedProducer.close)


def write_part(
    work: TransactionalWrite,
    cluster: Cluster,
    settings: Mapping[str, str],
    index: int,
    batch: int,
    batches: Iterable[pa.RecordBatch],
    send: Send[R],
) -> R | None:
    """Write a task's rows in a transaction, unless they are written already.

    A task without rows begins no transaction: the same batch has none for it when it is written again.

    Args:
        work: Who writes what.
        cluster: Where.
        settings: The producer's settings, secrets resolved.
        index: Which writer it is.
        batch: Which batch.
        batches: The rows; they are taken to their end in any case.
        send: Sends rows with a producer, and flushes.

    Returns:
        What ``send`` gives; None where there was nothing to write, or nothing any more.

    Raises:
        ExactlyOnceError: The token forbids to write, or the transaction failed; nothing of it is visible.
        RecordError: A row cannot be written; nothing of the transaction is visible.
    """
    if index >= work.writers:
        raise ExactlyOnceError(
            f"{work.writer}: task {index} has no transactional id, for the query began with {work.writers} writers"
        )
    # The first rows come before the transaction begins: what is slow upstream shall not hold up the topic's readers.
    rows = all_of(iter(batches))
    first = next((some for some in rows if some.num_rows), None)
    if first is None:
        return None
    settings = transactional(settings, work.id_of(index), work.timeout_ms)
    seat = _begun(work, cluster, settings, batch)
    if seat is None:
        for _ in rows:  # Spark does not like rows that nobody takes
            pass
        _log.info("%s: batch %s is written already by %s", work.writer, batch, work.id_of(index))
        return None
    try:
        result = send(seat.producer, itertools.chain([first], rows))
        kept = _committed(work, cluster, settings, seat)
    except BaseException as e:
        reason = e if isinstance(e, ProducerError) else seat.producer.purged() if isinstance(e, RecordError) else None
        give_up(seat.producer)
        if reason is not None:
            raise exactly_once_error(work, seat.producer.id, batch, reason) from e
        raise
    if kept is not None:
        _kept.keep(_key(settings), kept)
    return result


def _begun(work: TransactionalWrite, cluster: Cluster, settings: Mapping[str, str], batch: int) -> OwnedProducer | None:
    """A producer whose transaction has begun, with the token in it; None where the batch is written."""
    seat = _take(settings, work, batch)
    for fresh in (False, True) if seat else (True,):
        if fresh:
            seat = taken(work, cluster, settings)
            try:
                step = next_step(seat.producer.id, seat.token, work.writer, batch)
            except BaseException:
                seat.producer.close()
                raise
            if step == "skip":
                _kept.keep(_key(settings), seat)
                return None
        assert seat is not None
        producer, last = seat.producer, seat.token
        token = Token(work.writer, batch, work.plan, int(time.time() * 1000), last.number + 1)
        try:
            # The token comes first: a producer that is fenced hears of it before the rows are taken.
            producer.begin()
            producer.mark(producer.id, work.topic, token.number, token.text(), work.patience)
        except ProducerError as e:
            give_up(producer)
            if fresh or e.code not in FENCED:
                raise exactly_once_error(work, producer.id, batch, e) from e
        else:
            return OwnedProducer(producer, token)
    raise AssertionError  # the last producer is fresh


def taken(work: TransactionalWrite, cluster: Cluster, settings: Mapping[str, str]) -> OwnedProducer:
    """Take a transactional id that has a token.

    Raises:
        ExactlyOnceError: The id cannot be taken, or its token is gone.
    """
    producer, token = acquired(work, cluster, settings)
    if token is None:
        producer.close()
        raise missing(producer.id, work.writer)
    return OwnedProducer(producer, token)


def acquired(
    work: TransactionalWrite, cluster: Cluster, settings: Mapping[str, str]
) -> tuple[TransactionalProducer, Token | None]:
    """Take a transactional id: whoever had it is fenced, and what it had open is aborted.

    Returns:
        The producer, and the id's last token.

    Raises:
        ExactlyOnceError: The id cannot be taken.
    """
    producer = TransactionalProducer(settings)
    try:
        # librdkafka looks for the coordinator at once where it has a connection, and every half a second where not.
        producer.look_up(work.topic, work.patience, creating=False)
        producer.init(work.patience)
        return producer, brokers_of(cluster, work.writer.table).token(producer.id)
    except ProducerError as e:
        producer.abandon()
        raise exactly_once_error(work, producer.id, None, e) from e
    except BaseException:
        producer.abandon()
        raise


def _committed(
    work: TransactionalWrite, cluster: Cluster, settings: Mapping[str, str], seat: OwnedProducer
) -> OwnedProducer | None:
    """Commit; what became of a commit that nobody answered is told by the id's token.

    Returns:
        A producer that may be kept.

    Raises:
        ProducerError: The transaction is not committed.
    """
    try:
        seat.producer.commit(work.patience)
    except TransactionError as e:
        if e.abortable or not (e.retriable or e.code in FENCED):
            raise
        give_up(seat.producer)
        if e.code in FENCED:  # whoever has the id now shall keep it
            after, found = None, brokers_of(cluster, work.writer.table).token(seat.producer.id)
        else:
            after = taken(work, cluster, settings)
            found = after.token
        if found is not None and found.writer.same(work.writer) and found.batch == seat.token.batch:
            return after
        if after is not None:
            after.producer.close()
        raise
    return seat


@lru_cache(maxsize=4)
def _brokers(pid: int, cluster: Cluster, table: str) -> TokenBrokers:
    del pid  # a client does not outlive a fork
    return TokenBrokers(cluster, table)


def brokers_of(cluster: Cluster, table: str) -> TokenBrokers:
    """The brokers, through a client that this process keeps."""
    return _brokers(os.getpid(), cluster, table)


def give_up(producer: TransactionalProducer) -> None:
    """Abort what is open, as far as that can be done soon, and close."""
    with suppress(Exception):  # the next producer of the id aborts it
        producer.abort(_ABORTING)
    producer.abandon()


def _take(settings: Mapping[str, str], work: TransactionalWrite, batch: int) -> OwnedProducer | None:
    """A kept producer that has written the batch just before; any other may have been fenced since, and is closed."""
    seat = _kept.take(_key(settings))
    if seat is None:
        return None
    if seat.token.writer.same(work.writer) and seat.token.batch == batch - 1:
        with suppress(ProducerError):  # one that cannot go on; whoever takes the id anew is told why
            seat.producer.renew()
            return seat
    seat.close()
    return None


def take_kept() -> list[TransactionalProducer]:
    """All kept producers, which are kept no longer."""
    return [seat.producer for seat in _kept.take_all()]


def _key(settings: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    told_apart = frozenset(item for item in settings.items() if item[0] != "client.id")
    return settings["transactional.id"], told_apart
