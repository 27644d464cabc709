"""Reads on Spark and a real broker: what users meet."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from confluent_kafka import Producer

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, SparkJobError
from kdsl.plan.model import Computed, ReadPlan, Watermark
from kdsl.resolve.model import Start
from kdsl.run.admin.cluster_admin import FIRST_ANSWER
from kdsl.run.read import decode, read, read_stream
from kdsl.testing import LocalKafka, Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types import model as t
from kdsl.types.spark import spark_schema
from tests.outages import wait_for_connection
from tests.run.read_plans import part, read_plan, row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SOON = timedelta(milliseconds=100)


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def rows(df: DataFrame, *columns: str) -> list[Any]:
    """The rows, sorted; of one column the values."""
    wanted = df.select(*columns) if columns else df
    results = sorted((tuple(r) for r in wanted.collect()), key=repr)
    return [values[0] for values in results] if len(wanted.columns) == 1 else results


class Runner:
    """Runs a stream with one checkpoint, again and again; keeps what each batch had."""

    def __init__(self, spark: SparkSession, cluster: Cluster, folder: Path) -> None:
        self.spark, self.cluster, self.folder = spark, cluster, folder
        self.batches: list[tuple[int, list[Any]]] = []
        self.progress: list[Any] = []

    def start(self, plan: ReadPlan, **trigger: Any) -> StreamingQuery:
        """Begin, or go on from the checkpoint."""

        def keep(df: DataFrame, batch: int) -> None:
            self.batches.append((batch, rows(df)))

        writer = read_stream(self.spark, plan, self.cluster).writeStream.foreachBatch(keep)
        return writer.option("checkpointLocation", str(self.folder)).trigger(**trigger).start()

    def run(self, plan: ReadPlan) -> list[tuple[int, list[Any]]]:
        """Read what is there now, and give the batches of this run."""
        before = len(self.batches)
        query = self.start(plan, availableNow=True)
        query.awaitTermination()
        self.progress = list(query.recentProgress)
        return self.batches[before:]

    def forget_commit(self, batch: int) -> None:
        """Let the checkpoint be as if the process had died before a batch was committed."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.folder / "commits" / name).unlink(missing_ok=True)


@pytest.fixture
def runner(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Runner:
    return Runner(spark, cluster, tmp_path / "checkpoint")


def wait_for(condition: Callable[[], bool], query: StreamingQuery | None = None) -> None:
    """Wait until something holds; a query that fails meanwhile fails the test."""
    until = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < until
        if query is not None and (error := query.exception()) is not None:
            raise error
        time.sleep(0.05)


class TestBatch:
    def test_key_value_and_metadata_come_with_the_schema_of_the_plan(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(
            topic,
            Record('{"name": "one", "tags": ["a"]}', '{"id": 1}', [("h", b"1")], 0, 1_700_000_000_123),
            Record('{"name": "two", "at": "2024-05-01 12:00:00.5"}', None, [], 1, 1_700_000_000_456),
        )
        plan = read_plan(
            topic,
            key=part("json", {"k_id": "BIGINT"}, ["id"]),
            value=part("json", {"name": "STRING NOT NULL", "tags": "ARRAY<STRING NOT NULL>", "at": "TIMESTAMP(3)"}),
            metadata={
                "topic": "topic",
                "partition": "partition",
                "offset": "offset",
                "epoch": "leader-epoch",
                "ts": "timestamp",
                "kind": "timestamp-type",
                "headers": "headers",
                "list": "header-list",
                "raw": "__raw_key__",
            },
        )

        df = read(spark, plan, cluster)

        assert df.schema == spark_schema(plan.columns)
        one, two = (r.asDict(recursive=True) for r in df.orderBy("partition").collect())
        assert (one["k_id"], one["name"], one["tags"], one["at"]) == (1, "one", ["a"], None)
        assert (two["k_id"], two["name"], two["tags"]) == (None, "two", None)
        assert str(two["at"]) == "2024-05-01 12:00:00.500000"
        assert (one["topic"], one["partition"], one["offset"], one["epoch"]) == (topic, 0, 0, 0)
        assert (one["ts"].timestamp(), one["kind"]) == (1_700_000_000.123, "CreateTime")
        assert (one["headers"], one["list"], one["raw"]) == ({"h": b"1"}, [{"key": "h", "value": b"1"}], b'{"id": 1}')
        assert (two["headers"], two["list"], two["raw"]) == ({}, [], None)

    def test_the_end_is_taken_when_an_action_runs(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a")
        df = read(spark, read_plan(topic), cluster)

        assert rows(df) == ["a"]
        kdsl_kafka.produce(topic, "b")
        assert rows(read(spark, read_plan(topic), cluster)) == ["a", "b"]
        assert read(spark, read_plan(topic), cluster).limit(1).count() == 1

    def test_a_topic_without_records_is_an_empty_table(
        self, spark: SparkSession, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        assert rows(read(spark, read_plan(kdsl_topic(partitions=3)), cluster)) == []
        assert rows(read(spark, read_plan(pattern="no-topic-is-called-so"), cluster)) == []

    @pytest.mark.parametrize(
        ("start", "expected"),
        [
            (Start("earliest"), ["a", "b", "c", "d"]),
            (Start("latest"), []),
            (Start("timestamp", timestamp=1_700_000_000_001), ["b", "d"]),
            (Start("specific-offsets", offsets=(("", 0, 1), ("", 1, 0))), ["b", "c", "d"]),
            (Start("group-offsets", reset="earliest"), ["a", "b", "c", "d"]),
        ],
        ids=lambda value: value.mode if isinstance(value, Start) else "",
    )
    def test_it_starts_where_the_plan_declares(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        start: Start,
        expected: list[str],
    ) -> None:
        topic = kdsl_topic(partitions=2)
        at = 1_700_000_000_000
        for partition, values in enumerate(("ab", "cd")):
            kdsl_kafka.produce(topic, *(Record(v, None, [], partition, at + i) for i, v in enumerate(values)))

        start = attrs.evolve(start, offsets=tuple((topic, partition, offset) for _, partition, offset in start.offsets))
        assert rows(read(spark, read_plan(topic, start=start), cluster)) == expected

    def test_computed_columns_and_the_order_of_the_output_are_sparks(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        from pyspark.sql import functions as sf

        topic = kdsl_topic()
        kdsl_kafka.produce(topic, '{"price": 2, "count": 3}')
        base = read_plan(topic, value=part("json", {"price": "BIGINT", "count": "INT"}))
        computed = (
            Computed("total", t.BigInt(), "price * `count`"),
            Computed("label", t.STRING, "lambda: …", sql=False),
        )
        plan = ReadPlan(
            table="Orders",
            topics=base.topics,
            columns=base.columns,
            output=row({"label": "STRING", "total": "BIGINT", "price": "BIGINT"}),
            start=base.start,
            value=base.value,
            computed=computed,
        )

        df = read(spark, plan, cluster, computed={"label": lambda: sf.concat(sf.lit("#"), sf.col("total"))})

        assert df.columns == ["label", "total", "price"]
        assert rows(df) == [("#6", 6, 2)]
        with pytest.raises(KdslError, match="the computed column 'label' has neither SQL nor a function in computed="):
            read(spark, plan, cluster)

    def test_a_bad_record_is_named_in_sparks_exception(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, '{"n": 1}', "{oops", '{"n": 3}')

        with pytest.raises(SparkJobError) as raised:
            read(spark, read_plan(topic, value=part("json", {"n": "BIGINT"})), cluster).collect()

        text = str(raised.value)
        reason = f"Orders: cannot read the record at topic {topic}, partition 0, offset 1: "
        assert text.startswith(reason)
        assert text.endswith("it has 5 bytes: '{oops'")
        assert f"RecordError: {reason}" in str(raised.value.__cause__)

    def test_an_unknown_topic_is_named_in_sparks_exception(self, spark: SparkSession, cluster: Cluster) -> None:
        with pytest.raises(Exception, match=r"^Orders: the cluster has no topic 'no-such-topic'"):
            read(spark, read_plan("no-such-topic"), cluster).collect()

    def test_secrets_show_nowhere(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a")
        cluster = Cluster(kdsl_kafka.bootstrap_servers, properties={"ssl.key.password": "hunter2"})

        df = read(spark, read_plan(topic), cluster)
        df.explain("extended")

        assert rows(df) == ["a"]
        assert "hunter2" not in "".join(capfd.readouterr())


class TestStream:
    def test_a_restart_continues_where_the_checkpoint_ends(
        self, runner: Runner, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *(Record(v, partition=p) for p, v in enumerate("ab")))

        assert runner.run(read_plan(topic)) == [(0, ["a", "b"])]
        kdsl_kafka.produce(topic, "c")
        assert runner.run(read_plan(topic)) == [(1, ["c"])]
        assert runner.run(read_plan(topic)) == []

    def test_limits_split_the_backlog_into_batches(
        self, runner: Runner, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abcdefg")

        assert runner.run(read_plan(topic, max_records=3)) == [
            (0, ["a", "b", "c"]),
            (1, ["d", "e", "f"]),
            (2, ["g"]),
        ]

    def test_the_limit_for_each_partition_applies_alone(
        self, runner: Runner, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *(Record(v, partition=0) for v in "abc"), Record("d", partition=1))

        assert [batch for _, batch in runner.run(read_plan(topic, max_records_per_partition=2))] == [
            ["a", "b", "d"],
            ["c"],
        ]

    @pytest.mark.reliability
    def test_an_uncommitted_batch_is_read_again_unchanged(
        self, runner: Runner, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *(Record(v, partition=p) for p, v in enumerate("ab")))
        plan = read_plan(topic, discovery=SOON)
        first = runner.run(plan)
        kdsl_kafka.produce(topic, Record("c", partition=0))
        second = runner.run(plan)
        kdsl_kafka.add_partitions(topic, 3)
        kdsl_kafka.produce(topic, Record("d", partition=0), Record("e", partition=2))
        runner.forget_commit(1)

        again = runner.run(plan)

        assert (first, second) == ([(0, ["a", "b"])], [(1, ["c"])])
        assert again == [(1, ["c"]), (2, ["d", "e"])]

    def test_a_first_batch_that_was_not_committed_keeps_its_start(
        self, runner: Runner, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "old")
        plan = read_plan(topic, start="latest")
        assert runner.run(plan) == [(0, [])]
        kdsl_kafka.produce(topic, "a", "b")
        runner.forget_commit(0)

        assert runner.run(plan) == [(0, []), (1, ["a", "b"])]

    def test_new_partitions_are_read_while_it_runs(
        self, runner: Runner, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a")
        query = runner.start(read_plan(topic, discovery=SOON), processingTime="0 seconds")
        try:
            wait_for(lambda: any(batch == ["a"] for _, batch in runner.batches), query)
            kdsl_kafka.add_partitions(topic, 2)
            kdsl_kafka.produce(topic, Record("b", partition=1))
            wait_for(lambda: any(batch == ["b"] for _, batch in runner.batches), query)
        finally:
            query.stop()

        assert sorted(v for _, batch in runner.batches for v in batch) == ["a", "b"]

    def test_two_streams_of_one_session_do_not_disturb_each_other(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *(Record(f"{n:02}", partition=n % 2) for n in range(40)))
        runners = [Runner(spark, cluster, tmp_path / name) for name in "ab"]
        plans = [read_plan(topic, max_records=7), read_plan(topic, max_records=16)]

        queries = [r.start(plan, availableNow=True) for r, plan in zip(runners, plans, strict=True)]
        for query in queries:
            query.awaitTermination()

        for r in runners:
            assert sorted(v for _, batch in r.batches for v in batch) == [f"{n:02}" for n in range(40)]

    def test_a_recreated_topic_stops_the_query_with_both_ids(
        self, runner: Runner, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a", "b")
        runner.run(read_plan(topic))
        old = kdsl_kafka.topic_id(topic)
        kdsl_kafka.delete_topic(topic)
        kdsl_kafka.create_topic(topic)
        kdsl_kafka.produce(topic, *"xyz")

        with pytest.raises(SparkJobError) as raised:
            runner.run(read_plan(topic))
        text = str(raised.value)
        assert f"TopicRecreatedError: {text}" in str(raised.value.__cause__)
        assert f"id {old}, the topic now has id {kdsl_kafka.topic_id(topic)}" in text

    def test_a_bad_record_stops_the_query_and_is_named(
        self, runner: Runner, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, '{"n": 1}', "{oops")

        with pytest.raises(Exception) as raised:  # Spark's own
            runner.run(read_plan(topic, value=part("json", {"n": "BIGINT"})))
        assert f"cannot read the record at topic {topic}, partition 0, offset 1: " in str(raised.value)

    def test_progress_contains_readable_offsets(
        self, runner: Runner, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        runner.run(read_plan(topic, max_records=2))

        source = runner.progress[0].sources[0]

        assert source.numInputRows == 2
        assert f'"topics":{{"{topic}":{{"id":"{kdsl_kafka.topic_id(topic)}","offsets":{{"0":2}}}}}}' in (
            source.endOffset.replace(" ", "")
        )
        assert '"offsets":{"0":3}' in source.latestOffset.replace(" ", "")

    def test_a_watermark_is_set_on_its_column(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        topic = kdsl_topic()
        at = 1_700_000_000_000
        kdsl_kafka.produce(topic, *(Record("x", timestamp=at + 1000 * n) for n in (0, 10, 100)))
        plan = read_plan(topic, metadata={"ts": "timestamp"}, watermark=Watermark("ts", "5 seconds"))
        query = (
            read_stream(spark, plan, cluster)
            .writeStream.format("noop")
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

        assert query.recentProgress[0]["eventTime"]["max"] == "2023-11-14T22:15:00.000Z"
        assert read(spark, plan, cluster).count() == 3


class TestOutage:
    @pytest.fixture
    def own_kafka(self) -> Iterator[LocalKafka]:
        with LocalKafka(heap=256) as kafka:
            yield kafka

    @pytest.mark.kafka
    @pytest.mark.reliability
    def test_a_broker_that_is_killed_in_the_middle_of_a_batch_and_comes_back(
        self, spark: SparkSession, own_kafka: LocalKafka, tmp_path: Path
    ) -> None:
        own_kafka.create_topic("orders", 2)
        producer = Producer({**own_kafka.client_properties, "queue.buffering.max.messages": 1_000_000})
        for n in range(300_000):
            producer.produce("orders", b"%07d" % n + b"x" * 200, partition=n % 2)
            if n % 10_000 == 0:
                producer.poll(0)
        producer.flush()
        plan = read_plan("orders", metadata={"at": "offset", "partition": "partition"})
        patient = {"default.api.timeout.ms": "300000"}
        df = read(spark, plan, Cluster(own_kafka.bootstrap_servers, properties=patient))
        begun, killed = tmp_path / "begun", tmp_path / "killed"

        def through_the_outage(batches: Any) -> Any:
            for batch in batches:
                begun.touch()
                until = time.monotonic() + 120
                while not killed.exists():
                    assert time.monotonic() < until
                    time.sleep(0.05)
                yield batch

        def outage() -> None:
            wait_for(begun.exists)
            own_kafka.kill()
            killed.touch()
            wait_for_connection(own_kafka.bootstrap_servers)
            own_kafka.start_broker()

        with ThreadPoolExecutor(1) as pool:
            away = pool.submit(outage)
            actual = df.mapInArrow(through_the_outage, df.schema).groupBy("partition").agg({"at": "count"}).collect()
            away.result()

        assert sorted((r["partition"], r["count(at)"]) for r in actual) == [(0, 150_000), (1, 150_000)]

    @pytest.mark.reliability
    def test_missing_brokers_are_soon_an_error_with_the_addresses(self, spark: SparkSession) -> None:
        with pytest.raises(Exception) as raised:  # Spark's own
            read(spark, read_plan("orders"), Cluster("127.0.0.1:1")).collect()
        text = str(raised.value)
        assert f"UnreachableError: Orders: no broker of 127.0.0.1:1 answered within {FIRST_ANSWER:.0f} s" in text
        assert "Connection refused" in text


class TestDecode:
    def test_rows_of_raw_records_come_without_a_broker(self, spark: SparkSession) -> None:
        df = spark.sql(
            """select * from values
            (cast('{"k": 1}' as binary), cast('{"n": 1}' as binary), 'orders', 0, 7L,
             timestamp '2024-05-01 12:00:00.123', 0, array(struct('a' as key, cast('1' as binary) as value))),
            (null, cast('{"n": 2}' as binary), 'orders', 1, 8L, null, 1, null)
            as (key, value, topic, partition, offset, timestamp, timestampType, headers)"""
        )
        plan = read_plan(
            key=part("json", {"k": "BIGINT"}),
            value=part("json", {"n": "BIGINT"}),
            metadata={"ts": "timestamp", "kind": "timestamp-type", "h": "headers", "at": "offset"},
            types={"ts": "STRING", "h": "MAP<STRING, STRING>"},
        )

        decoded = decode(df, plan)

        assert decoded.schema == spark_schema(plan.columns)
        assert rows(decoded, "k", "n", "at", "ts", "kind", "h") == [
            (1, 1, 7, "2024-05-01 12:00:00.123", "CreateTime", {"a": "1"}),
            (None, 2, 8, None, "LogAppendTime", {}),
        ]

    def test_key_and_value_are_enough_where_nothing_else_is_read(self, spark: SparkSession) -> None:
        df = spark.createDataFrame([(b'{"n": 1}',), (None,)], "value binary")

        assert rows(decode(df, read_plan(value=part("json", {"n": "BIGINT"})))) == [1]

    def test_a_missing_column_is_named(self, spark: SparkSession) -> None:
        df = spark.createDataFrame([(b"",)], "value binary")

        with pytest.raises(KdslError, match="has no 'timestamp', which the table needs; it has 'value'"):
            decode(df, read_plan(metadata={"ts": "timestamp"}))

    @pytest.mark.parametrize(
        ("column", "message"),
        [
            ("1 as value", "'value' of the DataFrame of raw records is int, but in a record it is binary or string"),
            ("named_struct('n', 1) as value", "'value' of the DataFrame of raw records is struct<n:int>"),
            ("map('a', binary('1')) as headers", "array<struct<key:string,value:binary>>; cast it"),
            ("0L as timestamp", "is bigint, but in a record it is timestamp or timestamp_ntz"),
            ("'7' as offset", "is string, but in a record it is tinyint or smallint or int or bigint"),
        ],
    )
    def test_a_column_that_no_record_has_so_is_refused_before_anything_runs(
        self, spark: SparkSession, column: str, message: str
    ) -> None:
        name = column.rpartition(" ")[2]
        plan = read_plan(value=part("raw", {"n": "STRING"})) if name == "value" else read_plan(metadata={"m": name})

        with pytest.raises(KdslError, match=re.escape(message)):
            decode(spark.sql(f"select {column}"), plan)

    def test_strings_and_nulls_are_keys_and_values(self, spark: SparkSession) -> None:
        df = spark.sql("select null as key, '{\"n\": 1}' as value, 3Y as partition, null as headers")
        plan = read_plan(
            key=part("json", {"k": "BIGINT"}),
            value=part("json", {"n": "BIGINT"}),
            metadata={"p": "partition", "h": "headers"},
        )

        assert rows(decode(df, plan), "k", "n", "p", "h") == [(None, 1, 3, {})]

    def test_a_bad_record_is_named_as_far_as_it_is_known(self, spark: SparkSession) -> None:
        plan = read_plan(value=part("json", {"n": "BIGINT"}))
        with_place = spark.createDataFrame(
            [(b"{", "orders", 4, 2**40)], "value binary, topic string, partition int, offset long"
        )

        with pytest.raises(Exception, match=f"at topic orders, partition 4, offset {2**40}: "):
            decode(with_place, plan).collect()
        with pytest.raises(Exception, match="Orders: cannot read a record: the value cannot be decoded"):
            decode(with_place.select("value"), plan).collect()

    def test_archived_records_decode_as_a_stream(self, spark: SparkSession, tmp_path: Path) -> None:
        spark.createDataFrame([(b'{"n": 1}',), (b'{"n": 2}',)], "value binary").write.parquet(str(tmp_path / "archive"))
        archive = spark.readStream.schema("value binary").parquet(str(tmp_path / "archive"))
        results: list[Any] = []

        query = (
            decode(archive, read_plan(value=part("json", {"n": "BIGINT"})))
            .writeStream.foreachBatch(lambda df, _: results.extend(rows(df)))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

        assert sorted(results) == [1, 2]
