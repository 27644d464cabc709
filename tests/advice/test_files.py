"""What problems of files advise: YAML documents, Python files, what commands are called with."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from typer.testing import CliRunner

from kdsl import load
from kdsl.cli.app import app
from kdsl.client_settings.to_librdkafka import librdkafka_settings
from kdsl.declare.document import read_tables
from kdsl.errors import Problem
from tests.advice.cases import Called, Shown, check_advice

TABLE = "- name: {}\n  options: {{connector: kafka, topic: t, format: json}}\n  columns: [{{name: id, type: INT}}]\n"
PYTHON = "from kdsl import Col, Json, KafkaTable\nclass A(KafkaTable, topic='t', value=Json()):\n    id: Col[int]\n"
JAAS = "org.apache.kafka.common.security.plain.PlainLoginModule required username={} password='p';"


def document(*names: str) -> Callable[[], object]:
    text = "tables:\n" + "".join(map(TABLE.format, names))
    return Shown(lambda: read_tables(text), text, "yaml")


def python(text: str) -> Callable[[], object]:
    def read() -> object:
        with TemporaryDirectory() as folder:
            file = Path(folder, "orders_of_advice.py")
            file.write_text(text)
            return load.tables(str(file))

    return Shown(read, text)


def check(name: str) -> Callable[[], object]:
    def find() -> list[Problem]:
        with TemporaryDirectory() as folder:
            Path(folder, "tables.yaml").write_text("tables:\n" + TABLE.format("a"))
            printed = CliRunner().invoke(app, ["check", "--json", str(Path(folder, name))]).stdout
        return [Problem(p["code"], p["message"], p["fix"]) for p in json.loads(printed)["problems"]]

    return Shown(find, f"kdsl check {name}", "console")


def login(user: str) -> Callable[[], object]:
    settings = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS.format(user)}
    return Shown(
        lambda: list(librdkafka_settings({"bootstrap.servers": "a:1", **settings}, "consumer").problems),
        f"sasl.jaas.config: {settings['sasl.jaas.config']}",
        "yaml",
    )


CASES = [
    Called("document", document("a", "a"), "rename one of them", document("a", "b")),
    Called("yaml", Shown(lambda: read_tables("tables: ["), "tables: [", "yaml"), "correct this line", document("a")),
    Called("import", python("import nothing_of_this_name\n" + PYTHON), "correct the file", python(PYTHON)),
    Called("target", check("table.yaml"), "name an existing file", check("tables.yaml")),
    Called("jaas", login('"u'), 'required option="value"', login('"u"')),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.code)
def test_the_advice_for_a_file_works(case: Called) -> None:
    check_advice(case)
