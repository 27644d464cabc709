"""Compare this checkout with another one in pairs of runs: ``python -m bench.against ../earlier raw-read json-write``.

Each checkout has a process with a Spark session of its own, and both read and write the same topics. The cases are
those of ``python -m bench``, where only kdsl's side runs, and with the prefix ``ingest-`` ingestions as in
`bench.ingest`. A ratio above 1 means that this checkout is faster.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bench.ingest import Cases as IngestCases
    from bench.ingest_batches import MergedTables
    from kdsl.ingest import KafkaFeed

INGESTIONS = ("ingest-json", "ingest-letters", "ingest-canal", "ingest-kafka", "ingest-delta", "ingest-postgres")
ROOT = Path(__file__).parents[1]


class Checkout:
    """A process that runs the cases of a checkout on request.

    Args:
        root: The root of the checkout, whose packages the process imports.
        script: What the process runs: it answers each line of standard input with a line of JSON.
        *arguments: The arguments of the script.
    """

    def __init__(self, root: Path, script: str, *arguments: str) -> None:
        paths = os.pathsep.join(str(root / name) for name in ("", "formats"))
        self._process = subprocess.Popen(
            [sys.executable, "-P", script, *arguments],
            cwd=root,
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.root = Path(self.ask("root"))
        if self.root != root:
            raise SystemExit(f"bench: the process for {root} imports kdsl from {self.root}")

    def run(self, case: str) -> None:
        """Run kdsl's side of a case once."""
        self.ask(case)

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)

    def ask(self, question: str) -> str:
        """Send a line to the process, and return its answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(question, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"bench: the process of {self.root} ended with {self._process.wait(60)}")
        return str(json.loads(answer))


class IngestRuns:
    """Runs of ingestions, over topics of their own that are filled when the first run asks for them.

    Args:
        cases: What `bench.ingest` runs.
        stack: Closes the database.
    """

    def __init__(self, cases: IngestCases, stack: ExitStack) -> None:
        self._cases, self._stack, self._numbers = cases, stack, count()

    def prepare(self, name: str) -> Callable[[], object]:
        """Return the work of a case."""
        from bench.ingest_batches import MergedTables
        from tests.postgres import Postgres

        if name == "ingest-delta":
            return self._prepare_merges(MergedTables.delta(self._cases.folder), 8)
        if name == "ingest-postgres":
            return self._prepare_merges(MergedTables.postgres(self._stack.enter_context(Postgres())), 50)
        works = {
            "ingest-json": self._prepare_json,
            "ingest-letters": self._prepare_letters,
            "ingest-canal": self._prepare_canal,
            "ingest-kafka": self._prepare_copy,
        }
        return works[name]()

    def _prepare_json(self) -> Callable[[], None]:
        from kdsl.ingest import Blackhole
        from kdsl_formats.json import Json

        feed = self._cases.feed(self._cases.fill_orders(), Json())
        return lambda: self._cases.run(feed, Blackhole())

    def _prepare_letters(self) -> Callable[[], None]:
        from kdsl.ingest import Blackhole, Pipeline
        from kdsl_formats.json import Json

        self._cases.kafka.create_topic("letters", 4)
        feed = self._cases.feed(self._cases.fill_orders(), Json(), ignore_errors=True)
        pipeline = Pipeline(collector="kafka", collector_topic="letters")
        return lambda: self._cases.run(feed, Blackhole(), pipeline=pipeline)

    def _prepare_canal(self) -> Callable[[], None]:
        from bench import observe
        from kdsl.ingest import Blackhole
        from kdsl_formats.cdc_json import CanalJson

        random = Random(7)
        self._cases.produce("canal", (observe.canal(i, random) for i in range(self._cases.records)))
        feed = self._cases.feed("canal", CanalJson(infer_strategy="SQL_TYPE"))
        return lambda: self._cases.run(feed, Blackhole())

    def _prepare_copy(self) -> Callable[[], None]:
        from bench import observe
        from kdsl_formats.cdc_json import DebeziumJson

        random = Random(7)
        texts = (observe.debezium(i, random) for i in range(self._cases.records))
        tables = (text.replace('"table":"orders"', f'"table":"t{i % 20}"') for i, text in enumerate(texts))
        self._cases.produce("changes", tables)
        return partial(self._copy, self._cases.feed("changes", DebeziumJson()))

    def _copy(self, feed: KafkaFeed) -> None:
        from kdsl.ingest import KafkaTopics

        topic = self._cases.kafka.create_topic(f"changed-{next(self._numbers)}", 4)
        self._cases.run(feed, KafkaTopics(self._cases.cluster, topic=topic))
        self._cases.kafka.delete_topic(topic)  # its files would fill the disk

    def _prepare_merges(self, tables: MergedTables, touched: int) -> Callable[[], float]:
        """Start an ingestion into tables of a sink; the work is a batch that touches some of them."""
        from bench.ingest_batches import CONCURRENCY, MergeBench
        from kdsl.ingest import Ingestion, Pipeline, Route, Transform
        from kdsl_formats.json import Json

        topic = self._cases.kafka.create_topic(f"into-{tables.title.lower()}")
        feed = self._cases.feed(topic, Json(table_id_fields="t"), prefetch=0)
        query = Ingestion(
            feed,
            tables.sink,
            transform=[Transform(r"\.*", primary_keys=("id",))],
            route=[Route(r"(\.*)", tables.route)],
            pipeline=Pipeline(sink_concurrency=CONCURRENCY),
        ).run(self._cases.spark, self._cases.new_folder())
        merges = MergeBench(self._cases.spark, self._cases.kafka, feed, tables)
        return partial(merges._ingest, query, touched)  # noqa: SLF001 - every checkout has this method


def serve(bootstrap: str, records: int) -> None:
    """Run a case for each line of standard input, and answer each with a line of JSON on standard output."""
    import kdsl
    from bench import ingest
    from bench.__main__ import Cases
    from bench.machine import session
    from kdsl.testing import LocalKafka

    class Ours(Cases):
        """The cases, without the other side of each."""

        def _compare(self, *sides: Any, **_: Any) -> Any:
            return sides[1]

    answers, sys.stdout = sys.stdout, sys.stderr
    with ExitStack() as stack:
        spark = stack.enter_context(session("bench"))
        kafka = stack.enter_context(LocalKafka())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cases = Ours(spark, bootstrap, 0, 0)
        ingestions = IngestRuns(ingest.Cases(spark, kafka, folder, records, 0), stack)
        commands: dict[str, Any] = {"root": lambda: str(Path(kdsl.__file__).parents[1])}
        for line in sys.stdin:
            name = line.strip()
            if name not in commands:
                commands[name] = ingestions.prepare(name) if name in INGESTIONS else next(cases.run([name]))
            print(json.dumps(str(commands[name]())), file=answers, flush=True)


def main() -> None:
    """Fill the topics, run the cases on both checkouts in turn, and print the ratios."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", type=Path, help="the root of the other checkout")
    parser.add_argument("cases", nargs="*", help=f"cases of `python -m bench`, all if none; {', '.join(INGESTIONS)}")
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()

    from bench.__main__ import CASES, PARTITIONS, TOPICS, fill_topics
    from bench.paired import compare
    from kdsl.testing import LocalKafka

    with LocalKafka(topics=dict.fromkeys(TOPICS, PARTITIONS)) as kafka:
        fill_topics(kafka.bootstrap_servers, args.records)
        command = (__file__, "--serve", kafka.bootstrap_servers, str(args.records))
        ours, theirs = Checkout(ROOT, *command), Checkout(args.other.resolve(), *command)
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
        serve(sys.argv[2], int(sys.argv[3]))
    else:
        main()
