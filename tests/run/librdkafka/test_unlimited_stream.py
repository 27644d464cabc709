"""Streams on a Spark before 4.2, which asks for the end of a batch without its start; driven as that Spark does."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from kdsl.cluster import Cluster
from kdsl.errors import KdslError, TopicRecreatedError
from kdsl.resolve.model import Start
from kdsl.run.librdkafka.options import write_options
from kdsl.run.librdkafka.read_task import PARALLELISM, Task
from kdsl.run.librdkafka.source import UnlimitedStreamReader
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.read_plans import read_plan


class OldSpark:
    """A query of Spark 4.1: its checkpoint, and the reader of its present run."""

    def __init__(self, topic: str, cluster: Cluster, **plan: Any) -> None:
        self.options = tuple({**write_options(read_plan(topic, **plan), cluster), PARALLELISM: "2"}.items())
        self.planned: list[str] = []
        self.committed = 0
        self.names_end = True
        self.restart()

    def restart(self) -> None:
        """Start a new run; a batch that was planned and not committed is planned again.

        Spark names the last end of the checkpoint first (``AcceptsLatestSeenOffset``).
        """
        self.reader = UnlimitedStreamReader(self.options)
        if self.planned and self.names_end:
            end = json.loads(self.planned[-1])
            assert not self.reader.partitions(end, end)

    def plan(self) -> list[tuple[int, int]] | None:
        """Plan the next batch; the offsets that it reads, or None if there is nothing new."""
        if self.committed == len(self.planned):
            end = json.dumps(self.reader.latestOffset())
            if self.planned and end == self.planned[-1]:
                return None
            self.planned.append(end)
        index = len(self.planned) - 1
        start = json.loads(self.planned[index - 1]) if index else self.reader.initialOffset()
        tasks: Sequence[Any] = self.reader.partitions(start, json.loads(self.planned[index]))
        tasks = pickle.loads(pickle.dumps(tasks))
        return [(r.start, r.end) for task in tasks if isinstance(task, Task) for r in task.ranges]

    def batch(self) -> list[tuple[int, int]] | None:
        """Plan the next batch, and commit it."""
        ranges = self.plan()
        self.committed = len(self.planned)
        return ranges


Produce = Callable[[str], object]
Begin = Callable[..., OldSpark]


@pytest.fixture
def topic(kdsl_topic: MakeTopic) -> str:
    return kdsl_topic()


@pytest.fixture
def produce(kdsl_kafka: RunningKafka, topic: str) -> Produce:
    """Puts records into the topic, one for each letter."""
    return lambda letters: kdsl_kafka.produce(topic, *letters)


@pytest.fixture
def begin(kdsl_kafka: RunningKafka, topic: str) -> Begin:
    """Begins a query over the topic."""
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    return lambda **plan: OldSpark(topic, cluster, **plan)


def test_it_reads_what_is_there_and_then_what_comes(produce: Produce, begin: Begin) -> None:
    produce("abc")
    query = begin()

    assert query.batch() == [(0, 3)]
    assert query.batch() is None
    produce("d")
    assert query.batch() == [(3, 4)]


def test_a_restart_continues_where_it_was(produce: Produce, begin: Begin) -> None:
    produce("abc")
    query = begin()
    query.batch()
    query.restart()
    assert query.batch() is None
    produce("de")
    query.restart()
    assert query.batch() == [(3, 5)]
    produce("f")
    assert query.batch() == [(5, 6)]


def test_a_batch_that_was_cut_off_is_the_same_again(produce: Produce, begin: Begin) -> None:
    produce("abc")
    query = begin()
    query.batch()
    produce("de")
    assert query.plan() == [(3, 5)]
    produce("f")
    query.restart()
    assert query.batch() == [(3, 5)]
    assert query.batch() == [(5, 6)]


def test_the_first_batch_is_the_same_again_though_its_start_would_be_another_now(
    produce: Produce, begin: Begin
) -> None:
    produce("abc")
    query = begin(start=Start("latest"))
    assert query.plan() == []
    produce("de")
    query.restart()  # the latest offset is 5 now, and was 3
    assert query.batch() == []
    assert query.batch() == [(3, 5)]


def test_later_batches_have_the_limits(produce: Produce, begin: Begin) -> None:
    produce("abcd")
    query = begin(max_records=2)
    assert query.batch() == [(0, 4)]
    produce("efg")
    assert [query.batch(), query.batch(), query.batch()] == [[(4, 6)], [(6, 7)], None]
    produce("hij")
    query.restart()
    assert query.batch() == [(7, 10)]


def test_a_spark_that_does_not_name_the_last_end_is_an_error(produce: Produce, begin: Begin) -> None:
    produce("ab")
    query = begin()
    query.batch()
    query.names_end = False
    query.restart()
    produce("c")

    with pytest.raises(KdslError, match=r"^Orders: Spark did not say where .* use Spark 4\.2 or newer$"):
        query.batch()


def test_the_reader_can_be_pickled_with_its_options_alone(begin: Begin) -> None:
    reader = begin().reader
    reader.initialOffset()

    assert vars(pickle.loads(pickle.dumps(reader))) == vars(UnlimitedStreamReader(reader._options))


def test_a_topic_that_was_created_again_is_an_error(
    kdsl_kafka: RunningKafka, topic: str, produce: Produce, begin: Begin
) -> None:
    produce("ab")
    query = begin()
    query.batch()
    kdsl_kafka.delete_topic(topic)
    kdsl_kafka.create_topic(topic)
    produce("abc")
    query.restart()

    with pytest.raises(TopicRecreatedError):
        query.batch()


def test_a_partition_that_came_between_two_runs_is_read_from_its_first_record(
    kdsl_kafka: RunningKafka, topic: str, produce: Produce, begin: Begin
) -> None:
    produce("ab")
    query = begin(start=Start("latest"))
    query.batch()
    kdsl_kafka.add_partitions(topic, 2)
    kdsl_kafka.produce(topic, Record("c", partition=1), Record("d", partition=0))
    query.restart()

    assert query.batch() == [(2, 3), (0, 1)]
