"""Exactly-once streams that are written directly: each record once, whatever happens to drivers, tasks and requests.

Drivers are started one after another or two at once, with other cores and writers, with another prefix, from a
checkpoint that was set back, or after the brokers have forgotten tokens. Between them source records are deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

from kdsl.errors import ExactlyOnceError, KdslError
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.exactly_once import stream
from kdsl.run.exactly_once.row_routing import Lineage
from kdsl.run.librdkafka import source
from kdsl.run.librdkafka.read_task import Task
from kdsl.run.librdkafka.task_packing import pack
from kdsl.run.librdkafka.transactions import task, token
from kdsl.run.librdkafka.transactions.token import HalfWrittenError, next_step
from kdsl.run.offsets.stored import Offsets
from tests.simulation import coordinator
from tests.simulation.exactly_once_driver import (
    IN,
    PARTITIONS,
    Driver,
    Setup,
    driver_substitutes,
    plan_of,
)
from tests.simulation.partitioned_frames import Partitions
from tests.simulation.scenario import Scenario, Substitutes
from tests.simulation.spark_driver import SparkError
from tests.simulation.world import Killed, ViolationError, World

_WAITS = (1_000.0, 0.2, 3.0, 30.0)
_LINEAGES = ("tasks", "tasks", "columns", "one")


@attrs.define
class Operators:
    """Those who start and stop drivers, and change what they need.

    Attributes:
        world: The world.
        setup: The setup.
        routing: How rows are routed to writers.
        prefix: The prefix of the next start.
        adopts: Whether the next start ignores what it finds, because somebody has read its error.
        excuse: Why a start may be refused; None if it may not.
        expired: Whether tokens have expired.
        set_back: Whether the checkpoint was set back.
        overlaps: Whether two drivers have run at once.
        staged: Whether batches are stored before they are sent.
        rows_of: Makes the rows of a batch of what its tasks read.
    """

    world: World
    setup: Setup
    routing: str
    prefix: str = "p"
    adopts: bool = False
    excuse: object = None
    expired: bool = False
    set_back: bool = False
    overlaps: bool = False
    staged: bool = False
    rows_of: Callable[[Partitions], Partitions] = lambda rows: rows

    def start(self) -> Driver:
        """Start a driver."""
        choose = self.world.decisions.choose
        cores = (2, 1, 3)[choose(3)]
        parallelism = 1 if self.routing == "one" else (None, 2, 3, 1)[choose(3 + (self.routing != "columns"), 0.3)]
        lineage = Lineage(2 * cores if self.routing == "tasks" else None)
        plan = plan_of(self.prefix, parallelism, staged=self.staged)
        driver = Driver(self.setup, plan, cores, lineage, adopt=self.adopts, rows_of=self.rows_of)
        driver.excuse = self.excuse
        if self.staged:
            driver.version = ("4.1.0", "4.0.1")[choose(2)]
        if not self.world.calm and choose(2, 0.15):
            driver.idles = int(0.7 * coordinator.RETENTION)
        if self.adopts:
            self.setup.allow_doubles_after(_last_done(self.setup.files))
        self.overlaps |= any(one.session.process.alive and not one.actor.done for one in self.setup.drivers)
        driver.start()
        self.world.tell(
            "%s: %d cores, %s writers, prefix %s%s",
            driver.session.process.name, cores, parallelism, self.prefix, ", adopts" if self.adopts else "",
        )  # fmt: skip
        return driver

    def judge(self, driver: Driver) -> None:
        """Check the error of a driver that has ended, and learn from it."""
        error = driver.actor.error
        if error is None and driver.excuse is self.excuse:
            self.adopts, self.excuse = False, None
        if error is None or isinstance(error, Killed | SparkError | ConnectionError):
            return
        self.world.tell("%s ended with %r", driver.session.process.name, error)
        if not isinstance(error, KdslError) or isinstance(error, HalfWrittenError):
            raise error
        if isinstance(error, ExactlyOnceError) and "adopt=True" in str(error):
            if self.excuse:
                self.adopts = True
            elif self.world.calm or not self.overlaps:
                raise error  # otherwise it has seen what another driver did after it had read the checkpoint

    def disturb(self) -> None:
        """Do what operators and brokers do while no driver runs, or while one does."""
        world, files = self.world, self.setup.files
        match world.decisions.choose(8):
            case 1 | 5 | 6:
                partition = world.decisions.choose(PARTITIONS)
                log = self.setup.broker.log((IN, partition))
                self.setup.delete_source(partition, log.start + 1 + world.decisions.choose(4))
            case 2:
                self.prefix = "pq"[world.decisions.choose(2)]
            case 3 if world.decisions.choose(2, 0.7):
                self._stop_all()
                self.set_back = True
                count = 1 + world.decisions.choose(2)
                last = _last(files, "offsets")
                world.note("set back", "checkpoint")
                world.tell("the checkpoint is set back by %d batches", count)
                for batch in range(max(0, last - count + 1), last + 1):
                    files.pop(f"offsets/{batch}", None)
                    files.pop(f"commits/{batch}", None)
                if self.expired:  # nothing is left that could show that batches were written
                    self.setup.allow_doubles_after(_last_done(files))
                self.excuse = object()
            case 4 if world.decisions.choose(2, 0.5):
                self._stop_all()
                self.expired = True
                if self.set_back:  # nothing is left that could show that batches were written
                    self.setup.allow_doubles_after(_last_done(files))
                world.note("expiry", "tokens")
                world.tell("tokens expire")
                world.sleep(coordinator.RETENTION + 60)
                self.setup.coordinator.forget_unused_ids(coordinator.RETENTION)
                self.excuse = object()

    def _stop_all(self) -> None:
        """Stop all drivers and their tasks, as somebody does before a checkpoint is changed."""
        for driver in self.setup.drivers:
            self.world.kill(driver.session.process)
            driver.session.end()
            for worker in driver.session.workers:
                self.world.kill(worker)


def _last(files: dict[str, str], log: str) -> int:
    return max((int(name.partition("/")[2]) for name in files if name.startswith(f"{log}/")), default=-1)


def _last_done(files: dict[str, str]) -> int:
    return _last(files, "commits")


def run(world: World) -> None:
    """Run the scenario."""
    setup = Setup(world)
    run_drivers(Operators(world, setup, _LINEAGES[world.decisions.choose(len(_LINEAGES))]))


def run_drivers(this: Operators) -> None:
    """Start drivers, disturb them, and check at the end that everything is there once."""
    world, setup, choose = this.world, this.setup, this.world.decisions.choose
    for _ in range(1 + choose(2, 0.6)):
        drivers = [this.start() for _ in range(1 + choose(2, 0.4))]
        seconds = 3 * coordinator.RETENTION if any(one.idles for one in drivers) else _WAITS[choose(len(_WAITS))]
        world.wait(lambda drivers=drivers: all(one.actor.done for one in drivers), seconds)  # type: ignore[misc]
        if choose(2, 0.1):
            this.disturb()
        for driver in drivers:
            if driver.actor.done:
                this.judge(driver)
            elif choose(2):
                world.kill(driver.session.process)
        this.disturb()
        for driver in setup.drivers:
            if not driver.session.process.alive and choose(2):
                driver.session.end()
        setup.check(complete=False)
    if choose(2):  # those that are suspended, and were taken for dead, go on
        world.wait(lambda: all(one.actor.done or not one.session.process.alive for one in setup.drivers), 300.0)
        setup.check(complete=False)
    finish(this)


def finish(this: Operators) -> None:
    """Start a driver in peace until it comes to its end, and check that everything is there once."""
    world, setup = this.world, this.setup
    for driver in setup.drivers:
        world.kill(driver.session.process)
    world.calm = True
    for _ in range(3):
        driver = this.start()
        world.wait(lambda driver=driver: driver.actor.done)  # type: ignore[misc]
        this.judge(driver)
        if driver.actor.error is None:
            break
        world.kill(driver.session.process)
        world.sleep(1_000)  # late messages and open transactions come to their end
    else:
        raise ViolationError(f"the last start has failed: {driver.actor.error!r}") from driver.actor.error
    world.kill(driver.session.process)
    world.sleep(2_000)
    setup.check(complete=True)


def _plan_tasks_anew(self: Any, start: dict[str, Any], end: dict[str, Any]) -> Any:
    """A1: pack what is left of a batch, not what was planned."""
    begin, stop = Offsets.from_json(start), Offsets.from_json(end)
    assert stop.packing is not None
    return [Task(task, stop.ids) for task in pack(self.ranges(begin, stop), stop.packing)]


def _ignore_run(id_: str, last: Any, writer: Any, batch: int, run: str) -> Any:
    """A3: a late task of an earlier run goes on."""
    return next_step(id_, last, writer, batch, run if last is None else last.run)


def _same_routing(before: Any, now: Any, packing: Any) -> bool:
    """A11: the number of the source's tasks must be the same in the middle of a batch."""
    del packing
    return (before.by, before.writers, before.basis) == (now.by, now.writers, now.basis)


def _faults() -> dict[str, Any]:
    def first() -> Substitutes:
        return [(source.StreamReader, "partitions", _plan_tasks_anew)]

    def third() -> Substitutes:
        return [(task, "next_step", _ignore_run), (task, "_refuse_late_task", lambda *_: None)]

    def eleventh() -> Substitutes:
        return [(stream, "same_writers", _same_routing)]

    def stale() -> Substitutes:
        return [(Checkpoint, "check_unchanged", lambda _self, _table: None)]

    def no_writers() -> Substitutes:
        return [(token, "_check_writers", lambda *_: None)]

    def incomplete() -> Substitutes:
        return [(task, "check_complete", lambda rows: rows)]

    return {
        "A1": first,
        "A3": third,
        "A11": eleventh,
        "stale-manifest": stale,
        "overwritten-routing": no_writers,
        "incomplete-rows": incomplete,
    }


SCENARIO = Scenario(
    "exactly_once",
    run,
    driver_substitutes,
    _faults(),
)
