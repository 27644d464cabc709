"""Counts integers that a DOUBLE column does not hold exactly, because inferred columns also had fractions."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Decoded, Decoder, LocatedMessages, LocatingDecoder
from kdsl.types import model as t
from kdsl_formats._columns.arrays import Indices

_EXACT = 2.0**53  # doubles hold every integer up to here
_INTEGER = "^-?[0-9]+$"


class LossCountingDecoder:
    """Decodes messages, and counts the integers that lose digits.

    Args:
        inner: Reads messages.
        row: The type of the rows.
        make: Makes a decoder of the same messages for another row type, which reads numbers into STRING columns as they
            are spelled.
    """

    def __init__(self, inner: Decoder, row: t.Row, make: Callable[[t.Row], Decoder]) -> None:
        self._inner, self._make = inner, make
        self._columns = [(i, f.name) for i, f in enumerate(row.fields) if isinstance(f.type, t.Double)]
        self._spellings: dict[str, Decoder] = {}

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode messages with the inner decoder, and count the integers that lost digits."""
        return self._add_lossy(messages, self._inner.decode(messages))

    def decode_located(self, messages: pa.BinaryArray, located: LocatedMessages, places: Indices) -> Decoded:
        """Decode messages as `decode` does; see `LocatingDecoder`."""
        if not isinstance(self._inner, LocatingDecoder):
            return self.decode(messages)
        return self._add_lossy(messages, self._inner.decode_located(messages, located, places))

    def _add_lossy(self, messages: pa.BinaryArray, decoded: Decoded) -> Decoded:
        """Add for each DOUBLE column how many integers lost digits.

        A column without such integers is left out of `Decoded.lossy`. The decoders that read columns again to count are
        kept for the next batch.
        """
        lossy: dict[str, int] = {}
        for i, name in self._columns:
            large = np.flatnonzero(
                np.asarray(pc.fill_null(pc.greater_equal(pc.abs(decoded.rows.field(i)), _EXACT), False))
            )
            if large.size and (count := self._count(messages.take(pa.array(_messages_of(decoded, large))), name)):
                lossy[name] = count
        return attrs.evolve(decoded, lossy=lossy) if lossy else decoded

    def _count(self, messages: pa.BinaryArray, name: str) -> int:
        """Read a column of some messages again as strings, and count the integers that a double does not hold.

        All rows of the messages count. The decoder of the column is kept for the next call.
        """
        if name not in self._spellings:
            self._spellings[name] = self._make(t.Row((t.Field(name, t.STRING),)))
        texts = self._spellings[name].decode(messages).rows.field(0)
        integers = texts.filter(pc.fill_null(pc.match_substring_regex(texts, _INTEGER), False))
        return sum(int(text) != float(text) for text in integers.to_pylist())


def _messages_of(decoded: Decoded, rows: Indices) -> Indices:
    """The indices of the messages that some rows belong to, ascending and each once."""
    owners = rows if decoded.messages is None else np.asarray(decoded.messages)[rows]
    return np.unique(owners).astype(np.int64)
