"""Measure what the planning process computes for a micro-batch, without a broker, for any number of partitions.

``python -m bench.scale_simulated [--partitions N,N] [--batches N] [--tasks N]``. The admin client answers from memory,
with the answers of a broker whose partitions all get records between two batches. All calls are those that Spark makes
in the planning process for a batch, with its conversions from and to JSON and its pickles of the tasks; and what the
listener does with the report of the batch in the driver.
"""

from __future__ import annotations

import argparse
import gc
import json
import pickle
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from typing import ParamSpec, TypeVar, cast
from unittest.mock import patch

import attrs
from rich.console import Console
from rich.table import Table as Grid

from kdsl import Cluster, Col, Json, KafkaTable, PrimaryKey, Raw, UpsertTable
from kdsl.callbacks import TopicPartition
from kdsl.plan.build import read_plan
from kdsl.plan.model import RoutingChoice
from kdsl.resolve import resolve
from kdsl.run.admin.cluster_admin import ClusterAdmin, OffsetAndEpoch, Topic
from kdsl.run.librdkafka import state_plans
from kdsl.run.librdkafka.options import write_options
from kdsl.run.librdkafka.read_task import PARALLELISM
from kdsl.run.librdkafka.source import StreamReader
from kdsl.run.librdkafka.stream import Stream
from kdsl.run.librdkafka.task_packing import choose_packing
from kdsl.run.offsets.stored import Offsets
from kdsl.spark_internals.sources import ReadAllAvailable

P = ParamSpec("P")
T = TypeVar("T")

TASKS = 4
"""The maximum number of tasks of a batch: twice the cores of a session on two cores."""
NEW_RECORDS = 1_000
"""How many records each partition gets between two batches; with 1,000 partitions, a batch has a million."""


class Plain(KafkaTable, topic="simulated", value=Raw(), startup="earliest"):
    """A topic of records."""

    value: Col[bytes | None]


class Upserts(UpsertTable, topic="simulated", key=Json(), value=Json(), changelog_state="partition"):
    """A topic of upserts with the last row of each key by topic partition."""

    id: PrimaryKey[int]
    name: Col[str | None]


TABLES: Mapping[str, type[KafkaTable]] = {"plain": Plain, "upserts by partition": Upserts}


class AnswersFromMemory:
    """The part of `kdsl.run.admin.cluster_admin.ClusterAdmin` that planning needs, for a topic that begins at 1,000.

    Args:
        topic: The topic.
        partitions: How many partitions it has.

    Attributes:
        servers: No brokers.
        ends: The end of each partition, which `append` moves.
    """

    servers = ""

    def __init__(self, topic: str, partitions: int) -> None:
        self._topic, self._partitions = topic, partitions
        self.ends = {(topic, partition): 1_000_000 + partition for partition in range(partitions)}

    def append(self, records: int) -> None:
        """Append records to each partition."""
        self.ends = {partition: end + records for partition, end in self.ends.items()}

    def topics(self, names: Iterable[str], *, known: bool = False) -> dict[str, Topic]:  # noqa: ARG002
        """The topic, if it is among the names."""
        return {name: Topic("TKCJsSHvTzmd0ZQgpnyPgw", self._partitions) for name in names if name == self._topic}

    def names(self, *, internal: bool = False) -> list[str]:  # noqa: ARG002
        """The topic."""
        return [self._topic]

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The beginning of each partition."""
        return dict.fromkeys(partitions, 1_000)

    def latest(self, partitions: Iterable[TopicPartition], *, committed: bool) -> dict[TopicPartition, int]:  # noqa: ARG002
        """The end of each partition."""
        return {partition: self.ends[partition] for partition in partitions}

    def log_ends(
        self,
        partitions: Iterable[TopicPartition],
        *,
        committed: bool,  # noqa: ARG002
    ) -> dict[TopicPartition, OffsetAndEpoch]:
        """The end of each partition."""
        return {partition: OffsetAndEpoch(self.ends[partition], 0) for partition in partitions}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:  # noqa: ARG002
        """No committed offsets."""
        return {}


@attrs.frozen
class Simulated:
    """The figures of one table with one number of partitions; times are medians in milliseconds.

    Attributes:
        table: The name of the table.
        partitions: The number of partitions.
        empty: A check that finds no records.
        latest: Planning the end of a batch for which all partitions have new records.
        tasks: Planning its tasks.
        report: Reporting how far the topic can be read.
        listener: Reading the offsets of the batch's report in the driver.
        offsets_bytes: The size of the batch's entry in Spark's offset log.
        task_bytes: The size of all tasks as they go into the JVM.
        task_count: How many tasks those are.
    """

    table: str
    partitions: int
    empty: float
    latest: float
    tasks: float
    report: float
    listener: float
    offsets_bytes: int
    task_bytes: int
    task_count: int

    @property
    def batch(self) -> float:
        """What a batch costs in the planning process."""
        return self.latest + self.tasks + self.report


def simulate(name: str, partitions: int, batches: int, tasks: int = TASKS) -> Simulated:
    """Plan micro-batches of a table as Spark does, and measure them.

    Args:
        name: The table, of `TABLES`.
        partitions: How many partitions its topic has.
        batches: How many batches with records, and as many checks without.
        tasks: The maximum number of tasks of a batch.
    """
    answers = AnswersFromMemory("simulated", partitions)
    reader = _reader(TABLES[name], answers, tasks)
    chosen = RoutingChoice("partition", "each key is where it should be", partitions, "murmur2")
    with patch.object(state_plans, "sample_choice", return_value=chosen):  # there are no records to sample
        start = json.dumps(reader.initialOffset())
    times: dict[str, list[float]] = {name: [] for name in ("empty", "latest", "tasks", "report", "listener")}
    pickled: list[bytes] = []
    for _ in range(batches):
        answers.append(NEW_RECORDS)
        end = _measure(times["latest"], _plan_end, reader, start)
        pickled = _measure(times["tasks"], _plan_tasks, reader, start, end)
        latest = _measure(times["report"], _report, reader)
        _measure(times["listener"], _parse, start, end, latest)
        start = end
        _measure(times["empty"], _plan_end, reader, start)
    medians = {name: statistics.median(values) for name, values in times.items()}
    return Simulated(name, partitions, **medians, offsets_bytes=len(start), task_bytes=sum(map(len, pickled)),
                     task_count=len(pickled))  # fmt: skip


def _reader(table: type[KafkaTable], answers: AnswersFromMemory, tasks: int) -> StreamReader:
    """A reader as Spark's planning process has it, whose stream asks ``answers``."""
    plan, cluster = read_plan(resolve(table.definition(), "read")), Cluster("127.0.0.1:1")
    reader = StreamReader(tuple({**write_options(plan, cluster), PARALLELISM: str(tasks)}.items()))
    packing = choose_packing(tasks, whole=plan.upserts is not None)
    reader._opened_stream = Stream(plan, cluster, packing, admin=cast("ClusterAdmin", answers))  # noqa: SLF001
    return reader


def _plan_end(reader: StreamReader, start: str) -> str:
    """Plan the end of a batch that begins at ``start``."""
    return json.dumps(reader.latestOffset(json.loads(start), ReadAllAvailable()))


def _plan_tasks(reader: StreamReader, start: str, end: str) -> list[bytes]:
    """Plan the tasks of a batch, and pickle them."""
    return [pickle.dumps(task) for task in reader.partitions(json.loads(start), json.loads(end))]


def _report(reader: StreamReader) -> str:
    """Report how far the topic can be read."""
    return json.dumps(reader.reportLatestOffset())


def _parse(*texts: str) -> list[Offsets]:
    """Read offsets as the listener does."""
    return [Offsets.from_json(json.loads(text)) for text in texts]


def _measure(times: list[float], work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do the work, add its milliseconds of processor time, and return its result."""
    began = time.process_time()
    result = work(*args, **kwargs)
    times.append(1000 * (time.process_time() - began))
    return result


def slope(points: Iterable[tuple[float, float]]) -> float:
    """The slope of the straight line that fits some points best (least squares); 0 for fewer than two points."""
    known = list(points)
    if len(known) < 2:
        return 0.0
    return statistics.linear_regression(*zip(*known, strict=True)).slope


def main() -> None:
    """Measure, and print the figures with their slopes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", default="100,1000,4000,10000")
    parser.add_argument("--batches", type=int, default=9)
    parser.add_argument("--tasks", type=int, default=TASKS, help="the maximum number of tasks of a batch")
    args = parser.parse_args()
    grid = Grid("table", "partitions", "empty, ms", "end, ms", "tasks, ms", "report, ms", "batch, ms", "listener, ms",
                "offset log, bytes", "tasks, bytes", "tasks")  # fmt: skip
    gc.freeze()
    for name in TABLES:
        figures = [simulate(name, int(count), args.batches, args.tasks) for count in args.partitions.split(",")]
        for one in figures:
            steps = (one.empty, one.latest, one.tasks, one.report, one.batch, one.listener)
            sizes = (one.offsets_bytes, one.task_bytes, one.task_count)
            grid.add_row(
                name, f"{one.partitions:,}", *(f"{step:.1f}" for step in steps), *(f"{size:,}" for size in sizes)
            )
        slopes = [
            1000 * slope((one.partitions, getattr(one, step)) for one in figures)
            for step in ("empty", "latest", "tasks", "report", "batch", "listener", "offsets_bytes", "task_bytes")
        ]
        grid.add_row("", "per 1,000", *(f"{value:,.1f}" for value in slopes), "", end_section=True)
    Console(width=140).print(grid)


if __name__ == "__main__":
    main()
