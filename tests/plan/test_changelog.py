"""Plans of tables whose rows are changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.declare.document import read_tables
from kdsl.formats import ROW_KIND
from kdsl.plan.build import read_plan, write_plan
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.plan.schema import schema, value_schema
from kdsl.plan.show import show
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.resolve import resolve

GOLDEN = Path(__file__).parent / "golden"
(TABLE,) = read_tables((GOLDEN / "changes.yaml").read_text(encoding="utf-8"))
READ, WRITE = read_plan(resolve(TABLE, "read")), write_plan(resolve(TABLE, "write"))


@pytest.mark.parametrize(("name", "plan"), [("changes-read.txt", READ), ("changes-write.txt", WRITE)])
def test_it_prints_as_the_golden_file(name: str, plan: ReadPlan | WritePlan) -> None:
    assert show(plan) == (GOLDEN / name).read_text(encoding="utf-8").rstrip("\n")


def test_plans_survive_serialization() -> None:
    assert read_plan_text(plan_text(READ), ReadPlan) == READ
    assert read_plan_text(plan_text(WRITE), WritePlan) == WRITE


def test_the_row_kind_is_the_first_column_of_the_schema_and_no_column_of_the_message() -> None:
    assert schema(TABLE).names[:2] == [ROW_KIND, "id"]
    assert not schema(TABLE)[ROW_KIND].nullable
    assert value_schema(TABLE).names == ["id", "name", "weight"]


def test_the_row_kind_comes_with_any_columns_and_before_them() -> None:
    for columns in (["name"], ["name", ROW_KIND], [ROW_KIND, "name"]):
        plan = read_plan(resolve(TABLE, "read"), columns)

        assert plan.output.names == (ROW_KIND, "name")
        assert plan.value is not None
        assert plan.value.columns == ("name",)


def test_metadata_of_the_format_alone_reads_the_value() -> None:
    plan = read_plan(resolve(TABLE, "read"), ["origin"])

    assert plan.value is not None
    assert [m.key for m in plan.metadata] == ["value.source.database", "value.ingestion-timestamp"]
