"""What a read rejects, and where rejected records go: the interface between decoding and dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import attrs
import pyarrow as pa

from kdsl.shown_values import hide_values, reveal_values

Stage = Literal["KEY_CONVERTER", "VALUE_CONVERTER", "HEADER_CONVERTER", "TRANSFORMATION"]
"""Where in its work a reader failed, in the words of Kafka Connect (``org.apache.kafka.connect.runtime.errors.Stage``).

``TRANSFORMATION`` is a rule of a row.
"""
RejectedSide = Literal["key", "value", "record"]
"""The part of a record that is at fault; ``record`` is its metadata."""

_SIDES: dict[RejectedSide, Stage] = {
    "key": "KEY_CONVERTER",
    "value": "VALUE_CONVERTER",
    "record": "HEADER_CONVERTER",
}


@attrs.frozen
class Rejection:
    """Why a record is rejected.

    Attributes:
        index: The index of the record in the record batch that it came with.
        marked_reason: Why, in a sentence without the record's topic, partition and offset, in which values of the
            record are marked (`kdsl.shown_values`). The argument is named ``reason``.
        side: The part of the record that is at fault.
        column: The column; None if the whole message is at fault.
        error: The name of the exception that the record would have raised.
        stage: Where the reader failed; by default that of the side.
    """

    index: int
    marked_reason: str = attrs.field(alias="reason")
    side: RejectedSide = "value"
    column: str | None = None
    error: str = "kdsl.errors.RecordError"
    stage: Stage = attrs.field(default=attrs.Factory(lambda self: _SIDES[self.side], takes_self=True))

    @property
    def reason(self) -> str:
        """Why, with values of the record, for whoever reads the table."""
        return reveal_values(self.marked_reason)

    @property
    def reason_without_values(self) -> str:
        """Why, without values of the record, for dead letters."""
        return hide_values(self.marked_reason)


def name_key(side: str, reason: str) -> str:
    """Say before a reason that the key is at fault, if it is, for messages that do not show the side."""
    return f"the key cannot be read: {reason}" if side == "key" else reason


class DeadLetterOutput(Protocol):
    """Takes the records that a task rejects. `kdsl.run.records.decode.RecordDecoder` calls it."""

    def __call__(self, records: pa.RecordBatch, rejections: Sequence[Rejection]) -> None:
        """Take rejected records; they are left out of the read after this call.

        Args:
            records: A raw record batch (`kdsl.run.records.metadata.RAW`) with the fields that the decoder got, at least
                topic, partition and offset. It contains other records, too.
            rejections: One for each rejected record, in ascending order of their indices.
        """
        ...
