"""A driver that is killed in the middle of its dead letters loses none of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kdsl.cluster import Cluster
from kdsl.diagnostics.dead_letters import read_letters
from kdsl.run.dead_letter_counts import COUNTS
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability import harness
from tests.reliability.harness import Job, Kill, Point, copy_tables
from tests.reliability.oracle import judge, look, marks, send

_WRITER = "kdsl.run.librdkafka.letter_writer:LetterWriter"
SENT = Point(f"{_WRITER}._send", "after")
"""Some letters are in the producer's queue, and none is acknowledged for certain."""
FLUSHED = Point(f"{_WRITER}._finish", "after")
"""The letters of one task are acknowledged, and the task has not ended."""
LANES, PER_BATCH = 2, 100


@pytest.mark.timeout(900)
@pytest.mark.reliability
def test_a_driver_killed_while_it_writes_dead_letters_loses_none(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """S24. Every tenth record is bad; the driver dies before, during and after the letters of a batch."""
    source, target, dead = kdsl_topic("in", partitions=LANES), kdsl_topic("out", partitions=LANES), kdsl_topic("dead")
    sent = []
    for round_ in range(5):
        good = marks("p", LANES, count=2 * PER_BATCH - 20, start=round_ * (PER_BATCH - 10))
        sent += send(kdsl_kafka, source, good)
        kdsl_kafka.produce(source, *(Record(f"bad {round_} {i}", partition=i % LANES) for i in range(20)))
    ends = kdsl_kafka.end_offsets(source)
    bad = {
        f"{source}-{message.partition()}-{message.offset()}"
        for message in kdsl_kafka.read(source)
        if (message.value() or b"").startswith(b"bad")
    }
    assert len(bad) == 100
    reading = {"scan.dead-letter.topic": dead, "scan.dead-letter.max-count": "100"}
    job = Job(tmp_path / "job", copy_tables(kdsl_kafka, source, target, per_batch=PER_BATCH, reading=reading))

    for at, point in enumerate((SENT, FLUSHED, harness.WRITTEN)):
        life = job.run(Kill(point, committed=2 * at + 1))
        assert life.killed, f"{point}: it did not die there:\n{life.log[-4000:]}"
    last = job.run()

    assert last.code == 0, last.log[-4000:]
    letters = list(read_letters(Cluster(kdsl_kafka.bootstrap_servers), dead))
    assert {letter.id.partition("@")[0] for letter in letters} == bad
    assert judge(sent, look(kdsl_kafka, target)).at_least_once
    documents = [json.loads(path.read_text()) for path in (job.checkpoint.folder / COUNTS).glob("*.json")]
    assert sum(count for document in documents for count in document["counts"].values()) == 100
    assert sum(ends.values()) == len(sent) + 100
