"""The sinks of the ingestions, and readers of what is in them that do not share code with kdsl's writers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from uuid import uuid4

import attrs

from kdsl.cluster import Cluster
from kdsl.formats import Format
from kdsl.ingest import DeltaTables, JdbcTables, KafkaTopics, Memory, Sink
from kdsl.ingest.run.sinks import MemoryWriter, SinkWriter
from kdsl.testing import RunningKafka
from kdsl_formats.cdc_json import CanalJson, DebeziumJson
from kdsl_formats.json import Json
from tests.postgres import Postgres
from tests.reliability.differential.generator import Wire, World
from tests.reliability.differential.model import Spelled
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Rows = list[dict[str, Any]]
PASSWORD_VARIABLE = "KDSL_TEST_PASSWORD"
"""The environment variable with the password of the database."""
FORMATS: Mapping[str, type[Format]] = {"debezium-json": DebeziumJson, "canal-json": CanalJson, "json": Json}


class Target(Protocol):
    """A sink whose tables can be read."""

    def sink(self) -> Sink:
        """The sink of the ingestion."""
        ...

    def writer(self) -> SinkWriter | None:
        """What writes to it, if it is not kdsl's own writer for it."""
        return None

    def read(self, tables: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Mapping[str, Rows]]:
        """The rows of some tables, by the names of the ways in which they are read; absent tables have none."""
        ...


class MemoryTarget(Target):
    """The memory of this process, which outlives the queries."""

    def __init__(self) -> None:
        self._writer = MemoryWriter()

    def sink(self) -> Sink:
        return Memory()

    def writer(self) -> SinkWriter:
        return self._writer

    def read(self, tables: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Mapping[str, Rows]]:
        keyed, appended = self._writer.tables, self._writer.appended
        return {
            table: {"rows": keyed[table].rows() if table in keyed else list(appended.get(table, []))}
            for table in tables
        }


class DeltaTarget(Target):
    """Tables of Delta Lake below a folder, read by Delta's own reader."""

    def __init__(self, spark: SparkSession, lake: Path) -> None:
        self._spark, self._lake = spark, lake

    def sink(self) -> Sink:
        return DeltaTables(str(self._lake))

    def read(self, tables: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Mapping[str, Rows]]:
        return {table: {"rows": self._read(self._lake.joinpath(*table))} for table in tables}

    def _read(self, folder: Path) -> Rows:
        from pyspark.sql import DataFrame

        from kdsl.changelog import delta_session, to_delta

        opened, target = delta_session.DeltaSession(self._spark), to_delta.DeltaTarget(str(folder), True, False)
        if not folder.exists():
            return []
        with opened.active():
            rows = DataFrame(opened.open(target).toDF(), self._spark).collect()
        return [dict(zip(row.__fields__, row, strict=True)) for row in rows]


class PostgresTarget(Target):
    """Tables of a database of its own, read by psql."""

    def __init__(self, postgres: Postgres, database: str) -> None:
        self._postgres, self._database = postgres, database
        postgres.execute(f"CREATE DATABASE {database};")

    def sink(self) -> Sink:
        url = self._postgres.url.removesuffix("postgres") + self._database
        return JdbcTables(url, username="kdsl", password=f"${{env:{PASSWORD_VARIABLE}}}")

    def read(self, tables: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Mapping[str, Rows]]:
        names = list(tables)
        query = "SELECT json_build_array(schemaname, tablename) FROM pg_tables;"
        listed = self._postgres.execute(query, self._database).split("\n")  # names have other line separators
        present = [json.loads(line) for line in listed if line]
        existing = [table for table in names if list(table) in present]
        statements = ["SET timezone = 'UTC';"]
        for number, table in enumerate(names):
            if table in existing:
                schema, name = (part.replace('"', '""') for part in table)
                statements.append(f'SELECT {number}, row_to_json(r) FROM "{schema}"."{name}" r;')
        rows: dict[tuple[str, str], Rows] = {table: [] for table in names}
        for line in self._postgres.execute("\n".join(statements), self._database).split("\n"):
            if line:
                place, _, document = line.partition("\t")
                rows[names[int(place)]].append(parse_json(document))
        return {table: {"rows": own} for table, own in rows.items()}


class KafkaTarget(Target):
    """One topic, read by a consumer: as a log of changes, partition by partition, and as a compacted topic."""

    def __init__(self, kafka: RunningKafka, topic: str, world: World) -> None:
        self._kafka, self._topic, self._world = kafka, topic, world

    def sink(self) -> Sink:
        return KafkaTopics(
            Cluster(self._kafka.bootstrap_servers),
            topic=self._topic,
            value=FORMATS[self._world.written](),
            partition_strategy=self._world.partition_strategy,
            delivery="exactly-once" if self._world.exactly_once else "at-least-once",
            transactional_id_prefix=self._topic if self._world.exactly_once else None,
        )

    def read(self, tables: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], Mapping[str, Rows]]:
        settle(self._kafka, self._topic)
        records = [
            Message(one.partition() or 0, one.offset() or 0, one.key() or b"", one.value())
            for one in self._kafka.read(self._topic)
        ]
        return fold_messages(self._world, sorted(records, key=lambda one: (one.partition, one.offset)), tables)


@attrs.frozen
class Message:
    """A message of a topic."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None


def fold_messages(
    world: World, messages: Iterable[Message], tables: Iterable[tuple[str, str]]
) -> Mapping[tuple[str, str], Mapping[str, Rows]]:
    """The rows of tables in a topic, as a log of changes that is read partition by partition, and as a compacted topic.

    Args:
        world: The ingestion that wrote it.
        messages: The messages, by partition and offset.
        tables: The tables.
    """
    keys = {source.target: source.rules.key for source in world.sources}
    log: dict[tuple[str, str], dict[Any, dict[str, Any]]] = {}
    newest: dict[bytes, tuple[tuple[str, str], dict[str, Any] | None]] = {}
    for number, message in enumerate(messages):
        table, before, after = _parse(world.written, message.key, message.value)
        if table is None:  # a tombstone
            newest.pop(message.key, None)
            continue
        names = keys[table]
        of_table = log.setdefault(table, {})
        if not names:
            of_table[number] = after or {}
            newest[str(number).encode()] = table, after
            continue
        if before is not None:
            of_table.pop(_key(before, names), None)
        if after is not None:
            of_table[_key(after, names)] = after
        newest[message.key] = table, after
    return {
        table: {
            "log": list(log.get(table, {}).values()),
            "compacted": [row for own, row in newest.values() if own == table and row is not None],
        }
        for table in tables
    }


def _parse(
    written: Wire, key: bytes, value: bytes | None
) -> tuple[tuple[str, str] | None, dict[str, Any] | None, dict[str, Any] | None]:
    """The table, the row before and the row after; of plain JSON only the key names the table and a deleted row."""
    if written == "json":
        row = parse_json(key.decode())
        database, name = str(row.pop("TableId")).split(".")
        return (database, name), row, None if value is None else parse_json(value.decode())
    if value is None:
        return None, None, None
    document = parse_json(value.decode())
    if written == "debezium-json":
        source = document["source"]
        return (source["db"], source["table"]), document["before"], document["after"]
    table = (document["database"], document["table"])
    data, old = document["data"][0], (document["old"] or [None])[0]
    match document["type"]:
        case "INSERT":
            return table, None, data
        case "UPDATE":
            return table, {**data, **old}, data
    return table, data, None


def _key(row: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    return tuple(json.dumps(row[name]) for name in names)


def _spell(number: str) -> Spelled:
    """A number as it is spelled, integers without an exponent."""
    value = Decimal(number)
    return Spelled(f"{value:f}" if "E" in number and value == value.to_integral_value() else number)


def parse_json(text: str) -> dict[str, Any]:
    """A document with its numbers as strings; members with the same name are refused."""

    def build(members: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({name for name, _ in members}) == len(members), f"a member is there twice: {text}"
        return dict(members)

    document: dict[str, Any] = json.loads(text, parse_int=Spelled, parse_float=_spell, object_pairs_hook=build)
    return document


def open_target(
    world: World, spark: SparkSession, kafka: RunningKafka, topic: str, folder: Path, postgres: Postgres | None
) -> Target:
    """The sink of a world."""
    match world.sink:
        case "memory":
            return MemoryTarget()
        case "delta":
            return DeltaTarget(spark, folder / "lake")
        case "kafka":
            return KafkaTarget(kafka, topic, world)
    assert postgres is not None
    return PostgresTarget(postgres, f"d{uuid4().hex}")
