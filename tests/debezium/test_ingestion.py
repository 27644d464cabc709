"""A whole database through Debezium, Kafka and ingestions into Delta Lake and Postgres: the same rows."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from kdsl import Cluster
from kdsl.changelog import Changelog, delta, jdbc
from kdsl.ingest import DeltaTables, Ingestion, JdbcTables, KafkaFeed, Route, Sink
from kdsl.testing.running import RunningKafka
from kdsl_formats.cdc_json import DebeziumJson
from tests.changelog.tables import Applied, needs_delta
from tests.debezium.connect import ConnectWorker, json_converters, postgres_connector
from tests.debezium.record import wait_for
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN: Mapping[str, tuple[str, str]] = {
    "name": ("text", "'naïve ' || left(md5(random()::text), 10)"),
    "n": ("int", "floor(random() * 100)"),
    "score": ("double precision", "random()"),
    "flag": ("boolean", "random() < 0.5"),
    "doc": ("jsonb", "json_build_object('a', random(), 'b', NULL)"),
    "ref": ("uuid", "gen_random_uuid()"),
}
"""Columns whose values show their types: the type in Postgres, and SQL that makes a value."""
TYPED: Mapping[str, tuple[str, str]] = {
    "price": ("numeric(12,2)", "random() * 1e6"),
    "day": ("date", "'1500-01-01'::date + (random() * 300000)::int"),
    "clock": ("time", "'00:00'::time + random() * interval '86399 s'"),
    "at": ("timestamp", "'1500-01-01'::timestamp + random() * interval '900 years'"),
    "instant": ("timestamptz", "'1900-01-01Z'::timestamptz + random() * interval '200 y'"),
    "data": ("bytea", "decode(md5(random()::text), 'hex')"),
}
"""Columns whose types are in the schema of the messages."""


@attrs.define
class Database:
    """The source: the tables of the schema ``store``.

    Attributes:
        postgres: The server.
        rng: Chooses the changes.
        columns: SQL that makes a value, by table and column.
        ids: The ids of the rows, by table.
        last: The last id of any table.
    """

    postgres: Postgres
    rng: random.Random
    columns: dict[str, dict[str, str]] = attrs.field(factory=dict)
    ids: dict[str, set[int]] = attrs.field(factory=dict)
    last: int = 0

    def create(self, table: str, columns: Mapping[str, tuple[str, str]], *, full: bool) -> None:
        """Create a table with some rows."""
        kinds = ", ".join(f"{name} {kind}" for name, (kind, _) in columns.items())
        identity = "FULL" if full else "DEFAULT"
        self.postgres.execute(
            f"CREATE TABLE store.{table} (id bigint PRIMARY KEY, {kinds});"
            f"ALTER TABLE store.{table} REPLICA IDENTITY {identity}"
        )
        self.columns[table] = {name: value for name, (_, value) in columns.items()}
        self.ids[table] = set()
        self.change(table, 40)

    def new_id(self, table: str) -> int:
        """An id that no row had before."""
        self.last += 1
        self.ids[table].add(self.last)
        return self.last

    def change(self, table: str, count: int) -> None:
        """Insert, update and delete rows, and give some other keys; a transaction each."""
        columns = self.columns[table]
        values = ", ".join(f"CASE WHEN random() < 0.9 THEN {value} END" for value in columns.values())
        statements = []
        for _ in range(count):
            ids = sorted(self.ids[table])
            what, id_ = self.rng.random(), self.rng.choice(ids) if ids else 0
            if what < 0.4 or not ids:
                names = ", ".join(columns)
                statements.append(f"INSERT INTO store.{table} (id, {names}) SELECT {self.new_id(table)}, {values}")
            elif what < 0.7:
                names = ", ".join(columns)
                statements.append(f"UPDATE store.{table} SET ({names}) = ROW({values}) WHERE id = {id_}")
            elif what < 0.85:
                self.ids[table].remove(id_)
                statements.append(f"DELETE FROM store.{table} WHERE id = {id_}")
            else:
                self.ids[table].remove(id_)
                statements.append(f"UPDATE store.{table} SET id = {self.new_id(table)} WHERE id = {id_}")
        self.postgres.execute(";\n".join([*statements, ""]))

    def alter(self, table: str, *actions: str, **columns: str | None) -> None:
        """Alter a table.

        Args:
            table: The table.
            *actions: As in ``ALTER TABLE``.
            **columns: SQL that makes the values of columns that are new or have another type; None for one that goes.
        """
        for action in actions:
            self.postgres.execute(f"ALTER TABLE store.{table} {action}")
        for name, value in columns.items():
            if value is None:
                del self.columns[table][name]
            else:
                self.columns[table][name] = value

    def differences(self, schema: str) -> dict[str, str]:
        """The rows that only the source or only the copies in a schema have, by table."""
        result = {}
        for table, columns in self.columns.items():
            names = ", ".join(f'"{name}"::text' for name in ("id", *columns))
            source, copy = (f"SELECT {names} FROM {one}.{table}" for one in ("store", schema))
            result[table] = self.postgres.execute(f"({source} EXCEPT {copy}) UNION ALL ({copy} EXCEPT {source})")
            result[table] += self.postgres.execute(
                f"SELECT 'rows', count(*) FROM {schema}.{table} HAVING count(*) <> {len(self.ids[table])}"
            )
        return {table: text for table, text in result.items() if text}


@pytest.fixture
def publication(postgres: Postgres) -> Iterator[str]:
    """A publication of an empty schema ``store``, with the tables that it will have."""
    postgres.execute("DROP SCHEMA IF EXISTS store CASCADE; CREATE SCHEMA store")
    postgres.execute("CREATE PUBLICATION whole FOR TABLES IN SCHEMA store")
    yield "whole"
    postgres.execute("DROP PUBLICATION whole")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("full", [True, False], ids=["identity-full", "identity-default"])
@pytest.mark.parametrize("schemas", [True, False], ids=["schemas", "plain"])
def test_a_whole_database_is_copied(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    debezium: ConnectWorker,
    postgres: Postgres,
    publication: str,
    tmp_path: Path,
    schemas: bool,
    full: bool,
) -> None:
    """Inserts, updates, deletes, other keys, new tables, and ALTERs; events come twice after a kill of Connect."""
    needs_delta()
    name = f"whole-{int(schemas)}{int(full)}"
    copies = {"jdbc": f"{name}-copy".replace("-", "_"), "delta": f"{name}-delta".replace("-", "_")}
    columns = {**PLAIN, **TYPED} if schemas else dict(PLAIN)
    source = Database(postgres, random.Random(3))
    source.create("orders", columns, full=full)
    source.create("users", columns, full=full)
    settings = {
        **postgres_connector(name, postgres, r"store\..*"),
        **json_converters(schemas=schemas),
        "value.converter.replace.null.with.default": "false",
        "publication.name": publication,
        "publication.autocreate.mode": "disabled",
    }
    debezium.create(name, settings)

    feed = KafkaFeed(
        Cluster(kdsl_kafka.bootstrap_servers),
        topic_pattern=rf"{name}\.store\..*",
        value=DebeziumJson(schema_include=schemas),
        startup="earliest-offset",
        prefetch=0,
    )
    sinks: dict[str, Sink] = {
        "delta": DeltaTables(str(tmp_path / "lake")),
        "jdbc": JdbcTables(postgres.url, username="kdsl", password=PASSWORD),
    }

    def ingest_and_compare() -> None:
        for table in source.columns:
            id_ = source.new_id(table)
            postgres.execute(f"INSERT INTO store.{table} (id) VALUES ({id_})")
            wait_for(kdsl_kafka, debezium, name, f"{name}.store.{table}", id_)
        for kind, sink in sinks.items():
            route = Route(r"postgres.store.(\.*)", f"{copies[kind]}.$1")
            query = Ingestion(feed, sink, route=[route]).run(spark, str(tmp_path / kind), once=True)
            assert query.awaitTermination(600)
        load_delta(spark, postgres, tmp_path / "lake" / copies["delta"], copies, source)
        assert {copy: source.differences(copy) for copy in copies.values()} == {copy: {} for copy in copies.values()}

    ingest_and_compare()

    source.change("orders", 60)
    source.alter("orders", "ADD COLUMN note text", "ADD COLUMN grade int DEFAULT 7", note="random()::text", grade="5")
    postgres.execute("UPDATE store.orders SET grade = grade")  # which is how the rows with the default are sent
    source.change("orders", 60)
    debezium.wait_for_offsets(name)
    debezium.kill()
    source.change("users", 60)
    source.create("late", columns, full=full)
    debezium.run()
    ingest_and_compare()

    source.alter("users", "ALTER n TYPE bigint", n="(random() * 1e15)::bigint")
    source.alter("orders", "ALTER n TYPE text", "DROP COLUMN flag", n="'n' || random()", flag=None)
    if schemas:
        source.alter("orders", "ALTER price TYPE numeric(20,4)", price="random() * 1e12")
    for table in ("orders", "users", "late"):
        source.change(table, 80)
    ingest_and_compare()

    postgres.execute("DELETE FROM store.late")
    source.ids["late"].clear()
    source.change("users", 40)
    ingest_and_compare()
    debezium.delete(name)


def load_delta(
    spark: SparkSession, postgres: Postgres, lake: Path, copies: Mapping[str, str], source: Database
) -> None:
    """Bring the Delta tables into tables of the source's database that are like the copies there."""
    login: dict[str, Any] = {"user": "kdsl", "password": PASSWORD}
    schema = copies["delta"]
    postgres.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE; CREATE SCHEMA {schema}")
    for table in source.columns:
        postgres.execute(f"CREATE TABLE {schema}.{table} (LIKE {copies['jdbc']}.{table} INCLUDING ALL)")
        frame = Applied(delta(lake / table), spark).frame()
        Changelog(frame, keys=["id"]).apply_to(jdbc(postgres.url, f"{schema}.{table}", login))
