"""Random ingestions with random kills: every sink contains what a plain model says.

``KDSL_TEST_SEED`` says where the random numbers start; it is printed with each failure. The failure of one table can be
repeated alone: ``KDSL_TEST_SEED=7 KDSL_TEST_WORLD=3 KDSL_TEST_TABLES=12,13 pytest …``.
"""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest

from kdsl.testing import RunningKafka
from tests.changelog.tables import needs_delta
from tests.postgres import PASSWORD, Postgres
from tests.reliability.differential import model
from tests.reliability.differential.generator import SINKS, Sink, World, make_large_world, make_world
from tests.reliability.differential.messages import write_records
from tests.reliability.differential.runner import Place, RunError, run_world, select, shrink
from tests.reliability.differential.targets import PASSWORD_VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = os.environ.get("KDSL_TEST_SEED")
WORLD = os.environ.get("KDSL_TEST_WORLD")
TABLES = os.environ.get("KDSL_TEST_TABLES")
SEQUENCES = int(os.environ.get("KDSL_TEST_SEQUENCES", "2000"))
SHARES: dict[Sink, tuple[float, int]] = {
    "memory": (0.2, 40), "kafka": (0.5, 50), "postgres": (0.2, 40), "delta": (0.1, 20),
}  # fmt: skip
"""The part of the sequences that a sink gets, and how many tables an ingestion has."""
SMALL: dict[Sink, int] = {"memory": 15, "kafka": 30, "postgres": 15, "delta": 6}
"""How many tables the single ingestion of a sink has; in memory and Postgres it runs with all tests."""
SHOWN = 20
"""The most records of a failure that are shown."""


@attrs.frozen
class Failure:
    """What is wrong after a run.

    Attributes:
        text: The reason, and how the run can be repeated.
        numbers: The tables that differ; none if the ingestion itself failed.
    """

    text: str
    numbers: tuple[int, ...] = ()


Run = Callable[[World], list[Failure]]


@pytest.fixture
def run(
    spark: SparkSession,
    kdsl_kafka: RunningKafka,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Run:
    """Runs an ingestion, and says what is wrong."""
    monkeypatch.setenv(PASSWORD_VARIABLE, PASSWORD)
    folders = itertools.count()

    def run_one(world: World) -> list[Failure]:
        if world.sink == "delta":
            needs_delta()
        postgres: Postgres | None = request.getfixturevalue("postgres") if world.sink == "postgres" else None
        place = Place(spark, kdsl_kafka, postgres, tmp_path / str(next(folders)))
        try:
            differences = run_world(world, place)
        except RunError as error:
            return [Failure(f"{describe(world)}: {error}")]
        return [
            Failure(f"{describe(world, one.numbers)}: {one.table}: {one.reason}", one.numbers) for one in differences
        ]

    return run_one


def describe(world: World, numbers: Iterable[int] = ()) -> str:
    """How a run can be repeated."""
    seed, _, number = world.seed.rpartition("/")
    tables = ",".join(map(str, numbers))
    only = f" KDSL_TEST_TABLES={tables}" if tables else ""
    return f"KDSL_TEST_SEED={seed.partition('/')[0]} KDSL_TEST_WORLD={number}{only} ({world.sink}, {world.wire})"


def find_records(world: World, numbers: tuple[int, ...], run: Run) -> str:
    """The records of a smaller run that fails, too."""
    smaller = shrink(world, numbers, lambda one: bool(run(one)), attempts=10)
    if smaller is None:
        return "its tables do not fail alone"
    records = [record for of_round in write_records(smaller) for record in of_round]
    return "\n".join(f"{record.partition}: {record.key!r}: {record.value!r}" for record in records[:SHOWN])


def check(seed: str, sink: Sink, numbers: Iterable[int], tables: int, run: Run) -> None:
    """Run ingestions of a sink, and report all failures."""
    print(f"KDSL_TEST_SEED={seed}", flush=True)
    failures: list[str] = []
    for number in numbers if WORLD is None else [int(WORLD)]:
        world = make_world(f"{seed}/{sink}/{number}", sink, tables, 15)
        world = attrs.evolve(world, processes=sink != "memory" and number % 4 == 3)
        if TABLES is not None:
            chosen = [int(text) for text in TABLES.split(",")]
            world = select(
                world, {source.number: source.changes for source in world.sources if source.number in chosen}
            )
        for failure in run(world):
            failures.append(failure.text)
            print(failure.text, flush=True)
            if failure.numbers and len(failures) == 1 and not world.processes:
                failures.append(find_records(world, failure.numbers, run))
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize(
    "sink",
    [
        "memory",
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("kafka", marks=pytest.mark.reliability),
        pytest.param("delta", marks=pytest.mark.reliability),
    ],
)
def test_an_ingestion_gives_what_the_model_says(sink: Sink, run: Run) -> None:
    check(SEED or "32", sink, [0], SMALL[sink], run)


@pytest.mark.reliability
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("sink", [pytest.param(s, marks=[pytest.mark.postgres] * (s == "postgres")) for s in SINKS])
def test_random_ingestions_give_what_the_model_says(sink: Sink, run: Run) -> None:
    """I4. Two thousand sequences of changes, with kills of the sink and of the whole driver."""
    share, tables = SHARES[sink]
    seed = SEED or str(random.randrange(10**6))
    check(seed, sink, range(round(SEQUENCES * share / tables)), tables, run)


def test_the_changes_of_a_key_stay_in_order_in_a_large_batch(run: Run) -> None:
    assert not run(make_large_world(f"{SEED or '32'}/large/0", "kafka", 45_000))


@pytest.mark.reliability
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("sink", [pytest.param(s, marks=[pytest.mark.postgres] * (s == "postgres")) for s in SINKS])
def test_the_changes_of_a_key_stay_in_order_in_large_batches(sink: Sink, run: Run) -> None:
    seed = SEED or str(random.randrange(10**6))
    worlds = [make_large_world(f"{seed}/large/{n}", sink, 120_000) for n in range(4)]
    failures = [failure.text for world in worlds for failure in run(world)]
    assert not failures, "\n".join(failures)


def test_the_model_stays_small() -> None:
    assert len(Path(str(model.__file__)).read_text(encoding="utf-8").splitlines()) <= 200
