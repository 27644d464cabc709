"""Writes over Spark's own Kafka connector mean the same as over librdkafka: most tests run on both transports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, TopicRecreatedError, WriteError
from kdsl.run.read import read_stream
from kdsl.run.write import write, write_stream
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.jvm.transports import TRANSPORTS
from tests.run.read_plans import part, read_plan
from tests.run.write_plans import write_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestBatch:
    def test_key_value_and_headers(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, transport: str
    ) -> None:
        topic = kdsl_topic(partitions=4)
        df = spark.sql("SELECT id, concat('n', id) name, map('h', X'01') heads FROM range(20)")
        plan = write_plan(
            {"name": "STRING"}, key={"id": "BIGINT"}, metadata={"heads": "headers"}, topics=(topic,),
            transport=transport,
        )  # fmt: skip

        write(df, plan, cluster)

        results = {bytes(m.key() or b""): m for m in kdsl_kafka.read(topic)}
        assert set(results) == {f'{{"id":{i}}}'.encode() for i in range(20)}
        one = results[b'{"id":7}']
        assert (one.value(), one.headers()) == (b'{"name":"n7"}', [("h", b"\x01")])

    def test_records_of_one_key_go_to_the_same_partition_on_both_transports(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        spread = []
        for transport in TRANSPORTS:
            topic = kdsl_topic(partitions=5)
            plan = write_plan({"name": "STRING"}, key={"id": "BIGINT"}, topics=(topic,), transport=transport)
            write(spark.sql("SELECT id, 'x' name FROM range(40)"), plan, cluster)
            spread.append({bytes(m.key() or b""): m.partition() for m in kdsl_kafka.read(topic)})

        assert spread[0] == spread[1]
        assert len(set(spread[0].values())) > 1

    def test_a_partitioner(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, transport: str
    ) -> None:
        topic = kdsl_topic(partitions=3)
        plan = write_plan({"name": "STRING"}, topics=(topic,), partitioner="round-robin", transport=transport)

        write(spark.sql("SELECT concat('n', id) name FROM range(0, 9, 1, 1)"), plan, cluster)

        partitions = [m.partition() or 0 for m in kdsl_kafka.read(topic)]
        assert sorted(partitions) == [0, 0, 0, 1, 1, 1, 2, 2, 2]

    def test_the_topic_of_each_row(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, transport: str
    ) -> None:
        topics = (kdsl_topic("one"), kdsl_topic("two"))
        plan = write_plan({"name": "STRING"}, metadata={"to": "topic"}, topics=topics, transport=transport)

        write(spark.createDataFrame([(t, t[:3]) for t in topics], "to string, name string"), plan, cluster)

        assert [kdsl_kafka.read(t)[0].value() for t in topics] == [b'{"name":"one"}', b'{"name":"two"}']
        with pytest.raises(WriteError, match="is not one of"):
            write(spark.createDataFrame([("three", "x")], "to string, name string"), plan, cluster)


class TestStream:
    def test_kafka_to_kafka_with_a_checkpoint(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        topic, target = kdsl_topic("from", partitions=2), kdsl_topic("to")
        plan = read_plan(topic, value=part("json", {"name": "STRING"}), transport="jvm")
        to = write_plan({"name": "STRING"}, topics=(target,), transport="jvm")

        for name in ("one", "two"):
            kdsl_kafka.produce(topic, f'{{"name": "{name}"}}')
            df = read_stream(spark, plan, cluster)
            trigger = {"availableNow": True}
            write_stream(df, to, cluster, checkpoint=str(tmp_path), trigger=trigger).awaitTermination()

        assert [m.value() for m in kdsl_kafka.read(target)] == [b'{"name":"one"}', b'{"name":"two"}']

    @pytest.mark.parametrize("sink", TRANSPORTS)
    def test_a_topic_that_was_created_again_is_recognized_by_its_id(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        tmp_path: Path,
        sink: str,
    ) -> None:
        topic, target = kdsl_topic("from"), kdsl_topic("to")
        kdsl_kafka.produce(topic, *"abc")
        plan = read_plan(topic, transport="jvm")
        to = write_plan({"text": "STRING"}, value_format="raw", topics=(target,), transport=sink)

        def run() -> None:
            df, trigger = read_stream(spark, plan, cluster), {"availableNow": True}
            write_stream(df, to, cluster, checkpoint=str(tmp_path), trigger=trigger).awaitTermination()

        run()
        before = kdsl_kafka.topic_id(topic)
        kdsl_kafka.delete_topic(topic)
        kdsl_kafka.create_topic(topic)
        kdsl_kafka.produce(topic, *"defgh")

        with pytest.raises(TopicRecreatedError) as raised:
            run()
        assert before in str(raised.value)
        assert kdsl_kafka.topic_id(topic) in str(raised.value)
        assert [m.value() for m in kdsl_kafka.read(target)] == [b"a", b"b", b"c"]


class TestRealtimeIsRefused:
    """What real-time mode cannot run is reported before the query starts."""

    def test_with_the_reasons(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        from pyspark.sql import functions as sf

        topic = kdsl_topic()
        fast = read_plan(topic, transport="jvm", latency="realtime")
        to = write_plan({"text": "STRING"}, value_format="raw", topics=(topic,), transport="jvm", latency="realtime")
        df = read_stream(spark, fast, cluster)
        upper = sf.udf(lambda text: text)
        refused = {
            "Aggregate: an aggregation keeps state": df.groupBy("text").count().select("text"),
            "dropDuplicates keeps state": df.dropDuplicates(["text"]),
            "the Python function '<lambda>'": df.select(upper("text").alias("text")),
            "RepartitionByExpression": df.repartition(3, "text"),
            "MapInArrow": read_stream(spark, attrs.evolve(fast, latency="micro-batch"), cluster),
            "the source 'rate'": spark.readStream.format("rate").load().select(sf.lit("x").alias("text")),
        }

        for message, query in refused.items():
            with pytest.raises(KdslError) as raised:
                write_stream(query, to, cluster, checkpoint=str(tmp_path))
            assert "latency='realtime' cannot run this query" in str(raised.value)
            assert message in str(raised.value), message

    def test_another_trigger(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        topic = kdsl_topic()
        to = write_plan({"text": "STRING"}, value_format="raw", topics=(topic,), transport="jvm", latency="realtime")
        df = read_stream(spark, read_plan(topic, transport="jvm", latency="realtime"), cluster)

        with pytest.raises(KdslError, match="the trigger availableNow=True contradict each other"):
            write_stream(df, to, cluster, checkpoint=str(tmp_path), trigger={"availableNow": True})
