"""The folder of a checkpoint without Spark: on this machine, or on another file system through pyarrow."""

from __future__ import annotations

import os
import uuid
from typing import Any

from kdsl.errors import CheckpointError
from kdsl.run.checkpoint.folder import Folder, LocalFolder
from kdsl.run.state_files.location import Location
from kdsl.run.state_files.stores import Settings, Store, open_store
from kdsl.spark_internals.hadoop import list_documents, spare_name


def open_folder_without_spark(location: str, settings: Settings) -> Folder:
    """Open a folder on this machine, or on a file system of `kdsl.run.state_files.stores`.

    Args:
        location: The folder, or its address as Spark writes it.
        settings: Returns settings of Hadoop.
    """
    place = Location.parse(location)
    if place.folder is not None:
        return Folder(LocalFolder(os.path.abspath(place.folder)))  # noqa: PTH100  # Spark keeps links, too
    return Folder(StoreFolder(open_store("the checkpoint", place, settings)))


class StoreFolder:
    """A folder on a file system of pyarrow. Its methods raise an OSError if the file system fails.

    Args:
        store: The file system, and the folder.

    Attributes:
        location: The folder with its scheme.
    """

    def __init__(self, store: Store) -> None:
        self._store, self.location = store, str(store.location)

    def path(self, name: str) -> str:
        """The location of a file or folder inside."""
        return f"{self.location}/{name}"

    def read(self, name: str) -> str | None:
        """Read the text of a UTF-8 file, also of one that is being replaced (`spare_name`); None if it does not exist.

        Only a file that is not there costs further requests.
        """
        # It may be renamed from the spare name between the first two.
        for candidate in (name, spare_name(name), name):
            text = self._read_file(candidate)
            if text is not None:
                return text
        return None

    def _read_file(self, name: str) -> str | None:
        """Read the text of the file of this very name; None if it does not exist."""
        try:
            with self._store.system.open_input_stream(self._path(name), compression=None) as stream:
                return bytes(stream.read()).decode()
        except FileNotFoundError:
            return None
        except OSError as e:
            if self._find(name) is None:
                return None
            raise OSError(self._store.hide(str(e))) from None

    def write(self, name: str, text: str) -> None:
        """Replace the text of a file, so that `read` always finds a complete one.

        Where a file is seen while it is written, and no rename replaces one (HDFS), the new text gets a spare name
        first, under which it is read while the file itself is missing.
        """
        folder, slash, last = name.rpartition("/")
        spare, hidden = spare_name(name), f"{folder}{slash}.{last}.{uuid.uuid4().hex}"
        try:
            if not self._store.renames:
                self._write_file(name, text)
                return
            if self._find(name) is None and self._find(spare) is not None:  # an earlier write was interrupted
                self._store.system.move(self._path(spare), self._path(name))
            self._write_file(hidden, text)
            for source, target in ((hidden, spare), (spare, name)):
                self._delete(target)
                self._store.system.move(self._path(source), self._path(target))
        except OSError as e:
            raise OSError(self._store.hide(str(e))) from None

    def _write_file(self, name: str, text: str) -> None:
        with self._store.system.open_output_stream(self._path(name), compression=None) as out:
            out.write(text.encode())

    def create(self, name: str, text: str) -> bool:
        """Refuse to create a file: of two programs that do this, both could succeed."""
        del text
        raise CheckpointError(f"{self.path(name)} cannot be created without Spark")

    def names(self, name: str) -> list[str]:
        """List the names in a folder, sorted, except hidden ones; empty if the folder does not exist."""
        import pyarrow.fs

        selector = pyarrow.fs.FileSelector(self._path(name), allow_not_found=True)
        try:
            return list_documents(info.base_name for info in self._store.system.get_file_info(selector))
        except OSError as e:
            raise OSError(self._store.hide(str(e))) from None

    def remove(self, name: str) -> None:
        """Remove a file if it exists, and before it what an interrupted replacement has left."""
        self._delete(spare_name(name))
        self._delete(name)

    def _delete(self, name: str) -> None:
        if self._find(name) is not None:
            self._store.system.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        """Return a path of the file system."""
        return f"{self._store.root}/{name}"

    def _find(self, name: str) -> Any:
        """Return what the file system says of a file; None if it does not exist."""
        import pyarrow.fs

        try:
            info = self._store.system.get_file_info(self._path(name))
        except OSError as e:
            raise OSError(self._store.hide(str(e))) from None
        return None if info.type == pyarrow.fs.FileType.NotFound else info
