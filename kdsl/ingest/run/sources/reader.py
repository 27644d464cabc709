"""The interface of the readers of sources other than Kafka: those of kdsl, and those of other packages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs

from kdsl.formats import TableId
from kdsl.ingest.schema_changes import Refusal
from kdsl.own_columns import KIND, ORDER
from kdsl.spark_internals.sql_text import parse_column
from kdsl.types.convert import convert_sql
from kdsl.types.spark import spark_type_name
from kdsl.types.sql import quote_name
from kdsl.types.widening import TableSchema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VERSION, _PARTITION, RANK = ORDER
"""Columns by which the changes of a key are ordered, if the rows of a table are in no order: by their values."""


@attrs.frozen(eq=False)
class SourceTable:
    """The rows of one upstream table.

    Attributes:
        table: The table.
        schema: Its columns and its primary key, with the types of the rows.
        build_rows: Builds the DataFrame of its rows: the columns of the schema, for changes also the row kind
            (`KIND`), and maybe `VERSION` and `RANK`. Without the latter the changes of a key are
            in the order of the DataFrame.
        refusals: Why the table cannot be read as it is; nothing of the batch is written then.
        counts: How many of its values are lost, by reason; they are noted with the batch.
    """

    table: TableId
    schema: TableSchema
    build_rows: Callable[[], DataFrame]
    refusals: tuple[Refusal, ...] = ()
    counts: Mapping[str, int] = attrs.field(factory=dict)

    def rows(self, schema: TableSchema) -> DataFrame:
        """The rows with the columns and types of the upstream table, which may have more, or wider ones.

        Columns that the rows lack are NULL. The row kind comes first, and the columns of the order last, if there are
        any.

        Args:
            schema: What is known of the upstream table.
        """
        from pyspark.sql import functions as F

        rows = self.build_rows()
        own = {f.name: f.type for f in self.schema.columns}
        selected = [F.col(name) for name in (KIND,) if name in rows.columns]
        for field in schema.columns:
            sql = f"CAST(NULL AS {spark_type_name(field.type)})"
            if field.name in own:
                sql = convert_sql(quote_name(field.name), own[field.name], field.type)
            selected.append(parse_column(sql).alias(field.name))
        return rows.select(*selected, *(F.col(name) for name in ORDER if name in rows.columns))


@attrs.frozen(eq=False)
class SourceBatch:
    """The tables of a copy, or of a batch of changes.

    Attributes:
        tables: The tables that have rows.
        progress: How far the source is read with them; what it means is up to the reader. It is kept with the
            checkpoint.
    """

    tables: Sequence[SourceTable]
    progress: Mapping[str, str] = attrs.field(factory=dict)


@runtime_checkable
class SnapshotReader(Protocol):
    """Reads the tables of a source that are copied once."""

    def read_tables(self, spark: SparkSession, progress: Mapping[str, str]) -> SourceBatch:
        """Find the tables, and their columns.

        Args:
            spark: The session.
            progress: The progress of an earlier attempt of the copy, which is continued; empty in the first one.
        """
        ...


@runtime_checkable
class StreamReader(Protocol):
    """Reads the changes of the tables of a source as a stream."""

    def open_stream(self, spark: SparkSession) -> DataFrame:
        """Open the stream whose batches `read_batch` gets; its columns never change.

        Args:
            spark: The session.
        """
        ...

    def read_batch(self, records: DataFrame, progress: Mapping[str, str]) -> SourceBatch:
        """Divide a batch of the stream by table.

        A batch may come again after a failure, with the same records and progress; its rows must then be the same.

        Args:
            records: The batch.
            progress: The progress of the batch before; empty for the first one.
        """
        ...
