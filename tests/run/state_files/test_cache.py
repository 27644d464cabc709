from __future__ import annotations

import multiprocessing
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

import pytest

from kdsl.errors import KdslError
from kdsl.folders import FolderError, state_cache_dir
from kdsl.run.state_files import cache as module
from kdsl.run.state_files.cache import LIMIT, RunCache, worker_cache
from kdsl.run.state_files.files import RunName, compute_checksum
from kdsl.run.state_files.location import Location
from kdsl.run.state_files.remote import StoreFiles
from kdsl.run.state_files.stores import open_store
from tests.run.state_files.conftest import Server, s3_settings
from tests.run.state_files.servers import BUCKET
from tests.run.state_files.test_files import read_mapped, write_run

MIB = 1 << 20


def add(cache: RunCache, content: bytes, place: str = "place", *, age: float = 0) -> Path:
    """Add a run that was used some seconds ago."""
    new = cache.new_path()
    new.write_bytes(content)
    stem = f"{1:020d}-{new.name}"
    name = str(RunName(stem, len(content), compute_checksum(new)))
    cache.add(new, place, name)
    path = new.parents[1] / place / name
    with suppress(FileNotFoundError):
        status = path.stat()
        os.utime(path, ns=(status.st_atime_ns - int(age * 1e9), status.st_mtime_ns))
    return path


def read(cache: RunCache, path: Path) -> bytes | None:
    """Return the bytes of a copy; None if there is none."""
    mapped = cache.find(path.parent.name, path.name)
    return None if mapped is None else read_mapped(mapped)


def test_the_copies_that_were_used_last_stay(tmp_path: Path) -> None:
    cache = RunCache(tmp_path, 10 * MIB)
    old = [add(cache, b"x" * MIB, age=1_000 - i) for i in range(9)]
    assert read(cache, old[0]) == b"x" * MIB  # it is used now
    add(cache, b"x" * MIB, "other", age=500)
    assert all(path.exists() for path in old)
    add(cache, b"x" * MIB)
    left = [path for path in old if path.exists()]
    assert old[0] in left
    assert old[1] not in left
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*")) <= 8 * MIB
    assert left[1:] == old[-len(left) + 1 :]


def test_a_mapped_copy_that_is_removed_stays_readable(tmp_path: Path) -> None:
    cache = RunCache(tmp_path, 2 * MIB)
    path = add(cache, b"a" * MIB, age=100)
    mapped = cache.find("place", path.name)
    assert mapped is not None
    add(cache, b"x" * MIB)
    add(cache, b"x" * MIB)
    assert not path.exists()
    assert read_mapped(mapped) == b"a" * MIB


def test_a_copy_that_is_larger_than_the_cache_is_read_and_removed(s3: Server, tmp_path: Path) -> None:
    place = tmp_path / "small"
    files = StoreFiles(s3.open(f"small/{tmp_path.name}"), RunCache(place, MIB))
    name = write_run(files, 1, b"x" * 2 * MIB)
    assert read_mapped(files.open(name)) == b"x" * 2 * MIB
    assert not list(place.glob("*/*.run"))


def test_files_of_processes_that_have_ended_are_removed(tmp_path: Path) -> None:
    cache = RunCache(tmp_path, MIB)
    abandoned, being_written = cache.new_path(), cache.new_path()
    for path in (abandoned, being_written):
        path.write_bytes(b"x")
    os.utime(abandoned, (0, time.time() - 90_000))
    add(cache, b"x" * MIB)
    assert not abandoned.exists()
    assert being_written.exists()


@pytest.mark.parametrize("damage", ["cut", "empty", "changed", "zeros"])
def test_a_damaged_copy_is_removed(tmp_path: Path, damage: str) -> None:
    cache = RunCache(tmp_path, MIB)
    path = add(cache, b"abc")
    path.write_bytes({"cut": b"ab", "empty": b"", "changed": b"abd", "zeros": b"\0\0\0"}[damage])
    assert cache.find("place", path.name) is None
    assert not path.exists()


def test_a_copy_is_verified_after_the_machine_has_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = RunCache(tmp_path, MIB)
    path = add(cache, b"abc")
    status = path.stat()
    path.write_bytes(b"\0\0\0")  # as a disk may have it whose file was renamed, but not written
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    monkeypatch.setattr(module, "_boot", lambda: "another start")
    assert read(cache, path) is None
    other = add(cache, b"abc")
    monkeypatch.setattr(module, "_boot", lambda: "a third start")
    before = other.stat().st_mtime_ns
    assert read(cache, other) == b"abc"
    assert other.stat().st_mtime_ns != before


def test_a_damaged_copy_is_downloaded_again(s3: Server, tmp_path: Path, cache: RunCache) -> None:
    files = StoreFiles(s3.open(f"cache/{tmp_path.name}"), cache)
    name = write_run(files, 1, b"abc")
    (copy,) = cache._folder.glob(f"*/{name}")
    copy.write_bytes(b"abd")
    s3.proxy.clear()
    assert read_mapped(files.open(name)) == b"abc"
    assert s3.proxy.methods() == ["HEAD", "GET"]


def test_equal_names_in_two_places_are_two_runs(s3: Server, tmp_path: Path, cache: RunCache) -> None:
    files = [StoreFiles(s3.open(f"two/{tmp_path.name}/{i}"), cache) for i in range(2)]
    names = []
    for one, content in zip(files, (b"abc", b"abd"), strict=True):
        with one.create(f"{1:020d}-same") as run:
            run.path.write_bytes(content)
        names.append(run.name)
    assert [read_mapped(one.open(name)) for one, name in zip(files, names, strict=True)] == [b"abc", b"abd"]
    with pytest.raises(FileNotFoundError):
        files[0].open(names[1])


def read_in_process(settings: dict[str, str], folder: str, place: Path, names: list[str], rounds: int) -> None:
    """Open runs again and again, with a cache that is too small for them; the exit code is 1 if one is wrong."""
    store = open_store("t", Location.parse(f"s3a://{BUCKET}/{folder}"), settings.get)
    files = StoreFiles(store, RunCache(place, 3 * MIB))
    for i in range(rounds):
        for name in names[i % 2 :: 2] if i % 3 else names:
            assert read_mapped(files.open(name)) == bytes([65 + int(name[:20])]) * MIB


def test_processes_that_download_and_evict_at_once(s3: Server, tmp_path: Path, cache: RunCache) -> None:
    folder, place = f"processes/{tmp_path.name}", tmp_path / "shared"
    place.mkdir(mode=0o700)
    writer = StoreFiles(s3.open(folder), cache)
    names = [write_run(writer, i, bytes([65 + i]) * MIB) for i in range(8)]
    s3.proxy.clear()
    spawn = multiprocessing.get_context("spawn")
    settings = s3_settings(s3.proxy)
    processes = [spawn.Process(target=read_in_process, args=(settings, folder, place, names, 12)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * 4
    assert s3.proxy.methods().count("GET") >= len(names)
    assert not list((place / "new").iterdir())


def test_the_folder_is_only_for_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDSL_STATE_CACHE", str(tmp_path / "a" / "b"))
    assert stat.S_IMODE(state_cache_dir().stat().st_mode) == 0o700
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv("KDSL_STATE_CACHE", str(tmp_path / "open"))
    with pytest.raises(FolderError, match=r"other users can write to it .* KDSL_STATE_CACHE"):
        state_cache_dir()
    monkeypatch.delenv("KDSL_STATE_CACHE")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert state_cache_dir() == tmp_path / f"kdsl-{os.getuid()}" / "state"
    assert stat.S_IMODE(state_cache_dir().stat().st_mode) == 0o700


def test_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KDSL_STATE_CACHE", str(tmp_path))
    tmp_path.chmod(0o700)
    worker_cache.cache_clear()
    for wrong in ("8 GiB", "-1", "x"):
        monkeypatch.setenv(LIMIT, wrong)
        with pytest.raises(KdslError, match=r"KDSL_STATE_CACHE_BYTES is .*write a number of bytes"):
            worker_cache()
    monkeypatch.setenv(LIMIT, "1000")
    assert worker_cache()._limit == 1_000
    worker_cache.cache_clear()
