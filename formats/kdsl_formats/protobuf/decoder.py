"""The Protobuf decoder: plain messages as whole columns, the others with the reference decoder."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from kdsl.formats import BadRecord, Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, cast_array
from kdsl_formats._columns.arrays import Mask
from kdsl_formats._columns.fallback import FallbackRows, merge_rows
from kdsl_formats.protobuf.columns import RowReader
from kdsl_formats.protobuf.layout import Layout
from kdsl_formats.protobuf.reference_decoder import ReadingRules, ReferenceDecoder
from kdsl_formats.protobuf.walk import MIN_BATCH
from kdsl_formats.protobuf.wire import MessageBuffer

NO_MESSAGE = "it is null, which is not a Protobuf message"


class ProtobufDecoder:
    """Decodes messages to rows of one type.

    Args:
        layout: The message and the row type.
        row: The row type.
        rules: The options of the format.
        min_batch: Fewer messages are read one by one, which is faster.
    """

    def __init__(self, layout: Layout, row: t.Row, rules: ReadingRules, *, min_batch: int = MIN_BATCH) -> None:
        self.type = arrow_type(row)
        self.min_batch = min_batch
        self.reference = ReferenceDecoder(layout, rules)
        self.reader = RowReader(layout, defaults=rules.read_default_values, min_batch=min_batch)
        self._rules = rules

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode an array of messages; an empty one is a message in which no field is set.

        Null messages are bad if the rules say so, otherwise they have no row. If errors are ignored, nothing is bad.
        """
        present_messages = (
            np.ones(len(messages), dtype=bool) if not messages.null_count else np.asarray(messages.is_valid())
        )
        if len(messages) < self.min_batch:
            decoded = self._read_one_by_one(messages, present_messages).to_decoded(self.type, len(messages))
        else:
            buffer, start, end = MessageBuffer.of(messages)
            columns, fallback = self.reader.read(
                buffer, start, np.where(present_messages, end, start) if messages.null_count else end
            )
            rows = _to_struct(columns, self.type, len(messages))
            if not fallback.any() and not messages.null_count:
                return Decoded(rows)
            good = np.flatnonzero(present_messages & ~fallback)
            decoded = merge_rows(
                rows, good, good, self._read_one_by_one(messages, present_messages & fallback), len(messages)
            )
        if self._rules.ignore_parse_errors:
            return attrs.evolve(decoded, bad=())
        if not self._rules.null_fails or present_messages.all():
            return decoded
        bad = [*decoded.bad, *(BadRecord(i, NO_MESSAGE) for i in np.flatnonzero(~present_messages).tolist())]
        return attrs.evolve(decoded, bad=tuple(sorted(bad, key=lambda b: b.index)))

    def _read_one_by_one(self, messages: pa.BinaryArray, which: Mask) -> FallbackRows:
        """Read some messages with the reference decoder; unreadable ones are bad."""
        return FallbackRows.read(messages, np.flatnonzero(which), lambda message: [self.reference.read_row(message)])


def _to_struct(columns: list[pa.Array], kind: pa.StructType, count: int) -> pa.StructArray:
    """Columns as a struct of an exact type, whose parts can be NOT NULL."""
    typed = [cast_array(c, f.type) for c, f in zip(columns, kind, strict=True)]
    return pa.Array.from_buffers(kind, count, [None], children=typed)
