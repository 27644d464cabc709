"""A driver that is killed between two operations of a file system leaves the state before, or the one after."""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kdsl.errors import CheckpointError
from kdsl.formats import TableId
from kdsl.ingest import state as states
from kdsl.ingest.schema_changes import UpstreamTable
from kdsl.ingest.state import SCHEMAS, START, IngestState, Note, StateFiles
from kdsl.run.checkpoint.folder import Folder, LocalFolder
from kdsl.spark_internals.hadoop import HadoopFolder
from kdsl.types import model as t
from kdsl.types.widening import TableSchema

ORDERS: TableId = ("shop", "orders")
WHOLE_EVERY = 4
TABLE = UpstreamTable(TableSchema((t.Field("id", t.BigInt()), t.Field("n", t.STRING)), ("id",)))


class KilledError(BaseException):
    """The driver is gone."""


class Steps:
    """Counts the operations that change a file system, and ends the driver before one of them."""

    def __init__(self) -> None:
        self.left: int | None = None

    def __call__(self) -> None:
        if self.left is not None:
            if not self.left:
                self.left = None
                raise KilledError
            self.left -= 1


class FakePath:
    """`org.apache.hadoop.fs.Path`."""

    def __init__(self, parent: FakePath | str, name: str = "") -> None:
        self.text = posixpath.join(str(parent), name) if name else str(parent)

    def __str__(self) -> str:
        return self.text

    def getParent(self) -> FakePath:
        return FakePath(posixpath.dirname(self.text))

    def getName(self) -> str:
        return posixpath.basename(self.text)

    def toUri(self) -> Any:
        return SimpleNamespace(getScheme=lambda: "s3a")

    def toString(self) -> str:
        return self.text


class FakeFileSystem:
    """A file system of Hadoop that replaces no file in one step, in memory."""

    def __init__(self, steps: Steps) -> None:
        self.files: dict[str, str] = {}
        self._steps = steps

    def exists(self, path: FakePath) -> bool:
        return str(path) in self.files or any(name.startswith(f"{path}/") for name in self.files)

    def open(self, path: FakePath) -> Any:
        return SimpleNamespace(text=self.files[str(path)], close=lambda: None)

    def mkdirs(self, path: FakePath) -> None:
        del path

    def create(self, path: FakePath, overwrite: bool) -> Any:
        self._steps()
        assert overwrite
        self.files[str(path)] = ""
        return SimpleNamespace(path=str(path), close=lambda: None)

    def write(self, text: str, stream: Any, encoding: str) -> None:
        self._steps()
        assert encoding == "UTF-8"
        self.files[stream.path] = text

    def delete(self, path: FakePath, recursive: bool) -> None:
        self._steps()
        for name in [name for name in self.files if name == str(path) or name.startswith(f"{path}/")]:
            assert recursive or name == str(path)
            del self.files[name]

    def rename(self, source: FakePath, target: FakePath) -> bool:
        self._steps()
        if self.exists(target):
            return False
        self.files[str(target)] = self.files.pop(str(source))
        return True

    def listStatus(self, path: FakePath) -> list[Any]:
        inside = {name.removeprefix(f"{path}/").split("/")[0] for name in self.files if name.startswith(f"{path}/")}
        return [SimpleNamespace(getPath=lambda name=name: FakePath(path, name)) for name in inside]


def open_fake_folder(steps: Steps) -> HadoopFolder:
    """A `HadoopFolder` on a file system in memory."""
    system = FakeFileSystem(steps)
    folder = HadoopFolder.__new__(HadoopFolder)
    streams = SimpleNamespace(toString=lambda stream, _: stream.text, write=system.write)
    hadoop = SimpleNamespace(fs=SimpleNamespace(Path=FakePath))
    apache = SimpleNamespace(hadoop=hadoop, commons=SimpleNamespace(io=SimpleNamespace(IOUtils=streams)))
    jvm = SimpleNamespace(org=SimpleNamespace(apache=apache))
    vars(folder).update(_fs=system, _root=FakePath("s3a://bucket/checkpoint"), _jvm=jvm, location="s3a://bucket")
    return folder


@pytest.fixture(params=["hadoop", "local"])
def folder(request: pytest.FixtureRequest, steps: Steps, tmp_path: Path) -> Iterator[Folder]:
    """A folder, each of whose changes of a file is a step."""
    if request.param == "hadoop":
        yield Folder(open_fake_folder(steps))
        return
    with pytest.MonkeyPatch.context() as patch:
        for name in ("write_text", "replace", "unlink"):
            patch.setattr(Path, name, after(steps, getattr(Path, name)))
        yield Folder(LocalFolder(tmp_path))


@pytest.fixture
def steps() -> Steps:
    return Steps()


def after(steps: Steps, change: Callable[..., Any]) -> Callable[..., Any]:
    def run(*arguments: Any, **named: Any) -> Any:
        steps()
        return change(*arguments, **named)

    return run


def kill_at_each_step(steps: Steps, prepare: Callable[[], None], run: Callable[[], None]) -> Iterator[int]:
    """Run an operation again and again, killed one step later each time, until it is done; yield each step."""
    for step in range(100):
        steps.left = None
        prepare()
        steps.left = step
        try:
            run()
        except KilledError:
            yield step
        else:
            steps.left = None
            return
    raise AssertionError("the operation has no end")


@pytest.mark.parametrize("name", ["kdsl/write.json", "write.json"])
@pytest.mark.parametrize("before", ["old", None])
def test_a_replaced_file_is_complete(folder: Folder, steps: Steps, before: str | None, name: str) -> None:
    inside = name.rpartition("/")[0]

    def prepare() -> None:
        folder.remove(name)
        assert folder.read(name) is None
        assert name.rpartition("/")[2] not in folder.names(inside)
        if before is not None:
            folder.write(name, before)

    for _ in kill_at_each_step(steps, prepare, lambda: folder.write(name, "new")):
        text = folder.read(name)
        assert text in (before, "new")
        assert folder.names(inside) == ([] if text is None else ["write.json"])
        folder.write(name, "newer")
        assert (folder.read(name), folder.names(inside)) == ("newer", ["write.json"])
    assert folder.read(name) == "new"


def test_a_removed_file_does_not_come_back(folder: Folder, steps: Steps) -> None:
    def prepare() -> None:
        folder.write("kdsl/write.json", "old")

    for step in kill_at_each_step(steps, prepare, lambda: folder.write("kdsl/write.json", "new")):
        for _ in kill_at_each_step(steps, lambda: None, lambda: folder.remove("kdsl/write.json")):
            assert folder.read("kdsl/write.json") in ("old", "new", None)
        assert folder.read("kdsl/write.json") is None, f"after a write that was killed at step {step}"
        assert folder.names("kdsl") == []


def note(batch: int) -> Note:
    return Note(batch, counts={"dirty": 1}, records={ORDERS: 10})


@pytest.mark.parametrize("batch", [WHOLE_EVERY - 1, WHOLE_EVERY, 2 * WHOLE_EVERY - 1])
def test_the_state_of_an_ingestion_is_complete(
    folder: Folder, steps: Steps, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is noted, or noted again with other counts: into the file that holds everything, or into another one."""
    monkeypatch.setattr(states, "WHOLE_EVERY", WHOLE_EVERY)
    files = StateFiles(folder)
    noted = batch if batch % WHOLE_EVERY else batch - 1

    def prepare() -> None:
        folder.remove(SCHEMAS)
        state = files.write(Note(START, {ORDERS: TABLE}, declared={"route": "[]"}), IngestState())
        for number in range(noted + 1):
            state = files.write(note(number), state)

    def run() -> None:
        late = Note(batch, counts={"dirty": 1, "lossy-values": 3}, records={ORDERS: 10})
        files.write(late, files.load(batch))

    for _ in kill_at_each_step(steps, prepare, run):
        state = files.load()
        assert state.last in (noted, batch)
        assert (list(state.upstream), state.declared) == ([ORDERS], {"route": "[]"})
        assert state.counts["dirty"] == state.last + 1
        assert state.records[ORDERS] == 10 * (state.last + 1)
    assert files.load().counts["lossy-values"] == 3


def test_a_state_that_is_set_aside_is_never_a_part_of_one(folder: Folder, steps: Steps) -> None:
    """Without all of its files it is an error, or there is none, which a query with batches refuses to start with."""
    files = StateFiles(folder)

    def prepare() -> None:
        folder.remove(SCHEMAS)
        state = files.write(Note(START, {ORDERS: TABLE}), IngestState())
        for number in range(3):
            state = files.write(note(number), state)

    for step in kill_at_each_step(steps, prepare, files.set_aside):
        try:
            state = files.load()
        except CheckpointError:
            continue
        assert state == IngestState() or state.counts == {"dirty": 3}, f"killed at step {step}"
    assert files.load() == IngestState()
