"""What all tests share: one Spark session, one Kafka, and markers that follow from what a test asks for."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

from kdsl.plugins import forget_plugins
from kdsl.spark_versions import pyspark_version
from tests.class_archive import java_options, write_archive
from tests.installed_plugins import InstallPlugins, Plugins, write_metadata
from tests.python_workers.fork_server import fork_server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.connect import ConnectServer

ROOT = Path(__file__).parent.parent
LONGEST = ("tests/security/", "tests/typing/")

os.environ.pop("COLUMNS", None)  # a console keeps the width that it finds when it is made; tests say their own
# Brokers and sessions of tests live for seconds or minutes, too short to earn back the second compiler. Without it the
# code cache has 48 MB, which a Spark session fills; the JVM then sweeps the cache and compiles the same methods again.
JAVA_OPTIONS = os.environ.setdefault(
    "KDSL_TEST_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC"
)
os.environ["JDK_JAVA_OPTIONS"] = f"{JAVA_OPTIONS} {java_options()}"
_STREAMING = "org.apache.spark.sql.execution.streaming"
_RENAMES = "FileSystemBasedCheckpointFileManager"

# How long an example takes says how busy a machine is, and nothing of the code.
settings.register_profile(
    "kdsl", deadline=None, suppress_health_check={*settings().suppress_health_check, HealthCheck.too_slow}
)
settings.load_profile("kdsl")

# Installed, kdsl registers its plugin itself; in a bare checkout nobody does.
pytest_plugins = [] if entry_points(group="pytest11", name="kdsl") else ["kdsl.testing.pytest_plugin"]


def pytest_configure(config: pytest.Config) -> None:
    """Allow what older versions of PySpark do, and Python warns of.

    Before 4.2, PySpark leaves the sockets of its results to the garbage collector; 3.5 calls deprecated functions.
    """
    if pyspark_version().startswith(("3.", "4.0", "4.1")):
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
        config.addinivalue_line(
            "filterwarnings", "ignore:Exception ignored in. <socket:pytest.PytestUnraisableExceptionWarning"
        )
    if pyspark_version().startswith("3."):
        for message in ("distutils Version classes are", "is_datetime64tz_dtype is", "is_categorical_dtype is"):
            config.addinivalue_line("filterwarnings", f"ignore:{message} deprecated:DeprecationWarning")


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
        for marker in item.iter_markers("since"):
            if not marker.args[0].is_in(pyspark_version()):
                item.add_marker(pytest.mark.skip(f"{marker.args[0].name} needs Spark {marker.args[0].since} or newer"))
    on_spark, on_kafka = (
        Counter(item.path for item in items if item.get_closest_marker(name)) for name in ("spark", "kafka")
    )
    items.sort(key=lambda item: (not item.nodeid.startswith(LONGEST), -on_spark[item.path], -on_kafka[item.path]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let one worker run all tests in Spark Connect, whose server starts slowly; the others go file by file."""
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class ByFileOrServer(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file: str = super()._split_scope(nodeid)
            return "test_connect.py" if file.endswith("/test_connect.py") else file

    return ByFileOrServer(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture
def install_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InstallPlugins]:
    """Installs a package with plug-ins; its modules may be in the folder of the test."""

    def install(plugins: Plugins) -> None:
        write_metadata(tmp_path, plugins)
        monkeypatch.syspath_prepend(str(tmp_path))
        forget_plugins()

    yield install
    forget_plugins()


@pytest.fixture(scope="session")
def python_workers() -> Iterator[None]:
    """Lets all Python processes that Spark starts for the tests start fast, also those of other Spark sessions."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    path = [str(ROOT / "tests/python_workers"), str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH")]
    os.environ["PYTHONPATH"] = os.pathsep.join(folder for folder in path if folder)  # a bare checkout works, too
    with fork_server() as address:
        os.environ["KDSL_TEST_FORK_SERVER"] = address
        yield
        del os.environ["KDSL_TEST_FORK_SERVER"]


def _package() -> str:
    """The package of Spark's checkpoint file managers, which Spark 4.1 has moved."""
    return _STREAMING if pyspark_version().startswith(("3.", "4.0")) else f"{_STREAMING}.checkpointing"


@contextmanager
def remember_jvm_names() -> Iterator[None]:
    """Look up the names of the JVM's classes and packages once.

    Every `F.col` asks for some, and the JVM searches all jars of its class path for each name that is not a class.
    """
    from py4j.java_gateway import JavaPackage, JVMView  # type: ignore[import-untyped]

    with pytest.MonkeyPatch.context() as patch:
        for owner in (JVMView, JavaPackage):
            patch.setattr(owner, "__getattr__", _remember(owner.__getattr__))
        yield


def _remember(look_up: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    from py4j.java_gateway import JavaPackage

    def get(self: Any, name: str) -> Any:
        known = vars(self).setdefault("_kdsl_known", {})
        if name in known:
            return known[name]
        member = look_up(self, name)
        if name.islower() or not isinstance(member, JavaPackage):  # a class may come with a jar that is added later
            known[name] = member
        return member

    return get


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, python_workers: None) -> Iterator[SparkSession]:
    """A Spark session with two cores, as small and as quiet as possible, in UTC; ANSI mode is Spark's default (on)."""
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    write_archive()
    os.environ["JDK_JAVA_OPTIONS"] = f"{JAVA_OPTIONS} {java_options()}"
    session = (
        SparkSession.builder.master("local[2]")
        .appName("kdsl tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.log.level", "ERROR")
        .config("spark.driver.memory", "2g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
        .config("spark.sql.streaming.metricsEnabled", "false")
        # Spark's default starts a process of `readlink` four times for each file of a checkpoint in a local folder.
        .config("spark.sql.streaming.checkpointFileManagerClass", f"{_package()}.{_RENAMES}")
        .config("spark.databricks.delta.snapshotPartitions", "2")  # 50 tasks for each look at a log of a few files
        .config(map=json.loads(os.environ.get("KDSL_TEST_SPARK", "{}")))  # a cluster's, to run the same tests there
        .getOrCreate()
    )
    with remember_jvm_names():
        yield session
    session.stop()


@pytest.fixture(scope="session")
def connect(python_workers: None) -> Iterator[ConnectServer]:
    """A Spark Connect server, on which programs run in processes of their own."""
    pytest.importorskip("grpc_status", reason="pyspark's Connect client is not installed")
    from tests.connect import ConnectServer

    with ConnectServer() as server:
        yield server
