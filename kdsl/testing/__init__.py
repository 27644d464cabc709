"""A real Kafka, schema registry and Spark cluster for tests, and assertions; fixtures: ``kdsl.testing.pytest_plugin``.

Nothing is imported before it is used: pytest loads this package in every run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kdsl.testing.assertions import assert_messages, assert_rows
    from kdsl.testing.errors import (
        BrokerDiedError,
        DownloadError,
        JavaError,
        LocalKafkaError,
        LocalRegistryError,
        SparkClusterError,
    )
    from kdsl.testing.local_kafka import LocalKafka
    from kdsl.testing.local_registry import LocalRegistry
    from kdsl.testing.running import Record, RunningKafka
    from kdsl.testing.spark_cluster import SparkCluster

__all__ = [
    "BrokerDiedError",
    "DownloadError",
    "JavaError",
    "LocalKafka",
    "LocalKafkaError",
    "LocalRegistry",
    "LocalRegistryError",
    "Record",
    "RunningKafka",
    "SparkCluster",
    "SparkClusterError",
    "assert_messages",
    "assert_rows",
]

_PLACES = {
    "BrokerDiedError": "errors",
    "DownloadError": "errors",
    "JavaError": "errors",
    "LocalKafka": "local_kafka",
    "LocalKafkaError": "errors",
    "LocalRegistry": "local_registry",
    "LocalRegistryError": "errors",
    "Record": "running",
    "RunningKafka": "running",
    "SparkCluster": "spark_cluster",
    "SparkClusterError": "errors",
    "assert_messages": "assertions",
    "assert_rows": "assertions",
}


def __getattr__(name: str) -> object:
    """Return a name of `__all__` from its module, which is imported at the first use.

    Raises:
        AttributeError: There is no such name.
        MissingPackageError: A package that it needs is not installed.
    """
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from kdsl.extras import explain_missing_package

    with explain_missing_package(f"kdsl.testing.{name}"):
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
