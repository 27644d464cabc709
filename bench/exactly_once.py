"""Measure exactly-once against at-least-once, JSON to JSON, in micro-batches of about ten seconds.

``python -m bench.exactly_once``; ``--records`` is per batch, and is chosen so that a batch takes as long. A query's
start (tokens, leases) and its first batch (connections, warm code) are left out of the figures, as they happen once.
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
from bench.paired import timed
from bench.tables import Fields
from kdsl import Cluster, Json, KafkaTable
from kdsl.testing import LocalKafka

RESULTS = Path(__file__).parent / "results"
PARTITIONS = 4
WARM_UP = 100_000
GOAL = 0.9


def rate(spark: SparkSession, cluster: Cluster, topic: str, per_batch: int, *, exactly: bool) -> tuple[float, float]:
    """Records per second, and seconds per batch, of one run over a topic."""

    class Source(Fields, topic=topic, value=Json(), startup="earliest", max_records_per_trigger=per_batch):
        """The orders."""

    class Once(
        Fields,
        topic="out",
        value=Json(),
        delivery="exactly-once",
        transactional_id_prefix=f"bench-{uuid.uuid4().hex[:8]}",
    ):
        """Where they go, once."""

    class AtLeastOnce(Fields, topic="out", value=Json()):
        """Where they go."""

    sink: type[KafkaTable] = Once if exactly else AtLeastOnce
    with tempfile.TemporaryDirectory() as folder:
        rows = Source.read_stream(spark, cluster)
        query = sink.write_stream(rows, cluster, checkpoint=f"{folder}/cp", trigger={"availableNow": True})
        query.awaitTermination()
        steady = [p for p in query.recentProgress if p.numInputRows][1:]
    seconds = [p.durationMs["triggerExecution"] / 1000 for p in steady]
    return sum(p.numInputRows for p in steady) / sum(seconds), statistics.median(seconds)


def main() -> None:
    """Measure, print, keep."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=2_000_000, help="records of a batch")
    options.add_argument("--batches", type=int, default=4, help="batches of a run; the first does not count")
    options.add_argument("--pairs", type=int, default=3)
    given = options.parse_args()
    console = Console()
    with (
        LocalKafka(topics={"orders": PARTITIONS, "warm-up": PARTITIONS, "out": PARTITIONS}) as kafka,
        session("exactly-once") as spark,
    ):
        fill(kafka.bootstrap_servers, "orders", given.records * given.batches, partitions=PARTITIONS)
        fill(kafka.bootstrap_servers, "warm-up", 4 * WARM_UP, partitions=PARTITIONS)
        cluster = Cluster(kafka.bootstrap_servers)
        for exactly in (True, False):
            rate(spark, cluster, "warm-up", WARM_UP, exactly=exactly)
        found: dict[bool, list[float]] = {True: [], False: []}
        processor: dict[bool, list[float]] = {True: [], False: []}
        lengths = []
        for i in range(given.pairs):
            for exactly in (True, False) if i % 2 == 0 else (False, True):
                told: list[tuple[float, float]] = []
                run = timed(
                    lambda told=told, exactly=exactly: told.append(  # type: ignore[misc]
                        rate(spark, cluster, "orders", given.records, exactly=exactly)
                    )
                )
                found[exactly].append(told[0][0])
                processor[exactly].append(run.cpu / (given.records * given.batches) * 1e6)
                lengths.append(told[0][1])
    ratios = [once / least for once, least in zip(found[True], found[False], strict=True)]
    ratio = statistics.median(ratios)
    console.print(
        f"exactly-once {statistics.median(found[True]):,.0f}/s, at-least-once {statistics.median(found[False]):,.0f}/s"
    )
    console.print(
        f"ratio {ratio:.2f} ({min(ratios):.2f} to {max(ratios):.2f}), goal {GOAL}; "
        f"batches of {statistics.median(lengths):.1f} s; processor {statistics.median(processor[True]):.2f} and "
        f"{statistics.median(processor[False]):.2f} s per million"
    )
    RESULTS.mkdir(exist_ok=True)
    document = {
        "machine": facts(),
        "exactly_once": found[True],
        "at_least_once": found[False],
        "ratios": ratios,
        "processor": {"exactly_once": processor[True], "at_least_once": processor[False]},
    }
    name = f"exactly-once-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"
    (RESULTS / name).write_text(json.dumps(document, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
