"""What kdsl keeps beside a query's checkpoint: what is written, and how, so that a restart can be judged.

Spark's own checkpoint knows offsets and state, and nothing of the sink. The folder ``kdsl`` in it holds one document,
`Kept`, which is made at the first start and read at each later one.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import ndiff
from typing import TYPE_CHECKING, Any, Literal, Protocol

import attrs
from cattrs import structure, unstructure

from kdsl.errors import KdslError, listing, nearest
from kdsl.plan.model import Part, WritePlan
from kdsl.plan.show import show
from kdsl.plan.text import plan_text, read_plan_text
from kdsl.run.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

VERSION = 1
FOLDER = "kdsl"
NAME = "write.json"
Change = Literal["topic", "key", "format", "prefix"]
CHANGES: Mapping[Change, str] = {
    "topic": "the records go to other topics",
    "key": "the message key is another, so that records of one key may go to another partition than before",
    "format": "records are written in another format than before",
    "prefix": "the transactions have another prefix",
}
Allowed = bool | Iterable[Change]


class CheckpointError(KdslError):
    """What is kept beside a checkpoint cannot be read or written, or does not go with the table any more."""


@attrs.frozen
class Distribution:
    """How the rows of an exactly-once query go to its writers, which is the same when a batch is written again.

    Attributes:
        prefix: The prefix of the transactional ids.
        writers: How many writers there are.
        by: What decides: ``tasks`` of the source, ``columns``, ``staged`` files, or ``one`` writer.
        of: The tasks that the source makes at most, or the columns.
    """

    prefix: str
    writers: int
    by: Literal["tasks", "columns", "staged", "one"]
    of: tuple[str, ...] = ()


@attrs.frozen
class Kept:
    """What is kept of a query.

    Attributes:
        id: The id of the query's checkpoint; tokens carry it.
        plan: What is written, as `kdsl.plan.text.plan_text` gives it.
        distribution: How an exactly-once query distributes its rows; None for other queries.
    """

    id: str = attrs.field(factory=lambda: uuid.uuid4().hex)
    plan: str = ""
    distribution: Distribution | None = None

    def text(self) -> str:
        """It as JSON, for people too."""
        document = {"version": VERSION, **unstructure(self), "plan": json.loads(self.plan)}
        return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def read_kept(text: str, place: str) -> Kept:
    """It from its JSON.

    Args:
        text: What `Kept.text` gave.
        place: Where it stood, for messages.

    Raises:
        CheckpointError: The document is broken, or of a newer kdsl.
    """
    try:
        document = json.loads(text)
        version = document.pop("version")
    except (ValueError, KeyError, AttributeError, TypeError):
        raise _broken(place, "it is no document of kdsl") from None
    if version != VERSION:
        raise CheckpointError(
            f"{place} has version {version}, and this kdsl reads version {VERSION}; use the kdsl that wrote it, or a "
            "newer one"
        )
    try:
        plan = json.dumps(document["plan"], ensure_ascii=False, separators=(",", ":"))
        return structure({**document, "plan": plan}, Kept)
    except Exception as e:
        raise _broken(place, f"{type(e).__name__} at its contents") from e


def _broken(place: str, reason: str) -> CheckpointError:
    return CheckpointError(
        f"{place} cannot be read: {reason}; restore it from a copy, or remove it: an at-least-once query then goes on "
        "from its checkpoint, an exactly-once one asks for adopt=True"
    )


def check_change(kept: Kept, plan: WritePlan, place: str, allow: Allowed) -> list[str]:
    """See that a table may go on from a checkpoint that it, or an earlier form of it, has written.

    Args:
        kept: What is kept.
        plan: What is written from now on.
        place: The checkpoint, for messages.
        allow: The changes that are meant, or True for all.

    Returns:
        The difference between both plans, line by line; empty where there is none.

    Raises:
        CheckpointError: A change is not safe and not allowed; all of them are told, with the difference of the plans.
        ValueError: ``allow`` names no change.
    """
    allowed = _allowed(allow)
    if _same_text(kept.plan, plan_text(plan)):
        return []
    try:
        before = read_plan_text(kept.plan, WritePlan)
    except Exception as e:
        raise _broken(place, f"its plan does not read ({e})") from e
    lines = [line for line in ndiff(_shown(before), _shown(plan)) if line[0] in "+-"]
    found: list[Change] = [change for change in _changes(before, plan) if change not in allowed]
    if found:
        told = "".join(f"\n  {change}: {CHANGES[change]}" for change in found)
        names = "{" + ", ".join(f'"{change}"' for change in found) + "}"
        raise CheckpointError(
            f"{plan.table}: the checkpoint {place} was written by another plan, and not every change is safe:{told}\n"
            + "\n".join(f"    {line}" for line in lines)
            + f"\nstart with a new checkpoint, undo the change, or pass allow={names} where it is meant"
        )
    return lines


def _allowed(allow: Allowed) -> frozenset[str]:
    if isinstance(allow, bool):
        return frozenset(CHANGES) if allow else frozenset()
    given = [allow] if isinstance(allow, str) else list(allow)
    for name in given:
        if name not in CHANGES:
            raise ValueError(f"allow has {name!r}{nearest(name, CHANGES)}; the changes are {listing(CHANGES)}")
    return frozenset(given)


def _same_text(one: str, other: str) -> bool:
    return bool(json.loads(one) == json.loads(other))


def _shown(plan: WritePlan) -> list[str]:
    return show(plan).splitlines()


def _changes(before: WritePlan, after: WritePlan) -> Iterator[Change]:
    if before.topics != after.topics:
        yield "topic"
    if _members(before.key) != _members(after.key) or before.key_columns != after.key_columns:
        yield "key"
    if any(_format(one) != _format(other) for one, other in ((before.key, after.key), (before.value, after.value))):
        yield "format"
    if before.transactions and after.transactions and before.transactions.prefix != after.transactions.prefix:
        yield "prefix"


def _members(part: Part | None) -> object:
    return None if part is None else (part.row, part.columns)


def _format(part: Part | None) -> object:
    if part is None:
        return None
    options = part.format.to_strings()
    reaching = part.format.connection  # how a registry is reached changes no message
    return part.format.identifier, {key: text for key, text in options.items() if not key.startswith(reaching)}


class Folder(Protocol):
    """A checkpoint's folder, wherever it is."""

    place: str

    def read(self, name: str) -> str | None:
        """The text of a file; None where there is none."""
        ...

    def write(self, name: str, text: str) -> None:
        """Replace the text of a file, wholly or not at all."""
        ...

    def names(self, name: str) -> list[str]:
        """The names in a folder; none where there is no such folder."""
        ...

    def remove(self, name: str) -> None:
        """Remove a file or a folder."""
        ...

    def path(self, name: str) -> str:
        """The place of a file or folder inside."""
        ...


def load(folder: Folder) -> Kept | None:
    """What is kept in a checkpoint; None where there is nothing yet.

    Raises:
        CheckpointError: It cannot be read.
    """
    place = folder.path(f"{FOLDER}/{NAME}")
    with _told(place, "read"):
        text = folder.read(f"{FOLDER}/{NAME}")
    return None if text is None else read_kept(text, place)


def store(folder: Folder, kept: Kept) -> None:
    """Keep it in a checkpoint.

    Raises:
        CheckpointError: It cannot be written.
    """
    with _told(folder.path(f"{FOLDER}/{NAME}"), "written"):
        folder.write(f"{FOLDER}/{NAME}", kept.text())


def last_batches(folder: Folder) -> tuple[int, int]:
    """The last batch in Spark's offset log, and the last in its commit log; -1 where there is none.

    Raises:
        CheckpointError: The checkpoint cannot be read.
    """
    with _told(folder.place, "read"):
        planned, done = (_last(folder.names(name)) for name in ("offsets", "commits"))
    return planned, done


def _last(names: Iterable[str]) -> int:
    return max((int(name) for name in names if name.isdigit()), default=-1)


@contextmanager
def _told(place: str, verb: str) -> Iterator[None]:
    try:
        yield
    except KdslError:
        raise
    except Exception as e:
        java = getattr(e, "java_exception", None)
        reason = (str(e) if java is None else str(java.toString())).splitlines()[0]
        raise CheckpointError(
            f"{place} cannot be {verb}: {reason}; kdsl keeps there what a restart needs, so the folder of the "
            "checkpoint must be readable and writable"
        ) from e


def folder_of(spark: SparkSession, checkpoint: str) -> Folder:
    """A checkpoint's folder as a session reaches it: through Hadoop, or, over Spark Connect, through Spark itself."""
    if is_connect(spark):
        return ConnectFolder(spark, checkpoint)
    return HadoopFolder(spark, checkpoint)


class HadoopFolder:
    """A folder on a file system of Hadoop: local, hdfs, s3a, abfss and so on."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        session: Any = spark
        self._jvm: Any = session._jvm  # noqa: SLF001
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        self._conf = session._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001
        with _told(place, "reached"):
            self._root = self._jvm.org.apache.hadoop.fs.Path(place)
            self._fs = self._root.getFileSystem(self._conf)
            self._root = self._fs.makeQualified(self._root)
        self.place = self._root.toString()

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self._root, name)

    def path(self, name: str) -> str:
        """The place of a file or folder inside."""
        return f"{self.place}/{name}"

    def read(self, name: str) -> str | None:
        """The text of a file; None where there is none."""
        if not self._fs.exists(self._path(name)):
            return None
        stream = self._fs.open(self._path(name))
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Replace the text of a file: write another one, and rename it."""
        path, hidden = self._path(name), self._path(f"{name.rpartition('/')[0]}/.{uuid.uuid4().hex}.tmp")
        self._fs.mkdirs(path.getParent())
        stream = self._fs.create(hidden, True)
        try:
            self._jvm.org.apache.commons.io.IOUtils.write(text, stream, "UTF-8")
        finally:
            stream.close()
        if self._fs.exists(path):  # a rename does not replace on every file system
            self._fs.delete(path, False)
        if not self._fs.rename(hidden, path):
            raise OSError(f"{hidden} cannot be renamed to {name}")

    def names(self, name: str) -> list[str]:
        """The names in a folder; none where there is no such folder."""
        if not self._fs.exists(self._path(name)):
            return []
        return [status.getPath().getName() for status in self._fs.listStatus(self._path(name))]

    def remove(self, name: str) -> None:
        """Remove a file or a folder."""
        self._fs.delete(self._path(name), True)


class ConnectFolder:
    """A folder that only the server of a Spark Connect session reaches: it is read and written by small jobs."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        self._spark, self.place = spark, place.rstrip("/")

    def path(self, name: str) -> str:
        """The place of a file or folder inside."""
        return f"{self.place}/{name}"

    def read(self, name: str) -> str | None:
        """The text of a document; None where there is none."""
        found = self._found(name, "content")
        return None if not found else "".join(bytes(content).decode() for _, content in sorted(found))

    def write(self, name: str, text: str) -> None:
        """Replace a document; it is a folder with one file of text."""
        row = self._spark.createDataFrame([(text.rstrip("\n"),)], "text string")
        row.coalesce(1).write.mode("overwrite").option("lineSep", "\n").text(self.path(name))

    def names(self, name: str) -> list[str]:
        """The names in a folder; none where there is no such folder."""
        inside = [path.rpartition(f"/{name}/")[2] for path, _ in self._found(name, None)]
        return sorted({path.partition("/")[0] for path in inside})

    def remove(self, name: str) -> None:
        """Leave nothing in a folder."""
        self._spark.createDataFrame([], "text string").write.mode("overwrite").text(self.path(name))

    def _found(self, name: str, content: str | None) -> list[tuple[str, Any]]:
        from pyspark.errors import AnalysisException
        from pyspark.sql import functions as F

        value = F.col(content) if content else F.lit(None)
        try:
            reader = self._spark.read.format("binaryFile").option("recursiveFileLookup", "true")
            files = reader.load(self.path(name)).where("length > 0").select("path", value)
            return [(str(path), value) for path, value in files.collect()]
        except AnalysisException as e:
            if "PATH_NOT_FOUND" in str(e):
                return []
            raise
