"""A model of file systems: local folders, HDFS, and object stores, with or without renames and exclusive writes.

The files of a file system are a `FileTree`, which all processes see. `HadoopModel` stands for the JVM around it, as
`kdsl.spark_internals.hadoop.HadoopFolder` calls it, `SimulatedPath` for ``pathlib.Path``, and `SimulatedStore` for a
file system of pyarrow.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn

import attrs

from tests.simulation.world import World


@attrs.frozen
class Kind:
    """How a file system behaves.

    Attributes:
        scheme: The scheme of its addresses.
        renames: Whether a rename is one step; otherwise it is a copy, and a delete.
        replaces: Whether ``FileContext.rename`` replaces a file in one step.
        streams: Whether a file is seen while it is written.
        exclusive: Whether a file that must not exist is created in one step.
        lists_late: Whether a listing shows files that were created or removed a moment ago as they were before.
    """

    scheme: str
    renames: bool = True
    replaces: bool = False
    streams: bool = True
    exclusive: bool = True
    lists_late: bool = False


LOCAL = Kind("file")
HDFS = Kind("hdfs", replaces=True)
AZURE = Kind("abfss")
S3 = Kind("s3a", renames=False, streams=False)
OLD_S3 = Kind("s3a", renames=False, streams=False, exclusive=False)
LATE_STORE = Kind("s3a", renames=False, streams=False, exclusive=False, lists_late=True)
CHECKPOINT_KINDS = (LOCAL, HDFS, AZURE, S3, OLD_S3)
"""The file systems on which Spark can have a checkpoint: listings show what there is."""
_LOOKS = frozenset(("exists", "read", "list", "head", "get"))
"""Requests that change nothing."""
_LATE = 5.0
"""For how many seconds a listing may be late."""


class JavaFailureError(OSError):
    """An exception of Java, as py4j raises it.

    Args:
        message: The message.
        name: The name of Java's class.
    """

    def __init__(self, message: str, name: str = "java.io.IOException") -> None:
        super().__init__(message)
        self.name = name


def list_causes(error: BaseException) -> list[str]:
    """The names of the classes of Java's exceptions behind an error, as ``java_causes`` returns them."""
    return [error.name] if isinstance(error, JavaFailureError) else []


class FileTree:
    """The files of a file system.

    Args:
        world: The world.
        kind: How the file system behaves.
        fails: Whether its requests can fail.

    Attributes:
        kind: How it behaves.
        files: The content of each file by its path. Folders exist as long as there are files in them.
    """

    def __init__(self, world: World, kind: Kind, *, fails: bool = True) -> None:
        self._world, self.kind = world, kind
        self._fail = _fail if fails else None
        self.files: dict[str, Any] = {}
        self._changed: dict[str, tuple[float, bool]] = {}

    def request(self, place: str, path: str, effect: Any) -> Any:
        """Make a request to the file system, which may fail before or after its effect.

        Args:
            place: What is asked for.
            path: The file or folder.
            effect: What happens there.
        """
        if self._world._running is None:  # what is left of a run is cleaned up
            return None
        self._world.tell("%s", path)
        if place in _LOOKS:
            return self._world.look(f"{self.kind.scheme} {place}", effect, self._fail)
        return self._world.request(f"{self.kind.scheme} {place}", effect, self._fail)

    def exists(self, path: str) -> bool:
        """Whether there is a file, or a folder with files."""
        if path in self.files:
            return True
        prefix = f"{path}/"
        return any(name.startswith(prefix) for name in self.files)

    def put(self, path: str, content: Any) -> None:
        """Create or replace a file at once."""
        if path not in self.files:
            self._changed[path] = (self._world.now, False)
        self.files[path] = content

    def delete(self, path: str) -> bool:
        """Remove a file, or a folder with everything in it; return whether there was one."""
        paths = [path] if path in self.files else [name for name in self.files if name.startswith(f"{path}/")]
        for name in paths:
            del self.files[name]
            self._changed[name] = (self._world.now, True)
        return bool(paths)

    def move(self, source: str, target: str) -> None:
        """Rename a file, also to the name of another one, which is gone then."""
        self.put(target, self.files[source])
        self.delete(source)

    def list_paths(self, folder: str) -> list[str]:
        """The paths under a folder as a listing shows them, in any order."""
        prefix = f"{folder}/"
        paths = [path for path in self.files if path.startswith(prefix)]
        if not self.kind.lists_late or self._world.calm:
            return paths
        recent = {
            path: existed
            for path, (time, existed) in self._changed.items()
            if time > self._world.now - _LATE and path.startswith(prefix) and self._world.decisions.happens(0.3)
        }
        return [path for path in paths if recent.get(path, True)] + [
            path for path, existed in recent.items() if existed and path not in self.files
        ]

    def copy_folder(self, source: str, target: str) -> None:
        """Copy a folder as somebody does while nobody writes it."""
        for path in [path for path in self.files if path.startswith(f"{source}/")]:
            self.put(target + path[len(source) :], self.files[path])

    def snapshot(self, folder: str) -> dict[str, Any]:
        """The files of a folder as they are now."""
        return {path: content for path, content in self.files.items() if path.startswith(f"{folder}/")}

    def restore(self, folder: str, snapshot: dict[str, Any]) -> None:
        """Set a folder back to what it was."""
        self.delete(folder)
        for path, content in snapshot.items():
            self.put(path, content)


def _fail(happened: str) -> NoReturn:
    """Raise the error of a request that was not answered."""
    raise JavaFailureError(f"the file system does not answer ({happened})")


# Hadoop


class HadoopPath:
    """``org.apache.hadoop.fs.Path``, and the ``java.nio`` path and the file of the same name."""

    def __init__(self, parent: HadoopPath | str, name: str = "") -> None:
        self.path: str = parent if isinstance(parent, str) else f"{parent.path}/{name}"

    def toString(self) -> str:
        return self.path

    def __str__(self) -> str:
        return self.path

    def getName(self) -> str:
        return self.path.rpartition("/")[2]

    def getParent(self) -> HadoopPath:
        return HadoopPath(self.path.rpartition("/")[0])

    def toUri(self) -> HadoopPath:
        return self

    def getScheme(self) -> str:
        return self.path.partition(":")[0]

    def getPath(self) -> HadoopPath:
        return self

    def toPath(self) -> HadoopPath:
        return self

    def getFileSystem(self, conf: _HadoopFiles) -> _HadoopFiles:
        return conf


class _Stream:
    """A stream of Java that writes a file, or reads one."""

    def __init__(self, files: _HadoopFiles, path: str, text: str | None, *, overwrite: bool = True) -> None:
        self._files, self._path, self.text, self._overwrite = files, path, text or "", overwrite
        self._writes = text is None

    def write(self, text: str) -> None:
        self.text += text

    def close(self) -> None:
        if self._writes:
            self._files.close(self._path, self.text, overwrite=self._overwrite)


class _HadoopFiles:
    """``org.apache.hadoop.fs.FileSystem``, and the ``FileContext`` of the same files."""

    def __init__(self, tree: FileTree) -> None:
        self._tree = tree

    def qualify(self, path: HadoopPath) -> HadoopPath:
        return path

    makeQualified = qualify  # Java's name

    def exists(self, path: HadoopPath) -> bool:
        exists: bool = self._tree.request("exists", path.path, lambda: self._tree.exists(path.path))
        return exists

    def open(self, path: HadoopPath) -> _Stream:
        def read() -> str:
            if path.path not in self._tree.files:
                raise JavaFailureError(f"{path} does not exist", "java.io.FileNotFoundException")
            text: str = self._tree.files[path.path]
            return text

        return _Stream(self, path.path, self._tree.request("read", path.path, read))

    def create(self, path: HadoopPath, overwrite: bool) -> _Stream:
        tree = self._tree

        def begin() -> None:
            if not overwrite and tree.exists(path.path):
                raise JavaFailureError(f"{path} exists", "org.apache.hadoop.fs.FileAlreadyExistsException")
            if tree.kind.streams:
                tree.put(path.path, "")

        tree.request("create", path.path, begin)
        return _Stream(self, path.path, None, overwrite=overwrite)

    def close(self, path: str, text: str, *, overwrite: bool) -> None:
        """Complete a file."""
        tree = self._tree

        def end() -> None:
            if not overwrite and not tree.kind.streams and tree.kind.exclusive and path in tree.files:
                raise JavaFailureError(f"{path} exists", "org.apache.hadoop.fs.FileAlreadyExistsException")
            if tree.kind.streams and path not in tree.files:
                raise JavaFailureError(f"{path} was removed while it was written")
            tree.put(path, text)

        tree.request("write", path, end)

    def mkdirs(self, path: HadoopPath) -> None:
        pass

    def delete(self, path: HadoopPath, recursive: bool) -> bool:
        del recursive
        gone: bool = self._tree.request("delete", path.path, lambda: self._tree.delete(path.path))
        return gone

    def listStatus(self, path: HadoopPath) -> list[SimpleNamespace]:
        names: list[str] = self._tree.request(
            "list",
            path.path,
            lambda: [one[len(path.path) + 1 :].partition("/")[0] for one in self._tree.list_paths(path.path)],
        )
        return [SimpleNamespace(getPath=lambda name=name: HadoopPath(path, name)) for name in dict.fromkeys(names)]

    def rename(self, source: HadoopPath, target: HadoopPath, options: Sequence[str] | None = None) -> bool:
        """``FileSystem.rename``, or with options ``FileContext.rename``."""
        tree = self._tree
        if options is not None:
            self._rename_in_context(source, target, options)
            return True

        def rename() -> bool:
            if source.path not in tree.files or tree.exists(target.path):
                return False
            tree.move(source.path, target.path)
            return True

        def copy() -> bool:
            if source.path not in tree.files or tree.exists(target.path):
                return False
            tree.put(target.path, tree.files[source.path])
            return True

        if tree.kind.renames:
            done: bool = tree.request("rename", target.path, rename)
            return done
        if not tree.request("copy", target.path, copy):
            return False
        tree.request("delete", source.path, lambda: tree.delete(source.path))
        return True

    def _rename_in_context(self, source: HadoopPath, target: HadoopPath, options: Sequence[str]) -> None:
        tree = self._tree

        def rename() -> None:
            if source.path not in tree.files:
                raise JavaFailureError(f"{source} does not exist", "java.io.FileNotFoundException")
            if tree.exists(target.path) and not ("OVERWRITE" in options and tree.kind.replaces):
                raise JavaFailureError(f"{target} exists", "org.apache.hadoop.fs.FileAlreadyExistsException")
            tree.move(source.path, target.path)

        if "OVERWRITE" in options and not tree.kind.replaces:
            tree.request("delete", target.path, lambda: tree.delete(target.path))
        tree.request("rename", target.path, rename)

    def createLink(self, link: HadoopPath, existing: HadoopPath) -> None:
        """``java.nio.file.Files.createLink``."""

        def create() -> None:
            if link.path in self._tree.files:
                raise JavaFailureError(f"{link} exists", "java.nio.file.FileAlreadyExistsException")
            self._tree.put(link.path, self._tree.files[existing.path])

        self._tree.request("link", link.path, create)

    def getFileContext(self, uri: HadoopPath, conf: _HadoopFiles) -> _HadoopFiles:
        del uri, conf
        return self


class HadoopModel:
    """A session of Spark as far as `kdsl.spark_internals.hadoop` uses it: the JVM, its gateway, and Java's session.

    Args:
        tree: The files.

    Attributes:
        jvm: Stands for the JVM.
    """

    def __init__(self, tree: FileTree) -> None:
        self._files = files = _HadoopFiles(tree)
        options = SimpleNamespace(OVERWRITE="OVERWRITE")
        hadoop = SimpleNamespace(Path=HadoopPath, FileContext=files, **{"Options$Rename": options})
        copies = SimpleNamespace(
            toString=lambda stream, _: stream.text, write=lambda text, stream, _: stream.write(text)
        )
        nio = SimpleNamespace(file=SimpleNamespace(Files=files))
        self.jvm = SimpleNamespace(
            org=SimpleNamespace(
                apache=SimpleNamespace(
                    hadoop=SimpleNamespace(fs=hadoop), commons=SimpleNamespace(io=SimpleNamespace(IOUtils=copies))
                )
            ),
            java=SimpleNamespace(io=SimpleNamespace(File=lambda path: path), nio=nio),
        )

    def sessionState(self) -> HadoopModel:
        return self

    def newHadoopConf(self) -> _HadoopFiles:
        return self._files

    def new_array(self, kind: object, length: int) -> list[Any]:
        del kind
        return [None] * length


def hadoop_substitutes() -> list[tuple[Any, str, Any]]:
    """What lets `kdsl.spark_internals.hadoop.HadoopFolder` use a `HadoopModel` as its session."""
    from kdsl.spark_internals import hadoop

    return [
        (hadoop, "jvm_of", lambda spark: spark.jvm),
        (hadoop, "gateway_of", lambda spark: spark),
        (hadoop, "java_session", lambda spark: spark),
        (hadoop, "JavaError", JavaFailureError),
        (hadoop, "java_causes", list_causes),
    ]


# Local folders


class SimulatedPath:
    """A ``pathlib.Path`` of a file system that is local to machines that see it.

    Args:
        tree: The files.
        path: The path.
    """

    def __init__(self, tree: FileTree, path: str) -> None:
        self._tree, self._path = tree, path

    def __str__(self) -> str:
        return self._path

    def __fspath__(self) -> str:
        return self._path

    def __truediv__(self, name: str) -> SimulatedPath:
        return SimulatedPath(self._tree, f"{self._path}/{name}")

    @property
    def name(self) -> str:
        return self._path.rpartition("/")[2]

    @property
    def parent(self) -> SimulatedPath:
        return SimulatedPath(self._tree, self._path.rpartition("/")[0])

    def with_name(self, name: str) -> SimulatedPath:
        return self.parent / name

    def with_suffix(self, suffix: str) -> SimulatedPath:
        return SimulatedPath(self._tree, f"{self._path}{suffix}")

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        pass

    def exists(self) -> bool:
        exists: bool = self._tree.request("exists", self._path, lambda: self._tree.exists(self._path))
        return exists

    def is_file(self) -> bool:
        exists: bool = self._tree.request("exists", self._path, lambda: self._path in self._tree.files)
        return exists

    def is_dir(self) -> bool:
        exists: bool = self._tree.request(
            "exists", self._path, lambda: self._path not in self._tree.files and self.exists()
        )
        return exists

    def _content(self) -> Any:
        if self._path not in self._tree.files:
            raise FileNotFoundError(2, "No such file", self._path)
        return self._tree.files[self._path]

    def read_bytes(self) -> Any:
        return self._tree.request("read", self._path, self._content)

    def read_text(self, encoding: str = "utf-8") -> Any:
        del encoding
        return self._tree.request("read", self._path, self._content)

    def write_bytes(self, content: Any) -> None:
        self._tree.request("create", self._path, lambda: self._tree.put(self._path, content[:0]))
        self._tree.request("write", self._path, lambda: self._tree.put(self._path, content))

    def write_text(self, content: str, encoding: str = "utf-8") -> None:
        del encoding
        self.write_bytes(content)

    def stat(self) -> SimpleNamespace:
        content = self._tree.request("exists", self._path, self._content)
        return SimpleNamespace(st_size=len(content))

    def replace(self, target: SimulatedPath) -> None:
        def replace() -> None:
            self._content()
            self._tree.move(self._path, str(target))

        self._tree.request("rename", self._path, replace)

    def hardlink_to(self, existing: SimulatedPath) -> None:
        def link() -> None:
            if self._path in self._tree.files:
                raise FileExistsError(17, "File exists", self._path)
            self._tree.put(self._path, self._tree.files[str(existing)])

        self._tree.request("link", self._path, link)

    def unlink(self, missing_ok: bool = False) -> None:
        def unlink() -> None:
            if not self._tree.delete(self._path) and not missing_ok:
                raise FileNotFoundError(2, "No such file", self._path)

        self._tree.request("delete", self._path, unlink)

    def iterdir(self) -> Iterator[SimulatedPath]:
        for name in self._names():
            yield self / name

    def glob(self, pattern: str) -> Iterator[SimulatedPath]:
        for name in self._names():
            if fnmatch.fnmatchcase(name, pattern):
                yield self / name

    def _names(self) -> list[str]:
        paths: list[str] = self._tree.request("list", self._path, lambda: self._tree.list_paths(self._path))
        return list(dict.fromkeys(path[len(self._path) + 1 :].partition("/")[0] for path in paths))

    @contextmanager
    def scan(self) -> Iterator[Iterator[SimulatedPath]]:
        """List the folder as ``os.scandir`` does."""
        yield self.iterdir()


# Object stores through pyarrow


class SimulatedStore:
    """A file system of pyarrow.

    Args:
        tree: The files.
    """

    def __init__(self, tree: FileTree) -> None:
        self._tree = tree

    @contextmanager
    def open_input_stream(self, path: str, compression: str | None = None) -> Iterator[_Bytes]:
        del compression

        def read() -> Any:
            if path not in self._tree.files:
                raise FileNotFoundError(2, "Path does not exist", path)
            return self._tree.files[path]

        yield _Bytes(self._tree.request("get", path, read))

    @contextmanager
    def open_output_stream(self, path: str, compression: str | None = None) -> Iterator[_Bytes]:
        del compression
        out = _Bytes()
        if self._tree.kind.streams:
            self._tree.request("create", path, lambda: self._tree.put(path, b""))
        yield out
        self._tree.request("put", path, lambda: self._tree.put(path, out.content))

    def create_dir(self, path: str, recursive: bool = True) -> None:
        pass

    def move(self, source: str, target: str) -> None:
        def move() -> None:
            if source not in self._tree.files:
                raise FileNotFoundError(2, "Path does not exist", source)
            if target in self._tree.files:
                raise OSError(f"{target} exists")
            self._tree.move(source, target)

        self._tree.request("rename", target, move)

    def delete_file(self, path: str) -> None:
        def delete() -> None:
            if not self._tree.delete(path):
                raise FileNotFoundError(2, "Path does not exist", path)

        self._tree.request("delete", path, delete)

    def delete_dir(self, path: str) -> None:
        """Delete what a listing shows: the files of a folder in an object store, one after the other."""
        for one in self._tree.request("list", path, lambda: self._tree.list_paths(path)):
            self._tree.request("delete", one, lambda one=one: self._tree.delete(one))

    def get_file_info(self, wanted: Any) -> Any:
        """What is known of a path, or of all files under the folder of a selector."""
        if isinstance(wanted, str):
            is_file = self._tree.request("head", wanted, lambda: wanted in self._tree.files)
            return _info(wanted, 0, "File" if is_file else "NotFound")
        paths = self._tree.request("list", wanted.base_dir, lambda: self._tree.list_paths(wanted.base_dir))
        return [_info(path, len(self._tree.files.get(path, b"")), "File") for path in paths]


class _Bytes:
    """A stream of pyarrow."""

    def __init__(self, content: Any = b"") -> None:
        self.content = content

    def read(self, size: int | None = None) -> Any:
        del size
        content, self.content = self.content, self.content[:0]
        return content

    def write(self, content: Any) -> None:
        self.content = self.content + bytes(content) if self.content else bytes(content)


def _info(path: str, size: int, kind: str) -> SimpleNamespace:
    return SimpleNamespace(path=path, base_name=path.rpartition("/")[2], size=size, type=kind)
