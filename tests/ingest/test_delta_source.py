"""Ingestions from a Delta table: its rows once, and the changes of its change data feed as a stream."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from pyspark.errors import StreamingQueryException

from kdsl.changelog.delta_session import DeltaSession
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.cluster import Cluster
from kdsl.errors import ChangelogError, CheckpointError
from kdsl.ingest import DeltaChanges, DeltaTables, Ingestion, JdbcTables, KafkaTopics, Memory, Route, Sink, Transform
from kdsl.ingest.run.sinks import MemoryWriter, SinkWriter
from tests.changelog.tables import needs_delta
from tests.ingest.setup import Failing, Row, Setup
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kdsl.testing.pytest_plugin import MakeTopic

LONG = pytest.mark.reliability
KEYED = Transform("orders", primary_keys=("id",))
FEED = "delta.enableChangeDataFeed = true"
MAPPED = "delta.columnMapping.mode = 'name', delta.minReaderVersion = 2, delta.minWriterVersion = 5"


class Orders:
    """A Delta table with a change data feed, and ingestions of it."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.path = setup, f"{setup.lake}/shop/orders"

    def create(self, columns: str = "id BIGINT, n STRING", properties: str = FEED) -> None:
        self.sql(f"CREATE TABLE {{}} ({columns}) USING delta TBLPROPERTIES ({properties})")

    def sql(self, *statements: str) -> None:
        """Run statements, in which ``{}`` is the table."""
        opened = DeltaSession(self.setup.spark)
        with opened.active():
            for statement in statements:
                opened.sql(statement.format(f"delta.`{self.path}`"))

    def ingestion(self, sink: Sink | None = None, **options: Any) -> Ingestion:
        chosen: dict[str, Any] = {"change_feed": True, **options}
        return Ingestion(DeltaChanges(self.path, **chosen), sink or Memory(), transform=[KEYED])

    def run(self, ingestion: Ingestion, writer: SinkWriter | None = None) -> None:
        self.setup.run(ingestion, writer)


@pytest.fixture
def orders(setup: Setup) -> Orders:
    needs_delta()
    return Orders(setup)


def test_rows_are_copied_once_and_of_one_version(orders: Orders) -> None:
    orders.create("id BIGINT, n STRING, at TIMESTAMP_NTZ, l ARRAY<INT>")
    orders.sql("INSERT INTO {} VALUES (1, 'a', timestamp_ntz'2024-01-01 10:00:00', array(1)), (2, NULL, NULL, NULL)")
    ingestion, writer = orders.ingestion(change_feed=False), MemoryWriter()
    with pytest.raises(RuntimeError, match="gone"):
        ingestion.copy(orders.setup.spark, orders.setup.checkpoint, writer=Failing(writer, 0, "before the first table"))
    orders.sql("DELETE FROM {} WHERE id = 1")
    assert ingestion.copy(orders.setup.spark, orders.setup.checkpoint, writer=writer)
    assert not ingestion.copy(orders.setup.spark, orders.setup.checkpoint, writer=writer)

    assert [(row["id"], row["n"], row["l"]) for row in writer.tables["orders",].rows()] == [
        (1, "a", [1]),
        (2, None, None),
    ]
    assert orders.setup.state().progress == {"version": "1"}


class TestChanges:
    def test_current_rows_and_then_changes(self, orders: Orders) -> None:
        orders.create()
        orders.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b')")
        writer = MemoryWriter()
        orders.run(orders.ingestion(), writer)
        assert writer.tables["orders",].rows() == [{"id": 1, "n": "a"}, {"id": 2, "n": "b"}]

        orders.sql(
            "UPDATE {} SET n = 'z' WHERE id = 1", "DELETE FROM {} WHERE id = 2", "INSERT INTO {} VALUES (3, 'c')"
        )
        orders.sql("UPDATE {} SET n = 'y' WHERE id = 1")
        orders.run(orders.ingestion(), writer)
        assert writer.tables["orders",].rows() == [{"id": 1, "n": "y"}, {"id": 3, "n": "c"}]
        assert orders.setup.state().progress == {"version": "5"}
        orders.run(orders.ingestion(), writer)
        assert orders.setup.state().last == 1

    @pytest.mark.parametrize(
        ("start", "ids"),
        [pytest.param(None, [1, 2, 3], marks=LONG), ("latest", [3]), pytest.param("2", [2, 3], marks=LONG)],
    )
    def test_where_they_start(self, orders: Orders, start: str | None, ids: list[int]) -> None:
        orders.create()
        orders.sql("INSERT INTO {} VALUES (1, 'a')", "INSERT INTO {} VALUES (2, 'b')")
        writer = MemoryWriter()
        orders.run(orders.ingestion(starting_version=start), writer)
        orders.sql("INSERT INTO {} VALUES (3, 'c')")
        orders.run(orders.ingestion(starting_version=start), writer)

        assert [row["id"] for row in writer.tables["orders",].rows()] == ids

    def test_a_query_that_runs_follows_new_columns_and_wider_types(self, orders: Orders) -> None:
        orders.create("id BIGINT, n INT", f"{FEED}, delta.enableTypeWidening = true")
        orders.sql("INSERT INTO {} VALUES (1, 7)")
        writer = MemoryWriter()
        query = orders.ingestion().run(orders.setup.spark, orders.setup.checkpoint, writer=writer)
        try:
            query.processAllAvailable()
            orders.sql("ALTER TABLE {} ADD COLUMNS (more STRING)", "INSERT INTO {} VALUES (2, 8, 'x')")
            orders.sql("ALTER TABLE {} ALTER COLUMN n TYPE BIGINT", "UPDATE {} SET n = 5000000000 WHERE id = 1")
            query.processAllAvailable()
        finally:
            query.stop()

        assert writer.tables["orders",].rows() == [
            {"id": 1, "n": 5_000_000_000, "more": None}, {"id": 2, "n": 8, "more": "x"},
        ]  # fmt: skip
        changes = [str(change) for _, change in orders.setup.state().changes]
        assert changes == [
            "create.table orders `id` BIGINT NOT NULL, `n` INT",
            *(["add.column orders `more` STRING", "alter.column.type orders `n` INT → BIGINT"]
              if "add.column" in changes[1] else
              ["alter.column.type orders `n` INT → BIGINT", "add.column orders `more` STRING"]),
        ]  # fmt: skip

    def test_a_type_becomes_wider_while_a_batch_is_read(self, orders: Orders, monkeypatch: pytest.MonkeyPatch) -> None:
        orders.create("id BIGINT, n INT", f"{FEED}, delta.enableTypeWidening = true")
        orders.sql("INSERT INTO {} VALUES (1, 7)")
        writer, read = MemoryWriter(), DeltaTarget.read_changes

        def alter_and_read(target: DeltaTarget, *versions: Any, **options: Any) -> DataFrame:
            if not options["narrower"]:
                orders.sql("ALTER TABLE {} ALTER COLUMN n TYPE BIGINT")
            return read(target, *versions, **options)

        monkeypatch.setattr(DeltaTarget, "read_changes", alter_and_read)
        orders.run(orders.ingestion(starting_version="0"), writer)

        assert writer.tables["orders",].rows() == [{"id": 1, "n": 7}]

    @pytest.mark.reliability
    @pytest.mark.parametrize("max_versions", [pytest.param(1, marks=LONG), None])
    def test_a_column_that_is_renamed_is_a_new_one(self, orders: Orders, max_versions: int | None) -> None:
        orders.create(properties=f"{FEED}, {MAPPED}")
        orders.sql("INSERT INTO {} VALUES (1, 'a')")
        writer = MemoryWriter()
        orders.run(orders.ingestion(), writer)
        orders.sql("ALTER TABLE {} RENAME COLUMN n TO name")
        orders.run(orders.ingestion(), writer)
        orders.sql("INSERT INTO {} VALUES (2, 'b')", "ALTER TABLE {} DROP COLUMN name")
        orders.run(orders.ingestion(max_versions=max_versions), writer)

        assert [(row["id"], row["n"], row.get("name")) for row in writer.tables["orders",].rows()] == [
            (1, "a", None), (2, None, "b"),
        ]  # fmt: skip

    @pytest.mark.reliability
    def test_several_batches_of_a_few_versions(self, orders: Orders) -> None:
        orders.create()
        orders.sql(*(f"INSERT INTO {{}} VALUES ({i}, 'x')" for i in range(4)))
        writer = MemoryWriter()
        orders.run(orders.ingestion(starting_version="0", max_versions=2), writer)

        assert len(writer.tables["orders",].rows()) == 4
        assert orders.setup.state().last == 2

    @pytest.mark.reliability
    def test_rows_that_are_replaced_are_in_order(self, orders: Orders) -> None:
        """An overwriting commit removes and inserts rows of the same key."""
        orders.create()
        orders.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b')")
        orders.sql("INSERT OVERWRITE {} VALUES (1, 'new'), (3, 'c')")
        writer = MemoryWriter()
        orders.run(orders.ingestion(starting_version="1"), writer)

        assert writer.tables["orders",].rows() == [{"id": 1, "n": "new"}, {"id": 3, "n": "c"}]

    @pytest.mark.parametrize(
        ("point", "deletion_vectors"),
        [("before the first table", True), ("after all tables", False)],
    )
    @LONG
    def test_a_batch_that_is_repeated_is_written_once(self, orders: Orders, point: str, deletion_vectors: bool) -> None:
        orders.create(properties=f"{FEED}, delta.enableDeletionVectors = {str(deletion_vectors).lower()}")
        orders.sql("INSERT INTO {} VALUES (1, 'a'), (2, 'b')")
        sink = DeltaTables(f"{orders.setup.lake}/copy")
        ingestion = orders.ingestion(sink)
        orders.run(ingestion)
        orders.sql("UPDATE {} SET n = 'z' WHERE id = 1", "DELETE FROM {} WHERE id = 2")
        with pytest.raises(StreamingQueryException, match="gone"):
            orders.run(ingestion, Failing(sink.writer(1), 1, point))
        orders.sql("INSERT INTO {} VALUES (3, 'c')")
        orders.run(ingestion)

        assert orders.setup.table("copy", "orders") == [{"id": 1, "n": "z"}, {"id": 3, "n": "c"}]

    @pytest.mark.postgres
    @LONG
    def test_into_postgres(self, orders: Orders, postgres: Postgres) -> None:
        table = f"o{orders.setup.topic[-8:]}"
        orders.create("id BIGINT, n STRING, d DECIMAL(10, 2), at TIMESTAMP")
        orders.sql("INSERT INTO {} VALUES (1, 'a', 1.5, timestamp'2024-01-01 10:00:00Z'), (2, 'b', NULL, NULL)")
        sink = JdbcTables(postgres.url, username="kdsl", password=PASSWORD)
        source = DeltaChanges(orders.path, change_feed=True)
        ingestion = Ingestion(source, sink, transform=[KEYED], route=[Route("orders", f"public.{table}")])
        orders.run(ingestion)
        orders.sql("MERGE INTO {} t USING (SELECT * FROM VALUES (1, 'z'), (3, 'c') s(id, n)) s ON t.id = s.id "
                   "WHEN MATCHED THEN UPDATE SET n = s.n WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, s.n)",
                   "DELETE FROM {} WHERE id = 2")  # fmt: skip
        orders.run(ingestion)

        rows = postgres.execute(f"SET timezone = 'UTC'; SELECT * FROM {table} ORDER BY id").splitlines()
        assert rows == ["1\tz\t1.50\t2024-01-01 10:00:00+00", "3\tc\t\t"]


@pytest.mark.reliability
@pytest.mark.parametrize(
    ("delivery", "keyed"), [pytest.param("at-least-once", False, marks=LONG), ("exactly-once", True)]
)
def test_changes_are_messages_in_kafka(orders: Orders, kdsl_topic: MakeTopic, delivery: Any, keyed: bool) -> None:
    topic, setup = kdsl_topic(), orders.setup
    sink = KafkaTopics(Cluster(setup.kafka.bootstrap_servers), topic=topic, delivery=delivery,
                       transactional_id_prefix=topic if delivery == "exactly-once" else None)  # fmt: skip
    source = DeltaChanges(orders.path, change_feed=True, table="shop.orders", starting_version="0")
    rule = Transform("shop.orders", primary_keys=("id",) if keyed else (), filter="id < 10")
    ingestion = Ingestion(source, sink, transform=[rule])
    orders.create()
    orders.sql("INSERT INTO {} VALUES (1, 'a'), (12, 'never')")
    orders.run(ingestion)
    orders.sql("UPDATE {} SET n = 'b'", "UPDATE {} SET n = 'c'", "DELETE FROM {} WHERE id = 1")
    if delivery == "exactly-once":
        with pytest.raises(StreamingQueryException, match="gone"):
            orders.run(ingestion, Failing(sink.writer(1), 1, "after all tables"))
    orders.run(ingestion)

    messages = [json.loads(record.value() or b"") for record in setup.kafka.read(topic)]
    rows: list[Row] = [{"id": 1, "n": n} for n in "abc"]
    assert [(m["op"], m["before"], m["after"]) for m in messages] == [
        ("c", None, rows[0]), ("u", rows[0], rows[1]), ("u", rows[1], rows[2]), ("d", rows[2], None),
    ]  # fmt: skip
    assert {(m["source"]["db"], m["source"]["table"]) for m in messages} == {("shop", "orders")}


def test_what_cannot_be_read_is_an_error(orders: Orders) -> None:
    setup = orders.setup
    with pytest.raises(ChangelogError, match=r"there is no Delta table at '.*/shop/orders'"):
        orders.ingestion().run(setup.spark, setup.checkpoint)
    orders.create(properties="'a' = 'b'")
    with pytest.raises(ChangelogError, match=r"has no change data feed; turn it on with ALTER TABLE"):
        orders.ingestion().run(setup.spark, setup.checkpoint)
    orders.sql(f"ALTER TABLE {{}} SET TBLPROPERTIES ({FEED})")
    with pytest.raises(StreamingQueryException, match=r"cannot be read with[^\n]*DELTA_MISSING_CHANGE_DATA"):
        orders.run(orders.ingestion(starting_version="0"))
    assert setup.state().sinks == {}


def test_a_log_that_lacks_a_version_is_an_error(orders: Orders) -> None:
    orders.create()
    orders.sql(*(f"INSERT INTO {{}} VALUES ({i}, 'x')" for i in range(3)))
    (Path(orders.path) / "_delta_log" / f"{2:020}.json").unlink()
    target = DeltaTarget(orders.path, is_path=True, schema_evolution=True)

    with pytest.raises(ChangelogError, match=r"cannot be read with .*'startingVersion': '1'"):
        target.read_changes(orders.setup.spark, 1, 3)


@pytest.mark.reliability
def test_changes_that_delta_has_removed_before_they_were_read_are_an_error(orders: Orders) -> None:
    orders.create(properties=f"{FEED}, delta.checkpointInterval = 4")
    orders.sql("INSERT INTO {} VALUES (0, 'x')")
    writer = MemoryWriter()
    orders.run(orders.ingestion(), writer)
    orders.sql(*(f"INSERT INTO {{}} VALUES ({i}, 'x')" for i in range(1, 8)))
    log = Path(orders.path) / "_delta_log"
    assert (log / f"{8:020}.checkpoint.parquet").exists()
    for version in range(5):
        (log / f"{version:020}.json").unlink()
        for stale in (*log.glob(f"{version:020}.c*"), *log.glob(f".{version:020}.*")):
            stale.unlink()

    with pytest.raises(StreamingQueryException, match=r"at version 2: [^\n]*; if it was removed \(delta"):
        orders.run(orders.ingestion(), writer)
    assert len(writer.tables["orders",].rows()) == 1


def test_a_checkpoint_belongs_to_one_table(orders: Orders) -> None:
    orders.create()
    writer = MemoryWriter()
    orders.run(orders.ingestion(), writer)
    other = Orders(orders.setup)
    other.path = f"{orders.setup.lake}/other"
    other.create()

    with pytest.raises(CheckpointError, match=r"was written by an ingestion of another table, at '.*/shop/orders'"):
        other.run(other.ingestion(), writer)


def test_updates_without_a_key_need_one_in_other_sinks(orders: Orders) -> None:
    orders.create()
    orders.sql("INSERT INTO {} VALUES (1, 'a')", "UPDATE {} SET n = 'b'")
    ingestion = Ingestion(DeltaChanges(orders.path, change_feed=True, starting_version="0"), Memory())
    with pytest.raises(StreamingQueryException, match="a change -U needs a primary key"):
        orders.run(ingestion, MemoryWriter())


def test_the_id_of_a_table() -> None:
    assert DeltaChanges("/lake/shop/orders/").table_id == ("orders",)
    assert DeltaChanges("s3a://x/y", table="db.`a.b`").table_id == ("db", "a.b")
    problems = Ingestion(DeltaChanges("/x", table="a.b.c.d", max_versions=1), Memory()).problems()
    assert [(p.code, p.severity) for p in problems] == [("ingest-delta", "error"), ("ingest-delta", "warning")]


@pytest.mark.reliability
@pytest.mark.postgres
@pytest.mark.parametrize("change_feed", [True, pytest.param(False, marks=LONG)])
def test_a_string_that_postgres_does_not_store_is_an_error_until_it_is_replaced(
    orders: Orders, postgres: Postgres, change_feed: bool
) -> None:
    """Rows have no place in a topic, so that they cannot be left out as records that cannot be read."""
    table = f"u{orders.setup.topic[-8:]}"
    sink, route = JdbcTables(postgres.url, username="kdsl", password=PASSWORD), [Route(r"\.*", f"public.{table}")]
    orders.create()
    orders.sql(r"INSERT INTO {} VALUES (1, 'a'), (2, 'b\u0000'), (3, '\u0000')")
    ingestion = attrs.evolve(orders.ingestion(sink, change_feed=change_feed), route=route)

    def run(one: Ingestion) -> None:
        if change_feed:
            orders.run(one)
        else:
            assert one.copy(orders.setup.spark, orders.setup.checkpoint)

    fix = r"REPLACE\(`n`, U&'\\0000', ''\)"
    with pytest.raises((StreamingQueryException, ChangelogError), match=rf"'n' \(2 rows\); nothing of .*{fix}"):
        run(ingestion)
    assert postgres.execute(f"SELECT to_regclass('{table}') IS NULL").strip() == "t"
    replaced = Transform("orders", projection=r"*, REPLACE(n, U&'\0000', '') AS n", primary_keys=("id",))
    run(attrs.evolve(ingestion, transform=[replaced]))

    assert postgres.execute(f"SELECT id, n FROM {table} ORDER BY id").splitlines() == ["1\ta", "2\tb", "3\t"]
