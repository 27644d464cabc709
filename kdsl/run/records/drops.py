"""What a read leaves out without an error: reasons, counts, and the lines in the log.

Records and single values are counted by `Reason`. The reasons of `COLUMN_LOGS` are also counted by column, under the
keys of `key_of_column`; rows that violate a row rule by rule, under the keys of `key_of_rule`.
"""

from __future__ import annotations

import atexit
import logging
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from threading import Lock, Timer

log = logging.getLogger("kdsl.read")


class Reason(StrEnum):
    """Why a record or a value is left out."""

    PARSE_ERROR = "parse-error"
    NOT_NULL = "not-null"
    TOMBSTONE = "tombstone"
    NO_ROW = "no-row"
    INFINITE = "infinite"
    UNAVAILABLE = "unavailable"
    UNDECLARED = "undeclared"
    DEAD_LETTER = "dead-letter"
    LOSSY = "lossy"

    @property
    def doc(self) -> str:
        """The reason as the end of a phrase that begins with "3 records" or, for `VALUES`, with "3 values"."""
        return _DOCS[self]


_DOCS = {
    Reason.PARSE_ERROR: "that cannot be read, or contain no row of the table, in a format that ignores parse errors",
    Reason.NOT_NULL: "without a value for a NOT NULL column, in a format that ignores parse errors or with "
    "`not-null-enforcer` = `drop`",
    Reason.TOMBSTONE: "without a message value",
    Reason.NO_ROW: "whose value has no row of the table",
    Reason.INFINITE: "that are infinite, which their types cannot represent, and became NULL",
    Reason.UNAVAILABLE: "that the change events did not contain, and became NULL",
    Reason.DEAD_LETTER: "that cannot be read or that a rule rejects (dead letters: streams write them, batch reads "
    "only if the table says so)",
    Reason.UNDECLARED: "of columns that the table does not declare",
    Reason.LOSSY: "that lost digits: integers beyond 2^53 in inferred columns of DOUBLE",
}
VALUES = frozenset((Reason.INFINITE, Reason.UNAVAILABLE, Reason.UNDECLARED, Reason.LOSSY))
"""The reasons why single values are left out, and not records."""
COLUMN_LOGS = {
    Reason.UNDECLARED: "the messages have columns that the table does not declare and that are not read: %s",
    Reason.LOSSY: "integers beyond 2^53 lose digits in inferred columns of DOUBLE, because other values of the column "
    "have fractions: %s; give them another type (infer-schema.fixed-types, or declare them as DECIMAL or STRING)",
}
"""The reasons that are also counted by column, each with the line of the log that names the columns once."""
_RULE = "rule:"
_DONE = {
    "warn": "kept",
    "drop": "left out",
    "dead_letter": "left out as dead letters",
}
_warned: set[tuple[str, Reason, str]] = set()
_EXPECTED = frozenset((Reason.TOMBSTONE, Reason.NO_ROW))  # such records are valid


def key_of_column(reason: Reason, column: str) -> str:
    """Return the key under which the values of a column are counted that are left out, or change, for a reason."""
    return f"{reason}:{column}"


def count_in_column(dropped: Counter[str], reason: Reason, column: str, count: int) -> None:
    """Add a positive number to the count of a reason, and to its count for one column."""
    dropped[key_of_column(reason, column)] += count
    dropped[reason] += count


def count_by_column(dropped: Mapping[str, int], reason: Reason) -> dict[str, int]:
    """Return the columns with values that are left out, or change, for a reason, with the number of these values."""
    prefix = f"{reason}:"
    return {key.removeprefix(prefix): count for key, count in dropped.items() if key.startswith(prefix) and count}


def key_of_rule(on_fail: str, rule: str) -> str:
    """Return the key under which the rows that violate a rule are counted, by its action and its name."""
    return f"{_RULE}{on_fail}:{rule}"


def count_violations(dropped: Mapping[str, int]) -> dict[tuple[str, str], int]:
    """Return how many rows violated rules, by the action and the name of the rule; rules without any are left out."""
    counts = {}
    for key, count in dropped.items():
        if key.startswith(_RULE) and count:
            _, on_fail, rule = key.split(":", 2)
            counts[on_fail, rule] = count
    return counts


def level_of(dropped: Mapping[str, int]) -> int:
    """Return the log level for counts by reason: INFO if all are tombstones or values without a row, else WARNING."""
    reasons = {reason for reason in Reason if dropped.get(reason)}
    return logging.INFO if _EXPECTED.issuperset(reasons) else logging.WARNING


def describe_drops(dropped: Mapping[str, int]) -> str:
    """Describe dropped records and values as part of a sentence; empty if there are none.

    Those of `COLUMN_LOGS`, and violations of rules, are left out.
    """
    records = [reason for reason in Reason if dropped.get(reason) and reason not in VALUES]
    parts = []
    if records:
        total = sum(dropped[reason] for reason in records)
        each = ", ".join(f"{dropped[reason]} {reason.doc}" for reason in records)
        parts.append(f"{total} {'record was' if total == 1 else 'records were'} left out: {each}")
    parts += [
        f"{count} {'value was' if count == 1 else 'values were'} left out {reason.doc}"
        for reason in (Reason.INFINITE, Reason.UNAVAILABLE)
        if (count := dropped.get(reason))
    ]
    return "; ".join(parts)


class DropLog:
    """Logs what the tasks of batch reads leave out: one line per table, after a pause without further reports.

    Spark does not report the end of a read's last task. Pending counts are logged when the process ends.

    Args:
        pause: How long the pause is, in seconds.
    """

    def __init__(self, pause: float = 2.0) -> None:
        self._pause = pause
        self._waiting: dict[str, Counter[str]] = {}
        self._timer: Timer | None = None
        self._lock = Lock()
        atexit.register(self.flush)

    def add(self, table: str, dropped: Mapping[str, int]) -> None:
        """Add the counts of a task, and start a thread that logs all pending ones after ``pause`` seconds.

        If other counts are added before that, the pause begins again.
        """
        with self._lock:
            self._waiting.setdefault(table, Counter()).update(dropped)
            if self._timer is not None:
                self._timer.cancel()
            self._timer = Timer(self._pause, self.flush)
            self._timer.daemon = True
            self._timer.start()

    def flush(self) -> None:
        """Log the pending counts of all tables, and forget them."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        for table, dropped in waiting.items():
            log_drops(table, dropped)


def log_drops(table: str, dropped: Mapping[str, int], where: str = "") -> None:
    """Log what was left out, if anything: records and values (`level_of`), violations of rules and columns as warnings.

    The columns of a table (`COLUMN_LOGS`) are named only once per process for each reason.

    Args:
        table: The table's name.
        dropped: How many, by reason.
        where: A prefix that says where, such as "of batch 7 ".
    """
    if text := describe_drops(dropped):
        log.log(level_of({**dropped, **dict.fromkeys(COLUMN_LOGS, 0)}), "%s: %s%s", table, where, text)
    for (on_fail, rule), count in count_violations(dropped).items():
        rows = "row violates" if count == 1 else "rows violate"
        was = "was" if count == 1 else "were"
        log.warning("%s: %s%s %s the rule %r and %s %s", table, where, count, rows, rule, was, _DONE[on_fail])
    for reason, line in COLUMN_LOGS.items():
        if columns := [name for name in count_by_column(dropped, reason) if (table, reason, name) not in _warned]:
            _warned.update((table, reason, name) for name in columns)
            log.warning(f"%s: {line}", table, ", ".join(map(repr, sorted(columns))))
