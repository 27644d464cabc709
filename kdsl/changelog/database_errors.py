"""What the errors of databases say: their SQLSTATEs and error codes, through Java."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from kdsl.spark_internals.errors import GatewayError, java_exception, java_message

_MISSING_TABLE: Mapping[str, tuple[str, ...]] = {
    "postgresql": ("42P01",),
    "mysql": ("42S02",),
    "mariadb": ("42S02",),
    "sqlserver": ("S0002", "42S02"),
    "oracle": ("942",),
    "db2": ("42704",),
    "h2": ("42S02", "42S03", "42S04"),
    "derby": ("42X05", "42Y07"),
}
"""The SQLSTATEs or, for Oracle, the error codes with which databases report that a table does not exist."""
_PASSING = ("08", "40", "53", "55", "57", "58", "XX")
"""The classes of SQLSTATEs that say nothing of the statement (postgresql.org/docs/current/errcodes-appendix.html)."""
_STATE_LENGTH = 5


def is_unique_violation(error: Exception) -> bool:
    """Whether an error itself, not its cause, says that a statement violates a unique constraint (SQLSTATE 23505)."""
    return "23505" in _sql_codes(error)


def find_refusal(error: Exception) -> str | None:
    """The message of an error by which a database refuses a statement whenever it is run.

    None of one that may pass: the connection, a lock, a full disk, a shutdown.
    """
    states = [code for code in _sql_codes(error) if len(code) == _STATE_LENGTH]
    return java_message(error) if states and not states[0].startswith(_PASSING) else None


def is_missing_table(error: Exception, database: str) -> bool | None:
    """Whether an error says that a table does not exist; None for a database whose errors are not known here.

    Args:
        error: The error.
        database: The database, as addresses name it.
    """
    codes = _MISSING_TABLE.get(database)
    return None if codes is None else not _sql_codes(error).isdisjoint(codes)


def _sql_codes(error: Exception) -> frozenset[str]:
    """The SQLSTATE and the error code of an SQLException; none of another error."""
    java = java_exception(error)
    with suppress(GatewayError):  # only an SQLException has them
        return frozenset() if java is None else frozenset((str(java.getSQLState()), str(java.getErrorCode())))
    return frozenset()
