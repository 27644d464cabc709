"""What a class says where its own names cannot: other names of tables and members, orders of keys, SQL."""

from __future__ import annotations

import dataclasses
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import attrs
import pytest

from kdsl import (
    Col,
    Json,
    KafkaTable,
    Key,
    Named,
    PrimaryKey,
    ResolveError,
    Virtual,
    col,
    computed,
    expression,
    virtual,
)
from kdsl.declare.definition import ColumnDef, Expression, TableDef, WatermarkDef
from kdsl.declare.dsl.values import from_arrow, to_arrow
from kdsl.types import model as t
from kdsl.types.python import AnnotationError, column_type, evaluator_within


@dataclasses.dataclass(frozen=True, kw_only=True)
class Address:
    zip_code: Annotated[str, Named("zip-code")]
    """Five digits."""
    city: str | None


@attrs.frozen
class Swapped:
    a: Annotated[int, Named("b")]
    b: Annotated[str, Named("a")]


class Wrong(TypedDict):
    a: Annotated[int, Named("x")]


def nothing(text: str) -> Any:
    raise NameError(text)


def test_members_have_the_names_that_named_sets_and_docstrings_as_comments() -> None:
    zip_code = t.Field("zip-code", t.STRING.as_nullable(False), "Five digits.")

    assert column_type(Address) == t.Row((zip_code, t.Field("city", t.STRING)), nullable=False)


@pytest.mark.parametrize(("value", "arrow"), [
    (Address(zip_code="1", city=None), {"zip-code": "1", "city": None}),
    (Swapped(1, "x"), {"b": 1, "a": "x"}),
])  # fmt: skip
def test_values_of_named_members_survive_a_round_trip(value: Any, arrow: dict[str, Any]) -> None:
    kind = column_type(type(value))

    assert to_arrow(value, kind) == arrow
    assert from_arrow(arrow, kind, type(value), evaluator_within(type(value), nothing)) == value


def test_a_typed_dict_needs_no_named() -> None:
    with pytest.raises(AnnotationError, match="members of a TypedDict can have any name themselves"):
        column_type(Wrong)


def test_two_members_cannot_have_one_name() -> None:
    renamed: Any = Annotated[int, Named("a")]
    twice = attrs.make_class("Twice", {"a": attrs.field(type=int), "b": attrs.field(type=renamed)})

    with pytest.raises(AnnotationError, match="two members 'a'"):
        column_type(twice)


def test_a_column_is_named_by_col() -> None:
    class Orders(KafkaTable, topic="t", value=Json()):
        user: Annotated[Col[int], Named("user-id")]

    (problem,) = Orders.definition().problems

    assert problem.fix == "write col(name='user-id')"


def test_a_class_sets_name_and_comment_of_its_table_but_not_of_subclasses() -> None:
    class Base(KafkaTable, name="user_orders", comment=" as it is ", topic="t"):
        """A docstring."""

        a: Col[int]

    class Sub(Base):
        b: Col[int]

    assert (Base.definition().name, Base.definition().comment) == ("user_orders", " as it is ")
    assert (Sub.definition().name, Sub.definition().comment) == ("Sub", None)


def test_the_order_of_the_message_key_may_be_another_than_that_of_the_class() -> None:
    class Orders(KafkaTable, topic="t", key=Json(), value=Json(), key_fields=("b", "a")):
        a: Key[int]
        b: Key[int]

    assert [f.name for f in Orders.key_schema()] == ["b", "a"]


def test_key_fields_and_marks_name_the_same_columns() -> None:
    class Orders(KafkaTable, topic="t", key=Json(), value=Json(), key_fields=("b",), primary_key=["b"]):
        a: Key[int]
        b: PrimaryKey[int]

    (problem,) = Orders.definition().problems

    assert problem.message == "key_fields= names 'b', but Key[...] marks 'a' and 'b'"


def test_a_primary_key_need_not_be_in_the_message_key() -> None:
    class Orders(KafkaTable, topic="t", value=Json(), primary_key=("b", "a")):
        a: Col[int]
        b: Col[int]

    assert Orders.definition().primary_key == ("b", "a")
    assert Orders.definition().message_key == ()


class Priced(KafkaTable, topic="t", value=Json()):
    amount: Col[Decimal]
    quantity: Col[int]
    total: Virtual[Decimal] = expression("amount * quantity", type="DECIMAL(12, 2)", comment="All of it.")
    offset: Virtual[int | None] = virtual("offset", type="BIGINT")

    @computed
    def twice(self) -> Decimal:
        return self.total * 2


def test_an_expression_is_sql_that_only_spark_works_out() -> None:
    columns = Priced.definition().columns

    assert columns[2] == ColumnDef(
        "total", t.Decimal(12, 2, nullable=False), "computed",
        expression=Expression("amount * quantity"), comment="All of it.",
    )  # fmt: skip
    assert columns[4].expression == Expression("CAST(amount * quantity AS decimal(12,2)) * 2")
    row = Priced(amount=Decimal(1), quantity=2)
    with pytest.raises(AttributeError, match="computed by Spark"):
        _ = row.total


def test_an_expression_is_not_empty() -> None:
    class Orders(KafkaTable, topic="t", value=Json()):
        a: Col[int]
        b: Virtual[int] = expression(" ")

    with pytest.raises(ResolveError) as caught:
        Orders.schema()
    assert [p.message for p in caught.value.problems] == ["the expression is ' '"]


def test_a_virtual_column_with_a_type_may_be_null() -> None:
    assert Priced.definition().columns[3] == ColumnDef("offset", t.BigInt(), "metadata", virtual=True)


def test_tables_that_mean_the_same_are_equal() -> None:
    a, b = ColumnDef("a", t.Int()), ColumnDef("b", t.Int())
    offset = ColumnDef("offset", t.BigInt(), "metadata", virtual=True)
    marked = TableDef(
        "o", (attrs.evolve(a, key=True), b, attrs.evolve(offset, metadata_key="offset")),
        watermarks=(WatermarkDef("b", "5 seconds"),),
    )  # fmt: skip
    named = TableDef("o", (a, b, offset), key_fields=("a",), watermarks=(WatermarkDef("b", "5 s"),))

    assert marked == named
    assert marked != attrs.evolve(named, key_fields=("b",))
    assert marked != attrs.evolve(named, watermarks=(WatermarkDef("b", "6 s"),))
    assert offset != attrs.evolve(offset, metadata_key="partition")


def test_the_comment_of_col_may_be_empty() -> None:
    class Orders(KafkaTable, topic="t", value=Json()):
        a: Col[int] = col(comment="")
        """Not asked for."""

    assert Orders.definition().columns[0].comment == ""
