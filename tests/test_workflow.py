"""The workflow that runs the tests of changes: it is valid, and runs what the Makefile has, on tested versions."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from itertools import takewhile
from pathlib import Path
from typing import Any

import pyspark
import yaml

from kdsl.spark_versions import TESTED

ROOT = Path(__file__).parents[1]
WORKFLOW = ROOT / ".github" / "workflows" / "ci.yml"
JOBS: dict[str, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))["jobs"]


def validate(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_the_workflow_is_valid() -> None:
    run = validate(WORKFLOW)

    assert run.returncode == 0, run.stdout + run.stderr


def test_an_invalid_workflow_is_detected(tmp_path: Path) -> None:
    wrong = tmp_path / "ci.yml"
    wrong.write_text(WORKFLOW.read_text(encoding="utf-8").replace("runs-on:", "run-on:"), encoding="utf-8")

    assert validate(wrong).returncode == 1


def test_its_commands_exist() -> None:
    commands = [step["run"] for job in JOBS.values() for step in job["steps"] if "run" in step]
    targets = {match[1] for command in commands if (match := re.match(r"make ([a-z-]+)", command))}
    scripts = [command for command in commands if command.startswith(".ci/")]

    assert targets == {"check", "dist", "test-fast", "test-spark"}
    assert targets <= set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert [(ROOT / script).is_file() for script in scripts] == [True]


def test_it_runs_each_python_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    named = [name.rpartition(" ")[2] for name in project["classifiers"] if re.search(r":: 3\.\d+$", name)]

    assert JOBS["python"]["strategy"]["matrix"]["python-version"] == named
    assert project["requires-python"] == f">={named[0]}"


def test_it_runs_the_newest_tested_version_of_each_older_spark() -> None:
    newest = {tested.minor: tested.version for tested in TESTED}
    older = takewhile(lambda minor: not pyspark.__version__.startswith(f"{minor}."), newest)

    assert JOBS["spark"]["strategy"]["matrix"]["version"] == [newest[minor] for minor in older]
