"""The state of an upsert table in Spark: the last row of each key, with the rows of a bucket in one value.

A state call of Spark's Python API costs almost a millisecond, whatever its size, so state is stored by bucket and not
by key. The value is a stream in Arrow's IPC format, which contains its schema: stored rows are converted to the present
columns of the table if that is unambiguous (`convert_stored_rows`), and are an error otherwise.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import pyarrow as pa
from pyspark.sql import types as s

from kdsl.errors import KdslError, pluralize
from kdsl.run.upsert.changes import compute_changes
from kdsl.run.upsert.chunks import SETTINGS, Chunk, read_chunks
from kdsl.run.upsert.state import (
    UnavailableRule,
    add_row_kinds,
    convert_stored_rows,
    count_as_dropped,
    read_schema,
    report_unavailable,
)
from kdsl.run.upsert.stored_settings import StateSettings, describe_key
from kdsl.spark_internals.sources import StatefulProcessor, StatefulProcessorHandle

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
            problems.append(
                f"has {pluralize(before.buckets, 'bucket')} of keys, but the table declares {settings.buckets}"
            )
            fixes.append(f"changelog_buckets={before.buckets}")
        if before.key != settings.key:
            problems.append(f"stores rows by the key ({before.key}), but the table declares ({settings.key})")
            fixes.append(f"the key ({before.key})")
        if problems:
            raise KdslError(
                f"{self._table}: the checkpoint {', and '.join(problems)}; declare {' and '.join(fixes)}, or start "
                "with a new checkpoint"
            )


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
