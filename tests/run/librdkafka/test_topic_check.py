"""Topics that are deleted and created again between the plan of a batch and its tasks, read as tasks read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pytest

from kdsl.cluster import Cluster
from kdsl.errors import KafkaReadError, TopicRecreatedError
from kdsl.run.librdkafka import fetch as fetching
from kdsl.run.librdkafka.options import write_options
from kdsl.run.librdkafka.read_task import PARALLELISM, Task
from kdsl.run.librdkafka.source import BatchReader, StreamReader
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.descriptions import hide_at_first
from tests.patience import do_not_wait_for_topics
from tests.run.read_plans import read_plan


@pytest.fixture(params=["batch", "stream"])
def read(request: pytest.FixtureRequest, kdsl_kafka: RunningKafka) -> Callable[[str], tuple[Sequence[Task], Read]]:
    cluster = Cluster(kdsl_kafka.bootstrap_servers)

    def plan(topic: str) -> tuple[Sequence[Task], Read]:
        settings = {**write_options(read_plan(topic), cluster), PARALLELISM: "1"}
        if request.param == "batch":
            batch = BatchReader(tuple(settings.items()))
            planned, rows = batch.partitions(), batch.read
        else:
            stream = StreamReader(tuple(settings.items()))
            start = stream.initialOffset()
            end = stream.latestOffset(start, stream.getDefaultReadLimit())
            planned, rows = stream.partitions(start, end), stream.read
        return [task for task in planned if isinstance(task, Task)], Read(rows)

    return plan


class Read:
    """The strings that a task gives; those that it gave before an error stay."""

    def __init__(self, read: Callable[[Task], Iterator[Any]]) -> None:
        self._read = read
        self.texts: list[str] = []

    def rows(self, task: Task) -> Iterator[list[str]]:
        for batch in self._read(task):
            values = batch.column("text").to_pylist()
            self.texts += values
            yield values

    def all(self, tasks: Iterable[Task]) -> list[str]:
        for task in tasks:
            list(self.rows(task))
        return self.texts


def recreate(kafka: RunningKafka, topic: str, *records: str) -> tuple[str, str]:
    old = kafka.topic_id(topic)
    kafka.delete_topic(topic)
    kafka.create_topic(topic)
    kafka.produce(topic, *records)
    return old, kafka.topic_id(topic)


@pytest.mark.parametrize("again", [False, True], ids=["new consumer", "kept consumer"])
@pytest.mark.parametrize("records", [2, 200], ids=["fewer records", "more records"])
def test_a_topic_that_is_created_again_after_planning_is_refused_with_both_ids_and_returns_no_record(
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    read: Callable[[str], tuple[Sequence[Task], Read]],
    again: bool,
    records: int,
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *(f"old-{n}" for n in range(100)))
    tasks, reading = read(topic)
    if again:
        assert len(reading.all(tasks)) == 100
    tasks, reading = read(topic)

    old, new = recreate(kdsl_kafka, topic, *(f"NEW-{n}" for n in range(records)))

    with pytest.raises(TopicRecreatedError) as raised:
        reading.all(tasks)
    assert f"for id {old}, the topic now has id {new}" in str(raised.value)
    assert reading.texts == []


def test_a_topic_that_is_created_again_between_two_batches_of_a_task_returns_nothing_more(
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    read: Callable[[str], tuple[Sequence[Task], Read]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "CHUNK_RECORDS", 10)
    monkeypatch.setattr(fetching, "BATCH_RECORDS", 10)
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, *(f"old-{n}" for n in range(100)))
    (task,), reading = read(topic)
    rows = reading.rows(task)
    first = next(rows)

    old, new = recreate(kdsl_kafka, topic, *(f"NEW-{n}" for n in range(200)))

    with pytest.raises(TopicRecreatedError, match=re.escape(f"for id {old}, the topic now has id {new}")):
        list(rows)
    assert reading.texts == first


def test_a_deleted_topic_is_an_error(
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    read: Callable[[str], tuple[Sequence[Task], Read]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "a")
    (task,), reading = read(topic)
    assert list(reading.rows(task)) == [["a"]]
    kdsl_kafka.delete_topic(topic)

    do_not_wait_for_topics(monkeypatch)
    with pytest.raises(KafkaReadError, match=r"gone|deleted"):
        list(reading.rows(task))
    assert reading.texts == ["a"]


def test_a_broker_that_does_not_know_a_new_topic_yet_does_not_fail_its_task(
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    read: Callable[[str], tuple[Sequence[Task], Read]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """When brokers learn of a topic cannot be chosen, so the first answer is replaced by the one of such a broker."""
    topic = kdsl_topic()
    kdsl_kafka.produce(topic, "a", "b")
    tasks, reading = read(topic)
    questions = hide_at_first(monkeypatch)

    assert reading.all(tasks) == ["a", "b"]
    assert len(questions) > 1
