"""What is done with references in a session; run in a classic one and through Spark Connect, with the same results.

As a script it prints the results of a Spark Connect session as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.window import Window

from kdsl import Col, KafkaTable, Ref, Virtual, aliased, col, virtual


class Orders(KafkaTable, topic="orders", value="json"):
    user: Col[int]
    amount: Col[Decimal] = col(type="decimal(10,2)")
    limit: Col[Decimal] = col(type="decimal(10,2)")
    paid: Col[bool]
    name: Col[str]
    at: Col[datetime]
    address: Col[dict[str, str]]
    dotted: Col[int] = col(name="a.b `c`", default=0)
    offset: Virtual[int] = virtual("offset")


class Payments(KafkaTable, topic="payments", value="json"):
    user: Col[int]
    limit: Col[Decimal] = col(type="decimal(10,2)")
    sum: Col[Decimal] = col(type="decimal(10,2)")


AT = datetime(2025, 1, 1, tzinfo=UTC)
ROWS = [
    Orders(user=1, amount=Decimal(5), limit=Decimal(9), paid=True, name="Ann", at=AT, address={"city": "Rome"}),
    Orders(user=1, amount=Decimal(8), limit=Decimal(7), paid=False, name="Ann", at=AT, address={"city": "Oslo"}),
    Orders(user=2, amount=Decimal(3), limit=Decimal(3), paid=True, name="Bob", at=AT, address={}, dotted=7),
]
PAYMENTS = [
    Payments(user=1, limit=Decimal(5), sum=Decimal(8)),
    Payments(user=2, limit=Decimal(1), sum=Decimal(3)),
    Payments(user=3, limit=Decimal(9), sum=Decimal(4)),
]
# Made when the module is imported, before there is a session.
KEPT = [Orders.user, Orders.amount]
USER_AND_NAME: list[str] = [Orders.user, Orders.name]
user, amount, limit, paid, name, dotted = (
    Orders.user,
    Orders.amount,
    Orders.limit,
    Orders.paid,
    Orders.name,
    Orders.dotted,
)

order, payment = aliased(Orders), aliased(Payments)
first, second = aliased(Orders, "first"), aliased(Orders, "second")


def payments(df: DataFrame) -> DataFrame:
    """The payments, in the session of a DataFrame."""
    return Payments.rows(PAYMENTS, spark=df.sparkSession)


def without_alias(df: DataFrame) -> DataFrame:
    """The same rows in a DataFrame that has no alias."""
    return df.sparkSession.createDataFrame(df.collect(), df.schema)


Case = Callable[[DataFrame], DataFrame]
CASES: dict[str, Case] = {
    "where": lambda df: df.where(amount > 4),
    "where a reference": lambda df: df.where(amount > limit),
    "where a boolean": lambda df: df.where(paid).where(~paid | paid),
    "filter": lambda df: df.filter((amount > 4) & paid | (name == "Bob")),
    "select": lambda df: df.select(user, "amount", amount + 1, amount * limit, -user, 2 - user, user % 2),
    "select kept": lambda df: df.select(*KEPT).select(KEPT),
    "beside a column on the left": lambda df: df.select(
        (amount + 1) * limit, (amount + 1) - limit, F.col("amount") / limit, F.col("amount") % limit, F.lit(2) ** user,
        (amount > 4) & paid, (amount > 4) | paid, F.lit(1) + user,
    ),
    "compared with a column on the left": lambda df: df.select(
        (F.col("amount") > limit).alias("a"), (F.lit(1) == user).alias("b"), (F.lit(1) <= user).alias("c"),
    ),
    "argument of a column's method": lambda df: df.select(
        F.col("user").isin(user, 5), F.lit(4).between(amount, limit), F.lit("A").alias(name)
    ),
    "argument of a reference's method": lambda df: df.select(
        amount.between(limit, 9), user.isin(user), user.isin([1, 2]), amount.eqNullSafe(limit), name.contains(name)
    ),
    "functions": lambda df: df.select(
        F.upper(name), F.col(user), F.lit(amount), F.coalesce(amount, limit), F.concat_ws("-", user, name),
        F.when(paid, amount).otherwise(limit), F.struct(user, name).alias("s"), F.array(amount, limit).alias("a"),
    ),
    "methods": lambda df: df.select(
        name.startswith("A"), name.endswith("n"), name.like("B%"), name.substr(1, 2), name.isNull(),
        user.cast("string"), user.alias("u"), name.alias(name), amount.cast(Orders.schema()["user"].dataType),
    ),
    "members": lambda df: df.select(Orders.address["city"], Orders.address.getItem("city"), Orders.address.city),
    "aggregate": lambda df: df.groupBy(user).agg(F.sum(amount).alias("spent"), F.max(amount * 2)).orderBy(user),
    "aggregate by name": lambda df: df.groupBy([user, paid]).sum(user).orderBy(user, paid.desc()),
    "aggregate by a dict": lambda df: df.agg({amount: "sum"}),
    "order": lambda df: df.orderBy(user, amount.desc()).sort(F.desc(amount)).sort([user, name]),
    "window": lambda df: df.select(F.row_number().over(Window.partitionBy(user).orderBy(amount))),
    "drop": lambda df: df.drop(amount, limit).drop(F.col("at")),
    "distinct": lambda df: df.dropDuplicates([user, name]).select(user, name).orderBy(user),
    "columns": lambda df: df.withColumn(amount, amount * 2).withColumns({limit: limit + 1}),
    "rename": lambda df: df.withColumnRenamed(amount, "price").withColumnsRenamed({limit: "bound"}),
    "join": lambda df: df.join(df.select(user).distinct(), user).orderBy(amount),
    "join on several": lambda df: df.join(df.select(user, name).distinct(), USER_AND_NAME).orderBy(amount),
    "join on a condition": lambda df: df.join(df.select(user.alias("other")).distinct(), user == F.col("other")),
    "join tables by a name of both": lambda df: df.join(payments(df), Orders.user == Payments.user)
    .orderBy("sum", amount),
    "join tables by several names": lambda df: df.where(paid).join(
        payments(df), (Orders.user == Payments.user) & (Payments.limit < Orders.limit) & (Payments.sum > 4), "left"
    ).select(name, Payments.sum).orderBy(name),
    "join tables by a range": lambda df: df.join(payments(df), Payments.limit.between(Orders.user, Orders.limit))
    .select(amount, Payments.sum).orderBy(amount, "sum"),
    "join tables by arithmetic": lambda df: df.join(payments(df), Orders.limit - Payments.limit == 2)
    .select(amount, Payments.sum).orderBy(amount),
    "join DataFrames without an alias": lambda df: without_alias(df).join(
        without_alias(payments(df)).drop(Payments.user, Payments.limit), Orders.amount == Payments.sum
    ).select(amount, Payments.sum).orderBy(amount),
    "columns of both sides after a join": lambda df: df.join(payments(df), order.user == payment.user)
    .select(order.user, payment.user, (order.limit - payment.limit).alias("more")).orderBy("more", order.user),
    "join a table with itself": lambda df: df.alias("first").join(
        df.alias("second"), (first.user == second.user) & (first.amount < second.amount)
    ).select(first.amount, second.amount, first.name),
    "get": lambda df: df[[user, amount]].select(user, df[amount]),
    "fill": lambda df: df.fillna("x", subset=[name]).replace("Ann", "Eve", subset=[name]).dropna(subset=[user]),
    "partition": lambda df: df.repartition(2, user).orderBy(amount),
    "expression": lambda df: df.select(F.expr(user)).selectExpr(user),
    "unpivot": lambda df: df.unpivot(user, [amount, limit], "what", "value").orderBy("what", "value"),
    "odd names": lambda df: df.where(dotted == 7).select(dotted, dotted + 1, F.abs(dotted)).drop(dotted),
    "odd names in place": lambda df: df.withColumn(dotted, dotted + 1).withColumnRenamed(dotted, "plain"),
    "from a table": lambda df: df.select([Orders.at, Orders.user]),
}  # fmt: skip


def to_string(value: Any) -> str:
    """A value as text; Spark gives instants in the time zone of the process."""
    return str(value.astimezone(UTC).replace(tzinfo=None) if isinstance(value, datetime) else value)


def results(spark: SparkSession, cases: Iterable[str] | None = None) -> dict[str, Any]:
    """The columns and rows of each case, or of the named ones."""
    df = Orders.rows(ROWS, spark=spark)
    actual: dict[str, Any] = {}
    for case in CASES if cases is None else cases:
        out = CASES[case](df)
        actual[case] = [out.columns, [[to_string(value) for value in row] for row in out.collect()]]
    if cases is not None:
        return actual
    actual["a name in a schema"] = str(df.schema[user])
    actual["a name in a row"] = [row[user] for row in df.collect()]
    pandas: Any = df.toPandas()
    actual["a name in pandas"] = pandas[user].tolist()
    actual["a name in arrow"] = df.toArrow().column(user).to_pylist()
    actual["a correlation"] = df.stat.corr(user, user)
    actual["is a column"] = [
        isinstance(user, Column),
        isinstance(F.lit(user), Ref),
        str(F.col(user)) == str(F.col("user")),
    ]
    return actual


def print_results(session: SparkSession) -> None:
    """Print the results of a Spark Connect session as JSON."""
    refused = ""
    try:
        Orders.rows(ROWS).select(F.col("amount").eqNullSafe(limit)).collect()
    except TypeError as e:
        refused = str(e)
    print(json.dumps({"results": results(session), "refused": refused}))
