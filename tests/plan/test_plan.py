"""Plans: frozen values, the same text for equal plans, pruned to the columns that are wanted."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest

from kdsl.client_settings.properties import Properties
from kdsl.declare.document import read_tables
from kdsl.plan.build import UnknownColumnError, literal, read_plan, write_plan
from kdsl.plan.model import MetadataColumn, ReadPlan, WritePlan
from kdsl.plan.schema import key_schema, schema, value_schema
from kdsl.plan.show import show
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.resolve import resolve
from kdsl.types import model as t

GOLDEN = Path(__file__).parent / "golden"
DOCUMENT = (GOLDEN / "orders.yaml").read_text(encoding="utf-8")


def reading(columns: list[str] | None = None, document: str = DOCUMENT) -> ReadPlan:
    (table,) = read_tables(document)
    return read_plan(resolve(table, "read"), columns)


def writing() -> WritePlan:
    (table,) = read_tables(DOCUMENT)
    return write_plan(resolve(table, "write"))


class TestShow:
    @pytest.mark.parametrize(("name", "plan"), [("orders-read.txt", reading()), ("orders-write.txt", writing())])
    def test_it_prints_as_the_golden_file(self, name: str, plan: ReadPlan | WritePlan) -> None:
        assert show(plan) == (GOLDEN / name).read_text(encoding="utf-8").rstrip("\n")

    def test_a_secret_is_not_shown(self) -> None:
        (table,) = read_tables(DOCUMENT.replace("client.id: kdsl", "sasl.password: hunter2"))
        plan = read_plan(resolve(table, "read"))

        assert "sasl.password = ***" in show(plan)
        assert "hunter2" not in show(plan) + plan_text(plan) + repr(plan) + repr(table)


class TestText:
    def test_a_plan_comes_back_equal_without_its_properties(self) -> None:
        read, write = reading(), writing()

        assert read_plan_text(plan_text(read), ReadPlan) == attrs.evolve(read, properties=Properties())
        assert read_plan_text(plan_text(write), WritePlan) == attrs.evolve(write, properties=Properties())

    def test_equal_plans_have_equal_strings(self) -> None:
        assert plan_text(reading()) == plan_text(reading())

    def test_another_version_is_refused(self) -> None:
        text = plan_text(reading()).replace('"version":1', '"version":99')

        with pytest.raises(ValueError, match="has version 99, this kdsl reads version 1; install the same kdsl"):
            read_plan_text(text, ReadPlan)


class TestColumns:
    def test_only_what_is_wanted_is_decoded(self) -> None:
        plan = reading(["amount", "offset"])

        assert plan.key is None
        assert plan.value is not None
        assert plan.value.row.names == ("amount",)
        assert plan.output.names == ("amount", "offset")
        assert plan.metadata == (
            MetadataColumn("placed_at", "timestamp", t.TimestampLtz(3)),
            MetadataColumn("offset", "offset", t.BigInt()),
        ), "the watermark's column is needed, too"

    def test_the_value_is_read_even_if_no_column_of_it_is_wanted(self) -> None:
        plan = reading(["offset"])

        assert plan.key is None
        assert plan.value is not None
        assert plan.value.columns == ()
        assert plan.columns.names == ("placed_at", "offset")

    def test_the_order_is_that_of_the_wish(self) -> None:
        assert reading(["offset", "amount"]).output.names == ("offset", "amount")

    def test_a_positional_format_reads_all_of_its_columns(self) -> None:
        document = DOCUMENT.replace("value.format: json", "value.format: csv").replace("value.json", "value.csv")
        plan = reading(["amount"], document)

        assert plan.value is not None
        assert plan.value.row.names == ("amount", "note")
        assert plan.columns.names == ("amount", "placed_at")

    def test_a_computed_column_keeps_what_it_may_need(self) -> None:
        assert reading(["twice"]).columns.names == ("k_id", "amount", "note", "placed_at", "offset")

    def test_an_unknown_column_is_reported_with_a_suggestion(self) -> None:
        with pytest.raises(
            UnknownColumnError, match=r"orders has no column 'amuont' \(did you mean 'amount'\?\); the columns are"
        ):
            reading(["amuont"])


class TestWrite:
    def test_virtual_and_computed_columns_are_not_written(self) -> None:
        assert writing().columns.names == ("k_id", "amount", "note", "placed_at")

    @pytest.mark.parametrize(
        ("value", "kind", "text"),
        [
            (None, t.STRING, "CAST(NULL AS string)"),
            (1, t.Int(), "CAST(1 AS int)"),
            (True, t.Boolean(), "CAST(TRUE AS boolean)"),
            (1.5, t.Double(), "CAST(1.5D AS double)"),
            (Decimal("1.50"), t.Decimal(10, 2), "CAST(1.50BD AS decimal(10,2))"),
            ("it's \\", t.STRING, "CAST(concat('it', chr(39), 's ', chr(92)) AS string)"),
            (b"\x00\xff", t.BYTES, "CAST(X'00ff' AS binary)"),
            (date(2024, 1, 2), t.Date(), "CAST(DATE '2024-01-02' AS date)"),
            (
                datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC),
                t.TimestampLtz(),
                "CAST(TIMESTAMP_LTZ '2024-01-02 03:04:05+00:00' AS timestamp)",
            ),
            (datetime(2024, 3, 31, 2, 30), t.Timestamp(), "CAST(TIMESTAMP_NTZ '2024-03-31 02:30:00' AS timestamp_ntz)"),
            ([1, None], t.Array(t.Int()), "CAST(array(1, NULL) AS array<int>)"),
            ({"a": 1}, t.Map(t.STRING, t.Int()), "CAST(map('a', 1) AS map<string,int>)"),
            (object(), t.STRING, None),
        ],
    )
    def test_defaults_are_sql_literals(self, value: Any, kind: t.DataType, text: str | None) -> None:
        assert literal(value, kind) == text


def test_schemas() -> None:
    (table,) = read_tables(DOCUMENT)

    assert schema(table).simpleString() == (
        "struct<k_id:bigint,amount:decimal(10,2),note:string,placed_at:timestamp,offset:bigint,twice:decimal(12,2)>"
    )
    assert key_schema(table).simpleString() == "struct<id:bigint>"
    assert value_schema(table).simpleString() == "struct<amount:decimal(10,2),note:string>"
    assert [f.nullable for f in schema(table).fields] == [False, True, True, True, True, True]
