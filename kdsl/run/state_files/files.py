"""What the states of upserts need of a file system, which are small documents and large files that never change.

A *document* is small, and may be replaced by an equivalent one. A *run* is written once, under a name that is never
used again, and is mapped into memory. Nothing relies on renaming or on listing being atomic.
"""

from __future__ import annotations

import re
import uuid
import zlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

import attrs
import pyarrow as pa

from kdsl.errors import KdslError

_BLOCK = 4 << 20
_RUN = re.compile(r"(?P<stem>.+)-(?P<size>[0-9a-f]+)(?:\.(?P<checksum>[0-9a-f]{8}))?\.run")


class DamagedFileError(KdslError):
    """A run does not have the size or the checksum in its name."""


@attrs.define(eq=False)
class NewRun:
    """A run that is being written.

    Attributes:
        path: Where to write it; the file does not exist yet.
        name: The name under which it was published; before that, it is empty.
    """

    path: Path
    name: str = ""


class StateFiles(Protocol):
    """The files of one state, which are in one folder without subfolders.

    Errors of the file system are OSErrors, and FileNotFoundError is for a file or folder that is missing. A document or
    a run that is not as it was written is a DamagedFileError.
    """

    @property
    def place(self) -> str:
        """The folder, as messages name it; it contains no secrets."""
        ...

    @property
    def batches_between_removals(self) -> int:
        """After how many batches it is worth to list the files and to remove obsolete ones."""
        ...

    def read(self, name: str) -> bytes:
        """Read a document; FileNotFoundError if it does not exist, DamagedFileError if it is not as it was written."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Write a document, or replace it; readers get the former or the new content as a whole.

        Args:
            name: Its name, which begins with the version that it belongs to, as 20 digits.
            content: What it contains: text in one line, which is not empty.
        """
        ...

    def create(self, stem: str) -> AbstractContextManager[NewRun]:
        """Write a run to a local path; when the block ends, it is published, and `NewRun.name` is set.

        If the block raises an error, nothing is published.

        Args:
            stem: What its name begins with: the version that it belongs to as 20 digits, and what makes it unique among
                all runs of all time, such as a UUID.
        """
        ...

    def open(self, name: str) -> pa.MemoryMappedFile:
        """Map a run into memory; errors are those of `read`. It stays readable when the file is removed.

        Args:
            name: The published name of the run.
        """
        ...

    def list(self) -> Sequence[str]:
        """List the names of all files, also of those that are being written, in no order; none if nothing exists."""
        ...

    def misses_any(self, names: Iterable[str]) -> bool:
        """Return whether one of some files is known to be missing; where that is dear to ask, it is not known."""
        ...

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; missing ones are ignored, and some may stay until more can be removed at once.

        Args:
            names: All obsolete files. Their versions are earlier than those of all files that may still be written and
                needed; what stays is named again by the next call.
        """
        ...

    def remove_all(self) -> None:
        """Remove the folder with all files, also those in subfolders; nothing happens if it does not exist."""
        ...


@attrs.frozen
class RunName:
    """What the name of a run says.

    Attributes:
        stem: The beginning, which its writer chose.
        size: The size of the file in bytes.
        checksum: The CRC-32 of its bytes; None if it was not computed, as in local folders.
    """

    stem: str
    size: int
    checksum: int | None = None

    def __str__(self) -> str:
        checksum = "" if self.checksum is None else f".{self.checksum:08x}"
        return f"{self.stem}-{self.size:x}{checksum}.run"

    @classmethod
    def parse(cls, name: str) -> RunName:
        """Return what a name says; ValueError if it is not that of a run."""
        parts = _RUN.fullmatch(name)
        if parts is None:
            raise ValueError(f"{name!r} is not the name of a run")
        checksum = parts["checksum"]
        return cls(parts["stem"], int(parts["size"], 16), None if checksum is None else int(checksum, 16))


def compute_checksum(path: Path) -> int:
    """Return the CRC-32 of the bytes of a file."""
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            checksum = zlib.crc32(block, checksum)
    return checksum


def name_beside(name: str) -> str:
    """Return a new name for the content of a file that is being written; it begins with the name of the file."""
    return f"{name}.{uuid.uuid4().hex}"
