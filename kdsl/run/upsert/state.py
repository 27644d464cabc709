"""The state of an upsert table in Spark: the last row of each key, a bucket's rows as one value.

A state call of Spark's Python API costs the better part of a millisecond, whatever it moves, so that state is kept by
bucket and not by key. The value is a stream of Arrow's IPC format, which says its own schema: rows of before are
brought into the form that the table has now where that takes no guess (`fitted`), and are an error else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import attrs
import numpy as np
import orjson
import pyarrow as pa
from pyspark.sql import types as s
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from kdsl.errors import KdslError
from kdsl.formats import ROW_KIND, ROW_KINDS
from kdsl.run.upsert.changes import changes
from kdsl.run.upsert.packets import SETTINGS, Packet, unpacked

STATE = s.StructType([s.StructField("rows", s.BinaryType())])
OWN = "kdsl.upserts"
"""In the metadata of a column that comes out, so that a plan shows whose operator made it."""
CHANGED = s.StructType(
    [
        s.StructField("bucket", s.IntegerType(), False, {OWN: True}),
        s.StructField("keys", s.LongType(), False),
        s.StructField("bytes", s.LongType(), False),
        s.StructField("rows", s.BinaryType(), False),
    ]
)
"""What comes out: a bucket, how many keys and bytes its state has, and a packet of its changes, of which it has one at
least."""

_KINDS = pa.array(ROW_KINDS)


class UpsertProcessor(StatefulProcessor):
    """Makes changes of packets, bucket by bucket.

    Args:
        table: The table's name, for messages.
        schema: The schema of the rows, in Arrow's IPC format.
        keys: The key columns.
        buckets: How many buckets there are.
    """

    def __init__(self, table: str, schema: bytes, keys: Sequence[str], buckets: int) -> None:
        self._table, self._schema, self._keys, self._buckets = table, schema, tuple(keys), buckets

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Find the state."""
        self._state = handle.getValueState("rows", STATE)

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:  # noqa: N802, N803
        """The changes that the packets of a bucket make."""
        import pandas as pd  # type: ignore[import-untyped]

        del timerValues
        schema = read_schema(self._schema)
        if key[0] == SETTINGS:
            self._check(schema)
            return
        columns = [a.name for a in attrs.fields(Packet)]
        given = [Packet(*row) for frame in rows for row in zip(*(frame[name] for name in columns), strict=True)]
        upserts = unpacked(given, schema)
        if upserts is None:
            return
        found = changes(self._kept(schema), upserts, self._keys)
        kept = _written(found.state) if found.state.num_rows else b""
        if kept:
            self._state.update((kept,))
        else:
            self._state.clear()
        for changed, kinds in found.parts():
            yield pd.DataFrame(
                {
                    "bucket": [key[0]],
                    "keys": [found.state.num_rows],
                    "bytes": [len(kept)],
                    "rows": [changed_rows(changed, kinds).serialize().to_pybytes()],
                }
            )

    def close(self) -> None:
        """Nothing is held."""

    def _kept(self, schema: pa.Schema) -> pa.RecordBatch | None:
        stored = self._stored()
        return None if stored is None else fitted(_read(stored), schema, self._table)

    def _stored(self) -> bytes | None:
        """What the state has of the bucket."""
        stored = self._state.get()  # None where there is nothing, so that it need not be asked for first
        return None if stored is None else stored[0]

    def _check(self, schema: pa.Schema) -> None:
        """Refuse state that was kept by another key, or in other buckets: its rows would not be found again."""
        key = ", ".join(f"{name} {schema.field(name).type}" for name in self._keys)
        stored = self._stored()
        if stored is None:
            self._state.update((orjson.dumps({"buckets": self._buckets, "key": key}),))
            return
        kept = orjson.loads(stored)
        wrong = []
        if kept["buckets"] != self._buckets:
            wrong.append(
                f"keeps its keys in {kept['buckets']} buckets, and the table declares {self._buckets}; declare "
                f"changelog_buckets={kept['buckets']}"
            )
        if kept["key"] != key:
            wrong.append(f"keeps rows by the key ({kept['key']}), and the table declares ({key}); declare that key")
        if wrong:
            raise KdslError(f"{self._table}: the checkpoint {'; it '.join(wrong)}, or begin with a new checkpoint")


def changed_rows(rows: pa.RecordBatch, kinds: np.ndarray[Any, Any]) -> pa.RecordBatch:
    """Changes with the column of the row kind, which goes first.

    Args:
        rows: The rows.
        kinds: For each its kind, as a place in `kdsl.formats.ROW_KINDS`.
    """
    named = _KINDS.take(pa.array(kinds))
    return pa.RecordBatch.from_arrays([named, *rows.columns], schema=changed_schema(rows.schema))


def changed_schema(rows: pa.Schema) -> pa.Schema:
    """The schema of changes: the rows' with the row kind."""
    return rows.insert(0, pa.field(ROW_KIND, pa.string(), False))


def _written(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as out:
        out.write_batch(rows)
    written: bytes = sink.getvalue().to_pybytes()
    return written


def _read(rows: bytes) -> pa.RecordBatch:
    with pa.ipc.open_stream(pa.py_buffer(rows)) as stream:
        return stream.read_next_batch()


def fitted(rows: pa.RecordBatch, schema: pa.Schema, table: str) -> pa.RecordBatch:
    """Rows that a checkpoint keeps in the form that the table has now.

    A column that came since is NULL, one that is gone is dropped, and one whose type is wider now is cast.

    Args:
        rows: The rows, as they were written.
        schema: The columns of now.
        table: The table's name, for messages.

    Raises:
        KdslError: A column has another type, or one that is NOT NULL has no value.
    """
    if rows.schema.equals(schema):
        return rows
    names = set(rows.schema.names)
    columns = [
        _cast(rows.column(f.name), f, table) if f.name in names else _nulls(rows.num_rows, f, table) for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, field: pa.Field, table: str) -> pa.Array:
    if not _wider(column.type, field.type):
        raise KdslError(
            f"{table}: the checkpoint keeps the column {field.name!r} as {column.type}, and the table declares it as "
            f"{field.type}, which may not hold each value alike; declare it as it was, or begin with a new checkpoint"
        )
    return column.cast(field.type) if field.nullable or not column.null_count else _nulls(len(column), field, table)


def _nulls(count: int, field: pa.Field, table: str) -> pa.Array:
    if not field.nullable:
        raise KdslError(
            f"{table}: the column {field.name!r} is declared NOT NULL, and rows in the checkpoint have no value there; "
            "declare it nullable, or begin with a new checkpoint"
        )
    return pa.nulls(count, field.type)


def _wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Whether each value of a type is one of another type, and the same there."""
    if old.equals(new):
        return True
    for same in (pa.types.is_signed_integer, pa.types.is_floating):
        if same(old) and same(new):
            return bool(new.bit_width >= old.bit_width)
    if pa.types.is_decimal(old) and pa.types.is_decimal(new):
        return bool(new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale)
    return False


@lru_cache(maxsize=16)
def read_schema(schema: bytes) -> pa.Schema:
    """A schema that has travelled as bytes."""
    return pa.ipc.read_schema(pa.py_buffer(schema))
