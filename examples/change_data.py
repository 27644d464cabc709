"""Change data: the inserts, updates and deletes that Debezium captured from a database table.

Run it with ``python examples/change_data.py host:port``; it reads Debezium's topic ``shop.products``, shows the
current stock of each product, and writes the changes to ``products-changes`` in Canal's form.
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
    """The shop's products, one row per change: the first column, ``_row_kind``, is the kind of change.

    Debezium sends events again after a failure. Changes are therefore compared with the last row of each product.
    """

    id: Col[int]
    name: Col[str]
    stock: Col[int]
    database: Virtual[str | None] = virtual("value.source.database")
    changed_at: Virtual[datetime | None] = virtual("value.source.timestamp")


class ProductChanges(KafkaTable, topic="products-changes", key=Json(), value=CanalJson(), startup="earliest-offset"):
    """The same changes for other consumers; those of one product stay in order, because the id is the key."""

    id: Key[int]
    name: Col[str]
    stock: Col[int]


def stock(products: DataFrame) -> DataFrame:
    """The stock by name: inserted rows are added, deleted rows are subtracted."""
    sign = F.when(F.col(ROW_KIND).isin("+I", "+U"), 1).otherwise(-1)
    return (
        products.groupBy(Products.name)
        .agg(F.sum(F.col("stock") * sign).alias("stock"), F.sum(sign).alias("rows"))
        .where("rows > 0")
        .drop("rows")
    )


def run(spark: SparkSession, cluster: Cluster) -> DataFrame:
    """Write the current changes to another topic, and return the stock."""
    products = Products.read(spark, cluster)
    ProductChanges.write(products.select(ROW_KIND, "id", "name", "stock"), cluster)
    return stock(products)


if __name__ == "__main__":
    run(SparkSession.builder.getOrCreate(), Cluster(sys.argv[1])).show()
