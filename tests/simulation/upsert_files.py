"""The files of upsert states in a simulation: runs whose rows stay in memory, a worker's copies of them, and damage.

A run's file has a number, under which the life of the query keeps the rows, and a byte for each of them. Everything
else is what production writes: documents, names with sizes and checksums, uploads and downloads.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import attrs
import pyarrow as pa

from kdsl.run.state_files import local, remote
from kdsl.run.state_files.files import StateFiles
from kdsl.run.state_files.local import LocalFiles
from kdsl.run.state_files.location import Location
from kdsl.run.state_files.remote import StoreFiles
from kdsl.run.state_files.stores import Store
from kdsl.run.upsert import keyed_state
from kdsl.run.upsert.keyed_state import KeyedState
from tests.simulation.folder import HDFS, LOCAL, FileTree, SimulatedPath, SimulatedStore
from tests.simulation.world import World

_DIGITS = 9
_WORKER = "/worker/"


@attrs.define
class RunFiles:
    """What the states of a query have beside their file system.

    Attributes:
        tree: The file system.
        runs: The rows of each run that was written, by the number in its file.
        local: The content of the files on workers, by path.
    """

    tree: FileTree
    runs: list[tuple[Any, ...]] = attrs.field(factory=list)
    local: dict[str, bytes] = attrs.field(factory=dict)

    def open(self, place: str, name: str) -> StateFiles:
        """Open the files of a state.

        Args:
            place: The folder of all states.
            name: The folder of the state in it.
        """
        if self.tree.kind is LOCAL:
            folder: Any = SimulatedPath(self.tree, f"{place}/{name}")
            return LocalFiles(folder)
        location = Location(self.tree.kind.scheme, "bucket", f"{place}/{name}")
        is_hdfs = self.tree.kind is HDFS
        store = Store(location, SimulatedStore(self.tree), (), not is_hdfs, is_hdfs, 1 if is_hdfs else 2, is_hdfs)
        copies: Any = World.current.process.value("copies", lambda: _Copies(self))
        return StoreFiles(store, copies)

    def read(self, path: str) -> bytes:
        """The content of a file; FileNotFoundError if there is none."""
        files = self.local if path.startswith(_WORKER) else self.tree.files
        if path not in files:
            raise FileNotFoundError(2, "No such file", path)
        return files[path]


class _LocalPath:
    """A ``pathlib.Path`` of a file on a worker, which no other process sees."""

    def __init__(self, files: RunFiles, path: str) -> None:
        self._files, self._path = files, path

    def __str__(self) -> str:
        return self._path

    def write_bytes(self, content: bytes) -> None:
        self._files.local[self._path] = content

    def stat(self) -> SimpleNamespace:
        return SimpleNamespace(st_size=len(self._files.read(self._path)))

    def unlink(self, missing_ok: bool = False) -> None:
        del missing_ok
        self._files.local.pop(self._path, None)

    @contextmanager
    def open(self, mode: str) -> Iterator[_LocalPath]:
        assert mode == "wb"
        self.write_bytes(b"")
        yield self

    def write(self, content: bytes) -> None:
        """Append to the file."""
        self._files.local[self._path] += content


class _Copies:
    """Stands for `kdsl.run.state_files.cache.RunCache`; a copy may be evicted before it is used."""

    def __init__(self, files: RunFiles) -> None:
        self._files = files
        self._copies: dict[tuple[str, str], bytes] = {}

    def new_path(self) -> _LocalPath:
        return _LocalPath(self._files, f"{_WORKER}{World.current.random.getrandbits(64):x}")

    def find(self, place: str, name: str) -> _Mapped | None:
        if World.current.decisions.choose(2):
            self._copies.pop((place, name), None)
        content = self._copies.get((place, name))
        return None if content is None else _Mapped(content)

    def add(self, new: _LocalPath, place: str, name: str) -> None:
        self._copies[place, name] = self._files.read(str(new))

    def remove(self, place: str, name: str) -> None:
        self._copies.pop((place, name), None)


class _Mapped:
    """A file that is mapped into memory."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read_buffer(self) -> pa.Buffer:
        return pa.py_buffer(self.content)

    def __enter__(self) -> _Mapped:
        return self

    def __exit__(self, *_: object) -> None:
        pass


class _Arrow:
    """The module ``pyarrow``, which maps simulated files."""

    def __getattr__(self, name: str) -> Any:
        return getattr(pa, name)

    @staticmethod
    def memory_map(path: str) -> _Mapped:
        return _Mapped(_files().read(path))


def _files() -> RunFiles:
    files: RunFiles = World.current.life.run_files  # type: ignore[attr-defined]
    return files


def _write(state: KeyedState, path: Any, batches: Iterable[Any]) -> tuple[Any, ...]:
    """Write a run, whose rows stay in memory, instead of `KeyedState._write`."""
    del state
    runs = _files().runs
    runs.append(tuple(batch for batch in batches if batch.num_rows))
    path.write_bytes(b"%0*d" % (_DIGITS, len(runs) - 1) + b"r" * sum(batch.num_rows for batch in runs[-1]))
    return runs[-1]


def _read_batches(mapped: _Mapped) -> tuple[Any, ...]:
    return _files().runs[int(mapped.content[:_DIGITS])]


@contextmanager
def _temporary_folder(prefix: str) -> Iterator[str]:
    yield f"{_WORKER}{prefix}{World.current.random.getrandbits(64):x}"


def _read_sized(system: Any, path: str, size: int) -> bytes:
    """Read the first bytes of a file, instead of `kdsl.run.state_files.remote._read_sized`."""
    with system.open_input_stream(path) as stream:
        content: bytes = stream.read()
    return content[:size]


def _walk(folder: SimulatedPath, topdown: bool) -> Iterator[tuple[str, list[str], list[str]]]:
    """``os.walk``, from the innermost folders outwards."""
    assert not topdown
    inside: dict[str, list[str]] = {}
    tree, root = _files().tree, str(folder)
    for path in tree.request("list", root, lambda: tree.list_paths(root)):
        parent, _, name = path.rpartition("/")
        inside.setdefault(parent, []).append(name)
    for parent in sorted(inside, reverse=True):
        yield parent, [], inside[parent]


class _WalkedPath(SimulatedPath):
    """A path that `kdsl.run.state_files.local` makes from what it has walked."""

    def __init__(self, *parts: str) -> None:
        super().__init__(_files().tree, "/".join(parts))

    def rmdir(self) -> None:
        """Remove the folder, which exists only as long as there are files in it."""
        raise FileNotFoundError(2, "No such folder", str(self))


def damage(files: RunFiles, root: str) -> tuple[str, bytes, bytes] | None:
    """Damage a file of a folder: cut it, or change what it says; return its path, and what it had and has.

    Args:
        files: The files.
        root: The folder.
    """
    choose, paths = World.current.decisions.choose, [path for path in files.tree.files if path.startswith(f"{root}/")]
    if not paths:
        return None
    path = paths[choose(len(paths))]
    before = files.tree.files[path]
    if choose(2) and b'{"version":2' in before:
        after = before.replace(b'{"version":2', b'{"version":1')
        if not after.startswith(b"{"):  # as another version of kdsl writes it into a store
            after = b"%b %08x%b" % (before[:8], zlib.crc32(after[18:].rstrip()), after[17:])
    else:
        after = before[: len(before) // 2]
    files.tree.put(path, after)
    return path, before, after


def file_substitutes() -> list[tuple[Any, str, Any]]:
    """What replaces the files of runs, and the requests for them."""
    fs = SimpleNamespace(
        FileSelector=lambda path, **_: SimpleNamespace(base_dir=path),
        FileType=SimpleNamespace(File="File", NotFound="NotFound"),
    )
    return [
        (KeyedState, "_write", _write),
        (keyed_state, "_read_batches", _read_batches),
        (keyed_state, "TemporaryDirectory", _temporary_folder),
        (keyed_state, "Path", lambda folder, name: _LocalPath(_files(), f"{folder}/{name}")),
        (local, "pa", _Arrow()),
        (local, "os", SimpleNamespace(scandir=lambda folder: folder.scan(), walk=_walk)),
        (local, "Path", _WalkedPath),
        (remote, "pa", _Arrow()),
        (remote, "compute_checksum", lambda path: zlib.crc32(_files().read(str(path)))),
        (remote, "_read_sized", _read_sized),
        (remote, "_CUTS", (8, 20)),
        (StoreFiles, "_fs", fs),
    ]
