"""Topics of a shop as datasets of a pipeline: orders, the current users, and large orders in a topic again."""

from __future__ import annotations

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession, functions as F

from kdsl import Cluster, Col, Json, KafkaTable, PrimaryKey, UpsertTable, pipelines as kp


class Orders(KafkaTable, topic="orders", value=Json(), startup="earliest-offset", max_records_per_trigger=1000):
    """An order, as the shop's website sends it."""

    order_id: Col[int]
    user_id: Col[int]
    amount: Col[float | None]


class Users(UpsertTable, topic="users", key=Json(), value=Json(), changelog="upsert"):
    """A user; a record without a value deletes it."""

    user_id: PrimaryKey[int]
    name: Col[str | None]


class LargeOrders(UpsertTable, topic="large-orders", key=Json(), value=Json()):
    """An order of more than 100."""

    order_id: PrimaryKey[int]
    user_id: Col[int]
    amount: Col[float | None]


shop = Cluster.from_env()
spark = SparkSession.active()

kp.table(Orders, shop, name="orders")
kp.table(Users, shop, name="user_changes", change_columns=True)
kp.sink(LargeOrders, shop, name="large_orders")


@dp.materialized_view
def users() -> DataFrame:
    """The current users: the last change of each, unless that is a delete."""
    last = F.max_by(F.struct("_change_type", "name"), "_commit_version").alias("last")
    changes = spark.read.table("user_changes").groupBy("user_id").agg(last)
    return changes.where("last._change_type <> 'delete'").select("user_id", "last.name")


@dp.append_flow(target="large_orders")
def select_large_orders() -> DataFrame:
    """The orders of more than 100, which go to the topic large-orders."""
    return spark.readStream.table("orders").where("amount > 100")
