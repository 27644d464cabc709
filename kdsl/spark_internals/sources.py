"""The classes of Python data sources that not every supported version of PySpark has.

Stand-ins replace those that the installed version lacks. Spark never calls them there: what kdsl does without them
depends on `kdsl.spark_versions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = (
    "DataSource",
    "DataSourceArrowWriter",
    "DataSourceReader",
    "DataSourceStreamArrowWriter",
    "DataSourceStreamReader",
    "InputPartition",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "WriterCommitMessage",
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSource,
        DataSourceArrowWriter,
        DataSourceReader,
        DataSourceStreamArrowWriter,
        DataSourceStreamReader,
        InputPartition,
        WriterCommitMessage,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:
    import pyspark.sql  # noqa: F401  # without any PySpark this fails

    try:
        from pyspark.sql.datasource import (
            DataSource,
            DataSourceArrowWriter,
            DataSourceReader,
            DataSourceStreamReader,
            DataSourceStreamWriter,
            InputPartition,
            WriterCommitMessage,
        )
    except ModuleNotFoundError:  # Spark 3.5

        class DataSource:
            """Stands for the class that Spark does not have."""

        class DataSourceReader:
            """Stands for the class that Spark does not have."""

        class DataSourceStreamReader:
            """Stands for the class that Spark does not have."""

        class DataSourceArrowWriter:
            """Stands for the class that Spark does not have."""

        class DataSourceStreamWriter:
            """Stands for the class that Spark does not have."""

        class InputPartition:
            """Stands for the class that Spark does not have."""

            def __init__(self, value: object) -> None:
                self.value = value

        class WriterCommitMessage:
            """Stands for the class that Spark does not have."""

    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )
    except ModuleNotFoundError:  # Spark before 4.2

        class ReadLimit:
            """Stands for the limit that Spark does not have."""

        class ReadAllAvailable(ReadLimit):
            """Stands for the limit that Spark does not have."""

        class ReadMaxRows(ReadLimit):
            """Stands for the limit that Spark does not have."""

            def __init__(self, max_rows: int) -> None:
                self.max_rows = max_rows

        class ReadMinRows(ReadLimit):
            """Stands for the limit that Spark does not have."""

            def __init__(self, min_rows: int, max_trigger_delay_ms: int = 0) -> None:
                self.min_rows, self.max_trigger_delay_ms = min_rows, max_trigger_delay_ms

        class SupportsTriggerAvailableNow:
            """Stands for the interface that Spark does not have."""

    try:
        from pyspark.sql.datasource import DataSourceStreamArrowWriter
    except ImportError:  # Spark 3.5 and 4.0
        DataSourceStreamArrowWriter = DataSourceStreamWriter
