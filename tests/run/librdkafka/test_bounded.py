"""Streams and batches that end by themselves, on a real broker, driven as Spark drives them, without a JVM."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from datetime import timedelta

import attrs
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from kdsl.cluster import Cluster
from kdsl.errors import OffsetError, TopicMissingError
from kdsl.plan.model import ReadPlan
from kdsl.resolve.model import Start, Stop, Topics
from kdsl.run.librdkafka.stream import Limits, Stream
from kdsl.run.offsets.stored import Range
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.read_plans import Query, batch, batch_tasks, read_plan, sort_strings
from tests.transactions import settle

LATEST = Stop("latest")
COMMITTED = {"isolation.level": "read_committed"}


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture
def begin(cluster: Cluster) -> Callable[..., Query]:
    """Begins a bounded query, which looks for no new partitions by default."""

    def make(*topics: str, stop: Stop = LATEST, committed: bool = False, **plan: object) -> Query:
        over = Cluster(cluster.bootstrap_servers, properties=COMMITTED if committed else {})
        return Query(read_plan(*topics, stop=stop, **{"discovery": None, **plan}), over)  # type: ignore[arg-type]

    return make


@pytest.fixture(autouse=True)
def _log_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="kdsl.read")


def in_partition(partition: int, *values: str) -> list[Record]:
    return [Record(value, partition=partition) for value in values]


def at(topic: str, *offsets: tuple[int, int]) -> tuple[tuple[str, int, int], ...]:
    return tuple((topic, partition, offset) for partition, offset in offsets)


def commit(kafka: RunningKafka, group: str, topic: str, *offsets: tuple[int, int]) -> None:
    member = Consumer({**kafka.client_properties, "group.id": group})
    member.commit(offsets=[TopicPartition(topic, p, offset) for p, offset in offsets], asynchronous=False)
    member.close()


def batches(query: Query, limits: Limits | None = None) -> list[list[str]]:
    """What comes until nothing comes any more."""
    results = []
    while (rows := query.batch(limits)) is not None:
        results.append(sort_strings(rows))
    return results


def has_ended(query: Query) -> bool:
    """Whether every position has reached its stopping offset, as the offsets say."""
    offsets = query.offsets
    return offsets.stop.keys() == offsets.positions.keys() and all(
        offsets.positions[partition] >= at for partition, at in offsets.stop.items()
    )


@pytest.fixture
def transactional(kdsl_kafka: RunningKafka) -> Iterator[Callable[..., None]]:
    """Writes transactions; commit None leaves one open."""
    results: dict[str, Producer] = {}

    def write(topic: str, *values: str, commit: bool | None = True) -> None:
        if topic not in results:
            own = {"transactional.id": f"tx-{topic}", "transaction.timeout.ms": 600_000}
            results[topic] = Producer({**kdsl_kafka.client_properties, **own})
            results[topic].init_transactions()
        producer = results[topic]
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value)
        producer.flush()
        if commit is not None:
            (producer.commit_transaction if commit else producer.abort_transaction)()
            settle(kdsl_kafka, topic)

    yield write
    for producer in results.values():
        producer.purge()


class TestStream:
    def test_the_end_is_computed_once_and_kept_by_restarts(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *in_partition(0, *"abc"), *in_partition(1, "d"))
        query = begin(topic)
        assert sort_strings(query.batch(Limits(max_records=2))) == ["a", "d"]
        kdsl_kafka.produce(topic, *in_partition(0, "late"), *in_partition(1, "late"))
        kdsl_kafka.add_partitions(topic, 3)
        kdsl_kafka.produce(topic, *in_partition(2, "later"))

        assert query.offsets.stop == {(topic, 0): 3, (topic, 1): 1}
        assert not has_ended(query)
        query.restart()
        assert batches(query, Limits(max_records=1)) == [["b"], ["c"]]
        assert query.offsets.positions == {(topic, 0): 3, (topic, 1): 1}
        assert has_ended(query)
        query.restart()
        assert batches(query) == [[]]  # which tells that it has ended

    def test_a_restart_before_the_first_batch_ended_keeps_the_end(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        query = begin(topic)
        planned = query.plan_batch(Limits(max_records=2))
        kdsl_kafka.produce(topic, "late")

        query.restart()

        assert query.replay() == planned == (Range(topic, 0, 0, 2),)
        assert batches(query) == [["c"]]
        assert has_ended(query)

    def test_it_applies_with_available_now(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        query = begin(topic, stop=Stop("specific-offsets", offsets=at(topic, (0, 4))))
        query.stream.freeze_ends()

        assert batches(query, Limits(max_records=2)) == [["a", "b"], ["c"]]
        assert not has_ended(query)
        kdsl_kafka.produce(topic, "d", "late")
        query.restart()
        query.stream.freeze_ends()
        assert batches(query) == [["d"]]
        assert has_ended(query)

    def test_a_time_ends_before_its_first_record(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic(partitions=2)
        then = 1_700_000_000_000
        kdsl_kafka.produce(topic, *(Record(f"{n}", partition=0, timestamp=then + n) for n in (0, 3, 7)))
        kdsl_kafka.produce(topic, Record("old", partition=1, timestamp=then))
        query = begin(topic, stop=Stop("timestamp", timestamp=then + 5))
        assert sort_strings(query.batch()) == ["0", "3", "old"]
        kdsl_kafka.produce(topic, Record("old, too", partition=1, timestamp=then))

        assert query.batch() is None
        assert has_ended(query)

    def test_future_offsets_are_waited_for(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *in_partition(0, "a"), *in_partition(1, "never"))
        query = begin(topic, stop=Stop("specific-offsets", offsets=at(topic, (0, 2))))

        assert sort_strings(query.batch()) == ["a"]
        assert not has_ended(query)
        assert f"the end has no offset for {topic}[1]; nothing of it is read" in caplog.text
        kdsl_kafka.produce(topic, *in_partition(0, "b", "c"))
        assert sort_strings(query.batch()) == ["b"]
        assert has_ended(query)

    def test_the_offsets_of_the_group_are_those_of_the_first_start(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        group = f"group-of-{topic}"
        commit(kdsl_kafka, group, topic, (0, 2))
        query = begin(topic, stop=Stop("group-offsets"), group_id=group)
        assert sort_strings(query.batch(Limits(max_records=1))) == ["a"]
        commit(kdsl_kafka, group, topic, (0, 3))

        query.restart()

        assert batches(query) == [["b"]]
        assert has_ended(query)

    def test_a_range_that_starts_after_its_end_has_ended(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *in_partition(0, *"abc"), *in_partition(1, *"de"))
        start = Start("specific-offsets", offsets=at(topic, (0, 2), (1, 0)))
        query = begin(topic, start=start, stop=Stop("specific-offsets", offsets=at(topic, (0, 1), (1, 1))))

        assert sort_strings(query.batch()) == ["d"]
        assert query.offsets.positions == {(topic, 0): 2, (topic, 1): 1}
        assert query.offsets.stop == {(topic, 0): 1, (topic, 1): 1}
        assert has_ended(query)

    def test_an_empty_topic_ends_with_its_first_batch(self, kdsl_topic: MakeTopic, begin: Callable[..., Query]) -> None:
        query = begin(kdsl_topic(partitions=3))

        assert query.batch() == []
        assert has_ended(query)
        assert query.batch() is None

    @pytest.mark.parametrize("commit_last", [True, False])
    def test_transactions_at_the_end_do_not_keep_it_from_ending(
        self,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        transactional: Callable[..., None],
        commit_last: bool,
    ) -> None:
        topic = kdsl_topic()
        transactional(topic, "a")  # offset 0, marker 1
        transactional(topic, "b", "c", commit=commit_last)  # 2 3, marker 4
        query = begin(topic, committed=True)

        assert batches(query, Limits(max_records=3)) == ([["a", "b"], ["c"]] if commit_last else [["a"], []])
        assert query.offsets.positions == query.offsets.stop == {(topic, 0): 5}

    def test_an_open_transaction_before_the_end_is_waited_for(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        transactional: Callable[..., None],
    ) -> None:
        topic = kdsl_topic()
        transactional(topic, "a")  # offset 0, marker 1
        transactional(topic, "b", commit=None)  # 2
        kdsl_kafka.produce(topic, "c", "d")  # 3 4
        stop = Stop("specific-offsets", offsets=at(topic, (0, 4)))
        query, both = begin(topic, stop=stop, committed=True), begin(topic, committed=True)

        assert (batches(query), batches(both)) == ([["a"]], [["a"]])
        assert (has_ended(query), has_ended(both)) == (False, True)  # latest is what can be read at the start
        with pytest.raises(OffsetError, match=r"only .* up to 2 of 4 can be read now"):
            batch(query.plan, query.cluster)

    def test_transactions_hold_back_nothing_after_the_end(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        transactional: Callable[..., None],
    ) -> None:
        topic = kdsl_topic()
        transactional(topic, "a")  # offset 0, marker 1
        plan = begin(topic, stop=Stop("specific-offsets", offsets=at(topic, (0, 4)))).plan
        until_1 = begin(topic, stop=Stop("specific-offsets", offsets=at(topic, (0, 1)))).plan
        transactional(topic, "b", "c", "d", commit=None)  # 2 3 4
        over = Cluster(kdsl_kafka.bootstrap_servers, properties=COMMITTED)

        def find_held_back(plan: ReadPlan) -> dict[tuple[str, int], int]:
            stream = Stream(plan, over, finds_held_back=True)
            stream.next(stream.initial(), Limits())
            return stream.ends_held_back

        assert find_held_back(plan) == {(topic, 0): 4}
        assert find_held_back(until_1) == {}

    def test_a_range_that_was_deleted_completely_ends_and_is_counted(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abcd")
        kdsl_kafka.delete_records(topic, {0: 3})
        start = Start("specific-offsets", offsets=at(topic, (0, 1)))
        query = begin(topic, start=start, stop=Stop("specific-offsets", offsets=at(topic, (0, 3))))

        assert query.batch() == []
        assert has_ended(query)
        assert query.offsets.lost == {(topic, 0): 2}
        assert f"2 offsets of topic {topic}, partition 0 were deleted before they were read" in caplog.text

    def test_the_policy_decides_about_a_partly_deleted_range(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abcde")
        kdsl_kafka.delete_records(topic, {0: 2})
        stop = Stop("specific-offsets", offsets=at(topic, (0, 4)))

        def query(reset: str) -> Query:
            start = Start("specific-offsets", offsets=at(topic, (0, 1)), reset=reset)  # type: ignore[arg-type]
            return begin(topic, start=start, stop=stop)

        with pytest.raises(OffsetError, match="offset 1 is requested, but the earliest is 2"):
            query("none").batch()
        earliest, latest = query("earliest"), query("latest")
        assert (batches(earliest), batches(latest)) == ([["c", "d"]], [[]])
        assert (earliest.offsets.lost, latest.offsets.lost) == ({(topic, 0): 1}, {(topic, 0): 3})
        assert has_ended(earliest)
        assert has_ended(latest)

    def test_what_was_read_may_be_deleted_when_it_has_ended(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *in_partition(0, *"abc"), *in_partition(1, *"de"))
        query = begin(topic, stop=Stop("specific-offsets", offsets=at(topic, (0, 1), (1, 2))))
        assert sort_strings(query.batch(Limits(max_records_per_partition=1))) == ["a", "d"]
        kdsl_kafka.delete_records(topic, {0: 3})

        query.restart()

        assert batches(query) == [["e"]]
        assert query.offsets.lost == {}

    def test_an_end_that_is_declared_later_applies_from_then_on(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"ab")
        query = begin(topic, stop=Stop())
        assert sort_strings(query.batch()) == ["a", "b"]
        kdsl_kafka.produce(topic, "c")
        kdsl_kafka.add_partitions(topic, 2)
        kdsl_kafka.produce(topic, *in_partition(1, "d"))

        query.restart(read_plan(topic, stop=LATEST))

        assert batches(query) == [["c", "d"]]
        assert has_ended(query)
        assert query.offsets.startup == "earliest until latest"
        kdsl_kafka.produce(topic, "late")
        query.restart()
        assert batches(query) == [[]]  # which tells that it has ended

    def test_it_ends_without_new_records_since_the_end_was_declared(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a")
        query = begin(topic, stop=Stop())
        query.batch()

        query.restart(read_plan(topic, stop=LATEST))

        assert query.batch() == []
        assert has_ended(query)

    def test_the_end_of_a_checkpoint_applies_and_is_logged_once(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"ab")
        query = begin(topic)
        query.batch(Limits(max_records=1))
        kdsl_kafka.produce(topic, "late")

        query.restart(read_plan(topic))

        assert batches(query, Limits(max_records=1)) == [["b"]]
        message = "the declared start and end (earliest, at the first start earliest until latest) have no effect"
        assert caplog.text.count(message) == 1

    def test_the_rest_is_read_in_spite_of_a_minimum_number(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")

        assert batches(begin(topic), Limits(min_records=10)) == [["a", "b", "c"]]

    def test_the_reported_latest_offsets_do_not_exceed_the_end(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query]
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"ab")
        query = begin(topic)
        query.batch()
        kdsl_kafka.produce(topic, "late")
        query.batch()

        assert query.stream.latest is not None
        assert query.stream.latest.positions == {(topic, 0): 2}


class TestBatch:
    @pytest.mark.parametrize(
        ("start", "stop", "expected"),
        [
            (Start("earliest"), Stop("latest"), ["a", "b", "c", "d", "e"]),
            (Start("earliest"), Stop("timestamp", timestamp=1_700_000_000_002), ["a", "b", "d", "e"]),
            (
                Start("timestamp", timestamp=1_700_000_000_001),
                Stop("timestamp", timestamp=1_700_000_000_002),
                ["b", "e"],
            ),
            (Start("earliest"), Stop("specific-offsets", offsets=(("", 0, 2), ("", 1, 0))), ["a", "b"]),
            (Start("latest"), Stop("specific-offsets", offsets=(("", 0, 2), ("", 1, 0))), []),
            (Start("earliest"), Stop("specific-offsets", offsets=(("", 1, 1),)), ["d"]),
        ],
        ids=str,
    )
    def test_it_ends_where_the_plan_declares(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        start: Start,
        stop: Stop,
        expected: list[str],
    ) -> None:
        topic = kdsl_topic("ends", partitions=2)
        then = 1_700_000_000_000
        for partition, values in enumerate(("abc", "de")):
            kdsl_kafka.produce(topic, *(Record(v, None, [], partition, then + i) for i, v in enumerate(values)))
        stop = Stop(stop.mode, stop.timestamp, at(topic, *(pair for _, *pair in stop.offsets)))  # type: ignore[arg-type]

        assert sort_strings(batch(read_plan(topic, start=start, stop=stop), cluster)) == expected

    def test_group_offsets_end_it_and_must_exist(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *in_partition(0, *"abc"), *in_partition(1, *"de"))
        group = f"group-of-{topic}"
        plan = read_plan(topic, stop=Stop("group-offsets"), group_id=group)
        commit(kdsl_kafka, group, topic, (0, 2))
        with pytest.raises(
            OffsetError, match=rf"the consumer group '{group}' has no committed offset for {topic}\[1\]"
        ):
            batch(plan, cluster)
        commit(kdsl_kafka, group, topic, (1, 0))

        assert sort_strings(batch(plan, cluster)) == ["a", "b"]

    def test_ends_that_do_not_exist_are_refused_with_those_that_do(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, "a")

        for offsets, message in (
            (at(topic, (0, 2)), "has the offsets 0 to 1, but 2 is requested"),
            (at(topic, (1, 0)), "0 to 0"),
        ):
            with pytest.raises(OffsetError, match=message):
                batch(read_plan(topic, stop=Stop("specific-offsets", offsets=offsets)), cluster)

    def test_a_batch_has_no_more_tasks_than_the_table_allows(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=4)
        kdsl_kafka.produce(topic, *(Record(f"{n}", partition=n % 4) for n in range(4_000)))

        def tasks(parallelism: int | None) -> int:
            return len(batch_tasks(read_plan(topic, parallelism=parallelism), cluster, parallelism=3))

        assert [tasks(None), tasks(1), tasks(2), tasks(100)] == [3, 1, 2, 4]


class TestPartitionSets:
    def test_only_the_named_partitions_are_read_in_batch_and_stream(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        one, two = kdsl_topic("one", partitions=3), kdsl_topic("two", partitions=2)
        kdsl_kafka.produce(one, *(r for p in range(3) for r in in_partition(p, f"one {p}")))
        kdsl_kafka.produce(two, *(r for p in range(2) for r in in_partition(p, f"two {p}")))
        chosen = read_plan(one, two, discovery=None)
        chosen = _with_partitions(chosen, (one, 0), (one, 2), (two, 1))
        query = Query(chosen, cluster)

        assert sort_strings(batch(chosen, cluster)) == ["one 0", "one 2", "two 1"]
        assert sort_strings(query.batch()) == ["one 0", "one 2", "two 1"]
        kdsl_kafka.add_partitions(one, 4)
        kdsl_kafka.produce(one, *in_partition(1, "no"), *in_partition(2, "yes"), *in_partition(3, "no"))
        assert sort_strings(query.batch()) == ["yes"]
        query.restart()
        query.stream.freeze_ends()
        assert query.batch() is None

    def test_a_missing_partition_is_an_error(self, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
        topic = kdsl_topic(partitions=2)
        plan = _with_partitions(read_plan(topic), (topic, 1), (topic, 5))

        for streaming in (False, True):
            with pytest.raises(TopicMissingError) as raised:
                _ = Query(plan, cluster).batch() if streaming else batch(plan, cluster)
            assert str(raised.value) == f"Orders: there is no partition {topic}[5]: {topic} has the partitions 0 to 1"

    def test_specific_offsets_of_several_topics(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        one, two = kdsl_topic("one"), kdsl_topic("two")
        kdsl_kafka.produce(one, *"abc")
        kdsl_kafka.produce(two, *"def")
        start = Start("specific-offsets", offsets=((one, 0, 1), (two, 0, 2)))
        stop = Stop("specific-offsets", offsets=((one, 0, 2), (two, 0, 3)))

        assert sort_strings(batch(read_plan(one, two, start=start, stop=stop), cluster)) == ["b", "f"]


def _with_partitions(plan: ReadPlan, *partitions: tuple[str, int]) -> ReadPlan:
    return attrs.evolve(plan, topics=Topics(plan.topics.names, partitions=partitions))


def test_a_wrong_start_and_a_wrong_end_are_reported_together(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()
    plan = read_plan(
        topic,
        start=Start("specific-offsets", offsets=at(topic, (0, 9))),
        stop=Stop("specific-offsets", offsets=at(topic, (7, 1))),
    )

    with pytest.raises(OffsetError, match=rf"the end has an offset for {topic}\[7\].*cannot start beyond the end"):
        batch(plan, cluster)


class TestPartitionsThatComeBeforeTheEnd:
    @pytest.mark.parametrize("restart", [False, True])
    def test_they_are_read_to_their_own_ends_where_the_stream_looks_for_them(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query], restart: bool
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        query = begin(topic, discovery=timedelta(hours=1))
        assert sort_strings(query.batch(Limits(max_records=1))) == ["a"]
        kdsl_kafka.add_partitions(topic, 2)
        kdsl_kafka.produce(topic, *in_partition(0, "late"), *in_partition(1, "x", "y"))
        if restart:
            query.restart()

        result = batches(query, Limits(max_records=2))

        assert sorted(text for batch in result for text in batch) == ["b", "c", "x", "y"]
        assert query.offsets.stop == {(topic, 0): 3, (topic, 1): 2}
        assert has_ended(query)

    @pytest.mark.parametrize("restart", [False, True])
    def test_those_that_come_after_everything_was_read_are_not_begun(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, begin: Callable[..., Query], restart: bool
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        query = begin(topic, discovery=timedelta(0))
        assert batches(query) == [["a", "b", "c"]]
        assert has_ended(query)
        kdsl_kafka.add_partitions(topic, 2)
        kdsl_kafka.produce(topic, *in_partition(1, "x", "y"))
        if restart:
            query.restart()

        assert [rows for rows in batches(query, Limits(max_records=1)) if rows] == []
        assert has_ended(query)

    def test_a_partition_without_a_group_offset_is_not_read_and_is_logged(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        commit(kdsl_kafka, f"group-of-{topic}", topic, (0, 2))
        stop = Stop("group-offsets")
        query = begin(topic, stop=stop, group_id=f"group-of-{topic}", discovery=timedelta(hours=1))
        assert sort_strings(query.batch(Limits(max_records=1))) == ["a"]
        kdsl_kafka.add_partitions(topic, 2)
        kdsl_kafka.produce(topic, *in_partition(1, "x"))

        assert batches(query) == [["b"]]
        assert has_ended(query)
        assert f"has no committed offset for {topic}[1]" in caplog.text

    def test_a_stream_that_does_not_look_names_them_at_its_end(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        begin: Callable[..., Query],
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        query = begin(topic)
        assert sort_strings(query.batch(Limits(max_records=1))) == ["a"]
        kdsl_kafka.add_partitions(topic, 2)
        kdsl_kafka.produce(topic, *in_partition(1, "x"))

        assert batches(query) == [["b", "c"]]
        assert has_ended(query)
        assert caplog.text.count(f"the stream ends without the records of {topic}[1]") == 1
