"""An ingestion that is killed again and again: nothing is lost or written twice, and the history is linear."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Producer
from typer.testing import CliRunner

from kdsl.changelog.delta_session import DeltaSession
from kdsl.changelog.to_delta import DeltaTarget
from kdsl.cli.app import app
from kdsl.ingest.state import IngestState, StateFiles
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.testing import Record, RunningKafka, SparkCluster
from kdsl.testing.pytest_plugin import MakeTopic
from tests.changelog.tables import needs_delta
from tests.postgres import PASSWORD, Postgres
from tests.reliability.harness import HERE, Job, Kill, Point
from tests.reliability.test_exactly_once import WRITING
from tests.reliability.test_write_id import DEATHS
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = KILLS = int(os.environ.get("KDSL_TEST_KILLS", "20"))
BATCHES, EVOLUTIONS = 10, 30
NOTED = Point("kdsl.ingest.state:StateFiles.write", "after")
"""The batch is noted, and no sink table is changed."""
CHANGING = Point("kdsl.ingest.run.sinks.writer:SinkTable.last_changes", "before")
"""The columns of a table are changed, and its rows are not written."""
APPENDING = Point("kdsl.ingest.run.sinks.writer:SinkTable.inserts", "before")
"""The same of a table without a primary key."""
SOME = Point("kdsl.ingest.run.batch:BatchRunner._batch", "after")
"""Nothing is changed yet."""
ALL = Point("kdsl.ingest.run.sinks.writer:TableWriter.write", "after")
"""All tables of the batch are written, and Spark has not committed it."""
SENT = Point("kdsl.ingest.run.sinks.kafka:KafkaWriter.write", "after")
"""The same of a batch that is written to Kafka: its transactions are committed."""
ENCODING = Point("kdsl.ingest.messages:encode_packets", "between")
"""Some messages of a task are encoded, from the records that it has divided."""
TABLE_POINTS = (NOTED, SOME, CHANGING, APPENDING, ALL)
KAFKA_POINTS = (NOTED, SOME, WRITING, *DEATHS.values(), SENT)

Row = dict[str, Any]


def messages(seed: int) -> tuple[list[list[Row]], dict[str, list[Row]]]:
    """Batches of change data of `TABLES` tables, and the rows that each table has in the end.

    Tables with an even number have a primary key, the others only get inserts. Somewhere a table gets a new field, or a
    field that was a number becomes a string. The field ``n`` is different in all messages.
    """
    rng = random.Random(seed)
    columns: dict[str, list[str]] = {f"t{i}": [] for i in range(TABLES)}
    texts: dict[str, set[str]] = {name: set() for name in columns}
    evolve_at = sorted(rng.sample(range(TABLES, TABLES * BATCHES), EVOLUTIONS))
    rows: dict[str, dict[int, Row]] = {name: {} for name in columns}
    batches: list[list[Row]] = []
    for number in range(BATCHES):
        batch: list[Row] = []
        for i, name in enumerate(columns):
            if number * TABLES + i in evolve_at:
                numbers = [column for column in columns[name] if column not in texts[name]]
                if numbers and rng.random() < 0.5:
                    texts[name].add(rng.choice(numbers))
                else:
                    columns[name].append(f"c{len(columns[name])}")
            for _ in range(3):
                keys = list(rows[name])
                id_ = rng.choice(keys) if i % 2 == 0 and keys and rng.random() < 0.5 else len(rows[name]) + 1
                values = {c: f"x{rng.random()}" if c in texts[name] else rng.randrange(100) for c in columns[name]}
                before, after = rows[name].get(id_), {"id": id_, "n": len(batches) * TABLES * 3 + len(batch), **values}
                op = "c" if before is None else "u"
                batch.append({"op": op, "before": before, "after": after, "source": {"db": "shop", "table": name}})
                rows[name][id_] = after
        batches.append(batch)
    return batches, {name: list(of_table.values()) for name, of_table in rows.items()}


def document(kafka: RunningKafka, topic: str, sink: Row) -> str:
    """The ingestion; each batch has as many records as `messages` says."""
    keyed = ",".join(f"shop.t{i}" for i in range(0, TABLES, 2))
    return json.dumps(
        {
            "source": {
                "type": "kafka", "properties.bootstrap.servers": kafka.bootstrap_servers, "topic": topic,
                "scan.startup.mode": "earliest-offset", "scan.max-records-per-trigger": str(3 * TABLES),
                "scan.max.pre.fetch.records": "0",
            },
            "transform": [{"source-table": keyed, "primary-keys": "id"}],
            "sink": sink,
        }
    )  # fmt: skip


def as_strings(rows: list[Row], columns: list[str]) -> list[list[str | None]]:
    """Rows as they are read from any sink, sorted; all values as strings."""
    strings = [[None if row.get(name) is None else str(row[name]) for name in columns] for row in rows]
    return sorted(strings, key=str)


def run_with_kills(
    kafka: RunningKafka, topic: str, folder: Path, sink: Row, points: Sequence[Point]
) -> tuple[IngestState, dict[str, list[Row]]]:
    """Run the ingestion with kills at random points, then to its end; check that its history is linear.

    Returns:
        What it has learned, and the rows that each table should have.
    """
    batches, expected = messages(7)
    sent = [message for batch in batches for message in batch]
    kafka.produce(topic, *(Record(json.dumps(message), message["source"]["table"]) for message in sent))
    rng = random.Random(8)
    job = Job(folder / "job", {}, query=document(kafka, topic, sink), program=HERE / "jobs" / "ingest.py",
              spark={"spark.databricks.delta.snapshotPartitions": "2"})  # fmt: skip
    for number in range(KILLS):
        point = points[number % len(points)]
        skip = rng.randrange(TABLES // 2) if point in (CHANGING, APPENDING) else 0
        life = job.run(Kill(point, committed=number * BATCHES // KILLS, skip=skip), timeout=900)
        assert life.killed, f"{point}: {life.log[-4000:]}"
    life = job.run(timeout=900)
    assert life.code == 0, life.log[-4000:]

    state = StateFiles(open_local_folder(job.checkpoint.folder)).load()
    changes = [(change.tag, change.table, change.columns, change.before) for _, change in state.changes]
    assert len(changes) == len(set(changes)), "a change is in the history twice"
    assert [batch for batch, _ in state.changes] == sorted(batch for batch, _ in state.changes)
    evolved = [tag for tag, *_ in changes if tag != "create.table"]
    assert len(changes) == TABLES + EVOLUTIONS
    assert len(evolved) == EVOLUTIONS
    assert sum(state.records.values()) == len(sent)
    return state, expected


def compare_tables(
    state: IngestState, expected: dict[str, list[Row]], read: Callable[[str, list[str]], list[Row]]
) -> None:
    """Compare all tables with what they should have."""
    for name, rows in expected.items():
        columns = [f.name for f in state.upstream["shop", name].schema.columns]
        assert as_strings(read(name, columns), columns) == as_strings(rows, columns), name


@pytest.mark.reliability
@pytest.mark.timeout(7200)
def test_into_delta(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, spark: SparkSession, tmp_path: Path) -> None:
    needs_delta()

    def read(name: str, columns: list[str]) -> list[Row]:
        from pyspark.sql import DataFrame

        opened = DeltaSession(spark)
        with opened.active():
            table = opened.open(DeltaTarget(str(tmp_path / "lake/shop" / name), is_path=True, schema_evolution=False))
            return [row.asDict() for row in DataFrame(table.toDF(), spark).select(*columns).collect()]

    sink = {"type": "delta", "path": str(tmp_path / "lake")}
    compare_tables(*run_with_kills(kdsl_kafka, kdsl_topic(), tmp_path, sink, TABLE_POINTS), read)


@pytest.mark.reliability
@pytest.mark.postgres
@pytest.mark.timeout(7200)
def test_into_postgres(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, postgres: Postgres) -> None:
    def read(name: str, columns: list[str]) -> list[Row]:
        names = ", ".join(f'"{column}"' for column in columns)
        lines = postgres.execute(f"SELECT row_to_json(r) FROM (SELECT {names} FROM shop.{name}) r").splitlines()
        return [json.loads(line) for line in lines]

    sink = {"type": "jdbc", "url": postgres.url, "username": "kdsl", "password": "${env:KDSL_TEST_PASSWORD}"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KDSL_TEST_PASSWORD", PASSWORD)
        compare_tables(*run_with_kills(kdsl_kafka, kdsl_topic(), tmp_path, sink, TABLE_POINTS), read)


@pytest.mark.reliability
@pytest.mark.timeout(7200)
def test_into_kafka(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path) -> None:
    """Every change is in the other topic once, and those of a table in their order; ``kdsl verify`` says so."""
    source, target = kdsl_topic("in"), kdsl_topic("out")
    run_with_kills(kdsl_kafka, source, tmp_path, exactly_once(kdsl_kafka, target), KAFKA_POINTS)
    verify(kdsl_kafka, source, target, tmp_path)


@pytest.mark.reliability
@pytest.mark.timeout(1800)
def test_an_executor_that_dies_loses_no_row(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, kdsl_spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """The records that it had divided are read again from the same offsets."""
    source, target = kdsl_topic("in"), kdsl_topic("out")
    sent = [message for batch in messages(7)[0] for message in batch]
    kdsl_kafka.produce(source, *(Record(json.dumps(message), message["source"]["table"]) for message in sent))
    text = document(kdsl_kafka, source, exactly_once(kdsl_kafka, target))
    job = Job(tmp_path / "job", {}, query=text, program=HERE / "jobs" / "ingest.py", spark=kdsl_spark_cluster.settings)
    life = job.run(Kill(ENCODING, committed=2, action="kill-executor"), timeout=900)

    assert life.killed
    assert "Lost executor" in life.log
    assert life.code == 0, life.log[-4000:]
    verify(kdsl_kafka, source, target, tmp_path)


@pytest.mark.reliability
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("delivery", ["at-least-once", "exactly-once"])
def test_the_order_of_keys_in_large_partitions(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, delivery: str
) -> None:
    """Two partitions, each far larger than the piece that a task reads otherwise, are copied in one batch with kills.

    At least once, an interrupted batch is written again from its beginning; the last message of a key is the last one.
    """
    keys, count = 500, 400_000
    source, target = kdsl_topic("in", partitions=2), kdsl_topic("out", partitions=3)
    producer = Producer({"bootstrap.servers": kdsl_kafka.bootstrap_servers, "queue.buffering.max.messages": count})
    for n in range(count):
        row = {"id": n % keys, "n": n}
        value = {"op": "c", "before": None, "after": row, "source": {"db": "shop", "table": "t0"}}
        producer.produce(source, json.dumps(value).encode(), partition=n % keys % 2)
    producer.flush()
    sink = exactly_once(kdsl_kafka, target)
    if delivery == "at-least-once":
        sink = {name: value for name, value in sink.items() if not name.startswith("sink.")}
    text = json.loads(document(kdsl_kafka, source, sink))
    text["source"]["scan.max-records-per-trigger"] = str(count)
    job = Job(tmp_path / "job", {}, query=json.dumps(text), program=HERE / "jobs" / "ingest.py")
    for point in (NOTED, WRITING, SENT):
        assert job.run(Kill(point), timeout=900).killed
    life = job.run(timeout=900)
    assert life.code == 0, life.log[-4000:]

    settle(kdsl_kafka, target)
    last: dict[int, int] = {}
    late = 0
    messages_of_target = kdsl_kafka.read(target)
    for message in messages_of_target:
        after = json.loads(message.value() or b"")["after"]
        late += after["n"] < last.get(after["id"], -1)
        last[after["id"]] = after["n"]
    assert sorted(last.values()) == list(range(count - keys, count))
    if delivery == "exactly-once":
        assert (len(messages_of_target), late) == (count, 0)


def exactly_once(kafka: RunningKafka, topic: str) -> Row:
    """The options of a sink that writes to a topic in transactions."""
    return {
        "type": "kafka", "properties.bootstrap.servers": kafka.bootstrap_servers, "topic": topic,
        "sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": topic,
    }  # fmt: skip


def verify(kafka: RunningKafka, source: str, target: str, folder: Path) -> None:
    """Let ``kdsl verify`` compare the changes of two topics."""
    settle(kafka, target)
    row = "ROW<id BIGINT, n BIGINT>"
    columns = {"op": "STRING", "before": row, "after": row, "source": "ROW<db STRING, `table` STRING>"}
    tables = folder / "tables.yaml"
    tables.write_text(
        yaml.safe_dump(
            {
                "tables": [
                    {
                        "name": name,
                        "columns": [{"name": column, "type": kind} for column, kind in columns.items()],
                        "options": {
                            "connector": "kafka", "properties.bootstrap.servers": kafka.bootstrap_servers,
                            "topic": topic, "value.format": "json",
                        },
                    }
                    for name, topic in (("source", source), ("target", target))
                ]
            }
        ),
        encoding="utf-8",
    )  # fmt: skip
    result = CliRunner().invoke(
        app, ["verify", f"{tables}:source", f"{tables}:target", "--by", "op,before,after,source", "--json"]
    )
    assert result.exit_code == 0, result.output
    comparison = json.loads(result.stdout)
    assert comparison["equal"]
    assert comparison["read"] == comparison["written"] == BATCHES * TABLES * 3
