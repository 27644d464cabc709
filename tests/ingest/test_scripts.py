"""Copies of tables and databases in scripts, from a real Kafka into Delta Lake, Postgres and Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from kdsl.catalog.stored import Inference, read_stored
from kdsl.ddl.script_reader import read_script
from kdsl.deployment.compare import compare, make_changes
from kdsl.deployment.desired import BOTH
from kdsl.deployment.model import Step
from kdsl.errors import CheckpointError, KdslError
from kdsl.ingest import DeltaTables
from kdsl.ingest.run.query import SharedIngestion, start_ingestions
from kdsl.ingest.run.sinks.delta import DeltaWriter
from kdsl.ingest.state import StateFiles
from kdsl.load import declarations
from kdsl.run.checkpoint.folder import open_folder
from kdsl.scripts.planner import plan_script
from kdsl.scripts.run import RunOptions, ScriptError, run_script
from kdsl.scripts.script_plan import CopyJob
from kdsl.testing import LocalKafka, Record
from tests.changelog.tables import needs_delta
from tests.ingest.setup import Failing, Setup, change
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kdsl.testing.pytest_plugin import MakeTopic

PUBLISHED = Path(__file__).parents[1] / "ddl" / "data"
"""The examples of the documentation of a runtime with this statement, as they are printed there.

Source: https://www.alibabacloud.com/help/en/flink/developer-reference/kafka-connector (examples, in July 2026).
"""


class Script(Setup):
    """A script over a topic, with catalogs `shop` (Kafka) and `lake` (Delta Lake)."""

    def catalogs(self, options: str = "'format' = 'json', 'value.fields-prefix' = ''") -> str:
        servers = f"'properties.bootstrap.servers' = '{self.kafka.bootstrap_servers}'"
        return f"""CREATE CATALOG shop WITH ('type' = 'kafka', {servers}, {options});
            CREATE CATALOG lake WITH ('type' = 'delta', 'path' = '{self.lake}');"""

    def run_script(self, text: str) -> list[CopyJob]:
        """Run a script up to what there is now, with the checkpoint, and return its jobs."""
        stored = read_stored(open_folder(self.spark, self.checkpoint))
        inference = Inference(stored, location=self.checkpoint)
        plan = plan_script(read_script(text), checkpoint=self.checkpoint, inference=inference)
        run_script(plan, self.spark, RunOptions(once=True, checkpoint=self.checkpoint))
        return list(plan.copy_jobs)


@pytest.fixture
def script(kdsl_kafka: LocalKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path) -> Script:
    return Script(kdsl_kafka, kdsl_topic(), spark, tmp_path)


def without(name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != name} for row in rows]


def test_a_copy_of_a_catalog_s_table_gets_new_columns_after_a_restart(script: Script) -> None:
    needs_delta()
    text = f"""{script.catalogs()}
        CREATE TABLE lake.web.orders AS TABLE shop.kafka.`{script.topic}`
        ADD COLUMN (`day` AS CAST(`timestamp` AS DATE) AFTER `offset`, origin AS 'kafka' COMMENT 'where from' FIRST);"""
    script.produce({"id": 1, "n": 5}, {"id": 2, "n": 6})
    (job,) = script.run_script(text)
    rows = without("timestamp", script.table("web", "orders"))

    assert job.name == "copy-1-orders"
    assert list(script.table("web", "orders")[0]) == ["origin", "partition", "offset", "day", "timestamp", "id", "n"]
    assert [(row["origin"], row["offset"], row["id"], row["n"]) for row in rows] == [
        ("kafka", 0, 1, 5), ("kafka", 1, 2, 6),
    ]  # fmt: skip

    script.produce({"id": 3, "n": "seven", "note": "new"})
    script.run_script(text)  # CREATE TABLE without IF NOT EXISTS: the table is its own
    script.run_script(text)
    rows = script.table("web", "orders")

    assert [(row["offset"], row["id"], row["n"], row["note"]) for row in rows] == [
        (0, 1, "5", None), (1, 2, "6", None), (2, 3, "seven", "new"),
    ]  # fmt: skip
    state = StateFiles(open_folder(script.spark, f"{script.checkpoint}/copy-1-orders")).load()
    assert [str(change).partition(" (")[0] for _, change in state.changes][1:] == [
        "alter.column.type web.orders `n` BIGINT → STRING", "add.column web.orders `note` STRING",
    ]  # fmt: skip


def test_a_table_that_exists_is_only_filled_with_if_not_exists(script: Script, tmp_path: Path) -> None:
    needs_delta()
    text = f"{script.catalogs()} CREATE TABLE lake.web.orders AS TABLE shop.kafka.`{script.topic}`;"
    script.produce({"id": 1})
    script.run_script(text)
    script.checkpoint = str(tmp_path / "another")

    with pytest.raises(KdslError, match=r"the table web\.orders exists already; write CREATE TABLE IF NOT EXISTS"):
        script.run_script(text)
    script.run_script(text.replace("TABLE lake", "TABLE IF NOT EXISTS lake"))
    assert [row["id"] for row in script.table("web", "orders")] == [1]  # the place of a record is the primary key


def test_the_first_start_creates_what_apply_leaves_to_it(script: Script, tmp_path: Path) -> None:
    needs_delta()
    file = tmp_path / "script.sql"
    file.write_text(f"""{script.catalogs()}
        CREATE TABLE orders (id BIGINT) WITH ('connector' = 'kafka', 'topic' = '{script.topic}', 'format' = 'json',
          'properties.bootstrap.servers' = '{script.kafka.bootstrap_servers}', 'scan.startup.mode' = 'earliest-offset');
        CREATE TABLE lake.web.orders AS TABLE orders;""")
    script.produce({"id": 1})

    def compare_tables() -> list[Step]:
        steps = compare(declarations(str(file), BOTH, {}), spark=script.spark)
        return [step for step in steps if step.difference.kind == "table"]

    assert make_changes(compare_tables(), ()).done == ()
    script.run_script(file.read_text())
    assert [row["id"] for row in script.table("web", "orders")] == [1]

    (existing,) = compare_tables()  # the checkpoint is not declared, so that this would be a first start
    assert (existing.difference.mark, existing.run) == ("!", None)
    assert "write CREATE TABLE IF NOT EXISTS" in existing.difference.consequence


@pytest.mark.reliability
@pytest.mark.postgres
@pytest.mark.parametrize("kind", ["delta", pytest.param("jdbc", marks=pytest.mark.reliability)])
def test_an_existing_database_is_refused(script: Script, postgres: Postgres, tmp_path: Path, kind: str) -> None:
    if kind == "delta":
        needs_delta()
    database = f"d{script.topic[-8:]}"
    text = f"""{script.catalogs()}
        CREATE CATALOG pg WITH ('type' = 'jdbc', 'url' = '{postgres.url}', 'username' = 'kdsl',
          'password' = '{PASSWORD}');
        CREATE DATABASE {"lake" if kind == "delta" else "pg"}.{database} AS DATABASE shop.kafka
          INCLUDING TABLE '{script.topic}';"""
    script.produce({"id": 1})
    script.run_script(text)
    script.run_script(text)  # CREATE DATABASE without IF NOT EXISTS: the database is its own
    script.checkpoint = str(tmp_path / "another")

    with pytest.raises(KdslError, match=f"the database {database} exists already; write CREATE DATABASE IF NOT EXISTS"):
        script.run_script(text)
    script.run_script(text.replace("CREATE DATABASE", "CREATE DATABASE IF NOT EXISTS"))


def test_statements_of_a_set_read_their_topics_together(script: Script, kdsl_topic: MakeTopic) -> None:
    needs_delta()
    other = f"{script.topic}-other"
    script.kafka.create_topic(other)
    text = f"""{script.catalogs()} BEGIN STATEMENT SET;
        CREATE TABLE lake.one.orders AS TABLE shop.kafka.`{script.topic}` ADD COLUMN twice AS id * 2;
        CREATE TABLE lake.two.orders (PRIMARY KEY (id) NOT ENFORCED) AS TABLE shop.kafka.`{script.topic}`;
        CREATE DATABASE lake.all_of_it AS DATABASE shop.kafka INCLUDING TABLE '{script.topic}.*'
          EXCLUDING TABLE '.*-excluded'; END;"""
    script.produce({"id": 1, "n": 1}, {"id": 1, "n": 2})
    script.kafka.produce(other, '{"x": true}')
    jobs = script.run_script(text)

    assert [len(job.copies) for job in jobs] == [3]
    assert [row["twice"] for row in script.table("one", "orders")] == [2, 2]
    assert [(row["id"], row["n"]) for row in script.table("two", "orders")] == [(1, 2)]
    assert [row["n"] for row in script.table("all_of_it", script.topic)] == [1, 2]
    assert [row["x"] for row in script.table("all_of_it", other)] == [True]

    later = f"{script.topic}-later"
    script.kafka.create_topic(later)
    script.kafka.create_topic(f"{script.topic}-excluded", 1)
    script.kafka.produce(later, '{"y": 1}')
    script.kafka.produce(f"{script.topic}-excluded", "not json")
    script.produce({"id": 1, "n": 3, "more": "m"})
    script.run_script(text)

    assert [row["twice"] for row in script.table("one", "orders")] == [2, 2, 2]
    assert [(row["n"], row["more"]) for row in script.table("two", "orders")] == [(3, "m")]
    assert [row["n"] for row in script.table("all_of_it", script.topic)] == [1, 2, 3]
    assert [row["y"] for row in script.table("all_of_it", later)] == [1]

    with pytest.raises(CheckpointError, match="which would go on at the progress of the other"):
        script.run_script(text.replace("lake.two.orders", "lake.three.orders"))


@pytest.mark.reliability
def test_change_data_is_copied_with_the_key_of_its_messages(script: Script) -> None:
    needs_delta()
    options = "'format' = 'debezium-json', 'value.fields-prefix' = ''"
    text = f"""{script.catalogs(options)} BEGIN STATEMENT SET;
        CREATE TABLE lake.web.orders AS TABLE shop.kafka.`{script.topic}`;
        CREATE DATABASE lake.web_all AS DATABASE shop.kafka INCLUDING TABLE '{script.topic}'; END;"""
    key, row = '{"id": 1}', {"id": 1, "n": 1}
    messages = [change("c", None, row), change("u", row, {"id": 1, "n": 2}), change("c", None, {"id": 2, "n": 9})]
    keys = [key, key, '{"id": 2}']
    script.kafka.produce(script.topic, *(Record(json.dumps(m), key=k) for m, k in zip(messages, keys, strict=True)))
    script.run_script(text)
    script.kafka.produce(script.topic, Record(json.dumps(change("d", {"id": 2, "n": 9}, None)), key='{"id": 2}'))
    script.run_script(text)

    for path in (("web", "orders"), ("web_all", script.topic)):
        assert [(row["id"], row["n"], row["offset"]) for row in script.table(*path)] == [(1, 2, 1)]


def test_a_table_is_copied_into_another_topic(script: Script) -> None:
    text = f"""{script.catalogs("'format' = 'json'")}
        CREATE TABLE shop.kafka.`{script.topic}-copy` AS TABLE shop.kafka.`{script.topic}`
        ADD COLUMN twice AS value_id * 2;"""
    script.kafka.create_topic(f"{script.topic}-copy", 1)
    script.produce({"id": 1})
    script.run_script(text)
    script.produce({"id": 2, "more": [1]})
    script.run_script(text)

    rows = [json.loads(message.value() or b"") for message in script.kafka.read(f"{script.topic}-copy")]
    assert [(row["offset"], row["value_id"], row["twice"], row.get("value_more")) for row in rows] == [
        (0, 1, 2, None), (1, 2, 4, "[1]"),
    ]  # fmt: skip


@pytest.mark.reliability
def test_a_shared_batch_that_is_repeated_changes_nothing_twice(script: Script) -> None:
    needs_delta()
    names = ("one", "two")
    writers = {"two": Failing(DeltaWriter(DeltaTables(script.lake), 1), 1, "before the first table")}

    def run(failing: bool) -> None:
        parts = [
            SharedIngestion(script.ingestion(DeltaTables(script.lake), script.feed(table=name)), name,
                            writer=writers.get(name) if failing else None)
            for name in names
        ]  # fmt: skip
        start_ingestions(script.spark, parts, script.checkpoint, once=True).awaitTermination()

    script.produce({"id": 1})
    run(False)
    script.produce({"id": 2, "new": "n"})
    with pytest.raises(StreamingQueryException, match="gone"):
        run(True)
    assert [len(script.table(name)) for name in names] == [2, 1]
    run(False)

    for name in names:
        assert [(row["id"], row["new"]) for row in script.table(name)] == [(1, None), (2, "n")]
        changes = StateFiles(open_folder(script.spark, script.checkpoint), name).load().changes
        assert [(number, change.tag) for number, change in changes] == [(0, "create.table"), (1, "add.column")]


@pytest.mark.reliability
def test_copies_into_kafka_are_exactly_once(script: Script) -> None:
    copies = [f"{script.topic}-a", f"{script.topic}-b"]
    statements = "".join(
        f"""CREATE TABLE shop.kafka.`{copy}` WITH ('sink.delivery-guarantee' = 'exactly-once',
          'sink.transactional-id-prefix' = '{script.topic}') AS TABLE shop.kafka.`{script.topic}`;"""
        for copy in copies
    )
    text = f"{script.catalogs()} BEGIN STATEMENT SET; {statements} END;"
    for copy in copies:
        script.kafka.create_topic(copy)
    for number in (1, 2):
        script.produce({"id": number})
        (job,) = script.run_script(text)
        assert len(job.copies) == 2

    for copy in copies:
        assert [json.loads(message.value() or b"")["id"] for message in script.kafka.read(copy)] == [1, 2]


class TestPostgres:
    DECLARED = """CREATE TABLE orders (
          k INT, note STRING, p BIGINT NOT NULL METADATA FROM 'partition', o BIGINT NOT NULL METADATA FROM 'offset',
          loud AS UPPER(note), PRIMARY KEY (p, o) NOT ENFORCED
        ) WITH ('connector' = 'kafka', 'topic' = '{topic}', 'scan.startup.mode' = 'earliest-offset',
          'properties.bootstrap.servers' = '{servers}', 'key.format' = 'json', 'key.fields' = 'k',
          'value.fields-include' = 'EXCEPT_KEY', 'value.format' = 'json',
          'value.json.infer-schema.primitive-as-string' = 'false');"""

    def test_declared_columns_stay_and_others_follow(self, script: Script, postgres: Postgres) -> None:
        table = self.DECLARED.format(topic=script.topic, servers=script.kafka.bootstrap_servers)
        text = f"""{table} CREATE CATALOG pg WITH ('type' = 'jdbc', 'url' = '{postgres.url}', 'username' = 'kdsl',
              'password' = '{PASSWORD}');
            CREATE TABLE IF NOT EXISTS pg.scripts.declared AS TABLE orders
            ADD COLUMN very_loud AS CONCAT(loud, '!') AFTER loud;"""
        first = Record('{"note": "a", "n": 1, "o": "hidden"}', key='{"k": 7, "other": 1}')
        script.kafka.produce(script.topic, first)
        script.run_script(text)
        script.kafka.produce(script.topic, Record('{"note": "b", "n": 2.5, "day": "2024-02-29"}', key='{"k": 8}'))
        script.run_script(text)

        names = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'declared' "
        assert postgres.execute(f"{names} ORDER BY ordinal_position").splitlines() == [
            "k\tinteger", "note\ttext", "p\tbigint", "o\tbigint", "loud\ttext", "very_loud\ttext",
            "n\tdouble precision", "day\tdate",
        ]  # fmt: skip
        assert postgres.execute("SELECT * FROM scripts.declared ORDER BY o").splitlines() == [
            "7\ta\t0\t0\tA\tA!\t1\t", "8\tb\t0\t1\tB\tB!\t2.5\t2024-02-29",
        ]  # fmt: skip

    def test_a_declared_table_keeps_its_columns(self, script: Script, postgres: Postgres) -> None:
        table = self.DECLARED.format(topic=script.topic, servers=script.kafka.bootstrap_servers)
        table = table.replace(",\n          'value.json.infer-schema.primitive-as-string' = 'false'", "")
        table = table.replace("loud AS", "ts TIMESTAMP_LTZ(3) METADATA FROM 'timestamp', loud AS")
        text = f"""{table} CREATE CATALOG pg WITH ('type' = 'jdbc', 'url' = '{postgres.url}', 'username' = 'kdsl',
              'password' = '{PASSWORD}');
            CREATE TABLE pg.scripts.fixed AS TABLE orders;
            CREATE TABLE pg.scripts.more AS TABLE orders /*+ OPTIONS('scan.max.pre.fetch.records' = '5') */;"""
        script.kafka.produce(script.topic, Record('{"note": 1, "n": 1}', key='{"k": 7}'))
        script.run_script(text)
        columns = "SELECT column_name FROM information_schema.columns WHERE table_name = '{}' ORDER BY ordinal_position"
        declared = ["k", "note", "p", "o", "ts", "loud"]
        row = postgres.execute("SELECT k, note, p, o, ts IS NULL, loud FROM scripts.fixed").split()

        assert row == ["7", "1", "0", "0", "f", "1"]
        assert postgres.execute(columns.format("fixed")).split() == declared
        assert postgres.execute(columns.format("more")).split() == [*declared, "n"]

        script.kafka.produce(script.topic, Record('{"note": "b"}', key='{"k": "x"}'))
        with pytest.raises(
            ScriptError, match=r"1 record cannot be read.*'ingestion\.ignore-errors' = 'true' in OPTIONS"
        ):
            script.run_script(text)
        hint = "/*+ OPTIONS('ingestion.ignore-errors' = 'true') */"
        forgiving = text.replace("AS TABLE orders;", f"AS TABLE orders {hint};")
        script.run_script(forgiving.replace("'5')", "'5', 'ingestion.ignore-errors' = 'true')"))


class TestPublishedExamples:
    """The examples run with the brokers of the test, and Postgres in the place of Hologres."""

    def text(self, number: int, script: Script, postgres: Postgres) -> str:
        text = (PUBLISHED / f"000-example-{number}.sql").read_text(encoding="utf-8")
        text = text.replace("<yourKafkaBrokers>", script.kafka.bootstrap_servers)
        text = text.replace("kafka_evolution_demo", script.topic)
        postgres.execute("DROP DATABASE IF EXISTS kafka WITH (FORCE); CREATE DATABASE kafka;")
        return f"""CREATE CATALOG hologres WITH ('type' = 'hologres', 'endpoint' = '127.0.0.1:{postgres.port}',
            'username' = 'kdsl', 'password' = '{PASSWORD}');\n{text}"""

    def rows(self, postgres: Postgres, what: str = "*") -> list[str]:
        return postgres.execute(f"\\connect kafka\nSELECT {what} FROM sync_kafka ORDER BY 1, 2").splitlines()

    def test_table_schema_and_data(self, script: Script, postgres: Postgres) -> None:
        text = self.text(2, script, postgres)
        script.produce({"id": 101, "name": "VVP", "properties": {"owner": "Alibaba Cloud", "engine": "Flink"}})
        script.run_script(text)
        script.produce({"id": 102, "properties": {"owner": "other", "version": "12"}})
        script.run_script(text)

        columns = '"offset", part, id, name, "properties.owner", "properties.engine", "properties.version"'
        assert self.rows(postgres, columns) == [
            "0\t0\t101\tVVP\tAlibaba Cloud\tFlink\t", "1\t0\t102\t\tother\t\t12",
        ]  # fmt: skip

    @pytest.mark.reliability
    def test_columns_of_key_and_value(self, script: Script, postgres: Postgres) -> None:
        text = self.text(3, script, postgres).replace("`sync_kafka`(", "`sync_kafka`")
        script.kafka.produce(
            script.topic,
            Record('{"name": "a"}', key='{"id": 1}'),
            Record('{"name": "b", "more": 1}', key='{"id": 2, "other": 5}'),
        )
        script.run_script(text)

        assert self.rows(postgres) == ["1\ta", "2\tb"]

    @pytest.mark.reliability
    def test_computation(self, script: Script, postgres: Postgres) -> None:
        text = self.text(4, script, postgres).replace("`distinct_id` INT", "`key_key_id` INT, `distinct_id` INT")
        text = text.replace("'key_id'", "'key_key_id'")
        text = text.replace("'key.fields-prefix' =", "'value.fields-include' = 'EXCEPT_KEY', 'key.fields-prefix' =")
        script.kafka.produce(
            script.topic,
            Record('{"distinct_id": 1, "properties": {"order_id": "o-1"}}', key='{"key_id": 7}'),
            Record('{"distinct_id": 2, "properties": "{}"}', key='{"key_id": 8}'),
        )
        script.run_script(text)

        assert self.rows(postgres, "key_key_id, distinct_id, properties, date IS NULL, order_id") == [
            '7\t1\t{"order_id":"o-1"}\tf\to-1', "8\t2\t{}\tf\tdefault",
        ]  # fmt: skip

    def test_nested_data(self, script: Script, capfd: pytest.CaptureFixture[str]) -> None:
        text = (PUBLISHED / "000-example-5.sql").read_text(encoding="utf-8")
        text = text.replace("'properties.bootstrap.servers' = 'xxx'",
                            f"'properties.bootstrap.servers' = '{script.kafka.bootstrap_servers}'")  # fmt: skip
        text = text.replace("'xxx'", f"'{script.topic}'")
        script.produce({"id": 101, "name": "VVP", "properties": {"owner": "Alibaba Cloud", "engine": "Flink"}})
        script.run_script(f"""{text} CREATE TABLE shown (id STRING, owner STRING) WITH ('connector' = 'print');
            INSERT INTO shown SELECT id, properties.owner FROM kafka_source;""")

        assert "+I[101, Alibaba Cloud]" in capfd.readouterr().out
