"""What ingestions are compared with: hand-written PySpark, and jobs of the reference engine."""

from __future__ import annotations

import statistics
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from bench.paired import measure
from bench.reference_engine import ReferenceEngine
from bench.tables import Orders

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = """
    order_id STRING, order_channel STRING, order_time TIMESTAMP(3), pay_amount DECIMAL(10, 2), quantity INT,
    user_id INT, user_name STRING, paid BOOLEAN, area_id STRING
"""


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

    def _rate(self, topic: str, target: str, runs: int) -> float:
        """Records per second of a job that ends, less the time of the same job over no records."""
        bounds = {
            "everything": {"scan.bounded.mode": "latest-offset"},
            "nothing": {"scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": "0"},
        }
        seconds = []
        for name, bound in bounds.items():
            source = f"{name}_for_{target}"
            options = {
                "connector": "kafka", "topic": topic, "properties.bootstrap.servers": self._servers,
                "format": "json", "scan.startup.mode": "earliest-offset", **bound,
            }  # fmt: skip
            self._engine.run(f"CREATE TEMPORARY TABLE {source} ({COLUMNS}) WITH ({_write(options)})")
            insert = partial(self._engine.run, f"INSERT INTO {target} SELECT * FROM {source}")
            seconds.append(statistics.median([measure(insert).wall for _ in range(runs + 1)][1:]))
        return self._records / (seconds[0] - seconds[1])


def _write(options: dict[str, str]) -> str:
    """The options of a ``WITH`` clause."""
    return ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
