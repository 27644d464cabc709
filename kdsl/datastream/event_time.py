"""The event time of rows between a source and a sink, as Flink's elements carry it.

In Flink each element has a timestamp: that of its record, or the one that a watermark strategy assigned, and a sink
writes it. A row of Spark has only columns; therefore its event time is the column with a watermark, or the column with
the timestamp of the record, which the source marks in the column's metadata.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kdsl.errors import listing
from kdsl.run.dataframes.watermark import EVENT_TIME_MARK
from kdsl.types.sql import quote_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RECORD_TIME = "timestamp"
"""The column of a record's timestamp, by default."""
_RECORD_MARK = "kdsl.recordTimestamp"
_log = logging.getLogger("kdsl")


def mark_record_time(df: DataFrame, name: str) -> DataFrame:
    """Return the rows with a mark on the column that is the timestamp of the record.

    Args:
        df: The rows of a source.
        name: The column's name.
    """
    from pyspark.sql import functions as F

    metadata = {**df.schema[name].metadata, _RECORD_MARK: True}
    marked = F.col(quote_name(name)).alias(name, metadata=metadata)
    return df.select(*(marked if column == name else F.col(quote_name(column)) for column in df.columns))


def find_event_time(df: DataFrame, sink: str) -> str | None:
    """Find the column of event time: the TIMESTAMP with a watermark, or else the one that is the record's timestamp.

    None if there is none. If several columns have a watermark, or without one several are the record's timestamp, a
    warning is logged, and the result is None, too.

    Args:
        df: The DataFrame that is written.
        sink: The sink's name in messages.
    """
    from pyspark.sql.types import TimestampType

    times = [field for field in df.schema.fields if isinstance(field.dataType, TimestampType)]
    for mark in (EVENT_TIME_MARK, _RECORD_MARK):
        names = [field.name for field in times if mark in field.metadata]
        if len(names) > 1:
            _log.warning(
                "%s: %s are all columns of event time; records get the time of sending unless set_timestamp() sets one",
                sink,
                listing(names),
            )
            return None
        if names:
            return names[0]
    return None
