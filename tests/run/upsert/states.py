"""Spark's state and its input for one bucket, without Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa

from kdsl.run.upsert.chunks import DELETE, OFFSET, TIME, chunk_row_schema

if TYPE_CHECKING:
    from collections.abc import Sequence


class Store:
    """A value state, and the handle that gives it."""

    def __init__(self) -> None:
        self.value: Any = None

    def getValueState(self, name: str, schema: Any) -> Store:
        """Itself."""
        del name, schema
        return self

    def exists(self) -> bool:
        """Whether there is a value."""
        return self.value is not None

    def get(self) -> Any:
        """The value."""
        return self.value

    def update(self, value: Any) -> None:
        """Keep a value."""
        self.value = value

    def clear(self) -> None:
        """Keep none."""
        self.value = None


def chunk(rows: pa.RecordBatch, deletes: Sequence[int] = ()) -> pd.DataFrame:
    """Rows as Spark hands their chunk over.

    Args:
        rows: The rows.
        deletes: Which of them delete their key.
    """
    marks = pa.array([n in deletes for n in range(rows.num_rows)])
    times = pa.array([0] * rows.num_rows, pa.int64())
    schema = chunk_row_schema(rows.schema)
    assert schema.names[-3:] == [DELETE, TIME, OFFSET]
    offsets = pa.array(range(rows.num_rows), pa.int64())
    packed = pa.RecordBatch.from_arrays([*rows.columns, marks, times, offsets], schema=schema)
    data = packed.serialize().to_pybytes()
    return pd.DataFrame({"bucket": [5], "topic": ["t"], "partition": [0], "offset": [0], "rows": [data]})
