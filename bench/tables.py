"""The tables that the benchmarks read and write."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from kdsl import CanalJson, Col, DeadLetters, Json, KafkaTable, Raw, col, expect


class Messages(KafkaTable, topic="orders", value=Raw(), startup="earliest"):
    """The messages as bytes."""

    value: Col[bytes | None]


class Copies(KafkaTable, topic="out", value=Raw(), startup="earliest"):
    """The output for messages as bytes."""

    value: Col[bytes | None]


class Fields(KafkaTable):
    """The columns of an order."""

    order_id: Col[str | None]
    order_channel: Col[str | None]
    order_time: Col[datetime | None] = col(type="TIMESTAMP(3)")
    pay_amount: Col[Decimal | None] = col(type="DECIMAL(10, 2)")
    quantity: Col[int | None]
    user_id: Col[int | None]
    user_name: Col[str | None]
    paid: Col[bool | None]
    area_id: Col[str | None]


class Orders(Fields, topic="orders", value=Json(), startup="earliest"):
    """The decoded orders; an invalid one is an error."""


class DirtyOrders(Fields, topic="dirty-orders", value=Json(ignore_parse_errors=True), startup="earliest"):
    """Orders with one invalid JSON message in a hundred, which is skipped."""


class CanalOrders(KafkaTable, topic="canal", value=CanalJson(), startup="earliest"):
    """Orders as Canal writes their changes."""

    id: Col[int | None]
    user_id: Col[int | None]
    amount: Col[Decimal | None] = col(type="DECIMAL(38, 18)")
    note: Col[str | None]


class OrdersOut(Fields, topic="out", value=Json(), startup="earliest"):
    """The output for orders."""


class OrdersWithLetters(
    Fields, topic="orders", value=Json(), startup="earliest", dead_letters=DeadLetters("dead-orders")
):
    """The orders, decoded; a broken one becomes a dead letter."""


class DirtyOrdersWithLetters(
    Fields, topic="dirty-orders", value=Json(), startup="earliest", dead_letters=DeadLetters("dead-orders")
):
    """The same where one message of a hundred is not JSON."""


class CheckedOrders(Fields, topic="orders", value=Json(), startup="earliest"):
    """The orders with three rules, which all of them meet."""

    pay_amount: Col[Decimal | None] = col(type="DECIMAL(10, 2)", expect=expect("pay_amount >= 0", on_fail="drop"))
    known_channel = expect("order_channel IN ('webShop', 'appShop', 'miniAppShop')", on_fail="fail")
    named = expect("user_name LIKE 'customer-%' AND CHAR_LENGTH(order_id) = 18")


class CheckedOrdersWithLetters(
    CheckedOrders, topic="orders", value=Json(), startup="earliest", dead_letters=DeadLetters("dead-orders")
):
    """The same with dead letters, also for the orders that violate one of the rules."""

    named = expect("user_name LIKE 'customer-%' AND CHAR_LENGTH(order_id) = 18", on_fail="dead_letter")
