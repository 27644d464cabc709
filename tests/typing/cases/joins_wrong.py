"""What type checkers must refuse of columns of several tables."""

from __future__ import annotations

from pyspark.sql import DataFrame

from kdsl import aliased
from tests.typing.cases.joins_right import Orders, Payments


def join(orders: DataFrame, payments: DataFrame) -> None:
    o, p = aliased(Orders, "o"), aliased(Payments)
    orders.join(payments, p.at > 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    orders.join(payments, o.order_id == "1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    orders.select(o.order)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
    aliased("Orders")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    aliased(Orders, 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
