"""Decodes Avro bodies: resolves the writer's schema to the table's, and reads whole columns where possible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from kdsl.formats import Decoded
from kdsl.types import model as t
from kdsl.types.arrow import arrow_type
from kdsl_formats._avro.columns import column_of
from kdsl_formats._avro.cursor import Bodies, Cursor
from kdsl_formats._avro.model import Json, schema_type
from kdsl_formats._avro.reference_decoder import BodyError, ReferenceDecoder
from kdsl_formats._avro.resolution import resolve
from kdsl_formats._columns.arrays import Indices, content, find_bounds
from kdsl_formats._columns.fallback import FallbackRows, merge_rows
from kdsl_formats._text.looks import JSON_INSTEAD, looks_like_json

MIN_BATCH = 32  # bodies: fewer are read faster one by one


class AvroDecoder:
    """Decodes bodies that were written with one schema.

    Args:
        writer_schema: The schema that the bodies were written with.
        row: The type of the rows.
        reader_schema: The schema of the table, which the writer's schema is resolved to. It has a field with the name
            of each column.
        exact_units: Whether the writer's logical type defines the unit of a timestamp or time and the scale of a
            decimal; otherwise a time is in milliseconds and a decimal has the table's scale, as in Flink.
        min_batch: Fewer bodies than this are read one by one.
        records: The records that are read, if the writer's schema has several (`resolve`); bodies of the others produce
            no row. Empty for all.

    If two schemas cannot be resolved, each record that meets the mismatch is bad, as in Java; that alone raises no
    error.
    """

    def __init__(
        self,
        writer_schema: Json,
        row: t.Row,
        reader_schema: Json,
        *,
        exact_units: bool = True,
        min_batch: int = MIN_BATCH,
        records: Sequence[str] = (),
    ) -> None:
        """Resolve the schemas; `AvroTypeError` if one is invalid, or the table's does not fit the row."""
        writer, reader = schema_type(writer_schema), schema_type(reader_schema)
        step = resolve(writer, reader, row, exact_units=exact_units, records=records)
        self.type = arrow_type(row)
        self.min_batch = min_batch
        self.reference = ReferenceDecoder(step)
        self._column = column_of(step, row)

    def decode(self, messages: pa.BinaryArray) -> Decoded:
        """Decode bodies; bytes after a body are ignored, as in Flink, and unreadable bodies become bad records.

        A null body, and one that is the null of a union at the top, produces no row. `Decoded.messages` is None if each
        body produced a row. Infinite values that became NULL are counted (`Decoded.infinite`).
        """
        present_messages = (
            np.flatnonzero(np.asarray(messages.is_valid())) if messages.null_count else np.arange(len(messages))
        )
        if len(present_messages) < self.min_batch or self._column.unsupported:
            decoded = self._read_one_by_one(messages, present_messages).to_decoded(self.type, len(messages))
            return attrs.evolve(decoded, infinite=self.reference.infinite.take())
        start, end = find_bounds(messages)
        bodies = Bodies.of(content(messages), end[present_messages])
        cursor = Cursor(bodies, start[present_messages].astype(np.int64))
        with np.errstate(over="ignore"):
            self._column.start(len(present_messages), None)
            self._column.scan(cursor, None)
            bodies.fallback[cursor.at > bodies.end] = True
            rows = self._column.build(cursor)
        present = self._column.valid
        good = ~bodies.fallback if present is None else ~bodies.fallback & present
        infinite = int(bodies.infinite[good].sum())
        if good.all():
            whole = len(present_messages) == len(messages)
            return Decoded(rows, None if whole else pa.array(present_messages), infinite=infinite)
        indexes = np.flatnonzero(good)
        fallback_rows = self._read_one_by_one(messages, present_messages[bodies.fallback])
        decoded = merge_rows(rows, indexes, present_messages[indexes], fallback_rows, len(messages))
        return attrs.evolve(decoded, infinite=infinite + self.reference.infinite.take())

    def _read_one_by_one(self, messages: pa.BinaryArray, which: Indices) -> FallbackRows:
        """Read some bodies with the reference decoder; the null of a union has no row, unreadable bodies are bad.

        Infinite values that became NULL are counted in `reference.infinite`.
        """

        def rows_of(body: bytes) -> list[Any]:
            try:
                value = self.reference.value(body)
            except BodyError as e:
                if looks_like_json(body):
                    raise BodyError(f"{e}{JSON_INSTEAD}") from None
                raise
            return [] if value is None else [value]

        return FallbackRows.read(messages, which, rows_of)
