"""What Spark writes down of a query: compacted while the driver dies, full, read-only, deleted, of a newer version."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from kdsl import load_tables
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.reliability.harness import Checkpoint, Job, copy_tables
from tests.reliability.oracle import Mark, Seen, judge, look, marks, send

PER_BATCH = 50


class Copy:
    """A copy in this process's session, whose checkpoint has two batches; and what its topics hold."""

    def __init__(self, spark: SparkSession, kafka: RunningKafka, topic: MakeTopic, folder: Path) -> None:
        self.spark, self.kafka = spark, kafka
        self.source, self.target = topic("in", partitions=2), topic("out", partitions=2)
        self.checkpoint = Checkpoint(folder / "checkpoint")
        document = folder / "tables.yaml"
        document.write_text(yaml.safe_dump(copy_tables(kafka, self.source, self.target, per_batch=PER_BATCH)))
        self.tables = {table.name: table for table in load_tables(document)}
        self.sent: list[Mark] = []
        self.send(2 * PER_BATCH)
        self.run()

    def send(self, count: int) -> None:
        self.sent += send(self.kafka, self.source, marks("p", 2, count, start=len(self.sent) // 2))

    def run(self) -> None:
        rows = self.tables["source"].read_stream(self.spark)
        query = self.tables["target"].write_stream(
            rows, checkpoint=str(self.checkpoint.folder), trigger={"availableNow": True}
        )
        assert query.awaitTermination(300)

    def edit(self, name: str, edit: Callable[[str], str]) -> None:
        """Change a file of the checkpoint, whose checksum goes."""
        file = self.checkpoint.folder / name
        file.write_text(edit(file.read_text(encoding="utf-8")), encoding="utf-8")
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)

    def expect_refusal(self) -> str:
        """Why it does not go on; it must not have written anything."""
        self.send(10)
        before = len(look(self.kafka, self.target))
        with pytest.raises(Exception) as raised:  # Spark's own, or kdsl's
            self.run()
        assert len(look(self.kafka, self.target)) == before
        return str(raised.value)


@pytest.fixture
def copy(spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path) -> Copy:
    return Copy(spark, kdsl_kafka, kdsl_topic, tmp_path)


@pytest.mark.parametrize(("log", "most"), [pytest.param("offsets", 2, marks=pytest.mark.reliability), ("commits", 3)])
def test_a_checkpoint_of_a_newer_spark_is_refused_with_its_path_and_version(copy: Copy, log: str, most: int) -> None:
    """W2. Spark's own versions."""
    copy.edit(f"{log}/1", lambda text: text.replace("v1", "v99999", 1))

    message = copy.expect_refusal()

    assert f"{copy.checkpoint.folder}/{log}/1" in message
    assert f"maximum supported log version is v{most}, but encountered v99999" in message


def test_a_checkpoint_of_a_newer_kdsl_is_refused_with_its_path_and_version(copy: Copy) -> None:
    """W2. The version of kdsl's offsets, which stand inside Spark's."""

    def newer(text: str) -> str:
        *first, offsets = text.splitlines()
        return "\n".join([*first, json.dumps({**json.loads(offsets), "version": 99})])

    copy.edit("offsets/1", newer)

    message = copy.expect_refusal()

    path = f"{copy.checkpoint.folder}/offsets/1"
    assert f"{path} have version 99, and this kdsl reads version 1; use the kdsl that wrote them" in message


def test_a_checkpoint_without_its_offset_log_is_refused_with_its_path(copy: Copy) -> None:
    """W2. Deleted in part: where the query was is not known any more."""
    shutil.rmtree(copy.checkpoint.folder / "offsets")

    message = copy.expect_refusal()

    assert f"{copy.checkpoint.folder} is incomplete: batch 1 is done" in message
    assert f"the offset log is missing (file:{copy.checkpoint.folder}/offsets)" in message


@pytest.mark.parametrize("log", ["offsets", pytest.param("commits", marks=pytest.mark.reliability)])
def test_a_file_of_the_checkpoint_that_was_cut_off_is_refused_with_its_path(copy: Copy, log: str) -> None:
    copy.edit(f"{log}/1", lambda _: "")

    assert f"{copy.checkpoint.folder}/{log}/1" in copy.expect_refusal()


def test_a_checkpoint_without_its_query_id_is_refused_with_its_path(copy: Copy) -> None:
    """W2. Deleted in part: the offsets are there, and nobody knows whose they are."""
    (copy.checkpoint.folder / "metadata").unlink()

    assert f"Checkpoint location file:{copy.checkpoint.folder} is in an inconsistent state" in copy.expect_refusal()


def test_a_checkpoint_without_its_commit_log_repeats_the_last_batch_and_loses_nothing(copy: Copy) -> None:
    """W2. Deleted in part: Spark cannot know that the last batch is done."""
    shutil.rmtree(copy.checkpoint.folder / "commits")
    copy.send(10)

    copy.run()

    verdict = judge(copy.sent, look(copy.kafka, copy.target))
    assert verdict.at_least_once, str(verdict)
    assert len(verdict.duplicates) == PER_BATCH


def test_a_deleted_checkpoint_begins_again_at_the_declared_start(copy: Copy) -> None:
    """W2. Nothing is left that could tell; earliest reads all again, and nothing is lost."""
    shutil.rmtree(copy.checkpoint.folder)
    copy.send(10)

    copy.run()

    verdict = judge(copy.sent, look(copy.kafka, copy.target))
    assert verdict.at_least_once, str(verdict)
    assert len(verdict.duplicates) == 2 * PER_BATCH


def test_a_checkpoint_that_is_deleted_while_the_query_runs_stops_it_with_its_path(
    copy: Copy, request: pytest.FixtureRequest
) -> None:
    name = "spark.sql.streaming.checkpointFileManagerClass"
    manager = copy.spark.conf.get(name)
    assert manager is not None
    request.addfinalizer(lambda: copy.spark.conf.set(name, manager))
    copy.spark.conf.unset(name)  # that of these tests makes the folder anew
    rows = copy.tables["source"].read_stream(copy.spark)
    query = copy.tables["target"].write_stream(rows, checkpoint=str(copy.checkpoint.folder))
    copy.send(10)
    query.processAllAvailable()
    shutil.rmtree(copy.checkpoint.folder)
    copy.send(10)

    with pytest.raises(StreamingQueryException) as raised:
        query.awaitTermination(300)

    assert f"{copy.checkpoint.folder}/offsets does not exist" in str(raised.value)


def in_own_mount(job: Job, mount: str) -> None:
    """Let a job see its checkpoint in a file system of its own, which is copied back when the job has ended."""
    probe = subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True)
    if probe.returncode != 0:
        pytest.skip("this machine lets nobody mount a file system")
    folder, results = job.checkpoint.folder, job.folder / "kept"
    folder.mkdir(parents=True, exist_ok=True)
    script = (
        f"mount -t tmpfs -o size=512k tmpfs '{folder}' && cp -r '{results}/.' '{folder}' && {mount} && "
        f"\"$@\"; code=$?; rm -f '{folder}/ballast'; rm -r '{results}'; cp -r '{folder}' '{results}'; exit $code"
    )
    job.before = ("unshare", "-Urm", "sh", "-c", script, "sh")


@pytest.mark.reliability
@pytest.mark.parametrize(
    ("mount", "reason"),
    [
        ("head -c 480000 /dev/zero > ballast; true", "No space left on device"),
        ("mount -o remount,ro {folder}", "Read-only file system"),
    ],
    ids=["full", "read-only"],
)
def test_a_read_only_checkpoint_stops_the_query_which_continues_once_it_is_writable(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, mount: str, reason: str
) -> None:
    """W2. Full and read-only: an error that says so; afterwards nothing is lost, and at most a batch is doubled."""
    source, target = kdsl_topic("in", partitions=2), kdsl_topic("out", partitions=2)
    sent = send(kdsl_kafka, source, marks("p", 2, 2 * PER_BATCH))
    job = Job(tmp_path / "job", copy_tables(kdsl_kafka, source, target, per_batch=PER_BATCH))
    assert job.run().code == 0
    shutil.copytree(job.checkpoint.folder, job.folder / "kept")
    more = 20 * PER_BATCH
    sent += send(kdsl_kafka, source, marks("p", 2, more, start=PER_BATCH))
    folder = job.checkpoint.folder
    in_own_mount(job, mount.format(folder=folder).replace("ballast", f"{folder}/ballast"))

    life = job.run()

    assert life.code == 1, life.log[-3000:]
    assert reason in life.log
    if reason == "Read-only file system":  # of a full one Java does not say which file it was
        assert f"{folder}/offsets/" in life.log
    job.before = ()
    shutil.rmtree(folder)
    shutil.copytree(job.folder / "kept", folder)
    assert job.run().code == 0
    verdict = judge(sent, look(kdsl_kafka, target))
    assert verdict.at_least_once, str(verdict)
    assert len(verdict.duplicates) <= PER_BATCH


def in_files(folder: Path, read: list[str]) -> list[Seen]:
    return [Seen(Mark.of(line), 0, n) for n, line in enumerate(read)]


@pytest.mark.reliability
def test_a_driver_killed_while_logs_are_cut_or_compacted_loses_and_repeats_nothing(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """S1, during checkpoint compaction. Spark's file sink is exactly-once by its own log, which is compacted every
    third batch; the logs of the query are cut to the last two batches. The driver dies at each of these in turn."""
    source = kdsl_topic("in", partitions=2)
    sent = send(kdsl_kafka, source, marks("p", 2, 400 * PER_BATCH))  # far more than what is read before it is killed
    job = Job(
        tmp_path / "job",
        copy_tables(kdsl_kafka, source, source, per_batch=PER_BATCH),
        sink="files",
        spark={
            "spark.sql.streaming.minBatchesToRetain": "2",
            "spark.sql.streaming.fileSink.log.compactInterval": "3",
            "spark.sql.streaming.fileSink.log.cleanupDelay": "0",
        },
    )
    sink_log = job.output / "_spark_metadata"

    def compacting(beyond: int) -> Callable[[], bool]:
        return lambda: any(
            ".compact" in file and int(file.lstrip(".").partition(".")[0]) > beyond for file in names(sink_log)
        )

    def cutting(beyond: int) -> Callable[[], bool]:
        offsets = job.checkpoint.folder / "offsets"
        return lambda: (
            any(name.isdigit() and int(name) > beyond + 3 for name in names(offsets))
            and not any(name == str(beyond + 1) for name in names(offsets))
        )

    for watch in (compacting, cutting, compacting, cutting):
        life = job.run(until=watch(job.checkpoint.planned))
        assert life.killed, life.log[-3000:]
    job.tables = copy_tables(kdsl_kafka, source, source, per_batch=100 * PER_BATCH)
    last = job.run()

    assert last.code == 0, last.log[-3000:]
    read = [row.value for row in spark.read.text(str(job.output)).select("value").collect()]
    verdict = judge(sent, in_files(job.output, read))
    assert not verdict.lost, str(verdict)
    assert not verdict.duplicates, str(verdict)


def names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir()]
    except FileNotFoundError:
        return []
