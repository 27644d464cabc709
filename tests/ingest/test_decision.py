"""What a batch changes: sequences of batches, replays, and refusals before any effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, settings, strategies as st

from kdsl.cluster import Cluster
from kdsl.formats import TableId
from kdsl.ingest import Blackhole, DeltaTables, Ingestion, KafkaFeed, KafkaTopics, Pipeline, Route, Sink, Transform
from kdsl.ingest.decision import Decision, Seen, decide_batch, decide_with_cache, forgive_errors
from kdsl.ingest.learn import learn
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.schema_changes import RecordId, TableDelta
from kdsl.ingest.state import START, IngestState, Note, StateFiles
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.widening import TableSchema
from kdsl_formats.json import Json
from tests.strategies import examples

CLUSTER = Cluster("localhost:9092")
TABLE = ("t",)


def plan(sink: Sink | None = None, *, pipeline: Pipeline | None = None, source: dict[str, Any] | None = None,
         **rules: Any) -> IngestPlan:  # fmt: skip
    options: dict[str, Any] = {"value": Json(), **(source or {})}
    feed = KafkaFeed(CLUSTER, topic_pattern=".*", **options)
    return Ingestion(feed, sink or Blackhole(), pipeline=pipeline or Pipeline(), **rules).plan()


def delta(number: int, table: tuple[str, ...] = TABLE, key: tuple[str, ...] = (), **columns: str) -> TableDelta:
    schema = TableSchema(tuple(t.Field(name, parse_type(kind)) for name, kind in columns.items()), key)
    record_id = RecordId("t", 0, number)
    return TableDelta(table, schema, dict.fromkeys(columns, record_id), record_id)


def show(*deltas: TableDelta, dirty: int = 0, **rows: int) -> Seen:
    counted: dict[TableId, int] = {(table,): count for table, count in rows.items()}
    counted = counted or {d.table: 1 for d in deltas}
    return Seen(counted, deltas, dirty, ("topic t, partition 0, offset 5: it is not JSON",) * dirty)


class Run:
    """An ingestion without records: its state after each batch."""

    def __init__(self, planned: IngestPlan) -> None:
        self.plan, self.state, self.number = planned, IngestState(), 0

    def batch(self, batch_seen: Seen) -> Decision:
        decision = decide_batch(self.plan, self.state, self.number, batch_seen)
        self.number += 1
        if not decision.refusals:
            self.state = self.state.add(decision.note)
        return decision

    def after(self, seen: Seen) -> IngestState:
        self.batch(seen)
        return self.state

    def sink(self, *table: str) -> dict[str, str]:
        return {f.name: str(f.type) for f in self.state.sinks[table or TABLE].columns}


def note_prefetched(*deltas: TableDelta) -> Note:
    learned = learn({}, deltas)
    return Note(START, learned.tables, record_ids=learned.record_ids)


def test_columns_are_added_and_become_wider() -> None:
    run = Run(plan(DeltaTables("/lake")))

    run.batch(show(delta(0, id="BIGINT", name="STRING")))
    run.batch(show(delta(1, id="BIGINT", name="STRING", age="BIGINT", phone="BIGINT")))
    last = run.batch(show(delta(2, id="BIGINT", name="STRING", age="BIGINT", phone="STRING")))

    assert run.sink() == {"id": "BIGINT", "name": "STRING", "age": "BIGINT", "phone": "STRING"}
    assert [(batch, change.tag) for batch, change in run.state.changes] == [
        (0, "create.table"), (1, "add.column"), (1, "add.column"), (2, "alter.column.type"),
    ]  # fmt: skip
    assert [work.plan.targets for work in last.tables] == [(TABLE,)]


def test_changes_and_refusals_name_the_record_that_caused_them() -> None:
    rule = Transform("t", projection="*, UPPER(name) AS upper_name")
    run = Run(plan(DeltaTables("/lake"), transform=[rule]))
    run.batch(show(delta(0, id="BIGINT", name="STRING")))

    more = run.batch(show(delta(7, id="BIGINT", name="STRING", age="BIGINT")))
    refused = run.batch(show(delta(9, id="BIGINT", name="STRING", age="BIGINT", AGE="DATE")))

    assert [str(change) for change in more.note.changes] == [
        "add.column t `age` BIGINT (topic t, partition 0, offset 7)",
    ]  # fmt: skip
    assert "(shown by the record at topic t, partition 0, offset 9)" in str(refused.refusals[0])


def test_a_batch_in_the_steady_state_only_counts_its_records() -> None:
    run = Run(plan())
    run.batch(show(delta(0, id="BIGINT")))

    decision = run.batch(show(t=100))

    assert decision.note == Note(decision.note.batch, records={TABLE: 100})
    assert run.state.records == {TABLE: 101}
    assert decision.sinks[TABLE].changes == ()


def test_records_of_a_table_without_columns_are_counted() -> None:
    assert Run(plan()).batch(show(t=3)).note.counts == {"without-columns": 3}


def test_shards_become_one_table() -> None:
    run = Run(plan(route=[Route(r"items_\d+", "items")]))

    run.batch(show(delta(0, ("items_1",), id="INT", a="DATE"), delta(1, ("items_2",), id="BIGINT", b="STRING")))
    run.batch(show(delta(2, ("items_3",), id="STRING")))

    assert run.sink("items") == {"id": "STRING", "a": "DATE", "b": "STRING"}


def test_the_same_changes_for_a_table_of_one_shard_and_another() -> None:
    run = Run(plan(route=[Route(r"items_\d+", "items")]))
    run.batch(show(delta(0, ("items_1",), id="INT", a="DATE")))

    decision = run.batch(show(delta(1, ("items_2",), id="INT")))

    assert decision.note.changes == ()
    assert set(decision.note.upstream) == {("items_2",)}


def test_columns_whose_names_differ_in_letter_case_are_two_in_kafka() -> None:
    run = Run(plan(KafkaTopics(CLUSTER)))

    assert run.batch(show(delta(0, id="BIGINT", ID="DATE"))).refusals == ()
    assert run.sink() == {"id": "BIGINT", "ID": "DATE"}


def test_static_schemas_stay() -> None:
    run = Run(plan(source={"inference": "static"}))
    run.batch(show(delta(0, id="BIGINT")))

    decision = run.batch(show(delta(1, id="STRING", more="DATE")))
    assert decision.note == Note(decision.note.batch, counts={"ignored-columns": 1}, records={TABLE: 1})
    assert decision.ignored == {TABLE: {"more": RecordId("t", 0, 1)}}
    assert run.sink() == {"id": "BIGINT"}


class TestRefusals:
    @pytest.mark.parametrize(
        ("planned", "batch_seen", "reason"),
        [
            (plan(), show(dirty=2, t=1), "2 records cannot be read"),
            (plan(source={"ignore_errors": True, "max_errors": 1}), show(dirty=2, t=1), "at most 1 may"),
            (plan(pipeline=Pipeline(schema_change="EXCEPTION")), show(delta(1, id="STRING")), "EXCEPTION"),
            (plan(pipeline=Pipeline(max_tables=1)), show(delta(1, ("u",), id="INT")), "max-tables"),
            (plan(DeltaTables("/lake")), show(delta(1, id="BIGINT", ID="BIGINT")), "apart"),
            (
                plan(transform=[Transform("t", projection="*, id + 1 AS x")]),
                show(delta(1, id="STRING")),
                "+ takes a number",
            ),
            (plan(KafkaTopics(CLUSTER), source={}), show(delta(1, ("größe",), id="INT")), "has characters other than"),
            (
                plan(source={"metadata": ("offset",)}),
                show(delta(1, offset="INT")),
                "the messages have a column 'offset', and metadata.list has, too; set value.fields-prefix",
            ),
        ],
    )
    def test_nothing_is_noted(self, planned: IngestPlan, batch_seen: Seen, reason: str) -> None:
        run = Run(planned)
        run.batch(show(delta(0, id="BIGINT")))
        state = run.state

        decision = run.batch(batch_seen)

        assert reason in "\n".join(map(str, decision.refusals))
        assert (decision.note.is_empty, decision.sinks, run.state) == (True, {}, state)

    @pytest.mark.parametrize(
        ("state", "seen", "how"),
        [
            (IngestState(), [delta(3, id="BIGINT"), delta(5, ID="BIGINT")], ("shown by", "shown by")),
            (
                Run(plan(DeltaTables("/lake"))).after(show(delta(3, id="BIGINT"))),
                [delta(5, ID="BIGINT")],
                ("known since", "shown by"),
            ),
            (
                IngestState().add(note_prefetched(delta(3, id="BIGINT"), delta(5, ID="BIGINT"))),
                [],
                ("known since", "known since"),
            ),
        ],
        ids=["in one batch", "in two batches", "before the first batch"],
    )
    def test_both_records_of_columns_that_differ_in_letter_case_are_named(
        self, state: IngestState, seen: list[TableDelta], how: tuple[str, str]
    ) -> None:
        decision = decide_batch(plan(DeltaTables("/lake")), state, 1, show(*seen, t=1))

        ids = f"'id' ({how[0]} the record at topic t, partition 0, offset 3)"
        others = f"'ID' ({how[1]} the record at topic t, partition 0, offset 5)"
        assert f"does not tell the columns {ids} and {others} apart" in str(decision.refusals[0])

    def test_a_table_without_a_key_is_not_distributed_by_it(self) -> None:
        decision = Run(plan(KafkaTopics(CLUSTER, partition_strategy="hash-by-key"))).batch(show(delta(0, id="INT")))

        assert "has no primary key" in str(decision.refusals[0])

    def test_tables_with_different_keys_do_not_become_one(self) -> None:
        rules = [Transform("a", primary_keys=("id",)), Transform("b", primary_keys=("no",))]
        run = Run(plan(transform=rules, route=[Route("a,b", "c")]))

        decision = run.batch(show(delta(0, ("a",), id="INT", no="INT"), delta(1, ("b",), id="INT", no="INT")))

        assert "(id) and (no)" in str(decision.refusals[0])

    def test_merged_tables_whose_keys_become_strings_do_not_change_a_key_that_exists(self) -> None:
        run = Run(plan(transform=[Transform(r"\.*", primary_keys=("id",))], route=[Route(r"a_\d", "a")]))
        run.batch(show(delta(0, ("a_1",), id="BIGINT")))

        decision = run.batch(show(delta(1, ("a_2",), id="STRING")))

        assert decision.note.sinks == {}
        assert "would change from BIGINT to STRING" in str(decision.sinks["a",].must_fit["id"])

    @pytest.mark.parametrize("kind", ["DOUBLE", "STRING", "DECIMAL(38, 0)"])
    def test_messages_with_another_type_of_a_key_are_refused_and_nothing_is_learned(self, kind: str) -> None:
        run = Run(plan(transform=[Transform(r"\.*", projection="id AS no, n", primary_keys=("no",))]))
        run.batch(show(delta(0, ("a",), id="BIGINT", n="BIGINT")))

        decision = run.batch(show(delta(9, ("a",), id=kind, n="DOUBLE")))

        (refusal,) = decision.refusals
        assert (refusal.code, refusal.column) == ("key-type", "id")
        assert f"from BIGINT to {kind} (shown by the record at topic t, partition 0, offset 9); set" in str(refusal)
        assert decision.note.upstream == {}

    def test_a_wider_integer_of_a_key_is_learned(self) -> None:
        run = Run(plan(transform=[Transform(r"\.*", primary_keys=("id",))]))
        run.batch(show(delta(0, ("a",), id="INT")))

        assert run.batch(show(delta(1, ("a",), id="BIGINT"))).refusals == ()

    def test_a_new_table_has_no_key_of_numbers_with_fractions(self) -> None:
        rule = Transform(r"\.*", primary_keys=("id",))

        refused = Run(plan(transform=[rule])).batch(show(delta(0, ("a",), id="DOUBLE")))
        fixed = plan(transform=[rule], source={"value": Json(infer_fixed_types="id DOUBLE")})

        assert "different integers beyond 2^53 become equal" in str(refused.refusals[0])
        assert Run(fixed).batch(show(delta(0, ("a",), id="DOUBLE"))).refusals == ()
        prefetched = Run(plan(transform=[rule]))
        prefetched.state = prefetched.state.add(note_prefetched(delta(0, ("a",), id="DOUBLE")))
        assert prefetched.batch(show(delta(0, ("a",), id="DOUBLE"))).refusals[0].code == "key-type"
        declared = {"initial_schemas": "CREATE TABLE a (id DOUBLE, PRIMARY KEY (id) NOT ENFORCED)"}
        assert Run(plan(source=declared)).batch(show(delta(0, ("a",), id="DOUBLE"))).refusals == ()

    def test_tolerated_records_add_up(self) -> None:
        run = Run(plan(source={"ignore_errors": True, "max_errors": 3}))

        assert [bool(run.batch(show(dirty=2, t=1)).refusals) for _ in range(3)] == [False, True, True]
        assert run.state.counts["dirty"] == 2


KINDS = st.sampled_from(["BIGINT", "DOUBLE", "STRING", "DATE", "TIMESTAMP(6)", "BOOLEAN"])
COLUMNS = st.dictionaries(st.sampled_from(["a", "b", "c"]), KINDS, min_size=1)
DELTAS = st.lists(st.tuples(st.sampled_from(["t", "u_1", "u_2"]), COLUMNS), min_size=1, max_size=4)


def test_a_batch_that_was_interrupted_decides_and_keeps_the_same_again(tmp_path: Path) -> None:
    planned, files = plan(), StateFiles(open_local_folder(tmp_path))
    batch_seen = show(delta(0, id="BIGINT"), dirty=0)
    decisions = []
    for _ in range(3):  # killed after the file was written, twice
        state = files.load(0)
        decisions.append(decide_batch(planned, state, 0, batch_seen))
        files.write(decisions[-1].note, state)

    after = files.load(1)

    assert decisions[0].note.changes == decisions[1].note.changes == decisions[2].note.changes
    assert [change.tag for _, change in after.changes] == ["create.table"]
    assert set(after.upstream) == set(after.sinks) == {TABLE}


@settings(max_examples=examples(200))
@given(st.lists(DELTAS, min_size=1, max_size=4))
def test_a_repeated_batch_changes_nothing_again(batches: list[list[tuple[str, dict[str, str]]]]) -> None:
    run = Run(plan(route=[Route(r"u_\d", "u")]))
    for number, batch in enumerate(batches):
        batch_seen = show(
            *(delta(10 * number + i, (table,), (), **columns) for i, (table, columns) in enumerate(batch))
        )
        first = run.batch(batch_seen)
        again = decide_batch(run.plan, run.state, number, batch_seen)

        assert first.refusals == again.refusals == ()
        assert again.note == Note(number, records=batch_seen.rows)
        assert {table: sink.schema for table, sink in again.sinks.items()} == {
            table: sink.schema for table, sink in first.sinks.items()
        }


def test_a_first_batch_of_another_format_is_refused_although_errors_are_allowed() -> None:
    planned = plan(source={"ignore_errors": True})
    hint = "topic t: 30 of 30 messages cannot be read as json; they look like canal-json"
    seen = Seen(dirty=30, reasons=("no",), hint=hint)
    first = decide_batch(planned, IngestState(), 0, seen)
    few = decide_batch(planned, IngestState(), 0, attrs.evolve(seen, dirty=3))
    run = Run(planned)
    run.batch(show(delta(0, id="BIGINT")))

    assert "they look like canal-json; set value.format" in str(first.refusals[0])
    assert run.batch(seen).refusals == few.refusals == ()


def test_errors_that_are_forgiven_no_longer_count() -> None:
    planned = plan(source={"ignore_errors": True, "max_errors": 3})
    run = Run(planned)
    run.batch(show(delta(0, id="BIGINT"), dirty=3))
    assert "4 records could not be read, and at most 3 may" in str(run.batch(show(t=1, dirty=1)).refusals[0])

    judged, counts = forgive_errors(run.state)
    again = decide_batch(planned, judged, 1, show(t=1, dirty=2))
    after = run.state.add(attrs.evolve(again.note, counts={**again.note.counts, **counts}))
    assert (again.refusals, after.counts) == ((), {"dirty": 5, "forgiven": 3})
    assert forgive_errors(after)[1] == {"forgiven": 2}
    assert decide_batch(planned, after, 2, show(t=1, dirty=2)).refusals != ()


def test_a_format_that_ignores_errors_has_no_limit() -> None:
    run = Run(plan(source={"value": Json(ignore_parse_errors=True)}))
    decision = run.batch(show(delta(0, id="BIGINT"), dirty=5))

    assert (decision.refusals, run.state.counts) == ((), {"dirty": 5})


class TestOneTableOfACatalog:
    """A catalog ignores letter case: two ids of one table are refused before anything is noted."""

    def test_in_one_batch(self) -> None:
        run = Run(plan(DeltaTables(catalog="lake")))
        (refusal,) = run.batch(show(delta(0, ("orders",), id="BIGINT"), delta(1, ("Orders",), id="BIGINT"))).refusals

        assert (refusal.table, refusal.code) == (("Orders",), "table-name")
        assert refusal.reason == "it is the same table as orders: the catalog ignores the letter case of names"

    def test_in_a_later_batch_and_what_is_advised(self) -> None:
        run = Run(plan(DeltaTables(catalog="lake")))
        run.batch(show(delta(0, ("orders",), id="BIGINT")))
        seen = show(delta(1, ("Orders",), id="BIGINT", n="STRING"))
        (refusal,) = run.batch(seen).refusals
        run.plan = plan(DeltaTables(catalog="lake"), route=[Route("Orders", "orders")])

        assert refusal.fix == "route both into one sink table, or one of them elsewhere"
        assert run.batch(seen).refusals == ()
        assert run.sink("orders") == {"id": "BIGINT", "n": "STRING"}

    def test_elsewhere_they_are_two_tables(self) -> None:
        seen = show(delta(0, ("orders",), id="BIGINT"), delta(1, ("Orders",), id="BIGINT"))
        for sink in (DeltaTables("/lake"), Blackhole()):
            assert Run(plan(sink)).batch(seen).refusals == ()


def test_a_table_with_an_empty_name_is_refused_until_a_route_names_another() -> None:
    seen = show(delta(0, ("shop", ""), id="BIGINT"))
    (refusal,) = Run(plan()).batch(seen).refusals

    assert (refusal.reason, refusal.fix) == ("a name of the table is empty", "name another sink table in a route")
    assert Run(plan(route=[Route(r"shop.\.*", "shop.unnamed")])).batch(seen).refusals == ()


def test_members_that_a_sink_does_not_tell_apart_are_refused_at_any_depth() -> None:
    nested = "ARRAY<ROW<b MAP<STRING, ROW<x INT, X INT>>>>"
    (refusal,) = Run(plan(DeltaTables("/lake"))).batch(show(delta(0, id="BIGINT", r=nested))).refusals

    assert (refusal.column, refusal.code) == ("r", "name-case")
    assert "does not tell its members 'x' and 'X' apart" in refusal.reason
    assert Run(plan()).batch(show(delta(0, id="BIGINT", r=nested, R="INT"))).refusals == ()


class Cached:
    """Batches of one run, which asks the sink for the columns of tables, and remembers them."""

    def __init__(self, **sink: str) -> None:
        self.run, self.asked = Run(plan(DeltaTables("/lake"))), 0
        self.cache: dict[TableId, TableSchema | None] = {}
        self.alter(**sink)

    def alter(self, **columns: str) -> None:
        """Somebody else changes the sink table."""
        fields = tuple(t.Field(name, parse_type(kind)) for name, kind in columns.items())
        self.columns = TableSchema(fields) if fields else None

    def read(self, table: TableId, known: TableSchema | None) -> TableSchema | None:
        del known
        if table not in self.cache:
            self.asked += 1
            self.cache[table] = self.columns
        return self.cache[table]

    def batch(self, seen: Seen) -> Decision:
        run = self.run
        decision = decide_with_cache(self.cache, lambda: decide_batch(run.plan, run.state, run.number, seen, self.read))
        run.number += 1
        if not decision.refusals:
            run.state = run.state.add(decision.note)
            self.columns = self.cache[TABLE] = decision.sinks[TABLE].schema
        return decision


class TestTablesThatOthersChange:
    def test_the_sink_is_asked_once_while_nothing_changes(self) -> None:
        run = Cached()
        run.batch(show(delta(0, id="BIGINT", n="BIGINT")))
        for _ in range(3):
            run.batch(show(t=1))

        assert run.asked == 1

    def test_a_type_that_became_wider_is_not_narrowed(self) -> None:
        run = Cached()
        run.batch(show(delta(0, id="BIGINT", n="INT")))
        run.alter(id="BIGINT", n="DOUBLE")

        decision = run.batch(show(delta(1, id="BIGINT", n="BIGINT", more="DATE")))

        assert [str(change.columns[0]) for change in decision.note.changes] == ["`more` DATE"]
        assert run.run.sink() == {"id": "BIGINT", "n": "DOUBLE", "more": "DATE"}
        assert run.asked == 2

    def test_a_column_that_was_added_keeps_its_type(self) -> None:
        run = Cached()
        run.batch(show(delta(0, id="BIGINT")))
        run.alter(id="BIGINT", n="STRING")

        assert run.batch(show(delta(1, id="BIGINT", n="BIGINT"))).note.changes == ()

    def test_what_was_corrected_is_not_refused(self) -> None:
        run = Cached(id="BIGINT", n="BIGINT NOT NULL")
        assert [refusal.code for refusal in run.batch(show(delta(0, id="BIGINT", n="BIGINT"))).refusals] == ["not-null"]
        run.alter(id="BIGINT", n="BIGINT")

        assert run.batch(show(delta(0, id="BIGINT", n="BIGINT"))).refusals == ()
