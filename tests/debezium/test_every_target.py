"""A table of all kinds of columns through Debezium and Kafka into every kind of target, with kills: the same rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from confluent_kafka import Consumer, TopicPartition

from kdsl import load_sql
from kdsl.changelog import Changelog, delta, jdbc
from kdsl.changelog.dialects import BATCHES
from kdsl.testing.local_registry import LocalRegistry
from kdsl.testing.running import RunningKafka
from kdsl.types.spark import TIME_TYPE_SETTING
from tests.changelog.tables import Applied, needs_delta
from tests.debezium.connect import ConnectWorker, avro_converters, json_converters, postgres_connector
from tests.postgres import PASSWORD, Postgres
from tests.reliability import harness
from tests.reliability.harness import Checkpoint, Job, Kill, Point
from tests.reliability.test_upsert import CHANGED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PER_BATCH = 4000
ROWS, PARTS = 10_000, 5
"""The rows of the table when its snapshot is taken, and how many times each phase makes all kinds of changes."""
PLACEHOLDER = b"__debezium_unavailable_value"


@attrs.frozen
class Column:
    """A column of the source.

    Attributes:
        kind: Its type in Postgres, at the beginning.
        declared: Its type in the table of the topic.
        value: SQL that makes a random value.
        required: Whether it is NOT NULL.
        shown: SQL that makes values comparable, with ``{}`` for the column.
        filled: Whether no value is NULL; otherwise every tenth is, unless the column is required.
    """

    kind: str
    declared: str
    value: str
    required: bool = False
    shown: str = "{}"
    filled: bool = False

    @property
    def random(self) -> str:
        """SQL that makes a value, or NULL."""
        return self.value if self.required or self.filled else f"CASE WHEN random() < 0.9 THEN {self.value} END"


_LARGE = "random() < 0.05"  # more than 2 kB, which no compression makes smaller: out of line
COLUMNS: Mapping[str, Column] = {
    "a_smallint": Column("smallint", "INT", "floor(random() * 50)", required=True),
    "a_mood": Column("store.mood", "STRING", "(ARRAY['sad', 'happy'])[1 + floor(random() * 2)]::store.mood", True),
    "required": Column("numeric(6,3)", "DECIMAL(6, 3)", "random() * 900", required=True),
    "a_boolean": Column("boolean", "BOOLEAN", "random() < 0.5"),
    "an_integer": Column("integer", "BIGINT", "(random() - 0.5) * 4e9"),
    "a_bigint": Column("bigint", "BIGINT", "(random() - 0.5) * 1.8e19"),
    "a_real": Column("real", "FLOAT", "(random() - 0.5) * 1e10"),
    "a_double": Column("double precision", "DOUBLE", "(random() - 0.5) * power(10, random() * 600 - 300)"),
    "a_numeric_12_2": Column("numeric(12,2)", "DECIMAL(16, 2)", "(random() - 0.5) * 1e9"),
    "a_numeric_38_10": Column("numeric(38,10)", "DECIMAL(38, 10)", "(random() - 0.5)::numeric * 1e27"),
    "a_numeric": Column("numeric", "DECIMAL(38, 9)", "round(random()::numeric * 1e12, (random() * 9)::int)"),
    "a_money": Column("money", "DECIMAL(18, 2)", "((random() - 0.5) * 1e6)::numeric::money"),
    "a_char_5": Column("char(5)", "STRING", "left(md5(random()::text), 3)"),
    "a_varchar_20": Column("varchar(20)", "STRING", "'naïve ' || left(md5(random()::text), 10)"),
    "a_text": Column("text", "STRING", rf"E'\"line\"\nü ' || store.noise(CASE WHEN {_LARGE} THEN 90 ELSE 1 END)"),
    "a_bytea": Column("bytea", "BYTES", f"decode(store.noise(CASE WHEN {_LARGE} THEN 160 ELSE 1 END), 'hex')"),
    "a_json": Column("json", "STRING", "json_build_object('a', random(), 'b', NULL)", shown="{}::text"),
    "a_jsonb": Column(
        "jsonb", "STRING", f"jsonb_build_object('a', random(), 'b', store.noise(CASE WHEN {_LARGE} THEN 90 ELSE 1 END))"
    ),
    "a_date": Column("date", "DATE", "'0001-01-01'::date + (random() * 3000000)::int"),
    "a_time": Column("time", "TIME(6)", "'00:00'::time + random() * interval '86399 s'"),
    "a_time_3": Column("time(3)", "TIME(3)", "'00:00'::time + random() * interval '86399 s'"),
    "a_timetz": Column("timetz", "STRING", "('00:00'::time + random() * interval '86399 s') AT TIME ZONE 'UTC'"),
    "a_timestamp": Column("timestamp", "TIMESTAMP(6)", "'0001-01-01'::timestamp + random() * interval '9000 years'"),
    "a_timestamp_3": Column("timestamp(3)", "TIMESTAMP(3)", "'1900-01-01'::timestamp + random() * interval '200 y'"),
    "a_timestamptz": Column(
        "timestamptz", "TIMESTAMP_LTZ(6)", "'1900-01-01Z'::timestamptz + random() * interval '200 y'"
    ),
    "an_interval": Column(
        "interval", "STRING", "make_interval(1, 2, 0, (random() * 20)::int, 4, 5, round(random()::numeric, 6)::float8)",
        shown="{}::text",
    ),
    "a_uuid": Column("uuid", "STRING", "gen_random_uuid()"),
    "an_xml": Column("xml", "STRING", "xmlelement(name a, random()::text)", shown="{}::text"),
    "integers": Column("integer[]", "ARRAY<INT>", f"store.numbers(CASE WHEN {_LARGE} THEN 700 ELSE 2 END)"),
    "texts": Column("text[]", "ARRAY<STRING>", "ARRAY['a \"b\"', NULL, '', random()::text]"),
    "numerics": Column(
        "numeric(10,2)[]", "ARRAY<DECIMAL(10, 2)>", "ARRAY[random() * 1e6, NULL, -0.01]::numeric(10,2)[]"
    ),
    "instants": Column(
        "timestamptz[]", "ARRAY<STRING>", "ARRAY['1970-01-01Z'::timestamptz + random() * interval '90 y', NULL]"
    ),
    "an_inet": Column("inet", "STRING", "('192.0.2.' || floor(random() * 255))::inet"),
    "a_range": Column("int4range", "STRING", "int4range(0, (random() * 100)::int)"),
    "leaving": Column("integer", "INT", "random() * 1000"),
}  # fmt: skip
LARGE = {
    "a_text": "a_text || ''",
    "a_bytea": "a_bytea || ''",
    "a_jsonb": "a_jsonb || '{}'",
    "integers": "integers || '{}'",
}
"""The columns whose values may be out of line, and SQL that writes the same value anew."""
ADDED = {
    "added": Column("numeric(8,3)", "DECIMAL(8, 3)", "random() * 1e4"),
    "graded": Column("integer", "INT", "random() * 10", filled=True),  # Connect sends the default instead of NULL
}
NEW_ID = "nextval('store.ids')"

CONVERTERS = ("json", "json-with-schemas", "avro")
DEATHS: Sequence[tuple[Point, str]] = (
    (CHANGED, "delta"),
    (Point("kdsl.changelog.to_delta:DeltaTarget.apply", "after"), "delta"),
    (Point("kdsl.changelog.connection:Connection.run_transaction", "before"), "jdbc"),
    (harness.WRITTEN, "script/insert-1-copies"),
    (harness.BATCH_WRITTEN, "script/insert-2-sums"),
)
"""Where the driver dies in each phase, and the checkpoint whose batches count: while it keeps rows; with a batch in the
Delta table, and not noted as done; with staged rows; with rows in Kafka that are not noted as done, and with sums."""


@attrs.define
class Source:
    """The table ``store.things``, and what happens to it.

    Attributes:
        postgres: The server.
        identity: The table's REPLICA IDENTITY.
        columns: Its columns but the primary key ``id``.
        changed: How many rows were inserted, updated or deleted, or have got another key, since the snapshot.
        messages: How many messages these and the snapshot are, if each comes once.
    """

    postgres: Postgres
    identity: str
    columns: dict[str, Column] = attrs.field(factory=lambda: dict(COLUMNS))
    changed: int = 0
    messages: int = 0

    def create(self) -> None:
        """Create the table with some rows, and the functions that make values."""
        columns = ", ".join(f"{name} {c.kind}{' NOT NULL' * c.required}" for name, c in COLUMNS.items())
        self.postgres.execute(
            f"""
            DROP SCHEMA IF EXISTS store CASCADE;
            CREATE SCHEMA store;
            CREATE TYPE store.mood AS ENUM ('sad', 'happy');
            CREATE SEQUENCE store.ids;
            CREATE FUNCTION store.noise(length integer) RETURNS text VOLATILE LANGUAGE sql
                AS $$SELECT string_agg(md5(random()::text), '') FROM generate_series(1, length)$$;
            CREATE FUNCTION store.numbers(length integer) RETURNS integer[] VOLATILE LANGUAGE sql
                AS $$SELECT array_append(array_agg((random() * 2e9)::integer), NULL) FROM generate_series(1, length)$$;
            CREATE TABLE store.things (id bigint PRIMARY KEY, {columns});
            ALTER TABLE store.things REPLICA IDENTITY {self.identity};
            CREATE TABLE store.copies (LIKE store.things INCLUDING ALL);
            """
        )
        for name in LARGE:
            self.postgres.execute(f"ALTER TABLE store.things ALTER {name} SET STORAGE EXTERNAL")
        self.postgres.execute(self.insertion(ROWS))
        self.messages = ROWS

    def change(self) -> None:
        """Make all kinds of changes, several thousand, a transaction each."""
        columns = ", ".join(self.columns)
        random = ", ".join(c.random for c in self.columns.values())
        small = "a_boolean = NOT a_boolean, a_double = random(), a_varchar_20 = left(md5(random()::text), 12)"
        for part in range(PARTS):
            self.run(1, self.insertion(600))
            self.run(1, f"UPDATE store.things SET ({columns}) = ROW({random}) WHERE id % 10 = {part}")
            self.run(1, f"UPDATE store.things SET {small} WHERE id % 4 = {part % 4}")  # large values are left alone
            self.run(1, f"UPDATE store.things SET a_text = store.noise(90) WHERE id % 200 = {part}")
            self.run(3, self._move(f"id % 40 = {part}"))
            self.run(2, f"DELETE FROM store.things WHERE id % 20 = {part + 7}")

    def insertion(self, count: int) -> str:
        """A statement that inserts some rows."""
        random = ", ".join(c.random for c in self.columns.values())
        return (
            f"INSERT INTO store.things (id, {', '.join(self.columns)}) "
            f"SELECT {NEW_ID}, {random} FROM generate_series(1, {count})"
        )

    def _move(self, which: str) -> str:
        """A statement that gives rows other keys.

        Without the row before, Debezium does not have large values that it leaves alone, and no reader gets them.
        """
        rewritten = "" if self.identity == "FULL" else "".join(f", {name} = {same}" for name, same in LARGE.items())
        return f"UPDATE store.things SET id = {NEW_ID}{rewritten} WHERE {which}"

    def run(self, messages: int, statement: str) -> None:
        """Run a statement that changes rows.

        Args:
            messages: How many messages a changed row is.
            statement: The statement.
        """
        counted = f"WITH changed AS ({statement} RETURNING 1) SELECT count(*) FROM changed"
        count = int(self.postgres.execute(counted))
        assert count, statement
        self.changed += count
        self.messages += count * messages

    def alter(self, *actions: str, copies: bool = True) -> None:
        """Alter the table, or its copy as well."""
        for table in ("things", *["copies"] * copies):
            for action in actions:
                self.postgres.execute(f"ALTER TABLE store.{table} {action}")

    def add(self, name: str, default: str = "") -> None:
        """Add a column; one with a default has it in all rows, which are touched, for Debezium to send them."""
        self.alter(f"ADD COLUMN {name} {ADDED[name].kind} {default}")
        self.columns[name] = ADDED[name]
        if default:
            self.run(1, f"UPDATE store.things SET {name} = {name}")

    def widen(self) -> None:
        """Widen some columns."""
        kinds = {
            "a_smallint": "integer",
            "an_integer": "bigint",
            "a_numeric_12_2": "numeric(16,2)",
            "a_varchar_20": "varchar(200)",
        }
        self.alter(*(f"ALTER {name} TYPE {kind}" for name, kind in kinds.items()))
        self.columns["an_integer"] = attrs.evolve(COLUMNS["an_integer"], value="(random() - 0.5) * 4e12")
        self.columns["a_numeric_12_2"] = attrs.evolve(COLUMNS["a_numeric_12_2"], value="(random() - 0.5) * 1e13")
        self.columns["a_varchar_20"] = attrs.evolve(COLUMNS["a_varchar_20"], value="store.noise(3)")

    def drop(self, name: str) -> None:
        """Drop a column."""
        self.alter(f"DROP COLUMN {name}", copies=False)
        del self.columns[name]

    def differences(self, copy: str) -> dict[str, int]:
        """How many rows of a copy differ, by column; under ``id`` those that one of the tables has alone."""
        shown = {name: column.shown for name, column in self.columns.items()}
        counts = ", ".join(
            f"count(*) FILTER (WHERE {text.format(f's.{name}')} IS DISTINCT FROM {text.format(f'c.{name}')})"
            for name, text in shown.items()
        )
        result = self.postgres.execute(
            f"SELECT count(*) FILTER (WHERE s.id IS NULL OR c.id IS NULL), {counts} "
            f"FROM store.things s FULL JOIN {copy} c ON s.id = c.id"
        )
        numbers = dict(zip(["id", *shown], map(int, result.split("\t")), strict=True))
        return {name: number for name, number in numbers.items() if number}


@pytest.fixture
def time_type(spark: SparkSession) -> Iterator[None]:
    """Switches Spark's type for times of the day on."""
    spark.conf.set(TIME_TYPE_SETTING, "true")
    yield
    spark.conf.unset(TIME_TYPE_SETTING)


@pytest.fixture(scope="module")
def worker(kdsl_kafka: RunningKafka) -> Iterator[ConnectWorker]:
    """A Kafka Connect that seldom writes down how far it is."""
    with ConnectWorker(kdsl_kafka.bootstrap_servers, flush_interval_ms=5000) as worker:
        yield worker


@pytest.mark.reliability
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("time_type")
@pytest.mark.parametrize("identity", ["FULL", "DEFAULT"])
@pytest.mark.parametrize("converter", CONVERTERS)
def test_every_target_has_the_rows_of_the_source_through_kills_and_alters(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    worker: ConnectWorker,
    postgres: Postgres,
    registry: LocalRegistry,
    tmp_path: Path,
    converter: str,
    identity: str,
) -> None:
    """K10. A Delta table, one of Postgres, an upsert table, a snapshot and sums, of events that come twice."""
    needs_delta()
    name = f"every-{CONVERTERS.index(converter)}-{identity.lower()}"
    topic = f"{name}.store.things"
    source = Source(postgres, identity)
    source.create()
    job = driver(tmp_path, postgres)
    kdsl_kafka.create_topic(topic, partitions=2)
    kdsl_kafka.create_topic(f"{name}-copies", partitions=2)
    kdsl_kafka.create_topic(f"{name}-sums", partitions=2)
    worker.create(name, connector(name, postgres, converter, registry))

    for phase, (point, checkpoint) in enumerate(DEATHS):
        if phase == 1:
            source.add("added")
        elif phase == 2:
            source.widen()
        elif phase == 4:
            source.add("graded", "DEFAULT 7")
        write_script(job, source, name, converter, registry, kdsl_kafka)
        done = Checkpoint(job.folder / checkpoint).committed + 1
        running = job.start(Kill(point, committed=done + 2, checkpoint=checkpoint))
        try:
            sent = sum(kdsl_kafka.end_offsets(topic).values())
            source.change()
            if phase in (1, 3):
                wait_until(lambda: sum(kdsl_kafka.end_offsets(topic).values()) > sent + PER_BATCH, worker, name)  # noqa: B023
                worker.kill()
                if phase == 3:
                    source.drop("leaving")
                worker.run()
            life = running.wait(timeout=900)
        finally:
            running.kill()
        assert life.killed, f"it did not die in phase {phase}:\n{life.log[-6000:]}"
    source.run(2, "DELETE FROM store.things WHERE a_smallint = 13")  # a group without rows
    wait_until_sent(source, worker, name)
    sent = sum(kdsl_kafka.end_offsets(topic).values())
    lacking = count_messages(kdsl_kafka, topic, PLACEHOLDER)
    print(f"{source.changed} changes, {source.messages} messages, {sent} sent, {lacking} lack values")
    assert source.changed >= 100_000
    assert sent > source.messages, "no event came twice"
    assert bool(lacking) == (identity == "DEFAULT")

    job.trigger = {"availableNow": True}
    write_script(job, source, name, converter, registry, kdsl_kafka, per_batch=5 * PER_BATCH)
    life = job.run(timeout=1800)
    assert life.code == 0, life.log[-6000:]

    worker.delete(name)
    load_copies(spark, source, job)
    copies = ("copies", "delta_rows", "upserts", "snapshot")
    assert {copy: source.differences(f"store.{copy}") for copy in copies} == {copy: {} for copy in copies}
    for one, other in (("store.sums", f"({SUMS})"), (f"({SUMS})", "store.sums")):
        assert postgres.execute(f"SELECT * FROM {one} a EXCEPT SELECT * FROM {other} b") == ""
    assert postgres.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'kdsl%'").split() == [BATCHES]


SUMS = """
    SELECT a_smallint, count(*) AS many, count(a_text) AS texts, sum(an_integer) AS integers,
        sum(a_numeric_12_2) AS prices
    FROM store.things GROUP BY a_smallint
"""
"""What stands in the upsert table of sums, as Postgres works it out."""


def driver(folder: Path, postgres: Postgres) -> Job:
    """The program that reads the events into every target."""
    return Job(
        folder / "job",
        tables={},
        trigger=None,
        program=Path(__file__).parent / "jobs" / "every_target.py",
        environment={"KDSL_TEST_URL": postgres.url, "KDSL_TEST_PASSWORD": PASSWORD},
        spark={
            "spark.driver.memory": "1g",
            "spark.databricks.delta.snapshotPartitions": "2",
            TIME_TYPE_SETTING: "true",
        },
    )


def connector(name: str, postgres: Postgres, converter: str, registry: LocalRegistry) -> dict[str, str]:
    """The configuration of Debezium."""
    avro = converter == "avro"
    converters = avro_converters(registry.url) if avro else json_converters(schemas=converter == "json-with-schemas")
    return {
        **postgres_connector(name, postgres, "store.things"),
        **converters,
        "interval.handling.mode": "string",
    }


def write_script(
    job: Job,
    source: Source,
    name: str,
    converter: str,
    registry: LocalRegistry,
    kafka: RunningKafka,
    per_batch: int = PER_BATCH,
) -> None:
    """Write the script of the driver, whose tables have the columns that the source has now."""
    listed = ", ".join(f"{column} {c.declared}{' NOT NULL' * c.required}" for column, c in source.columns.items())
    servers = f"'properties.bootstrap.servers' = '{kafka.bootstrap_servers}'"
    json = {"decimal.handling.mode": "precise", "time.precision.mode": "adaptive"}
    if converter == "json-with-schemas":
        json["schema-include"] = "true"
    format_, options = (
        ("debezium-avro-confluent", {"url": registry.url}) if converter == "avro" else ("debezium-json", json)
    )
    if source.identity == "DEFAULT":
        options["unavailable"] = "null"  # an update comes again when its row is gone already
    settings = "".join(f", 'value.{format_}.{option}' = '{value}'" for option, value in options.items())
    upserts = f"'connector' = 'upsert-kafka', {servers}, 'key.format' = 'json', 'value.format' = 'json'"
    job.folder.mkdir(exist_ok=True)
    (job.folder / "script.sql").write_text(
        f"""
        CREATE TABLE things (id BIGINT, {listed}, PRIMARY KEY (id) NOT ENFORCED) WITH (
          'connector' = 'kafka', {servers}, 'topic' = '{name}.store.things', 'cdc-events-duplicate' = 'true',
          'scan.startup.mode' = 'earliest-offset', 'scan.changelog.state' = 'key',
          'scan.max-records-per-trigger' = '{per_batch}', 'value.format' = '{format_}'{settings});
        CREATE TABLE copies (id BIGINT, {listed}, PRIMARY KEY (id) NOT ENFORCED) WITH (
          {upserts}, 'topic' = '{name}-copies');
        CREATE TABLE sums (
          a_smallint INT, many BIGINT, texts BIGINT, integers BIGINT, prices DECIMAL(38, 2),
          PRIMARY KEY (a_smallint) NOT ENFORCED) WITH ({upserts}, 'topic' = '{name}-sums');
        INSERT INTO copies SELECT * FROM things;
        INSERT INTO sums SELECT a_smallint, COUNT(*), COUNT(a_text), SUM(an_integer), SUM(a_numeric_12_2)
          FROM things GROUP BY a_smallint;
        """,
        encoding="utf-8",
    )


def wait_until(condition: Callable[[], bool], worker: ConnectWorker, name: str) -> None:
    """Wait for a condition while a connector runs."""
    until = time.monotonic() + 900
    while not condition():
        assert worker.failure(name) is None, worker.failure(name)
        log = worker.data_dir / "connect.log"
        assert time.monotonic() < until, f"not within 900 s; the connector's log is {log}"
        time.sleep(0.1)


def wait_until_sent(source: Source, worker: ConnectWorker, name: str) -> None:
    """Wait until Kafka has the changes, and Debezium has confirmed them: all transactions but the last one."""
    position = source.postgres.execute("SELECT pg_current_wal_lsn()").strip()
    for _ in range(3):
        source.run(1, source.insertion(1))
    slot = name.replace("-", "_")
    query = f"SELECT confirmed_flush_lsn >= '{position}' FROM pg_replication_slots WHERE slot_name = '{slot}'"
    wait_until(lambda: source.postgres.execute(query).strip() == "t", worker, name)


def count_messages(kafka: RunningKafka, topic: str, part: bytes) -> int:
    """The messages of a topic whose value has some bytes."""
    ends = kafka.end_offsets(topic)
    consumer = Consumer({**kafka.client_properties, "group.id": "counting", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    left, results = sum(ends.values()), 0
    while left:
        for message in consumer.consume(1000, timeout=60):
            assert message.error() is None, message.error()
            left -= 1
            results += part in (message.value() or b"")
    consumer.close()
    return results


def load_copies(spark: SparkSession, source: Source, job: Job) -> None:
    """Bring what the targets hold into tables of the source's database, through the target that writes there."""
    postgres = source.postgres
    tables = {table.name: table for table in load_sql(job.folder / "script.sql")}
    login = {"user": "kdsl", "password": PASSWORD}
    frames: dict[str, DataFrame] = {
        "delta_rows": Applied(delta(job.folder / "things"), spark).frame().drop("leaving"),
        "upserts": tables["copies"].snapshot(spark),
        "snapshot": tables["things"].snapshot(spark),
    }
    for name, frame in frames.items():
        postgres.execute(f"CREATE TABLE store.{name} (LIKE store.things INCLUDING ALL)")
        Changelog(frame, keys=["id"]).apply_to(jdbc(postgres.url, f"store.{name}", login))
    postgres.execute(f"CREATE TABLE store.sums AS {SUMS} LIMIT 0; ALTER TABLE store.sums ADD PRIMARY KEY (a_smallint)")
    Changelog(tables["sums"].snapshot(spark), keys=["a_smallint"]).apply_to(jdbc(postgres.url, "store.sums", login))
