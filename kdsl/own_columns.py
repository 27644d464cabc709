"""The columns that kdsl adds to the rows of users for itself; no column of a user can have such a name.

Their names begin with `MARK`, a code point that Unicode reserves for the internal use of programs (a noncharacter). It
is valid in UTF-8, so Arrow, Spark and Parquet store it. kdsl refuses it in the names of all other columns, wherever
they come from: declarations, SQL, messages, tables of other systems, and DataFrames. Every internal column stands
here; `tests/test_own_columns.py` checks that there are no others.
"""

from __future__ import annotations

from typing import Final

from kdsl.shown_values import quote_path

MARK: Final = "\ufdd0"
"""The first character of the names."""

# Rows of ingestions, from the source to the sink
KIND: Final = "\ufdd0kdsl_kind"
"""The row kind of a row of an ingestion, whose other columns may have any name, also `kdsl.formats.ROW_KIND`."""
EVENT: Final = "\ufdd0kdsl_event"
"""The row kind of an upstream row, which a filter and a soft delete do not change."""
UNAVAILABLE: Final = "\ufdd0kdsl_unavailable"
"""For rows of ingestions, what `kdsl.formats.UNAVAILABLE` is for those of declared tables."""
ORDER: Final = ("\ufdd0kdsl_order_time", "\ufdd0kdsl_order_partition", "\ufdd0kdsl_order_offset")
"""Columns by which the changes of a key are ordered if they are in several partitions; no sink table has them."""
PLACE: Final = ("\ufdd0kdsl_record_topic", "\ufdd0kdsl_record_partition", "\ufdd0kdsl_record_offset")
"""Columns with the place of the record that a row comes from, where a plan asks for them."""
PASSES: Final = "\ufdd0kdsl_passes"
"""Whether a row meets the filter of its table; by default all rows do."""
INDEX: Final = "\ufdd0kdsl_index"
"""The number of a row, to sort rows with equal values as they came."""

# The last change of each key
LAST_ROW: Final = "\ufdd0kdsl_last_row"
LAST_POSITION: Final = "\ufdd0kdsl_last_position"
LAST_KEY: Final = "\ufdd0kdsl_last_key"
"""The start of the names of key columns; the index of the column follows."""
LAST_KNOWN: Final = "\ufdd0kdsl_last_known"
"""The start of the names of the last known values; the index of the column follows."""

# Upsert tables
CHUNK_DELETE: Final = "\ufdd0kdsl_delete"
CHUNK_TIME: Final = "\ufdd0kdsl_time"
CHUNK_OFFSET: Final = "\ufdd0kdsl_offset"
CHUNK_UNAVAILABLE: Final = "\ufdd0kdsl_lacks"
STATE_HASH: Final = "\ufdd0kdsl_hash"
STATE_DELETED: Final = "\ufdd0kdsl_deleted"
STATE_TIME: Final = "\ufdd0kdsl_written"

# Streams and their writes
EVENT_TIME_INSTANT: Final = "\ufdd0kdsl_event_time"
"""The instants of a wall-clock event time."""
TASK_REPORT: Final = "\ufdd0kdsl_report"
"""The report of a task on its rows, for sessions without accumulators."""
POSITION: Final = "\ufdd0kdsl_position"
"""The number of a row in its batch, by which the rows of a message key are sorted."""
STAGED_WRITER: Final = "\ufdd0kdsl_writer"
STAGED_ORDER: Final = "\ufdd0kdsl_staged_order"

# Queries in SQL
WINDOW: Final = "\ufdd0kdsl_window"
STEP: Final = "\ufdd0kdsl_step"
ALL: Final = "\ufdd0kdsl_all"
UNNESTED_ROW: Final = "\ufdd0kdsl_unnested"


def is_reserved(name: str) -> bool:
    """Whether no column of a user can have the name, because it contains `MARK`."""
    return MARK in name


def explain_reserved(name: str) -> str:
    """Write why a column cannot have a name that is reserved."""
    return f"the name {quote_path(name)} contains U+{ord(MARK):X}, which kdsl reserves for columns of its own"
