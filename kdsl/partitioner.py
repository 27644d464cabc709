"""What a partitioner of the user's own gets, and what it gives (RULES SP-5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
import numpy as np
import pyarrow as pa

__all__ = ["PARTITIONERS", "Partitioner", "PartitionerInput"]

PARTITIONERS = ("default", "fixed", "round-robin")
"""The partitioners that need no function, by their names (RULES SP-1 to SP-4)."""


@attrs.frozen(eq=False)
class PartitionerInput:
    """Records that go to one topic and have no partition yet, in their order.

    Attributes:
        rows: The rows of the table that they were made of, with the columns that the table writes.
        keys: Their encoded keys; null where a record has none. None where the table has no key at all.
        values: Their encoded values; null is a tombstone. None where the table has no value at all.
        topic: The topic.
        partitions: How many partitions the topic has.
        task: The index of the task that writes them, from 0.
    """

    rows: pa.RecordBatch
    keys: pa.BinaryArray | None
    values: pa.BinaryArray | None
    topic: str
    partitions: int
    task: int

    def __len__(self) -> int:
        return int(self.rows.num_rows)


Partitioner: TypeAlias = Callable[[PartitionerInput], "np.ndarray[Any, np.dtype[Any]] | pa.Array | pa.ChunkedArray"]
"""A partitioner: gives for each record the number of its partition, as an array of whole numbers.

It is called with whole batches, once for each topic that a batch has records for; it must give an array as long as the
batch. Equal input must give equal partitions where a batch is to be written again in the same way.
"""
