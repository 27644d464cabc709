"""Kafka's own test of transactions: a copy of 100,000 numbers in transactions of 750, killed twenty times."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability.harness import Job, copy_tables
from tests.reliability.oracle import Mark, Seen, ended_exactly_once, judge, look, marks, send

RECORDS, SIZE, KILLS = 100_000, 750, 20


class Reader:
    """Reads committed records beside the copy, as long as it runs."""

    def __init__(self, kafka: RunningKafka, topic: str) -> None:
        self.seen: list[Seen] = []
        self._over = threading.Event()
        settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": f"{topic}-reader"}
        self._consumer = Consumer({**settings, "isolation.level": "read_committed", "auto.offset.reset": "earliest"})
        self._consumer.subscribe([topic])
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        idle = 0
        while not self._over.is_set() or idle < 5:
            found = self._consumer.consume(1000, 1.0)
            idle = 0 if found else idle + 1
            for m in found:
                assert m.error() is None, m.error()
                self.seen.append(Seen(Mark.of(m.value()), m.partition() or 0, m.offset() or 0))
        self._consumer.close()

    def end(self) -> list[Seen]:
        """Everything that it read."""
        self._over.set()
        self._thread.join(120)
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
        life = job.run(until=lambda: _reached(job, aim, open_=wait), timeout=300)  # noqa: B023
        assert life.killed, life.log[-4000:]
    last = job.run(timeout=1800)

    ended_exactly_once(last, sent, look(kdsl_kafka, target))
    along = judge(sent, reader.end())
    assert along.exactly_once, str(along)


def _reached(job: Job, batch: int, *, open_: bool) -> bool:
    """Whether a batch is planned (and is open, which is in the middle of it), or is done."""
    checkpoint = job.checkpoint
    return checkpoint.planned >= batch if open_ else checkpoint.committed >= batch
