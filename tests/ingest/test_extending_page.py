"""The sink and the secrets provider that docs/extending.md writes, in packages outside of the checkout."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from kdsl.testing import LocalKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.page_files import RUN_FILES, count_passed, install_package, other_code, run_python, run_tests, section_of

SINK = section_of("extending.md", "A sink")
PROVIDER = section_of("extending.md", "A secret provider")


@pytest.mark.spark
def test_the_sink_keeps_its_contract(tmp_path: Path) -> None:
    install_package(SINK, tmp_path)

    assert count_passed(run_tests(tmp_path, "test_sqlite.py")) > 20


@pytest.mark.spark
def test_the_sink_works_in_an_ingestion_and_a_script(
    tmp_path: Path, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic
) -> None:
    install_package(SINK, tmp_path)
    topic = kdsl_topic("orders")
    kdsl_kafka.produce(topic, '{"id": 1, "name": "a"}', '{"id": 2}', '{"id": 1, "name": "b"}')
    yaml = other_code(SINK, "yaml").replace("localhost:9092", kdsl_kafka.bootstrap_servers)
    yaml = yaml.replace("topic: orders", f"topic: {topic}").replace("source-table: orders", f"source-table: {topic}")
    sql = other_code(SINK, "sql").replace("localhost:9092", kdsl_kafka.bootstrap_servers)
    (tmp_path / "ingestion.yaml").write_text(yaml)
    (tmp_path / "script.sql").write_text(sql.replace("'topic' = 'orders'", f"'topic' = '{topic}'"))
    (tmp_path / "program.py").write_text(RUN_FILES)

    assert "sink sqlite\n  path = shop.db" in run_python(tmp_path, "program.py")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        assert sorted(database.execute(f'SELECT id, name FROM "{topic}"')) == [(1, "b"), (2, None)]
        copies = database.execute('SELECT id, name FROM "copies.orders"').fetchall()
    assert sorted(copies, key=str) == [(1, "a"), (1, "b"), (2, None)]


def test_the_provider_keeps_its_contract(tmp_path: Path) -> None:
    install_package(PROVIDER, tmp_path)

    assert count_passed(run_tests(tmp_path, "test_keyring.py")) == 7


def test_the_provider_works_in_a_table(tmp_path: Path) -> None:
    """The client of the table gets the secret."""
    install_package(PROVIDER, tmp_path)
    (tmp_path / "keyring.json").write_text('{"shop": {"password": "HUSH"}}')
    (tmp_path / "program.py").write_text(
        f"{other_code(PROVIDER, 'python')}\n"
        "from kdsl.client_settings.to_librdkafka import librdkafka_settings\n"
        "from kdsl.resolve import problems\n"
        "from kdsl.secrets import resolve\n"
        "assert not problems(Orders.as_table().definition, 'read')\n"
        "assert 'HUSH' not in repr(shop)\n"
        "print(librdkafka_settings(shop.settings(), 'consumer', resolve).settings['sasl.password'])\n"
    )

    assert run_python(tmp_path, "program.py", KEYRING=str(tmp_path / "keyring.json")) == "HUSH\n"
