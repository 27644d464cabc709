"""A folder on a file system of Hadoop, through the JVM of a classic session."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kdsl.spark_internals.errors import JavaError, java_causes
from kdsl.spark_internals.session import gateway_of, java_session, jvm_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_NEW = ".new"
_EXCLUSIVE_RENAMES = ("hdfs", "viewfs", "abfs", "abfss")
"""The file systems on which a rename that must not replace a file is one step."""


class HadoopFolder:
    """A folder on a file system of Hadoop: local, hdfs, s3a, abfss and so on.

    Args:
        spark: A classic session.
        location: The folder; the scheme may be left out.

    Attributes:
        location: The folder with its scheme.
    """

    def __init__(self, spark: SparkSession, location: str) -> None:
        """Open the file system of the folder, which need not exist; an error of Java is raised if that fails."""
        self._jvm = jvm_of(spark)
        self._gateway = gateway_of(spark)
        self._conf = java_session(spark).sessionState().newHadoopConf()
        root = self._jvm.org.apache.hadoop.fs.Path(location)
        self._fs = root.getFileSystem(self._conf)
        self._root = self._fs.makeQualified(root)
        self.location: str = self._root.toString()

    def _create_path(self, name: str) -> Any:
        """Create Java's path of a file or folder inside."""
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def path(self, name: str) -> str:
        """The location of a file or folder inside."""
        return f"{self.location}/{name}"

    def read(self, name: str) -> str | None:
        """The text of a file, also of one whose replacement was interrupted (`write`); None if it does not exist."""
        document = self._create_path(name)
        # It may be renamed from the spare name between the first two checks.
        candidates = (document, self._create_path(spare_name(name)), document)
        path = next((path for path in candidates if self._fs.exists(path)), None)
        if path is None:
            return None
        stream = self._fs.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replace the text of a file, so that `read` always finds a complete one. An equal text is not written.

        Missing folders are created.

        Only HDFS replaces a file by a rename in one step: on other file systems `FileContext.rename` with ``OVERWRITE``
        is a delete and a rename (`AbstractFileSystem.renameInternal`). There the new text gets a spare name first,
        under which it is read while the file itself is missing.
        """
        path, spare = self._create_path(name), self._create_path(spare_name(name))
        if not self._fs.exists(path) and self._fs.exists(spare):  # a driver died between the last two steps
            self._rename(spare, path)
        if self.read(name) == text:
            return
        folder, slash, _ = name.rpartition("/")
        hidden = self._create_path(f"{folder}{slash}.{uuid.uuid4().hex}.tmp")
        self._fs.mkdirs(path.getParent())
        stream = self._fs.create(hidden, True)
        try:
            self._jvm.org.apache.commons.io.IOUtils.write(text, stream, "UTF-8")
        finally:
            stream.close()
        if self._renames_atomically():
            rename = getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename")
            overwrite = self._gateway.new_array(rename, 1)
            overwrite[0] = rename.OVERWRITE
            context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._root.toUri(), self._conf)
            context.rename(hidden, path, overwrite)
            return
        for source, target in ((hidden, spare), (spare, path)):  # `names` and `remove` know the spare name, too
            self._fs.delete(target, False)
            self._rename(source, target)

    def create(self, name: str, text: str) -> bool:
        """Create a file with a content, and return whether it did not exist before; missing folders are created.

        Of two programs that do this at the same time one succeeds: on this machine by a hard link, on HDFS and Azure by
        a rename that does not replace; elsewhere as far as the file system creates files exclusively when they are
        closed (S3A of Hadoop 3.4.2, Google's connector).
        """
        path, scheme = self._create_path(name), str(self._root.toUri().getScheme())
        if self._fs.exists(path) or self._fs.exists(self._create_path(spare_name(name))):
            return False
        self._fs.mkdirs(path.getParent())
        by_step = scheme == "file" or scheme in _EXCLUSIVE_RENAMES
        folder, slash, _ = name.rpartition("/")
        written = self._create_path(f"{folder}{slash}.{uuid.uuid4().hex}.tmp") if by_step else path
        try:
            stream = self._fs.create(written, False)
            try:
                self._jvm.org.apache.commons.io.IOUtils.write(text, stream, "UTF-8")
            finally:
                stream.close()
            if scheme == "file":
                files = [self._jvm.java.io.File(one.toUri().getPath()).toPath() for one in (path, written)]
                self._jvm.java.nio.file.Files.createLink(*files)
            elif by_step:
                none = self._gateway.new_array(getattr(self._jvm.org.apache.hadoop.fs, "Options$Rename"), 0)
                context = self._jvm.org.apache.hadoop.fs.FileContext.getFileContext(self._root.toUri(), self._conf)
                context.rename(written, path, none)
        except JavaError as e:
            if not any(cause.endswith("FileAlreadyExistsException") for cause in java_causes(e)):
                raise
            return False
        finally:
            if by_step:
                self._fs.delete(written, False)
        return True

    def _renames_atomically(self) -> bool:
        """Whether a rename replaces a file in one step here."""
        return str(self._root.toUri().getScheme()) == "hdfs"

    def _rename(self, source: Any, target: Any) -> None:
        """Rename a file with ``FileSystem.rename``; the target must not exist."""
        if not self._fs.rename(source, target):
            raise OSError(f"{source} cannot be renamed to {target}")

    def names(self, name: str) -> list[str]:
        """The names in a folder, sorted, except hidden ones; empty if the folder does not exist.

        A file whose replacement was interrupted (`write`) is among them, because `read` finds it.
        """
        if not self._fs.exists(self._create_path(name)):
            return []
        return list_documents(
            str(status.getPath().getName()) for status in self._fs.listStatus(self._create_path(name))
        )

    def remove(self, name: str) -> None:
        """Remove a file, or a folder with its content; nothing happens if it does not exist.

        What an interrupted replacement has left under the spare name is removed before, so that it does not come back.
        """
        self._fs.delete(self._create_path(spare_name(name)), False)
        self._fs.delete(self._create_path(name), True)


def spare_name(name: str) -> str:
    """Return the name under which a file is written before it replaces the old one: ``folder/.file.new``."""
    folder, slash, file = name.rpartition("/")
    return f"{folder}{slash}.{file}{_NEW}"


def list_documents(names: Iterable[str]) -> list[str]:
    """Return the names in a folder, sorted, with spare names (`spare_name`) as those of their files.

    Other hidden names are left out.
    """
    documents = set()
    for name in names:
        if not name.startswith("."):
            documents.add(name)
        elif name.endswith(_NEW):
            documents.add(name[1:].removesuffix(_NEW))
    return sorted(documents)
