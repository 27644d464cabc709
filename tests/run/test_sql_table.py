"""A table from SQL on Spark and a real broker: written, and read with its computed column and its watermark."""

from __future__ import annotations

from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from kdsl.ddl.load import sql
from kdsl.table import Table
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS = """\
CREATE TABLE orders (
  k_id BIGINT NOT NULL,
  amount DECIMAL(10, 2),
  lines ARRAY<ROW<sku STRING, n INT>>,
  placed_at TIMESTAMP(3) METADATA FROM 'timestamp',
  seen BIGINT METADATA FROM 'offset' VIRTUAL,
  placed_on AS CAST(placed_at AS DATE),
  half AS k_id / 2,
  WATERMARK FOR placed_at AS placed_at - INTERVAL '5' SECOND
) WITH (
  'connector' = 'kafka',
  'topic' = '{topic}',
  'properties.bootstrap.servers' = '{servers}',
  'scan.startup.mode' = 'earliest-offset',
  'key.format' = 'json', 'key.fields' = 'k_id', 'key.fields-prefix' = 'k_',
  'value.format' = 'json', 'value.fields-include' = 'EXCEPT_KEY'
)"""


def test_a_table_from_sql_needs_nothing_else(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic()
    orders: Table = sql(ORDERS.format(topic=topic, servers=kdsl_kafka.bootstrap_servers))
    columns = "k_id long, amount decimal(10, 2), lines array<struct<sku: string, n: int>>, placed_at timestamp_ntz"
    values: list[Any] = [(7, None, [("a", 1)], datetime(2025, 3, 1, 12))]  # TIMESTAMP has no zone

    orders.write(spark.createDataFrame(values, columns))

    (record,) = kdsl_kafka.read(topic)
    assert record.key() == b'{"id":7}'
    (row,) = orders.read(spark).collect()
    assert (row.k_id, row.lines[0].sku, row.seen, row.placed_on, row.half) == (7, "a", 0, date(2025, 3, 1), 3)
    assert orders.read_stream(spark).isStreaming
