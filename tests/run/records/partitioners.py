"""Partitioners of the user's own, for tests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kdsl.callbacks import PartitionerInput

NO_FUNCTION = 3


def by_customer(value: PartitionerInput) -> pa.Array:
    """The customer's number, whatever the key."""
    return pc.subtract(value.rows.column("customer"), 100)


def by_length_of_value(value: PartitionerInput) -> np.ndarray:
    """The length of the encoded value."""
    assert value.keys is None
    assert value.values is not None
    lengths: np.ndarray = pc.binary_length(value.values).to_numpy()
    return lengths % value.partitions


def by_key_of_topic(value: PartitionerInput) -> np.ndarray:
    """The first byte of the key, one further for a topic whose name ends in ``b``."""
    assert value.keys is not None
    assert len(value) == len(value.keys) == value.rows.num_rows
    first = np.array([key.as_py()[0] for key in value.keys])
    return (first + value.topic.endswith("b")) % value.partitions


def too_short(value: PartitionerInput) -> np.ndarray:
    return np.zeros(len(value) - 1, dtype=np.int64)


def a_table(value: PartitionerInput) -> np.ndarray:
    return np.zeros((len(value), 1), dtype=np.int64)


def floats(value: PartitionerInput) -> np.ndarray:
    return np.zeros(len(value))


def a_list(value: PartitionerInput) -> list[int]:
    return [0] * len(value)


def some_nulls(value: PartitionerInput) -> pa.Array:
    return pa.array([None] * len(value), pa.int32())


def out_of_range(value: PartitionerInput) -> np.ndarray:
    return np.arange(len(value)) + value.partitions - 1


def negative(value: PartitionerInput) -> pa.Array:
    return pa.array([-1] * len(value), pa.int16())


def failing(value: PartitionerInput) -> np.ndarray:
    raise ValueError(f"no partition for {value.topic}")
