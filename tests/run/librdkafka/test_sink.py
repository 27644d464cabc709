"""The tasks of the sink on a real broker, called as a Spark worker calls them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, RecordError
from kdsl.plan.model import WritePlan
from kdsl.run.librdkafka import producer_pool
from kdsl.run.librdkafka.producer import Producer
from kdsl.run.librdkafka.task_writer import (
    PIECE_BYTES,
    PIECE_ROWS,
    choose_producer_settings,
    choose_sizes,
    merge_small_batches,
    write_rows,
)
from kdsl.testing import LocalKafka, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types.arrow import arrow_schema
from tests.outages import wait_for_connection, wait_for_request
from tests.run.listeners.queries import eventually
from tests.run.write_plans import write_plan

NAMES = {"k": "__raw_key__", "v": "__raw_value__"}

# Of Apache Kafka's own test of the hash.
MURMUR2 = {
    "21": -973932308,
    "foobar": -790332482,
    "a-little-bit-long-string": -985981536,
    "a-little-bit-longer-string": -1486304829,
    "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    "abc": 479470107,
}


def raw_plan(*topics: str, pattern: str | None = None, **more: str) -> WritePlan:
    return write_plan(metadata=NAMES | more, topics=topics, pattern=pattern)


def rows(plan: WritePlan, values: Iterable[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(values), schema=arrow_schema(plan.columns))


def number_records(count: int, size: int = 100) -> list[dict[str, Any]]:
    return [{"k": b"%d" % n, "v": b"x" * size} for n in range(count)]


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


@pytest.fixture(autouse=True)
def _new_producers() -> None:
    """No producer of another test, so that each test says what it needs."""
    for producer in producer_pool._pool.take_all():
        producer.close()


def test_all_records_are_written_and_counted(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic(partitions=3)
    plan = raw_plan(topic)
    result = rows(plan, number_records(2500))

    written = write_rows(plan, cluster, [result.slice(0, 1000), result.slice(1000)])

    size = 2500 * 100 + sum(len(str(n)) for n in range(2500))
    assert (written.records, written.bytes, written.lost) == (2500, size, 0)
    assert sorted(int(m.key() or b"-1") for m in kdsl_kafka.read(topic)) == list(range(2500))


def test_records_of_a_key_keep_their_order(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic(partitions=3)
    plan = raw_plan(topic)
    batches = [rows(plan, [{"k": b"%d" % (n % 5), "v": b"%d" % n} for n in range(i, i + 700)]) for i in (0, 700)]

    write_rows(plan, cluster, batches)

    seen: dict[bytes | None, list[int]] = {}
    for message in kdsl_kafka.read(topic):
        seen.setdefault(message.key(), []).append(int(message.value() or b"-1"))
    assert seen == {b"%d" % key: list(range(key, 1400, 5)) for key in range(5)}


def test_keys_go_to_the_partitions_that_javas_producer_chooses(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic(partitions=7)
    plan = raw_plan(topic)

    write_rows(plan, cluster, [rows(plan, [{"k": key.encode(), "v": b""} for key in MURMUR2])])

    results = {(m.key() or b"").decode(): m.partition() for m in kdsl_kafka.read(topic)}
    assert results == {key: (code & 0x7FFFFFFF) % 7 for key, code in MURMUR2.items()}


def test_null_and_empty_keys_and_values_are_distinguished(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    plan = raw_plan(topic)
    values: list[tuple[bytes | None, bytes | None]] = [
        (None, b"1"),
        (b"", b"2"),
        (b"a", None),
        (b"b", b""),
        (None, None),
    ]
    result = rows(plan, [{"k": k, "v": v} for k, v in values])

    for part in (result, result.slice(4), result.slice(1, 1), result.slice(2, 1), result.slice(3, 1)):
        write_rows(plan, cluster, [part])

    again = [values[4], values[1], values[2], values[3]]
    assert [(m.key(), m.value()) for m in kdsl_kafka.read(topic)] == values + again


def test_timestamps_and_headers_are_written(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()
    plan = raw_plan(topic, h="headers", ts="timestamp")
    at = datetime(2020, 3, 8, 13, 12, 11, 123000, UTC)

    write_rows(
        plan,
        cluster,
        [
            rows(
                plan,
                [
                    {"k": b"1", "v": b"a", "h": [("k1", b"\xc0\xff\xee"), ("k2", None), ("k3", b"")], "ts": at},
                    {"k": None, "v": None, "h": [], "ts": None},
                    {"k": b"3", "v": b"", "h": None, "ts": at},
                ],
            )
        ],
    )

    first, second, third = kdsl_kafka.read(topic)
    assert (first.key(), first.value(), first.timestamp()) == (b"1", b"a", (1, 1583673131123))
    assert first.headers() == [("k1", b"\xc0\xff\xee"), ("k2", None), ("k3", b"")]
    assert (second.key(), second.value(), second.headers()) == (None, None, None)
    assert abs(second.timestamp()[1] / 1000 - time.time()) < 86_400, "the time of sending; a clock may be set meanwhile"
    assert (third.key(), third.value(), third.headers()) == (b"3", b"", None)
    assert third.timestamp() == (1, 1583673131123)


def test_repeated_headers_keep_their_order(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()
    plan = raw_plan(topic, h="header-list")
    lists = [[{"key": "é", "value": b"%d" % i} for i in range(n)] for n in (3, 0, 1)] * 1500

    write_rows(plan, cluster, [rows(plan, [{"h": h} for h in lists])])

    expected = [[(h["key"], h["value"]) for h in one] or None for one in lists]
    assert [m.headers() for m in kdsl_kafka.read(topic)] == expected


@pytest.mark.parametrize("more", [{}, {"ts": "timestamp"}])
def test_rows_go_to_the_topics_that_they_name(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, more: dict[str, str]
) -> None:
    first, second = kdsl_topic("first"), kdsl_topic("second")
    plan = raw_plan(first, second, to="topic", **more)
    result = rows(plan, [{"k": b"%d" % n, "to": (first, second)[n % 2]} for n in range(10)])

    write_rows(plan, cluster, [result])

    assert [m.key() for m in kdsl_kafka.read(first)] == [b"0", b"2", b"4", b"6", b"8"]
    assert [m.key() for m in kdsl_kafka.read(second)] == [b"1", b"3", b"5", b"7", b"9"]


def test_rows_go_to_topics_that_match_the_pattern(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic("shop.eu")
    plan = raw_plan(pattern=r"shop\.eu.*", to="topic")

    write_rows(plan, cluster, [rows(plan, [{"k": b"1", "to": topic}])])

    assert [m.key() for m in kdsl_kafka.read(topic)] == [b"1"]


def test_a_topic_that_matches_and_does_not_exist_is_named(cluster: Cluster) -> None:
    plan = raw_plan(pattern="shop.*", to="topic")

    with pytest.raises(RecordError) as caught:
        write_rows(plan, cluster, [rows(plan, [{"k": b"1", "to": "shop.nowhere"}])])

    assert str(caught.value) == (
        "Orders: cannot write the record at topic shop.nowhere: row 1: the topic does not exist; create "
        "it, or correct its name"
    )


def test_a_record_too_large_for_the_producer_is_named_with_its_size(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()
    plan = raw_plan(topic)
    result = rows(plan, [*number_records(3), {"k": b"big", "v": b"x" * 2_000_000}])

    with pytest.raises(RecordError) as caught:
        write_rows(plan, cluster, [result])

    assert str(caught.value) == (
        f"Orders: cannot write the record at topic {topic}: row 4: its key and value have 2,000,003 bytes, "
        "too large for the producer, which accepts 1,048,576; raise 'max.request.size' (1048576) of the producer and "
        "'max.message.bytes' of the topic"
    )


@pytest.mark.parametrize("more", [{}, {"ts": "timestamp"}])
def test_a_record_too_large_for_the_broker_is_named_with_its_size(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, more: dict[str, str]
) -> None:
    topic = kdsl_topic(config={"max.message.bytes": "1000"})
    plan = raw_plan(topic, **more)
    result = rows(plan, [{"k": b"big", "v": b"x" * 5000}])

    with pytest.raises(RecordError) as caught:
        write_rows(plan, Cluster(kdsl_kafka.bootstrap_servers), [result])

    assert str(caught.value) == (
        f"Orders: cannot write the record at topic {topic}, partition 0: row 1: its key and value have "
        "5,003 bytes, too large for the broker; raise 'max.request.size' (1048576) of the producer and "
        "'max.message.bytes' of the topic"
    )


def test_the_instant_zero_is_refused_because_librdkafka_takes_it_for_none(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    plan = raw_plan(topic, ts="timestamp")
    result = rows(
        plan, [{"k": b"1", "ts": datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)}, {"ts": datetime(1970, 1, 1, tzinfo=UTC)}]
    )

    write_rows(plan, cluster, [result.slice(0, 1)])
    with pytest.raises(RecordError, match=r"row 2: librdkafka cannot send the timestamp 1970-01-01 00:00"):
        write_rows(plan, cluster, [result])

    assert kdsl_kafka.read(topic)[0].timestamp() == (1, 1)


def test_a_header_name_that_would_be_cut_off_is_refused(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    plan = raw_plan(kdsl_topic(), h="headers")

    with pytest.raises(RecordError, match="row 2: the name of a header contains a NUL character"):
        write_rows(plan, cluster, [rows(plan, [{"h": [("a", b"")]}, {"h": [("a\0b", b"")]}])])


LINGERING = {"linger.ms": "60000"}  # what is handed over is still in the queue when the task fails


def no_producer_is_left() -> None:
    """Wait until the producers of failed tasks have ended, after which nothing of theirs is sent."""
    assert producer_pool._pool.take_all() == []
    for thread in threading.enumerate():
        if thread.name == "kdsl-producer-close":
            thread.join(120)
            assert not thread.is_alive()


def test_a_row_that_cannot_be_encoded_stops_what_is_queued(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    plan = write_plan({"n": "INT NOT NULL"}, topics=(topic,))
    lingering = Cluster(kdsl_kafka.bootstrap_servers, properties=LINGERING)
    good = pa.record_batch({"n": pa.array([1, 2, 3], pa.int32())})
    bad = pa.record_batch({"n": pa.array([4, None], pa.int32())})

    with pytest.raises(RecordError, match="row 5: n is NULL"):
        write_rows(plan, lingering, [good, bad])

    no_producer_is_left()
    assert kdsl_kafka.read(topic) == []


def test_a_task_that_is_broken_off_sends_nothing_more(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    plan = raw_plan(topic)
    lingering = Cluster(kdsl_kafka.bootstrap_servers, properties=LINGERING)

    def breaking() -> Iterable[pa.RecordBatch]:
        yield rows(plan, number_records(3))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rows(plan, lingering, breaking())

    no_producer_is_left()
    assert kdsl_kafka.read(topic) == []


def test_a_producer_is_reused_by_the_next_task_with_the_same_settings(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    plan = raw_plan(kdsl_topic())
    write_rows(plan, cluster, [rows(plan, number_records(1))])
    (first,) = producer_pool._pool.take_all()
    producer_pool.return_producer(choose_producer_settings(plan.table, cluster)[1], plan.delivery, first)

    write_rows(plan, cluster, [rows(plan, number_records(1))])
    other = Cluster(cluster.bootstrap_servers, properties={"linger.ms": "7"})
    write_rows(plan, other, [rows(plan, number_records(1))])

    result = producer_pool._pool.take_all()
    assert len(result) == 2
    assert first in result


def test_only_a_few_producers_are_pooled(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    plan = raw_plan(kdsl_topic())
    for linger in range(producer_pool.POOL_SIZE + 3):
        other = Cluster(cluster.bootstrap_servers, properties={"linger.ms": str(linger)})
        write_rows(plan, other, [rows(plan, number_records(1))])

    assert len(producer_pool._pool.take_all()) == producer_pool.POOL_SIZE


def test_the_queue_has_space_for_records_in_flight_and_large_messages() -> None:
    def size(name: str, **properties: str) -> str | int:
        settings = Cluster("x:1", properties={k.replace("_", "."): v for k, v in properties.items()}).producer()
        return choose_sizes(settings)[f"queue.buffering.max.{name}"]

    assert [size("messages", linger_ms=linger) for linger in ("0", "5", "100")] == [20_000, 20_000, 100_000]
    assert size("kbytes") == 32 * 1024
    assert size("kbytes", max_request_size="100000000") == 195_312


@pytest.mark.parametrize("more", [{}, {"ts": "timestamp"}])
def test_a_record_that_never_fits_into_the_queue_is_named(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, more: dict[str, str]
) -> None:
    plan = raw_plan(kdsl_topic(), **more)
    small = Cluster(kdsl_kafka.bootstrap_servers, properties={"queue.buffering.max.kbytes": "2"})
    result = rows(plan, [*number_records(50), {"k": b"big", "v": b"x" * 5000}, *number_records(50)])

    with pytest.raises(RecordError, match="row 51: its value is larger than the producer's queue"):
        write_rows(plan, small, [result])


@pytest.mark.parametrize("more", [{}, {"ts": "timestamp"}])
def test_a_full_queue_is_waited_for(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, more: dict[str, str]) -> None:
    topic = kdsl_topic()
    plan = raw_plan(topic, **more)
    small = Cluster(kdsl_kafka.bootstrap_servers, properties={"queue.buffering.max.messages": "100"})

    written = write_rows(plan, small, [rows(plan, number_records(5000))])

    assert written.records == 5000
    assert [int(m.key() or b"-1") for m in kdsl_kafka.read(topic)] == list(range(5000))


def test_small_batches_are_put_together_in_their_order(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster
) -> None:
    topic = kdsl_topic()
    plan = raw_plan(topic, h="headers")
    actual = [
        {"k": b"%d" % n if n % 3 else None, "v": b"%d" % n, "h": [("a", b"%d" % n)] * (n % 3)} for n in range(20_000)
    ]
    batches = [rows(plan, actual[start : start + 300]) for start in range(0, 20_000, 300)]
    batches.insert(1, rows(plan, []))

    written = write_rows(plan, cluster, batches)

    assert written.records == 20_000
    results = [(m.key(), int(m.value() or b""), m.headers()) for m in kdsl_kafka.read(topic)]
    assert results == [(r["k"], n, r["h"] or None) for n, r in enumerate(actual)]


def test_a_row_is_counted_through_small_batches(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    plan = write_plan({"n": "INT NOT NULL"}, topics=(kdsl_topic(),))
    good, bad = (pa.record_batch({"n": pa.array(values, pa.int32())}) for values in ([1, 2, 3], [4, None]))

    with pytest.raises(RecordError, match="row 11: n is NULL"):
        write_rows(plan, cluster, [good, good, good, bad, good])


def test_small_batches_are_put_together_and_large_ones_are_not_copied() -> None:
    small = pa.record_batch({"v": [b"x", b"y"]})
    large = pa.record_batch({"v": [b"x" * PIECE_BYTES]})
    many = pa.record_batch({"v": [b"x"] * PIECE_ROWS})
    joined = list(merge_small_batches([small, small, large, small, many, small]))

    assert [batch.num_rows for batch in joined] == [4, 1, 2 + PIECE_ROWS, 2]
    assert joined[1] is large
    assert joined[3] is small
    assert pa.Table.from_batches(joined) == pa.Table.from_batches([small, small, large, small, many, small])


def test_large_batches_are_cut_into_pieces(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()
    plan = raw_plan(topic)
    count = 3 * PIECE_BYTES // 500_000

    written = write_rows(plan, cluster, [rows(plan, number_records(count, 500_000))])

    assert written.bytes > 2.9 * PIECE_BYTES
    assert [int(m.key() or b"-1") for m in kdsl_kafka.read(topic)] == list(range(count))


def test_unresponsive_brokers_are_reported_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def complaining(settings: Mapping[str, str], purpose: str, *, reports_offsets: bool) -> Iterator[Producer]:
        with producer_pool.borrow_producer(settings, purpose, reports_offsets=reports_offsets) as producer:
            while not producer.last_error:  # the client tells by itself that nobody is there
                producer.poll(1000)
            yield producer

    monkeypatch.setattr("kdsl.run.librdkafka.task_writer.borrow_producer", complaining)
    plan = raw_plan("orders")
    nowhere = Cluster("127.0.0.1:1", properties={"max.block.ms": "1500"})

    with pytest.raises(KdslError) as caught:
        write_rows(plan, nowhere, [rows(plan, number_records(1))])

    assert str(caught.value).startswith("Orders: cannot write to orders: no broker answered within 1.5 seconds: ")
    assert "Connection refused" in str(caught.value)


def test_wrong_settings_are_reported_before_anything_is_sent(cluster: Cluster) -> None:
    plan = raw_plan("orders")
    wrong = Cluster(cluster.bootstrap_servers, properties={"transactional.id": "mine", "acks": "some"})

    with pytest.raises(KdslError) as caught:
        write_rows(plan, wrong, [rows(plan, number_records(1))])

    assert str(caught.value).startswith("Orders: the cluster has 2 problems:\n")
    assert "'transactional.id' cannot be set" in str(caught.value)


@pytest.mark.kafka
class TestOwnKafka:
    @pytest.fixture(scope="class")
    @classmethod
    def kafka(cls) -> Iterator[LocalKafka]:
        """A Kafka that creates topics, which the last test kills."""
        with LocalKafka(topics={"orders": 1}, properties={"auto.create.topics.enable": "true"}) as kafka:
            yield kafka

    def test_topics_are_not_created_where_that_is_not_allowed(self, kafka: LocalKafka) -> None:
        """The broker would create them."""
        plan, other = raw_plan("new-topic"), raw_plan("other-topic")
        obeyed = Cluster(kafka.bootstrap_servers, properties={"allow.auto.create.topics": "false"})

        with pytest.raises(RecordError, match="the topic does not exist"):
            write_rows(plan, obeyed, [rows(plan, number_records(1))])
        write_rows(other, Cluster(kafka.bootstrap_servers), [rows(other, number_records(1))])

        assert [m.key() for m in kafka.read("other-topic")] == [b"0"]
        topics = kafka.admin().list_topics(timeout=60).topics
        assert ("new-topic" in topics, "other-topic" in topics) == (False, True)

    def test_records_that_time_out_fail_the_task(self, kafka: LocalKafka) -> None:
        """The broker stops while records are in the queue."""
        plan = raw_plan("orders")
        hurried = Cluster(
            kafka.bootstrap_servers,
            properties={"delivery.timeout.ms": "2000", "request.timeout.ms": "1500", "linger.ms": "0"},
        )
        for _ in eventually():  # a machine that stands still may let even this one time out
            with suppress(RecordError):
                write_rows(plan, hurried, [rows(plan, number_records(1))])
                break
        kafka.kill()

        with pytest.raises(RecordError) as caught:
            write_rows(plan, hurried, [rows(plan, number_records(3))])

        text = str(caught.value)
        assert text.startswith("Orders: cannot write the record at topic orders, partition 0: row 1: it was not ")
        assert "acknowledged within 'delivery.timeout.ms' (2000 ms); the last error was: " in text
        assert caught.value.more == 2


@pytest.mark.reliability
@pytest.mark.parametrize("kill", ["kill", "pause"])
def test_nothing_is_lost_when_the_broker_dies_in_the_middle_and_returns(kill: str) -> None:
    with LocalKafka(topics={"orders": 3}) as kafka:
        plan = raw_plan("orders")
        cluster = Cluster(kafka.bootstrap_servers, properties={"delivery.timeout.ms": "300000"})
        total, size = 60, 2000
        down = threading.Event()

        def feed() -> Iterable[pa.RecordBatch]:
            for i in range(total):
                if i == total // 3:
                    kafka.kill() if kill == "kill" else kafka.pause()
                    down.set()
                values = [{"k": b"%d" % n, "v": b"x" * 200} for n in range(i * size, (i + 1) * size)]
                yield rows(plan, values)

        def bring_back() -> None:
            down.wait(300)
            if kill == "kill":
                wait_for_connection(kafka.bootstrap_servers)
                kafka.start_broker()
            else:
                wait_for_request(kafka.bootstrap_servers)
                kafka.resume()

        helper = threading.Thread(target=bring_back)
        helper.start()
        written = write_rows(plan, cluster, feed())
        helper.join()

        keys = [int(m.key() or b"-1") for m in kafka.read("orders")]
        assert written.records == total * size
        assert sorted(set(keys)) == list(range(total * size))
        assert len(keys) == total * size  # idempotence is on, so not even a duplicate


def test_a_write_without_a_guarantee_continues_and_counts(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kdsl_topic()
    plan = write_plan(metadata=NAMES, topics=(topic,), delivery="none")
    too_large = {"k": b"1", "v": b"x" * 2_000_000}

    written = write_rows(plan, cluster, [rows(plan, [too_large]), rows(plan, number_records(2))])

    assert (written.records, written.lost) == (2, 1)
    assert [m.key() for m in kdsl_kafka.read(topic)] == [b"0", b"1"]
    assert "Orders: 1 of 3 records may be lost, because the write has no delivery guarantee" in caplog.text


def test_no_rows_write_nothing(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()
    plan = raw_plan(topic, to="topic", h="headers")

    written = write_rows(plan, cluster, [])
    assert (written.records, written.bytes, written.lost) == (0, 0, 0)
    written = write_rows(plan, cluster, [rows(plan, [])])
    assert (written.records, written.bytes, written.lost) == (0, 0, 0)
    assert kdsl_kafka.read(topic) == []


def test_a_worker_process_ends_while_producers_are_pooled(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    program = f"""
from tests.run.librdkafka.test_sink import raw_plan, rows, number_records
from kdsl.cluster import Cluster
from kdsl.run.librdkafka.task_writer import write_rows
plan = raw_plan({topic!r})
write_rows(plan, Cluster({kdsl_kafka.bootstrap_servers!r}), [rows(plan, number_records(10))])
"""

    ended = subprocess.run(
        [sys.executable, "-c", program], timeout=300, capture_output=True, env=os.environ, check=False
    )

    assert (ended.returncode, ended.stderr) == (0, b"")
    assert len(kdsl_kafka.read(topic)) == 10
