"""The wheel in empty environments: the first read of docs/install.md beside each PySpark, and what works without."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pyspark
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
        # The extra has neither Spark 3 nor 4.3: there, kdsl is beside a PySpark that was installed, with its pandas.
        beside = {"3": ("", "pandas<3", "setuptools"), "4.3": ("", "pandas")}
        extras, *more = next((how for start, how in beside.items() if version.startswith(f"{start}.")), ("[spark]",))
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
def test_the_first_read_from_a_clone(kdsl_kafka: RunningKafka, tmp_path: Path) -> None:
    """As the page says: a clone is installed with its extras into an empty environment, and the program runs."""
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True, timeout=120)
    kdsl_kafka.create_topic("orders")
    try:
        kdsl_kafka.produce("orders", '{"order_id": "a1", "amount": 9.5}', '{"order_id": "a2", "amount": 1.25}')
        environment = Environment(tmp_path, clone, "[spark,cli]")
        (tmp_path / "first_read.py").write_text(program())

        variables = {
            "KDSL_BOOTSTRAP_SERVERS": kdsl_kafka.bootstrap_servers,
            "PYSPARK_PYTHON": str(environment.python),
        }
        shown = environment.run("first_read.py", **variables)
        assert re.findall(r"\|\s*(a\d)\|\s*([\d.]+)\|", shown) == [("a2", "1.25"), ("a1", "9.5")]
        assert environment.run("-m", "kdsl", "check", "first_read.py", **variables).endswith("no problems\n")
    finally:
        kdsl_kafka.delete_topic("orders")


@pytest.mark.reliability
def test_the_other_project_of_the_same_name_is_noticed(wheel: Path, tmp_path: Path) -> None:
    """PyPI's ``kdsl`` before: the message; what it advises: kdsl works."""
    environment = Environment(tmp_path, wheel, "[cli]", "kdsl==1.22.4")
    says = "try:\n    import kdsl\nexcept ImportError as e:\n    print(e)\nelse:\n    print(kdsl.__version__)"
    message = environment.run("-c", says)
    assert message.startswith("the distribution 'kdsl' 1.22.4, another project, is installed in ")
    advice = re.search(r"run: pip (uninstall --yes [\w -]+), then install kdsl-kafka again", message)
    assert advice is not None

    environment.run("-m", "pip", *advice[1].split())
    environment.run("-m", "pip", "install", "--quiet", f"{wheel}[cli]")
    assert environment.run("-c", says) == "0.1.0\n"


@pytest.mark.reliability
def test_without_pyspark(wheel: Path, tmp_path: Path) -> None:
    environment = Environment(tmp_path, wheel, "[cli]")
    table, _, _ = program().partition("if __name__ ")
    (tmp_path / "orders.py").write_text(table.replace("from pyspark.sql import SparkSession\n", ""))

    assert "pyspark" not in environment.run("-m", "pip", "list")
    assert environment.run("-m", "kdsl", "check", "orders.py") == "1 table checked: no problems\n"
    assert "Orders" in environment.run("-m", "kdsl", "plan", "orders.py")
    says = "from orders import Orders\ntry:\n    Orders.amount > 1\nexcept Exception as e:\n    print(e)"
    assert environment.run("-c", says) == (
        "an expression over Orders.amount needs the package pyspark; install 'kdsl-kafka[spark]'\n"
    )


PLATFORM = """
import sys

from pyspark.sql import SparkSession

from kdsl import Cluster, Col, Json, KafkaTable, PrimaryKey, UpsertTable


class Orders(KafkaTable, topic="orders-of-a-platform", value=Json(), startup="earliest"):
    order_id: Col[str]


class Copy(KafkaTable, topic="copies-of-a-platform", value=Json(), startup="earliest"):
    order_id: Col[str]


class Users(UpsertTable, topic="users", key=Json(), value=Json()):
    user_id: PrimaryKey[int]


spark, shop, checkpoint = SparkSession.builder.getOrCreate(), Cluster.from_env(), sys.argv[1]
Orders.write(Orders.rows([Orders(order_id="a"), Orders(order_id="b")]), shop)
copied = Copy.write_stream(Orders.read_stream(spark, shop), shop, checkpoint=checkpoint, trigger={"availableNow": True})
copied.awaitTermination()
print(sorted(row.order_id for row in Copy.read(spark, shop).collect()))
for needs_pandas in (lambda: Users.snapshot(spark, shop), lambda: Orders.decode(Orders.encode(Copy.read(spark, shop)))):
    try:
        needs_pandas()
    except Exception as e:
        print(e)
"""


@pytest.mark.reliability
def test_spark_brings_its_pyspark(kdsl_kafka: RunningKafka, wheel: Path, tmp_path: Path) -> None:
    """As distributions of Spark and platforms do: spark-submit adds PySpark to a Python that has only kdsl."""
    environment = Environment(tmp_path, wheel, "")
    assert "pyspark" not in environment.run("-m", "pip", "list")
    for name in ("orders-of-a-platform", "copies-of-a-platform"):
        kdsl_kafka.create_topic(name)
    (tmp_path / "platform_job.py").write_text(PLATFORM)
    spark = Path(pyspark.__file__).parent
    command = [spark / "bin" / "spark-submit", "--master", "local[2]", "platform_job.py", tmp_path / "checkpoint"]
    variables = {
        "SPARK_HOME": str(spark),
        "PYSPARK_PYTHON": str(environment.python),
        "KDSL_BOOTSTRAP_SERVERS": kdsl_kafka.bootstrap_servers,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    done = subprocess.run(
        list(map(str, command)),
        cwd=tmp_path,
        env={**{name: os.environ[name] for name in ("PATH", "HOME", "JAVA_HOME") if name in os.environ}, **variables},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]

    advice = "install 'kdsl-kafka[spark]', or the package alone where a platform brings PySpark"
    assert done.stdout.splitlines() == [
        "['a', 'b']",
        f"a read with Spark needs the package pandas; {advice}",
        f"encoding a DataFrame needs the package pandas; {advice}",
    ]
