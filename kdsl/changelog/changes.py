"""A changelog: the last change of each key, and how it is applied to a target."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, overload

import attrs

from kdsl.changelog.content import compute_content, compute_content_of_micro_batch, read_query_id
from kdsl.changelog.same_table import TableGuard
from kdsl.changelog.target import Batch, Target
from kdsl.errors import ChangelogError, listing, nearest
from kdsl.kafka_table import KafkaTable
from kdsl.own_columns import explain_reserved, is_reserved
from kdsl.plan.model import OutputMode
from kdsl.run.checkpoint.checkpoint import Checkpoint
from kdsl.run.checkpoint.state_rows import warn_of_changed_rows
from kdsl.run.dataframes.latest import choose_key, last_changes
from kdsl.run.dataframes.output_mode import aggregates
from kdsl.run.dead_letter_counts import check_letters
from kdsl.run.listeners.start import start_query
from kdsl.run.repeated_events import warn_of_repeated_events
from kdsl.run.session import check_spark
from kdsl.table import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery


class Changelog:
    """The changes of a table by key, as a read returns them.

    Args:
        df: The changes, a batch or a stream: ``_row_kind`` and the table's columns. Without ``_row_kind`` each row is
            the current row of its key, as in an aggregation.
        table: The table of the changes, which determines the key: its primary key, or else its message key.
        keys: The columns of the key, if there is no table, or to use others.
        order_by: The columns that order the changes of a key. Required if the DataFrame's own order is not that of the
            changes: its rows were shuffled, or a key comes from several partitions of the topic.

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
        """Choose the key, and check that the DataFrame has the columns of ``keys`` and ``order_by``.

        Raises:
            KdslError: There is no key.
            ChangelogError: A column is missing, or has a name that is reserved for kdsl.
        """
        declared = Table(table.definition()) if isinstance(table, type) else table
        self._name = declared.name if declared is not None else "the changelog"
        self.df = df
        self.keys = choose_key(None if declared is None else declared.definition, keys)
        self.order_by = tuple(map(str, [order_by] if isinstance(order_by, str) else order_by))
        for name in filter(is_reserved, df.columns):
            raise ChangelogError(f"{self._name}: {explain_reserved(name)}; rename the column")
        for name in (*self.keys, *self.order_by):
            if name not in df.columns:
                raise ChangelogError(
                    f"{self._name}: the DataFrame has no column {name!r}{nearest(name, df.columns)}; it has "
                    f"{listing(df.columns)}"
                )

    def dedupe(self) -> DataFrame:
        """Compute the last change of each key: ``+U`` with the current row of the key, or ``-D``.

        The job fails for a NULL in a key column, and for an unknown row kind.

        Raises:
            ChangelogError: The DataFrame is a stream, whose last changes are known only within a batch.
        """
        if self.df.isStreaming:
            raise ChangelogError(
                f"{self._name} is a stream, and the last change of a key is known only within a batch; call dedupe() "
                "on the batches in foreachBatch, or declare changelog='upsert' for an upsert table"
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
        adopt: bool = False,
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
        adopt: bool = False,
    ) -> StreamingQuery | None:
        """Apply the changes to a table, which then has the last row of each key.

        Each batch of a stream is written in one transaction with its number. A batch that is repeated after a failure,
        or by a driver that was presumed dead, changes nothing. A warning is logged if the stream aggregates change data
        whose events may be repeated. The target may attach its jars to the session (`Target.check`).

        Args:
            target: `delta`, `jdbc`, `memory`, or any other `Target`.
            batch: For a batch DataFrame that may be repeated, as in your own ``foreachBatch``: its identity. Each
                ``apply_to`` of the function to the same target needs its own writer.
            checkpoint: For a stream: the checkpoint folder of the query.
            trigger: For a stream: arguments of Spark's ``trigger``.
            name: For a stream: the query's name.
            output_mode: For a stream: Spark's output mode; None means ``update`` for an aggregation, else ``append``.
            adopt: For a stream: continue with the table as it is, although it is not the one that earlier batches were
                applied to, has fewer batches than the checkpoint, or has lost rows of them.

        Returns:
            The query of a stream, else None.

        Raises:
            ChangelogError: An argument is only for streams, or not for them, or is missing; the output mode is
                ``complete``; the target does not support the changes; the checkpoint and the table do not belong
                together; the table has another batch with the number; or the changes cannot be applied. Other errors of
                the target and of Spark are passed on; those of a stream end the query.
            CheckpointError: The checkpoint cannot be read.
            DeadLetterError: The batch has more dead letters than its tables allow.
            SparkVersionError: kdsl does not support the session's Spark.
        """
        spark = self.df.sparkSession
        check_spark(spark)
        if not self.df.isStreaming:
            options: dict[str, object] = {"checkpoint": checkpoint, "trigger": trigger, "name": name}
            options |= {"output_mode": output_mode, "adopt": adopt or None}
            if surplus := [f"{key}=" for key, value in options.items() if value is not None]:
                raise ChangelogError(
                    f"{self._name} is not a stream; omit {listing(surplus)}, which is only for streams"
                )
            target.check(self.df)
            if batch is not None and not batch.content:
                batch = attrs.evolve(batch, content=compute_content_of_micro_batch(self.df, batch.number))
            self._apply(self.df, target, batch)
            return None
        if checkpoint is None:
            raise ChangelogError(f"{self._name} is a stream; pass checkpoint=, the checkpoint folder of the query")
        if batch is not None:
            raise ChangelogError(f"{self._name} is a stream, which numbers its batches itself; omit batch=")
        if output_mode == "complete":
            raise ChangelogError(
                f"{self._name}: the output mode 'complete' returns all rows in each batch, not changes; use 'update'"
            )
        target.check(self.df)
        warn_of_repeated_events(self.df, repr(target))
        opened = Checkpoint.open(spark, checkpoint)
        warn_of_changed_rows(self.df, opened, self._name)
        if not adopt:
            self._check_progress(opened, target)
        guard = TableGuard(opened.folder, target, adopt=adopt)
        mode = output_mode or ("update" if aggregates(self.df) else "append")
        writer: list[str] = []

        def apply(rows: DataFrame, number: int) -> None:
            if not writer:
                writer.append(read_query_id(opened) or "")
            guard.check(spark, number)
            previous = number - 1 if number else None
            content = compute_content(writer[0], opened, number)
            self._apply(rows, target, Batch(writer[0], number, content, previous, adopt=guard.adopts))
            guard.keep(spark)

        return start_query(self.df.writeStream.outputMode(mode).foreachBatch(apply), checkpoint, trigger, name)

    def _check_progress(self, checkpoint: Checkpoint, target: Target) -> None:
        """Check that checkpoint and table have the same batches, except one that was interrupted.

        A checkpoint without a query is not compared.
        """
        id_ = read_query_id(checkpoint)
        if id_ is None:
            return
        planned, done = checkpoint.last_batches()
        last = target.last_batch(self.df.sparkSession, id_)
        applied = -1 if last is None else last
        fix = "start with a new checkpoint, which applies all changes from the start of the read"
        if applied > planned:
            raise ChangelogError(
                f"{self._name}: {target!r} has batch {applied} of the query of {checkpoint.location}, but the last "
                f"batch of this checkpoint is {planned}: an older copy of the checkpoint was restored, and batches "
                f"with the same numbers would have other rows; restore its newest copy, or {fix}"
            )
        if applied < done:
            has = "no batch" if last is None else f"batch {applied}, and no later one,"
            raise ChangelogError(
                f"{self._name}: {target!r} has {has} of the query of {checkpoint.location}, but this checkpoint "
                f"records that batch {done} was applied: the target is another table, or it was emptied or restored, "
                f"and would miss the changes between; continue with the table that has them, or {fix}; or accept the "
                "table as it is, without these changes, with adopt=True"
            )

    def _apply(self, rows: DataFrame, target: Target, batch: Batch | None) -> None:
        """Compute the last change of each key once, and apply the changes to the target.

        The changes are cached meanwhile. DeadLetterError if the rows have more dead letters than their table allows;
        nothing is applied then.
        """
        last = last_changes(rows, self.keys, self.order_by).persist()
        try:
            last.count()  # computes the changes once, however often the target reads them
            check_letters(rows)
            target.apply(last, self.keys, batch)
        finally:
            last.unpersist()
