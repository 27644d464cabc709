"""What all tests share: one Spark session, one Kafka, and markers that follow from what a test asks for."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.connect import ConnectServer

ROOT = Path(__file__).parent.parent
LONGEST = ("tests/security/", "tests/typing/")

os.environ.pop("COLUMNS", None)  # a console keeps the width that it finds when it is made; tests say their own
# Brokers and sessions of tests live for seconds or minutes: what the second compiler makes of them is not earned back.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

# How long an example takes says how busy a machine is, and nothing of the code.
settings.register_profile(
    "kdsl", deadline=None, suppress_health_check={*settings().suppress_health_check, HealthCheck.too_slow}
)
settings.load_profile("kdsl")

# Installed, kdsl registers its plugin itself; in a bare checkout nobody does.
pytest_plugins = [] if entry_points(group="pytest11", name="kdsl") else ["kdsl.testing.pytest_plugin"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a JVM or a broker by the fixtures they use, and let what takes long go first.

    Two workers share the files in this order. What is long and comes last would be waited for: the longest files are
    named, the others go by how many of their tests need Spark, and what needs nothing fills up the end.
    """
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures or "connect" in fixtures:
            item.add_marker("spark")
        if "kdsl_kafka" in fixtures:
            item.add_marker("kafka")
        if "kdsl_registry" in fixtures:
            item.add_marker("registry")
    on_spark, on_kafka = (
        Counter(item.path for item in items if item.get_closest_marker(name)) for name in ("spark", "kafka")
    )
    items.sort(key=lambda item: (not item.nodeid.startswith(LONGEST), -on_spark[item.path], -on_kafka[item.path]))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session with two cores, as small and as quiet as possible, in UTC; ANSI mode is Spark's default (on)."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    path = [str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(folder for folder in path if folder)  # a bare checkout works, too
    session = (
        SparkSession.builder.master("local[2]")
        .appName("kdsl tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.streaming.metricsEnabled", "false")
        .config(map=json.loads(os.environ.get("KDSL_TEST_SPARK", "{}")))  # a cluster's, to run the same tests there
        .getOrCreate()
    )
    yield session
    session.stop()


@pytest.fixture(scope="session")
def connect() -> Iterator[ConnectServer]:
    """A Spark Connect server, on which programs run in processes of their own."""
    pytest.importorskip("grpc_status", reason="pyspark's Connect client is not installed")
    from tests.connect import ConnectServer

    with ConnectServer() as server:
        yield server
