"""Row rules as they are declared in the three spellings, and what is wrong with them."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kdsl import (
    Col,
    DeadLetters,
    DebeziumJson,
    Json,
    KafkaTable,
    PrimaryKey,
    ResolveError,
    UpsertTable,
    Virtual,
    col,
    computed,
    expect,
    expression,
    virtual,
)
from kdsl.codegen import to_ddl, to_yaml
from kdsl.ddl.load import read_definition
from kdsl.declare.definition import TableDef
from kdsl.declare.document import read_tables
from kdsl.declare.row_rules import RowRuleDef
from kdsl.formats import Direction
from kdsl.plan.build import read_plan, write_plan
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.plan.show import show
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.resolve import problems, resolve

LINES = Path(__file__).read_text(encoding="utf-8").splitlines()


class Orders(KafkaTable, topic="orders", value=Json()):
    id: Col[int]
    amount: Col[Decimal | None] = col(type="decimal(10, 2)", expect=expect("amount > 0", on_fail="drop"))
    ordered_at: Col[datetime]
    shipped_at: Col[datetime | None]
    in_order = expect("shipped_at >= ordered_at", on_fail="fail")
    known = expect("id > 0", name="known-id")


DDL = """
CREATE TABLE Orders (
  id BIGINT NOT NULL, amount DECIMAL(10, 2), ordered_at TIMESTAMP_LTZ(6) NOT NULL, shipped_at TIMESTAMP_LTZ(6)
) WITH (
  'connector' = 'kafka', 'topic' = 'orders', 'format' = 'json',
  'scan.expect.amount' = 'amount > 0', 'scan.expect.amount.on-fail' = 'drop',
  'scan.expect.in_order' = 'shipped_at >= ordered_at', 'scan.expect.in_order.on-fail' = 'fail',
  'scan.expect.known-id' = 'id > 0'
)
"""


def problems_of(table: TableDef | type[KafkaTable], direction: Direction = "read") -> list[str]:
    definition = table if isinstance(table, TableDef) else table.definition()
    return [f"{p.message}; {p.fix}" for p in problems(definition, direction) if p.severity == "error"]


class TestSpellings:
    def test_a_class_and_ddl_and_yaml_declare_the_same_rules(self) -> None:
        from_sql = read_definition(DDL)
        (from_yaml,) = read_tables(to_yaml(from_sql))

        assert Orders.definition().rules == from_sql.rules == from_yaml.rules == (
            RowRuleDef("amount", "amount > 0", "drop"),
            RowRuleDef("in_order", "shipped_at >= ordered_at", "fail"),
            RowRuleDef("known-id", "id > 0", "warn"),
        )  # fmt: skip
        assert read_definition(to_ddl(Orders.definition())).rules == from_sql.rules

    def test_an_action_is_written_in_any_letter_case_and_with_a_hyphen(self) -> None:
        ddl = DDL.replace("'fail'", "'Dead-Letter'")

        assert read_definition(ddl).rules[1].on_fail == "dead_letter"

    def test_a_subclass_inherits_and_replaces_rules(self) -> None:
        class More(Orders, topic="more"):
            in_order = expect("shipped_at > ordered_at")

        assert [(rule.name, rule.condition) for rule in More.definition().rules] == [
            ("amount", "amount > 0"),
            ("known-id", "id > 0"),
            ("in_order", "shipped_at > ordered_at"),
        ]

    def test_several_rules_of_a_column(self) -> None:
        class Two(KafkaTable, topic="t", value=Json()):
            a: Col[int] = col(expect=[expect("a > 0"), expect("a < 9", name="small")])

        assert [rule.name for rule in Two.definition().rules] == ["a", "small"]
        assert problems_of(Two) == []

    def test_a_rule_is_not_a_column(self) -> None:
        assert [c.name for c in Orders.definition().columns] == ["id", "amount", "ordered_at", "shipped_at"]
        assert Orders.in_order == expect("shipped_at >= ordered_at", on_fail="fail")


class TestPlans:
    def test_a_plan_has_the_rules_and_shows_them(self) -> None:
        read, write = (
            read_plan(resolve(Orders.definition(), "read")),
            write_plan(resolve(Orders.definition(), "write")),
        )

        assert read_plan_text(plan_text(read), ReadPlan).rules == read.rules == write.rules
        assert read_plan_text(plan_text(write), WritePlan) == write
        for plan in (read, write):
            assert (
                "  rules     amount: amount > 0, otherwise left out\n"
                "            in_order: shipped_at >= ordered_at, otherwise an error\n"
                "            known-id: id > 0, otherwise counted\n"
            ) in show(plan)

    def test_a_read_of_some_columns_also_reads_those_of_the_rules(self) -> None:
        plan = read_plan(resolve(Orders.definition(), "read"), ["id"])

        assert plan.columns.names == ("id", "amount", "ordered_at", "shipped_at")
        assert plan.output.names == ("id",)

    def test_a_plan_shows_that_nulls_are_left_out(self) -> None:
        class Lenient(KafkaTable, topic="t", value=Json(), scan_not_null_enforcer="drop"):
            a: Col[int]

        assert "rules     no NULL in a NOT NULL column, otherwise left out" in show(
            read_plan(resolve(Lenient.definition(), "read"))
        )
        assert not write_plan(resolve(Lenient.definition(), "write")).drops_nulls


class TestProblems:
    def test_all_at_once_with_their_lines(self) -> None:
        class Wrong(KafkaTable, topic="t", value=Json()):
            a: Col[int] = col(expect=expect("b > 0 AND c > 0"))  # cause 0
            text: Col[str | None]
            sum = expect("a + 1")  # cause 1
            upper = expect("UPPER(text) = 'A'")  # cause 2
            late = expect("a < RAND()")  # cause 3
            empty = expect(" ")  # cause 4
            action = expect("a > 0", on_fail="ignore")  # type: ignore[arg-type]  # cause 5
            name = expect("a > 0", name="a b")  # cause 6

        with pytest.raises(ResolveError) as caught:
            resolve(Wrong.definition(), "read")

        lines = [i for i, line in enumerate(LINES, 1) if line.endswith(tuple(f"# cause {n}" for n in range(7)))]
        actual = [(p.where.line, p.message) for p in caught.value.problems]
        assert actual == [
            (lines[5], "the row rule 'action' has on_fail='ignore'"),
            (lines[6], "the row rule has the name 'a b'"),
            (lines[0], "the row rule 'a' (b > 0 AND c > 0): there is no column 'b'"),
            (lines[0], "the row rule 'a' (b > 0 AND c > 0): there is no column 'c'"),
            (lines[1], "the row rule 'sum' (a + 1): the condition is BIGINT, not BOOLEAN"),
            (lines[2], "the row rule 'upper' (UPPER(text) = 'A'): UPPER cannot be used in a row rule: rows are checked "
             "while they are read and written, by Arrow, which does not compute it exactly as Spark does"),
            (lines[3], "the row rule 'late' (a < RAND()): RAND cannot be used in a row rule: it is a random number, "
             "and a row is valid or not whenever it is read"),
            (lines[4], "the row rule 'empty' has the condition ' '"),
        ]  # fmt: skip
        assert {p.where.file for p in caught.value.problems} == {__file__}
        assert all(p.fix for p in caught.value.problems)

    def test_options(self) -> None:
        ddl = DDL.replace("'scan.expect.amount' =", "'scan.expect.amout' =").replace("'fail'", "'fial'")

        assert problems_of(read_definition(ddl)) == [
            "'scan.expect.in_order.on-fail' has the value 'fial' (did you mean 'fail'?); "
            "use one of 'warn', 'drop', 'fail', 'dead_letter'",
            "'scan.expect.amount.on-fail' belongs to no row rule (did you mean 'scan.expect.amout'?); "
            "add the condition, 'scan.expect.amount' = '...'",
        ]

    def test_a_rule_of_the_same_name(self) -> None:
        class Wrong(KafkaTable, topic="t", value=Json()):
            a: Col[int] = col(expect=[expect("a > 0"), expect("a < 9")])

        assert problems_of(Wrong) == [
            "there are two row rules 'a'; give one of them another name: expect(..., name='...')"
        ]  # fmt: skip

    def test_what_is_not_a_rule(self) -> None:
        class Wrong(KafkaTable, topic="t", value=Json()):
            a: Col[int] = col(expect="a > 0")  # type: ignore[arg-type]
            b: Col[int] = col(expect=[7])  # type: ignore[list-item]

        assert problems_of(Wrong) == [
            "expect= is 'a > 0', which is not a row rule; write expect=expect('a > 0')",
            "expect= is 7, which is not a row rule; write expect=expect('amount > 0')",
        ]

    def test_a_name_of_the_class(self) -> None:
        class Wrong(KafkaTable, topic="t", value=Json()):
            a: Col[int]
            read = expect("a > 0")  # type: ignore[assignment]

        assert problems_of(Wrong) == [
            "every table class has its own 'read', so an attribute for a row rule cannot have this name; "
            "write read_ = expect(..., name='read')"
        ]

    def test_a_write_has_no_dead_letters(self) -> None:
        class Letters(KafkaTable, topic="t", value=Json()):
            a: Col[int] = col(expect=expect("a > 0", on_fail="dead_letter"))

        assert problems_of(Letters, "write") == [
            "the row rule 'a' has on_fail='dead_letter', but a row that is written has no record yet; use 'warn', "
            "'drop' or 'fail'; or declare the rule in a subclass of the table that is only read"
        ]

    def test_a_read_has_dead_letters_if_there_is_a_topic_for_them(self) -> None:
        class Letters(KafkaTable, topic="t", value=Json()):
            a: Col[int] = col(expect=expect("a > 0", on_fail="dead_letter"))

        class WithTopic(Letters, topic="t", dead_letters=DeadLetters("t.dead")):
            pass

        assert problems_of(Letters) == [
            "the row rule 'a' has on_fail='dead_letter', but the table has no dead-letter topic; declare one with "
            "dead_letters=DeadLetters('orders.dead'), or use another action"
        ]
        assert problems_of(WithTopic) == []

    def test_columns_that_are_not_there(self) -> None:
        class Wrong(KafkaTable, topic="t", value=Json()):
            a: Col[int]
            offset: Virtual[int] = virtual("offset")
            twice: Virtual[int] = expression("a * 2", dialect="flink")
            of_computed = expect("twice > 0")
            of_metadata = expect("`offset` > 0")

            @computed
            def more(self) -> int:
                return self.a + 1

        computed_column = (
            "the row rule 'of_computed' (twice > 0): 'twice' is computed, and rules are checked before columns are "
            "computed; write its expression in the rule: a * 2"
        )
        assert problems_of(Wrong) == [computed_column]
        assert problems_of(Wrong, "write") == [
            computed_column,
            "the row rule 'of_metadata' (`offset` > 0): 'offset' is filled in by Kafka, so a row that is written does "
            "not have it; declare the rule in a subclass of the table that is only read",
        ]

    def test_metadata_does_not_decide_which_rows_change_data_has(self) -> None:
        class Changes(KafkaTable, topic="t", value=DebeziumJson()):
            a: Col[int | None]
            at: Virtual[datetime] = virtual("timestamp")
            recent = expect("`at` IS NOT NULL", on_fail="drop")

        (only,) = problems_of(Changes)
        assert only.startswith("the row rule 'recent' decides by 'at' which rows the table has, but a later change")

    def test_real_time_mode_has_no_rules(self) -> None:
        class Fast(KafkaTable, topic="t", value=Json(), transport="jvm", latency="realtime"):
            a: Col[int] = col(expect=expect("a > 0"))

        wanted = "the row rule 'a' is checked in Python, which real-time mode does not use; remove the rule, or set "
        assert any(one.startswith(wanted) for one in problems_of(Fast))
        assert any(one.startswith(wanted) for one in problems_of(Fast, "write"))

    def test_upsert_tables_have_rules(self) -> None:
        class Users(UpsertTable, topic="users", key=Json(), value=Json()):
            id: PrimaryKey[int]
            name: Col[str | None] = col(expect=expect("CHAR_LENGTH(name) > 0", on_fail="drop"))

        assert problems_of(Users) == problems_of(Users, "write") == []


def test_what_expect_takes_is_typed() -> None:
    arguments: Any = expect("a > 0")
    assert (arguments.condition, arguments.on_fail, arguments.name) == ("a > 0", "warn", None)
