"""What the body of a table class declares."""

from __future__ import annotations

import dataclasses
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, ClassVar, cast

import attrs
import pytest
from pyspark.sql.types import IntegerType

from kdsl import (
    Col,
    Header,
    Headers,
    Int32,
    KafkaTable,
    Key,
    KeyField,
    Metadata,
    PrimaryKey,
    TimestampNtz,
    Virtual,
    col,
    computed,
    metadata,
    virtual,
)
from kdsl.declare.definition import MISSING, ColumnDef, Expression, TableDef, WatermarkDef
from kdsl.options import Spelling
from kdsl.types import model as t
from kdsl.types.parse import parse_type


def columns(table: type[KafkaTable]) -> dict[str, str]:
    """The types of the columns, in order."""
    assert [str(p) for p in table.definition().problems] == []
    return {c.name: str(c.type) for c in table.definition().columns}


def only(table: type[KafkaTable]) -> ColumnDef:
    """The one column, which holds."""
    assert [str(p) for p in table.definition().problems] == []
    (result,) = table.definition().columns
    return result


class Orders(KafkaTable, topic="orders", key_prefix="k_", value_fields="EXCEPT_KEY"):
    """Orders as the shop writes them.

    More of it.
    """

    VERSION: ClassVar[int] = 3

    k_user_id: Key[int]
    """Who ordered."""
    k_order_id: PrimaryKey[str]
    amount: Col[Decimal] = col(type="decimal(10,2)", comment="What it cost.")
    """This is not asked for."""
    note: Col[str | None] = col(default=None)
    placed_at: Col[datetime] = metadata("timestamp", watermark="5 seconds")
    offset: Virtual[int] = virtual("offset")

    @computed
    def twice(self) -> Decimal:
        """Two times the amount."""
        return self.amount * 2


def test_a_class_statement_is_a_definition() -> None:
    assert Orders.definition() == TableDef(
        name="Orders",
        columns=(
            ColumnDef("k_user_id", t.BigInt(nullable=False), key=True, comment="Who ordered."),
            ColumnDef("k_order_id", t.STRING.as_nullable(False), key=True),
            ColumnDef("amount", t.Decimal(10, 2, nullable=False), comment="What it cost."),
            ColumnDef("note", t.STRING, default=None),
            ColumnDef("placed_at", t.TimestampLtz(3, nullable=False), role="metadata", metadata_key="timestamp"),
            ColumnDef("offset", t.BigInt(nullable=False), role="metadata", metadata_key="offset", virtual=True),
            ColumnDef(
                "twice",
                t.Decimal(38, 18, nullable=False),
                role="computed",
                expression=Expression("`amount` * 2"),
                comment="Two times the amount.",
            ),
        ),
        options=Orders.definition().options,
        primary_key=("k_order_id",),
        watermarks=(WatermarkDef("placed_at", "5 seconds"),),
        comment="Orders as the shop writes them.\n\nMore of it.",
    )
    assert Orders.definition().problems == ()
    assert Orders.definition().spelling is Spelling.PYTHON
    assert Orders.VERSION == 3


def test_a_definition_is_made_once() -> None:
    assert Orders.definition() is Orders.definition()


def test_the_longer_spellings_mean_the_same() -> None:
    class Short(KafkaTable):
        user: Key[int]
        primary: PrimaryKey[int]
        at: Col[datetime] = metadata("timestamp")
        offset: Virtual[int] = virtual("offset")
        epoch: Virtual[int | None] = virtual("leader-epoch")

    class Marked(KafkaTable):
        user: Annotated[Col[int], KeyField()]
        primary: Annotated[Col[int], KeyField(primary=True)]
        at: Annotated[Col[datetime], Metadata("timestamp")]
        offset: Annotated[Virtual[int], Metadata("offset")]
        epoch: Annotated[Virtual[int | None], Metadata("leader-epoch")]

    class Plain(KafkaTable):
        user: Annotated[int, KeyField()]
        primary: Annotated[int, KeyField(primary=True)]
        at: Annotated[datetime, Metadata("timestamp")]
        offset: Annotated[int, Metadata("offset", virtual=True)]
        epoch: Annotated[int | None, Metadata("leader-epoch", virtual=True)]

    class Assigned(KafkaTable):
        user: Col[int] = KeyField()  # type: ignore[assignment]
        primary: int = KeyField(primary=True)  # type: ignore[assignment]
        at: Col[datetime] = Metadata("timestamp")
        offset: Virtual[int] = Metadata("offset")
        epoch: int | None = Metadata("leader-epoch", virtual=True)

    expected = Short.definition()
    for table in (Marked, Plain, Assigned):
        assert attrs.evolve(table.definition(), name="Short") == expected
        assert table.definition().problems == ()


def test_a_plain_annotation_with_a_value_has_a_default() -> None:
    class Plain(KafkaTable):
        quantity: int = 1
        tags: list[str] = []  # noqa: RUF012
        price: Col[Decimal] = Decimal("1.5")  # type: ignore[assignment]

    assert [c.default for c in Plain.definition().columns] == [1, [], Decimal("1.5")]


def test_without_a_default_it_is_missing() -> None:
    class Plain(KafkaTable):
        quantity: int

    assert only(Plain).default is MISSING


def test_a_virtual_column_without_a_key_shows_the_metadata_of_its_name() -> None:
    class Read(KafkaTable):
        offset: Virtual[int]

    assert only(Read) == ColumnDef("offset", t.BigInt(nullable=False), role="metadata", virtual=True)
    assert only(Read).shows == "offset"


def test_metadata_has_the_type_of_the_record_by_default() -> None:
    class Read(KafkaTable):
        partition: Virtual[int] = virtual("partition")
        offset: Virtual[int] = virtual("offset")
        at: Col[datetime] = metadata("timestamp")
        headers: Col[Headers] = metadata("headers")
        all_headers: Col[list[Header]] = metadata("header-list")
        topic: Virtual[str] = virtual("topic")
        raw_key: Virtual[bytes | None] = virtual("__raw_key__")
        epoch: Virtual[int | None] = virtual("leader-epoch")

    assert columns(Read) == {
        "partition": "INT NOT NULL",
        "offset": "BIGINT NOT NULL",
        "at": "TIMESTAMP_LTZ(3) NOT NULL",
        "headers": "MAP<STRING NOT NULL, BYTES> NOT NULL",
        "all_headers": "ARRAY<ROW<`key` STRING NOT NULL, `value` BYTES> NOT NULL> NOT NULL",
        "topic": "STRING NOT NULL",
        "raw_key": "BYTES",
        "epoch": "INT",
    }


def test_metadata_has_the_declared_type() -> None:
    class Read(KafkaTable):
        partition: Virtual[int] = virtual("partition", type="BIGINT")
        at: Annotated[TimestampNtz, Metadata("timestamp")]
        offset: Annotated[str, Metadata("offset")]
        raw: Annotated[str | None, Metadata("__raw_value__")]
        day: Annotated[date, Metadata("timestamp")]

    assert columns(Read) == {
        "partition": "BIGINT NOT NULL",
        "at": "TIMESTAMP(6) NOT NULL",
        "offset": "STRING NOT NULL",
        "raw": "STRING",
        "day": "DATE NOT NULL",
    }


def test_types_may_be_declared_in_many_ways() -> None:
    class Typed(KafkaTable):
        a: Key[Int32]
        b: Col[Annotated[int, IntegerType()]]
        c: Annotated[Col[int], IntegerType()]
        d: Annotated[int, IntegerType()]
        e: Col[int] = col(type="INT")
        f: Col[int] = col(type=t.Int())
        g: Col[int] = col(type=IntegerType())

    assert set(columns(Typed).values()) == {"INT NOT NULL"}


def test_a_column_may_have_a_name_that_no_attribute_can_have() -> None:
    class Named(KafkaTable):
        kind: Virtual[str] = virtual("timestamp-type", name="timestamp-type")
        schema_: Col[str] = col(name="schema")
        at: Col[datetime] = metadata("timestamp", name="time of day")

        @computed(name="to tal", type="INT", watermark="1 s", comment="All.")
        def total(self) -> int:
            return 1

    assert list(columns(Named)) == ["timestamp-type", "schema", "time of day", "to tal"]
    assert [c.where.column for c in Named.definition().columns] == list(columns(Named))
    assert (str(Named.kind), str(Named.schema_), repr(Named.total)) == ("timestamp-type", "schema", "Named.to tal")
    assert Named.definition().columns[-1].type == t.Int(nullable=False)
    assert Named.definition().columns[-1].comment == "All."
    assert Named.definition().watermarks == (WatermarkDef("to tal", "1 s"),)


def test_names_may_begin_with_an_underscore() -> None:
    class Documents(KafkaTable):
        _id: Key[str]
        _rev: Col[int] = col(default=0)

    assert list(columns(Documents)) == ["_id", "_rev"]
    assert Documents(_id="a")._rev == 0


class Audit(KafkaTable):
    """A common part, without a topic."""

    changed_at: Col[datetime]
    changed_by: Col[str] = col(default="nobody")
    """Who it was."""

    @computed
    def anonymous(self) -> bool:
        return self.changed_by == "nobody"


class Users(Audit, topic="users"):
    name: Col[str]
    changed_by: Col[str | None] = col(default=None)  # type: ignore[assignment]  # a wider type than its base has


class Traced(KafkaTable):
    trace: Col[Headers] = metadata("headers")


class Accounts(Users, Traced, topic="accounts"):
    balance: Col[float]
    anonymous = False


def test_columns_are_inherited_and_may_be_redeclared_in_the_same_position() -> None:
    assert columns(Users) == {
        "changed_at": "TIMESTAMP_LTZ(6) NOT NULL",
        "changed_by": "STRING",
        "anonymous": "BOOLEAN NOT NULL",
        "name": "STRING NOT NULL",
    }
    assert [c.where.table for c in Users.definition().columns] == ["Users"] * 4
    assert columns(Audit)["changed_by"] == "STRING NOT NULL"
    assert Audit.definition().columns[1].comment == "Who it was."
    assert Users.definition().columns[1].comment is None


def test_several_tables_may_be_inherited_from_and_columns_replaced_by_other_things() -> None:
    assert list(columns(Accounts)) == ["trace", "changed_at", "changed_by", "name", "balance"]
    assert Accounts.anonymous is False


def test_a_comment_of_the_class_is_not_inherited() -> None:
    assert Audit.definition().comment == "A common part, without a topic."
    assert Users.definition().comment is None


def test_annotations_may_name_what_comes_later() -> None:
    assert columns(Early) == {
        "late": "ROW<`a` BIGINT NOT NULL> NOT NULL",
        "again": "ARRAY<ROW<`a` BIGINT NOT NULL> NOT NULL> NOT NULL",
    }


class Early(KafkaTable):
    late: Col[Late]
    again: Col[list["Late"]]  # noqa: UP037


@dataclasses.dataclass
class Late:
    a: int


def test_annotations_may_name_what_a_function_defines() -> None:
    class Color(Enum):
        RED = "red"

    @attrs.frozen
    class Inner:
        color: Color
        more: list[Color]

    class Table(KafkaTable):
        inner: Col[Inner]

        class Nested(Enum):
            ONE = 1

        nested: Col[Nested]

    expected = "ROW<`color` STRING NOT NULL, `more` ARRAY<STRING NOT NULL> NOT NULL> NOT NULL"
    assert columns(Table) == {"inner": expected, "nested": "BIGINT NOT NULL"}


def test_a_column_may_be_called_like_its_type() -> None:
    class Calendar(KafkaTable):
        date: Col[date]
        datetime: Col[datetime] = col(default=datetime(2025, 1, 1, tzinfo=UTC))

    assert list(columns(Calendar).values()) == ["DATE NOT NULL", "TIMESTAMP_LTZ(6) NOT NULL"]


def test_a_name_that_is_not_defined_yet_is_evaluated_again() -> None:
    module: dict[str, Any] = {"KafkaTable": KafkaTable, "Col": Col, "__name__": "made_by_hand"}
    exec("class Waiting(KafkaTable):\n    when: 'Col[Later]'", module)
    table = cast("type[KafkaTable]", module["Waiting"])
    before = [p.code for p in table.definition().problems]
    module["Later"] = int

    assert before == ["column-annotation"]
    assert columns(table) == {"when": "BIGINT NOT NULL"}


@pytest.mark.parametrize("default", [1, None, "x", Decimal(2)])
def test_equal_defaults_make_equal_definitions(default: object) -> None:
    def make() -> type[KafkaTable]:
        class Table(KafkaTable):
            a: Col[int] = col(default=default, type="INT")  # type: ignore[arg-type]

        return Table

    assert make().definition() == make().definition()


def test_rows_nest() -> None:
    @attrs.frozen
    class Address:
        street: str
        zip: Int32 | None

    class Person(KafkaTable):
        addresses: Col[dict[str, list[Address]]]

    expected = "MAP<STRING NOT NULL, ARRAY<ROW<street STRING NOT NULL, zip INT> NOT NULL> NOT NULL> NOT NULL"
    assert only(Person).type == parse_type(expected)
