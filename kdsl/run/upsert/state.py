"""The state of an upsert table in Spark: the last row of each key, with the rows of a bucket in one value.

A state call of Spark's Python API costs almost a millisecond, whatever its size, so state is stored by bucket and not
by key. The value is a stream in Arrow's IPC format, which contains its schema: stored rows are converted to the present
columns of the table if that is unambiguous (`convert_stored_rows`), and are an error otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import attrs
import numpy as np
import pyarrow as pa
from pyspark.sql import types as s

from kdsl.errors import KdslError, RecordError
from kdsl.formats import ROW_KIND, ROW_KINDS
from kdsl.plan.model import ReadPlan
from kdsl.run.records.drops import Reason
from kdsl.run.upsert.changes import UnavailableError, compute_changes
from kdsl.run.upsert.chunks import SETTINGS, Chunk, read_chunks
from kdsl.run.upsert.stored_settings import StateSettings, describe_key
from kdsl.spark_internals.sources import StatefulProcessor, StatefulProcessorHandle
from kdsl.types.arrow import cast_array

STATE = s.StructType([s.StructField("rows", s.BinaryType())])
OPERATOR_MARK = "kdsl.upserts"
"""Marks a column of the result in its metadata, so that kdsl recognizes its operator in a Spark plan."""
CHANGED_BUCKETS = s.StructType(
    [
        s.StructField("bucket", s.IntegerType(), False, {OPERATOR_MARK: True}),
        s.StructField("keys", s.LongType(), False),
        s.StructField("bytes", s.LongType(), False),
        s.StructField("nulls", s.LongType(), False),
        s.StructField("rows", s.BinaryType(), False),
    ]
)
"""The columns of the operator's result: a bucket, the number of keys and bytes of its state, the number of values that
became NULL because they are unavailable, and a batch of its changes. Each bucket has at least one row."""


@attrs.frozen
class UnavailableRule:
    """What happens to values that neither a message nor a previous row has.

    Attributes:
        allow_nulls: Whether they become NULL and are counted; otherwise they are an error.
        option: The option that makes them NULL, as users write it.
        report: Called with the table's name and the number of a task's values that became NULL, by
            `kdsl.run.records.drops.Reason`; None if the result contains it (`CHANGED_BUCKETS`).
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


class UpsertProcessor(StatefulProcessor):
    """Computes the changes of chunks, bucket by bucket.

    Args:
        table: The table's name, for error messages.
        schema: The schema of the rows, in Arrow's IPC format.
        keys: The key columns.
        buckets: The number of buckets.
        unavailable: What happens to values that messages of change data do not contain; None if records are not change
            data.
        net: Whether a batch has at most one change of each key.
    """

    def __init__(
        self,
        table: str,
        schema: bytes,
        keys: Sequence[str],
        buckets: int,
        unavailable: UnavailableRule | None = None,
        *,
        net: bool = False,
    ) -> None:
        self._table, self._schema, self._keys, self._buckets = table, schema, tuple(keys), buckets
        self._unavailable, self._net = unavailable, net

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._state = handle.getValueState("rows", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """Apply the chunks of a bucket to its stored rows, store the result, and yield the changes (`CHANGED_BUCKETS`).

        Values that became NULL are counted in the result, or reported as the rule says. The bucket `SETTINGS` has no
        rows: its call checks the key and the number of buckets, or stores them, and yields nothing. Rows that were
        stored with other columns are converted.
        """
        import pandas as pd  # type: ignore[import-untyped]

        del timerValues
        schema = read_schema(self._schema)
        if key[0] == SETTINGS:
            self._check_settings(schema)
            return
        columns = [a.name for a in attrs.fields(Chunk)]
        chunks = [Chunk(*row) for frame in rows for row in zip(*(frame[name] for name in columns), strict=True)]
        upserts = read_chunks(chunks, schema, events=self._unavailable is not None)
        if upserts is None:
            return
        with report_unavailable(self._table, self._unavailable) as rule:
            stored = self._load_rows(schema)
            changes = compute_changes(stored, upserts, self._keys, allow_nulls=rule.allow_nulls, net=self._net)
        if rule.report is not None:
            rule.report(self._table, count_as_dropped(changes.nulls))
        state = changes.state
        written = _write_rows(state) if state.num_rows else b""
        if written:
            self._state.update((written,))
        else:
            self._state.clear()
        for changed, kinds in changes.batches():
            yield pd.DataFrame(
                {
                    "bucket": [key[0]],
                    "keys": [state.num_rows],
                    "bytes": [len(written)],
                    "nulls": [changes.nulls],
                    "rows": [add_row_kinds(changed, kinds).serialize().to_pybytes()],
                }
            )

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _load_rows(self, schema: pa.Schema) -> pa.RecordBatch | None:
        """Return the stored rows of the bucket with the present columns; None if there are none."""
        stored = self._load()
        return None if stored is None else convert_stored_rows(_read_rows(stored), schema, self._table)

    def _load(self) -> bytes | None:
        """Return the value of the bucket in the state; None if there is none."""
        stored = self._state.get()  # None if there is no value, so exists() is not needed
        return None if stored is None else stored[0]

    def _check_settings(self, schema: pa.Schema) -> None:
        """Check that the state was stored by the same key and in the same buckets, where its rows are searched.

        The key and the number of buckets are stored if the state has none.
        """
        settings = StateSettings(self._buckets, describe_key(schema, self._keys))
        stored = self._load()
        if stored is None:
            self._state.update((settings.to_bytes(),))
            return
        before = StateSettings.from_bytes(stored)
        problems, fixes = [], []
        if before.buckets != settings.buckets:
            problems.append(f"has {before.buckets} buckets of keys, but the table declares {settings.buckets}")
            fixes.append(f"changelog_buckets={before.buckets}")
        if before.key != settings.key:
            problems.append(f"stores rows by the key ({before.key}), but the table declares ({settings.key})")
            fixes.append(f"the key ({before.key})")
        if problems:
            raise KdslError(
                f"{self._table}: the checkpoint {', and '.join(problems)}; declare {' and '.join(fixes)}, or start "
                "with a new checkpoint"
            )


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


def _write_rows(rows: pa.RecordBatch) -> bytes:
    """Write rows as an Arrow stream that is compressed by LZ4."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as out:
        out.write_batch(rows)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _read_rows(rows: bytes) -> pa.RecordBatch:
    """Read the rows from what `_write_rows` returned."""
    with pa.ipc.open_stream(pa.py_buffer(rows)) as stream:
        return stream.read_next_batch()


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
