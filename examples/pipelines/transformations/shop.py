"""Topics of a shop as datasets of a pipeline: orders, the current users, and large orders in a topic again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from kdsl import Cluster, Col, Json, KafkaTable, PrimaryKey, UpsertTable, pipelines as kp

if TYPE_CHECKING:
    spark: SparkSession  # spark-pipelines defines it


class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest-offset", max_records_per_trigger=1000):
    """An order, as the shop's website sends it."""

    order_id: Col[int]
    user_id: Col[int]
    amount: Col[float | None]


class Users(UpsertTable, topic="users", key=Json(), value=Json()):
    """A user; a record without a value deletes it."""

    user_id: PrimaryKey[int]
    name: Col[str | None]


class LargeOrders(UpsertTable, topic="large-orders", key=Json(), value=Json()):
    """An order of more than 100."""

    order_id: PrimaryKey[int]
    user_id: Col[int]
    amount: Col[float | None]


shop = Cluster.from_env()

kp.table(Orders, shop, name="orders", format="delta")
kp.auto_cdc(Users, shop, target="users", format="delta")
kp.sink(LargeOrders, shop, name="large_orders")


@dp.append_flow(target="large_orders")
def select_large_orders() -> DataFrame:
    """The orders of more than 100, which go to the topic large-orders."""
    return spark.readStream.table("orders").where("amount > 100")
