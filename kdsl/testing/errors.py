"""What the local Kafka raises."""

from __future__ import annotations

from kdsl.errors import KdslError
from kdsl.java import JavaError as JavaError


class LocalKafkaError(KdslError):
    """A local Kafka cannot be set up, started or used; the message is one sentence that says what to do."""


class DownloadError(LocalKafkaError):
    """Kafka's jars cannot be fetched."""


class BrokerDiedError(LocalKafkaError):
    """A broker process ended without being stopped.

    Attributes:
        node_id: The broker's id, from 1.
        log_tail: The last lines that it wrote.
    """

    def __init__(self, message: str, *, node_id: int, log_tail: str) -> None:
        super().__init__(message, node_id, log_tail)
        self.message, self.node_id, self.log_tail = message, node_id, log_tail

    def __str__(self) -> str:
        return f"{self.message}\n{self.log_tail}" if self.log_tail else self.message

    def __reduce__(self) -> tuple[object, ...]:
        return (_broker_died, (self.message, self.node_id, self.log_tail))


def _broker_died(message: str, node_id: int, log_tail: str) -> BrokerDiedError:
    """Create the error from positional arguments, as ``pickle`` passes them."""
    return BrokerDiedError(message, node_id=node_id, log_tail=log_tail)


class LocalRegistryError(LocalKafkaError):
    """A local schema registry cannot be set up or started; the message is one sentence that says what to do."""


class SparkClusterError(KdslError):
    """A local Spark cluster cannot be started or used; the message is one sentence that says what to do."""
