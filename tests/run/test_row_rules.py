"""Row rules on Spark and a real broker: both transports, batches and streams, reads and writes, and what is counted."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PythonException, StreamingQueryException

import kdsl
from kdsl import (
    Cluster,
    Col,
    DeadLetters,
    DebeziumJson,
    Json,
    KafkaTable,
    PrimaryKey,
    UpsertTable,
    Virtual,
    col,
    expect,
    virtual,
)
from kdsl.declare.connector import Transport
from kdsl.errors import WriteError
from kdsl.run.metrics.collector import Queries
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.listeners.queries import until
from tests.run.test_upsert import Stream, by_key, each_transport, lines, one_transport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def orders(topic: str, on_fail: Any, transport: Transport = "librdkafka", **more: Any) -> type[Any]:
    class Orders(KafkaTable, topic=topic, value=Json(), startup="earliest", transport=transport, **more):
        id: Col[int]
        amount: Col[int | None] = col(expect=expect("amount > 0", on_fail=on_fail))
        big = expect("id < 4")

    return Orders


def record(number: int, amount: int | None) -> Record:
    return Record(json.dumps({"id": number, "amount": amount}))


RECORDS = [record(1, 5), record(2, 0), record(3, None), record(4, -1)]


def violations_in_prometheus(table: str) -> dict[str, float]:
    families = [family for family in Queries(with_errors=True).collect() if family.name == "kdsl_num_rule_violations"]
    return {
        sample.labels["rule"]: sample.value
        for family in families
        for sample in family.samples
        if sample.labels["table"] == table
    }


@each_transport
@pytest.mark.parametrize(("on_fail", "ids"), [("warn", [1, 2, 3, 4]), ("drop", [1, 3])])
def test_a_stream_counts_violations_in_its_metrics_its_progress_and_the_log(
    spark: SparkSession,
    cluster: Cluster,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    transport: Transport,
    on_fail: str,
    ids: list[int],
) -> None:
    table = orders(kdsl_topic(), on_fail, transport, name=f"Orders_{transport}_{on_fail}")
    kdsl_kafka.produce(table.definition().options.topic[0], *RECORDS)
    read: list[int] = []

    df = table.read_stream(spark, cluster, columns=["id"])
    writer = df.writeStream.foreachBatch(lambda rows, _: read.extend(row["id"] for row in rows.collect()))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(300)

    name, done = table.definition().name, {"warn": "kept", "drop": "left out"}[on_fail]
    assert sorted(read) == ids
    until(lambda: bool(kdsl.metrics(query).sources))  # the listener gets the last batch after the query has ended
    assert kdsl.metrics(query).source.num_rule_violations == {"amount": 2, "big": 1}
    assert caplog.text.count(f"{name}: of batch 0 2 rows violate the rule 'amount' and were {done}") == 1
    assert caplog.text.count(f"{name}: of batch 0 1 row violates the rule 'big' and was kept") == 1
    shown = [numbers["metrics"] for numbers in json.loads(query.recentProgress[0].json)["observedMetrics"].values()]
    assert {n: c for one in shown for n, c in one.items() if n.startswith("numRule")} == {
        "numRuleViolations.amount": 2,
        "numRuleViolations.big": 1,
    }


@one_transport
def test_a_batch_leaves_rows_out_and_logs_it(
    spark: SparkSession,
    cluster: Cluster,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    caplog: pytest.LogCaptureFixture,
    transport: Transport,
) -> None:
    table = orders(kdsl_topic(), "drop", transport, name=f"Batch_{transport}")
    kdsl_kafka.produce(table.definition().options.topic[0], *RECORDS)

    assert sorted(row["id"] for row in table.read(spark, cluster).collect()) == [1, 3]
    until(lambda: f"Batch_{transport}: 2 rows violate the rule 'amount' and were left out" in caplog.text)


@each_transport
def test_fail_names_the_place(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, transport: Transport
) -> None:
    topic = kdsl_topic()
    table = orders(topic, "fail", transport)
    kdsl_kafka.produce(topic, *RECORDS)

    with pytest.raises(PythonException) as caught:
        table.read(spark, cluster).collect()

    assert (
        f"Orders: cannot read the record at topic {topic}, partition 0, offset 1: the row violates the rule amount: "
        f"amount > 0; so do {topic}[0] at 3; 1 more record of"
    ) in str(caught.value)


@one_transport
def test_a_stream_that_fails_reads_the_record_again(
    spark: SparkSession,
    cluster: Cluster,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    transport: Transport,
) -> None:
    """The batch is not finished, so a rule that is changed applies to the same records."""
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *RECORDS)
    stream = Stream(tmp_path)
    with pytest.raises(StreamingQueryException, match="the row violates the rule amount"):
        stream.run(orders(topic, "fail", transport).read_stream(spark, cluster))

    assert sorted(stream.run(orders(topic, "drop", transport).read_stream(spark, cluster))) == [
        "+I[1, 5]",
        "+I[3, null]",
    ]


@pytest.mark.parametrize(
    ("transport", "streaming"),
    [
        ("librdkafka", True),
        ("jvm", False),
        pytest.param("librdkafka", False, marks=pytest.mark.reliability),
        pytest.param("jvm", True, marks=pytest.mark.reliability),
    ],
)
def test_a_dead_letter_is_the_record_as_it_was(
    spark: SparkSession,
    cluster: Cluster,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    transport: Transport,
    streaming: bool,
) -> None:
    topic, dead = kdsl_topic(), kdsl_topic("dead")
    table = orders(topic, "dead_letter", transport, dead_letters=DeadLetters(dead, batch_reads=True))
    kdsl_kafka.produce(topic, *RECORDS)

    stream = Stream(tmp_path)
    rows = stream.run(table.read_stream(spark, cluster)) if streaming else lines(table.read(spark, cluster))

    assert sorted(rows) == ["+I[1, 5]", "+I[3, null]"]
    letters = {message.value(): dict(message.headers() or []) for message in kdsl_kafka.read(dead)}
    assert set(letters) == {str(RECORDS[1].value).encode(), str(RECORDS[3].value).encode()}
    assert all(
        headers["__connect.errors.exception.message"] == b"the row violates the rule amount: amount > 0"
        for headers in letters.values()
    )


class TestWrites:
    @each_transport
    def test_a_batch(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_topic: MakeTopic,
        caplog: pytest.LogCaptureFixture,
        transport: Transport,
    ) -> None:
        topic = kdsl_topic()
        df = spark.createDataFrame([(1, 5), (2, 0), (3, None), (4, -1)], "id bigint, amount bigint").coalesce(1)

        orders(topic, "drop", transport, name=f"Written_{transport}").write(df, cluster)

        plain = orders(topic, "warn")
        assert sorted(row["id"] for row in plain.read(spark, cluster).collect()) == [1, 3]
        until(lambda: f"Written_{transport}: 2 rows violate the rule 'amount' and were left out" in caplog.text)

    @each_transport
    def test_fail(self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, transport: Transport) -> None:
        df = spark.createDataFrame([(1, 5), (2, 0), (3, 0)], "id bigint, amount bigint").coalesce(1)

        with pytest.raises((PythonException, WriteError)) as caught:
            orders(kdsl_topic(), "fail", transport).write(df, cluster)

        assert "row 2 of the task: the row violates the rule amount: amount > 0; so do the rows 3" in str(caught.value)

    @pytest.mark.parametrize(
        ("transport", "delivery"),
        [
            ("librdkafka", "exactly-once"),
            pytest.param("librdkafka", "at-least-once", marks=pytest.mark.reliability),
            pytest.param("jvm", "at-least-once", marks=pytest.mark.reliability),
        ],
    )
    def test_a_stream_counts_violations(
        self,
        spark: SparkSession,
        cluster: Cluster,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        transport: Transport,
        delivery: Any,
    ) -> None:
        source, target = orders(kdsl_topic(), "warn"), kdsl_topic()
        kdsl_kafka.produce(source.definition().options.topic[0], *RECORDS)
        more = {"transactional_id_prefix": f"rules-{target}"} if delivery == "exactly-once" else {}
        sink = orders(target, "drop", transport, name=f"Sink_{transport}", delivery=delivery, **more)

        query = sink.write_stream(
            source.read_stream(spark, cluster), cluster, checkpoint=str(tmp_path), trigger={"availableNow": True}
        )
        assert query.awaitTermination(300)

        until(lambda: kdsl.metrics(query).sink.num_rule_violations == {"amount": 2, "big": 1})
        assert f"Sink_{transport}: of batch 0 2 rows violate the rule 'amount' and were left out" in caplog.text
        read = orders(target, "warn", properties={"isolation.level": "read_committed"}).read(spark, cluster)
        assert sorted(row["id"] for row in read.collect()) == [1, 3]

    @one_transport
    def test_rows_with_null_are_left_out(
        self, spark: SparkSession, cluster: Cluster, kdsl_topic: MakeTopic, transport: Transport
    ) -> None:
        table = orders(kdsl_topic(), "warn", transport, sink_not_null_enforcer="drop")
        df = spark.createDataFrame([(1, 5), (None, 1)], "id bigint, amount bigint").coalesce(1)

        table.write(df, cluster)

        assert [row["id"] for row in table.read(spark, cluster).collect()] == [1]


def users(topic: str, transport: Transport) -> type[Any]:
    class Users(UpsertTable, topic=topic, key=Json(), value=Json(), transport=transport):
        id: PrimaryKey[int]
        age: Col[int | None] = col(expect=expect("age >= 18", on_fail="drop"))

    return Users


@one_transport
def test_an_upsert_that_is_left_out_leaves_the_last_valid_row(
    spark: SparkSession,
    cluster: Cluster,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    transport: Transport,
) -> None:
    def upsert(number: int, age: int | None) -> Record:
        value = None if age is None else json.dumps({"id": number, "age": age})
        return Record(value, json.dumps({"id": number}))

    topic = kdsl_topic()
    table, stream = users(topic, transport), Stream(tmp_path)
    kdsl_kafka.produce(topic, upsert(1, 20), upsert(2, 30), upsert(3, 7))
    assert sorted(stream.run(table.read_stream(spark, cluster))) == ["+I[1, 20]", "+I[2, 30]"]
    kdsl_kafka.produce(topic, upsert(1, 3), upsert(2, 3), upsert(2, None), upsert(3, None))
    kdsl_kafka.produce(topic, upsert(1, 21), upsert(3, 40))
    assert by_key(stream.run(table.read_stream(spark, cluster))) == {
        "1": ["-U[1, 20]", "+U[1, 21]"],
        "2": ["-D[2, 30]"],
        "3": ["+I[3, 40]"],
    }

    assert sorted(map(str, lines(table.snapshot(spark, cluster)))) == ["+I[1, 21]", "+I[3, 40]"]


def event(operation: str, before: dict[str, Any] | None, after: dict[str, Any] | None) -> Record:
    return Record(json.dumps({"before": before, "after": after, "op": operation}))


def person(number: int, age: int) -> dict[str, Any]:
    return {"id": number, "age": age}


EVENTS = [
    event("c", None, person(1, 20)),
    event("u", person(1, 20), person(1, 3)),
    event("u", person(1, 3), person(1, 21)),
    event("c", None, person(2, 5)),
    event("d", person(2, 5), None),
]


@one_transport
@pytest.mark.parametrize("normalized", [False, True])
def test_change_data(
    spark: SparkSession,
    cluster: Cluster,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    transport: Transport,
    normalized: bool,
) -> None:
    topic = kdsl_topic()
    more: dict[str, Any] = {"primary_key": ["id"], "cdc_events_duplicate": True} if normalized else {}

    class People(KafkaTable, topic=topic, value=DebeziumJson(), startup="earliest", transport=transport, **more):
        id: Col[int]
        age: Col[int] = col(expect=expect("age >= 18", on_fail="drop"))

    kdsl_kafka.produce(topic, *EVENTS)

    expected = ["+I[1, 20]", "-U[1, 20]", "+U[1, 21]"] if normalized else ["+I[1, 20]", "-D[1, 20]", "+I[1, 21]"]
    assert lines(People.read(spark, cluster)) == expected
    assert Stream(tmp_path).run(People.read_stream(spark, cluster)) == expected


def test_decode_applies_rules(spark: SparkSession) -> None:
    class Numbers(KafkaTable, topic="numbers", value=Json()):
        n: Col[int] = col(expect=expect("n > 0", on_fail="drop"))
        offset: Virtual[int] = virtual("offset")
        early = expect("`offset` < 2", on_fail="drop")

    rows = [(b'{"n": 1}', 0), (b'{"n": 0}', 1), (b'{"n": 2}', 2)]
    df = spark.createDataFrame([(bytearray(value), offset) for value, offset in rows], "value binary, offset bigint")

    assert [(row["n"], row["offset"]) for row in Numbers.decode(df).collect()] == [(1, 0)]
    assert [row["n"] for row in Numbers.decode(df.withColumn("offset", df["offset"] * 0)).collect()] == [1, 2]


def test_encode_applies_rules(spark: SparkSession) -> None:
    class Numbers(KafkaTable, topic="numbers", value=Json()):
        n: Col[int] = col(expect=expect("n > 0", on_fail="drop"))

    records = Numbers.encode(spark.createDataFrame([(1,), (0,)], "n bigint")).collect()

    assert [bytes(row["value"]) for row in records] == [b'{"n":1}']


def test_prometheus_has_a_counter_for_each_rule(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    table = orders(kdsl_topic(), "drop", name="InPrometheus")
    kdsl_kafka.produce(table.definition().options.topic[0], *RECORDS)
    df = table.read_stream(spark, cluster)
    query = df.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    try:
        until(lambda: violations_in_prometheus("InPrometheus") == {"amount": 2, "big": 1})
    finally:
        query.stop()


def test_a_table_from_sql(
    cluster: Cluster, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *RECORDS)
    table = kdsl.sql(f"""
        CREATE TABLE orders (id BIGINT, amount INT) WITH (
          'connector' = 'kafka', 'topic' = '{topic}', 'format' = 'json', 'scan.startup.mode' = 'earliest-offset',
          'scan.expect.positive' = 'amount > 0', 'scan.expect.positive.on-fail' = 'drop')
    """)

    assert sorted(row["id"] for row in table.read(spark, cluster).collect()) == [1, 3]


@pytest.fixture(autouse=True)
def _logs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kdsl.read")
