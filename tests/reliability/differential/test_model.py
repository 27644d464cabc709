"""The model and the comparison with it: without Spark and Kafka."""

from __future__ import annotations

import os
from pathlib import Path

import attrs
import pytest

from tests.reliability.differential.faults import POINTS, kill_at
from tests.reliability.differential.generator import SINKS, Sink, make_world
from tests.reliability.differential.messages import write_records
from tests.reliability.differential.model import Change, Rules, build_table, join, type_of
from tests.reliability.differential.runner import explain_difference, select
from tests.reliability.differential.without_spark import run_without_spark
from tests.reliability.harness import Point

SEED = os.environ.get("KDSL_TEST_SEED", "32")
WORLDS = int(os.environ.get("KDSL_TEST_SEQUENCES", "300")) // 20
ONE, OTHER = {"id": "1", "f": "60", "n": "1"}, {"id": "1", "f": "40", "n": "2.5"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("null", None), ("true", "BOOLEAN"), ("1", "BIGINT"), (str(2**63), "DECIMAL"), ("9" * 39, "STRING"),
        ("1.0", "DOUBLE"), ("1e3", "DOUBLE"), ("1e400", "STRING"), ("1e-400", "STRING"), ("0e-400", "DOUBLE"),
        ('"2024-02-29"', "DATE"), ('"2024-02-30"', "STRING"), ('"12:00:00.5"', "TIME"), ('"24:00:00"', "STRING"),
        ('"2024-01-01T00:00:00"', "TIMESTAMP"), ('"2024-01-01 00:00:00.123Z"', "TIMESTAMP_LTZ"),
        ('"٢024-01-01"', "STRING"), ('{"a":1}', "STRING"), ("[]", "STRING"),
    ],
)  # fmt: skip
def test_values_have_the_types_of_the_page(value: str, expected: str | None) -> None:
    assert type_of(value) == expected


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("BIGINT", "DOUBLE", "DOUBLE"), ("DECIMAL", "BIGINT", "DECIMAL"), ("DECIMAL", "DOUBLE", "STRING"),
        ("DATE", "TIMESTAMP", "TIMESTAMP"), ("TIME", "DATE", "STRING"), ("BOOLEAN", "BOOLEAN", "BOOLEAN"),
    ],
)  # fmt: skip
def test_types_are_joined(a: str, b: str, expected: str) -> None:
    assert join(a, b) == join(b, a) == expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Rules(("id",)), [{"id": 1, "f": 40, "n": 2.5}]),
        (Rules(("id",), above=50), []),
        (Rules(("id",), above=50, soft_delete=True), [{"id": 1, "f": 60, "n": 1.0, "row_kind": "-U"}]),
        (Rules(("id",), doubled=True), [{"id": 1, "f": 40, "n": 2.5, "doubled": 80}]),
    ],
)
def test_changes_become_rows(rules: Rules, expected: list[dict[str, object]]) -> None:
    changes = [Change(None, ONE), Change(ONE, OTHER), Change(None, {"id": "2", "f": "0"}), Change({"id": "2"}, None)]

    assert build_table([(changes[:2], rules)]).rows == expected


def test_a_missing_row_an_additional_one_and_a_wrong_type_are_differences() -> None:
    table = build_table([([Change(None, ONE)], Rules(("id",)))])

    assert explain_difference(table, [{"id": 1, "f": 60, "n": 1}]) is None
    assert "1 rows missing" in str(explain_difference(table, []))
    assert "1 rows too many" in str(explain_difference(table, [{"id": 1, "f": 60, "n": 1}] * 2))
    assert "does not have the types" in str(explain_difference(table, [{"id": 1, "f": "x", "n": 1}]))
    assert "should not be there" in str(explain_difference(table, [{"id": 1, "f": 60, "n": 1, "x": 0}]))


@pytest.mark.parametrize("sink", SINKS)
def test_a_world_is_a_function_of_its_seed_and_can_be_divided(sink: Sink) -> None:
    for number in range(20):
        world = make_world(f"1/{sink}/{number}", sink, 8, 10)
        assert world == make_world(world.seed, sink, 8, 10)
        changes = {source.number: source.changes for source in world.sources}
        assert attrs.evolve(select(world, changes), obstacle=world.obstacle) == world
        last = world.sources[-1]
        part = select(world, {last.number: last.changes[-1:]})
        assert sum(part.rounds) == len(part.order) == 1
        assert [c for source in part.sources for c in source.changes] == [last.changes[-1]]
        assert len(write_records(part)) == len(world.rounds)


def test_sequences_that_are_written_as_they_are_read_give_what_the_model_says(tmp_path: Path) -> None:
    """Some hundred sequences into Kafka, without Spark and brokers."""
    failures = []
    for number in range(WORLDS):
        world = make_world(f"{SEED}/plain/{number}", "kafka", 20, 12, plain=True)
        differences = run_without_spark(world, tmp_path / str(number))
        failures += [f"{world.seed}: {one.numbers} {one.table}: {one.reason}" for one in differences]
    assert not failures, "\n".join(failures)


@pytest.mark.parametrize("point", POINTS, ids=str)
def test_the_points_of_deaths_exist(point: Point) -> None:
    with kill_at(point, 0):
        pass
