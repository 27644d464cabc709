"""A model of Spark's driver: sessions that run jobs, checkpoints, and queries in micro-batches.

A session has a driver process and workers, which are processes, too. A job runs a function for each of its tasks: some
attempts die, fail, or get a second one beside them, and one that the driver has abandoned goes on. When the driver
dies, its workers may go on for a while. A query does what Spark's MicroBatchExecution does, in the same order:

- It plans a batch, writes its offsets to the offset log, runs it, and writes its number to the commit log.
- A query that starts runs the last planned batch again if the commit log does not have it: with the same offsets, which
  are all that is left of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from functools import partial
from typing import Any, NoReturn, Protocol, TypeVar

import attrs

from tests.simulation.world import Actor, Killed, Process, World

T = TypeVar("T")

_HANGS = 3_600.0
"""For how many seconds a task hangs at most."""
ATTEMPTS = 4
"""How often a task may fail before its job does."""
_COMMITTED = 'v1\n{"nextBatchWatermarkMs":0}'


class SparkError(Exception):
    """A query has failed for a reason that is not in kdsl: a start of it may succeed."""


class Session:
    """A Spark application: a driver, and workers for its tasks.

    Args:
        world: The world.
        name: The name of the driver's process.
        cores: How many tasks run at once.
        chance: The chance of each event of a task: another attempt beside it, or one that is abandoned.

    Attributes:
        process: The process of the driver.
        cores: How many tasks run at once.
        suspended: The attempts that were suspended, and of which the driver of the job has not heard yet.
    """

    def __init__(self, world: World, name: str = "driver", *, cores: int = 2, chance: float = 0.05) -> None:
        self._world, self._chance = world, chance
        self.process = Process(name)
        self.cores = cores
        self._idle: list[Process] = []
        self._workers: list[Process] = []
        self.suspended: list[Actor[Any]] = []

    def start(self, name: str, function: Callable[[], T]) -> Actor[T]:
        """Start a thread of the driver."""
        return self._world.spawn(self.process, name, function)

    def call(self, process: Process, name: str, function: Callable[[], T]) -> T:
        """Call a function in another process, and wait for it; a SparkError if the process dies."""
        actor = self._world.spawn(process, name, function)
        self._world.wait(lambda: actor.done)
        if isinstance(actor.error, Killed):
            raise SparkError(f"{process.name} has died in {name}")
        return actor.result()

    @property
    def workers(self) -> list[Process]:
        """The workers that were started, dead ones included."""
        return self._workers

    def start_worker(self, kind: str = "worker") -> Process:
        """Start a process that belongs to the session."""
        worker = Process(f"{self.process.name}.{kind}{len(self._workers)}")
        self._workers.append(worker)
        return worker

    def run_job(self, function: Callable[[int, int], T], tasks: int) -> list[T]:
        """Run a function for each task in workers, and return its results; raise the error of a task that always fails.

        Args:
            function: The function of the index of a task, and of the number of its attempt, which no other attempt of
                any task of this job has.
            tasks: How many tasks the job has.
        """
        return _Job(self, self._world, self._chance, function, tasks).run()

    def run_attempt(self, name: str, function: Callable[[], T]) -> tuple[Actor[T], Process]:
        """Start an attempt of a task in a worker that is idle or new; return it with the worker."""
        while self._idle and not self._idle[-1].alive:
            self._idle.pop()
        worker = self._idle.pop() if self._idle else self.start_worker()

        def run() -> T:
            try:
                return function()
            finally:
                if worker.alive:
                    self._idle.append(worker)

        return self._world.spawn(worker, name, run), worker

    def suspend(self, goes_on: Callable[[], bool]) -> None:
        """Suspend the attempt that runs, as a machine that hangs does; its driver gives it up.

        Args:
            goes_on: Whether it goes on, which it also does when nothing else can.
        """
        world = self._world
        if self.process.alive and world.process in self._workers:
            self.suspended.append(world.actor)
        world.note("suspended", "task")
        world.tell("hangs")
        world.wait(goes_on, _HANGS)
        world.tell("goes on")

    def end(self) -> None:
        """End the session in an orderly way, or after its driver has died; some workers may go on for a while."""
        self._world.kill(self.process)
        for worker in self._workers:
            if worker.alive and (self._world.calm or not self._world.decisions.happens(0.3)):
                self._world.kill(worker)
            elif worker.alive:
                self._world.note("goes on", "worker of a dead driver")
                self._world.tell("%s goes on", worker.name)


class _Job:
    """A job while it runs."""

    def __init__(
        self, session: Session, world: World, chance: float, function: Callable[[int, int], Any], tasks: int
    ) -> None:
        self._session, self._world, self._chance = session, world, chance
        self._function = function
        self._waiting = list(range(tasks))
        self._running: list[tuple[int, Actor[Any], Process]] = []
        self._failures = [0] * tasks
        self._results: dict[int, Any] = {}
        self._tasks, self._attempts = tasks, 0

    def run(self) -> list[Any]:
        """Run the job."""
        try:
            self._run_all()
        finally:
            # What is left are attempts beside those that have succeeded or failed: Spark kills them, or is too late.
            for _, _, worker in self._running if self._session.process.alive else ():
                if self._world.calm or not self._world.decisions.happens(0.5):
                    self._world.kill(worker)
        return [self._results[task] for task in range(self._tasks)]

    def _run_all(self) -> None:
        """Run attempts until each task has a result."""
        suspended = self._session.suspended
        while len(self._results) < self._tasks:
            while self._waiting and len(self._running) < self._session.cores:
                self._start(self._waiting.pop(0))
            self._disturb()
            self._world.wait(lambda: any(actor.done or actor in suspended for _, actor, _ in self._running))
            for one in [one for one in self._running if one[1] in suspended]:
                suspended.remove(one[1])
                self._running.remove(one)
                if one[0] not in self._results:
                    self._start(one[0])
            for one in [one for one in self._running if one[1].done]:
                self._running.remove(one)
                self._finish(one[0], one[1])

    def _start(self, task: int) -> None:
        attempt, self._attempts = self._attempts, self._attempts + 1
        actor, worker = self._session.run_attempt(f"task {task}.{attempt}", partial(self._function, task, attempt))
        self._running.append((task, actor, worker))

    def _disturb(self) -> None:
        """Sometimes start an attempt beside one that runs, or give up one that goes on without its driver knowing."""
        if self._world.calm or not self._world.decisions.happens(self._chance):
            return
        task, actor, worker = one = self._running[self._world.decisions.choose(len(self._running))]
        if self._world.decisions.choose(2):
            self._world.note("abandoned", "task")
            self._world.tell("the driver gives up %s in %s, which goes on", actor.name, worker.name)
            self._running.remove(one)
        else:
            self._world.note("speculation", "task")
            self._world.tell("another attempt beside %s", actor.name)
        self._start(task)

    def _finish(self, task: int, actor: Actor[Any]) -> None:
        if task in self._results:
            return
        if actor.error is None:
            self._results[task] = actor.result()
            return
        self._world.tell("%s failed: %r", actor.name, actor.error)
        if not isinstance(actor.error, Killed):  # a worker that dies does not count, so that seeds with kills come far
            self._failures[task] += 1
        if self._failures[task] >= ATTEMPTS:
            raise actor.error
        if not any(running == task for running, _, _ in self._running):
            self._waiting.append(task)


class Checkpoint:
    """The checkpoint of a query: Spark's offset log and commit log, as files, and whatever else lies beside them.

    Args:
        files: The strings of its files by name, such as ``offsets/0``; by default it is empty.

    Attributes:
        files: The strings of its files by name.
    """

    def __init__(self, files: MutableMapping[str, str] | None = None) -> None:
        self.files: MutableMapping[str, str] = {} if files is None else files

    def last(self, log: str) -> int:
        """The number of the last entry of a log, ``offsets`` or ``commits``; -1 without one."""
        prefix = f"{log}/"
        return max((int(name[len(prefix) :]) for name in self.files if name.startswith(prefix)), default=-1)

    def offsets(self, batch: int) -> list[str | None]:
        """The JSON of the offsets of each source at the end of a batch; None for a source without any."""
        return [None if line == "-" else line for line in self.files[f"offsets/{batch}"].split("\n")[2:]]

    def add_offsets(self, batch: int, offsets: Sequence[str | None]) -> None:
        """Write an entry of the offset log; a SparkError if it exists."""
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": int(World.current.now * 1000), "conf": {}})
        self._create(f"offsets/{batch}", "\n".join(["v1", metadata, *("-" if one is None else one for one in offsets)]))

    def add_commit(self, batch: int) -> None:
        """Write an entry of the commit log; a SparkError if it exists."""
        self._create(f"commits/{batch}", _COMMITTED)

    def set_back(self, batches: int) -> None:
        """Remove the last entries of both logs, as somebody does who wants batches again."""
        last = self.last("offsets")
        for batch in range(max(0, last - batches + 1), last + 1):
            for log in ("offsets", "commits"):
                self.files.pop(f"{log}/{batch}", None)

    def copy(self) -> Checkpoint:
        """Copy the checkpoint as it is."""
        return Checkpoint(dict(self.files))

    def _create(self, name: str, text: str) -> None:
        if name in self.files:
            raise SparkError(f"concurrent update to the log: {name} exists")
        self.files[name] = text


class Source(Protocol):
    """The reader of a stream as Spark's planning process uses it; offsets are JSON documents."""

    def initialOffset(self) -> dict[str, Any]: ...

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]: ...

    def getDefaultReadLimit(self) -> Any: ...

    def reportLatestOffset(self) -> dict[str, Any] | None: ...

    def prepareForTriggerAvailableNow(self) -> None: ...

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[Any]: ...

    def commit(self, end: dict[str, Any]) -> None: ...

    def stop(self) -> None: ...


@attrs.define
class Batch:
    """A micro-batch that is run.

    Attributes:
        number: Its number.
        session: The session that runs it.
        partitions: What its tasks read: the index of the source, and one of the partitions that the source has planned.
        offsets: The JSON of the offsets at its end, by source.
        rows: How many rows it had, for the report; whoever runs it sets this.
    """

    number: int
    session: Session
    partitions: Sequence[tuple[int, Any]]
    offsets: Sequence[str | None]
    rows: int = 0


class StreamingQuery:
    """A run of a query.

    Args:
        session: The session.
        checkpoint: The checkpoint, which other runs have written.
        sources: Create the sources; each is created and used in a process of its own, which ends with the query.
        run_batch: Runs a batch in the driver: its jobs, and what the sink does before and after them.
        available_now: Whether the query ends when it has read what was there at its start.
        listener: Receives the events ``start``, ``progress``, ``idle`` and ``end`` with their documents, all but the
            first in another thread of the driver.
        pause: How many seconds the query waits if there is nothing to read.
        id: The id of the query, which belongs to the checkpoint.
        run_id: The id of the run.

    Attributes:
        batch: The number of the batch that is planned next, or runs.
    """

    def __init__(
        self,
        session: Session,
        checkpoint: Checkpoint,
        sources: Sequence[Callable[[], Source]],
        run_batch: Callable[[Batch], None],
        *,
        available_now: bool = False,
        listener: Callable[[str, Mapping[str, Any]], None] | None = None,
        pause: float = 0.1,
        id: str = "query",  # noqa: A002
        run_id: str = "run",
    ) -> None:
        self._session, self._checkpoint, self._run_batch = session, checkpoint, run_batch
        self._world = World.current
        self._create = sources
        self._planners: list[Process] = []
        self._sources: list[Source] = []
        self._available_now, self._listener, self._pause = available_now, listener, pause
        self._events: list[tuple[str, Mapping[str, Any]]] = []
        self._telling: Actor[None] | None = None
        self._stopped = False
        self._ids = {"id": id, "runId": run_id}
        self._committed: list[str | None] = [None] * len(sources)
        self._available: list[str | None] = [None] * len(sources)
        self._latest: list[dict[str, Any] | None] = [None] * len(sources)
        self._constructed = False
        self.batch = 0

    @property
    def has_reported(self) -> bool:
        """Whether the listener has received all events."""
        return not self._events and (self._telling is None or self._telling.done)

    def stop(self) -> None:
        """End the query after the batch that runs."""
        self._stopped = True

    def run(self) -> None:
        """Run the query in a thread of the driver, to its end; raise the error for which it has failed."""
        document: dict[str, Any] = {**self._ids, "name": None}
        if self._listener is not None:  # Spark waits for this event only
            self._listener("start", document)
        error: BaseException | None = None
        try:
            for number, create in enumerate(self._create):
                planner = self._session.start_worker(f"source{number}-")
                self._planners.append(planner)
                self._sources.append(self._session.call(planner, "open", create))
            if self._available_now:
                for number in range(len(self._sources)):
                    self._plan(
                        number, "prepareForTriggerAvailableNow", lambda source: source.prepareForTriggerAvailableNow()
                    )
            self._populate()
            while not self._stopped:
                if self._construct():
                    self._execute()
                elif self._available_now:
                    break
                else:
                    self._tell("idle", self._ids)
                    self._world.sleep(self._pause)
        except BaseException as e:
            error = e
            raise
        finally:
            if not isinstance(error, Killed):
                self._close(document, error)

    def _close(self, document: Mapping[str, Any], error: BaseException | None) -> None:
        """Stop the sources, and report the end."""
        for number, planner in enumerate(self._planners):
            if planner.alive and number < len(self._sources):
                try:
                    self._plan(number, "stop", lambda source: source.stop())
                except Exception as e:  # noqa: BLE001  # Spark logs it
                    self._world.tell("stop failed: %r", e)
                self._world.kill(planner)
        self._tell("end", {**document, "exception": None if error is None else str(error)})

    def _plan(self, number: int, name: str, call: Callable[[Source], T]) -> T:
        """Call a source in its process."""
        source = self._sources[number]
        return self._session.call(self._planners[number], name, lambda: call(source))

    def _populate(self) -> None:
        """Find the batch at which the query goes on, as ``populateStartOffsets`` does."""
        planned, done = self._checkpoint.last("offsets"), self._checkpoint.last("commits")
        if planned < 0:
            return
        self._available = self._fit(self._checkpoint.offsets(planned))
        self.batch, self._constructed = planned, True
        if planned > 0:
            if f"offsets/{planned - 1}" not in self._checkpoint.files:
                raise SparkError(f"batch {planned - 1} does not exist")
            self._committed = self._fit(self._checkpoint.offsets(planned - 1))
        if done == planned:
            self.batch, self._constructed = done + 1, False
            self._committed = list(self._available)
        self._world.tell("goes on with batch %d%s", self.batch, ", which was planned" if self._constructed else "")

    def _fit(self, offsets: Sequence[str | None]) -> list[str | None]:
        """Give the offsets of as many sources as the query has."""
        return [*offsets, *[None] * len(self._create)][: len(self._create)]

    def _construct(self) -> bool:
        """Plan the next batch, as ``constructNextBatch`` does; return whether there is one."""
        if self._constructed:
            return True
        for number in range(len(self._sources)):
            end, latest = self._plan(number, "latestOffset", partial(_latest, begin=self._available[number]))
            self._available[number], self._latest[number] = _dump(end), latest
        if self._available == self._committed:
            return False
        offsets = list(self._available)
        self._world.request(
            "offset log", lambda: self._checkpoint.add_offsets(self.batch, offsets), partial(_fail, "the offset log")
        )
        self._constructed = True
        if self.batch > 0:
            for number, text in enumerate(self._checkpoint.offsets(self.batch - 1)[: len(self._sources)]):
                if text is not None:
                    self._plan(number, "commit", partial(_commit, end=json.loads(text)))
        return True

    def _execute(self) -> None:
        """Run the planned batch, as ``runBatch`` does, and note that it is done."""
        partitions: list[tuple[int, Any]] = []
        starts: list[dict[str, Any] | None] = []
        for number in range(len(self._sources)):
            begin, text = self._committed[number], self._available[number]
            starts.append(None if begin is None else json.loads(begin))
            if text is not None and begin != text:
                planned = self._plan(number, "partitions", partial(_partitions, begin=begin, end=text))
                partitions += ((number, partition) for partition in planned)
        batch = Batch(self.batch, self._session, partitions, list(self._available))
        self._world.tell("batch %d begins with %d tasks", self.batch, len(partitions))
        self._run_batch(batch)
        number = self.batch
        self._world.request("commit log", lambda: self._checkpoint.add_commit(number), partial(_fail, "the commit log"))
        self._world.tell("batch %d is done", number)
        self._report(batch, starts)
        self._committed = list(self._available)
        self.batch, self._constructed = number + 1, False

    def _report(self, batch: Batch, starts: Sequence[dict[str, Any] | None]) -> None:
        """Tell the listener how far the query has come."""
        if self._listener is None:
            return
        sources = [
            {
                "description": f"source {number}",
                "startOffset": starts[number],
                "endOffset": None if text is None else json.loads(text),
                "latestOffset": self._latest[number],
                "numInputRows": batch.rows,
            }
            for number, text in enumerate(batch.offsets)
        ]
        self._tell("progress", {**self._ids, "name": None, "batchId": batch.number, "sources": sources})

    def _tell(self, kind: str, document: Mapping[str, Any]) -> None:
        """Let the thread of the listener pass an event on, after those before it."""
        if self._listener is None:
            return
        self._events.append((kind, document))
        if self._telling is None or self._telling.done:
            self._telling = self._session.start("listener", self._pass_events)

    def _pass_events(self) -> None:
        """Pass the events on that have come."""
        assert self._listener is not None
        while self._events:
            self._world.step("listener")
            self._listener(*self._events.pop(0))


def _dump(offsets: Mapping[str, Any]) -> str:
    """Write offsets as Spark stores them: equal documents of kdsl give equal strings."""
    return json.dumps(offsets, separators=(",", ":"))


def _start(source: Source, begin: str | None) -> dict[str, Any]:
    """Where a batch starts: Spark asks the source if the query has no offsets yet, also when it runs a batch again."""
    return source.initialOffset() if begin is None else json.loads(begin)


def _latest(source: Source, begin: str | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    start = _start(source, begin)
    return source.latestOffset(start, source.getDefaultReadLimit()), source.reportLatestOffset()


def _partitions(source: Source, begin: str | None, end: str) -> Sequence[Any]:
    return source.partitions(_start(source, begin), json.loads(end))


def _commit(source: Source, end: dict[str, Any]) -> None:
    source.commit(end)


def _fail(what: str, happened: str) -> NoReturn:
    raise SparkError(f"{what} cannot be written ({happened})")
