"""Columns that are built from librdkafka's memory, compared with what confluent-kafka's own messages contain."""

from __future__ import annotations

import ctypes
import random
import resource
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from hypothesis import given, strategies as st

from kdsl.cluster import Cluster
from kdsl.run import ffi
from kdsl.run.librdkafka import message_batch
from kdsl.run.librdkafka.consumers import SIZES, PooledConsumer, borrow_consumer, discard
from kdsl.run.librdkafka.fetch import FetchCount, Fetcher
from kdsl.run.librdkafka.message_batch import MessageBatch, build_binary
from kdsl.run.offsets.stored import Range
from kdsl.run.records.metadata import RAW
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.read_plans import fetch_raw

LENGTHS = (0, 1, 4, 11, 12, 13, 16, 100, 5_000, 70_000)


@pytest.fixture
def consumer(kdsl_kafka: RunningKafka) -> Iterator[PooledConsumer]:
    result = borrow_consumer(Cluster(kdsl_kafka.bootstrap_servers), "batches", SIZES[-1], {"group.id": "tests"})
    yield result
    discard(result)


def any_bytes(rand: random.Random, chance_of_none: float) -> bytes | None:
    return None if rand.random() < chance_of_none else rand.randbytes(rand.choice(LENGTHS))


def write_any(kafka: RunningKafka, topic: str, count: int, partitions: int, rand: random.Random) -> None:
    producer = Producer({**kafka.client_properties, "queue.buffering.max.kbytes": 1_000_000})
    for _ in range(count):
        names = [rand.choice(["a", "é", ""]) for _ in range(rand.choice([0, 0, 1, 3]))]
        headers: list[tuple[str, str | bytes | None]] = [(name, any_bytes(rand, 0.3)) for name in names]
        producer.produce(
            topic,
            any_bytes(rand, 0.2),
            any_bytes(rand, 0.2),
            partition=rand.randrange(partitions),
            headers=headers,
            timestamp=rand.randrange(1_700_000_000_000, 1_700_000_100_000),
        )
    producer.flush()


def read_with_objects(kafka: RunningKafka, ranges: Sequence[Range]) -> list[dict[str, object]]:
    """Read ranges with confluent-kafka's consumer, as rows of raw batches."""
    consumer = Consumer({**kafka.client_properties, "group.id": "objects", "enable.auto.commit": False})
    rows: list[dict[str, object]] = []
    for r in ranges:
        consumer.assign([TopicPartition(r.topic, r.partition, r.start)])
        for message in consumer.consume(len(r), 60.0):
            kind, millis = message.timestamp()
            pairs: Any = message.headers() or []
            headers = [{"key": name, "value": value} for name, value in pairs]
            row = {"topic": message.topic(), "partition": message.partition(), "offset": message.offset()}
            row |= {"timestamp": millis, "timestamp_type": kind - 1, "leader_epoch": message.leader_epoch()}
            rows.append({**row, "headers": headers, "key": message.key(), "value": message.value()})
    consumer.close()
    return rows


def sort_rows(rows: Sequence[dict[str, object]]) -> list[dict[str, object]]:
    return sorted(rows, key=lambda row: (str(row["topic"]), row["partition"], row["offset"]))


@pytest.mark.parametrize("seed", range(3))
def test_all_fields_are_those_of_message_objects(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, consumer: PooledConsumer, seed: int
) -> None:
    rand = random.Random(seed)
    topics = [kdsl_topic(f"topic{n}", partitions=2, config={"max.message.bytes": "2000000"}) for n in range(3)]
    for topic in topics:
        write_any(kdsl_kafka, topic, 400, 2, rand)
    admin = Consumer({**kdsl_kafka.client_properties, "group.id": "ends"})
    ends = {(t, p): admin.get_watermark_offsets(TopicPartition(t, p))[1] for t in topics for p in range(2)}
    admin.close()
    ranges = [Range(topic, partition, 3, end) for (topic, partition), end in ends.items()]

    wanted = read_with_objects(kdsl_kafka, ranges)
    table = fetch_raw(consumer, RAW, ranges)
    table.validate(full=True)
    one_by_one = [row for r in ranges for row in fetch_raw(consumer, RAW, [r]).to_pylist()]

    assert sort_rows(table.to_pylist()) == sort_rows(wanted)
    assert one_by_one == wanted
    assert len(wanted) == 1200 - 3 * len(ranges)


def test_many_topics_are_not_mixed_up(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, consumer: PooledConsumer
) -> None:
    topics = [kdsl_topic(f"many{n}") for n in range(30)]
    producer = Producer(kdsl_kafka.client_properties)
    for n in range(300):
        producer.produce(topics[n % 30], f"{topics[n % 30]} {n // 30}")
    producer.flush()

    table = fetch_raw(consumer, {"value"}, [Range(topic, 0, 0, 10) for topic in topics])

    rows = [(row["topic"], row["offset"], row["value"].decode()) for row in table.to_pylist()]
    assert sorted(rows) == sorted((topic, n, f"{topic} {n}") for topic in topics for n in range(10))


def test_records_and_bytes_are_counted(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, consumer: PooledConsumer
) -> None:
    topic = kdsl_topic()
    producer = Producer(kdsl_kafka.client_properties)
    for key, value, at in ((b"k", b"four", 1_700_000_000_000), (None, None, 1_700_000_000_001)):
        producer.produce(topic, value, key, timestamp=at)
    producer.flush()
    fetcher = Fetcher(consumer, "Orders", set(), 120.0)
    fetcher.count = FetchCount()

    assert sum(batch.num_rows for batch in fetcher.read([Range(topic, 0, 0, 2)])) == 2
    assert fetcher.count.take()[:3] == (2, 5, 1_700_000_000_001)


class TestFreeing:
    @pytest.fixture
    def freed(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """The addresses of the messages that were freed."""
        freed: list[int] = []
        functions = ffi.message_functions()

        class Noting:
            def __getattr__(self, name: str) -> object:
                return getattr(functions, name)

            def rd_kafka_message_destroy(self, address: int) -> None:
                freed.append(address)
                functions.rd_kafka_message_destroy(address)

        monkeypatch.setattr(ffi, "message_functions", Noting)
        return freed

    def take(self, kafka: RunningKafka, topic: str, consumer: PooledConsumer) -> MessageBatch:
        kafka.produce(topic, "a", "b", "c")
        consumer.assign([Range(topic, 0, 0, 3)])
        while not len(messages := consumer.consume(3, 0.5)):
            messages.free()
        return messages

    def test_an_error_in_the_body_frees_the_messages_once(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, consumer: PooledConsumer, freed: list[int]
    ) -> None:
        messages = self.take(kdsl_kafka, kdsl_topic(), consumer)
        count = len(messages)
        records = messages.records()
        values = records.build("value")

        def fail(batch: MessageBatch) -> None:
            with batch:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail(messages)
        messages.free()
        del messages

        assert len(freed) == len(set(freed)) == count
        assert values.to_pylist() == [b"a", b"b", b"c"][:count]
        with pytest.raises(ValueError, match="were freed"):
            records.build("key")
        with pytest.raises(ValueError, match="were freed"):
            records.partition_runs()

    def test_an_error_while_the_batch_is_created_frees_the_messages(
        self,
        kdsl_kafka: RunningKafka,
        kdsl_topic: MakeTopic,
        consumer: PooledConsumer,
        freed: list[int],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        def fail(_: object) -> None:
            if len(_):  # type: ignore[arg-type]
                raise MemoryError

        monkeypatch.setattr(message_batch, "_read_structures", fail)
        with pytest.raises(MemoryError):
            self.take(kdsl_kafka, kdsl_topic(), consumer)
        assert freed

    def test_memory_does_not_grow(
        self, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, consumer: PooledConsumer
    ) -> None:
        topic = kdsl_topic()
        producer = Producer({**kdsl_kafka.client_properties, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
        for n in range(200_000):
            producer.produce(topic, b"%0100d" % n, b"%d" % n, headers=[("n", b"1")] if n % 10 == 0 else None)
            if n % 10_000 == 0:
                producer.poll(0)
        producer.flush()

        def read() -> int:
            fetcher = Fetcher(consumer, "Orders", {"value", "key", "headers", "timestamp"}, 120.0)
            return sum(batch.num_rows for batch in fetcher.read([Range(topic, 0, 0, 200_000)]))

        assert read() == read() == 200_000
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        assert sum(read() for _ in range(10)) == 2_000_000
        # All of what was read takes about 400 MB.
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@given(st.lists(st.one_of(st.none(), st.binary(max_size=40), st.sampled_from([b"", b"x" * 12, b"x" * 13]))))
def test_values_are_copied_from_where_they_are(values: list[bytes | None]) -> None:
    buffers = [None if value is None else ctypes.create_string_buffer(value, max(1, len(value))) for value in values]
    addresses = np.array([0 if b is None else ctypes.addressof(b) for b in buffers], np.int64)
    sizes = np.array([len(value or b"") for value in values], np.int64)

    array = build_binary(addresses, sizes)

    array.validate(full=True)
    assert array.type == pa.binary()
    assert array.to_pylist() == values


@pytest.mark.parametrize("gap", [(1 << 30) - 20, 1 << 31, 5 << 30])
def test_values_may_be_gigabytes_apart(gap: int) -> None:
    memory = np.empty(gap + 200, np.uint8)  # the system gives memory to the pages that are written
    texts = {0: b"the first of all values", gap: b"one that is far away from it", gap + 100: b"short", gap + 30: b""}
    for at, text in texts.items():
        memory[at : at + len(text)] = np.frombuffer(text, np.uint8)
    base = memory.ctypes.data
    addresses = np.array([base + at for at in texts] + [0], np.int64)
    sizes = np.array([*map(len, texts.values()), 0], np.int64)

    array = build_binary(addresses, sizes)

    array.validate(full=True)
    assert array.to_pylist() == [*texts.values(), None]
