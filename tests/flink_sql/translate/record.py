"""Asks Flink for the values of ``data/expressions.txt`` and the rows of ``data/queries.sql``; run it with PyFlink 2.2.

    python tests/flink_sql/translate/record.py

Each expression is computed over the rows of ``data/rows.sql`` in the time zone Europe/Berlin, and written as Flink
casts it to text (``[text of each row]``), with its type; or with the word ``error`` where Flink refuses it. What has an
answer already is not asked again. The answers are ``expressions.jsonl`` and ``queries.jsonl``; queries read
the tables of ``tables.json``, in batches, or where a batch is refused as a stream that only takes new rows.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
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
        with self.env.execute_sql(f"SELECT k, {listed} FROM t").collect() as actual:
            rows = sorted((list(row) for row in actual), key=lambda row: row[0])
        return [[row[i + 1] for row in rows] for i in range(len(sqls))]


def main() -> None:
    _expressions()
    _queries()


def _expressions() -> None:
    texts = [line for line in (DATA / "expressions.txt").read_text(encoding="utf-8").splitlines() if line]
    cases = _load_answers("expressions.jsonl")
    asked = [sql for sql in texts if sql not in cases]
    flink = Flink()
    for sql in asked:
        try:
            cases[sql] = {"sql": sql, "type": flink.type(sql)}
        except Exception as e:  # noqa: BLE001  # whatever the planner says
            cases[sql] = {"sql": sql, "error": _reason(e)}
    good = [sql for sql in asked if "type" in cases[sql]]
    for at in range(0, len(good), CHUNK):
        _fill(flink, good[at : at + CHUNK], cases)
    _write("expressions.jsonl", [cases[sql] for sql in texts])


def _queries() -> None:
    texts = [sql.strip() for sql in (DATA / "queries.sql").read_text(encoding="utf-8").split(";\n") if sql.strip()]
    cases = _load_answers("queries.jsonl")
    with TemporaryDirectory() as folder:
        batch, stream = (_tables(Path(folder), streaming=streaming) for streaming in (False, True))
        for sql in texts:
            if sql not in cases:
                result = _rows(batch, sql)
                streamed = _rows(stream, sql) if "error" in result else {}
                cases[sql] = {"sql": sql, **(streamed if "rows" in streamed else result)}
                _write("queries.jsonl", [cases[known] for known in texts if known in cases])


def _tables(folder: Path, *, streaming: bool) -> Any:
    table = import_module("pyflink.table")
    settings = table.EnvironmentSettings
    env = table.TableEnvironment.create(settings.in_streaming_mode() if streaming else settings.in_batch_mode())
    env.get_config().set("parallelism.default", "1")
    env.get_config().set("table.local-time-zone", ZONE)
    env.get_config().set("taskmanager.numberOfTaskSlots", "8")
    env.get_config().set("slot.request.timeout", "20000")
    for name, message in json.loads((DATA / "tables.json").read_text(encoding="utf-8")).items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "rows").write_text("\n".join(map(json.dumps, message["rows"])), encoding="utf-8")
        mark = ", WATERMARK FOR ts AS ts" if "ts TIMESTAMP" in message["columns"] else ""
        files = f"'connector' = 'filesystem', 'path' = '{folder / name}', 'format' = 'json'"
        env.execute_sql(f"CREATE TABLE {name} ({message['columns']}{mark}) WITH ({files})")
    return env


def _rows(env: Any, sql: str) -> dict[str, Any]:
    try:
        result = env.execute_sql(sql)
        names = list(result.get_table_schema().get_field_names())
        with result.collect() as actual:
            rows = [(row.get_row_kind().name, [_to_json(value) for value in row]) for row in actual]
    except Exception as e:  # noqa: BLE001  # whatever it says
        return {"error": _reason(e)}
    if any(kind != "INSERT" for kind, _ in rows):
        return {"error": "its rows change"}
    return {"columns": names, "rows": sorted((row for _, row in rows), key=json.dumps)}


def _to_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_json(one) for one in value]
    if isinstance(value, dict):
        return {str(key): _to_json(one) for key, one in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    try:
        return [_to_json(one) for one in value]
    except TypeError:
        return str(value)


def _load_answers(name: str) -> dict[str, dict[str, Any]]:
    answers = DATA / name
    known = map(json.loads, answers.read_text(encoding="utf-8").splitlines() if answers.exists() else ())
    return {case["sql"]: case for case in known}


def _write(name: str, cases: list[dict[str, Any]]) -> None:
    lines = (json.dumps(case, ensure_ascii=False) for case in cases)
    (DATA / name).write_text("\n".join(lines) + "\n", encoding="utf-8")


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
