"""What happens to the documents of a checkpoint: files are damaged, other programs read where its query has stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import attrs

from kdsl.cluster import Cluster
from kdsl.errors import CheckpointError, KdslError
from kdsl.ingest.state import SCHEMAS, STARTED
from kdsl.plan.model import ReadPlan
from kdsl.run.checkpoint import start, stored_columns, stored_routing, task_entries
from kdsl.run.checkpoint.checkpoint import MANIFEST, Checkpoint
from kdsl.run.checkpoint.driver import FILE, CurrentDriver
from kdsl.run.checkpoint.folder import Folder
from kdsl.run.checkpoint.start import read_stopped, resolve_start
from kdsl.run.checkpoint.stored_routing import describe_stored_routing
from kdsl.run.dead_letter_counts import COUNTS
from kdsl.run.listeners.events import ReadProgress
from kdsl.run.listeners.reads import Read
from kdsl.run.offsets.stored import Offsets, StateFolder
from tests.simulation.folder import FileTree
from tests.simulation.world import ViolationError, World

_SPARK, _TWICE, _STATE, _WATERMARK = 1, 2, 3, 4
_CLUSTER = Cluster("kafka:9092")
_KINDS = ("", "another source", "read twice", "state", "watermark")


def write_entry(number: int, content: int, kind: int) -> str:
    """Write an entry of the offset log, at whose end the topic has one more record.

    Args:
        number: The batch.
        content: What tells its records from those of other batches.
        kind: What else the entry has: a source that is not of kdsl (1), the topic once more (2), a state (3), or a
            watermark (4).
    """
    state = StateFolder("state", "key", 1, 2) if kind == _STATE else None
    first = Offsets({("orders", 0): number + 1}, {"orders": "id"}, read="_Orders-1", state=state).to_json()
    lines = [json.dumps({**first, "id": content})]
    if kind == _SPARK:
        lines += [json.dumps({"payments": {"0": 7}}), "-"]
    elif kind == _TWICE:
        lines.append(json.dumps(Offsets({("orders", 0): number}, {"orders": "id"}, read="_Orders-2").to_json()))
    metadata = {"batchWatermarkMs": 1_000 * (number + 1)} if kind == _WATERMARK else {}
    return "\n".join(["v1", json.dumps({**metadata, "kind": kind}), *lines])


def read_on(spark: Any, plan: ReadPlan, location: str, number: int, entry: str | None) -> None:
    """Start a read where the query of a checkpoint has stopped.

    Args:
        spark: The session.
        plan: What the query reads.
        location: The checkpoint.
        number: The last batch that is committed; -1 without one.
        entry: Its entry in the offset log.
    """
    choose = World.current.decisions.choose
    kind = -1 if entry is None else json.loads(entry.split("\n")[1])["kind"]
    rewind = timedelta(seconds=1) if choose(2) else None
    topics = plan.topics
    case = choose(4)
    if case == 1:
        topics = attrs.evolve(topics, names=("payments",))
    elif case == 2:
        topics = attrs.evolve(topics, partitions=(("orders", 0),))
    other = attrs.evolve(
        plan, topics=topics, start=attrs.evolve(plan.start, checkpoint=location if case != 3 else "", rewind=rewind)
    )
    World.current.process.values["topic id"] = "other" if choose(4) == 1 else "id"
    refused = (
        kind == -1
        or (case == 1 and kind != _SPARK)
        or (case != 1 and kind == _TWICE)
        or (rewind is not None and kind != _WATERMARK)
        or (case != 1 and World.current.process.values["topic id"] == "other")
    )
    try:
        resolved = resolve_start(spark, other, _CLUSTER)
        stopped = None if case == 3 else read_stopped(spark, other, location)
    except KdslError:
        if case == 3 or not refused:
            raise
        World.current.note("refused", "another read")
    else:
        if case == 3:
            wanted: Any = other.start.offsets
        elif refused:
            raise ViolationError(f"a read goes on after batch {number}, of {_KINDS[kind]}")
        else:
            wanted = (("payments", 0, 7),) if case == 1 else (("orders", 0, number if rewind else number + 1),)
            assert stopped is not None
        if resolved.start.offsets != wanted:
            raise ViolationError(f"another read starts at {resolved.start.offsets}, not {wanted}")
    try:
        text = describe_stored_routing(plan, location)
    except CheckpointError:
        text = ""
    if stored_routing.list_states(Checkpoint.open(spark, location), lambda _: True) and "by key" not in text:
        raise ViolationError(f"the checkpoint finds rows by key, and says {text!r}")


def find_driver_error(folder: Folder) -> KdslError | None:
    """Return the error of a driver that cannot read which driver uses a checkpoint; None if it can."""
    try:
        CurrentDriver(folder).require()
    except CheckpointError as e:
        return e if "cannot be read" in str(e) else None
    return None


def list_reads(plan: ReadPlan, count: int) -> tuple[ReadProgress, ...]:
    """Return reports of a number of reads of a plan."""
    offsets = Offsets({}, {})
    return tuple(
        ReadProgress(Read(f"{plan.table}-{number}", plan, _CLUSTER), None, offsets, None, 1, number)
        for number in range(count)
    )


def damage(tree: FileTree, location: str, done: int) -> str | None:
    """Damage a document that a start reads; return its path, or None if there is none.

    Args:
        tree: The files.
        location: The folder of the checkpoint.
        done: The last batch that is committed.
    """
    choose = World.current.decisions.choose
    paths = [path for path in tree.files if _is_read(path[len(location) + 1 :], done)]
    if not paths:
        return None
    path = paths[choose(len(paths))]
    text = tree.files[path]
    ways: list[Callable[[], str]] = [
        lambda: text[: len(text) // 2],
        lambda: "[]",
        lambda: "{}",
        lambda: '{"version": 1, "batch": 0}',
    ]
    document = json.loads(text)
    if "version" in document and not path.endswith(STARTED):
        ways.append(lambda: json.dumps({**document, "version": 99}))
    if "notes" in document and path == max((one for one in paths if f"/{SCHEMAS}/" in one), key=_number_of):
        ways.append(lambda: json.dumps({**document, "notes": [{"batch": "no number"}]}))
    tree.put(path, ways[choose(len(ways))]())
    return path


def _number_of(path: str) -> int:
    stem = path.rpartition("/")[2].removesuffix(".json")
    return int(stem) if stem.isdigit() else -1


def name_kind(path: str) -> str:
    """Return the name of a document without its numbers."""
    name = path.rpartition("/")[2]
    return "N.json" if name.removesuffix(".json").isdigit() else name


def _is_read(name: str, done: int) -> bool:
    """Whether a file, by its path in the checkpoint, is a document that a start reads."""
    if name in (MANIFEST, FILE, STARTED):
        return True
    folder, _, file = name.rpartition("/")
    stem = file.removesuffix(".json")
    return (folder == SCHEMAS and (stem == "start" or stem.isdigit())) or (
        folder == COUNTS and stem.isdigit() and int(stem) <= done
    )


class _Admin:
    """Stands for an admin client: the topic has its records, one a second."""

    def topics(self, names: set[str]) -> dict[str, Any]:
        """The topics with some names."""
        id_ = World.current.process.values["topic id"]
        return {name: SimpleNamespace(id=id_) for name in names if name == "orders"}

    def at_time(self, partitions: Sequence[tuple[str, int]], time: int) -> dict[tuple[str, int], int | None]:
        """The first offsets from a time on."""
        return {p: time // 1_000 if p[0] == "orders" else None for p in partitions}


def event_substitutes(open_folder: Callable[..., Folder], location: Callable[[], str]) -> list[tuple[Any, str, Any]]:
    """What models replace in programs that read a checkpoint.

    Args:
        open_folder: Opens the folder of the checkpoint without Spark.
        location: Returns where it is.
    """
    return [
        (start, "open_admin", lambda *_: _Admin()),
        (start, "_log", SimpleNamespace(warning=lambda *_: None, info=lambda *_: None)),
        (stored_columns, "is_connect", lambda _: False),
        (stored_columns, "log", SimpleNamespace(warning=lambda *_: None)),
        (stored_routing, "open_folder_without_spark", open_folder),
        (task_entries, "open_folder_without_spark", open_folder),
        (task_entries, "find_checkpoint", lambda: location()),
    ]
