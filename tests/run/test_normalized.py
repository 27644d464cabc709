"""Change data that is compared with the last row of each key, on Spark and a real broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from kdsl import Cluster, Col, DebeziumJson, Json, KafkaTable, PrimaryKey
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.test_upsert import Stream, by_key, each_transport, key_and_partition, lines

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACEHOLDER = "__debezium_unavailable_value"


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def users(topic: str, value: DebeziumJson | None = None, **arguments: Any) -> type[Any]:
    settings: dict[str, Any] = {"cdc_events_duplicate": True, "startup": "earliest", **arguments}

    class Users(KafkaTable, topic=topic, key=Json(), value=value or DebeziumJson(), **settings):
        id: PrimaryKey[int]
        name: Col[str]
        note: Col[str | None]

    return Users


def event(operation: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> Record:
    """A change as Debezium writes it, under the key of the row."""
    number = (after or before or {})["id"]
    return Record(json.dumps({"before": before, "after": after, "op": operation}), json.dumps({"id": number}))


def row(number: int, name: str, note: str | None = None) -> dict[str, Any]:
    return {"id": number, "name": name, "note": note}


FIRST = [
    event("r", None, row(1, "ann")),
    event("r", None, row(2, "bob", "long")),
    event("r", None, row(1, "ann")),  # again
    event("u", None, row(1, "Ann")),  # without the row before
    event("u", {"id": 2}, row(3, "bob", "long")),  # another key
]
FIRST_CHANGES = {
    "1": ["+I[1, ann, null]", "-U[1, ann, null]", "+U[1, Ann, null]"],
    "2": ["+I[2, bob, long]", "-D[2, bob, long]"],
    "3": ["+I[3, bob, long]"],
}
SECOND = [
    event("u", None, row(1, "Ann")),  # again
    event("u", None, row(3, "Bob", PLACEHOLDER)),  # the note was not sent
    event("d", {"id": 1}, None),  # with the key alone
    Record(None, '{"id": 1}'),
    Record(None, '{"id": 3}'),  # the delete itself has been compacted away
    event("d", {"id": 9}, None),
]
SECOND_CHANGES = {
    "1": ["-D[1, Ann, null]"],
    "3": ["-U[3, bob, long]", "+U[3, Bob, long]", "-D[3, Bob, long]"],
}


@pytest.mark.parametrize(
    ("transport", "arguments"),
    [
        ("librdkafka", {"changelog_state": "key"}),
        ("librdkafka", {"changelog_state": "partition"}),
        pytest.param("jvm", {}, marks=pytest.mark.reliability),
    ],
    ids=["key", "partition", "jvm"],
)
def test_changes_are_those_between_rows_over_batches_and_restarts(
    spark: SparkSession,
    cluster: Cluster,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    transport: str,
    arguments: dict[str, Any],
) -> None:
    topic = kdsl_topic()
    table = users(topic, transport=transport, **arguments)
    stream = Stream(tmp_path)
    kdsl_kafka.produce(topic, *FIRST)

    assert by_key(stream.run(table.read_stream(spark, cluster))) == FIRST_CHANGES
    kdsl_kafka.produce(topic, *SECOND)
    assert by_key(stream.run(table.read_stream(spark, cluster))) == SECOND_CHANGES
    both = {key: FIRST_CHANGES.get(key, []) + SECOND_CHANGES.get(key, []) for key in ("1", "2", "3")}
    assert by_key(lines(table.read(spark, cluster))) == both
    assert table.as_table().snapshot(spark, cluster).collect() == []


def test_a_sum_over_repeated_events_is_correct(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """An aggregation follows in the same stream; without the option it counts each event."""
    topic = kdsl_topic(partitions=2)
    kdsl_kafka.produce(topic, *(event("c", None, row(n, f"n{n % 2}")) for n in range(6)))
    kdsl_kafka.produce(topic, *(event("c", None, row(n, f"n{n % 2}")) for n in range(4)))
    results: dict[str, int] = {}
    sign = "IF(_row_kind IN ('+I', '+U'), 1, -1)"
    signed = users(topic).read_stream(spark, cluster).selectExpr("name", f"{sign} AS one")
    writer = signed.groupBy("name").sum("one").toDF("name", "count").writeStream.outputMode("update")
    query = (
        writer.foreachBatch(lambda df, _: results.update((r["name"], r["count"]) for r in df.collect()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)

    assert results == {"n0": 3, "n1": 3}


@key_and_partition
def test_a_value_that_no_row_has_is_an_error_or_null(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, state: str
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, event("u", None, row(1, "a", "here")), event("u", None, row(2, "b", PLACEHOLDER)))

    with pytest.raises(StreamingQueryException, match="column 'note' has no value") as error:
        Stream(tmp_path / "error").run(users(topic, changelog_state=state).read_stream(spark, cluster))
    assert f"topic {topic}, partition 0, offset 1" in str(error.value)
    assert "DebeziumJson(unavailable='null')" in str(error.value)
    lenient = users(topic, DebeziumJson(unavailable="null"), changelog_state=state)
    assert sorted(Stream(tmp_path / "null").run(lenient.read_stream(spark, cluster))) == [
        "+I[1, a, here]",
        "+I[2, b, null]",
    ]


@each_transport
def test_a_checkpoint_of_the_mode_without_state_is_refused(
    spark: SparkSession,
    cluster: Cluster,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    transport: str,
) -> None:
    topic = kdsl_topic()
    plain = users(topic, cdc_events_duplicate=False, transport=transport)
    stream = Stream(tmp_path)
    kdsl_kafka.produce(topic, event("c", None, row(1, "a")))
    stream.run(plain.read_stream(spark, cluster))
    kdsl_kafka.produce(topic, event("c", None, row(1, "a")))

    with pytest.raises(StreamingQueryException) as error:
        stream.run(users(topic, transport=transport).read_stream(spark, cluster))
    # On the transport jvm Spark says it, of the source that says which states a batch has.
    refused = "cdc-events-duplicate" if transport == "librdkafka" else "now there are [2] sources"
    assert refused in str(error.value)
    assert ("a new checkpoint" in str(error.value)) == (transport == "librdkafka")
