"""Encodes rows as Avro bodies: whole columns where possible, the other rows one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from kdsl.formats import Encoded
from kdsl.types import model as t
from kdsl_formats._avro.column_encoders import TooLargeError, column_encoder, encode_bodies
from kdsl_formats._avro.model import Json, schema_type
from kdsl_formats._avro.output import FallbackMask
from kdsl_formats._avro.reference_encoder import ReferenceEncoder
from kdsl_formats._avro.write_steps import plan_write
from kdsl_formats._columns.fallback import write_fallback_rows

MIN_BATCH = 16  # rows: fewer are written faster one by one


class AvroEncoder:
    """Encodes rows as bodies of one schema.

    Args:
        schema: The schema; a record, or a union of null and a record.
        row: The type of the rows; its columns are the record's fields, by name.
        exact_units: Whether a time or timestamp is written in the unit of its logical type; otherwise always in
            milliseconds, as in Flink.
        min_batch: Fewer rows than this are written one by one.
    """

    def __init__(self, schema: Json, row: t.Row, *, exact_units: bool = True, min_batch: int = MIN_BATCH) -> None:
        """Plan how rows are written; `AvroTypeError` if the schema is invalid or cannot hold the row's types."""
        step = plan_write(schema_type(schema), row, exact_units=exact_units)
        self.min_batch = min_batch
        self.reference = ReferenceEncoder(step)
        self._column = column_encoder(step)

    def encode(self, rows: pa.StructArray, kinds: pa.Array | None = None) -> Encoded:
        """Encode rows, whatever their kinds; rows that the schema does not allow, such as null, become bad records.

        Errors of rows are not raised. If the bodies are too large for one array, all rows are written one by one.
        """
        fallback = np.full(len(rows), len(rows) < self.min_batch)
        messages = None
        if not fallback.all():
            try:
                messages = encode_bodies(self._column, rows, FallbackMask(fallback))
            except TooLargeError:
                fallback[:] = True
        return write_fallback_rows(rows, messages, fallback, self.reference.body)
