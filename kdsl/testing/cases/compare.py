"""Compares what is expected with what came, and writes the differences for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal
from difflib import SequenceMatcher
from typing import Any

import pyarrow as pa

from kdsl.errors import listing, nearest
from kdsl.testing.cases.model import Content, ExpectedError, Message, RowText
from kdsl.testing.cases.values import Plain, parse_column, plain_column, show, write_bytes

Entry = Mapping[str, Plain]
"""A row or a message: values in their canonical form by name."""
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_ENTRIES = {"row": "rows", "message": "messages"}


def compare_rows(
    expected: Sequence[RowText], actual: pa.Table | pa.RecordBatch, places: Sequence[str] = (), *, ordered: bool = True
) -> list[str]:
    """Compare rows by value, in the types of the actual columns; return the lines of the differences, none if equal.

    Args:
        expected: The rows, each with all columns; values are text in the form of the column, or Python's values.
        actual: The rows that came.
        places: Where each of them comes from, for the differences.
        ordered: Whether the order of the rows counts.
    """
    names = actual.schema.names
    columns: dict[str, list[Plain]] = {}
    problems = []
    for name, column in zip(names, actual.columns, strict=True):
        array, unread = parse_column([row.get(name) for row in expected], column.type)
        columns[name] = plain_column(array)
        problems += [f"  expected row {i + 1}, {name}: {reason}" for i, reason in unread.items()]
    if problems:
        return ["expected rows cannot be read as values of their columns:", *problems]
    known: list[Entry] = [
        {name: columns[name][i] if name in columns else _show_unknown(row[name]) for name in row}
        for i, row in enumerate(expected)
    ]
    return compare_entries(known, plain_rows(actual), places, what="row", ordered=ordered)


def _show_unknown(value: Any) -> str | None:
    """Return the text of a value whose column does not exist."""
    return None if value is None else str(value)


def plain_rows(rows: pa.Table | pa.RecordBatch) -> list[Entry]:
    """Return rows with their values in the canonical form."""
    values = [plain_column(column) for column in rows.columns]
    return [dict(zip(rows.schema.names, row, strict=True)) for row in zip(*values, strict=True)]


def compare_messages(expected: Sequence[Message], actual: Sequence[Message], *, ordered: bool = True) -> list[str]:
    """Compare messages; return the lines of the differences, none if they are equal.

    Keys and values are compared byte by byte, or as JSON if an expected one is written as a mapping or a list. Topic,
    partition and timestamp are compared if one of the expected messages names them.
    """
    optional = [
        name for name in ("topic", "partition", "timestamp") if any(getattr(m, name) is not None for m in expected)
    ]
    as_json = [side for side in ("key", "value") if any(getattr(m, side).json for m in expected)]
    wanted, came = ([plain_message(m, optional, as_json) for m in messages] for messages in (expected, actual))
    return compare_entries(wanted, came, what="message", ordered=ordered)


def plain_message(message: Message, optional: Sequence[str] = (), as_json: Sequence[str] = ()) -> Entry:
    """Return a message in its canonical form: key, value, headers if there are some, and some other members.

    Args:
        message: The message.
        optional: The other members.
        as_json: The sides that are compared as JSON.
    """
    entry: dict[str, Plain] = {}
    for side in ("key", "value"):
        content: Content = getattr(message, side)
        entry[side] = write_bytes(content.data)
        if side in as_json and content.data is not None:
            entry[side] = _canonical_json(content.data) or entry[side]
    if message.headers:
        entry["headers"] = [{name: write_bytes(content.data)} for name, content in message.headers]
    values = {name: getattr(message, name) for name in optional}
    return entry | {name: None if value is None else str(value) for name, value in values.items()}


def _canonical_json(data: bytes) -> str | None:
    """Return JSON with its members sorted and its numbers in one form; None if it is not JSON."""
    try:
        value = json.loads(data, parse_float=Decimal, parse_int=Decimal, parse_constant=str)
    except (ValueError, RecursionError):
        return None
    return _write_canonical(value)


def _write_canonical(value: Any) -> str:
    """Write a value of JSON whose numbers are decimals."""
    match value:
        case dict():
            members = (f"{json.dumps(k, ensure_ascii=False)}: {_write_canonical(v)}" for k, v in sorted(value.items()))
            return f"{{{', '.join(members)}}}"
        case list():
            return f"[{', '.join(map(_write_canonical, value))}]"
        case Decimal():
            return str(value.normalize(_EXACT)) if value else "0"
        case _:
            return json.dumps(value, ensure_ascii=False)


def compare_errors(expected: Sequence[ExpectedError], actual: Sequence[ExpectedError]) -> list[str]:
    """Compare records that cannot be read; return the lines of the differences, none if they are equal."""
    lines = []
    rest = list(actual)
    for one in expected:
        same = next((other for other in rest if _is_same_record(one, other)), None)
        if same is None:
            lines.append(f"  {_place(one)}: {_name(one)} is expected, but there is none")
            continue
        rest.remove(same)
        if same.letter != one.letter:
            lines.append(f"  {_place(same)}: {_name(one)} is expected, but it is {_name(same)}: {same.reason}")
        elif one.reason not in same.reason:
            lines.append(f"  {_place(same)}: {one.reason!r} is expected, got {same.reason!r}")
    lines += [f"  {_place(one)}: {_name(one)} is not expected: {one.reason}" for one in rest]
    return ["records that cannot be read differ:", *lines] if lines else []


def _is_same_record(one: ExpectedError, other: ExpectedError) -> bool:
    """Whether an expected record is another one; without a topic it is of any."""
    return (one.partition, one.offset) == (other.partition, other.offset) and one.topic in (None, other.topic)


def _place(one: ExpectedError) -> str:
    return f"partition {one.partition}, offset {one.offset}" + (f" of {one.topic}" if one.topic else "")


def _name(one: ExpectedError) -> str:
    return "a dead letter" if one.letter else "an error"


def compare_strings(expected: Sequence[str], actual: Sequence[str], what: str) -> list[str]:
    """Compare strings in order; return the lines of the differences, none if they are equal."""
    if list(expected) == list(actual):
        return []
    lines = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, expected, actual, autojunk=False).get_opcodes():
        lines += [f"  missing: {text}" for text in expected[i1:i2] if tag != "equal"]
        lines += [f"  not expected: {text}" for text in actual[j1:j2] if tag != "equal"]
    return [f"{what} differ:", *lines]


def compare_entries(
    expected: Sequence[Entry], actual: Sequence[Entry], places: Sequence[str] = (), *, what: str, ordered: bool
) -> list[str]:
    """Compare rows or messages; return the lines of the differences, none if they are equal.

    Args:
        expected: What is expected.
        actual: What came.
        places: Where each of these comes from.
        what: ``row`` or ``message``.
        ordered: Whether their order counts.
    """
    pairs = list(_pair(expected, actual, ordered=ordered))
    lines = []
    for i, j in pairs:
        place = f" ({places[j]})" if j is not None and j < len(places) else ""
        if j is None and i is not None:
            lines.append(f"  {what} {i + 1} is missing: {show(dict(expected[i]))}")
        elif i is None and j is not None:
            lines.append(f"  {what} {j + 1}{place} is not expected: {show(dict(actual[j]))}")
        elif i is not None and j is not None:
            inner = list(_compare_members(expected[i], actual[j]))
            lines += [f"  {what} {j + 1}{place}:", *(f"    {line}" for line in inner)] if inner else []
    if not lines:
        return []
    return [f"{_ENTRIES[what]} differ ({len(expected)} expected, got {len(actual)}):", *lines]


def _pair(
    expected: Sequence[Entry], actual: Sequence[Entry], *, ordered: bool
) -> Iterator[tuple[int | None, int | None]]:
    """Yield the indices of what belongs together: equal entries first, then the others between them in order."""
    texts, others = [[_text(entry) for entry in entries] for entries in (expected, actual)]
    if not ordered:
        rest = list(range(len(others)))
        left = []
        for i, text in enumerate(texts):
            same = next((j for j in rest if others[j] == text), None)
            if same is None:
                left.append(i)
            else:
                rest.remove(same)
        yield from _zip(left, rest)
        return
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, texts, others, autojunk=False).get_opcodes():
        if tag != "equal":
            yield from _zip(range(i1, i2), range(j1, j2))


def _text(entry: Entry) -> str:
    """The string of an entry; equal entries have equal ones."""
    return repr(sorted(entry.items()))


def _zip(left: Sequence[int], right: Sequence[int]) -> Iterator[tuple[int | None, int | None]]:
    """Pair numbers in order; the longer side is paired with None at its end."""
    for k in range(max(len(left), len(right))):
        yield left[k] if k < len(left) else None, right[k] if k < len(right) else None


def _compare_members(expected: Entry, actual: Entry) -> Iterator[str]:
    """Yield the differences of two entries, a line each."""
    for name in dict.fromkeys([*expected, *actual]):
        if name not in actual:
            unnamed = [other for other in actual if other not in expected]
            yield f"{name}: expected {show(expected[name])}, but there is none{nearest(name, unnamed)}"
        elif name not in expected:
            yield f"{name}: it is not in what is expected, got {show(actual[name])}"
        elif expected[name] != actual[name]:
            yield f"{name}: expected {show(expected[name])}, got {show(actual[name])}"


def compare_by_name(
    expected: Mapping[str, Any], actual: Mapping[str, Any], what: str, compare: Callable[[Any, Any], list[str]]
) -> list[str]:
    """Compare what there is of each table or topic; return the lines of the differences, none if all are equal.

    Args:
        expected: What is expected, by name.
        actual: What came, by name; of those that are not expected nothing may have come.
        what: ``table`` or ``topic``.
        compare: Compares what is of one name.
    """
    lines = []
    for name in expected:
        if name not in actual:
            fix = f"; there {'is' if len(actual) == 1 else 'are'} {listing(actual)}" if actual else "; there is none"
            lines.append(f"there is no {what} {name!r}{nearest(name, actual)}{fix}")
            continue
        lines += [
            f"{what} {name}: {line}" if not line.startswith(" ") else line
            for line in compare(expected[name], actual[name])
        ]
    return lines
