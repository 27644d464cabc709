"""What the benchmarks share: a Spark session with Spark's own Kafka connector, and filled topics."""

from __future__ import annotations

import os
import platform
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any

import psutil
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from kdsl.run.java_clients.jars import attach_connector
from kdsl.run.session import hide_jvm_output

CORES = 2


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """A session on two cores with Spark's own Kafka connector next to kdsl."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName(name)
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.sql.shuffle.partitions", str(CORES))
        .config("spark.sql.session.timeZone", "UTC")
    )
    with hide_jvm_output():
        spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    attach_connector(spark, everywhere=True)
    try:
        yield spark
    finally:
        spark.stop()


def order(i: int, chance: random.Random) -> bytes:
    """One order as JSON, about 190 bytes."""
    return (
        b'{"order_id":"%018d","order_channel":"%s","order_time":"2021-03-%02d %02d:%02d:%02d","pay_amount":%d.%02d,'
        b'"quantity":%d,"user_id":%d,"user_name":"customer-%06d","paid":%s,"area_id":"%06d"}'
    ) % (
        i,
        (b"webShop", b"appShop", b"miniAppShop")[i % 3],
        i % 28 + 1,
        i % 24,
        i % 60,
        (i * 7) % 60,
        chance.randrange(1, 5000),
        chance.randrange(100),
        i % 9 + 1,
        chance.randrange(1_000_000),
        i % 1_000_000,
        (b"true", b"false")[i % 2],
        330_000 + i % 1000,
    )


def fill(bootstrap: str, topic: str, records: int, *, dirty: float = 0.0, partitions: int = 4) -> None:
    """Fill a topic with orders.

    Args:
        bootstrap: The brokers.
        topic: The topic, which exists.
        records: The number of records.
        dirty: The share of messages that are invalid JSON.
        partitions: The number of partitions to fill.
    """
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )
    chance = random.Random(7)
    every = round(1 / dirty) if dirty else 0
    for i in range(records):
        value = b"{broken " + str(i).encode() if every and i % every == 0 else order(i, chance)
        while True:
            try:
                producer.produce(topic, value, str(i).encode(), partition=i % partitions)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(120):
        raise RuntimeError(f"{topic} was not filled")


def facts() -> dict[str, Any]:
    """The machine and the versions of the measurement."""
    names = ("pyspark", "pyarrow", "confluent-kafka", "polars")
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "load": os.getloadavg()[0],
        "versions": {name: version(name) for name in names},
    }
