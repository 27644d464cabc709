"""Asks Flink what an ``INSERT`` takes without CAST, and writes ``data/implicit-casts.json``; run it with PyFlink 2.2.

    python tests/scripts/record.py

For each type of a sink's column the types of a query's column that the planner takes.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DECIMAL(10, 2)", "DECIMAL(4, 0)"),
    *("CHAR(3)", "CHAR(5)", "VARCHAR(3)", "STRING", "BINARY(3)", "BINARY(5)", "VARBINARY(3)", "BYTES"),
    *("DATE", "TIME", "TIMESTAMP(3)", "TIMESTAMP(6)", "TIMESTAMP_LTZ(3)", "TIMESTAMP_LTZ(6)"),
    *("ARRAY<INT>", "ARRAY<BIGINT>", "ARRAY<STRING>", "MAP<STRING, INT>", "MAP<STRING, BIGINT>", "MULTISET<STRING>"),
    *("ROW<a INT>", "ROW<b BIGINT>", "ROW<a STRING>", "ROW<a INT, b INT>"),
)


def main() -> None:
    table = import_module("pyflink.table")
    env: Any = table.TableEnvironment.create(table.EnvironmentSettings.in_streaming_mode())
    listed = ", ".join(f"c{i} {kind}" for i, kind in enumerate(TYPES))
    files = "'connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'json'"
    env.execute_sql(f"CREATE TABLE source ({listed}) WITH ({files})")
    taken: dict[str, list[str]] = {}
    for i, sink in enumerate(TYPES):
        env.execute_sql(f"CREATE TABLE sink{i} (c {sink}) WITH ('connector' = 'blackhole')")
        taken[sink] = []
        for j, kind in enumerate(TYPES):
            try:
                env.explain_sql(f"INSERT INTO sink{i} SELECT c{j} FROM source")
            except Exception as e:  # noqa: BLE001  # whatever the planner says
                if "Incompatible types" not in str(e) and "do not match" not in str(e):
                    print(sink, kind, str(e).splitlines()[:3])
                continue
            taken[sink].append(kind)
    lines = ",\n".join(f"  {json.dumps(sink)}: {json.dumps(kinds)}" for sink, kinds in taken.items())
    (DATA / "implicit-casts.json").write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
