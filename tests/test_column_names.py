"""Columns of users may have any names where Python tasks take their rows."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN_COLUMNS = {
    "kdsl/datastream/source.py": 1,
    "kdsl/ingest/run/kafka_batch.py": 1,
    "kdsl/ingest/run/collectors.py": 3,
    "kdsl/ingest/run/rows.py": 1,
    "kdsl/ingest/run/sinks/kafka.py": 1,
    "kdsl/run/read.py": 1,
    "kdsl/ingest/run/sinks/last_rows.py": 1,
    "kdsl/run/upsert/read.py": 1,
    "kdsl/run/upsert/spark_batches.py": 2,
    "kdsl/spark_internals/arrow.py": 3,
}
"""The calls whose rows have columns with names of kdsl's own, and those of `map_in_arrow` itself."""


def test_rows_of_users_are_mapped_by_a_function_that_allows_any_name() -> None:
    """PySpark's own method finds no column with a dot or a back-tick in its name: use `map_in_arrow`."""
    calls = Counter(
        str(path.relative_to(ROOT))
        for path in (ROOT / "kdsl").rglob("*.py")
        for _ in re.findall(r"\.mapInArrow\(", path.read_text(encoding="utf-8"))
    )

    assert calls == OWN_COLUMNS
