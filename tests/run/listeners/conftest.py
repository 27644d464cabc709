"""Fixtures of the tests of what watches queries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kdsl.run.listeners.listener import _observers, observe
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.listeners.queries import Seen, Streams


@pytest.fixture
def seen() -> Iterator[Seen]:
    """The events that an observer receives during the test."""
    observer = Seen()
    observe(observer)
    yield observer
    _observers.remove(observer)


@pytest.fixture
def streams(spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path) -> Iterator[Streams]:
    """Streams over a topic of two partitions with the records a, b and c."""
    topic = kdsl_topic(partitions=2)
    kdsl_kafka.produce(topic, *"abc")
    yield Streams(spark, kdsl_kafka.bootstrap_servers, topic, tmp_path)
    for query in spark.streams.active:
        query.stop()
