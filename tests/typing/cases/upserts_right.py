"""Upsert tables: arguments, rows, what reads and writes take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.streaming.query import StreamingQuery

from kdsl import (
    ROW_KIND,
    Cluster,
    Col,
    Json,
    KafkaTable,
    PrimaryKey,
    UpsertTable,
    col,
    metadata,
    row_kind,
    with_row_kind,
)


class Users(
    UpsertTable,
    topic="users",
    key=Json(),
    value="json",
    value_fields="EXCEPT_KEY",
    bounded={0: 100},
    changelog="upsert",
    changelog_state="key",
    buffer_rows=1000,
    buffer_interval="2 s",
    delivery="exactly-once",
    transactional_id_prefix="users",
):
    """Who there is."""

    user_id: PrimaryKey[int]
    name: Col[str | None]
    region: Col[str] = col(default="EU")
    changed_at: Col[datetime] = metadata("timestamp")


class ByRegion(UpsertTable, topic=["a", "b"], key="json", value="json", primary_key=["region"]):
    region: Col[str]
    views: Col[int]


class Waiting(UpsertTable, topic="w", key="json", value="json", buffer_rows=5, buffer_interval=timedelta(seconds=1)):
    id: PrimaryKey[int]


class Base(UpsertTable, key="json", value="json"):
    """A common part."""

    id: PrimaryKey[int]


class Named(Base, topic="named", changelog="full"):
    name: Col[str]


user = Users(user_id=1, name="Ann", changed_at=datetime(2026, 1, 1, tzinfo=UTC))
gone: Users = with_row_kind(user, "-D")
kind: str = row_kind(gone)
name: str | None = user.evolve(name="Bob").name
named: int = Named(id=1, name="x").id
kinds: list[type[KafkaTable]] = [Users, ByRegion, Waiting]


def count(views: DataFrame, cluster: Cluster) -> StreamingQuery:
    counts = views.groupBy(ByRegion.region).agg(F.count("*").alias("views"))
    return ByRegion.write_stream(counts, cluster, checkpoint="/checkpoints/regions", output_mode="update")


def there(spark: SparkSession, cluster: Cluster) -> DataFrame:
    changes = Users.read_stream(spark, cluster)
    return changes.where(F.col(ROW_KIND) != "-U").select(Users.user_id, Users.name)
