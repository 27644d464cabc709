"""Streams of upserts over Spark's own source, whose states have the numbers of Spark's batches as versions."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from kdsl import Cluster, Col, Json, PrimaryKey, UpsertTable
from kdsl.errors import KdslError
from kdsl.run.checkpoint.task_entries import read_entry_in_task
from kdsl.run.dataframes.changelog_text import changelog_lines
from kdsl.run.state_files.find import CHECKPOINT
from kdsl.run.upsert.spark_batches import NAMES, SHARDS, TellShards, find_names, name_states
from kdsl.run.upsert.steps import ShardStep, batch_of, number_version
from kdsl.spark_internals.workers import BATCH_ID
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def words(topic: str, **more: Any) -> type[Any]:
    class Words(UpsertTable, topic=topic, key=Json(), value=Json(), transport="jvm", **more):
        word: PrimaryKey[str]
        count: Col[int]

    return Words


def put(kafka: RunningKafka, topic: str, count: int | None, *some: str, partition: int = 0) -> None:
    value = '{{"word":"{}","count":{}}}'.format
    kafka.produce(
        topic,
        *(Record(None if count is None else value(w, count), f'{{"word":"{w}"}}', [], partition) for w in some),
    )


class Task:
    """The context of a task that has local properties."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties

    def getLocalProperty(self, key: str) -> str | None:
        """The property; None if it is not set."""
        return self._properties.get(key)


class Stream:
    """A changelog that is read from one run to the next on the same checkpoint; each run has what comes since then."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "kdsl" / "state"

    def run(self, df: DataFrame, use: Callable[[DataFrame, int], None] | None = None) -> list[str]:
        """The changes of the batches that are run until all records are read.

        Args:
            df: The stream.
            use: What a batch is used for before its changes are collected.
        """
        seen: list[str] = []

        def keep(rows: DataFrame, batch: int) -> None:
            if use is not None:
                use(rows, batch)
            seen.extend(changelog_lines(rows))

        writer = df.writeStream.foreachBatch(keep).option("checkpointLocation", str(self.folder))
        assert writer.trigger(availableNow=True).start().awaitTermination(300)
        return sorted(seen)

    def shards(self) -> list[Path]:
        """The folders of the shards."""
        return sorted(self.state.glob("*/*/shard-*"))

    def versions(self) -> set[int]:
        """The batches after which all shards have versions, counted from 1."""
        each = [{int(file.stem) for file in shard.glob("*.json")} for shard in self.shards()]
        assert len(each) == SHARDS
        assert all(some == each[0] for some in each)
        return set(map(batch_of, each[0]))

    def version(self, batch: int) -> str:
        """The name of the version after a batch, as a pattern."""
        return rf"/{number_version(batch + 1, (self.folder / f'offsets/{batch}').read_bytes()):020d}\.json"

    def set_back(self, batch: int) -> None:
        """Make the checkpoint one that has planned no batch from ``batch`` on."""
        for log in ("offsets", "commits"):
            for file in (self.folder / log).iterdir():
                if file.name.isdigit() and int(file.name) >= batch:
                    file.unlink()
                    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def update(word: str, count: int) -> list[str]:
    return [f"+U[{word}, {count}]", f"-U[{word}, {count - 1}]"]


def test_changes_go_on_over_batches_and_restarts(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, stream = kdsl_topic(partitions=2), Stream(tmp_path)
    put(kdsl_kafka, topic, 1, *"abcd")
    first = stream.run(words(topic).read_stream(spark, cluster))
    put(kdsl_kafka, topic, 2, "a", "b", partition=1)
    put(kdsl_kafka, topic, None, "c", partition=1)
    second = stream.run(words(topic, scan_parallelism=1).read_stream(spark, cluster))
    put(kdsl_kafka, topic, 3, *"ab")
    put(kdsl_kafka, topic, 1, "c", partition=1)
    third = stream.run(words(topic, changelog_state="key").read_stream(spark, cluster))

    assert first == [f"+I[{w}, 1]" for w in "abcd"]
    assert second == sorted([*update("a", 2), *update("b", 2), "-D[c, 1]"])
    assert third == sorted([*update("a", 3), *update("b", 3), "+I[c, 1]"])
    assert stream.versions() == {2, 3}


def test_a_batch_is_repeated_after_it_has_failed(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, stream = kdsl_topic(), Stream(tmp_path)
    table = words(topic)

    def fail(rows: DataFrame, _: int, part: bool = False) -> None:
        (rows.limit(1) if part else rows).collect()
        raise ValueError("the sink has failed")

    put(kdsl_kafka, topic, 1, *"abcd")
    for count in (1, 2, 3):
        if count > 1:
            put(kdsl_kafka, topic, count, *"abcd")
        for part in (True, False, True):
            with pytest.raises(StreamingQueryException, match="the sink has failed"):
                stream.run(table.read_stream(spark, cluster), lambda df, n, part=part: fail(df, n, part))  # type: ignore[misc]
        put(kdsl_kafka, topic, 1, f"new {count}")  # it is not in the batch, which is repeated as it was
        changes = stream.run(table.read_stream(spark, cluster))
        each = [f"+I[{w}, 1]" for w in "abcd"] if count == 1 else [line for w in "abcd" for line in update(w, count)]
        assert changes == sorted([*each, f"+I[new {count}, 1]"])


def test_a_source_without_records_moves_its_state_with_the_batches_of_the_others(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    one, other, stream = kdsl_topic("one"), kdsl_topic("other"), Stream(tmp_path)

    class Others(UpsertTable, topic=other, key=Json(), value=Json(), transport="jvm"):
        word: PrimaryKey[str]
        count: Col[int]

    def both() -> DataFrame:
        rows: DataFrame = words(one).read_stream(spark, cluster)
        return rows.union(Others.read_stream(spark, cluster))

    put(kdsl_kafka, one, 1, "a")
    assert stream.run(both()) == ["+I[a, 1]"]
    for count in (1, 2):
        put(kdsl_kafka, other, count, "b")
        assert stream.run(both()) == (["+I[b, 1]"] if count == 1 else update("b", 2))
    put(kdsl_kafka, one, 2, "a")
    assert stream.run(both()) == update("a", 2)

    assert {folder.name for folder in stream.state.glob("*/*")} == {"Words", "Others"}


@pytest.mark.reliability
def test_a_table_may_be_read_twice_in_a_query(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """Once as the same DataFrame, and once as another one, which is a source with its own state."""
    topic, stream = kdsl_topic(partitions=2), Stream(tmp_path)
    table = words(topic, max_records_per_trigger=3)

    def three() -> DataFrame:
        one: DataFrame = table.read_stream(spark, cluster)
        return one.union(one).union(table.read_stream(spark, cluster))

    for count in (1, 2, 3):
        put(kdsl_kafka, topic, count, *"abcdef")
        each = [[f"+I[{w}, 1]"] if count == 1 else update(w, count) for w in "abcdef"]
        assert stream.run(three()) == sorted(3 * [line for lines in each for line in lines])
    assert {folder.name for folder in stream.state.glob("*/*")} == {"Words", "Words.2"}


def test_a_batch_that_was_read_in_part_is_noticed(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = kdsl_topic()
    table = words(topic)
    put(kdsl_kafka, topic, 1, *"abcdefghijklmnop")

    def show(rows: DataFrame, _: int) -> None:
        assert len(rows.take(1)) == 1

    writer = table.read_stream(spark, cluster).writeStream.foreachBatch(show).trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(300)
    put(kdsl_kafka, topic, 2, *"abcdefghijklmnop")

    stream = Stream(tmp_path)
    missing = rf"Words: \S+/Words/shard-\d+{stream.version(0)} does not exist"
    with pytest.raises(StreamingQueryException, match=missing):
        stream.run(table.read_stream(spark, cluster))


@pytest.mark.reliability
def test_a_batch_that_was_read_in_part_after_the_checkpoint_was_set_back_is_noticed(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """The versions that the same batch had written before are not its own."""
    topic, stream = kdsl_topic(), Stream(tmp_path)
    table = words(topic)
    for count in (1, 2):
        put(kdsl_kafka, topic, count, *"abcdefghijklmnop")
        stream.run(table.read_stream(spark, cluster))
    stream.set_back(1)
    put(kdsl_kafka, topic, 3, "a")

    def show(rows: DataFrame, _: int) -> None:
        assert len(rows.take(1)) == 1

    writer = table.read_stream(spark, cluster).writeStream.foreachBatch(show).trigger(availableNow=True)
    assert writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination(300)
    put(kdsl_kafka, topic, 4, *"abcdefghijklmnop")

    with pytest.raises(StreamingQueryException, match=rf"{stream.version(1)} does not exist"):
        stream.run(table.read_stream(spark, cluster))


def test_a_checkpoint_may_be_set_back_as_far_as_versions_are_kept(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, stream = kdsl_topic(), Stream(tmp_path)
    table = words(topic)
    for count in range(1, 6):  # one batch each
        put(kdsl_kafka, topic, count, "a")
        stream.run(table.read_stream(spark, cluster))
    assert stream.versions() == {4, 5}

    stream.set_back(4)
    put(kdsl_kafka, topic, 6, "a")
    assert stream.run(table.read_stream(spark, cluster)) == sorted([*update("a", 5), *update("a", 6)])
    assert stream.versions() == {4, 5}

    stream.set_back(2)
    with pytest.raises(StreamingQueryException, match=rf"{stream.version(1)} does not exist, which has the last rows"):
        stream.run(table.read_stream(spark, cluster))


@pytest.mark.parametrize("left", [[3], pytest.param([], marks=pytest.mark.reliability)])
def test_a_version_that_was_lost_is_not_replaced_by_an_earlier_one(
    spark: SparkSession,
    cluster: Cluster,
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    left: list[int],
) -> None:
    topic, stream = kdsl_topic(), Stream(tmp_path)
    table = words(topic)
    for count in range(1, 5):
        put(kdsl_kafka, topic, count, "a")
        stream.run(table.read_stream(spark, cluster))
    for shard in stream.shards():
        for file in shard.glob("*.json"):
            if batch_of(int(file.stem)) not in left:
                file.unlink()
    put(kdsl_kafka, topic, 5, "a")

    with pytest.raises(StreamingQueryException, match=rf"{stream.version(3)} does not exist"):
        stream.run(table.read_stream(spark, cluster))


@pytest.mark.reliability
def test_a_copy_of_a_checkpoint_goes_on_by_itself(
    spark: SparkSession, cluster: Cluster, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    topic, one, other = kdsl_topic(), Stream(tmp_path / "one"), Stream(tmp_path / "other")
    table = words(topic)
    put(kdsl_kafka, topic, 1, "a")
    one.run(table.read_stream(spark, cluster))
    shutil.copytree(one.folder, other.folder)
    put(kdsl_kafka, topic, 2, "a")
    assert one.run(table.read_stream(spark, cluster)) == update("a", 2)
    put(kdsl_kafka, topic, 3, "a")

    assert other.run(table.read_stream(spark, cluster)) == sorted([*update("a", 2), *update("a", 3)])
    assert one.run(table.read_stream(spark, cluster)) == update("a", 3)


@pytest.mark.parametrize(
    ("properties", "source", "reason"),
    [
        ({}, "x", "Words: rows of the stream are read outside of a batch, .* pyspark.InheritableThread"),
        ({BATCH_ID: "4"}, "x", "Words: rows of the stream are read outside of a batch"),
        ({BATCH_ID: "4", "sql.streaming.queryId": "q"}, "x", "Words: it is not known where the last rows"),
        ({BATCH_ID: "4", "sql.streaming.queryId": "q", NAMES: '{"y":"Words"}'}, "x", "Words: it is not known where"),
    ],
)
def test_a_task_without_a_batch_or_a_source_is_an_error(
    monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], source: str, reason: str
) -> None:
    monkeypatch.setattr("kdsl.run.upsert.spark_batches.current_task", lambda: Task(properties))

    with pytest.raises(KdslError, match=reason):
        TellShards("Words", source, read_entry_in_task).find_step()


class TestVersions:
    """The versions that a batch reads and writes."""

    def find_step(self, monkeypatch: pytest.MonkeyPatch, folder: str, batch: int) -> ShardStep:
        properties = {BATCH_ID: str(batch), "sql.streaming.queryId": "q", NAMES: '{"x":"Words.2"}', CHECKPOINT: folder}
        for module in ("upsert.spark_batches", "state_files.find"):
            monkeypatch.setattr(f"kdsl.run.{module}.current_task", lambda: Task(properties))
        return TellShards("Words", "x", read_entry_in_task).find_step()

    def test_they_have_the_number_and_the_entry_of_a_batch(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        (tmp_path / "offsets").mkdir()
        for batch in (0, 3, 4):
            (tmp_path / "offsets" / str(batch)).write_text(f"v1\nbatch {batch}")
        first = self.find_step(monkeypatch, f"file:{tmp_path}", 0)
        later, again = (self.find_step(monkeypatch, f"file:{tmp_path}", 4) for _ in range(2))

        assert first == ShardStep("q/Words.2", SHARDS, None, number_version(1, b"v1\nbatch 0"))
        start, end = (number_version(n + 1, b"v1\nbatch %d" % n) for n in (3, 4))
        assert later == ShardStep("q/Words.2", SHARDS, start, end)
        assert later == again
        (tmp_path / "offsets" / "4").write_text("v1\nplanned again")
        replanned = self.find_step(monkeypatch, f"file:{tmp_path}", 4)
        assert (replanned.start, batch_of(replanned.end)) == (later.start, 5)
        assert replanned.end != later.end

    def test_a_checkpoint_that_a_worker_does_not_see_is_an_error(
        self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        with pytest.raises(KdslError, match=r"Words: \S+/offsets/0 does not exist, or this worker does not see it"):
            self.find_step(monkeypatch, str(tmp_path), 0)

    def test_on_a_file_system_of_sparks_alone_only_the_number_counts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        step = self.find_step(monkeypatch, "dbfs:/checkpoints/words", 4)

        assert step == ShardStep("q/Words.2", SHARDS, 4 << 32, 5 << 32)


def test_states_are_named_after_their_sources_and_numbered_if_these_have_one_name() -> None:
    names = find_names(["A x", "B y", "A x", "A z"])

    assert names == {"x": "A", "y": "B", "z": "A.2"}
    assert name_states("shop.orders v2") == "shop_orders_v2"
