"""The files of a state in a folder that all workers see: runs are mapped into memory where they are."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa

from kdsl.run.state_files.files import DamagedFileError, NewRun, RunName, name_beside


class LocalFiles:
    """The files of a state in a folder (`kdsl.run.state_files.files.StateFiles`).

    Files are written beside and renamed. The folder is created when the first file is written.

    Args:
        folder: The folder.
    """

    batches_between_removals = 1

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @property
    def place(self) -> str:
        """The folder."""
        return str(self._folder)

    def read(self, name: str) -> bytes:
        """Read a document; FileNotFoundError if it is missing."""
        return (self._folder / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        """Write a document, or replace it."""
        beside = self._new_path(name)
        try:
            beside.write_bytes(content)
            beside.replace(self._folder / name)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

    @contextmanager
    def create(self, stem: str) -> Iterator[NewRun]:
        """Write a run beside, and rename it when the block ends; on an error, remove what was written."""
        run = NewRun(self._new_path(stem))
        try:
            yield run
            name = str(RunName(stem, run.path.stat().st_size))
            run.path.replace(self._folder / name)
            run.name = name
        except BaseException:
            run.path.unlink(missing_ok=True)
            raise

    def open(self, name: str) -> pa.MemoryMappedFile:
        """Map a run into memory; FileNotFoundError if it is missing, DamagedFileError if it was cut."""
        path = self._folder / name
        size, expected = path.stat().st_size, RunName.parse(name).size
        if size != expected:
            raise DamagedFileError(f"{path} has {size} bytes, but {expected} were written; restore the file")
        return pa.memory_map(str(path))

    def list(self) -> Sequence[str]:
        """List the names of all files; none if the folder is missing."""
        try:
            with os.scandir(self._folder) as entries:
                return [entry.name for entry in entries]
        except FileNotFoundError:
            return ()

    def misses_any(self, names: Iterable[str]) -> bool:
        """Return whether one of some files is missing."""
        return not all((self._folder / name).exists() for name in names)

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; missing ones are ignored."""
        for name in names:
            with suppress(FileNotFoundError):
                (self._folder / name).unlink()

    def remove_all(self) -> None:
        """Remove the folder with all files, also those in subfolders; what others remove meanwhile is ignored."""
        for folder, _, names in os.walk(self._folder, topdown=False):
            for name in names:
                Path(folder, name).unlink(missing_ok=True)
            with suppress(FileNotFoundError):
                Path(folder).rmdir()

    def _new_path(self, name: str) -> Path:
        """Return a path beside a file, in the folder, which is created if it is missing."""
        self._folder.mkdir(parents=True, exist_ok=True)
        return self._folder / name_beside(name)
