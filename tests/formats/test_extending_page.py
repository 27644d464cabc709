"""The format that docs/extending.md writes, in a package outside of the checkout: its contract and its use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kdsl.testing import LocalKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.page_files import install_package, other_code, section_of
from tests.pages import ROOT

SECTION = section_of("extending.md", "A format")
PROGRAM = """\
from pathlib import Path

from pyspark.sql import SparkSession

from kdsl.ddl.script_reader import read_script
from kdsl.ingest import Ingestion
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, run_script

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
exec(Path("table.py").read_text())
ingestion, problems = Ingestion.read(Path("ingestion.yaml").read_text())
assert not problems, problems
assert ingestion.problems() == (), ingestion.problems()
ingestion.run(spark, "checkpoint", once=True).awaitTermination()
run_script(plan_script(read_script(Path("script.sql").read_text())), spark, RunOptions(once=True))
spark.stop()
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The folder with the installed package."""
    install_package(SECTION, tmp_path)
    return tmp_path


def run(folder: Path, *arguments: str, status: int = 0) -> str:
    """The output of a Python program in a folder, which ends with a status; it can import kdsl and the folder."""
    path = os.pathsep.join([str(folder), str(ROOT), str(ROOT / "formats")])
    completed = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == status, f"{completed.stdout}\n{completed.stderr[-4000:]}"
    return completed.stdout


def test_the_format_passes_its_contract(package: Path) -> None:
    output = run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_pairs.py")

    assert int(output.rpartition(" passed")[0].rpartition("\n")[2]) > 60


@pytest.mark.parametrize(
    ("right", "wrong", "failure"),
    [
        ("list(bad))\n        structs", "[])\n        structs", "test_a_bad_message_is_reported_by_its_index"),
        ('decides="is_lenient",', "", "no option of the format decides is_lenient"),
        ("return Observer(self)", "return None", "the format declares ingests, and has no observer"),
        ("return True  # columns", "raise ValueError  # columns", "test_a_prunable_format"),
    ],
)
def test_the_contract_finds_a_fault(package: Path, right: str, wrong: str, failure: str) -> None:
    code = (package / "kdsl_pairs.py").read_text()
    assert right in code
    (package / "kdsl_pairs.py").write_text(code.replace(right, wrong))

    assert failure in run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_pairs.py", status=1)


def test_the_format_works_in_a_table_an_ingestion_and_a_script(
    package: Path, kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic("clicks")
    for name, language in (("table.py", "python"), ("ingestion.yaml", "yaml"), ("script.sql", "sql")):
        code = other_code(SECTION, language).replace("localhost:9092", kdsl_kafka.bootstrap_servers)
        (package / name).write_text(code.replace('"clicks"', f'"{topic}"').replace("topic: clicks", f"topic: {topic}")
                                    .replace("'clicks'", f"'{topic}'"))  # fmt: skip
    (package / "program.py").write_text(PROGRAM)
    output = run(package, "program.py")

    assert "|  7| Ann|" in output
    assert "|  8|NULL|" in output
    assert output.count("Ann") == 2, "of the table and of the ingestion"
    assert sorted(line for line in output.splitlines() if line.startswith("+I[10")) == ["+I[107, ANN]", "+I[108, null]"]
