"""The model of Kafka's transactions and groups does what a real broker does, in random traces.

A trace is first run with the model, which decides what is possible next. Then the same steps are made with kdsl's
own producers on a real broker, and after each the ends of the log, the last stable offset, what readers of committed
records find, and the tokens must be the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Literal

import attrs
import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from kdsl.cluster import Cluster
from kdsl.retry import Deadline, retry
from kdsl.run.admin.group_offsets import GroupOffsets
from kdsl.run.librdkafka.producer import ProducerError
from kdsl.run.librdkafka.transactions.producer import FENCED, TransactionalProducer
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.simulation.broker import Broker
from tests.simulation.coordinator import Coordinator
from tests.simulation.decisions import Decisions
from tests.simulation.environment import simulate_environment
from tests.simulation.transactional_client import SimulatedGroupOffsets, SimulatedProducer, client_substitutes
from tests.simulation.world import World

STEPS = 40
IDS = ("a", "b")
Name = Literal["acquire", "begin", "send", "token", "commit", "abort", "delete"]


@attrs.frozen
class Step:
    """A step of a trace.

    Attributes:
        name: What is done.
        producer: The number of the producer that does it; those of an id that was acquired again are fenced.
        id: The transactional id.
        value: The number that is sent or stored, or before which records are deleted.
    """

    name: Name
    producer: int
    id: str = ""
    value: int = 0


@attrs.frozen
class Seen:
    """What others see after a step.

    Attributes:
        outcome: ``ok``, ``fenced``, or the name of another error.
        start: The first offset of the log.
        end: Its end.
        stable: The last stable offset.
        values: The values that are read as committed.
        tokens: The offset and the metadata of each id's token, as far as it is committed.
        unstable: The ids whose token may change when a transaction ends.
    """

    outcome: str
    start: int
    end: int
    stable: int
    values: tuple[bytes, ...]
    tokens: tuple[tuple[str, int, str], ...]
    unstable: tuple[str, ...]


class Side:
    """The model, or a real broker.

    Args:
        create: Creates a producer for a transactional id.
        offsets: Reads the offsets of groups.
        topic: The topic.
        prefix: What the ids begin with.
    """

    def __init__(
        self, create: Callable[[str], TransactionalProducer], offsets: Any, topic: str, prefix: str = ""
    ) -> None:
        self._create, self._offsets, self._topic, self._prefix = create, offsets, topic, prefix
        self._producers: dict[int, TransactionalProducer] = {}

    def make(self, step: Step) -> str:
        """Make a step of a producer, and return its outcome."""
        try:
            if step.name == "acquire":
                self._producers[step.producer] = self._create(self._prefix + step.id)
                self._producers[step.producer].init(60)
            else:
                self._continue(self._producers[step.producer], step)
        except ProducerError as e:
            fenced = e.code in FENCED or e.code == KafkaError._FENCED
            return "fenced" if fenced else KafkaError(e.code).name()
        return "ok"

    def _continue(self, producer: TransactionalProducer, step: Step) -> None:
        if step.name == "begin":
            producer.begin()
        elif step.name == "send":
            record = {"key": pa.array([b"k"], pa.binary()), "value": pa.array([b"%d" % step.value], pa.binary())}
            producer.send(self._topic, pa.RecordBatch.from_pydict(record), np.zeros(1, np.int64))
            producer.flush()
            if producer.failure is not None:
                raise ProducerError(producer.failure.reason, producer.failure.code)
        elif step.name == "token":
            producer.send_token(producer.id, self._topic, step.value, f"text {step.value}", 60)
        elif step.name == "commit":
            producer.commit(60)
        else:
            producer.abort(60)

    def close(self) -> None:
        """Close all producers."""
        for producer in self._producers.values():
            producer.abandon()

    def tokens(self) -> tuple[tuple[tuple[str, int, str], ...], tuple[str, ...]]:
        """The tokens of the ids, and the ids whose token may change when a transaction ends."""
        tokens, unstable = [], []
        for id_ in IDS:
            _, offsets = self._offsets.read(self._prefix + id_, 10.0, stable=False)
            tokens += [(id_, offset, text) for _, offset, text in offsets]
            code, _ = self._offsets.read(self._prefix + id_, 10.0, stable=True)
            if code == KafkaError.UNSTABLE_OFFSET_COMMIT:
                unstable.append(id_)
        return tuple(tokens), tuple(unstable)


def run_model(seed: int) -> list[tuple[Step, Seen]]:
    """Make random steps with the model, and return them with what is seen after each."""
    chance = random.Random(seed)
    trace: list[tuple[Step, Seen]] = []

    def run() -> None:
        world = World.current
        broker = Broker(world)
        broker.create_topic("t", 1)
        Coordinator(world, broker)
        side = Side(create_simulated, SimulatedGroupOffsets(None), "t")
        states: dict[int, str] = {}
        ids: dict[int, str] = {}
        for number in range(STEPS):
            step = choose_step(chance, states, ids, number, broker.log(("t", 0)).last_stable)
            if step.name == "delete":
                broker.log(("t", 0)).delete_before(step.value)
                outcome = "ok"
            else:
                outcome = side.make(step)
                note_state(step, outcome, states)
            log = broker.log(("t", 0))
            values = tuple(r.value or b"" for r in log.read(log.start, log.end, committed=True))
            trace.append((step, Seen(outcome, log.start, log.end, log.last_stable, values, *side.tokens())))

    with simulate_environment(client_substitutes()):
        World(Decisions(None)).run(run)
    return trace


def create_simulated(id_: str) -> TransactionalProducer:
    """Create a producer of the model."""
    return SimulatedProducer({"transactional.id": id_, "transaction.timeout.ms": "600000"})


def choose_step(chance: random.Random, states: dict[int, str], ids: dict[int, str], number: int, stable: int) -> Step:
    """Choose a step that the client allows: it refuses others by itself."""
    possible = [Step("acquire", number, chance.choice(IDS))]
    for producer, state in states.items():
        if state == "ready":
            possible += [Step("begin", producer)] * 3
        elif state == "open":
            possible += [Step("send", producer, value=number)] * 3
            possible += [Step("token", producer, value=number), Step("commit", producer), Step("abort", producer)] * 2
    if stable:
        possible.append(Step("delete", -1, value=chance.randint(1, stable)))
    step = chance.choice(possible)
    if step.name == "acquire":
        ids[step.producer] = step.id
    return step


def note_state(step: Step, outcome: str, states: dict[int, str]) -> None:
    """Note what a producer can do after a step; one that has failed does nothing more."""
    if outcome != "ok":
        states.pop(step.producer, None)
    else:
        states[step.producer] = "open" if step.name in ("begin", "send", "token") else "ready"


@pytest.mark.kafka
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.reliability) for seed in range(1, 12))])
def test_a_real_broker_does_the_same(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, seed: int) -> None:
    trace = run_model(seed)
    assert {step.name for step, _ in trace} >= {"acquire", "begin", "send", "commit"}
    topic, cluster = kdsl_topic(), Cluster(kdsl_kafka.bootstrap_servers)
    settings = {"transaction.timeout.ms": "600000"}

    def create(id_: str) -> TransactionalProducer:
        return TransactionalProducer(cluster.producer({"transactional.id": id_, **settings}))

    side = Side(create, GroupOffsets(cluster), topic, f"{topic}-")
    try:
        for number, (step, expected) in enumerate(trace):
            if step.name == "delete":
                kdsl_kafka.delete_records(topic, {0: step.value})
                outcome = "ok"
            else:
                outcome = side.make(step)
            seen = retry(
                lambda _, outcome=outcome: look(kdsl_kafka, topic, side, outcome),  # type: ignore[misc]
                lambda seen, expected=expected: seen == expected,  # type: ignore[misc]
                Deadline(60.0),
            )
            assert seen == expected, [step for step, _ in trace[: number + 1]]
    finally:
        side.close()


def look(kafka: RunningKafka, topic: str, side: Side, outcome: str) -> Seen:
    """See what others see."""
    start, end = kafka.start_offsets(topic)[0], kafka.end_offsets(topic)[0]
    stable = kafka.end_offsets(topic, committed=True)[0]
    values = tuple(message.value() or b"" for message in kafka.read(topic))
    return Seen(outcome, start, end, stable, values, *side.tokens())
