"""The folder of a checkpoint without Spark: on this machine, or on another file system through pyarrow."""

from __future__ import annotations

import os
import uuid
from typing import Any

from kdsl.errors import CheckpointError
from kdsl.run.checkpoint.folder import Folder, LocalFolder
from kdsl.run.state_files.location import Location
from kdsl.run.state_files.stores import Settings, Store, open_store
from kdsl.spark_internals.hadoop import list_documents


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
        """Read the text of a UTF-8 file; None if it does not exist."""
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
        """Replace the text of a file; where a file is seen while it is written, it is renamed when it is complete."""
        path = self._path(name)
        folder, _, last = path.rpartition("/")
        target = f"{folder}/.{last}.{uuid.uuid4().hex}" if self._store.renames else path
        try:
            with self._store.system.open_output_stream(target, compression=None) as out:
                out.write(text.encode())
            if target != path:
                self.remove(name)  # HDFS does not replace files
                self._store.system.move(target, path)
        except OSError as e:
            raise OSError(self._store.hide(str(e))) from None

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
        """Remove a file if it exists."""
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
