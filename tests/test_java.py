from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kdsl.cli.run import session
from kdsl.diagnostics.doctor.examine import _check_programs
from kdsl.java import find_java, java_version
from kdsl.run.session import start_local_session
from kdsl.spark_versions import oldest_java
from kdsl.testing import JavaError


def _java(folder: Path, version_line: str, code: int = 0) -> Path:
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{version_line}' >&2\nexit {code}\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('java version "1.8.0_412"', 8),
        ('openjdk version "25-ea" 2025-09-16', 25),
    ],
)
def test_the_major_version_is_read(tmp_path: Path, line: str, version: int) -> None:
    assert java_version(_java(tmp_path, line)) == version


def test_java_home_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _java(tmp_path, 'openjdk version "21.0.1" 2023-10-17')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    assert find_java() == program


def test_an_old_java_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = _java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(JavaError, match=re.escape(f"Kafka needs Java 17 or newer, but {program} is Java 11; install")):
        find_java()


def test_a_missing_java_is_reported_in_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(JavaError, match="Kafka needs Java, and no 'java' was found on the PATH; install a JDK 17"):
        find_java()


def test_a_java_home_without_java_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(JavaError, match=r"JAVA_HOME is .* but there is no bin/java in it"):
        find_java()


def test_the_message_of_a_java_stub_is_quoted(tmp_path: Path) -> None:
    stub = _java(tmp_path, "The operation could not be completed. Unable to locate a Java Runtime.", code=1)

    with pytest.raises(JavaError, match="Unable to locate a Java Runtime"):
        java_version(stub)


@pytest.fixture
def java_11(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Java 11 that is the one of this machine, in a process without a session."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", lambda: None)
    monkeypatch.setattr("pyspark.sql.SparkSession.builder", None)  # no session may start
    return _java(tmp_path, 'openjdk version "11.0.2" 2019-01-15')


def test_a_session_of_kdsl_says_that_java_is_too_old_before_spark_starts(java_11: Path) -> None:
    expected = re.escape(f"PySpark 4.2.0 needs Java 17 or newer, but {java_11} is Java 11; install a JDK 17")
    starts: list[Callable[[str], object]] = [start_local_session, session]
    for start in starts:
        with pytest.raises(JavaError, match=expected.replace(re.escape("4.2.0"), r"[\d.]+")):
            start("test")


def test_an_older_spark_runs_on_an_older_java(java_11: Path) -> None:
    assert (oldest_java("4.0.1"), oldest_java("3.5.6")) == (17, 8)
    assert find_java("PySpark 3.5.6", oldest_java("3.5.6")) == java_11


def test_doctor_checks_java_and_the_python_of_the_workers(java_11: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/no/such/python")
    java, python = _check_programs()

    assert (java.state, python.state) == ("warning", "warning")
    assert "is Java 11" in java.message
    assert java.fix == "install a JDK 17 or newer, or point JAVA_HOME at one"
    assert "'/no/such/python' in its workers (which does not exist)" in python.message

    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert [finding.state for finding in _check_programs()] == ["warning", "ok"]

    monkeypatch.setenv("SPARK_REMOTE", "sc://server")
    assert list(_check_programs()) == []
