"""Partitioners of the user's own, for tests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.callbacks import PartitionerInput

NO_FUNCTION = 3


def by_customer(given: PartitionerInput) -> pa.Array:
    """The customer's number, whatever the key."""
    return pc.subtract(given.rows.column("customer"), 100)


def by_length_of_value(given: PartitionerInput) -> np.ndarray:
    """The length of the encoded value."""
    assert given.keys is None
    assert given.values is not None
    lengths: np.ndarray = pc.binary_length(given.values).to_numpy()
    return lengths % given.partitions


def by_key_of_topic(given: PartitionerInput) -> np.ndarray:
    """The first byte of the key, one further for a topic whose name ends in ``b``."""
    assert given.keys is not None
    assert len(given) == len(given.keys) == given.rows.num_rows
    first = np.array([key.as_py()[0] for key in given.keys])
    return (first + given.topic.endswith("b")) % given.partitions


def too_short(given: PartitionerInput) -> np.ndarray:
    return np.zeros(len(given) - 1, dtype=np.int64)


def a_table(given: PartitionerInput) -> np.ndarray:
    return np.zeros((len(given), 1), dtype=np.int64)


def floats(given: PartitionerInput) -> np.ndarray:
    return np.zeros(len(given))


def a_list(given: PartitionerInput) -> list[int]:
    return [0] * len(given)


def some_nulls(given: PartitionerInput) -> pa.Array:
    return pa.array([None] * len(given), pa.int32())


def out_of_range(given: PartitionerInput) -> np.ndarray:
    return np.arange(len(given)) + given.partitions - 1


def negative(given: PartitionerInput) -> pa.Array:
    return pa.array([-1] * len(given), pa.int16())


def failing(given: PartitionerInput) -> np.ndarray:
    raise ValueError(f"no partition for {given.topic}")
