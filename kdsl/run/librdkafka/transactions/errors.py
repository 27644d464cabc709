"""What goes wrong with transactions, in sentences that name the id, the query, the batch, and what to do."""

from __future__ import annotations

from confluent_kafka import KafkaError

from kdsl.run.librdkafka.producer import ProducerError
from kdsl.run.librdkafka.transactions.producer import FENCED
from kdsl.run.librdkafka.transactions.token import ExactlyOnceError
from kdsl.run.librdkafka.transactions.work import TransactionalWrite

_RIGHTS = {
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE and DESCRIBE on the transactional ids '{prefix}-*'",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "READ on the groups '{prefix}-*'",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "READ and WRITE on the topic {topic!r}",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "IDEMPOTENT_WRITE on the cluster",
}


def exactly_once_error(work: TransactionalWrite, id_: str, batch: int | None, error: ProducerError) -> ExactlyOnceError:
    """An error of a transaction as an error of the write.

    Args:
        work: What is written.
        id_: The transactional id.
        batch: The batch; None before any.
        error: What the client says.
    """
    when = "" if batch is None else f", batch {batch}"
    return ExactlyOnceError(f"{work.writer}{when}: {error}; {_advice(work, id_, error)}")


def _advice(work: TransactionalWrite, id_: str, error: ProducerError) -> str:
    if error.code in FENCED:
        return (
            f"another attempt of the same task, or another job with the prefix {work.prefix!r}, has taken the "
            f"transactional id {id_!r}; or the transaction took longer than transaction.timeout.ms ({work.timeout_ms} "
            "ms), and the brokers ended it; nothing of it is visible, and the batch is written again when the query "
            "goes on"
        )
    if error.code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return (
            f"transaction.timeout.ms is {work.timeout_ms}, above the brokers' transaction.max.timeout.ms, which this "
            "user may not see; give a smaller one"
        )
    if error.code in _RIGHTS:
        rights = _RIGHTS[error.code].format(prefix=work.prefix, topic=work.topic)
        return f"grant {rights} to this user"
    return (
        f"see that the brokers are up and take transactions (transaction.state.log.replication.factor is not above the "
        f"number of brokers); nothing of the transaction {id_!r} is visible, and the batch is written again when the "
        "query goes on"
    )
