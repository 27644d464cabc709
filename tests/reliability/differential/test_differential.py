"""Random ingestions with random kills: every sink contains what a plain model says."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kdsl.testing import RunningKafka
from tests.changelog.conftest import postgres
from tests.changelog.tables import needs_delta
from tests.postgres import Postgres
from tests.reliability.differential import model
from tests.reliability.differential.generator import SINKS, Sink, make_world
from tests.reliability.differential.runner import Place, run_world, select

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["postgres"]

SEED = os.environ.get("KDSL_TEST_SEED") or str(random.randrange(10**6))
WORLDS = int(os.environ.get("KDSL_TEST_WORLDS", "1"))
TABLES = int(os.environ.get("KDSL_TEST_TABLES", "25"))
ODD = not os.environ.get("KDSL_TEST_TAME")
ONLY = [int(number) for number in os.environ.get("KDSL_TEST_ONLY", "").split(",") if number]


@pytest.mark.parametrize("sink", SINKS)
def test_small(sink: Sink, spark: SparkSession, kdsl_kafka: RunningKafka, postgres: Postgres, tmp_path: Path) -> None:
    if sink == "delta":
        needs_delta()
    failures = []
    for number in range(WORLDS):
        world = make_world(f"{SEED}-{sink}-{number}", sink, TABLES, 15, odd=ODD)
        if ONLY:
            world = select(world, ONLY)
        folder = tmp_path / str(number)
        folder.mkdir()
        place = Place(spark, kdsl_kafka, postgres, folder)
        try:
            differences = run_world(world, place)
        except Exception as error:
            failures.append(f"{world.seed} ({world.wire}, {world.written}): {type(error).__name__} {str(error)[:2000]}")
            print("FAIL", failures[-1], flush=True)
            continue
        failures += [
            f"{world.seed} ({world.wire}, {world.written}): {d.numbers} {d.table}: {d.reason}" for d in differences
        ]
        print(
            number, time.monotonic(), *failures[-len(differences) :] if differences else (), sep="\nFAIL ", flush=True
        )
    assert not failures, "\n".join(failures)


def test_the_model_stays_small() -> None:
    assert len(Path(str(model.__file__)).read_text(encoding="utf-8").splitlines()) <= 200
