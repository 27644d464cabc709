"""Subjects of a real schema registry, and registries that do not answer."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

import kdsl
from kdsl import Cluster
from kdsl.testing import LocalRegistry, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.deployment.setup import only, table

FORMAT = "avro-confluent"


@pytest.fixture
def cluster(kdsl_kafka: RunningKafka, kdsl_registry: LocalRegistry) -> Cluster:
    return Cluster(kdsl_kafka.bootstrap_servers, registry=kdsl_registry.url)


def orders(topic: str, *columns: str, **options: Any) -> kdsl.Table:
    return table(topic, "id BIGINT NOT NULL", *columns, value_format=FORMAT, **options)


def test_a_missing_subject_is_registered(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    declared = orders(kdsl_topic())

    difference = only(kdsl.diff(declared, cluster))
    applied = kdsl.apply(declared, cluster)

    topic = declared.definition.options.topic[0]
    assert (difference.mark, difference.kind, difference.name) == ("+", "subject", f"{topic}-value")
    assert difference.declared == "id BIGINT NOT NULL"
    assert "the next write registers it" in difference.consequence
    assert applied.done == (difference,)
    assert not kdsl.diff(declared, cluster)


def test_a_compatible_schema_becomes_the_next_version(
    kdsl_topic: MakeTopic, cluster: Cluster, kdsl_registry: LocalRegistry
) -> None:
    topic = kdsl_topic()
    kdsl.apply(orders(topic), cluster)
    declared = orders(topic, "note STRING")

    difference = only(kdsl.diff(declared, cluster))
    kdsl.apply(declared, cluster)

    assert (difference.mark, difference.values) == ("~", "version 1 → the schema of Orders")
    assert difference.consequence.startswith("+ note STRING (BACKWARD: compatible)")
    assert not kdsl.diff(declared, cluster)
    assert len(kdsl_registry.client().versions(f"{topic}-value")) == 2


def test_an_incompatible_schema_is_refused(
    kdsl_topic: MakeTopic, cluster: Cluster, kdsl_registry: LocalRegistry
) -> None:
    topic = kdsl_topic()
    kdsl.apply(orders(topic), cluster)
    declared = orders(topic, "note STRING NOT NULL")

    difference = only(kdsl.diff(declared, cluster))
    applied = kdsl.apply(declared, cluster)

    assert (difference.mark, difference.values) == ("!", "version 1 → the schema of Orders")
    assert difference.consequence.startswith("+ note STRING NOT NULL (BACKWARD: refused: ")
    assert "note" in difference.consequence
    assert applied.done == ()
    assert len(kdsl_registry.client().versions(f"{topic}-value")) == 1


def test_a_reader_is_compared_with_the_latest_schema(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic = kdsl_topic()

    assert not kdsl.diff(orders(topic), cluster, direction="read")
    kdsl.apply(orders(topic, "note STRING NOT NULL"), cluster)
    assert not kdsl.diff(orders(topic), cluster, direction="read")

    difference = only(kdsl.diff(orders(topic, "note BIGINT NOT NULL"), cluster, direction="read"))
    assert (difference.mark, difference.live, difference.declared) == ("!", "version 1", "the columns of Orders")
    assert "cannot be read into the columns" in difference.consequence


def test_a_registry_that_does_not_answer_is_one_line(kdsl_topic: MakeTopic, kdsl_kafka: RunningKafka) -> None:
    far = Cluster(kdsl_kafka.bootstrap_servers, registry="http://ann:s3cret-4711@127.0.0.1:1")
    topics = [kdsl_topic(partitions=2), kdsl_topic(partitions=2)]

    diff = kdsl.diff([orders(name, name=f"T{i}", topic_partitions=3) for i, name in enumerate(topics)], far)

    assert [(d.mark, d.kind) for d in diff.differences] == [("~", "topic"), ("~", "topic"), ("?", "registry")]
    assert "does not answer" in diff.differences[-1].consequence
    assert "s3cret-4711" not in f"{diff} {diff!r}"


def test_one_subject_of_two_tables_is_one_line(kdsl_topic: MakeTopic, cluster: Cluster) -> None:
    topic, subject = kdsl_topic(), uuid.uuid4().hex
    same = {f"value_{FORMAT.replace('-', '__')}_subject": subject}

    difference = only(kdsl.diff([orders(topic, name=name, **same) for name in ("Orders", "Users")], cluster))

    assert difference.name == subject
