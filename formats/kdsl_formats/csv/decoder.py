"""CSV messages to rows: what is plain all at once, what is not by the reference decoder, merged in their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.formats import BadRecord, Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_field
from kdsl_formats._columns.arrays import Mask, Positions
from kdsl_formats._text.numbers import BLANKS
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
        reader = ColumnReader(dialect, ignore_parse_errors=ignore_parse_errors)
        self._readers = [reader.reader(f.type) for f in row.fields]
        self._splitter = Splitter(dialect, len(row.fields))

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read an array of messages; see `kdsl.formats.Decoder`."""
        cells = self._splitter.split(messages)
        columns, sure = self._columns(cells)
        index = cells.index
        if not sure.all():
            index, keep = index[sure], pa.array(np.flatnonzero(sure))
            columns = [column.take(keep) for column in columns]
        if len(index) == len(messages):
            return Decoded(pa.StructArray.from_arrays(columns, fields=self.fields))
        rest = np.asarray(messages.is_valid())
        rest[index] = False
        odd = np.flatnonzero(rest)
        values, owners, bad = self._by_reference(messages, odd)
        if len(owners):
            place = np.argsort(np.concatenate((index, owners)), kind="stable")
            index = np.concatenate((index, owners))[place]
            order = pa.array(place)
            columns = [
                pa.concat_arrays([column, pa.array(made, field.type)]).take(order)
                for column, made, field in zip(columns, values, self.fields, strict=True)
            ]
        rows = pa.StructArray.from_arrays(columns, fields=self.fields)
        return Decoded(rows, None if len(index) == len(messages) else pa.array(index), bad)

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

    def _by_reference(
        self, messages: pa.BinaryArray, odd: Positions
    ) -> tuple[list[list[Any]], Positions, tuple[BadRecord, ...]]:
        """The values of the messages of which there is doubt, column by column, their messages, and what is bad."""
        rows, owners, bad = [], [], []
        for i, message in zip(odd.tolist(), messages.take(pa.array(odd)).to_pylist(), strict=True):
            try:
                values = self.reference.values(message)
            except ValueError as e:
                bad.append(BadRecord(i, str(e)))
                continue
            if values is not None:
                rows.append(values)
                owners.append(i)
        columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in self.fields]
        return columns, np.array(owners, dtype=np.int64), tuple(bad)
