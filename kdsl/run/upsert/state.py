"""What the states of upsert tables share, in Spark and without it.

Row kinds are added to changes, stored rows are converted to the present columns of a table, and values that neither a
message nor a stored row has are errors or NULL.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import attrs
import numpy as np
import pyarrow as pa

from kdsl.errors import KdslError, RecordError
from kdsl.formats import ROW_KIND, ROW_KINDS
from kdsl.plan.model import ReadPlan
from kdsl.run.records.drops import Reason
from kdsl.run.upsert.changes import UnavailableError
from kdsl.types.arrow import cast_array


@attrs.frozen
class UnavailableRule:
    """What happens to values that neither a message nor a previous row has.

    Attributes:
        allow_nulls: Whether they become NULL and are counted; otherwise they are an error.
        option: The option that makes them NULL, as users write it.
        report: Called with the table's name and the number of a task's values that became NULL, by
            `kdsl.run.records.drops.Reason`; None if the caller counts them.
    """

    allow_nulls: bool = False
    option: str = ""
    report: Callable[[str, Mapping[str, int]], None] | None = None


def unavailable_rule(
    plan: ReadPlan, report: Callable[[str, Mapping[str, int]], None] | None = None
) -> UnavailableRule | None:
    """Return what happens to values that messages do not contain; None if the plan's messages contain all values."""
    if plan.upserts is None or not plan.upserts.may_lack_values or plan.value is None:
        return None
    chosen = plan.value.format
    name, key = chosen.deciding_option("on_unavailable")
    option = f"{type(chosen).__name__}({name}='null') (in SQL and YAML '{key}' = 'null')"
    return UnavailableRule(chosen.on_unavailable == "null", option, report)


def count_as_dropped(nulls: int) -> dict[str, int]:
    """Return the number of unavailable values as a count of dropped values by reason; empty if there are none."""
    return {Reason.UNAVAILABLE: nulls} if nulls else {}


@contextmanager
def report_unavailable(table: str, rule: UnavailableRule | None) -> Iterator[UnavailableRule]:
    """Turn `UnavailableError` of the body into an error that names the record and the fix.

    The body gets the rule that applies.

    Args:
        table: The table's name.
        rule: What happens to unavailable values; None, if records are not change data, is a rule that allows none.
    """
    chosen = rule or UnavailableRule()
    try:
        yield chosen
    except UnavailableError as e:
        topic, partition, offset = e.record
        reason = (
            f"column {e.column!r} has no value: the change did not touch a large value (TOAST), the message contains a "
            "placeholder for it, and no row of the key was read before"
        )
        declare = "declare the column nullable and " if e.required else ""
        fix = (
            "read the topic from where its rows were inserted or from a snapshot of them, have the database send such "
            f"values (ALTER TABLE … REPLICA IDENTITY FULL), or {declare}write {chosen.option}, which makes the value "
            "NULL"
        )
        raise RecordError(
            "read", table, reason, topic=topic, partition=partition, offset=offset, more=e.more, fix=fix
        ) from None


_KIND_BYTES = np.array([kind.encode() for kind in ROW_KINDS])
"""The row kinds, two bytes each."""


def add_row_kinds(rows: pa.RecordBatch, kinds: np.ndarray[Any, Any]) -> pa.RecordBatch:
    """Add the column of the row kind, a string, as the first one.

    Args:
        rows: The rows.
        kinds: The kind of each row, as an index into `kdsl.formats.ROW_KINDS`.
    """
    offsets, data = np.arange(0, 2 * len(kinds) + 1, 2, dtype=np.int32), _KIND_BYTES[kinds]
    named = pa.Array.from_buffers(pa.string(), len(kinds), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    return pa.RecordBatch.from_arrays([named, *rows.columns], schema=add_row_kind_field(rows.schema))


def add_row_kind_field(rows: pa.Schema) -> pa.Schema:
    """Return the schema of changes: that of the rows with the row kind as the first column."""
    return rows.insert(0, pa.field(ROW_KIND, pa.string(), False))


def convert_stored_rows(rows: pa.RecordBatch, schema: pa.Schema, table: str) -> pa.RecordBatch:
    """Convert rows of a checkpoint to the present columns of the table.

    A new column is NULL, a removed one is dropped, and one whose type is wider now is cast; rows that already have the
    schema are returned themselves.
    """
    if rows.schema.equals(schema):
        return rows
    names = set(rows.schema.names)
    columns = [
        _cast(rows.column(f.name), f, table) if f.name in names else _nulls(rows.num_rows, f, table) for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, field: pa.Field, table: str) -> pa.Array:
    """Cast a stored column to the present type."""
    if not _wider(column.type, field.type):
        raise KdslError(
            f"{table}: the checkpoint stores the column {field.name!r} as {column.type}, but the table declares it as "
            f"{field.type}, which cannot represent every value; declare the former type, or start with a new checkpoint"
        )
    return (
        cast_array(column, field.type) if field.nullable or not column.null_count else _nulls(len(column), field, table)
    )


def _nulls(count: int, field: pa.Field, table: str) -> pa.Array:
    """Return a column of NULLs."""
    if not field.nullable:
        raise KdslError(
            f"{table}: the column {field.name!r} is declared NOT NULL, but rows in the checkpoint have no value there; "
            "declare it nullable, or start with a new checkpoint"
        )
    return pa.nulls(count, field.type)


def _wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether the type ``new`` can represent each value of ``old``.

    True for equal types; for two signed integers, floats, decimals, structs, lists or maps according to their sizes and
    elements; False for all other pairs.
    """
    if old.equals(new):
        return True
    for same in (pa.types.is_signed_integer, pa.types.is_floating):
        if same(old) and same(new):
            return bool(new.bit_width >= old.bit_width)
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    if pa.types.is_struct(old) and pa.types.is_struct(new):
        same_names = [f.name for f in old] == [f.name for f in new]
        return same_names and all(_wider_member(f, g) for f, g in zip(old, new, strict=True))
    if pa.types.is_list(old) and pa.types.is_list(new):
        return _wider_member(old.value_field, new.value_field)
    if pa.types.is_map(old) and pa.types.is_map(new):
        return _wider(old.key_type, new.key_type) and _wider_member(old.item_field, new.item_field)
    return False


def _wider_member(old: pa.Field, new: pa.Field) -> bool:
    """Return whether another field can represent each value of a field, also NULL."""
    return _wider(old.type, new.type) and (new.nullable or not old.nullable)


@lru_cache(maxsize=16)
def read_schema(schema: bytes) -> pa.Schema:
    """Read a schema from Arrow's IPC format."""
    return pa.ipc.read_schema(pa.py_buffer(schema))
