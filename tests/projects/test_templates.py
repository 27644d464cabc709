"""Each template passes its own checks and tests as it is created."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kdsl.projects.create import Names, Template, create_project
from kdsl.testing import RunningKafka

ROOT = Path(__file__).parents[2]
DECLARATIONS = {
    Template.JOB: ("shop_orders/tables.py",),
    Template.INGESTION: ("ingestion.yaml", "--vars", "local.properties"),
}


def run(folder: Path, *arguments: str, **variables: str) -> str:
    """Run a module of this Python in a project; what it prints."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    paths = [os.environ.get("PYTHONPATH", ""), str(ROOT), str(ROOT / "formats")]
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=folder,
        env={**environment, "PYTHONPATH": os.pathsep.join(paths), "SPARK_LOCAL_IP": "127.0.0.1", **variables},
        capture_output=True,
        text=True,
        timeout=580,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout[-5000:]}{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.parametrize("template", Template)
@pytest.mark.parametrize("table", ["Orders", "OrdersOfTheWholesale"])
def test_the_files_are_formatted_and_linted(tmp_path: Path, template: Template, table: str) -> None:
    create_project(tmp_path, template, Names("shop-orders", "orders", table))

    run(tmp_path, "ruff", "format", "--check", ".")
    run(tmp_path, "ruff", "check", ".")
    run(tmp_path, "check_jsonschema", "--builtin-schema", "vendor.github-workflows", ".github/workflows/check.yml")


@pytest.fixture(scope="module")
def mypy_cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One for all projects: the first run looks at all that kdsl imports."""
    return str(tmp_path_factory.mktemp("mypy"))


@pytest.mark.parametrize("template", Template)
def test_the_types_and_the_declarations_are_correct(tmp_path: Path, mypy_cache: str, template: Template) -> None:
    create_project(tmp_path, template, Names("shop-orders", "orders", "Orders"))

    run(tmp_path, "mypy", "--strict", MYPY_CACHE_DIR=mypy_cache)
    if template in DECLARATIONS:  # a pipeline's can only be imported by Spark's program; its test makes a dry run
        run(tmp_path, "kdsl", "check", *DECLARATIONS[template])
    if template is not Template.INGESTION:  # whose case needs Spark
        assert "1 case: 1 passed" in run(tmp_path, "kdsl", "test")


@pytest.mark.spark
@pytest.mark.parametrize(
    "template",
    [
        Template.JOB,
        pytest.param(Template.PIPELINE, marks=pytest.mark.reliability),
        pytest.param(Template.INGESTION, marks=pytest.mark.reliability),
    ],
)
def test_the_tests_pass(tmp_path: Path, kdsl_kafka: RunningKafka, python_workers: None, template: Template) -> None:
    """They start Spark, whose Python processes are those of the other tests, and use the Kafka of this run."""
    create_project(tmp_path, template, Names("shop-orders", "orders", "Orders"))

    output = run(tmp_path, "pytest", "-q", KDSL_TEST_BOOTSTRAP=kdsl_kafka.bootstrap_servers)
    assert " passed" in output
    assert "skipped" not in output
    if template is Template.INGESTION:
        assert "1 case: 1 passed" in run(tmp_path, "kdsl", "test")
