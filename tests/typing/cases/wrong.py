"""What type checkers must refuse, each line with the one rule by which they do."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

from pyspark.sql import DataFrame, SparkSession

from kdsl import Col, Json, KafkaTable, Key, Virtual, col, metadata, virtual
from tests.typing.cases.orders import Address, Channel, Orders, Plain, Totals, row

AT = datetime(2025, 1, 1, tzinfo=UTC)
HOME = Address("Main Street", None)

# Columns that do not exist.
misspelled = Orders.amout  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]
misspelled_value = row.amout  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


def comparisons_with_values_of_other_types(df: DataFrame) -> None:
    df.where(Orders.amount > "1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    df.where(Orders.amount == "1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    df.where(Orders.k_order_id == 1)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    df.where(Orders.quantity < "1")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    df.where(Orders.placed_at > 5)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    df.where((Orders.amount > "1") & (Orders.offset > 1))  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    df.select(Orders.amout)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue]


# Rows: an argument that is missing, of another type, unknown, read only, or without its name.
Orders(k_user_id=1, k_order_id="a", channel=Channel.WEB, address=HOME, placed_at=AT)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Orders(k_user_id="1", k_order_id="a", amount=Decimal(1), channel=Channel.WEB, address=HOME, placed_at=AT)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Orders(k_user_id=1, k_order_id="a", amount=1.5, channel=Channel.WEB, address=HOME, placed_at=AT)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Orders(k_user_id=1, k_order_id="a", amount=Decimal(1), channel="web", address=HOME, placed_at=AT)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Orders(k_user_id=1, k_order_id="a", amount=Decimal(1), channel=Channel.WEB, address=HOME, placed_at=AT, offset=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Orders(k_user_id=1, k_order_id="a", amount=Decimal(1), channel=Channel.WEB, address=HOME, placed_at=AT, amout=3)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Totals(1, Decimal(2))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
row.amount = Decimal(2)  # type: ignore[arg-type]  # pyright: ignore[reportAttributeAccessIssue]
row.offset = 2  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]


class Columns(KafkaTable, topic="t", value=Json()):
    at: Col[str] = metadata("timestamp")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    written: Col[int] = metadata("offset")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    misspelled: Virtual[int] = virtual("ofset")  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    text: Virtual[str] = virtual("offset")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    epoch: Virtual[int] = virtual("leader-epoch")  # type: ignore[assignment]  # pyright: ignore[reportAssignmentType]
    default: Col[int] = col(default="x")  # type: ignore[arg-type]  # pyright: ignore[reportAssignmentType]
    unknown: Col[int] = col(defualt=1)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue]


class Misspelled(KafkaTable, topc="t", value=Json()):  # type: ignore[call-arg]  # pyright: ignore[reportGeneralTypeIssues, reportCallIssue]
    user: Key[int]


class WrongValue(KafkaTable, topic="t", value=Json(), value_fields="NONE"):  # type: ignore[arg-type]  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType]
    user: Key[int]


class WrongStart(KafkaTable, topic="t", value=Json(), startup="begin"):  # type: ignore[arg-type]  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType]
    user: Key[int]


class WrongFormat(KafkaTable, topic="t", value=Json):  # type: ignore[arg-type]  # pyright: ignore[reportGeneralTypeIssues, reportArgumentType]
    user: Col[int]


def methods(spark: SparkSession) -> None:
    Orders.read_stream(spark, colums=["a"])  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Orders.rows([Plain(name="a", amount=Decimal(1), seen_at=AT)])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
    Orders.write_stream(Orders.read_stream(spark))  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    Orders.explain("reed")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
