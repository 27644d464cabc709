"""Casts of record metadata to the types of columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from kdsl.run.records.metadata import BadMetadataError, convert_metadata
from kdsl.types import model as t


@pytest.mark.parametrize("number", [2**53 + 1, 10**16, 10**17, 10**18])
@pytest.mark.parametrize("to", [t.Int(), t.Decimal(16, 0)])
def test_a_number_that_does_not_fit_is_named_exactly_also_beside_null(number: int, to: t.DataType) -> None:
    array = pa.array([None, 5, number, None, number + 1], pa.int64())
    if isinstance(to, t.Decimal) and number < 10**16:
        assert convert_metadata(array, t.BigInt(), to, "UTC").to_pylist() == array.to_pylist()
        return

    with pytest.raises(BadMetadataError) as e:
        convert_metadata(array, t.BigInt(), to, "UTC")

    assert e.value.rows == (2, 4)
    assert e.value.reason.startswith(f"{number} does not fit {to.spelling}, whose values are -")
