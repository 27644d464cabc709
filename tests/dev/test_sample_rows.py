"""Sample rows are valid for every type, the same each time, and match those of other tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from itertools import islice, pairwise
from typing import Any, Literal

import pytest

from kdsl import (
    AvroConfluent,
    Cluster,
    Col,
    Csv,
    DebeziumJson,
    Json,
    KafkaTable,
    PrimaryKey,
    Raw,
    UpsertTable,
    col,
    metadata,
)
from kdsl.declare.dsl.values import to_arrow
from kdsl.dev.declared import choices_of
from kdsl.dev.local import to_local, to_writable
from kdsl.dev.rows import KEYS, SampleRows, identity_of
from kdsl.dev.values import Samples
from kdsl.table import Table
from kdsl.types import model as t
from kdsl.types.parse import parse_type

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
TYPES = (
    *("BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "DATE", "STRING", "BYTES"),
    *("DECIMAL(1, 0)", "DECIMAL(1, 1)", "DECIMAL(2, 2)", "DECIMAL(38, 18)", "DECIMAL(38, 38)", "DECIMAL(10, 0)"),
    *("CHAR(1)", "VARCHAR(3)", "BINARY(2)", "VARBINARY(300)", "TIME(0)", "TIME(3)", "TIMESTAMP(0)", "TIMESTAMP(9)"),
    *("TIMESTAMP_LTZ(3)", "ARRAY<INT>", "ARRAY<ARRAY<STRING> NOT NULL>", "MAP<STRING, DOUBLE>", "MULTISET<STRING>"),
    *("ROW<a INT, b ROW<c DATE NOT NULL>>", "MAP<ROW<a INT>, ARRAY<ROW<b TIME(6)>>>", "MAP<ARRAY<INT>, BYTES>"),
)
NAMES = ("amount", "user_id", "ts", "createdAt", "email", "birth_date", "order uuid", "Ä", "", "日期", "longitude")
CLUSTER = Cluster("localhost:9092", registry="http://localhost:8081")


@pytest.mark.parametrize("text", TYPES)
@pytest.mark.parametrize("name", NAMES)
def test_values_of_every_type_fit_it(text: str, name: str) -> None:
    kind = parse_type(text)

    values = [Samples().value(name, kind, number, NOW) for number in range(90)]

    assert values == [Samples().value(name, kind, number, NOW) for number in range(90)]
    assert None in values
    for value in values:
        to_arrow(value, kind)
    assert None not in [Samples().value(name, kind.as_nullable(False), number, NOW) for number in range(90)]


def test_names_decide_what_values_mean() -> None:
    samples = Samples()
    assert samples.value("user_id", t.BigInt(nullable=False), 6, NOW) == 7
    assert samples.value("user_id", t.STRING.as_nullable(False), 6, NOW) == "user-7"
    assert samples.value("ts", t.BigInt(nullable=False), 6, NOW) == NOW.timestamp() * 1000
    assert samples.value("created_at", t.STRING.as_nullable(False), 6, NOW) == "2026-01-31 12:00:00"
    assert samples.value("country", t.STRING.as_nullable(False), 6, NOW) in (
        "DE",
        "FR",
        "IT",
        "GB",
        "US",
        "CN",
        "BR",
        "IN",
    )
    assert Samples(seed=1).value("price", t.Double(nullable=False), 6, NOW) != samples.value(
        "price", t.Double(nullable=False), 6, NOW
    )


class Orders(KafkaTable, topic="orders", value=Json()):
    """Orders."""

    order_id: Col[str]
    user_id: Col[int]
    note: Col[str | None]
    time: Col[datetime] = col(watermark="5 seconds")


class Payments(KafkaTable, topic="payments", value=Json()):
    """Payments of orders."""

    payment_id: Col[int]
    order_id: Col[str]
    amount: Col[Decimal] = col(type="DECIMAL(8, 2)")


class Users(UpsertTable, topic="users", key=Json(), value=AvroConfluent()):
    """Users of orders."""

    user_id: PrimaryKey[int]
    name: Col[str]


class Changes(KafkaTable, topic="changes", value=DebeziumJson()):
    """Changes of a database."""

    id: Col[int]
    price: Col[float]


def rows_of(table: type[KafkaTable], count: int, start: int = 0) -> Sequence[Mapping[str, Any]]:
    definition = table.definition()
    writable = to_writable(Table(definition), definition.options.topic[0], CLUSTER)
    tables = (Orders, Payments, Users, Changes)
    identities = {one for each in tables if (one := identity_of(each.definition())) is not None}
    maker = SampleRows(writable.definition, writable.write_plan(CLUSTER), Samples(), identities)
    return list(islice(maker.rows(lambda index: NOW + timedelta(seconds=index), start), count))


def test_keys_match_those_of_other_tables_and_times_rise() -> None:
    orders, payments, users = rows_of(Orders, 100), rows_of(Payments, 100), rows_of(Users, 100)

    assert len({row["order_id"] for row in orders}) == 100
    assert {row["order_id"] for row in payments} <= {row["order_id"] for row in orders}
    assert {row["user_id"] for row in orders} & {row["user_id"] for row in users}
    assert all(early["time"] < late["time"] for early, late in pairwise(orders))
    assert {type(row["note"]) for row in orders} == {str, type(None)}
    assert rows_of(Orders, 5, start=95) == orders[95:]


@pytest.mark.parametrize(("table", "key"), [(Users, "user_id"), (Changes, "id")])
def test_changes_insert_update_and_delete_rows_that_exist(table: type[KafkaTable], key: str) -> None:
    changes = rows_of(table, 200)

    rows: dict[Any, Mapping[str, Any]] = {}
    for change in changes:
        row = {name: value for name, value in change.items() if name != "_row_kind"}
        match change["_row_kind"]:
            case "+I":
                assert row[key] not in rows
                rows[row[key]] = row
            case "-U" | "-D":
                assert rows.pop(row[key]) == row
            case "+U":
                assert table is Users or row[key] not in rows
                rows[row[key]] = row
    kinds = {change["_row_kind"] for change in changes}
    assert kinds == ({"+I", "+U", "-D"} if table is Users else {"+I", "-U", "+U", "-D"})
    assert 0 < len(rows) <= KEYS
    assert rows_of(table, 7, start=193) == changes[193:]


def test_what_is_only_read_is_not_written_and_headers_pass_the_filter() -> None:
    class Filtered(KafkaTable, topic="filtered", value=Json(), header_filter="depart:toy&!env:test"):
        """A table with metadata."""

        id: Col[int]
        offset: Col[int] = metadata("offset")  # type: ignore[call-overload]  # it would have to be virtual
        raw: Col[bytes | None] = metadata("__raw_value__")

    (row,) = rows_of(Filtered, 1)

    headers = next(value for name, value in row.items() if name not in ("id",))
    assert headers == {"origin": "kdsl dev", "depart": "toy"}
    assert len(row) == 2


def test_a_raw_value_has_one_value() -> None:
    class Lines(KafkaTable, topic="lines", value=Raw()):
        """Lines of text."""

        line: Col[str]

    assert rows_of(Lines, 2) == [{"line": "line 1"}, {"line": "line 2"}]


def test_a_format_that_does_not_read_its_nulls_gets_none() -> None:
    class Plain(KafkaTable, topic="plain", value=Csv()):
        """Without a word for NULL."""

        amount: Col[float | None]

    class WithWord(Plain, topic="with-word", value=Csv(null_literal="n/a")):
        """With one."""

    assert None not in [row["amount"] for row in rows_of(Plain, 100)]
    assert None in [row["amount"] for row in rows_of(WithWord, 100)]


def test_enums_and_literals_have_their_values_also_within_lists() -> None:
    class Colour(Enum):
        RED = "red"
        BLUE = "blue"

    class Painted(KafkaTable, topic="painted", value=Json(), properties={"bootstrap.servers": "localhost:9092"}):
        """Columns with few values."""

        colour: Col[Colour | None]
        colours: Col[list[Colour]]
        sizes: Col[dict[str, Literal[1, 2]]]

    choices = choices_of(to_local(Table(Painted.definition()), CLUSTER).definition)  # type: ignore[union-attr]
    samples = Samples(choices=choices)

    assert choices == {"colour": ("red", "blue"), "colours": ("red", "blue"), "sizes": (1, 2)}
    for column in Painted.definition().columns:
        for value in (samples.value(column.name, column.type, number, NOW) for number in range(50)):
            values = value if isinstance(value, list) else list(value.values()) if isinstance(value, dict) else [value]
            assert set(values) <= {*choices[column.name], None}
