"""Kafka's own test of transactions: a copy of 100,000 numbers in transactions of 750, killed twenty times."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability.harness import Job, copy_tables
from tests.reliability.oracle import Mark, Seen, check_exactly_once, judge, marks, send
from tests.transactions import settle

RECORDS, SIZE, KILLS = 100_000, 750, 20


class Reader:
    """Reads committed records beside the copy, as long as it runs."""

    def __init__(self, kafka: RunningKafka, topic: str) -> None:
        self.seen: list[Seen] = []
        self._kafka, self._topic = kafka, topic
        self._ends: dict[int, int] | None = None
        settings = {"group.id": f"{topic}-reader", "auto.offset.reset": "earliest", "enable.partition.eof": True}
        self._consumer = Consumer({**kafka.client_properties, **settings, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, partition, 0) for partition in kafka.end_offsets(topic)])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        reached: dict[int, int] = {}
        while self._ends is None or any(reached.get(partition, 0) < end for partition, end in self._ends.items()):
            for m in self._consumer.consume(1000, 1.0):
                error, partition, offset = m.error(), m.partition() or 0, m.offset() or 0
                if error is None:
                    self.seen.append(Seen(Mark.of(m.value()), partition, offset))
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    reached[partition] = offset
        self._consumer.close()

    def end(self) -> list[Seen]:
        """Everything that it read, to the end of the topic."""
        settle(self._kafka, self._topic)
        self._ends = self._kafka.end_offsets(self._topic)
        self._thread.join(300)
        assert not self._thread.is_alive(), "it does not come to the end of the topic"
        return self.seen


@pytest.mark.reliability
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_copy_that_is_killed_twenty_times_is_a_copy(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, partitions: int
) -> None:
    """K1. Each record once, for a reader afterwards and for one that reads along; in order within a partition."""
    source, target = kdsl_topic("in", partitions=partitions), kdsl_topic("out", partitions=partitions)
    sent = send(kdsl_kafka, source, marks("p", partitions, count=RECORDS))
    tables = copy_tables(
        kdsl_kafka,
        source,
        target,
        per_batch=SIZE,
        writing={"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": target},
    )
    job = Job(tmp_path / "job", tables)
    reader = Reader(kdsl_kafka, target)
    chance = random.Random(4)

    for _ in range(KILLS):
        aim = job.checkpoint.planned + chance.randint(1, 5)
        wait = chance.random() < 0.5
        life = job.run(until=lambda: _has_reached(job, aim, open_=wait), timeout=300)  # noqa: B023
        assert life.killed, life.log[-4000:]
    last = job.run(timeout=1800)

    check_exactly_once(last, sent, kdsl_kafka, target)
    along = judge(sent, reader.end())
    assert along.exactly_once, str(along)


def _has_reached(job: Job, batch: int, *, open_: bool) -> bool:
    """Whether a batch is planned (and is open, which is in the middle of it), or is done."""
    checkpoint = job.checkpoint
    return checkpoint.planned >= batch if open_ else checkpoint.committed >= batch
