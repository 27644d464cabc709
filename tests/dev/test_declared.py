"""Files in folders, and what they declare."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.dev.declared import expand_folders, load_targets

TABLE = 'from kdsl import *\nclass Orders(KafkaTable, topic="orders", value=Json()):\n    id: Col[int]\n'
DOCUMENT = """
tables:
- name: y
  columns: [{name: id, type: INT}]
  options: {connector: kafka, topic: y, format: json}
"""
SCRIPT = """
CREATE TABLE a (x INT) WITH ('connector' = 'kafka', 'topic' = 'a', 'format' = 'json');
CREATE TABLE b (x INT) WITH ('connector' = 'kafka', 'topic' = 'b', 'format' = 'json');
CREATE TABLE unused (x INT) WITH ('connector' = 'kafka', 'topic' = 'c', 'format' = 'json');
CREATE TABLE inferred WITH ('connector' = 'kafka', 'topic' = 'd', 'format' = 'json');
CREATE TABLE shown (x INT) WITH ('connector' = 'print');
INSERT INTO b SELECT x FROM a;
"""


def test_of_a_folder_only_files_that_declare_something_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "shop_of_dev/__init__.py": "",
        "shop_of_dev/names.py": "TOPIC = 'orders'",
        "shop_of_dev/tables.py": TABLE.replace('"orders"', "TOPIC").replace(
            "class", "from shop_of_dev.names import TOPIC\nclass"
        ),
        "shop_of_dev/job.py": "raise SystemExit('not imported')",
        "tests/test_tables.py": TABLE,
        "venv/pyvenv.cfg": "",
        "venv/lib/tables.py": TABLE,
        ".hidden/tables.py": TABLE,
        "sql/job.sql": SCRIPT,
        "sql/other.sql": "SELECT 1;",
        "clusters.yaml": "clusters: {}",
        "tables.yaml": DOCUMENT,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")

    targets = list(expand_folders(["."]))
    declared, problems = load_targets(targets, {})

    assert targets == ["shop_of_dev.tables", "sql/job.sql", "tables.yaml"]
    assert [p.severity for p in problems] == ["warning"]  # the table whose columns are inferred
    assert [(one.target, one.is_written) for one in declared] == [
        ("shop_of_dev.tables:Orders", False),
        ("sql/job.sql:a", False),
        ("sql/job.sql:b", True),
        ("sql/job.sql:unused", False),
        ("tables.yaml:y", False),
    ]
