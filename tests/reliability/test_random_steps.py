"""Fifty random steps: S23."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest

from kdsl.cluster import Cluster
from kdsl.errors import TopicMissingError
from kdsl.plan.model import ReadPlan
from kdsl.run.librdkafka.stream import Limits
from kdsl.testing import Record, RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.run.read_plans import Query, fetch, read_plan, sort_strings

STEPS = 50


class Steps:
    """A query over a set of topics that changes, driven as Spark drives it; and what was sent and read."""

    def __init__(self, kafka: RunningKafka, topic: MakeTopic, seed: int) -> None:
        self._kafka, self._topic, self._random = kafka, topic, random.Random(seed)
        self._cluster = Cluster(kafka.bootstrap_servers)
        self._partitions: dict[str, int] = {}
        self.sent: dict[str, list[str]] = {}
        self.read: list[str] = []
        self.new_topic()
        self._query = Query(self._plan(), self._cluster)

    def _plan(self) -> ReadPlan:
        return read_plan(*sorted(self._partitions), discovery=timedelta(0))

    def _any(self) -> str:
        return self._random.choice(sorted(self._partitions))

    def data(self) -> None:
        topic = self._any()
        sent = self.sent[topic]
        new = [f"{topic}/{len(sent) + n}" for n in range(self._random.randint(1, 30))]
        partitions = [self._random.randrange(self._partitions[topic]) for _ in new]
        self._kafka.produce(
            topic, *(Record(text, partition=partition) for text, partition in zip(new, partitions, strict=True))
        )
        sent += new

    def new_topic(self) -> None:
        topic = self._topic("random", partitions=self._random.randint(1, 3))
        self._partitions[topic] = len(self._kafka.start_offsets(topic))
        self.sent[topic] = []
        if len(self._partitions) > 1:
            self._query.restart(self._plan())

    def delete_topic(self) -> None:
        """What it still held is lost: the query must say so, and goes on when the table does not name it any more."""
        if len(self._partitions) < 2:
            return
        topic = self._any()
        self.batch()
        self._kafka.delete_topic(topic)
        with pytest.raises(TopicMissingError, match=f"'{topic}'"):
            self.batch()
        del self._partitions[topic], self.sent[topic]
        self._query.restart(self._plan())

    def add_partitions(self) -> None:
        topic = self._any()
        self._partitions[topic] += self._random.randint(1, 2)
        self._kafka.add_partitions(topic, self._partitions[topic])

    def restart(self) -> None:
        self._query.restart()

    def die(self) -> None:
        """A batch is planned, the process dies, more comes, and the batch is planned again: alike."""
        planned = self._query.plan_batch(Limits(max_records=20))
        if planned is None:
            return
        self.data()
        self._query.restart()
        assert self._query.replay() == planned
        self.read += sort_strings(fetch(self._query.plan, self._cluster, planned))

    def batch(self) -> None:
        self.read += sort_strings(self._query.batch(Limits(max_records=self._random.choice([3, 20, None]))))

    def drain(self) -> None:
        while (rows := self._query.batch()) is not None:
            self.read += sort_strings(rows)

    def step(self) -> None:
        kinds = {
            self.data: 8, self.batch: 6, self.die: 3, self.restart: 2, self.add_partitions: 2, self.new_topic: 1,
            self.delete_topic: 1,
        }  # fmt: skip
        self._random.choices(list(kinds), list(kinds.values()))[0]()


@pytest.mark.reliability
@pytest.mark.parametrize("seed", range(6))
def test_each_record_of_the_surviving_topics_is_read_once(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, seed: int
) -> None:
    """S23. Data, new topics, deleted topics, partitions, stops, and deaths in a planned batch, at random."""
    steps = Steps(kdsl_kafka, kdsl_topic, seed)

    for _ in range(STEPS):
        steps.step()
    steps.drain()

    wanted = sorted(text for texts_of in steps.sent.values() for text in texts_of)
    read = sorted(text for text in steps.read if text.rpartition("/")[0] in steps.sent)
    assert read == wanted
