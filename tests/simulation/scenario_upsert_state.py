"""The states of upserts: versions of the last row of each key, by partition and by key.

A query over an upsert table or change data plans batches with kdsl's own functions, and its tasks compute changes with
kdsl's own code and tiny tables. Attempts die, hang, come twice, or go on after their driver; a batch is run again with
other tasks, in another shape; rows that were found by partition are found by key from some batch on; the checkpoint is
copied, damaged, or set back as a whole or only in its logs. Some records are refused, such as those of another
partitioner, until somebody does what the error says. The oracle applies one record after the other to a dict of keys.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any, NoReturn

import attrs
import numpy as np
import pyarrow as pa

from kdsl import Col, DebeziumJson, Json, KafkaTable, PrimaryKey
from kdsl.diagnostics import state as diagnostics
from kdsl.errors import KdslError
from kdsl.plan.build import read_plan
from kdsl.plan.model import ReadPlan, RoutingChoice
from kdsl.resolve import resolve
from kdsl.run.checkpoint.folder import Folder
from kdsl.run.librdkafka import state_plans
from kdsl.run.librdkafka.state_checks import check_state_mode, check_state_place, uses_state
from kdsl.run.librdkafka.state_plans import advance_state, choose_state_packing, create_state, plan_steps, warn_of_shape
from kdsl.run.offsets.stored import Offsets, Packing, Range
from kdsl.run.records.decode import RowsOfRecords
from kdsl.run.state_files import remote
from kdsl.run.state_files.files import StateFiles
from kdsl.run.state_files.local import LocalFiles
from kdsl.run.state_files.remote import StoreFiles
from kdsl.run.upsert import keyed_state, partition_changes, shard_changes, shared_hashes, state_changes, steps
from kdsl.run.upsert.changes import KeyedRows, Unavailable
from kdsl.run.upsert.chunks import Chunk
from kdsl.run.upsert.keyed_state import KeyedState
from kdsl.run.upsert.keys import assign_shards, hash_keys
from kdsl.run.upsert.partition_changes import PartitionChanges
from kdsl.run.upsert.shard_changes import AllShards, PackedChanges, ShardOfBatch, compute_shard
from kdsl.run.upsert.state import unavailable_rule
from kdsl.run.upsert.steps import PartitionSteps, ShardStep
from tests.run.upsert.states import Event, Kind, Row, Truth, plan_of
from tests.simulation.folder import HDFS, LATE_STORE, LOCAL, S3, FileTree
from tests.simulation.scenario import Scenario, Substitutes
from tests.simulation.small_states import ROWS, UNCHANGED, SmallUpserts, is_small, small_substitutes
from tests.simulation.spark_driver import Session, SparkError
from tests.simulation.upsert_files import RunFiles, damage, file_substitutes
from tests.simulation.world import Killed, ViolationError, World

_BATCHES, _KEYS, _SHARDS = 4, 4, 2
_KINDS: tuple[Kind, ...] = ("full", "net", "full", "expiring", "events", "net events")
_DECODED = pa.schema([pa.field("_row_kind", pa.string(), False), *ROWS])
_EXACT = 12
"""In one of how many runs Arrow computes the changes."""
_PLACES = ("/checkpoint/kdsl/state", "/copy/kdsl/state")


@attrs.frozen
class _Record:
    """A record of the topic.

    Attributes:
        partition: Its partition.
        offset: Its offset.
        time: Its time, which no other record has.
        key: The user; None for a record that empties the table.
        name: The name in its row; None for a record that deletes the key; `UNCHANGED` if it does not say it.
    """

    partition: int
    offset: int
    time: int
    key: int | None
    name: str | None


class _Changed(
    KafkaTable, topic="users", key=Json(), value=DebeziumJson(truncate="apply", unavailable="null"),
    cdc_events_duplicate=True, startup="earliest",
):  # fmt: skip
    user_id: PrimaryKey[int]
    name: Col[str | None]


@cache
def _plan(kind: Kind, declared: Any, shape: Any, allows_nulls: bool) -> ReadPlan:
    """The plan of the read, also of one in which values that nobody has become NULL."""
    plan = plan_of(kind, declared, shape)
    if not allows_nulls:
        return plan
    value = read_plan(resolve(_Changed.definition(), "read")).value
    return attrs.evolve(plan, value=value)


class _Tree(FileTree):
    """Files whose requests some tasks do not survive for a while: their machine hangs after one."""

    def request(self, place: str, path: str, effect: Any) -> Any:
        result = super().request(place, path, effect)
        if self._world._running is not None:
            life: _Life = self._world.life  # type: ignore[attr-defined]
            life.hang()
        return result


@cache
def _shard(key: int, shards: int) -> int:
    """The shard of a key."""
    shard: int = assign_shards([pa.array([key])], shards).item()
    return shard


@attrs.define
class _Saved:
    """A copy of a checkpoint, with what the oracle knows of it."""

    files: dict[str, Any]
    log: list[Offsets]
    done: int
    truths: list[Truth]


class _Life:
    """The life of a query."""

    def __init__(self, world: World) -> None:
        self.world, choose = world, world.decisions.choose
        self.small = choose(_EXACT) != 1
        self.tiny_arrays = choose(4) == 1
        self.kind = _KINDS[choose(len(_KINDS))]
        self.tree = _Tree(world, (LOCAL, LOCAL, S3, HDFS, LATE_STORE)[choose(5)])
        self.run_files = RunFiles(self.tree)
        self.hangs = (0.0, 0.0, 0.02, 0.1)[choose(4)]
        self.place = _PLACES[0]
        self.declared: str = ("auto", "auto", "key", "partition")[choose(4)]
        self.shape = ("key", "partition")[choose(2)]
        self.allows_nulls = False
        self.partitions = 1 + choose(2)
        self.records: list[list[_Record]] = [[] for _ in range(self.partitions)]
        self.clock = 1_000
        start = dict.fromkeys((("users", number) for number in range(self.partitions)), 0)
        self.log = [Offsets(start, {"users": "id"}, initial=True)]
        self.done = 0
        self.truths = [Truth(self.kind)]
        self.begun = 0
        self.jobs = 0
        self.may_miss = False
        self.sessions = 0
        self.session: Session | None = None
        self.damaged = False
        self.refused: _Refused | None = None

    def begin(self) -> None:
        """Decide how rows are found, as the first start does."""
        topics: Any = {"users": SimpleNamespace(partitions=self.partitions)}
        cluster: Any = None
        try:
            state = create_state(self.plan(), cluster, topics, None)
        except KdslError:
            if self.declared != "partition":
                raise
            self.declared = "auto"
            state = create_state(self.plan(), cluster, topics, None)
        self.log = [attrs.evolve(self.log[0], state=state)]

    @property
    def routing(self) -> str:
        """How the last planned batch finds rows."""
        state = self.log[-1].state
        assert state is not None
        return state.routing

    def plan(self) -> ReadPlan:
        """The plan of the read."""
        if self.refused is not None:
            return self.refused.plan
        return _plan(self.kind, self.declared, self.shape, self.allows_nulls)

    def open(self, name: str) -> StateFiles:
        """Open the files of a state."""
        return self.run_files.open(self.place, name)

    def hang(self) -> None:
        """Let the task that runs hang now and then, until some batches later."""
        world, session = self.world, self.session
        if not self.hangs or session is None or world.calm or "worker" not in world.process.name:
            return
        if world.decisions.happens(self.hangs):
            jobs = self.jobs + world.decisions.choose(3)
            session.suspend(lambda: self.jobs >= jobs)

    def append(self) -> None:
        """Write some records to the topic."""
        choose = self.world.decisions.choose
        for _ in range(1 + choose(4)):
            key, name = choose(_KEYS), (None, "a", "b", UNCHANGED)[choose(4 if "events" in self.kind else 3)]
            partition = key % len(self.records)
            if choose(3 if self.routing == "key" else 20) == 1:  # of a producer that chooses partitions
                partition = choose(len(self.records))
            if "events" in self.kind and choose(12) == 1:
                key = name = None
            self.clock += 1
            log = self.records[partition]
            log.append(_Record(partition, len(log), self.clock, key, name))

    # The driver

    def run(self, session: Session) -> None:
        """Run the query, until it has done all batches."""
        plan, state = self.plan(), self.log[-1].state
        refused = self.refused
        check_state_mode(plan, "events" in self.kind)
        check_state_place(plan, None if refused is not None and refused.stateless else state)
        warn_of_shape(plan, state)
        while True:
            if self.done == len(self.log) - 1:
                if self.done >= _BATCHES:
                    return
                self.append()
                self.plan_batch()
            self.begun = max(self.begun, len(self.log) - 1)
            self.run_batch(session)
            self.world.request("commit log", self.commit, _fail)

    def commit(self) -> None:
        """Note that the last planned batch is done."""
        self.done = len(self.log) - 1

    def plan_batch(self) -> None:
        """Plan a batch up to the end of the topic, or of a part of it."""
        begin, choose = self.log[-1], self.world.decisions.choose
        ends = {}
        for number, records in enumerate(self.records):
            at = begin.positions.get(("users", number), 0)
            ends["users", number] = max(at, len(records) - choose(2) if choose(3) == 1 else len(records))
        if ends == begin.positions:
            ends = {("users", number): len(records) for number, records in enumerate(self.records)}
        state = advance_state(self.plan(), begin, ends, _SHARDS, partitions=len(self.records))
        new = dict.fromkeys(ends.keys() - begin.positions.keys(), 0)
        first = {**begin.positions, **new} if begin.initial else new
        packing = choose_state_packing(Packing("balanced", 2, 1, 1) if choose(2) else None, state)
        compared = uses_state(self.plan())
        stop = Offsets(ends, {"users": "id"}, begin=first, state=state, packing=packing, compared=compared)
        self.world.request("offset log", lambda: self.log.append(stop), _fail)
        self.world.tell("plans %r", stop)

    def ranges(self) -> tuple[Range, ...]:
        """The ranges of the planned batch."""
        return self.log[-1].ranges_from(self.log[-2])

    def read(self, ranges: Sequence[Range]) -> list[_Record]:
        """The records of some ranges."""
        return [record for r in ranges for record in self.records[r.partition][r.start : r.end]]

    def run_batch(self, session: Session) -> None:
        """Run the planned batch, and compare its changes with those of one record after the other."""
        plan, (begin, stop) = self.plan(), self.log[-2:]
        tasks = self.pack()
        planned = plan_steps(plan, begin, stop, tasks, tasks)
        self.world.tell("batch %d has %d tasks", len(self.log) - 2, len(planned))
        rows: list[Row] = []
        self.jobs += 1
        if self.routing == "partition":
            outputs = session.run_job(lambda task, _: self.compute_partitions(plan, *planned[task]), len(planned))
            rows = [row for output in outputs for row in output]
        elif plan.upserts is not None and plan.upserts.by_partition:
            outputs = session.run_job(lambda task, _: self.compute_all(plan, *planned[task]), len(planned))
            rows = [row for output in outputs for row in output]
        else:
            chunks = session.run_job(lambda task, _: self.divide(*planned[task]), len(planned))
            by_shard: dict[int, list[Chunk]] = {}
            for shard, chunk in (one for task in chunks for one in task):
                by_shard.setdefault(shard, []).append(chunk)
            numbers = sorted(by_shard)
            count = 1 + self.world.decisions.choose(2)
            groups = [numbers[task::count] for task in range(count)]
            outputs = session.run_job(
                lambda task, _: [row for n in groups[task] for row in self.compute_shard(plan, n, by_shard[n])], count
            )
            rows = [row for output in outputs for row in output]
        self.check(rows)

    def pack(self) -> list[tuple[Range, ...]]:
        """Pack the batch into tasks, which may be others when it is repeated."""
        choose = self.world.decisions.choose
        parts: list[Range] = []
        for r in self.ranges():
            packing = self.log[-1].packing
            whole = self.routing == "partition" or (packing is not None and packing.kind == "whole")
            cut = r.start if whole else r.start + choose(len(r) + 1)
            parts += [one for one in (attrs.evolve(r, end=cut), attrs.evolve(r, start=cut)) if len(one)]
        count = 1 + choose(2)
        tasks = [tuple(parts[task::count]) for task in range(count)]
        return [task for task in tasks if task]

    def check(self, rows: Sequence[Row]) -> None:
        """Compare the changes of the planned batch with the oracle's."""
        stop = self.log[-1]
        assert stop.state is not None
        truth = self.truths[len(self.log) - 2].copy()
        expected = truth.apply(self.list_events(truth), stop.state.time)
        del self.truths[len(self.log) - 1 :]
        self.truths.append(truth)
        changes: dict[int, list[Row]] = {}
        for row in rows:
            changes.setdefault(row["user_id"], []).append(row)
        if changes != expected:
            raise ViolationError(f"batch {len(self.log) - 2} changes {changes}, not {expected}")

    def list_events(self, truth: Truth) -> list[Event]:
        """The records of the planned batch by time, with the values that they do not contain."""
        names, events = {user: row["name"] for user, row in truth.rows.items()}, list[Event]()
        for record in sorted(self.read(self.ranges()), key=lambda record: record.time):
            name = names.get(record.key) if record.name is UNCHANGED else record.name  # type: ignore[arg-type]
            events.append(Event(record.key, name, deletes=record.name is None))
            if record.key is None:
                names.clear()
            elif record.name is None:
                names.pop(record.key, None)
            else:
                names[record.key] = name
        return events

    # What somebody does because of an error

    def heed(self, error: KdslError) -> bool:
        """Do what an error says, if there is a reason for it; return whether there was one."""
        message, records = str(error), self.read(self.ranges()) if len(self.log) > 1 else []
        is_foreign = any(one.key is None or one.key % self.partitions != one.partition for one in records)
        lacks = any(record.name is UNCHANGED for record in records)
        if "finds rows by partition" in message and is_foreign:
            self.convert_planned()
        elif "has no value" in message and lacks and not self.allows_nulls:
            self.allows_nulls = True
        elif "partitions now" in message and len(self.records) > self.partitions and self.declared == "partition":
            self.declared = "auto"
        else:
            return self.damaged or (self.may_miss and _is_missing(error))
        return True

    def convert_planned(self) -> None:
        """Let the planned batch find rows by key, with ``kdsl state convert``."""
        diagnostics.StateReader("logs").convert_to_key()
        self.declared = "key"
        self.world.note("converted", "planned batch")

    # Tasks

    def compute_partitions(self, plan: ReadPlan, ranges: Sequence[Range], steps: Any) -> list[Row]:
        """Compute the changes of a task that has the states of its partitions."""
        assert isinstance(steps, PartitionSteps)
        changes = PartitionChanges(_new_decoder(), plan, steps, self.open)
        by_partition = plan.upserts is not None and plan.upserts.by_partition
        return self._compute(changes if by_partition else PackedChanges(changes), ranges)

    def compute_all(self, plan: ReadPlan, ranges: Sequence[Range], step: Any) -> list[Row]:
        """Compute the changes of all shards in the only task of the batch."""
        assert isinstance(step, ShardStep)
        return self._compute(AllShards(_new_decoder(), plan, step, self.open), ranges)

    def _compute(self, output: Any, ranges: Sequence[Range]) -> list[Row]:
        batches: list[pa.RecordBatch] = []
        pieces = [ranges] if self.world.decisions.choose(2) else [[r] for r in ranges]
        for raw in filter(None, map(self.read, pieces)):
            self.world.step("read")
            batches += output.add(raw)
        batches += output.finish()
        output.sizes()
        return _rows_of(batches)

    def divide(self, ranges: Sequence[Range], step: Any) -> list[tuple[int, Chunk]]:
        """Divide the records of a task by shard, as `ChunkOutput` does."""
        assert isinstance(step, ShardStep)
        self.world.step("read")
        output = _ChunkOutput(None, None, step.shards, step)
        return [one for batch in (*output.add(self.read(ranges)), *output.finish()) for one in batch.chunks]

    def compute_shard(self, plan: ReadPlan, number: int, chunks: Sequence[Chunk]) -> list[Row]:
        """Compute the changes of a shard."""
        of_batch = ShardOfBatch.of("Users", number, chunks)
        sizes: list[tuple[int, int, int]] = []
        rule = unavailable_rule(plan, lambda *_: None)
        return _rows_of(compute_shard(of_batch, plan, ROWS, self.open, rule, sizes.extend))

    # What happens between two starts

    def save(self) -> _Saved:
        """Copy the checkpoint, and what the oracle knows of it."""
        return _Saved(self.tree.snapshot(self.root), [*self.log], self.done, [*self.truths])

    @property
    def root(self) -> str:
        """The folder of the states in the file tree."""
        return self.place if self.tree.kind in (LOCAL, HDFS) else f"bucket{self.place}"

    def restore(self, saved: _Saved) -> None:
        """Set the whole checkpoint back."""
        other = next(iter(saved.files), self.root).split("/kdsl/", 1)[0]
        inside = {f"{self.root.split('/kdsl/', 1)[0]}{path[len(other) :]}": one for path, one in saved.files.items()}
        self.tree.restore(self.root, inside)
        self.log, self.done, self.truths = [*saved.log], saved.done, [*saved.truths]
        self.begun = len(self.log) - 1
        self.world.note("set back", "checkpoint")

    def set_back(self) -> None:
        """Set back the logs only, by one batch or two; the states stay as they are."""
        count = 1 + self.world.decisions.choose(2)
        if self.kind == "expiring" or len(self.log) <= count:
            return
        del self.log[-count:]
        self.done = min(self.done, len(self.log) - 1)
        if self.begun > len(self.log):
            self.may_miss = True
        self.world.note("set back", f"logs by {count}")
        self.world.tell("the logs are set back by %d", count)

    def copy(self) -> None:
        """Go on with a copy of the checkpoint; the tasks of earlier drivers still write into the other one."""
        before = self.root
        self.place = _PLACES[self.place == _PLACES[0]]
        self.tree.delete(self.root)
        self.tree.copy_folder(before, self.root)
        self.world.note("copied", "checkpoint")

    def convert(self) -> None:
        """Let a batch that is planned, or the next one, find rows by key."""
        if self.routing != "partition":
            return
        if self.done < len(self.log) - 1 and self.world.decisions.choose(2):
            self.convert_planned()
        else:
            self.declared = "key"
            self.world.note("converted", "declaration")

    def grow(self) -> None:
        """Give the topic another partition, once all records so far are in batches."""
        ends = [self.log[-1].positions.get(("users", number), 0) for number in range(len(self.records))]
        if len(self.records) < 3 and ends == [len(records) for records in self.records]:
            self.records.append([])
            self.world.note("grown", "topic")

    def damage(self) -> None:
        """Damage a file of the states; a start may end with an error of kdsl, and then the file is restored."""
        done = damage(self.run_files, self.root)
        if done is None:
            return
        path, before, after = done
        self.world.note("damaged", "document" if path.endswith(".json") else "run")
        self.world.tell("%s is damaged", path)
        self.damaged = True
        _start(self)
        self.damaged = False
        if self.tree.files.get(path) == after:
            self.tree.put(path, before)

    def misdeclare(self) -> None:
        """Start with a declaration that does not fit the checkpoint, which must be refused."""
        plan, choose = self.plan(), self.world.decisions.choose
        assert plan.upserts is not None
        if not 0 < self.done < _BATCHES or len(self.records) > self.partitions:
            return
        other: Kind = "full" if "events" in self.kind else "events"
        plans = [
            _Refused(attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, keys=("user_id", "name")))),
            _Refused(attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, images=False))),
            _Refused(plan_of(other, self.declared)),
            _Refused(plan, stateless=True),
        ]
        if self.routing == "key":
            plans.append(_Refused(plan_of(self.kind, "partition")))
        self.refused = plans[choose(len(plans))]
        calm, self.world.calm = self.world.calm, True
        error = _start(self)
        self.world.calm, self.refused = calm, None
        if not isinstance(error, KdslError):
            raise ViolationError(f"a declaration that does not fit is not refused: {error!r}")
        self.world.note("refused", "declaration")


@attrs.frozen
class _Refused:
    """A start that must be refused.

    Attributes:
        plan: What it reads.
        stateless: Whether the checkpoint has no state.
    """

    plan: ReadPlan
    stateless: bool = False


class _LogFolder:
    """The folder of a checkpoint with the logs of a query, as `kdsl.diagnostics.state` opens it."""

    location = "logs"

    def __init__(self) -> None:
        self._life: _Life = World.current.life  # type: ignore[attr-defined]

    def path(self, name: str) -> str:
        return f"{self.location}/{name}"

    def names(self, name: str) -> list[str]:
        return [str(number) for number in range(len(self._life.log) - 1 if name == "offsets" else self._life.done)]

    def read(self, name: str) -> str | None:
        number = int(name.rpartition("/")[2])
        if number + 1 >= len(self._life.log):
            return None
        version, prefix = ("v1", "") if self._life.small else ("v2", "users:")
        document = json.dumps(self._life.log[number + 1].to_json(), separators=(",", ":"))
        return f"{version}\n{{}}\n{prefix}{document}"

    def remove(self, name: str) -> None:
        del name

    def write(self, name: str, text: str) -> None:
        document = text.splitlines()[2].removeprefix("users:")
        self._life.log[int(name.rpartition("/")[2]) + 1] = Offsets.from_json(json.loads(document))


class _ChunkOutput:
    """`kdsl.run.upsert.chunks.ChunkOutput`, whose chunks have records."""

    def __init__(self, decoder: object, upserts: object, shards: int, step: ShardStep) -> None:
        del decoder, upserts
        self._shards, self._step = shards, step

    def add(self, raw: Sequence[_Record]) -> Iterator[_Chunks]:
        """Divide records by shard; those that empty the table belong to all."""
        chunks: dict[tuple[int, int], list[Any]] = {}
        for record in raw:
            shards = range(self._shards) if record.key is None else [_shard(record.key, self._shards)]
            for shard in shards:
                chunks.setdefault((shard, record.partition), []).append(record)
        yield _Chunks(
            [
                (shard, Chunk(topic="users", partition=partition, offset=records[0].offset, step="", rows=records))  # type: ignore[arg-type]
                for (shard, partition), records in chunks.items()
            ]
        )

    def finish(self) -> Iterator[_Chunks]:
        """Say what the batch does with the states."""
        text = self._step.to_text()
        numbers = range(self._shards if self._step.tells else 0)
        yield _Chunks([(shard, Chunk(topic="", partition=0, offset=0, step=text, rows=b"")) for shard in numbers])


@attrs.frozen
class _Chunks:
    """A batch of chunks, each with its shard."""

    chunks: list[tuple[int, Chunk]]

    def column(self, name: str) -> Any:
        """A column of the batch."""
        values = [shard if name == "shard" else getattr(chunk, name) for shard, chunk in self.chunks]
        return SimpleNamespace(to_pylist=lambda: values)


def _new_decoder() -> Any:
    return SimpleNamespace(schema=_DECODED, decode_with_records=_decode, dropped=Counter())


def _fail(happened: str) -> NoReturn:
    raise SparkError(f"no answer ({happened})")


def _decode(records: Any) -> RowsOfRecords:
    """Decode records, as `RecordDecoder.decode_with_records` does."""
    which = [i for i, record in enumerate(records) if record.key is not None]
    rows = [records[i] for i in which]
    kinds = pa.array(["-D" if record.name is None else "+U" for record in rows], pa.string())
    keys = pa.array([record.key for record in rows], pa.int64())
    lacks = np.array([record.name is UNCHANGED for record in rows], dtype=bool)
    raw = pa.RecordBatch.from_arrays(
        [pa.array([record.partition for record in records]), pa.array([record.offset for record in records])],
        ["partition", "offset"],
    )
    return RowsOfRecords(
        pa.RecordBatch.from_arrays([kinds, keys, _names_of(rows)], schema=_DECODED),
        raw,
        None if len(rows) == len(records) else np.array(which, dtype=np.int64),
        {"name": lacks} if lacks.any() else {},
        tuple(i for i, record in enumerate(records) if record.key is None),
    )


def _names_of(records: Sequence[Any]) -> pa.Array:
    return pa.array([None if one.name is UNCHANGED else one.name for one in records], pa.string())


def _read_parts(chunks: Sequence[Any], *_: object) -> Iterator[KeyedRows]:
    """Read the rows of chunks, as `kdsl.run.upsert.chunks.read_parts` does."""
    records = sorted((one for chunk in chunks for one in chunk.rows), key=lambda one: (one.partition, one.offset))
    if records and is_small():
        small: Any = SmallUpserts(records)
        yield small
    elif records:
        lacks = np.array([one.name is UNCHANGED for one in records])
        ids = {i: ("users", records[i].partition, records[i].offset) for i in np.flatnonzero(lacks).tolist()}
        empties = np.array([one.key is None for one in records])
        yield KeyedRows(
            pa.RecordBatch.from_arrays(
                [pa.array([one.key or 0 for one in records], pa.int64()), _names_of(records)], schema=ROWS
            ),
            np.array([one.name is None for one in records]),
            np.array([one.time for one in records]),
            np.array([one.partition for one in records]),
            Unavailable({"name": lacks}, ids) if ids else None,
            empties if empties.any() else None,
        )


def _rows_of(batches: Any) -> list[Row]:
    """The changes in batches as dicts."""
    rows: list[Row] = []
    for batch in batches:
        if isinstance(batch, list):
            rows += batch
            continue
        columns = [column.to_pylist() for column in batch.columns]
        rows += [dict(zip(batch.schema.names, values, strict=True)) for values in zip(*columns, strict=True)]
    return rows


class _Placement:
    """`kdsl.run.upsert.partitioned_keys.KeyPlacement`, for the partitioner of the simulated producers."""

    reason = "its key is elsewhere"

    def __init__(self, plan: object, partitions: int, *_: object) -> None:
        self.partitions = partitions

    def belong(self, rows: pa.RecordBatch, partition: int) -> Any:
        keys: Any = rows.column(0).to_numpy()
        return keys % self.partitions == partition


def _find(state: KeyedState, hashes: Any, *, stored: bool = False) -> Any:
    """`KeyedState.find`, in some runs with arrays that have at most two rows."""
    found = _original_find(state, hashes, stored=stored)
    if World.current.life.tiny_arrays and found.rows.num_rows > 2:  # type: ignore[attr-defined]
        raise pa.ArrowInvalid("offset overflow while concatenating arrays")
    return found


_original_find = KeyedState.find


def _sample_choice(plan: ReadPlan, cluster: object) -> RoutingChoice:
    """Sample the keys of the topic, instead of `kdsl.run.librdkafka.key_sample.sample_choice`."""
    del plan, cluster
    choice = World.current.decisions.choose(3)
    if choice == 1:
        return RoutingChoice("key", "its producers choose partitions")
    return RoutingChoice("partition" if choice == 0 else None, "of its keys", 0, "murmur2" if choice == 0 else None)


def _run(world: World) -> None:
    """Run the life of a query."""
    life = world.life = _Life(world)  # type: ignore[attr-defined]
    life.begin()
    # Some runs compute changes in parts, as those of large rows.
    state_changes.MOST_BYTES = (1 << 20, 100, 300)[world.decisions.choose(3)]
    partition_changes.MAX_ROWS = (1 << 16, 2)[world.decisions.choose(2)]
    saved: _Saved | None = None
    for _ in range(1 + world.decisions.choose(3)):
        _start(life)
        event = world.decisions.choose(12)
        if event == 1:
            saved = life.save()
        elif event == 2 and saved is not None:
            life.restore(saved)
        elif event in (3, 4, 5, 6, 7, 8):
            (life.set_back, life.copy, life.convert, life.grow, life.damage, life.misdeclare)[event - 3]()
        life.shape = ("key", "partition")[world.decisions.choose(2)]
    world.calm = True
    error = None
    for _ in range(4):  # each may need what another error says
        error = _start(life)
        if error is None or (life.may_miss and _is_missing(error)):
            break
    if error is not None and not (life.may_miss and _is_missing(error)):
        raise error
    if error is None and life.done < _BATCHES:
        raise ViolationError(f"{life.done} batches are done")


def _start(life: _Life) -> BaseException | None:
    """Start the query in a new driver, and return its error."""
    life.sessions += 1
    session = Session(life.world, f"driver{life.sessions}", cores=1 + life.world.decisions.choose(2))
    life.session = session
    actor = session.start("query", lambda: life.run(session))
    life.world.wait(lambda: actor.done)
    session.end()
    error = actor.error
    life.world.tell("the driver has ended: %r", error)
    expected = error is None or isinstance(error, Killed | SparkError | OSError)
    if not expected and isinstance(error, KdslError):
        expected = life.refused is not None or life.heed(error)
    if error is not None and not expected:
        raise error
    return error


def _is_missing(error: BaseException) -> bool:
    """Whether a batch was refused because the state with which it begins is missing."""
    return isinstance(error, KdslError) and "which has the last rows of the keys where the batch begins" in str(error)


def _substitutes() -> Substitutes:
    return [
        (state_plans, "log", SimpleNamespace(warning=lambda *_: None, info=lambda *_: None)),
        (state_plans, "sample_choice", _sample_choice),
        *((module, "choose_shards", lambda _: _SHARDS) for module in (state_plans, diagnostics)),
        (diagnostics, "open_folder_without_spark", lambda *_: Folder(_LogFolder())),
        (keyed_state, "secrets", SimpleNamespace(randbelow=lambda n: n > 1 and World.current.decisions.choose(2))),
        (keyed_state, "BATCH_ROWS", 1),
        (keyed_state, "MERGED_RECORDS", 1),
        (keyed_state, "MEMORY_BYTES", 100),
        (KeyedState, "find", _find),
        (state_changes, "MOST_BYTES", 100),
        (partition_changes, "MAX_ROWS", 2),
        (partition_changes, "KeyPlacement", _Placement),
        (steps, "LATE_BATCHES", 1),
        (shard_changes, "count_kept_batches", lambda: 1),
        (shard_changes, "ChunkOutput", _ChunkOutput),
        (shard_changes, "build_change_chunk", lambda _, changes: changes),
        (shard_changes, "read_parts", _read_parts),
        (shared_hashes, "hash_keys", lambda keys: hash_keys(keys) % np.uint64(3)),
        *file_substitutes(),
        *small_substitutes(),
    ]


def _remove_blindly(state: KeyedState, files: StateFiles, version: int, keep: Sequence[str]) -> None:
    """`KeyedState._remove_before`, without reading which runs later documents name."""
    if files.batches_between_removals == 1 or not World.current.decisions.choose(2):
        files.remove(
            [
                name
                for name in files.list()
                if (number := keyed_state.version_of(name)) is not None and number < version and name not in keep
            ]
        )


def _without_start() -> Substitutes:
    remove = KeyedState._remove_before

    def remove_start(state: KeyedState, files: StateFiles, version: int, keep: Sequence[str]) -> None:
        remove(state, files, max(version, state._end), keep)

    return [(KeyedState, "_remove_before", remove_start)]


def _read_in_place(files: StoreFiles, name: str) -> bytes:
    """`StoreFiles.read` as it was, which did not know documents whose replacement was interrupted."""
    path = files._path(name)
    return remote._try_again(lambda: files._read_once(path), remote._PAUSES, FileNotFoundError)


SCENARIO = Scenario(
    "upsert-state",
    _run,
    _substitutes,
    {
        "state-runs-removed": lambda: [(KeyedState, "_remove_before", _remove_blindly)],
        "state-start-removed": _without_start,
        "state-late-version": lambda: [(LocalFiles, "misses_any", lambda *_: False)],
        "state-one-version": lambda: [(state_plans, "number_version", lambda batch, _: batch << 32)],
        "state-half-replaced": lambda: [(StoreFiles, "read", _read_in_place)],
    },
)
