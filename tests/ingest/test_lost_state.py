"""A lost state, a sink table that is gone or another one, and another sink are never taken for a first start."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
from pyspark.errors import StreamingQueryException

from kdsl.changelog.delta_session import DeltaSession
from kdsl.cluster import Cluster
from kdsl.errors import CheckpointError
from kdsl.ingest import DeltaTables, Ingestion, JdbcTables, KafkaFeed, KafkaTopics, Memory, Route, Sink, Transform
from kdsl.ingest.learned import COPY_FILE
from kdsl.ingest.plan import IngestPlan, plan_ingestion
from kdsl.ingest.restart import check_restart, write_declaration
from kdsl.ingest.run.sinks import MemoryWriter
from kdsl.ingest.run.snapshot import identify_copy
from kdsl.ingest.state import SCHEMAS, STARTED, IngestState, Note, StateFiles, add_started, read_started
from kdsl.run.checkpoint.driver import CurrentDriver
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.spark_internals.session import jvm_of
from kdsl_formats.json import Json
from tests.changelog.tables import needs_delta
from tests.ingest.setup import Setup
from tests.ingest.test_decision import Run, delta, plan, show
from tests.postgres import PASSWORD, Postgres

INTO_T = Route(r"\.*", "lake.t")
KEYED = Transform(r"\.*", primary_keys=("id",))


def run_again(setup: Setup, ingestion: Ingestion, writer: Any = None, **how: Any) -> None:
    ingestion.run(setup.spark, setup.checkpoint, once=True, writer=writer, **how).awaitTermination()


@pytest.mark.spark
@pytest.mark.kafka
class TestState:
    @pytest.mark.parametrize("lost", ["kdsl/schemas", "kdsl"])
    def test_of_tables_is_learned_again_only_if_that_is_wanted(self, setup: Setup, lost: str) -> None:
        writer = MemoryWriter()
        ingestion = setup.ingestion(Memory(), setup.feed(ignore_errors=True, max_errors=1))
        setup.produce({"id": 1, "n": "x"}, "no json")
        setup.run(ingestion, writer)
        shutil.rmtree(f"{setup.checkpoint}/{lost}")
        setup.produce({"id": 2})

        with pytest.raises(CheckpointError, match=r"kdsl/schemas is missing, but .*offsets has batch 0: .*lost") as e:
            setup.run(ingestion, writer)
        assert "start once with --rebuild-schemas (rebuild_schemas=True)" in str(e.value)
        run_again(setup, ingestion, writer, rebuild_schemas=True)

        assert [row["id"] for row in next(iter(writer.appended.values()))] == [1, 2]
        setup.produce({"id": 3})
        setup.run(ingestion, writer)
        assert setup.state().records == {next(iter(writer.appended)): 2}

    def test_without_the_offsets_of_spark_is_refused(self, setup: Setup) -> None:
        writer = MemoryWriter()
        ingestion = setup.ingestion(Memory())
        setup.produce({"id": 1})
        setup.run(ingestion, writer)
        for lost in ("offsets", "commits"):
            shutil.rmtree(f"{setup.checkpoint}/{lost}")

        with pytest.raises(CheckpointError, match=r"has batch 0, but the offset log is missing .*read again"):
            setup.run(ingestion, writer)
        shutil.rmtree(f"{setup.checkpoint}/kdsl/schemas")  # the file of the ingestions is there
        with pytest.raises(CheckpointError, match="says that the ingestion has started"):
            setup.run(ingestion, writer)


def test_the_names_of_ingestions_are_added(tmp_path: Path) -> None:
    folder = open_local_folder(tmp_path)
    assert read_started(folder) is None

    for name in ("b", "a", "b"):
        add_started(folder, name)

    assert read_started(folder) == frozenset("ab")
    folder.write(STARTED, "{")
    with pytest.raises(CheckpointError, match=r"ingestions\.json, .* is damaged; restore it"):
        read_started(folder)


def test_identities_of_tables_are_kept(tmp_path: Path) -> None:
    files, table = StateFiles(open_local_folder(tmp_path)), ("shop", "orders")
    state = files.write(Note(0, identities={table: "one"}), IngestState())

    files.write(Note(1, identities={table: "two"}), state)

    assert files.load().identities == {table: "two"}
    assert files.load(1).identities == {table: "one"}


def test_identities_of_tables_are_found_where_other_files_are_damaged(tmp_path: Path) -> None:
    folder, tables = open_local_folder(tmp_path), [("shop", "orders"), ("shop", "users")]
    files, state = StateFiles(folder), IngestState()
    for number, table in enumerate(tables):
        state = files.write(Note(number, counts={"x": 1}, identities={table: str(number)}), state)
    files.write(Note(2, identities={tables[1]: "2"}), state)
    folder.write(f"{SCHEMAS}/1.json", "{")

    assert files.find_identities() == {tables[0]: "0", tables[1]: "2"}


@pytest.mark.spark
@pytest.mark.kafka
class TestDelta:
    def fill(self, setup: Setup) -> Ingestion:
        needs_delta()
        ingestion = setup.ingestion(DeltaTables(setup.lake), transform=[KEYED], route=[INTO_T])
        setup.produce({"id": 1})
        setup.run(ingestion)
        return ingestion

    def ids(self, setup: Setup) -> list[int]:
        return [row["id"] for row in setup.table("lake", "t")]

    @pytest.mark.reliability
    def test_a_table_that_goes_while_the_query_runs_is_not_created_again(self, setup: Setup, tmp_path: Path) -> None:
        needs_delta()
        table, copy = Path(setup.lake, "lake", "t"), tmp_path / "copy"
        ingestion = setup.ingestion(DeltaTables(setup.lake), transform=[KEYED], route=[INTO_T])
        setup.produce({"id": 1})
        query = ingestion.run(setup.spark, setup.checkpoint)
        try:
            query.processAllAvailable()
            shutil.move(table, copy)
            setup.produce({"id": 2})
            with pytest.raises(StreamingQueryException, match="is gone, and the rows of earlier batches are lost"):
                query.processAllAvailable()
        finally:
            query.stop()
        assert not table.exists()
        with pytest.raises(StreamingQueryException, match=r"the sink table is gone, .*; restore it, or start with a"):
            setup.run(ingestion)

        shutil.move(copy, table)
        setup.run(ingestion)
        assert self.ids(setup) == [1, 2]

    def test_a_table_that_goes_between_two_runs_is_created_again_if_that_is_accepted(self, setup: Setup) -> None:
        ingestion = self.fill(setup)
        shutil.rmtree(f"{setup.lake}/lake/t")
        setup.produce({"id": 2})

        with pytest.raises(StreamingQueryException, match=r"the sink table is gone, .*start once with --allow sink"):
            setup.run(ingestion)
        run_again(setup, ingestion, allow=["sink"])
        setup.produce({"id": 3})
        setup.run(ingestion)

        assert self.ids(setup) == [2, 3]

    @pytest.mark.parametrize(
        ("how", "reason"),
        [
            ("restored", r"taken back by version 3 \(RESTORE"),
            pytest.param("an older copy", "has batch 0, and no later one, of the", marks=pytest.mark.reliability),
        ],
    )
    def test_a_table_that_was_set_back_is_refused_until_that_is_accepted(
        self, setup: Setup, tmp_path: Path, how: str, reason: str
    ) -> None:
        ingestion = self.fill(setup)
        table, session = f"{setup.lake}/lake/t", DeltaSession(setup.spark)
        shutil.copytree(table, tmp_path / "copy")
        setup.produce({"id": 2})
        setup.run(ingestion)
        with session.active():
            if how == "restored":
                session.sql(f"RESTORE TABLE delta.`{table}` TO VERSION AS OF 1")
            else:
                shutil.rmtree(table)
                shutil.move(tmp_path / "copy", table)
                jvm_of(setup.spark).org.apache.spark.sql.delta.DeltaLog.clearCache()  # as in another process
        setup.produce({"id": 3})

        with pytest.raises(StreamingQueryException, match=f"{reason}.*--allow sink"):
            setup.run(ingestion)
        assert self.ids(setup) == [1]
        run_again(setup, ingestion, allow=["sink"])
        setup.produce({"id": 4})
        setup.run(ingestion)
        assert self.ids(setup) == [1, 3, 4]

    @pytest.mark.reliability
    def test_another_table_of_the_name_is_refused(self, setup: Setup, caplog: pytest.LogCaptureFixture) -> None:
        ingestion = self.fill(setup)
        other = Setup(setup.kafka, setup.topic, setup.spark, Path(setup.checkpoint).parent / "other")
        shutil.rmtree(f"{setup.lake}/lake/t")
        other.lake = setup.lake
        other.run(ingestion)  # creates it again, with the first row
        setup.produce({"id": 2})

        with pytest.raises(StreamingQueryException, match="the sink table was dropped and created again: its id was"):
            setup.run(ingestion)
        assert setup.state().last == 0  # before anything is noted
        query = ingestion.run(setup.spark, setup.checkpoint, once=True, rebuild_schemas=True)
        with pytest.raises(StreamingQueryException, match="the sink table was dropped and created again: its id was"):
            query.awaitTermination()
        shutil.move(f"{setup.lake}/lake/t", f"{setup.lake}/lake/other")
        with pytest.raises(StreamingQueryException, match="the sink table is gone, and the rows of earlier batches"):
            setup.run(ingestion)
        shutil.move(f"{setup.lake}/lake/other", f"{setup.lake}/lake/t")
        run_again(setup, ingestion, allow=["sink"])

        assert self.ids(setup) == [1, 2]
        assert "was dropped and created again" in caplog.text
        setup.produce({"id": 3})
        setup.run(ingestion)
        assert self.ids(setup) == [1, 2, 3]


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.postgres
def test_another_table_of_a_database_is_refused(setup: Setup, postgres: Postgres) -> None:
    table = f"t{setup.topic[-8:]}"
    sink = JdbcTables(postgres.url, username="kdsl", password=PASSWORD)
    ingestion = setup.ingestion(sink, transform=[KEYED], route=[Route(r"\.*", f"public.{table}")])
    setup.produce({"id": 1})
    query = ingestion.run(setup.spark, setup.checkpoint)
    try:
        query.processAllAvailable()
        postgres.execute(f"DROP TABLE {table}; CREATE TABLE {table} (id bigint PRIMARY KEY)")
        setup.produce({"id": 2})
        with pytest.raises(StreamingQueryException, match="was dropped and created again: its id was"):
            query.processAllAvailable()
    finally:
        query.stop()
    with pytest.raises(StreamingQueryException, match="the sink table was dropped and created again"):
        setup.run(ingestion)
    assert postgres.execute(f"SELECT count(*) FROM {table}").strip() == "0"

    run_again(setup, ingestion, allow=["sink"])
    assert postgres.execute(f"SELECT id FROM {table}").strip() == "2"


@pytest.mark.spark
@pytest.mark.kafka
def test_another_topic_of_the_name_is_refused(setup: Setup) -> None:
    topic = setup.kafka.create_topic(f"{setup.topic}-into")
    ingestion = setup.ingestion(KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=topic))
    setup.produce({"id": 1})
    setup.run(ingestion)
    setup.kafka.delete_topic(topic)
    setup.kafka.create_topic(topic)
    setup.produce({"id": 2})

    with pytest.raises(StreamingQueryException, match="the sink table was dropped and created again: its id was"):
        setup.run(ingestion)
    assert setup.kafka.read(topic) == []
    run_again(setup, ingestion, allow=["sink"])
    setup.produce({"id": 3})
    setup.run(ingestion)

    assert [json.loads(message.value() or b"")["after"]["id"] for message in setup.kafka.read(topic)] == [2, 3]


class Lake(Sink):
    """A sink of another package, which says where it is in the same words as `Sea`."""

    type: ClassVar[str] = "lake"

    def locate(self) -> Mapping[str, Any]:
        return {"path": "/water"}


class Sea(Lake):
    type: ClassVar[str] = "sea"


def plan_for(sink: Sink) -> IngestPlan:
    return attrs.evolve(plan(), sink=sink, location=sink.locate())


def kafka_plan(servers: str = "one:9092,two:9092", **options: Any) -> IngestPlan:
    return plan_for(KafkaTopics(Cluster(servers), **options))


def database_plan(address: str) -> IngestPlan:
    feed = KafkaFeed(Cluster("x:1"), topic=("t",), value=Json())
    return plan_ingestion(Ingestion(feed, JdbcTables(f"jdbc:{address}")))


def write_batch(planned: IngestPlan) -> IngestState:
    run = Run(planned)
    run.batch(show(delta(0, id="BIGINT", name="STRING")))
    return run.state.add(Note(0, declared=write_declaration(planned)))


@pytest.mark.parametrize(
    ("before", "after", "named"),
    [
        (kafka_plan(topic="a"), kafka_plan(topic="b"), '"topic": "b"'),
        (kafka_plan(), kafka_plan("three:9092"), "three:9092"),
        (kafka_plan(), kafka_plan(mapping="t:other"), "t:other"),
        (plan_for(DeltaTables("/lake")), plan_for(DeltaTables("/sea")), "/sea"),
        (
            plan_for(JdbcTables("jdbc:postgresql://a/b?user=me")),
            plan_for(JdbcTables("jdbc:postgresql://a/c?user=me")),
            "jdbc:postgresql://a/c",
        ),
        (database_plan("postgresql://a/b?password=HUSH"), database_plan("postgresql://a/c?password=HUSH"), "a/c"),
        (database_plan("postgresql://me:HUSH@a/b"), database_plan("postgresql://me:HUSH@c/b"), "c/b"),
        (plan_for(DeltaTables("/lake")), kafka_plan(), "one:9092"),
        (plan_for(Lake()), plan_for(Sea()), '"type": "sea"'),
    ],
)
def test_another_sink_is_refused_unless_it_is_allowed(before: IngestPlan, after: IngestPlan, named: str) -> None:
    state = write_batch(before)

    with pytest.raises(CheckpointError, match="was written with another sink") as e:
        check_restart(after, state, (), "c")
    assert named in str(e.value)
    assert "HUSH" not in str(e.value)
    assert "--allow sink" in str(e.value)
    with pytest.raises(CheckpointError) as in_script:
        check_restart(after, state, None, "c")
    assert "--allow" not in str(in_script.value)
    check_restart(after, state, ["sink"], "c")


@pytest.mark.parametrize(
    ("one", "other"), [("a/b?password=x", "a/b?password=y"), ("me:x@a/b", "me:y@a/b"), ("me:x@a/b", "a/b")]
)
def test_another_login_is_the_same_sink(one: str, other: str) -> None:
    state = write_batch(database_plan(f"postgresql://{one}"))

    check_restart(database_plan(f"postgresql://{other}"), state, (), "c")


def test_more_brokers_of_a_cluster_are_the_same_sink() -> None:
    state = write_batch(kafka_plan(topic="a"))

    check_restart(kafka_plan("two:9092,three:9092", topic="a"), state, (), "c")


@pytest.mark.parametrize("text", [None, "", '{"id": "a"}'])
def test_a_copy_whose_note_is_lost_is_refused(tmp_path: Path, text: str | None) -> None:
    folder = open_local_folder(tmp_path)
    first = identify_copy(folder)
    assert identify_copy(folder) == first  # nobody has used the checkpoint
    CurrentDriver(folder).take_over()
    assert identify_copy(folder) == first

    folder.remove(COPY_FILE)
    if text is not None:
        folder.write(COPY_FILE, text)
    with pytest.raises(CheckpointError, match=r"snapshot\.json is .*restore it from a copy .*new checkpoint"):
        identify_copy(folder)
