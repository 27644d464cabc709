"""The interface of targets, to which changelogs are applied, and the identity of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@attrs.frozen
class Batch:
    """The identity of a batch of changes that may be repeated.

    Attributes:
        writer: The id of a query's checkpoint, or a name; the batches of each writer are counted separately.
        number: The batch's number; later batches have greater ones.
    """

    writer: str
    number: int


def explain_missing_row(columns: str) -> str:
    """The message for a change that does not have all values, if the target has no row with its key.

    Args:
        columns: The columns without a value.
    """
    return (
        f"a change has no value for {columns}, and the table has no row with its key to keep the value of: the changes "
        "were not read from their beginning; start with a snapshot, or read with unavailable='null'"
    )


class Target(Protocol):
    """A table to which changes are applied by key."""

    def check(self, spark: SparkSession, *, streaming: bool) -> None:
        """Raise an error if the target does not support a session.

        Args:
            spark: The session.
            streaming: Whether the changes are a stream.

        Raises:
            ChangelogError: The session is not supported; the message has the reason.
        """
        ...

    def last_batch(self, spark: SparkSession, writer: str) -> int | None:
        """The number of the last batch of a writer that was applied to the table; None if there is none."""
        ...

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        """Apply changes to the table, all of them or none.

        A batch that is not newer than the last one of its writer is skipped.

        Args:
            changes: At most one row for each key: ``_row_kind`` (``+U`` or ``-D``), then the columns. A column
                ``_unavailable``, if present, names the columns of the row that keep their values in the table.
            keys: The columns of the key.
            batch: The identity of the batch; None applies it in any case.
        """
        ...
