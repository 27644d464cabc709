"""Large values that Postgres does not send: without state they stay as they are in the target."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kdsl import Cluster, Col, DebeziumJson, KafkaTable, Table
from kdsl.changelog import Changelog, Target, delta, jdbc
from kdsl.testing.running import RunningKafka
from tests.changelog.tables import Applied, needs_delta
from tests.debezium.connect import ConnectWorker, postgres_connector
from tests.debezium.record import wait_for
from tests.postgres import PASSWORD, Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = "keep"
TOPIC = f"{NAME}.{NAME}.notes"


class Notes(KafkaTable, topic=TOPIC, value=DebeziumJson(unavailable="keep"), primary_key=["id"], startup="earliest"):
    id: Col[int]
    counter: Col[int]
    body: Col[str | None]
    tags: Col[list[str] | None]


COLUMNS = "id bigint PRIMARY KEY, counter int NOT NULL, body text, tags text[]"
LARGE = "repeat('large ', 500), array_fill('item'::text, ARRAY[500])"
ROUNDS = (
    f"INSERT INTO keep.notes SELECT n, 0, {LARGE} FROM generate_series(1, 6) n",
    """
    UPDATE keep.notes SET counter = 1 WHERE id < 6;
    UPDATE keep.notes SET body = 'short' WHERE id = 2;
    UPDATE keep.notes SET counter = 2 WHERE id < 4;
    UPDATE keep.notes SET tags = NULL WHERE id = 3;
    DELETE FROM keep.notes WHERE id = 4;
    UPDATE keep.notes SET id = 7, body = body || '!', tags = tags || '{!}' WHERE id = 5;
    UPDATE keep.notes SET counter = 3 WHERE id = 7;
    """,
)
"""The statements of each batch; of a row that gets another key, Debezium has what the same statement writes alone."""


def test_values_that_postgres_does_not_send_are_unchanged(
    spark: SparkSession, kdsl_kafka: RunningKafka, debezium: ConnectWorker, postgres: Postgres, tmp_path: Path
) -> None:
    needs_delta()
    postgres.execute(f"CREATE SCHEMA keep; CREATE TABLE keep.notes ({COLUMNS}); CREATE TABLE keep.copies ({COLUMNS})")
    for name in ("body", "tags"):
        postgres.execute(f"ALTER TABLE keep.notes ALTER {name} SET STORAGE EXTERNAL")
    debezium.create(NAME, postgres_connector(NAME, postgres, "keep.notes"))
    lake = delta(tmp_path / "notes")
    targets: dict[str, Target] = {
        "delta": lake,
        "jdbc": jdbc(postgres.url, "keep.copies", {"user": "kdsl", "password": PASSWORD}),
    }
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    for number, statements in enumerate(ROUNDS):
        postgres.execute(f"{statements}; INSERT INTO keep.notes (id, counter) VALUES ({100 + number}, 0)")
        wait_for(kdsl_kafka, debezium, NAME, TOPIC, 100 + number)
        for name, target in targets.items():
            query = Changelog(Table(Notes.definition()).read_stream(spark, cluster), Notes).apply_to(
                target, checkpoint=str(tmp_path / name), trigger={"availableNow": True}
            )
            assert query.awaitTermination(300)
    debezium.delete(NAME)

    lacking = [m for m in kdsl_kafka.read(TOPIC) if b'"__debezium_unavailable_value"' in (m.value() or b"")]
    assert len(lacking) == 11
    for one, other in (("notes", "copies"), ("copies", "notes")):
        assert postgres.execute(f"TABLE keep.{one} EXCEPT TABLE keep.{other}") == ""
    rows = postgres.execute("SELECT id, counter, length(body), array_length(tags, 1) FROM keep.notes ORDER BY id")
    result = Applied(lake, spark).frame().selectExpr("id", "counter", "length(body)", "array_size(tags)").sort("id")
    shown = ["\t".join("" if value is None else str(value) for value in row) for row in result.collect()]
    assert shown == rows.splitlines()
    assert shown[0] == "1\t2\t3000\t500"
