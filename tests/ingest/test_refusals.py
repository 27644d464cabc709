"""Each reason for which a batch is refused: nothing of it is noted, and what its message advises frees it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

import attrs
import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from kdsl.changelog.connection import DatabaseTable
from kdsl.changelog.postgres import create_table
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.cluster import Cluster
from kdsl.formats import TableId
from kdsl.ingest import (
    DeltaTables,
    Ingestion,
    JdbcTables,
    KafkaFeed,
    KafkaTopics,
    Memory,
    Pipeline,
    Route,
    Sink,
    Transform,
)
from kdsl.ingest.decision import Decision, Seen, decide_batch, forgive_errors, refuse_new_tables
from kdsl.ingest.ends.end import SinkRules
from kdsl.ingest.plan import IngestPlan
from kdsl.ingest.records import RecordSplitter, initial_tables
from kdsl.ingest.restart import find_restart_problem, write_declaration
from kdsl.ingest.run.changes import decide_tables
from kdsl.ingest.run.sinks import MemoryWriter
from kdsl.ingest.run.sinks.jdbc import JdbcWriter
from kdsl.ingest.run.sinks.kafka import KafkaWriter
from kdsl.ingest.run.sources.mysql import MySqlTable, read_mysql_table
from kdsl.ingest.run.sources.reader import SourceBatch, SourceTable
from kdsl.ingest.schema_changes import RefusalCode, SchemaChange, UpstreamTable
from kdsl.ingest.state import IngestState
from kdsl.testing import LocalKafka
from kdsl.types import model as t
from kdsl.types.parse import parse_type
from kdsl.types.widening import TableSchema
from kdsl.vendors.hologres import HologresTables
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.json import Json
from tests.changelog.tables import needs_delta
from tests.ingest.setup import Setup, change
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from kdsl.testing.pytest_plugin import MakeTopic

LAKE = DeltaTables("/lake")
POSTGRES = JdbcTables("jdbc:postgresql://localhost/shop")
HOLOGRES = HologresTables(endpoint="localhost:80", dbname="d", username="u", password="${env:PASSWORD}")
CLUSTER = Cluster("localhost:9092")
KEYED = Transform(r"\.*.\.*", primary_keys=("id",))
INTO_T = Route(r"\.*", "lake.t")
TYPES = "tests/ingest/test_stored_types.py"
LATER = {
    "expression": "test_an_expression_that_spark_does_not_know",
    "rewrite": "test_a_type_whose_change_rewrites_too_much",
    "database-change": "test_a_change_that_the_database_refuses",
    "key-type": f"{TYPES}::test_a_key_keeps_its_type_and_the_refusal_says_how_to_go_on",
    "lost-values": f"{TYPES}::test_a_word_among_numbers_with_fractions_is_refused_or_null_and_counted",
    "replaced-table": "tests/ingest/test_lost_state.py::test_another_table_of_the_name_is_refused",
    "source-value": "tests/ingest/test_mysql.py::test_what_was_refused_is_copied_as_the_message_advises",
}
"""The tests of the codes that need Spark or a database."""


def schema(*key: str, **columns: str) -> TableSchema:
    return TableSchema(tuple(t.Field(name, parse_type(kind)) for name, kind in columns.items()), key)


def row(**columns: Any) -> bytes:
    return json.dumps(columns).encode()


def canal(key: str, table: str = "t") -> bytes:
    types = {"id": "bigint", "no": "bigint"}
    return row(database="d", table=table, type="INSERT", pkNames=[key], mysqlType=types, data=[{"id": "1", "no": "2"}])


def by_topic(messages: Any) -> dict[str, list[bytes]]:
    return dict(messages) if isinstance(messages, dict) else {"t": messages}


@attrs.frozen
class Try:
    """An ingestion without brokers and sinks: what its messages show is decided.

    Attributes:
        sink: The sink.
        feed: Options of the source.
        parts: Transforms, routes, the pipeline.
        live: The columns that each sink table has, where that is not what is known of it.
    """

    sink: Sink = LAKE
    feed: Mapping[str, Any] = attrs.field(factory=dict)
    parts: Mapping[str, Any] = attrs.field(factory=dict)
    live: Mapping[TableId, TableSchema | None] = attrs.field(factory=dict)

    @property
    def source(self) -> KafkaFeed:
        return KafkaFeed(CLUSTER, topic_pattern=".*", **{"value": Json(), **self.feed})

    @property
    def plan(self) -> IngestPlan:
        return Ingestion(self.source, self.sink, **self.parts).plan()

    def but(self, sink: Sink | None = None, *, live: Any = None, feed: Any = None, **parts: Any) -> Try:
        """The same ingestion with other parts."""
        return Try(
            sink or self.sink,
            {**self.feed, **(feed or {})},
            {**self.parts, **parts},
            self.live if live is None else live,
        )

    def decide(self, state: IngestState, number: int, messages: Mapping[str, list[bytes]]) -> Decision:
        """Decide a batch of messages by topic, each read by a task of its own."""
        plan = self.plan
        splitter = RecordSplitter(self.source, max_columns=plan.pipeline.max_columns)
        rows: dict[TableId, int] = {}
        deltas, dirty, reasons, hint = [], 0, [], None
        offset = 100 * number
        for topic, values in messages.items():
            for task in [values] if self.feed.get("value") is None or len(values) >= 10 else [[one] for one in values]:
                split = splitter.split(records(topic, task, offset), state.upstream)
                offset += len(task)
                for packet in split.packets:
                    rows[packet.table] = rows.get(packet.table, 0) + packet.records.num_rows
                    deltas += [] if packet.delta is None else [packet.delta]
                dirty += len(split.rejections)
                reasons += [one.reason for one in split.rejections]
                hint = hint or split.hint
        seen = Seen(rows, tuple(deltas), dirty, tuple(reasons), hint)
        return decide_batch(plan, state, number, seen, lambda table, known: self.live.get(table, known))


def records(topic: str, values: list[bytes], first: int) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict({
        "topic": [topic] * count,
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(first, first + count), pa.int64()),
        "key": pa.array([None] * count, pa.binary()),
        "value": pa.array(values, pa.binary()),
    })  # fmt: skip


def start(ingestion: Try) -> IngestState:
    """The state before the first batch."""
    return IngestState(initial_tables(ingestion.source.initial_tables))


@attrs.frozen(repr=False)
class Case:
    """A batch that is refused.

    Attributes:
        code: Why.
        refused: The ingestion.
        freed: The ingestion as the message advises, or how its state is.
        messages: The messages of the batch.
        before: Those of a batch before it.
        fix: A part of the advice.
        anew: Whether the advice is to start with a new checkpoint.
        forgiven: Whether it is to start with ``--forgive-errors``.
        follows: Whether it may also be a batch after the first one.
    """

    code: RefusalCode
    refused: Try
    freed: Try
    messages: Any
    fix: str
    before: Any = None
    anew: bool = False
    forgiven: bool = False
    follows: bool = True

    def __str__(self) -> str:
        return f"{self.code}: {self.fix}"


def project(projection: str, **options: Any) -> dict[str, Any]:
    return {"transform": [Transform("t", projection=projection, **options)]}


LONG = "x" * 64
LONG_ROW = {LONG: 1}
WRONG_TOPIC = {"größe": [row(id=1)]}
FEED = "delta.enableChangeDataFeed=true"

CASES = [
    # records
    Case("unreadable", Try(), Try(feed={"ignore_errors": True}), [b"no JSON", row(id=1)], "ingestion.ignore-errors"),
    Case("unreadable", Try(), Try(feed={"ignore_errors": True}), [row(**{"": 1}), row(id=1)], "ignore-errors"),
    Case(
        "many-errors",
        Try(feed={"ignore_errors": True, "max_errors": 1}),
        Try(feed={"ignore_errors": True, "max_errors": 5}),
        [b"x", b"y", row(id=1)],
        "raise ingestion.error-tolerance.max-count",
    ),
    Case(
        "many-errors",
        Try(feed={"ignore_errors": True, "max_errors": 1}),
        Try(feed={"ignore_errors": True, "max_errors": 1}),
        [b"y", row(id=1)],
        "--forgive-errors",
        before=[b"x"],
        forgiven=True,
    ),
    Case(
        "wrong-format",
        Try(feed={"value": DebeziumJson(), "ignore_errors": True}),
        Try(feed={"value": CanalJson(), "ignore_errors": True}),
        [canal("id")] * 12,
        "set value.format",
    ),
    Case(
        "message-key",
        Try(feed={"value": CanalJson()}),
        Try(feed={"value": CanalJson()}, parts={"transform": [Transform(r"\.*.\.*", primary_keys=("id",))]}),
        [canal("id"), canal("no")],
        "primary-keys in a transform",
    ),
    Case(
        "many-tables",
        Try(parts={"pipeline": Pipeline(max_tables=1)}),
        Try(parts={"pipeline": Pipeline(max_tables=2)}),
        {"t": [row(id=1)], "u": [row(id=1)]},
        "raise max-tables",
    ),
    # names
    Case("name-character", Try(), Try(parts=project("id, `a b` AS ab")), [row(**{"id": 1, "a b": 2})], "rename"),
    Case(
        "name-character", Try(POSTGRES), Try(POSTGRES, parts=project("id")), [b'{"id":1,"a\\u0000b":2}'], "leave it out"
    ),
    Case("name-case", Try(), Try(parts=project("id, v, V AS w")), [row(id=1, v=1, V=2)], "rename one: `V` AS `V_2`"),
    Case(
        "name-length",
        Try(POSTGRES),
        Try(POSTGRES, parts=project(f"id, {LONG} AS x")),
        [row(id=1, **LONG_ROW)],
        "rename",
    ),
    Case("name-reserved", Try(POSTGRES), Try(POSTGRES, parts=project("id, xmin AS x")), [row(id=1, xmin=2)], "rename"),
    Case("name-reserved", Try(HOLOGRES), Try(HOLOGRES, parts=project("id")), [row(id=1, ctid=2)], "leave it out"),
    Case(
        "name-reserved",
        Try(parts={"transform": [Transform("t", table_options=FEED)]}),
        Try(parts=project("id, _Change_Type AS kind", table_options=FEED)),
        [row(id=1, _Change_Type=2)],
        "rename",
        before=[row(id=1)],
    ),
    Case(
        "many-columns",
        Try(POSTGRES),
        Try(POSTGRES, parts=project("id, c0, c1")),
        [row(id=1, **{f"c{i}": 1 for i in range(1600)})],
        "leave columns out with a projection",
    ),
    Case("table-name", Try(), Try(parts={"route": [Route("_t", "t")]}), {"_t": [row(id=1)]}, "in a route"),
    Case("table-name", Try(), Try(parts={"route": [Route("a`b", "t")]}), {"a`b": [row(id=1)]}, "in a route"),
    Case("table-name", Try(), Try(parts={"route": [Route("ä+", "t")]}), {"ä" * 128: [row(id=1)]}, "in a route"),
    Case(
        "table-name",
        Try(DeltaTables(catalog="spark_catalog")),
        Try(DeltaTables(catalog="spark_catalog"), parts={"route": [Route("shop-t", "shop.t")]}),
        {"shop-t": [row(id=1)]},
        "in a route",
    ),
    Case(
        "table-name",
        Try(DeltaTables(catalog="spark_catalog"), parts={"route": [Route("(a-b)", "shop.$1")]}),
        Try(DeltaTables(catalog="spark_catalog"), parts={"route": [Route("a-b", "shop.a_b")]}),
        {"a-b": [row(id=1)]},
        "in a route",
    ),
    Case(
        "table-name",
        Try(POSTGRES),
        Try(POSTGRES, parts={"route": [Route(r"kdsl_\.*", "t")]}),
        {"kdsl_changelog_batches": [row(id=1)]},
        "in a route",
    ),
    Case(
        "topic-name", Try(KafkaTopics(CLUSTER)), Try(KafkaTopics(CLUSTER, mapping="größe:size")), WRONG_TOPIC, "mapping"
    ),
    # keys
    Case(
        "missing-key",
        Try(KafkaTopics(CLUSTER, partition_strategy="hash-by-key")),
        Try(KafkaTopics(CLUSTER, partition_strategy="hash-by-key"), parts={"transform": [KEYED]}),
        [row(id=1)],
        "set primary-keys in a transform",
    ),
    Case(
        "merged-keys",
        Try(parts={"transform": [Transform("a", primary_keys=("id",))], "route": [Route("a,b", "c")]}),
        Try(parts={"transform": [Transform("a,b", primary_keys=("id",))], "route": [Route("a,b", "c")]}),
        {"a": [row(id=1)], "b": [row(id=1)]},
        "the same primary-keys",
    ),
    Case(
        "sink-key",
        Try(POSTGRES, live={("t",): schema("no", id="BIGINT NOT NULL", no="BIGINT")}, parts={"transform": [KEYED]}),
        Try(
            POSTGRES,
            live={("t",): schema("no", id="BIGINT", no="BIGINT NOT NULL")},
            parts={"transform": [Transform("t", primary_keys=("no",))]},
        ),
        [row(id=1, no=2)],
        "set primary-keys in a transform",
        follows=False,
    ),
    # the sink table
    Case(
        "missing-table",
        Try(live={("t",): None}),
        Try(live={("t",): None}),
        [row(id=1)],
        "a new checkpoint",
        before=[row(id=1)],
        anew=True,
    ),
    Case(
        "table-excluded",
        Try(DeltaTables("/lake", exclude_changes=("create.table",))),
        Try(DeltaTables("/lake")),
        [row(id=1)],
        "allow create.table",
    ),
    Case(
        "table-excluded",
        Try(DeltaTables("/lake", exclude_changes=("create.table",))),
        Try(DeltaTables("/lake", exclude_changes=("create.table",)), live={("t",): schema(id="BIGINT")}),
        [row(id=1)],
        "create it",
    ),
    Case(
        "not-null",
        Try(live={("t",): schema(id="BIGINT NOT NULL")}),
        Try(live={("t",): schema(id="BIGINT")}),
        [row(id=1)],
        "drop NOT NULL there",
    ),
    Case(
        "not-null-missing",
        Try(live={("t",): schema(id="BIGINT", no="BIGINT NOT NULL")}),
        Try(live={("t",): schema(id="BIGINT", no="BIGINT")}),
        [row(id=1)],
        "drop NOT NULL there",
    ),
    Case(
        "refused-change",
        Try(parts={"pipeline": Pipeline(schema_change="EXCEPTION")}),
        Try(parts={"pipeline": Pipeline(schema_change="LENIENT")}),
        [row(id=1, no=1)],
        "choose another behavior",
        before=[row(id=1)],
    ),
    Case(
        "type-change",
        Try(HOLOGRES),
        Try(HOLOGRES, parts={"pipeline": Pipeline(schema_change="TRY_EVOLVE")}),
        [row(id="x")],
        "TRY_EVOLVE",
        before=[row(id=1)],
    ),
    Case(
        "type-change",
        Try(HOLOGRES),
        Try(HOLOGRES, live={("t",): schema(id="STRING")}),
        [row(id="x")],
        "change the type there",
        before=[row(id=1)],
    ),
    # expressions
    Case(
        "transform",
        Try(parts=project("*, id + 1 AS x")),
        Try(parts=project("*, TRY_CAST(id AS BIGINT) + 1 AS x")),
        [row(id="x")],
        "CAST the value",
        before=[row(id=1)],
    ),
    Case(
        "transform",
        Try(feed={"metadata": ("offset",)}),
        Try(feed={"metadata": ("offset",), "value_prefix": "v_"}),
        [row(offset=1)],
        "set value.fields-prefix",
    ),
]


BATCHES = [
    (case, later) for case in CASES for later in (False, True) if (case.follows if later else case.before is None)
]


@pytest.mark.parametrize(("case", "later"), BATCHES, ids=str)
def test_a_refused_batch_is_freed_by_what_its_message_advises(case: Case, later: bool) -> None:
    state, number = start(case.refused), 0
    messages = by_topic(case.messages)
    before = by_topic(case.before or [row(id=1)])
    first = attrs.evolve(case.refused, live={}).decide(state, number, before)
    if later and not first.refusals:
        declared = write_declaration(case.refused.plan)
        state, number = state.add(attrs.evolve(first.note, declared=declared)), 1
    decision = case.refused.decide(state, number, messages)

    assert {refusal.code for refusal in decision.refusals} == {case.code}
    assert case.fix in " ".join(refusal.fix for refusal in decision.refusals)
    assert (decision.note.is_empty, decision.sinks) == (True, {})

    if case.anew:
        state = start(case.freed)
    if case.forgiven:
        state, _ = forgive_errors(state)
    assert find_restart_problem(case.freed.plan, state, None) is None
    freed = case.freed.decide(state, number, messages)
    assert freed.refusals == ()
    assert freed.tables


def empty_table(columns: TableSchema) -> SourceTable:
    def build() -> Any:
        raise AssertionError("the rows are not needed")

    return SourceTable(("t",), columns, build)


def test_the_copy_of_a_table_whose_key_changed_needs_a_new_checkpoint() -> None:
    plan = Try().plan
    batches = [SourceBatch([empty_table(schema(key, id="INT", no="INT"))]) for key in ("id", "no")]

    first, second = (decide_tables(plan, IngestState(), 0, batch, lambda _, known: known) for batch in batches)
    changed = decide_tables(plan, IngestState().add(first.note), 1, batches[1], lambda _, known: known)

    assert [(refusal.code, refusal.fix) for refusal in changed.refusals] == [
        ("message-key", "start with a new checkpoint")
    ]
    assert second.refusals == ()


def test_expressions_and_names_are_judged_without_columns() -> None:
    rules = [Transform("t", projection="*, NOFUN(id) AS x, SUM(id) AS y, id AS xmin, CURRENT_TIMESTAMP AS n",
                       filter="ABSS(id) > 1", add_columns="z AS MISSING(id)")]  # fmt: skip
    feed = KafkaFeed(CLUSTER, topic=("t",), value=Json())
    known = KafkaFeed(CLUSTER, topic=("t",), value=Json(), initial_schemas="CREATE TABLE t (id BIGINT, a STRING)")

    def problems(source: KafkaFeed) -> list[tuple[str | None, str]]:
        reported = Ingestion(source, POSTGRES, transform=rules, route=[Route("t", "pg_x.t")]).problems()
        return [(one.where.path, one.message.partition("'t': ")[2] or one.message) for one in reported]

    expected = [
        ("$.transform[0].projection", "projection column 4: there is no function 'NOFUN' that can be translated"),
        ("$.transform[0].projection", "projection column 20: SUM is an aggregate"),
        ("$.transform[0].filter", "filter column 1: there is no function 'ABSS'"),
        ("$.transform[0].add-columns[0]", "add-columns column 1: there is no function 'MISSING'"),
        ("$.transform[0].projection", "column 'xmin': the database reserves the name"),
        ("$.route[0].sink-table", "Postgres reserves names of schemas that begin with pg_"),
    ]
    assert [path for path, _ in problems(feed)] == [path for path, _ in expected]
    assert all(message.startswith(text) for (_, message), (_, text) in zip(problems(feed), expected, strict=True))
    assert len(problems(known)) == len(expected)


def test_the_tables_of_a_sample_are_judged() -> None:
    plan = Try(parts=project("id + 1 AS n")).plan
    tables: dict[TableId, UpstreamTable] = {("t",): UpstreamTable(schema(id="STRING"))}

    assert [refusal.code for refusal in refuse_new_tables(plan, tables)] == ["transform"]
    assert refuse_new_tables(Try(DeltaTables("/lake", exclude_changes=("create.table",))).plan, tables) == ()


@pytest.mark.parametrize(
    ("column", "kind", "code", "fix"),
    [
        ("", "INT", "name-empty", "leave it out"),
        ("r", "ROW<`a b` INT>", "name-character", "leave the column out with a projection"),
        ("r", "ARRAY<ROW<a INT, A INT>>", "name-case", "leave the column out with a projection"),
    ],
)
def test_names_that_a_source_of_tables_may_have(column: str, kind: str, code: str, fix: str) -> None:
    batch = SourceBatch([empty_table(schema(id="INT", **{column: kind}))])

    refused = decide_tables(Try().plan, IngestState(), 0, batch, lambda _, known: known)
    freed = decide_tables(Try(parts=project("id")).plan, IngestState(), 0, batch, lambda _, known: known)

    assert [refusal.code for refusal in refused.refusals] == [code]
    assert fix in refused.refusals[0].fix
    assert freed.refusals == ()


def test_declared_names_are_judged_without_a_batch() -> None:
    def problems(sink: Sink, ddl: str) -> list[str]:
        feed = KafkaFeed(CLUSTER, topic=("t",), value=Json(), initial_schemas=f"CREATE TABLE t ({ddl})")
        return [problem.message for problem in Ingestion(feed, sink).problems() if problem.code == "ingest-sink"]

    assert "does not allow ' ' in the name of its member 'a b'" in problems(LAKE, "r ROW<`a b` INT>")[0]
    assert "'xmin'" in problems(POSTGRES, "xmin BIGINT")[0]
    assert problems(LAKE, "xmin BIGINT") == []


def test_a_database_has_no_nested_types() -> None:
    writer = JdbcWriter(POSTGRES, 1)

    def refuse(kind: str) -> list[tuple[RefusalCode, str]]:
        column = t.Field("r", parse_type(kind))
        changes = {("t",): [SchemaChange("create.table", ("t",), (column,))]} if kind != "STRING" else {}
        return [(one.code, one.fix) for one in writer.refuse(None, changes)]  # type: ignore[arg-type]

    assert [code for code, _ in refuse("ROW<a INT>")] == ["database-type"]
    assert "declare it as STRING" in refuse("ARRAY<INT>")[0][1]
    assert refuse("STRING") == []


def test_a_type_of_mysql_that_is_not_read() -> None:
    class Database:
        properties: Mapping[str, str] = MappingProxyType({})

        def call(self, _: Any, action: Callable[[Any], list[tuple[str, str]]]) -> list[tuple[str, str]]:
            return action(self)

        def query(self, _: str, __: str, table: str) -> list[tuple[str, str]]:
            return [("id", "int(11)"), *([] if table == "a_view" else [("place", "vector(3)")])]

    def read(table: str) -> MySqlTable:
        entry = DatabaseTable("shop", table, table == "a_view", table)
        return read_mysql_table(None, Database(), ("shop", table), entry, tiny_boolean=True)  # type: ignore[arg-type]

    assert [(one.code, one.column) for one in read("t").refusals] == [("source-type", "place")]
    assert "copy a view that leaves the column out" in read("t").refusals[0].fix
    assert read("a_view").refusals == ()


@pytest.mark.kafka
def test_a_topic_that_may_not_be_created(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    cluster = Cluster(kdsl_kafka.bootstrap_servers, properties={"allow.auto.create.topics": "false"})
    writer = KafkaWriter(KafkaTopics(cluster), cluster)
    missing = f"{topic}-2"
    changes = {(missing,): [SchemaChange("create.table", (missing,), ())]}

    (refusal,) = writer.refuse(None, changes)  # type: ignore[arg-type]
    assert (refusal.code, refusal.fix) == ("missing-topic", "create it, as kdsl apply does; or allow it")

    kdsl_kafka.create_topic(missing)
    assert writer.refuse(None, changes) == []  # type: ignore[arg-type]


def refuse(setup: Setup, ingestion: Ingestion, reason: str, writer: MemoryWriter | None = None) -> None:
    """Run an ingestion whose next batch is refused, twice, and check that nothing is noted of it."""
    before = None
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match=reason):
            setup.run(ingestion, writer)
        state = setup.state()
        assert before in (None, state)
        before = state


def draw_names(rules: SinkRules) -> list[str]:
    """Names out of the whole of Unicode that a sink can store by its rules."""
    random = Random(7)
    ranges = [(1, 32), (32, 127), (32, 127), (128, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF)]
    words = (
        "".join(chr(random.randint(*random.choice(ranges))) for _ in range(random.randint(1, 9))) for _ in range(400)
    )
    names = {word.upper(): word for word in words}.values()
    return [name for name in names if not list(rules.wrong_columns([t.Field(name, t.STRING)]))]


class TestOnSpark:
    def test_delta_lake_has_every_name_that_its_rules_allow(self, setup: Setup) -> None:
        needs_delta()
        names = draw_names(DeltaTables.rules)
        target = DeltaTarget(f"{setup.lake}/t", True, False)

        target.create(setup.spark, [t.Field(name, t.STRING) for name in names[::2]])
        target.add_columns(setup.spark, [t.Field(name, t.STRING) for name in names[1::2]])

        assert len(names) > 100
        assert [f.name for f in target.read_columns(setup.spark) or ()] == [*names[::2], *names[1::2]]

    def test_an_expression_that_spark_does_not_know(self, setup: Setup) -> None:
        writer = MemoryWriter()
        wrong, right = (
            setup.ingestion(Memory(), transform=[Transform(r"\.*", projection=f"id, {sql} AS m")], route=[INTO_T])
            for sql in ("MAP[MAP['a', id], 1]", "MAP['a', id]")
        )
        setup.produce({"id": 1})

        refuse(
            setup,
            wrong,
            r"lake\.t: its rows cannot be computed: .*INVALID_MAP_KEY_TYPE.*; correct the projection",
            writer,
        )
        assert setup.state().sinks == {}

        setup.run(right, writer)
        assert writer.appended["lake", "t"] == [{"id": 1, "m": [("a", 1)]}]

    def test_a_value_that_an_expression_does_not_accept(self, setup: Setup) -> None:
        """It fails the batch when its rows are computed; the batch is repeated with the corrected expression."""
        writer = MemoryWriter()
        wrong, right = (
            setup.ingestion(
                Memory(), transform=[Transform(r"\.*", projection=f"id, {cast}(n AS BIGINT) AS n")], route=[INTO_T]
            )
            for cast in ("CAST", "TRY_CAST")
        )
        setup.produce({"id": 1, "n": "1"}, {"id": 2, "n": "x"})

        refuse(setup, wrong, "CAST_INVALID_INPUT", writer)
        assert writer.appended == {}

        setup.run(right, writer)
        assert writer.appended["lake", "t"] == [{"id": 1, "n": 1}, {"id": 2, "n": None}]

    def test_an_update_in_a_table_without_a_primary_key(self, setup: Setup) -> None:
        """It shows when the rows are written, after the note."""
        feed, writer = setup.feed(value=DebeziumJson()), MemoryWriter()
        setup.produce(change("c", None, {"id": 1, "n": 1}), change("u", {"id": 1, "n": 1}, {"id": 1, "n": 2}))

        refuse(
            setup, setup.ingestion(Memory(), feed), r"needs a primary key; set primary-keys .*--allow transform", writer
        )
        assert writer.appended == {}

        keyed = setup.ingestion(Memory(), feed, transform=[KEYED])
        keyed.run(setup.spark, setup.checkpoint, once=True, writer=writer, allow=["transform"]).awaitTermination()
        assert writer.tables["shop", "orders"].rows() == [{"id": 1, "n": 2}]

    def test_a_member_without_a_name(self, setup: Setup) -> None:
        writer = MemoryWriter()
        strict, tolerant = (
            setup.ingestion(Memory(), setup.feed(ignore_errors=ignored), route=[INTO_T]) for ignored in (False, True)
        )
        setup.produce({"id": 1})
        setup.run(strict, writer)
        setup.produce('{"id": 2, "": 1}', '{"id": 3, "": null}')

        refuse(setup, strict, "1 record cannot be read: .*offset 1: a member has an empty name.*ignore-errors", writer)

        setup.run(tolerant, writer)
        assert writer.appended["lake", "t"] == [{"id": 1}, {"id": 3}]
        assert setup.state().counts == {"dirty": 1}

    @pytest.mark.reliability
    def test_a_type_whose_change_rewrites_too_much(self, setup: Setup) -> None:
        needs_delta()
        small, large, excluding = (
            setup.ingestion(DeltaTables(setup.lake, rewrite_max_bytes=size, exclude_changes=tags), route=[INTO_T])
            for size, tags in ((0, ()), (1 << 30, ()), (0, ("alter.column.type",)))
        )
        setup.produce({"id": 1, "n": True})
        setup.run(small)
        setup.produce({"id": 2, "n": "x"})

        advice = "raise sink.rewrite.max-bytes.*; or set exclude.schema.changes: alter.column.type"
        refuse(setup, small, f"would rewrite [0-9,]+ bytes.*; {advice}")

        setup.run(excluding)
        assert setup.table("lake", "t") == [{"id": 1, "n": True}, {"id": 2, "n": None}]
        assert setup.state().counts == {"lost-values": 1}

        setup.produce({"id": 3, "n": "x"})
        setup.run(large)
        assert setup.table("lake", "t") == [{"id": 1, "n": "true"}, {"id": 2, "n": None}, {"id": 3, "n": "x"}]

    @pytest.mark.reliability
    def test_columns_of_the_change_data_feed(self, setup: Setup) -> None:
        needs_delta()
        sink, target = DeltaTables(setup.lake), DeltaTarget(f"{setup.lake}/lake/t", True, False)
        plain = setup.ingestion(sink, route=[INTO_T])
        target.create(setup.spark, [t.Field("id", t.BigInt())], properties={"delta.enableChangeDataFeed": "true"})
        setup.produce({"id": 1, "_change_type": "x"})

        refuse(setup, plain, "'_change_type': the change data feed of the table reserves the name.*rename the column")

        setup.run(
            setup.ingestion(sink, route=[INTO_T], transform=[Transform(r"\.*", projection="id, _change_type AS k")])
        )
        assert setup.table("lake", "t") == [{"id": 1, "k": "x"}]

    @pytest.mark.reliability
    def test_a_property_that_delta_does_not_know(self, setup: Setup) -> None:
        """Delta refuses it when the table is created, after the note; the batch goes on without it."""
        needs_delta()
        wrong, right = (
            setup.ingestion(
                DeltaTables(setup.lake), route=[INTO_T], transform=[Transform(r"\.*", table_options=f"{name}=true")]
            )
            for name in ("delta.nonsense", "delta.appendOnly")
        )
        setup.produce({"id": 1})

        refuse(setup, wrong, "delta.nonsense")

        setup.run(right)
        assert setup.table("lake", "t") == [{"id": 1}]


@pytest.mark.postgres
class TestOnPostgres:
    def ingestion(self, setup: Setup, postgres: Postgres, table: str, projection: str = "*") -> Ingestion:
        sink = JdbcTables(postgres.url, username="kdsl", password=PASSWORD)
        return setup.ingestion(sink, route=[Route(r"\.*", table)], transform=[Transform(r"\.*", projection=projection)])

    def test_a_member_with_the_name_of_a_system_column(self, setup: Setup, postgres: Postgres) -> None:
        table = f"public.a{setup.topic[-8:]}"
        setup.produce({"id": 1})
        setup.run(self.ingestion(setup, postgres, table))
        setup.produce({"id": 2, "xmin": 1})

        refuse(
            setup, self.ingestion(setup, postgres, table), "'xmin': the database reserves the name.*; rename the column"
        )

        setup.run(self.ingestion(setup, postgres, table, "id, xmin AS x"))
        assert postgres.execute(f"SELECT id, x FROM {table} ORDER BY id").split() == ["1", "2", "1"]

    @pytest.mark.reliability
    def test_a_change_that_the_database_refuses(self, setup: Setup, postgres: Postgres) -> None:
        name = f"b{setup.topic[-8:]}"
        ingestion = self.ingestion(setup, postgres, f"public.{name}")
        postgres.execute(f"CREATE TYPE {name} AS ENUM ('x')")
        setup.produce({"id": 1, "n": 1})

        refuse(setup, ingestion, f'refuses the change create.table.*type "{name}" already exists.*; remove its cause')

        postgres.execute(f"DROP TYPE {name}")
        setup.run(ingestion)
        postgres.execute(f"ALTER TABLE {name} ADD COLUMN m bigint GENERATED ALWAYS AS (n * 2) STORED")
        setup.produce({"id": 2, "n": "x"})

        refuse(
            setup, ingestion, "column 'n': the database refuses .*generated column.*TRY_CAST the column in a projection"
        )

        setup.run(self.ingestion(setup, postgres, f"public.{name}", "id, TRY_CAST(n AS BIGINT) AS n"))
        assert postgres.execute(f"SELECT id, n, m FROM {name} ORDER BY id").split() == ["1", "1", "2", "2"]

    def test_a_database_has_every_name_that_its_rules_allow_and_no_reserved_one(self, postgres: Postgres) -> None:
        names = draw_names(JdbcTables.rules)
        assert len(names) > 300

        postgres.execute(create_table("all_names", [t.Field(name, t.STRING) for name in names], ()))
        count = "SELECT count(*) FROM pg_attribute WHERE attrelid = 'all_names'::regclass AND attnum > 0"
        assert postgres.execute(count).strip() == str(len(names))

        for name in JdbcTables.rules.reserved:
            with pytest.raises(Exception, match="system column"):
                postgres.execute(create_table("reserved", [t.Field(name, t.STRING)], ()))

    def test_the_longest_names(self, setup: Setup, postgres: Postgres) -> None:
        """With its quotes the name of the table has more bytes than the table of batches has for it."""
        table = f"{'ä' * 31}x.{'t' * 63}"
        for number in (1, 2):
            setup.produce({"id": number})
            setup.run(self.ingestion(setup, postgres, table))

        target = ".".join(f'"{name}"' for name in table.split("."))
        assert postgres.execute(f"SELECT id FROM {target} ORDER BY id").split() == ["1", "2"]


def test_every_reason_has_a_test_that_follows_its_advice() -> None:
    tested = (
        {case.code for case in CASES} | {"database-type", "missing-topic", "name-empty", "source-type"} | set(LATER)
    )

    assert tested == set(get_args(RefusalCode))
    for test in LATER.values():
        file, _, name = test.rpartition("::")
        source = Path(file or __file__).read_text()
        assert f"def {name}(" in source
