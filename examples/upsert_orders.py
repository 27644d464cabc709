"""Orders by their key: inserts, updates and deletes, with the before-image of each update.

Run it with ``python examples/upsert_orders.py host:port``; it reads ``orders-by-key``, whose message key is the number
of the order, from its beginning, and follows it until Ctrl-C.
"""

from __future__ import annotations

import sys

from pyspark.sql import DataFrame, SparkSession

from kdsl import Cluster, Col, Csv, Json, PrimaryKey, UpsertTable


class Orders(UpsertTable, topic="orders-by-key", key=Csv(), value=Json()):
    """An order. A record without a value deletes it."""

    order_id: PrimaryKey[str]
    order_channel: Col[str | None]
    order_time: Col[str | None]
    pay_amount: Col[float | None]
    real_pay: Col[float | None]
    pay_time: Col[str | None]
    user_id: Col[str | None]
    user_name: Col[str | None]
    area_id: Col[str | None]


def changes(spark: SparkSession, cluster: Cluster) -> DataFrame:
    """The changes of all orders as a stream; the column ``_row_kind`` is the row kind."""
    return Orders.read_stream(spark, cluster).select("_row_kind", Orders.order_id, Orders.user_name, Orders.area_id)


def main() -> None:
    """Follow the orders of the brokers that the command line names."""
    spark = SparkSession.builder.appName("orders").config("spark.sql.shuffle.partitions", "4").getOrCreate()
    changes(spark, Cluster(sys.argv[1])).writeStream.format("console").start().awaitTermination()


if __name__ == "__main__":
    main()
