"""Change data: what Debezium captured of a database table, as rows that come, change and go.

Run it with ``python examples/change_data.py host:port``; it reads ``shop.products``, as Debezium writes it, shows the
stock of each product as it is now, and hands the changes on to ``products-changes`` in the form of Canal.
"""

from __future__ import annotations

import sys
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl import ROW_KIND, CanalJson, Cluster, Col, DebeziumJson, Json, KafkaTable, Key, Virtual, virtual


class Products(
    KafkaTable,
    topic="shop.products",
    value=DebeziumJson(),
    primary_key=["id"],
    cdc_events_duplicate=True,
    startup="earliest-offset",
):
    """The shop's products, each change a row: the first column, ``_row_kind``, says which.

    Debezium sends events again after a failure. Changes are therefore compared with the last row of each product.
    """

    id: Col[int]
    name: Col[str]
    stock: Col[int]
    database: Virtual[str | None] = virtual("value.source.database")
    changed_at: Virtual[datetime | None] = virtual("value.source.timestamp")


class Handed(KafkaTable, topic="products-changes", key=Json(), value=CanalJson(), startup="earliest-offset"):
    """The same changes for others; those of one product stay in order, because it is the key."""

    id: Key[int]
    name: Col[str]
    stock: Col[int]


def stock(products: DataFrame) -> DataFrame:
    """The stock by name: what comes counts, what goes is taken away again."""
    sign = F.when(F.col(ROW_KIND).isin("+I", "+U"), 1).otherwise(-1)
    return (
        products.groupBy(Products.name)
        .agg(F.sum(F.col("stock") * sign).alias("stock"), F.sum(sign).alias("rows"))
        .where("rows > 0")
        .drop("rows")
    )


def run(spark: SparkSession, cluster: Cluster) -> DataFrame:
    """Hand on what is there, and give the stock."""
    products = Products.read(spark, cluster)
    Handed.write(products.select(ROW_KIND, "id", "name", "stock"), cluster)
    return stock(products)


if __name__ == "__main__":
    run(SparkSession.builder.getOrCreate(), Cluster(sys.argv[1])).show()
