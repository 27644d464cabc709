"""The driver is asked to end: W7."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability.harness import Job, copy_tables
from tests.reliability.oracle import judge, look, marks, send


@pytest.mark.reliability
def test_a_terminated_driver_ends_soon_and_leaves_nothing_open_and_no_process(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """W7. SIGTERM reaches the Python driver alone, as from a supervisor; JVM and workers must follow it."""
    source, target = kdsl_topic("in", partitions=2), kdsl_topic("out", partitions=2)
    sent = send(kdsl_kafka, source, marks("p", 2, count=4000))
    job = Job(tmp_path / "job", copy_tables(kdsl_kafka, source, target, per_batch=100), trigger=None)
    running = job.start()
    try:
        running.wait_for_batches(1, "the signal")
        family = running.processes()
        running.process.send_signal(signal.SIGTERM)
        running.wait(timeout=120)

        end = time.monotonic() + 120
        while running.processes() and time.monotonic() < end:
            time.sleep(0.05)
        assert running.processes() == []
        assert len(family) >= 3, "driver, JVM and workers were there"
    finally:
        running.kill()

    ends, committed = kdsl_kafka.end_offsets(target), kdsl_kafka.end_offsets(target, committed=True)
    assert all(committed[partition] >= end for partition, end in ends.items()), "an open transaction"
    job.trigger = {"availableNow": True}
    job.tables = copy_tables(kdsl_kafka, source, target)  # the open batch is read again as it was, the rest at once
    last = job.run()
    assert last.code == 0, last.log[-4000:]
    verdict = judge(sent, look(kdsl_kafka, target))
    assert verdict.at_least_once, str(verdict)
    assert len(verdict.duplicates) <= 100
