"""Ranges of records on a real broker, read as a task reads them, without a JVM."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, Producer

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, OffsetError, TopicMissingError, TopicRecreatedError
from kdsl.run.admin.errors import StalledError
from kdsl.run.librdkafka import client_pool, fetch as fetching
from kdsl.run.librdkafka.consumers import (
    POOL_SIZE,
    SIZES,
    PooledConsumer,
    borrow_consumer,
    choose_size,
    discard,
    return_consumer,
)
from kdsl.run.librdkafka.fetch import Fetcher
from kdsl.run.librdkafka.message_batch import MessageBatch
from kdsl.run.librdkafka.options import write_options
from kdsl.run.librdkafka.read_task import PARALLELISM, ZONE
from kdsl.run.librdkafka.source import BatchReader
from kdsl.run.offsets.stored import Range
from kdsl.run.records.metadata import RAW
from kdsl.testing import LocalKafka, Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.mock_cluster import FETCH, MockCluster
from tests.outages import wait_for_connection, wait_for_request
from tests.run.read_plans import fetch, fetch_raw, part, read_plan, sort_strings

PATIENCE = 300.0


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture
def consumer(cluster: Cluster) -> Iterator[PooledConsumer]:
    result = borrow_consumer(cluster, "test_fetch", SIZES[0], {"group.id": "tests"})
    yield result
    discard(result)


def test_a_client_without_progress_is_replaced(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, consumer: PooledConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "a", "b", "c")
    assign, forgotten = consumer.assign, False

    def forget_once(ranges: Sequence[Range]) -> None:
        nonlocal forgotten
        assign(ranges)
        if not forgotten:
            consumer.pause()
        forgotten = True

    monkeypatch.setattr(consumer, "assign", forget_once)
    monkeypatch.setattr(fetching, "RECONNECT_SECONDS", 0.5)
    result = fetch_raw(consumer, {"value"}, [Range(topic, 0, 0, 3)])
    assert result["value"].to_pylist() == [b"a", b"b", b"c"]


class TestRecords:
    def test_all_fields_of_a_record_are_read_as_written(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, consumer: PooledConsumer
    ) -> None:
        topic = kdsl_topic(partitions=2, config={"message.timestamp.before.max.ms": str(2**62)})
        kdsl_kafka.produce(
            topic,
            Record("v", "k", [("a", b"1"), ("a", None), ("é", b"")], 1, 1_583_673_131_123),
            Record(None, None, [], 1, 1_583_673_131_124),
            Record(b"", b"", [], 1, 1_583_673_131_125),
        )

        values = fetch_raw(consumer, RAW, [Range(topic, 1, 0, 3)]).to_pylist()

        same = {"topic": topic, "partition": 1, "timestamp_type": 0, "leader_epoch": 0}
        headers = [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "é", "value": b""}]
        assert values == [
            {**same, "offset": 0, "timestamp": 1_583_673_131_123, "headers": headers, "key": b"k", "value": b"v"},
            {**same, "offset": 1, "timestamp": 1_583_673_131_124, "headers": [], "key": None, "value": None},
            {**same, "offset": 2, "timestamp": 1_583_673_131_125, "headers": [], "key": b"", "value": b""},
        ]

    def test_the_brokers_time_is_reported_as_such(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, consumer: PooledConsumer
    ) -> None:
        topic = kdsl_topic(config={"message.timestamp.type": "LogAppendTime"})
        kdsl_kafka.produce(topic, "a")

        result = fetch_raw(consumer, {"timestamp_type"}, [Range(topic, 0, 0, 1)])

        assert result.to_pylist() == [{"topic": topic, "partition": 0, "offset": 0, "timestamp_type": 1}]

    def test_ranges_are_read_from_their_starts_to_their_ends_and_no_further(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, consumer: PooledConsumer
    ) -> None:
        topics = [kdsl_topic("one", partitions=3), kdsl_topic("two", partitions=2)]
        partitions = [(topics[0], 0), (topics[0], 2), (topics[1], 1)]
        for topic, partition in partitions:
            kdsl_kafka.produce(topic, *(Record(f"{n}", partition=partition) for n in range(300)))

        result = fetch_raw(
            consumer,
            {"value"},
            [
                Range(topics[0], 0, 10, 20),
                Range(topics[0], 0, 200, 205),
                Range(topics[0], 2, 0, 300),
                Range(topics[1], 1, 299, 300),
            ],
        )

        wanted = [(topics[0], 0, n) for n in (*range(10, 20), *range(200, 205))]
        wanted += [(topics[0], 2, n) for n in range(300)] + [(topics[1], 1, 299)]
        rows = [(r["topic"], r["partition"], r["offset"], int(r["value"])) for r in result.to_pylist()]
        assert sorted(rows) == sorted((*record, record[2]) for record in wanted)
        for topic, partition in partitions:
            offsets = [r[2] for r in rows if r[:2] == (topic, partition)]
            assert offsets == sorted(offsets)

    def test_what_follows_a_range_does_not_hold_up_the_others(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        consumer: PooledConsumer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        topic = kdsl_topic(partitions=4)
        for partition in range(4):
            kdsl_kafka.produce(topic, *(Record("x", partition=partition) for _ in range(5_000)))
        consume, consumed = consumer.consume, 0

        def count(most: int, seconds: float) -> MessageBatch:
            nonlocal consumed
            messages = consume(most, seconds)
            consumed += len(messages)
            return messages

        monkeypatch.setattr(consumer, "consume", count)
        result = fetch_raw(consumer, {"value"}, [Range(topic, partition, 0, 16) for partition in range(4)])

        assert result.num_rows == 64
        assert consumed <= 64 + 48 + 32 + 16

    def test_ranges_of_any_size_are_read_completely(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        consumer: PooledConsumer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(fetching, "JOINT_FETCH_RECORDS", 500)
        monkeypatch.setattr(fetching, "BATCH_RECORDS", 700)
        topic = kdsl_topic(partitions=4)
        for partition in range(4):
            kdsl_kafka.produce(topic, *(Record(f"{n}", partition=partition) for n in range(3_000)))
        rand = random.Random(7)

        for _ in range(10):
            cuts = [sorted(rand.sample(range(3_001), 4)) for _ in range(4)]
            ranges = [Range(topic, p, a, b) for p, c in enumerate(cuts) for a, b in (c[:2], c[2:])]
            rand.shuffle(ranges)
            result = fetch_raw(consumer, (), ranges)
            rows = list(zip(result["partition"].to_pylist(), result["offset"].to_pylist(), strict=True))
            assert sorted(rows) == sorted((r.partition, n) for r in ranges for n in range(r.start, r.end))
            assert max(map(len, result["offset"].chunks)) <= 2_700

    def test_large_records_come_in_batches_bounded_by_bytes(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, consumer: PooledConsumer
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *(bytes([n]) * 900_000 for n in range(60)))

        batches = list(Fetcher(consumer, "Orders", {"value"}, PATIENCE).read([Range(topic, 0, 0, 60)]))

        assert [v[0] for batch in batches for v in batch.column("value").to_pylist()] == list(range(60))
        assert max(batch.nbytes for batch in batches) < fetching.BATCH_BYTES + fetching.CHUNK_BYTES + 2_000_000

    def test_offsets_of_markers_and_aborted_records_are_passed_over(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        producer = Producer({**kdsl_kafka.client_properties, "transactional.id": f"tx-{topic}"})
        producer.init_transactions()
        for n in range(5):
            producer.begin_transaction()
            producer.produce(topic, f"{n}")
            producer.flush()
            (producer.abort_transaction if n == 3 else producer.commit_transaction)()
        committed = Cluster(cluster.bootstrap_servers, properties={"isolation.level": "read_committed"})
        plan = read_plan(value=part("raw", {"text": "STRING"}), metadata={"at": "offset"})

        for end in range(11):
            result = fetch(plan, committed, [Range(topic, 0, 0, end)] if end else [])
            assert [(r["at"], r["text"]) for r in result] == [(2 * n, f"{n}") for n in (0, 1, 2, 4) if 2 * n < end]


class TestConsumers:
    def test_a_consumer_is_pooled_and_assigned_again(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic(partitions=2)
        kdsl_kafka.produce(topic, *(Record(f"{p}{n}", partition=p) for p in range(2) for n in range(50)))
        plan = read_plan(topic)

        assert sort_strings(fetch(plan, cluster, [Range(topic, 0, 10, 12)])) == ["010", "011"]
        result = borrow_consumer(cluster, str(cluster.settings()), choose_size(2), {"group.id": "tests"})
        return_consumer(result)
        assert sort_strings(fetch(plan, cluster, [Range(topic, 1, 10, 12)])) == ["110", "111"]
        assert sort_strings(fetch(plan, cluster, [Range(topic, 0, 10, 12)])) == ["010", "011"]
        assert borrow_consumer(cluster, str(cluster.settings()), choose_size(2), {"group.id": "tests"}) is result

    def test_only_a_few_are_pooled(self, cluster: Cluster) -> None:
        borrowed = [
            borrow_consumer(cluster, f"number {n}", SIZES[0], {"group.id": "tests"}) for n in range(POOL_SIZE + 2)
        ]
        for consumer in borrowed:
            return_consumer(consumer)

        again = [borrow_consumer(cluster, f"number {n}", SIZES[0], {"group.id": "tests"}) for n in range(POOL_SIZE + 2)]
        assert [one is other for one, other in zip(borrowed, again, strict=True)] == [False] * 2 + [True] * POOL_SIZE
        for consumer in again:
            discard(consumer)

    def test_two_that_read_at_the_same_time_do_not_share_a_consumer(self, cluster: Cluster) -> None:
        one, other = (borrow_consumer(cluster, "shared", SIZES[0], {"group.id": "tests"}) for _ in range(2))
        assert one is not other
        return_consumer(one)
        assert borrow_consumer(cluster, "shared", SIZES[0], {"group.id": "tests"}) is one
        for consumer in (one, other):
            discard(consumer)

    def test_a_consumer_is_kept_while_a_task_reads_however_long_that_takes(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *map(str, range(120_000)))
        options = {**write_options(read_plan(topic), cluster), PARALLELISM: "1", ZONE: "UTC"}
        reader = BatchReader(tuple(options.items()))
        (task,) = reader.partitions()
        rows, hours = 0, 0
        monkeypatch.setattr(client_pool, "monotonic", lambda: time.monotonic() + 3600 * hours)
        for batch in reader.read(task):
            assert isinstance(batch, pa.RecordBatch)
            rows += batch.num_rows
            hours += 1  # pass while the rows of the batch are used
            discard(borrow_consumer(cluster, f"after {hours} hours", SIZES[0], {"group.id": "tests"}))
        assert rows == 120_000
        assert hours > 1

    def test_a_range_of_a_size_has_a_consumer_that_fits(self) -> None:
        assert [choose_size(n).name for n in (1, 5_000, 5_001, 10**9)] == ["small", "small", "big", "big"]


class TestFailures:
    def test_a_start_that_has_expired_names_what_is_lost(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abcdefgh")
        kdsl_kafka.delete_records(topic, {0: 5})

        with pytest.raises(OffsetError) as raised:
            fetch(read_plan(topic), cluster, [Range(topic, 0, 2, 8)])
        assert (
            f"Orders: records were deleted before they could be read: topic {topic}, partition 0, offset 2 is wanted, "
            "the earliest is 5; 3 offsets are lost"
        ) in str(raised.value)

    def test_a_start_beyond_the_log_is_reported(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")

        with pytest.raises(OffsetError, match=f"topic {topic}, partition 0 no longer has the offset 10"):
            fetch(read_plan(topic), cluster, [Range(topic, 0, 10, 12)])

    def test_a_missing_topic_is_named(self, cluster: Cluster) -> None:
        with pytest.raises(TopicMissingError, match="topic no-such-topic, partition 0, offsets 0 to 5"):
            fetch(read_plan("no-such-topic"), cluster, [Range("no-such-topic", 0, 0, 5)])

    def test_an_end_that_is_never_reached_is_an_error_with_the_position(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        cluster: Cluster,
        consumer: PooledConsumer,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(fetching, "CHUNK_RECORDS", 1)
        monkeypatch.setattr(fetching, "BATCH_RECORDS", 1)
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        fetcher = Fetcher(consumer, "Orders", {"value"}, PATIENCE)
        batches = fetcher.read([Range(topic, 0, 1, 9)])
        assert next(batches).num_rows == 1  # all records have come: a batch waits for what follows it
        fetcher.timeout = 1.0  # only when what there is has come

        with pytest.raises(StalledError) as raised:
            next(batches)
        assert re.search(
            rf"no message arrived from {cluster.bootstrap_servers} for \d+ s at topic {topic}, "
            "partition 0, offsets 3 to 9",
            str(raised.value),
        )

    def test_a_consumer_that_failed_is_not_used_again(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
    ) -> None:
        topic = kdsl_topic()
        kdsl_kafka.produce(topic, *"abc")
        plan = read_plan(topic)
        fetch(plan, cluster, [Range(topic, 0, 0, 1)])
        before = borrow_consumer(cluster, str(cluster.settings()), choose_size(1), {"group.id": "tests"})
        return_consumer(before)

        with pytest.raises(KdslError):
            fetch(plan, cluster, [Range(topic, 0, 10, 12)])

        assert borrow_consumer(cluster, str(cluster.settings()), choose_size(1), {"group.id": "tests"}) is not before
        assert sort_strings(fetch(plan, cluster, [Range(topic, 0, 0, 3)])) == ["a", "b", "c"]


class TestErrorsOfPartitions:
    """Errors in the answer to a fetch. A real broker returns the first of them at random moments."""

    @pytest.fixture
    def mock_cluster(self) -> Iterator[MockCluster]:
        mock = MockCluster("orders")
        mock.produce("orders", "a", "b", "c")
        yield mock
        mock.close()

    def test_a_request_is_repeated_after_an_error_of_the_broker(self, mock_cluster: MockCluster) -> None:
        mock_cluster.fail("orders", FETCH, KafkaError.UNKNOWN, times=3)
        consumer = borrow_consumer(Cluster(mock_cluster.servers[0]), "mock", SIZES[0], {"group.id": "tests"})

        read = list(Fetcher(consumer, "Orders", {"value"}, PATIENCE).read([Range("orders", 0, 0, 3)]))
        discard(consumer)

        assert [value for batch in read for value in batch.column("value").to_pylist()] == [b"a", b"b", b"c"]
        assert "Unknown broker error" in str(consumer.last_error)

    def test_a_topic_that_has_another_id_by_now_is_not_read_on(self, mock_cluster: MockCluster) -> None:
        mock_cluster.fail("orders", FETCH, KafkaError.INCONSISTENT_TOPIC_ID)

        with pytest.raises(TopicRecreatedError, match="created again while it was read at topic orders, partition 0"):
            fetch(read_plan("orders"), Cluster(mock_cluster.servers[0]), [Range("orders", 0, 0, 3)])


@pytest.mark.kafka
class TestOutages:
    @pytest.fixture(scope="class")
    @classmethod
    def kafka(cls) -> Iterator[LocalKafka]:
        with LocalKafka(heap=256) as kafka:
            yield kafka

    def fill_topic(self, kafka: LocalKafka, topic: str, count: int) -> None:
        kafka.create_topic(topic)
        producer = Producer({**kafka.client_properties, "linger.ms": 50, "queue.buffering.max.messages": 1_000_000})
        for n in range(count):
            producer.produce(topic, b"%07d" % n + b"x" * 200)
            if n % 10_000 == 0:
                producer.poll(0)
        producer.flush()

    @pytest.mark.reliability
    def test_a_broker_that_is_killed_and_comes_back_costs_time_only(self, kafka: LocalKafka) -> None:
        self.fill_topic(kafka, "killed", 200_000)
        consumer = borrow_consumer(
            Cluster(kafka.bootstrap_servers), "killed", choose_size(200_000), {"group.id": "tests"}
        )
        batches = Fetcher(consumer, "Orders", {"value"}, PATIENCE).read([Range("killed", 0, 0, 200_000)])
        offsets = next(batches).column("offset").to_pylist()

        def bring_back() -> None:
            wait_for_connection(kafka.bootstrap_servers)
            kafka.start_broker()

        kafka.kill()
        back = threading.Thread(target=bring_back)
        back.start()
        for batch in batches:
            offsets += batch.column("offset").to_pylist()
        back.join()
        discard(consumer)

        assert offsets == list(range(200_000))

    @pytest.mark.reliability
    def test_an_unavailable_broker_is_an_error_with_broker_partition_and_time(self, kafka: LocalKafka) -> None:
        self.fill_topic(kafka, "gone", 200_000)
        consumer = borrow_consumer(
            Cluster(kafka.bootstrap_servers), "gone", choose_size(200_000), {"group.id": "tests"}
        )
        fetcher = Fetcher(consumer, "Orders", {"value"}, PATIENCE)
        batches = fetcher.read([Range("gone", 0, 0, 200_000)])
        next(batches)
        kafka.kill()
        fetcher.timeout = 2.0

        with pytest.raises(StalledError) as raised:
            for _ in batches:
                pass
        discard(consumer)
        kafka.start_broker()

        assert re.search(
            rf"Orders: no message arrived from {kafka.bootstrap_servers} for \d+ s at topic gone, partition 0, "
            r"offsets \d+ to 200000; the client's last error: ",
            str(raised.value),
        )

    @pytest.mark.reliability
    def test_a_broker_that_freezes_for_a_while_costs_time_only(self, kafka: LocalKafka) -> None:
        self.fill_topic(kafka, "frozen", 200_000)
        consumer = borrow_consumer(
            Cluster(kafka.bootstrap_servers), "frozen", choose_size(200_000), {"group.id": "tests"}
        )
        batches = Fetcher(consumer, "Orders", {"value"}, PATIENCE).read([Range("frozen", 0, 0, 200_000)])
        count = next(batches).num_rows

        def thaw_when_asked() -> None:
            wait_for_request(kafka.bootstrap_servers)
            kafka.resume()

        kafka.pause()
        thaw = threading.Thread(target=thaw_when_asked)
        thaw.start()
        count += sum(batch.num_rows for batch in batches)
        thaw.join()
        discard(consumer)

        assert count == 200_000

    def test_records_deleted_while_they_are_read_are_an_error(self, kafka: LocalKafka) -> None:
        self.fill_topic(kafka, "deleted", 200_000)
        consumer = borrow_consumer(
            Cluster(kafka.bootstrap_servers), "deleted", choose_size(200_000), {"group.id": "tests"}
        )
        batches = Fetcher(consumer, "Orders", {"value"}, PATIENCE).read([Range("deleted", 0, 0, 200_000)])
        next(batches)
        kafka.delete_records("deleted", {0: 190_000})

        with pytest.raises(OffsetError, match=r"the earliest is 190000; [\d,]+ offsets are lost"):
            for _ in batches:
                pass
        discard(consumer)
