"""Which jars go with which Spark, how a session gets them, and what is reported when it cannot."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl.run.java_clients import jars
from kdsl.run.java_clients.jars import ConnectorMissingError, attach_connector, check_scala_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_jar_for_another_scala_is_reported() -> None:
    check_scala_version("kafka-clients-3.9.2.jar", "2.13")
    check_scala_version("spark-sql-kafka-0-10_2.13-4.2.0.jar", "2.13")
    with pytest.raises(ConnectorMissingError, match=r"_2.12-3.5.0.jar is built for Scala 2.12, and"):
        check_scala_version("spark-sql-kafka-0-10_2.12-3.5.0.jar", "2.13")


REASONS = (
    (
        "[download failed: org.slf4j#slf4j-api;2.0.17!slf4j-api.jar, download failed: a.b#c;1!c.jar]",
        "",
        "the download of a.b:c:1, org.slf4j:slf4j-api:2.0.17 failed",
        "a half-filled ~/.m2/repository",
    ),
    (
        "[unresolved dependency: org.apache.spark#none_2.13;4.2.0: not found]",
        "Server access error at url https://repos.spark-packages.org/x.pom (java.net.UnknownHostException)",
        "org.apache.spark:none_2.13:4.2.0 (not found)",
        "check the version and the repository",
    ),
    (
        "[unresolved dependency: org.apache.spark#none_2.13;4.2.0: not found]",
        "Host mirror not found. url=https://mirror/x.pom",
        "mirror cannot be reached",
        "without a network, name jars or folders of jars in the setting kdsl.jvm.jars or in KDSL_JVM_JARS",
    ),
    (
        "",
        "Server access error at url https://user:pass@mirror/x.pom (java.net.ConnectException: refused)",
        "mirror cannot be reached (java.net.ConnectException: refused)",
        "check the network and the proxy",
    ),
)


class TestReasons:
    """What Ivy says becomes a sentence with what to do."""

    @pytest.mark.parametrize(("error", "message", "reason", "fix"), REASONS)
    def test_of_ivy(self, error: str, message: str, reason: str, fix: str) -> None:
        text = jars._reason(error, message, "coordinates", "/cache")

        assert text.startswith("the jars of Spark's Kafka connector (coordinates) cannot be fetched: ")
        assert reason in text
        assert fix in text


class TestPaths:
    @pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}", "file://localhost{}"])
    def test_a_folder_is_named_as_a_path_or_an_address(self, tmp_path: Path, form: str) -> None:
        jar = tmp_path / "a b.jar"
        jar.touch()
        shown = str(tmp_path) if form == "{}" else str(tmp_path).replace(" ", "%20")

        assert jars.local_jars(form.format(shown)) == [str(jar)]
        assert jars.local_jars(form.format(f"{shown}/a b.jar")) == [str(jar)]

    def test_a_relative_path_and_the_users_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.jar").touch()
        monkeypatch.chdir(tmp_path.parent)
        monkeypatch.setenv("HOME", str(tmp_path))

        assert jars.local_jars(tmp_path.name) == jars.local_jars("~") == [str(tmp_path / "a.jar")]

    def test_nothing_named_is_the_default(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(jars.VARIABLE, " , ")

        assert jars.jars_in_settings(spark) is None


def test_an_incomplete_connector_is_reported_with_the_missing_class() -> None:
    message = jars.explain_load_failure(
        "java.lang.NoClassDefFoundError: org/apache/kafka/common/serialization/ByteArraySerializer\n\tat"
    )

    assert message is not None
    assert "the class org.apache.kafka.common.serialization.ByteArraySerializer is missing: a jar is missing" in message
    assert "kafka-clients" in message
    assert jars.explain_load_failure("java.lang.IllegalStateException: no") is None


class TestAttach:
    def test_the_connector_is_loaded_once(self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
        attach_connector(spark, everywhere=True)
        before = spark.sql("LIST JARS").count()

        def never(*_: Any, **__: Any) -> None:
            raise AssertionError("it was attached again")

        monkeypatch.setattr(jars, "add_to_driver", never)
        attach_connector(spark)
        attach_connector(spark, everywhere=True)

        assert spark.sql("LIST JARS").count() == before

    @pytest.mark.parametrize(
        ("named", "message"),
        [
            ("/no/such.jar", "/no/such.jar, named in kdsl.jvm.jars or KDSL_JVM_JARS, is not a file"),
            ("{folder}", "contains no jar"),
            ("org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.0", "is built for Scala 2.12"),
            ("provided", "kdsl.jvm.jars says that it is provided"),
        ],
    )
    def test_a_wrong_package_name_is_reported(
        self, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, named: str, message: str
    ) -> None:
        monkeypatch.setattr(jars, "_has_connector", lambda _: False)
        monkeypatch.setenv(jars.VARIABLE, named.format(folder=tmp_path))

        with pytest.raises(ConnectorMissingError) as raised:
            attach_connector(spark)
        assert message in str(raised.value)
