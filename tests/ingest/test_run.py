"""Ingestions on Spark, from a real Kafka into tables in memory and of Delta Lake."""

from __future__ import annotations

import base64
import json
import statistics
import time
from datetime import UTC, date, datetime, time as clock, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from pyspark.errors import StreamingQueryException
from typer.testing import CliRunner

from kdsl.changelog.to_delta import DeltaTarget
from kdsl.cli.app import app
from kdsl.cluster import Cluster
from kdsl.diagnostics.dead_letters import DeadLetter
from kdsl.errors import KdslError, TopicMissingError
from kdsl.ingest import (
    Blackhole,
    DeltaTables,
    Ingestion,
    JdbcSnapshot,
    JdbcTables,
    KafkaFeed,
    KafkaTopics,
    Memory,
    Pipeline,
    Print,
    Route,
    Transform,
)
from kdsl.ingest.run.sinks import MemoryWriter
from kdsl.ingest.run.sinks.delta import DeltaWriter
from kdsl.spark_internals.session import jvm_of
from kdsl.testing import Record
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.json import Json
from tests.changelog.tables import needs_delta
from tests.ingest.setup import Failing, Row, Setup, change
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from kdsl.testing.pytest_plugin import MakeTopic


KEYED = Transform(r"\.*.\.*", primary_keys=("id",))
INTO_T = Route(r"\.*", "lake.t")


def test_columns_are_learned_over_two_runs(setup: Setup) -> None:
    rule = Transform(r"\.*", projection="*, id + 1 AS next", primary_keys=("id",))
    ingestion, writer = setup.ingestion(Memory(), transform=[rule], route=[INTO_T]), MemoryWriter()
    setup.produce('{"id": 1, "n": "a"}', '{"id": 2, "n": 5}')
    setup.run(ingestion, writer)
    setup.produce('{"id": 2, "more": 2.5}')
    setup.run(ingestion, writer)

    assert writer.tables["lake", "t"].rows() == [
        {"id": 1, "n": "a", "next": 2}, {"id": 2, "n": None, "next": 3, "more": 2.5},
    ]  # fmt: skip
    changes = [(batch, change.tag) for batch, change in setup.state().changes]
    assert changes == [(0, "create.table"), (1, "add.column")]


@pytest.mark.parametrize("prefetch", [pytest.param(0, marks=pytest.mark.reliability), 50])
def test_the_last_row_of_a_key_wins_in_a_large_batch(setup: Setup, kdsl_topic: MakeTopic, prefetch: int) -> None:
    """Tasks read pieces of partitions. With a table that is known at the start, the batch is read from Kafka twice."""
    setup.topic = kdsl_topic(partitions=2)
    counts = {0: 90_000, 1: 60_000}
    for partition, count in counts.items():
        values = (b'{"id":%d,"n":%d}' % (2 * (n % 50) + partition, n) for n in range(count))
        setup.kafka.produce(setup.topic, *(Record(value, partition=partition) for value in values))
    ingestion, writer = (
        setup.ingestion(
            Memory(),
            setup.feed(prefetch=prefetch),
            transform=[KEYED],
            route=[INTO_T],
            pipeline=Pipeline(parallelism=4),
        ),
        MemoryWriter(),
    )
    setup.run(ingestion, writer)

    expected = {2 * (n % 50) + p: n for p, count in counts.items() for n in range(count)}
    assert {row["id"]: row["n"] for row in writer.tables["lake", "t"].rows()} == expected


@pytest.mark.reliability
def test_the_other_transport_reads_the_same(setup: Setup) -> None:
    metadata = (
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestamp-type",
        "headers",
        "__raw_key__",
        "__raw_value__",
    )
    setup.kafka.produce(setup.topic, Record('{"id": 1}', '{"k": "x"}', headers=[("h", b"v")]), '{"id": 2, "n": "a"}')
    setup.produce("nonsense")
    tables = []
    for transport in ("librdkafka", "jvm"):
        feed = setup.feed(metadata=metadata, transport=transport, key=Json(), prefetch=50, ignore_errors=True)
        writer = MemoryWriter()
        setup.checkpoint += f"-{transport}"
        setup.run(setup.ingestion(Memory(), feed, route=[INTO_T]), writer)
        assert setup.state().counts == {"dirty": 1}
        tables.append(writer.appended["lake", "t"])

    assert [(row["k"], row["id"], row["n"], row["__raw_key__"]) for row in tables[0]] == [
        ("x", 1, None, b'{"k": "x"}'), (None, 2, "a", None),
    ]  # fmt: skip
    assert tables[0] == tables[1]


def test_tables_of_change_data_go_into_their_own_delta_tables(setup: Setup) -> None:
    needs_delta()
    feed = setup.feed(value=DebeziumJson(), metadata=("offset",))
    rules = [
        Transform("shop.orders", projection="*, UPPER(c) AS upper_c", filter="n > 0", primary_keys=("id",)),
        Transform("shop.notes", projection="*, __data_event_type__ AS kind", converter="SOFT_DELETE"),
    ]
    ingestion = setup.ingestion(DeltaTables(setup.lake), feed, transform=rules)
    one, two = {"id": 1, "c": "a", "n": 5}, {"id": 2, "c": "b", "n": 6}
    setup.produce(
        change("c", None, one), change("c", None, two), change("u", two, {**two, "n": 0}),
        change("c", None, {"x": 1}, "notes"), change("d", {"x": 1}, None, "notes"),
    )  # fmt: skip
    setup.run(ingestion)

    assert setup.table("shop", "orders") == [{**one, "offset": 0, "upper_c": "A"}]
    assert setup.table("shop", "notes") == [
        {"x": 1, "kind": "+I", "offset": 3}, {"x": 1, "kind": "-D", "offset": 4},
    ]  # fmt: skip

    setup.produce(change("u", {"id": 1, "c": "a", "n": 5}, {"id": 1, "c": "z", "n": "five", "day": "2024-02-29"}),
                  change("c", None, {"x": 2}, "notes"))  # fmt: skip
    with pytest.raises(StreamingQueryException, match=r"shop\.orders: filter "):
        setup.run(ingestion)


def test_types_become_wider_by_rewriting_and_in_place(setup: Setup) -> None:
    needs_delta()
    ingestion = setup.ingestion(DeltaTables(setup.lake), transform=[KEYED], route=[INTO_T])
    setup.produce({"id": 1, "weight": 1, "at": "2024-01-01", "clock": "10:00:00"}, {"id": 2, "weight": 2})
    setup.run(ingestion)
    assert [row["weight"] for row in setup.table("lake", "t")] == [1, 2]

    setup.produce({"id": 2, "weight": "11kg", "at": "n/a", "when": "2024-01-01 10:00:00"})
    setup.run(ingestion)
    rows = setup.table("lake", "t")

    assert [(row["id"], row["weight"], row["at"], row["clock"]) for row in rows] == [
        (1, "1", "2024-01-01", "10:00:00"), (2, "11kg", "n/a", None),
    ]  # fmt: skip
    assert [str(row["when"]) for row in rows] == ["None", "2024-01-01 10:00:00"]
    assert setup.history() == [
        "create.table lake.t `id` BIGINT NOT NULL, `weight` BIGINT, `at` DATE, `clock` STRING",
        "alter.column.type lake.t `weight` BIGINT → STRING",
        "alter.column.type lake.t `at` DATE → STRING",
        "add.column lake.t `when` TIMESTAMP(0)",
    ]


@pytest.mark.reliability
def test_a_table_that_is_too_large_to_be_rewritten_is_refused_before_anything_is_written(setup: Setup) -> None:
    needs_delta()
    ingestion = setup.ingestion(DeltaTables(setup.lake, rewrite_max_bytes=1), transform=[KEYED], route=[INTO_T])
    setup.produce({"id": 1, "n": 1})
    setup.run(ingestion)
    before = setup.state()
    setup.produce({"id": 2, "n": "x"})

    with pytest.raises(StreamingQueryException, match=r"column 'n': the change of BIGINT to STRING would rewrite"):
        setup.run(ingestion)
    assert setup.state() == before
    assert setup.table("lake", "t") == [{"id": 1, "n": 1}]


POINTS = (
    pytest.param("before the first table", marks=pytest.mark.reliability),
    "after the change of a table",
    pytest.param("after the first table", marks=pytest.mark.reliability),
    pytest.param("after all tables", marks=pytest.mark.reliability),
)


@pytest.mark.reliability
@pytest.mark.parametrize("point", POINTS)
def test_a_batch_that_is_repeated_changes_nothing_twice(setup: Setup, point: str) -> None:
    needs_delta()
    feed = setup.feed(value=Json(table_id_fields="t"))
    rules = [Transform("a", primary_keys=("id",)), Transform("b", projection="*")]
    ingestion = setup.ingestion(DeltaTables(setup.lake), feed, transform=rules)
    setup.produce({"t": "a", "id": 1, "n": 1}, {"t": "b", "id": 1})
    setup.run(ingestion)
    setup.produce({"t": "a", "id": 1, "n": "one"}, {"t": "a", "id": 2, "new": True}, {"t": "b", "id": 2, "z": 1})
    with pytest.raises(StreamingQueryException, match="gone"):
        setup.run(ingestion, Failing(DeltaWriter(DeltaTables(setup.lake), 1), 1, point))
    assert setup.state().last == 1
    setup.run(ingestion)
    setup.produce({"t": "b", "id": 3})
    setup.run(ingestion)

    assert [(r["id"], r["n"], r["new"]) for r in setup.table("a")] == [(1, "one", None), (2, None, True)]
    assert [(r["id"], r["z"]) for r in setup.table("b")] == [(1, None), (2, 1), (3, None)]
    assert [(n, c.tag, c.table) for n, c in setup.state().changes] == [
        (0, "create.table", ("a",)), (0, "create.table", ("b",)),
        (1, "alter.column.type", ("a",)), (1, "add.column", ("a",)), (1, "add.column", ("b",)),
    ]  # fmt: skip


def test_tables_of_a_catalog_are_partitioned_and_have_properties(setup: Setup) -> None:
    needs_delta()
    from pyspark.sql import DataFrame

    from kdsl.changelog.delta_session import DeltaSession

    schema = f"s{setup.topic[-8:]}"
    rule = Transform(r"\.*", projection="*", partition_keys=("day",), table_options="delta.appendOnly=true")
    ingestion = setup.ingestion(
        DeltaTables(catalog="spark_catalog"), transform=[rule], route=[Route(r"\.*", f"{schema}.t")]
    )
    setup.produce({"id": 1, "day": "2024-01-01"})
    setup.run(ingestion)
    setup.produce({"id": 2, "day": "2024-01-02", "at": "2024-01-02 10:00:00"})
    setup.run(ingestion)

    opened = DeltaSession(setup.spark)
    with opened.active():
        rows = DataFrame(opened.sql(f"SELECT id, string(day), string(at) FROM {schema}.t ORDER BY id"), setup.spark)
        detail = opened.detail(DeltaTarget(f"`spark_catalog`.`{schema}`.`t`", is_path=False, schema_evolution=False))
        assert [tuple(row) for row in rows.collect()] == [
            (1, "2024-01-01", None), (2, "2024-01-02", "2024-01-02 10:00:00"),
        ]  # fmt: skip
    assert detail["partitionColumns"] == ["day"]
    assert detail["properties"]["delta.appendOnly"] == "true"


def test_a_table_that_exists_is_compared_at_the_first_touch(setup: Setup) -> None:
    needs_delta()
    from kdsl.types import model as t

    target = DeltaTarget(f"{setup.lake}/lake/t", True, False)
    target.create(setup.spark, [t.Field("ID", t.Int()), t.Field("own", t.STRING)])
    setup.produce({"id": 1, "n": 5})
    setup.run(setup.ingestion(DeltaTables(setup.lake), transform=[KEYED], route=[INTO_T]))

    assert setup.table("lake", "t") == [{"ID": 1, "own": None, "n": 5}]


def test_records_that_cannot_be_read_refuse_the_batch_unless_they_are_allowed(setup: Setup) -> None:
    writer = MemoryWriter()
    setup.produce({"id": 1}, "nonsense", {"id": 2})
    with pytest.raises(StreamingQueryException, match=r"1 record cannot be read: topic .*, partition 0, offset 1"):
        setup.run(setup.ingestion(Memory(), transform=[KEYED], route=[INTO_T]), writer)
    assert writer.tables == {}
    setup.run(setup.ingestion(Memory(), setup.feed(ignore_errors=True), transform=[KEYED], route=[INTO_T]), writer)

    assert [row["id"] for row in writer.tables["lake", "t"].rows()] == [1, 2]
    assert setup.state().counts == {"dirty": 1}


def remove_last_comma(letter: DeadLetter) -> DeadLetter:
    return attrs.evolve(letter, value=(letter.value or b"").replace(b",}", b"}"))


class TestCollectors:
    PLAIN = "nonsense", "[1]"

    def run(self, setup: Setup, collector: Any, **options: Any) -> Ingestion:
        setup.produce({"id": 1}, *self.PLAIN, {"id": 2})
        settings = {f"collector_{key}": value for key, value in options.items()}
        pipeline = Pipeline(collector=collector, **settings)
        writer = MemoryWriter()
        ingestion = setup.ingestion(Memory(), setup.feed(ignore_errors=True), pipeline=pipeline, route=[INTO_T])
        setup.run(ingestion, writer)
        assert writer.appended["lake", "t"] == [{"id": 1}, {"id": 2}]
        assert setup.state().counts == {"dirty": 2}
        return ingestion

    def test_the_log_names_places_and_reasons(self, setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
        self.run(setup, "logger", name="bad")

        lines = [r.getMessage() for r in caplog.records if r.name.endswith("collectors")]
        assert [line.split(": ")[:2] for line in lines] == [
            ["bad", f"topic {setup.topic}, partition 0, offset {offset}"] for offset in (1, 2)
        ]

    def test_files_have_the_records(self, setup: Setup, tmp_path: Path) -> None:
        self.run(setup, "file", path=str(tmp_path / "bad"))

        lines = [
            line
            for file in (tmp_path / "bad").glob("query=*/batch=0/id=*/*.txt")
            for line in file.read_text().splitlines()
        ]
        records = sorted((json.loads(line) for line in lines), key=lambda record: record["offset"])
        assert [(r["offset"], r["side"], base64.b64decode(r["value"]).decode()) for r in records] == [
            (1, "value", "nonsense"), (2, "value", "[1]"),
        ]  # fmt: skip

    @pytest.mark.reliability
    def test_another_checkpoint_adds_files_to_the_same_folder(
        self, setup: Setup, tmp_path: Path, kdsl_topic: MakeTopic
    ) -> None:
        self.run(setup, "file", path=str(tmp_path / "bad"))
        setup.checkpoint, setup.topic = f"{setup.checkpoint}-2", kdsl_topic()
        self.run(setup, "file", path=str(tmp_path / "bad"))

        lines = [line for file in (tmp_path / "bad").rglob("*.txt") for line in file.read_text().splitlines()]
        places = [(record["topic"], record["offset"]) for record in map(json.loads, lines)]
        assert len({*places}) == len(places) == 4

    def test_a_topic_has_the_records_as_dead_letters(self, setup: Setup, kdsl_topic: MakeTopic) -> None:
        dead = kdsl_topic()
        self.run(setup, "kafka", topic=dead)

        letters = setup.kafka.read(dead)
        assert [letter.value() for letter in letters] == [text.encode() for text in self.PLAIN]
        offsets = [dict(letter.headers() or ())["__connect.errors.offset"] for letter in letters]
        assert offsets == [b"1", b"2"]
        ids = {dict(letter.headers() or ())["kdsl.dlq.topic-id"] for letter in letters}
        assert ids == {setup.kafka.topic_id(setup.topic).encode()}

    def test_a_replay_ends_with_the_newest_row_of_each_key(self, setup: Setup, kdsl_topic: MakeTopic) -> None:
        """Bad records of keys with and without a later one, also in a partition that was added since."""
        setup.topic, dead = kdsl_topic(partitions=2), kdsl_topic("dead")
        bad, good = '{"id": %d, "n": "%s",}', '{"id": %d, "n": "%s"}'
        messages = [(0, 1, bad % (1, "old")), (0, 2, bad % (2, "fixed")), (0, 3, bad % (3, "old")),
                    (0, 1, good % (1, "new")), (1, 3, good % (3, "new"))]  # fmt: skip
        for partition, key, value in messages:
            setup.kafka.produce(setup.topic, Record(value, f"{key}", partition=partition))
        writer, feed = MemoryWriter(), setup.feed(ignore_errors=True)
        pipeline = Pipeline(collector="kafka", collector_topic=dead)
        ingestion = setup.ingestion(Memory(), feed, transform=[KEYED], route=[INTO_T], pipeline=pipeline)
        setup.run(ingestion, writer)
        command = ["dlq", "replay", dead, "--to", "original", "--with", f"{__name__}:remove_last_comma",
                   "--bootstrap", setup.kafka.bootstrap_servers]  # fmt: skip
        assert CliRunner().invoke(app, command).exit_code == 3
        setup.run(ingestion, writer)

        rows = {row["id"]: row["n"] for row in writer.tables["lake", "t"].rows()}
        assert rows == {1: "new", 2: "fixed", 3: "new"}

    def test_the_topic_must_exist(self, setup: Setup) -> None:
        with pytest.raises(TopicMissingError, match="no-such-topic"):
            self.run(setup, "kafka", topic="no-such-topic")


def test_static_tables_keep_their_columns_and_reject_what_does_not_fit(
    setup: Setup, caplog: pytest.LogCaptureFixture
) -> None:
    writer = MemoryWriter()
    setup.produce({"id": 1, "n": 1})
    feed = setup.feed(inference="static", prefetch=10, ignore_errors=True)
    ingestion = setup.ingestion(Memory(), feed, route=[INTO_T])
    setup.run(ingestion, writer)
    setup.produce({"id": 2, "n": "7", "new": 1}, {"id": 3, "n": "x"}, {"id": 4})
    setup.run(ingestion, writer)

    assert writer.appended["lake", "t"] == [{"id": 1, "n": 1}, {"id": 2, "n": 7}, {"id": 4, "n": None}]
    assert setup.state().counts == {"dirty": 1, "ignored-columns": 1}
    warnings = [r.getMessage() for r in caplog.records if "is not read" in r.getMessage()]
    place = f"topic {setup.topic}, partition 0, offset 1"
    assert [f"column 'new' (shown by the record at {place})" in warning for warning in warnings] == [True]


def test_prefetched_records_show_columns_before_the_first_batch(setup: Setup) -> None:
    writer = MemoryWriter()
    setup.produce({"id": 1, "n": 1}, {"id": 2, "n": "x", "later": 1})
    feed = setup.feed(prefetch=1, max_records_per_trigger=1)
    setup.run(setup.ingestion(Memory(), feed, transform=[KEYED], route=[INTO_T]), writer)

    assert writer.tables["lake", "t"].rows() == [{"id": 1, "n": "1", "later": None}, {"id": 2, "n": "x", "later": 1}]
    assert [c.tag for _, c in setup.state().changes] == ["create.table"]


def test_values_that_the_sink_does_not_take_are_null_and_counted(setup: Setup) -> None:
    writer = MemoryWriter()
    ingestion = setup.ingestion(Memory(), transform=[KEYED], route=[INTO_T], pipeline=Pipeline(schema_change="IGNORE"))
    setup.produce({"id": 1, "n": 1})
    setup.run(ingestion, writer)
    setup.produce({"id": 2, "n": "x", "later": 1}, {"id": 3, "n": 7})
    setup.run(ingestion, writer)

    assert writer.tables["lake", "t"].rows() == [{"id": 1, "n": 1}, {"id": 2, "n": None}, {"id": 3, "n": 7}]
    assert setup.state().counts == {"lost-values": 2}


def test_updates_of_a_table_without_a_key_fail(setup: Setup) -> None:
    setup.produce(change("u", {"id": 1}, {"id": 2}))
    with pytest.raises(StreamingQueryException, match="a change -U needs a primary key"):
        setup.run(setup.ingestion(Memory(), setup.feed(value=DebeziumJson())), MemoryWriter())


def test_canal_messages_have_keys_and_merge_shards(setup: Setup) -> None:
    def message(table: str, kind: str, *rows: dict[str, Any], old: Any = None) -> dict[str, Any]:
        return {"database": "crm", "table": table, "type": kind, "data": rows, "old": old, "pkNames": ["id"],
                "isDdl": False, "es": 1, "ts": 1}  # fmt: skip

    writer = MemoryWriter()
    setup.produce(
        message("u_1", "INSERT", {"id": "1", "name": "a"}), message("u_2", "INSERT", {"id": "2", "mail": "m"}),
        message("u_1", "UPDATE", {"id": "1", "name": "b"}, old=[{"name": "a"}]), message("u_2", "DELETE", {"id": "2"}),
    )  # fmt: skip
    ingestion = setup.ingestion(Memory(), setup.feed(value=CanalJson()), route=[Route(r"crm.u_\d+", "crm.users")])
    setup.run(ingestion, writer)

    assert writer.tables["crm", "users"].rows() == [{"id": "1", "name": "b", "mail": None}]


def test_print_and_blackhole(setup: Setup, capsys: pytest.CaptureFixture[str]) -> None:
    setup.produce({"id": 1, "n": "a"})
    setup.run(setup.ingestion(Print(), route=[INTO_T]))
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == "lake.t +I[1, a]"
    setup.checkpoint += "-2"
    setup.run(setup.ingestion(Blackhole(), route=[INTO_T]))
    assert [c.tag for _, c in setup.state().changes] == ["create.table"]


@pytest.mark.parametrize("distributed", [True, False])
def test_changes_in_several_partitions_are_ordered_by_their_time_in_the_source(
    setup: Setup, kdsl_topic: MakeTopic, caplog: pytest.LogCaptureFixture, distributed: bool
) -> None:
    setup.topic, writer = kdsl_topic("two", partitions=2), MemoryWriter()
    late, early = change("u", {"id": 1, "n": 1}, {"id": 1, "n": 2}), change("c", None, {"id": 1, "n": 1})
    for partition, millis, one in ((0, 2000, late), (1, 1000, early)):
        one["source"]["ts_ms"] = millis
        setup.kafka.produce(setup.topic, Record(json.dumps(one), partition=partition))
    feed = setup.feed(value=DebeziumJson(), distributed_tables=distributed)
    setup.run(setup.ingestion(Memory(), feed, transform=[KEYED]), writer)

    warnings = [r.getMessage() for r in caplog.records if "several partitions" in r.getMessage()]
    if distributed:
        assert writer.tables["shop", "orders"].rows() == [{"id": 1, "n": 2}]
    assert [line.split(";")[0] for line in warnings] == ([] if distributed else [
        f"the records of shop.orders are in several partitions ({setup.topic}-0 and {setup.topic}-1)"
    ])  # fmt: skip


@pytest.mark.postgres
class TestPostgres:
    @pytest.fixture
    def sink(self, postgres: Postgres) -> JdbcTables:
        return JdbcTables(postgres.url, username="kdsl", password=PASSWORD)

    def read(self, postgres: Postgres, table: str, order: str = "1") -> list[str]:
        return postgres.execute(f"SELECT * FROM {table} ORDER BY {order}").splitlines()

    def columns(self, postgres: Postgres, table: str) -> list[str]:
        query = "SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute "
        return postgres.execute(
            f"{query} WHERE attrelid = '{table}'::regclass AND attnum > 0 ORDER BY attnum"
        ).splitlines()

    def test_tables_are_created_changed_and_written_once(
        self, setup: Setup, sink: JdbcTables, postgres: Postgres
    ) -> None:
        schema = f"s{setup.topic[-8:]}"
        feed = setup.feed(value=Json(table_id_fields="t"))
        routes = [Route("a", f"{schema}.Users"), Route("b", f"{schema}.notes")]
        rules = [Transform("a", primary_keys=("id",)), Transform("b", projection="*, id IS NULL AS odd")]
        ingestion = setup.ingestion(sink, feed, transform=rules, route=routes)
        setup.produce({"t": "a", "id": 1, "n": 1, "at": "10:00:00", "d": "2024-01-01"}, {"t": "b", "id": 7})
        setup.run(ingestion)
        setup.produce({"t": "a", "id": 1, "n": "one"}, {"t": "a", "id": 2, "x y": 0.5}, {"t": "b", "id": 8})
        failing = Failing(sink.writer(1), 1, "after the first table")
        with pytest.raises(StreamingQueryException, match="gone"):
            setup.run(ingestion, failing)
        setup.run(ingestion)

        assert self.columns(postgres, f'{schema}."Users"') == [
            "t\ttext\tf", "id\tbigint\tt", "n\ttext\tf", "at\ttime(0) without time zone\tf", "d\tdate\tf",
            "x y\tdouble precision\tf",
        ]  # fmt: skip
        assert self.read(postgres, f'{schema}."Users"', "id") == ["a\t1\tone\t\t\t", "a\t2\t\t\t\t0.5"]
        assert self.read(postgres, f"{schema}.notes", "id") == ["b\t7\tf", "b\t8\tf"]
        assert [(n, c.tag) for n, c in setup.state().changes] == [
            (0, "create.table"), (0, "create.table"), (1, "alter.column.type"), (1, "add.column"),
        ]  # fmt: skip

    def test_a_table_that_exists_is_compared(self, setup: Setup, sink: JdbcTables, postgres: Postgres) -> None:
        table = f"t{setup.topic[-8:]}"
        postgres.execute(f"CREATE TABLE {table} (id int PRIMARY KEY, n varchar(3), own text NOT NULL)")
        setup.produce({"id": 1, "n": "long text"})
        ingestion = setup.ingestion(sink, transform=[Transform(r"\.*", primary_keys=("id",))],
                                    route=[Route(r"\.*", f"public.{table}")])  # fmt: skip
        with pytest.raises(StreamingQueryException, match="'own': the sink table has it as STRING NOT NULL"):
            setup.run(ingestion)
        postgres.execute(f"ALTER TABLE {table} ALTER own DROP NOT NULL")
        setup.run(ingestion)

        assert self.read(postgres, table) == ["1\tlong text\t"]
        assert self.columns(postgres, table)[:2] == ["id\tbigint\tt", "n\ttext\tf"]

    def test_a_lock_that_is_not_released_fails_the_batch(
        self, setup: Setup, postgres: Postgres, sink: JdbcTables
    ) -> None:
        table = f"l{setup.topic[-8:]}"
        sink = attrs.evolve(sink, lock_timeout=timedelta(milliseconds=50))  # type: ignore[misc]
        ingestion = setup.ingestion(sink, transform=[Transform(r"\.*", primary_keys=("id",))],
                                    route=[Route(r"\.*", f"public.{table}")])  # fmt: skip
        setup.produce({"id": 1})
        setup.run(ingestion)
        setup.produce({"id": 1, "new": 1})
        with postgres.lock(table), pytest.raises(StreamingQueryException, match="lock timeout"):
            setup.run(ingestion)
        setup.run(ingestion)

        assert self.read(postgres, table) == ["1\t1"]

    def test_columns_and_rows_are_one_transaction(self, setup: Setup, postgres: Postgres, sink: JdbcTables) -> None:
        table = f"c{setup.topic[-8:]}"
        postgres.execute(f"CREATE TABLE {table} (id bigint PRIMARY KEY CHECK (id < 5))")
        ingestion = setup.ingestion(sink, transform=[Transform(r"\.*", primary_keys=("id",))],
                                    route=[Route(r"\.*", f"public.{table}")])  # fmt: skip
        setup.produce({"id": 9, "n": 1})
        with pytest.raises(StreamingQueryException, match="violates check constraint"):
            setup.run(ingestion)
        assert self.columns(postgres, table) == ["id\tbigint\tt"]

        postgres.execute(f"ALTER TABLE {table} DROP CONSTRAINT {table}_id_check")
        setup.run(ingestion)
        assert self.read(postgres, table) == ["9\t1"]
        left = "SELECT tablename FROM pg_tables WHERE tablename LIKE 'kdsl%' AND tablename <> 'kdsl_changelog_batches'"
        assert postgres.execute(left) == ""

    @pytest.mark.parametrize("keys", [("id",), pytest.param((), marks=pytest.mark.reliability)])
    def test_dates_and_times_do_not_depend_on_the_time_zone_of_java(
        self, setup: Setup, postgres: Postgres, sink: JdbcTables, keys: tuple[str, ...]
    ) -> None:
        table, java = f"d{setup.topic[-8:]}", jvm_of(setup.spark).java.util.TimeZone
        rules = [Transform(r"\.*", primary_keys=keys, projection="*")]
        ingestion = setup.ingestion(sink, transform=rules, route=[Route(r"\.*", f"public.{table}")])
        before = java.getDefault()
        java.setDefault(java.getTimeZone("Europe/Berlin"))
        try:
            setup.produce({"id": 1, "day": "1582-10-10", "wall": "2024-03-31 02:30:00", "clock": "02:30:00"})
            setup.run(ingestion)
            setup.produce({"id": 2, "wall": "1582-10-10 01:02:03.000004", "instant": "1582-10-10T01:02:03Z"})
            setup.run(ingestion)
        finally:
            java.setDefault(before)

        shown = postgres.execute(f"SET TIME ZONE 'UTC'; SELECT day, wall, clock, instant FROM {table} ORDER BY id")
        assert shown.splitlines() == [
            "1582-10-10\t2024-03-31 02:30:00\t02:30:00\t", "\t1582-10-10 01:02:03.000004\t\t1582-10-10 01:02:03+00",
        ]  # fmt: skip


@pytest.mark.postgres
class TestNullCharacters:
    """Postgres stores no U+0000: a record that would bring one there is one that cannot be read."""

    def ingestion(
        self,
        setup: Setup,
        postgres: Postgres,
        feed: KafkaFeed | None = None,
        rule: Transform | None = None,
        **parts: Any,
    ) -> Ingestion:
        sink = JdbcTables(postgres.url, username="kdsl", password=PASSWORD)
        route = [Route(r"\.*", f"public.{self.table(setup)}")]
        return setup.ingestion(sink, feed, transform=[rule or KEYED], route=route, **parts)

    def table(self, setup: Setup) -> str:
        return f"z{setup.topic[-8:]}"

    def rows(self, setup: Setup, postgres: Postgres) -> list[Row]:
        query = f"SELECT row_to_json(t) FROM {self.table(setup)} t ORDER BY id"
        return [json.loads(line) for line in postgres.execute(query).splitlines()]

    BAD = (
        {"id": 1, "n": "fine", "text": "a"}, {"id": 2, "text": "a\0b", "shown": 1}, {"id": 3, "n": "\\u0000"},
        {"id": 4, "n": "\0"},
    )  # fmt: skip

    def test_the_batch_is_refused_with_place_table_and_column(self, setup: Setup, postgres: Postgres) -> None:
        setup.produce(*self.BAD)
        with pytest.raises(StreamingQueryException) as error:
            setup.run(self.ingestion(setup, postgres))

        place = f"topic {setup.topic}, partition 0, offset "
        message, table = str(error.value), f"the table public.{self.table(setup)}, column"
        assert "2 records cannot be read: " in message
        for offset, column in ((1, "text"), (3, "n")):
            assert f"{place}{offset}: {table} `{column}`: the string has the character NUL, U+0000, which" in message
        assert "ingestion.ignore-errors: true" in message
        assert postgres.execute(f"SELECT to_regclass('{self.table(setup)}') IS NULL").strip() == "t"
        assert setup.state().counts == {}

    def test_the_records_are_collected_and_counted(self, setup: Setup, postgres: Postgres, tmp_path: Path) -> None:
        setup.produce(*self.BAD, "nonsense")
        pipeline = Pipeline(collector="file", collector_path=str(tmp_path / "bad"))
        feed = setup.feed(ignore_errors=True, max_errors=3)
        setup.run(self.ingestion(setup, postgres, feed, pipeline=pipeline))

        assert self.rows(setup, postgres) == [
            {"id": 1, "n": "fine", "text": "a"}, {"id": 3, "n": "\\u0000", "text": None},
        ]  # fmt: skip
        assert setup.state().counts == {"dirty": 3}
        lines = [
            line
            for file in (tmp_path / "bad").glob("query=*/batch=0/id=*/*.txt")
            for line in file.read_text().splitlines()
        ]
        records = sorted((json.loads(line) for line in lines), key=lambda record: record["offset"])
        assert [r["offset"] for r in records] == [1, 3, 4]
        place = f"the table public.{self.table(setup)}, column"
        assert records[0]["reason"].startswith(f"{place} `text`: the string has the character NUL, ")
        assert json.loads(base64.b64decode(records[0]["value"])) == self.BAD[1]

        setup.produce({"id": 5, "n": "\0"})
        with pytest.raises(StreamingQueryException, match="4 records could not be read, and at most 3 may"):
            setup.run(self.ingestion(setup, postgres, feed, pipeline=pipeline))

    def test_only_what_is_written_counts(self, setup: Setup, postgres: Postgres) -> None:
        rule = Transform(r"\.*.\.*", projection="id, REPLACE(n, 'x', 'y') AS n", filter="id < 10", primary_keys=("id",))
        old, new = {"id": 1, "n": "a\0", "more": "\0"}, {"id": 1, "n": "x", "more": "\0"}
        setup.produce(change("u", old, new), change("c", None, {"id": 11, "n": "\0"}))
        setup.produce(change("c", None, {"id": 2, "n": "b"}), change("d", {"id": 2, "n": "b\0"}, None))
        setup.run(self.ingestion(setup, postgres, setup.feed(value=DebeziumJson()), rule))

        assert self.rows(setup, postgres) == [{"id": 1, "n": "y"}]
        assert setup.state().counts == {}

    def test_other_sinks_store_it(self, setup: Setup) -> None:
        writer = MemoryWriter()
        setup.produce({"id": 1, "n": "a\0b"})
        setup.run(setup.ingestion(Memory(), transform=[KEYED], route=[INTO_T]), writer)

        assert writer.tables["lake", "t"].rows() == [{"id": 1, "n": "a\0b"}]


class TestKafka:
    def consume(self, setup: Setup, topic: str) -> list[tuple[Any, Any, int | None, list[Any]]]:
        """The records of a topic: key, value, partition and headers."""
        records = setup.kafka.read(topic)
        return [
            (json.loads(r.key() or b""), json.loads(r.value() or b""), r.partition(), list(r.headers() or ()))
            for r in records
        ]

    @pytest.mark.parametrize("delivery", [pytest.param("at-least-once", marks=pytest.mark.reliability), "exactly-once"])
    def test_tables_become_messages_of_their_topics(self, setup: Setup, kdsl_topic: MakeTopic, delivery: Any) -> None:
        out, notes = kdsl_topic(), kdsl_topic()
        sink = KafkaTopics(
            Cluster(setup.kafka.bootstrap_servers), mapping=f"shop.orders:{out};shop.notes:{notes}", delivery=delivery,
            transactional_id_prefix=out if delivery == "exactly-once" else None, custom_headers="from:here",
        )  # fmt: skip
        rule = Transform("shop.orders", filter="n > 0", primary_keys=("id",))
        ingestion = setup.ingestion(sink, setup.feed(value=DebeziumJson()), transform=[rule])
        one = {"id": 1, "n": 1}
        setup.produce(change("c", None, one), change("c", None, {"x": 1}, "notes"), change("u", one, {**one, "n": 2}))
        setup.run(ingestion)
        setup.produce(change("u", {**one, "n": 2}, {**one, "n": 0, "new": "x"}), change("c", None, {"x": 2}, "notes"))
        setup.run(ingestion)

        key = {"TableId": "shop.orders", "id": 1}
        records = self.consume(setup, out)
        assert [(k, p, h) for k, _, p, h in records] == [(key, 0, [("from", b"here")])] * 3
        assert [(v["op"], v["before"], v["after"]) for _, v, _, _ in records] == [
            ("c", None, one), ("u", one, {**one, "n": 2}), ("d", {**one, "n": 2, "new": None}, None),
        ]  # fmt: skip
        assert [v["after"] for _, v, _, _ in self.consume(setup, notes)] == [{"x": 1}, {"x": 2}]

    @pytest.mark.parametrize("strategy", [pytest.param("all-to-zero", marks=pytest.mark.reliability), "hash-by-key"])
    def test_messages_are_the_same_with_and_without_expressions(
        self, setup: Setup, kdsl_topic: MakeTopic, strategy: Any
    ) -> None:
        odd = {"ID": 1, "N": "x", "a.b": 2, "a`b": 3}  # Spark's own lookup of columns would not find them
        first = {"id": 1, "n": 1.5, "at": "2024-01-01 10:00:00", "day": "2024-01-01", **odd}
        setup.produce(
            change("c", None, first), change("u", first, {**first, "n": 2}), change("d", {**first, "n": 2}, None),
            change("c", None, {"id": 7}, "other"),
        )  # fmt: skip
        results = []
        for filter_ in (None, "1 = 1"):
            topic = kdsl_topic(partitions=3)
            sink = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=topic, partition_strategy=strategy,
                               table_id_headers=True)  # fmt: skip
            rule = Transform(r"\.*.\.*", primary_keys=("id",), filter=filter_)
            setup.checkpoint += "-next"
            setup.run(setup.ingestion(sink, setup.feed(value=DebeziumJson(), metadata=("offset",)), transform=[rule]))
            results.append(sorted(self.consume(setup, topic), key=lambda record: str(record[1]["source"]["table"])))

        assert results[0] == results[1]
        assert [(record[1]["op"], record[3][2]) for record in results[0]] == [
            ("c", ("tableName", b"orders")), ("u", ("tableName", b"orders")), ("d", ("tableName", b"orders")),
            ("c", ("tableName", b"other")),
        ]  # fmt: skip

    def test_changes_in_several_partitions_are_written_by_their_time_in_the_source(
        self, setup: Setup, kdsl_topic: MakeTopic
    ) -> None:
        setup.topic, out = kdsl_topic("two", partitions=2), kdsl_topic("out")
        rows = [{"id": 1, "n": n} for n in range(3)]
        changes = [change("c", None, rows[0]), change("u", rows[0], rows[1]), change("u", rows[1], rows[2])]
        for position, partition in ((1, 0), (2, 1), (0, 1)):
            changes[position]["source"]["ts_ms"] = 1000 * position
            setup.kafka.produce(setup.topic, Record(json.dumps(changes[position]), partition=partition))
        feed = setup.feed(value=DebeziumJson(), distributed_tables=True)
        sink = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=out)
        setup.run(setup.ingestion(sink, feed, transform=[KEYED]))

        assert [(v["before"], v["after"]) for _, v, _, _ in self.consume(setup, out)] == [
            (None, rows[0]), (rows[0], rows[1]), (rows[1], rows[2]),
        ]  # fmt: skip

    def test_a_type_that_becomes_wider_in_one_partition_counts_for_the_records_of_the_others(
        self, setup: Setup, kdsl_topic: MakeTopic
    ) -> None:
        """The records of the other partitions were decoded with the narrower type, or without a new column."""
        setup.topic, out = kdsl_topic("two", partitions=2), kdsl_topic("out")
        sink = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=out)
        ingestion = setup.ingestion(sink, setup.feed(value=DebeziumJson()))
        batches: list[list[tuple[Row, int]]] = [
            [({"id": 1, "n": 1}, 0)],
            [({"id": 2, "n": 2}, 0), ({"id": 3, "n": 3, "more": 0.5}, 1)],
            [({"id": 4, "n": 4}, 0), ({"id": 5, "n": "x"}, 1)],
            [({"id": 6, "n": "y"}, 0), ({"id": 7}, 1)],
        ]
        for rows in batches:
            for row, partition in rows:
                setup.kafka.produce(setup.topic, Record(json.dumps(change("c", None, row)), partition=partition))
            setup.run(ingestion)

        written = sorted((v["after"] for _, v, _, _ in self.consume(setup, out)), key=lambda row: row["id"])
        assert written == [
            {"id": 1, "n": 1},
            {"id": 2, "n": 2, "more": None}, {"id": 3, "n": 3, "more": 0.5},
            {"id": 4, "n": "4", "more": None}, {"id": 5, "n": "x", "more": None},
            {"id": 6, "n": "y", "more": None}, {"id": 7, "n": None, "more": None},
        ]  # fmt: skip

    @pytest.mark.reliability
    def test_a_thousand_tables(self, setup: Setup, kdsl_topic: MakeTopic) -> None:
        """All are created within a minute; then a batch of three takes at most 50 ms more than a batch of one."""
        topic, count = kdsl_topic("out"), 1000
        sink = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=topic)
        ingestion = setup.ingestion(sink, setup.feed(value=Json(table_id_fields="t")))

        def touch(tables: int) -> list[Any]:
            """Write a record of each of some tables, and wait until they are written; return the reports of batches."""
            last = -1 if query.lastProgress is None else query.lastProgress.batchId
            setup.produce(*({"t": f"t{i}", "id": i, "n": "x"} for i in range(tables)))
            reports: list[Any] = []
            while sum(report.numInputRows for report in reports) < tables:
                assert query.isActive, query.exception()
                time.sleep(0.01)
                reports = [one for one in query.recentProgress if one.batchId > last and one.numInputRows]
            return reports

        start = time.monotonic()
        query = ingestion.run(setup.spark, setup.checkpoint)
        try:
            touch(count)
            seconds = time.monotonic() - start
            differences = []
            for _ in range(40):
                batches = {tables: touch(tables) for tables in (1, 3)}
                if all(len(reports) == 1 for reports in batches.values()):
                    one, three = (batches[n][0].durationMs["triggerExecution"] for n in (1, 3))
                    differences.append(three - one)
        finally:
            query.stop()

        assert len(setup.state().upstream) == count
        assert len(self.consume(setup, topic)) == count + 40 * 4
        print(f"{count} tables in {seconds:.1f} s; {sorted(differences)} ms more")
        assert seconds < 60
        assert len(differences) >= 10
        assert statistics.median(differences) <= 50

    def test_a_missing_topic_is_refused_where_brokers_may_not_create_it(self, setup: Setup) -> None:
        cluster = Cluster(setup.kafka.bootstrap_servers, properties={"allow.auto.create.topics": "false"})
        setup.produce({"id": 1})
        with pytest.raises(StreamingQueryException, match=r"its topic 'lake\.t' does not exist"):
            setup.run(setup.ingestion(KafkaTopics(cluster), route=[INTO_T]))


@pytest.mark.postgres
class TestSnapshot:
    def source(self, postgres: Postgres, *tables: str) -> JdbcSnapshot:
        return JdbcSnapshot(postgres.url, username="kdsl", password=PASSWORD, tables=tables)

    def test_tables_are_copied_once(self, setup: Setup, postgres: Postgres) -> None:
        schema = f"c{setup.topic[-8:]}"
        postgres.execute(f"""
            CREATE SCHEMA {schema};
            CREATE TABLE {schema}.users (id bigint PRIMARY KEY, at timestamp(3), n numeric(5, 2), own uuid, day date,
                moment timestamptz, clock time(3), tags text[]);
            INSERT INTO {schema}.users VALUES (1, '2024-01-01 10:00', 1.5, NULL, '1582-10-10',
                '2024-03-31 02:30:00.5+02', '23:59:59.125', '{{a,b}}'), (2, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
            CREATE TABLE {schema}.notes (body text);
            INSERT INTO {schema}.notes VALUES ('x');
        """)
        source = self.source(postgres, f"{schema}.users", f"{schema}.notes")
        rule = Transform(f"{schema}.users", projection="*, id * 2 AS twice", filter="id < 2")
        ingestion = Ingestion(source, Memory(), transform=[rule], route=[Route(rf"{schema}.(\.*)", "copy.$1")])
        writer = MemoryWriter()

        assert ingestion.copy(setup.spark, setup.checkpoint, writer=writer)
        assert not ingestion.copy(setup.spark, setup.checkpoint, writer=writer)
        assert writer.tables["copy", "users"].rows() == [
            {"id": 1, "at": datetime(2024, 1, 1, 10), "n": Decimal("1.50"), "own": None, "day": date(1582, 10, 10),
             "moment": datetime(2024, 3, 31, 0, 30, 0, 500_000, tzinfo=UTC), "clock": clock(23, 59, 59, 125_000),
             "tags": ["a", "b"], "twice": 2}
        ]  # fmt: skip
        assert writer.appended["copy", "notes"] == [{"body": "x"}]
        assert set(setup.state().upstream) == {(schema, "users"), (schema, "notes")}

    def test_a_copy_that_was_interrupted_goes_on(self, setup: Setup, postgres: Postgres, kdsl_topic: MakeTopic) -> None:
        table = f"i{setup.topic[-8:]}"
        postgres.execute(f"CREATE TABLE {table} (id int PRIMARY KEY); INSERT INTO {table} VALUES (1)")
        sink = JdbcTables(postgres.url, username="kdsl", password=PASSWORD)
        ingestion = Ingestion(self.source(postgres, table), sink, route=[Route(table, f"public.{table}_copy")])
        with pytest.raises(RuntimeError, match="gone"):
            ingestion.copy(setup.spark, setup.checkpoint, writer=Failing(sink.writer(1), 0, "after all tables"))
        postgres.execute(f"INSERT INTO {table} VALUES (2)")
        assert ingestion.copy(setup.spark, setup.checkpoint)

        assert postgres.execute(f"SELECT id FROM {table}_copy").split() == ["1"]
        changes = [change.tag for _, change in setup.state().changes]
        assert changes == ["create.table"]

    def test_only_databases_are_copied_and_they_are_not_streams(self, setup: Setup, postgres: Postgres) -> None:
        with pytest.raises(KdslError, match="the source 'kafka' is not copied once"):
            setup.ingestion(Memory()).copy(setup.spark, setup.checkpoint)
        with pytest.raises(KdslError, match=r"the source 'jdbc' is not a stream; copy it once with Ingestion\.copy"):
            Ingestion(self.source(postgres, "t"), Memory()).run(setup.spark, setup.checkpoint)
