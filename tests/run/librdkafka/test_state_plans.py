"""Plans of states over random lives of queries: repeats, other shapes, other declarations, more partitions."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from kdsl.errors import RecordError
from kdsl.run.librdkafka import state_plans
from kdsl.run.upsert import keyed_state, partition_changes, shared_hashes
from tests.run.upsert.states import SHAPES, Event, Kind, Query, Truth, few_hashes

KINDS: tuple[Kind, ...] = get_args(Kind)
USERS = 12


class Life:
    """A query with its truth, which takes random steps."""

    def __init__(self, folder: Path, kind: Kind, seed: int) -> None:
        self.query = Query(folder, kind, seed % 3 + 1, "key" if seed % 4 == 0 else "partition", seed)
        self.chance = self.query.chance
        self.truth = self.before = Truth(kind)
        self.time = 1_000_000
        self.done: set[str] = set()

    def write(self) -> None:
        """Some records; keys are anywhere only where the query finds them by key."""
        query, anywhere = self.query, self.query.routing == "key"
        for _ in range(self.chance.randrange(1, 12)):
            user = self.chance.randrange(USERS)
            event = Event(user, self.chance.choice([None, "a", "b"]), deletes=self.chance.random() < 0.3)
            if "events" in query.kind and (anywhere or len(query.topic) == 1) and self.chance.random() < 0.05:
                event = Event(None)
                self.done.add("truncate")
            query.append(event, self.chance.randrange(len(query.topic)) if anywhere else None)

    def change(self) -> None:
        """Something that happens to some queries between two batches."""
        query, what = self.query, self.chance.random()
        if what < 0.08:
            query.declared = "key"
        elif what < 0.16 and len(query.topic) < 5:
            query.topic.append([])
            self.done.add("growth")
        elif what < 0.3 and query.routing == "partition" and len(query.topic) == query_partitions(query) > 1:
            query.append(Event(1, "foreign"), (1 + self.home(1)) % len(query.topic))
        elif what < 0.45 and len(query.offsets) > 2 and self.truth is not self.before:
            query.offsets.pop()  # the checkpoint is an older copy of itself; the batch is planned anew
            self.truth = self.before
            self.done.add("set back")

    def home(self, user: int) -> int:
        """The partition of a user."""
        query = self.query
        query.append(Event(user, "home"))
        return next(n for n, records in enumerate(query.topic) if records and records[-1][1] == Event(user, "home"))

    def run_batch(self) -> None:
        """A batch, after attempts that die, and the same again with another shape."""
        query = self.query
        routing = query.routing
        if not query.plan_batch(self.chance.choice([None, 3])):
            return
        chance = self.chance
        try:
            if chance.random() < 0.4:
                query.run(chance.choice(SHAPES), dies=True)
            result = query.run(chance.choice(SHAPES))
        except RecordError as e:
            if "kdsl state convert CHECKPOINT --to key" not in str(e):
                raise
            query.convert_batch()
            self.done.add("convert")
            result = query.run(chance.choice(SHAPES))
        if query.routing != routing:
            self.done.add("key")
        self.before, self.truth = self.truth, self.truth.copy()
        state = query.offsets[-1].state
        assert state is not None
        wanted = self.truth.apply(query.events(), state.time)

        assert result == wanted
        if chance.random() < 0.3:
            assert query.run(chance.choice(SHAPES)) == wanted, "the batch is repeated"
        if query.kind != "expiring":  # expired rows are counted until they leave their file
            assert query.keys() == len(self.truth.rows)


def query_partitions(query: Query) -> int:
    """How many partitions the topic had when the query started."""
    state = query.offsets[-1].state
    assert state is not None
    return state.partitions


@pytest.mark.parametrize("kind", KINDS)
def test_changes_are_those_of_one_record_after_the_other_whatever_happens(
    kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_state, "MERGED_RECORDS", 2)
    monkeypatch.setattr(keyed_state, "BATCH_ROWS", 2)
    done: set[str] = set()
    for seed in range(22):
        monkeypatch.setattr(shared_hashes, "hash_keys", few_hashes([3, 1 << 63][seed % 2]))
        monkeypatch.setattr(partition_changes, "MAX_ROWS", seed % 5 + 1)
        life = Life(tmp_path / str(seed), kind, seed)
        monkeypatch.setattr(state_plans, "time", SimpleNamespace(time_ns=lambda at=life: at.time * 1_000_000))
        for _ in range(6):
            life.time += life.chance.randrange(1, 9_000)
            life.write()
            life.change()
            life.run_batch()
        done |= life.done

    assert done >= {"growth", "set back", "convert", "key"}
    assert ("truncate" in done) == ("events" in kind)
