"""The data source through which Spark calls the transport ``librdkafka``.

Its two halves (`kdsl.run.librdkafka.source`, `kdsl.run.librdkafka.sink`) are imported when Spark asks for them: Spark
pickles this class, and a process that only reads need not import what writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kdsl.spark_internals.session import register_data_source, set_active_session
from kdsl.spark_internals.sources import DataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType

FORMAT = "kdsl-table"
"""The data source that the operations of tables register with a session.

It is not the one that Spark finds by itself, because Spark gives accumulators, by which tasks report metrics and dead
letters, only to the tasks of data sources that were registered.
"""
FOUND = "kdsl"
"""The data source that Spark finds by itself (`kdsl.data_source.source`)."""


class KdslDataSource(DataSource):
    """The data source of tables. Users reach it through their operations; its options are private."""

    options: dict[str, str]

    @classmethod
    def name(cls) -> str:
        """Return the name for ``spark.read.format``."""
        return FORMAT

    def schema(self) -> StructType:
        """Return the columns of a read, with one for metrics if the rows carry those; errors as in `source_schema`."""
        from kdsl.run.librdkafka.source import source_schema

        return source_schema(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a bounded read; it reads the options, and finds errors in them, when it is used.

        Its rows have the columns of the plan in the options, whatever the argument ``schema`` says.
        """
        from kdsl.run.librdkafka.source import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        """Return the reader of a stream; it reads the options, and finds errors in them, when it is used.

        Its rows have the columns of the plan in the options, whatever the argument ``schema`` says.
        """
        from kdsl.run.librdkafka.source import stream_reader

        return stream_reader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer of a batch; a KdslError if the topic shall be overwritten.

        What is loaded so far is excluded from garbage collection.
        """
        from kdsl.run.librdkafka.sink import batch_writer

        return batch_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        """Return the writer of a stream; a KdslError for the output mode ``complete``.

        What is loaded so far is excluded from garbage collection, and the worker's next answer is sent without waiting.
        """
        from kdsl.run.librdkafka.sink import stream_writer

        return stream_writer(self.options, schema, overwrite)


def register(spark: SparkSession) -> None:
    """Register the data source with a session unless it is registered; make the session the thread's active one.

    Spark would warn about a repeated name. On Spark Connect it is registered each time, and no session is made active.
    """
    # A write looks for the source in the JVM thread's active session; a Python thread may have none or another.
    set_active_session(spark)
    register_data_source(spark, FORMAT, KdslDataSource)
