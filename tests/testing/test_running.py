from __future__ import annotations

import pytest

from kdsl.testing import LocalKafkaError, Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

pytestmark = pytest.mark.kafka


def test_records_are_read_as_written(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic(partitions=2)
    headers = [("trace", b"1"), ("trace", None), ("", b"")]

    placed = kdsl_kafka.produce(
        topic,
        Record("naïve", key="k", headers=headers, partition=1, timestamp=1_000_000_000_000),
        Record(None, key=b"gone", partition=1),
        Record(b"", partition=0),
    )

    assert placed == [(1, 0), (1, 1), (0, 0)]
    empty, first, tombstone = kdsl_kafka.read(topic)
    assert (empty.partition(), empty.key(), empty.value()) == (0, None, b"")
    assert (first.partition(), first.key(), first.value()) == (1, b"k", "naïve".encode())
    assert first.headers() == headers
    assert first.timestamp()[1] == 1_000_000_000_000
    assert (tombstone.key(), tombstone.value()) == (b"gone", None)


def test_a_key_goes_where_javas_producer_puts_it(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    # murmur2 of "21" is -973932308 (a case of Kafka's own tests); positive, modulo 5, that is 0
    assert kdsl_kafka.produce(kdsl_topic(partitions=5), Record("v", key="21"))[0][0] == (-973932308 & 0x7FFFFFFF) % 5


def test_offsets_follow_what_is_written_and_deleted(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic(partitions=2)
    kdsl_kafka.produce(topic, *(Record(str(n), partition=0) for n in range(5)))

    kdsl_kafka.delete_records(topic, {0: 3})

    assert kdsl_kafka.start_offsets(topic) == {0: 3, 1: 0}
    assert kdsl_kafka.end_offsets(topic) == {0: 5, 1: 0}
    assert [message.value() for message in kdsl_kafka.read(topic)] == [b"3", b"4"]


def test_a_topic_grows(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()

    kdsl_kafka.add_partitions(topic, 3)

    assert kdsl_kafka.end_offsets(topic) == {0: 0, 1: 0, 2: 0}


def test_a_topic_that_was_created_again_is_another_topic(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()
    first = kdsl_kafka.topic_id(topic)

    kdsl_kafka.delete_topic(topic)
    kdsl_kafka.create_topic(topic)

    assert kdsl_kafka.topic_id(topic) != first


def test_settings_of_a_topic_arrive(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic(config={"max.message.bytes": "1000"})

    with pytest.raises(LocalKafkaError, match=f"Kafka has not accepted 1 record for topic '{topic}': .*too large"):
        kdsl_kafka.produce(topic, "x" * 2000)


def test_a_topic_that_is_missing_is_not_made(kdsl_kafka: RunningKafka) -> None:
    for ask in (kdsl_kafka.end_offsets, kdsl_kafka.read, kdsl_kafka.delete_topic, kdsl_kafka.topic_id):
        with pytest.raises(LocalKafkaError, match="Unknown topic or partition"):
            ask("missing")
    with pytest.raises(LocalKafkaError, match="has not accepted 1 record for topic 'missing'"):
        kdsl_kafka.produce("missing", "lost")


def test_a_topic_that_exists_is_not_made_twice(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    topic = kdsl_topic()

    kdsl_kafka.create_missing({topic: 1})
    with pytest.raises(LocalKafkaError, match=f"Topic '{topic}' cannot be created: .*already exists"):
        kdsl_kafka.create_topic(topic)
