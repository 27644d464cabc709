"""The Protobuf decoder: plain messages by whole columns, the others by the reference decoder."""

from __future__ import annotations

import attrs
import numpy as np
import pyarrow as pa

from kdsl.formats import BadRecord, Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, retyped
from kdsl_formats._columns.arrays import Mask
from kdsl_formats._columns.doubts import Odd, merged
from kdsl_formats.protobuf.columns import RowReader
from kdsl_formats.protobuf.layout import Layout
from kdsl_formats.protobuf.reference_decoder import ReadingRules, ReferenceDecoder
from kdsl_formats.protobuf.walk import FEW
from kdsl_formats.protobuf.wire import Source

NO_MESSAGE = "it is null, which is no message"


class ProtobufDecoder:
    """Reads messages into rows of one type.

    Args:
        layout: The message and the row type.
        row: The row type.
        rules: What the options of the format mean.
        few: How many messages are read one by one, because columns are not worth it.
    """

    def __init__(self, layout: Layout, row: t.Row, rules: ReadingRules, *, few: int = FEW) -> None:
        self.type = arrow_type(row)
        self.few = few
        self.reference = ReferenceDecoder(layout, rules)
        self.reader = RowReader(layout, defaults=rules.read_default_values, few=few)
        self._rules = rules

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read an array of messages; an empty one is a message in which nothing is set."""
        held = np.ones(len(messages), dtype=bool) if not messages.null_count else np.asarray(messages.is_valid())
        if len(messages) <= self.few:
            made = self._one_by_one(messages, held).decoded(self.type, len(messages))
        else:
            source, start, end = Source.of(messages)
            columns, doubts = self.reader.read(
                source, start, np.where(held, end, start) if messages.null_count else end
            )
            rows = _typed(columns, self.type, len(messages))
            if not doubts.any() and not messages.null_count:
                return Decoded(rows)
            kept = np.flatnonzero(held & ~doubts)
            made = merged(rows, kept, kept, self._one_by_one(messages, held & doubts), len(messages))
        if self._rules.ignore_parse_errors:
            return attrs.evolve(made, bad=())
        if not self._rules.null_fails or held.all():
            return made
        bad = [*made.bad, *(BadRecord(i, NO_MESSAGE) for i in np.flatnonzero(~held).tolist())]
        return attrs.evolve(made, bad=tuple(sorted(bad, key=lambda b: b.index)))

    def _one_by_one(self, messages: pa.BinaryArray, which: Mask) -> Odd:
        return Odd.read(messages, np.flatnonzero(which), lambda message: [self.reference.row(message)])


def _typed(columns: list[pa.Array], kind: pa.StructType, count: int) -> pa.StructArray:
    """Columns as a struct of exactly a type: some of its parts say NOT NULL."""
    made = [retyped(c, f.type) for c, f in zip(columns, kind, strict=True)]
    return pa.Array.from_buffers(kind, count, [None], children=made)
