"""Everything that can be done with a declared table, however it was declared.

Table classes have these methods, too (`kdsl.kafka_table`); tables from YAML and SQL are used through `Table` itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from kdsl.cluster import Cluster, Registry
from kdsl.declare.definition import TableDef
from kdsl.declare.document import load_definitions
from kdsl.declare.start_and_end import Checkpoint, StartAt, Startup
from kdsl.extras import explain_missing_package
from kdsl.formats import ROW_KIND, Direction
from kdsl.plan import schema as schemas
from kdsl.plan.change_columns import add_commit_columns
from kdsl.plan.model import ReadPlan, WritePlan
from kdsl.plan.plan_table import choose_cluster, plan_read, plan_write
from kdsl.plan.show import show

if TYPE_CHECKING:
    from datetime import timedelta

    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from kdsl.plan.changes import AllowedChanges
    from kdsl.plan.model import OutputMode
    from kdsl.run.arrow.batches import Batches
    from kdsl.run.arrow.produce import ProduceResult


@attrs.frozen
class Table:
    """A declared table with its operations.

    Attributes:
        definition: The declaration.
    """

    definition: TableDef

    @property
    def name(self) -> str:
        """The table's name."""
        return self.definition.name

    def _repr_html_(self) -> str:
        """The columns as notebooks show them, with the topics in the caption."""
        return self.definition.to_html()

    @explain_missing_package("a schema of Spark's")
    def schema(self) -> StructType:
        """The schema of the DataFrame that a read returns.

        Raises:
            ResolveError: The table cannot be read.
        """
        return schemas.schema(self.definition)

    @explain_missing_package("a schema of Spark's")
    def key_schema(self) -> StructType:
        """The schema of the message key with the names on the wire; empty if no column is in the key.

        Raises:
            ResolveError: The table cannot be read.
        """
        return schemas.key_schema(self.definition)

    @explain_missing_package("a schema of Spark's")
    def value_schema(self) -> StructType:
        """The schema of the message value with the names on the wire; empty if no column is in the value.

        Raises:
            ResolveError: The table cannot be read.
        """
        return schemas.value_schema(self.definition)

    def read_plan(self, columns: Iterable[str] | None = None, cluster: Cluster | None = None) -> ReadPlan:
        """The plan of a read, as a frozen value; see `kdsl.plan.build.read_plan`.

        Args:
            columns: The wanted columns; None means all.
            cluster: The cluster whose client properties are added (the group id, the reset policy), or None.

        Raises:
            ResolveError: The table cannot be read, or the settings of the cluster are invalid.
            KdslError: A wanted column does not exist.
        """
        return plan_read(self.definition, cluster, columns, log=False)

    def write_plan(self, cluster: Cluster | None = None) -> WritePlan:
        """The plan of a write, as a frozen value.

        Args:
            cluster: The cluster whose client properties are added, or None.

        Raises:
            ResolveError: The table cannot be written, or the settings of the cluster are invalid.
        """
        return plan_write(self.definition, cluster, log=False)

    def explain(
        self, direction: Direction = "read", cluster: Cluster | None = None, checkpoint: str | None = None
    ) -> str:
        """The plan of a direction as readable lines; needs neither Java nor a broker.

        Args:
            direction: ``"read"`` or ``"write"``.
            cluster: The cluster whose client properties are added, or None.
            checkpoint: The checkpoint of a stream that keeps the last row of each key: it says how that is found.

        Raises:
            ResolveError: The table is invalid in that direction, or the settings of the cluster are.
            CheckpointError: The checkpoint keeps no rows of the table.
            ValueError: There is no such direction.
        """
        if direction not in ("read", "write"):
            raise ValueError(f"the direction is 'read' or 'write', not {direction!r}")
        if direction == "write" or checkpoint is None:
            return show(self.read_plan(cluster=cluster) if direction == "read" else self.write_plan(cluster))
        from kdsl.run.checkpoint.stored_routing import describe_stored_routing

        plan = self.read_plan(cluster=cluster)
        return show(plan, describe_stored_routing(plan, checkpoint))

    def to_arrow(
        self,
        cluster: Cluster | None = None,
        *,
        columns: Iterable[str] | None = None,
        start_at: Startup | None = None,
        limit: int | None = None,
        snapshot: bool = False,
        time_zone: str = "UTC",
    ) -> pa.Table:
        """Read the topic once in this process, without Spark and Java, to an Arrow table in memory.

        It has the rows of `read`; pandas, polars and DuckDB take them as they are. Nothing is committed to a group.

        Args:
            cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
            columns: The wanted columns; only what they need is decoded. None means all.
            start_at: Where to start, instead of where the table declares: a mode, an aware datetime, or offsets.
            limit: The most rows; None is all.
            snapshot: Whether an upsert table gives its present rows instead of changes.
            time_zone: The time zone in which timestamps of records become wall-clock times, dates and strings.

        Raises:
            ResolveError: As for `read`, or only Spark can compute a wanted column or log in to the cluster.
            KdslError: As for `read`, or rows of a snapshot have no key. That of a record names its offset.
        """
        from kdsl.run.arrow.read import read_snapshot, read_table

        plan = plan_read(self.definition, cluster, columns, start_at=start_at)
        read = read_snapshot if snapshot else read_table
        return read(self.definition, plan, self.cluster(cluster), zone=time_zone, limit=limit)

    def iter_batches(
        self,
        cluster: Cluster | None = None,
        *,
        columns: Iterable[str] | None = None,
        start_at: Startup | None = None,
        follow: bool = False,
        idle_timeout: timedelta | float | None = None,
        limit: int | None = None,
        commit: bool = True,
        time_zone: str = "UTC",
    ) -> Batches:
        """Read the topic in this process, without Spark and Java, as Arrow record batches.

        Batches are decoded when they are asked for, so memory does not grow with the topic; but the last row of each
        key of an upsert table is in memory, unless ``changelog='upsert'``. Dead letters are written before the batch of
        their records is returned. Offsets are committed at least once to the group that the table declares, as
        `Batches` says; with ``start_at="group-offsets"`` the next read continues there.

        Args:
            cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
            columns: As for `to_arrow`, as is ``start_at``.
            start_at: Where to start.
            follow: Whether to wait for new records, also of new partitions, until `Batches.stop` is called, or the end
                that the table declares is reached. Otherwise the read ends where the partitions end when it begins.
            idle_timeout: After how many seconds without a record a read that follows ends; None is never.
            limit: The most rows; None is all.
            commit: Whether offsets are committed if the table declares a consumer group.
            time_zone: As for `to_arrow`.

        Raises:
            KdslError: As for `to_arrow`; errors of brokers and records come with the batches.
        """
        from kdsl.run.arrow.batches import ReadOptions
        from kdsl.run.arrow.read import open_batches

        plan = plan_read(self.definition, cluster, columns, start_at=start_at)
        options = ReadOptions(time_zone, follow=follow, idle_timeout=idle_timeout, limit=limit, commits=commit)
        return open_batches(self.definition, plan, self.cluster(cluster), options)

    def produce(
        self, rows: object, cluster: Cluster | None = None, *, transaction: bool | None = None
    ) -> ProduceResult:
        """Write rows in this process, without Spark and Java, and wait until Kafka has acknowledged their records.

        The guarantee is the one that the table declares, by default at least once: after an error, some rows may be in
        the topic. A missing topic is created as by `write`.

        Args:
            rows: Arrow data (anything with ``__arrow_c_stream__``: pyarrow, polars, pandas), or an iterable of dicts,
                rows of the table class, named tuples, dataclasses or attrs instances. Columns are matched by name.
            cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
            transaction: Whether all rows are written in one transaction, which shows all of them or none; None: if the
                table declares exactly-once.

        Returns:
            How many records were written, the last offset of each partition, and which rows were left out.

        Raises:
            ResolveError: As for `write`, or the cluster needs Java's clients.
            RowError: An object is not a row, or a value does not fit its column.
            ExactlyOnceError: The transaction failed; the message says whether rows may be visible.
            KdslError: Kafka refuses a record (a RecordError) or cannot be reached, or the topic does not exist.
        """
        from kdsl.run.arrow.produce import produce_rows

        plan = plan_write(self.definition, cluster)
        in_transaction = plan.delivery == "exactly-once" if transaction is None else transaction
        return produce_rows(self.definition, plan, self.cluster(cluster), rows, transaction=in_transaction)

    @explain_missing_package("a read with Spark")
    def read(
        self,
        spark: SparkSession,
        cluster: Cluster | None = None,
        *,
        columns: Iterable[str] | None = None,
        start_at: StartAt | None = None,
        change_columns: bool = False,
    ) -> DataFrame:
        """Read the topic once, from the start to the end that the table declares; by default to the current ends.

        The records are read when an action runs. Warnings about the table are logged, each once in a process. The
        session gets kdsl's data source, or with the transport ``jvm`` Spark's Kafka connector; a classic one also gets
        accumulators for the reports of tasks.

        Args:
            spark: The session.
            cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
            columns: The wanted columns; only what they need is decoded. None means all.
            start_at: Where to start this read, instead of where the table declares: a mode, an aware datetime, or the
                offset of each partition; or the `kdsl.Checkpoint` of another query, where that has stopped.
            change_columns: Whether a changelog has Spark's change columns instead of ``_row_kind``, after its own:
                ``_change_type`` (``insert``, ``update_preimage``, ``update_postimage``, ``delete``),
                ``_commit_version`` (the offset of the record) and ``_commit_timestamp`` (its timestamp). Of upserts
                (``changelog='upsert'``) an upsert is an ``update_postimage``, also if it inserts.

        Raises:
            ResolveError: The table cannot be read, or not from there, its cluster is unknown or invalid, or its rows
                have no change columns.
            KdslError: A wanted column does not exist, kdsl does not support the session, or dead letters cannot be
                written. At the latest when Spark plans the read: the brokers refuse or cannot be reached, a topic is
                missing, or a start offset does not exist. A record that cannot be read fails the Spark job with a
                RecordError that names topic, partition and offset, unless the table declares dead letters.
        """
        from kdsl.run.dataframes.change_columns import with_change_columns
        from kdsl.run.dataframes.computed_columns import list_column_makers
        from kdsl.run.read import read

        plan = plan_read(self.definition, cluster, columns, start_at=start_at)
        plan = add_commit_columns(plan) if change_columns else plan
        rows = read(spark, plan, self.cluster(cluster), computed=list_column_makers(self.definition))
        return with_change_columns(rows, plan) if change_columns else rows

    @explain_missing_package("a read with Spark")
    def read_stream(
        self,
        spark: SparkSession,
        cluster: Cluster | None = None,
        *,
        columns: Iterable[str] | None = None,
        start_at: StartAt | None = None,
        change_columns: bool = False,
        name: str | None = None,
        checkpoint: str | None = None,
    ) -> DataFrame:
        """Read the topic as a stream; the offsets of a checkpoint override every other start.

        Warnings about the table are logged, each once in a process. The session gets kdsl's data source, or with the
        transport ``jvm`` Spark's Kafka connector, and a listener that commits offsets and reports metrics; a classic
        one also gets accumulators for the reports of tasks. If the last row of each key is kept for before-images, keys
        of the topic are looked at once, unless the table declares how they are found (``changelog_state``).

        Args:
            spark: The session.
            cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
            columns: The wanted columns; only what they need is decoded. None means all.
            start_at: Where to start without a checkpoint, instead of where the table declares: a mode, an aware
                datetime, the offset of each partition, or the `kdsl.Checkpoint` of another query, where that has
                stopped.
            change_columns: Whether a changelog has Spark's change columns instead of ``_row_kind``, as for `read`.
            name: The name of the source in the checkpoint, where Spark names sources (Spark 4.2 with
                ``spark.sql.streaming.queryEvolution.enableSourceEvolution``); None is the table's name. Needed for a
                query that reads a table twice.
            checkpoint: The checkpoint of the query: after the first start it says how rows are found, instead of keys.

        Raises:
            ResolveError: The table cannot be read, or not from there, its cluster is unknown or invalid, or its rows
                have no change columns.
            KdslError: A wanted column does not exist, kdsl does not support the session, or dead letters cannot be
                written. At the latest when the query starts: the brokers refuse or cannot be reached, a topic is
                missing, a start offset does not exist, or the consumer group is in use although the table checks that.
                A record that cannot be read fails the query as in `read`.
        """
        from kdsl.run.dataframes.change_columns import with_change_columns
        from kdsl.run.dataframes.computed_columns import list_column_makers
        from kdsl.run.read import read_stream

        plan = plan_read(self.definition, cluster, columns, start_at=start_at)
        plan = add_commit_columns(plan) if change_columns else plan
        computed, at = list_column_makers(self.definition), self.cluster(cluster)
        rows = read_stream(spark, plan, at, computed=computed, name=name, checkpoint=checkpoint)
        return with_change_columns(rows, plan) if change_columns else rows

    @explain_missing_package("a condition of Spark's")
    def unread_by(
        self,
        spark: SparkSession,
        checkpoint: Checkpoint,
        *,
        partition: Column,
        offset: Column,
        topic: Column | None = None,
        cluster: Cluster | None = None,
    ) -> Column:
        """Return the condition that the query of another checkpoint has not read a record of this table.

        It keeps those results of a new query that the query of the checkpoint has not written, if the new one starts
        before the place where that has stopped (`Checkpoint.rewind`), to fill its state:

        ```python
        new = Orders.unread_by(spark, old, partition=o.partition, offset=o.offset)
        new = new | Payments.unread_by(spark, old, partition=p.partition, offset=p.offset)
        joined = orders.join(payments, …).where(new)
        ```

        Args:
            spark: The session.
            checkpoint: The checkpoint of the other query, which reads this table.
            partition: The column with the partition of the record, the metadata ``partition``.
            offset: The column with its offset, the metadata ``offset``.
            topic: The column with its topic, the metadata ``topic``; needed if the table may have several topics.
            cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.

        Returns:
            A condition that is false where the columns are NULL.

        Raises:
            ResolveError: The table cannot be read, or its cluster is unknown or invalid.
            CheckpointError: The checkpoint cannot be read, has no completed batch or does not read the table; or
                ``topic`` is needed.
        """
        from kdsl.run.checkpoint.start import unread_by

        plan = self.read_plan(cluster=cluster)
        return unread_by(spark, plan, checkpoint.location, partition=partition, offset=offset, topic=topic)

    @explain_missing_package("a write with Spark")
    def write(
        self, df: DataFrame, cluster: Cluster | None = None, *, write_id: str | None = None, adopt: bool = False
    ) -> None:
        """Append the rows of a DataFrame to the topic, at least once or as the table declares; columns match by name.

        A missing topic is created if the brokers and the client property ``allow.auto.create.topics`` (true by default)
        allow it. Warnings about the table are logged, each once in a process; and rows that are left out or violate
        rules. The session gets kdsl's data source, and the process a temporary folder until it ends; with the transport
        ``jvm`` the session gets Spark's Kafka connector instead.

        Args:
            df: A batch DataFrame with the table's physical and writable metadata columns.
            cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
            write_id: The name of an exactly-once write that may be repeated: a finished write is not repeated, however
                long ago it was. Needed within ``foreachBatch``, where each write of the function has its own.
            adopt: Take over an exactly-once prefix that another query used, or whose tokens are lost; a write that is
                recorded as done is then not compared with this one.

        Raises:
            ResolveError: The table cannot be written, its cluster is unknown or invalid, or columns are missing,
                unknown or of other types (all are listed).
            KdslError: The DataFrame is a stream, ``write_id`` is given without exactly-once, kdsl does not support the
                session, the partitioner cannot be imported, the brokers refuse or cannot be reached, or the topic does
                not exist and is not created.
            ExactlyOnceError: The write cannot be exactly once.
            WriteError: A task failed with an error of kdsl, for example because a row cannot be written; some rows may
                be in the topic. Other failures of tasks are raised as Spark's exceptions.
        """
        from kdsl.run.write import write

        plan = plan_write(self.definition, cluster)
        write(df, plan, self.cluster(cluster), write_id=write_id, adopt=adopt)

    @explain_missing_package("a write with Spark")
    def write_stream(
        self,
        df: DataFrame,
        cluster: Cluster | None = None,
        *,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        output_mode: OutputMode | None = None,
        adopt: bool = False,
        allow: AllowedChanges = False,
    ) -> StreamingQuery:
        """Start a query that appends a streaming DataFrame to the topic, at least once or as the table declares.

        The plan of the write is stored in the checkpoint; a change of it since the last run is logged. A missing topic
        is created as by `write`. Warnings about the table are logged, each once in a process. The session gets kdsl's
        data source, or with the transport ``jvm`` Spark's Kafka connector, and a listener that reports metrics; the
        process gets temporary folders until it ends.

        Args:
            df: A streaming DataFrame with the table's physical and writable metadata columns.
            cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
            checkpoint: The folder of the query's progress.
            trigger: Arguments of Spark's ``trigger``: ``{"availableNow": True}``, ``{"processingTime": "10 seconds"}``.
            name: The query's name.
            output_mode: Spark's output mode; None is ``append``, and for an upsert table ``update`` where the query
                aggregates.
            adopt: Take over an exactly-once prefix that another query used, or whose tokens are lost.
            allow: What may differ from the plan that wrote the checkpoint: ``"topic"``, ``"key"``, ``"format"``,
                ``"prefix"``, several of them, or True for all.

        Raises:
            ResolveError: As for `write`.
            KdslError: The DataFrame is not a stream, the table does not accept the output mode or the trigger; or as
                for `write`.
            CheckpointError: The checkpoint was written by another plan, or cannot be read or written.
            ExactlyOnceError: The write cannot be exactly once.
        """
        from kdsl.run.write import write_stream

        return write_stream(
            df,
            plan_write(self.definition, cluster),
            self.cluster(cluster),
            checkpoint=checkpoint,
            trigger=trigger,
            name=name,
            output_mode=output_mode,
            adopt=adopt,
            allow=allow,
        )

    @explain_missing_package("a read with Spark")
    def snapshot(
        self, spark: SparkSession, cluster: Cluster | None = None, *, keys: Iterable[str] | None = None
    ) -> DataFrame:
        """Read the current rows of a changelog: the last row of each key at the end of a bounded read.

        The session changes and warnings are logged as by `read`.

        Args:
            spark: The session.
            cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.
            keys: The columns of the key, instead of the primary key or else the message key that the table declares.

        Returns:
            The table's columns, without ``_row_kind``.

        Raises:
            ResolveError: The table cannot be read, or its cluster is unknown or invalid.
            KdslError: Its rows are not changes, there is no key, a column of ``keys`` does not exist, or as for `read`.
        """
        from kdsl.run.dataframes.computed_columns import list_column_makers
        from kdsl.run.dataframes.latest import choose_key_of_changelog, last_changes
        from kdsl.run.read import read

        key = choose_key_of_changelog(self.definition, keys)
        plan = plan_read(self.definition, cluster)
        by_key = plan.upserts is not None and set(key) == set(plan.upserts.keys)
        if plan.upserts is not None and by_key:  # without before-images, a read returns the last change of each key
            plan = attrs.evolve(plan, upserts=attrs.evolve(plan.upserts, images=False))
        changes = read(spark, plan, self.cluster(cluster), computed=list_column_makers(self.definition))
        last = changes if by_key else last_changes(changes, key)
        return last.where(f"{ROW_KIND} <> '-D'").drop(ROW_KIND)

    @explain_missing_package("a read with Spark")
    def dead_letters(self, spark: SparkSession, cluster: Cluster | None = None) -> DataFrame:
        """Read the dead letters of the table: the records that reads of it could not read, with the reasons.

        A record that was read several times, for example by two actions, may have several letters. `decode` reads the
        records again, with a corrected table. Letters are read by librdkafka, also for a table with the transport
        ``jvm``, but on Spark 3.5 by that transport; the session changes as by a `read`.

        Args:
            spark: The session.
            cluster: The cluster of the topic; not needed if the table sets ``properties.bootstrap.servers``.

        Returns:
            The columns ``table``, ``side``, ``reason``, ``attempts``, and of the original record ``topic``,
            ``partition``, ``offset``, ``timestamp``, ``headers``, ``key`` and ``value``.

        Raises:
            ResolveError: The table cannot be read, or its cluster is unknown or invalid.
            KdslError: The table declares no dead letters, or kdsl does not support the session. At the latest when
                Spark plans the read: their topic does not exist, or the brokers refuse or cannot be reached.
        """
        from kdsl.run.read_letters import read_letters

        return read_letters(spark, self.read_plan(cluster=cluster), self.cluster(cluster))

    @explain_missing_package("decoding a DataFrame")
    def decode(self, df: DataFrame, registry: Registry | str | None = None) -> DataFrame:
        """Decode a DataFrame of raw Kafka records into the table's rows, without a broker.

        A classic session gets an accumulator for what the tasks leave out, unless its metrics are switched off.

        Args:
            df: Columns as Spark's own Kafka source names them: ``key``, ``value`` and, if the table needs them,
                ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType``, ``headers``.
            registry: The schema registry, or its address, if a format needs one and does not name it; its secrets
                are references (``${env:NAME}``).

        Raises:
            ResolveError: The table cannot be read, or a format needs a registry that neither it nor the argument names,
                or one of its secrets is not a reference.
            KdslError: A column that the table needs is missing, or does not have the type of Kafka's records; or kdsl
                does not support the session.

        A record that cannot be read fails the Spark job, also if the table declares dead letters.
        """
        from kdsl.run.dataframes.computed_columns import list_column_makers
        from kdsl.run.read import decode

        used = Registry(registry) if isinstance(registry, str) else registry
        return decode(df, self.read_plan(), computed=list_column_makers(self.definition), registry=used)

    @explain_missing_package("encoding a DataFrame")
    def encode(self, df: DataFrame, registry: Registry | str | None = None) -> DataFrame:
        """Encode the table's rows into raw Kafka records, without a broker.

        A classic session gets an accumulator for what the tasks leave out, which is logged.

        Args:
            df: The table's physical and writable metadata columns.
            registry: The schema registry, as in `decode`.

        Returns:
            The columns ``key``, ``value`` and ``topic``, and ``headers`` and ``timestamp`` if the table writes them.

        Raises:
            ResolveError: The table cannot be written, columns are missing, unknown or of other types (all are listed),
                or the registry is missing or has a literal secret, as in `decode`.
            KdslError: kdsl does not support the session.

        A row that cannot be encoded fails the Spark job.
        """
        from kdsl.run.write import encode

        used = Registry(registry) if isinstance(registry, str) else registry
        return encode(df, self.write_plan(), registry=used)

    def cluster(self, cluster: Cluster | None = None) -> Cluster:
        """Return the cluster of a run: the argument with the client properties of the table added, or the table's own.

        A table's ``bootstrap.servers`` are used only without an argument, and its other properties override those of
        the argument. Of a table with exactly-once delivery only committed records are read, unless the table or the
        argument sets ``isolation.level``. The settings of the table's own cluster are not checked here.

        Args:
            cluster: The given cluster, or None.

        Raises:
            ResolveError: The brokers are not known, or the settings of the given cluster are invalid.
        """
        return choose_cluster(self.definition, cluster)


def load_tables(path: str | Path) -> list[Table]:
    """The tables that a YAML file declares, ready for use.

    The document contains ``tables:``, a list of tables, or one table by itself; options have Flink's keys, and types
    are written in Flink's SQL (`kdsl.declare.config.TableConfig`).

    Args:
        path: The file.

    Raises:
        ResolveError: The document is not UTF-8 or not YAML, or has another structure; every error with its path and
            line. Mistakes in a table itself are reported when it is resolved.
        OSError: The file cannot be read.
    """
    return [Table(definition) for definition in load_definitions(path)]
