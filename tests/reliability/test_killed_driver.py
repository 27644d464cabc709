"""The driver is killed at each point of a batch, and started again: S1 and S2."""

from __future__ import annotations

from pathlib import Path

import pytest

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability import harness
from tests.reliability.harness import Job, Kill, Point, copy_tables
from tests.reliability.oracle import Mark, judge, look, marks, send

POINTS = {
    "before the offset log": harness.PLANNED,
    "after the offset log": harness.LOGGED,
    "while reading": harness.READING,
    "while writing": harness.WRITING,
    "before the commit log": harness.WRITTEN,
    "after the commit log": harness.COMMITTED,
}
LANES, PER_BATCH = 4, 200


@pytest.mark.timeout(1200)
@pytest.mark.reliability
def test_a_driver_killed_at_any_point_loses_nothing_and_repeats_at_most_the_open_batch(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """S1. One query through all deaths: each run recovers from one of them, works on, and dies of the next."""
    source, target = kdsl_topic("in", partitions=LANES), kdsl_topic("out", partitions=LANES)
    sent = send(kdsl_kafka, source, marks("p", LANES, count=(2 * len(POINTS) + 2) * PER_BATCH))
    job = Job(tmp_path / "job", copy_tables(kdsl_kafka, source, target, per_batch=PER_BATCH))
    opened: set[Mark] = set()

    for at, name in enumerate(POINTS):
        life = job.run(Kill(POINTS[name], committed=2 * at + 1))

        assert life.killed, f"{name}: it did not die there:\n{life.log[-4000:]}"
        written = {one.mark for one in look(kdsl_kafka, target)}
        batch = in_batch(job, sent)
        opened |= batch
        match name:
            case "before the offset log" | "after the commit log":
                assert job.checkpoint.open is None, name
                assert len(written) == (job.checkpoint.committed + 1) * PER_BATCH, name
            case "after the offset log" | "while reading":
                assert len(batch) == PER_BATCH, name
            case "while writing":
                assert len(batch & written) > 0, name
            case "before the commit log":
                assert batch <= written, name
    last = job.run()

    assert last.code == 0, last.log[-4000:]
    verdict = judge(sent, look(kdsl_kafka, target))
    assert verdict.at_least_once, str(verdict)
    assert set(verdict.duplicates) <= opened
    assert max(verdict.duplicates.values()) == 1, "each batch was open in one death only"
    assert job.checkpoint.open is None


@pytest.mark.parametrize("point", [harness.LOGGED, harness.WRITTEN], ids=["after the offset log", "after the write"])
@pytest.mark.reliability
def test_a_driver_killed_again_and_again_in_one_batch_repeats_that_batch_alone(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, point: Point
) -> None:
    """S1, a storm: five deaths in the same batch."""
    source, target = kdsl_topic("in", partitions=2), kdsl_topic("out", partitions=2)
    sent = send(kdsl_kafka, source, marks("p", 2, count=600))
    job = Job(tmp_path / "job", copy_tables(kdsl_kafka, source, target, per_batch=PER_BATCH))

    for _ in range(5):
        assert job.run(Kill(point, committed=1)).killed
        assert job.checkpoint.open == 1
    open_batch = in_batch(job, sent)
    assert job.run().code == 0

    verdict = judge(sent, look(kdsl_kafka, target))
    assert verdict.at_least_once, str(verdict)
    assert verdict.duplicates == (dict.fromkeys(open_batch, 5) if point is harness.WRITTEN else {})


@pytest.mark.reliability
def test_a_driver_with_the_data_source_loses_nothing_and_repeats_at_most_the_open_batch(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """S1. The query knows the tables by the options of ``format("kdsl")`` only."""
    source, target = kdsl_topic("in", partitions=2), kdsl_topic("out", partitions=2)
    sent = send(kdsl_kafka, source, marks("p", 2, count=3 * PER_BATCH))
    job = Job(tmp_path / "job", copy_tables(kdsl_kafka, source, target, per_batch=PER_BATCH), sink="data source")
    opened: set[Mark] = set()

    for committed, point in enumerate((harness.READING, harness.WRITTEN)):
        life = job.run(Kill(point, committed=committed + 1))
        assert life.killed, life.log[-4000:]
        opened |= in_batch(job, sent)
    last = job.run()

    assert last.code == 0, last.log[-4000:]
    verdict = judge(sent, look(kdsl_kafka, target))
    assert verdict.at_least_once, str(verdict)
    assert len(verdict.duplicates) > 0
    assert set(verdict.duplicates) <= opened


@pytest.mark.reliability
def test_a_planned_batch_is_read_unchanged_after_new_data_and_a_new_partition(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """S2. The function of ``foreachBatch`` sees the same id with the same rows."""
    source = kdsl_topic("in", partitions=2)
    send(kdsl_kafka, source, marks("p", 2, count=400))
    job = Job(tmp_path / "job", copy_tables(kdsl_kafka, source, source, per_batch=150), sink="function", seconds=30)

    assert job.run(until=lambda: batch_notes(job, 0) != []).killed
    assert (job.checkpoint.planned, job.checkpoint.committed) == (0, -1)
    kdsl_kafka.add_partitions(source, 3)
    send(kdsl_kafka, source, [*marks("p", 2, count=100, start=200), *(Mark("p", 2, n) for n in range(50))])
    job.seconds = 0
    last = job.run()

    assert last.code == 0, last.log[-4000:]
    first, again = (rows.read_text(encoding="utf-8").splitlines() for rows in batch_notes(job, 0))
    assert len(first) == 150
    assert first == again
    batches = [batch_notes(job, batch)[-1] for batch in range(job.checkpoint.committed + 1)]
    read = [Mark.of(line) for rows in batches for line in rows.read_text(encoding="utf-8").splitlines()]
    assert sorted(read) == sorted([*marks("p", 2, count=500), *(Mark("p", 2, n) for n in range(50))])


def batch_notes(job: Job, batch: int) -> list[Path]:
    """What each run has noted of a batch, the earliest first."""
    return sorted(job.output.glob(f"{batch}-*"), key=lambda file: file.stat().st_mtime_ns)


def in_batch(job: Job, sent: list[Mark]) -> set[Mark]:
    """The records of the open batch: each lane is a partition, and its numbers are offsets."""
    batch = job.checkpoint.open
    ranges = () if batch is None else job.checkpoint.ranges(batch)
    return {mark for mark in sent for r in ranges if r.partition == mark.lane and r.start <= mark.seq < r.end}
