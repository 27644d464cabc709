"""Real-time mode, Kafka to Kafka, and the expressions that stand for the formats in it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan
from kdsl.run.jvm.catalyst import decode_columns, encode_columns
from kdsl.run.read import decode, read, read_stream
from kdsl.run.write import encode, write_stream
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.read_plans import part, read_plan
from tests.run.write_plans import write_plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class TestFlow:
    def test_records_flow_from_topic_to_topic_and_on_after_a_restart(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        tmp_path: Path,
        request: pytest.FixtureRequest,
    ) -> None:
        shortest = "spark.sql.streaming.realTimeMode.minBatchDuration"  # 5 seconds by default
        spark.conf.set(shortest, "1s")
        request.addfinalizer(lambda: spark.conf.unset(shortest))
        topic, target = kdsl_topic("from"), kdsl_topic("to")
        cluster = Cluster(kdsl_kafka.bootstrap_servers)
        metadata = {"at": "offset", "heads": "headers"}
        plan = read_plan(topic, value=part("raw", {"text": "STRING"}), metadata=metadata, transport="jvm",
                         latency="realtime")  # fmt: skip
        to = write_plan({"text": "STRING"}, metadata={"heads": "headers"}, value_format="raw", topics=(target,),
                        transport="jvm", latency="realtime")  # fmt: skip

        def flows(*words: str) -> None:
            df = read_stream(spark, plan, cluster).where("text <> 'dropped'").selectExpr("upper(text) text", "heads")
            # A batch must end within the test, for progress is saved then.
            query = write_stream(df, to, cluster, checkpoint=str(tmp_path), trigger={"realTime": "1 second"})
            try:
                kdsl_kafka.produce(topic, *(Record(word, headers=[("h", b"1"), ("h", b"2")]) for word in words))
                until = time.monotonic() + 240
                while not any(progress["numInputRows"] for progress in query.recentProgress):
                    assert time.monotonic() < until
                    assert query.exception() is None
                    time.sleep(0.1)
            finally:
                query.stop()

        flows("one", "dropped")
        flows("two")

        results = [(m.value(), m.headers()) for m in kdsl_kafka.read(target)]
        assert results == [(b"ONE", [("h", b"2")]), (b"TWO", [("h", b"2")])]

    def test_a_table_in_real_time_mode_is_read_as_a_batch_too(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a", b"\xff\xfe")
        plan = read_plan(topic, transport="jvm", latency="realtime")

        assert [r.text for r in read(spark, plan, Cluster(kdsl_kafka.bootstrap_servers)).collect()] == ["a", "��"]

    def test_more_partitions_than_cores_are_reported(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic(partitions=3)
        plan = read_plan(topic, transport="jvm", latency="realtime")

        with pytest.raises(KdslError, match=r"reads 3 partitions at the same time.* but the session has 2 cores"):
            read_stream(spark, plan, Cluster(kdsl_kafka.bootstrap_servers))


MESSAGES = [
    None,
    b"",
    b"plain",
    "größer 😀".encode(),
    b"\xff",
    b"a\xc3",
    b"\xc3(",
    b"\xe2\x82",
    b"\xe2\x82a",
    b"\xf0\x9f\x98",
    b"\xf0\x9f\x98\xf0",
    b"\xed\xa0\x80",
    b"\xc0\x80",
    b"\xf5\x80\x80\x80",
    b"\x80\x80a\xbf",
    b"\xe0\x80\x80",
    b"\xf4\x90\x80\x80",
]
METADATA = {
    "topic": "topic",
    "partition": "partition",
    "offset": "offset",
    "ts": "timestamp",
    "kind": "timestamp-type",
    "headers": "headers",
    "list": "header-list",
    "raw": "__raw_value__",
}


def raw_records(spark: SparkSession) -> DataFrame:
    """Records as Spark's Kafka source has them, with every kind of message, header and timestamp."""
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    every: list[Any] = [
        None,
        [],
        [{"key": "a", "value": b"1"}],
        [{"key": "a", "value": b"1"}, {"key": "b", "value": None}, {"key": "a", "value": b"2"}],
    ]
    count = len(MESSAGES)
    return spark.createDataFrame(
        pa.table(
            {
                "key": pa.array(MESSAGES[::-1], pa.binary()),
                "value": pa.array(MESSAGES, pa.binary()),
                "topic": pa.array(["orders"] * count),
                "partition": pa.array([1] * count, pa.int32()),
                "offset": pa.array(range(count), pa.int64()),
                "timestamp": pa.array(
                    [1_700_000_000_123_000 + 1000 * i for i in range(count)], pa.timestamp("us", "UTC")
                ),
                "timestampType": pa.array([i % 2 for i in range(count)], pa.int32()),
                "headers": pa.array([every[i % 4] for i in range(count)], headers),
            }
        )
    )


def rows(df: DataFrame) -> list[Any]:
    return [tuple(r) for r in df.collect()]


class TestExpressions:
    """Spark's expressions give what the formats give."""

    @pytest.mark.parametrize("kind", ["STRING", "BYTES"])
    def test_decoding(self, spark: SparkSession, kind: str) -> None:
        plan: ReadPlan = read_plan(
            "orders", key=part("raw", {"k": kind}), value=part("raw", {"v": kind}), metadata=METADATA
        )
        records = raw_records(spark)

        assert rows(decode_columns(records, plan)) == rows(decode(records, plan))

    def test_a_forbidden_null_is_an_error_with_its_location(self, spark: SparkSession) -> None:
        plan = read_plan("orders", value=part("raw", {"v": "STRING NOT NULL"}))

        with pytest.raises(Exception) as raised:  # Spark's own
            decode_columns(raw_records(spark), plan).collect()

        assert "read Orders: topic orders, partition 1, offset 0: column 'v' is NULL" in str(raised.value)

    @pytest.mark.parametrize("kind", ["STRING", "BYTES"])
    def test_encoding(self, spark: SparkSession, kind: str) -> None:
        plan = write_plan({"v": kind}, key={"k": kind}, metadata={"heads": "headers"}, key_format="raw",
                          value_format="raw")  # fmt: skip
        cast = "string" if kind == "STRING" else "binary"
        df = spark.sql(
            f"SELECT CAST(k AS {cast}) k, CAST(v AS {cast}) v, heads FROM VALUES "
            "('a', 'b', map('h', X'01', 'i', NULL)), (NULL, '', map()), ('ü', NULL, NULL) AS t(k, v, heads)"
        )
        columns = ["key", "value", "topic", "headers"]

        assert rows(encode_columns(df, plan).select(columns)) == rows(encode(df, plan).select(columns))

    def test_a_topic_that_the_table_does_not_name(self, spark: SparkSession) -> None:
        plan = write_plan({"v": "STRING"}, metadata={"to": "topic"}, topics=("a", "b"), value_format="raw")

        assert rows(encode_columns(spark.sql("SELECT 'x' v, 'a' to"), plan).select("topic")) == [("a",)]
        with pytest.raises(Exception) as raised:  # Spark's own
            encode_columns(spark.sql("SELECT 'x' v, 'c' to"), plan).collect()
        assert "write Orders: a row names the topic c; the table has a, b" in str(raised.value)
