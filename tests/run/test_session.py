"""What a session must be able to do is reported while planning, in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from kdsl.ingest.definition import Pipeline
from kdsl.ingest.run.batch import configure_session
from kdsl.run.session import (
    SessionError,
    available_cores,
    change_settings,
    check_python,
    check_session,
    get_setting,
    has_settings,
    problem_of_python,
    use_this_python,
)
from kdsl.spark_internals.arrow import dataframe_from_arrow
from kdsl.spark_internals.session import is_connect, java_session
from kdsl.spark_versions import pyspark_version
from kdsl.types import model as t

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LACKING = "which lacks kdsl, attrs, confluent_kafka, pyarrow"
PROGRAM = """
from pyspark.sql import SparkSession
from kdsl import Cluster, Col, Json, KafkaTable
from kdsl.errors import KdslError

class T(KafkaTable, topic="t", value=Json()):
    x: Col[int]

spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
try:
    T.read(spark, Cluster("127.0.0.1:1"))
except KdslError as e:
    print("told:", e)
"""


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a virtual environment without any package."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    return folder / "bin"


def test_a_session_whose_workers_lack_kdsl_is_refused_with_what_to_add(
    spark: SparkSession, bare: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = str(bare / "python")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(bare)
    monkeypatch.setattr(spark.sparkContext, "pythonExec", program)
    problem_of_python.cache_clear()

    with pytest.raises(SessionError) as raised:
        check_python(spark, "T")

    message = f"T: Spark runs {program!r} in its workers ({LACKING}), and the driver runs {sys.executable}; write"
    assert str(raised.value).startswith(message)
    assert 'write os.environ["PYSPARK_PYTHON"] = sys.executable before the session starts' in str(raised.value)


@pytest.mark.reliability
@pytest.mark.spark
def test_a_program_in_an_inactive_environment_learns_what_to_add(bare: Path) -> None:
    away = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH", "VIRTUAL_ENV")
    environment = {key: value for key, value in os.environ.items() if key not in away}
    environment |= {"PATH": f"{bare}{os.pathsep}{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    program = f"import sys; sys.path[:0] = {sys.path!r}\n{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=bare,
        env=environment,
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    message = f"T: Spark runs 'python3' in its workers ({LACKING}), and the driver runs {sys.executable}; write"
    assert f"told: {message}" in done.stdout, done.stderr[-3000:]
    assert 'write os.environ["PYSPARK_PYTHON"] = sys.executable before the session starts' in done.stdout


def test_what_keeps_a_python_from_running_the_tasks(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.chdir(bare)
    problem_of_python.cache_clear()

    assert problem_of_python(sys.executable) is None
    assert problem_of_python(str(bare / "python")) == LACKING
    assert problem_of_python("no-such-python") == "which does not exist"
    assert problem_of_python("/bin/false") == "which does not start"

    other = bare / "python2.6"
    other.write_text("#!/bin/sh\necho 2.6\n")
    other.chmod(0o755)
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert problem_of_python(str(other)) == f"Python 2.6, but the driver has {here}"


@pytest.mark.parametrize(("before", "after"), [(None, sys.executable), ("/opt/python", "/opt/python")])
def test_sessions_that_kdsl_starts_run_this_python_by_default(
    before: str | None, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", before or "")
    if before is None:
        monkeypatch.delenv("PYSPARK_PYTHON")

    use_this_python()

    assert os.environ["PYSPARK_PYTHON"] == after


def create_managed_session(shown: Mapping[str, str]) -> SparkSession:
    """A session of Spark Connect as a platform may subclass it: it has no JVM, and refuses all changes of settings."""
    pytest.importorskip("grpc_status", reason="pyspark's Connect client is not installed")
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    def refuse(name: str) -> NoReturn:
        raise PySparkException(f"[CONFIG_NOT_AVAILABLE] Configuration {name} is not available.")

    class Settings:
        def get(self, name: str, default: str | None = None) -> str | None:
            return shown[name] if name in shown else refuse(name)

        def set(self, name: str, value: str) -> None:
            refuse(f"{name} {value}")

        @property
        def getAll(self) -> dict[str, str]:
            return refuse("*")

    class Managed(ConnectSession):
        conf = Settings()  # type: ignore[assignment]
        version = pyspark_version()

        def __init__(self) -> None:
            """Connect to nothing."""

        def __del__(self) -> None:
            """Release nothing."""

    return Managed()  # type: ignore[return-value]


def test_a_create_managed_session_without_a_jvm_skips_what_it_does_not_allow_and_names_what_it_must() -> None:
    session = create_managed_session({"spark.a": "1"})

    assert is_connect(session)
    assert java_session(session) is None
    assert (get_setting(session, "spark.a"), get_setting(session, "spark.b", "2")) == ("1", "2")
    assert not has_settings(session, ["spark.a"])
    assert available_cores(session) == (os.cpu_count() or 1)
    check_session(session, "T", t.Row((t.Field("a", t.Int()),)))
    with change_settings(session, {"spark.c": "3"}, {"spark.a": "1"}, purpose="this"):
        pass
    with pytest.raises(
        SessionError, match=r"^the time zone of the ingestion needs .*\n    spark\.sql\.session\.timeZo"
    ):
        configure_session(session, Pipeline(time_zone="UTC"))
    with (
        pytest.raises(SessionError, match=r"^this needs the setting spark\.a=2, which this session does not allow"),
        change_settings(session, {}, {"spark.a": "2"}, purpose="this"),
    ):
        pytest.fail("a required setting is missing")


def test_a_dataframe_of_the_session_of_a_batch_leaves_the_program_its_active_session(spark: SparkSession) -> None:
    name = "spark.kdsl.test.of"
    of_batch = spark.newSession()
    spark.createDataFrame([], "a INT")  # which makes the session the active one, whatever other tests did
    of_batch.conf.set(name, "the batch")
    spark.conf.set(name, "the program")
    try:
        with ThreadPoolExecutor(4) as pool:  # a batch writes several tables at a time
            tables = [pa.table({"a": [1]})] * 40
            *_, rows = pool.map(lambda table: dataframe_from_arrow(of_batch, table), tables)

        assert rows.sparkSession is of_batch
        active = type(spark).getActiveSession()
        assert active is spark
        assert active.conf.get(name) == "the program"
        assert rows.selectExpr("a").collect() == [(1,)]
    finally:
        spark.conf.unset(name)
