"""Compare exactly-once with at-least-once delivery, from JSON to JSON, in micro-batches of about ten seconds.

``python -m bench.exactly_once``; ``--records`` is the size of a batch, chosen so that a batch takes about that long.
The figures exclude the start of a query (tokens, leases) and its first batch (connections, warm-up), which occur only
once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import uuid
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession
from rich.console import Console

from bench.machine import facts, fill, session
from bench.paired import measure
from bench.tables import Fields
from kdsl import Cluster, Json, KafkaTable
from kdsl.testing import LocalKafka

RESULTS = Path(__file__).parent / "results"
PARTITIONS = 4
WARM_UP = 100_000
GOAL = 0.9


def rate(spark: SparkSession, cluster: Cluster, topic: str, per_batch: int, *, exactly: bool) -> tuple[float, float]:
    """Run one query over a topic; returns records per second, and seconds per batch."""

    class Source(Fields, topic=topic, value=Json(), startup="earliest", max_records_per_trigger=per_batch):
        """The orders."""

    class Once(
        Fields,
        topic="out",
        value=Json(),
        delivery="exactly-once",
        transactional_id_prefix=f"bench-{uuid.uuid4().hex[:8]}",
    ):
        """The output, written exactly once."""

    class AtLeastOnce(Fields, topic="out", value=Json()):
        """The output, written at least once."""

    sink: type[KafkaTable] = Once if exactly else AtLeastOnce
    with tempfile.TemporaryDirectory() as folder:
        rows = Source.read_stream(spark, cluster)
        query = sink.write_stream(rows, cluster, checkpoint=f"{folder}/cp", trigger={"availableNow": True})
        query.awaitTermination()
        steady = [p for p in query.recentProgress if p.numInputRows][1:]
    seconds = [p.durationMs["triggerExecution"] / 1000 for p in steady]
    return sum(p.numInputRows for p in steady) / sum(seconds), statistics.median(seconds)


def main() -> None:
    """Measure, print and store the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=2_000_000, help="records of a batch")
    parser.add_argument("--batches", type=int, default=4, help="batches of a run; the first does not count")
    parser.add_argument("--pairs", type=int, default=3)
    args = parser.parse_args()
    console = Console()
    with (
        LocalKafka(topics={"orders": PARTITIONS, "warm-up": PARTITIONS, "out": PARTITIONS}) as kafka,
        session("exactly-once") as spark,
    ):
        fill(kafka.bootstrap_servers, "orders", args.records * args.batches, partitions=PARTITIONS)
        fill(kafka.bootstrap_servers, "warm-up", 4 * WARM_UP, partitions=PARTITIONS)
        cluster = Cluster(kafka.bootstrap_servers)
        for exactly in (True, False):
            rate(spark, cluster, "warm-up", WARM_UP, exactly=exactly)
        rates: dict[bool, list[float]] = {True: [], False: []}
        processor: dict[bool, list[float]] = {True: [], False: []}
        lengths = []
        for i in range(args.pairs):
            for exactly in (True, False) if i % 2 == 0 else (False, True):
                results: list[tuple[float, float]] = []
                run = measure(
                    lambda results=results, exactly=exactly: results.append(  # type: ignore[misc]
                        rate(spark, cluster, "orders", args.records, exactly=exactly)
                    )
                )
                rates[exactly].append(results[0][0])
                processor[exactly].append(run.cpu / (args.records * args.batches) * 1e6)
                lengths.append(results[0][1])
    ratios = [once / least for once, least in zip(rates[True], rates[False], strict=True)]
    ratio = statistics.median(ratios)
    console.print(
        f"exactly-once {statistics.median(rates[True]):,.0f}/s, at-least-once {statistics.median(rates[False]):,.0f}/s"
    )
    console.print(
        f"ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), goal {GOAL}; "
        f"batches of {statistics.median(lengths):.1f} s; processor {statistics.median(processor[True]):.2f} and "
        f"{statistics.median(processor[False]):.2f} s per million"
    )
    RESULTS.mkdir(exist_ok=True)
    document = {
        "machine": facts(),
        "exactly_once": rates[True],
        "at_least_once": rates[False],
        "ratios": ratios,
        "processor": {"exactly_once": processor[True], "at_least_once": processor[False]},
    }
    name = f"exactly-once-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    (RESULTS / name).write_text(json.dumps(document, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
