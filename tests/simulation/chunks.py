"""Runs some seeds of a scenario, in this process or in one of a pool."""

from __future__ import annotations

from tests.simulation.branches import BranchMeter
from tests.simulation.scenario import Figures, all_scenarios, run_seeds

SIZE = 250
"""How many seeds are run at once."""
_meter: BranchMeter | None = None


def measure_branches() -> BranchMeter:
    """Measure the branches of the protocols in this process from now on."""
    global _meter
    _meter = BranchMeter()
    return _meter


def run_chunk(work: tuple[str, int, int, str | None]) -> tuple[Figures, bytes | None]:
    """Run some seeds of a scenario, given by its name, the first and the last seed, and a fault.

    Returns:
        The figures, and the branches that this process has taken if they are measured.
    """
    name, first, last, fault = work
    figures = run_seeds(all_scenarios()[name], range(first, last + 1), fault)
    return figures, _meter.dump() if _meter is not None else None
