"""What type checkers must say of right lines with columns of several tables."""

from __future__ import annotations

from datetime import datetime
from typing import assert_type

from pyspark.sql import Column, DataFrame, functions as F

from kdsl import Col, Json, KafkaTable, Ref, aliased


class Orders(KafkaTable, topic="orders", value=Json()):
    order_id: Col[int]
    at: Col[datetime]


class Payments(KafkaTable, topic="payments", value=Json()):
    order_id: Col[int]
    amount: Col[int | None]
    at: Col[datetime]


class OrdersElsewhere(Orders, topic="orders-elsewhere"):
    """Columns of a parent are columns of the class, too."""


assert_type(OrdersElsewhere.order_id, Ref[int])


def join(orders: DataFrame, payments: DataFrame) -> DataFrame:
    assert_type(Orders.order_id == Payments.order_id, Column)
    o, p = aliased(Orders), aliased(Payments, "paid")
    assert_type(o, type[Orders])
    assert_type(o.order_id, Ref[int])
    assert_type(p.amount, Ref[int | None])
    inside = (o.order_id == p.order_id) & (p.at >= o.at) & (p.at <= o.at + F.expr("INTERVAL 1 HOUR"))
    return orders.join(payments.alias("paid"), inside, "left").select(o.order_id, p.amount)
