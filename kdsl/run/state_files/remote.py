"""The files of a state in an object store, with few requests.

A document has a first line with its size and checksum, and is padded to `_BLOCK` bytes, so that it can be read with one
request without asking for its size. Files are in folders by the first digits of their names, which are versions, and
runs by their size, too: what is old and of one size is obsolete at the same time, and is removed with its folder.
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import attrs
import pyarrow as pa

from kdsl.run.state_files.cache import RunCache
from kdsl.run.state_files.files import DamagedFileError, NewRun, RunName, compute_checksum, name_beside
from kdsl.run.state_files.stores import Store

T = TypeVar("T")

BATCHES = 32
"""After how many batches it is worth to list the files and to remove obsolete ones."""

_BLOCK = 4_096
_HEADER = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{8})\n")
_HEADER_SIZE = 18
_PIECE = 16 << 20
"""How many bytes of a run are read or written at once."""
_LARGE = 16 << 20
"""Obsolete files of this size together are removed even if they are few."""
_PAUSES = (0.2, 1.0, 3.0)
"""How many seconds to wait before a request that has failed, with pyarrow's own attempts, is repeated."""
_DIGITS = 20
_CUTS = (8, 12, 14, 16, 18)
"""After how many digits of a version a folder ends."""


@attrs.frozen
class _Stored:
    """A file in the store.

    Attributes:
        path: Its path in the folder of the state.
        size: Its size in bytes.
    """

    path: str
    size: int


class StoreFiles:
    """The files of a state in an object store (`kdsl.run.state_files.files.StateFiles`).

    A name begins with a version as 20 digits. Documents are text in one line.

    Args:
        store: The store, with the folder of the state.
        cache: The worker's copies of runs.
    """

    batches_between_removals = BATCHES

    def __init__(self, store: Store, cache: RunCache) -> None:
        self._store, self._cache, self._digest = store, cache, store.location.digest()
        self._root = store.root

    @property
    def place(self) -> str:
        """The folder."""
        return str(self._store.location)

    def read(self, name: str) -> bytes:
        """Read a document with one request; FileNotFoundError if it is missing, DamagedFileError if it is damaged.

        Where files are renamed, one whose replacement was interrupted is read under the name that it had before.
        """
        path = self._path(name)
        try:
            return _try_again(lambda: self._read_once(path), _PAUSES, FileNotFoundError)
        except FileNotFoundError:
            if not self._store.renames:
                raise
        for other, file in self._list().items():  # it is being replaced, or that was interrupted (`_rename`)
            if other.startswith(f"{name}."):
                with suppress(FileNotFoundError, DamagedFileError):
                    return self._read_once(f"{self._root}/{file.path}")
        return self._read_once(path)  # or it was renamed meanwhile

    def _read_once(self, path: str) -> bytes:
        """Read a document; errors are those of `read`."""
        with self._hide_secrets(path):
            content = _unpack(self._read_block(path))
        if content is None:
            raise DamagedFileError(f"{self._show(path)} is damaged; restore the file")
        return content

    def write(self, name: str, content: bytes) -> None:
        """Write a document, or replace it; ValueError if it is not one line."""
        if b"\n" in content or b"\r" in content or not content:
            raise ValueError("a document is text in one line")
        path = self._path(name)
        data = b"%08x %08x\n%b" % (len(content), zlib.crc32(content), content)
        self._upload(path, pa.py_buffer(data.ljust(_BLOCK)))

    @contextmanager
    def create(self, stem: str) -> Iterator[NewRun]:
        """Write a run to the cache, and upload it when the block ends."""
        run = NewRun(self._cache.new_path())
        try:
            yield run
            size = run.path.stat().st_size
            name = str(RunName(stem, size, compute_checksum(run.path)))
            with pa.memory_map(str(run.path)) as file:
                self._upload(self._path(name), file.read_buffer())
            self._cache.add(run.path, self._digest, name)
            run.name = name
        finally:
            run.path.unlink(missing_ok=True)

    def open(self, name: str) -> pa.MemoryMappedFile:
        """Map the copy of a run into memory; it is downloaded if there is none.

        FileNotFoundError if it is missing, DamagedFileError if it is damaged, also when it is downloaded once more.
        """
        copy = self._cache.find(self._digest, name)
        if copy is not None:
            return copy
        path, expected = self._path(name), RunName.parse(name)
        new = self._cache.new_path()

        def download_once() -> pa.MemoryMappedFile:
            with self._hide_secrets(path):
                size, checksum = self._download(path, new)
            if size != expected.size or expected.checksum not in (None, checksum):
                raise DamagedFileError(
                    f"{self._show(path)} is not as it was written: it has {size} bytes with the CRC-32 "
                    f"{checksum:08x}; restore the file"
                )
            mapped = pa.memory_map(str(new))  # before other processes can remove it
            self._cache.add(new, self._digest, name)
            return mapped

        try:
            return _try_again(download_once, _PAUSES[:1], FileNotFoundError)
        finally:
            new.unlink(missing_ok=True)

    def list(self) -> Sequence[str]:
        """List the names of all files; none if nothing exists."""
        return list(self._list())

    def misses_any(self, names: Iterable[str]) -> bool:
        """Return False: each question would be a request."""
        del names
        return False

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; small ones may stay until there are more that can be removed at once.

        A later call that names them again removes them. Versions of files that are still written must be later than
        those of the names.
        """
        gone = set(names)
        if not gone:
            return
        last = max((name[:_DIGITS] for name in gone if _is_version(name)), default="")
        files = self._list()
        dead = {files[name].path: files[name] for name in gone if name in files}
        for name in gone:
            if name.endswith(".run"):
                self._cache.remove(self._digest, name)
        live = [file.path for name, file in files.items() if name not in gone]
        for folder in [] if self._store.has_folders else _find_folders(dead, live, last):
            inside = [path for path in dead if path.startswith(f"{folder}/")]
            if len(inside) >= self._store.fewest or sum(dead[path].size for path in inside) >= _LARGE:
                self._remove_folder(f"{self._root}/{folder}")
                for path in inside:
                    del dead[path]
        for path, file in dead.items():
            if self._store.has_folders or file.size >= _LARGE:
                with suppress(FileNotFoundError), self._hide_secrets(f"{self._root}/{path}"):
                    self._store.system.delete_file(f"{self._root}/{path}")

    def remove_all(self) -> None:
        """Remove the folder with all files; copies of runs on workers stay until their space is needed."""
        selector = self._fs.FileSelector(self._root, allow_not_found=True, recursive=True)
        with self._hide_secrets(self._root, check=False):
            exists = bool(self._store.system.get_file_info(selector))
        if exists:
            self._remove_folder(self._root)

    def _remove_folder(self, path: str) -> None:
        """Remove a folder with its files; a missing one is ignored."""
        with suppress(FileNotFoundError), self._hide_secrets(path, check=False):
            self._store.system.delete_dir(path)

    def _list(self) -> dict[str, _Stored]:
        """Return all files by name."""
        selector = self._fs.FileSelector(self._root, allow_not_found=True, recursive=not self._store.has_folders)
        with self._hide_secrets(self._root, check=False):
            infos = self._store.system.get_file_info(selector)
        return {
            info.base_name: _Stored(info.path[len(self._root) + 1 :], info.size)
            for info in infos
            if info.type == self._fs.FileType.File and info.base_name
        }

    @cached_property
    def _fs(self) -> Any:
        """The module of pyarrow's file systems, whose import takes some time."""
        import pyarrow.fs

        return pyarrow.fs

    def _path(self, name: str) -> str:
        """Return the path of a file by its name."""
        if self._store.has_folders or not _is_version(name):
            return f"{self._root}/{name}"
        kind = "documents"
        with suppress(ValueError):
            kind = f"runs-{RunName.parse(name).size.bit_length() // 2:02d}"
        parts = [name[start:end] for start, end in zip((0, *_CUTS), _CUTS, strict=False)]
        return "/".join([self._root, kind, *parts, name])

    def _show(self, path: str) -> str:
        """Return the path of a file for messages."""
        return f"{self.place}{path[len(self._root) :]}"

    def _read_block(self, path: str) -> bytes:
        """Read a document with what surrounds it."""
        if not self._store.reads_by_size:
            with self._store.system.open_input_stream(path, compression=None) as stream:
                return bytes(stream.read())
        block = _read_sized(self._store.system, path, _BLOCK)
        header = _HEADER.match(block)
        size = 0 if header is None else int(header[1], 16) + _HEADER_SIZE
        return block if size <= _BLOCK else _read_sized(self._store.system, path, size)

    def _download(self, path: str, new: Path) -> tuple[int, int]:
        """Download a run to a new local file, and return its size and checksum."""
        size = checksum = 0
        with self._store.system.open_input_stream(path, compression=None) as stream, new.open("wb") as out:
            while piece := stream.read(_PIECE):
                out.write(piece)
                size, checksum = size + len(piece), zlib.crc32(piece, checksum)
        return size, checksum

    def _upload(self, path: str, content: pa.Buffer) -> None:
        """Write a file, again if that fails."""
        target = f"{path[: path.rindex('/')]}/{name_beside(path.rpartition('/')[2])}" if self._store.renames else path

        def upload() -> None:
            with self._hide_secrets(path, check=False):
                self._upload_once(target, content)
                if target != path:
                    self._rename(target, path)

        _try_again(upload, _PAUSES)

    def _upload_once(self, path: str, content: pa.Buffer) -> None:
        """Write a file."""
        if self._store.has_folders:
            self._store.system.create_dir(self._root, recursive=True)
        with self._store.system.open_output_stream(path, compression=None) as out:
            for start in range(0, content.size, _PIECE):
                out.write(content.slice(start, min(_PIECE, content.size - start)))

    def _rename(self, source: str, path: str) -> None:
        """Rename a file, and replace another one, which does not exist for a moment then; `read` finds the new one."""
        try:
            self._store.system.move(source, path)
        except OSError:  # HDFS does not replace files
            with suppress(FileNotFoundError):
                self._store.system.delete_file(path)
            self._store.system.move(source, path)

    @contextmanager
    def _hide_secrets(self, path: str, *, check: bool = True) -> Iterator[None]:
        """Remove secrets from errors of the file system, and tell those of missing files from others.

        Args:
            path: The path of the file.
            check: Whether an error may mean that it is missing.
        """
        try:
            yield
        except FileNotFoundError:
            raise FileNotFoundError(2, "the file does not exist", self._show(path)) from None
        except (OSError, pa.ArrowException) as e:
            if check and self._is_missing(path):
                raise FileNotFoundError(2, "the file does not exist", self._show(path)) from None
            raise OSError(f"{self._show(path)}: {self._store.hide(str(e))}") from None

    def _is_missing(self, path: str) -> bool:
        """Whether it is certain that a file does not exist."""
        try:
            return bool(self._store.system.get_file_info(path).type == self._fs.FileType.NotFound)
        except (OSError, pa.ArrowException):
            return False


def _try_again(attempt: Callable[[], T], pauses: Sequence[float], *final: type[Exception]) -> T:
    """Return what a function returns; if a file system fails, or a file is damaged, call it again after each pause.

    Args:
        attempt: The function; its last error is raised.
        pauses: The pauses, in seconds.
        final: The errors after which it is not called again.
    """
    for pause in pauses:
        try:
            return attempt()
        except final:
            raise
        except (OSError, DamagedFileError):
            time.sleep(pause)
    return attempt()


def _is_version(name: str) -> bool:
    """Whether a name begins with a version."""
    return name[:_DIGITS].isdigit() and len(name) > _DIGITS


def _unpack(block: bytes) -> bytes | None:
    """Return the content of a document; None if it is damaged."""
    header = _HEADER.match(block)
    if header is None:
        return None
    content = block[_HEADER_SIZE : _HEADER_SIZE + int(header[1], 16)]
    return content if len(content) == int(header[1], 16) and zlib.crc32(content) == int(header[2], 16) else None


def _find_folders(dead: Iterable[str], live: Iterable[str], last: str) -> list[str]:
    """Return the largest folders that contain only obsolete files, and can get no others.

    Args:
        dead: The paths of obsolete files.
        live: Those of others.
        last: The last version of an obsolete file; later ones may still be written.
    """
    used = {folder for path in live for folder in _list_parents(path)}
    folders: dict[str, None] = {}
    for path in dead:
        for folder in _list_parents(path):
            digits = "".join(folder.split("/")[1:])
            if folder not in used and digits.ljust(_DIGITS, "9") <= last:
                folders[folder] = None
                break
    return list(folders)


def _list_parents(path: str) -> list[str]:
    """Return the folders of versions that contain a file, from the outermost to the innermost."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:end]) for end in range(2, len(parts) + 1)]


def _read_sized(system: Any, path: str, size: int) -> bytes:
    """Read the first bytes of a file that has at least as many.

    pyarrow opens files without asking for their sizes only in datasets. The lines of one are read as they are.
    """
    import pyarrow.csv as csv
    import pyarrow.dataset as ds

    lines = ds.CsvFileFormat(
        parse_options=csv.ParseOptions(
            delimiter="\x01", quote_char=False, escape_char=False, newlines_in_values=False, ignore_empty_lines=False
        ),
        read_options=csv.ReadOptions(column_names=["line"], use_threads=False, block_size=max(size, 1 << 16)),
        convert_options=csv.ConvertOptions(column_types={"line": pa.binary()}, strings_can_be_null=False),
    )
    fragment = lines.make_fragment(path, filesystem=system, file_size=size)
    table = fragment.to_table(schema=pa.schema([pa.field("line", pa.binary())]), use_threads=False)
    return b"\n".join(table.column(0).to_pylist())
