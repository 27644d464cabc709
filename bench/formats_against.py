"""Compare the formats with those of another checkout: ``python -m bench.formats_against ../earlier [FORMAT …]``.

Each checkout has a process of its own, and they decode and encode the same messages in turn, on one core. A ratio is
that of their seconds of processor time; above 1, this checkout is faster. Where its memory lies changes the speed of a
process by several percent, so both are started several times, and the median of the medians counts.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from contextlib import ExitStack
from pathlib import Path

from bench.against import ROOT, Checkout


def serve(formats: list[str], records: int, copies: int) -> None:
    """Answer ``names`` with the names of the cases, ``read NAME`` and ``write NAME`` with seconds of processor time."""
    import pyarrow as pa

    import kdsl
    from bench.formats import NAMES, cases, seconds
    from kdsl.testing import LocalRegistry

    answers, sys.stdout = sys.stdout, sys.stderr
    pa.set_cpu_count(1)
    with ExitStack() as stack:
        every = cases(records, formats or list(NAMES), lambda: stack.enter_context(LocalRegistry()))
        by_name = {case.name: (case, case.decode()) for case in every}
        for line in sys.stdin:
            verb, _, name = line.strip().partition(" ")
            answer: object
            if verb == "root":
                answer = Path(kdsl.__file__).parents[1]
            elif verb == "names":
                answer = "\n".join(by_name)
            else:
                case, decoded = by_name[name]
                works = {"read": case.decode, "write": lambda: case.encoder.encode(decoded.rows, decoded.kinds)}  # noqa: B023
                answer = seconds(works[verb], copies)
            print(json.dumps(str(answer)), file=answers, flush=True)


def main() -> None:
    """Run all cases that both checkouts have, in turn, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the root of the other checkout")
    parser.add_argument("formats", nargs="*", help="formats of `python -m bench.formats`, all if none")
    parser.add_argument("--records", type=int, default=10_000, help="messages of one batch")
    parser.add_argument("--copies", type=int, default=10, help="how often a run processes them")
    parser.add_argument("--pairs", type=int, default=5, help="pairs of runs of each start")
    parser.add_argument("--starts", type=int, default=5, help="how often the processes are started")
    args = parser.parse_args()
    command = (__file__, "--serve", ",".join(args.formats), str(args.records), str(args.copies))
    medians: dict[str, list[float]] = {}
    for _ in range(args.starts):
        ours, theirs = Checkout(ROOT, *command), Checkout(args.other.resolve(), *command)
        names, others = ours.ask("names").split("\n"), theirs.ask("names").split("\n")
        for question in (f"{verb} {name}" for name in names if name in others for verb in ("read", "write")):
            medians.setdefault(question, []).append(compare(ours, theirs, question, args.pairs))
            print(f"{question}: {medians[question][-1]:.3f}", flush=True)
        for checkout in (ours, theirs):
            checkout.close()
    for question, ratios in medians.items():
        print(f"{question}: ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


def compare(ours: Checkout, theirs: Checkout, question: str, pairs: int) -> float:
    """Ask both checkouts in turn, after a pair that does not count, and return the median of the ratios."""
    ratios = []
    for i in range(pairs + 1):
        order = (ours, theirs) if i % 2 else (theirs, ours)
        seconds = {checkout: float(checkout.ask(question)) for checkout in order}
        ratios.append(seconds[theirs] / seconds[ours])
    return statistics.median(ratios[1:])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve([name for name in sys.argv[2].split(",") if name], int(sys.argv[3]), int(sys.argv[4]))
    else:
        main()
