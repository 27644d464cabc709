"""Asks Flink for the rows of each script in this folder, and writes ``answers.json``; run it with PyFlink 2.2.

    python tests/scripts/constructs/record.py

The tables are those of ``tables.sql``, with the rows of ``tables.json`` in files. A script runs as a bounded stream;
its answer holds the rows that are there at the end, after all changes, or the reason why Flink refuses it. What has an
answer already is not asked again.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.json"


def plain(value: Any) -> Any:
    """A value as JSON, the same for Flink's rows and for Spark's."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if hasattr(value, "isoformat"):
        return str(value.isoformat(sep=" ", timespec="milliseconds"))
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return str(value)


def main() -> None:
    """Record the answers of all scripts."""
    table = import_module("pyflink.table")
    rows = json.loads((HERE / "tables.json").read_text(encoding="utf-8"))
    answers: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8")) if ANSWERS.exists() else {}
    with TemporaryDirectory() as folder:
        options = {}
        for name, records in rows.items():
            path = Path(folder) / f"{name}.json"
            path.write_text("\n".join(map(json.dumps, records)), encoding="utf-8")
            options[name] = f"'connector' = 'filesystem', 'path' = '{path.as_uri()}', 'format' = 'json'"
        for script in sorted(HERE.glob("*.sql")):
            if script.stem == "tables" or script.stem in answers:
                continue
            env = table.TableEnvironment.create(table.EnvironmentSettings.in_streaming_mode())
            env.get_config().set("parallelism.default", "1")
            for statement in (HERE / "tables.sql").read_text(encoding="utf-8").format(**options).split(";\n"):
                if statement.strip():
                    env.execute_sql(statement)
            answers[script.stem] = answer(env, script.read_text(encoding="utf-8"))
            print(script.stem, answers[script.stem])
            lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(answers[name])}" for name in sorted(answers))
            ANSWERS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def answer(env: Any, script: str) -> dict[str, Any]:
    """The rows that a script's last statement gives, or why it is refused."""
    *before, query = [statement for statement in script.strip().split(";\n") if statement]
    try:
        for statement in before:
            env.execute_sql(statement)
        there: Counter[str] = Counter()
        with env.execute_sql(query).collect() as rows:
            for row in rows:
                kind = row.get_row_kind().name
                there[json.dumps([plain(value) for value in row])] += -1 if kind in ("UPDATE_BEFORE", "DELETE") else 1
    except Exception as e:  # noqa: BLE001  # whatever the planner says
        causes = re.findall(r"(?:Caused by|^): (.*)", str(e), flags=re.MULTILINE)
        return {"error": (causes or str(e).splitlines())[-1]}
    return {"rows": sorted((json.loads(row) for row in there.elements()), key=json.dumps)}


if __name__ == "__main__":
    main()
