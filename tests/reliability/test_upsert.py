"""Queries over upsert tables are killed at each point of a batch, and started again: K10; and compacted topics: S17."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kdsl import Cluster, Col, Json, PrimaryKey, UpsertTable
from kdsl.formats import ROW_KIND
from kdsl.testing import RunningKafka, SparkCluster
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability import harness
from tests.reliability.harness import Job, Kill, Point
from tests.reliability.test_exactly_once import POINTS as OF_TRANSACTIONS, exactly_once
from tests.reliability.upserts import (
    Upsert,
    key_text,
    random_upserts,
    read_versions,
    repeat_some,
    replays,
    send,
    send_changes,
    upsert_tables,
    versions_of_upserts,
    wrong,
)
from tests.transactions import settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CHANGED = Point("kdsl.run.upsert.keyed_state:KeyedState.store", "after")
"""The states of some partitions or shards have changed; others wait."""
SKIP = 1
POINTS = {
    "before the offset log": harness.PLANNED,
    "after the offset log": harness.LOGGED,
    "while reading": harness.READING,
    "while keeping rows": CHANGED,
    "while writing": harness.WRITING,
    "before the commit log": harness.WRITTEN,
    "after the commit log": harness.COMMITTED,
}
COUNTS = "SELECT id, count(*) AS version FROM source GROUP BY id"
LANES, PER_BATCH, KEYS = 4, 200, 40


each_state = pytest.mark.parametrize("state", ["key", "partition"])


def kill_at(name: str, committed: int) -> Kill:
    """A death at a point, with some partitions or shards whose states have changed."""
    return Kill(POINTS[name], committed=committed, skip=SKIP if name == "while keeping rows" else 0)


def make_copy_job(
    kafka: RunningKafka,
    make: MakeTopic,
    folder: Path,
    batches: int,
    seed: int,
    state: str = "key",
    **writing: Any,
) -> tuple[Job, list[Upsert]]:
    """A job that reads an upsert table as a full changelog, and writes it to another one."""
    source, target = make("in", partitions=LANES), make("out", partitions=LANES)
    sent = random_upserts(batches * PER_BATCH, KEYS, seed)
    send(kafka, source, sent)
    reading = {"scan.changelog.state": state}
    tables = upsert_tables(kafka, source, target, per_batch=PER_BATCH, reading=reading, writing=writing)
    return Job(folder / "job", tables), sent


def make_count_job(
    kafka: RunningKafka, make: MakeTopic, folder: Path, batches: int, seed: int, **writing: Any
) -> tuple[Job, list[Upsert]]:
    """A job that counts the records of each key, and writes the counts as upserts."""
    source, target = make("in", partitions=LANES), make("out", partitions=LANES)
    sent: list[Upsert] = [(key, version or 0) for key, version in random_upserts(batches * PER_BATCH, KEYS, seed)]
    send(kafka, source, sent)
    tables = upsert_tables(kafka, source, target, per_batch=PER_BATCH, appends=True, writing=writing)
    return Job(folder / "job", tables, query=COUNTS), sent


def counts(kafka: RunningKafka, job: Job) -> dict[int, list[int | None]]:
    """The counts of each key, as the batches of a job change them."""
    keys = {key_text(key).encode(): key for key in range(KEYS)}
    of = {(m.partition(), m.offset()): keys[m.key() or b""] for m in kafka.read(job.topic("source"))}
    total: Counter[int] = Counter()
    results: dict[int, list[int | None]] = {}
    for batch in range(job.checkpoint.committed + 1):
        read = [of[r.partition, at] for r in job.checkpoint.ranges(batch) for at in range(r.start, r.end)]
        total.update(read)
        for key in set(read):
            results.setdefault(key, []).append(total[key])
    return results


def put_to_the_end(job: Job) -> None:
    """Let it run to its end."""
    last = job.run()
    assert last.code == 0, last.log[-4000:]
    assert job.checkpoint.open is None


def check_result(kafka: RunningKafka, job: Job, sent: list[Upsert], *, gathered: bool = False) -> None:
    """Each key has become what it was to become, and the topic, read as a table, is the truth."""
    target, truth = job.topic("target"), versions_of_upserts(sent)
    seen = read_versions(kafka, target)
    assert wrong(truth, seen, gathered=gathered) == {}
    assert {k: v[-1] for k, v in seen.items()} == {k: v[-1] for k, v in truth.items()}
    homes = {m.key(): m.partition() for m in kafka.read(job.topic("source"))}
    assert {m.key(): m.partition() for m in kafka.read(target)}.items() <= homes.items(), "not the partition of Java's"


class TestJudge:
    @pytest.mark.parametrize(
        ("seen", "right"),
        [
            ([1, 2, None, 3], True),
            ([1, 2, None, 1, 2, None, 3], True),
            ([1, 2, 2, 2, None, 3], True),
            ([1, 2, None, 3, 3], True),
            ([1, 2, 3], False),
            ([1, 2, None], False),
            ([2, None, 3], False),
            ([1, 2, None, 3, None], False),
            ([1, 2, 9, None, 3], False),
            ([], False),
        ],
    )
    def test_parts_may_come_again_and_nothing_may_be_left_out(self, seen: list[int | None], right: bool) -> None:
        assert replays([1, 2, None, 3], seen) is right

    @pytest.mark.parametrize(("seen", "right"), [([3], True), ([2, 3], True), ([2, 1, 3], True), ([2], False)])
    def test_what_is_gathered_may_leave_out_all_but_the_last(self, seen: list[int | None], right: bool) -> None:
        assert replays([1, 2, None, 3], seen, gathered=True) is right

    def test_repeats_and_deletes_of_unknown_keys_are_nothing(self) -> None:
        assert versions_of_upserts([(1, None), (1, 5), (1, 5), (1, None), (1, None), (1, 6), (2, None)]) == {
            1: [5, None, 6]
        }


@pytest.mark.reliability
@pytest.mark.timeout(1500)
@each_state
@pytest.mark.parametrize("names", [("while keeping rows",), tuple(POINTS)], ids=["one death", "all deaths"])
def test_a_driver_killed_at_any_point_of_a_changelog_leaves_each_key_correct(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, names: tuple[str, ...], state: str
) -> None:
    """K10. State, before-images and tombstones come through the deaths: what is written again is the same."""
    job, sent = make_copy_job(kdsl_kafka, kdsl_topic, tmp_path, batches=2 * len(names) + 2, seed=1, state=state)

    for at, name in enumerate(names):
        life = job.run(kill_at(name, committed=2 * at + 1))
        assert life.killed, f"{name}: it did not die there:\n{life.log[-4000:]}"
    put_to_the_end(job)

    check_result(kdsl_kafka, job, sent)
    assert None in {v for versions in versions_of_upserts(sent).values() for v in versions}, (
        "no tombstone was to be written"
    )


@pytest.mark.reliability
@pytest.mark.timeout(3000)
@each_state
def test_a_driver_killed_twenty_times_over_change_data_leaves_each_key_correct(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, state: str
) -> None:
    """K10. Change data against the last row of each key: keys alone before changes, and events that come again."""
    names = [name for _ in range(3) for name in POINTS][:20]
    source, target = kdsl_topic("in", partitions=LANES), kdsl_topic("out", partitions=LANES)
    sent = repeat_some(random_upserts((2 * len(names) + 2) * PER_BATCH, KEYS, seed=6), seed=6)
    send_changes(kdsl_kafka, source, sent, seed=6)
    reading = {"scan.changelog.state": state}
    tables = upsert_tables(kdsl_kafka, source, target, per_batch=PER_BATCH, changes=True, reading=reading)
    job = Job(tmp_path / "job", tables)

    for at, name in enumerate(names):
        life = job.run(kill_at(name, committed=2 * at + 1))
        assert life.killed, f"{name}: it did not die there:\n{life.log[-4000:]}"
    put_to_the_end(job)

    check_result(kdsl_kafka, job, sent)


@pytest.mark.reliability
@pytest.mark.timeout(1500)
def test_a_driver_killed_at_any_point_of_an_aggregation_leaves_each_count_correct(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """K10. An aggregation is upserted: the counts of each batch, and again those of a batch that was open."""
    points = {**POINTS, "before the commit log": harness.BATCH_WRITTEN}
    del points["while keeping rows"]
    names = list(points)
    job, sent = make_count_job(kdsl_kafka, kdsl_topic, tmp_path, batches=2 * len(names) + 2, seed=2)

    for at, name in enumerate(names):
        life = job.run(Kill(points[name], committed=2 * at + 1))
        assert life.killed, f"{name}: it did not die there:\n{life.log[-4000:]}"
    put_to_the_end(job)

    seen = read_versions(kdsl_kafka, job.topic("target"))
    assert wrong(counts(kdsl_kafka, job), seen) == {}
    assert {key: versions[-1] for key, versions in seen.items()} == Counter(key for key, _ in sent)


@pytest.mark.reliability
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("value", "state"),
    [(make_copy_job, "key"), (make_copy_job, "partition"), (make_count_job, "")],
    ids=["a changelog by key", "a changelog by partition", "an aggregation"],
)
def test_an_exactly_once_query_that_is_killed_upserts_each_change_once(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, value: Any, state: str
) -> None:
    """K10, with the transactional sink: nothing is written twice, no tombstone either."""
    staged = {harness.WRITTEN: harness.BATCH_WRITTEN}
    own = OF_TRANSACTIONS.values()
    points = [*own, CHANGED] if state else [staged.get(point, point) for point in own]
    promised = {**exactly_once(kdsl_topic("prefix")), **({"state": state} if state else {})}
    job, sent = value(kdsl_kafka, kdsl_topic, tmp_path, batches=2 * len(points) + 2, seed=3, **promised)

    for at, point in enumerate(points):
        life = job.run(Kill(point, committed=2 * at + 1))
        assert life.killed, f"{point}: it did not die there:\n{life.log[-4000:]}"
    put_to_the_end(job)

    settle(kdsl_kafka, job.topic("target"))
    seen = read_versions(kdsl_kafka, job.topic("target"))
    assert seen == (versions_of_upserts(sent) if value is make_copy_job else counts(kdsl_kafka, job))


@pytest.mark.reliability
@pytest.mark.parametrize(
    "buffer",
    [{"max-rows": 10, "interval": "100 s"}, {"max-rows": 100_000, "interval": "1 ms"}],
    ids=["by rows", "by time"],
)
def test_rows_buffered_by_a_killed_sink_are_written_by_the_next_run(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, buffer: dict[str, Any]
) -> None:
    """K10. A buffer is empty at the end of a batch, so that a death loses nothing of it."""
    writing = {f"sink.buffer-flush.{name}": value for name, value in buffer.items()}
    job, sent = make_copy_job(kdsl_kafka, kdsl_topic, tmp_path, batches=7, seed=4, **writing)

    for at, name in enumerate(("while keeping rows", "while writing", "before the commit log")):
        assert job.run(Kill(POINTS[name], committed=2 * at + 1)).killed, name
    put_to_the_end(job)

    check_result(kdsl_kafka, job, sent, gathered=True)


@pytest.mark.reliability
@pytest.mark.parametrize("name", ["while reading", "while keeping rows", "while writing"])
@pytest.mark.parametrize(
    ("value", "state"),
    [(make_copy_job, "key"), (make_copy_job, "partition"), (make_count_job, "")],
    ids=["a changelog by key", "a changelog by partition", "an aggregation"],
)
def test_an_executor_that_dies_in_a_task_leaves_each_key_correct(
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    kdsl_spark_cluster: SparkCluster,
    tmp_path: Path,
    value: Any,
    state: str,
    name: str,
) -> None:
    """K10 on a cluster: the next executor finds the state of the batch before."""
    if not state and name == "while keeping rows":
        pytest.skip("an aggregation keeps its counts in Java")
    options = {"state": state} if state else {}
    job, sent = value(kdsl_kafka, kdsl_topic, tmp_path, batches=4, seed=5, **options)
    job.spark = kdsl_spark_cluster.settings
    point = POINTS[name]

    life = job.run(Kill(point, committed=1, action="kill-executor"))

    assert life.killed
    assert "Lost executor" in life.log
    assert life.code == 0, life.log[-4000:]
    if value is make_copy_job:
        check_result(kdsl_kafka, job, sent)
    else:
        assert wrong(counts(kdsl_kafka, job), read_versions(kdsl_kafka, job.topic("target"))) == {}


@pytest.mark.reliability
def test_a_compacted_topic_is_the_same_table_after_records_and_tombstones_are_removed(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """S17. Read from the beginning before and after, in a batch and as a stream, and on from a checkpoint of before."""
    settings = {"cleanup.policy": "compact", "segment.ms": "100", "delete.retention.ms": "100"}
    settings |= {"min.cleanable.dirty.ratio": "0.001", "max.compaction.lag.ms": "100"}
    topic = kdsl_topic(config=settings)

    class Kept(UpsertTable, topic=topic, key=Json(), value=Json()):
        id: PrimaryKey[int]
        version: Col[int]

    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    def stream_batches(name: str, before: dict[int, int]) -> dict[int, int]:
        batches = [before]
        rows = Kept.read_stream(spark, cluster).writeStream.option("checkpointLocation", str(tmp_path / name))
        writer = rows.foreachBatch(lambda df, _: batches.append(final(batches[-1], df.toArrow().to_pylist())))
        assert writer.trigger(availableNow=True).start().awaitTermination(300)
        return batches[-1]

    upserts = [*random_upserts(2000, 30, seed=6), *((key, None) for key in range(10))]
    send(kdsl_kafka, topic, upserts)
    truth = {key: versions[-1] for key, versions in versions_of_upserts(upserts).items() if versions[-1] is not None}
    result = stream_batches("old", {})
    assert result == truth
    assert final({}, Kept.read(spark, cluster).toArrow().to_pylist()) == truth

    until, version = time.monotonic() + 300, 0
    while len(left := kdsl_kafka.read(topic)) > 2 * len(truth) or any(m.value() is None for m in left):
        assert time.monotonic() < until, f"the topic was not compacted: it has {len(left)} records"
        version += 1
        send(kdsl_kafka, topic, [(999, version)])  # a segment that is open is not compacted
        time.sleep(1)
    truth[999] = version

    assert stream_batches("old", result) == truth
    assert stream_batches("new", {}) == truth
    assert final({}, Kept.read(spark, cluster).toArrow().to_pylist()) == truth


def final(before: dict[int, int], changes: list[dict[str, Any]]) -> dict[int, int]:
    """What is there after some changes, whose before-images are what was there."""
    results = dict(before)
    for row in changes:
        if row[ROW_KIND] in ("+I", "+U"):
            assert row["id"] not in results
            results[row["id"]] = row["version"]
        else:
            assert results.pop(row["id"]) == row["version"]
    return results
