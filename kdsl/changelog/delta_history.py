"""Finds commits in the history of a Delta table that took back rows which a writer had applied to it.

Delta keeps the number of a writer's last batch (its transaction) when the table is restored, emptied or overwritten.
Only the history says that the rows of the batch are gone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

import attrs

from kdsl.types.strings.temporal import format_timestamp

CHANGES_TYPES = '{"kdsl": "change types"}'
"""What ``userMetadata`` contains of a commit of kdsl that rewrites all rows with other types."""
_REPLACES = ("RESTORE", "TRUNCATE", "CLONE", "REPLACE TABLE", "CREATE OR REPLACE TABLE")
_BATCH = re.compile(r'\{"writer": "(?:[^"\\]|\\.)*", "batch": ')
"""What ``userMetadata`` contains of a commit with a batch of kdsl, whoever its writer is."""
_STEP = 10
"""By which factor more commits are read until the writer's last one is among them."""


@attrs.frozen
class Commit:
    """A commit of a Delta table, as its history has it.

    Attributes:
        version: The version that it made.
        time: When, in seconds since 1970.
        operation: What Delta or another program calls it; empty if it does not say.
        parameters: Its parameters.
        user: Who made it; None if that is not known.
        metadata: Its ``userMetadata``; empty if it has none.
    """

    version: int
    time: int
    operation: str
    parameters: Mapping[str, str] = attrs.field(factory=dict)
    user: str | None = None
    metadata: str = ""

    def __str__(self) -> str:
        """Describe it for messages, as ``version 7 (RESTORE, 2025-01-31 12:00:00 UTC, by ann)``."""
        time = f"{format_timestamp(self.time * 1_000_000, 'SQL', zoned=False)} UTC"
        by = [] if self.user is None else [f"by {self.user}"]
        return f"version {self.version} ({', '.join([self.operation, time, *by])})"

    @property
    def takes_back_rows(self) -> bool:
        """Whether it replaced the rows that the table had, all of them, by others, earlier ones or none.

        Edits of some rows do not count: a DELETE with a condition, an UPDATE, a MERGE, an overwrite of some partitions;
        nor do commits of kdsl that change types.
        """
        if CHANGES_TYPES in self.metadata:
            return False
        match self.operation:
            case "DELETE":
                return not self._has_condition
            case "WRITE":
                return self.parameters.get("mode") == "Overwrite" and not self._has_condition
            case "STREAMING UPDATE":
                return self.parameters.get("outputMode") == "Complete"
            case _:
                return self.operation.startswith(_REPLACES)

    @property
    def edits_rows(self) -> bool:
        """Whether a program other than kdsl has deleted, changed or overwritten some of the rows that the table had.

        What others append does not count.
        """
        if CHANGES_TYPES in self.metadata or _BATCH.search(self.metadata) or self.takes_back_rows:
            return False
        if self.operation == "WRITE":
            return self.parameters.get("mode") == "Overwrite"
        return self.operation in ("DELETE", "UPDATE", "MERGE")

    @property
    def _has_condition(self) -> bool:
        """Whether it concerned only rows that meet a condition, or some partitions."""
        if self.parameters.get("isDynamicPartitionOverwrite", "").lower() == "true":
            return True
        text = self.parameters.get("predicate", "")
        try:
            terms = json.loads(text or "[]")
        except ValueError:
            terms = [text]
        terms = terms if isinstance(terms, list) else [terms]
        return any(str(term).strip().lower() not in ("", "true", "(true)") for term in terms)


@attrs.frozen
class LostRows:
    """What became of the rows of a writer since its last batch.

    Attributes:
        commits: The commits that took back rows, oldest first.
        edits: The commits of other programs that changed or deleted some rows, which may be rows of the writer; oldest
            first.
        unknown: The version before the first one whose commit the log still has, if commits before it may have taken
            back rows: that of the writer's last batch was removed with others, or some were that others made while the
            batch was merged. None if the log has all.
    """

    commits: Sequence[Commit]
    edits: Sequence[Commit] = ()
    unknown: int | None = None


def find_lost_rows(read: Callable[[int], Sequence[Commit]], writer: str) -> LostRows:
    """Find the commits that took back rows of a writer's batches, and those that may have edited some.

    Those are searched that were made after the version which the writer's last batch was checked against.

    Args:
        read: Reads a number of last commits of the table, newest first, or fewer if the log has fewer.
        writer: The writer.
    """
    start = start_of_metadata(writer)
    limit = 1
    while True:
        commits = read(limit)
        own = next((commit for commit in commits if start in commit.metadata), None)
        if own is not None or len(commits) < limit:
            break
        limit *= _STEP
    base = -1 if own is None else read_base(own.metadata, start)
    if own is not None and commits[-1].version > base + 1:  # others committed while the batch was merged
        commits = read(commits[0].version - base)
    oldest = commits[-1].version if commits else 0
    later = [commit for commit in reversed(commits) if commit.version > base]
    return LostRows(
        [commit for commit in later if commit.takes_back_rows],
        [commit for commit in later if commit.edits_rows],
        oldest - 1 if oldest > base + 1 else None,
    )


def start_of_metadata(writer: str) -> str:
    """The beginning of what a commit's ``userMetadata`` contains: the writer of its batch."""
    return f'{{"writer": {json.dumps(writer)}, "batch": '


def write_metadata(writer: str, number: int, content: str, base: int) -> str:
    """Write what a commit's ``userMetadata`` contains.

    Args:
        writer: The writer of its batch.
        number: The batch's number.
        content: The batch's content; empty if it is not known.
        base: The last version of the table that is known to have the rows of earlier batches.
    """
    return f'{start_of_metadata(writer)}{number}, "content": {json.dumps(content)}, "base": {base}}}'


def read_base(metadata: str, start: str) -> int:
    """Read the version that a batch was checked against from a commit's ``userMetadata``; see `write_metadata`."""
    return int(_read_document(metadata, start)["base"])


def read_contents(metadata: Sequence[str], writer: str) -> Iterator[tuple[int, str]]:
    """Yield the numbers and contents of a writer's batches from the ``userMetadata`` of commits."""
    start = start_of_metadata(writer)
    for text in metadata:
        if start in text:
            document = _read_document(text, start)
            yield int(document["batch"]), str(document["content"])


def _read_document(metadata: str, start: str) -> dict[str, int | str]:
    """Read the JSON that begins with ``start`` in a commit's ``userMetadata``, which may contain more."""
    document: dict[str, int | str] = json.JSONDecoder().raw_decode(metadata[metadata.index(start) :])[0]
    return document
