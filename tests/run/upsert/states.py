"""A query over an upsert table without Spark and without Kafka: its topic, the offsets of its batches, and its tasks.

Beside it is the truth: what Flink's ChangelogNormalize makes of one record after the other.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import attrs
import numpy as np
import pyarrow as pa

from kdsl import Col, DebeziumJson, Json, KafkaTable, PrimaryKey, UpsertTable
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan
from kdsl.resolve import resolve
from kdsl.run.librdkafka.state_plans import advance_state, convert_to_key, number_batch, plan_steps
from kdsl.run.librdkafka.task_output import create_task_output
from kdsl.run.offsets.stored import Offsets, Range, StateFolder
from kdsl.run.records.decode import RecordDecoder
from kdsl.run.records.metadata import RAW
from kdsl.run.state_files.local import LocalFiles
from kdsl.run.upsert.chunks import Chunk
from kdsl.run.upsert.keys import hash_keys
from kdsl.run.upsert.partitioners import choose_partitions
from kdsl.run.upsert.shard_changes import ShardOfBatch, chunks_of, compute_shard
from kdsl.run.upsert.state import add_row_kind_field, unavailable_rule
from kdsl.types.arrays import Words

Kind = Literal["full", "net", "expiring", "events", "net events"]
Shape = Literal["partition", "key"]
Row = dict[str, Any]
TTL = 10_000
SHAPES: tuple[Shape, ...] = ("partition", "key")


@lru_cache
def plan_of(kind: Kind, state: Any = "auto", shape: Shape = "key") -> ReadPlan:
    """The plan of a stream whose shape was chosen."""
    changelog: dict[str, Any] = {"changelog": "net"} if "net" in kind else {}
    more: dict[str, Any] = {**changelog, "changelog_state": state}
    table: Any

    if "events" in kind:

        class Changed(
            KafkaTable, topic="users", key=Json(), value=DebeziumJson(truncate="apply"), cdc_events_duplicate=True,
            startup="earliest", **more,
        ):  # fmt: skip
            user_id: PrimaryKey[int]
            name: Col[str | None]

        table = Changed
    else:
        more |= {"state_ttl": f"{TTL // 1000} s"} if kind == "expiring" else {}

        class Users(UpsertTable, topic="users", key=Json(), value=Json(), **more):
            user_id: PrimaryKey[int]
            name: Col[str | None]

        table = Users
    plan = read_plan(resolve(table.definition(), "read"))
    assert plan.upserts is not None
    return attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, routing=shape))


def key_of(user: int) -> bytes:
    """The key of a record, as the format json writes it."""
    return b'{"user_id":%d}' % user


@lru_cache(maxsize=1000)
def home_of(user: int, partitions: int) -> int:
    """The partition that Java's clients choose for a user."""
    return int(choose_partitions(pa.array([key_of(user)]), partitions)[0])


def few_hashes(count: int) -> Callable[[Sequence[pa.Array]], Words]:
    """The hash of keys; there are only a few different ones."""
    return lambda keys: hash_keys(keys) % np.uint64(count)


@attrs.frozen
class Event:
    """A record: the row of a user, or None that deletes it; without a user it empties the table."""

    user: int | None
    name: str | None = None
    deletes: bool = False

    @property
    def row(self) -> Row | None:
        """The row."""
        return None if self.deletes else {"user_id": self.user, "name": self.name}

    def value(self, kind: Kind) -> bytes | None:
        """The value of the record."""
        if "events" not in kind:
            return None if self.deletes else json.dumps(self.row).encode()
        if self.user is None:
            return b'{"op":"t"}'
        before = {"user_id": self.user} if self.deletes else None
        return json.dumps({"op": "d" if self.deletes else "u", "before": before, "after": self.row}).encode()


@attrs.define
class Truth:
    """The rows of users, and when each was written."""

    kind: Kind
    rows: dict[int, Row] = attrs.field(factory=dict)
    written: dict[int, int] = attrs.field(factory=dict)

    def copy(self) -> Truth:
        """The same at this time."""
        return Truth(self.kind, dict(self.rows), dict(self.written))

    def apply(self, events: Sequence[Event], time: int) -> dict[int, list[Row]]:
        """The changes of each user by one record after the other, in a batch that was planned at a time."""
        before, results = dict(self.rows), dict[int, list[Row]]()
        for event in events:
            for user in [*self.rows] if event.user is None else [event.user]:
                self._apply_one(user, None if event.user is None else event.row, time, results)
        if "net" in self.kind:
            results = {user: self._net(before.get(user), self.rows.get(user)) for user in before | self.rows}
        return {user: changes for user, changes in results.items() if changes}

    def _apply_one(self, user: int, row: Row | None, time: int, results: dict[int, list[Row]]) -> None:
        expires = self.kind == "expiring"
        if expires and user in self.rows and self.written[user] + TTL <= time:
            del self.rows[user]
        old = self.rows.pop(user, None)
        if old != row or (expires and row is not None):
            results.setdefault(user, []).extend(self._net(old, row, repeats=expires))
        if row is not None:
            self.rows[user], self.written[user] = row, time

    @staticmethod
    def _net(old: Row | None, new: Row | None, *, repeats: bool = False) -> list[Row]:
        """The changes from one row to another."""
        if old == new and not repeats:
            return []
        deleted = [] if old is None else [{"_row_kind": "-D" if new is None else "-U", **old}]
        return deleted + ([] if new is None else [{"_row_kind": "+I" if old is None else "+U", **new}])


class Query:
    """A query, whose batches are planned, run and repeated by the test.

    Args:
        folder: Where the states are.
        kind: How it computes changes.
        partitions: The partitions of the topic.
        state: How it finds rows at first.
        seed: Of its choices.
        shards: The number of shards of a state by key.
    """

    def __init__(
        self, folder: Path, kind: Kind, partitions: int, state: Literal["partition", "key"], seed: int, shards: int = 3
    ) -> None:
        self.folder, self.shards = folder, shards
        self.kind: Kind = kind
        self.declared: Literal["auto", "partition", "key"] = "auto"
        self.chance = random.Random(seed)
        self.topic: list[list[tuple[int, Event]]] = [[] for _ in range(partitions)]
        self.clock = 1_000
        of_state = StateFolder(
            "by-partition", "partition", partitions, partitioner="murmur2"
        ) if state == "partition" else StateFolder("by-key", "key", partitions, shards)  # fmt: skip
        self.offsets = [Offsets(dict.fromkeys(self._ends(), 0), {"users": "id"}, initial=True, state=of_state)]
        self._decoders: dict[Any, RecordDecoder] = {}

    def plan(self, shape: Shape = "key") -> ReadPlan:
        """The plan of a run."""
        return plan_of(self.kind, self.declared, shape)

    @property
    def routing(self) -> str:
        """How the last batch that is planned finds rows."""
        state = self.offsets[-1].state
        assert state is not None
        return state.routing

    def append(self, event: Event, partition: int | None = None) -> None:
        """Write a record, to the partition of its key unless another one is given."""
        if partition is None:
            partition = 0 if event.user is None else home_of(event.user, len(self.topic))
        self.clock += self.chance.randrange(2)
        self.topic[partition].append((self.clock, event))

    def plan_batch(self, most: int | None = None) -> bool:
        """Plan a batch up to the end of the topic, or of at most some records of each partition; False without news."""
        start = self.offsets[-1]
        ends = {
            partition: end if most is None else min(end, start.positions.get(partition, 0) + most)
            for partition, end in self._ends().items()
        }
        if ends == start.positions:
            return False
        state = advance_state(self.plan(), start, ends, self.shards, partitions=len(self.topic))
        new = dict.fromkeys(ends.keys() - start.positions.keys(), 0)
        begin = {**start.positions, **new} if start.initial else new
        self.offsets.append(Offsets(ends, {"users": "id"}, begin=begin, state=state))
        return True

    def convert_batch(self) -> None:
        """Let the batch that is planned find rows by key, as ``kdsl state convert`` does."""
        stop = self.offsets[-1]
        assert stop.state is not None
        state = number_batch(convert_to_key(stop.state, self.shards), stop.positions)
        self.offsets[-1] = attrs.evolve(stop, state=state)

    def events(self) -> list[Event]:
        """The records of the batch that is planned, in the order of their times."""
        timed = [
            (*self.topic[r.partition][offset], r.partition)
            for r in self.offsets[-1].ranges_from(self.offsets[-2])
            for offset in range(r.start, r.end)
        ]
        return [event for _, event, _ in sorted(timed, key=lambda one: (one[0], one[2]))]

    def run(self, shape: Shape = "key", *, dies: bool = False) -> dict[int, list[Row]]:
        """Run the batch that is planned; each user's changes.

        Args:
            shape: Where changes are computed.
            dies: Whether tasks and shards end early, one of them in its middle; then there is no result.
        """
        plan = self.plan(shape)
        begin, stop = self.offsets[-2:]
        outputs: list[pa.RecordBatch] = []
        tasks = self._pack(stop.ranges_from(begin))
        planned = plan_steps(plan, begin, stop, tasks, tasks)
        left = self.chance.randrange(len(planned)) if dies else len(planned)
        decoder = self.decoder(shape)
        for ranges, steps in planned[: left + 1]:
            output = create_task_output(decoder, plan, steps, self.open)
            for raw in self._read_ranges(ranges):
                outputs += output.add(raw)
            if left:
                outputs += output.finish()
            left -= 1
        assert plan.upserts is not None
        if not dies or self.chance.randrange(2):
            outputs = outputs if plan.upserts.by_partition else [*self._shuffle(plan, decoder, outputs, dies=dies)]
        results: dict[int, list[Row]] = {}
        if not dies:
            for row in (row for batch in outputs for row in batch.to_pylist()):
                results.setdefault(row["user_id"], []).append(row)
        return results

    def decoder(self, shape: Shape) -> RecordDecoder:
        """The decoder of a run."""
        plan = self.plan(shape)
        if plan not in self._decoders:
            self._decoders[plan] = RecordDecoder(plan)
        return self._decoders[plan]

    def open(self, name: str) -> LocalFiles:
        """The files of a state."""
        return LocalFiles(self.folder / name)

    def read(self, partition: int, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Records as a task reads them."""
        return self._read_ranges([Range("users", partition, start, end)])

    def keys(self) -> int:
        """How many keys the states have at the end of the batch that is planned."""
        return sum(json.loads(path.read_text())["keys"] for path in self._documents())

    def _documents(self) -> Iterator[Path]:
        stop = self.offsets[-1]
        assert stop.state is not None
        folder = self.folder / stop.state.id
        if stop.state.routing == "key":
            yield from (folder / f"shard-{n}" / f"{stop.state.version:020d}.json" for n in range(self.shards))
        else:
            yield from (
                folder / f"partition-{number}" / f"{end:020d}.json"
                for (_, number), end in stop.positions.items()
                if end
            )

    def _ends(self) -> dict[tuple[str, int], int]:
        return {("users", partition): len(records) for partition, records in enumerate(self.topic)}

    def _pack(self, ranges: Sequence[Range]) -> list[tuple[Range, ...]]:
        """Tasks of a batch: those of rows by key read parts of partitions, which other tasks' parts surround."""
        parts = list(ranges)
        if self.routing == "key":
            parts = []
            for r in ranges:
                cuts = sorted({r.start, r.end, *(self.chance.randint(r.start, r.end) for _ in range(2))})
                parts += [Range(r.topic, r.partition, *cut) for cut in pairwise(cuts)]
        tasks: list[list[Range]] = [[] for _ in range(3)]
        for part in parts:
            self.chance.choice(tasks).append(part)
        return [tuple(task) for task in tasks if task]

    def _read_ranges(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        places = [(r.partition, offset) for r in ranges for offset in range(r.start, r.end)]
        size = self.chance.randint(1, 7)
        for at in range(0, len(places), size):
            here = places[at : at + size]
            records = [self.topic[partition][offset] for partition, offset in here]
            columns = {
                "topic": ["users"] * len(here),
                "partition": [partition for partition, _ in here],
                "offset": [offset for _, offset in here],
                "timestamp": [time for time, _ in records],
                "key": [None if event.user is None else key_of(event.user) for _, event in records],
                "value": [event.value(self.kind) for _, event in records],
            }
            arrays = [pa.array(values, RAW[name]) for name, values in columns.items()]
            yield pa.RecordBatch.from_arrays(arrays, list(columns))

    def _shuffle(
        self, plan: ReadPlan, decoder: RecordDecoder, outputs: Sequence[pa.RecordBatch], *, dies: bool
    ) -> Iterator[pa.RecordBatch]:
        """The changes of chunks that arrive in any order at the tasks of their shards."""
        schema = decoder.schema.remove(0)
        shards: dict[int, list[Chunk]] = {}
        for shard, chunk in (one for batch in outputs for one in chunks_of(batch)):
            if shard < 0:
                yield pa.ipc.read_record_batch(pa.py_buffer(chunk.rows), add_row_kind_field(schema))
            else:
                shards.setdefault(shard, []).append(chunk)
        for number, chunks in shards.items():
            if dies and (not any(chunk.step for chunk in chunks) or not self.chance.randrange(3)):
                return
            self.chance.shuffle(chunks)
            of_batch = ShardOfBatch.of("Users", number, chunks)
            yield from compute_shard(of_batch, plan, schema, self.open, unavailable_rule(plan))
