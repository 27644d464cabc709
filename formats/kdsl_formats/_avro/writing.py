"""Rows to Avro bodies, by whole columns where that is possible."""

from __future__ import annotations

import pyarrow as pa

from kdsl.formats import BadRecord, Encoded
from kdsl.types import model as t
from kdsl_formats._avro.column_writer import Doubt, bodies, body_column
from kdsl_formats._avro.model import Json, schema_type
from kdsl_formats._avro.reference_reader import BodyError
from kdsl_formats._avro.reference_writer import ReferenceWriter, numbers
from kdsl_formats._avro.target import target_of

FEW = 16  # rows, below which writing them one by one is quicker


class AvroWriter:
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
        self.reference = ReferenceWriter(target)
        self._column = body_column(target)

    def write(self, rows: pa.StructArray) -> Encoded:
        """Write rows of the row type's Arrow type; a null row is an error where the schema has no null."""
        if len(rows) >= self.few:
            try:
                return Encoded(bodies(self._column, rows))
            except Doubt:
                pass
        made: list[bytes | None] = []
        bad: list[BadRecord] = []
        for i, value in enumerate(numbers(rows)):
            try:
                made.append(self.reference.body(value))
            except BodyError as e:
                made.append(None)
                bad.append(BadRecord(i, str(e)))
        return Encoded(pa.array(made, pa.binary()), tuple(bad))
