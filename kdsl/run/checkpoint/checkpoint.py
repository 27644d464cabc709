"""The checkpoint of a streaming query: Spark's offset log and commit log, and kdsl's manifest beside them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kdsl.errors import CheckpointError
from kdsl.plan.changes import AllowedChanges
from kdsl.plan.model import WritePlan
from kdsl.run.checkpoint.folder import Folder, open_folder
from kdsl.run.checkpoint.manifest import Manifest, read_manifest
from kdsl.run.checkpoint.offset_entry import read_planned_time
from kdsl.run.offsets.stored import VERSION, Offsets, has_known_version, offset_document

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "kdsl"
"""The folder in a checkpoint that is kdsl's own."""
MANIFEST = f"{FOLDER}/write.json"
_SOURCE_NAME = re.compile(r"^\w+:(?={)")


class Checkpoint:
    """The checkpoint of a streaming query.

    Attributes:
        folder: Its folder; that of `open` raises a CheckpointError if its file system fails.
        manifest: What kdsl has stored about the query; None before its first start. It is read when the checkpoint is
            checked.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self.manifest: Manifest | None = None

    @classmethod
    def open(cls, spark: SparkSession, location: str) -> Checkpoint:
        """Open the checkpoint at a location, which need not exist yet."""
        return cls(open_folder(spark, location))

    @property
    def location(self) -> str:
        """The location of the folder."""
        return self.folder.location

    def check(self, plan: WritePlan, allow: AllowedChanges) -> list[str]:
        """Read the stored manifest into `manifest`, and check that a query with a plan may continue from here.

        Args:
            plan: What the query writes.
            allow: The unsafe changes of the plan that are allowed, or True for all.

        Returns:
            The lines by which the stored plan and this one differ; empty if they are equal, or no plan is stored.
        """
        self._check_offsets(plan.table)
        self.manifest = self._read_manifest()
        return [] if self.manifest is None else self.manifest.check_change(plan, self.location, allow)

    def check_unchanged(self, table: str) -> None:
        """Check that `manifest` is still what is stored: another start of the query may have changed it since `check`.

        Args:
            table: The table's name, for the message.
        """
        stored, known = ("" if one is None else one.text() for one in (self._read_manifest(), self.manifest))
        if stored != known:
            raise self._create_change_error(table)

    def _create_change_error(self, table: str) -> CheckpointError:
        return CheckpointError(
            f"{table}: another start of the query has changed {self.folder.path(MANIFEST)} after this one had read it; "
            "start the query again, unless the other one runs"
        )

    def _read_manifest(self) -> Manifest | None:
        """Read the manifest; None if there is none."""
        text = self.folder.read(MANIFEST)
        return None if text is None else read_manifest(text, self.folder.path(MANIFEST))

    def create(self, manifest: Manifest, table: str) -> None:
        """Write the first manifest into the checkpoint, and set `manifest`; one that another start has written stays.

        Args:
            manifest: The manifest.
            table: The table's name, for the error about another start.
        """
        if not self.folder.create(MANIFEST, manifest.text()):
            raise self._create_change_error(table)
        self.manifest = manifest

    def store(self, manifest: Manifest) -> None:
        """Write a manifest into the checkpoint, in place of an earlier one, and set `manifest`."""
        self.folder.write(MANIFEST, manifest.text())
        self.manifest = manifest

    def last_batches(self) -> tuple[int, int]:
        """Read the number of the last batch in Spark's offset log, and in its commit log; -1 where there is none."""
        planned, done = (_last_number(self.folder.names(name)) for name in ("offsets", "commits"))
        return planned, done

    def explain_short_log(self, planned: int, evidence: str) -> str:
        """Write that the offset log lacks batches that there were.

        Args:
            planned: The number of its last batch; -1 if it has none.
            evidence: What shows a later batch.
        """
        end = f"ends with batch {planned}" if planned >= 0 else "is missing"
        return (
            f"the checkpoint {self.location} is incomplete: {evidence}, but the offset log {end} "
            f"({self.folder.path('offsets')})"
        )

    def batch_digest(self, batch: int) -> str:
        """Read a batch's entry in the offset log, and return 32 digits of its SHA-256; empty if there is no entry."""
        text = self.folder.read(f"offsets/{batch}")
        return "" if text is None else hashlib.sha256(text.encode()).hexdigest()[:32]

    def read_planned_time(self, batch: int) -> float:
        """Read from a batch's entry in the offset log when it was planned, in seconds since 1970; 0 if unknown."""
        return read_planned_time(self.folder.read(f"offsets/{batch}") or "")

    def batch_offsets(self, batch: int) -> list[Offsets]:
        """Read where a batch ends in each source of kdsl from the offset log; empty if there is no such entry."""
        documents = source_offsets(self.folder.read(f"offsets/{batch}") or "")
        return [Offsets.from_json(document) for document in documents if {"version", "topics"} <= document.keys()]

    def _check_offsets(self, table: str) -> None:
        """Check that a query may continue from the offset log.

        Spark's planning process, which reads the offsets later, does not know their file and could not name it. A last
        entry that cannot be read is not an error here: Spark reports it.
        """
        planned, done = self.last_batches()
        if planned < done:
            evidence = f"batch {done} is done ({self.folder.path('commits')})"
            raise CheckpointError(
                f"{table}: {self.explain_short_log(planned, evidence)}; restore it from a copy, or use a new checkpoint"
            )
        name = f"offsets/{planned}"
        for document in self._read_offset_entry(name) if planned >= 0 else ():
            if {"version", "topics"} <= document.keys() and not has_known_version(document):
                raise CheckpointError(
                    f"{table}: the offsets in {self.folder.path(name)} have version {document['version']}, and this "
                    f"kdsl reads version {VERSION}; use the kdsl that wrote them, or a new checkpoint"
                )

    def _read_offset_entry(self, name: str) -> Iterator[dict[str, Any]]:
        """Read the offsets of the sources from a file of Spark's log; none if it is missing or cannot be read."""
        text = None
        with suppress(Exception):  # Spark reads the same file, and reports what is wrong with it
            text = self.folder.read(name)
        return source_offsets(text or "")


def source_offsets(entry: str) -> Iterator[dict[str, Any]]:
    """Parse the offsets of the sources in an entry of the offset log: a version, metadata, then a line for each source.

    The line begins with the name of the source where Spark names sources: ``orders:{…}``.

    Args:
        entry: The text of the entry. Lines that are not JSON, or not objects, are left out; documents of sources other
            than Kafka are not.
    """
    for line in entry.splitlines()[2:]:
        document = offset_document(_SOURCE_NAME.sub("", line))
        if document is not None:
            yield document


def _last_number(names: Iterable[str]) -> int:
    """Return the largest of the names that are numbers; -1 if there is none."""
    return max((int(name) for name in names if name.isdigit()), default=-1)
