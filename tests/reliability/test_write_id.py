"""A batch write with an id whose driver is killed, and which is repeated after the retention of the group offsets."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability.harness import BATCH_WRITTEN, HERE, Job, Kill, Life, Point, copy_tables
from tests.reliability.oracle import look, marks, send
from tests.reliability.test_exactly_once import exactly_once
from tests.run.exactly_once.test_stream import delete_tokens
from tests.transactions import settle

_TASK = "kdsl.run.librdkafka.transactions.task"
DEATHS = {
    "before a commit": Point(f"{_TASK}:_commit", "before"),
    "after one commit": Point(f"{_TASK}:_commit", "after"),
    "after all commits": BATCH_WRITTEN,
}


@pytest.mark.reliability
@pytest.mark.parametrize("death", DEATHS)
def test_a_write_with_an_id_is_done_once_though_its_driver_dies_and_its_tokens_are_deleted(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, death: str
) -> None:
    """K15. Another write comes between, so that the token of the first one is replaced before all tokens go."""
    source, target = kdsl_topic("in", partitions=2), kdsl_topic("out", partitions=2)
    sent = send(kdsl_kafka, source, marks("p", 2, count=2000))
    bounded = {"scan.bounded.mode": "latest-offset"}
    tables = copy_tables(kdsl_kafka, source, target, reading=bounded, writing=exactly_once(f"{target}-tx"))
    job = Job(tmp_path / "job", tables, program=HERE / "jobs" / "write.py")

    def write(id_: str, kill: Kill | None = None) -> Life:
        job.environment = {"KDSL_TEST_WRITE_ID": id_}
        life = job.run(kill)
        assert life.killed or life.code == 0, life.log[-4000:]
        return life

    assert write("monday", Kill(DEATHS[death])).killed
    for id_ in ("monday", "monday", "tuesday", "monday"):
        write(id_)
    delete_tokens(kdsl_kafka, target)
    for id_ in ("monday", "tuesday"):
        write(id_)

    settle(kdsl_kafka, target)
    assert Counter(one.mark for one in look(kdsl_kafka, target)) == dict.fromkeys(sent, 2)
