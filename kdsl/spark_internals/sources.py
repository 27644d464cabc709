"""The classes of Python data sources that not every supported version of PySpark has.

Stand-ins replace those that the installed version lacks. Spark never calls them there: what kdsl does without them
depends on `kdsl.spark_versions`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamWriter

__all__ = (
    "DataSourceStreamArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
)

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
else:
    try:
        from pyspark.sql.streaming.datasource import (
            ReadAllAvailable,
            ReadLimit,
            ReadMaxRows,
            ReadMinRows,
            SupportsTriggerAvailableNow,
        )
    except ModuleNotFoundError:  # Spark 4.0 and 4.1

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
    except ImportError:  # Spark 4.0
        DataSourceStreamArrowWriter = DataSourceStreamWriter
