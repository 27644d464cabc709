"""Reads sample records with the table that was generated from them, and corrects the table where it cannot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import pyarrow as pa

from kdsl.cluster import Registry
from kdsl.declare.connector import KafkaOptions
from kdsl.declare.definition import ColumnDef, TableDef
from kdsl.errors import pluralize
from kdsl.plan.build import read_plan
from kdsl.resolve import resolve
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import RAW
from kdsl.run.records.rejections import Rejection
from kdsl.schemas.model import STARTUP, CodegenError, TableDraft, leave_out
from kdsl.types import model as t
from kdsl_formats.csv import Csv

Record = Mapping[str, Any]
"""The ``key`` and the ``value`` of a record as bytes, and its ``headers`` (each a ``key`` and a ``value``) or none."""


@attrs.frozen
class ReadBack:
    """The records of a sample as a table reads them.

    Attributes:
        rows: The rows.
        rejections: By the index of a record, why it could not be read.
    """

    rows: pa.RecordBatch
    rejections: Mapping[int, Rejection]


def read_records(
    table: TableDef, records: Sequence[Record], registry: Registry | None, columns: Sequence[str] | None = None
) -> ReadBack:
    """Read records with a table, without Kafka and Spark.

    Args:
        table: The table.
        records: The records.
        registry: The schema registry, for formats that need one.
        columns: The columns to read; None for all.
    """
    decoder = RecordDecoder(read_plan(resolve(table, "read"), columns), "UTC", registry)
    by_record: dict[int, Rejection] = {}

    def collect(records: pa.RecordBatch, rejections: Sequence[Rejection]) -> None:
        del records
        for one in rejections:
            by_record.setdefault(one.index, one)

    usual = {"topic": "sample", "partition": 0, "timestamp": 0, "timestamp_type": 0, "leader_epoch": 0}
    raw = [
        {
            **usual,
            "offset": i,
            "key": record["key"],
            "value": record["value"],
            "headers": record.get("headers") or (),
        }
        for i, record in enumerate(records)
    ]
    with decoder.rejecting(collect):
        rows = decoder.decode(pa.RecordBatch.from_pylist(raw, schema=pa.schema(list(RAW.items()))))
    return ReadBack(rows, by_record)


def correct_columns(
    draft: TableDraft, records: Sequence[Record], registry: Registry | None, looks: Mapping[str, t.DataType]
) -> tuple[TableDraft, pa.RecordBatch]:
    """Correct the columns of a draft until it reads the records that it was made from; also return their rows.

    A column that cannot be read is declared without NOT NULL, then as what its values look like, then as a STRING, and
    is left out if no type reads it. A record from which no column can be read is noted, and does not count.

    Args:
        draft: The draft.
        records: The records.
        registry: The schema registry, for formats that need one.
        looks: The types that values look like, by column.
    """
    table = _sample_table(draft.table)
    result = read_records(table, records, registry)
    if not result.rejections:
        return draft, result.rows
    rejected = {c.name: _read_column(table, c, records, registry) for c in table.columns}
    unreadable = set.intersection(*rejected.values())
    if len(rejected) == 1:  # a type that holds every value shows whether the values or the messages are at fault
        text = attrs.evolve(table.columns[0], type=t.STRING)
        unreadable &= _read_column(table, text, records, registry)
    if len(unreadable) == len(records):
        raise CodegenError(
            f"{draft.table.name}: none of the {pluralize(len(records), 'record')} can be read: "
            f"{_describe(result.rejections[min(unreadable)])}; choose another --format"
        )
    kinds: dict[str, t.DataType] = {}
    left_out: list[tuple[str, str]] = []
    notes: list[str] = []
    for column in table.columns:
        count = len(rejected[column.name] - unreadable)
        if not count:
            continue
        reason = f"{count} of {pluralize(len(records), 'record')} have values that {column.type} cannot hold"
        for kind in _list_candidates(column, looks.get(column.name)):
            if _read_column(table, attrs.evolve(column, type=kind), records, registry) <= unreadable:
                kinds[column.name] = kind
                notes.append(f"{column.name}: {reason}, so it is declared as {kind}")
                break
        else:
            left_out.append((column.name, reason))
    columns = (attrs.evolve(c, type=kinds.get(c.name, c.type)) for c in draft.table.columns)
    other = {c.name for c in table.columns if kinds.get(c.name, c.type).as_nullable() != c.type.as_nullable()}
    corrected = leave_out(
        TableDraft(
            attrs.evolve(draft.table, columns=tuple(columns)),
            {path: hint for path, hint in draft.hints.items() if path[0] not in other},
            (*draft.notes, *notes),
        ),
        left_out,
    )
    result = read_records(_sample_table(corrected.table), records, registry)
    if result.rejections:
        first = result.rejections[min(result.rejections)]
        note = f"{len(result.rejections)} of the {pluralize(len(records), 'record')} cannot be read: {_describe(first)}"
        corrected = attrs.evolve(corrected, notes=(*corrected.notes, note))
    return corrected, result.rows


def _describe(rejection: Rejection) -> str:
    """Return why a record could not be read, without its values, because notes are part of a source."""
    return rejection.reason_without_values.partition("; it has ")[0]


def _list_candidates(column: ColumnDef, looks: t.DataType | None) -> tuple[t.DataType, ...]:
    """List the types to try for a column that cannot be read, the closest ones first."""
    kinds = [column.type.as_nullable(), *([] if looks is None else [looks.as_nullable()]), t.STRING]
    return tuple(dict.fromkeys(kind for kind in kinds if kind != column.type))


def _sample_table(table: TableDef) -> TableDef:
    """Return a table with the columns of a draft that reads each record by itself, whatever its topic is called."""
    options = KafkaOptions(
        topic=("sample",),
        startup=STARTUP,
        key_prefix=table.options.key_prefix,
        value_prefix=table.options.value_prefix,
        value_fields=table.options.value_fields,
    )
    keys = table.primary_key if table.upserts is not None else ()
    columns = tuple(attrs.evolve(c, key=True) if c.name in keys else c for c in table.columns)
    return attrs.evolve(table, options=options, primary_key=(), columns=columns)


def _read_column(table: TableDef, column: ColumnDef, records: Sequence[Record], registry: Registry | None) -> set[int]:
    """Read one column of a table, with the type that it has here, and return the indices of the rejected records."""
    reads_all = isinstance(table.value_format, Csv)
    columns = (
        column if c.name == column.name else attrs.evolve(c, type=t.STRING) if reads_all else c for c in table.columns
    )
    changed = attrs.evolve(table, columns=tuple(columns))
    return set(read_records(changed, records, registry, [column.name]).rejections)
