"""The interface of targets, to which changelogs are applied, and the identity of a batch."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, Self, runtime_checkable

import attrs

from kdsl.errors import ChangelogError
from kdsl.run.admin.errors import join_some

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_log = logging.getLogger(__name__)


@attrs.frozen
class Batch:
    """The identity of a batch of changes that may be repeated.

    Attributes:
        writer: The id of a query's checkpoint, or a name; the batches of each writer are counted separately.
        number: The batch's number; later batches have greater ones.
        content: What distinguishes the batch from others with its number, at most 128 characters. Within
            ``foreachBatch`` it is by default the id of the query and a digest of the batch's offsets; elsewhere it is
            unknown unless it is passed.
        previous: The number of the writer's batch before this one that was applied to the table, if it is known: a
            table without it has lost it.
        adopt: Whether the table is accepted as it is, even if rows of earlier batches were taken from it.
    """

    writer: str
    number: int
    content: str = attrs.field(default="", validator=attrs.validators.max_len(128))
    previous: int | None = None
    adopt: bool = False

    def of_part(self, *names: str) -> Self:
        """The identity of one of several parts that are written by themselves, such as that of a table.

        Each part has a writer of its own, so that two that are written to the same table are both applied.

        Args:
            *names: What distinguishes the part from the others of the batch.
        """
        digest = hashlib.sha256(json.dumps(names).encode()).hexdigest()[:32]
        return attrs.evolve(self, writer=f"{self.writer}/{digest}")


OTHER_CONTENT = "of another batch"
"""The content of a batch that is not the one that was looked for, if nothing else is known about it."""


def is_applied(target: str, batch: Batch, last: Batch | None, *, repeatable: bool = True) -> bool:
    """Whether a table has a batch already.

    The answer yes is logged. A batch without content is compared by its number alone: if the last number is the same or
    a later one, the answer is yes, logged as a warning. If rows have a key, a last batch with the same number
    whose content is unknown does not count, nor does the last batch itself with ``adopt``: to apply it again changes
    nothing, and it may be among what the table has lost.

    Args:
        target: The table, for messages.
        batch: The batch.
        last: The last batch of its writer that was applied to the table; None if there is none.
        repeatable: Whether to apply the last batch again changes nothing, as for rows with a key.

    Raises:
        ChangelogError: The table has lost the writer's batch before this one; or the batch has a content, and the table
            has another batch with this number or a later one: the changes would be lost.
    """
    if last is None or last.number < batch.number:
        _require_previous(target, batch, last)
        return False
    if not batch.content:
        _log.warning(
            "%s has batch %d of the writer %r, and batch %d is skipped as a repeated one, by its number alone; pass "
            "Batch(..., content=...) to have batches compared",
            target, last.number, batch.writer, batch.number,
        )  # fmt: skip
        return True
    if last.number == batch.number and repeatable and (not last.content or batch.adopt):
        return False
    if last.number == batch.number and last.content == batch.content:
        _log.info("%s has batch %d of %r already", target, batch.number, batch.writer)
        return True
    query, _, _ = batch.content.partition("/")
    causes = (
        "a query with another checkpoint, or another query that uses the name, has applied that one",
        "an older copy of the checkpoint was restored, or a driver that was presumed dead goes on",
    )
    if last.content in ("", OTHER_CONTENT):
        reason = ", or ".join(causes)
    else:
        reason = causes[query == last.content.partition("/")[0]]
    raise ChangelogError(
        f"{target} has batch {last.number} of the writer {batch.writer!r}, and this is another batch with the number "
        f"{batch.number}: {reason}; to apply it, name another writer, as Batch('{batch.writer}-2', number), or start "
        "a query of apply_to(checkpoint=...) with a new checkpoint, and read from the start"
    )


def _require_previous(target: str, batch: Batch, last: Batch | None) -> None:
    """Check that a table has the writer's batch before this one."""
    if batch.previous is None or batch.adopt or (last is not None and last.number >= batch.previous):
        return
    has = "no batch" if last is None else f"batch {last.number}, and no later one,"
    raise ChangelogError(
        f"{target} has {has} of the writer {batch.writer!r}, although batch {batch.previous} was applied to it: the "
        f"table was restored to an earlier state, or emptied, and would miss the changes between; {WAYS_ON}"
    )


_edited: set[tuple[str, str]] = set()
"""The tables and writers for which a warning has said that other programs edit rows."""


def warn_of_edits(target: str, writer: str, edits: Sequence[str]) -> None:
    """Log that other programs have edited rows of a table since a writer's last batch; do nothing without edits.

    It is a warning once in this process, because some tables are edited all the time.

    Args:
        target: The table.
        writer: The writer.
        edits: What did it, in words, oldest first.
    """
    if edits:
        level = logging.INFO if (target, writer) in _edited else logging.WARNING
        _edited.add((target, writer))
        _log.log(
            level,
            "%s: since the last batch of the writer %r, other programs have edited rows of the table: %s; if these "
            "were rows of earlier batches, the table no longer has all changes that were applied to it",
            target, writer, join_some(edits),
        )  # fmt: skip


def require_same_table(target: str, expected: str | None, actual: str | None) -> None:
    """Check that a table is the one to which earlier batches were written.

    Args:
        target: The table, for messages.
        expected: Its identity (`IdentifiedTarget.identify`) when they were written; None if it is not known.
        actual: Its identity now; None if there is no table.

    Raises:
        ChangelogError: It is gone, or another table has its name.
    """
    if expected is not None and actual != expected:
        raise ChangelogError(f"{target} {explain_replaced_table(expected, actual)}; {WAYS_ON}")


def explain_replaced_table(expected: str, actual: str | None) -> str:
    """Explain that a table is not the one to which earlier batches were written; see `require_same_table`."""
    what = "is gone" if actual is None else f"was dropped and created again: its id was {expected}, and is {actual}"
    return f"{what}, and the rows of earlier batches are lost with the earlier table"


WAYS_ON = (
    "restore that table, or start with a new checkpoint, which reads from the start; or accept the table as it is, "
    "without these rows: start an ingestion once with --allow sink (allow=['sink'] in Python), and a query of apply_to "
    "with adopt=True; in your own foreachBatch, name another writer"
)


def explain_missing_row(columns: str) -> str:
    """Write the message for a change that does not have all values, if the target has no row with its key.

    Args:
        columns: The columns without a value.
    """
    return (
        f"a change has no value for {columns}, and the table has no row with its key to keep the value of: the changes "
        "were not read from their beginning; start with a snapshot, or read with unavailable='null'"
    )


class Target(Protocol):
    """A table to which changes are applied by key."""

    def check(self, changes: DataFrame) -> None:
        """Check that the target supports the columns of a changelog and its session, and prepare the session for it.

        Args:
            changes: The changelog, a batch or a stream, from which nothing is read.

        Raises:
            ChangelogError: They are not supported; the message has the reason.
        """
        ...

    def last_batch(self, spark: SparkSession, writer: str) -> int | None:
        """Read the number of the last batch of a writer that was applied to the table; None if there is none.

        Raises:
            ChangelogError: The table cannot be read; some targets pass on Java's error instead. Or rows of that batch,
                or of earlier ones, were taken from the table, as far as the target can notice that.
        """
        ...

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        """Apply changes to the table, all of them or none.

        A batch that the table has already is skipped; `is_applied` says whether it does.

        Args:
            changes: At most one row for each key: ``_row_kind`` (``+U`` or ``-D``), then the columns. A column
                ``_unavailable``, if present, names the columns of the row that keep their values in the table. Rows of
                an ingestion have other names for both (`kdsl.formats.kind_column`, `kdsl.formats.unavailable_column`).
            keys: The columns of the key.
            batch: The identity of the batch; None applies it in any case.

        Raises:
            ChangelogError: The table has another batch with this number, or a later one, or has lost rows of earlier
                batches; or the changes cannot be applied. Some targets pass on Spark's or Java's error instead.
        """
        ...


@runtime_checkable
class IdentifiedTarget(Target, Protocol):
    """A table with an identity, which another one that is created under its name later does not have."""

    def identify(self, spark: SparkSession) -> str | None:
        """Read the identity of the table; None if there is no table, or if it cannot be identified.

        Raises:
            ChangelogError: The table cannot be read; some targets pass on Java's error instead.
        """
        ...
