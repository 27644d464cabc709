"""The table in memory, without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from kdsl.changelog import memory, to_memory
from kdsl.formats import ROW_KIND


@pytest.mark.parametrize(
    ("keys", "sorted_keys"),
    [([2.0, 3.0, 1.0, 0.5], [0.5, 1.0, 2.0, 3.0]), ([2.0, 3.0, 1.0, None, 0.5], [2.0, 3.0, 1.0, None, 0.5])],
)
def test_rows_are_sorted_if_all_keys_can_be_compared(
    keys: list[float | None], sorted_keys: list[float | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(to_memory, "collect_arrow", lambda table: table)
    target = memory()
    changes: Any = pa.table({ROW_KIND: ["+I"] * len(keys), "k": keys})

    target.apply(changes, ["k"], None)

    assert [row["k"] for row in target.rows()] == sorted_keys


def test_times_beyond_python_are_keys_and_values_as_text_and_become_exactly_what_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(to_memory, "collect_arrow", lambda table: table)
    monkeypatch.setattr(to_memory, "dataframe_from_arrow", lambda _, table: table)
    instant = pa.timestamp("us", "UTC")
    numbers = pa.array([1_796_000_000_000_000_000, 0], pa.int64())
    rows = pa.table({"at": numbers.cast(instant), "clock": pa.array([1, 1000], pa.time64("ns"))})
    rows = rows.append_column("parts", pa.StructArray.from_arrays([numbers.cast(pa.timestamp("us"))], ["t"]))
    target = memory()
    target.apply(rows.add_column(0, ROW_KIND, pa.array(["+I", "+I"])), ["at"], None)

    far = target.get("+58882-12-22 00:53:20+00:00")

    assert far is not None
    assert (far["clock"], far["parts"]) == ("00:00:00.000000001", {"t": "+58882-12-22 00:53:20"})
    assert len(target.rows()) == 2
    spark: Any = None
    again: Any = target.frame(spark)
    assert again.schema == rows.schema
    assert again.to_batches() == rows.to_batches()
    target.apply(rows.slice(0, 1).add_column(0, ROW_KIND, pa.array(["-D"])), ["at"], None)
    assert len(target.rows()) == 1
