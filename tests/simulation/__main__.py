"""Run seeds: ``python -m tests.simulation FIRST-LAST [--scenarios NAMES] [--fault NAME] [--jobs N]``.

Each seed runs every scenario once. The exit code is 1 if one fails; then the first failure is shrunk, and printed as a
story. The last line has the figures. ``--list`` names the scenarios, and the faults that ``--fault`` brings back.
``--coverage`` prints how many branches of the modules in `tests.simulation.branches` the seeds took, and which they did
not take.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time

from tests.simulation import chunks
from tests.simulation.branches import format_branches
from tests.simulation.scenario import Figures, all_scenarios, tell


def main(arguments: list[str]) -> int:
    """Run seeds, print what they found, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seeds", nargs="?", default="1-1000", help="FIRST-LAST, or one seed")
    parser.add_argument("--scenarios", default="", help="their names, separated by commas; all by default")
    parser.add_argument("--fault", help="a fault that kdsl had, which is brought back")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes run seeds")
    parser.add_argument("--list", action="store_true", help="list the scenarios and their faults")
    parser.add_argument("--events", action="store_true", help="print how often each event happened")
    parser.add_argument("--coverage", action="store_true", help="print the branches of the protocols that were taken")
    args = parser.parse_args(arguments)
    meter = chunks.measure_branches() if args.coverage else None
    scenarios = all_scenarios()
    if args.list:
        for scenario in scenarios.values():
            print(scenario.name, *sorted(scenario.faults))
        return 0
    first, _, last = args.seeds.partition("-")
    names = args.scenarios.split(",") if args.scenarios else list(scenarios)
    if args.fault:
        names = [name for name in names if args.fault in scenarios[name].faults]
    numbers = range(int(first), int(last or first) + 1)
    work = [
        (name, start, min(start + chunks.SIZE - 1, numbers[-1]), args.fault)
        for start in range(numbers[0], numbers[-1] + 1, chunks.SIZE)
        for name in names
    ]
    figures, started = Figures(), time.perf_counter()
    if args.jobs == 1:
        results = map(chunks.run_chunk, work)
    else:
        pool = multiprocessing.get_context("spawn").Pool(args.jobs, chunks.measure_branches if args.coverage else None)
        results = pool.imap_unordered(chunks.run_chunk, work)  # type: ignore[assignment]
    for result, branches in results:
        figures.add(result)
        if meter is not None and branches is not None:
            meter.load(branches)
        if figures.failures:
            break
    seconds = time.perf_counter() - started
    if args.jobs > 1:
        pool.terminate()
    for failure in figures.failures[:1]:
        decisions, story = tell(scenarios[failure.scenario], failure, args.fault)
        print(f"scenario {failure.scenario}, seed {failure.seed}: {failure.reason}")
        print(f"{sum(map(bool, decisions))} of {len(failure.decisions)} decisions are needed:")
        print("\n".join(story))
    if args.events:
        for (kind, place), count in sorted(figures.events.items()):
            print(f"{count:10,} {kind} at {place}")
    if meter is not None:
        print("\n".join(format_branches(meter.report())))
    places = {place for kind, place in figures.events if kind == "kill"}
    decisions_each = figures.steps / max(1, figures.seeds)
    print(
        f"{figures.seeds:,} runs, {len(figures.failures)} failed; {decisions_each:,.0f} decisions each, "
        f"{figures.seeds / seconds / args.jobs:,.0f} runs a second and process; processes died at "
        f"{len(places):,} places, {len(figures.pairs):,} pairs of events"
    )
    return 1 if figures.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
