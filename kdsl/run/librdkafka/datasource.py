"""The data source through which Spark calls the transport ``librdkafka``.

Its two halves (`kdsl.run.librdkafka.source`, `kdsl.run.librdkafka.sink`) are imported when Spark asks for them: Spark
pickles this class, and a process that only reads need not import what writes.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from kdsl.errors import KdslError
from kdsl.spark_internals.session import register_data_source, set_active_session
from kdsl.spark_internals.sources import DataSource
from kdsl.spark_internals.workers import exchange_packets_at_once
from kdsl.spark_versions import READ_LIMITS, pyspark_version

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

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002
        """Return the reader of a bounded read; it reads the options, and finds errors in them, when it is used.

        Its rows have the columns of the plan in the options, whatever the argument ``schema`` says.
        """
        from kdsl.run.librdkafka.read_task import own_options
        from kdsl.run.librdkafka.source import BatchReader

        return BatchReader(own_options(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802
        """Return the reader of a stream, as `reader` does; a PySpark without read limits has a reader of its own."""
        from kdsl.run.librdkafka.read_task import own_options
        from kdsl.run.librdkafka.source import StreamReader, UnlimitedStreamReader

        reader = StreamReader if READ_LIMITS.is_in(pyspark_version()) else UnlimitedStreamReader
        return reader(own_options(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: ARG002
        """Return the writer of a batch, which reads the options when it is used; a KdslError for ``overwrite``."""
        from kdsl.run.librdkafka.sink import BatchWriter

        if overwrite:
            raise KdslError("a topic cannot be overwritten: Kafka only appends; write with mode 'append'")
        _exclude_modules()
        return BatchWriter(self.options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        """Return the writer of a stream, which reads the options when it is used; a KdslError for ``complete``.

        The worker's next answer is sent without waiting (`exchange_packets_at_once`).
        """
        from kdsl.run.librdkafka.sink import StreamWriter

        if overwrite:
            raise KdslError(
                "the output mode 'complete' replaces the whole result with each batch, but a topic cannot be "
                "overwritten: Kafka only appends; use the output mode 'append'"
            )
        _exclude_modules()
        exchange_packets_at_once()
        return StreamWriter(self.options)


@cache
def _exclude_modules() -> None:
    """Exclude what is loaded in a process that plans writes or commits from garbage collection; only the first time."""
    from kdsl.run.records.memory import exclude_loaded_objects

    exclude_loaded_objects()


def register(spark: SparkSession) -> None:
    """Register the data source with a session unless it is registered; make the session the thread's active one.

    Spark would warn about a repeated name. On Spark Connect it is registered each time, and no session is made active.
    """
    # A write looks for the source in the JVM thread's active session; a Python thread may have none or another.
    set_active_session(spark)
    register_data_source(spark, FORMAT, KdslDataSource)
