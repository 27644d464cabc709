from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kdsl.testing.local_registry import LocalRegistry
from kdsl.testing.running import RunningKafka
from tests.debezium.connect import ConnectWorker
from tests.postgres import Postgres, missing

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder, which only `make test-debezium` runs."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker("debezium")


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A Postgres server whose changes can be read; tests that need it are skipped where its programs are not there."""
    if reason := missing():
        pytest.skip(reason)
    with Postgres(wal_level="logical", max_wal_senders="20", max_replication_slots="20") as server:
        yield server


@pytest.fixture(scope="session")
def debezium(kdsl_kafka: RunningKafka, postgres: Postgres) -> Iterator[ConnectWorker]:
    """A Kafka Connect worker with Debezium's connector for Postgres and the registry's Avro converter."""
    with ConnectWorker(kdsl_kafka.bootstrap_servers) as worker:
        yield worker


@pytest.fixture(scope="session")
def registry(kdsl_registry: LocalRegistry) -> LocalRegistry:
    """The schema registry of the Avro converter."""
    return kdsl_registry
