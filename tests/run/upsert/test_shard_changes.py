"""Changes that are computed by shards of the keys' hashes, wherever the records of a key are."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import attrs
import numpy as np
import pyarrow as pa
import pytest

from kdsl.errors import KdslError
from kdsl.run.offsets.stored import Offsets
from kdsl.run.upsert import keyed_state, shard_changes, shared_hashes
from kdsl.run.upsert.keys import assign_shards
from kdsl.run.upsert.shard_changes import AllShards, ShardOfBatch, compute_shard
from kdsl.run.upsert.steps import LATE_BATCHES, ShardStep, choose_shards
from tests.run.upsert.states import SHAPES, TTL, Event, Kind, Query, Row, Shape, Truth, few_hashes

KINDS: tuple[Kind, ...] = get_args(Kind)
each_shape = pytest.mark.parametrize("shape", SHAPES)


@pytest.mark.parametrize("kind", KINDS)
def test_changes_are_those_of_one_record_after_the_other_in_the_order_of_their_times(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys are in any partitions; batches are repeated, or die when some shards have stored their states."""
    monkeypatch.setattr(keyed_state, "MERGED_RECORDS", 2)
    monkeypatch.setattr(keyed_state, "BATCH_ROWS", 2)
    for seed in range(6):
        monkeypatch.setattr(shared_hashes, "hash_keys", few_hashes([2, 5, 1 << 63][seed % 3]))
        query, truth = Query(tmp_path / str(seed), kind, 3, "key", seed, shards=seed % 3 + 1), Truth(kind)
        chance, time = query.chance, 1_000_000
        for _ in range(8):
            for _ in range(chance.randrange(14)):
                event = Event(chance.randrange(9), chance.choice([None, "a", "b"]), deletes=chance.random() < 0.3)
                if "events" in kind and chance.random() < 0.1:
                    event = Event(None)
                query.append(event, chance.randrange(3))
            if not query.plan_batch():
                continue
            time += chance.randrange(1, 9_000)
            set_time(query, time)
            if chance.random() < 0.4:
                query.run(chance.choice(SHAPES), dies=True)
            wanted = truth.apply(query.events(), time)

            assert query.run(chance.choice(SHAPES)) == wanted
            if kind != "expiring":
                assert query.keys() == len(truth.rows)


def set_time(query: Query, time: int) -> None:
    """Let the batch that is planned be planned at a time."""
    stop = query.offsets[-1]
    assert stop.state is not None
    query.offsets[-1] = attrs.evolve(stop, state=attrs.evolve(stop.state, time=time))


def kinds_of(changes: dict[int, list[Row]]) -> dict[int, list[str]]:
    return {user: [f"{row['_row_kind']} {row['name']}" for row in of] for user, of in sorted(changes.items())}


def run(query: Query, *events: Event, shape: Shape = "key", partition: int = 0, time: int = 0) -> dict[int, list[str]]:
    """Write records to a partition, and run a batch."""
    for event in events:
        query.append(event, partition)
    assert query.plan_batch()
    set_time(query, time)
    return kinds_of(query.run(shape))


@each_shape
def test_a_truncate_deletes_the_rows_of_all_shards_and_partitions(tmp_path: Path, shape: Shape) -> None:
    query = Query(tmp_path, "events", 2, "key", 0, shards=4)
    run(query, *(Event(user, "a") for user in range(10)))
    run(query, *(Event(user, "a") for user in range(10, 20)), partition=1)

    changes = run(query, Event(None), Event(3, "b"), shape=shape, partition=1)

    assert changes == {user: ["-D a"] + (["+I b"] if user == 3 else []) for user in range(20)}
    assert query.keys() == 1


class TestTakeOver:
    """The first batch by key begins with the rows of the partitions' states."""

    @each_shape
    @pytest.mark.parametrize("kind", ["full", "net"])
    def test_changes_go_on_as_if_nothing_had_happened(self, tmp_path: Path, kind: Kind, shape: Shape) -> None:
        query = Query(tmp_path, kind, 3, "partition", 0)
        for user in range(12):
            query.append(Event(user, "a"))
        assert query.plan_batch()
        assert kinds_of(query.run(shape)) == {user: ["+I a"] for user in range(12)}
        query.declared = "key"

        changes = run(query, Event(1, "b"), Event(2, deletes=True), Event(3, "a"), Event(20, "a"), shape=shape)

        assert query.routing == "key"
        assert changes == {1: ["-U a", "+U b"], 2: ["-D a"], 20: ["+I a"]}
        assert query.keys() == 12
        assert run(query, Event(1, "c"), Event(4, deletes=True), shape=shape) == {1: ["-U b", "+U c"], 4: ["-D a"]}
        assert query.keys() == 11

    def test_rows_expire_after_their_own_time(self, tmp_path: Path) -> None:
        query = Query(tmp_path, "expiring", 1, "partition", 0)
        run(query, Event(1, "a"), Event(2, "a"), time=1000)
        run(query, Event(2, "b"), time=2000)
        query.declared = "key"
        assert run(query, Event(3, "a"), time=3000) == {3: ["+I a"]}

        changes = run(query, Event(1, "c"), Event(2, "c"), Event(3, "c"), time=1000 + TTL)

        assert changes == {1: ["+I c"], 2: ["-U b", "+U c"], 3: ["-U a", "+U c"]}

    def test_rows_that_have_expired_by_then_are_not_taken_over(self, tmp_path: Path) -> None:
        query = Query(tmp_path, "expiring", 1, "partition", 0)
        run(query, Event(1, "a"), Event(2, "a"), time=1000)
        query.declared = "key"

        assert run(query, Event(1, "b"), time=1000 + TTL) == {1: ["+I b"]}
        assert query.keys() == 1

    def test_the_states_of_partitions_stay_as_long_as_the_batch_may_be_repeated(self, tmp_path: Path) -> None:
        query = Query(tmp_path, "full", 3, "partition", 0)
        for user in range(6):
            query.append(Event(user, "a"))
        assert query.plan_batch()
        query.run()
        query.declared = "key"
        first = run(query, Event(1, "b"))

        assert kinds_of(query.run("partition")) == kinds_of(query.run()) == first == {1: ["-U a", "+U b"]}


class TestFiles:
    def test_each_shard_stores_a_version_in_each_batch_and_few_files_remain(self, tmp_path: Path) -> None:
        query = Query(tmp_path, "full", 1, "key", 0, shards=4)
        for count in range(5):
            run(query, Event(1, str(count)))

        versions = [offsets.state.version for offsets in query.offsets[-2:] if offsets.state is not None]
        for shard in range(4):
            folder = tmp_path / "by-key" / f"shard-{shard}"
            assert sorted(int(path.stem) for path in folder.glob("*.json")) == versions
        assert len(list(tmp_path.rglob("*.run"))) <= 2

    @pytest.mark.parametrize("lost", ["*.json", "*.run"])
    def test_a_state_that_is_lost_is_an_error_that_names_the_file(self, tmp_path: Path, lost: str) -> None:
        query = Query(tmp_path, "full", 1, "key", 0, shards=1)
        run(query, Event(1, "a"))
        for path in tmp_path.rglob(lost):
            path.unlink()
        query.append(Event(1, "b"))
        assert query.plan_batch()

        for shape in SHAPES:
            with pytest.raises(KdslError, match=r"by-key/shard-0/0{9}.* does not exist, which has the last rows"):
                query.run(shape)

    def test_a_batch_that_was_not_read_to_its_end_is_noticed(self, tmp_path: Path) -> None:
        """As by ``limit()`` in ``foreachBatch``: some shards have not stored their states."""
        query = Query(tmp_path, "full", 1, "key", 0, shards=8)
        run(query, *(Event(user, "a") for user in range(40)))
        query.append(Event(1, "b"))
        assert query.plan_batch()
        for _ in range(5):
            query.run(dies=True)
        query.append(Event(1, "c"))
        assert query.plan_batch()

        with pytest.raises(KdslError, match="a batch may not have been read to its end"):
            query.run()

    def test_the_sizes_of_shards_are_reported_with_their_numbers(self, tmp_path: Path) -> None:
        query = Query(tmp_path, "full", 1, "key", 0, shards=4)
        plan, schema, step = query.plan(), pa.schema([("user_id", pa.int64()), ("name", pa.string())]), step_of(4)
        sizes: list[tuple[int, int, int]] = []
        for number in range(4):
            shard = ShardOfBatch(number, step, ())
            list(compute_shard(shard, plan, schema, query.open, None, sizes.extend))

        assert sizes == [(number, 0, 0) for number in range(4)]

    def test_the_task_that_computes_all_shards_reports_the_size_of_each(self, tmp_path: Path) -> None:
        query = Query(tmp_path, "full", 1, "key", 0, shards=4)
        for user in range(20):
            query.append(Event(user, "a"))
        output = AllShards(query.decoder("partition"), query.plan("partition"), step_of(4), query.open)
        for raw in query.read(0, 0, 20):
            assert list(output.add(raw)) == []
        list(output.finish())

        users = pa.array(range(20), pa.int64())
        assert [(number, keys) for number, keys, _ in output.sizes()] == list(
            enumerate(np.bincount(assign_shards([users], 4), minlength=4).tolist())
        )
        assert all(size > 0 for _, _, size in output.sizes())


class TestFormerStates:
    """The states of partitions whose rows were taken over by key."""

    KEPT = 3

    def write(self, query: Query, number: int) -> None:
        for user in range(6):
            query.append(Event(user, f"n{number}", deletes=(user + number) % 5 == 0))

    @pytest.mark.parametrize("converts", [False, True], ids=["declared", "converted"])
    def test_they_stay_as_long_as_a_batch_that_needs_them_can_be_repeated(
        self, converts: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(shard_changes, "count_kept_batches", lambda: self.KEPT)
        other = tmp_path / "by-partition-of-another" / "partition-0"
        other.mkdir(parents=True)
        query = Query(tmp_path, "full", 2, "partition", seed=3)
        self.write(query, 0)
        assert query.plan_batch()
        query.run()
        query.declared = "auto" if converts else "key"
        taken: tuple[list[Offsets], dict[int, list[Row]]] = ([], {})
        for number in range(1, self.KEPT + LATE_BATCHES + 4):
            self.write(query, number)
            assert query.plan_batch()
            if converts and number == 1:
                query.convert_batch()
            result = query.run(SHAPES[number % 2])
            if number == 1:
                taken = [*query.offsets], result
            exists = (tmp_path / "by-partition").exists()
            assert exists == (number <= self.KEPT + LATE_BATCHES)
            if exists:
                self.repeat(query, *taken)

        state = query.offsets[-1].state
        assert state is not None
        assert {path.name for path in tmp_path.iterdir()} == {other.parent.name, state.id}
        assert other.exists()

    def repeat(self, query: Query, taken: list[Offsets], result: dict[int, list[Row]]) -> None:
        """Set the checkpoint back to the batch that took rows over, and to the one before it."""
        now, declared = query.offsets, query.declared
        query.offsets = [*taken]
        for shape in SHAPES:
            query.run(shape, dies=True)
            assert query.run(shape) == result
        query.offsets, query.declared = taken[:-1], "auto"
        assert query.plan_batch()
        assert query.routing == "partition"
        assert query.run()
        query.offsets, query.declared = now, declared


def step_of(shards: int) -> ShardStep:
    return ShardStep("id", shards, None, 1 << 32)


def test_the_number_of_shards_is_that_of_tasks_within_bounds() -> None:
    assert [choose_shards(tasks) for tasks in (1, 8, 20, 1000)] == [8, 8, 20, 64]
