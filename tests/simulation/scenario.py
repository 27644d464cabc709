"""What a scenario is, and how a seed of it is run, repeated and shrunk."""

from __future__ import annotations

import gc
import importlib
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import attrs

import tests.simulation
from tests.simulation.decisions import Decisions
from tests.simulation.environment import simulate_environment
from tests.simulation.world import World, shrink

Substitutes = Iterable[tuple[Any, str, Any]]
"""Objects, each with the name of an attribute and its value while a scenario runs."""


@attrs.frozen
class Scenario:
    """A protocol with models around it, and what must hold.

    Attributes:
        name: Its name.
        run: Runs it in a world; it raises a `tests.simulation.world.ViolationError`, or any other exception, if
            something does not hold.
        substitutes: Returns what the models replace in kdsl's modules.
        faults: By the name of a fault that kdsl had, what brings it back.
    """

    name: str
    run: Callable[[World], None]
    substitutes: Callable[[], Substitutes]
    faults: Mapping[str, Callable[[], Substitutes]] = attrs.field(factory=dict)


@attrs.frozen
class Failure:
    """A run that failed.

    Attributes:
        scenario: The name of the scenario.
        seed: The seed.
        decisions: The decisions that were made.
        reason: The exception, with its type.
    """

    scenario: str
    seed: int
    decisions: Sequence[int]
    reason: str


@attrs.define
class Figures:
    """What some seeds covered.

    Attributes:
        seeds: How many ran.
        steps: How many decisions they made.
        events: How often each event happened, by kind and place.
        pairs: The events that followed each other directly.
        failures: The runs that failed.
    """

    seeds: int = 0
    steps: int = 0
    events: Counter[tuple[str, str]] = attrs.field(factory=Counter)
    pairs: set[tuple[tuple[str, str], tuple[str, str]]] = attrs.field(factory=set)
    failures: list[Failure] = attrs.field(factory=list)

    def add(self, other: Figures) -> None:
        """Add those of other seeds."""
        self.seeds += other.seeds
        self.steps += other.steps
        self.events.update(other.events)
        self.pairs |= other.pairs
        self.failures += other.failures


def all_scenarios() -> dict[str, Scenario]:
    """Load all scenarios, by name."""
    scenarios = {}
    for module in pkgutil.iter_modules(tests.simulation.__path__):
        if module.name.startswith("scenario_"):
            scenario: Scenario = importlib.import_module(f"tests.simulation.{module.name}").SCENARIO
            scenarios[scenario.name] = scenario
    return scenarios


def run_once(scenario: Scenario, decisions: Decisions, *, tells: bool = False) -> tuple[World, BaseException | None]:
    """Run a scenario; return its world, and the exception with which it failed."""
    world = World(decisions, tells=tells)
    try:
        world.run(lambda: scenario.run(world))
    except Exception as e:  # noqa: BLE001
        return world, e
    return world, None


def run_seeds(scenario: Scenario, seeds: Iterable[int], fault: str | None = None, *, stop: bool = True) -> Figures:
    """Run seeds of a scenario, by default up to the first that fails.

    Args:
        scenario: The scenario.
        seeds: The seeds.
        fault: A fault that is brought back.
        stop: Whether the first failure ends it.
    """
    figures = Figures()
    with ExitStack() as stack:
        stack.enter_context(_prepare(scenario, fault))
        gc.disable()
        stack.callback(gc.enable)
        for seed in seeds:
            world, error = run_once(scenario, Decisions(seed))
            figures.seeds += 1
            figures.steps += len(world.decisions.choices)
            figures.events.update(world.events)
            figures.pairs |= world.pairs
            if error is not None:
                figures.failures.append(Failure(scenario.name, seed, world.decisions.choices, _describe(error)))
                if stop:
                    break
            if figures.seeds % 200 == 0:
                gc.collect()
    return figures


def tell(scenario: Scenario, failure: Failure, fault: str | None = None) -> tuple[list[int], list[str]]:
    """Shrink a run that failed; return its decisions, and its story."""
    kind = failure.reason.partition(":")[0]

    def fails(taken: Sequence[int]) -> bool:
        _, error = run_once(scenario, Decisions(None, taken))
        return error is not None and _describe(error).partition(":")[0] == kind

    with _prepare(scenario, fault):
        if not fails(failure.decisions):
            return list(failure.decisions), ["the failure does not happen again: something is not decided by the seed"]
        decisions = shrink(fails, failure.decisions)
        world, error = run_once(scenario, Decisions(None, decisions), tells=True)
    return decisions, [*world.story, _describe(error) if error is not None else ""]


def _prepare(scenario: Scenario, fault: str | None) -> Any:
    """A context manager in which a scenario can run, with a fault that is brought back."""
    substitutes = [*scenario.substitutes(), *(() if fault is None else scenario.faults[fault]())]
    return simulate_environment(substitutes)


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
