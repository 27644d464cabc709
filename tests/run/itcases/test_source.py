"""The reference's integration tests of its source (itcases A5 to A8, A16 to A19, E1 to E9), on Spark and a broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kdsl.cluster import Cluster
from kdsl.declare.config import ColumnConfig, Scalar, TableConfig, WatermarkConfig
from kdsl.table import Table
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Read = Callable[..., list[tuple[Any, ...]]]
BEHAVIOUR = ("user_id INT", "item_id INT", "behavior STRING")
BEHAVIOURS = [(1, 1102, "behavior 1"), (2, 1103, "behavior 2"), (3, 1104, "behavior 3")]
PARTITIONS = 10
often_one_format = pytest.mark.parametrize("form", ["json", pytest.param("csv", marks=pytest.mark.reliability)])
both_ways = pytest.mark.parametrize("streaming", [False, True], ids=["batch", "stream"])
both_formats_both_ways = pytest.mark.parametrize(
    ("form", "streaming"),
    [
        ("csv", False),
        ("json", True),
        pytest.param("csv", True, marks=pytest.mark.reliability),
        pytest.param("json", False, marks=pytest.mark.reliability),
    ],
    ids=["csv-batch", "json-stream", "csv-stream", "json-batch"],
)


def table(
    topic: str, *columns: str, watermark: str | None = None, options: Mapping[str, Scalar] | None = None
) -> Table:
    """A table from ``name TYPE [METADATA FROM key]``; from the earliest record on, unless the options say otherwise."""
    results = []
    for text in columns:
        name, kind = text.split(" ", 1)
        kind, _, key = kind.partition(" METADATA FROM ")
        results.append(
            ColumnConfig(name=name, type=kind, metadata=key or False, virtual=key in ("partition", "offset"))
        )
    settings: dict[str, Scalar] = {"connector": "kafka", "topic": topic, "scan.startup.mode": "earliest-offset"}
    config = TableConfig(
        name="kafka",
        columns=results,
        options={**settings, **(options or {})},
        watermark=None if watermark is None else WatermarkConfig(column=watermark, delay="0 s"),
    )
    return Table(config.definition())


def lines(form: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """The messages of rows."""
    names = [text.split(" ")[0] for text in columns]
    if form == "json":
        return [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    return [",".join(map(str, row)) for row in rows]


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture
def run(spark: SparkSession, cluster: Cluster, tmp_path: Path) -> Read:
    """Reads what there is as a stream; again, from the checkpoint of the time before."""

    def stream(value: Table, over: Cluster | None = None, **more: Any) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []

        def keep(df: DataFrame, _: int) -> None:
            rows.extend(map(tuple, df.collect()))

        df = value.read_stream(spark, over or cluster, **more)
        query = (
            df.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return rows

    return stream


@pytest.fixture
def read(spark: SparkSession, cluster: Cluster, run: Read, streaming: bool) -> Read:
    """Reads what there is, in a batch or as a stream."""

    def batch(value: Table, over: Cluster | None = None, **more: Any) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in value.read(spark, over or cluster, **more).collect()]

    return run if streaming else batch


@both_formats_both_ways
class TestBounded:
    def test_a_range_that_was_deleted_is_empty(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, read: Read, form: str
    ) -> None:
        """A5; BD-14."""
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *lines(form, BEHAVIOUR, BEHAVIOURS))
        options = {
            "format": form,
            "scan.startup.mode": "specific-offsets",
            "scan.startup.specific-offsets": "partition:0,offset:1",
            "scan.bounded.mode": "specific-offsets",
            "scan.bounded.specific-offsets": "partition:0,offset:3",
        }
        kdsl_kafka.delete_records(topic, {0: 3})

        assert read(table(topic, *BEHAVIOUR, options=options)) == []

    def test_an_offset_ends_it(self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, read: Read, form: str) -> None:
        """A6; BD-11."""
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *lines(form, BEHAVIOUR, BEHAVIOURS))
        options = {
            "format": form,
            "scan.bounded.mode": "specific-offsets",
            "scan.bounded.specific-offsets": "partition:0,offset:2",
        }

        assert read(table(topic, *BEHAVIOUR, options=options)) == BEHAVIOURS[:2]

    def test_a_time_ends_it(self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, read: Read, form: str) -> None:
        """A7; BD-10. (The client of this test takes a timestamp of 0 for now.)"""
        topic = kdsl_topic(config={"message.timestamp.before.max.ms": str(2**62)})
        values = lines(form, BEHAVIOUR, BEHAVIOURS)
        kdsl_kafka.produce(topic, *(Record(v, timestamp=at) for v, at in zip(values, (1, 3, 7), strict=True)))
        options: dict[str, Scalar] = {
            "format": form, "scan.bounded.mode": "timestamp", "scan.bounded.timestamp-millis": 5
        }  # fmt: skip

        rows = read(table(topic, *BEHAVIOUR, "event_time TIMESTAMP_LTZ(3) METADATA FROM timestamp", options=options))

        times = [datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=ms) for ms in (1, 3)]
        assert [row[:3] for row in rows] == BEHAVIOURS[:2]
        assert [row[3].astimezone(UTC) for row in rows] == times


@both_formats_both_ways
def test_a_list_of_topics_is_read_as_one_table(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, read: Read, form: str
) -> None:
    """A8."""
    topics = {name: kdsl_topic(name) for name in ("Euro", "Dollar", "Yen", "Dummy")}
    for name, topic in topics.items():
        kdsl_kafka.produce(topic, *lines(form, ["currency STRING"], [(name,)]))

    rows = read(table(";".join(topics.values()), "currency STRING", options={"format": form}))

    assert sorted(rows) == [("Dollar",), ("Dummy",), ("Euro",), ("Yen",)]


class TestWatermark:
    COLUMNS = ("partition_id INT", "name STRING", "ts TIMESTAMP(3)")

    def produce(self, kafka: RunningKafka, topic: str, form: str, rows: Sequence[tuple[int, str, str]]) -> None:
        """Rows that go to the partition that their first column names, with their time as the record's."""
        values = lines(form, self.COLUMNS, rows)
        for (partition, _, text), value in zip(rows, values, strict=True):
            millis = int(datetime.fromisoformat(f"{text}+00:00").timestamp() * 1000)
            kafka.produce(topic, Record(value, None, [], partition, millis))

    def counts(
        self, spark: SparkSession, value: Table, cluster: Cluster, folder: Path, window: str, mode: str
    ) -> tuple[dict[tuple[int, str], int], int, int]:
        """Rows by partition and window, how many were dropped as late, and how many batches had rows."""
        from pyspark.sql import functions as sf

        results: dict[tuple[int, str], int] = {}

        def keep(df: DataFrame, _: int) -> None:
            results.update({(r["partition_id"], str(r["begin"])): r["count"] for r in df.collect()})

        counted = (
            value.read_stream(spark, cluster)
            .groupBy("partition_id", sf.window("ts", window))
            .count()
            .select("partition_id", sf.col("window.start").alias("begin"), "count")
        )
        query = (
            counted.writeStream.outputMode(mode)
            .foreachBatch(keep)
            .option("checkpointLocation", str(folder))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        late = sum(o.numRowsDroppedByWatermark for p in query.recentProgress for o in p.stateOperators)
        return results, late, sum(p.numInputRows > 0 for p in query.recentProgress)

    @pytest.mark.parametrize("form", ["csv"])
    def test_no_row_of_a_slow_partition_is_late(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        tmp_path: Path,
        form: str,
    ) -> None:
        """A16: partitions that are days apart are caught up along the time."""
        topic = kdsl_topic(partitions=4, config={"message.timestamp.before.max.ms": str(2**62)})
        days = {0: 3, 1: 3, 2: 6, 3: 2}
        rows = [
            (partition, f"name {n}", f"2020-03-{8 + partition:02} 13:{10 + n}:11.123")
            for partition, count in days.items()
            for n in range(count)
        ]
        self.produce(kdsl_kafka, topic, form, rows)
        options: dict[str, Scalar] = {"format": form, "scan.max-records-per-trigger": 4}

        result, late, batches = self.counts(
            spark, table(topic, *self.COLUMNS, watermark="ts", options=options), cluster, tmp_path, "1 minute", "update"
        )

        assert (sum(result.values()), late) == (14, 0)
        assert batches >= 4

    @pytest.mark.parametrize("form", ["json"])
    def test_silent_partitions_do_not_keep_windows_open(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        tmp_path: Path,
        form: str,
    ) -> None:
        """A17; a wall-clock time as event time in a session whose zone is not UTC."""
        topic = kdsl_topic(partitions=4, config={"message.timestamp.before.max.ms": str(2**62)})
        times = ["13:12:11.123", "13:15:12.223", "16:12:13.323", "13:13:11.123", "13:19:11.133", "16:13:11.143"]
        rows = [(n // 3, f"{n}", f"2020-03-08 {time}") for n, time in enumerate(times)]
        self.produce(kdsl_kafka, topic, form, rows)
        options: dict[str, Scalar] = {"format": form, "scan.watermark.idle-timeout": "100 ms"}

        sample = table(topic, *self.COLUMNS, watermark="ts", options=options)
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        try:
            result, late, _ = self.counts(spark, sample, cluster, tmp_path, "1 hour", "append")
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")

        assert result == {(0, "2020-03-08 13:00:00"): 2, (1, "2020-03-08 13:00:00"): 2}
        assert late == 0

    @both_ways
    def test_the_records_own_time_is_the_event_time(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, read: Read
    ) -> None:
        """E1."""
        topic = kdsl_topic()
        now = 1_700_000_000_000
        kdsl_kafka.produce(topic, *(Record(f"{n}", timestamp=now + n) for n in (1, 2, 3)))
        result = table(topic, "n STRING", "ts TIMESTAMP_LTZ(3) METADATA FROM timestamp", watermark="ts",
                      options={"format": "raw"})  # fmt: skip

        assert [round(row[1].timestamp() * 1000) for row in read(result)] == [now + 1, now + 2, now + 3]

    def test_no_record_is_older_than_the_watermark(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path
    ) -> None:
        """E6: two partitions with alternating times, one record a batch."""
        topic = kdsl_topic(partitions=2, config={"message.timestamp.before.max.ms": str(2**62)})
        for partition, millis in ((0, (100, 200, 300)), (1, (150, 250, 350))):
            kdsl_kafka.produce(topic, *(Record(f"{ms}", None, [], partition, ms) for ms in millis))
        sample = table(
            topic,
            "n STRING",
            "partition_id INT METADATA FROM partition",
            "ts TIMESTAMP_LTZ(3) METADATA FROM timestamp",
            watermark="ts",
            options={"format": "raw", "scan.max-records-per-trigger": 1},
        )

        result, late, batches = self.counts(spark, sample, cluster, tmp_path, "10 milliseconds", "update")

        assert (sum(result.values()), late, batches) == (6, 0, 6)


class TestStart:
    COLUMNS = ("partition_id INT", "n INT")

    def produce(self, kafka: RunningKafka, topic: str, form: str, *rows: tuple[int, int]) -> None:
        values = lines(form, self.COLUMNS, rows)
        kafka.produce(topic, *(Record(v, partition=p) for (p, _), v in zip(rows, values, strict=True)))

    @often_one_format
    def test_latest_is_computed_once(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, run: Read, form: str
    ) -> None:
        """A18: also partitions that had nothing before the stop go on where they were at the first start."""
        topic = kdsl_topic(partitions=6)
        self.produce(kdsl_kafka, topic, form, *((p, 0) for p in range(6)))
        result = table(topic, *self.COLUMNS, options={"format": form, "scan.startup.mode": "latest-offset"})
        assert run(result) == []
        first = [(0, 1), (1, 1), (2, 1)]
        self.produce(kdsl_kafka, topic, form, *first)
        assert sorted(run(result)) == first
        second = [(0, 2), (1, 2), (2, 2), (3, 1), (4, 1), (5, 1)]
        self.produce(kdsl_kafka, topic, form, *second)

        assert sorted(run(result)) == second

        third = [(0, 3), (1, 3), (2, 3), (3, 2), (4, 2), (5, 2)]
        self.produce(kdsl_kafka, topic, form, *third)
        assert sorted(run(result)) == third

    @often_one_format
    @pytest.mark.parametrize("reset", ["earliest", "latest", "none"])
    def test_a_fresh_group_follows_the_reset_policy(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, run: Read, form: str, reset: str
    ) -> None:
        """A19; S11."""
        topic = kdsl_topic("group", partitions=4)
        old = [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5)]
        self.produce(kdsl_kafka, topic, form, *old)
        options: dict[str, Scalar] = {
            "format": form,
            "scan.startup.mode": "group-offsets",
            "properties.group.id": f"group-of-{topic}",
            "properties.auto.offset.reset": reset,
        }
        result = table(topic, *self.COLUMNS, options=options)

        if reset == "none":
            with pytest.raises(Exception, match="has no committed offset for"):
                run(result)
            return
        assert sorted(run(result)) == (old if reset == "earliest" else [])
        new = [(2, 6), (2, 7), (2, 8)]
        self.produce(kdsl_kafka, topic, form, *new)
        assert sorted(run(result)) == new


class TestLaunch:
    """A start at launch ranks after the checkpoint, and before the declared one."""

    @both_ways
    def test_it_comes_before_the_declared_start(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, read: Read
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *(Record(v, None, [], p, 1_700_000_000_000 + p) for p, v in ((0, "a"), (1, "b"))))
        result = table(topic, "n STRING", options={"format": "raw"})

        assert read(result, start_at=datetime.fromtimestamp(1_700_000_000.001, UTC)) == [("b",)]

    def test_a_checkpoint_comes_before_it(self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, run: Read) -> None:
        """S13."""
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        result = table(topic, "n STRING", options={"format": "raw"})
        assert run(result, start_at={0: 1}) == [("b",), ("c",)]
        kdsl_kafka.produce(topic, "d")

        assert run(result, start_at="earliest") == [("d",)]

    @both_ways
    def test_an_expired_one_is_answered_by_the_policy(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, read: Read
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        kdsl_kafka.delete_records(topic, {0: 2})
        result = table(topic, "n STRING", options={"format": "raw"})

        with pytest.raises(Exception, match="offset 1 is requested, but the earliest is 2"):
            read(result, start_at={0: 1})
        lenient = Cluster(cluster.bootstrap_servers, properties={"auto.offset.reset": "earliest"})
        assert read(result, lenient, start_at={0: 0}) == [("c",)]


@pytest.fixture(scope="module")
def numbers(kdsl_kafka: RunningKafka) -> list[str]:
    """Two topics of ten partitions; partition P had the values 0 to 9, and those below P are deleted."""
    results = []
    own = uuid.uuid4().hex[:8]
    for name in (f"numbers-one-{own}", f"numbers-two-{own}"):
        kdsl_kafka.create_topic(name, PARTITIONS)
        values = [Record(n.to_bytes(4, "big"), partition=p) for p in range(PARTITIONS) for n in range(10)]
        kdsl_kafka.produce(name, *values)
        kdsl_kafka.delete_records(name, {p: p for p in range(1, PARTITIONS)})
        results.append(name)
    return results


EXPECTED = {partition: list(range(partition, 10)) for partition in range(PARTITIONS)}


def by_place(rows: Iterable[tuple[Any, ...]]) -> dict[str, dict[int, list[int]]]:
    """Values in the order in which they came, by topic and partition."""
    results: dict[str, dict[int, list[int]]] = {}
    for value, topic, partition in rows:
        results.setdefault(topic, {}).setdefault(partition, []).append(value)
    return results


@both_ways
class TestProperties:
    COLUMNS = ("n INT", "topic STRING METADATA FROM topic", "partition_id INT METADATA FROM partition")

    @pytest.mark.parametrize(
        "options",
        [{}, {"properties.group.id": "numbers"}, {"scan.parallelism": PARTITIONS + 1}, {"scan.parallelism": 1}],
        ids=["no group", "group", "more tasks than partitions", "one task"],
    )
    def test_every_partition_is_read_in_its_order(
        self, numbers: list[str], read: Read, options: dict[str, Scalar]
    ) -> None:
        """E2, E4, E5."""
        rows = read(table(";".join(numbers), *self.COLUMNS, options={"format": "raw", **options}))

        assert by_place(rows) == dict.fromkeys(numbers, EXPECTED)

    def test_a_value_alone_can_be_read(self, numbers: list[str], read: Read) -> None:
        """E3: the value is a big-endian integer, as Kafka's IntegerDeserializer has it."""
        rows = read(table(";".join(numbers), "n INT", options={"format": "raw"}))

        assert sum(n for (n,) in rows) == 2 * sum(map(sum, EXPECTED.values()))

    def test_empty_partitions_are_read_to_their_end(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, read: Read
    ) -> None:
        """E7, E8."""
        options: dict[str, Scalar] = {"format": "raw", "scan.parallelism": 2}
        topic = kdsl_topic(partitions=10)
        result = table(topic, *self.COLUMNS, options=options)
        assert read(result) == []
        kdsl_kafka.produce(topic, *(Record(n.to_bytes(4, "big"), partition=5) for n in range(5, 10)))

        assert by_place(read(result)) == {topic: {5: EXPECTED[5]}}

    @pytest.mark.parametrize("level", ["read_committed", "read_uncommitted"])
    def test_control_records_are_skipped(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, read: Read, level: str
    ) -> None:
        """E9: the last offset is a control record, and there are some in between."""
        topic = kdsl_topic("controls", partitions=3)
        producer = Producer({**kdsl_kafka.client_properties, "transactional.id": f"tx-{topic}"})
        producer.init_transactions()
        for numbers in (range(4), range(4, 10)):
            producer.begin_transaction()
            for n in numbers:
                for partition in range(3):
                    producer.produce(topic, n.to_bytes(4, "big"), partition=partition)
            producer.commit_transaction()
        settle(kdsl_kafka, topic)
        kdsl_kafka.delete_records(topic, {1: 1, 2: 2})
        over = Cluster(cluster.bootstrap_servers, properties={"isolation.level": level})

        rows = read(table(topic, *self.COLUMNS, options={"format": "raw", "scan.bounded.mode": "latest-offset"}), over)

        assert kdsl_kafka.end_offsets(topic) == dict.fromkeys(range(3), 12)
        assert by_place(rows) == {topic: {p: EXPECTED[p] for p in range(3)}}


@both_ways
def test_the_header_filter_is_applied_before_a_record_is_decoded(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, read: Read
) -> None:
    """Records that the filter drops may be broken."""
    topic = kdsl_topic()
    kdsl_kafka.produce(
        topic,
        Record('{"n": 1}', headers=[("depart", b"toy")]),
        Record("{broken", headers=[("depart", b"toy"), ("env", b"test")]),
        Record("{broken", headers=[("depart", b"car"), ("depart", None)]),
        Record("{broken"),
        Record('{"n": 5}', headers=[("x", None), ("depart", b"car"), ("depart", b"book")]),
    )
    options: dict[str, Scalar] = {"format": "json", "scan.header-filter": "depart:toy|depart:book&!env:test"}

    assert read(table(topic, "n INT", options=options)) == [(1,), (5,)]


def test_a_bounded_group_ends_a_stream_where_the_group_was(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, run: Read
) -> None:
    """BD-13's counterpart: the offsets are there."""
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *"abc")
    group = f"group-of-{topic}"
    member = Consumer({**kdsl_kafka.client_properties, "group.id": group})
    member.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    member.close()
    options: dict[str, Scalar] = {
        "format": "raw", "scan.bounded.mode": "group-offsets", "properties.group.id": group
    }  # fmt: skip

    assert run(table(topic, "n STRING", options=options)) == [("a",), ("b",)]
