"""CSV messages to rows: what is plain all at once, what is not by the reference decoder, merged in their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_field
from kdsl.types.texts.numbers import BLANKS
from kdsl_formats._columns.arrays import Mask
from kdsl_formats._columns.doubts import Odd, merged
from kdsl_formats.csv.columns import ColumnReader
from kdsl_formats.csv.grammar import Dialect
from kdsl_formats.csv.reference_decoder import ReferenceDecoder
from kdsl_formats.csv.splitter import Cells, Splitter


class CsvDecoder:
    """Reads arrays of CSV messages; equal in every message to `ReferenceDecoder`."""

    def __init__(self, row: t.Row, dialect: Dialect, *, ignore_parse_errors: bool) -> None:
        self.dialect = dialect
        self.reference = ReferenceDecoder(row, dialect, ignore_parse_errors=ignore_parse_errors)
        self.fields = [arrow_field(f.name, f.type) for f in row.fields]
        self._names = row.names
        reader = ColumnReader(dialect, ignore_parse_errors=ignore_parse_errors)
        self._readers = [reader.reader(f.type) for f in row.fields]
        self._splitter = Splitter(dialect, len(row.fields))

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read an array of messages; see `kdsl.formats.Decoder`."""
        cells = self._splitter.split(messages)
        columns, sure = self._columns(cells)
        if len(cells.index) == len(messages) and sure.all():
            return Decoded(pa.StructArray.from_arrays(columns, fields=self.fields))
        places = np.flatnonzero(sure)
        index = cells.index[places]
        rest = np.asarray(messages.is_valid())
        rest[index] = False
        odd = Odd.read(messages, np.flatnonzero(rest), self._by_reference)
        return merged(pa.StructArray.from_arrays(columns, fields=self.fields), places, index, odd, len(messages))

    def _columns(self, cells: Cells) -> tuple[list[pa.Array], Mask]:
        """The columns of the sure messages, and the rows without a doubtful value."""
        sure = np.ones(len(cells.index), dtype=bool)
        columns = []
        for i, read in enumerate(self._readers):
            texts = cells.texts(i)
            if self.dialect.trim:
                texts = pc.ascii_trim(texts, characters=BLANKS)
            column, doubts = read(texts)
            sure &= ~doubts
            columns.append(column)
        return columns, sure

    def _by_reference(self, message: bytes) -> list[dict[str, Any]]:
        values = self.reference.values(message)
        return [] if values is None else [dict(zip(self._names, values, strict=True))]
