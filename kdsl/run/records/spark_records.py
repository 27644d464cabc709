"""Converts records of Spark's own Kafka source to raw record batches (`kdsl.run.records.metadata.RAW`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.run.records.metadata import RAW
from kdsl.types.arrow import cast_array

RECORD_TYPES = {
    "key": "BINARY",
    "value": "BINARY",
    "topic": "STRING",
    "partition": "INT",
    "headers": "ARRAY<STRUCT<key: STRING, value: BINARY>>",
    "timestamp": "TIMESTAMP",
}
"""Spark's types of the columns of a record that is written."""
_SPARK_NAMES = {"timestamp_type": "timestampType", "leader_epoch": "leaderEpoch"}


def spark_name(field: str) -> str:
    """Return the name of a field of a raw record batch in Spark's Kafka source."""
    return _SPARK_NAMES.get(field, field)


def raw_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Convert the columns of a batch from Spark's Kafka source to the names and types of a raw record batch.

    Columns that are not fields of `RAW` are passed on. NULL becomes -1 in ``timestamp`` and ``timestamp_type``, and an
    empty list in ``headers``.
    """
    names = {spark_name(field): field for field in RAW}
    arrays = {}
    for name in map(str, batch.schema.names):
        array, field = batch.column(name), names.get(name, name)
        if field in RAW and pa.types.is_null(array.type):
            array = pa.nulls(len(array), RAW[field])
        elif field == "timestamp":
            array = array.cast(pa.timestamp("ms", array.type.tz), safe=False).view(pa.int64())
        if field == "headers" and array.null_count:
            lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
            offsets = pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())
            array = pa.ListArray.from_arrays(offsets, array.flatten())
        if field in RAW:
            array = cast_array(array, RAW[field])
        arrays[field] = pc.fill_null(array, -1) if field in ("timestamp", "timestamp_type") else array
    return pa.RecordBatch.from_pydict(arrays)
