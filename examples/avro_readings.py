"""Avro bodies without a registry: small messages whose schema both sides know, which are also decoded from an archive.

Run it with ``python examples/avro_readings.py host:port``; it writes readings of sensors to ``readings``, shows the
highest ones, stores the unchanged messages, and decodes them from there.
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime

from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl import Avro, Cluster, Col, Int32, KafkaTable, Key, Raw, col

SENSORS = ("cellar", "hall", "roof")


class Readings(
    KafkaTable,
    topic="readings",
    key=Raw(),
    value=Avro(legacy_timestamps=False),  # instants are Avro's timestamp-millis
    value_fields="EXCEPT_KEY",
    startup="earliest",
):
    """The readings of sensors. The order of the columns is the schema, so a new column needs a new topic."""

    sensor: Key[str]
    degrees: Col[float]
    battery: Col[Int32 | None] = col(default=None)
    taken_at: Col[datetime] = col(type="TIMESTAMP_LTZ(3)")


class Messages(KafkaTable, topic="readings", key=Raw(), value=Raw(), value_fields="EXCEPT_KEY", startup="earliest"):
    """The same messages as bytes, for an archive."""

    key: Key[bytes | None]
    value: Col[bytes | None]


def run(spark: SparkSession, cluster: Cluster) -> tuple[DataFrame, DataFrame]:
    """Write readings; returns the highest one of each sensor from Kafka, and all of them from archived messages."""
    at = datetime(2026, 11, 21, 12, tzinfo=UTC)
    rows = [Readings(sensor=SENSORS[i % 3], degrees=20 + i / 2, taken_at=at) for i in range(6)]
    Readings.write(Readings.rows(rows, spark=spark), cluster)

    hottest = Readings.read(spark, cluster).groupBy(Readings.sensor).agg(F.max(Readings.degrees).alias("degrees"))
    # months later, `archived` would be spark.read.parquet("archive"), after .write.parquet("archive")
    archived = Messages.read(spark, cluster)
    return hottest, Readings.decode(archived)


if __name__ == "__main__":
    for df in run(SparkSession.builder.getOrCreate(), Cluster(sys.argv[1])):
        df.show()
