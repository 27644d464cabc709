"""Files that a page shows: code after a paragraph that begins with the name of the file; and programs that use them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.installed_plugins import write_metadata
from tests.pages import ROOT

RUN_FILES = """\
from pathlib import Path

from pyspark.sql import SparkSession

from kdsl.ddl.script_reader import read_script
from kdsl.ingest import Ingestion
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, run_script

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
if Path("table.py").exists():
    exec(Path("table.py").read_text())
ingestion, problems = Ingestion.read(Path("ingestion.yaml").read_text())
assert not problems, problems
assert ingestion.problems() == (), ingestion.problems()
print(ingestion.explain())
ingestion.run(spark, "checkpoint", once=True).awaitTermination()
run_script(plan_script(read_script(Path("script.sql").read_text())), spark, RunOptions(once=True, checkpoint="copies"))
spark.stop()
"""
"""A program that runs ``table.py``, if there is one, ``ingestion.yaml`` and ``script.sql``."""


def section_of(page: str, heading: str) -> str:
    """The text of a section of a page in docs/, up to the next heading of its level."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


_FILE = re.compile(r"^`([\w.]+)`[^\n]*(?:\n[^`\n][^\n]*)*\n\n```\w+\n(.*?)```", re.MULTILINE | re.DOTALL)


def install_package(section: str, folder: Path) -> None:
    """Write the files of a section into a folder, with the metadata of its entry points, as an installation does."""
    files = dict(_FILE.findall(section))
    for name, code in files.items():
        (folder / name).write_text(code, encoding="utf-8")
    write_metadata(folder, tomllib.loads(files["pyproject.toml"])["project"]["entry-points"])


def other_code(section: str, language: str) -> str:
    """The last code of a section in one language."""
    return str(re.findall(rf"```{language}\n(.*?)```", section, re.DOTALL)[-1])


def run_python(folder: Path, *arguments: str, status: int = 0, **variables: str) -> str:
    """The output of a Python program in a folder, which ends with a status; it can import kdsl and the folder."""
    path = os.pathsep.join([str(folder), str(ROOT), str(ROOT / "formats")])
    completed = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, **variables, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert completed.returncode == status, f"{completed.stdout}\n{completed.stderr[-4000:]}"
    return completed.stdout


def run_tests(folder: Path, file: str, *, status: int = 0) -> str:
    """The output of pytest for a file of tests in a folder, which ends with a status."""
    return run_python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", file, status=status)


def count_passed(output: str) -> int:
    """How many tests of pytest passed."""
    return int(re.findall(r"(\d+) passed", output)[-1])
