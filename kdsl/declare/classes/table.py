"""The base of all table classes: a class statement declares a table, its class methods read and write it.

Declaring only records (`kdsl.declare.classes.statement`); everything that is done with a table is done by
`kdsl.table.Table`, which is reached when a method is called.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, dataclass_transform

from kdsl.declare.classes import rows as row_classes
from kdsl.declare.classes.columns import col, metadata, virtual
from kdsl.declare.classes.computed import expression
from kdsl.declare.classes.define import attributes, definition as define
from kdsl.declare.classes.statement import record_statement
from kdsl.declare.connector import (
    ChangelogMode,
    Delivery,
    EmitStrategy,
    ExactlyOnce,
    KafkaOptions,
    Latency,
    Naming,
    Transport,
    UpsertOptions,
    ValueFields,
)
from kdsl.declare.definition import TableDef
from kdsl.declare.moments import Bounded, Startup
from kdsl.errors import fail_on
from kdsl.formats import Direction, Format

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.types import StructType

    from kdsl.cluster import Cluster, Registry
    from kdsl.partitioner import Partitioner
    from kdsl.run.checkpoint.kept import Allowed
    from kdsl.table import OutputMode, Table

_DEFINITION = "__kdsl_definition__"


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(col, metadata, virtual, expression))
class KafkaTable:
    """A Kafka topic as a table. A subclass declares one; its instances are rows.

    ```python
    class Orders(KafkaTable, topic="orders", key=Json(), value=Json(), key_prefix="k_", value_fields="EXCEPT_KEY"):
        k_user_id: Key[int]
        amount: Col[Decimal] = col(type="decimal(10, 2)")
        placed_at: Col[datetime] = metadata("timestamp", watermark="5 seconds")
        offset: Virtual[int] = virtual("offset")
    ```

    Read from the class, a column is a reference that pyspark takes as a column (`Ref`); read from a row, it is a value.
    Columns stand in the order of their annotations, computed ones after them. A table class may inherit from another;
    one without a topic serves as a common part. Where the topic lives is said when it is read or written.

    Args:
        topic: The topic, or several: a list, or a text separated by ``;``.
        topic_pattern: Instead of names, a regular expression that the whole name of a topic must match.
        name: The table's name where it is not that of the class, as one that a catalog knows it by.
        comment: What the table means, where the docstring of the class says something else.
        key: The format of the message key, or its name.
        value: The format of the message value, or its name.
        key_fields: The columns of the message key in its order, where that is not the order of those marked ``Key``.
        primary_key: The columns of the primary key in order, where ``PrimaryKey`` does not mark them.
        key_prefix: A prefix of the key columns' names that the message key itself does not have. Needs EXCEPT_KEY.
        value_prefix: A prefix of the value columns' names that the message value itself does not have.
        value_fields: Whether the key columns stand in the message value, too.
        startup: Where a read without a checkpoint starts: a mode, an aware datetime, or the offset of each partition.
        bounded: Where a read ends by itself: a mode, an aware datetime, or for each partition the offset that is not
            read any more. By default a batch ends at the latest offsets, and a stream does not end.
        group_id: The consumer group; for a table without one ``KafkaSource-<table>``.
        check_group: Refuse to start a stream while somebody else uses the group.
        header_filter: Keep the records whose headers match, as ``"depart:toy|depart:book&!env:test"``.
        scan_parallelism: How many tasks a read is cut into at most; by default twice the cores.
        discovery: How often a stream looks for new partitions and topics; zero or less: never.
        max_records_per_trigger: The most records of one micro-batch, over all partitions.
        max_records_per_partition: The most records of one partition in one micro-batch.
        watermark_emit: Taken over from Flink; without effect.
        watermark_group: With ``watermark_drift``: align the partitions as they are read.
        watermark_drift: How far ahead of the slowest partition another one is read; by default the watermark's delay.
        watermark_update: Taken over from Flink; without effect.
        watermark_idle: Taken over from Flink; a silent partition never holds Spark's watermark back.
        partitioner: ``default`` (by the key), ``fixed``, ``round-robin``, or a function of your own (or its name,
            ``package.module:function``), see `kdsl.partitioner`.
        sink_parallelism: How many tasks write; by default as many as the DataFrame has partitions.
        delivery: What a write promises.
        transactional_id_prefix: How the names of an exactly-once sink's transactions begin.
        transaction_naming: Taken over from Flink; without effect.
        exactly_once: ``direct``, or ``staged`` for rows that are not the same when a batch is worked out again.
        transport: The client that reads and writes: ``librdkafka`` or ``jvm``.
        latency: ``micro-batch`` or, with the transport ``jvm``, ``realtime``.
        dew_endpoint: Where the secrets provider ``dew`` finds its service.
        dew_secret: The secret of that service that holds the keys.
        dew_fields: The client properties whose values are keys there, as ``"properties.sasl.jaas.config"``.
        dew_version: The version of that secret.
        properties: Settings of the Kafka client under Java's names.
    """

    __attrs_attrs__: ClassVar[Any] = ()
    __kdsl_options__: ClassVar[type[KafkaOptions]] = KafkaOptions

    if TYPE_CHECKING:

        def __init_subclass__(
            cls,
            *,
            topic: str | Sequence[str] = ...,
            topic_pattern: str = ...,
            name: str = ...,
            comment: str = ...,
            key: Format | str = ...,
            value: Format | str = ...,
            key_fields: Sequence[str] = ...,
            primary_key: Sequence[str] = ...,
            key_prefix: str = ...,
            value_prefix: str = ...,
            value_fields: ValueFields = ...,
            startup: Startup = ...,
            bounded: Bounded = ...,
            group_id: str = ...,
            check_group: bool = ...,
            header_filter: str = ...,
            scan_parallelism: int = ...,
            discovery: timedelta | str = ...,
            max_records_per_trigger: int = ...,
            max_records_per_partition: int = ...,
            watermark_emit: EmitStrategy = ...,
            watermark_group: str = ...,
            watermark_drift: timedelta | str = ...,
            watermark_update: timedelta | str = ...,
            watermark_idle: timedelta | str = ...,
            partitioner: Literal["default", "fixed", "round-robin"] | str | Partitioner = ...,
            sink_parallelism: int = ...,
            delivery: Delivery = ...,
            transactional_id_prefix: str = ...,
            transaction_naming: Naming = ...,
            exactly_once: ExactlyOnce = ...,
            transport: Transport = ...,
            latency: Latency = ...,
            dew_endpoint: str = ...,
            dew_secret: str = ...,
            dew_fields: str = ...,
            dew_version: str = ...,
            properties: Mapping[str, str | int | float | bool] = ...,
        ) -> None: ...

    else:

        def __init_subclass__(cls, **given: Any) -> None:
            super().__init_subclass__()
            if "__kdsl_options__" in vars(cls):  # a kind of tables, and no table
                return
            record_statement(cls, given, _class_statement(sys._getframe(1)), _RESERVED)  # noqa: SLF001
            setattr(cls, row_classes.FIELDS, row_classes.LazyFields())

        def __init__(self, **values: Any) -> None:
            row_classes.fill(self, values)

    def evolve(self, **changes: Any) -> Self:
        """A copy of the row with other values, as ``attrs.evolve`` makes it.

        Raises:
            TypeError: An argument is no column that a row is made with.
        """
        return row_classes.evolve(self, changes)

    @classmethod
    def definition(cls) -> TableDef:
        """What the class declares, with everything that is wrong with it among its problems; see `kdsl.resolve`."""
        found: TableDef | None = vars(cls).get(_DEFINITION)
        if found is None:
            found = define(cls)
            if not attributes(cls)[1]:
                setattr(cls, _DEFINITION, found)
        return found

    @classmethod
    def as_table(cls) -> Table:
        """The table that the class declares, as a value: its plans, its cluster, and all that the class offers."""
        return _table(cls)

    @classmethod
    def schema(cls) -> StructType:
        """The schema of the DataFrame that a read gives.

        Raises:
            ResolveError: The table does not hold.
        """
        return _table(cls).schema()

    @classmethod
    def key_schema(cls) -> StructType:
        """The schema of the message key under the names on the wire; empty where the table has no key.

        Raises:
            ResolveError: The table does not hold.
        """
        return _table(cls).key_schema()

    @classmethod
    def value_schema(cls) -> StructType:
        """The schema of the message value under the names on the wire.

        Raises:
            ResolveError: The table does not hold.
        """
        return _table(cls).value_schema()

    @classmethod
    def explain(cls, direction: Direction = "read", cluster: Cluster | None = None) -> str:
        """The plan of a direction as text; made without Java and without a broker.

        Raises:
            ResolveError: The table does not hold in that direction.
        """
        return _table(cls).explain(direction, cluster)

    @classmethod
    def read(
        cls,
        spark: SparkSession,
        cluster: Cluster | None = None,
        *,
        columns: Iterable[str] | None = None,
        start_at: Startup | None = None,
    ) -> DataFrame:
        """Read the topic once, from the start to the end that the table declares; by default to the ends of now.

        Args:
            spark: The session.
            cluster: Where the topic lives; not needed by a table that carries ``properties.bootstrap.servers``.
            columns: The columns wanted; only what they need is decoded. None is all.
            start_at: Where to start this time, instead of where the table declares; a value of ``startup=``.

        Raises:
            ResolveError: The table cannot be read, or not from there.
            KdslError: The brokers cannot be reached, a topic is missing, or a start offset does not exist. A record
                that cannot be read fails the Spark job with a RecordError that names topic, partition and offset.
        """
        return _table(cls).read(spark, cluster, columns=columns, start_at=start_at)

    @classmethod
    def read_stream(
        cls,
        spark: SparkSession,
        cluster: Cluster | None = None,
        *,
        columns: Iterable[str] | None = None,
        start_at: Startup | None = None,
    ) -> DataFrame:
        """Read the topic as a stream; a checkpoint's offsets come before every other start.

        Args:
            spark: The session.
            cluster: Where the topic lives; not needed by a table that carries ``properties.bootstrap.servers``.
            columns: The columns wanted; only what they need is decoded. None is all.
            start_at: Where to start without a checkpoint, instead of where the table declares; a value of ``startup=``.

        Raises:
            ResolveError: The table cannot be read, or not from there.
        """
        return _table(cls).read_stream(spark, cluster, columns=columns, start_at=start_at)

    @classmethod
    def write(
        cls, df: DataFrame, cluster: Cluster | None = None, *, write_id: str | None = None, adopt: bool = False
    ) -> None:
        """Append the rows of a DataFrame to the topic; columns go by name. At least once, or as the table promises.

        Args:
            df: A batch DataFrame with the table's physical and writable metadata columns.
            cluster: Where the topic lives; not needed by a table that carries ``properties.bootstrap.servers``.
            write_id: Names an exactly-once write that may be made again: one that is done is not done twice. Needed
                within ``foreachBatch``, where each write of the function has its own.
            adopt: Take over an exactly-once prefix of somebody else, or one whose tokens are lost.

        Raises:
            ResolveError: The table cannot be written.
            KdslError: Columns are missing, left over or of other types (all told at once), or the topic does not exist.
        """
        _table(cls).write(df, cluster, write_id=write_id, adopt=adopt)

    @classmethod
    def write_stream(
        cls,
        df: DataFrame,
        cluster: Cluster | None = None,
        *,
        checkpoint: str,
        trigger: Mapping[str, Any] | None = None,
        name: str | None = None,
        output_mode: OutputMode | None = None,
        adopt: bool = False,
        allow: Allowed = False,
    ) -> StreamingQuery:
        """Start a query that appends a streaming DataFrame to the topic, at least once or as the table promises.

        Args:
            df: A streaming DataFrame with the table's physical and writable metadata columns.
            cluster: Where the topic lives; not needed by a table that carries ``properties.bootstrap.servers``.
            checkpoint: The folder of the query's progress.
            trigger: Arguments of Spark's ``trigger``, as ``{"availableNow": True}``.
            name: The query's name.
            output_mode: Spark's output mode; None is ``append``, and for an upsert table ``update`` where the query
                aggregates.
            adopt: Take over an exactly-once prefix of somebody else, or one whose tokens are lost.
            allow: What may differ from the plan that has written the checkpoint: ``"topic"``, ``"key"``, ``"format"``,
                ``"prefix"``, several of them, or True for all.

        Raises:
            ResolveError: The table cannot be written.
            KdslError: As for `write`.
        """
        table = _table(cls)
        return table.write_stream(
            df,
            cluster,
            checkpoint=checkpoint,
            trigger=trigger,
            name=name,
            output_mode=output_mode,
            adopt=adopt,
            allow=allow,
        )

    @classmethod
    def snapshot(
        cls, spark: SparkSession, cluster: Cluster | None = None, *, keys: Iterable[str] | None = None
    ) -> DataFrame:
        """The rows that a changelog leaves: the last row of each key that is there at the end of a bounded read.

        Args:
            spark: The session.
            cluster: Where the topic lives; not needed by a table that carries ``properties.bootstrap.servers``.
            keys: The columns of the key, where the table declares neither a primary key nor a message key.

        Returns:
            The table's columns, without ``_row_kind``; `collect` makes typed rows of them.

        Raises:
            ResolveError: The table cannot be read.
            KdslError: Its rows are no changes, nothing says the key, or as for `read`.
        """
        return _table(cls).snapshot(spark, cluster, keys=keys)

    @classmethod
    def decode(cls, df: DataFrame, registry: Registry | str | None = None) -> DataFrame:
        """Turn a DataFrame of raw Kafka records into the table's rows, without a broker.

        Args:
            df: Columns as Spark's own Kafka source names them: ``key``, ``value`` and, where the table needs them,
                ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType``, ``headers``.
            registry: The schema registry, or its address, where a format needs one and does not name it; its secrets
                are references (``${env:NAME}``).

        Raises:
            ResolveError: The table cannot be read.
            KdslError: A column that the table needs is missing.
        """
        return _table(cls).decode(df, registry)

    @classmethod
    def encode(cls, df: DataFrame, registry: Registry | str | None = None) -> DataFrame:
        """Turn the table's rows into raw Kafka records, without a broker.

        Args:
            df: The table's physical and writable metadata columns.
            registry: The schema registry, as in `decode`.

        Returns:
            The columns ``key``, ``value``, and ``topic``, ``headers``, ``timestamp`` where the table writes them.

        Raises:
            ResolveError: The table cannot be written.
            KdslError: As for `write`.
        """
        return _table(cls).encode(df, registry)

    @classmethod
    def rows(cls, rows: Iterable[Self], *, spark: SparkSession | None = None) -> DataFrame:
        """A DataFrame of typed rows, for tests and small data: the columns that can be written.

        Args:
            rows: The rows, all in the driver's memory.
            spark: The session; by default the active one.

        Raises:
            ResolveError: The columns do not hold.
            RowError: A value is none of its column's type, as None where NULL is not allowed.
        """
        from kdsl.run.frames.rows import data_frame

        fail_on(attributes(cls)[1], cls.__name__)
        return data_frame(cls, rows, spark)

    @classmethod
    def collect(cls, df: DataFrame) -> list[Self]:
        """The rows of a DataFrame as typed rows, in the driver's memory; also virtual and computed columns have values.

        Args:
            df: Columns of the table under their names and with their types. Virtual and computed columns may be
                missing, and columns that have a default.

        Raises:
            ResolveError: The columns do not hold.
            RowError: Columns are missing, left over, or of other types; all are told at once.
        """
        from kdsl.run.frames.rows import collect

        fail_on(attributes(cls)[1], cls.__name__)
        return collect(cls, df)


class UpsertTable(KafkaTable):
    """A Kafka topic as a table by key: a record replaces the row of its key, and a record without a value deletes it.

    ```python
    class Users(UpsertTable, topic="users", key=Json(), value=Json()):
        user_id: PrimaryKey[int]
        name: Col[str | None]
        region: Col[str | None]
    ```

    The columns of the primary key are the message key. A read always begins at the beginning, and gives changes: the
    first column is ``_row_kind`` (``+I``, ``-U``, ``+U``, ``-D``), and ``-U`` and ``-D`` have the row as it was. A
    write takes rows, or changes with ``_row_kind``: what a row is now, and for a delete a record without a value.

    The methods are those of `KafkaTable`, and so are the arguments, but for ``startup``, ``key_fields`` and
    ``partitioner``, which it has not, and for these:

    Args:
        changelog: ``full``: changes with before-images, for which a stream keeps the last row of each key in its state.
            ``upsert``: the last change (``+U`` or ``-D``) of each key in a micro-batch, without state; of a delete only
            the key columns have values.
        changelog_buckets: Over how many buckets the keys are spread; fixed with the checkpoint.
        buffer_rows: How many keys a writing task gathers, keeping the last change of each, before it writes them.
        buffer_interval: How long it gathers at most. All is written at the end of each micro-batch, whatever it is.
    """

    __kdsl_options__ = UpsertOptions

    if TYPE_CHECKING:

        def __init_subclass__(
            cls,
            *,
            topic: str | Sequence[str] = ...,
            topic_pattern: str = ...,
            name: str = ...,
            comment: str = ...,
            key: Format | str = ...,
            value: Format | str = ...,
            primary_key: Sequence[str] = ...,
            key_prefix: str = ...,
            value_prefix: str = ...,
            value_fields: ValueFields = ...,
            bounded: Bounded = ...,
            changelog: ChangelogMode = ...,
            changelog_buckets: int = ...,
            group_id: str = ...,
            check_group: bool = ...,
            header_filter: str = ...,
            scan_parallelism: int = ...,
            discovery: timedelta | str = ...,
            max_records_per_trigger: int = ...,
            max_records_per_partition: int = ...,
            watermark_emit: EmitStrategy = ...,
            watermark_group: str = ...,
            watermark_drift: timedelta | str = ...,
            watermark_update: timedelta | str = ...,
            watermark_idle: timedelta | str = ...,
            sink_parallelism: int = ...,
            buffer_rows: int = ...,
            buffer_interval: timedelta | str = ...,
            delivery: Delivery = ...,
            transactional_id_prefix: str = ...,
            transaction_naming: Naming = ...,
            exactly_once: ExactlyOnce = ...,
            transport: Transport = ...,
            latency: Latency = ...,
            dew_endpoint: str = ...,
            dew_secret: str = ...,
            dew_fields: str = ...,
            dew_version: str = ...,
            properties: Mapping[str, str | int | float | bool] = ...,
        ) -> None: ...


# The names that a column cannot have as an attribute.
_RESERVED = frozenset(name for name in vars(KafkaTable) if not name.startswith("_"))


def _class_statement(frame: FrameType) -> FrameType:
    """The frame of a class statement: a base may have an ``__init_subclass__`` of its own in between."""
    while frame.f_code.co_name == "__init_subclass__" and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _table(cls: type[KafkaTable]) -> Table:
    from kdsl.table import Table

    return Table(cls.definition())
