"""A transaction on the source that does not end: S10."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from kdsl import load_tables
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability.harness import copy_tables
from tests.reliability.oracle import Mark, judge, look, marks, send

SOAK = pytest.mark.skipif("KDSL_TEST_SOAK" not in os.environ, reason="ten minutes: set KDSL_TEST_SOAK=1")


@pytest.mark.parametrize(
    "seconds",
    [0, pytest.param(600, marks=[pytest.mark.reliability, pytest.mark.timeout(900), SOAK])],
    ids=["short", "long"],
)
def test_nothing_after_an_open_transaction_is_read_until_it_ends(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, seconds: int
) -> None:
    """S10. A query goes on in peace, and reads the rest, once, when the transaction is committed."""
    source, target = kdsl_topic("in"), kdsl_topic("out")
    committed = {"properties.isolation.level": "read_committed"}
    document = tmp_path / "tables.yaml"
    document.write_text(yaml.safe_dump(copy_tables(kdsl_kafka, source, target, reading=committed)))
    tables = {table.name: table for table in load_tables(document)}
    before = send(kdsl_kafka, source, marks("before", 1, count=20))
    longest = {"transactional.id": f"tx-{source}", "transaction.timeout.ms": 900_000}
    producer = Producer({**kdsl_kafka.client_properties, **longest})
    producer.init_transactions()
    producer.begin_transaction()
    inside = [Mark("inside", 0, n, "t") for n in range(20)]
    for mark in inside:
        producer.produce(source, value=mark.record().value, key=mark.record().key)
    producer.flush()
    after = send(kdsl_kafka, source, marks("after", 1, count=20))

    rows = tables["source"].read_stream(spark)
    query = tables["target"].write_stream(rows, checkpoint=str(tmp_path / "checkpoint"))
    try:
        end = time.monotonic() + seconds
        for _ in range(3):  # the query looks for records again and again
            query.processAllAvailable()
        while time.monotonic() < end:
            time.sleep(1)
            assert query.isActive
        assert judge(before, look(kdsl_kafka, target)).exactly_once
        producer.commit_transaction()
        until = time.monotonic() + 120
        while len(look(kdsl_kafka, target)) < 60 and time.monotonic() < until:
            time.sleep(0.2)
    finally:
        query.stop()

    verdict = judge([*before, *inside, *after], look(kdsl_kafka, target))
    assert verdict.exactly_once, str(verdict)
