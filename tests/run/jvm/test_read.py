"""Reads over Spark's own Kafka connector mean the same as over librdkafka: each test runs on both transports."""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.plan.model import Stop, Topics
from kdsl.resolve.header_filter import parse_header_filter
from kdsl.resolve.model import Start
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.read import read, read_stream
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types.spark import spark_schema
from tests.run.jvm.transports import TRANSPORTS, commit, run, sort_strings
from tests.run.read_plans import part, read_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = 1_700_000_000_000


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def filled_topic(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> str:
    """A topic of two partitions: a0 to a3 and b0 to b2, a second apart from noon on."""
    topic = kdsl_topic("filled", partitions=2)
    kdsl_kafka.produce(topic, *(Record(f"a{i}", partition=0, timestamp=NOON + 1000 * i) for i in range(4)))
    kdsl_kafka.produce(topic, *(Record(f"b{i}", partition=1, timestamp=NOON + 1000 * i) for i in range(3)))
    return topic


def group() -> str:
    return f"group-{uuid.uuid4().hex[:8]}"


class TestRecords:
    def test_key_value_and_metadata(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, transport: str
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(
            topic,
            Record('{"name": "one", "tags": ["a"]}', '{"id": 1}', [("h", b"1"), ("h", None)], 0, NOON + 123),
            Record('{"name": "two", "at": "2024-05-01 12:00:00.5"}', None, [], 1, NOON + 456),
        )
        plan = read_plan(
            topic,
            key=part("json", {"k_id": "BIGINT"}, ["id"]),
            value=part("json", {"name": "STRING NOT NULL", "tags": "ARRAY<STRING NOT NULL>", "at": "TIMESTAMP(3)"}),
            metadata={
                "topic": "topic",
                "partition": "partition",
                "offset": "offset",
                "ts": "timestamp",
                "kind": "timestamp-type",
                "headers": "headers",
                "list": "header-list",
                "raw": "__raw_key__",
            },
            transport=transport,
        )

        df = read(spark, plan, cluster)

        assert df.schema == spark_schema(plan.columns)
        one, two = (r.asDict(recursive=True) for r in df.orderBy("partition").collect())
        assert (one["k_id"], one["name"], one["tags"], one["at"]) == (1, "one", ["a"], None)
        assert (two["k_id"], two["name"], two["tags"]) == (None, "two", None)
        assert str(two["at"]) == "2024-05-01 12:00:00.500000"
        assert (one["topic"], one["partition"], one["offset"]) == (topic, 0, 0)
        assert (one["ts"].timestamp(), one["kind"]) == (1_700_000_000.123, "CreateTime")
        assert (one["headers"], one["raw"]) == ({"h": None}, b'{"id": 1}')
        assert one["list"] == [{"key": "h", "value": b"1"}, {"key": "h", "value": None}]
        assert (two["headers"], two["list"], two["raw"]) == ({}, [], None)

    def test_a_broken_message_is_reported_with_its_location(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, transport: str
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, '{"name": "one"}', "{broken")
        plan = read_plan(topic, value=part("json", {"name": "STRING"}), transport=transport)

        with pytest.raises(Exception) as raised:  # Spark's own
            read(spark, plan, cluster).collect()

        assert f"Orders: cannot read the record at topic {topic}, partition 0, offset 1" in str(raised.value)

    def test_a_header_filter(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, transport: str
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(
            topic,
            Record("toy", headers=[("depart", b"toy")]),
            Record("book", headers=[("depart", b"x"), ("depart", b"book")]),
            Record("test", headers=[("depart", b"toy"), ("env", b"test")]),
            Record("null", headers=[("depart", None)]),
            Record("none"),
        )

        def read_filtered(text: str) -> list[Any]:
            return sort_strings(
                read(spark, read_plan(topic, headers=parse_header_filter(text), transport=transport), cluster)
            )

        assert read_filtered("depart:toy|depart:book&!env:test") == ["book", "toy"]
        assert read_filtered("!depart:toy") == ["book", "none", "null"]


class TestTopics:
    def test_a_pattern(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, transport: str
    ) -> None:
        begin = f"p{uuid.uuid4().hex[:6]}"
        for name in ("one", "two"):
            kdsl_kafka.produce(kdsl_topic(f"{begin}-{name}"), name)

        assert sort_strings(read(spark, read_plan(pattern=f"{begin}-.*", transport=transport), cluster)) == [
            "one",
            "two",
        ]

    @pytest.mark.parametrize(
        "pattern",
        [
            "{}|x",
            r"(w)hole-\1?{}",
            *(pytest.param(other, marks=pytest.mark.reliability) for other in ("{}", "({})", "(?i){}")),
        ],
    )
    def test_a_pattern_must_match_the_whole_name(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        transport: str,
        pattern: str,
        tmp_path: Path,
    ) -> None:
        """Spark's own source takes every topic that has a match in its name."""
        one = kdsl_topic("whole-one")
        for name in (one, kdsl_topic(f"more-{one}")):
            kdsl_kafka.produce(name, "one" if name == one else "another")
        result = pattern.format(one.removeprefix("whole-") if "hole" in pattern else one)
        plan = read_plan(pattern=result, transport=transport)

        assert sort_strings(read(spark, plan, cluster)) == ["one"]
        assert run(spark, plan, cluster, tmp_path) == ["one"]

    def test_some_partitions(self, spark: SparkSession, cluster: Cluster, filled_topic: str, transport: str) -> None:
        plan = attrs.evolve(
            read_plan(filled_topic, transport=transport),
            topics=Topics((filled_topic,), partitions=((filled_topic, 1),)),
        )

        assert sort_strings(read(spark, plan, cluster)) == ["b0", "b1", "b2"]

    def test_a_topic_that_is_missing(self, spark: SparkSession, cluster: Cluster, transport: str) -> None:
        with pytest.raises(Exception) as raised:  # on librdkafka Spark's own, on jvm before Spark begins
            read(spark, read_plan("no-such-topic", transport=transport), cluster).collect()

        assert "Orders: the cluster has no topic 'no-such-topic'" in str(raised.value)

    def test_as_many_tasks_as_are_allowed(
        self, spark: SparkSession, cluster: Cluster, filled_topic: str, transport: str
    ) -> None:
        df = read(spark, read_plan(filled_topic, parallelism=1, transport=transport), cluster)

        assert df.rdd.getNumPartitions() == 1
        assert len(sort_strings(df)) == 7


STARTS: tuple[tuple[str, Start, list[str]], ...] = (
    ("earliest", Start("earliest"), ["a0", "a1", "a2", "a3", "b0", "b1", "b2"]),
    ("timestamp", Start("timestamp", NOON + 2500), ["a3"]),
    ("specific", Start("specific-offsets", offsets=(("filled", 0, 2),), reset="earliest"),
     ["a2", "a3", "b0", "b1", "b2"]),
    ("specific, others latest", Start("specific-offsets", offsets=(("filled", 0, 2),), reset="latest"), ["a2", "a3"]),
    ("group", Start("group-offsets", reset="latest"), ["a1", "a2", "a3"]),
    ("group, else earliest", Start("group-offsets", reset="earliest"), ["a1", "a2", "a3", "b0", "b1", "b2"]),
)  # fmt: skip
STOPS: tuple[tuple[str, Stop, list[str]], ...] = (
    ("latest", Stop("latest"), ["a0", "a1", "a2", "a3", "b0", "b1", "b2"]),
    ("timestamp", Stop("timestamp", NOON + 1500), ["a0", "a1", "b0", "b1"]),
    ("specific", Stop("specific-offsets", offsets=(("filled", 0, 2), ("filled", 1, 1))), ["a0", "a1", "b0"]),
    ("group", Stop("group-offsets"), ["a0", "b0", "b1"]),
)


def often(cases: Sequence[tuple[str, Any, list[str]]], *names: str) -> list[Any]:
    """Cases; those that are not named are long ones, as a batch proves the same of them."""
    return [case if case[0] in names else pytest.param(case, marks=pytest.mark.reliability) for case in cases]


def of(topic: str, moment: Any) -> Any:
    """A start or stop for the topic of a test."""
    return attrs.evolve(moment, offsets=tuple((topic, p, offset) for _, p, offset in moment.offsets))


class TestStartAndStop:
    @pytest.mark.parametrize("case", STARTS, ids=lambda case: case[0])
    def test_a_batch_starts(
        self,
        spark: SparkSession,
        cluster: Cluster,
        filled_topic: str,
        transport: str,
        case: tuple[str, Start, list[str]],
    ) -> None:
        name = group()
        commit(cluster, name, {(filled_topic, 0): 1})
        plan = read_plan(filled_topic, start=of(filled_topic, case[1]), group_id=name, transport=transport)

        assert sort_strings(read(spark, plan, cluster)) == case[2]

    @pytest.mark.parametrize("case", often(STARTS, "timestamp", "group"), ids=lambda case: case[0])
    def test_a_stream_starts(
        self,
        spark: SparkSession,
        cluster: Cluster,
        filled_topic: str,
        tmp_path: Path,
        case: tuple[str, Start, list[str]],
    ) -> None:
        name = group()
        commit(cluster, name, {(filled_topic, 0): 1})
        plan = read_plan(filled_topic, start=of(filled_topic, case[1]), group_id=name, transport="jvm")

        assert run(spark, plan, cluster, tmp_path / "checkpoint") == case[2]

    def test_latest_reads_what_comes_later(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, cluster: Cluster, filled_topic: str, tmp_path: Path
    ) -> None:
        plan = read_plan(filled_topic, start="latest", transport="jvm")

        assert sort_strings(read(spark, plan, cluster)) == []
        assert run(spark, plan, cluster, tmp_path / "checkpoint") == []
        kdsl_kafka.produce(filled_topic, "later")
        assert run(spark, plan, cluster, tmp_path / "checkpoint") == ["later"]

    @pytest.mark.parametrize("case", STOPS, ids=lambda case: case[0])
    def test_a_batch_ends(
        self,
        spark: SparkSession,
        cluster: Cluster,
        filled_topic: str,
        transport: str,
        case: tuple[str, Stop, list[str]],
    ) -> None:
        name = group()
        commit(cluster, name, {(filled_topic, 0): 1, (filled_topic, 1): 2})
        plan = read_plan(filled_topic, stop=of(filled_topic, case[1]), group_id=name, transport=transport)

        assert sort_strings(read(spark, plan, cluster)) == case[2]

    @pytest.mark.parametrize("case", often(STOPS, "latest", "timestamp"), ids=lambda case: case[0])
    def test_a_stream_returns_nothing_after_its_end(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        cluster: Cluster,
        filled_topic: str,
        tmp_path: Path,
        case: tuple[str, Stop, list[str]],
    ) -> None:
        name = group()
        commit(cluster, name, {(filled_topic, 0): 1, (filled_topic, 1): 2})
        plan = read_plan(filled_topic, stop=of(filled_topic, case[1]), group_id=name, transport="jvm")

        assert run(spark, plan, cluster, tmp_path / "checkpoint") == case[2]

    def test_the_end_of_an_unbounded_batch_is_taken_when_an_action_runs(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, cluster: Cluster, filled_topic: str
    ) -> None:
        df = read(spark, read_plan(filled_topic, transport="jvm"), cluster)

        assert df.count() == 7
        kdsl_kafka.produce(filled_topic, "later")
        assert df.count() == 8

    def test_an_end_before_the_start_reads_nothing(
        self, spark: SparkSession, cluster: Cluster, filled_topic: str, transport: str
    ) -> None:
        start = Start("specific-offsets", offsets=((filled_topic, 0, 3), (filled_topic, 1, 3)))
        stop = Stop("specific-offsets", offsets=((filled_topic, 0, 1), (filled_topic, 1, 1)))

        assert (
            sort_strings(read(spark, read_plan(filled_topic, start=start, stop=stop, transport=transport), cluster))
            == []
        )


class TestStreams:
    def test_a_bounded_stream_ends_and_commits_to_its_group(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, cluster: Cluster, filled_topic: str, transport: str
    ) -> None:
        stop = Stop("specific-offsets", offsets=((filled_topic, 0, 4), (filled_topic, 1, 3)))
        plan = read_plan(filled_topic, stop=stop, group_id=group(), transport=transport)

        query = read_stream(spark, plan, cluster).writeStream.format("noop").start()
        ended = query.awaitTermination(300)
        query.stop()

        assert ended
        assert query.exception() is None
        partitions = [(filled_topic, 0), (filled_topic, 1)]
        committed: dict[Any, int] = {}
        until = time.monotonic() + 120
        while not committed and time.monotonic() < until:  # the last commit comes after the end
            time.sleep(0.05)
            committed = LibrdkafkaAdmin(cluster, "Orders").committed(str(plan.group_id), partitions)
        assert committed == {(filled_topic, 0): 4, (filled_topic, 1): 3}

    def test_a_checkpoint_comes_before_the_start(
        self, spark: SparkSession, kdsl_kafka: RunningKafka, cluster: Cluster, filled_topic: str, tmp_path: Path
    ) -> None:
        plan = read_plan(filled_topic, max_records=3, transport="jvm")

        assert len(run(spark, plan, cluster, tmp_path / "checkpoint")) == 7
        kdsl_kafka.produce(filled_topic, "later")
        assert run(
            spark, read_plan(filled_topic, start="latest", transport="jvm"), cluster, tmp_path / "checkpoint"
        ) == ["later"]

    def test_a_group_without_offsets_stops_a_query_only_without_a_checkpoint(
        self, spark: SparkSession, cluster: Cluster, filled_topic: str, tmp_path: Path
    ) -> None:
        lost = read_plan(filled_topic, start="group-offsets", group_id=group(), transport="jvm")
        text = f"the consumer group '{lost.group_id}' has no committed offset for {filled_topic}[0]"

        with pytest.raises(KdslError, match="has no committed offset"):
            read(spark, lost, cluster)
        query = read_stream(spark, lost, cluster).writeStream.format("noop").start()
        with pytest.raises(Exception) as raised:  # Spark's own
            query.awaitTermination(300)
        assert text in str(raised.value)

        assert len(run(spark, read_plan(filled_topic, transport="jvm"), cluster, tmp_path / "checkpoint")) == 7
        assert run(spark, lost, cluster, tmp_path / "checkpoint") == []

    @pytest.mark.parametrize("discovers", [True, False])
    def test_new_partitions_are_found_unless_discovery_is_off(
        self,
        spark: SparkSession,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        tmp_path: Path,
        discovers: bool,
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "old")
        plan = read_plan(topic, transport="jvm")
        df = read_stream(spark, plan if discovers else attrs.evolve(plan, discovery=None), cluster)
        kdsl_kafka.add_partitions(topic, 2)
        kdsl_kafka.produce(topic, Record("new", partition=1))
        results: list[Any] = []

        writer = df.writeStream.foreachBatch(lambda batch, _: results.extend(sort_strings(batch)))
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

        assert sorted(results) == (["new", "old"] if discovers else ["old"])
