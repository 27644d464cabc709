"""The exceptions of kdsl, and the problems of declarations.

A problem is data (code, location, message, fix); ``str()`` and the command line turn it into a message.

```
KdslError
├── ResolveError             every problem of one or more declarations, an ExceptionGroup of ProblemError
│   └── ProblemError         one of them
├── DeadLetterError          dead letters cannot be written, or are too many
├── RecordError              a record that cannot be read or written: topic, partition, offset, reason
├── SecretError              a reference to a secret that cannot be read or resolved
├── KafkaReadError           the cluster prevents a read
│   ├── UnreachableError     no broker answers, or none accepts the login
│   ├── TopicMissingError    a topic does not exist
│   ├── TopicRecreatedError  a topic was deleted and created again
│   └── OffsetError          an offset does not exist, or no start is known
├── LeaseHeldError           another process holds an exclusive right
├── WriteError               a task of a batch write failed
├── ExactlyOnceError         an exactly-once write cannot be guaranteed
├── CheckpointError          the files of a checkpoint do not fit the table
├── InferenceError           the columns of a table cannot be inferred
├── ChangelogError           a changelog cannot be applied to its target
├── RowError                 typed rows and a DataFrame do not fit each other
└── (other errors are defined by the parts that raise them; catch them as KdslError)
```
"""

from __future__ import annotations

import os
import sys
from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from textwrap import indent
from typing import TYPE_CHECKING, Any, Literal, Self

import attrs

from kdsl.notebooks import make_html, problem_html, title_html

Severity = Literal["error", "warning"]
WIDEST = 100
"""The maximum number of characters of a line in an excerpt."""


class KdslError(Exception):
    """The base of everything that kdsl raises on purpose."""


@attrs.frozen
class Where:
    """The location of a declaration.

    Attributes:
        table: The table's name (the class name, the name in the DDL or in the YAML document).
        column: The column's name, if the location is a column.
        file: The file of the declaration.
        line: The line in that file, from 1.
        path: The path inside a document, such as ``$.tables.orders.columns[2]``.
        position: The column in that line, from 1.
        excerpt: The line without its secrets, and a second one with carets under the position.
    """

    table: str | None = None
    column: str | None = None
    file: str | None = None
    line: int | None = None
    path: str | None = None
    position: int | None = None
    excerpt: str | None = attrs.field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The table, or the table and its column."""
        return ".".join(part for part in (self.table, self.column) if part)

    @property
    def location(self) -> str:
        """The location as text: file, line, column and path; a file below the working directory is relative to it."""
        file = self.file or ""
        if file.startswith(os.sep) and not (near := os.path.relpath(file)).startswith(os.pardir):
            file = near
        line = "" if self.line is None else f"{file}:{self.line}" if file else f"line {self.line}"
        if line and self.position is not None:
            line += f":{self.position}" if file else f", column {self.position}"
        return " ".join(part for part in (line or file, self.path) if part)

    def __str__(self) -> str:
        name, location = self.name, self.location
        return f"{name} ({location})" if name and location else name or location


@attrs.frozen
class Problem:
    """One thing that is wrong with a declaration.

    Attributes:
        code: A stable name of the rule, as ``key-prefix``, which ``kdsl explain`` explains.
        message: What was declared, and why it cannot work.
        fix: What to write instead.
        where: The location; a rule that does not know it leaves it to the caller.
        severity: An ``"error"`` stops; a ``"warning"`` is only logged.
        option: The option that the problem is about: its Python name, or its Flink key if it has none.
        property: The client property that the problem is about, by the name that the user wrote.
    """

    code: str
    message: str
    fix: str
    where: Where = attrs.field(factory=Where)
    severity: Severity = "error"
    option: str | None = attrs.field(default=None, kw_only=True)
    property: str | None = attrs.field(default=None, kw_only=True)

    def __str__(self) -> str:
        """Return location, message, fix and code in one line, without an unknown location, then the excerpt."""
        location, excerpt = str(self.where), self.where.excerpt
        sentence = f"{f'{location}: ' if location else ''}{self.message}; {self.fix} [{self.code}]"
        return f"{sentence}\n{indent(excerpt, '    ')}" if excerpt else sentence

    def _repr_html_(self) -> str:
        """The problem as notebooks show it."""
        return make_html(self.to_html())

    def to_html(self) -> str:
        """Write the problem as a part of HTML; see `kdsl.notebooks`."""
        return problem_html(self.severity, str(self.where), self.message, self.fix, self.code, self.where.excerpt)

    def at(self, where: Where) -> Problem:
        """Return a copy of the problem, with the missing parts of its location taken from ``where``."""
        parts = {a.name: getattr(self.where, a.name) or getattr(where, a.name) for a in attrs.fields(Where)}
        return attrs.evolve(self, where=Where(**parts))


class ProblemError(KdslError):
    """One problem of a declaration, as an exception."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return str(self.problem)


class ResolveError(ExceptionGroup[ProblemError], KdslError):
    """All problems of one or more declarations.

    Raised by ``resolve``, by everything that resolves first (``schema``, ``read``, ``write``, ``explain``), and where
    documents and client settings are read.
    """

    def __new__(cls, message: str, problems: Sequence[Problem | ProblemError]) -> Self:
        """Make the group from problems (or from errors that already carry one); ValueError if there are none."""
        errors = [p if isinstance(p, ProblemError) else ProblemError(p) for p in problems]
        return super().__new__(cls, message, errors)

    if TYPE_CHECKING:  # the group is made in __new__; type checkers look here, too

        def __init__(self, message: str, problems: Sequence[Problem | ProblemError]) -> None: ...

    def derive(self, excs: Sequence[ProblemError], /) -> ResolveError:  # type: ignore[override]
        """The same kind of group over a part of the problems (for ``except*``)."""
        return ResolveError(self.message, excs)

    @property
    def problems(self) -> tuple[Problem, ...]:
        """The problems in the order in which they were found."""
        return tuple(e.problem for e in self.exceptions if isinstance(e, ProblemError))

    def __str__(self) -> str:
        return "\n".join([f"{self.message}:", *(indent(str(p), "  ") for p in self.problems)])

    def _repr_html_(self) -> str:
        """The problems as notebooks show them, where the error is the value of a cell."""
        return make_html(title_html(self.message), *(p.to_html() for p in self.problems))


class RecordError(KdslError):
    """A record that cannot be read, or a row that cannot be written.

    Args:
        action: What failed: ``read`` or ``write``.
        table: The table's name.
        reason: Why it failed.
        topic: The record's topic.
        partition: The record's partition, if it is known.
        offset: The record's offset, if it is known.
        data: The message; the error shows its length and its first bytes, as text if they are text, otherwise as hex.
        more: The number of other records of the batch that failed.
        fix: What can be done.
        row: The index of the row, from 0, among those of its Spark task, or else of the rows to write.
    """

    PREFIX = 32

    def __init__(
        self,
        action: str,
        table: str,
        reason: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        data: bytes | None = None,
        more: int = 0,
        fix: str = "",
        row: int | None = None,
    ) -> None:
        super().__init__(action, table, reason)
        self.action, self.table, self.reason = action, table, reason
        self.topic, self.partition, self.offset = topic, partition, offset
        self.data, self.more, self.fix, self.row = data, more, fix, row

    def __reduce__(self) -> tuple[object, ...]:
        return (_record_error, (self.action, self.table, self.reason, self._details()))

    def _details(self) -> dict[str, object]:
        """Return the keyword arguments of the error by name."""
        return {k: getattr(self, k) for k in ("topic", "partition", "offset", "data", "more", "fix", "row")}

    def __str__(self) -> str:
        """Return one sentence: table, action, position, reason, first bytes, other records, fix; only what is set."""
        position = [
            f"{k} {v}" for k, v in self._details().items() if k in ("topic", "partition", "offset") and v is not None
        ]
        text = f"{self.table}: cannot {self.action} the record at {', '.join(position)}" if position else ""
        text = text or f"{self.table}: cannot {self.action} a record"
        text += f": {self.reason}"
        if self.data is not None:
            text += f"; it has {pluralize(len(self.data), 'byte')}: {show_bytes(self.data, self.PREFIX)}"
        if self.more:
            one, several = "more record of this batch has errors", "more records of this batch have errors"
            text += f"; {pluralize(self.more, one, several)}"
        return f"{text}; {self.fix}" if self.fix else text


def show_bytes(data: bytes, most: int) -> str:
    """Write the first bytes of a message: as text in quotes if they are UTF-8 and can be printed, otherwise as hex.

    Args:
        data: The message.
        most: How many bytes are shown; for the others there is an ellipsis.
    """
    first, rest = data[:most], " …" if len(data) > most else ""
    try:
        text = getincrementaldecoder("utf-8")().decode(first, final=not rest)  # a character may be cut
    except UnicodeDecodeError:
        text = ""
    is_text = text and all(c.isprintable() or c in "\t\n\r" for c in text)
    return f"{repr(text) if is_text else first.hex(' ')}{rest}"


def decode_text(data: bytes | None) -> str | None:
    """Bytes as a string; those that are not UTF-8, or contain zeros, as ``0x`` and hexadecimal digits; None stays."""
    if data is None:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = "\0"
    return f"0x{data.hex()}" if "\0" in text else text


def _record_error(action: str, table: str, reason: str, named: dict[str, object]) -> RecordError:
    """Create a RecordError, when it is unpickled, from its arguments and its keyword arguments (``named``)."""
    return RecordError(action, table, reason, **named)  # type: ignore[arg-type]


class DeadLetterError(KdslError):
    """Dead letters cannot be written, or there are more of them than the table allows.

    The read stops, so that no record is lost. Look at the letters with ``kdsl dlq show``; then correct the producer,
    allow more of them (``scan.dead-letter.max-count``), or make the topic of the letters writable
    (docs/dead-letters.md).
    """


class SecretError(KdslError):
    """A reference to a secret that cannot be read or resolved. The message names the reference, never a value.

    ``${env:NAME}`` and ``${file:PATH}`` are resolved where a client is created: on the driver, and on each executor.
    Set the variable or put the file there, or use a provider that all of them reach (docs/security.md).
    """


class KafkaReadError(KdslError):
    """The cluster prevents a read from starting or continuing.

    ``kdsl doctor FILE:Table`` checks the same as the job does: brokers, login, topics, rights and offsets.
    """


class UnreachableError(KafkaReadError):
    """No broker answers, or none accepts the login.

    The message names each address with what happened there: no such host, nothing listens, no TLS, a wrong password.
    Correct ``bootstrap.servers`` or the settings of the login; ``kdsl doctor`` shows the same without a job.
    """


class TopicMissingError(KafkaReadError):
    """A topic that the table names does not exist, or a topic that was read was deleted.

    Correct the name, create the topic (``kdsl apply`` does so from the declaration), or read with a pattern, which goes
    on without deleted topics.
    """


class TopicRecreatedError(KafkaReadError):
    """A topic was deleted and created again since its offsets were planned or stored in a checkpoint.

    The stored offsets are those of other records. Give the query a new checkpoint with a start that is right for the
    new topic (docs/offsets.md).
    """


class OffsetError(KafkaReadError):
    """An offset to be read does not exist (no longer, or not yet), or no start offset is known.

    Records were deleted by the retention of the topic before the query read them, the log of a partition was cut off,
    or the consumer group has committed nothing. Decide where to go on: ``auto.offset.reset``, another start, or a
    checkpoint (docs/offsets.md).
    """


class LeaseHeldError(KdslError):
    """Somebody else holds a lease: the exclusive right to a transactional-id prefix or a consumer group.

    Attributes:
        lease: The name of the lease.
        holders: The members of the lease's consumer group, with their client ids and hosts.
    """

    def __init__(self, lease: str, holders: Iterable[Any], message: str | None = None) -> None:
        """Create the error with the message, by default one that lists the holders."""
        self.lease = lease
        self.holders: tuple[Any, ...] = tuple(holders)
        super().__init__(message or f"the lease {lease!r} is held by {'; '.join(map(str, self.holders))}")


class WriteError(KdslError):
    """A task of a batch write failed. The message is the task's own error; the cause holds Spark's exception.

    Rows of other tasks may be in the topic, unless the write is exactly-once (docs/exactly-once.md).
    """


class SparkJobError(KdslError):
    """A job or a query of Spark failed for a reason that kdsl knows; the message is that reason alone.

    The error is also an instance of the class of Spark's exception, which is its cause (``__cause__``) and has the
    traces.
    """


class ExactlyOnceError(KdslError):
    """An exactly-once write cannot be guaranteed; nothing was written.

    Usually another query holds the transactional-id prefix, or what the write records of itself is gone or of another
    write. The message says which, and how to accept it where that is possible (docs/exactly-once.md).
    """


class CheckpointError(KdslError):
    """The files that kdsl stores in a checkpoint cannot be read or written, or no longer fit the table.

    Undo the change of the declaration, or start with a new checkpoint; ``kdsl diff --checkpoint`` says before the start
    what a change does (docs/upgrading.md).
    """


class InferenceError(KdslError):
    """The columns of a table cannot be inferred from its records or from the subjects of a schema registry.

    Declare the columns, or name the format that the messages have (docs/inference.md).
    """


class ChangelogError(KdslError):
    """A changelog cannot be applied to its target.

    The target was changed by somebody else, lacks a column, or is not what the checkpoint knows. The message says how
    to accept that where it is safe (docs/changelogs.md).
    """


class RowError(KdslError, ValueError):
    """Typed rows that cannot become a DataFrame, or a DataFrame whose rows are not rows of the table.

    The message names each column that is missing, superfluous or of another type.
    """


class TextError(KdslError, ValueError):
    """A mistake at a position in a string.

    Attributes:
        reason: The mistake, in a sentence.
        text: The whole string.
        position: The index in the string, from 0.
    """

    def __init__(self, reason: str, text: str, position: int) -> None:
        super().__init__(reason)
        self.reason, self.text, self.position = reason, text, position

    @property
    def line(self) -> int:
        """The line of the position, from 1."""
        return line_and_column(self.text, self.position)[0]

    @property
    def column(self) -> int:
        """The column of the position in its line, from 1."""
        return line_and_column(self.text, self.position)[1]

    @property
    def location(self) -> str:
        """The position in words; the line only if there are several."""
        return f"line {self.line}, column {self.column}" if "\n" in self.text else f"column {self.column}"


def line_and_column(text: str, index: int) -> tuple[int, int]:
    """The line and the column of an index in a string, from 1."""
    return text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index)


def excerpt(text: str, start: int, length: int = 1, hidden: Sequence[tuple[int, int]] = (), mark: str = "") -> str:
    """The line of a position, without its secrets, and a second line with carets under the position.

    Each blank character becomes a space. Of a line longer than `WIDEST` only the part around the position is returned.

    Args:
        text: The whole string.
        start: The first index, from 0.
        length: The number of characters to mark: at least one, and at most to the end of the line.
        hidden: Ranges of the string that may contain secrets, in order, each from a first index to a last, excluded.
        mark: The replacement of a hidden range.
    """
    begin = text.rfind("\n", 0, start) + 1
    end = text.find("\n", start)
    end = len(text) if end < 0 else end
    line, first, last = "", 0, 0
    stop, done = min(start + max(length, 1), end), begin
    for low, high in [*((max(a, begin), min(b, end)) for a, b in hidden if a < end and b > begin), (end, end)]:
        if low > done:
            first += max(0, min(start, low) - done)
            last += max(0, min(stop, low) - done)
            line += text[done:low]
        if high > max(low, done):
            first += len(mark) * (start >= high)
            last += len(mark) * (stop >= high)
            line += mark
        done = max(done, high)
    line = "".join(" " if sign.isspace() else sign for sign in line)
    low = max(0, min(first - WIDEST // 2, len(line) - WIDEST))
    part = line[low : low + WIDEST]
    before, after = "…" * (low > 0), "…" * (low + WIDEST < len(line))
    caret = first - low + len(before)
    marks = "^" * max(1, min(last - first, len(before) + len(part) - caret))
    return f"{before}{part}{after}\n{' ' * caret}{marks}"


def file_position(problem: Problem) -> tuple[int, int]:
    """A key that sorts the problems of one file by their location; those without one come last."""
    where = problem.where
    return (where.line or sys.maxsize, where.position or 0)


def closest(name: str, valid: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The valid name that is closest to a wrong one, in any letter case; None if none is as close as the cutoff."""
    lower = {n.lower(): n for n in valid}
    matches = get_close_matches(name.lower(), lower, n=1, cutoff=cutoff)
    return lower[matches[0]] if matches else None


def nearest(name: str, valid: Iterable[str], cutoff: float = 0.6) -> str:
    """A hint at the valid name that is closest to a wrong one: ``" (did you mean 'x'?)"``, or nothing."""
    meant = closest(name, valid, cutoff)
    return f" (did you mean {meant!r}?)" if meant is not None else ""


def listing(names: Iterable[object]) -> str:
    """Names in a sentence: ``'a', 'b' and 'c'``; ``none`` if there are none."""
    quoted = [repr(n) for n in names]
    return quoted[0] if len(quoted) == 1 else " and ".join([", ".join(quoted[:-1]), quoted[-1]]) if quoted else "none"


def pluralize(number: int, noun: str, plural: str = "") -> str:
    """A number of things: ``1 record``, ``2,000 records``; the plural is the noun with an s, unless it is named."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def fail_on(problems: Iterable[Problem], subject: str) -> tuple[Problem, ...]:
    """Raise the errors among problems; otherwise return the problems, which are all warnings then.

    Args:
        problems: The problems.
        subject: What was checked, for the first line of the message.

    Raises:
        ResolveError: Some problems are errors; it contains these, and no warnings.
    """
    every = tuple(problems)
    errors = [p for p in every if p.severity == "error"]
    if errors:
        raise ResolveError(f"{subject} has {pluralize(len(errors), 'problem')}", errors)
    return every
