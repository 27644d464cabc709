"""Asks Flink for the changelog of change data with events that come again, and writes ``answers.json``.

    python tests/run/upsert/duplicates/record.py

Run it with PyFlink 2.2 and, for debezium-json and its kin, flink-json among its jars. Each case is a file of messages
that is read with ``table.exec.source.cdc-events-duplicate``; its answer holds the messages and the changes in their
order. What has an answer already is not asked again.
"""

from __future__ import annotations

import json
import random
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.json"
FORMATS = ("debezium-json", "ogg-json", "canal-json", "maxwell-json")
COLUMNS = "id BIGINT, name STRING, note STRING"
KEY = ", PRIMARY KEY (id) NOT ENFORCED"
Row = dict[str, Any]


def message(kind: str, operation: str, before: Row | None, after: Row | None) -> str:
    """A change as the tool of a format writes it: ``c``, ``u`` or ``d``."""
    if kind == "debezium-json":
        return json.dumps({"before": before, "after": after, "op": operation})
    if kind == "ogg-json":
        return json.dumps({"before": before, "after": after, "op_type": {"c": "I", "u": "U", "d": "D"}[operation]})
    row = before if operation == "d" else after
    old = None
    if operation == "u" and before is not None and after is not None:
        old = {name: value for name, value in before.items() if value != after[name]}
    error_text = {"c": "insert", "u": "update", "d": "delete"}[operation]
    if kind == "maxwell-json":
        return json.dumps({"data": row, "type": error_text} | ({} if old is None else {"old": old}))
    return json.dumps({"data": [row], "old": None if old is None else [old], "type": error_text.upper()})


def events(kind: str, seed: int) -> list[str]:
    """Changes of a table of a few rows; about every third message, and sometimes several, come again."""
    chance = random.Random(seed)
    rows: dict[int, Row] = {}
    results: list[str] = []
    for _ in range(60):
        number = chance.randrange(4)
        new = {"id": number, "name": chance.choice(["a", "b"]), "note": chance.choice([None, "n"])}
        old = rows.get(number)
        if old is None:
            results.append(message(kind, "c", None, new))
            rows[number] = new
        elif chance.random() < 0.3:
            results.append(message(kind, "d", old, None))
            del rows[number]
        else:
            results.append(message(kind, "u", old, new))
            rows[number] = new
        if chance.random() < 0.3:
            results += results[-chance.randrange(1, 4) :]
    return results


def cases() -> dict[str, tuple[str, list[str]]]:
    """The format and the messages of each case."""
    results = {f"{kind} {seed}": (kind, events(kind, seed)) for kind in FORMATS for seed in (1, 2)}
    for kind in FORMATS:
        one, two = (dict[str, Any](id=n, name="a", note=None) for n in (1, 2))
        moved = [message(kind, "c", None, one), message(kind, "u", one, two), message(kind, "d", one, None)]
        results[f"{kind} key change"] = kind, moved
    unknown: list[Row] = [{"id": 1, "name": None, "note": None}, {"id": 2, "name": "b", "note": None}]
    results["debezium-json unknown"] = (
        "debezium-json",
        [
            message("debezium-json", "d", unknown[0], None),
            message("debezium-json", "u", unknown[1], unknown[1]),
        ],
    )
    return results


def main() -> None:
    """Record the answers of all cases."""
    table = import_module("pyflink.table")
    answers: dict[str, Any] = json.loads(ANSWERS.read_text(encoding="utf-8")) if ANSWERS.exists() else {}
    with TemporaryDirectory() as folder:
        for i, (name, (kind, messages)) in enumerate(cases().items()):
            if name not in answers:
                answers[name] = answer(table, Path(folder) / str(i), kind, messages)
                print(name, answers[name]["changes"])
        if "refused" not in answers:
            answers["refused"] = answer(table, Path(folder) / "r", "debezium-json", [], key="")["changes"]
            print(answers["refused"])
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(answers[name])}" for name in sorted(answers))
    ANSWERS.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


def answer(table: Any, path: Path, kind: str, messages: list[str], key: str = KEY) -> dict[str, Any]:
    """The changes that Flink makes of messages, or the reason why it refuses them."""
    path.write_text("\n".join(messages), encoding="utf-8")
    env = table.TableEnvironment.create(table.EnvironmentSettings.in_streaming_mode())
    env.get_config().set("parallelism.default", "1")
    env.get_config().set("table.exec.source.cdc-events-duplicate", "true")
    options = f"'connector' = 'filesystem', 'path' = '{path.as_uri()}', 'format' = '{kind}'"
    env.execute_sql(f"CREATE TABLE changes ({COLUMNS}{key}) WITH ({options})")
    try:
        with env.execute_sql("SELECT * FROM changes").collect() as rows:
            changes = [[str(row.get_row_kind()), *row] for row in rows]
    except Exception as e:  # noqa: BLE001  # whatever Flink says
        lines = [line.strip() for line in str(e).splitlines() if "Exception: " in line]
        return {"format": kind, "messages": messages, "changes": lines[-1] if lines else str(e)[:500]}
    kinds = {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}
    shown = [[kinds.get(error_text.rpartition(".")[2], error_text), *values] for error_text, *values in changes]
    return {"format": kind, "messages": messages, "changes": shown}


if __name__ == "__main__":
    main()
