"""The columns of rows: those of keys and values, of metadata, of row kinds, and of unavailable values."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pyarrow as pa
import pyarrow.compute as pc

from kdsl.declare.metadata import IN_VALUE, METADATA
from kdsl.formats import ROW_KINDS, Decoded
from kdsl.plan.model import MetadataColumn, ReadPlan
from kdsl.run.records.alignment import Alignment, take
from kdsl.run.records.metadata import BadMetadataError, build_metadata_column, convert_metadata, field_of
from kdsl.run.records.record_errors import DecodeError, RecordErrors
from kdsl.run.records.unavailable import list_names
from kdsl.types import model as t
from kdsl.types.arrays import Indices, Mask
from kdsl.types.arrow import arrow_type

_UPSERT, _DELETE = "+U", "-D"


class ColumnBuilder:
    """Builds the columns of the rows of a plan.

    Args:
        plan: What is read.
        zone: The time zone in which the record's timestamp is converted to a wall-clock time, a date or a string.
        errors: Creates the error for metadata that do not fit their columns.
        unavailable: The name of the column of unavailable values; None without it.
    """

    def __init__(self, plan: ReadPlan, zone: str, errors: RecordErrors, unavailable: str | None) -> None:
        self._plan, self._zone, self._errors, self._unavailable = plan, zone, errors, unavailable
        self._metadata = {m.column: m for m in plan.metadata}
        self._format_columns = format_columns(plan)

    def build(
        self,
        raw: pa.RecordBatch,
        key: Decoded | None,
        value: Decoded | None,
        aligned: Alignment,
        unavailable: Mapping[str, Mask],
    ) -> list[pa.Array]:
        """Build the columns of the rows in the order of the plan.

        A column that key and value have is that of the value, or that of the key in rows without a value. The column
        of unavailable values lists the names of ``unavailable``.
        """
        builders: dict[str, Callable[[], pa.Array]] = {}
        for part, decoded, rows in (
            (self._plan.key, key, aligned.keys),
            (self._plan.value, value, aligned.values),
        ):
            for i, column in enumerate(part.columns if part and decoded else ()):
                assert decoded is not None
                of_key = builders.get(column)
                builders[column] = lambda d=decoded, i=i, r=rows: take(d.rows.field(i), r)  # type: ignore[misc]
                if of_key is not None and (with_value := aligned.with_value) is not None:
                    of_value = builders[column]
                    builders[column] = lambda k=of_key, v=of_value: pc.if_else(with_value, v(), k())  # type: ignore[misc]
        for column, shown in self._metadata.items():
            if column in self._format_columns:
                assert value is not None
                builders[column] = lambda s=shown: take(self._format_metadata(raw, value, s), aligned.values)  # type: ignore[misc]
            else:
                builders[column] = lambda c=column: self._metadata_column(raw, c, aligned.messages)  # type: ignore[misc]
        if self._plan.changelog:
            builders[self._plan.columns.names[0]] = lambda: self._row_kinds(raw.num_rows, value, aligned)
        if self._unavailable is not None:
            builders[self._unavailable] = lambda: list_names(unavailable, _count_rows(raw, value, aligned))
        return [_check_type(builders[f.name](), f.type, self._plan.table, f.name) for f in self._plan.columns.fields]

    def _row_kinds(self, count: int, value: Decoded | None, aligned: Alignment) -> pa.Array:
        """Return the row kind of each row: of upserts ``-D`` for deletes and ``+U`` for all others.

        Otherwise it is the kind of the value row, ``+I`` if the format returns none.
        """
        if self._plan.upserts is None:
            assert value is not None
            return take(_row_kinds(value), aligned.values)
        if aligned.deletes is None:
            return pa.repeat(_UPSERT, count if aligned.messages is None else len(aligned.messages))
        return pc.if_else(pa.array(aligned.deletes), _DELETE, _UPSERT)

    def _metadata_column(self, raw: pa.RecordBatch, column: str, messages: Indices | None) -> pa.Array:
        """Build a column of Kafka's metadata for the rows, which come from ``messages`` (None: one row per record)."""
        shown = self._metadata[column]
        try:
            array = build_metadata_column(raw.column(field_of(shown.key)), shown, self._zone)
        except BadMetadataError as e:
            reason = f"column {column!r}: {e.marked_reason}"
            fix = f"declare it as {METADATA[shown.key].type.as_nullable().spelling}"
            raise self._errors.reject(raw, e.rows, reason, "record", column, fix) from None
        return take(array, messages)

    def _format_metadata(self, raw: pa.RecordBatch, value: Decoded, shown: MetadataColumn) -> pa.Array:
        """Build a column of the format's metadata, with one element for each value row."""
        assert self._plan.value is not None
        key = self._format_columns[shown.column]
        try:
            return convert_metadata(value.metadata[key], self._plan.value.format.metadata[key], shown.type, self._zone)
        except BadMetadataError as e:
            messages = e.rows if value.messages is None else [value.messages[row].as_py() for row in e.rows]
            reason = f"column {shown.column!r}: {e.marked_reason}"
            fix = f"declare it as {self._plan.value.format.metadata[key].as_nullable().spelling}"
            raise self._errors.reject(raw, messages, reason, "value", shown.column, fix) from None


def format_columns(plan: ReadPlan) -> dict[str, str]:
    """Return the columns of a plan with metadata of the value's format, and the names of these metadata."""
    return {m.column: m.key.removeprefix(IN_VALUE) for m in plan.metadata if m.key.startswith(IN_VALUE)}


def _row_kinds(value: Decoded) -> pa.Array:
    """Return the row kind of each value row as a string; ``+I`` for all if the format returns none."""
    if value.kinds is None:
        return pa.repeat(ROW_KINDS[0], len(value.rows))
    return pa.array(ROW_KINDS).take(value.kinds)


def _count_rows(raw: pa.RecordBatch, value: Decoded | None, aligned: Alignment) -> int:
    """Return the number of output rows."""
    if aligned.messages is not None:
        return len(aligned.messages)
    return raw.num_rows if value is None else len(value.rows)


def _check_type(array: pa.Array, kind: t.DataType, table: str, column: str) -> pa.Array:
    """Return an array unchanged after a check of its type."""
    wanted = arrow_type(kind)
    if array.type.equals(wanted):
        return array
    raise DecodeError(
        f"{table}: column {column!r} has the type {array.type} instead of {wanted}; this is a fault of the format: "
        "report it to its author"
    )
