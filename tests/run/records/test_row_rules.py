"""Row rules while records are decoded and rows encoded: what remains, what is counted, and what an error says."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.declare.document import read_tables
from kdsl.errors import RecordError
from kdsl.formats import ROW_KIND
from kdsl.plan.build import read_plan, write_plan
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.resolve import resolve
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.drops import Reason, count_violations, log_drops
from kdsl.run.records.rejections import Rejection
from kdsl.run.records.valid_rows import keep_valid_rows
from kdsl.run.upsert.write import convert_to_upserts
from kdsl.types.arrow import arrow_schema
from tests.run.records.test_decode import raw

TABLE = """
name: orders
columns:
  - {{name: id, type: BIGINT{null}}}
  - {{name: amount, type: INT}}
  - {{name: offset, type: BIGINT NOT NULL, metadata: true, virtual: true}}
{key}
options:
  connector: {connector}
  topic: orders
  value.format: {form}
"""


def table_text(connector: str = "kafka", form: str = "json", key: str = "", null: str = "", **options: str) -> str:
    text = TABLE.format(connector=connector, form=form, key=key, null=null)
    return text + "".join(f"  {name}: {json.dumps(value)}\n" for name, value in options.items())


def rules(on_fail: str, condition: str = "amount > 0", name: str = "positive") -> dict[str, str]:
    letters = {"scan.dead-letter.topic": "orders.dead"} if on_fail == "dead_letter" else {}
    return {f"scan.expect.{name}": condition, f"scan.expect.{name}.on-fail": on_fail, **letters}


def reading(text: str) -> ReadPlan:
    (table,) = read_tables(text)
    return read_plan_text(plan_text(read_plan(resolve(table, "read"))), ReadPlan)


def writing(text: str) -> WritePlan:
    (table,) = read_tables(text)
    return read_plan_text(plan_text(write_plan(resolve(table, "write"))), WritePlan)


def order(number: int | None, amount: int | None) -> dict[str, Any]:
    return {"value": json.dumps({"id": number, "amount": amount}).encode()}


ORDERS = [order(1, 5), order(2, 0), order(3, None), order(4, -1)]
KEYED = {"key": "primary_key: [id]", "connector": "upsert-kafka", "key.format": "json"}


class Letters:
    """Takes dead letters."""

    def __init__(self) -> None:
        self.taken: list[tuple[int, Rejection]] = []

    def __call__(self, records: pa.RecordBatch, rejections: Sequence[Rejection]) -> None:
        self.taken += [(records.column("offset")[one.index].as_py(), one) for one in rejections]


class TestRows:
    def test_warn_keeps_and_counts(self, caplog: pytest.LogCaptureFixture) -> None:
        decoder = RecordDecoder(reading(table_text(**rules("warn"))))

        assert [row["id"] for row in decoder.decode(raw(ORDERS)).to_pylist()] == [1, 2, 3, 4]
        assert count_violations(decoder.dropped) == {("warn", "positive"): 2}
        log_drops("orders", decoder.dropped, "of batch 7 ")
        assert caplog.messages == ["orders: of batch 7 2 rows violate the rule 'positive' and were kept"]
        assert caplog.records[0].levelno == logging.WARNING

    def test_drop_leaves_out_and_counts(self) -> None:
        decoder = RecordDecoder(reading(table_text(**rules("drop"))))
        rows = decoder.decode_with_records(raw(ORDERS))

        assert rows.rows.schema == arrow_schema(reading(table_text()).columns)
        assert [row["id"] for row in rows.rows.to_pylist()] == [1, 3]
        assert rows.of("offset").to_pylist() == [100, 102]
        assert count_violations(decoder.dropped) == {("drop", "positive"): 2}

    def test_a_column_with_the_name_of_the_row_kind_has_no_meaning_in_a_table_that_only_inserts(self) -> None:
        text = table_text(**rules("warn")).replace("columns:\n", f"columns:\n  - {{name: {ROW_KIND}, type: STRING}}\n")
        decoder = RecordDecoder(reading(text))
        values = [{"id": i, "amount": -1, ROW_KIND: kind} for i, kind in enumerate(("-D", "-U", "+I"))]

        assert decoder.decode(raw([{"value": json.dumps(value).encode()} for value in values])).num_rows == 3
        assert count_violations(decoder.dropped) == {("warn", "positive"): 3}

    def test_fail_locates_the_first_rows_and_shows_no_values(self) -> None:
        decoder = RecordDecoder(reading(table_text(**rules("fail"))))
        with pytest.raises(RecordError) as caught:
            decoder.decode(raw([*ORDERS, *[order(9, -99)] * 6]))

        assert str(caught.value) == (
            "orders: cannot read the record at topic orders, partition 3, offset 101: the row violates the rule "
            "positive: amount > 0; so do orders[3] at 103, orders[3] at 104, orders[3] at 105, orders[3] at 106; 7 "
            "more records of this batch have errors; correct the data, or declare the rule with on_fail='drop' or "
            "'dead_letter'"
        )
        assert "99" not in str(caught.value)

    def test_a_dead_letter_is_the_record_with_the_reason(self) -> None:
        decoder = RecordDecoder(reading(table_text(**rules("dead_letter"))))
        decoder._errors.dead_letters = letters = Letters()

        assert [row["id"] for row in decoder.decode(raw(ORDERS)).to_pylist()] == [1, 3]
        assert [(offset, one.reason, one.stage) for offset, one in letters.taken] == [
            (101, "the row violates the rule positive: amount > 0", "TRANSFORMATION"),
            (103, "the row violates the rule positive: amount > 0", "TRANSFORMATION"),
        ]
        assert count_violations(decoder.dropped) == {("dead_letter", "positive"): 2}

    def test_dead_letters_of_rules_and_of_the_format_come_together(self) -> None:
        decoder = RecordDecoder(reading(table_text(**rules("dead_letter"))))
        decoder._errors.dead_letters = letters = Letters()

        rows = decoder.decode(raw([order(1, 0), {"value": b"{oops"}, order(2, 1), order(3, 0)]))

        assert [row["id"] for row in rows.to_pylist()] == [2]
        assert [offset for offset, _ in letters.taken] == [100, 101, 103]
        assert count_violations(decoder.dropped) == {("dead_letter", "positive"): 2}

    def test_without_dead_letters_it_is_an_error(self) -> None:
        with pytest.raises(RecordError, match=r"offset 101: the row violates the rule positive: amount > 0; 1 more"):
            RecordDecoder(reading(table_text(**rules("dead_letter")))).decode(raw(ORDERS))

    def test_a_record_of_several_rows_is_one_letter(self) -> None:
        message = {"value": b'[{"id": 1, "amount": 5}, {"id": 2, "amount": 0}]'}
        decoder = RecordDecoder(reading(table_text(**rules("dead_letter"))))
        decoder._errors.dead_letters = letters = Letters()
        try:
            rows = decoder.decode(raw([message, order(3, 1)]))
        except RecordError:  # the format has one row in a message
            pytest.skip("json reads one row of a message")

        assert [row["id"] for row in rows.to_pylist()] == [3]
        assert len(letters.taken) == 1

    def test_each_rule_is_counted_and_the_strictest_action_wins(self) -> None:
        text = table_text(
            **rules("warn", "id < 3", "small"), **rules("drop"), **rules("dead_letter", "amount >= 0", "not-negative")
        )
        decoder = RecordDecoder(reading(text))
        decoder._errors.dead_letters = letters = Letters()

        assert [row["id"] for row in decoder.decode(raw(ORDERS)).to_pylist()] == [1, 3]
        assert [offset for offset, _ in letters.taken] == [103]
        assert count_violations(decoder.dropped) == {
            ("warn", "small"): 2,
            ("drop", "positive"): 2,
            ("dead_letter", "not-negative"): 1,
        }

    def test_a_condition_that_cannot_be_computed_is_a_violation(self) -> None:
        decoder = RecordDecoder(reading(table_text(**rules("fail", "100 / amount > 1"))))

        with pytest.raises(RecordError, match=r"100 / amount > 1, which cannot be computed for it: division by zero"):
            decoder.decode(raw(ORDERS[:2]))

    def test_rules_use_metadata(self) -> None:
        plan = reading(table_text(**rules("drop", "`offset` < 102")))

        assert [row["id"] for row in RecordDecoder(plan).decode(raw(ORDERS)).to_pylist()] == [1, 2]

    def test_no_violation_changes_nothing(self) -> None:
        with_rules, plain = (RecordDecoder(reading(table_text(**o))) for o in (rules("drop", "id > 0"), {}))

        assert with_rules.decode(raw(ORDERS)).equals(plain.decode(raw(ORDERS)))
        assert with_rules.dropped == Counter()


class TestNotNull:
    def test_a_read_leaves_out_nulls(self) -> None:
        text = table_text(null=" NOT NULL", **{"scan.not-null-enforcer": "DROP"})
        decoder = RecordDecoder(reading(text))

        rows = decoder.decode_with_records(raw([order(1, 1), order(None, 2), order(3, 3)]))

        assert [row["id"] for row in rows.rows.to_pylist()] == [1, 3]
        assert rows.of("offset").to_pylist() == [100, 102]
        assert decoder.dropped == {Reason.NOT_NULL: 1}

    def test_by_default_it_is_an_error(self) -> None:
        with pytest.raises(RecordError, match="'id' is NULL, but it is declared NOT NULL"):
            RecordDecoder(reading(table_text(null=" NOT NULL"))).decode(raw([order(None, 2)]))

    def test_a_row_that_is_left_out_violates_no_rule(self) -> None:
        text = table_text(null=" NOT NULL", **{"scan.not-null-enforcer": "drop"}, **rules("fail"))
        decoder = RecordDecoder(reading(text))

        assert decoder.decode(raw([order(None, 0), order(2, 2)])).num_rows == 1

    def test_a_write_leaves_out_nulls(self) -> None:
        plan = writing(table_text(null=" NOT NULL", **{"sink.not-null-enforcer": "drop"}))
        counts: Counter[str] = Counter()

        (valid,) = keep_valid_rows([batch([(1, 1), (None, 2)])], plan, counts)

        assert valid.column("id").to_pylist() == [1]
        assert counts == {Reason.NOT_NULL: 1}


def batch(rows: list[tuple[int | None, int | None]], kinds: list[str] | None = None) -> pa.RecordBatch:
    columns = {} if kinds is None else {ROW_KIND: pa.array(kinds)}
    columns["id"] = pa.array([number for number, _ in rows], pa.int64())
    columns["amount"] = pa.array([amount for _, amount in rows], pa.int32())
    return pa.RecordBatch.from_pydict(columns)


class TestUpserts:
    """A change that is left out is ignored: the last valid row of its key stays."""

    def record(self, number: int, amount: int | None, *, deleted: bool = False) -> dict[str, Any]:
        value = None if deleted else json.dumps({"id": number, "amount": amount}).encode()
        return {"key": json.dumps({"id": number}).encode(), "value": value}

    def test_deletes_are_never_left_out(self) -> None:
        decoder = RecordDecoder(reading(table_text(**KEYED, **rules("drop", "amount IS NOT NULL"))))
        records = [self.record(1, 5), self.record(1, None), self.record(1, None, deleted=True), self.record(2, None)]

        rows = decoder.decode(raw(records)).to_pylist()

        assert [(row[ROW_KIND], row["id"], row["amount"]) for row in rows] == [("+U", 1, 5), ("-D", 1, None)]
        assert count_violations(decoder.dropped) == {("drop", "positive"): 2}

    def test_a_write_keeps_the_last_valid_row_of_a_key(self) -> None:
        options = {"sink.buffer-flush.max-rows": "9", "sink.buffer-flush.interval": "1 h"}
        plan = writing(table_text(**KEYED, **rules("drop"), **options))
        counts: Counter[str] = Counter()
        rows = batch([(1, 5), (1, 0), (2, 7), (2, 0), (2, 7)], ["+I", "+U", "+I", "+U", "-D"])

        written = [each for one in convert_to_upserts(keep_valid_rows([rows], plan, counts), plan)
                   for each in one.to_pylist()]  # fmt: skip

        assert [(row[ROW_KIND], row["id"], row["amount"]) for row in written] == [("+U", 1, 5), ("-D", 2, 7)]
        assert count_violations(counts) == {("drop", "positive"): 2}


class TestWrites:
    def test_the_actions(self) -> None:
        rows = batch([(1, 5), (2, 0), (3, None), (4, -1)])
        counts: Counter[str] = Counter()

        (unchanged,) = keep_valid_rows([rows], writing(table_text(**rules_of("warn"))), counts)
        (valid,) = keep_valid_rows([rows], writing(table_text(**rules_of("drop"))), counts)

        assert unchanged.equals(rows)
        assert valid.column("id").to_pylist() == [1, 3]
        assert count_violations(counts) == {("warn", "positive"): 2, ("drop", "positive"): 2}

    def test_fail_counts_the_rows_of_the_task(self) -> None:
        plan = writing(table_text(**rules_of("fail")))
        batches = [batch([(1, 1), (2, 2)]), batch([(3, 0), (4, 4), (5, 0)])]

        with pytest.raises(RecordError) as caught:
            list(keep_valid_rows(batches, plan, Counter()))

        assert str(caught.value) == (
            "orders: cannot write a record: row 3: the row violates the rule positive: amount > 0; so do "
            "the rows 5; 1 more record of this batch has errors; correct the data, or declare the rule with "
            "on_fail='drop'"
        )


rules_of = rules


def change(kind: str, data: dict[str, Any], old: dict[str, Any] | None = None) -> dict[str, Any]:
    document = {"data": [data], "old": None if old is None else [old], "type": kind}
    return {"value": json.dumps(document).encode()}


class TestChangeData:
    """Without state, the table consists of the rows that meet the rules."""

    def run(self, records: list[dict[str, Any]], on_fail: str = "drop") -> list[tuple[str, int, int | None]]:
        decoder = RecordDecoder(reading(table_text(form="canal-json", **rules(on_fail))))
        decoder._errors.dead_letters = self.letters = Letters()
        rows = decoder.decode(raw(records)).to_pylist()
        self.counts = count_violations(decoder.dropped)
        return [(row[ROW_KIND], row["id"], row["amount"]) for row in rows]

    def test_updates_across_the_rule(self) -> None:
        one = {"id": 1}
        changes = self.run(
            [
                change("INSERT", one | {"amount": 1}),
                change("UPDATE", one | {"amount": 2}, {"amount": 1}),
                change("UPDATE", one | {"amount": 0}, {"amount": 2}),
                change("UPDATE", one | {"amount": -1}, {"amount": 0}),
                change("UPDATE", one | {"amount": 3}, {"amount": -1}),
                change("DELETE", one | {"amount": 3}),
                change("INSERT", one | {"amount": -5}),
                change("DELETE", one | {"amount": -5}),
            ]
        )

        assert changes == [("+I", 1, 1), ("-U", 1, 1), ("+U", 1, 2), ("-D", 1, 2), ("+I", 1, 3), ("-D", 1, 3)]
        assert self.counts == {("drop", "positive"): 3}

    @settings(max_examples=100)
    @given(
        st.lists(st.tuples(st.sampled_from("iud"), st.integers(0, 2), st.integers(-2, 2)), max_size=30),
        st.sampled_from(["drop", "dead_letter"]),
    )
    def test_every_row_that_is_taken_back_was_there_and_the_valid_rows_remain(
        self, events: list[tuple[str, int, int]], on_fail: str
    ) -> None:
        source: dict[int, int] = {}
        records = []
        for what, number, amount in events:
            if what == "d" and number in source:
                records.append(change("DELETE", {"id": number, "amount": source.pop(number)}))
            elif number in source:
                records.append(
                    change("UPDATE", {"id": number, "amount": amount}, {"amount": source[number]})
                )  # fmt: skip
                source[number] = amount
            elif what != "d":
                records.append(change("INSERT", {"id": number, "amount": amount}))
                source[number] = amount

        table: Counter[tuple[int, int | None]] = Counter()
        for kind, key, value in self.run(records, on_fail):
            table[key, value] += 1 if kind in ("+I", "+U") else -1
            assert table[key, value] >= 0
        assert +table == Counter({(number, amount): 1 for number, amount in source.items() if amount > 0})

    def test_warn_and_fail_judge_the_row_after_a_change(self) -> None:
        update = change("UPDATE", {"id": 1, "amount": 2}, {"amount": 0})
        delete = change("DELETE", {"id": 1, "amount": 0})

        assert self.run([update, delete], "warn") == [("-U", 1, 0), ("+U", 1, 2), ("-D", 1, 0)]
        assert self.run([update, delete], "fail") == [("-U", 1, 0), ("+U", 1, 2), ("-D", 1, 0)]
        assert self.counts == {}

    def test_a_letter_contains_all_rows_of_its_record(self) -> None:
        document = {"data": [{"id": 1, "amount": 1}, {"id": 2, "amount": 0}], "old": None, "type": "INSERT"}

        assert self.run([{"value": json.dumps(document).encode()}], "dead_letter") == []
        assert [offset for offset, _ in self.letters.taken] == [100]
        assert self.run([{"value": json.dumps(document).encode()}], "drop") == [("+I", 1, 1)]


class TestNormalizedChangeData:
    """Changes are compared with the last row of each key, so one that is left out leaves that row."""

    def run(self, *records: dict[str, Any]) -> list[tuple[str, int, int | None]]:
        text = table_text(
            form="canal-json", key="primary_key: [id]", **rules("drop"), **{"cdc-events-duplicate": "true"}
        )
        rows = RecordDecoder(reading(text)).decode(raw(records)).to_pylist()
        return [(row[ROW_KIND], row["id"], row["amount"]) for row in rows]

    def test_an_update_to_a_row_that_violates_the_rule_is_ignored(self) -> None:
        assert self.run(
            change("INSERT", {"id": 1, "amount": 1}),
            change("UPDATE", {"id": 1, "amount": 0}, {"amount": 1}),
            change("UPDATE", {"id": 1, "amount": 3}, {"amount": 0}),
            change("DELETE", {"id": 1, "amount": 0}),
        ) == [("+U", 1, 1), ("+U", 1, 3), ("-D", 1, 0)]

    def test_an_update_that_changes_the_key_deletes_the_old_key(self) -> None:
        """No later change would name the old key, so its row would stay forever."""
        update = change("UPDATE", {"id": 2, "amount": 0}, {"id": 1})

        assert [(kind, number) for kind, number, _ in self.run(update)] == [("-D", 1)]
