"""The documents of a checkpoint: manifest, current driver, state of an ingestion, counts of dead letters.

A query runs batches as Spark and an ingestion do: it notes what a batch learned, changes the sink, writes, notes what
it counted, and commits. Its tasks write dead letters, which the driver counts. Drivers die or lose requests to the file
system, which is one of those on which Spark can have a checkpoint; programs start the query again in the same process
or in another one; the checkpoint is copied, set back, or loses files. At the end each record and letter is counted
once.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any

import attrs
import pyarrow as pa

from kdsl import Col, DeadLetters, Json, KafkaTable
from kdsl.declare.dead_letters import NO_LIMIT
from kdsl.errors import CheckpointError, DeadLetterError, KdslError
from kdsl.ingest import state as ingest_state
from kdsl.ingest.run import query as ingest_query
from kdsl.ingest.schema_changes import SchemaChange, UpstreamTable
from kdsl.ingest.state import LOSSY_VALUES, SCHEMAS, STARTED, Note, StateFiles
from kdsl.plan.build import read_plan, write_plan
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.resolve import resolve
from kdsl.run import dead_letter_counts
from kdsl.run.checkpoint import manifest, stored_columns
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.driver import CurrentDriver
from kdsl.run.checkpoint.folder import Folder
from kdsl.run.checkpoint.manifest import Manifest
from kdsl.run.checkpoint.stored_columns import StoredColumns, columns_of, read_columns
from kdsl.run.checkpoint.task_entries import read_entry_in_task
from kdsl.run.dead_letter_counts import LetterCounts
from kdsl.run.dead_letters import report
from kdsl.run.dead_letters.headers import NEEDS
from kdsl.run.dead_letters.report import BatchId, check_refusal
from kdsl.run.librdkafka import letter_writer
from kdsl.run.librdkafka.letter_writer import LetterWriter
from kdsl.run.listeners.events import Progress, Query
from kdsl.run.records.rejections import Rejection
from kdsl.spark_internals import hadoop
from kdsl.types import model as t
from kdsl.types.widening import TableSchema
from tests.simulation import document_events
from tests.simulation.environment import PerProcess, SimulatedLock
from tests.simulation.folder import CHECKPOINT_KINDS, LOCAL, FileTree, HadoopModel, SimulatedPath, hadoop_substitutes
from tests.simulation.scenario import Scenario, Substitutes
from tests.simulation.spark_driver import Session, SparkError
from tests.simulation.world import Killed, Process, ViolationError, World

_BATCHES = 3
_QUERY, _READ, _TABLE = "query", "orders-1", ("shop", "orders")
_PLAN = '{"table": "Written"}'
_PLACES = ("/checkpoint", "/copy")
_COLUMNS: Any = PerProcess("columns", StoredColumns)


class _Orders(KafkaTable, topic="orders", value=Json(), dead_letters=DeadLetters("dead", 1)):
    id: Col[int]


class _Written(KafkaTable, topic="written", value=Json()):
    id: Col[int]


@cache
def _letters_plan(limit: int) -> ReadPlan:
    plan = read_plan(resolve(_Orders.definition(), "read"))
    assert plan.dead_letters is not None
    return attrs.evolve(plan, dead_letters=attrs.evolve(plan.dead_letters, max_count=limit))


@cache
def _plan() -> WritePlan:
    return write_plan(resolve(_Written.definition(), "write"))


@cache
def _records(entry: int, task: int, count: int) -> pa.RecordBatch:
    columns = {name: pa.nulls(count) for name in NEEDS}
    columns |= {
        "topic": pa.array(["orders"] * count),
        "partition": pa.array([task] * count),
        "offset": pa.array([entry * 10 + i for i in range(count)]),
    }
    return pa.RecordBatch.from_pydict(columns)


@attrs.frozen
class _Content:
    """What the records of a batch are.

    Attributes:
        id: A number that no other batch has.
        dirty: How many cannot be read.
        column: A column that the batch shows first; empty without one.
        lossy: How many values lose digits when they are decoded.
        letters: How many records each task rejects.
    """

    id: int
    dirty: int
    column: str
    lossy: int
    letters: tuple[int, ...]


@attrs.define
class _Sink:
    """What outlives drivers beside the checkpoint.

    Attributes:
        columns: The columns of the sink's table.
        applied: The batches that the sink has.
        noted: The batches whose lossy values were noted.
    """

    columns: set[str] = attrs.field(factory=set)
    applied: set[int] = attrs.field(factory=set)
    noted: set[int] = attrs.field(factory=set)

    def copy(self) -> _Sink:
        """The same at this time."""
        return _Sink(set(self.columns), set(self.applied), set(self.noted))


class _Life:
    """The life of a checkpoint."""

    def __init__(self, world: World) -> None:
        self.world, choose = world, world.decisions.choose
        kind = CHECKPOINT_KINDS[choose(len(CHECKPOINT_KINDS))]
        self.tree = FileTree(world, kind)
        self.scheme = f"{kind.scheme}:"
        self.local = FileTree(world, LOCAL, fails=False)
        self.location = self.scheme + _PLACES[0]
        self.limit = (NO_LIMIT, NO_LIMIT, 3, 6)[choose(4)]
        self.contents: dict[int, _Content] = {}
        self.sink = _Sink()
        self.letters: set[tuple[int, int, int]] = set()
        self.settings: dict[str, str] = {}
        self.drivers = 0
        self.newest: Process | None = None
        self.spark = HadoopModel(self.tree)

    # What is in the checkpoint, as the oracle sees it

    def last(self, log: str) -> int:
        """The last entry of a log of Spark; -1 without one."""
        prefix = f"{self.location}/{log}/"
        return max((int(path[len(prefix) :]) for path in self.tree.files if path.startswith(prefix)), default=-1)

    def entry(self, number: int) -> str | None:
        """The entry of a batch in the offset log; None if it has none."""
        text: str | None = self.tree.files.get(f"{self.location}/offsets/{number}")
        return text

    def content(self, number: int) -> _Content:
        """The records of a planned batch."""
        return self.contents[json.loads(self.tree.files[f"{self.location}/offsets/{number}"].split("\n")[2])["id"]]

    def committed(self) -> list[_Content]:
        """The records of the committed batches."""
        return [self.content(number) for number in range(self.last("commits") + 1)]

    def count_letters(self) -> int:
        """How many letters the committed batches have."""
        return sum(sum(content.letters) for content in self.committed())

    # Drivers

    def start(self, name: str, function: Callable[[_Driver], None]) -> BaseException | None:
        """Let a new driver run a function to its end, and return its error."""
        self.drivers += 1
        driver = _Driver(self, Session(self.world, f"driver{self.drivers}"))
        self.newest = driver.session.process
        actor = driver.session.start(name, lambda: function(driver))
        self.world.wait(lambda: actor.done)
        driver.session.end()
        if actor.error is not None and not isinstance(actor.error, Killed | KdslError | SparkError):
            raise actor.error
        self.world.tell("the driver has ended: %r", actor.error)
        return actor.error

    def create(self, name: str, text: str) -> None:
        """Write an entry of a log as Spark does: completely, and only if it does not exist."""
        path = f"{self.location}/{name}"

        def create() -> None:
            if path in self.tree.files:
                raise SparkError(f"{path} exists")
            self.tree.put(path, text)

        self.world.request(name.partition("/")[0], create, _fail)

    def plan_batch(self, number: int) -> None:
        """Plan a batch."""
        choose = self.world.decisions.choose
        letters = (choose(4) % 3, choose(4) % 3) if choose(3) else (0, 0)
        id_ = len(self.contents)
        content = _Content(id_, choose(3), f"c{number}" if choose(2) else "", choose(3), letters)
        self.contents[id_] = content
        self.create(f"offsets/{number}", document_events.write_entry(number, id_, choose(5)))


class _Driver:
    """A driver's process.

    Args:
        life: The life of the checkpoint.
        session: The session.
    """

    def __init__(self, life: _Life, session: Session) -> None:
        self.life, self.session = life, session
        self._runs = 0
        self._receiving = SimulatedLock()
        self.query: Query | None = None

    def run(self) -> None:
        """Start the query, again after some failures, until it has done all batches."""
        world = self.life.world
        while True:
            try:
                return self._run_query()
            except (KdslError, SparkError) as e:
                world.tell("the query fails: %s", e)
                if self._runs == 3 or world.calm or world.decisions.choose(2):
                    raise

    def open(self) -> tuple[Checkpoint, StateFiles]:
        """Open the checkpoint as a start does."""
        life = self.life
        spark: Any = life.spark
        checkpoint = Checkpoint.open(spark, life.location)
        checkpoint.check(_plan(), ())
        if checkpoint.manifest is None:
            checkpoint.store(Manifest(plan=_PLAN))
        nothing: Any = SimpleNamespace(
            name="", new_table=None, new_database=None, ingestion=SimpleNamespace(source=None)
        )
        return checkpoint, ingest_query._open_state(
            spark, nothing, nothing, checkpoint, nothing, (), learns_again=False
        )

    def _run_query(self) -> None:
        life, world = self.life, self.life.world
        self._runs += 1
        checkpoint, files = self.open()
        driver = CurrentDriver(checkpoint.folder)
        query = self.query = Query(_QUERY, f"{self.session.process.name}-{self._runs}", session=life.spark)
        life.settings = {}
        letters: Any = dead_letter_counts.LETTERS
        try:
            self._notify(lambda: letters.on_start(query))
            self._notify(lambda: _COLUMNS.on_start(query))
            state: ingest_state.IngestState | None = None
            while True:
                number = life.last("commits") + 1
                if life.last("offsets") < number:
                    if number == _BATCHES:
                        return
                    life.plan_batch(number)
                world.tell("batch %d: %r", number, life.content(number))
                if state is None:
                    driver.take_over()
                    state = files.load(number)
                state = self._run_batch(driver, files, number, state)
                life.create(f"commits/{number}", "v1\n{}")
                self._check_limit(number)
                progress = Progress(query, number, 1, {"durationMs": {"addBatch": 1}})
                tell_progress = partial(letters.on_progress, progress, ())
                self.session.start("progress", partial(self._notify, tell_progress))
                reads = document_events.list_reads(_letters_plan(life.limit), world.decisions.choose(3))
                self.session.start("columns", partial(self._notify, partial(_COLUMNS.on_progress, progress, reads)))
        finally:
            if self.session.process.alive:
                self.query = None
                self.session.start("end", partial(self._notify, lambda: letters.on_end(query)))
                _COLUMNS.on_end(query)

    def _notify(self, call: Callable[[], None]) -> None:
        """Call an observer as the listener does, which logs errors."""
        self.life.world.step("listener")
        try:
            call()
        except Exception as e:  # noqa: BLE001
            self.life.world.tell("the listener logs %r", e)

    def _run_batch(
        self, driver: CurrentDriver, files: StateFiles, number: int, state: ingest_state.IngestState
    ) -> ingest_state.IngestState:
        """Run a batch in the order of `kdsl.ingest.run.batch.BatchRunner`; return the state after it."""
        life, sink = self.life, self.life.sink
        content = life.content(number)
        self._run_job(number, content)
        note = Note(number, counts={"dirty": content.dirty} if content.dirty else {})
        if content.column:
            schema = TableSchema((t.Field("id", t.BigInt()), t.Field(content.column, t.STRING)), ("id",))
            changes: tuple[SchemaChange, ...] = ()
            if content.column not in sink.columns:
                changes = (SchemaChange("add.column", _TABLE, (t.Field(content.column, t.STRING),)),)
            note = attrs.evolve(note, upstream={_TABLE: UpstreamTable(schema, ())}, changes=changes)
        driver.require()
        after = files.write(note, state)
        if content.column:
            life.world.request("add column", lambda: sink.columns.add(content.column), _fail)
        check_refusal(report.refusals(), BatchId(_QUERY, number))
        if content.id not in sink.applied:
            life.world.request("sink", lambda: sink.applied.add(content.id), _fail)
            if content.lossy:
                driver.require()
                after = files.write(attrs.evolve(note, counts={**note.counts, LOSSY_VALUES: content.lossy}), state)
                sink.noted.add(content.id)
        return after

    def _run_job(self, number: int, content: _Content) -> None:
        """Run the tasks of a batch, and deliver what they report."""
        world, delivered = self.life.world, set[int]()
        settings = dict(self.life.settings)
        counts_twice = bool(world.decisions.choose(2))
        running = [True]

        def deliver(task: int, reports: list[dict[str, Any]]) -> None:
            with self._receiving:  # Spark passes on what tasks report, one after the other
                if running[0] and (task not in delivered or counts_twice):
                    delivered.add(task)
                    letters: Any = dead_letter_counts.LETTERS
                    letters.extend(reports)

        def run_task(task: int, attempt: int) -> None:
            reports = self._write_letters(number, content, task, settings)
            if reports:
                world.tell("task %d.%d reports %d", task, attempt, len(reports))
                actor = self.session.start("accumulators", lambda: deliver(task, reports))
                world.wait(lambda: actor.done)

        try:
            self.session.run_job(run_task, len(content.letters))
        finally:
            running[0] = False

    def _write_letters(
        self, number: int, content: _Content, task: int, settings: dict[str, str]
    ) -> list[dict[str, Any]]:
        """Write the letters of a task, and return its reports."""
        values = self.life.world.process.values
        life = self.life
        values["task"] = SimpleNamespace(settings=settings, batch=number, stageId=lambda: 1)
        if read_entry_in_task("orders", number) != (life.entry(number) or "").encode():
            raise ViolationError(f"a task reads another entry of batch {number} than there is")
        reports: list[dict[str, Any]] = []
        values["reports"] = reports
        values["content"] = content.id
        nothing: Any = None
        with LetterWriter(
            _letters_plan(self.life.limit), nothing, _READ, f"{content.id}-{task}", lambda rows: rows, 1
        ) as write:
            if count := content.letters[task]:
                write(_records(content.id, task, count), [Rejection(i, "it is bad") for i in range(count)])
        return reports

    def _check_limit(self, number: int) -> None:
        """Check that a committed batch does not have too many letters, and that all of them were written."""
        life = self.life
        if life.limit != NO_LIMIT and life.count_letters() > life.limit:
            raise ViolationError(f"batch {number} is committed with {life.count_letters()} letters")
        content = life.content(number)
        for task, count in enumerate(content.letters):
            for i in range(count):
                if (content.id, task, content.id * 10 + i) not in life.letters:
                    raise ViolationError(f"batch {number} is committed without a letter of task {task}")


def _fail(happened: str) -> Any:
    raise SparkError(f"no answer ({happened})")


def _send(writer: LetterWriter, records: pa.RecordBatch, rejections: list[Rejection], reasons: list[str]) -> None:
    """Write letters to a topic, instead of `LetterWriter._send`."""
    del writer, rejections, reasons
    places = list(zip(records.column("partition").to_pylist(), records.column("offset").to_pylist(), strict=True))
    life, content = _life(), World.current.process.values["content"]
    World.current.request("letters", lambda: life.letters.update((content, *place) for place in places), _fail_letter)


def _fail_letter(happened: str) -> Any:
    raise DeadLetterError(f"orders: cannot write a dead letter: no answer ({happened})")


def _life() -> _Life:
    life: _Life = World.current.life  # type: ignore[attr-defined]
    return life


# What happens to a checkpoint while no driver runs


def _set_back(life: _Life) -> None:
    """Set the checkpoint back to a copy of earlier, or go on with a copy of it."""
    if life.world.decisions.choose(2):
        other = life.scheme + _PLACES[life.location.endswith(_PLACES[0])]
        life.tree.delete(other)
        life.tree.copy_folder(life.location, other)
        life.location = other
        life.world.note("copied", "checkpoint")
        life.world.tell("the checkpoint is copied to %s", other)


def _lose(life: _Life) -> None:
    """Lose files of the checkpoint; a start must refuse that, and then they are restored."""
    saved = life.tree.snapshot(life.location)
    inside = f"{life.location}/{SCHEMAS}/"
    names = sorted(path for path in saved if path.startswith(inside) and "/." not in path[len(inside) - 1 :])
    what = life.world.decisions.choose(4)
    if not names or f"{life.location}/{STARTED}" not in saved:
        return
    if what == 1:
        life.tree.delete(inside[:-1])
    elif what == 2:
        for log in ("offsets", "commits"):
            life.tree.delete(f"{life.location}/{log}")
        if life.last("offsets") < 0 and not any(name.removeprefix(inside)[0].isdigit() for name in names):
            life.tree.restore(life.location, saved)
            return
    elif what == 3:
        for log in (SCHEMAS, "offsets", "commits"):
            life.tree.delete(f"{life.location}/{log}")
    if not what:
        return
    life.world.note("files lost", ("", "schemas", "offsets", "schemas and offsets")[what])
    calm, life.world.calm = life.world.calm, True
    error = life.start("start after a loss", lambda driver: _open(driver))
    if not isinstance(error, CheckpointError):
        raise ViolationError(f"what was lost is taken for a first start: {error!r}")
    life.world.calm = calm
    life.tree.restore(life.location, saved)


def _open(driver: _Driver) -> None:
    """Open the checkpoint up to the first batch."""
    checkpoint, files = driver.open()
    files.load(driver.life.last("commits") + 1)
    if error := document_events.find_driver_error(checkpoint.folder):
        raise error
    dead_letter_counts._read_counts(checkpoint.folder, driver.life.last("commits"))


def _damage(life: _Life) -> None:
    """Damage a document; a start must refuse it by its name, and then it is restored."""
    saved = life.tree.snapshot(life.location)
    path = document_events.damage(life.tree, life.location, life.last("commits"))
    if path is None:
        return
    life.world.note("damaged", document_events.name_kind(path))
    life.world.tell("%s is damaged", path)
    calm, life.world.calm = life.world.calm, True
    error = life.start("start after damage", _open)
    life.world.calm = calm
    if not isinstance(error, KdslError) or path.rpartition("/")[2] not in str(error):
        raise ViolationError(f"{path} is damaged, and a start says {error!r}")
    life.tree.restore(life.location, saved)


def _read_on(life: _Life) -> None:
    """Start another read where the query has stopped, and ask how the checkpoint finds rows."""
    number, calm = life.last("commits"), life.world.calm
    spark: Any = life.spark
    life.world.calm = True
    error = life.start(
        "another read",
        lambda _: document_events.read_on(spark, _letters_plan(life.limit), life.location, number, life.entry(number)),
    )
    life.world.calm = calm
    if error is not None:
        raise error


def _run(world: World) -> None:
    """Run a life of a checkpoint."""
    life = world.life = _Life(world)  # type: ignore[attr-defined]
    saved: tuple[dict[str, Any], _Sink] | None = None
    for _ in range(1 + world.decisions.choose(3)):
        life.start("start", lambda driver: driver.run())
        event = world.decisions.choose(8)
        if event == 1:
            saved = life.tree.snapshot(life.location), life.sink.copy()
        elif event == 2 and saved is not None:
            noted = saved[1].noted
            life.tree.restore(life.location, {life.location + _inside(path): text for path, text in saved[0].items()})
            life.sink.noted = set(noted)
            world.note("set back", "checkpoint")
        elif event == 3:
            _set_back(life)
        elif event in (4, 5, 6):
            (_lose, _damage, _read_on)[event - 4](life)
    world.calm = True
    error = life.start("last start", lambda driver: driver.run())
    _check_end(life, error)


def _inside(path: str) -> str:
    """The part of a path after the folder of the checkpoint."""
    return "/" + path.split("/", 2)[2]


def _check_end(life: _Life, error: BaseException | None) -> None:
    """Check what the checkpoint says at the end."""
    number = life.last("offsets")
    if error is not None:
        following = life.content(number) if number > life.last("commits") else None
        total = life.count_letters() + (sum(following.letters) if following else 0)
        if not (isinstance(error, DeadLetterError) and life.limit != NO_LIMIT and total > life.limit):
            raise ViolationError(f"the last start fails: {error!r}") from error
        return
    committed = life.committed()
    if len(committed) != _BATCHES:
        raise ViolationError(f"{len(committed)} batches are committed")
    checks: list[Any] = []

    def read(driver: _Driver) -> None:
        spark: Any = life.spark
        checkpoint = Checkpoint.open(spark, life.location)
        files = StateFiles(checkpoint.folder)
        columns = read_columns(checkpoint.folder)
        if columns not in ({}, {name: columns_of(_letters_plan(life.limit)) for name in columns}):
            raise ViolationError(f"the checkpoint stores the columns {columns}")
        checks.extend((files.load(), dead_letter_counts._read_counts(checkpoint.folder, _BATCHES - 1)[0]))

    if failed := life.start("check", read):
        raise failed
    state, counts = checks
    _check("records that cannot be read", state.counts.get("dirty", 0), sum(one.dirty for one in committed))
    lossy, noted = sum(one.lossy for one in committed), sum(one.lossy for one in committed if one.id in life.sink.noted)
    if not noted <= state.counts.get(LOSSY_VALUES, 0) <= lossy:
        raise ViolationError(f"{state.counts.get(LOSSY_VALUES, 0)} lossy values, not {noted} to {lossy}")
    columns = {field.name for of in state.upstream.values() for field in of.schema.columns} - {"id"}
    _check("columns", columns, {one.column for one in committed} - {""})
    changes = Counter(str(change) for _, change in state.changes)
    if changes and max(changes.values()) > 1:
        raise ViolationError(f"changes are noted twice: {changes}")
    _check("letters", sum(counts.get(_READ, {}).values()), life.count_letters())


def _check(what: str, actual: object, expected: object) -> None:
    if actual != expected:
        raise ViolationError(f"{what}: {actual}, not {expected}")


class _Queries:
    """`kdsl.spark_internals.queries.RunningQuery`."""

    def __init__(self, session: object, query: str) -> None:
        self.checkpoint = _life().location


def _set_in_session(session: object, query: str, name: str, value: str) -> None:
    """Set a setting of the query's session."""
    _life().settings[name] = value


def _make_mark(suffix: str, prefix: str, folder: SimulatedPath) -> tuple[int, SimulatedPath]:
    """``tempfile.mkstemp``."""
    path = folder / f"{prefix}{World.current.random.getrandbits(32):08x}{suffix}"
    path.write_text("")
    return 0, path


def _open_folder(*_: object) -> Folder:
    """Open the folder of the checkpoint in a task, or in a program without Spark."""
    life = _life()
    spark: Any = life.spark
    return Checkpoint.open(spark, life.location).folder


def _refusals() -> SimulatedPath:
    """The folder of the refusals of the running driver."""
    return SimulatedPath(_life().local, f"/tmp/{World.current.process.name}")


def _substitutes() -> Substitutes:
    def task() -> Any:
        return World.current.process.values.get("task")

    def send(accumulator: int, document: dict[str, Any]) -> None:
        del accumulator
        World.current.process.values["reports"].append(document)

    nothing: Callable[..., None] = lambda *_, **__: None  # noqa: E731
    return [
        *hadoop_substitutes(),
        *document_events.event_substitutes(_open_folder, lambda: _life().location),
        (stored_columns, "RunningQuery", _Queries),
        (manifest, "plan_text", lambda _: _PLAN),
        (ingest_state, "WHOLE_EVERY", 2),
        (ingest_query, "write_declaration", lambda _: {"route": "[]"}),
        (ingest_query, "check_restart", nothing),
        (dead_letter_counts, "LETTERS", PerProcess("letters", LetterCounts)),
        (dead_letter_counts, "_KEPT_FILES", 1),
        (dead_letter_counts, "RunningQuery", _Queries),
        (dead_letter_counts, "set_in_query_session", _set_in_session),
        (report, "refusals", _refusals),
        (dead_letter_counts, "refusals", _refusals),
        (report, "tempfile", SimpleNamespace(mkstemp=_make_mark)),
        (report, "os", SimpleNamespace(close=nothing, PathLike=os.PathLike)),
        (report, "Path", lambda path: path),
        (report, "_POLL", 0.2),
        (report, "current_task", task),
        (report, "local_property", lambda task, name: task.settings.get(name)),
        (report, "current_query_id", lambda _: _QUERY),
        (report, "current_batch_id", lambda task: task.batch),
        (report, "send_to_driver", send),
        (letter_writer, "current_task", task),
        (letter_writer, "current_batch", report.current_batch),
        (LetterWriter, "_send", _send),
    ]


def _list_documents(names: Any) -> list[str]:
    """`kdsl.spark_internals.hadoop.list_documents` as it was, which did not know spare names."""
    return sorted(name for name in names if not name.startswith("."))


def _hide_spare_names() -> Substitutes:
    return [(hadoop, "list_documents", _list_documents)]


def _accept_lost_state() -> Substitutes:
    return [(ingest_query, "_check_first_start", lambda *_, **__: None)]


def _leave_uncounted() -> Substitutes:
    start = LetterCounts.on_start

    def on_start(counts: LetterCounts, query: Query) -> None:
        try:
            start(counts, query)
        finally:
            counts._unread.clear()

    return [(LetterCounts, "on_start", on_start)]


def _forget_before(counts: dead_letter_counts._QueryCounts, number: int) -> list[int]:
    """`_QueryCounts.forget_before` as it was, which forgot letters that only an open batch still counted."""
    gone: set[int] = set()
    for read in {*counts.stored, *counts.letters}:
        of_read = counts.counts(read)
        old = {batch for batch in of_read if batch < number}
        recent = {batch: count for batch, count in of_read.items() if batch >= number}
        counts.stored[read] = {dead_letter_counts._EARLIER: sum(of_read[batch] for batch in old), **recent}
        counts.letters[read] = {b: one for b, one in counts.letters.get(read, {}).items() if b >= number}
        gone |= old - {dead_letter_counts._EARLIER}
    return sorted(gone)


def _add_letters(letters: dead_letter_counts._Letters, one: report.LetterReport) -> None:
    """`_Letters.add`, if it counted each attempt of a task."""
    count, reasons = letters.tasks.get(one.task, (0, ()))
    letters.tasks[one.task] = (count + one.count, reasons or one.reasons)


SCENARIO = Scenario(
    "documents",
    _run,
    _substitutes,
    {
        "E17": lambda: [*_hide_spare_names(), *_accept_lost_state()],
        "E17-name": _hide_spare_names,
        "E17-first-start": _accept_lost_state,
        "letters-uncounted": _leave_uncounted,
        "letters-forgotten": lambda: [(dead_letter_counts._QueryCounts, "forget_before", _forget_before)],
        "letters-doubled": lambda: [(dead_letter_counts._Letters, "add", _add_letters)],
    },
)
