"""What ingestions are compared with: hand-written PySpark, and jobs of the reference engine."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from bench.paired import Run, measure
from bench.reference_engine import ReferenceEngine
from bench.tables import Orders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = """
    order_id STRING, order_channel STRING, order_time TIMESTAMP(3), pay_amount DECIMAL(10, 2), quantity INT,
    user_id INT, user_name STRING, paid BOOLEAN, area_id STRING
"""

CHANGED_COLUMNS = """
    order_id STRING, user_id BIGINT, status STRING, amount DOUBLE, quantity INT, currency STRING,
    placed_at TIMESTAMP(3), note STRING, paid BOOLEAN
"""
"""The columns of the rows that changes have (`bench.observe.debezium`)."""


def run_stream(rows: DataFrame, checkpoint: str) -> None:
    """Run a stream up to what there is, and drop its rows."""
    stream = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    stream.start().awaitTermination()


def read_by_hand(spark: SparkSession, servers: str, topic: str) -> DataFrame:
    """A stream of orders, parsed with ``from_json`` on Spark's own connector."""
    records = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    values = records.option("startingOffsets", "earliest").load()
    row = F.from_json(F.col("value").cast("string"), Orders.value_schema(), {"mode": "FAILFAST"})
    return values.select(row.alias("row")).select("row.*")


def find_schema_by_hand(spark: SparkSession, servers: str, topic: str) -> str:
    """The schema of all values of a topic, as Spark infers it: no more than one pass that finds it."""
    records = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", topic)
    values = records.option("startingOffsets", "earliest").load()
    schema = F.expr("schema_of_variant_agg(parse_json(CAST(value AS STRING)))")
    return str(values.agg(schema).collect()[0][0])


class EngineCopies:
    """Jobs of the reference engine that read orders with declared columns.

    Args:
        engine: The engine.
        servers: The brokers.
        records: How many orders there are.
    """

    def __init__(self, engine: ReferenceEngine, servers: str, records: int) -> None:
        self._engine, self._servers, self._records = engine, servers, records

    def read(self, topic: str, runs: int) -> float:
        """Records per second that it reads and drops."""
        self._engine.run(f"CREATE TEMPORARY TABLE nowhere ({COLUMNS}) WITH ('connector' = 'blackhole')")
        return self._rate(topic, "nowhere", runs)

    def copy(self, topic: str, target: str, runs: int) -> float:
        """Records per second that it reads and writes to another topic as JSON."""
        options = {"connector": "kafka", "topic": target, "properties.bootstrap.servers": self._servers,
                   "format": "json"}  # fmt: skip
        self._engine.run(f"CREATE TEMPORARY TABLE copies ({COLUMNS}) WITH ({_write(options)})")
        return self._rate(topic, "copies", runs)

    def prepare_change_copy(self, topic: str, target: str) -> dict[str, Callable[[], Run]]:
        """Jobs that copy changes of Debezium, as of one declared table: of everything, and of nothing."""
        value = {"format": "debezium-json"}
        to = {"connector": "kafka", "topic": target, "properties.bootstrap.servers": self._servers, **value}
        self._engine.run(f"CREATE TEMPORARY TABLE change_copies ({CHANGED_COLUMNS}) WITH ({_write(to)})")
        return self._prepare(topic, "change_copies", CHANGED_COLUMNS, value)

    def _rate(self, topic: str, target: str, runs: int) -> float:
        """Records per second of a job that ends, less the time of the same job over no records."""
        jobs = self._prepare(topic, target, COLUMNS, {"format": "json"})
        seconds = [statistics.median([job().wall for _ in range(runs + 1)][1:]) for job in jobs.values()]
        return self._records / (seconds[0] - seconds[1])

    def _prepare(self, topic: str, target: str, columns: str, value: dict[str, str]) -> dict[str, Callable[[], Run]]:
        """Jobs that end, from a topic into a table: of everything, and of nothing."""
        bounds = {
            "everything": {"scan.bounded.mode": "latest-offset"},
            "nothing": {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": "0"},
        }
        jobs: dict[str, Callable[[], Run]] = {}
        for name, bound in bounds.items():
            source = f"{name}_for_{target}"
            options = {
                "connector": "kafka", "topic": topic, "properties.bootstrap.servers": self._servers,
                "scan.startup.mode": "earliest-offset", **value, **bound,
            }  # fmt: skip
            self._engine.run(f"CREATE TEMPORARY TABLE {source} ({columns}) WITH ({_write(options)})")
            insert = partial(self._engine.run, f"INSERT INTO {target} SELECT * FROM {source}")
            jobs[name] = partial(measure, insert)
        return jobs


def _write(options: dict[str, str]) -> str:
    """The options of a ``WITH`` clause."""
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
