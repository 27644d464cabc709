"""The progress of streams on a real broker, driven as Spark drives them, without a JVM."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import attrs
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kdsl.cluster import Cluster
from kdsl.errors import OffsetError, TopicMissingError, TopicRecreatedError
from kdsl.plan.model import ReadPlan, Watermark
from kdsl.resolve.model import Start, Stop, Topics
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.librdkafka.options import write_options
from kdsl.run.librdkafka.read_task import PARALLELISM, Task
from kdsl.run.librdkafka.source import StreamReader
from kdsl.run.librdkafka.stream import Limits, Stream
from kdsl.run.offsets.stored import Range
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.descriptions import hide_at_first
from tests.patience import do_not_wait_for_topics
from tests.run.read_plans import Query, read_plan, sort_strings
from tests.transactions import settle

ALWAYS = timedelta(0)


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture
def begin(cluster: Cluster) -> Callable[..., Query]:
    """Begins a query over a topic; new partitions are looked for with every batch."""

    def make(*topics: str, committed: bool = False, **plan: object) -> Query:
        level = {"isolation.level": "read_committed"} if committed else {}
        over = Cluster(cluster.bootstrap_servers, properties=level)
        return Query(read_plan(*topics, **{"discovery": ALWAYS, **plan}), over)  # type: ignore[arg-type]

    return make


def in_partition(partition: int, *values: str) -> list[Record]:
    return [Record(value, partition=partition) for value in values]


class TestStart:
    def test_earliest_reads_existing_and_then_new_records(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *in_partition(0, "a", "b"), *in_partition(1, "c"))
        query = begin(topic)

        assert sort_strings(query.batch()) == ["a", "b", "c"]
        assert query.batch() is None
        kdsl_kafka.produce(topic, *in_partition(1, "d"))
        assert sort_strings(query.batch()) == ["d"]

    def test_latest_keeps_its_position_if_the_first_batch_never_ran(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        """S19; A18."""
        topic = kdsl_topic(partitions=6)
        kdsl_kafka.produce(topic, *(r for p in range(6) for r in in_partition(p, f"{p},0")))
        query = begin(topic, start="latest")
        assert query.plan_batch() == ()
        kdsl_kafka.produce(topic, *(r for p in range(3) for r in in_partition(p, f"{p},1")))

        query.restart()

        assert query.replay() == ()
        assert sort_strings(query.batch()) == ["0,1", "1,1", "2,1"]
        kdsl_kafka.produce(topic, *(r for p in range(6) for r in in_partition(p, f"{p},2")))
        assert sort_strings(query.batch()) == [f"{p},2" for p in range(6)]

    def test_a_time_starts_each_partition_at_its_first_record_that_is_not_older(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        """S12."""
        topic = kdsl_topic(partitions=3, config={"message.timestamp.before.max.ms": str(2**62)})
        at = 1_600_000_000_000
        kdsl_kafka.produce(topic, *(Record(f"{n}", partition=0, timestamp=at + n) for n in range(4)))
        kdsl_kafka.produce(topic, Record("old", partition=1, timestamp=at))
        query = begin(topic, start=Start("timestamp", timestamp=at + 2))

        assert sort_strings(query.batch()) == ["2", "3"]
        kdsl_kafka.produce(topic, *in_partition(1, "new"), *in_partition(2, "first"))
        assert sort_strings(query.batch()) == ["first", "new"]

    def test_specific_offsets(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """S14."""
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *in_partition(0, "a", "b", "c"), *in_partition(1, "d", "e"))

        query = begin(topic, start=Start("specific-offsets", offsets=((topic, 0, 2),)))

        assert sort_strings(query.batch()) == ["c", "d", "e"]
        assert f"the start has no offset for {topic}[1], which starts at its earliest record" in caplog.text
        with pytest.raises(OffsetError, match=r"has the offsets 0 to 3, but 4 is requested"):
            begin(topic, start=Start("specific-offsets", offsets=((topic, 0, 4),))).batch()

    def test_group_offsets_are_the_committed_ones(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *in_partition(0, "a", "b", "c"), *in_partition(1, "d", "e"))
        group = f"group-of-{topic}"
        member = Consumer({**kdsl_kafka.client_properties, "group.id": group})
        member.commit(offsets=[TopicPartition(topic, 0, 2), TopicPartition(topic, 1, 1)], asynchronous=False)
        member.close()

        assert sort_strings(begin(topic, start="group-offsets", group_id=group).batch()) == ["c", "e"]

    @pytest.mark.parametrize("bound", ["start", "stop"])
    def test_a_partition_without_offset_that_comes_before_the_first_batch_is_done_does_not_keep_it_from_going_on(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query], bound: str
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        group = f"group-of-{topic}"
        member = Consumer({**kdsl_kafka.client_properties, "group.id": group})
        member.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
        member.close()
        bounds = {"start": Start("group-offsets")} if bound == "start" else {"stop": Stop("group-offsets")}
        query = begin(topic, group_id=group, **bounds)
        planned = query.plan_batch()
        kdsl_kafka.add_partitions(topic, 2)
        kdsl_kafka.produce(topic, *in_partition(1, "x"))
        query.restart()

        assert query.replay() == planned
        assert sort_strings(query.batch()) == (["x"] if bound == "start" else [])

    @pytest.mark.parametrize(("reset", "expected"), [("earliest", ["a", "b"]), ("latest", [])])
    def test_a_group_without_offsets_follows_the_policy(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        reset: str,
        expected: list[str],
    ) -> None:
        """S11; A19."""
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a", "b")

        query = begin(topic, start=Start("group-offsets", reset=reset), group_id=f"group-of-{topic}")  # type: ignore[arg-type]

        assert sort_strings(query.batch()) == expected
        kdsl_kafka.produce(topic, "c")
        assert sort_strings(query.batch()) == ["c"]

    def test_a_group_without_offsets_and_policy_is_an_error(
        self, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        """S11; A19."""
        topic = kdsl_topic()

        with pytest.raises(OffsetError) as raised:
            begin(topic, start="group-offsets", group_id="nobody").batch()
        assert (
            f"the consumer group 'nobody' has no committed offset for {topic}[0], where the read should start"
            in str(raised.value)
        )

    def test_an_unknown_topic_is_named_with_a_suggestion(
        self, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic("clicks")

        with pytest.raises(TopicMissingError) as raised:
            begin(topic[:-1] + "x").batch()
        assert f"Orders: the cluster has no topic '{topic[:-1]}x' (did you mean '{topic}'?)" in str(raised.value)

    def test_the_declared_start_does_not_move_a_checkpoint_and_is_logged(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """S13."""
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a")
        query = begin(topic)
        query.batch()
        kdsl_kafka.produce(topic, "b")

        query.restart(read_plan(topic, start="latest"))

        assert sort_strings(query.batch()) == ["b"]
        message = "the declared start (latest, at the first start earliest) has no effect"
        assert query.batch() is None
        assert query.batch() is None
        assert caplog.text.count(message) == 1
        assert query.offsets.startup == "earliest"


class TestReplay:
    def test_a_planned_batch_reads_the_same_after_a_restart(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        """S2."""
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *in_partition(0, "a"))
        query = begin(topic)
        query.batch()
        kdsl_kafka.add_partitions(topic, 3)
        kdsl_kafka.produce(topic, *in_partition(0, "b"), *in_partition(2, "c"))
        planned = query.plan_batch()
        kdsl_kafka.add_partitions(topic, 4)
        kdsl_kafka.produce(topic, *in_partition(0, "d"), *in_partition(2, "e"), *in_partition(3, "f"))

        query.restart()

        assert planned == (Range(topic, 0, 1, 2), Range(topic, 2, 0, 1))
        assert query.replay() == planned
        assert sort_strings(query.batch()) == ["d", "e", "f"]

    def test_deleted_records_of_a_planned_batch_are_an_error_or_counted(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a")
        query = begin(topic)
        query.batch()
        kdsl_kafka.produce(topic, "b", "c", "d")
        query.plan_batch()
        kdsl_kafka.delete_records(topic, {0: 3})

        query.restart()
        with pytest.raises(OffsetError, match=r"offset 1 is requested, but the earliest is 3 .* 2 offsets are lost"):
            query.replay()
        query.restart(read_plan(topic, start=Start("earliest", reset="earliest")))

        assert query.replay() == (Range(topic, 0, 3, 4),)
        kdsl_kafka.produce(topic, "e")
        assert sort_strings(query.batch()) == ["e"]
        assert query.offsets.lost == {(topic, 0): 2}


class TestDiscovery:
    def test_new_partitions_are_read_from_their_earliest_record(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        """S3."""
        topic = kdsl_topic(partitions=1)
        query = begin(topic, start="latest")
        query.batch()
        kdsl_kafka.add_partitions(topic, 2)
        kdsl_kafka.produce(topic, *in_partition(1, "while it runs"))

        assert sort_strings(query.batch()) == ["while it runs"]
        kdsl_kafka.add_partitions(topic, 3)
        kdsl_kafka.produce(topic, *in_partition(2, "while it is stopped"))
        query.restart()
        assert sort_strings(query.batch()) == ["while it is stopped"]

    def test_they_are_discovered_at_the_interval_only(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic(partitions=1)
        kdsl_kafka.produce(topic, "a")
        query = begin(topic, discovery=timedelta(hours=1))
        never = begin(topic, discovery=None)
        assert [sort_strings(query.batch()), sort_strings(never.batch())] == [["a"], ["a"]]
        kdsl_kafka.add_partitions(topic, 2)
        kdsl_kafka.produce(topic, *in_partition(1, "b"))

        assert [query.batch(), never.batch()] == [None, None]

    def test_new_topics_of_a_pattern_are_read_and_the_whole_name_must_match(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """S4."""
        first = kdsl_topic("pat")
        kdsl_kafka.produce(first, "a")
        kdsl_kafka.produce(kdsl_topic(f"x{first}"), "no")
        query = begin(pattern=f"{first}.*", start="earliest")
        assert sort_strings(query.batch()) == ["a"]

        second = kdsl_kafka.create_topic(f"{first}-second")
        kdsl_kafka.produce(second, "b")

        assert sort_strings(query.batch()) == ["b"]
        kdsl_kafka.delete_topic(second)
        do_not_wait_for_topics(monkeypatch)
        with pytest.raises(TopicMissingError, match=f"the topic '{second}' .* no longer exists"):
            query.batch()

    def test_a_pattern_that_matches_nothing_yet_waits(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        query = begin(pattern="nothing-like-this-.*")

        assert query.batch() == []
        assert query.batch() is None

    def test_a_topic_that_the_table_does_not_name_any_more_is_left(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        one, two = kdsl_topic("one"), kdsl_topic("two")
        kdsl_kafka.produce(one, "a")
        kdsl_kafka.produce(two, "b")
        query = begin(one, two)
        assert sort_strings(query.batch()) == ["a", "b"]
        kdsl_kafka.produce(one, "c")
        kdsl_kafka.produce(two, "d")

        query.restart(read_plan(one))

        assert sort_strings(query.batch()) == ["c"]
        assert list(query.offsets.ids) == [one]


class TestTopicIds:
    @pytest.mark.parametrize("records", [1, 3, 8], ids=["fewer", "as many", "more"])
    @pytest.mark.parametrize("partitions", [1, 2])
    def test_a_topic_that_was_created_again_is_refused_with_both_ids(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        records: int,
        partitions: int,
    ) -> None:
        """S7, S8."""
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *in_partition(0, "a", "b", "c"))
        query = begin(topic)
        query.batch()
        old = kdsl_kafka.topic_id(topic)
        kdsl_kafka.delete_topic(topic)
        kdsl_kafka.create_topic(topic, partitions)
        kdsl_kafka.produce(topic, *in_partition(0, *(f"n{i}" for i in range(records))))

        for restart in (False, True):
            if restart:
                query.restart()
            with pytest.raises(TopicRecreatedError) as raised:
                query.batch()
            assert f"was written for id {old}, the topic now has id {kdsl_kafka.topic_id(topic)}" in str(raised.value)

    def test_it_is_refused_in_the_middle_of_what_was_available(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        """S8: availableNow, and the topic is created again between its batches."""
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        query = begin(topic)
        query.stream.freeze_ends()
        assert sort_strings(query.batch(Limits(max_records=1))) == ["a"]
        kdsl_kafka.delete_topic(topic)
        kdsl_kafka.create_topic(topic)
        kdsl_kafka.produce(topic, *"vwxyz")

        with pytest.raises(TopicRecreatedError):
            query.batch(Limits(max_records=1))

    def test_a_planned_batch_of_such_a_topic_is_refused_too(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a", "b")
        query = begin(topic)
        query.plan_batch()
        kdsl_kafka.delete_topic(topic)
        kdsl_kafka.create_topic(topic)
        kdsl_kafka.produce(topic, "x", "y", "z")

        query.restart()

        with pytest.raises(TopicRecreatedError):
            query.replay()

    def test_a_deleted_topic_is_named(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a", "b")
        query = begin(topic)
        query.batch()
        kdsl_kafka.delete_topic(topic)

        do_not_wait_for_topics(monkeypatch)
        with pytest.raises(TopicMissingError, match=f"the topic '{topic}' .* no longer exists"):
            query.batch()

    def test_a_topic_that_a_broker_does_not_know_yet_is_asked_for_again(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """When brokers learn of a topic cannot be chosen, so the first answer is made to be "unknown"."""
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a")
        query = begin(topic)
        assert sort_strings(query.batch()) == ["a"]
        query.restart()
        kdsl_kafka.produce(topic, "b")
        questions = hide_at_first(monkeypatch)

        assert sort_strings(query.batch()) == ["b"]
        assert len(questions) > 1


class TestRetention:
    def make_checkpoint(self, kafka: RunningKafka, topic: str, query: Query) -> None:
        """Five records read, ten more written, and the first three of those deleted."""
        kafka.produce(topic, *(f"{n:02}" for n in range(5)))
        query.batch()
        kafka.produce(topic, *(f"{n:02}" for n in range(5, 15)))
        kafka.delete_records(topic, {0: 8})

    def test_a_gap_is_an_error_that_names_and_counts_it(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        """S5."""
        topic = kdsl_topic()
        query = begin(topic)
        self.make_checkpoint(kdsl_kafka, topic, query)

        query.restart()

        with pytest.raises(OffsetError) as raised:
            query.batch()
        assert (
            f"{topic}[0]: offset 5 is requested, but the earliest is 8 (the end is 15), and 3 offsets are lost"
            in str(raised.value)
        )

    def test_the_policy_skips_it_once_and_counts_it_permanently(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """S6."""
        topic = kdsl_topic()
        query = begin(topic, start=Start("earliest", reset="earliest"))
        self.make_checkpoint(kdsl_kafka, topic, query)
        query.restart()

        assert sort_strings(query.batch()) == [f"{n:02}" for n in range(8, 15)]
        assert query.offsets.lost == {(topic, 0): 3}
        assert f"3 offsets of topic {topic}, partition 0 were deleted before they were read" in caplog.text
        query.restart()
        assert query.replay() == (Range(topic, 0, 8, 15),)
        kdsl_kafka.produce(topic, "new")
        assert sort_strings(query.batch()) == ["new"]
        assert query.offsets.lost == {(topic, 0): 3}

    def test_all_requested_records_may_be_deleted(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        query = begin(topic, start=Start("earliest", reset="earliest"))
        self.make_checkpoint(kdsl_kafka, topic, query)
        kdsl_kafka.delete_records(topic, {0: 15})

        assert query.batch() == []
        assert query.offsets.lost == {(topic, 0): 10}


class TestLimits:
    def test_every_partition_advances_under_a_limit_below_their_number(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        """S18."""
        topic = kdsl_topic(partitions=4)
        kdsl_kafka.produce(topic, *in_partition(0, *(f"a{n:03}" for n in range(100))))
        kdsl_kafka.produce(topic, *(r for p in (1, 2, 3) for r in in_partition(p, f"b{p}")))
        query = begin(topic)

        seen = [sort_strings(query.batch(Limits(max_records=2))) for _ in range(3)]

        assert [len(rows) for rows in seen] == [2, 2, 2]
        assert {"b1", "b2", "b3"} <= {row for rows in seen for row in rows}

    def test_a_limit_for_each_partition(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *in_partition(0, *"abcde"), *in_partition(1, "f"))
        query = begin(topic)

        assert [sort_strings(query.batch(Limits(max_records_per_partition=2))) for _ in range(3)] == [
            ["a", "b", "f"],
            ["c", "d"],
            ["e"],
        ]
        assert query.batch() is None

    def test_available_now_ends_where_the_topic_ended_when_it_began(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *in_partition(0, *"abc"), *in_partition(1, "d"))
        query = begin(topic)
        query.stream.freeze_ends()
        kdsl_kafka.produce(topic, *in_partition(0, "late"))
        kdsl_kafka.add_partitions(topic, 3)
        kdsl_kafka.produce(topic, *in_partition(2, "later"))

        batches = []
        while (rows := query.batch(Limits(max_records=2))) is not None:
            batches.append(sort_strings(rows))

        assert sorted(row for rows in batches for row in rows) == ["a", "b", "c", "d"]
        assert [len(rows) for rows in batches] == [2, 2]
        query.restart()
        query.stream.freeze_ends()
        assert sort_strings(query.batch()) == ["late", "later"]
        assert query.batch() is None

    def test_a_table_with_a_watermark_is_caught_up_along_the_time(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic(partitions=2, config={"message.timestamp.before.max.ms": str(2**62)})
        at = 1_600_000_000_000
        few = [Record("x", None, [], 0, at + 10_000 * n) for n in range(10)]  # a record every ten seconds
        many = [Record("x", None, [], 1, at + 100 * n) for n in range(1_000)]  # a hundred in that time
        kdsl_kafka.produce(topic, *few, *many)
        query = begin(topic, metadata={"ts": "timestamp"}, watermark=Watermark("ts", "15 s"))
        unlike = begin(topic, metadata={"ts": "timestamp"})

        def ahead(query: Query) -> list[float]:
            """By how much the watermark runs ahead of what is still unread, batch by batch."""
            results, latest = [], 0.0
            while (rows := query.batch(Limits(max_records=200))) is not None:
                latest = max(latest, *(r["ts"].timestamp() for r in rows))
                unread = [
                    (rs[query.offsets.positions[topic, p]].timestamp or 0) / 1000
                    for p, rs in enumerate((few, many))
                    if query.offsets.positions[topic, p] < len(rs)
                ]
                results.append(latest - min(unread, default=latest))
            return results

        wide = begin(topic, metadata={"ts": "timestamp"}, watermark=Watermark("ts", "1 s", drift=timedelta(seconds=15)))

        assert max(ahead(query)) <= 15
        assert 1 < max(ahead(wide)) <= 15
        assert max(ahead(unlike)) > 60

    def test_partitions_without_records_delay_nothing(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        """Idle ones: empty, or read to their end long ago."""
        topic = kdsl_topic(partitions=3, config={"message.timestamp.before.max.ms": str(2**62)})
        at = 1_600_000_000_000
        kdsl_kafka.produce(topic, Record("old", None, [], 0, at))
        query = begin(topic, watermark=Watermark("ts", "1 s"))
        query.batch()
        kdsl_kafka.produce(topic, *(Record(f"{n}", None, [], 1, at + 3_600_000 * n) for n in range(6)))

        results = [sort_strings(query.batch(Limits(max_records=3))) for _ in range(2)]

        assert results == [["0", "1", "2"], ["3", "4", "5"]]
        assert query.batch() is None

    def test_all_records_are_read_at_once_without_a_limit(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        """Then no partition has anything unread, whatever the drift."""
        topic = kdsl_topic(partitions=2, config={"message.timestamp.before.max.ms": str(2**62)})
        at = 1_600_000_000_000
        kdsl_kafka.produce(topic, *(Record(f"{n}", None, [], n % 2, at + 3_600_000 * n) for n in range(6)))

        assert len(begin(topic, watermark=Watermark("ts", "1 s", drift=timedelta(seconds=1))).batch() or ()) == 6

    def test_a_least_number_is_waited_for(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        query = begin(topic)
        query.batch()
        kdsl_kafka.produce(topic, "a")
        assert query.batch(Limits(min_records=2)) is None
        kdsl_kafka.produce(topic, "b")
        assert sort_strings(query.batch(Limits(min_records=2))) == ["a", "b"]

    def test_the_latest_offsets_are_reported_whatever_the_limit(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abcde")
        query = begin(topic)
        query.batch(Limits(max_records=2))

        assert query.stream.latest is not None
        assert query.stream.latest.positions == {(topic, 0): 5}
        assert query.offsets.positions == {(topic, 0): 2}


class TestTransactions:
    def transactional(self, kafka: RunningKafka, topic: str) -> Callable[..., None]:
        own = {"transactional.id": f"tx-{topic}", "transaction.timeout.ms": 600_000}
        producer = Producer({**kafka.client_properties, **own})
        producer.init_transactions()

        def write(*values: str, commit: bool | None) -> None:
            producer.begin_transaction()
            for value in values:
                producer.produce(topic, value)
            producer.flush()
            if commit is not None:
                (producer.commit_transaction if commit else producer.abort_transaction)()
                settle(kafka, topic)

        return write

    def test_only_committed_records_come_and_offsets_move_on_over_the_others(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        """S9."""
        topic = kdsl_topic()
        write = self.transactional(kdsl_kafka, topic)
        write("a", "b", commit=True)  # offsets 0 1, marker 2
        write("x", "y", "z", "x", "y", "z", commit=False)  # 3 to 8, marker 9
        write("c", commit=True)  # 10, marker 11
        query = begin(topic, committed=True)

        batches = []
        while (rows := query.batch(Limits(max_records=3))) is not None:
            batches.append(sort_strings(rows))

        assert batches == [["a", "b"], [], [], ["c"]]
        assert query.offsets.positions == {(topic, 0): 12}

    def test_an_open_transaction_limits_the_end(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        """S10."""
        topic = kdsl_topic()
        write = self.transactional(kdsl_kafka, topic)
        write("a", commit=True)
        query = begin(topic, committed=True)
        assert sort_strings(query.batch()) == ["a"]
        write("b", commit=None)
        kdsl_kafka.produce(topic, "c")

        assert query.batch() is None
        assert sort_strings(begin(topic).batch()) == ["a", "b", "c"]

    def test_a_transaction_that_stays_open_is_logged_with_both_ends(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        caplog: pytest.LogCaptureFixture,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """S10."""
        topic = kdsl_topic()
        write = self.transactional(kdsl_kafka, topic)
        write("a", commit=True)  # offset 0, marker 1
        write("b", commit=None)  # 2
        kdsl_kafka.produce(topic, "c", "d")  # 3 4
        query = begin(topic, committed=True)
        query.batch()
        assert "has held back" not in caplog.text

        monkeypatch.setattr("kdsl.run.librdkafka.stream.LOG_HELD_AFTER", 0.0)
        assert [query.batch(), query.batch()] == [None, None]

        text = f"began at offset 2 of topic {topic}, partition 0 has held back 3 offsets up to the log's end 5"
        assert text in caplog.text

    def test_what_is_appended_while_a_batch_is_planned_is_not_held_back(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a")
        properties = {"isolation.level": "read_committed"}
        stream = Stream(
            read_plan(topic), Cluster(kdsl_kafka.bootstrap_servers, properties=properties), finds_held_back=True
        )
        start = stream.initial()
        ask = LibrdkafkaAdmin.latest

        def append_after(*args: Any, **kwargs: Any) -> dict[tuple[str, int], int]:
            answer = ask(*args, **kwargs)
            kdsl_kafka.produce(topic, "late")
            return answer

        monkeypatch.setattr(LibrdkafkaAdmin, "latest", append_after)
        stream.next(start, Limits())

        assert stream.ends_held_back == {}

    def test_everything_comes_uncommitted_which_is_the_default(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        write = self.transactional(kdsl_kafka, topic)
        write("a", commit=False)
        write("b", commit=True)

        assert sort_strings(begin(topic).batch()) == ["a", "b"]


def test_the_policy_may_come_from_the_cluster(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "a")
    plan: ReadPlan = read_plan(topic, start="group-offsets", group_id=f"group-of-{topic}")
    query = Query(plan, Cluster(cluster.bootstrap_servers, properties={"auto.offset.reset": "earliest"}))

    assert sort_strings(query.batch()) == ["a"]


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="kdsl.read")


def test_a_partition_that_the_table_no_longer_names_is_no_longer_read(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query], caplog: pytest.LogCaptureFixture
) -> None:
    topic = kdsl_topic(partitions=2)
    kdsl_kafka.produce(topic, *in_partition(0, "a"), *in_partition(1, "b"))
    query = begin(topic)
    assert sort_strings(query.batch()) == ["a", "b"]
    kdsl_kafka.produce(topic, *in_partition(0, "c"), *in_partition(1, "d"))
    caplog.clear()

    query.restart(attrs.evolve(query.plan, topics=Topics((topic,), partitions=((topic, 0),))))

    assert sort_strings(query.batch()) == ["c"]
    assert f"the table no longer names {topic}[1]; reading stops there" in caplog.text
    assert query.batch() is None


def test_a_checkpoint_of_another_read_is_refused_with_the_topics_of_both(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
) -> None:
    first, second = kdsl_topic("first"), kdsl_topic("second", partitions=2)
    for topic in (first, second):
        kdsl_kafka.produce(topic, *in_partition(0, "a"))
    query = begin(first)
    assert sort_strings(query.batch()) == ["a"]
    reads = f"has offsets of the topics {first}, and this one reads {second}"

    query.restart(attrs.evolve(query.plan, topics=Topics((second,))))
    with pytest.raises(OffsetError, match=f"the checkpoint is that of another read: it {reads}. The reads of a query"):
        query.batch()
    query.restart(attrs.evolve(query.plan, topics=Topics((second,), partitions=((second, 1),))))
    with pytest.raises(OffsetError, match=re.escape(f"{reads}[1]. The reads of a query are known by their position")):
        query.batch()
    kdsl_kafka.produce(first, *in_partition(0, "b"))
    query.restart(attrs.evolve(query.plan, topics=Topics((second, first))))
    assert sort_strings(query.batch()) == ["a", "b"]


def test_a_planned_batch_keeps_its_tasks_when_cores_the_table_and_the_head_of_the_topic_change(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    """The place of a task in the list is an exactly-once writer, who may have committed its part of the batch."""
    topic = kdsl_topic(partitions=4)
    kdsl_kafka.produce(topic, *(Record(f"{n}", partition=n % 4) for n in range(8_000)))
    plan = read_plan(topic)
    reader = reader_of(plan, cluster, cores=8)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    planned = ranges_of(reader, start, end)
    kdsl_kafka.delete_records(topic, {0: 2_000, 2: 500})

    later = attrs.evolve(plan, start=Start("earliest", reset="earliest"), parallelism=2)
    again = ranges_of(reader_of(later, cluster, cores=1), json.loads(json.dumps(start)), json.loads(json.dumps(end)))

    assert planned == [(Range(topic, partition, 0, 2_000),) for partition in range(4)]
    assert again == [
        (),
        (Range(topic, 1, 0, 2_000),),
        (Range(topic, 2, 500, 2_000),),
        (Range(topic, 3, 0, 2_000),),
    ]


def test_a_task_with_nothing_left_reads_nothing(cluster: Cluster) -> None:
    assert list(reader_of(read_plan("orders"), cluster, cores=1).read(Task([], {}))) == []


def reader_of(plan: ReadPlan, cluster: Cluster, *, cores: int) -> StreamReader:
    return StreamReader(tuple({**write_options(plan, cluster), PARALLELISM: str(cores)}.items()))


def ranges_of(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[Range, ...]]:
    return [task.ranges for task in reader.partitions(start, end) if isinstance(task, Task)]
