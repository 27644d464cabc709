"""Decodes CSV: plain messages as whole columns, the others with the reference decoder, merged in order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_field
from kdsl.types.strings.numbers import BLANKS
from kdsl_formats._columns.arrays import Mask
from kdsl_formats._columns.fallback import FallbackRows, merge_rows
from kdsl_formats.csv.columns import ColumnReader
from kdsl_formats.csv.grammar import Dialect
from kdsl_formats.csv.reference_decoder import ReferenceDecoder
from kdsl_formats.csv.splitter import Cells, Splitter


class CsvDecoder:
    """Decodes arrays of CSV messages; equal to `ReferenceDecoder` for every message."""

    def __init__(self, row: t.Row, dialect: Dialect, *, ignore_parse_errors: bool) -> None:
        self.dialect = dialect
        self.reference = ReferenceDecoder(row, dialect, ignore_parse_errors=ignore_parse_errors)
        self.fields = [arrow_field(f.name, f.type) for f in row.fields]
        self._names = row.names
        reader = ColumnReader(dialect, ignore_parse_errors=ignore_parse_errors)
        self._readers = [reader.reader(f.type) for f in row.fields]
        self._splitter = Splitter(dialect, len(row.fields))

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode messages; null ones produce no row, and unreadable ones are bad records.

        If errors are ignored, a bad value is NULL instead, and a message that cannot be split is left out. The splitter
        stores the characters that it searches these messages for.
        """
        cells = self._splitter.split_messages(messages)
        columns, sure = self._read_columns(cells)
        if len(cells.index) == len(messages) and sure.all():
            return Decoded(pa.StructArray.from_arrays(columns, fields=self.fields))
        indexes = np.flatnonzero(sure)
        index = cells.index[indexes]
        rest = np.asarray(messages.is_valid())
        rest[index] = False
        fallback_rows = FallbackRows.read(messages, np.flatnonzero(rest), self._read_by_reference)
        return merge_rows(
            pa.StructArray.from_arrays(columns, fields=self.fields), indexes, index, fallback_rows, len(messages)
        )

    def _read_columns(self, cells: Cells) -> tuple[list[pa.Array], Mask]:
        """Read the columns of the plain messages; also returns a mask of the rows that do not need the fallback."""
        sure = np.ones(len(cells.index), dtype=bool)
        columns = []
        for i, read in enumerate(self._readers):
            strings = cells.strings(i)
            if self.dialect.trim:
                strings = pc.ascii_trim(strings, characters=BLANKS)
            column, fallback = read(strings)
            sure &= ~fallback
            columns.append(column)
        return columns, sure

    def _read_by_reference(self, message: bytes) -> list[dict[str, Any]]:
        """Read one message as a list of its row, which is empty if the message is unreadable and errors are ignored."""
        values = self.reference.values(message)
        return [] if values is None else [dict(zip(self._names, values, strict=True))]
