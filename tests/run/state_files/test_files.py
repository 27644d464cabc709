"""What every file system must do for states."""

from __future__ import annotations

import uuid
from pathlib import Path

import attrs
import pyarrow as pa
import pytest
from pyarrow.fs import LocalFileSystem

from kdsl.run.state_files.cache import RunCache
from kdsl.run.state_files.files import DamagedFileError, RunName, StateFiles
from kdsl.run.state_files.local import LocalFiles
from kdsl.run.state_files.location import Location
from kdsl.run.state_files.remote import StoreFiles
from kdsl.run.state_files.stores import Store


def version_name(version: int) -> str:
    return f"{version:020d}.json"


def stem(version: int) -> str:
    return f"{version:020d}-{uuid.uuid4().hex}"


def write_run(files: StateFiles, version: int, content: bytes) -> str:
    with files.create(stem(version)) as run:
        run.path.write_bytes(content)
    return run.name


def read_mapped(mapped: pa.MemoryMappedFile) -> bytes:
    with mapped:
        return bytes(mapped.read())


def forget(files: StateFiles, cache: RunCache, name: str) -> None:
    """Remove the copy of a run from the cache, as on another worker."""
    if isinstance(files, StoreFiles):
        cache.remove(files._digest, name)


def test_documents_are_read_as_they_were_written_last(files: StateFiles) -> None:
    name = version_name(5)
    with pytest.raises(FileNotFoundError):
        files.read(name)
    for content in (b"{}", b'{"a":"\xc3\xa4 # , \\" \'"}', b"x" * 4_078, b"y" * 4_079, b"z" * 100_000, b"{} "):
        files.write(name, content)
        assert files.read(name) == content
    assert list(files.list()) == [name]


@pytest.mark.parametrize("size", [0, 1, 100_000, 40 << 20], ids=["empty", "byte", "small", "large"])
def test_runs_are_mapped_as_they_were_written(files: StateFiles, cache: RunCache, size: int) -> None:
    content = bytes(range(256)) * (size // 256) + b"\n" * (size % 256)
    name = write_run(files, 7, content)
    assert RunName.parse(name).size == size
    for _ in range(2):
        assert read_mapped(files.open(name)) == content
        forget(files, cache, name)
    assert list(files.list()) == [name]


def test_a_run_that_fails_leaves_nothing(files: StateFiles, tmp_path: Path) -> None:
    runs = []

    def fail() -> None:
        with files.create(stem(3)) as run:
            runs.append(run)
            run.path.write_bytes(b"half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert runs[0].name == ""
    assert list(files.list()) == []
    assert not runs[0].path.exists()


def test_missing_runs(files: StateFiles, cache: RunCache) -> None:
    assert list(files.list()) == []
    name = write_run(files, 3, b"abc")
    other = name.replace(name[:20], f"{4:020d}")
    with pytest.raises(FileNotFoundError) as error:
        files.open(other)
    assert error.value.filename.endswith(other)
    files.remove([other])


def test_obsolete_files_are_removed_and_needed_ones_stay(files: StateFiles, cache: RunCache) -> None:
    needed: list[str] = []
    obsolete: list[str] = []
    for version in range(1_000, 1_330, 3):
        files.write(version_name(version), b"{}")
        name = write_run(files, version, b"x" * 100)
        (needed if version >= 1_300 else obsolete).extend([version_name(version), name])
    older = write_run(files, 1_120, b"x" * 100)  # a run that later versions still name
    files.remove(obsolete)
    left = set(files.list())
    assert left >= {*needed, older}
    # A folder of a store has the files of a hundred versions, and the last obsolete one is 1298.
    assert len(left) - len(needed) == (1 if isinstance(files, LocalFiles) else 1 + 33 + 66)
    for name in (*needed, older):
        if name.endswith(".run"):
            forget(files, cache, name)
            assert read_mapped(files.open(name)) == b"x" * 100
        else:
            assert files.read(name) == b"{}"
    files.remove(obsolete)


def test_a_folder_is_removed_with_all_its_states_and_nothing_else(files: StateFiles, cache: RunCache) -> None:
    def inside(folder: str) -> StateFiles:
        if isinstance(files, StoreFiles):
            store = files._store
            return StoreFiles(attrs.evolve(store, location=store.location / folder), cache)
        return LocalFiles(Path(files.place, folder))

    former = inside("former")
    former.remove_all()
    states = {folder: inside(folder) for folder in ("former/partition-0", "former/partition-1", "former-2", "own")}
    names_by_folder = {}
    for folder, state in states.items():
        names_by_folder[folder] = [write_run(state, version, b"rows") for version in (1, 2 << 32)]
        for version in (1, 2 << 32):
            state.write(version_name(version), b"{}")

    for _ in range(2):
        former.remove_all()

        assert not states["former/partition-0"].list()
        assert not states["former/partition-1"].list()
        for folder in ("former-2", "own"):
            names = [*names_by_folder[folder], *map(version_name, (1, 2 << 32))]
            assert sorted(states[folder].list()) == sorted(names)
            assert states[folder].read(version_name(1)) == b"{}"
    states["former/partition-0"].write(version_name(3), b"{}")  # by a task that Spark has abandoned
    assert list(states["former/partition-0"].list()) == [version_name(3)]


def test_a_run_that_is_mapped_stays_readable_when_it_is_removed(files: StateFiles) -> None:
    name = write_run(files, 3, b"x" * (17 << 20))
    with files.open(name) as mapped:
        content = mapped.read_buffer()
    files.write(version_name(5), b"{}")
    files.remove([name])
    assert list(files.list()) == [version_name(5)]
    assert content.to_pybytes() == b"x" * (17 << 20)
    with pytest.raises(FileNotFoundError):
        files.open(name)


def test_names_of_runs() -> None:
    for name in (RunName("0-a", 268_435_456), RunName("0-a", 5, 0xABC), RunName(f"{1:020d}-{uuid.uuid4().hex}", 0, 0)):
        assert RunName.parse(str(name)) == name
    with pytest.raises(ValueError, match=r"'1\.json' is not the name of a run"):
        RunName.parse("1.json")


def test_a_cut_run_in_a_folder(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    name = write_run(files, 3, b"abc")
    (tmp_path / name).write_bytes(b"ab")
    with pytest.raises(DamagedFileError, match="has 2 bytes, but 3 were written"):
        files.open(name)


def test_a_document_whose_replacement_was_interrupted_is_read(tmp_path: Path, cache: RunCache) -> None:
    """As on HDFS, which does not replace files: a writer has died between the removal and the renaming."""
    store = Store(Location("hdfs", "", str(tmp_path)), LocalFileSystem(), (), False, True, 1, True)
    files, name = StoreFiles(store, cache), version_name(5)
    files.write(name, b"first")
    files.write(name, b"second")
    assert files.read(name) == b"second"

    (tmp_path / name).rename(tmp_path / f"{name}.b")
    for beside in (f"{name}.a", f"{name}.c"):  # those that are being written
        (tmp_path / beside).write_bytes(b"")

    assert files.read(name) == b"second"
    with pytest.raises(FileNotFoundError):
        files.read(version_name(6))
