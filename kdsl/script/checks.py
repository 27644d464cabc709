"""What a query cannot do as a stream, each with the reason."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kdsl.declare.translate.facts import Note, TimeWindow
from kdsl.errors import Problem, Where

_BATCH = "or run it over what there is now: SET 'execution.runtime-mode' = 'batch'"
_WITHOUT_BEFORE = (
    "a group without a window changes its result with each row, and Spark does not tell what it was before, which "
    "belongs to a change (-U and +U)"
)
_REASONS: dict[str, tuple[str, str]] = {
    "aggregate": (
        "a group without a window changes its result with each row, and a table that only takes new rows cannot be "
        "told of changes (the reference asks for a changelog or upsert sink here, too)",
        "group by a window of a column with a watermark, as TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' MINUTE), "
        f"write into a table of 'upsert-kafka', {_BATCH}",
    ),
    "grouping": ("Spark groups a stream by one set of keys", f"write one INSERT for each set, {_BATCH}"),
    "distinct": ("a stream never knows whether an equal row came before", f"leave DISTINCT out, {_BATCH}"),
    "distinct values": ("Spark keeps no set of the values that came", f"leave DISTINCT out, {_BATCH}"),
    "over": ("Spark has no OVER windows on streams", f"group by a window instead, {_BATCH}"),
    "order": ("a stream has no last row, and so no order of all rows", f"leave ORDER BY out, {_BATCH}"),
    "offset": ("a stream has no order that rows could be left out by", f"leave OFFSET out, {_BATCH}"),
    "outer join": (
        "an outer join of streams gives rows for which nothing came, and takes them back when it comes",
        f"join with JOIN, {_BATCH}",
    ),
    "set": ("a stream never knows whether an equal row is to come", f"write UNION ALL, {_BATCH}"),
    "nested": ("Spark has no queries inside of expressions on streams", f"write a JOIN, {_BATCH}"),
}

_TAKING_CHANGES = ("blackhole", "upsert-kafka")


def stream_problems(
    notes: Iterable[tuple[Note, Where]],
    windows: Iterable[tuple[TimeWindow, Where]],
    *,
    watermarks: bool,
    sink: str | None,
    changes: bool,
) -> Iterator[Problem]:
    """What a streaming query cannot do.

    Args:
        notes: What stands in the query, with its place.
        windows: Its windows of event time, with their places.
        watermarks: Whether a table that is read has a watermark.
        sink: The connector of the table that is written; None shows the rows.
        changes: Whether what is written, or shown, tells rows that change and go.
    """
    given = list(notes)
    if sink in _TAKING_CHANGES:
        yield from _together([one for one in given if one[0].kind in ("aggregate", "join")])
    for note, where in given:
        if note.kind not in _REASONS or (sink in _TAKING_CHANGES and note.kind == "aggregate"):
            continue
        reason, fix = _REASONS[note.kind]
        if note.kind == "aggregate" and changes:
            reason = _WITHOUT_BEFORE
        yield Problem(f"stream-{note.kind.replace(' ', '-')}", f"{note.name} in a stream: {reason}", fix, where)
    for window, where in windows:
        if not watermarks:
            message = f"{window.kind} in a stream: a window ends when a watermark passes it, and no table has one"
            fix = "declare WATERMARK FOR ts AS ts - INTERVAL '5' SECOND in the table"
            yield Problem("stream-watermark", message, fix, where)


def _together(notes: list[tuple[Note, Where]]) -> Iterator[Problem]:
    """Of a query whose rows change, Spark makes one group, and joins nothing."""
    groups = [one for one in notes if one[0].kind == "aggregate"]
    if groups and len(notes) > 1:
        note, where = groups[0]
        what = "a group of groups" if len(groups) > 1 else "a group of joined streams"
        message = f"{note.name} in a stream: {what}, of which Spark tells no changes"
        fix = "write the inner result to a table of 'upsert-kafka' by itself, or group by windows"
        yield Problem("stream-several", message, f"{fix}, {_BATCH}", where)
