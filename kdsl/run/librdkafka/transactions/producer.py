"""A producer with transactions: adds to `kdsl.run.librdkafka.producer.Producer` the calls that begin and end them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping

from confluent_kafka import KafkaError

from kdsl.retry import Deadline, retry
from kdsl.run.librdkafka.producer import Producer, ProducerError

FENCED = frozenset(
    (
        KafkaError._FENCED,  # noqa: SLF001
        KafkaError.INVALID_PRODUCER_EPOCH,
        KafkaError.PRODUCER_FENCED,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
    )
)
"""The errors of a producer whose transactional id was taken by another one, or whose transaction the broker ended."""

_ATTEMPT, _BRIEF = 10.0, 0.1
_PURGED = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT)  # noqa: SLF001


class TransactionError(ProducerError):
    """A step of a transaction failed.

    Attributes:
        code: The error code of `confluent_kafka.KafkaError`.
        retriable: Whether the same step may be tried again.
        abortable: Whether the transaction must be aborted; the producer is usable afterwards.
    """

    def __init__(self, message: str, code: int, *, retriable: bool = False, abortable: bool = False) -> None:
        super().__init__(message, code)
        self.retriable, self.abortable = retriable, abortable


class TransactionalProducer(Producer):
    """A producer of one transactional id. It must not be shared between threads.

    Args:
        settings: librdkafka's settings, with ``transactional.id``; they are not stored.
        reports_offsets: As for `Producer`.
    """

    def __init__(self, settings: Mapping[str, str], *, reports_offsets: bool = False) -> None:
        super().__init__(settings, reports_offsets=reports_offsets)
        self.id = settings["transactional.id"]

    def init(self, seconds: float) -> None:
        """Acquire the transactional id: fence its previous producer, and abort or finish that one's transaction."""
        self._call_until_done("be acquired", seconds, lambda ms: self._lib.rd_kafka_init_transactions(self._handle, ms))

    def begin(self) -> None:
        """Begin a transaction."""
        self._raise_on_error("begin", self._lib.rd_kafka_begin_transaction(self._handle))

    def send_token(self, group: str, topic: str, offset: int, text: str, seconds: float) -> None:
        """Commit an offset of partition 0 of a topic, with a string as its metadata, within the transaction.

        Args:
            group: The consumer group of the offset; it has no members.
            topic: A topic that exists.
            offset: The offset.
            text: The metadata.
            seconds: The maximum time in seconds.
        """
        lib, data = self._lib, ctypes.create_string_buffer(text.encode())
        offsets = lib.rd_kafka_topic_partition_list_new(1)
        metadata = lib.rd_kafka_consumer_group_metadata_new(group.encode())
        partition = lib.rd_kafka_topic_partition_list_add(offsets, topic.encode(), 0).contents
        partition.offset, partition.metadata, partition.metadata_size = offset, ctypes.addressof(data), len(data) - 1
        try:
            self._call_until_done(
                "store its token",
                seconds,
                lambda ms: lib.rd_kafka_send_offsets_to_transaction(self._handle, offsets, metadata, ms),
            )
        finally:
            partition.metadata, partition.metadata_size = None, 0  # Python owns it; the list must not free it
            lib.rd_kafka_topic_partition_list_destroy(offsets)
            lib.rd_kafka_consumer_group_metadata_destroy(metadata)

    def commit(self, seconds: float) -> None:
        """Commit the transaction, within some seconds. The producer must have been flushed."""
        self._call_until_done(
            "be committed", seconds, lambda ms: self._lib.rd_kafka_commit_transaction(self._handle, ms)
        )

    def abort(self, seconds: float) -> None:
        """Abort the transaction, within some seconds."""
        # Discarded records are reported as failed, and these events must be handled before the call can succeed.
        self._call_until_done(
            "be aborted", seconds, lambda ms: self._lib.rd_kafka_abort_transaction(self._handle, ms), _BRIEF
        )

    def purge_error(self) -> ProducerError | None:
        """Return the producer's fatal error, or why its failed transaction discarded records; None without either."""
        text = ctypes.create_string_buffer(512)
        code = self._lib.rd_kafka_fatal_error(self._handle, text, len(text))
        if code:
            return ProducerError(text.value.decode(errors="replace"), code)
        if self.failure is not None and self.failure.code in _PURGED:
            return ProducerError(self.last_error or self.failure.reason, self.failure.code, self.failure.topic)
        return None

    def _call_until_done(
        self, step: str, seconds: float, call: Callable[[int], int | None], attempt: float = _ATTEMPT
    ) -> None:
        """Call a function of librdkafka until it succeeds, fails for good, or the time is over.

        Queued events are handled meanwhile.

        Args:
            step: What the transaction cannot do if it fails, for the message.
            seconds: For how many seconds.
            call: Calls the function with a timeout in milliseconds; returns librdkafka's error, or None.
            attempt: The longest timeout of a single call, in seconds.
        """

        def call_once(timeout: float) -> TransactionError | None:
            try:
                self._raise_on_error(step, call(max(1, int(min(timeout, attempt) * 1000))))
            except TransactionError as e:
                return e
            return None

        error = retry(
            call_once,
            lambda error: error is None or not error.retriable,
            Deadline(seconds),
            pause=0.05,
            wait=lambda pause: self.poll(int(pause * 1000)),
        )
        if error is not None:
            raise error

    def _raise_on_error(self, step: str, error: int | None) -> None:
        """Raise librdkafka's error of a step of a transaction as a Python one, and free it; do nothing without one."""
        if not error:
            return
        lib = self._lib
        code, text = lib.rd_kafka_error_code(error), lib.rd_kafka_error_string(error).decode(errors="replace")
        retriable, abortable = lib.rd_kafka_error_is_retriable(error), lib.rd_kafka_error_txn_requires_abort(error)
        lib.rd_kafka_error_destroy(error)
        last_error = f" (last error: {self.last_error})" if self.last_error and retriable else ""
        raise TransactionError(
            f"the transaction {self.id!r} cannot {step}: {text}{last_error}",
            code,
            retriable=bool(retriable),
            abortable=bool(abortable),
        )
