"""Avro bodies to rows: resolution from the writer's schema to the table's, by whole columns where that is possible."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.columns import column_of
from kdsl_formats._avro.cursor import Bodies, Cursor
from kdsl_formats._avro.model import Json, schema_type
from kdsl_formats._avro.reference_decoder import ReferenceDecoder
from kdsl_formats._avro.resolution import resolve
from kdsl_formats._columns.arrays import Positions, bounds, content
from kdsl_formats._columns.doubts import Odd, merged

FEW = 32  # bodies, below which reading them one by one is quicker


class AvroDecoder:
    """Reads bodies that one writer schema wrote.

    Args:
        writer_schema: The schema that the bodies were written with.
        row: The type of the rows.
        reader_schema: The schema of the table: what the writer's is resolved to. It has a field for each column, by
            name.
        exact_units: Whether the number of a timestamp, time or decimal is what the writer's logical type says it is;
            otherwise a time counts milliseconds and a decimal has the table's scale, as in the reference.
        few: Below how many bodies they are read one by one.

    A pair of schemas that cannot be resolved is no error here: each record that meets the mismatch is bad, as in Java.

    Raises:
        AvroTypeError: A schema is none, or the table's has no field for a column, or one of another type.
    """

    def __init__(
        self,
        writer_schema: Json,
        row: t.Row,
        reader_schema: Json,
        *,
        exact_units: bool = True,
        few: int = FEW,
    ) -> None:
        step = resolve(schema_type(writer_schema), schema_type(reader_schema), row, exact_units=exact_units)
        self.type = arrow_type(row)
        self.few = few
        self.reference = ReferenceDecoder(step)
        self._column = column_of(step, row)

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Read bodies; bytes behind a body are ignored, as in the reference.

        A null body, and one that is the null of a union at the top, gives no row. `Decoded.messages` is None when each
        body gives a row.
        """
        held = np.flatnonzero(np.asarray(messages.is_valid())) if messages.null_count else np.arange(len(messages))
        if len(held) < self.few or self._column.hopeless:
            return self._one_by_one(messages, held).decoded(self.type, len(messages))
        start, end = bounds(messages)
        bodies = Bodies.of(content(messages), end[held])
        cursor = Cursor(bodies, start[held].astype(np.int64))
        with np.errstate(over="ignore"):
            self._column.start(len(held), None)
            self._column.scan(cursor, None)
            bodies.doubts[cursor.at > bodies.end] = True
            rows = self._column.build(cursor)
        present = self._column.valid
        good = ~bodies.doubts if present is None else ~bodies.doubts & present
        if good.all():
            whole = len(held) == len(messages)
            return Decoded(rows, None if whole else pa.array(held))
        places = np.flatnonzero(good)
        return merged(rows, places, held[places], self._one_by_one(messages, held[bodies.doubts]), len(messages))

    def _one_by_one(self, messages: pa.BinaryArray, which: Positions) -> Odd:
        def rows_of(body: bytes) -> list[Any]:
            value = self.reference.value(body)
            return [] if value is None else [value]

        return Odd.read(messages, which, rows_of)
