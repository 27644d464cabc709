"""Consumer groups and checkpoints on a real Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import kdsl
from kdsl import Cluster, Difference
from kdsl.deployment.desired import CheckpointNeed
from kdsl.deployment.progress import _compare_checkpoint
from kdsl.diagnostics.doctor.admin import Partition, TopicState
from kdsl.plan.build import read_plan
from kdsl.resolve import resolve
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.run.offsets.stored import Offsets, StateFolder
from kdsl.run.state_files.find import locate_states
from kdsl.run.state_files.local import LocalFiles
from kdsl.run.upsert.keyed_state import KeyedState
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.deployment.setup import list_values, only, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers)


def table_of_group(topic: str, **options: Any) -> kdsl.Table:
    return table(topic, properties_group_id=f"group-{topic}", **options)


def commit(cluster: Cluster, topic: str, at: int) -> None:
    LibrdkafkaAdmin(cluster, "test").commit(f"group-{topic}", {(topic, 0): at})


def test_a_group_that_reads_is_not_a_difference(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster
) -> None:
    topic = kdsl_topic()

    assert not kdsl.diff(table_of_group(topic), cluster)  # before its first start
    kdsl_kafka.produce(topic, "a", "b", "c")
    commit(cluster, topic, 2)
    assert not kdsl.diff(table_of_group(topic), cluster)
    assert not kdsl.diff(table_of_group(topic, scan_startup_mode="earliest-offset"), cluster)


def test_a_group_that_is_ahead_of_its_topic(kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "a")
    commit(cluster, topic, 120)

    difference = only(kdsl.diff(table_of_group(topic), cluster))

    assert (difference.mark, difference.kind, difference.name) == ("!", "group", f"group-{topic}")
    assert (difference.what, difference.values) == (f"{topic}[0]", "offset 120 → end at 1")
    assert "the group is ahead of the topic" in difference.consequence


def test_a_group_whose_records_were_deleted(kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "a", "b", "c")
    commit(cluster, topic, 1)
    kdsl_kafka.delete_records(topic, {0: 2})

    difference = only(kdsl.diff(table_of_group(topic), cluster))

    assert difference.values == "offset 1 → begin at 2"
    assert "were deleted before they were read" in difference.consequence


def test_a_group_with_other_members(kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster) -> None:
    from confluent_kafka import Consumer

    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "a")
    consumer = Consumer(
        {**kdsl_kafka.client_properties, "group.id": f"group-{topic}", "client.id": "console",
         "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe([topic])
    while consumer.poll(0.2) is None:
        pass

    difference = only(kdsl.diff(table_of_group(topic), cluster))
    consumer.close()

    assert (difference.what, difference.declared) == ("members", None)
    assert (difference.live or "").startswith("console on ")
    assert "brokers refuse the offsets that kdsl commits" in difference.consequence


def write(spark: SparkSession, declared: kdsl.Table, cluster: Cluster, source: kdsl.Table, checkpoint: str) -> None:
    rows = source.read_stream(spark, cluster)
    declared.write_stream(rows, cluster, checkpoint=checkpoint, trigger={"availableNow": True}).awaitTermination()


def test_a_checkpoint_of_another_key_topic_and_format(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    topic, other, to = kdsl_topic("from"), kdsl_topic("other"), kdsl_topic("to")
    kdsl_kafka.produce(topic, '{"id": 1, "item": 2}')
    columns = ("id BIGINT", "item BIGINT")
    source = table(topic, *columns, name="Source", scan_startup_mode="earliest-offset")
    keyed = {"key_format": "json", "key_fields": "id"}
    checkpoints = {"Sink": str(tmp_path / "checkpoint")}
    write(spark, table(to, *columns, name="Sink", **keyed), cluster, source, checkpoints["Sink"])

    def compare(declared: kdsl.Table) -> kdsl.Diff:
        return kdsl.diff(declared, cluster, checkpoints=checkpoints, direction="write")

    assert not compare(table(to, *columns, name="Sink", **keyed))
    assert not compare(table(to, *columns, "more STRING", name="Sink", **keyed))
    by_item = only(compare(table(to, *columns, name="Sink", key_format="json", key_fields="item")))
    assert (by_item.mark, by_item.kind, by_item.name) == ("!", "checkpoint", checkpoints["Sink"])
    assert (by_item.what, by_item.values) == ("key", "id BIGINT → item BIGINT")
    assert "records of one key may go to another partition" in by_item.consequence
    assert 'pass allow={"key"}' in by_item.consequence
    to_other = only(compare(table(other, *columns, name="Sink", **keyed)))
    assert (to_other.what, to_other.values) == ("topic", f"{to} → {other}")
    as_csv = only(compare(table(to, *columns, name="Sink", **{**keyed, "value_format": "csv"})))
    assert (as_csv.what, as_csv.values) == ("format", "key json, value json → key json, value csv")


def test_a_checkpoint_of_another_read_and_of_a_topic_that_was_created_again(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    topic, other = kdsl_topic("from"), kdsl_topic("other")
    kdsl_kafka.produce(topic, '{"id": 1}', '{"id": 2}', '{"id": 3}')
    source = table_of_group(topic, name="Source", scan_startup_mode="earliest-offset")
    folder = str(tmp_path / "checkpoint")
    query = source.read_stream(spark, cluster).writeStream.format("noop").option("checkpointLocation", folder)
    query.trigger(availableNow=True).start().awaitTermination()

    def compare(declared: kdsl.Table) -> kdsl.Diff:
        return kdsl.diff(declared, cluster, checkpoints={"Source": folder}, direction="read")

    assert not compare(source)
    another = only(compare(table(other, name="Source")))
    assert (another.kind, another.what, another.values) == ("checkpoint", "topics", f"{topic} → {other}")
    commit(cluster, topic, 3)
    assert not compare(source)
    older = kdsl_kafka.produce(topic, '{"id": 4}')
    assert older == [(0, 3)]
    commit(cluster, topic, 4)
    ahead = only(compare(source))
    assert (ahead.kind, ahead.values) == ("group", "offset 4 → checkpoint at 3")
    assert "the group is ahead of the checkpoint" in ahead.consequence
    kdsl_kafka.delete_topic(topic)
    kdsl_kafka.create_topic(topic, 1)
    recreated = kdsl.diff(source, cluster, checkpoints={"Source": folder}, direction="read")
    assert "topic id" in [d.what for d in recreated.differences]


@pytest.mark.parametrize("state", ["partition", "key"])
def test_the_state_of_an_upsert_table_with_another_key(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster, spark: SparkSession, tmp_path: Path, state: str
) -> None:
    topic, folder = kdsl_topic(config={"cleanup.policy": "compact"}), str(tmp_path / "checkpoint")
    kdsl_kafka.produce(topic, Record(key=b'{"id": 1}', value=b'{"id": 1, "item": 2}'))

    def declare(*columns: str, key: str = "id") -> kdsl.Table:
        return kdsl.sql(
            f"CREATE TABLE Users ({', '.join(columns)}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = "
            f"'upsert-kafka', 'topic' = '{topic}', 'key.format' = 'json', 'value.format' = 'json', "
            f"'scan.changelog.state' = '{state}')"
        )

    def compare(declared: kdsl.Table) -> kdsl.Diff:
        return kdsl.diff(declared, cluster, checkpoints={"Users": folder}, direction="read")

    rows = declare("id BIGINT", "item BIGINT").read_stream(spark, cluster)
    query = rows.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True)
    query.start().awaitTermination()

    assert not compare(declare("id BIGINT", "item BIGINT"))
    assert not compare(declare("id BIGINT", "item BIGINT", "more STRING"))
    by_item = only(compare(declare("id BIGINT", "item BIGINT", key="item")))
    assert (by_item.kind, by_item.what, by_item.values) == ("checkpoint", "key", "id int64 → item int64")
    assert "the state stores rows by another key" in by_item.consequence


def store_offsets(checkpoint: Path, offsets: Offsets) -> None:
    """Write the first batch of a checkpoint."""
    (checkpoint / "offsets").mkdir()
    document = json.dumps(offsets.to_json())
    (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{document}\n", encoding="utf-8")


def compare_stored(checkpoint: Path, declared: kdsl.Table, partitions: int = 2) -> list[Difference]:
    """Compare a table with a checkpoint, without a cluster and without Spark."""
    definition = declared.definition
    need = CheckpointNeed(str(checkpoint), definition, None, read_plan(resolve(definition, "read")))
    states = {"users": TopicState("id", tuple(Partition(i, 1, 1, 1) for i in range(partitions)), None)}
    live: Any = SimpleNamespace(needs=SimpleNamespace(checkpoints=[], reads={}), states=states)
    steps = _compare_checkpoint(need, live, open_local_folder, lambda: pytest.fail("Spark is not needed"), {})
    return [step.difference for step in steps]


def users(key: str = "id", state: str = "auto", location: str | None = None) -> kdsl.Table:
    """An upsert table."""
    place = f", 'scan.changelog.state.location' = '{location}'" if location else ""
    return kdsl.sql(
        f"CREATE TABLE Users (id BIGINT, item BIGINT, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = "
        "'upsert-kafka', 'topic' = 'users', 'key.format' = 'json', 'value.format' = 'json', "
        f"'scan.changelog.state' = '{state}'{place})"
    )


def store_state(checkpoint: Path, state: StateFolder, folder: str) -> None:
    """Write a checkpoint with one batch, and one version of a state without rows."""
    store_offsets(checkpoint, Offsets({("users", 0): 5, ("users", 1): 0}, {"users": "id"}, state=state))
    store_version(checkpoint / "kdsl" / "state" / state.id / folder)


def store_version(folder: Path) -> None:
    """Write a version of a state without rows."""
    schema = pa.schema({"id": pa.int64(), "item": pa.int64()})
    KeyedState("Users", schema, ("id",), LocalFiles(folder), None, 5).store()


BY_PARTITION = StateFolder("states", "partition", 2, partitioner="murmur2")
BY_KEY = StateFolder("states", "key", 2, shards=8)


@pytest.mark.parametrize(("state", "folder"), [(BY_PARTITION, "partition-0"), (BY_KEY, "shard-3")])
def test_the_stored_rows_of_an_upsert_table_have_another_key(tmp_path: Path, state: StateFolder, folder: str) -> None:
    store_state(tmp_path, state, folder)

    assert compare_stored(tmp_path, users("id")) == []
    assert list_values(compare_stored(tmp_path, users("item"))) == [("!", "key", "id int64", "item int64")]


def test_the_key_of_rows_at_the_declared_location(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    store_offsets(tmp_path / "checkpoint", Offsets({("users", 0): 5}, {"users": "id"}, state=BY_KEY))
    states = locate_states("Users", str(tmp_path / "states"), str(tmp_path / "checkpoint")).location.folder
    assert states is not None
    store_version(states / "states" / "shard-0")

    def compare(key: str) -> list[Difference]:
        return compare_stored(tmp_path / "checkpoint", users(key, location=str(tmp_path / "states")))

    assert compare("id") == []
    assert list_values(compare("item")) == [("!", "key", "id int64", "item int64")]


def test_the_key_of_rows_in_an_object_store_whose_documents_are_in_folders(tmp_path: Path) -> None:
    store_state(tmp_path, BY_KEY, "shard-0")
    folder = tmp_path / "kdsl" / "state" / "states" / "shard-0"
    (document,) = folder.glob("*.json")
    inside = folder / "documents" / document.name[:8]
    inside.mkdir(parents=True)
    (inside / document.name).write_text(f"0000000a 0000000b\n{document.read_text()}")
    document.unlink()

    assert compare_stored(tmp_path, users("id")) == []
    assert list_values(compare_stored(tmp_path, users("item"))) == [("!", "key", "id int64", "item int64")]


def test_rows_that_are_found_by_partition_are_found_by_key_from_the_next_batch_on(tmp_path: Path) -> None:
    store_state(tmp_path, BY_PARTITION, "partition-0")

    assert compare_stored(tmp_path, users(state="partition")) == []
    (declared,) = compare_stored(tmp_path, users(state="key"))
    assert list_values([declared]) == [("!", "state", "by partition (murmur2)", "by key")]
    assert (
        "from the next batch on, which copies all of them: as declared; this cannot be undone" in declared.consequence
    )
    (grown,) = compare_stored(tmp_path, users(), partitions=3)
    assert list_values([grown]) == [("!", "state", "by partition (murmur2)", "by key")]
    assert "the topic has 3 partitions now, and had 2 at the first start" in grown.consequence


def test_rows_that_are_found_by_key_are_never_found_by_partition_again(tmp_path: Path) -> None:
    store_state(tmp_path, BY_KEY, "shard-0")

    assert compare_stored(tmp_path, users(state="key"), partitions=3) == []
    assert compare_stored(tmp_path, users(), partitions=3) == []
    (refused,) = compare_stored(tmp_path, users(state="partition"))
    assert list_values([refused]) == [("!", "state", "by key", None)]
    assert "to which a checkpoint cannot return" in refused.consequence


def test_more_partitions_are_refused_if_rows_must_be_found_by_partition(tmp_path: Path) -> None:
    store_state(tmp_path, BY_PARTITION, "partition-0")

    (refused,) = compare_stored(tmp_path, users(state="partition"), partitions=3)

    assert list_values([refused]) == [("!", "state", "by partition (murmur2)", None)]
    assert "a restart is refused; declare changelog_state='key' or 'auto'" in refused.consequence


def test_change_data_that_is_no_longer_compared_with_the_state(tmp_path: Path) -> None:
    store_offsets(tmp_path, Offsets({("users", 0): 5}, {"users": "id"}, compared=True))

    def compare(duplicates: str) -> list[Difference]:
        declared = kdsl.sql(
            "CREATE TABLE Users (id BIGINT, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'kafka', 'topic' = "
            f"'users', 'format' = 'debezium-json', 'cdc-events-duplicate' = '{duplicates}')"
        )
        return compare_stored(tmp_path, declared)

    (changed,) = compare("false")
    assert (changed.mark, changed.what) == ("!", "state")
    assert "no longer compares changes" in changed.consequence


def test_a_checkpoint_that_is_not_there(kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path) -> None:
    declared = table(kdsl_topic())

    difference = only(kdsl.diff(declared, cluster, checkpoints={"Orders": str(tmp_path / "nosuch")}))

    assert (difference.kind, difference.values) == ("checkpoint", "none → a checkpoint")
    with pytest.raises(ValueError, match=r"'Order' is not declared \(did you mean 'Orders'"):
        kdsl.diff(declared, cluster, checkpoints={"Order": str(tmp_path)})


def test_a_broken_checkpoint_is_one_line(kdsl_topic: MakeTopic, cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "kdsl").mkdir()
    (tmp_path / "kdsl" / "write.json").write_text("{", encoding="utf-8")

    difference = only(kdsl.diff(table(kdsl_topic()), cluster, checkpoints={"Orders": str(tmp_path)}))

    assert (difference.mark, difference.kind) == ("?", "checkpoint")
    assert "cannot be read" in difference.consequence
