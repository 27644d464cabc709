"""Rows of a DataFrame as objects of a table class, without Spark."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kdsl import Json, KafkaTable
from kdsl.errors import RowError
from kdsl.run.dataframes import rows


class Visits(KafkaTable, topic="visits", value=Json()):
    id: int
    at: datetime
    times: list[datetime]


def frame(at: list[int], times: list[list[int]]) -> Any:
    """A DataFrame of visits with instants in microseconds, which `collect_arrow` returns."""
    instant = pa.timestamp("us", "UTC")
    nested = pa.array(times, pa.list_(pa.int64())).cast(pa.list_(instant))
    table = pa.table({"id": list(range(len(at))), "at": pa.array(at).cast(instant), "times": nested})
    return SimpleNamespace(columns=table.column_names, schema=Visits.schema(), table=table)


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the rows of `frame` without a session."""
    monkeypatch.setattr(rows, "collect_arrow", lambda df: df.table)


def test_instants_are_aware() -> None:
    start = datetime(1970, 1, 1, tzinfo=UTC)
    assert rows.collect(Visits, frame([0], [[0]])) == [Visits(id=0, at=start, times=[start])]


@pytest.mark.parametrize(
    ("df", "where"),
    [
        (frame([0, 1_796_000_000_000_000_000], [[], []]), "row 1, column 'at'"),
        (frame([0], [[0, 1_796_000_000_000_000_000]]), "row 0, column 'times'"),
    ],
)
def test_a_time_beyond_python_is_named_with_what_to_write_instead(df: Any, where: str) -> None:
    with pytest.raises(RowError) as e:
        rows.collect(Visits, df)

    assert where in str(e.value)
    assert "the value +58882-12-22 00:53:20+00:00 is outside the values of Python's types" in str(e.value)
    assert "CAST(`" in str(e.value)
