"""What a letter says of its record: the identity of the record, and how late its row may be."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from kdsl.cluster import Cluster
from kdsl.diagnostics.dead_letters import read_letters
from kdsl.errors import DeadLetterError
from kdsl.plan.model import DeadLetterTopic, ReadPlan, Topics, Watermark
from kdsl.run.librdkafka.letter_writer import LetterWriter
from kdsl.run.librdkafka.options import write_options
from kdsl.run.librdkafka.read_task import PARALLELISM
from kdsl.run.librdkafka.source import StreamReader
from kdsl.run.librdkafka.topic_ids import TopicIds
from kdsl.run.records.metadata import HEADERS
from kdsl.run.records.rejections import Rejection
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types import model as t
from tests.run.read_plans import batch, part, read_plan

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


@pytest.mark.parametrize("sends", [False, True])
def test_letters_that_are_not_sent_need_no_client_and_count_for_the_limit(sends: bool) -> None:
    plan = ReadPlan("T", Topics(("t",)), EMPTY, EMPTY, dead_letters=DeadLetterTopic("dead", 1))
    timeouts = {"delivery.timeout.ms": "200", "request.timeout.ms": "100", "linger.ms": "0"}
    nobody = Cluster("127.0.0.1:9", properties=timeouts)

    def reject(count: int) -> int:
        with LetterWriter(plan, nobody, "read", "task", topics=TopicIds(None, {"t": "x"}), sends=sends) as writer:
            writer(records("t", [5] * count), [Rejection(i, "bad") for i in range(count)])
        return writer.count

    if sends:
        with pytest.raises(DeadLetterError, match="cannot write a dead letter"):
            reject(1)
        return
    assert reject(1) == 1
    with pytest.raises(DeadLetterError, match="2 records could not be read, and the limit of dead letters is 1"):
        reject(2)


@pytest.mark.parametrize("batch_reads", [False, True])
def test_actions_of_a_batch_read_send_letters_only_if_they_are_asked_for_and_streams_always(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, batch_reads: bool
) -> None:
    topic, dead = kdsl_topic(), kdsl_topic("dead")
    kdsl_kafka.produce(topic, '{"id":1}', "bad", '{"id":2}')
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    letters = DeadLetterTopic(dead, batch_reads=batch_reads)
    plan = read_plan(topic, value=part("json", {"id": "INT"}), dead_letters=letters)

    def ids(of: Iterable[Any]) -> list[int]:
        return [row["id"] for rows in of for row in rows.to_pylist()]

    for actions in (1, 2):
        assert [row["id"] for row in batch(plan, cluster)] == [1, 2]
        assert len(kdsl_kafka.read(dead)) == (actions if batch_reads else 0)
    options = {**write_options(plan, cluster), PARALLELISM: "1"}
    reader = StreamReader(tuple(options.items()))
    start = reader.initialOffset()
    (task,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    assert ids(reader.read(task)) == [1, 2]
    assert len(kdsl_kafka.read(dead)) == (3 if batch_reads else 1)
