"""Compare all formats with Spark's ``from_json``, in pairs, on one core: ``python -m bench.formats [FORMAT …]``.

Prints one table: the rows that decoding and encoding process per second of processor time, and the speed of decoding
relative to ``from_json``, per message: the median over pairs of runs (A B B A …) with its 95 % bootstrap interval. If
the reference engine is installed (`bench.reference_rates`), the table includes its figures. All figures are stored as
JSON in bench/results/.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
from rich.console import Console
from rich.table import Table as Grid

from bench import formats_avro, formats_cdc, formats_json, formats_protobuf, formats_registry, reference_rates
from bench.cases import Case
from bench.from_json import Parsing, session
from bench.machine import facts
from bench.paired import interval
from kdsl.testing import LocalRegistry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RESULTS = Path(__file__).parent / "results"
NAMES = (
    *("csv", "json", "raw", "avro", "avro-confluent", "protobuf"),
    *("debezium-json", "canal-json", "maxwell-json", "ogg-json", "debezium-avro-confluent"),
)
WITH_REGISTRY = ("avro-confluent", "debezium-avro-confluent")


@attrs.frozen
class Figures:
    """The figures of one format; rates are per second of processor time.

    Attributes:
        name: The format, and the variant of its messages.
        messages: The messages of a batch.
        rows: The rows in these messages.
        decode: Rows read per second, of the median run.
        encode: Rows written per second, of the median run.
        from_json: Messages that ``from_json`` parses per second, of the median run; None without Spark.
        ratios: The speed of decoding relative to ``from_json`` for each pair, per message.
        goal: The wanted ratio.
        reference: Messages that the reference engine reads per second; None if it was not measured.
    """

    name: str
    messages: int
    rows: int
    decode: float
    encode: float
    from_json: float | None
    ratios: tuple[float, ...]
    goal: float | None
    reference: float | None = None

    @property
    def ratio(self) -> float | None:
        """The median of the pairs."""
        return statistics.median(self.ratios) if self.ratios else None


def cases(count: int, names: list[str], registry: Callable[[], LocalRegistry]) -> Iterator[Case]:
    """The cases of the formats with these names; starts a registry if one of them needs it."""
    for module in (formats_json, formats_cdc, formats_avro, formats_protobuf):
        yield from (case for case in module.cases(count) if case.format in names)
    if set(names) & set(WITH_REGISTRY):
        yield from (case for case in formats_registry.cases(count, registry().url) if case.format in names)


def measure(case: Case, spark: SparkSession | None, pairs: int, copies: int) -> Figures:
    """Decode a format's messages and parse JSON with ``from_json``, in turn; then encode.

    Args:
        case: The format.
        spark: The session; None omits ``from_json``.
        pairs: The number of pairs of runs, after a first pair that does not count.
        copies: How often a run processes the messages.
    """
    decoded = case.decode()
    if decoded.bad:
        raise RuntimeError(f"{case.name}: {decoded.bad[0]}")
    theirs = None if spark is None else Parsing(spark, case.strings, case.schema, copies)
    read, parse, bare = [], [], []
    for i in range(pairs + 1):
        if theirs is not None and i % 2:
            parse.append(theirs.parse())
        read.append(seconds(case.decode, copies))
        if theirs is not None and not i % 2:
            parse.append(theirs.parse())
        if theirs is not None:
            bare.append(theirs.bare())
    written = [seconds(lambda: case.encoder.encode(decoded.rows, decoded.kinds), copies) for _ in range(pairs + 1)]
    messages, rows = len(case.messages), len(decoded.rows)
    costs: list[float] = []
    if theirs is not None:
        theirs.close()
        costs = [max(cost - min(bare[1:]), 1e-9) for cost in parse[1:]]
    return Figures(
        case.name,
        messages,
        rows,
        copies * rows / statistics.median(read[1:]),
        copies * rows / statistics.median(written[1:]),
        copies * messages / statistics.median(costs) if costs else None,
        tuple(b / a for a, b in zip(read[1:], costs, strict=False)),
        case.goal,
    )


def seconds(run: Callable[[], object], times: int) -> float:
    """The processor time of some runs in this process, in seconds."""
    start = time.process_time()
    for _ in range(times):
        run()
    return time.process_time() - start


def grid(figures: list[Figures]) -> Grid:
    """Format all figures as a table."""
    table = Grid("format", "read, rows/s", "write, rows/s", "from_json/s", "ratio", "95 %", "goal", "reference/s")
    for f in figures:
        ratio, low_high, goal = "", "", ""
        if f.ratio is not None:
            ratio, (low, high) = f"{f.ratio:.2f}", interval(list(f.ratios))
            low_high = f"{low:.2f} to {high:.2f}"
            goal = "" if f.goal is None else f"{f.goal:.0f} {'met' if f.ratio >= f.goal else 'missed'}"
        rates = ("" if rate is None else f"{rate:,.0f}" for rate in (f.decode, f.encode, f.from_json))
        table.add_row(f.name, *rates, ratio, low_high, goal, "" if f.reference is None else f"{f.reference:,.0f}")
    return table


def main() -> None:
    """Measure, print and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("formats", nargs="*", choices=[*NAMES, []], help="all if none")
    parser.add_argument("--records", type=int, default=10_000, help="messages of one batch")
    parser.add_argument("--copies", type=int, default=20, help="how often a run processes them")
    parser.add_argument("--pairs", type=int, default=11)
    parser.add_argument(
        "--reference-messages", type=int, default=500_000, help="messages of a topic for the reference engine"
    )
    parser.add_argument("--alone", action="store_true", help="without from_json, which needs Spark")
    args = parser.parse_args()
    names, console = args.formats or list(NAMES), Console(width=120)
    pa.set_cpu_count(1)
    figures: list[Figures] = []
    with ExitStack() as stack:
        spark = None if args.alone else session()
        every = cases(args.records, names, lambda: stack.enter_context(LocalRegistry()))
        chosen = sorted(every, key=lambda case: NAMES.index(case.format))
        for case in chosen:
            figures.append(measure(case, spark, args.pairs, args.copies))
            console.print(line(figures[-1]), highlight=False)
        if spark is not None:
            spark.stop()
        rates = reference_rates.rates(chosen, args.reference_messages)
    figures = [attrs.evolve(f, reference=rates.get(f.name)) for f in figures]
    console.print(grid(figures))
    console.print(f"stored in {store(figures)}")


def line(figures: Figures) -> str:
    """Format the figures of a format as one line."""
    relative = "" if figures.ratio is None else f", {figures.ratio:.2f} x from_json"
    return f"{figures.name}: {figures.decode:,.0f} rows/s read, {figures.encode:,.0f} written{relative}"


def store(figures: list[Figures]) -> Path:
    """Store all figures as JSON."""
    RESULTS.mkdir(exist_ok=True)
    now = datetime.now(UTC)
    document: dict[str, Any] = {
        "at": now.isoformat(),
        "machine": facts(),
        "formats": [attrs.asdict(f) | {"ratio": f.ratio} for f in figures],
    }
    path = RESULTS / f"formats-{now:%Y%m%d-%H%M%S}.json"
    path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


if __name__ == "__main__":
    main()
