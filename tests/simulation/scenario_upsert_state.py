"""The states of upserts: versions of the last row of each key, by partition and by key.

A query over an upsert table plans batches with kdsl's own functions, and its tasks compute changes with kdsl's own code
and tiny tables. Attempts die, come twice, or go on after their driver; a batch is run again with other tasks; rows that
were found by partition are found by key from some batch on; the checkpoint is copied, or set back as a whole or only in
its logs. The oracle applies one record after the other to a dict of keys.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import SimpleNamespace
from typing import Any, NoReturn

import attrs
import numpy as np
import pyarrow as pa

from kdsl.errors import KdslError
from kdsl.plan.model import ReadPlan
from kdsl.run.librdkafka import state_plans
from kdsl.run.librdkafka.state_plans import advance_state, convert_to_key, number_batch, plan_steps
from kdsl.run.offsets.stored import Offsets, Range, StateFolder
from kdsl.run.records.decode import RowsOfRecords
from kdsl.run.state_files import local, remote
from kdsl.run.state_files.files import NewRun, RunName, StateFiles
from kdsl.run.state_files.local import LocalFiles
from kdsl.run.state_files.location import Location
from kdsl.run.state_files.remote import StoreFiles
from kdsl.run.state_files.stores import Store
from kdsl.run.upsert import keyed_state, partition_changes, shard_changes, shared_hashes
from kdsl.run.upsert.changes import KeyedRows
from kdsl.run.upsert.chunks import Chunk
from kdsl.run.upsert.keyed_state import KeyedState
from kdsl.run.upsert.keys import assign_shards, hash_keys
from kdsl.run.upsert.partition_changes import PartitionChanges
from kdsl.run.upsert.shard_changes import ShardOfBatch, compute_shard
from kdsl.run.upsert.steps import PartitionSteps, ShardStep
from tests.run.upsert.states import Event, Kind, Row, Truth, plan_of
from tests.simulation.folder import HDFS, LATE_STORE, LOCAL, S3, FileTree, SimulatedPath, SimulatedStore
from tests.simulation.scenario import Scenario, Substitutes
from tests.simulation.small_states import ROWS, SmallUpserts, is_small, small_substitutes
from tests.simulation.spark_driver import Session, SparkError
from tests.simulation.world import Killed, ViolationError, World

_BATCHES, _KEYS, _SHARDS = 4, 4, 2
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
        key: The user.
        name: The name in its row; None for a record that deletes the key.
    """

    partition: int
    offset: int
    time: int
    key: int
    name: str | None


@cache
def _shard(key: int, shards: int) -> int:
    """The shard of a key."""
    shard: int = assign_shards([pa.array([key])], shards).item()
    return shard


class _Blob:
    """The content of a run, which stays in memory.

    Args:
        batches: Its batches.
    """

    def __init__(self, batches: tuple[pa.RecordBatch, ...]) -> None:
        self.batches = batches

    def __len__(self) -> int:
        rows: int = sum(batch.num_rows for batch in self.batches)
        return 10 + rows

    def __getitem__(self, which: slice) -> _Blob:
        return _Blob(self.batches[which])


class _RemoteFiles(StoreFiles):
    """The files of a state in a store, where runs are not copied to the worker."""

    @contextmanager
    def create(self, stem: str) -> Iterator[NewRun]:
        held = _Held()
        run = NewRun(held)  # type: ignore[arg-type]
        yield run
        assert held.blob is not None
        name = str(RunName(stem, len(held.blob), 0))
        self._upload(self._path(name), held.blob)
        run.name = name

    def _upload_once(self, path: str, content: Any) -> None:
        if not isinstance(content, _Blob):
            super()._upload_once(path, content)
            return
        with self._store.system.open_output_stream(path) as out:
            out.content = content

    def open(self, name: str) -> Any:
        with self._hide_secrets(self._path(name)), self._store.system.open_input_stream(self._path(name)) as stream:
            return _Held(stream.content)


@attrs.define
class _Held:
    """A run in memory where kdsl has a path."""

    blob: _Blob | None = None

    def write_bytes(self, content: _Blob) -> None:
        """Set the content."""
        self.blob = content

    def read_bytes(self) -> _Blob:
        """Return the content."""
        assert self.blob is not None
        return self.blob

    def __enter__(self) -> _Held:
        return self

    def __exit__(self, *_: object) -> None:
        pass


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
        self.kind: Kind = ("full", "net", "full", "expiring")[choose(4)]
        self.tree = FileTree(world, (LOCAL, LOCAL, S3, HDFS, LATE_STORE)[choose(5)])
        self.place = _PLACES[0]
        self.declared = "auto"
        self.partitions = 1 + choose(2)
        self.records: list[list[_Record]] = [[] for _ in range(self.partitions)]
        self.clock = 1_000
        routing = choose(2)
        state = (
            StateFolder("by-key", "key", self.partitions, _SHARDS)
            if routing
            else StateFolder("by-partition", "partition", self.partitions, partitioner="murmur2")
        )
        start = dict.fromkeys((("users", number) for number in range(self.partitions)), 0)
        self.log = [Offsets(start, {"users": "id"}, initial=True, state=state)]
        self.done = 0
        self.truths = [Truth(self.kind)]
        self.begun = 0
        self.may_miss = False
        self.sessions = 0

    @property
    def routing(self) -> str:
        """How the last planned batch finds rows."""
        state = self.log[-1].state
        assert state is not None
        return state.routing

    def plan(self) -> ReadPlan:
        """The plan of the read."""
        return plan_of(self.kind, self.declared)

    def open(self, name: str) -> StateFiles:
        """Open the files of a state."""
        if self.tree.kind is LOCAL:
            folder: Any = SimulatedPath(self.tree, f"{self.place}/{name}")
            return LocalFiles(folder)
        location = Location(self.tree.kind.scheme, "bucket", f"{self.place}/{name}")
        is_hdfs = self.tree.kind is HDFS
        store = Store(location, SimulatedStore(self.tree), (), False, is_hdfs, 1 if is_hdfs else 2, is_hdfs)
        no_cache: Any = SimpleNamespace(remove=lambda *_: None)
        return _RemoteFiles(store, no_cache)

    def append(self) -> None:
        """Write some records to the topic."""
        choose = self.world.decisions.choose
        for _ in range(1 + choose(4)):
            key, name = choose(_KEYS), (None, "a", "b")[choose(3)]
            partition = key % len(self.records)
            if self.routing == "key" and choose(3) == 1:
                partition = choose(len(self.records))
            self.clock += 1
            log = self.records[partition]
            log.append(_Record(partition, len(log), self.clock, key, name))

    # The driver

    def run(self, session: Session) -> None:
        """Run the query, until it has done all batches."""
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
        stop = Offsets(ends, {"users": "id"}, begin=first, state=state)
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
        if self.routing == "partition":
            outputs = session.run_job(lambda task, _: self.compute_partitions(plan, *planned[task]), len(planned))
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
            cut = r.start + choose(len(r) + 1) if self.routing == "key" else r.start
            parts += [one for one in (attrs.evolve(r, end=cut), attrs.evolve(r, start=cut)) if len(one)]
        count = 1 + choose(2)
        tasks = [tuple(parts[task::count]) for task in range(count)]
        return [task for task in tasks if task]

    def check(self, rows: Sequence[Row]) -> None:
        """Compare the changes of the planned batch with the oracle's."""
        stop = self.log[-1]
        assert stop.state is not None
        records = sorted(self.read(self.ranges()), key=lambda record: record.time)
        truth = self.truths[len(self.log) - 2].copy()
        events = [Event(record.key, record.name, deletes=record.name is None) for record in records]
        expected = truth.apply(events, stop.state.time)
        del self.truths[len(self.log) - 1 :]
        self.truths.append(truth)
        changes: dict[int, list[Row]] = {}
        for row in rows:
            changes.setdefault(row["user_id"], []).append(row)
        if changes != expected:
            raise ViolationError(f"batch {len(self.log) - 2} changes {changes}, not {expected}")

    # Tasks

    def compute_partitions(self, plan: ReadPlan, ranges: Sequence[Range], steps: Any) -> list[Row]:
        """Compute the changes of a task that has the states of its partitions."""
        assert isinstance(steps, PartitionSteps)
        decoder: Any = SimpleNamespace(schema=_DECODED, decode_with_records=_decode, dropped=Counter())
        changes = PartitionChanges(decoder, plan, steps, self.open)
        batches: list[pa.RecordBatch] = []
        raw: Any
        if raw := self.read(ranges):
            self.world.step("read")
            batches += changes.add(raw)
        batches += changes.finish()
        return _rows_of(batches)

    def divide(self, ranges: Sequence[Range], step: Any) -> list[tuple[int, Chunk]]:
        """Divide the records of a task by shard, as `ChunkOutput` does."""
        assert isinstance(step, ShardStep)
        self.world.step("read")
        chunks: dict[tuple[int, int], list[_Record]] = {}
        for record in self.read(ranges):
            chunks.setdefault((_shard(record.key, step.shards), record.partition), []).append(record)
        divided = [
            (shard, Chunk(topic="users", partition=partition, offset=records[0].offset, step="", rows=records))  # type: ignore[arg-type]
            for (shard, partition), records in chunks.items()
        ]
        step_chunks = (
            [
                (shard, Chunk(topic="", partition=0, offset=0, step=step.to_text(), rows=b""))
                for shard in range(step.shards)
            ]
            if step.tells
            else []
        )
        return [*divided, *step_chunks]

    def compute_shard(self, plan: ReadPlan, number: int, chunks: Sequence[Chunk]) -> list[Row]:
        """Compute the changes of a shard."""
        of_batch = ShardOfBatch.of("Users", number, chunks)
        return _rows_of(compute_shard(of_batch, plan, ROWS, self.open, None))

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
        stop = self.log[-1]
        assert stop.state is not None
        if self.done < len(self.log) - 1 and self.world.decisions.choose(2):
            state = number_batch(convert_to_key(stop.state, _SHARDS), stop.positions)
            self.log[-1] = attrs.evolve(stop, state=state)
            self.world.note("converted", "planned batch")
        else:
            self.declared = "key"
            self.world.note("converted", "declaration")

    def grow(self) -> None:
        """Give the topic another partition, once all records so far are in batches."""
        ends = [self.log[-1].positions.get(("users", number), 0) for number in range(len(self.records))]
        if len(self.records) < 3 and ends == [len(records) for records in self.records]:
            self.records.append([])
            self.world.note("grown", "topic")


def _fail(happened: str) -> NoReturn:
    raise SparkError(f"no answer ({happened})")


def _decode(records: Any) -> RowsOfRecords:
    """Decode records, as `RecordDecoder.decode_with_records` does."""
    kinds = pa.array(["-D" if record.name is None else "+U" for record in records])
    keys = pa.array([record.key for record in records])
    names = pa.array([record.name for record in records], pa.string())
    raw = pa.RecordBatch.from_arrays(
        [pa.array([record.partition for record in records]), pa.array([record.offset for record in records])],
        ["partition", "offset"],
    )
    return RowsOfRecords(pa.RecordBatch.from_arrays([kinds, keys, names], schema=_DECODED), raw, None)


def _read_parts(chunks: Sequence[Any], *_: object) -> Iterator[KeyedRows]:
    """Read the rows of chunks, as `kdsl.run.upsert.chunks.read_parts` does."""
    records = sorted((one for chunk in chunks for one in chunk.rows), key=lambda one: (one.partition, one.offset))
    if records and is_small():
        small: Any = SmallUpserts(records)
        yield small
    elif records:
        columns = [pa.array([one.key for one in records]), pa.array([one.name for one in records], pa.string())]
        yield KeyedRows(
            pa.RecordBatch.from_arrays(columns, schema=ROWS),
            np.array([one.name is None for one in records]),
            np.array([one.time for one in records]),
            np.array([one.partition for one in records]),
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


def _write(state: KeyedState, path: Any, batches: Any) -> tuple[pa.RecordBatch, ...]:
    """Write a run, which stays in memory, instead of `KeyedState._write`."""
    del state
    blob = _Blob(tuple(batch for batch in batches if batch.num_rows))
    path.write_bytes(blob)
    return blob.batches


def _read_batches(held: _Held) -> tuple[pa.RecordBatch, ...]:
    return held.read_bytes().batches


def _open_local(files: LocalFiles, name: str) -> _Held:
    """Return a run of a folder, instead of `LocalFiles.open`."""
    path: Any = files._folder / name
    path.stat()
    return _Held(path.read_bytes())


def _run(world: World) -> None:
    """Run the life of a query."""
    life = world.life = _Life(world)  # type: ignore[attr-defined]
    saved: _Saved | None = None
    for _ in range(1 + world.decisions.choose(3)):
        _start(life)
        event = world.decisions.choose(8)
        if event == 1:
            saved = life.save()
        elif event == 2 and saved is not None:
            life.restore(saved)
        elif event in (3, 4, 5, 6):
            (life.set_back, life.copy, life.convert, life.grow)[event - 3]()
    world.calm = True
    error = _start(life)
    if error is not None and not (life.may_miss and _is_missing(error)):
        raise error
    if error is None and life.done < _BATCHES:
        raise ViolationError(f"{life.done} batches are done")


def _start(life: _Life) -> BaseException | None:
    """Start the query in a new driver, and return its error."""
    life.sessions += 1
    session = Session(life.world, f"driver{life.sessions}", cores=1 + life.world.decisions.choose(2))
    actor = session.start("query", lambda: life.run(session))
    life.world.wait(lambda: actor.done)
    session.end()
    error = actor.error
    if error is None or isinstance(error, Killed | SparkError | OSError) or _is_missing(error):
        life.world.tell("the driver has ended: %r", error)
        if error is not None and _is_missing(error) and not life.may_miss:
            raise error
        return error
    raise error


def _is_missing(error: BaseException) -> bool:
    """Whether a batch was refused because the state with which it begins is missing."""
    return isinstance(error, KdslError) and "which has the last rows of the keys where the batch begins" in str(error)


def _substitutes() -> Substitutes:
    fs = SimpleNamespace(
        FileSelector=lambda path, **_: SimpleNamespace(base_dir=path),
        FileType=SimpleNamespace(File="File", NotFound="NotFound"),
    )
    return [
        (state_plans, "log", SimpleNamespace(warning=lambda *_: None)),
        (keyed_state, "secrets", SimpleNamespace(randbelow=lambda n: n > 1 and World.current.decisions.choose(2))),
        (keyed_state, "BATCH_ROWS", 1),
        (keyed_state, "MERGED_RECORDS", 1),
        (keyed_state, "_read_batches", _read_batches),
        (LocalFiles, "open", _open_local),
        (KeyedState, "_write", _write),
        (local, "os", SimpleNamespace(scandir=lambda folder: folder.scan())),
        (StoreFiles, "_fs", fs),
        (remote, "_CUTS", (8, 20)),
        *small_substitutes(),
        (partition_changes, "KeyPlacement", _Placement),
        (shard_changes, "read_parts", _read_parts),
        (shared_hashes, "hash_keys", lambda keys: hash_keys(keys) % np.uint64(3)),
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
