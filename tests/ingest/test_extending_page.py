"""The sink and the secrets provider that docs/extending.md writes, in packages outside of the checkout."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from kdsl.testing import LocalKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.page_files import install_package, other_code, section_of
from tests.pages import ROOT

SINK = section_of("extending.md", "A sink")
PROVIDER = section_of("extending.md", "A secret provider")
PROGRAM = """\
from pathlib import Path

from pyspark.sql import SparkSession

from kdsl.ddl.statements import read_script
from kdsl.ingest import Ingestion
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, run_script

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
ingestion, problems = Ingestion.read(Path("ingestion.yaml").read_text())
assert not problems, problems
assert ingestion.problems() == (), ingestion.problems()
print(ingestion.explain())
ingestion.run(spark, "checkpoint", once=True).awaitTermination()
run_script(plan_script(read_script(Path("script.sql").read_text())), spark, RunOptions(once=True, checkpoint="copies"))
spark.stop()
"""


def run(folder: Path, *arguments: str, **variables: str) -> str:
    """The output of a Python program in a folder, which must succeed; kdsl and the folder are all it can import."""
    path = os.pathsep.join([str(folder), str(ROOT), str(ROOT / "formats")])
    completed = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **variables, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == 0, f"{completed.stdout}\n{completed.stderr[-4000:]}"
    return completed.stdout


def count_passed(output: str) -> int:
    """How many tests passed."""
    return int(output.rpartition(" passed")[0].rpartition("\n")[2].rpartition(" ")[2])


@pytest.mark.spark
def test_the_sink_keeps_its_contract(tmp_path: Path) -> None:
    install_package(SINK, tmp_path)

    assert (
        count_passed(run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_sqlite.py").replace(",", ""))
        > 20
    )


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
    (tmp_path / "program.py").write_text(PROGRAM)

    assert "sink sqlite\n  path = shop.db" in run(tmp_path, "program.py")
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        assert sorted(database.execute(f'SELECT id, name FROM "{topic}"')) == [(1, "b"), (2, None)]
        copies = database.execute('SELECT id, name FROM "copies.orders"').fetchall()
    assert sorted(copies, key=str) == [(1, "a"), (1, "b"), (2, None)]


def test_the_provider_keeps_its_contract(tmp_path: Path) -> None:
    install_package(PROVIDER, tmp_path)

    assert count_passed(run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_keyring.py")) == 7


def test_the_provider_works_in_a_table(tmp_path: Path) -> None:
    """The client of the table gets the secret."""
    install_package(PROVIDER, tmp_path)
    (tmp_path / "keyring.json").write_text('{"shop": {"password": "HUSH"}}')
    (tmp_path / "program.py").write_text(
        f"{other_code(PROVIDER, 'python')}\n"
        "from kdsl.client_settings.to_librdkafka import consumer_settings\n"
        "from kdsl.resolve import problems\n"
        "from kdsl.secrets import resolve\n"
        "assert not problems(Orders.as_table().definition, 'read')\n"
        "assert 'HUSH' not in repr(shop)\n"
        "print(consumer_settings(shop.settings(), resolve).settings['sasl.password'])\n"
    )

    assert run(tmp_path, "program.py", KEYRING=str(tmp_path / "keyring.json")) == "HUSH\n"
