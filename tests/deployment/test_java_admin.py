"""Java's admin client, which logs in where librdkafka cannot, compares and changes topics in the same way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import kdsl
from kdsl import Cluster
from kdsl.diagnostics.clients import open_admin
from kdsl.errors import KafkaReadError
from kdsl.run.admin.java_admin import JavaAdmin
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.deployment.setup import list_values, only, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """A cluster that is taken for one that only Java's client can log in to."""
    monkeypatch.setattr("kdsl.diagnostics.clients.needs_jvm", lambda _: True)
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    assert isinstance(open_admin(cluster, "test"), JavaAdmin)
    return cluster


def test_topics_are_created_and_changed(kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster) -> None:
    live, name = kdsl_topic(config={"max.message.bytes": "1000", "segment.ms": "90000"}), f"{kdsl_topic()}-new"
    tables = [
        table(live, name="Live", topic_partitions=2, topic_config_max_message_bytes=2000,
              topic_config_cleanup_policy="compact", properties_group_id="nosuch"),
        table(name, name="New", topic_partitions=3, topic_replication__factor=1, topic_config_segment_ms=70000),
        table(f"{name}-default", name="Default"),
    ]  # fmt: skip

    before = kdsl.diff(tables, cluster)
    applied = kdsl.apply(tables, cluster)

    assert list_values(before) == [
        ("~", "partitions", "1", "2"),
        ("~", "max.message.bytes", "1000", "2000"),
        ("!", "cleanup.policy", "delete", "compact"),
        ("!", "segment.ms", "90000", None),
        ("+", "topic", None, "3 partitions, replication 1, segment.ms=70000"),
        ("+", "topic", None, "the brokers' number of partitions, the brokers' replication"),
    ]
    assert [d.mark for d in applied.done] == ["~", "~", "+", "+"], applied.error
    assert list_values(kdsl.diff(tables, cluster)) == list_values(before)[2:4]
    assert [len(kdsl_kafka.end_offsets(topic)) for topic in (live, name)] == [2, 3]
    for topic in (name, f"{name}-default"):
        kdsl_kafka.delete_topic(topic)


def test_groups_are_compared(kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka, cluster: Cluster) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "a")
    open_admin(cluster, "test").commit(f"group-{topic}", {(topic, 0): 120})

    difference = only(kdsl.diff(table(topic, properties_group_id=f"group-{topic}"), cluster))

    assert difference.values == "offset 120 → end at 1"


def test_what_the_brokers_refuse_is_an_error(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic, admin = kdsl_topic(), open_admin(cluster, "test")

    with pytest.raises(KafkaReadError, match=r"cannot be created on .*exists"):
        admin.create_topic(topic, 1, None, {})
    with pytest.raises(KafkaReadError, match="cannot be changed on "):
        admin.raise_partitions(topic, 1)
    with pytest.raises(KafkaReadError, match=r"the config 'no.such' of the topic .* cannot be changed on "):
        admin.set_config(topic, "no.such", "1")
