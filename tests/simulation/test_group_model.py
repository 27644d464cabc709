"""The model of groups does what a real broker does, in random traces of members that join, leave, die and hang.

The members are those of leases. A trace is first run with the model; then real members in processes of their own do the
same, and after each step the members, the committed offsets and what a commit of a stranger gets must be the same.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

import attrs
import pytest

from kdsl.cluster import Cluster
from kdsl.errors import KdslError
from kdsl.retry import Deadline, retry
from kdsl.run.admin.librdkafka_admin import LibrdkafkaAdmin
from kdsl.run.leases import lease
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from tests.simulation.broker import Broker
from tests.simulation.coordinator import SESSION, Coordinator, CoordinatorError
from tests.simulation.decisions import Decisions
from tests.simulation.environment import simulate_environment
from tests.simulation.scenario_leases import _Consumer, _outage, _substitutes
from tests.simulation.world import Process, World

GROUP = "group"
CLIENTS = ("a", "b", "c")
Name = Literal["join", "leave", "kill", "hang", "commit"]
_HEARTBEAT = SESSION / 4

_MEMBER = """
import sys
from kdsl.cluster import Cluster
from kdsl.run.leases import lease

lease.uuid = type("Ids", (), {"uuid4": staticmethod(lambda: type("Id", (), {"hex": ""}))})
servers, group, client = sys.argv[1:]
member = lease._Membership(Cluster(servers), group, client, ["__consumer_offsets"])
sys.stdin.read()
member.leave()
"""
"""A process with a member of a lease: it leaves when its input ends."""


@attrs.frozen
class Step:
    """A step of a trace.

    Attributes:
        name: What a member does; ``hang`` for longer than its session. ``commit`` is a stranger's.
        client: The client.
        value: The offset that is committed.
    """

    name: Name
    client: str = ""
    value: int = 0


@attrs.frozen
class Seen:
    """What is seen when a step has had all its effects.

    Attributes:
        outcome: ``ok`` or ``refused``, of a commit.
        members: The members: the client, and how many ids it has had.
        offset: The committed offset; None without one.
        listed: Whether the group is listed.
    """

    outcome: str
    members: tuple[tuple[str, int], ...]
    offset: int | None
    listed: bool


class Ids:
    """Counts the ids that clients have had."""

    def __init__(self) -> None:
        self._ids: dict[str, list[str]] = {}

    def count(self, client: str, id_: str) -> tuple[str, int]:
        """The client, and how many ids it has had until this one."""
        ids = self._ids.setdefault(client, [])
        if id_ not in ids:
            ids.append(id_)
        return client, ids.index(id_) + 1


def run_model(seed: int, steps: int) -> list[tuple[Step, Seen]]:
    """Make random steps with the model, and return them with what is seen after each."""
    chance = random.Random(seed)
    trace: list[tuple[Step, Seen]] = []

    def run() -> None:
        world, ids, processes = World.current, Ids(), dict[str, Process]()
        broker = Broker(world)
        broker.create_topic("t")
        coordinator = Coordinator(world, broker)
        for number in range(steps):
            free = [client for client in CLIENTS if client not in processes]
            possible = [Step("commit", value=number + 1)] * 2 + [Step("join", one) for one in free]
            possible += [Step(name, one) for one in processes for name in ("leave", "kill", "hang")]  # type: ignore[arg-type]
            step = chance.choice(possible)
            outcome = make_in_model(step, processes)
            world.sleep(4 * SESSION)
            members = sorted(ids.count(one.client, one.id) for one in coordinator.members(GROUP))
            offset = coordinator.read_positions(GROUP).get(("t", 0))
            trace.append((step, Seen(outcome, tuple(members), offset, GROUP in coordinator.list_groups())))

    with simulate_environment(_substitutes()):
        World(Decisions(None)).run(run)
    return trace


def make_in_model(step: Step, processes: dict[str, Process]) -> str:
    """Make a step with the model; return its outcome."""
    world, coordinator = World.current, Coordinator.current
    match step.name:
        case "join":
            process = processes[step.client] = Process(step.client)
            process.values["leaves"] = False

            def poll() -> None:
                consumer = _Consumer({"group.id": GROUP, "client.id": step.client})
                while not process.values["leaves"]:
                    consumer.poll(0.2)
                consumer.close()

            world.spawn(process, "member", poll)
        case "leave":
            processes.pop(step.client).values["leaves"] = True
        case "kill":
            world.kill(processes.pop(step.client))
        case "hang":
            outage = _outage(processes[step.client])
            outage.since, outage.until = world.now, world.now + 2 * SESSION
        case "commit":
            try:
                coordinator.commit(GROUP, {("t", 0): step.value})
            except CoordinatorError:
                return "refused"
    return "ok"


@contextmanager
def members(kafka: RunningKafka, group: str) -> Iterator[tuple[Callable[[Step], None], dict[str, subprocess.Popen[bytes]]]]:
    """Members in processes of their own; what is yielded makes their steps."""
    processes: dict[str, subprocess.Popen[bytes]] = {}

    def make(step: Step) -> None:
        match step.name:
            case "join":
                arguments = [sys.executable, "-c", _MEMBER, kafka.bootstrap_servers, group, step.client]
                processes[step.client] = subprocess.Popen(arguments, stdin=subprocess.PIPE)
            case "leave":
                processes.pop(step.client).communicate()
            case "kill":
                process = processes.pop(step.client)
                process.kill()
                process.communicate()
            case "hang":
                processes[step.client].send_signal(signal.SIGSTOP)

    try:
        yield make, processes
    finally:
        for process in processes.values():
            process.kill()
            process.communicate()


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("seed", "steps"), [(0, 5), *(pytest.param(seed, 16, marks=pytest.mark.reliability) for seed in range(1, 6))]
)
def test_a_real_broker_does_the_same(kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, seed: int, steps: int) -> None:
    trace = run_model(seed, steps)
    topic, cluster, ids = kdsl_topic(), Cluster(kdsl_kafka.bootstrap_servers), Ids()
    group, admin = f"group-{topic}", LibrdkafkaAdmin(cluster, "T")

    def clients() -> set[str]:
        return {one.client.rstrip("-") for one in admin.members(group)}

    def look(outcome: str) -> Seen:
        found = sorted(ids.count(one.client.rstrip("-"), one.id) for one in admin.members(group))
        offset = admin._group_offsets(group, None).get((topic, 0))
        return Seen(outcome, tuple(found), offset, group in admin.groups())

    with members(kdsl_kafka, group) as (make, processes):
        for number, (step, expected) in enumerate(trace):
            outcome, begun = "ok", time.monotonic()
            if step.name == "commit":
                try:
                    admin.commit(group, {(topic, 0): step.value})
                except KdslError:
                    outcome = "refused"
            make(step)
            if step.name in ("kill", "hang"):  # the brokers wait for the session
                assert step.client not in retry(lambda _: clients(), lambda found: step.client not in found, Deadline(120.0))  # type: ignore[misc]  # noqa: B023
                assert time.monotonic() - begun > SESSION - 2 * _HEARTBEAT
            if step.name == "hang":
                processes[step.client].send_signal(signal.SIGCONT)
            seen = retry(
                lambda _, outcome=outcome: look(outcome),  # type: ignore[misc]
                lambda seen, expected=expected: seen == expected,  # type: ignore[misc]
                Deadline(120.0),
            )
            assert seen == expected, [one for one, _ in trace[: number + 1]]


def test_the_model_has_the_session_of_leases() -> None:
    assert SESSION == lease.SESSION
