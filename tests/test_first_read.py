"""The wheel in empty environments: the first read of docs/install.md beside each PySpark, and what works without."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kdsl.spark_versions import TESTED
from kdsl.testing import RunningKafka
from tests.pages import code_of

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "install.md"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as users install it."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=300)
    (path,) = folder.glob("*.whl")
    return path


class Environment:
    """A virtual environment with the wheel, away from the sources."""

    def __init__(self, folder: Path, wheel: Path, extras: str, *packages: str) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=120)
        self.python = folder / "venv" / "bin" / "python"
        self.run("-m", "pip", "install", "--quiet", f"{wheel}{extras}", *packages)

    def run(self, *arguments: str, **variables: str) -> str:
        """Run the environment's Python; what it prints."""
        names = ("PYTHONPATH", "SPARK_HOME", "KDSL_TEST_FORK_SERVER", "PYSPARK_PYTHON")
        environment = {name: value for name, value in os.environ.items() if name not in names}
        done = subprocess.run(
            [str(self.python), *arguments],
            cwd=self.folder,
            env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", **variables},
            capture_output=True,
            text=True,
            timeout=580,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout


def program() -> str:
    """The program of the page."""
    return code_of(PAGE)


@pytest.mark.reliability
@pytest.mark.parametrize("version", [tested.version for tested in TESTED if tested.version != "4.2.0"])
def test_the_first_read_by_the_page_alone(kdsl_kafka: RunningKafka, wheel: Path, tmp_path: Path, version: str) -> None:
    kdsl_kafka.create_topic("orders")
    try:
        kdsl_kafka.produce("orders", '{"order_id": "a1", "amount": 9.5}', '{"order_id": "a2", "amount": 1.25}')
        # The extra has no Spark 3: there, kdsl is beside the PySpark of a platform, with the pandas that this needs.
        extras, *more = ("", "pandas<3", "setuptools") if version.startswith("3.") else ("[spark]",)
        environment = Environment(tmp_path, wheel, extras, f"pyspark=={version}", *more)
        (tmp_path / "first_read.py").write_text(program())

        shown = environment.run(
            "first_read.py",
            KDSL_BOOTSTRAP_SERVERS=kdsl_kafka.bootstrap_servers,
            PYSPARK_PYTHON=str(environment.python),
        )
        assert re.findall(r"\|\s*(a\d)\|\s*([\d.]+)\|", shown) == [("a2", "1.25"), ("a1", "9.5")]
    finally:
        kdsl_kafka.delete_topic("orders")


@pytest.mark.reliability
def test_without_pyspark(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path, wheel, "[cli]")
    table, _, _ = program().partition("spark = ")
    (tmp_path / "orders.py").write_text(table.replace("from pyspark.sql import SparkSession\n", ""))

    assert "pyspark" not in environment.run("-m", "pip", "list")
    assert environment.run("-m", "kdsl", "check", "orders.py") == "1 table checked: no problems\n"
    assert "Orders" in environment.run("-m", "kdsl", "plan", "orders.py")
    says = "from orders import Orders\ntry:\n    Orders.amount > 1\nexcept Exception as e:\n    print(e)"
    assert environment.run("-c", says) == (
        "an expression over Orders.amount needs the package pyspark; install 'kdsl[spark]'\n"
    )
