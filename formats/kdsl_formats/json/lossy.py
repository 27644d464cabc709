"""Counts integers that a DOUBLE column does not hold exactly, because inferred columns also had fractions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Decoded, Decoder
from kdsl.types import model as t
from kdsl_formats._columns.arrays import Indices
from kdsl_formats.json.document import Integer
from kdsl_formats.json.reference_observer import Shown

_EXACT = 2.0**53  # doubles hold every integer up to here


class LossCountingDecoder:
    """Decodes messages, and counts the integers that lose digits.

    Args:
        inner: Reads messages.
        row: The type of the rows.
        read: Reads the rows of one message, as a `ReferenceObserver` needs them.
    """

    def __init__(self, inner: Decoder, row: t.Row, read: Callable[[bytes], Shown | None]) -> None:
        self._inner, self._read = inner, read
        self._columns = [(i, f.name) for i, f in enumerate(row.fields) if isinstance(f.type, t.Double)]

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read an array of messages; see `kdsl.formats.Decoder`."""
        decoded = self._inner.decode(messages)
        lossy: Counter[str] = Counter()
        for i, name in self._columns:
            large = np.flatnonzero(
                np.asarray(pc.fill_null(pc.greater_equal(pc.abs(decoded.rows.field(i)), _EXACT), False))
            )
            if large.size:
                lossy[name] += self._count(messages, _messages_of(decoded, large), name)
        return attrs.evolve(decoded, lossy=dict(lossy)) if lossy.total() else decoded

    def _count(self, messages: pa.BinaryArray, indexes: Indices, name: str) -> int:
        """How many integers of a column in some messages lose digits."""
        count = 0
        for index in indexes.tolist():
            try:
                shown = self._read(messages[index].as_py())
            except ValueError:
                continue
            for row in () if shown is None else shown.rows:
                value = row.get(name)
                count += isinstance(value, Integer) and int(value) != float(value)
        return count


def _messages_of(decoded: Decoded, rows: Indices) -> Indices:
    """The messages of some rows, each once."""
    owners = rows if decoded.messages is None else np.asarray(decoded.messages)[rows]
    return np.unique(owners).astype(np.int64)
