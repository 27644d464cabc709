from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl.testing import LocalKafka
from tests import mariadb as mariadb_programs
from tests.changelog.conftest import postgres
from tests.ingest.setup import Setup
from tests.mariadb import MariaDb

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.testing.pytest_plugin import MakeTopic

__all__ = ["mariadb", "postgres", "setup"]


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDb]:
    """A MariaDB server; tests that need it are skipped where its programs are not there."""
    if reason := mariadb_programs.missing():
        pytest.skip(reason)
    with MariaDb() as server:
        yield server


@pytest.fixture
def setup(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path) -> Setup:
    return Setup(kdsl_kafka, kdsl_topic(), spark, tmp_path)
