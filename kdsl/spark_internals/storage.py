"""The settings with which kdsl stores rows in files and tables, and reads them again, whatever the session says.

A session may say that Spark cuts times off, leaves out files that it cannot read, or writes NULL for numbers that do
not fit. That may be right for the user's own queries; for what kdsl stores it would be a silent loss.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

TEXT_OPTIONS: Mapping[str, str] = {"compression": "none", "lineSep": "\n"}
"""Options of Spark's writer of text, whose files are read as they are."""
READ_OPTIONS: Mapping[str, str] = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Options of Spark's reader of files: a file that cannot be read is an error."""
_PARQUET = "spark.sql.parquet"
_TIMES = f"{_PARQUET}.outputTimestampType", "TIMESTAMP_MICROS", ("TIMESTAMP_MILLIS",)
_OLD_DATES = tuple(
    (f"{_PARQUET}.{kind}RebaseModeInWrite", "CORRECTED", ("LEGACY", "EXCEPTION")) for kind in ("datetime", "int96")
)
_FILES = tuple((f"spark.sql.files.ignore{what}Files", "false", ("true",)) for what in ("Corrupt", "Missing"))
_CASTS = "spark.sql.storeAssignmentPolicy", "ANSI", ("LEGACY",)
_STORED = (_TIMES, *_OLD_DATES)
_TABLES = (_TIMES, *_FILES, _CASTS)
"""Each a setting, the value that loses nothing, and the values that do. What other readers of a table need stays."""


def settings_for_files(read: Callable[[str], str | None]) -> dict[str, str]:
    """The settings that a session needs to write Parquet files that only kdsl reads, where its own lose something.

    Args:
        read: Reads a setting of the session; None if it is not set.
    """
    return _replace_lossy(_STORED, read)


def settings_for_tables(read: Callable[[str], str | None]) -> dict[str, str]:
    """The settings that a session needs to write and read tables of Delta, where its own lose something.

    Args:
        read: Reads a setting of the session; None if it is not set.
    """
    return _replace_lossy(_TABLES, read)


def _replace_lossy(
    settings: Sequence[tuple[str, str, tuple[str, ...]]], read: Callable[[str], str | None]
) -> dict[str, str]:
    """Those of some settings that lose something in a session, with the values that do not."""
    return {name: value for name, value, lossy in settings if (read(name) or "").upper() in map(str.upper, lossy)}
