"""A producer with transactions: `kdsl.run.librdkafka.producer.Producer`, and the calls that begin and end them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from time import monotonic

from confluent_kafka import KafkaError

from kdsl.run.librdkafka.producer import Producer, ProducerError

FENCED = frozenset(
    (
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    )
)
"""What a producer hears after another one has taken its transactional id, or the broker its transaction."""

_ATTEMPT, _BRIEF = 10.0, 0.1
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001


class TransactionError(ProducerError):
    """A step of a transaction failed.

    Attributes:
        code: Why, as a number of `confluent_kafka.KafkaError`.
        retriable: The same step may be tried again.
        abortable: The transaction must be aborted; the producer can go on afterwards.
    """

    def __init__(self, message: str, code: int, *, retriable: bool = False, abortable: bool = False) -> None:
        super().__init__(message, code)
        self.retriable, self.abortable = retriable, abortable


class TransactionalProducer(Producer):
    """A producer of one transactional id. Not shared between threads.

    Args:
        settings: librdkafka's settings, ``transactional.id`` among them; not kept.

    Raises:
        ProducerError: librdkafka refuses the settings.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        super().__init__(settings)
        self.id = settings["transactional.id"]

    def init(self, seconds: float) -> None:
        """Take the id: whoever had it is fenced, its open transaction is aborted, one that was committed is finished.

        Raises:
            TransactionError: The coordinator does not give it within the time, or refuses.
        """
        self._patiently("be taken", seconds, lambda ms: self._lib.rd_kafka_init_transactions(self._handle, ms))

    def begin(self) -> None:
        """Begin a transaction.

        Raises:
            TransactionError: There is one already, or the producer is fenced.
        """
        self._check("begin", self._lib.rd_kafka_begin_transaction(self._handle))

    def mark(self, group: str, topic: str, offset: int, text: str, seconds: float) -> None:
        """Put an offset of partition 0 of a topic, with a text beside it, into the transaction.

        Args:
            group: The consumer group of the offset; it has no members.
            topic: A topic that exists.
            offset: The offset.
            text: What stands beside it.
            seconds: How long at most.

        Raises:
            TransactionError: The coordinator refuses, or does not answer within the time.
        """
        lib, data = self._lib, ctypes.create_string_buffer(text.encode())
        offsets = lib.rd_kafka_topic_partition_list_new(1)
        metadata = lib.rd_kafka_consumer_group_metadata_new(group.encode())
        place = lib.rd_kafka_topic_partition_list_add(offsets, topic.encode(), 0).contents
        place.offset, place.metadata, place.metadata_size = offset, ctypes.addressof(data), len(data) - 1
        try:
            self._patiently(
                "take its token",
                seconds,
                lambda ms: lib.rd_kafka_send_offsets_to_transaction(self._handle, offsets, metadata, ms),
            )
        finally:
            place.metadata, place.metadata_size = None, 0  # ours, not to be freed with the list
            lib.rd_kafka_topic_partition_list_destroy(offsets)
            lib.rd_kafka_consumer_group_metadata_destroy(metadata)

    def commit(self, seconds: float) -> None:
        """Commit the transaction. It must be flushed.

        Raises:
            TransactionError: It was not committed; or, where the error is ``retriable``, nobody knows.
        """
        self._patiently("be committed", seconds, lambda ms: self._lib.rd_kafka_commit_transaction(self._handle, ms))

    def abort(self, seconds: float) -> None:
        """Abort the transaction.

        Raises:
            TransactionError: It was not aborted within the time.
        """
        # What is thrown away is told as failed, and must be taken in before it can go on.
        self._patiently(
            "be aborted", seconds, lambda ms: self._lib.rd_kafka_abort_transaction(self._handle, ms), _BRIEF
        )

    def purged(self) -> ProducerError | None:
        """Why records were thrown away unsent: the transaction has failed as a whole; None where it has not."""
        text = ctypes.create_string_buffer(512)
        code = self._lib.rd_kafka_fatal_error(self._handle, text, len(text))
        if code:
            return ProducerError(text.value.decode(errors="replace"), code)
        if self.failure is not None and self.failure.code in _PURGED:
            return ProducerError(self.complaint or self.failure.reason, self.failure.code)
        return None

    def _patiently(
        self, step: str, seconds: float, call: Callable[[int], int | None], attempt: float = _ATTEMPT
    ) -> None:
        until = monotonic() + seconds
        while True:
            left = until - monotonic()
            try:
                self._check(step, call(max(1, int(min(left, attempt) * 1000))))
            except TransactionError as e:
                if not e.retriable or monotonic() >= until:
                    raise
                self.poll(50)
            else:
                return

    def _check(self, step: str, error: int | None) -> None:
        if not error:
            return
        lib = self._lib
        code, text = lib.rd_kafka_error_code(error), lib.rd_kafka_error_string(error).decode(errors="replace")
        retriable, abortable = lib.rd_kafka_error_is_retriable(error), lib.rd_kafka_error_txn_requires_abort(error)
        lib.rd_kafka_error_destroy(error)
        heard = f" (last heard: {self.complaint})" if self.complaint and retriable else ""
        raise TransactionError(
            f"the transaction {self.id!r} cannot {step}: {text}{heard}",
            code,
            retriable=bool(retriable),
            abortable=bool(abortable),
        )
