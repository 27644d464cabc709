"""An exactly-once query that dies in a batch and starts again under other circumstances: K14.

One batch is cut off by a kill. Before the query starts again, the head of a partition may be deleted, and cores, tasks
and writers may be others. The second life may be killed too, after it has claimed its ids, and tasks of the first life
may come late then. The last life runs to its end: nothing is lost, and nothing comes twice.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from kdsl import load_tables
from kdsl.cluster import Cluster
from kdsl.errors import ExactlyOnceError
from kdsl.run.librdkafka import sink
from kdsl.run.librdkafka.sink import write_transaction
from kdsl.run.librdkafka.transactions.spec import TransactionSpec
from kdsl.run.librdkafka.transactions.token import Token
from kdsl.run.librdkafka.transactions.token_store import TokenAdmin
from kdsl.run.read import read_stream
from kdsl.run.write import write_stream
from kdsl.testing import RunningKafka
from kdsl.testing.pytest_plugin import MakeTopic
from kdsl.types.arrow import arrow_schema
from tests.reliability import harness
from tests.reliability.harness import Job, Kill, Point, copy_tables
from tests.reliability.oracle import Mark, judge, look, marks, send
from tests.reliability.test_exactly_once import BEGINNING, COMMITTED, FLUSHED, exactly_once
from tests.run.exactly_once.test_stream import NOW, ids, plan_for
from tests.run.read_plans import read_plan
from tests.run.write_plans import part
from tests.transactions import settle

LANES, EACH = 4, 1_500
"""With this many partitions and records, the number of tasks is the allowed one."""

DEATHS = {
    "before begin": BEGINNING,
    "before a commit": FLUSHED,
    "after a commit": COMMITTED,
    "after all": harness.WRITTEN,
}
UNION = "select * from source union all select * from source where lane < 0"
"""Not narrow over one table: rows go to writers by their key."""


@attrs.frozen
class Circumstances:
    """What a life of the query has.

    Attributes:
        cores: The cores of its session.
        tasks: The table's ``scan.parallelism``; None is twice the cores.
        writers: The table's ``sink.parallelism``, or None.
    """

    cores: int = 2
    tasks: int | None = None
    writers: int | None = None

    def apply_to(self, job: Job, more: Mapping[str, Any]) -> None:
        """Give a job these circumstances."""
        job.spark = {"spark.master": f"local[{self.cores}]"}
        source, target = job.tables["tables"]
        reading = {**more, **({"scan.parallelism": self.tasks} if self.tasks else {})}
        writing = {"sink.parallelism": self.writers} if self.writers else {}
        options = {name: value for name, value in source["options"].items() if name != "scan.parallelism"}
        by_name = {name: value for name, value in target["options"].items() if name != "sink.parallelism"}
        job.tables = {
            "tables": [{**source, "options": {**options, **reading}}, {**target, "options": {**by_name, **writing}}]
        }


@attrs.frozen
class Combination:
    """A way of dying and starting again.

    Attributes:
        death: Where the first life dies.
        before: Its circumstances.
        after: Those of the next lives.
        query: What is made of the rows; None leaves the plan narrow.
        gap: The partition and the number of its first records that are deleted after the first life; None deletes none.
        late: Whether tasks of the first life come late, after the second one has claimed the ids and died.
    """

    death: str = "after a commit"
    before: Circumstances = Circumstances()
    after: Circumstances = Circumstances()
    query: str | None = None
    gap: tuple[int, int] | None = None
    late: bool = False


def combination(seed: int) -> Combination:
    """A combination at random."""
    chance = random.Random(seed)

    def circumstances() -> Circumstances:
        return Circumstances(
            chance.choice([1, 2, 3]), chance.choice([None, 2, 3, 8]), chance.choice([None, None, 1, 3])
        )

    return Combination(
        chance.choice(list(DEATHS)),
        circumstances(),
        circumstances(),
        chance.choice([None, None, UNION]),
        chance.choice([None, (chance.randrange(LANES), chance.choice([700, EACH]))]),
        chance.random() < 0.5,
    )


def last_tokens(kafka: RunningKafka, prefix: str) -> dict[str, Token]:
    # The driver has died: a transaction that it left open stays so until the next one claims the id.
    brokers = TokenAdmin(Cluster(kafka.bootstrap_servers), "target")
    return {id_: token for id_ in brokers.ids(prefix) if (token := brokers.token(id_, stable=False)) is not None}


def write_late(job: Job, kafka: RunningKafka, tokens: Mapping[str, Token], monkeypatch: pytest.MonkeyPatch) -> int:
    """Write through each id as a task of the run would whose tokens these are; how many were refused."""
    tables = load_tables(str(job.folder / "life-1" / "tables.yaml"))
    target = next(table for table in tables if table.name == "target")
    plan, batch = target.write_plan(), job.checkpoint.open
    refused = 0
    for id_, token in tokens.items():
        prefix, _, index = id_.rpartition("-")
        work = TransactionSpec(token.writer, prefix, len(tokens), job.topic("target"), token.plan, 60_000, batch)
        late = attrs.evolve(work, run=token.run)
        mark = {"name": "late/0", "producer": "late", "lane": 0, "seq": int(index), "transaction": None}
        rows = pa.RecordBatch.from_pylist([mark], schema=arrow_schema(plan.columns))
        monkeypatch.setattr(sink, "task_index", lambda index=index: int(index))
        with suppress(ExactlyOnceError):
            write_transaction(plan, Cluster(kafka.bootstrap_servers), late, [rows])
            continue
        refused += 1
    return refused


def dies_and_starts_again(
    how: Combination, kafka: RunningKafka, make: MakeTopic, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Let a job die and start again, and judge what came out."""
    source, target = make("in", partitions=LANES), make("out", partitions=1)
    sent = send(kafka, source, marks("p", LANES, count=LANES * EACH))
    job = Job(folder / "job", copy_tables(kafka, source, target, writing=exactly_once(target)), query=how.query)
    how.before.apply_to(job, {})
    first = job.run(Kill(DEATHS[how.death]))
    assert first.killed, first.log[-4000:]
    tokens = last_tokens(kafka, target)

    lost: set[Mark] = set()
    if how.gap is not None:
        lane, count = how.gap
        kafka.delete_records(source, {lane: count})
        lost = {mark for mark in sent if mark.lane == lane and mark.seq < count}
    how.after.apply_to(job, {"properties.auto.offset.reset": "earliest"})
    if how.late:
        second = job.run(Kill(Point(BEGINNING.function, "before")))
        # It comes to its end by itself where nothing of the batch is left to be written.
        assert second.killed or second.code == 0, second.log[-4000:]
        if second.killed:
            assert write_late(job, kafka, tokens, monkeypatch) == len(tokens)
    last = job.run()

    assert last.code == 0, last.log[-4000:]
    assert job.checkpoint.open is None
    settle(kafka, target)
    verdict = judge(sent, look(kafka, target))
    assert not verdict.duplicates, str(verdict)
    assert not verdict.unexpected, str(verdict)
    assert set(verdict.lost) <= lost, str(verdict)


@pytest.mark.reliability
@pytest.mark.parametrize(
    "how",
    [
        Combination(gap=(0, EACH)),
        Combination(gap=(1, 700), after=Circumstances(cores=3)),
        Combination(after=Circumstances(cores=3), before=Circumstances(cores=1)),
        Combination(after=Circumstances(tasks=8), before=Circumstances(tasks=3)),
        Combination(after=Circumstances(tasks=2), before=Circumstances(cores=2)),
        Combination(after=Circumstances(writers=2)),
    ],
    ids=["gap", "gap-and-cores", "cores", "more-tasks", "fewer-tasks", "writers"],
)
def test_a_half_written_batch_is_finished_after_a_gap_and_with_other_cores_tasks_and_writers(
    kdsl_kafka: RunningKafka,
    kdsl_topic: MakeTopic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    how: Combination,
) -> None:
    """K14. Rows stay with the writers that the batch was planned for."""
    dies_and_starts_again(how, kdsl_kafka, kdsl_topic, tmp_path, monkeypatch)


@pytest.mark.reliability
def test_late_tasks_of_a_driver_that_died_write_nothing(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """K14. They come when the next driver, which has fewer writers, has claimed the ids."""
    how = Combination("before begin", Circumstances(2), Circumstances(writers=2), late=True)

    dies_and_starts_again(how, kdsl_kafka, kdsl_topic, tmp_path, monkeypatch)


@pytest.mark.reliability
@pytest.mark.parametrize("seed", range(30))
def test_random_combinations_of_gap_restart_late_task_and_kill_lose_and_double_nothing(
    kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """K14."""
    how = combination(seed)
    print(f"seed {seed}: {how}")

    dies_and_starts_again(how, kdsl_kafka, kdsl_topic, tmp_path, monkeypatch)


@pytest.mark.reliability
def test_what_was_staged_for_another_batch_of_the_same_number_is_not_sent(
    spark: SparkSession, kdsl_kafka: RunningKafka, kdsl_topic: MakeTopic, tmp_path: Path
) -> None:
    """K14. The checkpoint is set back by a batch, which is planned anew with more records."""
    source, target = kdsl_topic("in"), kdsl_topic("out")
    cluster = Cluster(kdsl_kafka.bootstrap_servers)
    checkpoint = tmp_path / "cp"

    def run(numbers: range, **rest: Any) -> None:
        kdsl_kafka.produce(source, *(f'{{"id": {n}}}' for n in numbers))
        rows = read_stream(spark, read_plan(source, value=part("json", {"id": "BIGINT"})), cluster)
        plan = plan_for(target, staged=True, parallelism=2)
        assert write_stream(rows, plan, cluster, checkpoint=str(checkpoint), trigger=NOW, **rest).awaitTermination(300)

    run(range(10))
    run(range(10, 20))
    for log in ("offsets", "commits"):
        for name in ("1", ".1.crc"):
            (checkpoint / log / name).unlink(missing_ok=True)
    shutil.rmtree(checkpoint / "state", ignore_errors=True)
    with pytest.raises(ExactlyOnceError, match=r"an older checkpoint was restored"):
        run(range(20, 30))
    run(range(30, 35), adopt=True)
    run(range(35, 40))

    assert ids(kdsl_kafka, target) == {
        **dict.fromkeys(range(40), 1),
        **dict.fromkeys(range(10, 20), 2),  # which adopt=True is for
    }
