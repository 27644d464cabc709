"""References: what reading a column from a table class gives."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession, functions as F

from kdsl import Col, KafkaTable, KdslError, Ref, aliased, col, ref
from tests.declare.dsl import ref_cases
from tests.declare.dsl.ref_cases import CASES, Orders, Payments


def test_a_reference_is_the_name_and_a_column() -> None:
    assert isinstance(Orders.amount, str)
    assert isinstance(Orders.amount, Column)
    assert type(str(Orders.amount)) is str
    assert str(Orders.amount) + "!" == "amount!"
    assert f"{Orders.amount}|{Orders.amount:>8}" == "amount|  amount"
    assert ", ".join([Orders.user, Orders.amount]) == "user, amount"
    assert json.dumps({"a": Orders.amount}) == '{"a": "amount"}'
    assert hash(Orders.amount) == hash("amount")
    assert repr(Orders.amount) == "Orders.amount"
    assert repr(Ref("amount")) == "Ref('amount')"


def test_reading_a_column_returns_the_same_object_each_time() -> None:
    assert Orders.amount is Orders.amount
    assert {Orders.amount: 1, Orders.user: 2}[Orders.user] == 2
    assert Orders.amount in {Orders.amount}


def test_references_are_copied_and_pickled_as_such() -> None:
    document = pickle.loads(pickle.dumps(Orders.amount))

    assert (type(document), str(document), repr(document)) == (Ref, "amount", "Orders.amount")
    assert copy.copy(Orders.amount) is Orders.amount
    assert copy.deepcopy([Orders.amount])[0] is Orders.amount


def test_type_checkers_see_a_plain_column_as_a_column() -> None:
    class Plain(KafkaTable):
        amount: Decimal

    row = Plain(amount=Decimal(1))

    assert isinstance(ref(Plain.amount), Ref)
    with pytest.raises(TypeError, match=r"Decimal\('1'\) is not a column of a table class; write ref\(Table.column\)"):
        ref(row.amount)


@pytest.mark.parametrize(
    ("misuse", "message"),
    [
        (
            lambda: bool(Orders.paid),
            "Orders.paid is a column, not a value; use & | ~ instead of and, or, not, and F.when for if",
        ),
        (
            lambda: Orders.paid and Orders.name,
            "Orders.paid is a column, not a value; use & | ~ instead of and, or, not, and F.when for if",
        ),
        (
            lambda: not Orders.paid,
            "Orders.paid is a column, not a value; use & | ~ instead of and, or, not, and F.when for if",
        ),
        (
            lambda: len(Orders.name),
            "Orders.name is a column, not a value; use F.length(Orders.name) or F.size(Orders.name)",
        ),
        (
            lambda: [*Orders.name],
            "Orders.name is a column, not a value; to have a row for each element use F.explode(Orders.name)",
        ),
        (
            lambda: "A" in Orders.name,
            "`in` cannot search Orders.name, which is a column and not a value; use Orders.name.contains(...) or "
            "F.array_contains(Orders.name, ...)",
        ),
        (
            lambda: Orders.name.upper(),
            "Orders.name is a column, not a string, so it has no upper(); use the functions of pyspark.sql.functions, "
            "or str(Orders.name) for its name",
        ),
        (
            lambda: Orders.name.replace("a", "b"),
            "Orders.name is a column, not a string, so it has no replace(); use the functions of "
            "pyspark.sql.functions, or str(Orders.name) for its name",
        ),
    ],
)
def test_what_is_asked_of_the_name_by_mistake_is_refused_with_advice(misuse: Callable[[], Any], message: str) -> None:
    with pytest.raises(TypeError) as error:
        misuse()

    assert str(error.value) == message


def test_libraries_that_want_the_name_get_it() -> None:
    import textwrap

    assert textwrap.dedent(Orders.amount) == "amount"
    assert json.loads(json.dumps(Orders.amount)) == "amount"


def test_an_expression_without_a_session_is_an_error() -> None:
    code = """
from kdsl import *
class Orders(KafkaTable):
    amount: Col[int]
    address: Col[dict[str, int]]
for make in (lambda: Orders.amount > 1, lambda: 1 + Orders.amount, lambda: Orders.address.street):
    try:
        make()
    except KdslError as e:
        print(type(e).__name__, e)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == [
        f"NoSessionError an expression over Orders.{column} needs a Spark session, and there is none yet; build it "
        "inside the function that works on the DataFrame, or, to compare names, write str(...) around the column"
        for column in ("amount", "amount", "address")
    ]


def test_a_condition_has_no_truth_value(spark: SparkSession) -> None:
    with pytest.raises(Exception, match=r"please use '&' for 'and', '|' for 'or', '~' for 'not'"):
        bool(Orders.amount > 1)


def test_pyspark_takes_references_as_columns_and_as_names(spark: SparkSession) -> None:
    result = ref_cases.results(spark)

    assert result["where"] == [
        ["user", "amount", "limit", "paid", "name", "at", "address", "a.b `c`"],
        [
            ["1", "5.00", "9.00", "True", "Ann", "2025-01-01 00:00:00", "{'city': 'Rome'}", "0"],
            ["1", "8.00", "7.00", "False", "Ann", "2025-01-01 00:00:00", "{'city': 'Oslo'}", "0"],
        ],
    ]
    assert [row[1] for row in result["where a reference"][1]] == ["8.00"]
    assert [row[4] for row in result["filter"][1]] == ["Ann", "Bob"]
    assert result["beside a column on the left"][0][:2] == ["((amount + 1) * limit)", "((amount + 1) - limit)"]
    assert result["beside a column on the left"][1][1] == [
        *("63.0000", "2.00", "1.1428571428571", "1.00", "2.0", "False", "True", "2")
    ]
    assert result["compared with a column on the left"][1][1] == ["True", "True", "True"]
    assert result["argument of a column's method"][1][2] == ["True", "False", "A"]
    assert result["argument of a reference's method"][1][0] == ["False", "True", "True", "False", "True"]
    assert result["functions"][1][1][:5] == ["ANN", "1", "8.00", "8.00", "1-Ann"]
    assert [row[5] for row in result["functions"][1]] == ["5.00", "7.00", "3.00"]
    assert result["members"][1][0] == ["Rome", "Rome", "Rome"]
    assert result["aggregate"] == [
        ["user", "spent", "max((amount * 2))"],
        [["1", "13.00", "16.00"], ["2", "3.00", "6.00"]],
    ]
    assert result["drop"][0] == ["user", "paid", "name", "address", "a.b `c`"]
    assert result["rename"][0][1:3] == ["price", "bound"]
    assert result["odd names"] == [["(a.b `c` + 1)", "abs(a.b `c`)"], [["8", "7"]]]
    assert result["odd names in place"][0][-1] == "plain"
    assert result["a name in a row"] == result["a name in pandas"] == result["a name in arrow"] == [1, 1, 2]
    assert result["is a column"] == [True, True, True]


def test_columns_of_two_tables_are_a_condition_of_a_join(spark: SparkSession) -> None:
    """A name that both tables have was ambiguous to Spark."""
    results = {case: rows for case, (_, rows) in ref_cases.results(spark, [c for c in CASES if "join" in c]).items()}

    assert results["join tables by a name of both"] == [
        ["2", "3.00", "3.00", "True", "Bob", "2025-01-01 00:00:00", "{}", "7", "2", "1.00", "3.00"],
        ["1", "5.00", "9.00", "True", "Ann", "2025-01-01 00:00:00", "{'city': 'Rome'}", "0", "1", "5.00", "8.00"],
        ["1", "8.00", "7.00", "False", "Ann", "2025-01-01 00:00:00", "{'city': 'Oslo'}", "0", "1", "5.00", "8.00"],
    ]
    assert results["join tables by several names"] == [["Ann", "8.00"], ["Bob", "None"]]
    assert results["join tables by a range"] == [
        ["5.00", "3.00"],
        ["5.00", "4.00"],
        ["5.00", "8.00"],
        ["8.00", "3.00"],
        ["8.00", "8.00"],
    ]
    assert results["join tables by arithmetic"] == [["3.00", "3.00"], ["8.00", "8.00"]]
    assert results["join DataFrames without an alias"] == [["3.00", "3.00"], ["8.00", "8.00"]]
    assert results["columns of both sides after a join"] == [["1", "1", "2.00"], ["2", "2", "2.00"], ["1", "1", "4.00"]]
    assert results["join a table with itself"] == [["5.00", "8.00", "Ann"]]


class Here(Orders, topic="orders-test"):
    pass


class There(Payments, topic="payments-test"):
    pass


class Keyed(KafkaTable):
    id: Col[int]


class Left(Keyed, topic="left"):
    pass


class Right(Keyed, topic="right"):
    pass


def test_a_class_for_another_topic_is_still_the_table(spark: SparkSession) -> None:
    """As tests declare them: the code that is tested joins by the columns of the table."""

    orders, payments = Here.rows([], spark=spark), There.rows([], spark=spark)

    assert orders.join(payments, Orders.user == Payments.user).collect() == []
    assert orders.join(payments, Here.user == There.user).collect() == []
    assert (repr(Here.user), Here.user is Orders.user, Here.user is Here.user) == ("Here.user", False, True)


def test_tables_with_a_common_part_are_distinguished(spark: SparkSession) -> None:
    joined = Left.rows([Left(id=1)], spark=spark).join(Right.rows([Right(id=1)], spark=spark), Left.id == Right.id)

    assert [tuple(row) for row in joined.collect()] == [(1, 1)]


def test_a_column_is_not_compared_with_itself(spark: SparkSession) -> None:
    with pytest.raises(KdslError) as error:
        Orders.user == Orders.user  # noqa: B015

    assert str(error.value) == (
        "Orders.user is compared with itself, which is always true; to join the table with itself, compare the columns "
        "of two aliases, such as aliased(Orders, 'a'); to leave out rows without a value, use Orders.user.isNotNull()"
    )


def test_a_class_that_adds_a_column_has_an_alias_of_its_own(spark: SparkSession) -> None:
    class Base(KafkaTable, topic="orders"):
        k: Col[int]

    class Extended(Base, topic="eu"):
        extra: Col[str | None] = col(default=None)

    class Elsewhere(Base, topic="us"):
        pass

    class Same(Base):
        pass

    extended, elsewhere = Extended.rows([Extended(k=1)], spark=spark), Elsewhere.rows([Elsewhere(k=1)], spark=spark)
    same = Same.rows([Same(k=1)], spark=spark)

    assert len(extended.join(elsewhere, Extended.k == Elsewhere.k).collect()) == 1
    assert len(same.join(elsewhere, Same.k == Elsewhere.k).collect()) == 1


def test_columns_of_classes_that_share_an_alias_are_not_compared() -> None:
    class EU(Orders, topic="eu"):
        pass

    class US(Orders, topic="us"):
        pass

    with pytest.raises(
        KdslError, match=r"EU and US share the alias 'Orders'; give each its own, as aliased\(EU, 'eu'\)"
    ):
        EU.user == US.user  # noqa: B015
    with pytest.raises(KdslError, match="Orders and US share the alias 'Orders'"):
        Orders.user == US.user  # noqa: B015


def test_an_alias_has_the_columns_of_a_table_class_and_nothing_else() -> None:
    first = aliased(Orders, "first")

    assert (repr(first), repr(first.user), str(first.user)) == ("aliased(Orders, 'first')", "first.user", "user")
    assert isinstance(first.user, Ref)
    with pytest.raises(
        AttributeError, match=r"aliased\(Orders, 'first'\) has the columns of Orders, and 'read' is not one"
    ):
        first.read  # noqa: B018
    with pytest.raises(AttributeError, match="usr"):
        first.usr  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(TypeError, match=r"is not a table class; write aliased\(Orders, 'earlier'\)"):
        aliased(str)


def test_what_a_body_or_a_function_captures_travels_to_the_workers(spark: SparkSession) -> None:
    wanted = Orders.amount
    shown = F.udf(lambda _: f"{wanted} {type(wanted).__name__}", "string", useArrow=False)

    (row,) = spark.range(1).select(shown("id").alias("shown")).collect()

    assert row.shown == "amount Ref"


def test_columns_with_unusual_names_keep_them(spark: SparkSession) -> None:
    class Odd(KafkaTable):
        quoted: Col[int] = col(name="`a`.b")
        spaced: Col[int] = col(name="time of day")

    df = Odd.rows([Odd(quoted=1, spaced=2)])

    assert df.columns == ["`a`.b", "time of day"]
    assert [tuple(row) for row in df.select(Odd.quoted + Odd.spaced, Odd.quoted, Odd.spaced).collect()] == [(3, 1, 2)]
