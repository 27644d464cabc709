"""A story of exactly-once writes that few seeds would find."""

from __future__ import annotations

import pytest

from kdsl.errors import ExactlyOnceError
from kdsl.run.exactly_once.lineage import Lineage
from tests.simulation import exactly_once_driver
from tests.simulation.decisions import Decisions
from tests.simulation.environment import simulate_environment
from tests.simulation.exactly_once_driver import Driver, Setup, plan_of
from tests.simulation.scenario_exactly_once import SCENARIO
from tests.simulation.world import ViolationError, World


@pytest.mark.parametrize("fault", [None, "overwritten-routing"])
def test_a_driver_that_was_cut_off_stores_its_number_of_writers_over_that_of_its_successor(
    fault: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The successor has written a part of a batch by then, with other writers."""
    last: list[Driver] = []
    changes: list[str] = []

    def pause() -> None:
        world = World.current
        if world.process.name == "driver0":
            changes.append("")
            if len(changes) == 2:  # after its ids were acquired, before its routing is stored
                world.sleep(100.0)

    def run(world: World) -> None:
        setup = Setup(world)

        def start(writers: int) -> Driver:
            driver = Driver(setup, plan_of("p", writers), 2, Lineage(4))
            driver.start()
            return driver

        first = start(2)
        world.sleep(30.0)
        setup.leases.clear()  # the first one is cut off
        second = start(1)
        world.wait(lambda: any("task" in line and line.endswith(" commit") for line in world.story), 60.0)
        for process in (second.session.process, *second.session.workers):
            world.kill(process)
        world.wait(lambda: first.actor.done)
        world.kill(first.session.process)
        last.append(start(2))
        world.wait(lambda: last[0].actor.done)
        setup.check(complete=False)

    monkeypatch.setattr(exactly_once_driver, "_pause", pause)
    substitutes = [*SCENARIO.substitutes(), *(SCENARIO.faults[fault]() if fault else ())]
    with simulate_environment(substitutes):
        world = World(Decisions(None), tells=True)
        if fault is None:
            world.run(lambda: run(world))
        else:
            with pytest.raises(ViolationError, match="doubled"):
                world.run(lambda: run(world))
    error = last[0].actor.error
    if fault is None:
        assert isinstance(error, ExactlyOnceError)
        assert "batch 0 was begun with 1 writer" in str(error)
