"""What is impossible in a streaming query, with the reasons."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from kdsl.errors import Problem, Where
from kdsl.scripts.queries.facts import StreamNote, TimeWindow

_AS_BATCH = "run it as a batch: SET 'execution.runtime-mode' = 'batch'"
"""The fix with which the rows are the same; what changes them comes after it, and says so."""
_WITHOUT_BEFORE = (
    "a group without a window changes its result with each row, and Spark does not return the result before, which an "
    "update (-U and +U) includes"
)
_REASONS: dict[str, tuple[str, str]] = {
    "aggregate": (
        "a group without a window changes its result with each row, and the table can only store new rows (Flink also "
        "requires a changelog or upsert sink)",
        f"{_AS_BATCH}; or write into a table of 'upsert-kafka' whose PRIMARY KEY has the columns of GROUP BY, which "
        "keeps the last result of each group; or group by a window of a column with a watermark, as TUMBLE(TABLE t, "
        "DESCRIPTOR(ts), INTERVAL '1' MINUTE), which has a result for each window",
    ),
    "grouping": (
        "Spark groups a stream by one set of keys",
        f"{_AS_BATCH}; or write one INSERT for each set, with NULL for the keys that it lacks",
    ),
    "distinct": (
        "Spark cannot tell whether an equal row came earlier in the stream",
        f"{_AS_BATCH}; or leave out DISTINCT and write into a table of 'upsert-kafka' whose PRIMARY KEY has all "
        "columns, where equal rows replace each other (any other table would get them again)",
    ),
    "distinct values": (
        "Spark does not store the distinct values of a stream",
        f"{_AS_BATCH} (without DISTINCT, equal values would count again, which is another result)",
    ),
    "over": (
        "Spark has no OVER windows on streams",
        f"{_AS_BATCH}; or read tables that end ('scan.bounded.mode') without a checkpoint. These are other results: a "
        "table of 'upsert-kafka' with the PRIMARY KEY of PARTITION BY keeps the row of each key that arrives last, "
        "whatever ORDER BY says; MAX or MIN in a group by a window is that of the window",
    ),
    "order": (
        "a stream never has all rows, which are needed to order them",
        f"remove ORDER BY: the rows are the same, in the order in which they arrive; or {_AS_BATCH}",
    ),
    "offset": (
        "a stream has no order by which rows could be skipped",
        f"{_AS_BATCH} (without OFFSET, the rows that it skips would be written, too)",
    ),
    "outer join": (
        "a row is known to have no match only when a watermark has passed the latest time of a possible match, and the "
        "condition does not bound the times of the two tables by each other",
        f"{_AS_BATCH} (JOIN would leave out the rows without a match); or declare a WATERMARK in both tables and add a "
        "condition on their columns, as b.ts BETWEEN a.ts AND a.ts + INTERVAL '4' HOUR, with which rows of other times "
        "do not match",
    ),
    "outer join by interval": (
        "Spark computes the time after which a row of an outer join has no more matches only from intervals of fixed "
        "length, up to 32 days",
        f"write the bound in days, as INTERVAL '30' DAY (a month has 28 to 31); or {_AS_BATCH} (JOIN would leave out "
        "the rows without a match)",
    ),
    "outer join of queries": (
        "Spark compares bounds of TIMESTAMP columns with the watermark only where tables or views are joined directly, "
        "each with one such column, in a query without windows",
        "join the tables themselves, or write the rows of each query to its own table and join those; or declare the "
        f"event-time columns as TIMESTAMP_LTZ(3), if the messages have instants; or {_AS_BATCH}",
    ),
    "outer join with a constant": (
        "the join preserves rows that never change, and Spark does not know when they have no more matches",
        f"{_AS_BATCH} (a join that preserves the rows of the stream, or JOIN, has other rows)",
    ),
    "join without equality": (
        "Spark joins two streams by equal values, and no condition requires any",
        f"{_AS_BATCH} (a condition as a.x = b.y leaves out rows)",
    ),
    "set": (
        "Spark cannot tell whether an equal row will come in the stream",
        f"{_AS_BATCH} (UNION ALL would write equal rows again)",
    ),
    "nested": (
        "Spark has no queries inside expressions of streams",
        f"{_AS_BATCH} (a JOIN has a row for each match, which is another result if there are several)",
    ),
}

_TAKING_CHANGES = ("blackhole", "upsert-kafka")


def find_stream_problems(
    notes: Iterable[tuple[StreamNote, Where]],
    windows: Iterable[tuple[TimeWindow, Where]],
    *,
    watermarks: bool,
    sink: str | None,
    changes: bool,
    processing: Collection[str] = (),
) -> Iterator[Problem]:
    """Yield a problem for each part of a streaming query that Spark cannot run.

    Among them are windows whose time is not the column of a watermark. Groups without a window are not reported for a
    sink of ``upsert-kafka`` or ``blackhole``, unless they are grouped again or joined.

    Args:
        notes: The parts of the query that may be impossible, with their locations.
        windows: Its windows of event time, with their locations.
        watermarks: Whether a table that is read has a watermark.
        sink: The connector of the table that is written; None if the rows are shown.
        changes: Whether the sink can take updates and deletes, for the message.
        processing: The columns of processing time.
    """
    all_notes = list(notes)
    if sink in _TAKING_CHANGES:
        yield from _check_groups_of_changes([one for one in all_notes if one[0].kind in ("aggregate", "join")])
    for note, where in all_notes:
        if note.kind not in _REASONS or (sink in _TAKING_CHANGES and note.kind == "aggregate"):
            continue
        reason, fix = _REASONS[note.kind]
        if note.kind == "aggregate" and changes:
            reason = _WITHOUT_BEFORE
        yield Problem(f"stream-{note.kind.replace(' ', '-')}", f"{note.name} in a stream: {reason}", fix, where)
    for window, where in windows:
        column = window.time.rpartition(".")[2].strip("`")
        if not watermarks:
            message = (
                f"{window.kind} in a stream: a window ends when a watermark passes it, and no table has a watermark"
            )
            fix = f"declare WATERMARK FOR {column} AS {column} - INTERVAL '5' SECOND in the table"
            if column in processing:
                fix = f"declare WATERMARK FOR {column} AS {column} in the table: a window of processing time then ends "
                fix += "with the first rows after it"
            yield Problem("stream-watermark", message, fix, where)
        elif not window.watermarked:
            message = f"{window.kind} in a stream: a window ends when a watermark passes it, and {column!r} is not the "
            message += "column of a watermark itself"
            fix = f"{_AS_BATCH}; or write the rows to a table that declares WATERMARK FOR {column}, and read that; or "
            fix += "use the column of the watermark, which has other windows"
            yield Problem("stream-window-time", message, fix, where)


def _check_groups_of_changes(notes: list[tuple[StreamNote, Where]]) -> Iterator[Problem]:
    """Yield one problem if a group without a window is grouped again or joined, which Spark cannot do."""
    groups = [one for one in notes if one[0].kind == "aggregate"]
    if groups and len(notes) > 1:
        note, where = groups[0]
        what, fix = "a group of joined streams", "write the joined rows to their own table of 'kafka', and group those"
        if len(groups) > 1:
            what = "a group of groups"
            fix = "write the inner groups to their own table of 'upsert-kafka' whose PRIMARY KEY has the columns of "
            fix += "their GROUP BY, and group its rows"
        message = f"{note.name} in a stream: {what}, whose updates Spark does not return"
        yield Problem("stream-several", message, f"{fix}; or {_AS_BATCH}", where)
