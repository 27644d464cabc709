"""Leases: several processes want one, and are cut off from the brokers, killed, or slow to leave."""

from __future__ import annotations

import atexit
import logging
from types import SimpleNamespace
from typing import Any

import attrs
from confluent_kafka import KafkaError, KafkaException

from kdsl import retry
from kdsl.errors import KdslError, LeaseHeldError
from kdsl.run.leases import lease
from kdsl.run.leases.group import acquire_group_lease
from kdsl.run.leases.lease import Lease, lease_loss, transactions_lease
from tests.simulation import coordinator
from tests.simulation.broker import Broker
from tests.simulation.coordinator import Coordinator
from tests.simulation.environment import PerProcess
from tests.simulation.scenario import Scenario, Substitutes
from tests.simulation.transactional_client import SimulatedCluster, client_substitutes
from tests.simulation.world import Actor, Killed, Process, ViolationError, World

_GROUP = "group"
_PLAN: Any = SimpleNamespace(group_id=_GROUP, table="Orders", topics=SimpleNamespace(names=("out",)))
_NAME = transactions_lease("p")
_CLUSTER: Any = SimulatedCluster()
_TO_NOTICE = 90.0
"""How many seconds after it can reach the brokers again a process must know that it has lost its lease."""


class _Consumer:
    """A member of a group, which gives signs of life until its process dies or is cut off.

    Attributes:
        cut_off: Until when the process cannot reach the brokers.
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        self._group, self._client = settings["group.id"], settings["client.id"]
        self._id = ""
        self._polls, self._polled = 0, 0.0
        self.process = World.current.process

    def subscribe(self, topics: object, **_: object) -> None:
        del topics

    def assign(self, partitions: object) -> None:
        del partitions

    def memberid(self) -> str:
        return self._id

    def poll(self, timeout: float) -> None:
        """Wait a second, or for as long as the process is cut off."""
        del timeout
        world, current = World.current, Coordinator.current
        outage = _outage(self.process)
        if world.now < outage.until:
            world.sleep(outage.until - world.now)
        world.step("poll")
        self._polled = world.now
        if not self._id or not current.is_member(self._group, self._client, self._id):
            if not world.calm and world.decisions.happens(0.02):
                raise KafkaException(KafkaError(KafkaError._TRANSPORT))
            self._id = current.join(self._group, self._client, self._last_sign)
            self._polls = 0
        self._polls += 1
        world.sleep(0.2 if self._polls < 5 else 1.0)

    def _last_sign(self, joined: float) -> float:
        """When the client, which joined at some time, gave its last sign of life."""
        world, outage = World.current, _outage(self.process)
        if not self.process.alive:
            return self._polled
        length = min(outage.until, world.now) - outage.since
        return outage.since if outage.since >= joined and length > coordinator.SESSION else world.now

    def close(self) -> None:
        World.current.step("leave")
        Coordinator.current.leave(self._group, self._client)


@attrs.define
class _Outage:
    """When a process is cut off from the brokers.

    Attributes:
        since: The begin of the last time.
        until: The end of it.
    """

    since: float = -1_000.0
    until: float = -1_000.0


def _outage(process: Process) -> _Outage:
    return process.value("outage", _Outage)


@attrs.define(eq=False)
class _Holder:
    """A process that wants the lease, and holds it for a while.

    Attributes:
        world: The world.
        process: The process.
        seconds: For how long it holds the lease.
        of_group: Whether it checks that nobody else uses its consumer group.
        lease: The lease.
        actor: Its thread.
        losses: How often it learned that it has lost the lease.
    """

    world: World
    process: Process
    seconds: float
    of_group: bool
    lease: Lease | None = None
    actor: Actor[None] | None = None
    losses: int = 0

    def run(self) -> None:
        """Acquire the lease, hold it, and release it."""
        if self.of_group:
            self.lease = acquire_group_lease(_PLAN, _CLUSTER)
            self.world.tell("%s has the lease of its group", self.process.name)
            self.world.sleep(self.seconds)
            self.lease.release()
            return
        self.lease = Lease(_CLUSTER, _NAME, self.process.name, topics=("out",), meaning="stop one", lost=self._note)
        with self.lease:
            self.world.tell("%s has the lease", self.process.name)
            self.world.sleep(self.seconds)
            if self.lease.lost_to is not None and lease_loss(_NAME) is None:
                raise ViolationError("a lost lease is not reported")
        self.world.tell("%s has released the lease", self.process.name)

    def _note(self, error: LeaseHeldError) -> None:
        del error
        self.losses += 1

    @property
    def holds(self) -> bool:
        """Whether it believes that it has the lease, and knows of no loss."""
        return self.process.alive and self.lease is not None and self.lease.held and self.lease.lost_to is None

    @property
    def was_cut_off(self) -> bool:
        """Whether it was cut off, for longer than its session, so recently that it need not know of its loss yet."""
        outage = _outage(self.process)
        long = min(outage.until, self.world.now) - outage.since > coordinator.SESSION - 2
        return long and self.world.now < outage.until + _TO_NOTICE


def run(world: World) -> None:
    """Run the scenario."""
    choose = world.decisions.choose
    broker = Broker(world)
    broker.create_topic("out")
    Coordinator(world, broker)
    holders: list[_Holder] = []
    of_group = choose(2) == 1
    if of_group and choose(2, 0.2):  # another program uses the group
        current = Coordinator.current
        current.join(_GROUP, "other", lambda _: world.now if not world.calm else 0.0)

    def start(seconds: float) -> _Holder:
        holder = _Holder(world, Process(f"process{len(holders)}"), seconds, of_group)
        holder.actor = world.spawn(holder.process, "holder", holder.run)
        holders.append(holder)
        return holder

    for _ in range(2 + choose(3)):
        start((30.0, 3.0, 120.0)[choose(3)])
        if choose(2):
            start((30.0, 3.0, 120.0)[choose(3)])
        for _ in range(1 + choose(4)):
            world.sleep((0.5, 3.0, 15.0)[choose(3)])
            _check(holders)
            victim = holders[choose(len(holders))]
            match choose(4):
                case 1 if world.now > _outage(victim.process).until + _TO_NOTICE:
                    world.note("cut off", "process")
                    seconds = (3.0, 8.0, 30.0)[choose(3)]
                    world.tell("%s is cut off for %s s", victim.process.name, seconds)
                    outage = _outage(victim.process)
                    outage.since, outage.until = world.now, world.now + seconds
                case 2:
                    world.kill(victim.process)
    for holder in holders:
        world.wait(lambda holder=holder: not holder.process.alive or holder.actor.done, 300.0)  # type: ignore[misc]
        _judge(holder)
        world.kill(holder.process)
    world.calm = True
    world.sleep(10.0)
    last = start(1.0)
    assert last.actor is not None
    world.wait(lambda: last.actor is not None and last.actor.done)
    if last.actor.error is not None:
        raise ViolationError(f"nobody has the lease, and it is refused: {last.actor.error}") from last.actor.error


def _check(holders: list[_Holder]) -> None:
    """Check that no two processes hold the lease, unless all but one of them were cut off."""
    holding = [holder for holder in holders if holder.holds]
    if len(holding) - sum(holder.was_cut_off for holder in holding) > 1:
        raise ViolationError(f"{', '.join(holder.process.name for holder in holding)} hold the lease at once")


def _judge(holder: _Holder) -> None:
    """Check how a process has ended."""
    error = None if holder.actor is None else holder.actor.error
    if error is not None and not isinstance(error, Killed | KdslError):
        raise error


def _substitutes() -> Substitutes:
    return [
        *client_substitutes(),
        (logging.root.manager, "disable", logging.CRITICAL),
        (lease, "Consumer", _Consumer),
        (retry, "random", SimpleNamespace(uniform=lambda low, high: World.current.random.uniform(low, high))),
        (lease, "_lost_leases", PerProcess("lost leases", dict)),
        (atexit, "register", lambda function: function),
        (atexit, "unregister", lambda _function: None),
    ]


def _join_and_look_once(self: Lease, deadline: Any) -> Any:
    """A process looks before it joins, so that two may see nobody."""
    del deadline
    others = self._admin.members(self.name)
    if not others:
        membership = lease._Membership(self._cluster, self.name, self._who, self._topics)
        membership.members(self._admin)
        membership.watch(self._admin, self._note_loss)
        self._membership = membership
    return others


SCENARIO = Scenario(
    "leases",
    run,
    _substitutes,
    {"look-before-joining": lambda: [(Lease, "_try_to_acquire", _join_and_look_once)]},
)
