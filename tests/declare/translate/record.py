"""Asks Flink for the values of ``data/expressions.txt`` and writes ``data/expressions.jsonl``; run it with PyFlink 2.2.

    python tests/declare/translate/record.py

Each expression is worked out over the rows of ``data/rows.sql`` in the time zone Europe/Berlin, and written as Flink
casts it to text (``[text of each row]``), with its type; or with the word ``error`` where Flink refuses it.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"
ZONE = "Europe/Berlin"
CHUNK = 30


class Flink:
    """A table environment with the rows as a view."""

    def __init__(self) -> None:
        table = import_module("pyflink.table")
        self.env: Any = table.TableEnvironment.create(table.EnvironmentSettings.in_batch_mode())
        self.env.get_config().set("parallelism.default", "1")
        self.env.get_config().set("table.local-time-zone", ZONE)
        self.env.execute_sql(f"CREATE TEMPORARY VIEW t AS {(DATA / 'rows.sql').read_text()}")

    def type(self, sql: str) -> str:
        table = self.env.sql_query(f"SELECT {sql} AS c FROM t")
        return str(table._j_table.getResolvedSchema().getColumnDataTypes().get(0).getLogicalType().copy(True))

    def values(self, sqls: list[str]) -> list[list[Any]]:
        listed = ", ".join(f"CAST(({sql}) AS STRING) AS c{i}" for i, sql in enumerate(sqls))
        with self.env.execute_sql(f"SELECT k, {listed} FROM t").collect() as found:
            rows = sorted((list(row) for row in found), key=lambda row: row[0])
        return [[row[i + 1] for row in rows] for i in range(len(sqls))]


def main() -> None:
    flink = Flink()
    texts = [line for line in (DATA / "expressions.txt").read_text(encoding="utf-8").splitlines() if line]
    cases: dict[str, dict[str, Any]] = {}
    for sql in texts:
        try:
            cases[sql] = {"sql": sql, "type": flink.type(sql)}
        except Exception as e:  # noqa: BLE001  # whatever the planner says
            cases[sql] = {"sql": sql, "error": _reason(e)}
    good = [sql for sql in texts if "type" in cases[sql]]
    for at in range(0, len(good), CHUNK):
        _fill(flink, good[at : at + CHUNK], cases)
    lines = (json.dumps(cases[sql], ensure_ascii=False) for sql in texts)
    (DATA / "expressions.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _fill(flink: Flink, sqls: list[str], cases: dict[str, dict[str, Any]]) -> None:
    try:
        for sql, values in zip(sqls, flink.values(sqls), strict=True):
            cases[sql]["rows"] = values
    except Exception as e:  # noqa: BLE001  # whatever the job says
        if len(sqls) == 1:
            cases[sqls[0]]["error"] = _reason(e)
            return
        half = len(sqls) // 2
        _fill(flink, sqls[:half], cases)
        _fill(flink, sqls[half:], cases)


def _reason(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if "Caused by" in line or "Exception:" in line]
    return (lines[-1] if lines else str(error).splitlines()[0]).strip()[:160]


if __name__ == "__main__":
    main()
