"""What the sinks print and memory show of rows, and collectors of records, without Spark."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from kdsl.changelog.target import Batch
from kdsl.ingest.run import collectors
from kdsl.ingest.run.sinks import plain
from kdsl.ingest.run.sinks.plain import MemoryWriter, PrintWriter
from kdsl.own_columns import KIND
from kdsl.run.records.rejections import Rejection

ROWS = pa.table({"id": [1], "at": pa.array([1_796_000_000_000_000_000]).cast(pa.timestamp("us", "UTC"))})
FAR = "+58882-12-22 00:53:20+00:00"


class Inserts:
    """A DataFrame of inserts; the row kind can be dropped."""

    def drop(self, name: str) -> pa.Table:
        """The rows without it."""
        assert name == KIND
        return ROWS


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The rows of a table without a primary key."""
    monkeypatch.setattr(plain, "collect_arrow", lambda rows: rows)
    changes = ROWS.append_column(KIND, pa.array(["+I"]))
    evolution, schema = SimpleNamespace(changes=[]), SimpleNamespace(primary_key=())
    return SimpleNamespace(table=("t",), evolution=evolution, schema=schema, changes=lambda: changes, inserts=Inserts)


def test_print_shows_times_beyond_python(table: Any, capsys: pytest.CaptureFixture[str]) -> None:
    batch: Any = None
    PrintWriter(1).write_table(table, batch)

    assert capsys.readouterr().out == f"t +I[1, {FAR}]\n"


def test_memory_keeps_times_beyond_python(table: Any) -> None:
    writer = MemoryWriter()
    writer.write_table(table, Batch("w", 0))

    assert writer.appended == {table.table: [{"id": 1, "at": FAR}]}


@pytest.mark.parametrize(
    ("millis", "text"),
    [
        (1_796_000_000_000_001, "+58882-12-22T00:53:20.001+00:00"),
        ((1 << 63) - 1, "+292278994-08-17T07:12:55.807+00:00"),
        (1_738_310_400_123, "2025-01-31T08:00:00.123+00:00"),
        (0, "1970-01-01T00:00:00.000+00:00"),
        (-1, None),
    ],
)
def test_collectors_write_records_of_any_time(millis: int, text: str | None) -> None:
    record = {"topic": "t", "partition": 0, "offset": 5, "timestamp": millis, "key": None, "value": b"?", "headers": []}

    document = collectors._document(record, Rejection(0, "the reason"))

    assert json.loads(json.dumps(document))["timestamp"] == text
