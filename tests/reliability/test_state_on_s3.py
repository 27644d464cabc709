"""Upserts and change data whose states are on an S3 server that fails, after killed drivers: K10."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability import harness
from tests.reliability.harness import Job, Kill, Point
from tests.reliability.test_upsert import KEYS, LANES, PER_BATCH, check_result, put_to_the_end
from tests.reliability.upserts import random_upserts, repeat_some, send, send_changes, upsert_tables
from tests.run.state_files.proxy import Fault, Proxy, start_proxy
from tests.run.state_files.servers import BUCKET, run_s3

POINTS = (
    harness.LOGGED,
    harness.READING,
    Point("kdsl.run.upsert.keyed_state:KeyedState.store", "before"),
    Point("kdsl.run.upsert.keyed_state:KeyedState.store", "after"),
    harness.WRITTEN,
)
FAULTS: tuple[Fault, ...] = ("fails after it happened", "cut", "twice", "fails")


@pytest.fixture
def failing_s3(tmp_path: Path) -> Iterator[Proxy]:
    """An S3 server that answers one of twelve requests as bad networks do."""
    chance = random.Random(7)
    with run_s3(tmp_path) as address, start_proxy(address) as proxy:
        proxy.clear(lambda _, __: chance.choice(FAULTS) if chance.random() < 1 / 12 else None)
        yield proxy


@pytest.mark.reliability
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("state", ["partition", "key"])
@pytest.mark.parametrize("changes", [False, True], ids=["upserts", "change data"])
def test_a_driver_killed_twenty_times_with_states_on_a_failing_server_leaves_each_key_correct(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, failing_s3: Proxy, tmp_path: Path, state: str, changes: bool
) -> None:
    names = [point for _ in range(4) for point in POINTS]
    source, target = kdsl_topic("in", partitions=LANES), kdsl_topic("out", partitions=LANES)
    sent = random_upserts((2 * len(names) + 2) * PER_BATCH, KEYS, seed=8)
    if changes:
        sent = repeat_some(sent, seed=8)
        send_changes(kdsl_kafka, source, sent, seed=8)
    else:
        send(kdsl_kafka, source, sent)
    reading = {"scan.changelog.state": state, "scan.changelog.state.location": f"s3a://{BUCKET}/states"}
    tables = upsert_tables(kdsl_kafka, source, target, per_batch=PER_BATCH, changes=changes, reading=reading)
    job = Job(tmp_path / "job", tables)
    job.spark = {
        "spark.hadoop.fs.s3a.endpoint": f"http://{failing_s3.address}",
        "spark.hadoop.fs.s3a.access.key": "AKIDEXAMPLEKEY",
        "spark.hadoop.fs.s3a.secret.key": "secret",
        "spark.hadoop.fs.s3a.path.style.access": "true",
    }

    for at, point in enumerate(names):
        life = job.run(Kill(point, committed=2 * at + 1))
        assert life.killed, f"{point}: it did not die there:\n{life.log[-4000:]}"
    put_to_the_end(job)

    assert len(failing_s3.requests) > 100
    check_result(kdsl_kafka, job, sent)
