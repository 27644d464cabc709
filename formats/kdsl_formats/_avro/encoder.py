"""Rows to Avro bodies, by whole columns where that is possible; rows of which these are in doubt one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kdsl.formats import Encoded
from kdsl.types import model as t
from kdsl_formats._avro.column_writer import TooLargeError, bodies, body_column
from kdsl_formats._avro.model import Json, schema_type
from kdsl_formats._avro.reference_encoder import ReferenceEncoder
from kdsl_formats._avro.room import Doubts
from kdsl_formats._avro.target import target_of
from kdsl_formats._columns.doubts import mended

FEW = 16  # rows, below which writing them one by one is quicker


class AvroEncoder:
    """Writes rows as bodies of one schema.

    Args:
        schema: The schema; a record, or a union of null and a record.
        row: The type of the rows; its columns are the record's fields, by name.
        exact_units: Whether a time or timestamp is written in the unit that its logical type says; otherwise in
            milliseconds, whatever the schema says, as in the reference.
        few: Below how many rows they are written one by one.

    Raises:
        AvroTypeError: The schema is none, or cannot hold the row's types.
    """

    def __init__(self, schema: Json, row: t.Row, *, exact_units: bool = True, few: int = FEW) -> None:
        target = target_of(schema_type(schema), row, exact_units=exact_units)
        self.few = few
        self.reference = ReferenceEncoder(target)
        self._column = body_column(target)

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Write rows of the row type's Arrow type; a null row is an error where the schema has no null."""
        doubts = np.full(len(rows), len(rows) < self.few)
        made = None
        if not doubts.all():
            try:
                made = bodies(self._column, rows, Doubts(doubts))
            except TooLargeError:
                doubts[:] = True
        return mended(rows, made, doubts, self.reference.body)
