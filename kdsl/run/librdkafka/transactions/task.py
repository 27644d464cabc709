"""The transaction of one task of an exactly-once write, which commits the task's rows and its token together.

Kafka lets only one producer at a time have a transactional id: a new producer fences the previous one and aborts its
open transaction. The token that is read after the id was acquired therefore says reliably what has been written.
"""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import TypeVar

import attrs
import numpy as np
import pyarrow as pa
from confluent_kafka import KafkaError

from kdsl.cluster import Cluster
from kdsl.errors import ExactlyOnceError, KdslError, RecordError, pluralize
from kdsl.run.librdkafka.client_pool import ClientPool
from kdsl.run.librdkafka.producer import ProducerError
from kdsl.run.librdkafka.transactions.completeness import check_complete
from kdsl.run.librdkafka.transactions.errors import exactly_once_error, unknown_outcome_error
from kdsl.run.librdkafka.transactions.producer import FENCED, TransactionalProducer, TransactionError
from kdsl.run.librdkafka.transactions.spec import TransactionSpec, add_transaction_settings
from kdsl.run.librdkafka.transactions.token import Token, missing_token_error, next_step
from kdsl.run.librdkafka.transactions.token_store import TokenAdmin

POOL_SIZE = 8
_ABORT_SECONDS = 5.0
_log = logging.getLogger(__name__)
R = TypeVar("R")
Send = Callable[[TransactionalProducer, Iterable[pa.RecordBatch]], R]


@attrs.frozen
class OwnedProducer:
    """A producer that has acquired a transactional id, and the id's last token.

    Attributes:
        producer: The producer.
        token: The last token that it has read or committed.
    """

    producer: TransactionalProducer
    token: Token

    def close(self) -> None:
        """Close the producer."""
        self.producer.close()


_pool = ClientPool(POOL_SIZE, OwnedProducer.close)


def write_transactionally(
    spec: TransactionSpec,
    cluster: Cluster,
    settings: Mapping[str, str],
    index: int,
    batch: int,
    batches: Iterable[pa.RecordBatch],
    send: Send[R],
) -> R | None:
    """Write a task's rows in a transaction, unless they have been written, which is logged.

    If the specification names a log, the record that the write is done is in the same transaction.

    A task without rows does not begin a transaction: the task has no rows either when the batch is written again.

    If a commit is not answered and the token cannot be read afterwards, the error says that the rows may be visible;
    the next attempt finds out from the token. After any other error nothing of the transaction is visible.

    A new producer fences any other of its transactional id. It stays in a pool for the next batch; after an error it is
    closed.

    Args:
        spec: Who writes what.
        cluster: Where it is written.
        settings: The producer's settings with resolved secrets.
        index: The index of the task, which chooses the transactional id.
        batch: The id of the batch.
        batches: The rows; without an error they are consumed to their end, also if they have been written.
        send: Sends rows with a producer and flushes it.

    Returns:
        The result of ``send``; None if there was nothing to write or it had been written.
    """
    if index >= spec.writers:
        raise ExactlyOnceError(
            f"{spec.writer}: task {index} has no transactional id, because the query began with "
            f"{pluralize(spec.writers, 'writer')}, and the batch has more tasks; nothing of this task is written: "
            "start the query again, which plans its writers anew, "
            'or write exactly_once="staged"'
        )
    # Wait for the first rows before the transaction begins: a slow source must not block the topic's readers.
    rows = check_complete(iter(batches))
    first = next((some for some in rows if some.num_rows), None)
    if first is None:
        return None
    settings = add_transaction_settings(settings, spec.id_of(index), spec.timeout_ms)
    owned = _begin_transaction(spec, cluster, settings, batch)
    if owned is None:
        for _ in rows:  # Spark fails a task that does not consume its rows
            pass
        _log.info("%s: batch %s has already been written by %s", spec.writer, batch, spec.id_of(index))
        return None
    try:
        if spec.log:  # first, so that a missing permission is found before rows are sent
            send_done_record(owned.producer, spec)
        result = send(owned.producer, itertools.chain([first], rows))
        reusable = _commit(spec, cluster, settings, owned)
    except BaseException as e:
        reason = (
            e if isinstance(e, ProducerError) else owned.producer.purge_error() if isinstance(e, RecordError) else None
        )
        abort_and_close(owned.producer)
        if reason is not None:
            raise exactly_once_error(spec, owned.producer.id, batch, reason) from e
        raise
    if reusable is not None:
        _pool.put(_pool_key(settings), reusable)
    return result


def _begin_transaction(
    spec: TransactionSpec, cluster: Cluster, settings: Mapping[str, str], batch: int
) -> OwnedProducer | None:
    """Begin a transaction with the token in it and return its producer; None if the batch has been written.

    The producer is a pooled one that wrote the previous batch, or a new one, which fences any other of the id. If the
    batch has been written, the new producer is put into the pool. A producer that fails is closed.
    """
    owned = _take_pooled(settings, spec, batch)
    while True:
        fresh = owned is None
        if owned is None:
            _refuse_late_task(spec, cluster, settings["transactional.id"], batch)
            owned = take_seeded_id(spec, cluster, settings)
            try:
                step = next_step(owned.producer.id, owned.token, spec.writer, batch, spec.run)
            except BaseException:
                owned.producer.close()
                raise
            if step == "skip":
                _pool.put(_pool_key(settings), owned)
                return None
        producer, last = owned.producer, owned.token
        token = spec.token(batch, last.number + 1)
        try:
            # The token comes first: a fenced producer fails here, before it consumes rows.
            producer.begin()
            producer.send_token(producer.id, spec.topic, token.number, token.text(), spec.step_timeout)
        except ProducerError as e:
            abort_and_close(producer)
            if fresh:  # a pooled producer may have been fenced by a refresh of its token, or be unusable otherwise
                raise exactly_once_error(spec, producer.id, batch, e) from e
            owned = None
        else:
            return OwnedProducer(producer, token)


def check_no_later_run(spec: TransactionSpec, cluster: Cluster) -> None:
    """Check that no later run has acquired the transactional ids of a write, without acquiring one.

    Only the token of the first id is read; without it there is nothing to check.
    """
    _refuse_late_task(spec, cluster, spec.id_of(0), spec.batch or 0)


def send_done_record(producer: TransactionalProducer, spec: TransactionSpec) -> None:
    """Send the record that marks the write as done, within its transaction, and wait for its acknowledgement."""
    key, value = spec.done_record()
    code = producer.look_up(spec.log, spec.step_timeout)
    if code:
        raise ProducerError(f"the topic {spec.log!r} cannot be written: {KafkaError(code).str()}", code, spec.log)
    columns = {"key": pa.array([key], pa.binary()), "value": pa.array([value], pa.binary())}
    producer.send(spec.log, pa.RecordBatch.from_pydict(columns), np.zeros(1, dtype=np.int64))
    producer.flush()
    if producer.failure is not None:
        reason = producer.failure.reason
        raise ProducerError(f"the topic {spec.log!r} cannot be written: {reason}", producer.failure.code, spec.log)


def _refuse_late_task(spec: TransactionSpec, cluster: Cluster, id_: str, batch: int) -> None:
    """Check that a task is not one of an earlier run, before it acquires its id and fences a writer of the present run.

    Without a token there is nothing to check.
    """
    admin = token_admin_of(cluster, spec.writer.table)
    token = admin.token(id_, stable=False)  # does not wait for a transaction that a writer has left open
    if token is not None and token.run != spec.run:  # unless the token of this run is being committed
        next_step(id_, admin.token(id_), spec.writer, batch, spec.run)


def take_seeded_id(spec: TransactionSpec, cluster: Cluster, settings: Mapping[str, str]) -> OwnedProducer:
    """Acquire a transactional id that must have a token, with a new producer (`take_id`); an error closes it."""
    producer, token = take_id(spec, cluster, settings)
    if token is None:
        producer.close()
        raise missing_token_error(producer.id, spec.writer)
    return OwnedProducer(producer, token)


def take_id(
    spec: TransactionSpec, cluster: Cluster, settings: Mapping[str, str]
) -> tuple[TransactionalProducer, Token | None]:
    """Acquire a transactional id: fence its previous producer and abort that one's open transaction.

    Returns:
        A new producer, which is closed after an error, and the id's last token; None if it has none.
    """
    producer = TransactionalProducer(settings)
    try:
        # With a connection, librdkafka looks for the coordinator at once; without one, every half second.
        producer.look_up(spec.topic, spec.step_timeout, creating=False)
        producer.init(spec.step_timeout)
        return producer, token_admin_of(cluster, spec.writer.table).token(producer.id)
    except ProducerError as e:
        producer.abandon()
        raise exactly_once_error(spec, producer.id, None, e) from e
    except BaseException:
        producer.abandon()
        raise


def _commit(
    spec: TransactionSpec, cluster: Cluster, settings: Mapping[str, str], owned: OwnedProducer
) -> OwnedProducer | None:
    """Commit the transaction; if the commit is not answered, find out by the id's token whether it succeeded.

    The result may be reused: a new producer if the commit was not answered, None if another one has taken the id.
    """
    try:
        owned.producer.commit(spec.step_timeout)
    except TransactionError as e:
        if e.abortable or not (e.retriable or e.code in FENCED):
            raise
        abort_and_close(owned.producer)
        try:
            if e.code in FENCED:  # the producer that has the id now must not be fenced
                successor, token = None, token_admin_of(cluster, spec.writer.table).token(owned.producer.id)
            else:
                successor = take_seeded_id(spec, cluster, settings)
                token = successor.token
        except KdslError as unread:
            # The advice of an id that cannot be acquired does not apply: it says that nothing is visible.
            reason = unread.__cause__ if isinstance(unread.__cause__, ProducerError) else unread
            raise unknown_outcome_error(spec, owned.token.batch, e, reason) from unread
        if (
            token is not None
            and token.writer.is_same(spec.writer)
            and _run_and_batch(token) == _run_and_batch(owned.token)
        ):
            return successor
        if successor is not None:
            successor.producer.close()
        raise
    return owned


def _run_and_batch(token: Token) -> tuple[str, int]:
    """Return the run and the batch of a token, by which a commit is recognized."""
    return token.run, token.batch


@lru_cache(maxsize=4)
def _open_admin(pid: int, cluster: Cluster, table: str) -> TokenAdmin:
    """Create a client for tokens, which connects in the background; cached for each process, cluster and table."""
    del pid  # a client does not survive a fork
    return TokenAdmin(cluster, table)


def token_admin_of(cluster: Cluster, table: str) -> TokenAdmin:
    """Return the admin client of a cluster and table, which this process reuses."""
    return _open_admin(os.getpid(), cluster, table)


def abort_and_close(producer: TransactionalProducer) -> None:
    """Try for a short time to abort the open transaction, ignoring errors, and close the producer."""
    with suppress(Exception):  # otherwise the next producer of the id aborts it
        producer.abort(_ABORT_SECONDS)
    producer.abandon()


def _take_pooled(settings: Mapping[str, str], spec: TransactionSpec, batch: int) -> OwnedProducer | None:
    """Take a pooled producer that wrote the previous batch in the same run, and reset it; None if there is none.

    Any other one of the id is closed, because it may have been fenced since; so is one that cannot be reset, or whose
    client has reported an error. A request of it that got no answer and was sent again may still be on its way, and
    brokers would take it for one of the next transaction: librdkafka does not raise the epoch of a producer with each
    transaction (the second part of KIP-890). A new producer has another epoch.
    """
    owned = _pool.take(_pool_key(settings))
    if owned is None:
        return None
    if owned.token.writer.is_same(spec.writer) and _run_and_batch(owned.token) == (spec.run, batch - 1):
        with suppress(ProducerError):  # if it has failed for good, a new producer of the id gets the error
            owned.producer.poll()
            if not owned.producer.last_error:
                owned.producer.reset()
                return owned
    owned.close()
    return None


def _pool_key(settings: Mapping[str, str]) -> tuple[str, frozenset[tuple[str, str]]]:
    """Return the key by which producers are reused: the transactional id, and all settings except ``client.id``.

    The id is in the settings (`add_transaction_settings`).
    """
    distinct = frozenset(item for item in settings.items() if item[0] != "client.id")
    return settings["transactional.id"], distinct
