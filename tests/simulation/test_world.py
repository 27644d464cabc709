"""The scheduler of simulated runs, tried with a counter that loses updates."""

from __future__ import annotations

from contextlib import suppress
from typing import NoReturn

from tests.simulation.decisions import Decisions
from tests.simulation.environment import SimulatedExecutor, SimulatedLock, SimulatedTime, simulate_environment
from tests.simulation.scenario import Scenario, run_once, run_seeds, tell
from tests.simulation.world import Killed, Process, ViolationError, World


def count_without_lock(world: World) -> None:
    total = 0

    def add() -> None:
        nonlocal total
        before = total
        world.step("read")
        total = before + 1

    actors = [world.spawn(Process(name), "add", add) for name in "ab"]
    for actor in actors:
        world.wait(lambda actor=actor: actor.done)  # type: ignore[misc]
    if total != 2 and all(actor.error is None for actor in actors):
        raise ViolationError(f"two were added, and the total is {total}")


COUNTER = Scenario("counter", count_without_lock, lambda: ())


def test_a_lost_update_is_found_shrunk_and_printed() -> None:
    figures = run_seeds(COUNTER, range(1000))
    (failure,) = figures.failures
    assert failure.reason == "ViolationError: two were added, and the total is 1"
    decisions, story = tell(COUNTER, failure)
    assert 1 <= sum(map(bool, decisions)) <= 2
    assert story[-1] == failure.reason


def test_a_seed_gives_the_same_run_again() -> None:
    with simulate_environment():
        for seed in range(50):
            first, second = (run_once(COUNTER, Decisions(seed), tells=True) for _ in range(2))
            assert first[0].decisions.choices == second[0].decisions.choices
            assert first[0].story == second[0].story
            assert str(first[1]) == str(second[1])


def test_a_dead_process_has_no_effect_any_more() -> None:
    effects: list[str] = []
    dead = Process("driver")

    def work() -> None:
        try:
            effects.append("begun")
            World.current.sleep(1)
            effects.append("woken")
        finally:
            World.current.request("clean up", lambda: effects.append("cleaned up"))

    def run(world: World) -> None:
        actor = world.spawn(dead, "work", work)
        world.sleep(0.5)
        world.kill(dead)
        world.wait(lambda: actor.done)
        assert isinstance(actor.error, Killed)
        assert effects == ["begun"]

    _, error = run_once(Scenario("dead", run, lambda: ()), Decisions(None))
    assert error is None


def test_time_threads_and_locks_are_those_of_the_world() -> None:
    order: list[object] = []

    def run(world: World) -> None:
        time, lock = SimulatedTime(), SimulatedLock()

        def work(name: str) -> str:
            with lock:
                order.append(name)
                time.sleep(3600)
            return name

        with SimulatedExecutor(2) as pool:
            assert list(pool.map(work, "ab")) == ["a", "b"]
        assert world.now - 1_750_000_000.0 == 7200

    _, error = run_once(Scenario("time", run, lambda: ()), Decisions(None))
    assert error is None
    assert order == ["a", "b"]


def wait_without_end(world: World) -> None:
    world.wait(lambda: False)


def test_a_run_in_which_nothing_goes_on_is_a_failure() -> None:
    _, error = run_once(Scenario("stuck", wait_without_end, lambda: ()), Decisions(None))
    assert isinstance(error, ViolationError)


def test_requests_that_are_not_answered() -> None:
    kinds: set[str] = set()

    def run(world: World) -> None:
        arrived: list[int] = []
        failed: list[str] = []

        def fail(what: str) -> NoReturn:
            failed.append(what)
            raise TimeoutError

        for number in range(200):
            with suppress(TimeoutError):
                world.request("send", lambda number=number: arrived.append(number), fail, late=True)  # type: ignore[misc]
        world.sleep(10_000)
        late = world.events["late", "send"]
        assert len(arrived) == len(set(arrived)) == 200 - failed.count("lost") + late
        kinds.update(kind for kind, _ in world.events)

    for seed in range(100):
        _, error = run_once(Scenario("requests", run, lambda: ()), Decisions(seed))
        assert error is None
    assert kinds == {"lost", "unanswered", "late", "slow"}
