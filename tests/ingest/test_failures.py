"""What goes wrong around an ingestion, and what it does then: on a real Kafka, with Delta Lake and Postgres."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from kdsl.cluster import Cluster
from kdsl.errors import CheckpointError, KdslError
from kdsl.ingest import (
    DeltaTables,
    Ingestion,
    JdbcTables,
    KafkaFeed,
    KafkaTopics,
    Memory,
    Pipeline,
    Print,
    Route,
    Sink,
    Transform,
)
from kdsl.ingest.run import query as query_module
from kdsl.ingest.run.sinks import MemoryWriter
from kdsl.testing import LocalKafka, Record
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.json import Json
from tests.changelog.tables import needs_delta
from tests.ingest.setup import Row, Setup, change
from tests.ingest.test_run import INTO_T, KEYED
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.testing.pytest_plugin import MakeTopic


@pytest.fixture
def setup(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path) -> Setup:
    return Setup(kdsl_kafka, kdsl_topic(), spark, tmp_path)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.1)


class TestTopics:
    def test_one_that_was_created_again_stops_the_ingestion_and_what_was_learned_stays(self, setup: Setup) -> None:
        ingestion, writer = setup.ingestion(Memory(), route=[INTO_T]), MemoryWriter()
        setup.produce({"id": 1})
        setup.run(ingestion, writer)
        before = setup.state()
        setup.kafka.delete_topic(setup.topic)
        setup.kafka.create_topic(setup.topic)
        setup.produce({"id": 2}, {"id": 3})

        with pytest.raises(StreamingQueryException, match=f"{setup.topic}.*was deleted and created again"):
            setup.run(ingestion, writer)
        assert setup.state() == before
        assert writer.appended["lake", "t"] == [{"id": 1}]

    def test_records_that_were_removed_before_they_were_read_stop_it(self, setup: Setup) -> None:
        ingestion, writer = setup.ingestion(Memory(), route=[INTO_T]), MemoryWriter()
        setup.produce({"id": 1})
        setup.run(ingestion, writer)
        before = setup.state()
        setup.produce({"id": 2}, {"id": 3})
        setup.kafka.delete_records(setup.topic, {0: 2})

        with pytest.raises(StreamingQueryException, match=f"{setup.topic}.*offset"):
            setup.run(ingestion, writer)
        assert setup.state() == before

    def test_new_topics_and_partitions_are_read_from_their_first_record(self, setup: Setup) -> None:
        prefix, writer = f"{setup.topic}-", MemoryWriter()
        setup.kafka.create_topic(f"{prefix}a")
        feed = KafkaFeed(
            Cluster(setup.kafka.bootstrap_servers), topic_pattern=f"{prefix}.*", value=Json(), prefetch=10,
            startup="latest-offset", discovery=timedelta(milliseconds=200),
        )  # fmt: skip
        ingestion = setup.ingestion(Memory(), feed, route=[Route(rf"{prefix}(\w)", "lake.$1")])

        def count(table: str) -> int:
            return len(writer.appended.get(("lake", table), ()))

        query = ingestion.run(setup.spark, setup.checkpoint, writer=writer)
        try:
            wait_until(lambda: query.status["message"].startswith("Waiting"), "the query begins")
            setup.kafka.produce(f"{prefix}a", '{"id": 1}')
            wait_until(lambda: count("a") == 1, "the first record")
            setup.kafka.create_topic(f"{prefix}b")
            setup.kafka.produce(f"{prefix}b", '{"id": 1}', '{"id": 2, "n": "x"}')
            setup.kafka.add_partitions(f"{prefix}a", 2)
            setup.kafka.produce(f"{prefix}a", Record('{"id": 2, "more": 1}', partition=1))
            wait_until(lambda: (count("a"), count("b")) == (2, 2), "the records of the topic and the partition")
        finally:
            query.stop()

        assert writer.appended["lake", "b"] == [{"id": 1, "n": None}, {"id": 2, "n": "x"}]
        assert [f.name for f in setup.state().sinks["lake", "a"].columns] == ["id", "more"]

    def test_nothing_is_created_before_a_message_has_a_field(self, setup: Setup) -> None:
        ingestion, writer = setup.ingestion(Memory(), route=[INTO_T]), MemoryWriter()
        setup.run(ingestion, writer)
        setup.produce("{}", '{"id": null}')
        setup.run(ingestion, writer)
        before = setup.state()
        setup.produce("{}", {"id": 1})
        setup.run(ingestion, writer)

        assert (before.upstream, before.sinks, before.counts) == ({}, {}, {"without-columns": 2})
        assert writer.appended["lake", "t"] == [{"id": None}, {"id": 1}]


class TestChanges:
    FEED = DebeziumJson()
    KEY = '{"id": 1}'

    def update(self, after: Row, before: Row | None = None) -> Record:
        return Record(json.dumps(change("u", before, after)), self.KEY)

    def test_an_update_without_its_row_before_is_an_upsert_by_the_message_key(self, setup: Setup) -> None:
        needs_delta()
        ingestion = setup.ingestion(DeltaTables(setup.lake), setup.feed(value=self.FEED))
        first = Record(json.dumps(change("c", None, {"id": 1, "n": 1})), self.KEY)
        setup.kafka.produce(setup.topic, first, self.update({"id": 1, "n": 2}))
        setup.run(ingestion)
        setup.kafka.produce(setup.topic, self.update({"id": 1, "n": 3, "new": "x"}))
        setup.run(ingestion)

        assert setup.table("shop", "orders") == [{"id": 1, "n": 3, "new": "x"}]

    @pytest.mark.parametrize(
        "rule",
        [
            Transform("shop.orders", filter="n > 0"),
            Transform("shop.orders", projection="*", converter="SOFT_DELETE"),
            Transform("shop.orders", primary_keys=("n",)),
        ],
    )
    def test_where_more_than_the_key_is_needed_the_error_names_the_setting_of_the_database(
        self, setup: Setup, rule: Transform
    ) -> None:
        ingestion = setup.ingestion(Memory(), setup.feed(value=self.FEED), transform=[rule])
        setup.kafka.produce(setup.topic, self.update({"id": 1, "n": 2}))

        with pytest.raises(StreamingQueryException, match="set the table's REPLICA IDENTITY to FULL"):
            setup.run(ingestion, MemoryWriter())

    def test_a_sink_that_needs_rows_before_counts_such_updates_as_records_that_cannot_be_read(
        self, setup: Setup, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic()
        sink = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=topic)
        setup.kafka.produce(setup.topic, self.update({"id": 1, "n": 2}), json.dumps(change("c", None, {"id": 2})))
        setup.run(setup.ingestion(sink, setup.feed(value=self.FEED, ignore_errors=True)))

        assert setup.state().counts == {"dirty": 1}
        assert [json.loads(r.value() or b"")["after"] for r in setup.kafka.read(topic)] == [{"id": 2}]

    def test_an_update_that_changes_the_key_removes_the_row_of_the_old_one(self, setup: Setup) -> None:
        needs_delta()
        ingestion = setup.ingestion(DeltaTables(setup.lake), setup.feed(value=self.FEED), transform=[KEYED])
        rows = [{"id": 1, "n": 1}, {"id": 2, "n": 1}, {"id": 3, "n": 1}]
        setup.produce(change("c", None, rows[0]), change("u", rows[0], rows[1]))
        setup.run(ingestion)
        assert setup.table("shop", "orders") == [rows[1]]
        setup.produce(change("u", rows[1], rows[2]))
        setup.run(ingestion)

        assert setup.table("shop", "orders") == [rows[2]]

    @pytest.mark.parametrize(
        ("value", "message", "member"),
        [
            (DebeziumJson(), change("c", None, {"id": 1}), "source.ts_ms"),
            (
                CanalJson(),
                {"data": [{"id": "1"}], "type": "INSERT", "database": "shop", "table": "orders", "pkNames": ["id"]},
                "es",
            ),
        ],
    )
    def test_a_message_without_a_time_that_orders_changes_is_one_that_cannot_be_read(
        self, setup: Setup, value: Any, message: Row, member: str
    ) -> None:
        strict, tolerant = (
            setup.ingestion(
                Memory(), setup.feed(value=value, distributed_tables=True, ignore_errors=ignores), transform=[KEYED]
            )
            for ignores in (False, True)
        )
        setup.produce(message)

        with pytest.raises(StreamingQueryException, match=rf"1 record cannot be read: .*offset 0: it has no {member}"):
            setup.run(strict, MemoryWriter())

        setup.run(tolerant, MemoryWriter())
        assert setup.state().counts == {"dirty": 1}


PLACEHOLDER = "__debezium_unavailable_value"


@pytest.mark.postgres
class TestValuesThatMessagesDoNotHave:
    """A change that does not touch a large value of Postgres (TOAST)."""

    RULE = Transform("shop.orders", projection="*, UPPER(text) AS loud, n + 1 AS next")
    VALUE = DebeziumJson(unavailable="keep")

    def ingestion(self, setup: Setup, sink: Sink, **parts: Any) -> Ingestion:
        defaults: dict[str, Any] = {
            "feed": setup.feed(value=self.VALUE), "transform": [self.RULE], "route": [Route("shop.orders", "public.t")],
        }  # fmt: skip
        return setup.ingestion(sink, **(defaults | parts))

    def produce(self, setup: Setup, *rows: Row) -> None:
        messages = (change("u", None, row) for row in rows)
        setup.kafka.produce(
            setup.topic, *(Record(json.dumps(m), json.dumps({"id": m["after"]["id"]})) for m in messages)
        )

    def run_twice(self, setup: Setup, ingestion: Ingestion) -> None:
        """In the second batch a value is missing that the table has, and one that is in the batch."""
        self.produce(setup, {"id": 1, "n": 1, "text": "a"}, {"id": 2, "n": 1, "text": "b"})
        setup.run(ingestion)
        self.produce(setup, {"id": 1, "n": 2, "text": PLACEHOLDER}, {"id": 2, "n": 2, "text": "c"},
                     {"id": 2, "n": 3, "text": PLACEHOLDER, "new": "x"})  # fmt: skip
        setup.run(ingestion)

    ROWS = (
        {"id": 1, "n": 2, "text": "a", "loud": "A", "next": 3, "new": None},
        {"id": 2, "n": 3, "text": "c", "loud": "C", "next": 4, "new": "x"},
    )  # fmt: skip

    def test_delta_keeps_them(self, setup: Setup) -> None:
        needs_delta()
        self.run_twice(setup, self.ingestion(setup, DeltaTables(setup.lake)))

        assert setup.table("public", "t") == [*self.ROWS]

    def test_postgres_keeps_them(self, setup: Setup, postgres: Postgres) -> None:
        table = f"k{setup.topic[-8:]}"
        sink = JdbcTables(postgres.url, username="kdsl", password=PASSWORD)
        self.run_twice(setup, self.ingestion(setup, sink, route=[Route("shop.orders", f"public.{table}")]))

        rows = postgres.execute(f"SELECT row_to_json(t) FROM {table} t ORDER BY id").splitlines()
        assert [json.loads(row) for row in rows] == [*self.ROWS]

    def test_they_may_become_null_which_is_counted(self, setup: Setup) -> None:
        writer = MemoryWriter()
        feed = setup.feed(value=DebeziumJson(unavailable="null"))
        self.run_twice_in_memory(setup, feed, writer)

        rows = writer.tables["public", "t"].rows()
        assert [(row["n"], row["text"]) for row in rows] == [(2, None), (3, None)]
        assert setup.state().counts == {"unavailable-values": 2}

    def run_twice_in_memory(self, setup: Setup, feed: KafkaFeed, writer: MemoryWriter) -> None:
        ingestion = self.ingestion(setup, Memory(), feed=feed)
        self.produce(setup, {"id": 1, "n": 1, "text": "a"}, {"id": 2, "n": 1, "text": "b"})
        setup.run(ingestion, writer)
        self.produce(setup, {"id": 1, "n": 2, "text": PLACEHOLDER}, {"id": 2, "n": 3, "text": PLACEHOLDER})
        setup.run(ingestion, writer)

    def test_by_default_the_batch_is_refused_before_anything_is_written(self, setup: Setup) -> None:
        writer, ignoring = MemoryWriter(), setup.feed(value=DebeziumJson(), ignore_errors=True)
        with pytest.raises(StreamingQueryException, match=r"offset 2: column 'text' has no value.*unavailable to keep"):
            self.run_twice_in_memory(setup, setup.feed(value=DebeziumJson()), writer)
        assert [row["n"] for row in writer.tables["public", "t"].rows()] == [1, 1]
        setup.run(self.ingestion(setup, Memory(), feed=ignoring), writer)
        assert setup.state().counts == {"dirty": 2}

    def test_a_filter_needs_them(self, setup: Setup) -> None:
        rule = Transform("shop.orders", filter="text <> 'x'", primary_keys=("id",))
        ingestion = self.ingestion(setup, Memory(), transform=[rule])
        row = {"id": 1, "n": 1, "text": "a"}
        setup.produce(change("u", row, {**row, "text": PLACEHOLDER}))
        with pytest.raises(StreamingQueryException, match=r"shop\.orders: the filter needs text, which a change"):
            setup.run(ingestion, MemoryWriter())

    def test_sinks_that_cannot_keep_them_are_a_problem(self, setup: Setup) -> None:
        (problem,) = self.ingestion(setup, Print()).problems()

        assert (problem.code, problem.where.path) == ("ingest-unavailable", "$.source.debezium-json.unavailable")


@pytest.mark.parametrize("sink", ["delta", pytest.param("kafka", marks=pytest.mark.reliability)])
def test_a_record_with_null_in_the_primary_key_is_one_that_cannot_be_read(
    setup: Setup, kdsl_topic: MakeTopic, sink: str
) -> None:
    """It only shows when the rows are written: tables that are written then have their rows once."""
    needs_delta()
    into: Sink = DeltaTables(setup.lake)
    if sink == "kafka":
        into = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=kdsl_topic(), **exactly_once(setup))
    rule = Transform("a", projection="*, UPPER(n) AS big", primary_keys=("id", "big"))
    value = Json(table_id_fields="t")
    setup.produce(
        {"t": "a", "id": 1, "n": "x"}, {"t": "a", "id": None, "n": "x", "more": 1}, {"t": "b", "id": 1},
        {"t": "a", "id": 2},
    )  # fmt: skip

    def run(**options: Any) -> None:
        feed = setup.feed(value=value, **options)
        setup.run(setup.ingestion(into, feed, transform=[rule], pipeline=Pipeline(sink_concurrency=1)))

    with pytest.raises(StreamingQueryException) as error:
        run()
    assert f"2 records cannot be read: topic {setup.topic}, partition 0, offset 1: " in str(error.value)
    assert "the table a, column `id`: it is NULL, and part of the primary key" in str(error.value)
    assert "the table a, column `big`: it is NULL" in str(error.value)
    with pytest.raises(StreamingQueryException, match="2 records could not be read, and at most 1 may"):
        run(ignore_errors=True, max_errors=1)
    run(ignore_errors=True)

    assert setup.state().counts == {"dirty": 2}
    if isinstance(into, KafkaTopics):
        messages = [json.loads(record.value() or b"") for record in setup.kafka.read(str(into.topic))]
        assert sorted(m["source"]["table"] for m in messages) == ["a", "b"]
        return
    assert [(row["id"], row["big"]) for row in setup.table("a")] == [(1, "X")]
    assert [row["id"] for row in setup.table("b")] == [1]
    assert [change.tag for _, change in setup.state().changes if change.table == ("b",)] == ["create.table"]


def exactly_once(setup: Setup) -> dict[str, Any]:
    return {"delivery": "exactly-once", "transactional_id_prefix": setup.topic}


@pytest.mark.parametrize("sink", ["memory", "kafka"])
def test_integers_that_a_double_does_not_hold_are_counted_once(
    setup: Setup, kdsl_topic: MakeTopic, caplog: pytest.LogCaptureFixture, sink: str
) -> None:
    into = Memory() if sink == "memory" else KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=kdsl_topic())
    routes = [INTO_T, Route(r"\.*", "lake.u")]
    ingestion = setup.ingestion(into, transform=[KEYED], route=routes)
    setup.produce({"id": 1, "n": 1.5}, {"id": 2, "n": 2**53 + 1}, {"id": 3, "n": 2**60 + 1}, {"id": 4, "n": 2**60})
    setup.run(ingestion, MemoryWriter() if sink == "memory" else None)
    setup.produce({"id": 5, "n": 2**53 + 1}, {"id": 6, "n": 7})
    setup.run(ingestion, MemoryWriter() if sink == "memory" else None)

    assert setup.state().counts == {"lossy-values": 3}
    warnings = [r.getMessage() for r in caplog.records if "lose digits" in r.getMessage()]
    assert [line.split(":")[0] for line in warnings] == [setup.topic]
    assert "'n'" in warnings[0]


class TestSinks:
    @pytest.mark.postgres
    @pytest.mark.parametrize("kind", ["delta", pytest.param("jdbc", marks=pytest.mark.reliability)])
    def test_an_older_checkpoint_is_refused_by_tables_that_are_ahead(
        self, setup: Setup, postgres: Postgres, kind: str
    ) -> None:
        needs_delta()
        table = f"a{setup.topic[-8:]}"
        sink = JdbcTables(postgres.url, username="kdsl", password=PASSWORD)
        ingestion = setup.ingestion(sink, transform=[KEYED], route=[Route(r"\.*", f"public.{table}")])
        if kind == "delta":
            ingestion = setup.ingestion(DeltaTables(setup.lake), transform=[KEYED], route=[INTO_T])
        setup.produce({"id": 1})
        setup.run(ingestion)
        shutil.copytree(setup.checkpoint, f"{setup.checkpoint}-copy")
        setup.produce({"id": 2})
        setup.run(ingestion)
        shutil.rmtree(setup.checkpoint)
        shutil.copytree(f"{setup.checkpoint}-copy", setup.checkpoint)
        setup.produce({"id": 3, "more": 1})

        with pytest.raises(StreamingQueryException, match=rf"(lake/lake/t|{table}).*batch 1"):
            setup.run(ingestion)
        if kind == "delta":
            assert [row["id"] for row in setup.table("lake", "t")] == [1, 2]
        else:
            assert postgres.execute(f"SELECT id FROM {table} ORDER BY id").split() == ["1", "2"]

    @pytest.mark.parametrize("prefetch", [0, 50])
    def test_columns_that_differ_in_letter_case_are_refused_with_the_records_of_both(
        self, setup: Setup, prefetch: int
    ) -> None:
        needs_delta()
        ingestion = setup.ingestion(DeltaTables(setup.lake), setup.feed(prefetch=prefetch), route=[INTO_T])
        setup.produce({"id": 1}, {"n": 1}, {"ID": 2})

        places = [rf"\([\w ]+ the record at topic {setup.topic}, partition 0, offset {offset}\)" for offset in (0, 2)]
        with pytest.raises(StreamingQueryException, match=rf"the columns 'id' {places[0]} and 'ID' {places[1]} apart"):
            setup.run(ingestion)
        assert setup.state().sinks == {}

    def test_a_delta_table_that_has_disappeared_is_not_created_again(self, setup: Setup) -> None:
        needs_delta()
        ingestion = setup.ingestion(DeltaTables(setup.lake), transform=[KEYED], route=[INTO_T])
        setup.produce({"id": 1})
        setup.run(ingestion)
        shutil.rmtree(f"{setup.lake}/lake/t")
        setup.produce({"id": 2})

        with pytest.raises(StreamingQueryException, match=r"lake\.t: the sink table is gone"):
            setup.run(ingestion)
        assert not Path(setup.lake, "lake/t").exists()

    @pytest.mark.postgres
    def test_a_column_that_has_disappeared_is_added_again_and_a_table_is_not(
        self, setup: Setup, postgres: Postgres, caplog: pytest.LogCaptureFixture
    ) -> None:
        table = f"g{setup.topic[-8:]}"
        sink = JdbcTables(postgres.url, username="kdsl", password=PASSWORD)
        ingestion = setup.ingestion(sink, transform=[KEYED], route=[Route(r"\.*", f"public.{table}")])
        setup.produce({"id": 1, "n": 5})
        setup.run(ingestion)
        postgres.execute(f"ALTER TABLE {table} DROP COLUMN n")
        setup.produce({"id": 2, "n": 6})
        setup.run(ingestion)

        assert postgres.execute(f"SELECT id, n FROM {table} ORDER BY id").splitlines() == ["1\t", "2\t6"]
        lost = f"public.{table}: the sink table has lost the column 'n', which is added again"
        assert [r.getMessage().split(";")[0] for r in caplog.records if "has lost" in r.getMessage()] == [lost]
        postgres.execute(f"DROP TABLE {table}")
        setup.produce({"id": 3})
        with pytest.raises(StreamingQueryException, match="the sink table is gone"):
            setup.run(ingestion)
        assert postgres.execute(f"SELECT to_regclass('{table}') IS NULL").strip() == "t"

    def test_a_message_that_is_too_large_for_kafka_fails_the_batch_with_its_topic(
        self, setup: Setup, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic()
        cluster = Cluster(setup.kafka.bootstrap_servers, properties={"max.request.size": "2000"})
        setup.produce({"id": 1}, {"id": 2, "text": "x" * 5000})
        ingestion = setup.ingestion(KafkaTopics(cluster, topic=topic), route=[INTO_T])

        with pytest.raises(StreamingQueryException, match=f"{topic}.*(larger|too large|max.request.size)"):
            setup.run(ingestion)
        assert setup.state().records == {(setup.topic,): 2}

    def test_schemas_that_were_lost_are_learned_again_only_if_that_is_wanted(self, setup: Setup) -> None:
        needs_delta()
        ingestion = setup.ingestion(DeltaTables(setup.lake), transform=[KEYED], route=[INTO_T])
        setup.produce({"id": 1, "n": "x", "day": "2024-01-01"})
        setup.run(ingestion)
        file = Path(setup.checkpoint, "kdsl/schemas/0.json")
        text = file.read_text()
        file.write_text(text[:100])
        file.with_name(".0.json.crc").unlink()
        setup.produce({"id": 2, "n": 5, "more": True})

        with pytest.raises(CheckpointError, match=r"schemas/0\.json is not complete.*--rebuild-schemas"):
            setup.run(ingestion)
        ingestion.run(setup.spark, setup.checkpoint, once=True, rebuild_schemas=True).awaitTermination()

        rows = setup.table("lake", "t")
        assert [(row["id"], row["n"], str(row["day"]), row["more"]) for row in rows] == [
            (1, "x", "2024-01-01", None), (2, "5", "None", True),
        ]  # fmt: skip
        assert setup.history() == ["add.column lake.t `more` BOOLEAN"]
        assert Path(setup.checkpoint, "kdsl/schemas-before-rebuild/0.json").read_text() == text[:100]


class TestLimits:
    def test_more_records_than_tolerated_fail_the_batch_each_time_and_are_counted_once(self, setup: Setup) -> None:
        writer = MemoryWriter()
        setup.produce({"id": 1}, "a", "b", "c")

        def run(max_errors: int, *, forgive: bool = False) -> None:
            feed = setup.feed(ignore_errors=True, max_errors=max_errors)
            ingestion = setup.ingestion(Memory(), feed, route=[INTO_T])
            query = ingestion.run(setup.spark, setup.checkpoint, once=True, writer=writer, forgive_errors=forgive)
            query.awaitTermination()

        for _ in range(2):
            with pytest.raises(StreamingQueryException, match="3 records could not be read, and at most 2 may"):
                run(2)
        assert (writer.appended, setup.state().counts) == ({}, {})
        run(3)
        assert (writer.appended["lake", "t"], setup.state().counts) == ([{"id": 1}], {"dirty": 3})
        setup.produce("d")
        with pytest.raises(StreamingQueryException, match="4 records could not be read"):
            run(3)
        run(3, forgive=True)
        assert setup.state().counts == {"dirty": 4, "forgiven": 3}

    def test_a_session_of_spark_connect_is_refused(self, setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(query_module, "is_connect", lambda _: True)

        with pytest.raises(KdslError, match="an ingestion needs a classic session"):
            setup.run(setup.ingestion(Memory()), MemoryWriter())


@pytest.fixture(
    params=["Europe/Berlin", *(pytest.param(z, marks=pytest.mark.reliability) for z in ("UTC", "Asia/Kolkata"))]
)
def zones(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Sets the time zone of the JVM, and another one of the session."""
    classic: Any = spark
    java = classic._jvm.java.util.TimeZone
    before, session = java.getDefault(), str(spark.conf.get("spark.sql.session.timeZone"))
    java.setDefault(java.getTimeZone(request.param))
    spark.conf.set("spark.sql.session.timeZone", "Australia/Lord_Howe")
    yield
    java.setDefault(before)
    spark.conf.set("spark.sql.session.timeZone", session)


@pytest.mark.usefixtures("zones")
def test_instants_do_not_depend_on_time_zones_and_expressions_have_that_of_the_pipeline(setup: Setup) -> None:
    needs_delta()
    instants = ["2024-03-10T07:30:00Z", "2024-03-31T01:30:00Z", "2024-11-03T05:30:00Z", "2024-11-03T06:30:00Z"]
    rule = Transform(r"\.*", projection="*, CAST(moment AS STRING) AS clock", primary_keys=("id",))
    ingestion = setup.ingestion(
        DeltaTables(setup.lake), transform=[rule], route=[INTO_T], pipeline=Pipeline(time_zone="America/New_York")
    )
    setup.produce(*({"id": i, "moment": instant} for i, instant in enumerate(instants)))
    setup.run(ingestion)

    rows = setup.table("lake", "t")
    seen = [datetime.fromtimestamp(row["moment"].timestamp(), UTC) for row in rows]
    assert seen == [datetime.fromisoformat(instant) for instant in instants]
    assert [row["clock"][:19] for row in rows] == [
        "2024-03-10 03:30:00", "2024-03-30 21:30:00", "2024-11-03 01:30:00", "2024-11-03 01:30:00",
    ]  # fmt: skip
