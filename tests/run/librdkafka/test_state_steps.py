"""The steps of tasks in the states of partitions and shards: each batch moves each state that it has to move."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs
import pytest

from kdsl import Cluster, Json, PrimaryKey, UpsertTable
from kdsl.declare.connector import ChangelogMode, ChangelogState
from kdsl.errors import KdslError
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan, RoutingChoice
from kdsl.resolve import resolve
from kdsl.run.admin.cluster_admin import Topic
from kdsl.run.librdkafka import state_plans
from kdsl.run.librdkafka.state_checks import check_state_place
from kdsl.run.librdkafka.state_plans import (
    advance_state as advance_state_of,
    choose_state_packing,
    create_state,
    number_batch,
    plan_partition_steps,
    plan_steps,
)
from kdsl.run.offsets.stored import OffsetFormatError, Offsets, Packing, Range, StateFolder
from kdsl.run.upsert.steps import PartitionSteps, ShardStep

Routing = Literal["partition", "key"]
EACH: tuple[Routing, ...] = ("partition", "key")
BY_PARTITION = StateFolder("p", "partition", 3, partitioner="murmur2")
BY_KEY = StateFolder("k", "key", 3, shards=8)


def offsets(*positions: int, initial: bool = False, state: StateFolder | None = None) -> Offsets:
    return Offsets({("t", p): at for p, at in enumerate(positions)}, {"t": "id"}, initial=initial, state=state)


def plan_of(state: ChangelogState, changelog: ChangelogMode = "full", routing: Routing = "key") -> ReadPlan:
    class Users(UpsertTable, topic="t", key=Json(), value=Json(), changelog_state=state, changelog=changelog):
        id: PrimaryKey[int]

    plan = read_plan(resolve(Users.definition(), "read"))
    assert plan.upserts is not None
    return attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, routing=routing))


def advance_state(plan: ReadPlan, start: Offsets, positions: Mapping[tuple[str, int], int], shards: int) -> StateFolder:
    """The state after a batch, of a topic that has as many partitions as the batch."""
    state = advance_state_of(plan, start, positions, shards, partitions=len(positions))
    assert state is not None
    return state


class TestPartitions:
    def test_the_first_batch_begins_with_empty_states_wherever_it_begins(self) -> None:
        tasks = [(Range("t", 0, 5, 9),), (Range("t", 1, 0, 4),)]

        steps = plan_partition_steps(offsets(5, 0, 7, initial=True), offsets(9, 4, 7), tasks)

        assert steps == [((0, None, 9), (2, None, 7)), ((1, None, 4),)]

    def test_a_batch_continues_the_states_that_it_moves_also_past_a_gap_and_into_new_partitions(self) -> None:
        steps = plan_partition_steps(
            offsets(5, 3, 7), offsets(9, 3, 20, 2), [(Range("t", 0, 6, 9), Range("t", 3, 0, 2))]
        )

        assert steps == [((0, 5, 9), (3, None, 2), (2, 7, 20))]

    def test_a_batch_that_only_passes_gaps_has_a_task(self) -> None:
        assert plan_partition_steps(offsets(5, 3), offsets(9, 3), []) == [((0, 5, 9),)]
        assert plan_partition_steps(offsets(5, 3), offsets(5, 3), []) == []

    def test_a_task_gets_its_partitions_with_the_routing_of_the_checkpoint(self) -> None:
        state = attrs.evolve(BY_PARTITION, key_form="wide", time=7)
        task = (Range("t", 1, 3, 4),)
        begin, stop = offsets(5, 3, 7, state=state), offsets(5, 4, 7, state=state)

        for routing in EACH:
            assert plan_steps(plan_of("auto", routing=routing), begin, stop, [task], [task]) == [
                (task, PartitionSteps("p", 3, ((1, 3, 4),), 7, "murmur2", "wide"))
            ]

    def test_partitions_with_states_are_not_split(self) -> None:
        packing = Packing("balanced", 8, 10, 10)

        assert choose_state_packing(packing, BY_PARTITION) == attrs.evolve(packing, kind="whole")
        assert choose_state_packing(packing, BY_KEY) == choose_state_packing(packing, None) == packing


class TestShards:
    def step(
        self,
        state: StateFolder,
        *,
        tells: bool = True,
        former: tuple[tuple[str, int], ...] = (),
        obsolete: str = "",
    ) -> ShardStep:
        return ShardStep(state.id, state.shards, state.before, state.version, state.time, former, obsolete, tells)

    def test_one_task_tells_the_shards_also_if_no_task_reads(self) -> None:
        tasks = [(Range("t", 0, 5, 9),), (Range("t", 1, 0, 4),)]
        state = attrs.evolve(BY_KEY, version=2, before=1)
        begin, stop = offsets(5, 0, 7, state=attrs.evolve(BY_KEY, version=1)), offsets(9, 4, 7, state=state)

        steps = plan_steps(plan_of("auto"), begin, stop, tasks, tasks)

        assert steps == [(tasks[0], self.step(state)), (tasks[1], self.step(state, tells=False))]
        assert plan_steps(plan_of("auto"), begin, stop, [], []) == [((), self.step(state))]
        assert plan_steps(plan_of("auto"), stop, stop, [], []) == []

    def test_a_plan_that_computes_changes_where_it_reads_has_one_task(self) -> None:
        tasks = [(Range("t", 0, 5, 9),), (Range("t", 1, 0, 4),)]
        state = attrs.evolve(BY_KEY, version=2, before=1)
        begin, stop = offsets(5, 0, 7, state=attrs.evolve(BY_KEY, version=1)), offsets(9, 4, 7, state=state)

        assert plan_steps(plan_of("auto", routing="partition"), begin, stop, tasks, tasks) == [
            ((*tasks[0], *tasks[1]), self.step(state))
        ]

    def test_a_batch_that_is_the_first_by_key_takes_over_the_states_of_partitions(self) -> None:
        task = (Range("t", 0, 5, 9),)
        begin = offsets(5, 0, 7, state=BY_PARTITION)
        state = advance_state(plan_of("key"), begin, {("t", 0): 9, ("t", 1): 0, ("t", 2): 7}, 16)
        assert (state.routing, state.shards, state.former, state.before) == ("key", 16, "p", None)
        stop = offsets(9, 0, 7, state=state)

        former = (("p/partition-0", 5), ("p/partition-1", 0), ("p/partition-2", 7))
        assert plan_steps(plan_of("key"), begin, stop, [task], [task]) == [(task, self.step(state, former=former))]

        later = advance_state(plan_of("key"), stop, {("t", 0): 10, ("t", 1): 0, ("t", 2): 7}, 16)
        assert (later.id, later.before) == (state.id, state.version)
        assert plan_steps(plan_of("key"), stop, offsets(10, 0, 7, state=later), [task], [task]) == [
            (task, self.step(later, obsolete="p"))
        ]

    def test_former_states_are_removed_when_spark_has_forgotten_the_batch_that_took_them_over(self) -> None:
        """And once more now and then."""
        steps = [ShardStep("k", 8, n - 1, n << 32, obsolete="p") for n in range(2, 3_000)]

        assert [step.end >> 32 for step in steps if step.removes_obsolete(100)] == [111, 1_135, 2_159]
        assert not any(attrs.evolve(step, obsolete="").removes_obsolete(100) for step in steps)

    def test_a_first_batch_takes_over_nothing(self) -> None:
        task = (Range("t", 0, 5, 9),)
        begin = offsets(5, initial=True, state=BY_PARTITION)
        state = advance_state(plan_of("key"), begin, {("t", 0): 9}, 8)

        assert plan_steps(plan_of("key"), begin, offsets(9, state=state), [task], [task]) == [(task, self.step(state))]


AT = {("t", 0): 9, ("t", 1): 1, ("t", 2): 2}


class TestFirstStart:
    TOPICS: Mapping[str, Topic] = {"t": Topic("id", 3)}

    def plan(self, choice: RoutingChoice) -> ReadPlan:
        plan = plan_of("auto")
        assert plan.upserts is not None
        return attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, choice=choice))

    @pytest.mark.parametrize(
        ("choice", "wanted"),
        [
            (RoutingChoice("partition", "so", 3, "crc32", "wide"), StateFolder("", "partition", 3, 0, "crc32", "wide")),
            (RoutingChoice("key", "so", 3), StateFolder("", "key", 3, shards=8)),
            (RoutingChoice(None, "no records", 3), StateFolder("", "key", 3, shards=8)),
            (RoutingChoice("key", "of the plan"), StateFolder("", "key", 3, shards=8)),
        ],
    )
    def test_keys_are_not_sampled_once_more(
        self, choice: RoutingChoice, wanted: StateFolder, monkeypatch: pytest.MonkeyPatch, caplog: Any
    ) -> None:
        monkeypatch.setattr(state_plans, "sample_choice", None)
        caplog.set_level("INFO", "kdsl.read")

        state = create_state(self.plan(choice), Cluster("nowhere:1"), self.TOPICS, None)

        assert state is not None
        assert attrs.evolve(state, id="") == wanted
        assert f"Users: the last row of each key is found by {wanted.routing}: {choice.reason}" in caplog.text

    def test_they_are_if_the_topic_has_other_partitions_now(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(state_plans, "sample_choice", lambda *_: RoutingChoice("partition", "", 3, "fnv1a"))

        state = create_state(
            self.plan(RoutingChoice("partition", "", 2, "murmur2")), Cluster("nowhere:1"), self.TOPICS, None
        )

        assert state is not None
        assert state.partitioner == "fnv1a"


class TestAdvance:
    @pytest.mark.parametrize("state", ["auto", "partition"])
    def test_rows_by_partition_stay_there(self, state: ChangelogState) -> None:
        assert advance_state(plan_of(state), offsets(5, 1, 2, state=BY_PARTITION), AT, 8) == BY_PARTITION

    def test_more_partitions_find_rows_by_key_if_the_table_leaves_it_open(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        start, at = offsets(5, 1, 2, state=BY_PARTITION), {**AT, ("t", 3): 0}

        state = advance_state(plan_of("auto"), start, at, 8)

        assert (state.routing, state.former) == ("key", "p")
        assert state.id != "p"
        assert "is found by key from now on: the topic has more partitions" in caplog.text

    def test_more_partitions_are_an_error_if_rows_must_be_found_by_partition(self) -> None:
        start, at = offsets(5, 1, 2, state=BY_PARTITION), {**AT, ("t", 3): 0}

        with pytest.raises(KdslError, match="the topic has 4 partitions now, and had 3 when the query first started"):
            advance_state(plan_of("partition"), start, at, 8)

    @pytest.mark.parametrize("known", [0, 3])
    def test_new_partitions_count_before_they_are_read(self, known: int) -> None:
        """Others may have their records already; 0 is not asked."""
        for partitions, routing in ((known, "partition"), (4, "key")):
            state = advance_state_of(
                plan_of("auto"), offsets(5, 1, 2, state=BY_PARTITION), AT, 8, partitions=partitions
            )
            assert state is not None
            assert state.routing == routing

    def test_versions_differ_by_batch_and_by_where_it_ends(self) -> None:
        begun = [attrs.evolve(BY_KEY, version=version) for version in (0, 1 << 32)]
        numbers = [number_batch(state, at).version for state in begun for at in (AT, {**AT, ("t", 0): 10})]

        assert len(set(numbers)) == 4
        assert numbers == sorted(numbers, key=lambda number: number >> 32)
        assert number_batch(begun[1], dict(reversed(AT.items()))).version == numbers[2]
        start = offsets(5, 1, 2, state=attrs.evolve(BY_KEY, version=numbers[0]))
        state = advance_state(plan_of("auto"), start, AT, 8)
        assert (state.version, state.before) == (numbers[2], numbers[0])

    def test_the_first_batch_by_key_begins_with_empty_states(self) -> None:
        state = advance_state(plan_of("auto"), offsets(0, initial=True, state=BY_KEY), AT, 8)

        assert (state.version >> 32, state.before) == (1, None)


class TestCheckpoints:
    @pytest.mark.parametrize("state", ["auto", "partition", "key"])
    def test_each_declaration_goes_on_by_partition(self, state: ChangelogState) -> None:
        check_state_place(plan_of(state), BY_PARTITION)

    def test_there_is_no_way_back_to_partitions(self) -> None:
        check_state_place(plan_of("auto"), BY_KEY)
        check_state_place(plan_of("key"), BY_KEY)

        with pytest.raises(
            KdslError, match="to which a checkpoint cannot return; declare 'key' or 'auto', or start with"
        ):
            check_state_place(plan_of("partition"), BY_KEY)

    def test_a_checkpoint_without_rows_is_refused_and_one_with_rows_where_none_are_kept(self) -> None:
        check_state_place(plan_of("auto", "upsert"), None)

        with pytest.raises(KdslError, match="the checkpoint has no such rows"):
            check_state_place(plan_of("auto"), None)
        with pytest.raises(KdslError, match="declares a read without rows before updates"):
            check_state_place(plan_of("auto", "upsert"), BY_KEY)

    @pytest.mark.parametrize("state", [BY_PARTITION, attrs.evolve(BY_KEY, version=7, before=3, former="p", time=1_000)])
    def test_offsets_keep_the_state(self, state: StateFolder) -> None:
        with_state = offsets(5, state=state)

        assert Offsets.from_json(with_state.to_json()) == with_state
        assert Offsets.from_json(offsets(5).to_json()).state is None

    def test_the_state_of_another_version_is_refused(self) -> None:
        document = offsets(5).to_json() | {"state": {"id": "a", "partitions": 3, "time": 0}}

        with pytest.raises(OffsetFormatError, match="keeps the last row of each key as another version of kdsl did"):
            Offsets.from_json(document)
