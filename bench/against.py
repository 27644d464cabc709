"""Compare this checkout with another one in pairs of runs: ``python -m bench.against ../earlier raw-read json-write``.

Each checkout has a process with a Spark session of its own, and both read and write the same topics. The cases are
those of ``python -m bench``; only kdsl's side of each runs. A ratio above 1 means that this checkout is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]


class Checkout:
    """A process that runs the cases of a checkout on request."""

    def __init__(self, root: Path, bootstrap: str) -> None:
        paths = os.pathsep.join(str(root / name) for name in ("", "formats"))
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, "--serve", bootstrap],
            cwd=root,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.root = Path(self._ask("root"))
        if self.root != root:
            raise SystemExit(f"bench: the process for {root} imports kdsl from {self.root}")

    def run(self, case: str) -> None:
        """Run kdsl's side of a case once."""
        self._ask(case)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def _ask(self, question: str) -> str:
        """Send a line to the process, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(question, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"bench: the process of {self.root} ended with {self._process.wait(60)}")
        return str(json.loads(answer))


def serve(bootstrap: str) -> None:
    """Run a case for each line of standard input, and answer each with a line of JSON on standard output."""
    import kdsl
    from bench.__main__ import Cases
    from bench.machine import session

    class Ours(Cases):
        """The cases, without the other side of each."""

        def _compare(self, *sides: Any, **_: Any) -> Any:
            return sides[1]

    answers, sys.stdout = sys.stdout, sys.stderr
    with session("bench") as spark:
        cases = Ours(spark, bootstrap, 0, 0)
        commands: dict[str, Any] = {"root": lambda: str(Path(kdsl.__file__).parents[1])}
        for line in sys.stdin:
            name = line.strip()
            if name not in commands:
                commands[name] = next(cases.run([name]))
            print(json.dumps(str(commands[name]())), file=answers, flush=True)


def main() -> None:
    """Fill the topics, run the cases on both checkouts in turn, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the root of the other checkout")
    parser.add_argument("cases", nargs="*", help="cases of `python -m bench`; all if none")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()

    from bench.__main__ import CASES, PARTITIONS, TOPICS, fill_topics
    from bench.paired import compare
    from kdsl.testing import LocalKafka

    with LocalKafka(topics=dict.fromkeys(TOPICS, PARTITIONS)) as kafka:
        fill_topics(kafka.bootstrap_servers, args.records)
        ours = Checkout(ROOT, kafka.bootstrap_servers)
        theirs = Checkout(args.other.resolve(), kafka.bootstrap_servers)
        for name in args.cases or CASES:
            pair = compare(
                name,
                lambda name=name: ours.run(name),  # type: ignore[misc]
                lambda name=name: theirs.run(name),  # type: ignore[misc]
                records=args.records,
                pairs=args.pairs,
            )
            print(pair.describe(), flush=True)
        for checkout in (ours, theirs):
            checkout.close()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2])
    else:
        main()
