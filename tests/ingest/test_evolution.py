"""Schemas that change: the laws of the join, the five behaviors, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, get_args

import attrs
import pytest
from hypothesis import assume, given, settings, strategies as st

from kdsl.cluster import Cluster
from kdsl.formats import TableId
from kdsl.ingest import Blackhole, DeltaTables, JdbcTables, KafkaTopics, Memory, Pipeline, Sink
from kdsl.ingest.definition import Behavior
from kdsl.ingest.ends.end import CHANGE_TAGS, SinkRules
from kdsl.ingest.evolution import Policy, SinkEvolution, broaden, evolve_sink, merge_schemas
from kdsl.ingest.learn import Learned, learn
from kdsl.ingest.schema_changes import RecordId, TableDelta, UpstreamTable
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.widening import PrimaryKeyError, TableSchema, can_change, holds, stores
from kdsl.vendors.hologres import HologresTables
from tests.strategies import examples, scalar_types

TABLE: TableId = ("shop", "orders")
NULLABLE = scalar_types(st.just(True))
KINDS = st.sampled_from([t.BigInt(), t.Double(), t.STRING, t.Date(), t.Timestamp(6), t.Boolean(), t.Int()]) | NULLABLE
COLUMNS = st.dictionaries(st.sampled_from("abcdef"), KINDS, min_size=1, max_size=5)
SCHEMAS = COLUMNS.map(lambda columns: schema(columns))


def schema(columns: Mapping[str, t.DataType], key: tuple[str, ...] = ()) -> TableSchema:
    return TableSchema(tuple(t.Field(name, kind) for name, kind in columns.items()), key)


def of(*key: str, **columns: str) -> TableSchema:
    """A schema from types in SQL: ``of("id", id="BIGINT NOT NULL")``."""
    return schema({name: parse_type(kind) for name, kind in columns.items()}, key)


def types(schema_: TableSchema) -> dict[str, t.DataType]:
    return {f.name: f.type for f in schema_.columns}


def delta(schema_: TableSchema, offset: int, table: tuple[str, ...] = TABLE, partition: int = 0) -> TableDelta:
    record_id = RecordId("topic", partition, offset)
    return TableDelta(table, schema_, {f.name: record_id for f in schema_.columns}, record_id)


def deltas(schemas: Sequence[TableSchema]) -> list[TableDelta]:
    return [delta(s, i) for i, s in enumerate(schemas)]


BATCHES = st.lists(SCHEMAS, min_size=1, max_size=5)


class TestLearning:
    @settings(max_examples=examples(400))
    @given(BATCHES, st.randoms())
    def test_the_order_in_which_deltas_arrive_does_not_matter(self, batch: list[TableSchema], random: Any) -> None:
        every = deltas(batch)
        mixed = list(every)
        random.shuffle(mixed)

        assert learn({}, mixed) == learn({}, every)

    @settings(max_examples=examples(400))
    @given(BATCHES, st.integers(0, 5))
    def test_two_batches_give_the_types_of_one(self, batch: list[TableSchema], cut: int) -> None:
        every = deltas(batch)
        half = learn({}, every[:cut])

        assert types_of(learn(half.tables, every[cut:])) == types_of(learn({}, every))

    @settings(max_examples=examples(400))
    @given(BATCHES)
    def test_a_replay_changes_nothing(self, batch: list[TableSchema]) -> None:
        learned = learn({}, deltas(batch))

        again = learn(learned.tables, deltas(batch))

        assert again.tables == learned.tables
        assert again.changes == ()

    @settings(max_examples=examples(400))
    @given(SCHEMAS, BATCHES)
    def test_a_schema_never_becomes_narrower(self, known: TableSchema, batch: list[TableSchema]) -> None:
        after = types(learn({TABLE: UpstreamTable(known)}, deltas(batch)).tables[TABLE].schema)

        assert all(holds(after[f.name], f.type) for s in (known, *batch) for f in s.columns)
        assert list(after)[: len(known.columns)] == list(types(known))

    @settings(max_examples=examples(200))
    @given(SCHEMAS, BATCHES)
    def test_static_schemas_stay(self, known: TableSchema, batch: list[TableSchema]) -> None:
        tables = {TABLE: UpstreamTable(known)}
        learned = learn(tables, deltas(batch), static=True)

        assert (learned.tables, learned.changes) == (tables, ())

    def test_a_late_table_has_the_schema_of_its_whole_first_batch_also_when_static(self) -> None:
        first = [delta(of(id="BIGINT"), 5), delta(of(id="STRING", name="STRING"), 3, partition=1)]

        learned = learn({("other",): UpstreamTable(of(id="BIGINT"))}, first, static=True)

        assert types(learned.tables[TABLE].schema) == {"id": t.STRING, "name": t.STRING}
        assert [c.tag for c in learned.changes] == ["create.table"]

    def test_a_change_names_the_record_that_caused_it(self) -> None:
        known = {TABLE: UpstreamTable(of(id="BIGINT"))}
        seen = TableDelta(TABLE, of(id="STRING", age="BIGINT"), {"id": RecordId("x", 1, 7), "age": RecordId("x", 1, 9)},
                          RecordId("x", 1, 7))  # fmt: skip

        assert [str(c) for c in learn(known, [seen]).changes] == [
            "alter.column.type shop.orders `id` BIGINT → STRING (topic x, partition 1, offset 7)",
            "add.column shop.orders `age` BIGINT (topic x, partition 1, offset 9)",
        ]

    def test_new_columns_are_in_the_order_of_their_first_records(self) -> None:
        seen = [delta(of(z="BIGINT"), 4), delta(of(a="BIGINT"), 2, partition=1), delta(of(m="BIGINT"), 1)]

        assert list(types(learn({TABLE: UpstreamTable(of(id="BIGINT"))}, seen).tables[TABLE].schema)) == [
            "id",
            "m",
            "z",
            "a",
        ]

    def test_another_primary_key_is_refused(self) -> None:
        known = {TABLE: UpstreamTable(of("id", id="BIGINT NOT NULL"))}
        learned = learn(known, [delta(of("no", id="BIGINT NOT NULL", no="BIGINT NOT NULL"), 8)])

        assert learned.tables == known
        assert "the primary key is (id)" in str(learned.refusals[0])
        assert "offset 8" in str(learned.refusals[0])

    def test_columns_of_the_key_come_first_and_one_that_is_in_the_value_too_is_that_of_the_value(self) -> None:
        one = attrs.evolve(delta(of(k="BIGINT", id="BIGINT", v="STRING"), 4), key=("k", "id"))
        other = attrs.evolve(delta(of(b="BIGINT", id="BIGINT"), 2, partition=1), key=("b",))

        table = learn({}, [one, other]).tables[TABLE]

        assert table.key == ("k", "b")
        assert list(types(table.schema)) == ["k", "b", "id", "v"]

    def test_too_many_tables_are_refused_before_one_is_created(self) -> None:
        seen = [delta(of(id="BIGINT"), i, ("app", f"user_{i}")) for i in range(11)]

        refusals = learn({}, seen, max_tables=10).refusals

        assert len(refusals) == 1
        assert "parser-table-id.fields" in refusals[0].fix


def types_of(learned: Learned) -> dict[tuple[str, ...], dict[str, t.DataType]]:
    return {table: types(one.schema) for table, one in learned.tables.items()}


SINKS: dict[str, Sink] = {
    "kafka": KafkaTopics(Cluster("localhost:9092")),
    "delta": DeltaTables("/lake"),
    "postgres": JdbcTables("jdbc:postgresql://localhost/x"),
    "hologres": HologresTables(endpoint="h", dbname="d", username="u", password="${env:P}"),
    "blackhole": Blackhole(),
}
BEHAVIORS: tuple[Behavior, ...] = get_args(Behavior)
EVOLVING = ("EVOLVE", "LENIENT", "TRY_EVOLVE")
LIVE = of("id", id="BIGINT NOT NULL", name="STRING", price="BIGINT")
WANTED = {
    "add": of("id", id="BIGINT NOT NULL", name="STRING", price="BIGINT", phone="BIGINT"),
    "widen": of("id", id="BIGINT NOT NULL", name="STRING", price="STRING"),
    "missing": of("id", id="BIGINT NOT NULL", name="STRING"),
    "rename": of("id", id="BIGINT NOT NULL", name="STRING", cost="BIGINT"),
}


def evolve(kind: str, behavior: Behavior, sink: str, live: TableSchema | None = LIVE) -> SinkEvolution:
    return evolve_sink(TABLE, live, WANTED[kind], Policy.of(SINKS[sink], Pipeline(schema_change=behavior)))


class TestBehaviors:
    @pytest.mark.parametrize("sink", SINKS)
    @pytest.mark.parametrize("behavior", BEHAVIORS)
    def test_a_missing_column_changes_nothing(self, sink: str, behavior: Behavior) -> None:
        assert evolve("missing", behavior, sink) == SinkEvolution(LIVE)

    @pytest.mark.parametrize("sink", SINKS)
    @pytest.mark.parametrize(("kind", "column"), [("add", "phone"), ("rename", "cost")])
    @pytest.mark.parametrize("behavior", EVOLVING)
    def test_a_column_is_added_at_the_end(self, behavior: Behavior, kind: str, column: str, sink: str) -> None:
        done = evolve(kind, behavior, sink)

        assert [(c.tag, c.columns[0].name) for c in done.changes] == [("add.column", column)]
        assert list(types(done.schema)) == ["id", "name", "price", column]
        assert done.refusals == ()

    @pytest.mark.parametrize("sink", ["kafka", "delta", "postgres"])
    @pytest.mark.parametrize("behavior", EVOLVING)
    def test_a_type_becomes_wider(self, behavior: Behavior, sink: str) -> None:
        done = evolve("widen", behavior, sink)

        assert types(done.schema)["price"] == t.STRING
        assert (done.refusals, done.narrowed) == ((), ())

    @pytest.mark.parametrize("behavior", ["EVOLVE", "LENIENT"])
    def test_a_change_that_the_sink_cannot_make_is_refused(self, behavior: Behavior) -> None:
        done = evolve("widen", behavior, "hologres")

        assert done.schema == LIVE
        assert [r.column for r in done.refusals] == ["price"]
        assert "BROADEN" in done.refusals[0].fix

    def test_it_is_left_out_by_try_evolve(self) -> None:
        assert evolve("widen", "TRY_EVOLVE", "hologres") == SinkEvolution(LIVE, narrowed=("price",))

    @pytest.mark.parametrize("sink", SINKS)
    def test_ignore_changes_nothing(self, sink: str) -> None:
        assert evolve("add", "IGNORE", sink) == SinkEvolution(LIVE, left_out=("phone",))
        assert evolve("widen", "IGNORE", sink) == SinkEvolution(LIVE, narrowed=("price",))

    @pytest.mark.parametrize("sink", SINKS)
    @pytest.mark.parametrize("kind", ["add", "widen", "rename"])
    def test_exception_refuses_every_change(self, kind: str, sink: str) -> None:
        done = evolve(kind, "EXCEPTION", sink)

        assert (done.schema, done.changes) == (LIVE, ())
        assert len(done.refusals) == 1

    @pytest.mark.parametrize("sink", SINKS)
    @pytest.mark.parametrize("behavior", BEHAVIORS)
    def test_a_table_is_created_by_every_behavior(self, behavior: Behavior, sink: str) -> None:
        done = evolve("add", behavior, sink, live=None)

        assert [c.tag for c in done.changes] == ["create.table"]
        assert done.schema == WANTED["add"]

    def test_an_excluded_change_is_left_out(self) -> None:
        sink = DeltaTables("/lake", exclude_changes=("alter.column.type",))
        done = evolve_sink(TABLE, LIVE, WANTED["widen"], Policy.of(sink, Pipeline()))

        assert done == SinkEvolution(LIVE, narrowed=("price",))

    def test_a_table_that_may_not_be_created_is_refused(self) -> None:
        sink = DeltaTables("/lake", exclude_changes=("table",))

        assert evolve_sink(TABLE, None, LIVE, Policy.of(sink, Pipeline())).refusals[0].column is None


@pytest.mark.parametrize(
    ("include", "exclude", "tags"),
    [
        ((), (), set(CHANGE_TAGS)),
        (("add.column",), (), {"create.table", "add.column"}),
        (("column",), ("alter.column.type",), {"create.table", "add.column", "drop.column", "rename.column"}),
        ((), ("drop",), set(CHANGE_TAGS) - {"drop.column", "drop.table"}),
        (("create.table",), ("create.table",), set()),
        (("table",), (), {"create.table", "drop.table", "truncate.table", "alter.table.comment"}),
        (("create.table", "add"), (), {"create.table", "add.column"}),
        (("Add", "ALTER.column.type"), (), {"create.table", "add.column", "alter.column.type"}),
        (("create",), (), {"create.table"}),
        (("rename", "drop"), (), {"create.table", "rename.column", "drop.column", "drop.table"}),
        (("alter",), (), {"create.table", "alter.column.type", "alter.table.comment"}),
        (("all",), ("column",), {"create.table", "drop.table", "truncate.table", "alter.table.comment"}),
        ((), ("all",), set()),
    ],
)
def test_exclude_wins_over_include(include: tuple[str, ...], exclude: tuple[str, ...], tags: set[str]) -> None:
    sink = Blackhole(include_changes=include, exclude_changes=exclude)

    assert list(sink.problems()) == []
    assert Policy.of(sink, Pipeline()).tags == tags


POLICIES = st.builds(
    Policy,
    st.sampled_from(BEHAVIORS),
    st.frozensets(st.sampled_from(CHANGE_TAGS)).map(lambda tags: tags | {"create.table"}),
    st.booleans(),
    st.builds(SinkRules, alters_types=st.booleans(), folds_case=st.booleans(), stores_rows=st.just(True)),
)
WITHOUT_ROWS = st.builds(Policy, st.sampled_from(EVOLVING), rules=st.just(SinkRules(stores_rows=False)))


class TestLawsOfTheSink:
    @settings(max_examples=examples(600))
    @given(st.none() | SCHEMAS, SCHEMAS, POLICIES)
    def test_the_result_is_stable(self, live: TableSchema | None, wanted: TableSchema, policy: Policy) -> None:
        done = evolve_sink(TABLE, live, wanted, policy)
        assume(not done.refusals)

        again = evolve_sink(TABLE, done.schema, wanted, policy)

        assert again == attrs.evolve(done, changes=())

    @settings(max_examples=examples(600))
    @given(st.none() | SCHEMAS, SCHEMAS, POLICIES)
    def test_each_column_holds_its_values_or_is_named(
        self, live: TableSchema | None, wanted: TableSchema, policy: Policy
    ) -> None:
        done = evolve_sink(TABLE, live, wanted, policy)
        assume(not done.refusals)
        after = types(done.schema)

        for field in wanted.columns:
            assert (field.name in done.left_out) == (field.name not in after)
            if field.name in after and field.name not in (*done.narrowed, *done.must_fit):
                assert stores(after[field.name], field.type)

    @settings(max_examples=examples(600))
    @given(SCHEMAS, SCHEMAS, POLICIES)
    def test_a_live_column_stays_and_never_becomes_narrower(
        self, live: TableSchema, wanted: TableSchema, policy: Policy
    ) -> None:
        after = types(evolve_sink(TABLE, live, wanted, policy).schema)

        assert list(after)[: len(live.columns)] == list(types(live))
        assert all(after[f.name] == f.type or can_change(f.type, after[f.name]) for f in live.columns)

    @settings(max_examples=examples(600))
    @given(SCHEMAS, SCHEMAS, SCHEMAS, WITHOUT_ROWS)
    def test_the_order_of_two_changes_does_not_matter_where_there_are_no_earlier_rows(
        self, live: TableSchema, one: TableSchema, other: TableSchema, policy: Policy
    ) -> None:
        def after(*wanted: TableSchema) -> dict[str, t.DataType]:
            schema_ = live
            for each in wanted:
                schema_ = evolve_sink(TABLE, schema_, each, policy).schema
            return types(schema_)

        assert after(one, other) == after(other, one)

    @settings(max_examples=examples(400))
    @given(NULLABLE)
    def test_a_wide_type_holds_the_type_and_stays(self, kind: t.DataType) -> None:
        assert holds(broaden(kind), kind)
        assert broaden(broaden(kind)) == broaden(kind)


def test_a_change_that_fits_a_wide_type_changes_nothing() -> None:
    policy = Policy(broaden=True, rules=SinkRules(alters_types=False))
    created = evolve_sink(TABLE, None, of(n="TINYINT", x="FLOAT", s="VARCHAR(3)"), policy).schema

    done = evolve_sink(TABLE, created, of(n="BIGINT", x="DOUBLE", s="STRING"), policy)

    assert types(created) == {"n": t.BigInt(), "x": t.Double(), "s": t.STRING}
    assert done == SinkEvolution(created)


FOLDING = Policy(rules=SinkRules("it", folds_case=True, max_name_bytes=10, max_columns=3))


@pytest.mark.parametrize(
    ("live", "wanted", "reason"),
    [
        (None, of(id="BIGINT", ID="BIGINT"), "does not tell the columns 'id' and 'ID' apart"),
        (None, schema({"größe_in_cm": t.BigInt()}), "the name has 13 bytes"),
        (None, of(a="INT", b="INT", c="INT", d="INT"), "it would have 4 columns"),
        (of("id", id="INT NOT NULL"), of(id="INT NOT NULL"), "its primary key is (id), and that of the rows ()"),
        (of(n="INT NOT NULL"), of(n="INT"), "may be NULL in the rows"),
        (of(a="INT", n="INT NOT NULL"), of(a="INT"), "the rows do not have it"),
    ],
)
def test_a_change_of_constraints_or_names_is_refused(
    live: TableSchema | None, wanted: TableSchema, reason: str
) -> None:
    done = evolve_sink(TABLE, live, wanted, FOLDING)

    assert done.changes == ()
    assert len(done.refusals) == 1
    assert reason in str(done.refusals[0])
    in_sql = done.refusals[0].describe(in_sql=True)
    assert reason in in_sql
    assert not re.search(r"projection|transform|[\w-]: \w", in_sql.partition("; ")[2]), "words of YAML"


@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize(
    ("live", "wanted"),
    [("BIGINT", "DOUBLE"), ("BIGINT", "STRING"), ("BIGINT", "DECIMAL(38, 0)"), ("DATE", "TIMESTAMP(6)"),
     ("DATE", "STRING"), ("BOOLEAN", "STRING"), ("DECIMAL(10, 2)", "DECIMAL(12, 4)"), ("DOUBLE", "STRING")],
)  # fmt: skip
@pytest.mark.parametrize("sink", ["kafka", "delta", "postgres", "blackhole"])
def test_a_key_column_keeps_its_type_and_refuses_values_that_do_not_fit(
    live: str, wanted: str, behavior: Behavior, sink: str
) -> None:
    known = of("id", id=f"{live} NOT NULL")
    policy = Policy.of(SINKS[sink], Pipeline(schema_change=behavior))

    done = evolve_sink(TABLE, known, of("id", id=f"{wanted} NOT NULL"), policy, {"id": RecordId("t", 0, 7)})

    assert (done.schema, done.changes, done.narrowed, done.refusals) == (known, (), (), ())
    assert f"would change from {live} to {wanted} (shown by the record at topic t, partition 0, offset 7); set" in str(
        done.must_fit["id"]
    )


@pytest.mark.parametrize("behavior", BEHAVIORS)
@pytest.mark.parametrize(
    ("live", "wanted"),
    [("DECIMAL(10, 2)", "DOUBLE"), ("DECIMAL(10, 0)", "DOUBLE"), ("DOUBLE", "STRING"), ("TIMESTAMP(3)", "STRING"),
     ("TIMESTAMP_LTZ(3)", "STRING"), ("CHAR(3)", "STRING"), ("DECIMAL(10, 2)", "STRING"), ("DOUBLE", "BIGINT")],
)  # fmt: skip
def test_a_column_keeps_a_type_whose_values_another_one_would_change(
    live: str, wanted: str, behavior: Behavior
) -> None:
    policy = Policy.of(SINKS["postgres"], Pipeline(schema_change=behavior))

    done = evolve_sink(TABLE, of(n=live), of(n=wanted), policy)

    lossy = behavior in ("TRY_EVOLVE", "IGNORE")
    assert (done.schema, done.changes, done.refusals) == (of(n=live), (), ())
    assert (done.narrowed, tuple(done.must_fit)) == (("n",), ()) if lossy else ((), ("n",))


@pytest.mark.parametrize(("live", "wanted"), [("TIMESTAMP(6)", "TIMESTAMP_LTZ(6)"), ("TIMESTAMP_LTZ(3)", "DATE")])
def test_times_with_and_without_a_zone_never_replace_each_other(live: str, wanted: str) -> None:
    assert evolve_sink(TABLE, of(at=live), of(at=wanted), Policy()) == SinkEvolution(of(at=live))


def test_a_key_column_may_become_a_wider_number() -> None:
    done = evolve_sink(TABLE, of("id", id="INT NOT NULL"), of("id", id="BIGINT NOT NULL"), Policy())

    assert types(done.schema) == {"id": t.BigInt(nullable=False)}


def test_a_column_of_another_letter_case_is_the_same_where_the_sink_says_so() -> None:
    assert evolve_sink(TABLE, of(ID="BIGINT"), of(id="BIGINT"), FOLDING) == SinkEvolution(of(ID="BIGINT"))


@pytest.mark.parametrize("name", ["id", "ID"])
@pytest.mark.parametrize("behavior", ["TRY_EVOLVE", "IGNORE"])
def test_a_key_column_that_may_be_null_is_refused_in_any_letter_case(behavior: Behavior, name: str) -> None:
    live = schema({name: parse_type("INT NOT NULL")}, (name,))

    done = evolve_sink(TABLE, live, of("id", id="INT"), attrs.evolve(FOLDING, behavior=behavior))

    assert ([r.column for r in done.refusals], done.narrowed) == ([name], ())


@pytest.mark.parametrize("behavior", ["TRY_EVOLVE", "IGNORE"])
@pytest.mark.parametrize("wanted", ["INT", "STRING", "STRING NOT NULL", "DOUBLE"])
def test_null_in_a_column_that_is_not_null_refuses_the_batch_instead_of_its_write(
    behavior: Behavior, wanted: str
) -> None:
    """A value that does not fit would be NULL there, too."""
    rules = SinkRules("the sink", alters_types=False)

    done = evolve_sink(TABLE, of(n="INT NOT NULL"), of(n=wanted), Policy(behavior, rules=rules))

    assert (done.schema, done.changes, done.narrowed, done.refusals) == (of(n="INT NOT NULL"), (), (), ())
    assert (done.must_fit["n"].code, done.must_fit["n"].fix) == ("not-null", "drop NOT NULL there, or correct them")


@pytest.mark.parametrize("behavior", ["LENIENT", "EVOLVE", "TRY_EVOLVE", "IGNORE"])
@pytest.mark.parametrize("sink", ["kafka", "blackhole", "memory"])
def test_columns_become_nullable_where_nobody_could_drop_not_null(behavior: Behavior, sink: str) -> None:
    live = of("id", id="INT NOT NULL", n="INT NOT NULL", gone="DATE NOT NULL")
    policy = Policy.of(Memory() if sink == "memory" else SINKS[sink], Pipeline(schema_change=behavior))

    done = evolve_sink(TABLE, live, of("id", id="INT NOT NULL", n="INT"), policy)

    assert done == SinkEvolution(of("id", id="INT NOT NULL", n="INT", gone="DATE"))


def test_merged_tables_have_the_columns_of_all() -> None:
    merged = merge_schemas([
        of("id", id="INT NOT NULL", a="DATE"),
        of("id", id="BIGINT NOT NULL", b="STRING NOT NULL"),
    ])  # fmt: skip

    assert merged == of("id", id="BIGINT NOT NULL", a="DATE", b="STRING")


def test_tables_with_different_keys_are_not_merged() -> None:
    with pytest.raises(PrimaryKeyError, match=r"\(id\) and \(\)"):
        merge_schemas([of("id", id="INT NOT NULL"), of(id="INT NOT NULL")])
