"""A small model of streams in foreachBatch: checkpoint folders, a source of changes, and the runs of queries.

`tests.simulation.spark_driver` models Spark's planning and tasks; here a batch is only a range of changes. What matters
is that each of its effects may be the last one, and that batches are repeated, also by two drivers at once.
"""

from __future__ import annotations

import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NoReturn, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from kdsl.run.checkpoint.folder import Folder
from kdsl.spark_internals.hadoop import list_documents, spare_name
from tests.simulation.batch_rows import SimulatedRows
from tests.simulation.world import Actor, Killed, Process, World

T = TypeVar("T")


class SimulatedJavaError(Py4JJavaError):  # type: ignore[misc]
    """An exception of Java, as py4j raises it.

    Args:
        message: Its message.
        state: The SQLSTATE of an SQLException; empty for other exceptions.

    Attributes:
        java_exception: Stands for Java's object.
    """

    def __init__(self, message: str, state: str = "") -> None:
        Exception.__init__(self, message)
        self.message, self.state = message, state
        self.java_exception = self

    def __str__(self) -> str:
        return self.message

    def getMessage(self) -> str:
        return self.message

    def getCause(self) -> None:
        return None

    def getSQLState(self) -> str:
        return self.state

    def getErrorCode(self) -> int:
        return 0


class Storage:
    """A file system on which a rename does not replace a file.

    Attributes:
        files: What its files contain, by path.
    """

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def copy(self, source: str, target: str) -> None:
        """Replace a folder by a copy of another one, at once."""
        copied = {f"{target}/{name}": text for name, text in self.inside(source).items()}
        self.remove(target)
        self.files |= copied

    def inside(self, folder: str) -> dict[str, str]:
        """The files in a folder, by their names in it."""
        prefix = f"{folder}/"
        return {path[len(prefix) :]: text for path, text in self.files.items() if path.startswith(prefix)}

    def remove(self, folder: str) -> None:
        """Remove a folder."""
        for name in self.inside(folder):
            del self.files[f"{folder}/{name}"]

    def open(self, location: str) -> Folder:
        """Open a folder, as production code does."""
        return Folder(SimulatedFolder(self, location))


class SimulatedFolder:
    """A folder with the steps of `kdsl.spark_internals.hadoop.HadoopFolder`; each may be the last one.

    Args:
        storage: The file system.
        location: The folder.
    """

    def __init__(self, storage: Storage, location: str) -> None:
        self._storage, self.location = storage, location

    def path(self, name: str) -> str:
        return f"{self.location}/{name}"

    def read(self, name: str) -> str | None:
        return _ask("read", name, lambda: self._read(name))

    def _read(self, name: str) -> str | None:
        files = self._storage.files
        return files.get(self.path(name), files.get(self.path(spare_name(name))))

    def write(self, name: str, text: str) -> None:
        files, path, spare = self._storage.files, self.path(name), self.path(spare_name(name))
        if path not in files and spare in files:
            files[path] = files.pop(spare)
        if files.get(path) == text:
            return
        if path not in files:
            _ask("create", name, lambda: files.__setitem__(path, text))
            return
        _ask("write beside", name, lambda: files.__setitem__(spare, text))
        _ask("delete", name, lambda: files.pop(path, None))
        _ask("rename", name, lambda: files.__setitem__(path, files.pop(spare, text)))

    def create(self, name: str, text: str) -> bool:
        def effect() -> bool:
            return self._storage.files.setdefault(self.path(name), text) is text

        if self._read(name) is not None:
            return False
        return _ask("create", name, effect)

    def names(self, name: str) -> list[str]:
        return _ask("list", name, lambda: self._names(name))

    def _names(self, name: str) -> list[str]:
        return list_documents({path.partition("/")[0] for path in self._storage.inside(self.path(name))})

    def remove(self, name: str) -> None:
        def effect() -> None:
            self._storage.files.pop(self.path(spare_name(name)), None)
            self._storage.files.pop(self.path(name), None)
            self._storage.remove(self.path(name))

        _ask("remove", name, effect)


def _ask(action: str, name: str, effect: Callable[[], T]) -> T:
    """Make a request to a file system, whose place does not depend on numbers."""
    return World.current.request(_place(action, name), effect, _fail_files)


@lru_cache(10_000)
def _place(action: str, name: str) -> str:
    """The place of a request for a file, in which a number is an N."""
    kind = "/".join("N" if part.partition(".")[0].isdigit() else part for part in name.split("/"))
    return f"{action} {kind}"


def _fail_files(what: str) -> NoReturn:
    raise OSError(f"the file system does not answer ({what})")


class SimulatedSession:
    """Stands for a Spark session.

    Attributes:
        storage: The file system.
        targets: The tables: what reaches them, for substitutes.
        query: The id of the query whose batch runs, and the folder of its checkpoint; None outside of a batch.
    """

    def __init__(self, storage: Storage, targets: Any) -> None:
        self.storage, self.targets = storage, targets
        self.query: RunningQuery | None = None
        self.version = "4.1.0"


class RunningQuery:
    """What `kdsl.spark_internals.queries.query_of` returns.

    Args:
        id_: The id of the query.
        checkpoint: The folder of its checkpoint.
    """

    def __init__(self, id_: str, checkpoint: str) -> None:
        self.id, self.checkpoint = id_, checkpoint


class ConcurrentUpdateError(Exception):
    """Spark's error if another driver has written an entry of a log of the checkpoint."""


class SimulatedStream:
    """Stands for a streaming DataFrame, and for the writer of its query.

    Args:
        session: The session.
        columns: The columns.
        source: The changes; more may be added.
    """

    isStreaming = True

    def __init__(self, session: SimulatedSession, columns: Sequence[str], source: list[dict[str, Any]]) -> None:
        self.sparkSession, self.columns, self._source = session, list(columns), source
        self._function: Callable[[Any, int], None] | None = None

    @property
    def writeStream(self) -> SimulatedStream:
        return self

    @property
    def id(self) -> str:
        """The id of the query."""
        query = self.sparkSession.query
        return "" if query is None else query.id

    def outputMode(self, mode: str) -> SimulatedStream:
        del mode
        return self

    def foreachBatch(self, function: Callable[[Any, int], None]) -> SimulatedStream:
        self._function = function
        return self

    def run(self, checkpoint: str, largest: int) -> None:
        """Run the query until all changes are in batches; a batch has some of them, at most ``largest``.

        An entry of the offset log is written before its batch, and one of the commit log after it.
        """
        world, folder = World.current, self.sparkSession.storage.open(checkpoint)
        id_ = _create_id(folder)
        self.sparkSession.query = RunningQuery(id_, checkpoint)
        planned, done = (
            max((int(n) for n in folder.names(log) if n.isdigit()), default=-1) for log in ("offsets", "commits")
        )
        end = _read_end(folder, planned)
        number = planned
        if planned <= done:
            number, start = planned + 1, end
        else:
            start = _read_end(folder, planned - 1)
        while True:
            if number > planned:
                size = min(1 + world.decisions.choose(largest), len(self._source) - start)
                if size == 0:
                    return
                end = start + size
                if not folder.create(f"offsets/{number}", f"v1\n{{}}\n{json.dumps({'end': end})}"):
                    raise ConcurrentUpdateError(f"offsets/{number}")
            assert self._function is not None
            self._function(SimulatedRows(self.sparkSession, self.columns, self._source[start:end]), number)
            if not folder.create(f"commits/{number}", "v1\n{}"):
                raise ConcurrentUpdateError(f"commits/{number}")
            planned, number, start = number, number + 1, end


def start_query(writer: SimulatedStream, checkpoint: str, trigger: Mapping[str, Any] | None, name: str | None) -> Any:
    """Stands for `kdsl.run.listeners.start.start_query`: run a query to its end; the trigger has the largest batch."""
    del name
    writer.run(checkpoint, (trigger or {}).get("largest", 3))
    return writer


def _create_id(folder: Folder) -> str:
    """Read the id of a checkpoint's query; create it before the first start."""
    text = folder.read("metadata")
    if text is None:
        folder.create("metadata", json.dumps({"id": f"query-{World.current.random.getrandbits(20)}"}))
        text = folder.read("metadata")
    return str(json.loads(text or "")["id"])


def _read_end(folder: Folder, number: int) -> int:
    """Read where a batch ends; 0 before the first one."""
    text = folder.read(f"offsets/{number}") if number >= 0 else None
    return 0 if text is None else int(json.loads(text.splitlines()[2])["end"])


def run_drivers(world: World, start: Callable[[int], object], errors: tuple[type[Exception], ...]) -> list[Actor[Any]]:
    """Start drivers one after the other, some while an earlier one is paused; return them; all may go on.

    Args:
        world: The world.
        start: What a driver does; its argument says which of the starts this is.
        errors: What a driver may end with. Another error is raised.
    """
    drivers: list[Actor[Any]] = []
    for number in range(1 + world.decisions.choose(3, 0.7)):
        driver = world.spawn(Process(f"driver-{number}"), "query", lambda number=number: start(number))  # type: ignore[misc]
        drivers.append(driver)
        world.wait(lambda driver=driver: driver.done, 30.0 * 4 ** world.decisions.choose(3))  # type: ignore[misc]
    check_ends(drivers, errors)
    return drivers


def run_last_driver(
    world: World, start: Callable[[int], object], drivers: Sequence[Actor[Any]]
) -> BaseException | None:
    """Run a last driver without faults, and again if it fails, when the earlier ones have ended, too.

    Returns:
        The error of the last run; None if it has succeeded.
    """
    world.calm = True
    for _ in range(2):
        last = world.spawn(Process("last-driver"), "query", lambda: start(-1))
        world.wait(lambda last=last: last.done)  # type: ignore[misc]
        for driver in drivers:
            world.wait(lambda driver=driver: driver.done)  # type: ignore[misc]
        if last.error is None:
            return None
    return last.error


def check_ends(drivers: Iterable[Actor[Any]], errors: tuple[type[Exception], ...]) -> None:
    """Raise an error of a driver that has ended which is not one of the expected ones."""
    for driver in drivers:
        if isinstance(driver.error, Exception) and not isinstance(driver.error, errors):
            raise driver.error


class TargetScenario(ABC):
    """A run of a query into a target: drivers, other programs beside them, a last calm driver, and a check.

    Args:
        world: The world.
        expected: What a driver may end with.

    Attributes:
        world: The world.
        storage: The file system of the checkpoint.
        causes: What has happened to the checkpoint, and what other programs did, if it may cause an error.
        adopted: Whether a driver accepted the target as it was.
        tampers: Whether other programs change the target; set by subclasses.
    """

    def __init__(self, world: World, expected: tuple[type[Exception], ...]) -> None:
        self.world, self.storage, self._expected = world, Storage(), expected
        self.causes: list[str] = []
        self.adopted = self.tampers = False

    def run(self) -> None:
        """Run drivers and the other programs, then a last calm driver, and check what it left."""
        world = self.world
        self.begin()
        other = world.spawn(Process("others"), "others", self.act) if self.tampers else None
        drivers = run_drivers(world, self.start, self._expected)
        if other is not None:
            world.wait(lambda: other.done)
            if other.error is not None and not isinstance(other.error, Killed):
                raise other.error
        self.add_last()
        error = run_last_driver(world, self.start, drivers)
        check_ends(drivers, self._expected)
        self.check(error)

    @abstractmethod
    def begin(self) -> None:
        """Put the first changes into the source."""

    @abstractmethod
    def act(self) -> None:
        """Do what other programs do, now and then."""

    @abstractmethod
    def start(self, number: int) -> None:
        """Start a driver, which is 0 for the first one."""

    @abstractmethod
    def add_last(self) -> None:
        """Put the last changes into the source."""

    @abstractmethod
    def check(self, error: BaseException | None) -> None:
        """Check the target at the end; the last driver has ended, with an error or without one."""

    def note_cause(self, action: str) -> None:
        """Note what has happened to the checkpoint, or what another program has done."""
        self.world.note("others", action)
        self.world.tell("another program: %s", action)
        self.causes.append(action)

    def move_checkpoint(self, fate: int) -> str:
        """Set the checkpoint back to a copy (1), give the driver a copy (2), or make one (3).

        Args:
            fate: Which of these; the others do nothing.

        Returns:
            The checkpoint of the driver.
        """
        if fate == 1 and self.storage.inside("copy"):
            self.note_cause("checkpoint set back")
            self.storage.copy("copy", "checkpoint")
        elif fate == 2:
            self.note_cause("checkpoint copied")
            self.storage.copy("checkpoint", "copy")
            return "copy"
        elif fate == 3:
            self.storage.copy("checkpoint", "copy")
        return "checkpoint"


class CollectedLog(logging.Logger):
    """A log whose warnings the world keeps, in the attribute ``warnings``; nothing else is kept."""

    def __init__(self) -> None:
        super().__init__("simulated")

    def isEnabledFor(self, level: int) -> bool:
        return level >= logging.INFO

    def _log(self, level: int, msg: object, args: Any, **_: Any) -> None:  # type: ignore[override]
        world = World.current
        text = str(msg) % args if args else str(msg)
        if level >= logging.WARNING:
            vars(world).setdefault("warnings", []).append(text)
        world.tell("%s", text)


def warnings_of(world: World) -> list[str]:
    """The warnings that kdsl logged."""
    return list(vars(world).get("warnings", ()))
