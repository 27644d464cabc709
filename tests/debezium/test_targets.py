"""A table of Postgres, through Debezium, Kafka and a Spark stream, into a table of another schema: the same rows."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl import Cluster, Col, DebeziumJson, KafkaTable, Table
from kdsl.changelog import Changelog, jdbc
from kdsl.testing.running import RunningKafka
from tests.debezium.connect import ConnectWorker, json_converters, postgres_connector
from tests.debezium.record import wait_for
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = """
    id bigint PRIMARY KEY, name text, doc jsonb, ref uuid, mood store.mood, score double precision, flag boolean,
    small smallint, tags text[], position int NOT NULL UNIQUE
"""
_VALUES = (
    "'n' || random(), json_build_object('a', random()), gen_random_uuid(), 'happy', random(), random() > 0.5, 7, "
    "ARRAY['x', NULL, 'y']"
)


def changes(rng: random.Random, rows: set[int], count: int) -> str:
    """Statements that insert, update, delete, give rows other keys, and swap unique values."""
    results = []
    for _ in range(count):
        id_ = rng.randrange(40)
        if id_ not in rows:
            rows.add(id_)
            results.append(f"INSERT INTO store.things VALUES ({id_}, {_VALUES}, nextval('store.positions'))")
            continue
        other = rng.choice([*rows])
        match rng.randrange(5):
            case 0:
                rows.remove(id_)
                results.append(f"DELETE FROM store.things WHERE id = {id_}")
            case 1:
                rows.remove(id_)
                new = next(n for n in range(41) if n not in rows and n != id_)
                rows.add(new)
                results.append(f"UPDATE store.things SET id = {new} WHERE id = {id_}")
            case 2 if other != id_:
                swap = f"(SELECT {id_} + {other} - id AS id, position FROM store.things WHERE id IN ({id_}, {other}))"
                results.append(f"CREATE TEMP TABLE swap AS {swap}")
                results.append(f"UPDATE store.things SET position = -id - 1 WHERE id IN ({id_}, {other})")
                results.append("UPDATE store.things t SET position = s.position FROM swap s WHERE s.id = t.id")
                results.append("DROP TABLE swap")
            case 3:
                results.append(
                    f"UPDATE store.things SET name = NULL, doc = NULL, mood = NULL, tags = '{{}}' WHERE id = {id_}"
                )
            case _:
                results.append(
                    f"UPDATE store.things SET doc = '\"ü\"', ref = gen_random_uuid(), mood = 'sad' WHERE id = {id_}"
                )
    return ";\n".join([*results, ""])


@pytest.mark.parametrize("schemas", [False, True], ids=["json", "json-with-schemas"])
def test_a_database_has_the_rows_of_the_source_if_connect_is_killed(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    debezium: ConnectWorker,
    postgres: Postgres,
    tmp_path: Path,
    schemas: bool,
) -> None:
    connector = f"things{int(schemas)}"
    topic = f"{connector}.store.things"
    postgres.execute(
        f"""
        DROP SCHEMA IF EXISTS store CASCADE; CREATE SCHEMA store; CREATE SEQUENCE store.positions;
        CREATE TYPE store.mood AS ENUM ('sad', 'happy');
        CREATE TABLE store.things ({COLUMNS}); CREATE TABLE store.copies ({COLUMNS});
        ALTER TABLE store.things REPLICA IDENTITY FULL;
        """
    )
    rng, rows = random.Random(5), set[int]()
    postgres.execute(changes(rng, rows, 30))
    settings = {**postgres_connector(connector, postgres, "store.things"), **json_converters(schemas=schemas)}
    debezium.create(connector, settings)

    class Things(
        KafkaTable,
        topic=topic,
        value=DebeziumJson(schema_include=schemas),
        primary_key=["id"],
        startup="earliest",
    ):
        id: Col[int]
        name: Col[str | None]
        doc: Col[str | None]
        ref: Col[str | None]
        mood: Col[str | None]
        score: Col[float | None]
        flag: Col[bool | None]
        small: Col[int | None]
        tags: Col[list[str | None] | None]
        position: Col[int]

    target = jdbc(postgres.url, "store.copies", {"user": "kdsl", "password": PASSWORD})
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    for round_ in range(3):
        postgres.execute(changes(rng, rows, 150))
        if round_ == 1:
            debezium.wait_for_offsets(connector)
            debezium.kill()
            postgres.execute(changes(rng, rows, 50))
            debezium.run()
        sentinel = 1000 + round_
        postgres.execute(f"INSERT INTO store.things (id, position) VALUES ({sentinel}, nextval('store.positions'))")
        wait_for(kdsl_kafka, debezium, connector, topic, sentinel)
        query = Changelog(Table(Things.definition()).read_stream(spark, cluster), Things).apply_to(
            target, checkpoint=str(tmp_path / "checkpoint"), trigger={"availableNow": True}
        )
        assert query.awaitTermination(300)
        for one, other in (("things", "copies"), ("copies", "things")):
            assert postgres.execute(f"TABLE store.{one} EXCEPT TABLE store.{other}") == ""
    debezium.delete(connector)
