"""On a Spark cluster of two workers: the same tests as in one JVM, and executors that die."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kdsl.testing import RunningKafka, SparkCluster
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability import harness
from tests.reliability.harness import ROOT, Job, Kill, Point, copy_tables
from tests.reliability.oracle import Mark, check_exactly_once, judge, look, marks, send
from tests.reliability.test_exactly_once import MANY, POINTS, make_copy_job, make_copy_job_of

CORE = [
    "tests/test_examples.py",
    "tests/run/test_read.py",
    "tests/run/test_write.py",
    "tests/run/test_write_stream.py",
    "tests/run/exactly_once/test_stream.py",
]
LANES, PER_BATCH = 4, 4000

pytestmark = pytest.mark.reliability


@pytest.mark.timeout(2400)
@pytest.mark.parametrize("tests", CORE)
def test_guarantees_of_one_jvm_hold_on_a_cluster(
    kdsl_kafka: RunningKafka, kdsl_spark_cluster: SparkCluster, tests: str
) -> None:
    """Section 10 of the design: nothing leans on one process. The examples, and the tests of source and sink."""
    environment = {
        **os.environ,
        "KDSL_TEST_SPARK": json.dumps({**kdsl_spark_cluster.settings, "spark.executorEnv.PYTHONPATH": import_path()}),
        "KDSL_TEST_BOOTSTRAP": kdsl_kafka.bootstrap_servers,
    }

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "spark and not reliability", tests],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]


def import_path() -> str:
    return os.pathsep.join([str(ROOT), str(ROOT / "formats")])


def copy_job(kafka: RunningKafka, topic: MakeTopic, folder: Path, batches: int) -> tuple[Job, list[Mark]]:
    source, target = topic("in", partitions=LANES), topic("out", partitions=LANES)
    sent = send(kafka, source, marks("p", LANES, count=batches * PER_BATCH))
    return Job(folder / "job", copy_tables(kafka, source, target, per_batch=PER_BATCH)), sent


@pytest.mark.parametrize("at", ["mid-write", "after one writer's commit"])
def test_an_executor_that_dies_in_a_transaction_leaves_each_record_once(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, kdsl_spark_cluster: SparkCluster, tmp_path: Path, at: str
) -> None:
    """K1 on a cluster: the next executor fences what the dead one began, or finds its token."""
    job, sent, target = make_copy_job(kdsl_kafka, kdsl_topic, tmp_path, batches=4)
    job.spark = kdsl_spark_cluster.settings

    life = job.run(Kill(POINTS[at], committed=1, action="kill-executor"))

    assert life.killed
    assert "Lost executor" in life.log
    check_exactly_once(life, sent, kdsl_kafka, target)


def test_an_executor_that_dies_before_its_sink_has_all_rows_leaves_each_record_once(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, kdsl_spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """K1 on a cluster: the Python worker of the sink outlives its executor for a moment, and must not commit a part."""
    job, sent, target = make_copy_job_of(MANY, kdsl_kafka, kdsl_topic, tmp_path, batches=4)
    job.spark = kdsl_spark_cluster.settings

    life = job.run(Kill(harness.READING, committed=1, action="kill-executor"))

    assert life.killed
    assert "Lost executor" in life.log
    check_exactly_once(life, sent, kdsl_kafka, target)


def check_result(kafka: RunningKafka, job: Job, sent: list[Mark], strikes: int) -> None:
    """Nothing is lost; duplicates are of no more batches than were struck. (A task that is tried again after others of
    its lane have not, keeps the lane's order: the first appearances are in order.)"""
    verdict = judge(sent, look(kafka, job.topic("target")))
    assert verdict.at_least_once, str(verdict)
    assert len(verdict.duplicates) <= strikes * PER_BATCH, "duplicates beyond the batches that were open"


@pytest.mark.parametrize("point", [harness.READING, harness.WRITING], ids=["while reading", "behind its write"])
def test_an_executor_that_dies_in_a_task_loses_nothing_and_repeats_at_most_the_open_batch(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, kdsl_spark_cluster: SparkCluster, tmp_path: Path, point: Point
) -> None:
    """S1 on a cluster: the query goes on by itself, with the next executor."""
    job, sent = copy_job(kdsl_kafka, kdsl_topic, tmp_path, batches=4)
    job.spark = kdsl_spark_cluster.settings

    life = job.run(Kill(point, committed=1, action="kill-executor"))

    assert life.killed
    assert "Lost executor" in life.log
    assert life.code == 0, life.log[-4000:]
    check_result(kdsl_kafka, job, sent, strikes=1)


def test_executors_that_die_at_any_time_are_replaced(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, kdsl_spark_cluster: SparkCluster, tmp_path: Path
) -> None:
    """Three executors die at some time within a batch or between two, and a worker with its executor at last."""
    job, sent = copy_job(kdsl_kafka, kdsl_topic, tmp_path, batches=3)
    job.spark = kdsl_spark_cluster.settings
    job.trigger = None  # it is there for the last strike, however late that comes
    source = job.topic("source")

    def all_is_read() -> bool:
        last = job.checkpoint.committed
        ends = kdsl_kafka.end_offsets(source).items()
        return last >= 0 and job.checkpoint.offsets(last).positions == {(source, p): end for p, end in ends}

    running = job.start()
    try:
        for strike in range(4):
            before = job.checkpoint.committed
            more = marks("p", LANES, count=3 * PER_BATCH, start=len(sent) // LANES)
            sent += send(kdsl_kafka, source, more)
            running.wait_for_batches(before + 2, f"strike {strike}")
            time.sleep(0.1 * strike)
            if strike < 3:
                kdsl_spark_cluster.kill_executor()
            else:
                kdsl_spark_cluster.kill_worker()
        running.wait_for(all_is_read, "all records are read")
        running.stop()
        life = running.wait()
    finally:
        running.kill()
        kdsl_spark_cluster.start_worker()

    assert life.code == 0, life.log[-4000:]
    assert life.log.count("Lost executor") >= 3
    check_result(kdsl_kafka, job, sent, strikes=4)
