"""A worker's copies of runs in object stores, so that each is downloaded once, and mapped into memory from then on.

All processes of a user on a machine share it. A file appears under its name when it is complete (it is renamed), and a
file that is removed stays readable for those that have mapped it.
"""

from __future__ import annotations

import os
import re
import time
import uuid
import zlib
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pyarrow as pa

from kdsl.errors import KdslError
from kdsl.folders import state_cache_dir, try_exclusive_lock
from kdsl.run.state_files.files import RunName, compute_checksum

LIMIT = "KDSL_STATE_CACHE_BYTES"
"""The environment variable with the bytes that a worker's cache may have."""
DEFAULT_LIMIT = 8 << 30

_FULL = 0.8
"""The share of the limit to which files are removed when it is exceeded."""
_ABANDONED = 86_400.0
"""After how many seconds a file that is still being written is removed; its process has ended."""
_NEW = "new"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class RunCache:
    """Copies of runs in a local folder, whose sizes and checksums are in their names.

    The time of the last change of a copy is a number computed from its name and from the start of the machine. If it
    has another one, it was changed, or it was written before the machine has stopped; then its checksum is verified.

    Args:
        folder: The folder, which only this user can read.
        limit: The bytes that the copies may have. When there are more, those that were not used for the longest time
            are removed.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self._folder, self._limit = folder, limit
        self._added = limit  # the first copy that is added looks for those of earlier processes

    def new_path(self) -> Path:
        """Return a path for a new file in the folder of the cache, which is created."""
        folder = self._folder / _NEW
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return folder / uuid.uuid4().hex

    def find(self, place: str, name: str) -> pa.MemoryMappedFile | None:
        """Map the copy of a run into memory; None if there is none. A damaged one is removed.

        Args:
            place: A hash of the run's folder.
            name: The name of the run.
        """
        path, parsed = self._folder / place / name, RunName.parse(name)
        try:
            mapped = pa.memory_map(str(path))
            status = path.stat()
            if status.st_size != parsed.size or (
                status.st_mtime_ns != _mark(name) and compute_checksum(path) != parsed.checksum
            ):
                mapped.close()
                path.unlink()
                return None
            _use(path, name)
        except FileNotFoundError:
            return None
        return mapped

    def add(self, new: Path, place: str, name: str) -> None:
        """Move a verified file of `new_path` to its place, and remove the oldest copies if there are too many bytes.

        Args:
            new: The file.
            place: A hash of the run's folder.
            name: The name of the run.
        """
        path = self._folder / place / name
        path.parent.mkdir(mode=0o700, exist_ok=True)
        _use(new, name)
        size = new.stat().st_size
        new.replace(path)
        self._added += size
        if self._added > self._limit // 20:
            self._added = 0
            self._evict()

    def remove(self, place: str, name: str) -> None:
        """Remove the copy of a run if there is one."""
        (self._folder / place / name).unlink(missing_ok=True)

    def _evict(self) -> None:
        """Remove copies until the limit is kept, and files of ended processes; nothing if another process does."""
        with try_exclusive_lock(self._folder / "lock") as locked:
            if not locked:
                return
            now, total = time.time(), 0
            copies: list[tuple[float, int, Path]] = []
            for path, status in self._list():
                if path.parent.name == _NEW:
                    # A complete file has the mark as its last change before it is renamed.
                    if max(status.st_mtime, status.st_atime) < now - _ABANDONED:
                        path.unlink(missing_ok=True)
                    continue
                total += status.st_size
                copies.append((status.st_atime, status.st_size, path))
            if total <= self._limit:
                return
            for _, size, path in sorted(copies):
                if total <= self._limit * _FULL:
                    break
                path.unlink(missing_ok=True)
                total -= size

    def _list(self) -> Iterator[tuple[Path, os.stat_result]]:
        """Yield all files with their status; those that other processes remove meanwhile are left out."""
        for folder in self._folder.iterdir():
            with suppress(NotADirectoryError):
                for path in folder.iterdir():
                    with suppress(FileNotFoundError):
                        yield path, path.stat()


@cache
def worker_cache() -> RunCache:
    """Return the cache of this machine and user, whose folder is that of `state_cache_dir`, with its errors."""
    text = os.environ.get(LIMIT, "")
    if not re.fullmatch("[0-9]*", text):
        raise KdslError(f"the environment variable {LIMIT} is {text!r}; write a number of bytes, such as 8589934592")
    return RunCache(state_cache_dir(), int(text) if text else DEFAULT_LIMIT)


@cache
def _boot() -> str:
    """Return what identifies the start of this machine; empty where the operating system does not say it."""
    try:
        return _BOOT.read_text()
    except OSError:
        return ""


def _mark(name: str) -> int:
    """Return the time of the last change of a copy that was verified, in nanoseconds."""
    return (zlib.crc32((_boot() + name).encode()) & 0x3FFFFFFF) * 1_000_000_000


def _use(path: Path, name: str) -> None:
    """Mark a verified copy as used now."""
    os.utime(path, ns=(time.time_ns(), _mark(name)))
