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
