"""The driver of an exactly-once query is killed at each point of a transaction, and started again: K1, K2, K5, K7."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability import harness
from tests.reliability.harness import Action, Job, Kill, Point, copy_tables
from tests.reliability.oracle import check_exactly_once, look, marks, send

_PART = "kdsl.run.librdkafka.transactions.task"
BEGINNING = Point(f"{_PART}:_begin_transaction", "before")
WRITING = Point("kdsl.run.librdkafka.task_writer:TaskWriter._send", "after")
FLUSHED = Point(f"{_PART}:_commit", "before")
COMMITTED = Point(f"{_PART}:_commit", "after")
POINTS = {
    "before begin": BEGINNING,
    "mid-write": WRITING,
    "after flush, before commit": FLUSHED,
    "after one writer's commit": COMMITTED,
    "after all commits, before Spark's commit log": harness.WRITTEN,
}
LANES, PER_BATCH = 2, 3000
MANY = 24_000
"""Enough records in a batch that Spark sends a part of them to the sink before the source has given all."""


def exactly_once(prefix: str, **more: Any) -> dict[str, Any]:
    """The options of the target."""
    return {"sink.delivery-guarantee": "exactly-once", "sink.transactional-id-prefix": prefix, **more}


def make_copy_job(
    kafka: RunningKafka, make: MakeTopic, folder: Path, batches: int, **more: Any
) -> tuple[Job, Any, str]:
    """A job that copies marks, what was sent, and the topic that is written."""
    return make_copy_job_of(PER_BATCH, kafka, make, folder, batches, more)


def make_copy_job_of(
    per_batch: int,
    kafka: RunningKafka,
    make: MakeTopic,
    folder: Path,
    batches: int,
    more: Mapping[str, Any] | None = None,
) -> tuple[Job, Any, str]:
    """The same, with batches of another size."""
    source, target = make("in", partitions=LANES), make("out", partitions=LANES)
    sent = send(kafka, source, marks("p", LANES, count=batches * per_batch))
    tables = copy_tables(kafka, source, target, per_batch=per_batch, writing=exactly_once(target, **(more or {})))
    return Job(folder / "job", tables), sent, target


@pytest.mark.reliability
def test_a_driver_killed_between_the_commits_of_kafka_and_spark_writes_nothing_twice(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """K1, the most important death: one writer has committed, the other has not yet. The long test has all of them."""
    job, sent, target = make_copy_job(kdsl_kafka, kdsl_topic, tmp_path, batches=3)

    assert job.run(Kill(COMMITTED, committed=1)).killed
    assert job.checkpoint.open == 1
    last = job.run()

    check_exactly_once(last, sent, kdsl_kafka, target)


@pytest.mark.reliability
def test_a_driver_killed_at_any_point_of_a_transaction_writes_each_record_once(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """K1. One query through all deaths."""
    job, sent, target = make_copy_job(kdsl_kafka, kdsl_topic, tmp_path, batches=2 * len(POINTS) + 2)

    for at, (name, point) in enumerate(POINTS.items()):
        life = job.run(Kill(point, committed=2 * at + 1))
        assert life.killed, f"{name}: it did not die there:\n{life.log[-4000:]}"
        assert job.checkpoint.open is not None, name
    last = job.run()

    check_exactly_once(last, sent, kdsl_kafka, target)


@pytest.mark.reliability
def test_an_outage_longer_than_the_transactions_timeout_loses_nothing(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """K5. The brokers end the transaction by themselves; the batch is written again, whole."""
    job, sent, target = make_copy_job(kdsl_kafka, kdsl_topic, tmp_path, batches=3)
    patient = job.tables
    source, target_ = patient["tables"]
    hasty = {**target_["options"], "properties.transaction.timeout.ms": "10000"}
    job.tables = {"tables": [source, {**target_, "options": hasty}]}

    assert job.run(Kill(FLUSHED, committed=1)).killed
    job.tables = patient
    until = time.monotonic() + 120
    while kdsl_kafka.end_offsets(target, committed=True) != kdsl_kafka.end_offsets(target):
        assert time.monotonic() < until, "the brokers did not end the transaction"
        time.sleep(0.5)
    last = job.run()

    check_exactly_once(last, sent, kdsl_kafka, target)


@pytest.mark.reliability
def test_writers_above_a_smaller_number_leave_nothing_open(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """K7. Killed in the first batch, before anything was committed, and started again with fewer writers."""
    job, sent, target = make_copy_job(kdsl_kafka, kdsl_topic, tmp_path, batches=2, **{"sink.parallelism": 2})

    assert job.run(Kill(FLUSHED)).killed
    assert look(kdsl_kafka, target) == []
    source, target_ = job.tables["tables"]
    options = {**target_["options"], "sink.parallelism": 1}
    job.tables = {"tables": [source, {**target_, "options": options}]}
    last = job.run()

    check_exactly_once(last, sent, kdsl_kafka, target)
    assert kdsl_kafka.end_offsets(target, committed=True) == kdsl_kafka.end_offsets(target)


@pytest.mark.reliability
@pytest.mark.parametrize("action", ["fail", "kill-worker"])
def test_a_task_that_is_tried_again_writes_its_records_once(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, action: Action
) -> None:
    """K1. What feeds the sink fails when a part of the task is sent: the attempt must not commit that part."""
    job, sent, target = make_copy_job_of(MANY, kdsl_kafka, kdsl_topic, tmp_path, batches=4)
    job.spark = {"spark.master": "local[2,3]"}

    life = job.run(Kill(harness.READING, committed=1, action=action))

    assert life.killed
    check_exactly_once(life, sent, kdsl_kafka, target)


@pytest.mark.reliability
def test_a_second_driver_with_the_same_prefix_is_refused_and_only_the_first_can_restart(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """K4. Two processes; the holder is named by host and process, and is let go when it is dead."""
    first, sent, target = make_copy_job(kdsl_kafka, kdsl_topic, tmp_path / "first", batches=2)
    first.trigger = None
    second = Job(tmp_path / "second", first.tables)
    running = first.start()
    try:
        running.wait_for_batches(1, "the first two batches")
        refused = second.run()
        assert refused.code != 0
        assert f"the transactional_id_prefix '{target}' is held by" in refused.log
        assert f"kdsl-target-{socket.gethostname()}-{running.process.pid}" in refused.log
        assert second.checkpoint.planned == -1
        assert running.process.poll() is None
    finally:
        running.kill()

    taken = second.run()
    assert taken.code != 0
    assert f"the transactional id '{target}-0' belongs to the query" in taken.log
    first.trigger = {"availableNow": True}
    check_exactly_once(first.run(), sent, kdsl_kafka, target)
