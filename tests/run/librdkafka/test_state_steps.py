"""The steps of tasks in the states of partitions: each batch moves the state of each partition that it moves."""

from __future__ import annotations

import pytest

from kdsl import Json, PrimaryKey, UpsertTable
from kdsl.declare.connector import ChangelogState
from kdsl.errors import KdslError
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan
from kdsl.resolve import resolve
from kdsl.run.librdkafka.source import _state_steps
from kdsl.run.librdkafka.state_checks import check_state_place
from kdsl.run.offsets.stored import Offsets, Range, StateFolder


def offsets(*positions: int, initial: bool = False) -> Offsets:
    return Offsets({("t", p): at for p, at in enumerate(positions)}, {"t": "id"}, initial=initial)


def test_the_first_batch_begins_with_empty_states_wherever_it_begins() -> None:
    tasks = [(Range("t", 0, 5, 9),), (Range("t", 1, 0, 4),)]

    steps = _state_steps(offsets(5, 0, 7, initial=True), offsets(9, 4, 7), tasks)

    assert steps == [((0, None, 9), (2, None, 7)), ((1, None, 4),)]


def test_a_batch_continues_the_states_that_it_moves_also_past_a_gap_and_into_new_partitions() -> None:
    steps = _state_steps(offsets(5, 3, 7), offsets(9, 3, 20, 2), [(Range("t", 0, 6, 9), Range("t", 3, 0, 2))])

    assert steps == [((0, 5, 9), (3, None, 2), (2, 7, 20))]


def test_a_batch_that_only_passes_gaps_has_a_task() -> None:
    assert _state_steps(offsets(5, 3), offsets(9, 3), []) == [((0, 5, 9),)]
    assert _state_steps(offsets(5, 3), offsets(5, 3), []) == []


def plan_of(state: ChangelogState) -> ReadPlan:
    class Users(UpsertTable, topic="t", key=Json(), value=Json(), changelog_state=state):
        id: PrimaryKey[int]

    return read_plan(resolve(Users.definition(), "read"))


def test_a_checkpoint_of_the_other_place_is_refused_with_what_to_do() -> None:
    folder = StateFolder("id", 3)
    check_state_place(plan_of("partition"), folder)
    check_state_place(plan_of("buckets"), None)

    with pytest.raises(KdslError, match="= 'buckets', and the table declares partition; declare 'buckets', or start"):
        check_state_place(plan_of("partition"), None)
    with pytest.raises(KdslError, match="= 'partition', and the table declares buckets; declare 'partition', or start"):
        check_state_place(plan_of("buckets"), folder)


def test_offsets_keep_the_folder() -> None:
    with_state = Offsets({("t", 0): 5}, {"t": "id"}, state=StateFolder("a", 3, 1_000))

    assert Offsets.from_json(with_state.to_json()) == with_state
    assert Offsets.from_json(offsets(5).to_json()).state is None
