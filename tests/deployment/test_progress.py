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
from kdsl.plan.build import read_plan
from kdsl.resolve import resolve
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.checkpoint.folder import open_local_folder
from kdsl.run.offsets.stored import Offsets, StateFolder
from kdsl.run.upsert.partition_state import PartitionState
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


def test_the_state_of_an_upsert_table_with_another_key_and_other_buckets(
    kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    topic, folder = kdsl_topic(config={"cleanup.policy": "compact"}), str(tmp_path / "checkpoint")
    kdsl_kafka.produce(topic, Record(key=b'{"id": 1}', value=b'{"id": 1, "item": 2}'))

    def declare(*columns: str, key: str = "id", buckets: int = 2) -> kdsl.Table:
        return kdsl.sql(
            f"CREATE TABLE Users ({', '.join(columns)}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = "
            f"'upsert-kafka', 'topic' = '{topic}', 'key.format' = 'json', 'value.format' = 'json', "
            f"'scan.changelog.buckets' = '{buckets}')"
        )

    def compare(declared: kdsl.Table) -> kdsl.Diff:
        return kdsl.diff(declared, cluster, checkpoints={"Users": folder}, direction="read", spark=spark)

    rows = declare("id BIGINT", "item BIGINT").read_stream(spark, cluster)
    query = rows.writeStream.format("noop").option("checkpointLocation", folder).trigger(availableNow=True)
    query.start().awaitTermination()

    assert not compare(declare("id BIGINT", "item BIGINT"))
    assert not compare(declare("id BIGINT", "item BIGINT", "more STRING"))
    by_item = only(compare(declare("id BIGINT", "item BIGINT", key="item")))
    assert (by_item.kind, by_item.what, by_item.values) == ("checkpoint", "key", "id int64 → item int64")
    assert "the state stores rows by another key" in by_item.consequence
    in_more = only(compare(declare("id BIGINT", "item BIGINT", buckets=8)))
    assert (in_more.what, in_more.values) == ("changelog buckets", "2 → 8")


def store_offsets(checkpoint: Path, offsets: Offsets) -> None:
    """Write the first batch of a checkpoint."""
    (checkpoint / "offsets").mkdir()
    document = json.dumps(offsets.to_json())
    (checkpoint / "offsets" / "0").write_text(f"v1\n{{}}\n{document}\n", encoding="utf-8")


def compare_stored(checkpoint: Path, declared: kdsl.Table) -> list[Difference]:
    """Compare a table with a checkpoint, without a cluster and without Spark."""
    definition = declared.definition
    need = CheckpointNeed(str(checkpoint), definition, None, read_plan(resolve(definition, "read")))
    live: Any = SimpleNamespace(needs=SimpleNamespace(checkpoints=[], reads={}), states={})
    steps = _compare_checkpoint(need, live, open_local_folder, lambda: pytest.fail("Spark is not needed"), {})
    return [step.difference for step in steps]


def test_the_state_by_partition_of_an_upsert_table_with_another_key_and_another_place(tmp_path: Path) -> None:
    state = StateFolder("states", 1)
    store_offsets(tmp_path, Offsets({("users", 0): 5}, {"users": "id"}, state=state))
    schema = pa.schema({"id": pa.int64(), "item": pa.int64()})
    PartitionState("Users", schema, "id int64", tmp_path / "kdsl" / "state" / "states" / "0", None, 5).store()

    def compare(key: str, state: str = "partition") -> list[Difference]:
        declared = kdsl.sql(
            f"CREATE TABLE Users (id BIGINT, item BIGINT, PRIMARY KEY ({key}) NOT ENFORCED) WITH ('connector' = "
            "'upsert-kafka', 'topic' = 'users', 'key.format' = 'json', 'value.format' = 'json', "
            f"'scan.changelog.state' = '{state}')"
        )
        return compare_stored(tmp_path, declared)

    assert compare("id") == []
    assert list_values(compare("item")) == [("!", "key", "id int64", "item int64")]
    (elsewhere,) = compare("id", "buckets")
    assert (elsewhere.mark, elsewhere.what) == ("!", "state")
    assert "= 'partition', and the table declares buckets" in elsewhere.consequence


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
