"""Records that were not written, why, and what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

import attrs
from confluent_kafka import KafkaError

from kdsl.run import ffi as n


@attrs.frozen
class Failure:
    """A record that was not written.

    Attributes:
        code: The error code of `confluent_kafka.KafkaError`.
        reason: The error message.
        topic: Its topic.
        partition: Its partition; None if none was chosen.
        row: Its index among the task's rows, from 0.
        size: The bytes of its key and value.
    """

    code: int
    reason: str
    topic: str
    partition: int | None
    row: int
    size: int


def explain_failure(failure: Failure, limits: Mapping[str, str], last_error: str = "") -> tuple[str, str]:
    """Return why a record was not written, and what to do about it, which is empty for other than the known reasons.

    Args:
        failure: The failure of the record.
        limits: The settings ``message.max.bytes`` and ``delivery.timeout.ms`` of librdkafka.
        last_error: librdkafka's last error about the brokers.
    """
    match failure.code:
        case KafkaError.MSG_SIZE_TOO_LARGE | KafkaError.RECORD_LIST_TOO_LARGE:
            limit = limits["message.max.bytes"]
            return (
                f"its key and value have {failure.size:,} bytes, too large for {_size_limit_of(failure.size, limit)}",
                f"raise 'max.request.size' ({limit}) of the producer and 'max.message.bytes' of the topic",
            )
        case n.QUEUE_FULL:
            return (
                f"its value is larger than the producer's queue; the record has {failure.size:,} bytes",
                "raise 'buffer.memory' of the producer",
            )
        case n.MESSAGE_TIMED_OUT:
            reason = f"; the last error was: {last_error}" if last_error else ""
            return (
                f"it was not acknowledged within 'delivery.timeout.ms' ({limits['delivery.timeout.ms']} ms){reason}",
                "check that the brokers are up and that the executors can reach their advertised addresses",
            )
        case KafkaError.UNKNOWN_TOPIC_OR_PART | n.UNKNOWN_TOPIC | n.UNKNOWN_PARTITION:
            return "the topic does not exist", "create it, or correct its name"
        case KafkaError.TOPIC_AUTHORIZATION_FAILED:
            return "the user may not write to the topic", "allow the operation Write on it (kafka-acls)"
        case KafkaError.CLUSTER_AUTHORIZATION_FAILED:
            return (
                "the user may not write idempotently, because the right to write to the topic is missing",
                "allow the operation Write on the topic (brokers older than 2.8 also ask for IdempotentWrite on the "
                "cluster), or set 'enable.idempotence' to false",
            )
        case KafkaError.NOT_ENOUGH_REPLICAS | KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            return failure.reason, "check that as many replicas are up as 'min.insync.replicas' of the topic requires"
        case KafkaError.INVALID_TIMESTAMP:
            return failure.reason, "write another timestamp, or NULL to use the time of sending"
        case KafkaError.INVALID_RECORD:
            return failure.reason, "a compacted topic accepts only records with keys; see also the broker's log"
        case _:
            return failure.reason, ""


def _size_limit_of(size: int, limit: str) -> str:
    """Describe who has refused a record of a size."""
    return f"the producer, which accepts {int(limit):,}" if limit and size > int(limit) else "the broker"
