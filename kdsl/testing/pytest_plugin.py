"""Pytest fixtures for tests that need a real Kafka: installed with kdsl, nothing to switch on.

``kdsl_kafka`` is one Kafka for the whole run, ``kdsl_topic`` makes topics that belong to one test, ``kdsl_registry`` is
a schema registry, ``kdsl_spark`` a Spark session, and ``kdsl_spark_cluster`` a Spark cluster of two workers. Nothing is
started, or imported, in a run whose tests ask for none of them.

Files of cases (``*.test.yaml``, which ``kdsl test`` runs) are tests, too, where the setting ``kdsl_cases`` is true, and
where they are named on the command line.

Where a broker is at hand already, name it in ``--kdsl-bootstrap``, in the setting ``kdsl_bootstrap`` or in the
environment variable ``KDSL_TEST_BOOTSTRAP``, in this order, and none is started.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from kdsl.testing.cases import ENDINGS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.testing.local_registry import LocalRegistry
    from kdsl.testing.running import RunningKafka
    from kdsl.testing.spark_cluster import SparkCluster

pytest.register_assert_rewrite("kdsl.testing.contracts")  # failures of contracts show the values


class MakeTopic(Protocol):
    """The type of the fixture ``kdsl_topic``: creates a topic with a unique name, and returns the name."""

    def __call__(
        self,
        name: str | None = None,
        *,
        partitions: int = 1,
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        """Create a topic.

        Args:
            name: The beginning of its name; the test's name if None.
            partitions: How many partitions it has.
            replication: How many brokers keep each partition; the broker's default if None.
            config: Topic settings.
        """
        ...


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and settings."""
    group = parser.getgroup("kdsl", "Kafka for tests")
    group.addoption("--kdsl-bootstrap", metavar="HOST:PORT", help="use this Kafka instead of starting one")
    group.addoption("--kdsl-brokers", type=int, metavar="N", help="how many brokers to start (1)")
    parser.addini("kdsl_bootstrap", "use this Kafka instead of starting one", default="")
    parser.addini("kdsl_brokers", "how many brokers to start", default="1")
    parser.addini("kdsl_properties", "broker properties, one key=value a line", type="linelist", default=[])
    parser.addini("kdsl_cases", "whether files *.test.yaml are tests", type="bool", default=False)
    parser.addini("kdsl_spark_settings", "settings of kdsl_spark, one key=value a line", type="linelist", default=[])


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a file of cases, if the project asks for it or the command line names it."""
    if not file_path.name.endswith(ENDINGS):
        return None
    if not parent.config.getini("kdsl_cases") and not parent.session.isinitpath(file_path):
        return None
    from kdsl.testing.cases.items import CaseModule

    return CaseModule.from_parent(parent, path=file_path)


@pytest.fixture(scope="session")
def kdsl_kafka(pytestconfig: pytest.Config) -> Iterator[RunningKafka]:
    """Run a Kafka for the whole test run: ``kdsl_kafka.bootstrap_servers``, ``.produce(…)``, ``.read(…)``.

    It is the Kafka that an option, a setting or ``$KDSL_TEST_BOOTSTRAP`` names, or else a local one.
    """
    from kdsl.testing import LocalKafka
    from kdsl.testing.running import RunningKafka

    outside = (
        pytestconfig.getoption("--kdsl-bootstrap")
        or pytestconfig.getini("kdsl_bootstrap")
        or os.environ.get("KDSL_TEST_BOOTSTRAP")
    )
    if outside:
        yield RunningKafka(outside)
        return
    brokers = pytestconfig.getoption("--kdsl-brokers") or int(pytestconfig.getini("kdsl_brokers"))
    lines = [line.partition("=") for line in pytestconfig.getini("kdsl_properties")]
    own = {key.strip(): value.strip() for key, _, value in lines}
    # No test kills this broker, and a busy machine that stalls for seconds must not cost a partition its leader.
    with LocalKafka(brokers, properties={"broker.session.timeout.ms": "60000", **own}) as kafka:
        yield kafka


@pytest.fixture
def kdsl_topic(kdsl_kafka: RunningKafka, request: pytest.FixtureRequest) -> Iterator[MakeTopic]:
    """Create topics that no other test uses, and delete them after the test: ``kdsl_topic(partitions=4)``."""
    from kdsl.testing.errors import LocalKafkaError

    topics: list[str] = []

    def make(
        name: str | None = None,
        *,
        partitions: int = 1,
        replication: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> str:
        begin = re.sub(r"[^A-Za-z0-9._-]+", "-", name or request.node.name).strip("-")[:180]
        topics.append(f"{begin}-{uuid.uuid4().hex[:8]}")
        return kdsl_kafka.create_topic(topics[-1], partitions, replication, config)

    yield make
    for topic in topics:
        try:
            kdsl_kafka.delete_topic(topic)
        except LocalKafkaError:  # the test deleted it, or ended the broker
            continue


@pytest.fixture(scope="session")
def kdsl_registry() -> Iterator[LocalRegistry]:
    """Run a schema registry for the whole test run: ``kdsl_registry.url``, ``.client()``. It needs no Kafka."""
    from kdsl.testing import LocalRegistry

    with LocalRegistry() as registry:
        yield registry


@pytest.fixture(scope="session")
def kdsl_spark(pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """Run a Spark session with two cores on this machine, in UTC, for the whole test run.

    The setting ``kdsl_spark_settings`` has further settings, such as ``spark.jars.packages``. A session that runs
    already is used, and stays.
    """
    from kdsl.testing.cases.items import spark_settings
    from kdsl.testing.sessions import local_session

    with local_session(spark_settings(pytestconfig)) as session:
        yield session


@pytest.fixture(scope="session")
def kdsl_spark_cluster() -> Iterator[SparkCluster]:
    """Run a Spark standalone cluster of two workers with a core each, for the whole test run."""
    from kdsl.testing import SparkCluster

    with SparkCluster() as cluster:
        yield cluster
