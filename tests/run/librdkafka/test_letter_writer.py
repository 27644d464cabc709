"""What a letter says of its record: the identity of the record, and how late its row may be."""

from __future__ import annotations

from typing import Any

import attrs
import pyarrow as pa
import pytest

from kdsl.cluster import Cluster
from kdsl.diagnostics.dead_letters import read_letters
from kdsl.plan.model import DeadLetterTopic, ReadPlan, Topics, Watermark
from kdsl.run.dead_letters.model import Rejection
from kdsl.run.librdkafka.letter_writer import LetterWriter
from kdsl.run.librdkafka.topic_check import TopicIds
from kdsl.run.records.metadata import HEADERS
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types import model as t

EMPTY = t.Row((), nullable=False)


def records(topic: str, times: list[int]) -> pa.RecordBatch:
    count = len(times)
    values: dict[str, Any] = {
        "topic": pa.array([topic] * count),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
        "timestamp": pa.array(times, pa.int64()),
        "key": pa.array([b"k"] * count, pa.binary()),
        "value": pa.array([b"bad"] * count, pa.binary()),
        "headers": pa.array([[]] * count, HEADERS),
    }
    return pa.RecordBatch.from_pydict(values)


def write(kafka: RunningKafka, dead: str, batch: pa.RecordBatch, topics: TopicIds, **options: Any) -> Any:
    plan = ReadPlan("T", Topics(("t",)), EMPTY, EMPTY, dead_letters=DeadLetterTopic(dead), **options)
    cluster = Cluster(kafka.bootstrap_servers)
    with LetterWriter(plan, cluster, "read", "task", topics=topics) as writer:
        writer(batch, [Rejection(i, "bad") for i in range(batch.num_rows)])
    return sorted(read_letters(cluster, dead), key=lambda letter: letter.offset)


@pytest.mark.parametrize("planned", [True, False])
def test_a_letter_has_the_identity_of_its_record(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, planned: bool
) -> None:
    topic, dead = kdsl_topic(), kdsl_topic("dead")
    topics = TopicIds.of(Cluster(kdsl_kafka.bootstrap_servers))
    topics = attrs.evolve(topics, cluster=None, planned={topic: "planned-id"}) if planned else topics

    letters = write(kdsl_kafka, dead, records(topic, [1_000, -1, 0]), topics)

    id_ = "planned-id" if planned else kdsl_kafka.topic_id(topic)
    assert [letter.id for letter in letters] == [
        f"{topic}-0-0@1000@{id_}",
        f"{topic}-0-1@-1@{id_}",
        f"{topic}-0-2@0@{id_}",
    ]
    assert {letter.topic_id for letter in letters} == {id_}


def test_a_topic_without_an_id_leaves_place_and_time(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    dead = kdsl_topic("dead")

    (letter,) = write(kdsl_kafka, dead, records("gone", [5]), TopicIds.of(Cluster(kdsl_kafka.bootstrap_servers)))

    assert (letter.id, letter.topic_id) == ("gone-0-0@5", "")


def test_a_letter_says_how_late_a_row_may_be(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic) -> None:
    latenesses = []
    for options in ({}, {"watermark": Watermark("at", "5 seconds")}):
        (letter,) = write(kdsl_kafka, kdsl_topic("dead"), records("t", [5]), TopicIds(), **options)
        latenesses.append(letter.lateness)

    assert latenesses == [None, 5_000]
