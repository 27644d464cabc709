"""The Protobuf decoder: plain messages by whole columns, the others by the reference decoder."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kdsl.formats import BadRecord, Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type, retyped
from kdsl_formats._columns.arrays import Mask
from kdsl_formats.protobuf.columns import RowReader
from kdsl_formats.protobuf.layout import Layout
from kdsl_formats.protobuf.reference_decoder import BadMessageError, ReadingRules, ReferenceDecoder
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
            return self._merged(messages, None, held, held.copy())
        source, start, end = Source.of(messages)
        if messages.null_count:
            end = np.where(held, end, start)
        columns, doubts = self.reader.read(source, start, end)
        if not doubts.any() and not messages.null_count:
            return Decoded(_typed(columns, self.type, len(messages)))
        return self._merged(messages, columns, held, doubts & held)

    def _merged(self, messages: pa.BinaryArray, columns: list[pa.Array] | None, held: Mask, doubts: Mask) -> Decoded:
        """The rows read by columns, and those of messages in doubt, in the order of the messages."""
        kept = held.copy()
        rows: list[dict[str, Any]] = []
        where: list[int] = []
        bad = [BadRecord(i, NO_MESSAGE) for i in np.flatnonzero(~held).tolist()] if self._rules.null_fails else []
        doubted = np.flatnonzero(doubts)
        for i, message in zip(doubted.tolist(), messages.take(pa.array(doubted)).to_pylist(), strict=True):
            try:
                rows.append(self.reference.row(message))
                where.append(i)
            except BadMessageError as e:
                bad.append(BadRecord(i, str(e)))
                kept[i] = False
        read = pa.array(rows, self.type)
        if columns is not None:
            index = np.arange(len(messages))
            index[where] = len(messages) + np.arange(len(where))
            whole = _typed(columns, self.type, len(messages))
            read = pa.concat_arrays([whole, read]) if where else whole
            if where or not kept.all():
                read = read.take(pa.array(index[kept]))
        told = () if self._rules.ignore_parse_errors else tuple(sorted(bad, key=lambda b: b.index))
        return Decoded(read, None if kept.all() else pa.array(np.flatnonzero(kept)), told)


def _typed(columns: list[pa.Array], kind: pa.StructType, count: int) -> pa.StructArray:
    """Columns as a struct of exactly a type: some of its parts say NOT NULL."""
    made = [retyped(c, f.type) for c, f in zip(columns, kind, strict=True)]
    return pa.Array.from_buffers(kind, count, [None], children=made)
