"""A changelog at work: the last change of each key, and the table that it is applied to."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, overload

from kdsl.changelog.target import Batch, ChangelogError, Target
from kdsl.declare.classes.table import KafkaTable
from kdsl.errors import listing, nearest
from kdsl.run.checkpoint.kept import Folder, folder_of, last_batches
from kdsl.run.exactly_once.stream import started
from kdsl.run.frames.last import last_changes
from kdsl.run.frames.output_mode import aggregates
from kdsl.table import OutputMode, Table, key_of_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


class Changelog:
    """The changes of a table by key, as a read of it gives them.

    Args:
        df: The changes, a stream or not: ``_row_kind`` and the table's columns. Without ``_row_kind`` each row is the
            one that its key has now, as those of an aggregation are.
        table: The table whose changes they are, which says the key: its primary key, or else its message key.
        keys: The columns of the key, where the table does not say them.
        order_by: The columns that say which of two changes of a key is later. Needed where the DataFrame's own order
            does not: its rows were shuffled, or a key comes from several partitions of the topic.

    Raises:
        KdslError: There is no key, or columns are missing.
    """

    def __init__(
        self,
        df: DataFrame,
        table: type[KafkaTable] | Table | None = None,
        *,
        keys: Iterable[str] | None = None,
        order_by: Iterable[str] = (),
    ) -> None:
        declared = Table(table.definition()) if isinstance(table, type) else table
        self._name = declared.name if declared is not None else "the changelog"
        self.df = df
        self.keys = key_of_changes(declared, keys)
        self.order_by = tuple(map(str, [order_by] if isinstance(order_by, str) else order_by))
        for name in (*self.keys, *self.order_by):
            if name not in df.columns:
                raise ChangelogError(
                    f"{self._name}: the DataFrame has no column {name!r}{nearest(name, df.columns)}; it has "
                    f"{listing(df.columns)}"
                )

    def dedupe(self) -> DataFrame:
        """The last change of each key: ``+U`` with the row that it has now, or ``-D``.

        Raises:
            ChangelogError: The DataFrame is a stream: what is last there is known for each batch alone.
        """
        if self.df.isStreaming:
            raise ChangelogError(
                f"{self._name} is a stream, which has a last change of each key in each batch; call dedupe() on the "
                "batches in foreachBatch, or declare changelog='upsert' for an upsert table"
            )
        return last_changes(self.df, self.keys, self.order_by)

    @overload
    def apply_to(self, target: Target, *, batch: Batch | None = None) -> None: ...

    @overload
    def apply_to(
        self,
        target: Target,
        *,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        output_mode: OutputMode | None = None,
    ) -> StreamingQuery: ...

    def apply_to(
        self,
        target: Target,
        *,
        batch: Batch | None = None,
        checkpoint: str | None = None,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        output_mode: OutputMode | None = None,
    ) -> StreamingQuery | None:
        """Apply the changes to a table, which then has the last row of each key.

        Of a stream each batch goes into the table in one transaction with its number; one that comes again after a
        failure, or from a driver that was thought to be gone, changes nothing.

        Args:
            target: `delta`, `jdbc`, `memory`, or anything that is a `Target`.
            batch: For a batch DataFrame that may come again, as in a ``foreachBatch`` of your own: which one it is.
            checkpoint: For a stream: the folder of the query's progress.
            trigger: For a stream: arguments of Spark's ``trigger``.
            name: For a stream: the query's name.
            output_mode: For a stream: Spark's output mode; None is ``append``, and ``update`` where it aggregates.

        Returns:
            The query of a stream, else None.

        Raises:
            ChangelogError: The target cannot take the changes; or an older checkpoint was restored than the table has
                seen.
        """
        spark = self.df.sparkSession
        if not self.df.isStreaming:
            given = {"checkpoint": checkpoint, "trigger": trigger, "name": name, "output_mode": output_mode}
            if surplus := [f"{key}=" for key, value in given.items() if value is not None]:
                raise ChangelogError(f"{self._name} is no stream, and {listing(surplus)} is a stream's; leave it out")
            target.check(spark, streaming=False)
            self._apply(self.df, target, batch)
            return None
        if checkpoint is None:
            raise ChangelogError(f"{self._name} is a stream; give checkpoint=, the folder of the query's progress")
        if batch is not None:
            raise ChangelogError(f"{self._name} is a stream, which numbers its batches itself; leave batch= out")
        if output_mode == "complete":
            raise ChangelogError(
                f"{self._name}: the output mode 'complete' gives all rows with each batch, and no change; use 'update'"
            )
        target.check(spark, streaming=True)
        folder = folder_of(spark, checkpoint)
        self._check_progress(folder, target)
        mode = output_mode or ("update" if aggregates(self.df) else "append")
        writer: list[str] = []

        def apply(rows: DataFrame, number: int) -> None:
            if not writer:
                writer.append(_query_id(folder) or "")
            self._apply(rows, target, Batch(writer[0], number))

        return started(self.df.writeStream.outputMode(mode).foreachBatch(apply), checkpoint, trigger, name)

    def _check_progress(self, folder: Folder, target: Target) -> None:
        """See that checkpoint and table know of the same batches, but for the one that was cut off."""
        id_ = _query_id(folder)
        if id_ is None:
            return
        planned, done = last_batches(folder)
        found = target.applied(self.df.sparkSession, id_)
        applied = -1 if found is None else found
        fix = "begin with a new checkpoint, which applies all changes from the start of the read"
        if applied > planned:
            raise ChangelogError(
                f"{self._name}: {target!r} has batch {applied} of the query of {folder.place}, and this checkpoint "
                f"knows {planned} at most: an older copy of it was restored, and batches of the same numbers would "
                f"have other rows; restore the newest copy, or {fix}"
            )
        if applied < done:
            has = "no batch" if found is None else f"batch {applied}, and no later one,"
            raise ChangelogError(
                f"{self._name}: {target!r} has {has} of the query of {folder.place}, and this checkpoint says that "
                f"{done} is done: it is another table, or one that was emptied or set back, and would lack the changes "
                f"between; go on with the table that has them, or {fix}"
            )

    def _apply(self, rows: DataFrame, target: Target, batch: Batch | None) -> None:
        last = last_changes(rows, self.keys, self.order_by).persist()
        try:
            last.count()  # works it out once, whatever the target does with it
            target.apply(last, self.keys, batch)
        finally:
            last.unpersist()


def _query_id(folder: Folder) -> str | None:
    """The id of a checkpoint's query; None before its first start."""
    text = folder.read("metadata")
    return None if text is None else str(json.loads(text)["id"])
