"""The data source ``kdsl`` as Spark finds it by itself (`pyspark_kdsl`).

It takes the options that people write (`kdsl.data_source.options`), and those that `kdsl.pipelines` makes.
Spark pickles the class into each process that plans or runs tasks, so this module imports the rest on demand.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from kdsl.errors import KdslError
from kdsl.run.librdkafka.datasource import FOUND, KdslDataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructField, StructType


def _column(field: StructField) -> str:
    """Return the name and the type of a column, as in a schema that Spark parses."""
    return f"{field.name} {field.dataType.simpleString()}{'' if field.nullable else ' NOT NULL'}"


class DefaultSource(KdslDataSource):
    """The data source ``kdsl``. A table is named by the options ``table``, ``file`` or ``ddl`` (docs/data-source.md).

    Each method raises a KdslError that lists all problems of the options and of the table. At the first use of an
    object, the table's module may be imported, and brokers asked for the topic of dead letters.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return FOUND

    @cached_property
    def _read_source(self) -> KdslDataSource:
        """The source of a read, with a plan among its options; a table's module may be imported for it."""
        from kdsl.data_source.options import read_source_options

        return KdslDataSource(read_source_options(self.options))

    def schema(self) -> StructType:
        """Return the columns of a read."""
        return self._read_source.schema()

    def _check_schema(self, schema: StructType) -> None:
        """Check that a read has the columns of the table, which are Spark's unless the user gave it a schema."""
        from kdsl.plan.model import ReadPlan
        from kdsl.run.librdkafka.options import read_options

        own = self.schema()
        if list(map(_column, own)) != list(map(_column, schema)):
            table = read_options(self._read_source.options, ReadPlan)[0].table
            raise KdslError(
                f"the read has a schema of its own, {schema.simpleString()}, but {table} has the columns "
                f"{', '.join(map(_column, own))}; leave the schema out (.schema(…) in Python and Scala, the columns of "
                "the view in SQL), and choose columns with the option 'columns'"
            )

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a bounded read, whose rows have the table's columns."""
        self._check_schema(schema)
        return self._read_source.reader(schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream, whose rows have the table's columns.

        Limits of a batch that this Spark ignores are logged.
        """
        from kdsl.run.librdkafka.options import PLAN

        self._check_schema(schema)
        source = self._read_source
        if PLAN not in self.options:  # otherwise the operation of the table has checked it
            from kdsl.data_source.options import check_stream_options

            check_stream_options(source.options)
        return source.streamReader(schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch with the columns of ``schema``, which are matched with the table's by name.

        Brokers may create a topic that is missing.
        """
        from kdsl.data_source.options import write_source_options

        return KdslDataSource(write_source_options(self.options, schema)).writer(schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream with the columns of ``schema``, which are matched with the table's by name.

        Brokers may create a topic that is missing.
        """
        from kdsl.data_source.options import write_source_options
        from kdsl.spark_versions import STREAM_WRITER, pyspark_version, require

        require(STREAM_WRITER, pyspark_version(), "the data source 'kdsl' (Table.write_stream does without)")
        return KdslDataSource(write_source_options(self.options, schema)).streamWriter(schema, overwrite)
