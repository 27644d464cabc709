"""Explains failed transactions: errors that name the transactional id, the query, the batch, and the fix."""

from __future__ import annotations

from confluent_kafka import KafkaError

from kdsl.errors import ExactlyOnceError, KdslError
from kdsl.run.librdkafka.producer import ProducerError
from kdsl.run.librdkafka.transactions.producer import FENCED
from kdsl.run.librdkafka.transactions.spec import TransactionSpec

_RIGHTS = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE and DESCRIBE on the transactional ids '{prefix}-*'",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "READ on the groups '{prefix}-*'",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "READ and WRITE on the topic {topic!r}",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IDEMPOTENT_WRITE on the cluster",
}


def exactly_once_error(spec: TransactionSpec, id_: str, batch: int | None, error: ProducerError) -> ExactlyOnceError:
    """Turn an error of a transaction into an error of the write.

    Args:
        spec: What is written.
        id_: The transactional id.
        batch: The batch; None if none has begun.
        error: The client's error.
    """
    when = "" if batch is None else f", batch {batch}"
    return ExactlyOnceError(f"{spec.writer}{when}: {error}; {_advice(spec, id_, error)}")


def unknown_outcome_error(
    spec: TransactionSpec, batch: int, commit: ProducerError, reason: KdslError
) -> ExactlyOnceError:
    """Create the error: a commit failed without an answer, and nothing shows whether it succeeded all the same.

    Args:
        spec: What is written.
        batch: The batch.
        commit: The error of the commit, which names the transactional id.
        reason: Why the token, which would show it, cannot be read.
    """
    if spec.writer.kind == "stream":
        repeated = "when the query is restarted, the token shows that, and only rows that are missing are written"
    elif spec.writer.sink:
        repeated = "repeat the write with the same write_id: it is skipped if they are"
    else:
        repeated = (
            "look for them with isolation.level=read_committed before the write is repeated, which would duplicate them"
        )
    return ExactlyOnceError(
        f"{spec.writer}, batch {batch}: {commit}; whether it was committed all the same is unknown: {reason}; its rows "
        f"may be visible; {repeated}"
    )


def _advice(spec: TransactionSpec, id_: str, error: ProducerError) -> str:
    """Return what a failed transaction means, and what to do."""
    again = "the batch is written again when the query is restarted"
    if spec.writer.kind == "batch":
        again = "the write can be repeated"
    if error.code in FENCED:
        return (
            f"another attempt of the same task, or another job with the prefix {spec.prefix!r}, has taken the "
            f"transactional id {id_!r}; or the transaction took longer than transaction.timeout.ms ({spec.timeout_ms} "
            f"ms), and the brokers ended it; nothing of it is visible, and {again}"
        )
    if error.code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return (
            f"transaction.timeout.ms is {spec.timeout_ms}, above the brokers' transaction.max.timeout.ms, which this "
            "user may not see; set a smaller one"
        )
    if error.code in _RIGHTS:
        rights = _RIGHTS[error.code].format(prefix=spec.prefix, topic=error.topic or spec.topic)
        return f"grant {rights} to this user"
    return (
        f"check that the brokers are up and accept transactions (transaction.state.log.replication.factor must not "
        f"exceed the number of brokers); nothing of the transaction {id_!r} is visible, and {again}"
    )
