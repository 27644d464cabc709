"""Rows to Avro bodies, by whole columns where that is possible."""

from __future__ import annotations

import pyarrow as pa

from kdsl.formats import Encoded
from kdsl.types import model as t
from kdsl_formats._avro.model import Json


class AvroWriter:
    """Writes rows as bodies of one schema.

    Args:
        schema: The schema; a record, or a union of null and a record.
        row: The type of the rows; its columns are the record's fields, by name.
        exact_units: Whether a timestamp is written in the unit that its logical type says; otherwise in milliseconds,
            whatever the schema says, as in the reference.

    Raises:
        AvroTypeError: The schema cannot hold the row's types.
    """

    def __init__(self, schema: Json, row: t.Row, *, exact_units: bool = True) -> None:
        raise NotImplementedError

    def write(self, rows: pa.StructArray) -> Encoded:
        """Write rows of the row type's Arrow type; a null row is an error where the schema has no null."""
        raise NotImplementedError
