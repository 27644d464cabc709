"""What a changelog is applied to, and what tells one batch from another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from kdsl.errors import KdslError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class ChangelogError(KdslError):
    """A changelog that cannot be applied."""


@attrs.frozen
class Batch:
    """A batch of changes that may come again.

    Attributes:
        writer: Whose batches are counted: the id of a query's checkpoint, or a name.
        number: Its number; each next batch has a greater one.
    """

    writer: str
    number: int


class Target(Protocol):
    """A table that takes changes by key."""

    def check(self, spark: SparkSession, *, streaming: bool) -> None:
        """Refuse a session that cannot do it.

        Raises:
            ChangelogError: It cannot, with the reason.
        """
        ...

    def applied(self, spark: SparkSession, writer: str) -> int | None:
        """The number of the last batch of a writer that is in the table; None where there is none."""
        ...

    def apply(self, changes: DataFrame, keys: Sequence[str], batch: Batch | None) -> None:
        """Put changes into the table, all of them or none.

        A batch that is not newer than the last one of its writer is left out.

        Args:
            changes: At most one row for each key: ``_row_kind`` (``+U`` or ``-D``), then the columns.
            keys: The columns of the key.
            batch: Which batch it is; None applies it in any case.
        """
        ...
