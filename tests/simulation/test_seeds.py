"""Seeds that are tried with all tests; ``make simulate SEEDS=1-100000`` tries more.

Each scenario runs in a process of its own, in which kdsl's modules have the clock and the threads of
the simulation.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.faults import FAULTS, FOUND, SEEDS

ROOT = Path(__file__).parents[2]


def simulate(*arguments: str) -> tuple[int, str]:
    """Run seeds; return the exit code, and what was printed."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("scenario", SEEDS)
def test_no_seed_fails(scenario: str) -> None:
    code, text = simulate(f"1-{SEEDS[scenario]}", "--scenarios", scenario)
    assert code == 0, text
    assert f"{SEEDS[scenario]:,} runs, 0 failed" in text


@pytest.mark.parametrize(("scenario", "seed"), FOUND)
def test_a_seed_that_found_a_fault(scenario: str, seed: int) -> None:
    code, text = simulate(str(seed), "--scenarios", scenario)
    assert code == 0, text


@pytest.mark.parametrize(("fault", "scenario"), FAULTS)
def test_a_fault_that_is_brought_back_is_found(fault: str, scenario: str) -> None:
    code, text = simulate(FAULTS[fault, scenario], "--scenarios", scenario, "--fault", fault)
    assert code == 1, text
    assert "decisions are needed:" in text
