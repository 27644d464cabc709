"""Avro bodies to rows: resolution from the writer's schema to the table's, by whole columns where that is possible."""

from __future__ import annotations

import pyarrow as pa

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl_formats._avro.model import Json


class AvroReader:
    """Reads bodies that one writer schema wrote.

    Args:
        writer_schema: The schema that the bodies were written with.
        row: The type of the rows.
        reader_schema: The schema of the table: what the writer's is resolved to. Its fields are the row's, by name.
        exact_units: Whether a timestamp or time is what the writer's logical type says it is; otherwise its number is
            milliseconds, whatever the schema says, as in the reference.

    A pair of schemas that cannot be resolved is no error here: each record that meets the mismatch is bad, as in Java.
    """

    def __init__(self, writer_schema: Json, row: t.Row, reader_schema: Json, *, exact_units: bool = True) -> None:
        raise NotImplementedError

    def read(self, payloads: pa.BinaryArray) -> Decoded:
        """Read bodies: nothing before or after them but what the reference ignores, too (bytes behind the body).

        A null body, and one that is the null of a union at the top, gives no row. `Decoded.messages` is None when each
        body gives a row.
        """
        raise NotImplementedError
