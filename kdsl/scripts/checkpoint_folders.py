"""The checkpoint folder of each INSERT of a script.

A folder is named after the number of the INSERT when it first ran. Statements move when others are added or removed
before them; a document beside the folders says which INSERT each of them belongs to.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import attrs

from kdsl.errors import CheckpointError, listing
from kdsl.run.checkpoint.checkpoint import FOLDER
from kdsl.run.checkpoint.folder import open_folder, open_local_folder
from kdsl.scripts.script_plan import AnyJob, CopyJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INDEX = f"{FOLDER}/inserts.json"
_VERSION = 1


@attrs.frozen
class JobIdentity:
    """What identifies an INSERT, a query whose rows are shown, or copies of tables.

    Attributes:
        digest: A digest of its query, with that of views, and of what is written.
        sink: The table that is written; empty where rows are shown.
        reads: The topics that it reads, sorted; the name of the table where that is not one of Kafka.
    """

    digest: str
    sink: str
    reads: tuple[str, ...]

    @classmethod
    def of(cls, job: AnyJob) -> JobIdentity:
        """Describe a job: digest its queries, its views and the columns it writes, and name its sink and its topics."""
        if isinstance(job, CopyJob):
            topics, names = job.topics, ", ".join(copy.name for copy in job.copies)
            text = repr([(c.name, [rule.to_strings() for rule in c.ingestion.transform]) for c in job.copies])
            return cls(_digest(f"{text} {topics}"), names, topics)
        options = {name: table.declared.options for name, table in job.tables.items()}
        reads = sorted(of.get("topic") or of.get("topic-pattern") or name for name, of in options.items())
        sink = job.sink.name if job.sink else ""
        columns = [(column.name, column.index, column.constant) for column in job.columns]
        text = repr([[(view.name, view.query.text) for view in job.views], job.query.text, columns, sink, reads])
        return cls(_digest(text), sink, tuple(reads))

    def is_edited(self, other: JobIdentity) -> bool:
        """Whether one can be the other after a change of its query: both write to one sink and read the same topics."""
        return (self.sink, self.reads) == (other.sink, other.reads)

    def __str__(self) -> str:
        return f"{f'INSERT INTO {self.sink}' if self.sink else 'SELECT'} from {listing(self.reads)}"


def _digest(text: str) -> str:
    """Return the first 32 hexadecimal digits of the SHA-256 of a string."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def assign_folders(inserts: Mapping[str, JobIdentity], stored: Mapping[str, JobIdentity], base: str) -> dict[str, str]:
    """Assign a folder to each INSERT: its folder of earlier runs, or a new one.

    An INSERT keeps its folder if its digest is the same. A changed one keeps a folder of the same sink and topics: that
    of its name, or else the only one left.

    Args:
        inserts: The INSERTs by the names of their jobs, which have their present numbers.
        stored: The INSERTs of earlier runs by the names of their folders; not changed.
        base: Where the folders are, for messages.

    Returns:
        The folders' names, by the names of the jobs. A new folder is named after the job, with a part of the digest if
        that name is taken.
    """
    free, folders = dict(stored), dict[str, str]()

    def take(job: str, folder: str) -> None:
        folders[job] = folder
        free.pop(folder, None)

    for in_place in (True, False):  # INSERTs that are as they were
        for job, insert in inserts.items():
            same = [folder for folder, other in free.items() if other.digest == insert.digest]
            if job not in folders and same and (not in_place or job in same):
                take(job, job if job in same else same[0])
    for job, insert in inserts.items():
        if job in folders:
            continue
        edited = [folder for folder, other in free.items() if insert.is_edited(other)]
        if job in edited or len(edited) == 1:
            take(job, job if job in edited else edited[0])
        elif edited:
            raise CheckpointError(
                f"{job}: {insert} has changed and moved, and may be that of any of the checkpoints {listing(edited)} "
                f"in {base}; make one of the changes, run the script, and make the other then; or use "
                "another folder for the checkpoints"
            )
        elif job in free:
            raise CheckpointError(
                f"{job}: the checkpoint {base}/{job} is that of {free[job]}, and this statement is {insert}, which "
                "would go on at the progress of the other; put the statement where it was, use another folder for the "
                "checkpoints, or remove this one to start anew"
            )
        else:
            take(job, f"{job}-{insert.digest[:8]}" if job in stored else job)
    return folders


def open_folders(spark: SparkSession, base: str, jobs: Sequence[AnyJob]) -> dict[str, str]:
    """Choose the checkpoint folders of jobs that run as streams, and store the choice in ``inserts.json`` beside them.

    Args:
        spark: The session.
        base: The folder of the checkpoints.
        jobs: The jobs; those that do not run as streams get no folder.

    Returns:
        The full paths of the folders, by the names of the jobs.
    """
    folder = open_folder(spark, base)
    folders, stored = _choose_folders(folder.read, base, jobs)
    document = {"version": _VERSION, "inserts": {name: attrs.asdict(insert) for name, insert in sorted(stored.items())}}
    folder.write(_INDEX, json.dumps(document, indent=2) + "\n")
    return folders


def group_jobs_by_base(jobs: Iterable[AnyJob], checkpoint: str | None) -> dict[str, list[AnyJob]]:
    """Group the jobs that run as streams by the folder of their checkpoints; jobs without one are left out.

    Args:
        jobs: The jobs of a script.
        checkpoint: The folder that is used in place of those that the script sets.
    """
    by_base: dict[str, list[AnyJob]] = {}
    for job in jobs:
        base = checkpoint or job.settings.folder
        if base is not None and job.streaming:
            by_base.setdefault(base.rstrip("/"), []).append(job)
    return by_base


def predict_folders(jobs: Iterable[AnyJob], checkpoint: str | None = None) -> dict[str, str]:
    """Say which checkpoint folders `open_folders` will choose, without Spark and without storing anything.

    Folders on this machine are read, to which a path without a scheme is taken to lead. On other file systems the
    folder of a first run is named, with the remark that another one may be stored there.

    Args:
        jobs: The jobs of a script.
        checkpoint: The folder that is used in place of those that the script sets.

    Returns:
        The folders, for display, by the names of the jobs; jobs that store no progress are left out.
    """
    expected: dict[str, str] = {}
    for base, group in group_jobs_by_base(jobs, checkpoint).items():
        local = base.removeprefix("file:")
        if "://" in local or local.partition("/")[0].endswith(":"):
            remark = f", if {base}/{_INDEX} names no other folder"
            expected |= {job.name: f"{base}/{job.name}{remark}" for job in group}
            continue
        expected |= _choose_folders(open_local_folder(local).read, base, group)[0]
    return expected


def _choose_folders(
    read: Callable[[str], str | None], base: str, jobs: Iterable[AnyJob]
) -> tuple[dict[str, str], dict[str, JobIdentity]]:
    """Choose the folders of jobs that run as streams, by what is stored in the folder of the checkpoints.

    Return their full paths by the names of the jobs; and all INSERTs by the names of their folders.
    """
    inserts = {job.name: JobIdentity.of(job) for job in jobs if job.streaming}
    text = read(_INDEX)
    if text is None:
        stored: dict[str, JobIdentity] = {}
        _check_numbers(read, base, list(inserts.items()))
    else:
        stored = _read_index(text, f"{base}/{_INDEX}")
    folders = assign_folders(inserts, stored, base)
    stored |= {folders[job]: insert for job, insert in inserts.items()}
    return {job: f"{base}/{name}" for job, name in folders.items()}, stored


def _read_index(text: str, location: str) -> dict[str, JobIdentity]:
    """Read the INSERTs by the names of their folders from ``inserts.json``; ``location`` is that file, for messages."""
    try:
        document = json.loads(text)
        version = document["version"]
        if version == _VERSION:
            return {
                name: JobIdentity(one["digest"], one["sink"], tuple(one["reads"]))
                for name, one in document["inserts"].items()
            }
    except Exception as e:
        raise CheckpointError(
            f"{location} cannot be read: {type(e).__name__} in its contents; restore it from a copy, or remove it: "
            "each statement then continues in the folder of its number and sink"
        ) from e
    raise CheckpointError(
        f"{location} has version {version}, and this kdsl reads version {_VERSION}; use the kdsl that wrote it, or a "
        "newer one"
    )


def _check_numbers(read: Callable[[str], str | None], base: str, inserts: Sequence[tuple[str, JobIdentity]]) -> None:
    """Check, where no choice of folders is stored, that no INSERT has a new number since its last checkpoint.

    ``read`` reads a file in the folder ``base`` of the checkpoints, as for `_choose_folders`.
    """
    names = dict(inserts)

    def is_used(name: str) -> bool:
        return read(f"{name}/metadata") is not None

    for name, insert in inserts:
        kind = name.partition("-")[0]
        others = [f"{kind}-{n}" + (f"-{insert.sink}" if insert.sink else "") for n in range(1, len(inserts) + 2)]
        left = [other for other in others if other not in names and is_used(other)]
        if left and not is_used(name):
            raise CheckpointError(
                f"{name} has no checkpoint in {base}, but the folder {left[0]} there belongs to no statement of the "
                f"script: if this statement had that name before it was moved, rename the folder to {name}; if the "
                "folder is no longer needed, remove it; or use another folder for the checkpoints"
            )
