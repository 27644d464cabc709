"""What type checkers must say of right lines."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, assert_type

from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from pyspark.sql.window import Window

from kdsl import Cluster, Headers, Ref, ref
from tests.typing.cases.orders import Address, Channel, Clicks, Heard, Orders, Plain, Totals, Traced, row

# The class gives references.
assert_type(Orders.k_user_id, Ref[int])
assert_type(Orders.k_order_id, Ref[str])
assert_type(Orders.amount, Ref[Decimal])
assert_type(Orders.note, Ref[str | None])
assert_type(Orders.channel, Ref[Channel])
assert_type(Orders.address, Ref[Address])
assert_type(Orders.tags, Ref[list[str]])
assert_type(Orders.placed_at, Ref[datetime])
assert_type(Orders.trace, Ref[Headers])
assert_type(Heard.headers, Ref[dict[str, bytes]])
assert_type(Traced.headers, Ref[dict[str, bytes]])
assert_type(Orders.offset, Ref[int])
assert_type(Orders.leader_epoch, Ref[int | None])
assert_type(Orders.kind_of_time, Ref[str])
assert_type(Orders.total, Ref[Decimal])
assert_type(Orders.initial, Ref[str])
assert_type(Clicks.user_id, Ref[int])
assert_type(Clicks.seen_at, Ref[datetime])
assert_type(Clicks.local_time, Ref[datetime])
assert_type(Clicks.position, Ref[int])
assert_type(Clicks.price, Ref[Decimal])
assert_type(Totals.user_id, Ref[int])
assert_type(ref(Plain.amount), Ref[Decimal])
assert_type(ref(Plain.seen_at), Ref[datetime])
assert_type(Orders.VERSION, int)

# A row gives values.
assert_type(row, Orders)
assert_type(row.amount, Decimal)
assert_type(row.note, str | None)
assert_type(row.address.city, str | None)
assert_type(row.channel, Channel)
assert_type(row.offset, int)
assert_type(row.leader_epoch, int | None)
assert_type(row.total, Decimal)
assert_type(row.initial, str)
assert_type(row.evolve(amount=Decimal(1)), Orders)
assert_type(Totals(user_id=1, spent=Decimal(2)).spent, Decimal)
assert_type(Plain(name="a", amount=Decimal(1), seen_at=datetime(2025, 1, 1, tzinfo=UTC)).quantity, int)

# Comparisons take the column's own type, and columns.
assert_type(Orders.amount > Decimal(1), Column)
assert_type(Orders.amount > 100, Column)
assert_type(Orders.quantity >= 1, Column)
assert_type(Orders.note == "a", Column)
assert_type(Orders.placed_at < datetime(2025, 1, 1, tzinfo=UTC), Column)
assert_type(Clicks.day != date(2025, 1, 1), Column)
assert_type(Orders.quantity == Orders.offset, Column)
assert_type(Orders.amount > F.lit(1), Column)
assert_type((Orders.amount > 100) & (Orders.offset > 10) | ~Orders.note.isNull(), Column)
assert_type(Orders.amount * Orders.quantity + 1, Column)
assert_type(Orders.address.getField("city"), Column)
assert_type(Orders.tags[0], Column)


def columns_go_where_pyspark_takes_columns(df: DataFrame, other: DataFrame) -> None:
    assert_type(df.where(Orders.amount > 100).select(Orders.k_user_id), DataFrame)
    df.select(Orders.k_user_id, "amount", Orders.amount.alias("price"), Orders.amount + 1)
    df.groupBy(Orders.k_user_id).agg(F.sum(Orders.amount).alias("spent"), F.max(Orders.offset))
    df.orderBy(Orders.amount.desc(), Orders.offset)
    keys: list[str] = [Orders.k_user_id, Orders.k_order_id]
    df.join(other, Orders.k_user_id).join(other, keys, "left")
    df.drop(Orders.note).dropDuplicates([Orders.k_order_id]).withColumnRenamed(Orders.note, "remark")
    df.withColumn(Orders.amount, Orders.amount * 2).withColumns({Orders.quantity: F.lit(1)})
    df.fillna("none", subset=[Orders.note]).repartition(4, Orders.k_user_id)
    df.select(F.row_number().over(Window.partitionBy(Orders.k_user_id).orderBy(Orders.offset)))
    df.withWatermark(str(Orders.placed_at), "1 minute")
    df[Orders.amount].cast("string")
    df.write.partitionBy(Orders.k_user_id).parquet("/nowhere")


def tables_are_read_and_written(spark: SparkSession, cluster: Cluster) -> None:
    assert_type(Orders.read(spark, cluster), DataFrame)
    assert_type(Orders.read_stream(spark, columns=[Orders.amount, "note"]), DataFrame)
    assert_type(Orders.rows([row]), DataFrame)
    assert_type(Orders.collect(Orders.read(spark)), list[Orders])
    Orders.write(Orders.rows([row], spark=spark), cluster)
    trigger: Mapping[str, Any] = {"availableNow": True}
    assert_type(
        Orders.write_stream(Orders.read_stream(spark), cluster, checkpoint="/nowhere", trigger=trigger), StreamingQuery
    )
    assert_type(Orders.schema(), StructType)
    assert_type(Orders.explain("write"), str)
