"""The model of logs does what three real brokers do, in random traces of elections with and without loss.

After each step the end of the log, its records, and what consumers that have read up to earlier ends are told must be
the same. Leader epochs are compared by their order.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal

import attrs
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from kdsl.cluster import Cluster
from kdsl.retry import Deadline, retry
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.testing import LocalKafka
from tests.simulation.broker import Broker
from tests.simulation.decisions import Decisions
from tests.simulation.environment import simulate_environment
from tests.simulation.reading_clients import Network, SimulatedConsumer
from tests.simulation.world import World

TOPIC = "t"
_CUT_OFF = re.compile(r"broker end offset is (-?\d+) \(offset leader epoch (-?\d+)\)")
_SETTINGS = {"enable.partition.eof": True, "auto.offset.reset": "error", "group.id": "g", "enable.auto.commit": False}
Position = tuple[int, int]
"""An offset, and the number of the leader that reported it."""


@attrs.frozen
class Step:
    """A step of a trace.

    Attributes:
        name: ``produce`` records, ``elect`` a leader that has all records, or ``cut_off``: elect one without the last.
        count: How many records are produced, or lost.
    """

    name: Literal["produce", "elect", "cut_off"]
    count: int


@attrs.frozen
class Seen:
    """What is seen after a step.

    Attributes:
        end: The end of the log.
        values: The values of its records.
        told: What consumers at earlier ends are told: ``record`` with a value, ``end``, or ``cut off`` with the end of
            their epoch, and the number of its leader.
    """

    end: int
    values: Sequence[bytes]
    told: Sequence[tuple[str, object]]


class Side:
    """The model, or real brokers.

    Args:
        connect: Creates a consumer.
        latest: Reads the end of the log, and the epoch of its leader.
    """

    def __init__(self, connect: Callable[[], Any], latest: Callable[[], tuple[int, int]]) -> None:
        self._connect, self._latest = connect, latest
        self._epochs: list[int] = []

    def latest(self) -> Position:
        """The end of the log, and the number of its leader."""
        end, epoch = self._latest()
        if epoch not in self._epochs:
            self._epochs.append(epoch)
        return end, self._epochs.index(epoch)

    def look(self, positions: Sequence[Position]) -> Seen:
        """See the log."""
        values, offset = [], 0
        while (answer := self._ask(offset, None))[0] == "record":
            values.append(answer[1])
            offset += 1
        return Seen(self.latest()[0], values, [self._ask(*position) for position in positions])

    def _ask(self, offset: int, leader: int | None) -> tuple[str, Any]:
        """What a consumer at a position is told."""
        consumer = self._connect()
        epoch = {} if leader is None else {"leader_epoch": self._epochs[leader]}
        consumer.assign([TopicPartition(TOPIC, 0, offset, **epoch)])
        try:
            while True:
                for message in consumer.consume(1, 1.0):
                    error = message.error()
                    if error is None:
                        return "record", message.value()
                    if error.code() == KafkaError._PARTITION_EOF:
                        return "end", message.offset()
                    if error.code() == KafkaError._AUTO_OFFSET_RESET:
                        found = _CUT_OFF.search(error.str())
                        if found is None:
                            return "refused", offset
                        end, cut = map(int, found.groups())
                        return "cut off", (end, self._epochs.index(cut))
        finally:
            consumer.close()


def run_model(seed: int, steps: int) -> list[tuple[Step, Sequence[Position], Seen]]:
    """Make random steps with the model; return each with the ends before it, and what is seen after it."""
    chance = random.Random(seed)
    trace: list[tuple[Step, Sequence[Position], Seen]] = []

    def run() -> None:
        world = World.current
        broker = Broker(world)
        Network(world, broker)
        broker.create_topic(TOPIC)
        log = broker.log((TOPIC, 0))
        side = Side(lambda: SimulatedConsumer({}), lambda: (log.end, log.epoch))
        positions: list[Position] = []
        for number in range(steps):
            names: tuple[Any, ...] = ("produce", "elect", "cut_off") if log.end else ("produce",)
            step = Step(chance.choice(names), chance.randint(1, 3))
            if step.name == "produce":
                broker.produce(TOPIC, [(0, None, b"%d-%d" % (number, one)) for one in range(step.count)])
            elif step.name == "elect":
                log.elect()
            else:  # what the old leader has alone
                broker.produce(TOPIC, [(0, None, b"%d-%d" % (number, one)) for one in range(step.count)])
                positions.append(side.latest())
                log.elect(step.count)
            before = tuple(positions)
            side.latest()
            trace.append((step, before, side.look(before)))
            positions.append(side.latest())

    with simulate_environment():
        World(Decisions(None)).run(run)
    return trace


class Brokers:
    """Three real brokers; two of them have the topic.

    Args:
        kafka: The brokers.
    """

    def __init__(self, kafka: LocalKafka) -> None:
        self._kafka = kafka
        self._admin = LibrdkafkaAdmin(Cluster(kafka.bootstrap_servers), "T")
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        topic = NewTopic(TOPIC, 1, replica_assignment=[[2, 3]], config=config)
        for future in kafka.admin().create_topics([topic]).values():
            future.result()
        self._wait(lambda _, replicas: replicas == [2, 3])

    def latest(self) -> tuple[int, int]:
        """The end of the log, and the epoch of its leader."""
        answer = self._admin.log_ends([(TOPIC, 0)], committed=False)[TOPIC, 0]
        assert answer.epoch is not None
        return answer.offset, answer.epoch

    def connect(self) -> Consumer:
        """Create a consumer."""
        return Consumer({"bootstrap.servers": self._kafka.bootstrap_servers, "log_level": 0, **_SETTINGS})

    def make(self, step: Step, number: int, before_loss: Callable[[], object]) -> None:
        """Make a step, and wait until both replicas have all records again."""
        leader, _ = self._wait(lambda leader, replicas: leader > 0 and replicas == [2, 3])
        other = 5 - leader
        if step.name == "produce":
            self._produce(step, number, "all")
        elif step.name == "elect":
            self._kafka.stop_broker(leader)
            self._wait(lambda now, _: now == other)
            self._kafka.start_broker(leader)
        else:
            self._kafka.stop_broker(other)
            self._wait(lambda now, replicas: (now, replicas) == (leader, [leader]))
            self._produce(step, number, "1")
            before_loss()
            self._kafka.kill(leader)
            self._kafka.start_broker(other)
            self._wait(lambda now, _: now == other)
            self._kafka.start_broker(leader)
        self._wait(lambda now, replicas: now > 0 and replicas == [2, 3])

    def _produce(self, step: Step, number: int, acks: str) -> None:
        producer = Producer({"bootstrap.servers": self._kafka.bootstrap_servers, "acks": acks, "log_level": 0})
        for one in range(step.count):
            producer.produce(TOPIC, b"%d-%d" % (number, one), partition=0)
        assert producer.flush(120) == 0

    def _wait(self, holds: Callable[[int, list[int]], bool]) -> tuple[int, list[int]]:
        """Wait for a leader and replicas in sync."""

        def look(_: float) -> tuple[int, list[int]]:
            partition = self._kafka.admin().list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.get(0)
            return (-1, []) if partition is None else (partition.leader, sorted(partition.isrs))

        answer = retry(look, lambda answer: holds(*answer), Deadline(180.0))
        assert holds(*answer), answer
        return answer


@pytest.mark.reliability
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(2))
def test_real_brokers_do_the_same(seed: int) -> None:
    trace = run_model(seed, 7)
    assert {step.name for step, _, _ in trace} == {"produce", "elect", "cut_off"}
    with LocalKafka(brokers=3, heap=256) as kafka:
        brokers = Brokers(kafka)
        side = Side(brokers.connect, brokers.latest)
        for number, (step, positions, expected) in enumerate(trace):
            side.latest()
            brokers.make(step, number, side.latest)
            side.latest()
            seen = retry(
                lambda _, positions=positions: side.look(positions),  # type: ignore[misc]
                lambda seen, expected=expected: seen == expected,  # type: ignore[misc]
                Deadline(60.0),
            )
            assert seen == expected, [one for one, _, _ in trace[: number + 1]]
