"""The folder of a checkpoint, on any file system."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import unquote, urlsplit

from kdsl.errors import CheckpointError, KdslError
from kdsl.spark_internals.errors import java_exception
from kdsl.spark_internals.hadoop import HadoopFolder, list_documents, spare_name
from kdsl.spark_internals.session import is_connect
from kdsl.spark_internals.storage import READ_OPTIONS, TEXT_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_folder(spark: SparkSession, location: str) -> Folder:
    """Open a folder through Hadoop, or, for Spark Connect, through Spark's own reads and writes."""
    if is_connect(spark):
        return Folder(ConnectFolder(spark, location))
    with _explain_failure(location, "reached"):
        return Folder(HadoopFolder(spark, location))


def open_local_folder(location: str | PathLike[str]) -> Folder:
    """Open a folder of this machine, or its ``file:`` address, without Spark."""
    return Folder(LocalFolder(location))


class FolderFiles(Protocol):
    """A folder on some file system, as `Folder` uses it. Errors of its methods are those of the file system."""

    @property
    def location(self) -> str:
        """Where it is."""
        ...

    def path(self, name: str) -> str:
        """The location of a file or folder inside."""
        ...

    def read(self, name: str) -> str | None:
        """Read the text of a file; None if it does not exist."""
        ...

    def write(self, name: str, text: str) -> None:
        """Replace the text of a file; create the file, and its folder, if it is missing."""
        ...

    def create(self, name: str, text: str) -> bool:
        """Create a file with a content, and return whether it did not exist before."""
        ...

    def names(self, name: str) -> list[str]:
        """List the names in a folder; empty if the folder does not exist."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with everything in it; do nothing if it does not exist."""
        ...


class Folder:
    """A folder with text files. Its methods raise a `CheckpointError` if the file system fails.

    Attributes:
        location: Where it is.
    """

    def __init__(self, files: FolderFiles) -> None:
        self._files, self.location = files, files.location

    def path(self, name: str) -> str:
        """The location of a file or folder inside."""
        return self._files.path(name)

    def read(self, name: str) -> str | None:
        """Read the text of a file; None if it does not exist."""
        with _explain_failure(self.path(name), "read"):
            return self._files.read(name)

    def write(self, name: str, text: str) -> None:
        """Replace the text of a file, completely or not at all; create the file, and its folder, if it is missing."""
        with _explain_failure(self.path(name), "written"):
            self._files.write(name, text)

    def create(self, name: str, text: str) -> bool:
        """Create a file with a content, completely or not at all, and its folder; change nothing if the file exists.

        Returns:
            Whether the file was created here.
        """
        with _explain_failure(self.path(name), "written"):
            return self._files.create(name, text)

    def names(self, name: str) -> list[str]:
        """List the names in a folder; empty if the folder does not exist."""
        with _explain_failure(self.path(name), "read"):
            return self._files.names(name)

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with everything in it; do nothing if it does not exist."""
        with _explain_failure(self.path(name), "removed"):
            self._files.remove(name)


@contextmanager
def _explain_failure(location: str, action: str) -> Iterator[None]:
    """Convert every exception of the body, which uses a file system, to a `CheckpointError`, except kdsl's own."""
    try:
        yield
    except KdslError:
        raise
    except Exception as e:
        java = java_exception(e)
        reason = (str(e) or repr(e) if java is None else str(java.toString())).splitlines()[0]
        raise CheckpointError(
            f"{location} cannot be {action}: {reason}; kdsl stores data for restarts there, so the folder of the "
            "checkpoint must be readable and writable"
        ) from e


class LocalFolder:
    """A folder of this machine, without Spark. Its methods raise an OSError if the file system fails.

    A `HadoopFolder` may have written it, whose files have a spare name while they are replaced.

    Args:
        location: The folder, or its ``file:`` address.

    Attributes:
        location: The folder.
    """

    def __init__(self, location: str | PathLike[str]) -> None:
        path = fspath(location)
        parts = urlsplit(path)
        self._root = Path(unquote(parts.path)) if parts.scheme == "file" else Path(path)
        self.location = str(self._root)

    def path(self, name: str) -> str:
        """The location of a file or folder inside."""
        return str(self._root / name)

    def read(self, name: str) -> str | None:
        """Read the text of a UTF-8 file; None if it does not exist."""
        file, spare = self._root / name, self._root / spare_name(name)
        path = next((path for path in (file, spare, file) if path.is_file()), None)
        return None if path is None else path.read_text(encoding="utf-8")

    def write(self, name: str, text: str) -> None:
        """Replace the text of a file, completely or not at all; create the file, and its folder, if it is missing."""
        file = self._root / name
        self._write_beside(file, text).replace(file)

    def create(self, name: str, text: str) -> bool:
        """Create a file with a content, completely or not at all, and return whether it did not exist before."""
        file = self._root / name
        beside = self._write_beside(file, text)
        try:
            file.hardlink_to(beside)
        except FileExistsError:
            return False
        finally:
            beside.unlink()
        return True

    @staticmethod
    def _write_beside(file: Path, text: str) -> Path:
        """Write a string to a hidden file beside a file, whose folder is created if it is missing, and return it."""
        file.parent.mkdir(parents=True, exist_ok=True)
        beside = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        beside.write_text(text, encoding="utf-8")
        return beside

    def names(self, name: str) -> list[str]:
        """List the names in a folder, sorted, except hidden ones; empty if the folder does not exist."""
        folder = self._root / name
        return list_documents(path.name for path in folder.iterdir()) if folder.is_dir() else []

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with everything in it, if there is one."""
        path = self._root / name
        (self._root / spare_name(name)).unlink(missing_ok=True)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


class ConnectFolder:
    """A folder that only the server of a Spark Connect session can reach: small jobs read and write it.

    Attributes:
        location: The folder.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        self._spark, self.location = spark, location.rstrip("/")

    def path(self, name: str) -> str:
        """The location of a file or folder inside."""
        return f"{self.location}/{name}"

    def read(self, name: str) -> str | None:
        """Read the text of a document; None if it does not exist. Errors are Spark's, as in all methods."""
        versions = self._read_versions(name)
        return versions[max(versions)] if versions else None

    def write(self, name: str, text: str) -> None:
        """Replace the text of a document, which is a folder with a folder for each version; the last version counts.

        Therefore a complete version exists at any time; earlier ones are emptied afterwards. An equal text is not
        written. Errors are Spark's.
        """
        versions = self._read_versions(name)
        last = max(versions, default=-1)
        if versions and versions[last] == text:
            return
        row = self._spark.createDataFrame([(text.rstrip("\n"),)], "text string")
        writer = row.coalesce(1).write.mode("overwrite").options(**TEXT_OPTIONS)
        writer.text(self.path(f"{name}/{last + 1}"))
        for version in versions:
            if version >= 0:
                self.remove(f"{name}/{version}")

    def create(self, name: str, text: str) -> bool:
        """Create a document if it does not exist, and return whether it did not; errors are Spark's.

        Two programs that do this at the same time may both create it: Spark has no write for that.
        """
        if self._read_versions(name):
            return False
        self.write(name, text)
        return True

    def _read_versions(self, name: str) -> dict[int, str]:
        """Read the content of a document by version, -1 for a file of Spark's own; errors are Spark's."""
        texts: dict[int, str] = {}
        for path, content in sorted(self._files(name, "content")):
            version, _, file = path.rpartition(f"/{name}/")[2].rpartition("/")
            number = int(version) if file and version.isdigit() else -1
            texts[number] = texts.get(number, "") + bytes(content).decode()
        return texts

    def names(self, name: str) -> list[str]:
        """List the names in a folder, without empty files and folders, sorted; empty if the folder does not exist.

        Errors are Spark's.
        """
        inside = [path.rpartition(f"/{name}/")[2] for path, _ in self._files(name, None)]
        return sorted({path.partition("/")[0] for path in inside})

    def remove(self, name: str) -> None:
        """Replace a folder by one without text; the folder itself stays, and reads as missing.

        It is created if it does not exist. Errors are Spark's.
        """
        self._spark.createDataFrame([], "text string").write.mode("overwrite").text(self.path(name))

    def _files(self, name: str, content: str | None) -> list[tuple[str, Any]]:
        """List the files under a name that are not empty, each with the value of a column of Spark's ``binaryFile``.

        Files in folders inside are listed, too. The value is None if ``content`` is; the list is empty if the folder
        does not exist.
        """
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        value = F.col(content) if content else F.lit(None)
        try:
            reader = self._spark.read.format("binaryFile").options(**READ_OPTIONS, recursiveFileLookup="true")
            files = reader.load(self.path(name)).where("length > 0").select("path", value)
            return [(str(path), value) for path, value in files.collect()]
        except AnalysisException as e:
            if "PATH_NOT_FOUND" in str(e):
                return []
            raise
