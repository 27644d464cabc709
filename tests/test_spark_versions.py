"""Which versions of Spark kdsl supports; others are refused in a sentence that names the supported ones."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kdsl.cluster import Cluster
from kdsl.ddl.load import sql
from kdsl.declare.connector import Transport
from kdsl.declare.definition import TableDef
from kdsl.diagnostics.doctor import Finding, examine
from kdsl.errors import ResolveError
from kdsl.plan.build import read_plan
from kdsl.resolve import resolve
from kdsl.resolve.transport import transport_note
from kdsl.run.session import check_spark
from kdsl.spark_versions import (
    BOUNDED_STREAMS,
    INSTALLED_RANGE,
    PYTHON_SOURCES,
    READ_LIMITS,
    STREAM_WRITER,
    TESTED,
    SparkVersionError,
    pyspark_version,
    require,
    spark_version,
)

ROOT = Path(__file__).parents[1]
SENTENCE = "kdsl supports Spark 3.5, 4.0, 4.1, 4.2 and 4.3, and PySpark is {}; install 'pyspark>=4.0,<4.3'"


def test_pip_takes_the_versions_that_the_table_supports() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (developed_with,) = (d for d in project["dependency-groups"]["dev"] if isinstance(d, str) and "pyspark" in d)

    assert f"pyspark{INSTALLED_RANGE}" in project["project"]["optional-dependencies"]["spark"]
    assert developed_with.partition("==")[2] in [tested.version for tested in TESTED]


@pytest.mark.parametrize(
    ("version", "tested"),
    [
        ("3.5.2", "3.5.9"),
        ("3.5.7-amzn-0", "3.5.7"),
        ("4.0.2", "4.0.5"),
        ("4.1.1", "4.1.1"),
        ("4.2.0", "4.2.0"),
        ("4.2.1", "4.2.1"),
        ("4.2.9", "4.2.1"),
        ("4.3.0", "4.3.0"),
        ("4.3.1-amzn-0", "4.3.0"),
        ("4.2.1.dev0", "4.2.1"),
    ],
)
def test_a_patch_release_that_is_not_tested_counts_as_the_newest_that_is(version: str, tested: str) -> None:
    result = spark_version(version)

    assert result is not None
    assert result.version == tested


@pytest.mark.parametrize("version", ["3.4.4", "4.20.0", "4.4.0", "5.2.0", "4", ""])
def test_other_versions_are_not_supported(version: str) -> None:
    assert spark_version(version) is None


def test_a_feature_is_in_its_version_and_later_ones() -> None:
    assert [v for v in ("3.5.7", "4.0.1", "4.1.1", "4.2.0", "4.10.0") if READ_LIMITS.is_in(v)] == ["4.2.0", "4.10.0"]
    assert STREAM_WRITER.is_in("4.1.1-amzn-0")
    assert not STREAM_WRITER.is_in("4.0.9")


def test_what_a_version_lacks_is_refused_with_the_version_that_has_it() -> None:
    require(BOUNDED_STREAMS, "4.2.0", "Orders")
    with pytest.raises(SparkVersionError) as raised:
        require(BOUNDED_STREAMS, "4.1.1", "Orders")
    assert str(raised.value) == (
        "Orders: a stream with a declared end (`bounded=`, `scan.bounded.mode`) needs Spark 4.2 or newer, and this is "
        "4.1.1"
    )


class TestTransport:
    """A PySpark without data sources in Python has one transport only, which tables then use by themselves."""

    def table(self, **options: str) -> TableDef:
        listed = "".join(f", '{name}' = '{text}'" for name, text in options.items())
        text = f"CREATE TABLE t (id INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json'{listed})"
        return sql(text).definition

    def test_it_is_chosen_without_a_declaration(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pyspark.version.__version__", "4.0.1")
        assert read_plan(resolve(self.table(), "read")).transport == "librdkafka"
        monkeypatch.setattr("pyspark.version.__version__", "3.5.7")

        assert read_plan(resolve(self.table(), "read")).transport == "jvm"
        assert read_plan(resolve(self.table(transport="librdkafka"), "read")).transport == "librdkafka"
        assert transport_note(self.table()) == (
            "t uses Spark's own Kafka connector ('transport' = 'jvm'), because the installed PySpark is older than 4.0 "
            "and has no data sources in Python"
        )

    def test_what_it_lacks_names_the_spark_that_has_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        table = self.table(**{"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": "t"})
        monkeypatch.setattr("pyspark.version.__version__", "4.0.1")
        resolve(table, "write")
        monkeypatch.setattr("pyspark.version.__version__", "3.5.7")

        with pytest.raises(ResolveError) as raised:
            resolve(table, "write")
        (problem,) = raised.value.problems
        assert problem.message == (
            "'sink.delivery-guarantee' = 'exactly-once' does not work with the transport 'jvm', which PySpark before "
            "4.0 needs: Spark's sink does not support transactions"
        )
        assert problem.fix == "use Spark 4.0 or newer, or write 'sink.delivery-guarantee' = 'at-least-once'"

    def test_a_declared_one_is_refused_with_what_to_write_instead(self) -> None:
        with pytest.raises(SparkVersionError) as raised:
            require(PYTHON_SOURCES, "3.5.7", "t")
        assert str(raised.value) == (
            "t: the transport `librdkafka` (and the data source `kdsl`) needs Spark 4.0 or newer, and this is 3.5.7; "
            "write transport='jvm' ('transport' = 'jvm'), or leave it out"
        )

    def test_the_version_is_read_without_importing_pyspark(self) -> None:
        code = (
            "import sys\nfrom kdsl.spark_versions import PYTHON_SOURCES, _read_installed_version, is_installed\n"
            "print(is_installed(PYTHON_SOURCES), _read_installed_version(), 'pyspark' in sys.modules)"
        )
        path = os.pathsep.join([str(ROOT), str(ROOT / "formats"), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

        assert done.stdout == f"{PYTHON_SOURCES.is_in(pyspark_version())} {pyspark_version()} False\n"


def session_of(version: str) -> Any:
    """What stands for a session of another version: a second Spark beside that of the tests cannot run here."""
    return SimpleNamespace(version=version)


@pytest.mark.parametrize("version", ["3.4.4", "4.4.0"])
def test_an_unsupported_pyspark_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setattr("pyspark.version.__version__", version)

    with pytest.raises(SparkVersionError) as raised:
        check_spark(session_of(version))
    assert str(raised.value) == SENTENCE.format(version)


def test_an_unsupported_spark_below_a_supported_pyspark_is_refused() -> None:
    check_spark(session_of(TESTED[0].version))
    with pytest.raises(SparkVersionError) as raised:
        check_spark(session_of("3.4.4"))
    assert str(raised.value) == (
        "kdsl supports Spark 3.5, 4.0, 4.1, 4.2 and 4.3, and the session's JVM is 3.4.4; see the variable SPARK_HOME"
    )


class TestDoctor:
    def finding(self, transport: Transport = "librdkafka") -> Finding:
        table = sql(
            "CREATE TABLE t (id INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json', "
            f"'transport' = '{transport}')"
        )
        plan = read_plan(resolve(table.definition, "read"))
        (result,) = (f for f in examine(Cluster("127.0.0.1:1"), [plan]) if f.check == "Spark")
        return result

    def test_a_tested_version_is_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pyspark.version.__version__", "4.3.0")

        assert self.finding() == Finding("Spark", "ok", "kdsl is tested with 4.3.0")

    def test_the_jars_that_a_table_needs_are_reported(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pyspark.version.__version__", "4.3.0")

        assert self.finding("jvm").message.startswith(
            "kdsl is tested with 4.3.0, the transport jvm with org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
        )

    def test_it_warns_of_a_patch_release_that_is_not_tested(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pyspark.version.__version__", "4.2.9")
        result = self.finding()

        assert (result.state, result.message) == ("warning", "kdsl supports 4.2.9, but is tested with 4.2.1")

    def test_an_unsupported_version_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pyspark.version.__version__", "3.4.4")
        result = self.finding()

        assert result.state == "error"
        assert f"{result.message}; {result.fix}" == SENTENCE.format("3.4.4")

    def test_it_reports_the_jars_for_scala_of_spark_3_5(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("pyspark.version.__version__", "3.5.7")

        assert self.finding("jvm").message.startswith(
            "kdsl is tested with 3.5.7, the transport jvm with org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7"
        )


OLD = "3.4.4"
TABLE = """
from kdsl import Cluster, Col, Json, KafkaTable, KdslError


class Orders(KafkaTable, topic="orders", value=Json()):
    id: Col[int]
"""
PROGRAM = (
    TABLE
    + """
import pyspark
from pyspark.sql import SparkSession

cluster = Cluster("127.0.0.1:1")
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
print("Spark", spark.version)
for use in (
    lambda: Orders.read(spark, cluster),
    lambda: Orders.read_stream(spark, cluster),
    lambda: Orders.write(spark.range(1), cluster),
    lambda: Orders.decode(spark.range(1)),
):
    try:
        use()
    except KdslError as e:
        print(e)
"""
)


@pytest.mark.reliability
@pytest.mark.skipif(sys.version_info >= (3, 13), reason="that PySpark cannot be imported by Python 3.13")
def test_a_real_older_spark_is_refused_at_its_first_use(tmp_path: Path) -> None:
    """Tables are declared, checked and planned with it, and doctor tells its version."""
    older, file = tmp_path / "older", tmp_path / "orders.py"
    file.write_text(TABLE, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(older), f"pyspark=={OLD}"]
    subprocess.run(pip, check=True, timeout=580)
    path = [str(older), str(ROOT), str(ROOT / "formats")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("SPARK_HOME", None)

    def run(*arguments: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.stdout, done.stderr[-3000:]
        return done.stdout.splitlines()

    assert run("-c", PROGRAM) == [f"Spark {OLD}", *[SENTENCE.format(OLD)] * 4]
    assert run("-m", "kdsl", "check", str(file))[-1] == "1 table checked: no problems"
    doctor = run("-m", "kdsl", "doctor", "--bootstrap", "127.0.0.1:1")
    assert f"pyspark {OLD}" in doctor[0]
    assert doctor[1] == f"error   Spark: {SENTENCE.format(OLD).partition(';')[0]}"
